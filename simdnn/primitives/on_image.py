"""Convolutions whose kernel leaves out taps beside the image, by runs of one that multiplies zeros there.

The two differ where a weight is infinite or NaN, as its product with zero is NaN. Outputs fall into few kinds by the
taps that they see of the image; those of a kind come from a run in which such weights of the other taps are zeros.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.kernels.common.edges import Edges
from simdnn.kernels.common.problems import ConvProblem


def outputs(c: ConvProblem, what: str, output: Array, weights: Array, run: Callable[[Array], Array]) -> Array:
    """`output`, that of all `weights`, with taps beside the image left out, "all" or those of "rows" or "planes" beside
    it; `run` makes an output of other weights.

    >>> from simdnn import convolution
    >>> image, weights = np.ones((1, 1, 1, 3), np.float32), np.array([np.inf, 1, 1], np.float32).reshape(1, 1, 1, 3)
    >>> where = {"padding": (0, 1), "machine": "zen4"}
    >>> convolution(image, weights, dispatch="onednn", **where).output.reshape(-1).tolist()
    [2.0, inf, inf]
    >>> convolution(image, weights, **where).output.reshape(-1).tolist()
    [nan, inf, inf]
    """
    edges, images = Edges.of(c), (c.mb, c.oc, -1, c.ow)
    taps = weights.reshape(*weights.shape[:2], c.tap_rows, c.kw)
    odd, found = ~np.isfinite(taps), np.array(output).reshape(images)
    for row, down in enumerate(edges.down):
        for column, across in enumerate(edges.across):
            hidden = odd & ~_taken(c, what, down, across)
            if hidden.any():
                other = run(np.where(hidden, weights.dtype.type(0), taps).reshape(weights.shape)).reshape(images)
                places = np.ix_(edges.row == row, edges.column == column)
                found[:, :, *places] = other[:, :, *places]
    return found.reshape(output.shape)


def seen(c: ConvProblem, what: str, weights: Array, index: tuple[int, ...]) -> Array:
    """The weights of the output at `index` (image, channel, pixel), zeros in place of infinite and NaN ones whose taps
    are left out. An index that is none of the output's changes nothing.
    """
    edges, planes = Edges.of(c), (c.od,) if c.depth else ()
    sizes = (c.mb, c.oc, *planes, *(() if c.line else (c.oh,)), c.ow)
    if len(index) != len(sizes) or not all(-size <= place < size for place, size in zip(index, sizes, strict=True)):
        return weights
    *rows, x = (place % size for place, size in zip(index[2:], sizes[2:], strict=True))
    row = int(np.ravel_multi_index(tuple(rows), sizes[2:-1])) if rows else 0
    taps = weights.reshape(*weights.shape[:2], c.tap_rows, c.kw)
    hidden = ~np.isfinite(taps) & ~_taken(c, what, edges.down[edges.row[row]], edges.across[edges.column[x]])
    return np.where(hidden, weights.dtype.type(0), taps).reshape(weights.shape)


def _taken(c: ConvProblem, what: str, down: Array, across: Array) -> Array:
    """The taps (rows, columns) that sums have, of those on the image by rows and by columns."""
    if what == "planes":
        down = np.repeat(down.reshape(-1, c.kh).any(1), c.kh)
    taken: Array = down[:, None] & (across | (what != "all"))
    return taken
