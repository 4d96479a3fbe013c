"""Problems of a GPU's kernels: types that its units take, parameters, the problem; refusals name what works.

Integer weights with a floating source are as ambiguous here as on CPUs, and `Attr(apply_to_int=True)` says so as well
(`simdnn.primitives.decompress`): mode bf16 with an f32 source computes in bf16 where there is a unit for it; otherwise
every type that the mode allows is a candidate, f32 among them always.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from isa_models import GpuMachine, Unimplemented
from isa_models.formats import fmt
from isa_models.nvidia.mma import MIXED
from isa_models.readings.arrays import Array
from simdnn.kernels.common.epilogue import Decompression, Epilogue, Parameters, ZeroPoints
from simdnn.kernels.common.narrow_floats import NARROW
from simdnn.kernels.common.params import Param
from simdnn.kernels.gpu import depthwise
from simdnn.kernels.gpu.problem import GpuConvProblem, GpuMatmulProblem
from simdnn.kernels.gpu.rows import FLOATS, INTEGERS
from simdnn.kernels.intel_gpu import compute as intel_compute
from simdnn.kernels.nvidia import compute as nvidia_compute
from simdnn.primitives import arrays, narrow_problems
from simdnn.primitives.channel_groups import refuse_groups, scale_by_groups
from simdnn.primitives.checks import one_of
from simdnn.primitives.decompress import weights_params
from simdnn.primitives.groups import group_scales, with_groups
from simdnn.primitives.placed import Shape
from simdnn.primitives.problems import WEI_TAGS, Taps, conv_problem
from simdnn.primitives.products import Products
from simdnn.primitives.resolve import DESTINATIONS, Resolved, resolve
from simdnn.primitives.zero_points import DECOMPRESSED, refuse_strategy, with_tables, zero_points


# -- matmul -----------------------------------------------------------------------------------------------------------
def matmul_problem(
    machine: GpuMachine, products: Products, given: Resolved, dst: str | None, bias: Any, tag: object
) -> tuple[GpuMatmulProblem, Parameters]:
    """A matmul on a GPU, and its numbers."""
    shape = given.shape
    tag = one_of("wei_tag", tag, WEI_TAGS)
    if given.shape.compressed:
        refuse_strategy(given, DECOMPRESSED)
    zeros = zero_points(given, every=True)
    groups = group_scales(given, exact=True)
    epilogue, parameters = resolve(given.without_zero_points() if zeros else given, dst, bias, _stored(machine))
    _check_parameters(machine, given)
    epilogue, parameters = with_groups(epilogue, parameters, given, groups)
    parts = _decompression(machine, given)
    if parts and parts.scale and not parts.scale.group:  # it multiplies the sums
        epilogue = replace(epilogue, wei_scale=parts.scale)
    _check_compressed(machine, parts, parameters)
    if zeros:
        parameters = with_tables(parameters, given, zeros)
        zeros = _as_asked(zeros, given, parameters)
    sizes = shape.m, shape.n, shape.k, shape.src, shape.wei
    model = "" if machine.nvidia else given.float_model
    problem = GpuMatmulProblem(*sizes, epilogue, tag, parts, groups, False, zeros, products.batch, float_model=model)
    return problem, parameters


def _as_asked(zeros: ZeroPoints, given: Resolved, parameters: Parameters) -> ZeroPoints:
    """Zero points with the strategy that is asked for, and the range of their values, on which strategies depend."""
    strategy = "" if given.strategy == "auto" else given.strategy
    wei, src = (_range(table) for table in (parameters.wei_zero_points, parameters.src_zero_points))
    return replace(zeros, strategy=strategy, wei_range=wei, src_range=src)


def _range(table: Array | None) -> tuple[int, int]:
    """The least and the largest of some zero points."""
    return (0, 0) if table is None else (int(table.min()), int(table.max()))


def _decompression(machine: GpuMachine, given: Resolved) -> Decompression | None:
    """Where the parameters of compressed weights belong, and the types that they may be multiplied in."""
    if not given.shape.compressed:
        return None
    return Decompression(_computed(machine, given), *weights_params(given))


def _check_compressed(machine: GpuMachine, parts: Decompression | None, parameters: Parameters) -> None:
    """`Unimplemented` for zero points of compressed weights that f16 cannot take from them."""
    points, most = parameters.wei_zero_points, nvidia_compute.LARGEST if machine.nvidia else intel_compute.LARGEST
    if parts and points is not None and (largest := int(np.abs(points.astype(np.int64)).max())) > most:
        raise Unimplemented(
            f"zero_points['wei'] up to {largest} of compressed weights on {machine.name!r}: they are "
            f"taken from them in words or f16 there; what works: -{most} to {most}"
        )


# -- convolution ------------------------------------------------------------------------------------------------------
def convolution_problem(
    machine: GpuMachine,
    sizes: Mapping[str, int],
    taps: Taps,
    given: Resolved,
    dst: str | None,
    bias: Any,
    tag: object,
) -> tuple[GpuConvProblem, Parameters]:
    """A convolution on a GPU, and its numbers; common zero points both by themselves and as tables of the product."""
    shape = given.shape
    if given.shape.compressed:
        refuse_strategy(given, DECOMPRESSED)
    inside = scale_by_groups(given, sizes)
    epilogue, parameters = resolve(given.without_scale("wei") if inside else given, dst, bias, _stored(machine))
    if epilogue.by_channel:
        raise Unimplemented(f"zero points by channel on {machine.name!r}: what works: common ones, or a CPU")
    plain = conv_problem(sizes, taps, shape, epilogue, tag)
    model = "" if machine.nvidia else given.float_model
    problem = GpuConvProblem(**vars(plain), float_model=model)
    if depthwise.accepts(plain):
        refuse_strategy(given, "its kernel subtracts the zero point from each element", "a depthwise convolution")
        refuse_groups(given, "of a depthwise convolution")
        return problem, parameters
    _check_parameters(machine, given)
    parameters = _with_common(epilogue, parameters)
    if shape.compressed:  # less their common zero point; scales but those of groups come after the sums
        point = Param("wei", 0, 0, "s32") if epilogue.zp_wei else None
        parameters = replace(parameters, wei_scale=inside.values) if inside else parameters
        parts = Decompression(_computed(machine, given), inside.param if inside else None, point)
        return replace(problem, decompression=parts), parameters
    refuse_groups(given, f"on {machine.name!r}, but of weights beside a source of more bits")
    if not (epilogue.zp_src or epilogue.zp_wei):
        return problem, parameters
    points = {name: point.param for name, point in given.zero_points.items()}
    zeros = _as_asked(ZeroPoints(shape.k, points.get("wei"), points.get("src")), given, parameters)
    return replace(problem, zero_points=zeros), parameters


def _with_common(epilogue: Epilogue, parameters: Parameters) -> Parameters:
    """Common zero points as tables of one row and one column."""
    wei, src = (np.full((1, 1), value, np.int32) for value in (parameters.zp_wei, parameters.zp_src))
    return replace(
        parameters,
        wei_zero_points=wei if epilogue.zp_wei else None,
        src_zero_points=src if epilogue.zp_src else None,
    )


# -- what works on a GPU ----------------------------------------------------------------------------------------------
def units(machine: GpuMachine) -> tuple[str, ...]:
    """Types that kernels multiply on the machine's matrix unit: of Intel's the floats."""
    if machine.nvidia:
        return machine.platform.matrix_types
    return tuple(dtype for dtype in ("tf32", *FLOATS) if machine.platform.accumulators(dtype))


def _computed(machine: GpuMachine, given: Resolved) -> tuple[str, ...]:
    """The types that compressed weights may be multiplied in."""
    taken = ("f32", *units(machine))
    wanted = narrow_problems.computed(given, "bf16" in taken)
    return tuple(dtype for dtype in wanted if dtype in taken)


def check_types(machine: GpuMachine, shape: Shape, apply_to_int: bool) -> None:
    """`Unimplemented` for operands that nothing on the machine multiplies."""
    if shape.compressed and not fmt(shape.wei).is_float:
        arrays.check_types(shape.primitive, shape.src, shape.wei, apply_to_int)
    if machine.nvidia:
        _check_on_nvidia(machine, shape)
    else:
        _check_on_intel(machine, shape)


def _check_on_nvidia(machine: GpuMachine, shape: Shape) -> None:
    """`Unimplemented` for types that neither the generation's tensor cores nor its CUDA cores multiply here."""
    src, wei, works = shape.src, shape.wei, machine.platform.multiplied
    if src in works and (shape.compressed or src == wei):
        return
    if {src, wei} <= set(works) and any({src, wei} <= set(pair) for pair in MIXED):
        return
    taken, title = ", ".join(units(machine)), machine.platform.title
    unit = f"{title}'s tensor cores take {taken} alone in kernels here" if taken else f"{title} has no tensor cores"
    if shape.compressed:
        raise Unimplemented(f"{src} source on {machine.name!r}: {unit}; what works: {', '.join(works)}")
    pairs = ", ".join(f"{dtype}:{dtype}" for dtype in works)
    raise Unimplemented(f"{src}:{wei} on {machine.name!r}: {unit}; what works: {pairs} on its CUDA cores")


def _check_on_intel(machine: GpuMachine, shape: Shape) -> None:
    """Two integers, or two floats of one type; without DPAS bytes alone are multiplied as integers."""
    src, wei, platform = shape.src, shape.wei, machine.platform
    if not shape.compressed and not shape.integer and not (src == wei and src in FLOATS):
        raise Unimplemented(
            f"{src} source with {wei} weights on {machine.name!r}; src:weights that work: any two of "
            f"{', '.join(INTEGERS)}, or f32:f32, bf16:bf16, f16:f16, or one of these three with weights of "
            f"{', '.join(NARROW)}"
        )
    if shape.integer and not platform.exec_size and not {src, wei} <= {"s8", "u8"}:
        raise Unimplemented(f"{src}:{wei} on {machine.name!r}: {platform.title} has no DPAS, DP4A takes s8 and u8")


def _check_parameters(machine: GpuMachine, given: Resolved) -> None:
    """`Unimplemented` for scales and zero points that no product of the machine has; Intel's have all."""
    shape = given.shape
    narrow = not shape.compressed and fmt(shape.src).bits == 8  # scaled after their sums
    scales = ("src", "wei", "dst") if narrow else ("src", "wei") if shape.compressed else ()
    points = ("dst",) if narrow else ("wei",) if shape.compressed else ()
    others = [f"scales[{name!r}]" for name in given.scales if name not in scales]
    others += [f"zero_points[{name!r}]" for name in given.zero_points if name not in points]
    if machine.nvidia and others:
        raise Unimplemented(
            f"scales or zero points on {machine.name!r}: {others[0]} of {shape.src}:{shape.wei}; what kernels here "
            "have: scales of bytes and f8, of compressed weights and their source; zero points of compressed weights, "
            "and of what bytes are stored as; bias and relu"
        )


def _stored(machine: GpuMachine) -> tuple[str, ...]:
    """The types that kernels of the machine store."""
    lacks_bf16 = machine.nvidia and "bf16" not in machine.platform.matrix_types
    return tuple(dtype for dtype in DESTINATIONS if dtype != "bf16" or not lacks_bf16)
