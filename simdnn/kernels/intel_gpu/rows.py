"""The kernels of Intel GPUs as rows: the vector pipe, DP4A and DPAS of each platform."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from isa_models import GpuMachine
from isa_models.formats import fmt
from isa_models.gpu.platforms import Platform
from isa_models.intel_gpu.dpas import DEPTH, DpasShape
from isa_models.intel_gpu.platforms import PLATFORMS
from simdnn.kernels.common.epilogue import NO_REDUCTIONS
from simdnn.kernels.common.kernel import Kernel, KernelKind
from simdnn.kernels.gpu.problem import GpuMatmulProblem
from simdnn.kernels.gpu.rows import FLOATS, INTEGERS, STORED, GpuRow, Want, depthwise_kind
from simdnn.kernels.intel_gpu.block import VECTOR_K
from simdnn.kernels.intel_gpu.compute import GpuComputeGemm
from simdnn.kernels.intel_gpu.gemm import GpuGemm
from simdnn.kernels.intel_gpu.groups import GpuGroupedGemm
from simdnn.kernels.intel_gpu.upconvert import LARGEST, STEP, GpuUpconvertGemm
from simdnn.kernels.intel_gpu.zero import EXACT, GpuZeroGemm

_BYTES = ("s8", "u8")  # what DP4A takes
_PRODUCTS = 2 * DEPTH  # of 16-bit floats that a DPAS adds up for each result
_ROUNDED = ("tf32", "bf16", "f16")  # what f32 data is brought to


def _plain(problem: GpuMatmulProblem, machine: GpuMachine) -> Kernel:
    return (GpuGroupedGemm if problem.group_scales else GpuGemm)(problem, machine).kernel()


def _computed(problem: GpuMatmulProblem, machine: GpuMachine) -> Kernel:
    return GpuComputeGemm(problem, machine).kernel()


def _zeros(problem: GpuMatmulProblem, machine: GpuMachine) -> Kernel:
    return GpuZeroGemm(problem, machine).kernel()


def _upconverted(problem: GpuMatmulProblem, machine: GpuMachine) -> Kernel:
    return GpuUpconvertGemm(problem, machine).kernel()


# -- what rows ask of a problem ---------------------------------------------------------------------------------------
def _paired(platform: Platform, p: GpuMatmulProblem) -> str:
    """The widths of integers that DPAS takes together."""
    if fmt(p.src).is_float:
        return ""
    reason = DpasShape(p.wei, p.src, "s32", "s32", min(8, p.m), platform.exec_size).refused_by(platform)
    return f"{p.src}:{p.wei}: {platform.title} {reason}" if reason else ""


def _within_the_type(platform: Platform, p: GpuMatmulProblem) -> str:
    zeros, form = p.zero_points, fmt(p.wei)
    if zeros and zeros.wei and not form.low <= zeros.wei_range[0] <= zeros.wei_range[1] <= form.high:
        return f"takes zero points within {p.wei}, {form.low} to {form.high}; what works: in_kernel, bias"
    return ""


def _within_words(platform: Platform, p: GpuMatmulProblem) -> str:
    zeros = p.zero_points
    if zeros and zeros.wei and max(map(abs, zeros.wei_range)) >= 1 << 15:
        return "multiplies zero points of 16 bits; what works: bias"
    return ""


def _summed(platform: Platform, p: GpuMatmulProblem) -> str:
    zeros = p.zero_points
    return NO_REDUCTIONS if zeros and zeros.wei and not zeros.reductions else ""


def _within_halves(platform: Platform, p: GpuMatmulProblem) -> str:
    """Both operands less their zero points as f16; what fills up a group must be a zero on one side."""
    zeros, works = p.zero_points, f"; what works: {', '.join(EXACT)}"
    if zeros is None:
        return ""
    sides = ((zeros.wei, zeros.wei_range, fmt(p.wei)), (zeros.src, zeros.src_range, fmt(p.src)))
    given = [(span, form) for there, span, form in sides if there]
    if any(max(map(abs, span)) > LARGEST for span, _ in given):
        return f"has differences up to 2048 in f16: zero points up to {LARGEST}{works}"
    held = any(form.low <= low <= high <= form.high for (low, high), form in given)
    if zeros.group % STEP and len(given) == 2 and not held:
        return f"fills groups up to {STEP} with zero points, which neither side's type holds{works}"
    return ""


#: strategy -> what it asks of a problem
_EXACT = {"direct": (_within_the_type,), "in_kernel": (_within_words,), "precomputed": (_summed, _within_words)}
_BIAS = "its matrix is made by another kernel: zero_point_strategy='bias' takes it"
_UPCONVERT = "its sums are floats: zero_point_strategy='upconvert' takes it"


def _rows(platform: Platform) -> Iterator[GpuRow]:
    """The rows of a platform. The first of several takes equal cycles."""
    row = partial(GpuRow, "intel_gpu", platform, scales_groups=True)
    rounded = tuple(dtype for dtype in _ROUNDED if platform.accumulators(dtype))
    narrow = tuple(dtype for dtype in rounded if dtype != "tf32")
    unit, integers = ("dpas", INTEGERS) if platform.exec_size else ("dp4a", _BYTES)
    asks: tuple[Want, ...] = (_paired,) if platform.exec_size else ()
    if platform.exec_size:
        yield row("mad", _plain, ("f32",), ("f32",), "f32", promotes=VECTOR_K)
        yield row(unit, _plain, (*narrow, *integers), (*narrow, *integers), wants=asks, promotes=_PRODUCTS)
    else:
        yield row("mad", _plain, FLOATS, FLOATS, "f32", promotes=VECTOR_K)
        yield row(unit, _plain, integers, integers)
    for compute in rounded:
        made = _plain if compute == "tf32" else _computed
        yield row(unit, made, ("f32",), ("f32",), compute, suffix=f"_{compute}")
    for dtype in narrow:
        for sums in platform.accumulators(dtype)[1:]:
            yield row(unit, _plain, (dtype,), (dtype,), sums=sums, suffix=f"_{sums}_sums", promotes=_PRODUCTS)
    yield row("mad", _computed, FLOATS, STORED, "f32", decompresses=True, suffix="_wdec")
    for compute in narrow:
        yield row(unit, _computed, FLOATS, STORED, compute, decompresses=True, suffix=f"_wdec_{compute}")
    zeros = partial(row, sources=integers, weights=integers)
    for name, wants in _EXACT.items():
        yield zeros(unit, _zeros, strategy=name, suffix=f"_{name}", wants=(*asks, *wants))
    yield zeros(unit, _zeros, strategy="bias", suffix="_bias", wants=asks, unasked=_BIAS)
    floating = partial(zeros, strategy="upconvert", suffix="_upconvert", unasked=_UPCONVERT)
    halves = "dpas" if platform.exec_size else "mad"
    yield floating(halves, _upconverted, compute="f16", wants=(*asks, _within_halves))


def _kinds() -> Iterator[KernelKind]:
    for platform in PLATFORMS.values():
        for row in _rows(platform):
            yield from row.kinds()
        yield depthwise_kind("intel_gpu", platform)


KERNELS: tuple[KernelKind, ...] = tuple(_kinds())
