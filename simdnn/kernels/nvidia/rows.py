"""The kernels of NVIDIA GPUs as rows: CUDA cores and the tensor cores of each generation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial

from isa_models import GpuMachine
from isa_models.formats import fmt
from isa_models.gpu.platforms import Platform, WarpProduct
from isa_models.nvidia.mma import MIXED, results_of
from isa_models.nvidia.platforms import CUDA_CORES, PLATFORMS
from simdnn.kernels.common.kernel import Kernel, KernelKind
from simdnn.kernels.gpu.compute import group_of
from simdnn.kernels.gpu.problem import GpuMatmulProblem
from simdnn.kernels.gpu.rows import STORED, GpuRow, depthwise_kind
from simdnn.kernels.nvidia.compute import SmComputeGemm
from simdnn.kernels.nvidia.gemm import LEAST_K, SmGemm, parts_of_k

_TAGS = ("any", "ab")
#: results of which K is split: cuBLASLt 12.8 splits none above 1.45 million (mmaemu 0.1.0, its table of an H100 PCIe)
MOST_RESULTS = 1450000


def _product(unit: str) -> partial[Kernel]:
    return partial(_kernel, unit)


@lru_cache(maxsize=1)
def _kernel(unit: str, problem: GpuMatmulProblem, machine: GpuMachine) -> Kernel:
    """The kernel of all of K, kept for the row behind, whose K may have no parts."""
    return (SmComputeGemm if problem.compute else SmGemm)(problem, machine, unit).kernel()


def _of_parts(row: GpuRow) -> GpuRow:
    """The row whose kernels split K."""
    made, wants = partial(_kernel_of_parts, row.unit), (*row.wants, _has_parts)
    return replace(row, generator=made, suffix=f"{row.suffix}_split", promotes=0, wants=wants)


def _has_parts(platform: Platform, p: GpuMatmulProblem) -> str:
    """Whether K is long and results are few."""
    results = p.m * p.n * p.batch.count
    if p.k < 2 * LEAST_K:
        return f"splits K where it has parts of {LEAST_K} or more, not {p.k}"
    return f"splits K of up to {MOST_RESULTS} results, not {results}" if results > MOST_RESULTS else ""


def _kernel_of_parts(unit: str, problem: GpuMatmulProblem, machine: GpuMachine) -> Kernel:
    """The kernel of a problem whose K is split, or that of all of K where it is as good in one part."""
    made = partial(SmComputeGemm if problem.compute else SmGemm, problem, machine, unit)
    group = group_of(problem.decompression, problem.k) if problem.decompression else problem.k
    found = parts_of_k(problem, machine, made, group)
    return found.kernel() if found else _kernel(unit, problem, machine)


def _paired(platform: Platform, p: GpuMatmulProblem) -> str:
    """Operands of one type, or of two that tensor cores take together."""
    if p.src == p.wei or any({p.src, p.wei} <= set(pair) for pair in MIXED):
        return ""
    return f"{p.src}:{p.wei}: tensor cores take operands of one type, or {' or '.join(map(' with '.join, MIXED))}"


def _rows(platform: Platform) -> Iterator[GpuRow]:
    """The rows of a generation. The first of several takes equal cycles; tensor cores round f32 data to their type."""
    row = partial(GpuRow, "nvidia", platform, tags=_TAGS)
    stored = partial(row, decompresses=True, tags=("any",))
    on_cores = ("f32",) if "f16" in platform.matrix_types else ("f16", "f32")
    yield row("fma", _product("fma"), on_cores, on_cores, "f32", promotes=2 * CUDA_CORES.k)
    yield from _on_tensor_cores(platform, "mma", platform.tensor_cores, _TAGS)
    yield from _on_tensor_cores(platform, "wgmma", platform.warp_groups, ("any",))
    sources = tuple(dtype for dtype in platform.multiplied if fmt(dtype).is_float and fmt(dtype).bits > 8)
    yield stored("fma", _product("fma"), sources, STORED, "f32", suffix="_wdec")
    halves = [dtype for dtype, _ in platform.tensor_cores if fmt(dtype).is_float and fmt(dtype).bits == 16]
    for dtype in halves:
        suffix = "_wdec" + (f"_{dtype}" if len(halves) > 1 else "")
        yield stored("mma", _product("mma"), (dtype, "f32"), STORED, dtype, suffix=suffix)


def _on_tensor_cores(
    platform: Platform, unit: str, products: Sequence[tuple[str, WarpProduct]], rounds: tuple[str, ...]
) -> Iterator[GpuRow]:
    """Products of operands as they are stored, and of f32 data rounded to their types.

    `rounds`: layouts of f32 weights that are rounded; where warps read them from shared memory they are so ahead.
    """
    if not products:
        return
    types, most = [dtype for dtype, _ in products], max(product.k for _, product in products)
    row = partial(GpuRow, "nvidia", platform, unit, _product(unit), tags=_TAGS, promotes=2 * most)
    narrow = partial(row, sums="f16", suffix="_f16_sums")
    summed = tuple(dtype for dtype in types if "f16" in results_of(platform.name, dtype, unit)[1:])
    if types == ["f16"]:  # one row for f16 and for f32 data rounded to it
        both = ("f16", "f32")
        yield row(both, both, "f16")
        yield narrow(both, both, "f16")
        return
    stored = tuple(dtype for dtype in types if dtype != "tf32")
    yield row(stored, stored, mixes=True, wants=(_paired,))
    for dtype in ("tf32", "bf16", "f16"):
        if dtype in types:
            yield row(("f32",), ("f32",), dtype, suffix=f"_{dtype}", tags=_TAGS if dtype == "tf32" else rounds)
    yield narrow(summed, summed, mixes=True, wants=(_paired,))


def _kinds() -> Iterator[KernelKind]:
    for platform in PLATFORMS.values():
        for row in _rows(platform):
            yield from row.kinds()
            if platform.async_copies and not row.sums:  # products of V100's library took as long as one part
                yield _of_parts(row).kinds()[0]
        yield depthwise_kind("nvidia", platform)


KERNELS: tuple[KernelKind, ...] = tuple(_kinds())
