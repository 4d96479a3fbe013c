"""The view of a loop in assembly: what limits it, its values and its pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import simdnn
from isa_models import Unimplemented
from isa_models.machines.loader import cpu_machine
from simdnn.assembly.analysis import Analysis
from simdnn.teach.forms import Field, FieldGroup, Query
from simdnn.teach.machines import field_group, figures, machine_field, moved
from simdnn.teach.numbers import short
from simdnn.teach.pipeline import Pipeline, of_steps

TITLE = "Your own loop"
LEAD = "Paste the body of a loop (Intel or AT&T syntax, or hexadecimal): what it computes, when, and what limits it."
DOT = """\
vmovdqu ymm1, [rsi]
vpmaddubsw ymm2, ymm1, [rdi]
vpmaddwd ymm2, ymm2, ymm3
vpaddd ymm0, ymm0, ymm2
add rsi, 32
add rdi, 32
"""
EXAMPLES = (
    ("A dot product of bytes", {"code": DOT, "machine": "skx"}),
    ("One accumulator waits for itself", {"code": "vfmadd231ps zmm0, zmm1, zmm2\n", "machine": "zen4"}),
    (
        "Four accumulators do not",
        {"code": "".join(f"vfmadd231ps zmm{i}, zmm8, zmm9\n" for i in range(4)), "machine": "zen4"},
    ),
)
MOST_TURNS = 8


@dataclass(frozen=True)
class LoopShown:
    """The analysis of a loop; `base_cycles` on the machine as its table has it."""

    text: str
    cycles: float
    base_cycles: float
    notes: tuple[str, ...]
    chain: tuple[str, ...]
    pipeline: Pipeline
    base: Pipeline | None
    remark: str  # why there are no values


def groups(query: Query) -> tuple[FieldGroup, ...]:
    """The form; sliders of figures follow from the loop."""
    code = Field("code", "loop", query.texts.get("code", "").strip() or DOT, lines=8)
    turns = Field("turns", "iterations", query.text("turns", "2"), least=1, most=MOST_TURNS)
    lanes = Field("lanes", "lanes shown", query.text("lanes", "4"), least=1, most=64)
    return FieldGroup("Loop", (code, machine_field(query, default="skx"))), FieldGroup("Show", (turns, lanes))


def answer(query: Query) -> tuple[LoopShown, tuple[FieldGroup, ...]]:
    """The analysis of the loop (`simdnn.analyze`), and the sliders. Raises what it raises."""
    code = query.text("code", DOT)
    base = cpu_machine(query.text("machine", "skx"))
    turns, lanes = query.whole("turns", 2, 1, MOST_TURNS), query.whole("lanes", 4, 1, 64)
    real = simdnn.analyze(f"{code}\n", base)
    known = figures(base, [op.row for op in real.ops])
    other = cpu_machine(moved(query, known, base).name)
    found = simdnn.analyze(f"{code}\n", other) if other is not base else real
    values, remark = _values(real, turns, lanes)
    return LoopShown(
        str(found),
        found.cycles_per_iteration,
        real.cycles_per_iteration,
        found.notes,
        found.chain,
        _pipeline(found, values, turns),
        _pipeline(real, values, turns) if found is not real else None,
        remark,
    ), (field_group(query, known, base),)


def _pipeline(analysis: Analysis, values: Sequence[tuple[str, str]], turns: int) -> Pipeline:
    texts = [event.text for event in analysis.timeline.events if event.iteration == 0]
    return of_steps(analysis.machine, analysis.steps, texts, values, turns)


def _values(analysis: Analysis, turns: int, most: int) -> tuple[list[tuple[str, str]], str]:
    """The values that each op leaves in each turn (place, lanes), and the reason where values are not to be had."""
    shown = []
    for turn in range(1, turns + 1):
        try:
            written = list(analysis.values(iterations=turn).written)
        except Unimplemented as error:
            return [("", "")] * len(analysis.ops) * turns, str(error)
        at = 0
        for op in analysis.ops:
            place, lanes = "", ""
            for one in analysis.body[at : at + op.steps]:
                if written and written[0].instruction == one.text:
                    left = written.pop(0)
                    place, lanes = left.place, f"{left.dtype} {short(left.lanes, left.dtype, most)}"
            shown.append((place, lanes))
            at += op.steps
    return shown, "Registers and memory are drawn: what nobody gave, from a fixed seed."
