"""The view of one instruction: numbers in, every step of every lane with its bits, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

from isa_models import REGISTRY, Instruction, Machine, UnknownName
from isa_models.formats import fmt
from isa_models.instruction import GPU_REGISTRY, Family, Operand
from isa_models.machines.loader import machine
from isa_models.plugins import load
from simdnn.explanations.lanes import explain
from simdnn.explanations.operand_text import arguments, example, explained
from simdnn.explanations.steps import ExplainedStep
from simdnn.teach.forms import Field, FieldGroup, Query
from simdnn.teach.machines import machine_field
from simdnn.teach.numbers import Number, number, numbers

TITLE = "One instruction"
LEAD = "Type numbers; see every product, sum, saturation and rounding of every lane, with the bits."
EXAMPLES = (
    ("A pair of products saturates", {"name": "vpmaddubsw", "op.a": "255,255", "op.b": "127,127"}),
    (
        "VNNI adds four, and does not saturate",
        {"name": "vpdpbusd", "op.acc": "0", "op.a": "255,255,1,1", "op.b": "127,127,1,1"},
    ),
    ("f32 rounded to bf16", {"name": "vcvtneps2bf16", "op.a": "3.14159265,1.00390625,1.01171875,3.4e38"}),
    ("A fused multiply-add", {"name": "vfmadd231ps", "op.acc": "-1", "op.a": "1.0000001", "op.b": "1.0000001"}),
    ("A GPU's dot product", {"name": "dp4a.s8.u8.s32", "op.acc": "10", "op.a": "1,2,3,-128", "op.b": "4,5,6,255"}),
)
MOST_LANES = 32  # shown step by step


@dataclass(frozen=True)
class Shown:
    """A step: its words, the value with its bits, the exact value where that is another, and what was lost."""

    text: str
    value: Number
    exact: str
    note: str


@dataclass(frozen=True)
class Lane:
    """A lane of the result (or a place in a tile), and the steps that made it; the last one's value is the lane's."""

    at: str
    steps: tuple[Shown, ...]


@dataclass(frozen=True)
class Vector:
    """An operand as the instruction read it."""

    name: str
    dtype: str
    lanes: tuple[Number, ...]


@dataclass(frozen=True)
class TableRow:
    """A row of a machine's table."""

    form: str
    latency: float
    ports: str
    confidence: str
    source: str


@dataclass(frozen=True)
class InstructionShown:
    """An instruction on the numbers that were typed."""

    title: str
    about: tuple[str, ...]
    forms: tuple[str, ...]  # of a family: pick one
    operands: tuple[Vector, ...]
    lanes: tuple[Lane, ...]
    left: int  # lanes that are not shown
    remarks: tuple[str, ...]
    machine: str
    costs: tuple[TableRow, ...]


def names() -> list[str]:
    """All instructions, as `simdnn list instructions` has them."""
    load()
    return sorted({*REGISTRY, *GPU_REGISTRY})


def groups(query: Query) -> tuple[FieldGroup, ...]:
    """The form: the name, and a field for each operand where the name is known."""
    name = query.text("name", EXAMPLES[0][1]["name"])
    chosen = (Field("name", "instruction", name, names(), free=True), machine_field(query))
    try:
        definition = explained(name)
    except UnknownName:
        return (FieldGroup("Which", chosen),)
    if _has_no_values(definition):
        return (FieldGroup("Which", chosen),)
    texts, own = _texts(query, definition), definition.operands
    operands = [Field(f"op.{o.name}", f"{o.name}: {o.dtype}", texts[o.name], note=_allowed(o)) for o in own]
    upto = f"0 to {definition.greatest_immediate}"
    operands += [Field(f"op.{i}", f"{i}: immediate", texts[i], note=upto) for i in definition.immediates]
    operands += [
        Field(f"op.{key}", key, texts.get(key, values[0]), values) for key, values in definition.choices.items()
    ]
    if definition.takes_lanes:
        operands.append(Field("op.lanes", "lanes of the result", texts.get("lanes", "1")))
    # numbers that were typed for another instruction are not this one's
    operands.append(Field("of", "", name, hidden=True))
    return FieldGroup("Which", chosen), FieldGroup("Numbers, the lowest lane first", tuple(operands))


def answer(query: Query) -> tuple[InstructionShown, tuple[FieldGroup, ...]]:
    """The steps of the instruction. Raises what `simdnn.explain` raises."""
    definition = explained(query.text("name", EXAMPLES[0][1]["name"]))
    about = (*definition.doc.split("\n\n>>>")[0].split("\n"), definition.manual)
    on = machine(query.text("machine", "zen4"))
    costs = tuple(_costs(definition, on)) if isinstance(on, Machine) else ()
    if _has_no_values(definition):
        forms = tuple(definition.forms()) if isinstance(definition, Family) else ()
        said = () if forms else ("It sets a state of the machine; there is no value to show.",)
        return InstructionShown(definition.signature, about, forms, (), (), 0, said, on.name, costs), ()
    found = explain(definition.name, **arguments(definition, _texts(query, definition)))
    pairs = zip(found.rows, found.lanes, strict=True)
    lanes = [Lane(at, tuple(_shown(*one) for one in of)) for at, of in groupby(pairs, lambda pair: pair[0].at)]
    operands = tuple(Vector(name, dtype, numbers(values, dtype)) for name, dtype, values in found.operands)
    left = max(0, len(lanes) - MOST_LANES)
    shown = tuple(lanes[:MOST_LANES])
    return InstructionShown(found.title, found.about, (), operands, shown, left, found.remarks, on.name, costs), ()


def _has_no_values(definition: Instruction) -> bool:
    """Whether it is a name for many forms, or sets a state of the machine."""
    return isinstance(definition, Family) or definition.configures


def _texts(query: Query, definition: Instruction) -> dict[str, str]:
    """The text typed for this instruction, else its example."""
    typed = query.part("op.")
    if query.text("of", definition.name) != definition.name:
        typed = Query({})
    known = example(definition)
    return {key: typed.text(key, known.get(key, "")) for key in {**known, **typed.texts}}


def _shown(row: ExplainedStep, lane: tuple[str, Any]) -> Shown:
    dtype, value = lane
    return Shown(row.text, number(value, dtype), _exact(row.value, row.exact), row.note)


def _allowed(operand: Operand) -> str:
    form = fmt(operand.dtype)
    count = f"{operand.per:g} for each lane of the result" if operand.per else f"{operand.count} in all"
    return f"{'floats' if form.is_float else f'{form.low} to {form.high}'}, {count}"


def _exact(value: float | int, exact: float | int | None) -> str:
    """The exact value where it is another one."""
    if exact is None:
        return "none"
    return "" if exact == value else f"{exact:.17g}" if isinstance(exact, float) else str(exact)


def _costs(definition: Instruction, on: Machine) -> list[TableRow]:
    names = {definition.mnemonic(width) for width in definition.caps}
    return [
        TableRow(form, row.latency, " ".join("/".join(uop) for uop in row.uops) or "-", row.confidence, row.source)
        for (mnemonic, form), row in on.instructions.items()
        if mnemonic in names
    ]
