"""Log records, and that nothing is said on standard error where nobody asked for it."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import simdnn
from simdnn import study

F32 = np.ones((4, 8), np.float32), np.ones((8, 4), np.float32)


def test_the_kernel_chosen_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "simdnn"):
        found = simdnn.matmul(*F32, machine="zen4")
        simdnn.estimate("matmul", m=4, n=4, k=8, machine="b580")
    first, second = [line for line in caplog.messages if "dispatch" in line]
    assert first.startswith(f"{found.implementation} on zen4, dispatch fastest: MatmulProblem(m=4,")
    assert " on b580, " in second


def test_a_library_s_fallback_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """oneDNN leaves products of u8 weights to its reference implementation."""
    asked = {"m": 4, "n": 4, "k": 8, "machine": "zen4", "dispatch": "onednn"}
    with caplog.at_level(logging.INFO, "simdnn"):
        fast = simdnn.estimate("matmul", dt="f32", **asked)  # type: ignore[arg-type]
        assert not fast.reference and not caplog.messages
        slow = simdnn.estimate("matmul", dt="u8:u8:s32", **asked)  # type: ignore[arg-type]
    assert slow.reference
    (line,) = caplog.messages
    assert line.startswith(f"onednn falls back to its reference implementation {slow.library} on zen4: ")


def test_a_study_logs_what_it_knows_already(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    given = {"study": {"kind": "matmul"}, "fixed": {"machine": "zen4", "n": 8, "k": 8}, "axes": {"m": [1, 8]}}
    kept = tmp_path / "rows.jsonl"
    with caplog.at_level(logging.DEBUG, "simdnn.study"):
        study.explore(given, results=kept)
        assert [line[:12] for line in caplog.messages] == ["point 1 of 2", "point 2 of 2"]
        caplog.clear()
        study.explore(given, results=kept)
    assert caplog.messages == [f"2 of 2 points are known from {kept}"]


def test_nothing_is_said_unless_asked_for() -> None:
    given = "m=4, n=4, k=4, dt='u8:u8:s32', machine='zen4', dispatch='onednn'"
    code = f"import simdnn; simdnn.estimate('matmul', {given})"
    said = {}
    for level in ("", "import logging; logging.basicConfig(level='INFO'); "):
        ended = subprocess.run([sys.executable, "-c", level + code], capture_output=True, text=True, check=True)
        said[level] = ended.stderr
        assert not ended.stdout
    quiet, asked = said.values()
    assert not quiet and asked.startswith("INFO:simdnn.primitives.run:onednn falls back")
