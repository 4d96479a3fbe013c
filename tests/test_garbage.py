"""Python's collection of garbage is set in the package's own processes, and left alone in others'."""

from __future__ import annotations

import gc
import sys

import pytest

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
