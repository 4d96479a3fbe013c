"""How the tensors of a convolution lie, as a library is told."""

from __future__ import annotations

from typing import NamedTuple


class Layouts(NamedTuple):
    """How a library is told that the tensors of a convolution lie: "any", its own; "rows", channels ahead of pixels
    (abx; oihw of weights); "last", channels behind them (axb; hwio); "brought", rows that it brings to channels
    last; of weights "kept", as a kernel takes hwio. Kernels here have their own layouts in any case.
    """

    src: str = "any"
    wei: str = "any"
    dst: str = "any"


ANY_LAYOUTS = Layouts()
