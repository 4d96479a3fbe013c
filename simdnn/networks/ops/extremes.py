"""The greatest and the least of lines in a library's registers, where NaN, infinities or zeros of both signs tell its
order: an instruction's second operand stays where the first is not greater, a NaN on either side among that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from isa_models.readings.arrays import Array

ACCUMULATORS = 4
Extreme = Callable[[Array, Array], Array]

#: the first of two arrays where it is the greater, or the less; else the second
EXTREMES: dict[str, Extreme] = {
    "max": lambda a, b: np.where(a > b, a, b),
    "min": lambda a, b: np.where(a < b, a, b),
}


def is_special(x: Array) -> bool:
    """Whether an array has a NaN, an infinity or a zero of negative sign."""
    return not bool(np.isfinite(x).all()) or bool((np.signbit(x) & (x == 0)).any())


def chained(kind: str, x: Array, nothing: float) -> Array:
    """The extreme of each line (rows, n), element after element from `nothing` on: (rows,)."""
    found = np.full(x.shape[0], nothing, np.float32)
    for column in x.T:
        found = EXTREMES[kind](found, column)
    return found


def in_register(kind: str, x: Array, lanes: int, nothing: float) -> Array:
    """The extreme of each line (rows, n), by one register of lanes along it; what fills none is joined by itself and
    goes onto the first lane.
    """
    rows, n = x.shape
    turns, rest = divmod(n, lanes)
    found = np.full((rows, lanes), nothing, np.float32)
    for turn in range(turns):
        found = EXTREMES[kind](found, x[:, turn * lanes : (turn + 1) * lanes])
    if rest:
        found[:, 0] = EXTREMES[kind](found[:, 0], _scalar(kind, x[:, n - rest :], lanes))
    return _scalar(kind, found, lanes) if turns else found[:, 0]


def _scalar(kind: str, x: Array, lanes: int) -> Array:
    """The lanes of a register, and some may be empty, onto one: halves, then four one by one."""
    count = x.shape[1]
    if lanes == 4:
        found = x[:, 0]
        for lane in range(1, count):
            found = EXTREMES[kind](found, x[:, lane])
        return found
    half = lanes // 2
    if count == lanes:
        return _scalar(kind, EXTREMES[kind](x[:, :half], x[:, half:]), half)
    if count <= half:
        return _scalar(kind, x, half)
    return EXTREMES[kind](_scalar(kind, x[:, :half], half), _scalar(kind, x[:, half:], half))


def in_turns(x: Array, lanes: int, nothing: float) -> Array:
    """The greatest of each line (rows, n) as each of its elements meets it, (rows, n): registers go to four
    accumulators in turn, these are joined by pairs, then each lane with those half, a quarter, … of a register away.
    """
    rows, n = x.shape
    greatest, turns = EXTREMES["max"], -(-n // lanes)
    whole = n // lanes
    used = ACCUMULATORS if whole >= ACCUMULATORS else max(1, whole)
    found = np.full((used, rows, lanes), nothing, np.float32)
    for turn in range(turns):
        part = x[:, turn * lanes : (turn + 1) * lanes]
        kept = found[turn % used if turn < whole else 0, :, : part.shape[1]]
        kept[...] = greatest(kept, part)
    total = found[0]
    if used == ACCUMULATORS:
        total = greatest(greatest(found[0], found[1]), greatest(found[2], found[3]))
    elif used > 1:
        total = greatest(found[0], found[1])
        total = greatest(total, found[2]) if used == ACCUMULATORS - 1 else total
    step = lanes // 2
    while step:
        total = greatest(total, total[:, np.arange(lanes) ^ step])
        step //= 2
    return np.tile(total, (1, turns))[:, :n]


def lines_of(x: Array, axes: Sequence[int]) -> Array:
    """An array as lines (rows, n) along `axes`, the outermost first."""
    rest = [axis for axis in range(x.ndim) if axis not in axes]
    count = prod(x.shape[axis] for axis in axes)
    return np.ascontiguousarray(x.transpose([*rest, *sorted(axes)])).reshape(-1, count)
