"""GridSample of f32 as onnxruntime computes it (core/providers/cpu/tensor/grid_sample.cc there): places and shares in
f32, no step fused, one product of a share and an element after the other. NumPy's values; the cost is an estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from isa_models import Unimplemented
from isa_models.readings.arrays import Array
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.registry import need
from simdnn.networks.shadows import shadow

F32 = np.float32
_CUBIC = F32(-0.75)
_STEPS = {"nearest": 2, "linear": 8, "cubic": 40}  # multiply-adds an element (estimated)


def sampled(k: Kernels, node: Node, x: Array, grid: Array) -> Array:
    """x (N, C, …) at the places of a grid (N, …, 2 or 3), which go from -1 to 1, the last dimension's first."""
    names = {"bilinear": "linear", "bicubic": "cubic"}
    mode, padding = node.text("mode", "linear"), node.text("padding_mode", "zeros")
    mode, aligned, dims = names.get(mode, mode), bool(node.integer("align_corners", 0)), x.ndim - 2
    need(grid.ndim == x.ndim and grid.shape[-1] == dims and len(grid) == len(x), f"a grid {grid.shape} for {x.shape}")
    need(mode in _STEPS and padding in ("zeros", "border", "reflection"), f"mode={mode!r}, padding_mode={padding!r}")
    if dims not in (2, 3) or mode == "cubic" and dims == 3:
        raise Unimplemented(f"GridSample over {dims} dimensions, {mode}: onnxruntime has 2, and 3 but for cubic")
    shape = (*x.shape[:2], *grid.shape[1:-1])
    if not k.values:
        return k.plain(shadow(shape, x.dtype), x, grid, steps=_STEPS[mode])
    with np.errstate(all="ignore"):
        found = [_image(image, places, mode, padding, aligned) for image, places in zip(x, grid, strict=True)]
    return k.plain(np.asarray(found, F32).reshape(shape), x, grid, steps=_STEPS[mode])


def _image(image: Array, grid: Array, mode: str, padding: str, aligned: bool) -> Array:
    """One image (C, …) at places (…, 2 or 3)."""
    sizes = image.shape[1:]
    places = [_place(grid[..., -1 - axis], n, aligned) for axis, n in enumerate(sizes)]
    ends = [(F32(0), F32(n - 1)) if aligned else (F32(-0.5), F32(n) - F32(0.5)) for n in sizes]

    def at(indices: Sequence[Array]) -> Array:
        return _pixels(image, indices, padding, ends)

    if mode == "nearest":
        return at([np.rint(place).astype(np.int64) for place in places])
    first = [np.floor(place).astype(np.int64) for place in places]
    if mode == "cubic":
        return _cubic(at, places, first)
    shares = [
        ((one + 1).astype(F32) - place, place - one.astype(F32)) for place, one in zip(places, first, strict=True)
    ]
    if padding == "zeros" and not aligned and len(sizes) == 2:  # four shares first
        total = None
        for i, j in product((0, 1), repeat=2):
            term = (shares[0][i] * shares[1][j]) * at([first[0] + i, first[1] + j])
            total = term if total is None else total + term
        assert total is not None
        return total
    return _linear(at, first, shares, [])


def _linear(at: object, first: Sequence[Array], shares: Sequence[tuple[Array, Array]], taken: Sequence[int]) -> Array:
    """Between neighbours of the last axis, then of the one before."""
    assert callable(at)
    axis = len(taken)
    if axis == len(first):
        found: Array = at([one + i for one, i in zip(first, taken, strict=True)])
        return found
    both = [_linear(at, first, shares, [*taken, i]) for i in (0, 1)]
    return np.asarray(shares[axis][0] * both[0] + shares[axis][1] * both[1])


def _cubic(at: object, places: Sequence[Array], first: Sequence[Array]) -> Array:
    assert callable(at)
    rows, columns = (_shares(place - (one - 1).astype(F32) - F32(1)) for place, one in zip(places, first, strict=True))

    def joined(shares: Sequence[Array], values: Sequence[Array]) -> Array:
        total = shares[0] * values[0]
        for share, value in zip(shares[1:], values[1:], strict=True):
            total = total + share * value
        return np.asarray(total)

    lines = [joined(columns, [at([first[0] + i, first[1] + j]) for j in range(-1, 3)]) for i in range(-1, 3)]
    return joined(rows, lines)


def _shares(x: Array) -> list[Array]:
    """Shares of four neighbours at a place x between the middle ones (R. Keys)."""
    x, one, two, a = np.abs(x), F32(1), F32(2), _CUBIC

    def far(d: Array) -> Array:
        return np.asarray(((a * d - F32(5) * a) * d + F32(8) * a) * d - F32(4) * a)

    def near(d: Array) -> Array:
        return np.asarray(((a + two) * d - (a + F32(3))) * d * d + one)

    return [far(x + one), near(x), near(one - x), far(two - x)]


def _place(n: Array, length: int, aligned: bool) -> Array:
    """-1 to 1 as places of an image, on the first and last pixels' middles where `aligned`, else on their edges."""
    if aligned:
        return np.asarray((n + F32(1)) / F32(2) * F32(length - 1))
    return np.asarray(((n + F32(1)) * F32(length) - F32(1)) / F32(2))


def _pixels(image: Array, indices: Sequence[Array], padding: str, ends: Sequence[tuple[F32, F32]]) -> Array:
    sizes = image.shape[1:]
    if padding == "reflection":
        indices = [_reflected(i.astype(F32), *end).astype(np.int64) for i, end in zip(indices, ends, strict=True)]
    clipped = [np.clip(i, 0, n - 1) for i, n in zip(indices, sizes, strict=True)]
    places: tuple[Any, ...] = (slice(None), *clipped)
    found = image[places]
    if padding != "zeros":
        return np.asarray(found)
    inside = np.logical_and.reduce([(i >= 0) & (i < n) for i, n in zip(indices, sizes, strict=True)])
    return np.where(inside, found, F32(0))


def _reflected(x: Array, low: F32, high: F32) -> Array:
    """Within the borders, turned back at each."""
    span = high - low
    below, above = x < low, x > high
    beyond = np.where(below, low - x, x - high)
    turns = np.nan_to_num(beyond / span).astype(np.int32)
    rest = beyond - turns.astype(F32) * span
    even = turns % 2 == 0
    return np.where(
        below, np.where(even, low + rest, high - rest), np.where(above, np.where(even, high - rest, low + rest), x)
    )
