"""Errors beside numbers, and how arithmetic carries them on: the shades of `isa_models.readings.bounds`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from isa_models.readings.arrays import Array
from isa_models.roundoff import Roundoff

if TYPE_CHECKING:
    from isa_models.readings.bounds import BoundedValue

#: what stands beside a lane: the exact number, a bound of its magnitude, the error at worst, the part of it that does
#: not average out, the sum of the squares of what roundings to nearest may leave, the lane's number when all this was
#: written, which part of that number's bits the lane holds, and how many roundings of each kind the longest path has
EXACT, SIZE, WORST, DRIFT, SPREAD, HELD, PART, *_COUNTS = range(11)
#: kinds of roundings that are counted, by digits of the formats; the last one is all else
KINDS = (("f32", 24), ("f16, tf32", 11), ("bf16", 8), ("other", 0))
COUNTS = slice(_COUNTS[0], _COUNTS[-1] + 1)
FIELDS = _COUNTS[-1] + 1
F64 = 2.0**53
SLOP = 2.0**-50  # relative, of f64 sums that measure


def regrouped(shade: Array, lanes: int) -> Array:
    """A shade with another number of columns: parts of numbers, or numbers put together of all their parts."""
    have = shade.shape[-1]
    if have == lanes:
        return shade
    if have < lanes:
        parts = lanes // have
        found = np.repeat(shade, parts, axis=-1)
        found[PART] = found[PART] * parts + np.tile(np.arange(parts), have)
        return found
    parts = have // lanes
    groups = shade.reshape(*shade.shape[:-1], lanes, parts)
    found = groups[..., 0].copy()
    first = groups[PART, ..., :1]
    inside = (groups[PART] - first == np.arange(parts)).all(axis=-1) & (first[..., 0] % parts == 0)
    rest = [i for i in range(FIELDS) if i != PART]
    with np.errstate(invalid="ignore"):
        alike = (groups[rest] == groups[rest][..., :1]) | (np.isnan(groups[rest]) & np.isnan(groups[rest][..., :1]))
    whole = inside & alike.all(axis=(0, -1))
    found[PART] = np.where(whole, found[PART] // parts, 0)
    plain = (groups[WORST] == 0).all(axis=-1)  # lanes of other numbers, all exact
    found = np.where(whole, found, np.where(plain, of_nobody(), torn_apart()))
    return found


def blank_of(value: BoundedValue, parts: int) -> Array:
    return np.repeat(value.beside(), parts, axis=-1)


def _column(**fields: float) -> Array:
    found = np.zeros((FIELDS, 1, 1))
    for name, number in fields.items():
        found[globals()[name.upper()]] = number
    return found


def of_nobody() -> Array:
    """Beside a lane that is exact by itself."""
    return _column(held=np.nan)


def torn_apart() -> Array:
    """Beside a lane that is put together of parts of several numbers."""
    return _column(held=np.nan, exact=np.nan, worst=np.inf, drift=np.inf, size=np.inf)


def numbers_of(array: Array) -> Array:
    with np.errstate(all="ignore"):
        found: Array = array.astype(np.float64)
    return found


def beside_exact(array: Array) -> Array:
    """Beside elements of an array that are what they should be."""
    return exact_of(numbers_of(array))


def exact_of(numbers: Array) -> Array:
    """Beside numbers that are what they should be."""
    found = np.zeros((FIELDS, *numbers.shape))
    found[EXACT] = found[HELD] = numbers
    found[SIZE] = np.abs(numbers)
    return found


def grid_of(numbers: Array) -> Array:
    """The greatest power of two that each number is a multiple of; infinite for zero, 0 where there is none."""
    finite = np.isfinite(numbers)
    mantissa, exponent = np.frexp(np.where(finite, numbers, 0.0))
    whole = (mantissa * 2.0**53).astype(np.int64)
    found: Array = np.where(whole == 0, np.inf, np.ldexp((whole & -whole).astype(np.float64), exponent - 53))
    return np.where(finite, found, 0.0)


def kept_finite(shade: Array) -> Array:
    """A shade that knows nothing of what is no number."""
    bad = ~np.isfinite(shade[HELD]) | np.isnan(shade[WORST])
    if bad.any():
        shade[WORST], shade[DRIFT] = (np.where(bad, np.inf, shade[field]) for field in (WORST, DRIFT))
    return shade


def is_nothing(shade: Array) -> Array:
    """Which numbers are zero, exactly."""
    found: Array = (shade[SIZE] == 0) & (shade[WORST] == 0)
    return found


def computed_with(op: str, a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        found: Array = a + b if op == "add" else a - b if op == "sub" else a * b
    return found


def _join(a: Array, b: Array) -> Array:
    """A shade for what comes of two: the longer path's counts."""
    shape = np.broadcast_shapes(a.shape, b.shape)
    found = np.empty(shape)
    found[COUNTS] = np.maximum(a[COUNTS], b[COUNTS])
    found[PART] = 0
    return found


def sum_of(a: Array, b: Array, sign: float, grids: tuple[Array, Array] | None = None) -> tuple[Array, Array, Array]:
    """The shade of a sum or difference, its grid (`grid_of`), and where an addend is nothing; `grids`: those of addends
    that are products.
    """
    found = _join(a, b)
    first, second = grids or (grid_of(a[HELD]), grid_of(b[HELD]))
    with np.errstate(all="ignore"):
        x, y = a[EXACT], sign * b[EXACT]
        total = found[EXACT] = x + y
        for field in (SIZE, WORST, DRIFT, SPREAD):
            found[field] = a[field] + b[field]
        held = (np.abs(x) <= first * F64) & (np.abs(y) <= second * F64)
        sure = held & (found[WORST] == 0) & (total - x == y) & (total - y == x)  # exact, and f64 has it
    found[SIZE] = np.where(sure, np.abs(total), found[SIZE])
    return found, np.where(sure, grid_of(total), np.minimum(first, second)), is_nothing(a) | is_nothing(b)


def product_of(a: Array, b: Array) -> tuple[Array, Array, Array]:
    found = _join(a, b)
    found[COUNTS] = a[COUNTS] + b[COUNTS]
    nothing = is_nothing(a) | is_nothing(b)
    with np.errstate(all="ignore"):
        found[EXACT], found[SIZE] = a[EXACT] * b[EXACT], a[SIZE] * b[SIZE]
        for field in (WORST, DRIFT):
            error = a[SIZE] * b[field] + b[SIZE] * a[field] + a[field] * b[field]
            found[field] = np.where(nothing, 0, error)
        spread = a[SIZE] ** 2 * b[SPREAD] + b[SIZE] ** 2 * a[SPREAD] + a[SPREAD] * b[SPREAD]
        found[SPREAD] = np.where(nothing, 0, spread)
        grids = grid_of(a[HELD]), grid_of(b[HELD])
        powers = [_is_power(side, grid) for side, grid in zip((a, b), grids, strict=True)]
        grid = grids[0] * grids[1]
    return found, np.where(nothing, np.inf, grid), nothing | powers[0] | powers[1]


def _is_power(shade: Array, grid: Array) -> Array:
    found: Array = (shade[WORST] == 0) & (np.abs(shade[HELD]) == grid)
    return found


def quotient_of(a: Array, b: Array) -> tuple[Array, Array, Array]:
    found = _join(a, b)
    found[COUNTS] = a[COUNTS] + b[COUNTS]
    divisor = np.abs(b[HELD])
    with np.errstate(all="ignore"):
        least = divisor - b[WORST]
        most = (a[SIZE] + a[WORST]) / divisor
        found[EXACT], found[SIZE] = a[EXACT] / b[EXACT], a[SIZE] / least
        for field in (WORST, DRIFT):
            found[field] = np.where(least > 0, (most * b[field] + a[field]) / least, np.inf)
        found[SPREAD] = (most**2 * b[SPREAD] + a[SPREAD]) / least**2
        power = _is_power(b, grid_of(b[HELD]))
        grid = np.where(power, grid_of(a[HELD]) / divisor, 0.0)
    return found, np.where(is_nothing(a), np.inf, grid), is_nothing(a) | power


def moved_by(shade: Array, by: Array) -> Array:
    """A shade whose numbers moved by so much, other than by an arithmetic rounding."""
    found: Array = np.array(np.broadcast_to(shade, np.broadcast_shapes(shade.shape, by.shape)))
    for field in (WORST, DRIFT):
        found[field] += by
    found[_COUNTS[-1]] += by > 0
    return found


def round_off(found: Array, grid: Array, exact: Array, step: Roundoff) -> None:
    """Add what a rounding may lose to a shade."""
    with np.errstate(all="ignore"):
        most = found[SIZE] + found[WORST]
        below = (grid < step.least) & (most > 0)
        rounds = ((most > grid * 2.0**step.digits) & ~exact) | below
        fixed = np.where(below & rounds, step.least if step.directed else step.least / 2, 0.0)
        lost = np.where(rounds, step.unit * most, 0.0)
        over = most * (1 + step.unit) > step.greatest
        lost = np.where(over, np.inf, lost)
    found[WORST] += lost + fixed
    found[DRIFT] += fixed + (lost if step.directed else np.where(over, np.inf, 0.0))
    found[SPREAD] += 0.0 if step.directed else np.where(over, 0.0, lost) ** 2
    count(found, step.digits, rounds)


def count(shade: Array, digits: int, where: Array) -> None:
    """Count a rounding to a format of `digits` digits on the path of the lanes `where`."""
    kind = next(i for i, (_, kept) in enumerate(KINDS) if kept in (digits, 0))
    shade[_COUNTS[kind]] += where


def either_of(a: Array | None, b: Array | None) -> Array | None:
    if a is None or b is None:
        return b if a is None else a
    return a | b
