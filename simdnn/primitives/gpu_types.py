"""Which types a GPU may compute a problem in: what its units take, and what a math mode allows beside.

Integer weights with a floating source are as ambiguous here as on CPUs, and `Attr(apply_to_int=True)` says so as well
(`simdnn.primitives.decompress`): mode bf16 with an f32 source computes in bf16 where there is a unit for it; otherwise
every type that the mode allows is a candidate, f32 among them always, and the cheapest is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

from isa_models import GpuMachine, Unimplemented
from isa_models.intel_gpu.dpas import Shape as DpasShape
from isa_models.nvidia.mma import UNITS
from simdnn.kernels.spec import Decompression
from simdnn.primitives import arrays, compatible
from simdnn.primitives.attr import Attr
from simdnn.primitives.decompress import computes, placing
from simdnn.primitives.mathmode import FPMATH
from simdnn.primitives.resolve import Shape

_INTEGERS = ("s8", "u8", "s4", "u4")
_FLOATS = ("f32", "tf32", "bf16", "f16")


@dataclass(frozen=True)
class Types:
    """Operands' types as a problem has them, DPAS's float model; `compute`: the type multiplied where it is another."""

    src: str
    wei: str
    model: str = ""
    compute: str = ""


def types_of(machine: GpuMachine, shape: Shape, attr: Attr) -> list[Types]:
    """The candidates for a problem; refusals name the machine and what works."""
    if machine.nvidia:
        return [_on_nvidia(machine, shape)]
    if shape.compressed:
        return _compressed(machine, shape, attr)
    if shape.src == shape.wei == "f32":
        return _of_f32(machine, shape, attr)
    return [_on_intel(machine, shape, attr)]


def decompression(shape: Shape, attr: Attr, compute: str) -> Decompression | None:
    """Where the parameters of compressed weights belong; of a convolution they are the epilogue's."""
    if not shape.compressed:
        return None
    scale = placing("scales", attr.scales.get("wei"), shape)
    return Decompression((compute,), scale, placing("zero_points", attr.zero_points.get("wei"), shape))


def _units(machine: GpuMachine) -> tuple[str, ...]:
    """Float types that the machine's matrix unit takes."""
    if machine.nvidia:
        return tuple(UNITS["mma"][machine.platform.name])
    return tuple(dtype for dtype in _FLOATS if machine.platform.accumulators(dtype))


def _compressed(machine: GpuMachine, shape: Shape, attr: Attr) -> list[Types]:
    arrays.check_types(shape.primitive, shape.src, shape.wei, attr.apply_to_int)
    units = _units(machine)
    wanted = computes(shape.src, FPMATH.effective(attr.fpmath), "bf16" in units)
    allowed = [dtype for dtype in wanted if dtype in ("f32", *units)]
    return [Types(shape.src, shape.wei, "" if c == "f32" or machine.nvidia else attr.float_model, c) for c in allowed]


def _of_f32(machine: GpuMachine, shape: Shape, attr: Attr) -> list[Types]:
    """f32 on the vector pipe, or rounded to what the mode allows and the matrix unit takes."""
    mode, units = FPMATH.effective(attr.fpmath), _units(machine)
    found = [Types("f32", "f32")]
    for dtype in ("tf32", "bf16", "f16"):
        if dtype in units and compatible.allowed(mode, dtype):
            model = "" if machine.nvidia else attr.float_model
            found.append(Types("tf32", "tf32", model) if dtype == "tf32" else Types("f32", "f32", model, dtype))
    return found


def _on_nvidia(machine: GpuMachine, shape: Shape) -> Types:
    """What the generation's tensor cores take."""
    units, title = _units(machine), machine.platform.title
    if shape.src == shape.wei and shape.src in ("f32", *units):
        return Types(shape.src, shape.wei)
    raise Unimplemented(
        f"{shape.src}:{shape.wei} on {machine.name!r}: {title}'s tensor cores take {', '.join(units)} alone (bf16, "
        "tf32 and integers came with later generations); what works: f16:f16, and f32:f32 on its CUDA cores"
    )


def _on_intel(machine: GpuMachine, shape: Shape, attr: Attr) -> Types:
    """Narrow types as they are: DPAS, or the vector pipe where the platform lacks it."""
    src, wei, platform = shape.src, shape.wei, machine.platform
    integers = src in _INTEGERS and wei in _INTEGERS
    if not integers and not (src == wei and src in _FLOATS):
        raise Unimplemented(f"{src} source with {wei} weights on {machine.name!r}; src:weights that work: any two of "
                            f"{', '.join(_INTEGERS)}, or f32:f32, bf16:bf16, f16:f16")  # fmt: skip
    if not platform.exec_size:
        if integers and (src not in ("s8", "u8") or wei not in ("s8", "u8")):
            raise Unimplemented(f"{src}:{wei} on {machine.name!r}: {platform.title} has no DPAS, DP4A takes s8 and u8")
        return Types(src, wei)
    acc, model = ("s32", "") if integers else ("f32", attr.float_model)
    reason = DpasShape(wei, src, acc, acc, min(8, shape.m), platform.exec_size, model).refused_by(platform)
    if reason:
        raise Unimplemented(f"{src}:{wei} on {machine.name!r}: {platform.title} {reason}")
    return Types(src, wei, model)
