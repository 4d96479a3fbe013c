"""Sums of squares around each element, in oneDNN's orders, for its lrn, on a CPU (docs/numerics.md, rule 18)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import product

import numpy as np

from isa_models.readings.arrays import Array, ArrayValue
from simdnn.kernels.common.expression import Element
from simdnn.kernels.common.values import over_arrays
from simdnn.networks.between_products import Formula
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.elementwise import by_numpy
from simdnn.networks.ops.registry import OWN, operator
from simdnn.networks.shadows import shadow

_TOGETHER, _MOST = 8, 32  # neighbours that one kernel reads, and that kernels read at all: more are told to NumPy


@operator("SquaresAround", domain=OWN)
def squares_around(k: Kernels, node: Node, x: Array) -> Array:
    """The sum of the squares of each element, of `before` neighbours ahead of it and `behind` along `axes`, where zeros
    lie beside the tensor: from the first to the last ("rows"), the element itself first ("middle"), or from channel to
    channel the next one added and the first one taken away ("sliding"). `fused`: a square of up to 32 is added in one
    rounding.
    """
    axes, order, sides = node.integers("axes"), node.text("order"), (node.integer("before"), node.integer("behind"))
    neighbours, fused = _neighbours(k, x, axes, sides, order == "middle"), bool(node.integer("fused"))
    if len(neighbours) > _MOST:
        return by_numpy(k, over_arrays(_formula(False, False)), *neighbours, steps=len(neighbours))
    values = functools.partial(_slid, x, sides[0]) if order == "sliding" and k.values else None
    total: tuple[Array, ...] = ()
    for first in range(0, len(neighbours), _TOGETHER):
        several = neighbours[first : first + _TOGETHER]
        total = (k.map(_formula(bool(total), fused), *total, *several, name="squares", values=values),)
    return total[0]


def _neighbours(k: Kernels, x: Array, axes: Sequence[int], sides: tuple[int, int], middle: bool) -> list[Array]:
    """The tensor, and it moved by each step to a neighbour."""
    steps = list(product(range(sum(sides) + 1), repeat=len(axes)))
    wide = np.pad(x, [sides if axis in axes else (0, 0) for axis in range(x.ndim)]) if k.values else x

    def moved(step: Sequence[int]) -> Array:
        if not k.values:
            return shadow(x.shape, x.dtype)
        start = dict(zip(axes, step, strict=True))
        part = (slice(start.get(axis, 0), start.get(axis, 0) + size) for axis, size in enumerate(x.shape))
        return np.ascontiguousarray(wide[tuple(part)])

    found = [moved(step) for step in steps]
    own = steps.index((sides[0],) * len(axes))
    return [x, *found[:own], *found[own + 1 :]] if middle else [*found[:own], x, *found[own + 1 :]]


def _formula(held: bool, fused: bool) -> Formula:
    """A sum of squares, one after the other, behind the sum of earlier ones where it is held."""

    def formula(first: Element, *others: Element) -> Element:
        total = first if held else first * first
        for one in others:
            total = one.fma(one, total) if fused else total + one * one
        return total

    return formula


def _slid(x: Array, around: int) -> Array:
    """Sums along the channels of (N, C, …) that go on from channel to channel, in one rounding a square."""
    nothing = ArrayValue(np.zeros_like(x[:, 0]), "f32")
    channels = [ArrayValue(np.ascontiguousarray(x[:, c]), "f32") for c in range(x.shape[1])]
    line = [*[nothing] * around, *channels, *[nothing] * around]
    taken = [ArrayValue(-one.array, "f32") for one in line]
    total, found = nothing, np.empty_like(x)
    for one in channels[:around]:
        total = one.fma(one, total)
    for c in range(x.shape[1]):
        last = line[c + 2 * around]
        total = last.fma(last, total)
        found[:, c] = total.array
        total = taken[c].fma(line[c], total)
    return found
