"""Which taps of a convolution fall on the image, and what a sum over the weights of those alone is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.kernels.common.spec import ConvProblem


@dataclass(frozen=True)
class Edges:
    """Rows and columns of outputs by the taps that they see; of each axis few differ, since inner ones see all."""

    down: Array  # bool (kinds of rows, kh)
    across: Array  # bool (kinds of columns, kw)
    row: Array  # (oh,), the kind of each row
    column: Array  # (ow,)

    @staticmethod
    def of(c: ConvProblem) -> Edges:
        """The edges of a convolution, by its padding, strides and dilation."""
        top, left, _, _ = c.padding
        y = np.arange(c.oh)[:, None] * c.strides[0] + np.arange(c.kh)[None, :] * c.dilation[0] - top
        x = np.arange(c.ow)[:, None] * c.strides[1] + np.arange(c.kw)[None, :] * c.dilation[1] - left
        down, row = np.unique((y >= 0) & (y < c.ih), axis=0, return_inverse=True)
        across, column = np.unique((x >= 0) & (x < c.iw), axis=0, return_inverse=True)
        return Edges(down, across, row.reshape(-1), column.reshape(-1))

    def sums(self, weights: Array) -> Array:
        """Sums of weights (..., kh, kw) over the taps on the image: (kinds of rows, of columns, ...)."""
        down, across = self.down.astype(np.int64), self.across.astype(np.int64)
        found: Array = np.einsum("...hw,yh,xw->yx...", weights, down, across)
        return found

    def spread(self, values: Array) -> Array:
        """(oh, ow, ...) from values (kinds of rows, of columns, ...)."""
        found: Array = values[self.row[:, None], self.column]
        return found


def taps_inside(c: ConvProblem) -> Array:
    """Whether a tap of an output pixel falls on the image: bool (oh, ow, kh, kw)."""
    edges = Edges.of(c)
    return edges.spread(edges.down[:, None, :, None] & edges.across[None, :, None, :])
