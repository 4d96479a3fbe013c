"""The sizes of a product of matrices, or of a batch of them, from the operands' shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from isa_models import InvalidArgument
from isa_models.readings.arrays import Array
from simdnn.kernels.common.batch import Batch
from simdnn.kernels.common.layouts import ANY_LAYOUTS, Layouts
from simdnn.libraries import MOST_DIMS
from simdnn.primitives import arrays
from simdnn.primitives.checks import integer
from simdnn.primitives.placed import Shape


@dataclass(frozen=True)
class Products:
    """`batch` products of (m, k) by (k, n); `shape` is the output's.

    Products that share one matrix of weights are rows of a single one.

    >>> p = Products.of((2, 12, 5, 64), (2, 1, 64, 7))
    >>> p.m, p.batch.count, p.shape
    (5, 24, (2, 12, 5, 7))
    >>> Products.of((3, 5, 8), (8, 2)).m, Products.of((3, 5, 8), (8, 2)).shape
    (15, (3, 5, 2))
    """

    m: int
    n: int
    k: int
    batch: Batch
    shape: tuple[int, ...]
    dims: int = 2  # of the problem that a library is asked: 2 where weights are a matrix
    runtime: str = ""  # the sizes that a library learns at run time, of "m", "n", "k" and the batch's "b"
    layouts: Layouts = ANY_LAYOUTS  # as a library is told

    @staticmethod
    def of(
        src: Sequence[int],
        wei: Sequence[int],
        apart: bool = False,
        runtime: str = "",
        layouts: Layouts = ANY_LAYOUTS,
    ) -> Products:
        """Products of (…, M, K) and (…, K, N), whose dimensions in front broadcast, or `InvalidArgument`.

        `apart`: where M is 1, a batch of weights that holds one matrix leaves each product a vector of its own.
        """
        named = f"src (…, M, K) of shape {tuple(src)} and weights (…, K, N) of shape {tuple(wei)}"
        if not 2 <= min(len(src), len(wei)) <= max(len(src), len(wei)) <= MOST_DIMS:
            raise InvalidArgument(f"{named}; 2 to {MOST_DIMS} dimensions each are needed")
        if 0 in (*src, *wei):
            raise InvalidArgument(f"{named}: one is empty; sizes of at least 1 are needed")
        (m, k), (wei_k, n) = src[-2:], wei[-2:]
        if k != wei_k:
            raise InvalidArgument(f"{named}: K {k} != {wei_k}")
        try:
            outer = np.broadcast_shapes(tuple(src[:-2]), tuple(wei[:-2]))
        except ValueError:
            raise InvalidArgument(f"{named}: what stands in front does not broadcast; equal sizes or 1 do") from None
        dims = 2 if len(wei) == 2 else 2 + len(outer)
        if layouts.src == "ba" and 1 in (m, k):  # which lies either way
            layouts = layouts._replace(src="any")
        if prod(wei[:-2]) == 1 and not (apart and m == 1 and dims > 2):
            return Products(prod(src[:-1]), n, k, Batch(), (*outer, m, n), dims, runtime, layouts)
        return Products(m, n, k, Batch.of(src[:-2], wei[:-2]), (*outer, m, n), dims, runtime, layouts)

    def of_types(self, src: str, wei: str) -> Shape:
        """The sizes and types that attributes depend on."""
        return Shape("matmul", self.m, self.k, self.n, src, wei, dims=len(self.shape))

    def tensors(self, src: str, wei: str, dst: str) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and type of each tensor."""
        rows = (
            ("src", "src", self.m, self.k, src),
            ("weights", "wei", self.k, self.n, wei),
            ("dst", "dst", self.m, self.n, dst),
        )
        return {name: ((self.batch.products(side), *shape), dtype) for name, side, *shape, dtype in rows}


def products_of(
    src: Array, weights: Array, apart: bool = False, runtime: str = "", layouts: Layouts = ANY_LAYOUTS
) -> Products:
    """The product of two arrays; what is told of them as `Products.of` has it."""
    if max(src.ndim, weights.ndim) < 3:
        arrays.matmul_sizes(src, weights)  # two dimensions have hints of their own
    return Products.of(src.shape, weights.shape, apart, runtime, layouts)


def batch_of(name: str, sizes: object) -> tuple[int, ...]:
    """The sizes in front of a matrix, as a caller writes them: one or several."""
    several = sizes if isinstance(sizes, (tuple, list)) else (sizes,)
    return tuple(integer(name, size) for size in several)
