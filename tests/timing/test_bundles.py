"""Distinct lines of bundles of runs: machine code and arrays say the same, and a query of a part what the part says."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simdnn.timing import bundles
from simdnn.timing.bundles import Accesses, Bundles, Touched
from tests.effort import examples

LOOPS = ("i", "j", "k")
STEPS = (-640, -96, -4, 0, 1, 4, 64, 100, 256, 1000, 4096)
accesses = st.builds(
    Accesses,
    st.sampled_from("ab"),
    st.lists(st.integers(0, 2000).map(lambda start: start + (1 << 20)), min_size=1, max_size=3),
    st.integers(1, 130),
    st.lists(st.tuples(st.sampled_from(LOOPS), st.sampled_from(STEPS)), unique_by=lambda step: step[0]).map(tuple),
    st.booleans(),
    st.sampled_from([1, 1, 3]),
    st.sampled_from([64, 100, 700]),
)


def told(touched: Touched) -> tuple[object, ...]:
    strided = {
        tensor: (runs.starts.tolist(), runs.ends.tolist(), runs.more) for tensor, runs in touched.strided.items()
    }
    return list(touched.lines.items()), strided


@examples(200)
@given(
    parts=st.lists(st.lists(accesses, min_size=1, max_size=8), min_size=1, max_size=3),
    extents=st.tuples(*[st.integers(1, 40)] * 3),
    deep=st.lists(st.integers(0, 3), min_size=3, max_size=3),
    outside=st.integers(0, 2),
    line_bytes=st.sampled_from([64, 128]),
)
def test_machine_code_says_what_arrays_say(
    parts: list[list[Accesses]], extents: tuple[int, ...], deep: list[int], outside: int, line_bytes: int
) -> None:
    """Of loads and stores of two tensors at several depths, wherever the queried bundles begin and end."""
    row = Bundles(line_bytes)
    loops = tuple(zip(LOOPS, extents, strict=True))
    ends = [row.add(part, loops[:depth]) for part, depth in zip(parts, deep, strict=False)]
    queries = [(first, last, outside) for first, _ in ends for _, last in ends if first < last]
    for query in queries[1:]:
        row.want(query)
    for query in queries:
        assert told(row.touched(*query)) == told(row._by_arrays(*query).of(0))


@pytest.mark.parametrize(("rows", "step"), [(2000, 256), (40000, 256), (40000, 4), (1 << 17, 256)])
def test_many_runs_are_taken_by_arrays(rows: int, step: int) -> None:
    """Rows four lines apart are one run each; those that meet are one run however many they are."""
    row = Bundles(64)
    row.add([Accesses("a", [0], 4, (("i", step),), False)], (("i", rows),))
    lines = row.touched(0, 1, 0).lines["a"].touched
    assert lines == (rows if step == 256 else -(-4 * rows // 64))
    found = row._asked.answers([(0, 1, 0)])
    assert (found is None) == (step == 256 and rows > bundles.ROOM)


def test_lines_that_are_asked_for_and_stored_are_the_same() -> None:
    """A request names a few bytes of each line of a row: however many there are, they are the lines of the rows."""
    row = Bundles(64)
    loops = (("i", 512), ("j", 64))
    moves = (("i", 32 * 8192), ("j", 128))
    asked = Accesses("a", [8192 * r + 64 * line for r in range(30) for line in range(2)], 4, moves, False)
    stored = Accesses("a", [0, 64], 64, moves, True, 32, 8192)
    row.add([asked, stored], loops)
    assert row.touched(0, 2, 0).lines["a"] == (512 * 32 * 128, 512 * 32 * 128)


@examples(100)
@given(st.lists(accesses, min_size=1, max_size=4), st.tuples(*[st.integers(1, 12)] * 3), st.sampled_from([64, 128]))
def test_lines_are_those_of_all_bytes(some: list[Accesses], extents: tuple[int, ...], line_bytes: int) -> None:
    row = Bundles(line_bytes)
    loops = tuple(zip(LOOPS, extents, strict=True))
    row.add(some, loops)
    lines: dict[str, set[int]] = {}
    for one in some:
        strides = dict(one.strides)
        for at in itertools.product(*map(range, extents)):
            moved = sum(strides.get(name, 0) * turn for name, turn in zip(LOOPS, at, strict=True))
            for start in (start + moved + r * one.apart for start in one.starts for r in range(one.rows)):
                met = range(start // line_bytes, -(-(start + one.size) // line_bytes))
                lines.setdefault(one.tensor, set()).update(met)
    found = row.touched(0, len(row.all), 0).lines
    assert {name: met.touched for name, met in found.items()} == {name: len(met) for name, met in lines.items()}
