"""Python's collection of garbage is set in the package's own processes, and left alone in others'."""

from __future__ import annotations

import gc
import sys
import threading
from functools import partial

import pytest

import simdnn
from simdnn import garbage
from simdnn.cli import main


def test_the_command_collects_seldom_and_a_caller_of_its_function_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    before = gc.get_threshold()
    monkeypatch.setattr(sys, "argv", ["simdnn", "list", "isa"])
    gc.set_threshold(700)
    try:
        assert main(sys.argv[1:]) == 0
        assert gc.get_threshold()[0] == 700
        assert main() == 0
        assert gc.get_threshold()[0] == garbage._AFTER
    finally:
        gc.set_threshold(*before)


def test_what_an_estimate_keeps_is_old_and_what_others_put_aside_stays_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects are young again where another thread may have made some, or somebody has frozen any."""
    told: list[str] = []
    monkeypatch.setattr(garbage, "_put_aside", False)
    for name in ("freeze", "unfreeze"):
        monkeypatch.setattr(gc, name, partial(told.append, name))
    for threads, frozen, wanted in ((1, 0, ["freeze", "unfreeze"]), (2, 0, []), (1, 3, []), (1, 0, [])):
        monkeypatch.setattr(threading, "active_count", lambda threads=threads: threads)
        monkeypatch.setattr(gc, "get_freeze_count", lambda frozen=frozen: frozen)
        with garbage.collected_later():
            assert not gc.isenabled()
        assert gc.isenabled() and told == wanted, (threads, frozen)
        told.clear()


def test_estimates_leave_no_cycles() -> None:
    """So nothing is lost where nobody looks at what they have made."""
    points = [("matmul", {"m": 30 + m, "n": 40, "k": 50, "dt": dt}) for m in range(3) for dt in ("f32", "u8:s8:s32")]
    sizes = {"ic": 3, "oc": 5, "ih": 9, "iw": 9, "kh": 3, "kw": 3}
    for found in range(2):  # what is imported and read at first is no estimate's
        gc.collect()
        for primitive, point in [*points, ("convolution", sizes)]:
            _ = simdnn.estimate(primitive, machine="zen4", **point).dispatch
        with pytest.raises(simdnn.SimdnnError):
            simdnn.estimate("matmul", m=8, n=8, k=8, dt="f64", machine="zen4")
        left = gc.collect()
        assert found == 0 or left < len(points)
