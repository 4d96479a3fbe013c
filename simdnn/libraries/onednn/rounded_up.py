"""Numbers rounded up, as oneDNN rounds them in its estimates (`div_up` and `rnd_up` of its utils.hpp)."""

from __future__ import annotations


def over(number: int, step: int) -> int:
    """How many steps hold a number.

    >>> over(33, 16), up(33, 16)
    (3, 48)
    """
    return -(-number // step)


def up(number: int, step: int) -> int:
    """The least multiple of a step that holds it."""
    return over(number, step) * step
