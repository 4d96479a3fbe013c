"""Hundreds of random programs: valid ones agree bit for bit in every reading, broken ones are refused or harmless."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

#: a longer run: SIMDNN_RANDOM_PROGRAMS=20 multiplies the counts
SCALE = int(os.environ.get("SIMDNN_RANDOM_PROGRAMS", "1"))


@pytest.mark.parametrize(
    ("first", "valid", "broken"),
    [
        (0, 12, 0),
        (100_000, 0, 75),
        pytest.param(12, 108, 0, marks=pytest.mark.sweep),
        pytest.param(100_075, 0, 725, marks=pytest.mark.sweep),
    ],
)
def test_in_a_process_of_its_own(first: int, valid: int, broken: int) -> None:
    """A crash ends the subprocess, not the tests."""
    arguments = [str(first), str(valid * SCALE), str(broken * SCALE)]
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.numerics.random_programs", *arguments],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=600 * SCALE,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"{valid * SCALE} valid programs" in done.stdout
    if broken:
        refused = int(done.stdout.split("mutants: ")[1].split()[0])
        assert refused > broken * SCALE // 2  # the mutations do break programs
