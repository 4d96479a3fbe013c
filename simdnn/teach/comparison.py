"""The view of two configurations of one problem: outputs, cycles and dispatch side by side, and why they differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import simdnn
from isa_models.formats import fmt
from isa_models.isa import caps
from isa_models.readings.arrays import Array
from simdnn.exactness.comparison import Comparison
from simdnn.explanations.steps import text_of
from simdnn.primitives.result import Result
from simdnn.teach.forms import Field, FieldGroup, Query
from simdnn.teach.machines import machine_field
from simdnn.teach.problems import attr_of, dispatch_field, mode_field, operands, problem_group

TITLE = "Two side by side"
LEAD = (
    "Strict beside down-converted, one ISA beside another, one machine beside another: what differs, and what it costs."
)
EXAMPLES = (
    ("Strict beside bf16", {"a.machine": "zen4", "b.machine": "zen4", "b.mode": "bf16", "dt": "f32:f32:f32"}),
    ("int8 without VNNI beside VNNI", {"a.machine": "skx", "b.machine": "clx", "data": "largest", "dt": "u8:s8:s32"}),
    (
        "AVX2 beside AVX-512",
        {"a.machine": "zen4", "a.isa": "avx2", "b.machine": "zen4", "b.isa": "avx512_core_vnni", "dt": "u8:s8:s32"},
    ),
    ("A CPU beside a GPU", {"a.machine": "spr", "b.machine": "b580", "dt": "f16:f16:f32"}),
)
MOST_OUTPUTS = 8  # of rows and columns
MOST_CANDIDATES = 12


@dataclass(frozen=True)
class ComparedSide:
    """One configuration's outcome; a candidate kernel is (name, cycles, reason, chosen)."""

    title: str
    implementation: str
    cycles: float
    time_us: float
    bound: str
    confidence: str
    departures: str
    candidates: tuple[tuple[str, str, str, bool], ...]


@dataclass(frozen=True)
class Cell:
    """An output element on both sides."""

    a: str
    b: str
    differs: bool


@dataclass(frozen=True)
class SideBySide:
    """The two sides, how far they differ, where and why; a reason is (reason, side, elements, detail)."""

    sides: tuple[ComparedSide, ComparedSide]
    differing: int
    elements: int
    speed_ratio: float
    summary: Mapping[str, str]
    outputs: tuple[tuple[Cell, ...], ...]
    cut: bool
    reasons: tuple[tuple[str, str, int, str], ...]


def groups(query: Query) -> tuple[FieldGroup, ...]:
    """The form: the problem that both share, and each side."""
    sides = [
        FieldGroup(
            side.upper(),
            (
                machine_field(query, f"{side}.machine"),
                Field(f"{side}.isa", "ISA cap", query.text(f"{side}.isa"), ["", *caps()], note="empty: the machine's"),
                mode_field(query, f"{side}.mode"),
                dispatch_field(query, f"{side}.dispatch"),
            ),
        )
        for side in "ab"
    ]
    return problem_group(query), *sides


def answer(query: Query) -> tuple[SideBySide, tuple[FieldGroup, ...]]:
    """The two sides of a comparison. Raises what `simdnn.compare` raises."""
    src, weights, dst = operands(query)
    given = [_configuration(query, side) for side in "ab"]
    found = simdnn.compare((src, weights), *given, dst=dst, engine="reference")
    outputs = [result.output[:MOST_OUTPUTS, :MOST_OUTPUTS] for result in (found.a, found.b)]
    shown = SideBySide(
        (_side("A", found.a, given[0]), _side("B", found.b, given[1])),
        found.differing,
        found.a.output.size,
        found.speed_ratio,
        _summary(found),
        _cells(outputs[0], outputs[1], dst),
        max(found.a.output.shape) > MOST_OUTPUTS,
        tuple((r["reason"], r["side"], r["elements"], r["detail"]) for r in found.reasons.to_dict("records")),
    )
    return shown, ()


def _configuration(query: Query, side: str) -> dict[str, Any]:
    made: dict[str, Any] = {
        "machine": query.text(f"{side}.machine", "zen4"),
        "attr": attr_of(query, f"{side}.mode"),
        "dispatch": query.text(f"{side}.dispatch", "fastest"),
    }
    isa = query.text(f"{side}.isa")
    return made | ({"isa": isa} if isa else {})


def _side(name: str, result: Result, given: Mapping[str, Any]) -> ComparedSide:
    candidates = tuple(
        (r["implementation"], "" if np.isnan(r["cycles"]) else f"{r['cycles']:.0f}", r["reason"], bool(r["chosen"]))
        for r in result.dispatch.head(MOST_CANDIDATES).to_dict("records")
    )
    isa = f", {given['isa']}" if "isa" in given else ""
    return ComparedSide(
        f"{name}: {result.machine.name}{isa}, {result.fpmath}",
        result.implementation,
        result.cycles,
        result.seconds * 1e6,
        result.bound,
        result.confidence,
        result.departed.summary,
        candidates,
    )


_SHOWN = {
    "max_abs_error": "largest difference",
    "max_rel": "largest relative difference",
    "max_ulp": "largest difference in ulp",
    "sqnr_db": "signal to error (dB)",
}


def _summary(comparison: Comparison) -> dict[str, str]:
    summary = comparison.summary
    return {label: f"{summary[key]:.4g}" for key, label in _SHOWN.items()}


def _cells(a: Array, b: Array, dtype: str) -> tuple[tuple[Cell, ...], ...]:
    def text(value: Any) -> str:
        return text_of(float(value), dtype) if fmt(dtype).is_float else str(int(value))

    rows = zip(a, b, strict=True)
    return tuple(
        tuple(Cell(text(x), text(y), x.tobytes() != y.tobytes()) for x, y in zip(*row, strict=True)) for row in rows
    )
