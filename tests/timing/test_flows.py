"""Lines that caches fetch, and the phases of a run: machine code says what Python says, and that what NumPy says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa_models.machines.loader import cpu_machine as machine
from simdnn.program.records import Affine, Loop, Program
from simdnn.timing import fetched
from simdnn.timing.cpu.walk import core_time
from simdnn.timing.fetched import Fetched, Phase
from simdnn.timing.flows import ASKED, STREAMED, Flows
from simdnn.timing.footprint import parts
from simdnn.timing.memory import transfers
from simdnn.timing.translate import fields_of
from tests.effort import examples
from tests.timing.programs import adds, gemm, loads, streamed

X = Affine()
PROGRAMS = {
    "panels": gemm("f32", 64, 256, 1024, 8, 2),
    "short": gemm("vnni", 56, 128, 16, 14, 2),
    "taps": gemm("vnni", 32, 64, 576, 8, 2, taps=9),
    "columns far apart": gemm("f32", 28, 32, 1024, 14, 2),
    "in turn": streamed(
        Loop("t", 40, (loads("i", 96, Affine.var("t") * 256), adds("j", 900), loads("k", 300, Affine())))
    ),
}
programs = st.sampled_from(sorted(PROGRAMS)).map(PROGRAMS.__getitem__)


class Interpreted(Fetched):
    """By the class as it stands."""

    def _ask(self, entry: str) -> int:
        flows: Any = Flows()
        for name in fields_of(Flows):
            setattr(flows, name, self.array(name) if name in self._room else self._state[fetched._SLOT[name]])
        return int(getattr(flows, entry)())


def everything(
    kind: type[Fetched], program: Program, sizes: list[int], ways: int, cold: list[str], some: list[str]
) -> Any:
    """All that is told of a program, with a part of its tensors looked at in another way."""
    target = machine("spr")
    tree, core = parts(program), core_time(program, target)
    caches = [replace(cache, size_bytes=size, ways=ways) for cache, size in zip(target.caches, sizes, strict=True)]
    found = kind(tree, caches, cold, parts(program) if ways else None, some)
    levels = [replace(level, exposed=0.3, awaited=60.0) for level in transfers(program, target).levels[1:]]
    shares = dict.fromkeys(reversed(some), 0.7)
    kinds = {tensor.name: number % (STREAMED + 1) for number, tensor in enumerate(program.tensors)}
    kinds |= dict.fromkeys(cold, ASKED)
    return found.missed, found.stays(), found.phases(core.span, 2000, levels, kinds, shares, shares)


@examples(60)
@given(
    program=programs,
    sizes=st.lists(st.sampled_from([1, 3, 9, 32, 200, 5000]).map(lambda kib: kib << 10), min_size=3, max_size=3),
    ways=st.sampled_from([0, 8, 12]),
    cold=st.sets(st.sampled_from("ABCx")).map(sorted),
    some=st.sets(st.sampled_from("ABCx")).map(sorted),
)
def test_machine_code_says_what_python_says(
    program: Program, sizes: list[int], ways: int, cold: list[str], some: list[str]
) -> None:
    compiled, told = (everything(kind, program, sizes, ways, cold, some) for kind in (Fetched, Interpreted))
    assert repr(compiled) == repr(told)


def test_as_many_phases_as_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no room for more than one at first."""
    target, program = machine("zen4"), PROGRAMS["panels"]
    core, moved = core_time(program, target), transfers(program, target, cold=("A", "B"))

    def phases() -> list[Phase]:
        return moved.fetched.phases(core.span, 2000, moved.levels[1:], {}, {}, {})

    every = phases()
    monkeypatch.setattr(fetched, "_PHASES", 1)
    assert len(every) > 1 and phases() == every


def flows(**fields: Any) -> Any:
    found: Any = Flows()
    for name, value in fields.items():
        setattr(found, name, value)
    return found


@given(st.lists(st.floats(0, 1e6), max_size=600))
def test_sums_are_numpys(values: list[float]) -> None:
    assert flows(weighed=[*values]).sum_of(0, len(values)) == np.array(values, np.float64).sum()


@given(
    st.lists(st.tuples(st.floats(0, 9), st.floats(0, 1)), min_size=2, max_size=6, unique_by=lambda row: row[0]),
    st.data(),
)
def test_between_rows_of_a_table(rows: list[tuple[float, float]], data: st.DataObject) -> None:
    crowds, shares = zip(*sorted(rows), strict=True)
    crowding = data.draw(st.one_of(st.floats(0, 10), st.sampled_from(crowds)))
    found = flows(first_row=[0, len(rows)], crowds=crowds, shares=shares).kept_of(0, crowding)
    assert found == np.interp(crowding, crowds, shares, right=0.0)
