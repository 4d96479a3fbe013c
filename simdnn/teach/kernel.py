"""The view of one kernel on one machine: its loop, the registers' values and the pipeline of the same iterations."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import simdnn
from isa_models import Machine
from isa_models.errors import counted
from isa_models.machines.loader import machine
from isa_models.readings.arrays import Array
from simdnn.kernels.common.kernel import Kernel
from simdnn.numerics.watched import Path, innermost, watch
from simdnn.primitives.result import Result
from simdnn.program.records import listing
from simdnn.teach import pipeline
from simdnn.teach.forms import Field, FieldGroup, Query
from simdnn.teach.machines import AnyMachine, Slider, field_group, figures, machine_field, moved
from simdnn.teach.numbers import short
from simdnn.teach.pipeline import Pipeline
from simdnn.teach.problems import attr_of, dispatch_field, mode_field, operands, problem_group

TITLE = "A kernel on a machine"
LEAD = (
    "What each instruction of the inner loop leaves, and in which cycle; move a figure of the machine and watch both."
)
EXAMPLES = (
    ("VNNI on Zen 4", {"machine": "zen4"}),
    ("The same core with two dispatch slots", {"machine": "zen4", "move.core.dispatch_slots": "2"}),
    ("One row: the sum waits for itself", {"machine": "zen4", "m": "1", "n": "16", "k": "256"}),
    ("int8 without VNNI, saturating", {"machine": "skx", "data": "largest"}),
    ("Tiles of Sapphire Rapids", {"machine": "spr", "m": "32", "k": "256", "dispatch": "gemm:avx512_core_amx_int8"}),
    ("A GPU's systolic array", {"machine": "b580", "k": "256"}),
    ("f32 on a V100", {"machine": "v100", "dt": "f32:f32:f32"}),
)
MOST_TURNS = 8


@dataclass(frozen=True, eq=False)
class KernelShown:
    """A kernel that ran on a machine with its figures as they were moved, and on the machine as its table has it."""

    result: Result
    real: Result
    outputs: str
    loop: str
    loops: int
    listing: str
    pipeline: Pipeline
    base: Pipeline | None  # of `real`, where figures were moved


def groups(query: Query) -> tuple[FieldGroup, ...]:
    """The form, but for the sliders: which figures there are goes by the loop."""
    turns = Field("turns", "iterations", query.text("turns", "2"), least=1, most=MOST_TURNS)
    lanes = Field("lanes", "lanes shown", query.text("lanes", "4"), least=1, most=64)
    loop = Field("loop", "loop, from 1 on", query.text("loop"), note="empty: the one at work longest")
    return (
        FieldGroup("Where", (machine_field(query), dispatch_field(query), mode_field(query))),
        problem_group(query),
        FieldGroup("Show", (turns, lanes, loop)),
    )


def answer(query: Query) -> tuple[KernelShown, tuple[FieldGroup, ...]]:
    """The kernel's answer, and the sliders of the machine's figures. Raises what `simdnn.matmul` raises."""
    src, weights, dst = operands(query)
    base = machine(query.text("machine", "zen4"))
    turns = query.whole("turns", 2, 1, MOST_TURNS)
    lanes = query.whole("lanes", 4, 1, 64)
    where: dict[str, Any] = {"dst": dst, "attr": attr_of(query), "engine": "reference"}
    dispatch = query.text("dispatch", "fastest")
    real = simdnn.matmul(src, weights, machine=base, dispatch=dispatch, **where)
    paths = list(innermost(real.kernel.program.body))
    number = query.whole("loop", _longest(paths), 1, len(paths))
    known = _figures(base, real.kernel, paths[number - 1])
    other = moved(query, known, base)
    result = real
    if other is not base:  # with the kernel of the machine as it is, so that a figure moves no more than its time
        result = simdnn.matmul(src, weights, machine=other, dispatch=real.implementation, **where)
    found = KernelShown(
        result,
        real,
        short(result.output.reshape(-1), dst, 8),
        _name(paths[number - 1]),
        len(paths),
        listing(result.kernel.program.body),
        _pipeline(result, number, turns, lanes),
        _pipeline(real, number, turns, lanes) if result is not real else None,
    )
    return found, (field_group(query, known, base),)


def _longest(paths: list[Path]) -> int:
    """The number of the loop with most instructions in all its turns, from 1 on."""

    def executed(path: Path) -> int:
        return len(path[-1].body) * prod(loop.extent for loop in path)

    return 1 + max(range(len(paths)), key=lambda i: executed(paths[i]))


def _name(path: Path) -> str:
    loop = path[-1]
    return (
        f"{'/'.join(one.var for one in path)}: {counted(loop.extent, 'time')} {counted(len(loop.body), 'instruction')}"
    )


def _inputs(result: Result) -> dict[str, Array]:
    run = result.departed
    return run.kernel.prepare(run.src, run.weights, run.parameters)


def _pipeline(result: Result, number: int, turns: int, lanes: int) -> Pipeline:
    program = result.kernel.program
    path = list(innermost(program.body))[number - 1]
    left = watch(program, _inputs(result), path, turns)
    return pipeline.of_program(program, path, left, result.machine, lanes)


def _figures(base: AnyMachine, kernel: Kernel, path: Path) -> dict[str, Slider]:
    rows = pipeline.rows_of(kernel.program, path, base) if isinstance(base, Machine) else ()
    return figures(base, rows)
