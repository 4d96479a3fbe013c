"""Distances between rows, which converters of nearest neighbours write: com.microsoft's CDist
(onnxruntime/contrib_ops/cpu/cdist.h).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.elementwise import by_numpy, has_kernel, lines_of
from simdnn.networks.ops.linear import in_parts, products
from simdnn.networks.ops.registry import MICROSOFT, need, operator


@operator("CDist", domain=MICROSOFT)
def distances(k: Kernels, node: Node, a: Array, b: Array) -> Array:
    """Distances (M, N) of rows a (M, K) from rows b (N, K), or their squares: |a|**2 + |b|**2 - 2 a b, not below 0."""
    metric = node.text("metric", "sqeuclidean")
    need(metric in ("euclidean", "sqeuclidean"), f"metric={metric!r}; euclidean and sqeuclidean work")
    need(a.ndim == b.ndim == 2 and a.shape[1] == b.shape[1] > 0, f"rows of {a.shape} and {b.shape}")
    need(a.dtype == b.dtype and a.dtype.kind == "f", f"operands of {a.dtype} and {b.dtype}; f32 and f64 work")
    if not has_kernel(a):
        both = products(k, a, np.ascontiguousarray(b.T))
        squares = np.maximum(np.square(a).sum(1)[:, None] - 2 * both + np.square(b).sum(1), 0)
        return by_numpy(k, np.sqrt if metric == "euclidean" else lambda v: v, squares, steps=4)
    if (lines := lines_of(k, a)) is None:
        both = k.map(lambda v: v * -2.0, products(k, a, np.ascontiguousarray(b.T)), name="mul")
        own, other = (k.reduce("sum_square", v, [1]) for v in (a, b))
    else:
        given = replace(k, constant_weights=False, transposed=("wei",), followed="")
        both = in_parts(given, a, b.T, -2.0, None)
        own, other = (k.reduce("sum_square", v, [1], values=partial(lines.squares_of_rows, v)) for v in (a, b))
    squares = k.map(lambda v, x, y: ((v + x) + y).maximum(0.0), both, own, other.reshape(1, -1), name="add")
    return k.map(lambda v: v.sqrt(), squares, name="sqrt") if metric == "euclidean" else squares
