"""Products with weights stored in blocks, as language models in GGUF files have them."""

from __future__ import annotations

import numpy as np

from isa_models.block_formats import block_format
from isa_models.readings.arrays import Array
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.linear import converted
from simdnn.networks.ops.registry import need, operator


@operator("MulMat", domain="ggml")
def mul_mat(k: Kernels, node: Node, a: Array, stored: Array) -> Array:
    """a (…, M, K) x weights whose rows (N, bytes) are blocks of `type`: the source is quantized by blocks, too."""
    form = block_format(node.text("type"))
    need(stored.ndim == 2 and stored.dtype == np.uint8, f"weights {stored.dtype} {stored.shape}; rows of bytes needed")
    inner = stored.shape[1] // form.bytes * form.elements
    need(a.ndim >= 2 and a.shape[-1] == inner, f"{a.shape} x {form.name} rows of {inner}: other sizes of K")
    return converted(k, k.blocks(converted(k, a, np.dtype(np.float32)), stored, form.name), a.dtype)
