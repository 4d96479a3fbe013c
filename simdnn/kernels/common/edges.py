"""Which taps of a convolution fall on the image, and what a sum over the weights of those alone is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.kernels.common.problems import ConvProblem


@dataclass(frozen=True)
class Edges:
    """Rows and columns of outputs by the taps that they see; of each axis few differ, since inner ones see all.

    Of three dimensions the rows are those of all planes, as those of the kernel are.
    """

    down: Array  # bool (kinds of rows, kd * kh)
    across: Array  # bool (kinds of columns, kw)
    row: Array  # (od * oh,), the kind of each row
    column: Array  # (ow,)

    @staticmethod
    def of(c: ConvProblem) -> Edges:
        """The edges of a convolution, by its padding, strides and dilation."""
        top, left, _, _ = c.padding
        seen = _inside(c.oh, c.kh, c.ih, c.strides[0], c.dilation[0], top)
        if d := c.depth:
            planes = _inside(d.o, d.k, d.i, d.stride, d.dilation, d.front)
            seen = np.kron(planes, seen)
        down, row = np.unique(seen, axis=0, return_inverse=True)
        columns = _inside(c.ow, c.kw, c.iw, c.strides[1], c.dilation[1], left)
        across, column = np.unique(columns, axis=0, return_inverse=True)
        return Edges(down, across, row.reshape(-1), column.reshape(-1))

    def sums(self, weights: Array) -> Array:
        """Sums of weights (..., kd * kh, kw) over the taps on the image: (kinds of rows, of columns, ...)."""
        down, across = self.down.astype(np.int64), self.across.astype(np.int64)
        found: Array = np.einsum("...hw,yh,xw->yx...", weights, down, across)
        return found

    def spread(self, values: Array) -> Array:
        """(od * oh, ow, ...) from values (kinds of rows, of columns, ...)."""
        found: Array = values[self.row[:, None], self.column]
        return found


def _inside(outputs: int, taps: int, size: int, stride: int, dilation: int, padding: int) -> Array:
    """Whether a tap of an output along one axis falls on the image: bool (outputs, taps)."""
    place = np.arange(outputs)[:, None] * stride + np.arange(taps)[None, :] * dilation - padding
    inside: Array = (place >= 0) & (place < size)
    return inside


def taps_inside(c: ConvProblem) -> Array:
    """Whether a tap of an output pixel falls on the image: bool (od * oh, ow, kd * kh, kw)."""
    edges = Edges.of(c)
    return edges.spread(edges.down[:, None, :, None] & edges.across[None, :, None, :])
