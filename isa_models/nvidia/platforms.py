"""NVIDIA GPU generations that kernels are made for, by the names of `isa_models.nvidia.mma.UNITS`.

A new one is a row of `PLATFORMS`.
"""

from __future__ import annotations

from dataclasses import replace

from isa_models.gpu.platforms import Platform, WarpProduct, register

WARP = 32  # threads of a warp: lanes of a register here, which has 128 bytes
#: FMAs of a warp: 8 x 4 threads share its tile, so an element of A goes to 4 of them and one of B to 8
CUDA_CORES = WarpProduct(8, WARP, 1, copies=(4, 8))

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
)
