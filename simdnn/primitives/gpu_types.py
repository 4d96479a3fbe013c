"""Which types a GPU may compute a problem in: what its units take, and what a math mode allows beside.

Integer weights with a floating source are as ambiguous here as on CPUs, and `Attr(apply_to_int=True)` says so as well
(`simdnn.primitives.decompress`): mode bf16 with an f32 source computes in bf16 where there is a unit for it; otherwise
every type that the mode allows is a candidate, f32 among them always, and the cheapest is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from isa_models import GpuMachine, Unimplemented
from isa_models.intel_gpu.dpas import Shape as DpasShape
from isa_models.nvidia.mma import UNITS
from simdnn.kernels.common.spec import Decompression, Epilogue, Parameters
from simdnn.kernels.intel_gpu import compute as gpu_compute
from simdnn.kernels.intel_gpu.copy import copy_alone, is_copied
from simdnn.kernels.intel_gpu.gemm import GpuMatmulProblem
from simdnn.kernels.nvidia import compute as sm_compute
from simdnn.primitives import arrays, compatible
from simdnn.primitives.attr import Attr
from simdnn.primitives.decompress import computes, placing
from simdnn.primitives.mathmode import COLD_WEIGHTS, FPMATH
from simdnn.primitives.products import Products
from simdnn.primitives.resolve import Shape
from simdnn.primitives.result import Conversion
from simdnn.primitives.zero_points import refuse_strategy
from simdnn.program.records import Program

_INTEGERS = ("s8", "u8", "s4", "u4")
_FLOATS = ("f32", "tf32", "bf16", "f16")
P = TypeVar("P")


@dataclass(frozen=True)
class Types:
    """Operands' types as a problem has them, DPAS's float model; `compute`: the type multiplied where it is another."""

    src: str
    wei: str
    model: str = ""
    compute: str = ""


def types_of(machine: GpuMachine, shape: Shape, attr: Attr) -> list[Types]:
    """The candidates for a problem; refusals name the machine and what works."""
    if shape.compressed:
        return _compressed(machine, shape, attr)
    if shape.src == shape.wei == "f32":
        return _of_f32(machine, shape, attr)
    if machine.nvidia:
        return [_on_nvidia(machine, shape)]
    return [_on_intel(machine, shape, attr)]


def decompression(shape: Shape, attr: Attr, compute: str) -> Decompression | None:
    """Where the parameters of compressed weights belong; of a convolution they are the epilogue's."""
    if not shape.compressed:
        return None
    scale = placing("scales", attr.scales.get("wei"), shape)
    return Decompression((compute,), scale, placing("zero_points", attr.zero_points.get("wei"), shape))


def problems_of(
    asked: Products, shape: Shape, attr: Attr, candidates: list[Types], epilogue: Epilogue, **more: Any
) -> list[GpuMatmulProblem]:
    """The matmul for each candidate; `more` of its fields."""
    found = []
    for t in candidates:
        parts = decompression(shape, attr, t.compute)
        if parts and parts.scale and parts.scale.placing != "grouped":
            epilogue = replace(epilogue, wei_scale=parts.scale.placing)
        found.append(
            GpuMatmulProblem(
                shape.m,
                shape.n,
                shape.k,
                t.src,
                t.wei,
                epilogue,
                decompression=parts,
                float_model=t.model,
                batch=asked.batch,
                compute=t.compute,
                **more,
            )
        )
    return found


def cheapest(problems: Sequence[P], cost: Callable[[P, GpuMachine, bool], Any], machine: GpuMachine) -> P:
    """The candidate of the fewest cycles by `cost`, which is not asked where there is only one."""
    cold = COLD_WEIGHTS.effective(None)
    return problems[0] if len(problems) == 1 else min(problems, key=lambda p: float(cost(p, machine, cold).cycles))


def check_zero_points(machine: GpuMachine, parts: Decompression | None, parameters: Parameters) -> None:
    """`Unimplemented` for zero points of compressed weights that f16 cannot take from them."""
    points, most = parameters.wei_zero_points, sm_compute.LARGEST if machine.nvidia else gpu_compute.LARGEST
    if parts and points is not None and (largest := int(np.abs(points.astype(np.int64)).max())) > most:
        raise Unimplemented(
            f"zero_points['wei'] up to {largest} of compressed weights on {machine.name!r}: they are "
            f"taken from them in words or f16 there; what works: -{most} to {most}"
        )


def conversion_of(problem: GpuMatmulProblem, machine: GpuMachine, program: Program) -> Conversion | None:
    """The weights' way into blocks, or into another type, once and ahead of the runs, where it takes a kernel."""
    from simdnn.timing.gpu.estimate import estimate_gpu

    if problem.wei_tag != "any":
        return None
    if problem.compute and problem.wei == "f32":
        size = problem.batch.products("wei") * problem.k * problem.n
        program = gpu_compute.rounding(size, problem.compute, machine)
        read, written = (next(t.nbytes for t in program.tensors if t.kind == kind) for kind in ("input", "output"))
    elif is_copied(machine, problem.wei, problem.m, problem.n):
        program = copy_alone(program, machine, "wei")
        read = written = program.tensor["wei"].nbytes
    else:
        return None
    found = estimate_gpu(program, machine, cold=COLD_WEIGHTS.effective(None))
    return Conversion(found.cycles, found.seconds, read, written, found.confidence)


def _units(machine: GpuMachine) -> tuple[str, ...]:
    """Float types that the machine's matrix unit takes."""
    if machine.nvidia:
        return tuple(UNITS["mma"][machine.platform.name])
    return tuple(dtype for dtype in _FLOATS if machine.platform.accumulators(dtype))


def _compressed(machine: GpuMachine, shape: Shape, attr: Attr) -> list[Types]:
    arrays.check_types(shape.primitive, shape.src, shape.wei, attr.apply_to_int)
    refuse_strategy(attr, f"{shape.src} x {shape.wei}", "weights less their zero point are multiplied")
    units = _units(machine)
    if machine.nvidia and shape.src not in ("f32", *units):
        raise Unimplemented(
            f"{shape.src} source on {machine.name!r}: {machine.platform.title} has no {shape.src}; "
            f"what works: f32, {', '.join(units)}"
        )
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
    if shape.src == shape.wei and shape.src in units:
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
        raise Unimplemented(
            f"{src} source with {wei} weights on {machine.name!r}; src:weights that work: any two of "
            f"{', '.join(_INTEGERS)}, or f32:f32, bf16:bf16, f16:f16"
        )
    if not platform.exec_size:
        if integers and (src not in ("s8", "u8") or wei not in ("s8", "u8")):
            raise Unimplemented(f"{src}:{wei} on {machine.name!r}: {platform.title} has no DPAS, DP4A takes s8 and u8")
        return Types(src, wei)
    acc, model = ("s32", "") if integers else ("f32", attr.float_model)
    reason = DpasShape(wei, src, acc, acc, min(8, shape.m), platform.exec_size, model).refused_by(platform)
    if reason:
        raise Unimplemented(f"{src}:{wei} on {machine.name!r}: {platform.title} {reason}")
    return Types(src, wei, model)
