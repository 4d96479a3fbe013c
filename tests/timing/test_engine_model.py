"""An engine's threads: machine code says what the class says as plain Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from simdnn.timing.gpu import engine
from simdnn.timing.gpu.engine import BARRIER, SEND, SYSTOLIC, VECTOR, Issue, Issued, run
from simdnn.timing.gpu.engine_model import EngineModel
from tests.effort import examples

NAMES = ("a", "b", "c")
cycles = st.sampled_from((0.5, 1.0, 3.0, 16.0, 40.0))
instructions = st.builds(
    Issue,
    name=st.just("one"),
    pipe=st.sampled_from((SYSTOLIC, VECTOR, SEND)),
    occupancy=cycles,
    latency=cycles,
    reads=st.lists(st.sampled_from(NAMES), max_size=2).map(tuple),
    writes=st.sampled_from(("", *NAMES)),
)
barriers = st.just(Issue("barrier", BARRIER, 0.0, 7.0, (), ""))


def interpreted(arrays: Mapping[str, Any], scalars: Mapping[str, int]) -> int:
    """By the class as it stands."""
    model: Any = EngineModel()
    for name, value in {**arrays, **scalars}.items():
        setattr(model, name, value)
    return int(model.run())


@examples(60)
@given(st.lists(st.one_of(instructions, barriers), max_size=25), st.integers(1, 5), st.booleans())
def test_machine_code_says_what_the_class_says(stream: list[Issue], threads: int, co_issue: bool) -> None:
    trace, said = list[Issued](), list[Issued]()
    found = run([stream] * threads, co_issue, trace)
    with patch.object(engine, "_run_on", interpreted):
        assert run([stream] * threads, co_issue, said) == found
    assert trace == said and len(trace) == threads * sum(issue.pipe != BARRIER for issue in stream)
    assert run([stream] * threads, co_issue) == found


@examples(40)
@given(st.lists(st.lists(instructions, max_size=15), min_size=1, max_size=4), st.booleans())
def test_threads_may_differ(streams: list[list[Issue]], co_issue: bool) -> None:
    found = run(streams, co_issue)
    with patch.object(engine, "_run_on", interpreted):
        assert run(streams, co_issue) == found
    assert found.cycles >= max(found.busy.values())
