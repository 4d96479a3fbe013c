"""Loops in assembly, as tests of cores write them and as the pages of validation have them measured."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import simdnn
from isa_models.machines.cpu_record import Machine
from simdnn.timing.cpu.core_run import CoreRun, Turn
from simdnn.timing.cpu.steps import Step, lower

_DATA = Path(__file__).parents[1] / "docs" / "validation" / "data"


class Block(NamedTuple):
    """A stream executed once from an empty core: its cycles, each op's retirement, and the work on each port."""

    cycles: int
    retired: list[int]
    busy: list[float]


def cycles_of(machine: str | Machine, lines: Iterable[str], end: str = "dec rcx") -> float:
    """Cycles of a round of a loop: its lines, and `end`, which counts rounds, with the jump."""
    return simdnn.analyze("\n".join(["1:", *lines, end, "jnz 1b"]), machine=machine).cycles_per_iteration


def recorded(name: str) -> list[dict[str, str]]:
    """The rows of a table of docs/validation/data."""
    with (_DATA / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def block(machine: Machine, steps: Sequence[Step]) -> Block:
    """The core model's run of a stream that is executed once."""
    run = CoreRun(Turn.of(machine, lower(machine, steps)), 1).finish()
    retired = run.retired.tolist()
    return Block(retired[-1], retired, list(run.busy))
