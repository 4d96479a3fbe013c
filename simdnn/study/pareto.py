"""The Pareto front: what nothing else beats in two measures at once."""

from __future__ import annotations

from collections.abc import Iterable


def pareto(one: Iterable[float], other: Iterable[float]) -> list[bool]:
    """Which pairs no other pair beats: larger is better in both.

    >>> pareto([1, 2, 3], [9, 8, 8])
    [True, False, True]
    """
    pairs = list(zip(one, other, strict=True))
    return [not any(a >= x and b >= y and (a, b) != (x, y) for a, b in pairs) for x, y in pairs]
