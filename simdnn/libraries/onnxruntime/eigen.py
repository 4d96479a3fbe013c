"""Reductions and logarithms of f32 as Eigen computes them for onnxruntime, which has it compiled for SSE: registers of
four lanes, no step fused.

Which reductions go along lines is read in onnxruntime/core/providers/cpu/reduction/reduction_ops.h, the order of a line
in Eigen/src/Core/Redux.h, the polynomial in Eigen/src/Core/arch/Default/GenericPacketMathFunctions.h; all compared with
onnxruntime 1.32 (docs/numerics_onnxruntime.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from math import prod

import numpy as np

from isa_models.readings.arrays import Array

_LANES = 4  # whose places in memory are multiples of their size
_GROUP = 4  # rows that a product of a row of ones adds up before what was there
Step = Callable[[Array, Array], Array]
#: of two numbers what was there first stays where neither is greater, or one is NaN
_STEPS: dict[str, Step] = {
    "prod": np.multiply,
    "max": lambda a, b: np.where(b > a, b, a),
    "min": lambda a, b: np.where(b < a, b, a),
}
_OF_EACH: dict[str, Callable[[Array], Array]] = {"sum_abs": np.abs, "sum_square": lambda v: v * v}


def reduced(kind: str, x: Array, axes: Iterable[int]) -> Array:
    """x reduced over `axes`, which stay as ones: "sum", "mean", "sum_abs", "sum_square", "prod", "max", "min";
    "sum_log", the sum of a logarithm; "chain", a sum of one element after the other.
    """
    along = set(axes)
    shape = [1 if axis in along else n for axis, n in enumerate(x.shape)]
    pattern, sizes = _merged(x.shape, along)
    each = np.ascontiguousarray(_OF_EACH[kind](x) if kind in _OF_EACH else x, np.float32)
    step = _STEPS.get(kind, np.add)
    mean, extreme = kind in ("sum", "mean"), kind in ("max", "min")
    by_lines = (mean or extreme) and (pattern == "KR" or pattern == "RKR" and sizes[1] > 1)
    if by_lines or pattern == "R" and kind != "chain":
        length, rows = sizes[-1], prod(sizes[:-1])
        found = _lines(step, each.reshape(rows, length))
        if pattern == "RKR":
            found = found.reshape(sizes[:-1])
            found = np.concatenate([each.reshape(sizes)[:1, :, 0], found]) if extreme else found
            found = _in_turn(step, found, {0})
    elif extreme and pattern == "KRK" and sizes[0] > 1:
        found = _columns(step, each.reshape(sizes))
    elif mean and pattern == "KRK" and sizes[0] > 1:
        found = _in_fours(each.reshape(sizes))
    else:
        found = _in_turn(step, each, along)
        if mean:
            found = found + np.float32(0)  # what it begins with: zeros of negative sign lose it
    found = found.reshape(shape)
    return np.asarray(found / np.float32(prod(x.shape[axis] for axis in along)) if kind == "mean" else found)


def _merged(shape: tuple[int, ...], along: set[int]) -> tuple[str, list[int]]:
    """Dimensions that are kept, K, or reduced, R, those of one kind beside each other as one.

    >>> _merged((4, 1, 9, 5), {0, 2}), _merged((2, 3, 4), {2})
    (('RKRK', [4, 1, 9, 5]), ('KR', [6, 4]))
    """
    kinds = [("R" if axis in along else "K", n) for axis, n in enumerate(shape)]
    groups = [(kind, [n for _, n in group]) for kind, group in itertools.groupby(kinds, lambda found: found[0])]
    return "".join(kind for kind, _ in groups), [prod(sizes) for _, sizes in groups]


def _in_turn(step: Step, x: Array, along: set[int]) -> Array:
    """One element after the other, the last axis fastest; the others as they are."""
    kept = [axis for axis in range(x.ndim) if axis not in along]
    flat = x.transpose(*sorted(along), *kept).reshape(-1, *(x.shape[axis] for axis in kept))
    total = flat[0]
    for part in flat[1:]:
        total = step(total, part)
    return np.asarray(total)


def _in_fours(x: Array) -> Array:
    """Sums over the middle of three: four rows of it, then two, then one are added up, and that to what was there."""
    total, first, count = np.zeros((x.shape[0], x.shape[2]), np.float32), 0, x.shape[1]
    while first < count:
        rows = next(n for n in (_GROUP, 2, 1) if count - first >= n)
        total = total + _in_turn(np.add, x[:, first : first + rows], {1})
        first += rows
    return total


def _columns(step: Step, x: Array) -> Array:
    """The middle of three dimensions reduced: in whole registers of outputs four rows at once behind the first, as
    pairs; elsewhere, and of what is left, one after the other.
    """
    together, first, count = x[:, 0], 1, x.shape[1]
    while first < (count - 1) // _GROUP * _GROUP:
        a, b, c, d = (x[:, first + i] for i in range(_GROUP))
        together, first = step(together, step(step(a, b), step(c, d))), first + _GROUP
    for i in range(first, count):
        together = step(together, x[:, i])
    heads = -(np.arange(len(x)) * x.shape[2]) % _LANES
    place = np.arange(x.shape[2]) - heads[:, None]
    whole = (x.shape[2] - heads)[:, None] // _LANES * _LANES
    return np.where((place >= 0) & (place < whole), together, _in_turn(step, x, {1}))


def _lines(step: Step, x: Array) -> Array:
    """Rows (rows, n) that lie behind each other in memory, each to one number: what is ahead of the first whole
    register waits for the registers, which are joined in two chains; then what is left.
    """
    rows, n = x.shape
    found = np.empty(rows, np.float32)
    heads = np.minimum(-(np.arange(rows) * n) % _LANES, n)
    for head in np.unique(heads):
        found[heads == head] = _line(step, x[heads == head], int(head))
    return found


def _line(step: Step, x: Array, head: int) -> Array:
    n = x.shape[1]
    whole = (n - head) // _LANES
    if not whole:
        return _in_turn(step, x, {1})
    registers = x[:, head : head + whole * _LANES].reshape(-1, whole, _LANES)
    even, odd = registers[:, : whole // 2 * 2 : 2], registers[:, 1::2]
    total = registers[:, 0]
    if whole > 1:
        total = step(_in_turn(step, even, {1}), _in_turn(step, odd, {1}))
    if whole % 2 and whole > 1:
        total = step(total, registers[:, -1])
    total = step(total[:, :2], total[:, 2:])
    joined = step(total[:, 0], total[:, 1])
    for i in (*range(head), *range(head + whole * _LANES, n)):
        joined = step(joined, x[:, i])
    return joined


def of_images(x: Array) -> tuple[Array, Array]:
    """Means of rows (rows, n), which stay as (rows, 1), and means of squares of what is left without them."""
    n = np.float32(x.shape[1])
    mean = (_lines(np.add, np.ascontiguousarray(x)) / n)[:, None]
    apart = x - mean  # a value by itself, so that each row begins with a whole register
    return mean, (_line(np.add, apart * apart, 0) / n)[:, None]


def squares_of_rows(x: Array) -> Array:
    """Sums of squares of rows (rows, n), each from a whole register on."""
    return _line(np.add, x * x, 0)


# -- logarithms -------------------------------------------------------------------------------------------------------
_ABOVE = (0.18256296349849254, 1.0000000190281063, 1.0000000190281136)
_BELOW = (0.049616247954120038, 0.59923249590823520, 1.4999999999999927, 1.0)


def in_registers(x: Array, whole: Callable[[Array], Array], rest: Callable[[Array], Array]) -> Array:
    """A function of all elements, by whole registers of a tensor; of what is left, by itself."""
    flat = np.ascontiguousarray(x, np.float32).reshape(-1)
    end = flat.size // _LANES * _LANES
    return np.concatenate([whole(flat[:end]), rest(flat[end:])]).astype(np.float32, copy=False).reshape(x.shape)


def logarithm_by_ratio(x: Array) -> Array:
    """The natural logarithm, by a ratio of polynomials."""
    share, exponent = np.frexp(x)
    small = share < np.float32(np.sqrt(0.5))
    power = exponent.astype(np.float32) - small
    rest = (share - np.float32(1)) + np.where(small, share, np.float32(0))
    ratio = rest * polynomial(rest, _ABOVE) / polynomial(rest, _BELOW)
    found = power * np.float32(np.log(2)) + ratio
    found = np.where(x == np.inf, x, found)
    return np.asarray(np.where(x == 0, -np.inf, np.where(x >= 0, found, np.nan)), np.float32)


def polynomial(x: Array, coefficients: Iterable[float]) -> Array:
    """Highest powers first."""
    first, *others = map(np.float32, coefficients)
    total = np.full(x.shape, first)
    for c in others:
        total = total * x + c
    return total
