"""One instruction explained, lane by lane: the steps that its manual states, with numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from isa_models import Instruction, InvalidArgument, Unimplemented, instruction
from isa_models.errors import counted, did_you_mean
from isa_models.formats import fmt
from isa_models.instruction import MOST_LANES, Family, Operand, plain
from isa_models.keywords import keywords
from isa_models.readings.arrays import Array, held, unwarned
from isa_models.readings.traced import LEAVES, MOVES, Exact, TracedValue, copied, history, operand
from simdnn.explanations.block_dot import Dotted
from simdnn.explanations.steps import PADDING, ExplainedStep, Explanation, Wording, loss, real, shown, source_of, tells


@keywords
def explain(name: str | Dotted, *operands: Any, lanes: int | None = None, **named: Any) -> Explanation:
    """An instruction over operands given in its order or by their names (`isa_models.instruction(name).operands`).

    Blocks that share scales in place of a name: one element of their product, `explain(source, weights, at=(0, 0))`
    (`simdnn.primitives.block_scales.Blocks.explain_dot`).

    Operands are arrays or numbers of the operands' types; immediates are named. Of an instruction on whole registers,
    operands shorter than one are filled up with zeros. Of a product of matrices on a GPU one output is explained, from
    a number of `acc`, a row of `a` and a column of `b`; all outputs where operands are whole registers. `lanes`: of a
    broadcast's result (1). Raises `UnknownName` and `InvalidArgument`, each naming what the instruction takes.

    >>> print(explain("vpmaddubsw", a=[255, 255], b=[127, 127]).steps.text[3])
    saturate to s16: 64770 -> 32767
    """
    if isinstance(name, Dotted):
        return name.explain_dot(*operands, **named)
    definition = instruction(name)
    if isinstance(definition, Family):
        some = ", ".join(definition.forms()[:3])
        raise InvalidArgument(f"{name} has forms, one for each choice of types; name one, e.g. {some}")
    if definition.configures:
        raise Unimplemented(f"{name} sets a state of the machine; there is no value to explain")
    arrays, immediates = _sorted(definition, operands, named)
    arrays = [held(f"{name}: an operand", array) for array in arrays]
    pairs = zip(definition.operands, arrays, strict=True)
    shapes = [plain(f"{name}: operand {o.name}", array).shape for o, array in pairs]
    if any(len(shape) > 1 + definition.tile for shape in shapes):
        raise InvalidArgument(f"{name}: one vector for each operand is explained, not shapes {shapes}")
    one = None if _is_whole(definition, shapes) else definition.element()
    definition = one or definition
    filled = _filled(definition, arrays)
    values = definition.values(filled, immediates)
    if (most := max((v.array.size for v in values), default=0)) > MOST_LANES:
        raise InvalidArgument(f"{name}: at most {MOST_LANES} lanes are explained, not {most}")
    inputs = [operand(v.array.reshape(-1), v.dtype, o.name) for v, o in zip(values, definition.operands, strict=True)]
    lanes = definition.lanes_of(inputs, lanes, 1)
    with unwarned():
        result = definition.apply(*inputs, lanes=lanes, **immediates)
    assert isinstance(result, TracedValue)
    exact = Exact()
    exact.follow(history([(result, lane) for lane in range(result.lanes)]))
    given = {o.name: np.asarray(array).size for o, array in zip(definition.operands, arrays, strict=True)}
    wording = Wording(lambda *part: _named(given, *part), lambda value, i: True)
    typed = [row for lane in range(result.lanes) for row in _lane(definition, wording, result, lane, exact)]
    rows, held_lanes = [row for row, _ in typed], tuple(lane for _, lane in typed)
    left = next((row for row in rows if row.note), None)
    numbers = np.array([real(exact.of(result, lane)) for lane in range(result.lanes)], object)
    whole = "rows of tiles" if definition.tile else "registers" if one is None else "rows and columns"
    note = [f"{name} works on whole {whole}: zeros stand behind what was given"] if filled is not arrays else []
    if one and left and numbers[0] is not None:
        note.append(f"exact arithmetic gives {numbers[0]:.17g}")
    chosen = ", ".join(f"{key}={value}" for key, value in immediates.items())
    about = (*definition.doc.split("\n\n>>>")[0].split("\n"), definition.manual, *([chosen] if chosen else []))
    title = definition.signature
    read = tuple((o.name, v.dtype, v.inner.array) for o, v in zip(definition.operands, inputs, strict=True))
    return Explanation(title, about, result.inner.array, numbers, tuple(rows), left, tuple(note), 400, held_lanes, read)


def _is_whole(definition: Instruction, shapes: Sequence[tuple[int, ...]]) -> bool:
    """Whether operands are as many numbers as its registers hold."""
    lanes = definition.lanes(max(definition.caps))
    return [shape[-1] for shape in shapes] == [definition.operand_lanes(o, lanes) for o in definition.operands]


def _lane(
    definition: Instruction, wording: Wording, result: TracedValue, lane: int, exact: Exact
) -> Sequence[tuple[ExplainedStep, tuple[str, Any]]]:
    """The steps of one lane of the result, each with its value's type and bits."""
    wide = definition.row_lanes(result.dtype)
    at = f"lane {lane}" + (f" (row {lane // wide}, column {lane % wide})" if definition.tile else "")
    rows = []
    for value, i in history([(result, lane)]):
        if value.op not in LEAVES and tells(value, i):
            end = copied(result, lane) == (value, i)
            if not end and wording.says_nothing(value, i):
                continue
            meant = value.view(result.dtype) if end else value  # the last step may be one on the result's bits
            text, number = wording.equation(value, i, shown(meant, i)), meant.inner.array[i].item()
            row = ExplainedStep(at, definition.name, text, number, real(exact.of(meant, i)), loss(value, i))
            rows.append((row, (meant.dtype, meant.inner.array[i])))
    if not rows:
        number, text = result.inner.array[lane], f"{_taken(result, lane)} = {shown(result, lane)}"
        row = ExplainedStep(at, definition.name, text, number.item(), real(exact.of(result, lane)))
        rows.append((row, (result.dtype, number)))
    return rows


def _named(given: Mapping[str, int], value: TracedValue, lane: int, dtype: str, bit: int) -> str:
    """E.g. "a[3]"; "a.bf16[7]" of a part of it; padding behind the numbers that were given."""
    if value.op != "operand":
        return ""
    if lane >= given.get(value.text, value.lanes):
        return PADDING
    if dtype == value.dtype:
        return f"{value.text}[{lane}]"
    return f"{value.text}.{dtype}[{(lane * value.format.bits + bit) // fmt(dtype).bits}]"


def _taken(value: TracedValue, lane: int) -> str:
    """Where a lane that is only moved comes from: "a[3]", and by which index where data said so."""
    by = ""
    while value.op not in LEAVES:
        if value.op == "view":
            break
        if value.op not in MOVES:  # a choice, or widening
            value, lane = value.sources(lane)[0]
        else:
            assert value.lanes_of is not None
            by = f" (by index {shown(value.inputs[1], lane)})" if value.op == "lookup" else by
            number, lane = value.lanes_of[lane]
            value = value.inputs[number]
    found = source_of(value, lane)
    return f"{found[0].text}[{found[1]}]{by}" if found and found[0].op == "operand" else "constant"


def _sorted(
    definition: Instruction, operands: Sequence[Any], named: Mapping[str, Any]
) -> tuple[list[Any], dict[str, int | str]]:
    """Operands in order; immediates and choices."""
    names = [o.name for o in definition.operands]
    given = dict(zip(names, operands, strict=False))
    unknown = [key for key in named if key not in (*names, *definition.immediates, *definition.choices)]
    twice = [key for key in named if key in given]
    missing = [name for name in (*names, *definition.immediates) if name not in given and name not in named]
    if unknown or twice or missing or len(operands) > len(names):
        wrong = f"without {', '.join(missing)}" if missing else f"with {', '.join(unknown + twice) or len(operands)}"
        taken = (*names, *definition.immediates, *definition.choices, "lanes")
        question = did_you_mean(unknown[0], taken) if unknown else ""
        said = f"{definition.name} {wrong}; it takes {definition.signature.split(' <- ')[1]}"
        raise InvalidArgument(f"{said}: {question}" if question else said)
    given |= {key: value for key, value in named.items() if key in names}
    immediates: dict[str, int | str] = {
        name: _immediate(definition, name, named[name]) for name in definition.immediates
    }
    immediates |= {name: named[name] for name in definition.choices if name in named}
    return [given[name] for name in names], immediates


def _immediate(definition: Instruction, name: str, value: Any) -> int:
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if whole and 0 <= value <= definition.greatest_immediate:
        return int(value)
    raise InvalidArgument(f"{definition.name}: immediate {name} is {value!r}; {definition.immediate_range}")


def _filled(definition: Instruction, arrays: list[Any]) -> list[Any]:
    """The arrays themselves, or where a whole register is needed and none of them is longer, with zeros behind."""
    if definition.tile:
        return _tiles(definition, arrays)
    if not definition.whole:
        return arrays
    widest = definition.lanes(max(definition.caps))
    sizes = [np.size(array) for array in arrays]
    for o, size in zip(definition.operands, sizes, strict=True):
        if size > (most := definition.operand_lanes(o, widest)):
            raise InvalidArgument(f"{definition.name}: operand {o.name} has {counted(size, 'lane')}, at most {most}")
    for width in sorted(definition.caps):
        lanes = definition.lanes(width)
        wanted = [definition.operand_lanes(o, lanes) for o in definition.operands]
        met = [np.atleast_1d(np.asarray(array)).shape[-1] for array in arrays]
        if met == wanted:
            return arrays
        if all(m <= w for m, w in zip(met, wanted, strict=True)):
            return [_padded(array, count) for array, count in zip(arrays, wanted, strict=True)]
    return arrays


def _tiles(definition: Instruction, arrays: list[Any]) -> list[Any]:
    """Flat lists as tiles: as many rows as the longest of those that go through row by row needs."""
    if all(np.asarray(array).ndim > 1 for array in arrays):
        return arrays
    pairs = list(zip(definition.operands, arrays, strict=True))
    rows = max(-(-np.asarray(a).size // definition.row_lanes(o.dtype)) for o, a in pairs if o.per)
    tiles = []
    for o, array in pairs:
        wide = definition.row_lanes(o.dtype)
        count = o.count // wide if not o.per else rows
        flat = np.asarray(array).reshape(-1)
        if flat.size > count * wide:
            raise InvalidArgument(
                f"{definition.name}: operand {o.name} has {counted(flat.size, 'element')}, at most {count * wide}"
            )
        if not isinstance(array, np.ndarray):
            flat = flat.astype(np.float32).astype(fmt(o.dtype).dtype) if fmt(o.dtype).is_float else _plain(o, flat)
        tiles.append(_padded(flat, count * wide).reshape(count, wide))
    return tiles


def _plain(o: Operand, flat: Array) -> Array:
    form = fmt(o.dtype)
    if flat.dtype.kind not in "iu" or flat.min() < form.low or flat.max() > form.high:
        raise InvalidArgument(f"operand {o.name} is {o.dtype} ({form.low} .. {form.high}), met {flat.tolist()}")
    return flat.astype(form.dtype)


def _padded(array: Any, count: int) -> Any:
    if isinstance(array, np.ndarray):
        out: Array = np.zeros(count, array.dtype)
        out[: array.size] = array.reshape(-1)
        return out
    return [*np.atleast_1d(np.asarray(array)).tolist(), *[0] * (count - np.atleast_1d(np.asarray(array)).size)]
