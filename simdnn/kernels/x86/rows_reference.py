"""Rows of kernels for what a library leaves to its reference implementation: one product after another."""

from __future__ import annotations

from functools import partial

from isa_models import Machine
from simdnn.kernels.common.kernel import Kernel, KernelKind
from simdnn.kernels.common.narrow_floats import NARROW, Narrow, is_narrow
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem
from simdnn.kernels.x86.as_s8 import WIDENED
from simdnn.kernels.x86.code import Unit, unit_of
from simdnn.kernels.x86.narrowed import as_f32, narrowing
from simdnn.kernels.x86.ref_int8 import STRATEGIES, RefInt8

_F8 = ("f8_e4m3", "f8_e5m2")


def ref_int8(isa: str) -> KernelKind:
    """Integer matmul with scales or zero points by group or column, or u8 weights."""
    name, unit = f"ref_int8:{isa}", unit_of(isa)
    return KernelKind(
        name,
        isa,
        "s32",
        partial(_ref_int8_kernel, name, unit),
        sources=("u8", "s8"),
        weights=("s8", *WIDENED),
        multiplied="s32",
        accumulates=("s32",),
        takes=("zero_points", "group_scales"),
        strategies=STRATEGIES,
        wants=(_by_group,),
    )


def _by_group(p: MatmulProblem) -> str:
    if not (p.zero_points or p.group_scales or p.wei == "u8"):
        return "computes integer matmul with zero points or scales by group or column, or u8 weights, only"
    if p.zero_points is None and (p.epilogue.zp_src or p.epilogue.zp_wei):
        return "takes zero points by group or column"
    return ""


def _ref_int8_kernel(name: str, unit: Unit, problem: MatmulProblem, machine: Machine) -> Kernel:
    return RefInt8(name, problem, unit).kernel()


def ref_float(isa: str) -> KernelKind:
    """oneDNN's reference where f8 or f4 take part."""
    name = f"ref_float:{isa}"
    return KernelKind(
        name,
        isa,
        "f32",
        partial(_ref_float_kernel, name, unit_of(isa)),
        library="onednn",
        sources=("f32", "bf16", "f16", *NARROW),
        weights=("f32", "bf16", "f16", *NARROW, "s8", *WIDENED),
        multiplied="f32",
        accumulates=("f32",),
        tags=("any", "ab", "ba"),
        takes=("narrow",),
        needs="narrow",
        mixes=True,
        wants=(_as_reference,),
    )


def _as_reference(p: MatmulProblem) -> str:
    return "" if p.narrow and p.narrow.reference else "has the roundings and overflows of a library's reference"


def _ref_float_kernel(name: str, unit: Unit, problem: MatmulProblem, machine: Machine) -> Kernel:
    from simdnn.kernels.x86.ref_float import RefFloat  # the kernels of few

    assert problem.narrow
    if not is_narrow(problem.epilogue.dst):
        return RefFloat(name, problem, unit).kernel()
    kernel = RefFloat(name, as_f32(problem), unit).kernel()
    return narrowing(kernel, problem, problem.narrow)


def ref_conv(isa: str) -> KernelKind:
    """oneDNN's reference convolution of floats."""
    name, floats = f"ref_conv:{isa}", ("f32", "bf16", "f16", *_F8)
    return KernelKind(
        name,
        isa,
        "f32",
        partial(_ref_conv_kernel, name, unit_of(isa)),
        ConvProblem,
        library="onednn",
        sources=floats,
        weights=floats,
        multiplied="f32",
        accumulates=("f32",),
        tags=("any", "oihw"),
        takes=("depth",),
        mixes=True,
        wants=(_own_weights, _no_scales),
    )


def _own_weights(p: ConvProblem) -> str:
    """f32 meets bf16 and f16; other sources have weights of their own type."""
    mixed = p.src == "f32" and p.wei not in _F8
    return "" if p.src == p.wei or mixed else f"multiplies {p.src} by {p.src} alone"


def _no_scales(p: ConvProblem) -> str:
    e = p.epilogue
    if is_narrow(p.src) or not (e.src_scale or e.wei_scale or e.dst_scale or e.dst_zero_point):
        return ""
    return "takes no scales or zero points"


def _ref_conv_kernel(name: str, unit: Unit, problem: ConvProblem, machine: Machine) -> Kernel:
    from simdnn.kernels.x86.ref_conv import RefConv  # the kernels of few

    if not is_narrow(problem.epilogue.dst):
        return RefConv(name, problem, unit).kernel()
    kernel = RefConv(name, as_f32(problem), unit).kernel()
    return narrowing(kernel, problem, Narrow(reference=True))
