"""Operands of an instruction as people write them: "255,255", "0x10", "1.5,nan"; and an example of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from isa_models import Instruction, InvalidArgument, instruction
from isa_models.formats import fmt


def arguments(definition: Instruction, texts: Mapping[str, str]) -> dict[str, Any]:
    """The named arguments of `simdnn.explain` that texts by name stand for: operands, immediates, choices, lanes.

    Raises `InvalidArgument` for a text that holds no number of its operand's kind, and for a name that the instruction
    does not have.
    """
    types = {operand.name: operand.dtype for operand in definition.operands}
    found: dict[str, Any] = {}
    for key, text in texts.items():
        if key in types:
            found[key] = [_number(definition.name, key, word, types[key]) for word in text.split(",")]
        elif key in definition.immediates or key == "lanes":
            found[key] = whole(f"{definition.name}: {key}", text)
        elif key in definition.choices:
            found[key] = text
        else:
            known = ", ".join([*types, *definition.immediates, *definition.choices])
            raise InvalidArgument(f"{definition.name} has no operand {key!r}; it takes {known}")
    return found


def explained(name: str) -> Instruction:
    """The instruction whose operands `simdnn.explain` takes: of a product of matrices on a GPU one of its outputs."""
    definition = instruction(name)
    return definition.element() or definition


def example(definition: Instruction) -> dict[str, str]:
    """Texts by operand and immediate, with the numbers of one lane, or as many as share a number; of a whole register
    or tile, its first four; of a product of matrices those that show how its unit adds up.

    >>> from isa_models import instruction
    >>> example(instruction("vpmaddubsw"))
    {'a': '1,2', 'b': '1,2'}
    """
    if instruction(definition.name).element():
        return _telling(definition)
    found = {}
    lanes = math.ceil(1 / min([1.0, *(operand.per for operand in definition.operands if operand.per)]))
    lanes = definition.lanes(min(definition.caps)) if definition.whole else lanes
    for operand in definition.operands:
        count = definition.operand_lanes(operand, lanes) or 1
        count = min(4, count) if definition.whole or definition.tile else count
        bits = fmt(operand.dtype).is_truth
        found[operand.name] = ",".join(str((i + 1) % 2 if bits else i + 1) for i in range(count))
    return found | dict.fromkeys(definition.immediates, "0")


def _telling(definition: Instruction) -> dict[str, str]:
    """Integers at the ends of their ranges; floats whose products are far below the accumulator's last digit."""
    found = {}
    for operand in definition.operands:
        form = fmt(operand.dtype)
        eight = any(fmt(o.dtype).bits == 8 for o in definition.operands)
        if operand.name == "acc":
            found["acc"] = ("256" if eight else "4096") if form.is_float else "1"
        elif form.is_float:  # products 14 digits below the accumulator, or 24
            found[operand.name] = ",".join(["0.125" if eight else "0.015625"] * 4)
        else:
            ends = str(form.low), str(form.high)
            found[operand.name] = ",".join(ends[i % 2 if operand.name == "a" else i // 2] for i in range(4))
    return found


def whole(name: str, text: str) -> int:
    """A whole number; `name` says in the error what was to hold it."""
    try:
        return int(text, 0)
    except ValueError:
        raise InvalidArgument(f"{name} is {text[:40]!r}; an integer is needed") from None


def _number(name: str, operand: str, word: str, dtype: str) -> int | float:
    try:
        return float(word) if fmt(dtype).is_float else int(word, 0)
    except ValueError:
        kind = "numbers" if fmt(dtype).is_float else "integers"
        raise InvalidArgument(
            f"{name}: operand {operand} holds {word.strip()[:40]!r}; {kind} of {dtype} are needed: 1,2,3"
        ) from None
