"""Tensors that are read down a column, and what their lines and pages cost (`simdnn.timing.walked`)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from isa_models.machines.core_record import Translation
from isa_models.machines.loader import cpu_machine as machine
from simdnn.program.records import Affine, Loop, Memory, Op, Program, Register, Tensor
from simdnn.timing.estimate import estimate_program
from simdnn.timing.flows import WALKED
from simdnn.timing.memory import transfers


def down_columns(bytes_: int, rows: int, apart: int, sums: int = 0) -> Program:
    """The first bytes of each row, then the next ones, of two columns, and some sums of each."""
    index = apart * Affine.var("k") + bytes_ * Affine.var("j")
    load = Op("vmovdqu8", Register("a", "u8", bytes_), (Memory("a", index, "u8", bytes_),))
    tensors = (Tensor("a", "u8", rows * apart),)
    x = Register("a", "u32", 4)
    body = (load, *[Op("vpaddd", x, (x, x))] * sums)
    return Program("copy", "avx512_core", tensors, (Loop("j", 2, (Loop("k", rows, body),)),))


def test_of_lines_that_nothing_fetches_ahead_all_time_shows() -> None:
    """Parts of lines, row after row, farther apart than a prefetcher follows, and more of them than a kernel's taps."""
    spr = machine("spr")
    program = down_columns(16, 1024, 4096)
    assert transfers(program, spr).kinds == {"a": WALKED}
    assert not any(
        transfers(down_columns(*other), spr).kinds for other in ((16, 8, 4096), (16, 64, 2048), (64, 64, 4096))
    )
    l3 = replace(spr.cache("L3"), exposed_walked=spr.cache("L3").exposed)
    hiding = replace(spr, caches=(*spr.caches[:2], l3))
    slow, fast = (estimate_program(down_columns(16, 4096, 4096), target) for target in (spr, hiding))
    cycles = {level.level: level.cycles for level in slow.levels}
    shown = spr.cache("L2").exposed * cycles["L2"] + cycles["L3"]
    walks = 2 * 4096 * spr.core.translation.cycles  # of more pages than the core has at hand
    assert slow.cycles == pytest.approx(slow.core_cycles + shown + walks) and fast.cycles < slow.cycles
    assert fast.cycles - walks < 0.9 * (slow.cycles - walks)


def test_what_is_made_of_a_row_fills_the_scheduler_while_its_line_is_awaited() -> None:
    """97 entries hold three rows of 32 operations, so 140 cycles bring three lines; the core's own work goes on beside
    that. Where three rows lie in a page lines are fetched as others, and in the second cache nothing waits.
    """
    spr, rows = machine("spr"), 4096
    known = replace(spr, core=replace(spr.core, translation=Translation()))
    for sums in (8, 32):
        far, near, fetched = (
            estimate_program(down_columns(16, rows, apart, sums), known) for apart in (4096, 2112, 1024)
        )
        beside = near.cycles - near.core_cycles  # of the second cache's time
        assert far.cycles == pytest.approx(2 * rows * 140 * sums / 97 + beside, rel=1e-3)
        assert far.core_cycles == near.core_cycles and fetched.cycles < 0.7 * far.cycles
