"""Distinct lines of bundles of runs: machine code and arrays say the same, and a query of a part what the part says."""

from __future__ import annotations

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
