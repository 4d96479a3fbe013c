"""The loss of one rounding: the unit roundoff of a format, and where it rounds nothing at all."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from isa_models.formats import fmt


@dataclass(frozen=True)
class Roundoff:
    """A rounding of a number x leaves at most `unit` times |x|, and `least` more where x lies below the format's grid.

    It is exact where x is a multiple of some q that is no finer than the grid, and |x| <= q * 2**digits. `directed`:
    it leans to one side, so that the errors of many don't cancel out. `name` says to what it rounds. `aligned`: x is
    what the magnitudes of a sum's addends add up to, not the sum, which is small where they cancel.
    """

    name: str
    unit: float
    digits: int
    least: float = 0.0  # the format's grid around zero
    greatest: float = float("inf")
    directed: bool = False
    aligned: bool = False


@functools.cache
def roundoff(name: str, directed: bool = False, digits: int = 0) -> Roundoff:
    """The rounding to a format: to nearest, or (`directed`) to either neighbour; `digits`: fewer than its own.

    >>> roundoff("bf16").unit, roundoff("f32", directed=True).unit, roundoff("f8_e4m3").greatest
    (0.00390625, 1.1920928955078125e-07, 448.0)
    """
    form = fmt(name)
    kept = digits or form.mantissa_bits + 1
    least = 2.0 ** (1 - form.bias - form.mantissa_bits)
    return Roundoff(name, 2.0 ** ((1 if directed else 0) - kept), kept, least, form.greatest, directed)


def cut(terms: int, fraction_bits: int, least_exponent: int) -> Roundoff:
    """Several addends cut off at `fraction_bits` behind the leading digit of the greatest, and added exactly.

    Each loses less than 2**-fraction_bits of what all their magnitudes add up to; `least_exponent` is that of zeros.
    """
    unit = terms * 2.0**-fraction_bits
    least = terms * 2.0 ** (least_exponent - fraction_bits)
    return Roundoff("aligned sum", unit, fraction_bits, least, directed=True, aligned=True)
