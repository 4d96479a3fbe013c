"""Intel GPU instructions: matrix (DPAS, DP4A), vector and messages; importing this package registers them."""

from isa_models.gpu.platforms import Platform
from isa_models.intel_gpu import dp4a, dpas, product_steps, vector
from isa_models.intel_gpu.packing import join_a, pack_a, pack_b, split_a, unpack_a, unpack_b
from isa_models.intel_gpu.platforms import PLATFORMS, platform
from isa_models.intel_gpu.sums import FLOAT_MODELS

__all__ = [
    "FLOAT_MODELS",
    "PLATFORMS",
    "Platform",
    "dp4a",
    "dpas",
    "join_a",
    "pack_a",
    "pack_b",
    "platform",
    "product_steps",
    "split_a",
    "unpack_a",
    "unpack_b",
    "vector",
]
