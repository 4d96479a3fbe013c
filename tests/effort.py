"""How much of a test `make test` tries; `make test-all` tries all of it.

Of a property, as many random examples as its test says under `thorough`, and a part under `quick`. Of a test with many
cases that walk the same code, a part that goes by the cases' names: the same ones every time, whatever else is there.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Hashable, Iterable

import pytest
from hypothesis import settings

THOROUGH = 60  # examples of a property that names no number
QUICK = 6
LEAST = 2


def examples(thorough: int, least: int = LEAST) -> settings:
    """Settings of a test of so many examples, fewer where the profile loaded tries fewer, but not fewer than `least`:
    the first example of a property is its simplest, and says little alone.

    Each example of a few tests costs a second, so every test names what it deserves, and the profile scales all.
    """
    return settings(max_examples=max(least, thorough * settings.default.max_examples // THOROUGH))


def one_in(number: int, *by: str) -> pytest.MarkDecorator:
    """A test whose cases go through the same code: `make test` runs one in `number`, and at least one of each
    combination of the values that parameters named in `by` have. The other cases are sweeps.
    """
    return pytest.mark.one_in(number, *by)


def left_out(cases: Iterable[tuple[str, Hashable]], number: int) -> set[str]:
    """Names of the cases that are sweeps: of each class all but one in `number`, rounded up, by a digest of the name.

    >>> sorted(left_out([("a", 1), ("b", 1), ("c", 1), ("d", 2)], 3))
    ['a', 'b']
    """
    classes = defaultdict[Hashable, list[str]](list)
    for name, kind in cases:
        classes[kind].append(name)
    ordered = (sorted(names, key=lambda name: zlib.crc32(name.encode())) for names in classes.values())
    return {name for names in ordered for name in names[-(-len(names) // number) :]}
