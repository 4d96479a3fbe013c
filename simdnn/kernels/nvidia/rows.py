"""The kernels of NVIDIA GPUs as rows: CUDA cores and the tensor cores of each generation."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from isa_models import GpuMachine
from isa_models.gpu.platforms import Platform
from isa_models.nvidia.mma import results_of
from isa_models.nvidia.platforms import CUDA_CORES, PLATFORMS
from simdnn.kernels.common.spec import Kernel, KernelKind
from simdnn.kernels.gpu.problem import GpuMatmulProblem
from simdnn.kernels.gpu.rows import STORED, GpuRow, depthwise_kind
from simdnn.kernels.nvidia.compute import SmComputeGemm
from simdnn.kernels.nvidia.gemm import SmGemm


def _product(problem: GpuMatmulProblem, machine: GpuMachine) -> Kernel:
    return (SmComputeGemm if problem.compute else SmGemm)(problem, machine).kernel()


def _rows(platform: Platform) -> Iterator[GpuRow]:
    """The rows of a generation. The first of several takes equal cycles; tensor cores round f32 data to their type."""
    row, types = partial(GpuRow, "nvidia", platform, tags=("any", "ab")), [dtype for dtype, _ in platform.tensor_cores]
    stored = partial(row, decompresses=True, suffix="_wdec", tags=("any",))
    on_cores = tuple(dtype for dtype in platform.multiplied if dtype not in types)
    yield row("fma", _product, on_cores, on_cores, "f32", promotes=2 * CUDA_CORES.k)
    for dtype, product in platform.tensor_cores:
        products = 2 * product.k
        yield row("mma", _product, (dtype, "f32"), (dtype, "f32"), dtype, promotes=products)
        for sums in results_of(platform.name, dtype)[1:]:
            narrow = partial(row, sums=sums, suffix=f"_{sums}_sums", promotes=products)
            yield narrow("mma", _product, (dtype, "f32"), (dtype, "f32"), dtype)
    yield stored("fma", _product, platform.multiplied, STORED, "f32")
    for dtype in types:
        yield stored("mma", _product, (dtype, "f32"), STORED, dtype)


def _kinds() -> Iterator[KernelKind]:
    for platform in PLATFORMS.values():
        for row in _rows(platform):
            yield from row.kinds()
        yield depthwise_kind("nvidia", platform)


KERNELS: tuple[KernelKind, ...] = tuple(_kinds())
