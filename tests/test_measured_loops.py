"""Recorded loops run on a host only where their registers are given, and cannot end the process that measures them."""

from __future__ import annotations

import itertools
import json
import os
import signal

import pytest

from benchmarks import loops
from benchmarks.apart import apart
from simdnn.assembly.analysis import read_body
from tests.effort import one_in


@one_in(4)
@pytest.mark.parametrize("name", sorted({name for names in loops.FILES.values() for name in names}))
def test_recorded_loops_are_given_what_they_read(name: str) -> None:
    recorded = json.loads((loops.VECTORS / name).read_text(encoding="utf-8"))["loops"]
    for loop in map(loops.whole, recorded):
        assert loops.ungiven(loop, read_body("\n".join(loop["body"]))) == [], loop["name"]


def test_a_loop_that_might_write_anywhere_is_not_run() -> None:
    """Without its mask, which a ring needs, the pointers were 0: storing there ended the process."""
    ring = {
        "body": [
            "vmovups [rdi], ymm0",
            "add rdi, 32",
            "and rdi, r9",
            "xor eax, eax",
            "add rdi, rax",
            "dec rcx",
            "jnz .L",
        ]
    }
    body = read_body("\n".join(ring["body"]))
    assert loops.refusal(ring, body) == "read registers that nobody gave them (r9)"
    assert loops.ungiven(ring | {"start": {"r9": ~loops.RING}}, body) == []


@pytest.mark.parametrize("names", [["rsi"], ["rsi", "rdx", "rdi"]])
def test_pointers_stay_in_their_rings(names: list[str]) -> None:
    pointers = loops.given({"pointers": names, "start": {}, "body": []})
    memory = loops.memory()
    first = memory.ctypes.data
    for address in pointers.values():
        assert first < address and address + 2 * loops.RING < first + memory.nbytes
        assert address & loops.RING == 0
    assert all(b - a > loops.RING for a, b in itertools.pairwise(pointers.values()))


def test_what_ends_its_process_has_no_answer() -> None:
    assert apart(lambda: 1.5) == 1.5
    assert apart(lambda: os.kill(os.getpid(), signal.SIGKILL)) is None
