"""Explanations: how one lane of an instruction, or one output element of a kernel, came about, step by step.

Both are made from the graph that the traced reading leaves behind (`isa_models.readings.traced`); nothing is computed
again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

from isa_models.errors import counted
from isa_models.readings.traced import LEAVES, Lane, Number, TracedValue, copied, ideal, inside
from isa_models.records.alike import Alike
from isa_models.records.display import InNotebooks
from simdnn.late import frames, pd

_SIGNS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "and": "&",
    "or": "|",
    "xor": "^",
    "shl": "<<",
    "shr": ">>",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
}
_WIDEST = 400  # characters of a step that the text shows
PADDING = "padding"  # the label of an element that stands where the user has nothing
_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


@dataclass(frozen=True)
class ExplainedStep:
    """One line of an explanation. `exact`: the value had no step until here rounded, wrapped or saturated."""

    at: str  # the lane, or the turn of the loops around: "k=3"
    instruction: str
    text: str  # what is computed, with names and numbers
    value: float | int
    exact: float | int | None
    note: str = ""  # saturates | wraps | rounds | overflows: this step itself lost something


@dataclass(frozen=True, repr=False, eq=False)
class Explanation(Alike, InNotebooks):
    """An outcome, and the steps on the way; `str()` is the text, `steps` the frame."""

    title: str
    about: tuple[str, ...]
    value: Any  # the element, or the array of an instruction's lanes
    exact: Any
    rows: tuple[ExplainedStep, ...]
    left_exact: ExplainedStep | None = None  # the first step whose value is not the exact one
    remarks: tuple[str, ...] = ()
    shown: int = 40  # steps that `str()` prints in full
    # of an instruction alone: each row's type and lane, with the bits that NumPy holds (`Step.value` has no NaN's
    # payload), and the operands as they were read (name, type, lanes)
    lanes: tuple[tuple[str, Any], ...] = ()
    operands: tuple[tuple[str, str, Any], ...] = ()

    @cached_property
    def steps(self) -> pd.DataFrame:
        """Frame: at, instruction, text, value, exact, note."""
        columns = {f.name: [getattr(row, f.name) for row in self.rows] for f in fields(ExplainedStep)}
        return frames.shown(pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()}))

    def to_json(self) -> str:
        """`record` as text."""
        return json.dumps(self.record(), allow_nan=False)

    def record(self) -> dict[str, Any]:
        """Title, value, exact value, steps in JSON's types; infinities and NaN are None."""
        record = {
            "title": self.title,
            "about": self.about,
            "value": self.value,
            "exact": self.exact,
            "left_exact": self.left_exact and asdict(self.left_exact),
            "remarks": self.remarks,
            "steps": [asdict(row) for row in self.rows],
        }
        found: dict[str, Any] = plain(record)
        return found

    def __str__(self) -> str:
        lines = [self.title, *self.about, ""]
        wide = max((len(row.instruction) for row in self.rows), default=0)
        lines += [text if row is None else _line(row, wide) for row, text in self._printed()]
        lines += ["", *self.remarks] if self.remarks else []
        return "\n".join(lines).rstrip()

    def __repr__(self) -> str:
        return f"Explanation({self.title}: {counted(len(self.rows), 'step')}; print() shows them, .steps is a frame)"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """The steps, where IPython shows what a line gives."""
        printer.text(str(self))

    def _printed(self) -> Iterable[tuple[ExplainedStep | None, str]]:
        """The rows, of many only the first, the last and those that lost something; a blank line where `at` changes
        among lanes."""
        rows, most = self.rows, self.shown
        kept = set(range(len(rows)))
        if len(rows) > most:
            lossy = [i for i, row in enumerate(rows) if row.note and row.note != "rounds"][: most // 2]
            kept = {*range(most // 4), *range(len(rows) - most // 4, len(rows)), *lossy}
        last, alike = -1, _alike(rows)
        for i in sorted(kept):
            if i in alike:
                last = i
                if count := alike[i]:
                    yield None, f"… {count} lanes alike"
                continue
            if i > last + 1:
                yield None, f"  … {counted(i - last - 1, 'step')}"
            if rows[i].at.startswith("lane") and (last < 0 or rows[last].at != rows[i].at):
                yield None, rows[i].at
            yield rows[i], ""
            last = i


def _alike(rows: Sequence[ExplainedStep]) -> dict[int, int]:
    """Rows of lanes that say what the lane before says, in one row, three lanes and more; the first has their count."""
    alone = Counter(row.at for row in rows if row.at.startswith("lane"))
    found: dict[int, int] = {}
    texts = [(row.text, row.note) if alone[row.at] == 1 else None for row in rows]
    first = 0
    for text, same in groupby(texts):
        count = len(list(same)) - 1
        if text is not None and count >= 3:
            found |= dict.fromkeys(range(first + 1, first + 1 + count), 0) | {first + 1: count}
        first += count + 1
    return found


def _line(row: ExplainedStep, wide: int) -> str:
    note = f"   <- {row.note}" if row.note else ""
    if len(row.text) > _WIDEST:
        row = replace(row, text=f"{row.text[: _WIDEST // 2]} … {row.text[-_WIDEST // 4 :]}")
    if row.at.startswith("lane"):
        return f"  {row.text}{note}"
    return f"  {row.instruction.ljust(wide)}  {row.at + '  ' if row.at else ''}{row.text}{note}"


# -- what steps say ----------------------------------------------------------------------------------------------------
def tells(value: TracedValue, lane: int) -> bool:
    """Whether a step says anything: widening does not, nor a choice, but by one plain comparison."""
    if value.op == "where":
        return _comparison(value) is not None
    if value.op not in ("to", "step"):
        return True
    (source, at), *more = value.sources(lane)
    return bool(more) or source.format.is_float != value.format.is_float or source.number(at) != value.number(lane)


def _traced_back(value: TracedValue, lane: int) -> Lane:
    """Where a lane comes from, through moves and steps that say nothing; as far as it is whole."""
    while found := copied(value, lane):
        value, lane = found
        if value.op in LEAVES or tells(value, lane):
            break
        value, lane = value.sources(lane)[0]
    return value, lane


def source_of(value: TracedValue, lane: int) -> Lane | None:
    """The value that a lane copies, through moves and steps that say nothing; None where it is joined or cut out."""
    return copied(*_traced_back(value, lane))


def _comparison(value: TracedValue) -> TracedValue | None:
    """The comparison by which a choice between its own two numbers is made ("the greater"); else None."""
    yes, no, test = value.inputs
    return test if test.op in _COMPARISONS and set(test.inputs) == {yes, no} else None


def loss(value: TracedValue, lane: int) -> str:
    """How the step itself differs from exact arithmetic on what it was given; empty where it does not."""
    own = value.number(lane)
    given = [source.number(at) for source, at in value.sources(lane)]
    if own is None:
        return "" if None in given else "overflows"
    if ideal(value.op, given, own) == own:
        return ""
    if value.op == "saturate":
        return "saturates"
    return "rounds" if value.format.is_float or value.op == "round" else "wraps"


Addend = Sequence[Lane]  # the factors of a product, or one lane
Words = tuple[str, str, int]  # with names, with numbers, and how tightly it binds (3: needs no brackets)


@dataclass(frozen=True)
class Wording:
    """How lanes are put into words: `label` names a lane that comes from outside, or the part of it that a type has at
    a bit (empty: it has no name), `given` tells which lanes stand for themselves and are not taken apart further.

    Sums are written in the order in which they are added up. Products with padding are left out.
    """

    label: Callable[[TracedValue, int, str, int], str]
    given: Callable[[TracedValue, int], bool]

    def equation(self, value: TracedValue, lane: int, result: str) -> str:
        """E.g. "a[0] * b[0] = 255 * 127 = 32385"."""
        if value.op != "saturate":
            named, numbers, _ = self._built(value, lane)
            return " = ".join(dict.fromkeys([named, numbers, result]))
        (source,) = value.sources(lane)
        before = shown(*source)
        named, numbers, _ = self._inner(*source)
        clipped = before if before == result else f"{before} -> {result}"
        text = " = ".join(dict.fromkeys([named, numbers, clipped] if numbers != before else [named, clipped]))
        return text if numbers != before else f"saturate to {value.text}: " + text.removeprefix(f"{before} = ")

    def says_nothing(self, value: TracedValue, lane: int) -> bool:
        """Whether a step multiplies by padding, or adds nothing but such products to what stands for itself."""
        if value.op == "mul":
            return self._empty(value.sources(lane))
        first, *more = _addends(value, lane) or [[(value, lane)]]
        if not more or not all(self._empty(term) for term in more):
            return False
        found = source_of(*first[0])
        taken_apart = found and found[0].op not in LEAVES and not self.given(*found)
        return self.says_nothing(*found) if found and taken_apart else True

    def _inner(self, value: TracedValue, lane: int) -> Words:
        end, at = _traced_back(value, lane)
        same = end.format.is_float and end.number(at) == value.number(lane)  # widened on the way
        number = shown(end, at) if same else shown(value, lane)
        found = copied(end, at)
        if found is None or found[0].op in LEAVES:
            return self._part(value, lane) or number, number, 3
        return (number, number, 3) if self.given(*found) else self._built(*found)

    def _part(self, value: TracedValue, lane: int) -> str:
        """The name of some bits of a lane that comes from outside."""
        cut, at = _traced_back(value, lane)
        found = inside(cut, at)
        return self.label(found[0], found[1], cut.dtype, found[2]) if found and found[0].op in LEAVES else ""

    def _built(self, node: TracedValue, at: int) -> Words:
        sources = node.sources(at)
        if not tells(node, at):
            return self._inner(*sources[0])
        if addends := _addends(node, at):
            return self._sum(node, addends)
        if node.op == "where":
            test = _comparison(node)
            assert test is not None
            greater = (test.op in ("gt", "ge")) == (test.inputs[0] is node.inputs[0])
            node_form, sources = ("max" if greater else "min") + "({}, {})", [(v, at) for v in test.inputs]
        else:
            node_form = _form(node.op, node.text, len(sources))
        parts = [self._inner(*source) for source in sources]
        rank = 2 if node.op in ("mul", "div") else 1
        closed = node_form.endswith(")")
        names, numbers = ([p[k] if closed or p[2] >= rank else f"({p[k]})" for p in parts] for k in (0, 1))
        return node_form.format(*names), node_form.format(*numbers), 3 if closed else rank

    def _sum(self, node: TracedValue, addends: Sequence[Addend]) -> Words:
        terms = [self._product(term) for term in addends if not self._empty(term)] or [("0", "0", 3)]
        named, numbers = " + ".join(names for names, _, _ in terms), " + ".join(words for _, words, _ in terms)
        if node.op == "step":
            return f"{node.text} ({named})", f"{node.text} ({numbers})", 3
        return named, numbers, terms[0][2] if len(terms) == 1 else 1

    def _product(self, factors: Addend) -> Words:
        parts = [self._inner(*factor) for factor in factors]
        if len(parts) == 1:
            return parts[0]
        closed = [(names, words) if rank >= 2 else (f"({names})", f"({words})") for names, words, rank in parts]
        return " * ".join(names for names, _ in closed), " * ".join(words for _, words in closed), 2

    def _empty(self, factors: Addend) -> bool:
        """Whether a product has padding among its factors."""
        for value, lane in factors:
            found = source_of(value, lane)
            if found and found[0].op == "mul":
                if self._empty(found[0].sources(found[1])):
                    return True
            elif self._part(value, lane) == PADDING:
                return True
        return False


def multiplies_zero(value: TracedValue, lane: int) -> bool:
    """Whether a step adds a product with a zero that the program itself wrote, as it does around an image."""
    if value.op != "fma":
        return False
    found = (source_of(*factor) for factor in value.sources(lane)[:2])
    return any(one is not None and (one[0].op, one[0].text) == ("literal", "0") for one in found)


def _addends(node: TracedValue, at: int) -> list[Addend]:
    """The terms that a sum adds up, in its order; empty for what is no sum."""
    sources = node.sources(at)
    if node.op == "fma":
        return [[sources[2]], sources[:2]]
    if node.op == "add" or node.op == "step" and len(sources) > 1:
        return [[source] for source in sources]
    return []


def _form(op: str, text: str, count: int) -> str:
    blanks = ", ".join(["{}"] * count)
    if op in _SIGNS:
        return f"{{}} {_SIGNS[op]} {{}}"
    verb = {"to": f"to {text} ", "saturate": f"saturate to {text} ", "step": f"{text} ", "round": "round "}
    return f"{verb.get(op, op)}({blanks})"


def shown(value: TracedValue, lane: int, dtype: str = "") -> str:
    """A lane's number for people, read as another type where one is named."""
    value = value if dtype in ("", value.dtype) else value.view(dtype)
    number = value.inner.array[lane]
    return text_of(float(number), value.dtype) if value.format.is_float else str(int(number))


def text_of(number: float, dtype: str) -> str:
    """The shortest decimal that is this number in its type.

    >>> text_of(0.10000000149011612, "f32")
    '0.1'
    """
    if not np.isfinite(number):
        return str(number)
    precision = np.float64 if dtype == "f64" else np.float32
    return str(precision(number)).removesuffix(".0")


def real(number: Number) -> float | int | None:
    """An exact number in JSON's types."""
    if isinstance(number, Fraction):
        try:
            return float(number)
        except OverflowError:
            return None
    return number


def plain(value: Any) -> Any:
    """A value, and all within it, in JSON's types; NaN and infinities are None."""
    if isinstance(value, np.ndarray):
        value = (value.astype(np.float32) if value.dtype.kind == "V" else value).tolist()
    elif isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
