"""Loops in assembly, as tests of cores write them."""

from __future__ import annotations

from collections.abc import Iterable

import simdnn
from isa_models.machines.cpu_record import Machine


def cycles_of(machine: str | Machine, lines: Iterable[str], end: str = "dec rcx") -> float:
    """Cycles of a round of a loop: its lines, and `end`, which counts rounds, with the jump."""
    return simdnn.analyze("\n".join(["1:", *lines, end, "jnz 1b"]), machine=machine).cycles_per_iteration
