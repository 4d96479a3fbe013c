"""How the tensors of a product lie, as a library is told."""

from __future__ import annotations

from typing import NamedTuple


class Layouts(NamedTuple):
    """How a library is told that tensors lie. Of a convolution: "any", its own; "rows", channels ahead of pixels
    (abx; oihw of weights); "last", channels behind them (axb; hwio); "brought", rows that it brings to channels
    last; of weights "kept", as a kernel takes hwio. Of a matmul: "any", where its own or rows make no difference;
    "ba", column by column; "apart" and "apart ba", not dense (as "ab" of weights too); weights in "blocks" of 16 rows,
    in "blocks2" and "blocks4" two or four rows beside each other. Kernels here have their own layouts in any case.
    """

    src: str = "any"
    wei: str = "any"
    dst: str = "any"


ANY_LAYOUTS = Layouts()
