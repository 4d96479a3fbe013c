"""Element-by-element formulas as data: a function over `Element`s, traced once, gives the steps of a kernel's body.

    >>> trace(lambda x: (x * 2.0).maximum(1.0), ["f32"]).steps[-1].op
    'max'

A step is an instruction or a constant; `simdnn.kernels.common.elementwise` puts loads, stores and loops around them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from isa_models.formats import fmt

#: step -> (instruction, type of its operands, type of its result); `fma`, `permute2`, `input`, `constant`, `table` are
#: no rows
INSTRUCTIONS = {
    "add": ("vaddps", "f32", "f32"),
    "sub": ("vsubps", "f32", "f32"),
    "mul": ("vmulps", "f32", "f32"),
    "div": ("vdivps", "f32", "f32"),
    "min": ("vminps", "f32", "f32"),
    "max": ("vmaxps", "f32", "f32"),
    "sqrt": ("vsqrtps", "f32", "f32"),
    "and": ("vpand", "u32", "u32"),
    "or": ("vpor", "u32", "u32"),
    "xor": ("vpxor", "u32", "u32"),
    "nearest": ("vcvtps2dq", "f32", "s32"),
    "float": ("vcvtdq2ps", "s32", "f32"),
    "iadd": ("vpaddd", "s32", "s32"),
    "isub": ("vpsubd", "s32", "s32"),
    "imax": ("vpmaxsd", "s32", "s32"),
    "imin": ("vpminsd", "s32", "s32"),
    "shl": ("vpslld", "u32", "u32"),
    "shr": ("vpsrld", "u32", "u32"),
    "sar": ("vpsrad", "s32", "s32"),
    "permute": ("vpermps", "f32", "f32"),
}
_COMMUTE = ("add", "mul", "and", "or", "xor", "iadd")


class FormulaStep(NamedTuple):
    """One value: `op` over earlier values (`args`); `number` is a constant, an input's position or an immediate.

    A "table" is a constant with a number for each lane: `entries`.
    """

    op: str
    args: tuple[int, ...] = ()
    number: float = 0.0
    dtype: str = "f32"
    entries: tuple[float, ...] = ()


class Expression(NamedTuple):
    """Steps in order, the last one being the result; `inputs` are their types in memory."""

    steps: tuple[FormulaStep, ...]
    inputs: tuple[str, ...]

    @property
    def is_float(self) -> bool:
        return self.steps[-1].dtype != "s32"


class _Trace:
    def __init__(self) -> None:
        self.steps: dict[FormulaStep, int] = {}

    def add(self, step: FormulaStep) -> Element:
        return Element(self, self.steps.setdefault(step, len(self.steps)), step.dtype)


class Element:
    """A value of the formula: f32, or s32 where it was converted. Numbers among the operands are constants."""

    def __init__(self, trace: _Trace, index: int, dtype: str) -> None:
        self.trace, self.index, self.dtype = trace, index, dtype

    def _lift(self, other: Element | float) -> Element:
        if isinstance(other, Element):
            return other
        return self.trace.add(FormulaStep("constant", (), other, "s32" if self.dtype == "s32" else "f32"))

    def same(self, number: float) -> Element:
        """A number in every lane, of this value's type."""
        return self._lift(number)

    def _apply(self, op: str, *others: Element | float, number: float = 0.0) -> Element:
        args = [self, *(self._lift(o) for o in others)]
        if op in _COMMUTE and self._constant(args[0]):
            args.reverse()
        return self.trace.add(FormulaStep(op, tuple(a.index for a in args), number, INSTRUCTIONS[op][2]))

    def _constant(self, value: Element) -> bool:
        return list(self.trace.steps)[value.index].op == "constant"

    def __add__(self, other: Element | float) -> Element:
        return self._apply("iadd" if self.dtype == "s32" else "add", other)

    def __sub__(self, other: Element | float) -> Element:
        return self._apply("isub" if self.dtype == "s32" else "sub", other)

    def __rsub__(self, other: float) -> Element:
        return self._lift(other) - self

    def __mul__(self, other: Element | float) -> Element:
        return self._apply("mul", other)

    def __truediv__(self, other: Element | float) -> Element:
        return self._apply("div", other)

    def __rtruediv__(self, other: float) -> Element:
        return self._lift(other) / self

    __radd__ = __add__
    __rmul__ = __mul__

    def fma(self, factor: Element | float, addend: Element | float) -> Element:
        """self * factor + addend, rounded once."""
        args = [self, self._lift(factor), self._lift(addend)]
        if self._constant(args[0]):
            args[:2] = args[1], args[0]
        return self.trace.add(FormulaStep("fma", tuple(a.index for a in args)))

    def minimum(self, other: Element | float) -> Element:
        """The lesser; a NaN of this value survives, one of `other` does not."""
        return self._lift(other)._apply("min", self)

    def bounded_by(self, greatest: float) -> Element:
        """The lesser of this value and a number, which a NaN becomes, too."""
        return self._apply("min", greatest)

    def maximum(self, other: Element | float) -> Element:
        """The greater; a NaN of this value survives, one of `other` does not."""
        return self._lift(other)._apply("max", self)

    def sqrt(self) -> Element:
        return self._apply("sqrt")

    def bits(self, op: str, other: Element | int) -> Element:
        """`and`, `or`, `xor` with another value's bits or a pattern; the result is read as this value's type."""
        if isinstance(other, int):
            other = self.trace.add(FormulaStep("constant", (), other, "u32"))
        return self._apply(op, other).read_as(self.dtype)

    def shift(self, op: str, count: int) -> Element:
        """`shl`, `shr` or `sar` by a fixed count; the result is read as s32."""
        return self._apply(op, number=count).read_as("s32")

    def read_as(self, dtype: str) -> Element:
        """An element of these bits, seen as f32 or s32."""
        return Element(self.trace, self.index, dtype)

    def abs(self) -> Element:
        return self.bits("and", 0x7FFFFFFF)

    def __neg__(self) -> Element:
        return self._lift(0) - self if self.dtype == "s32" else self.bits("xor", 0x80000000)

    def permuted(self, entries: tuple[float, ...]) -> Element:
        """For each lane of an s32 value, the entry of a table that its low bits name; the table fills a register."""
        table = self.trace.add(FormulaStep("table", entries=entries))
        return self.trace.add(FormulaStep("permute", (self.index, table.index)))

    def permuted_twice(self, entries: tuple[float, ...]) -> Element:
        """For each lane of an s32 value, the entry that its low bits name of a table that fills two registers, on units
        whose instruction takes two (AVX-512's).
        """
        half = len(entries) // 2
        low, high = (self.trace.add(FormulaStep("table", entries=part)) for part in (entries[:half], entries[half:]))
        return self.trace.add(FormulaStep("permute2", (low.index, self.index, high.index)))

    def nearest(self) -> Element:
        """The nearest integer as s32, ties to even; out of range and NaN give -2**31."""
        return self._apply("nearest")

    def to_float(self) -> Element:
        """An s32 value as f32."""
        return self._apply("float")

    def at_least(self, other: Element | int) -> Element:
        """The greater of an s32 value and a number, or of two values."""
        return self._apply("imax", other)

    def at_most(self, other: Element | int) -> Element:
        """The lesser of an s32 value and a number, or of two values; not on GPUs."""
        return self._apply("imin", other)


def trace(function: Callable[..., Element], inputs: Sequence[str]) -> Expression:
    """The steps of `function`, called with one `Element` for each input; `inputs` are their types in memory.

    Integer inputs arrive as s32, narrow floats as f32.
    """
    found = _Trace()
    kinds = ["f32" if fmt(dtype).is_float else "s32" for dtype in inputs]
    elements = [found.add(FormulaStep("input", (), i, kind)) for i, kind in enumerate(kinds)]
    result = function(*elements)
    order = _needed(list(found.steps), result.index)
    place = {old: new for new, old in enumerate(order)}
    all_steps = list(found.steps)
    steps = [all_steps[i]._replace(args=tuple(place[a] for a in all_steps[i].args)) for i in order]
    steps[-1] = steps[-1]._replace(dtype=result.dtype)
    return Expression(tuple(steps), tuple(inputs))


def _needed(steps: Sequence[FormulaStep], last: int) -> list[int]:
    """The steps that step `last` depends on, in order; itself the last."""
    wanted, stack = {last}, [last]
    while stack:
        fresh = [a for a in steps[stack.pop()].args if a not in wanted]
        wanted.update(fresh)
        stack += fresh
    return sorted(wanted)
