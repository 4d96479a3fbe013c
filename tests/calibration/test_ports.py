"""Ports from pairs: what a core with known ports would show leads back to them, up to their names."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simdnn.calibration import ports, timer
from simdnn.calibration.ports import Ports

SETS = st.sets(st.sampled_from("ABCD"), min_size=1)


def shown(true: Mapping[str, set[str]]) -> Ports:
    pairs = itertools.combinations(true, 2)
    return Ports({n: len(p) for n, p in true.items()}, {(a, b): len(true[a] & true[b]) for a, b in pairs})


@given(st.dictionaries(st.sampled_from(sorted(ports.CLASSES)), SETS, min_size=1))
def test_groups_explain_what_was_seen(true: dict[str, set[str]]) -> None:
    groups = shown(true).groups()
    assert groups is not None
    assert shown({name: set(letters) for name, letters in groups.items()}) == shown(true)
    assert len(set("".join(groups.values()))) <= len(set().union(*true.values()))


def test_what_no_ports_explain() -> None:
    assert Ports({"a": 1, "b": 1, "c": 1}, {("a", "b"): 1, ("b", "c"): 1, ("a", "c"): 0}).groups() is None
    assert Ports({"odd": 1.4}, {}).groups() == {}  # no whole number: left out


@pytest.mark.parametrize(
    ("together", "shared"), [(6.0, 0), (12.0, 2), (9.0, 4 / 3)]
)  # of two classes on two ports each, whose copies take 6 cycles alone
def test_a_pairs_excess_is_the_share(monkeypatch: pytest.MonkeyPatch, together: float, shared: float) -> None:
    alone = 12 / 2

    def measure(body: list[str]) -> timer.Measured:
        return timer.Measured(alone if len(body) == ports.REGISTERS else together, 0.0, 25)

    monkeypatch.setattr(timer, "measure", measure)
    found = ports.measure(wide=True)
    assert found.counts["add"] == 2
    assert found.shared["multiply-add", "add"] == pytest.approx(shared)
