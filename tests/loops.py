"""Loops in assembly, as tests of cores write them and as the pages of validation have them measured."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import simdnn
from benchmarks.loops import START, VECTORS, whole
from isa_models.machines.cpu_record import Machine
from isa_models.machines.loader import cpu_machine
from simdnn.assembly.analysis import analyze_body, read_body
from simdnn.assembly.rows import rows
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


def loops_of(name: str) -> list[dict[str, Any]]:
    """The loops of a file of tests/vectors that settle in one state, each with its body."""
    found: list[dict[str, Any]] = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))["loops"]
    return [whole(loop) for loop in found if loop.get("stable", True)]


def both_cycles(machine: str, loop: dict[str, Any], **memory: int) -> tuple[float, float]:
    """Cycles of a round of a recorded loop: predicted, and measured; `memory` as `analyze_body` takes it."""
    body, start = read_body("\n".join(loop["body"])), loop.get("start", START)
    predicted = analyze_body(body, rows(cpu_machine(machine)), start=start, **memory).cycles_per_iteration
    return predicted, loop["cycles_per_iteration"]


def errors(machine: str, loops: Iterable[dict[str, Any]], **memory: int) -> list[float]:
    """Relative errors of what is predicted of recorded loops."""
    return [abs(predicted / met - 1) for predicted, met in (both_cycles(machine, loop, **memory) for loop in loops)]


def block(machine: Machine, steps: Sequence[Step]) -> Block:
    """The core model's run of a stream that is executed once."""
    run = CoreRun(Turn.of(machine, lower(machine, steps)), 1).finish()
    retired = run.retired.tolist()
    return Block(retired[-1], retired, list(run.busy))
