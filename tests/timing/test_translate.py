"""A class of numbers as machine code says what Python says, and the core model's above all."""

from __future__ import annotations

import ctypes
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from isa_models import machine
from simdnn.timing import translate
from simdnn.timing.cpu.core_model import CoreModel
from simdnn.timing.cpu.core_rows import places_of
from simdnn.timing.cpu.core_run import SPACES, CoreRun, Turn
from simdnn.timing.cpu.steps import MemRef, Step, lower
from simdnn.timing.translate import Floats, Ints, NotUnderstood, compiled, fields_of, text_of
from tests.effort import examples
from tests.timing.test_pipeline import streams

LEAST = -3


class Sums:
    """One of everything that the language has."""

    total: int
    mean: float
    values: Ints
    halves: Floats

    def at(self, index: int) -> float:
        return self.halves[index] - LEAST

    def rounded(self, a: float) -> int:
        return math.floor(a) + 1000 * math.ceil(a)

    def both(self, a: int, b: int) -> int:
        """What comes later in `or` and `and` is looked at where it decides: no element is read that is not there."""
        if a >= 0 and a < 4 and self.values[a] > b or b < LEAST:
            return 1
        return 0

    def go(self, a: int, b: int) -> int:
        self.total = a // b + 100 * (a % b)
        self.mean = 0.0
        for i in range(4):
            if i == a:
                continue
            if i > b and b > 0:
                break
            self.values[i] += i * a if i % 2 == 0 else -i
            self.mean += self.at(i) / 2
        left, right = max(a, b, 2), min(float(a), self.mean)
        while left > 0:
            left -= 3
            if left == 4:
                break
        odd = not a & 1 == 0
        if odd and LEAST <= a < 9:
            left = -left << 1
        return self.total + left + self.rounded(right) + 7 * self.both(a, b) ^ 5


def as_python(a: int, b: int) -> tuple[Any, ...]:
    sums = Sums()
    sums.total, sums.mean, sums.values, sums.halves = 0, 0.0, [1, -2, 3, -4], [0.5, -1.5, 2.25, 8.0]
    return sums.go(a, b), sums.total, sums.mean, sums.values


def as_code(a: int, b: int) -> tuple[Any, ...]:
    values, halves = np.array([1, -2, 3, -4]), np.array([0.5, -1.5, 2.25, 8.0])
    state = np.array([0, 0, values.ctypes.data, halves.ctypes.data])
    found = compiled(Sums, {"go": [ctypes.c_int64] * 2})["go"](state.ctypes.data, a, b)
    return found, int(state[0]), float(state.view(np.float64)[1]), values.tolist()


@examples(30)
@given(st.integers(-20, 20), st.integers(-20, 20).filter(bool))
def test_machine_code_says_what_python_says(a: int, b: int) -> None:
    assert as_code(a, b) == as_python(a, b)


class Wrong:
    total: int

    def words(self) -> int:
        return len("two words")


def test_what_is_not_understood_is_refused() -> None:
    with pytest.raises(NotUnderstood, match="two words"):
        text_of(Wrong, ("words",))


def test_machine_code_is_kept_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next process finds it; what was cut off or cannot be written is compiled anew."""
    made: list[object] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(translate, "text_of", lambda *given: made.append(given) or text_of(*given))  # type: ignore[func-returns-value]
    for _ in range(2):
        assert as_code(5, 3) == as_python(5, 3)
    assert len(made) == 1
    (kept,) = tmp_path.glob("simdnn/*.o")
    kept.write_bytes(kept.read_bytes()[:-40])
    assert as_code(5, 3) == as_python(5, 3) and len(made) == 2
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert as_code(5, 3) == as_python(5, 3) and len(made) == 3


def interpreted(run: CoreRun) -> CoreModel:
    """The same run by Python itself, from the same arrays."""
    model: Any = CoreModel()
    scalars = places_of(run.rows.machine).scalars | run.scalars
    for name, kind in fields_of(CoreModel).items():
        value: Any = 0 if kind == "i64" else 0.0
        if name in dict(SPACES):
            value = run.array(name).tolist()
        elif name in (arrays := run.given | run.turn.arrays):
            value = arrays[name].tolist()
        setattr(model, name, scalars.get(name, value))
    model.run(run.size * run.turns)
    return model  # type: ignore[no-any-return]


#: on a Zen 3 the last one queues, behind a product's result: a bypass between ports that are not known yet
QUEUED = [
    Step("vpmaddwd", "ymm,ymm,ymm", ("r2", "r3"), ("r2",)),
    Step("vfmadd231ps", "ymm,ymm,m256", ("r2", "r4"), ("r2",), "r2", load=MemRef("a", 0, 32)),
]


@examples(25)
@given(streams(), st.sampled_from(("zen4", "zen3", "icx", "skx", "spr")))
@example(QUEUED, "zen3")
def test_the_core_model_runs_alike_in_python(body: list[Step], name: str) -> None:
    target = machine(name)
    run = CoreRun(Turn.of(target, lower(target, body)), 6)
    slow = interpreted(run)
    run.finish()
    assert run.retired.tolist() == slow.retired_at[: slow.retired] and run.cycle == slow.cycle
    assert run.busy == slow.busy and run.array("dispatched_at").tolist() == slow.dispatched_at


@examples(30)
@given(
    streams(),
    st.sampled_from(("zen4", "skx", "spr")),
    st.fixed_dictionaries({"a": st.integers(0, 5), "b": st.integers(0, 5)}),
    st.sampled_from((64, 16, 4)),
    st.sampled_from((0, 16, 64)),
)
def test_runs_whose_ops_meet_alike_are_alike(
    body: list[Step], name: str, places: dict[str, int], unit: int, step: int
) -> None:
    """Where else their bytes lie is no matter; nor is it by how many lines a tensor is moved."""

    def moved(ref: MemRef | None, by: int) -> MemRef | None:
        return ref and replace(ref, address=(ref.address or 0) + by * places[ref.tensor], step=step)

    target, found = machine(name), []
    for by in (0, unit):
        steps = [replace(one, load=moved(one.load, by), store=moved(one.store, by)) for one in body]
        run = CoreRun(Turn.of(target, lower(target, steps)), 6)
        met = run.meetings
        found.append((met, run.finish().retired.tolist()))
    if found[0][0] == found[1][0] or unit == 64:
        assert found[0] == found[1]
