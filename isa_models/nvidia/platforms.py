"""NVIDIA GPU generations that kernels are made for, by the names of `isa_models.nvidia.mma.UNITS`.

A new one is a row of `PLATFORMS`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from isa_models.gpu.platforms import Platform, WarpProduct, register

WARP = 32  # threads of a warp: lanes of a register here, which has 128 bytes
#: FMAs of a warp: 8 x 4 threads share its tile, so an element of A goes to 4 of them and one of B to 8
CUDA_CORES = WarpProduct(8, WARP, 1, copies=(4, 8))

#: workgroups of the kernels that CUTLASS generates for the tensor cores of sm_80 (its generator.py; from memory)
_SM80 = ((256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64))
#: the same for wgmma, whose 64 rows are four warps'
_SM90 = ((256, 128), (128, 256), (128, 128), (64, 256), (128, 64), (64, 128), (64, 64))
#: cuBLASLt's for wgmma: a multiple of 64 rows by one of 8 columns, of up to 128 x 320 results. So 12.8.3.14 answered
#: 1.77 million questions about f8 on an H100 PCIe (mmaemu 0.1.0, platform/data/heur_h100pcie_lt12.8.3.14.npz: 175
#: sizes, also with sides exchanged); that f16 and bf16 have the same is inferred
_CUBLASLT = tuple((m, n) for m in range(64, 513, 64) for n in range(8, 321, 8) if m * n <= 128 * 320)


def _warp(k: int) -> WarpProduct:
    """mma.m16n8: no element is in two threads."""
    return WarpProduct(16, 8, k, sizes=_SM80)


def _group(k: int, sizes: Collection[tuple[int, int]]) -> WarpProduct:
    """A warp's rows of wgmma: a quarter of its 64; columns are a multiple of 8 up to 256."""
    return WarpProduct(16, 8, k, sizes=sizes, warps=4, widest=256)


_AMPERE = (("f16", _warp(16)), ("bf16", _warp(16)), ("tf32", _warp(8)), ("s8", _warp(32)), ("u8", _warp(32)))
_F8 = ("f8_e4m3", "f8_e5m2")

PLATFORMS = register(
    Platform(
        "pascal",
        "Pascal",
        4 * WARP,
        warp=WARP,
        # sizes: those in the names of cuDNN 7's implicit GEMM kernels that profiles of a Pascal GPU show, which are
        # Maxwell's: maxwell_scudnn_128x128_relu_interior_nn, maxwell_scudnn_128x64_…, maxwell_scudnn_128x32_…
        cuda_cores=replace(CUDA_CORES, sizes=((128, 128), (128, 64), (128, 32))),
    ),
    Platform(
        "volta",
        "Volta",
        4 * WARP,
        warp=WARP,
        # sizes: those in the names of cuDNN 7's implicit GEMM kernels for Volta, seen in profiles:
        # volta_scudnn_128x64_relu_interior_nn_v1, volta_fp16_s884cudnn_fp16_256x128_ldg8_relu_f2f…
        cuda_cores=replace(CUDA_CORES, sizes=((128, 128), (128, 64), (128, 32))),
        # one mma.m8n8k4 is four products, of a quad of threads each: an element goes to two of the quads
        tensor_cores=(("f16", WarpProduct(16, 16, 4, (2, 2), ((256, 128), (256, 64), (128, 128)))),),
    ),
    Platform(
        "ampere",
        "Ampere",
        4 * WARP,
        warp=WARP,
        cuda_cores=CUDA_CORES,
        tensor_cores=_AMPERE,
        async_copies=True,
    ),
    Platform(
        "ada",
        "Ada",
        4 * WARP,
        warp=WARP,
        cuda_cores=CUDA_CORES,
        tensor_cores=(*_AMPERE, *((dtype, _warp(32)) for dtype in _F8)),
        async_copies=True,
    ),
    Platform(
        "hopper",
        "Hopper",
        4 * WARP,
        warp=WARP,
        cuda_cores=CUDA_CORES,
        # what wgmma multiplies lies in shared memory: weights that are decompressed in registers go by mma
        tensor_cores=(("f16", _warp(16)), ("bf16", _warp(16))),
        warp_groups=(
            *((dtype, _group(16, _CUBLASLT)) for dtype in ("f16", "bf16")),
            ("tf32", _group(8, _SM90)),
            *((dtype, _group(32, _CUBLASLT)) for dtype in _F8),
            *((dtype, _group(32, _SM90)) for dtype in ("s8", "u8")),
        ),
        async_copies=True,
        cluster=2,  # the size in the names of cuBLAS's and CUTLASS's kernels for sm_90 (cga2x1x1); up to 8 are portable
    ),
)
