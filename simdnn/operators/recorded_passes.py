"""Passes of a primitive's program, recorded as they run: what each reads and makes, and which share a kernel."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.kernels.common.expression import FormulaStep, trace
from simdnn.kernels.common.pool import PoolProblem
from simdnn.kernels.common.vocabulary import Vocabulary
from simdnn.kernels.x86.code import Unit
from simdnn.kernels.x86.vocabulary import X86Vocabulary
from simdnn.networks.between_products import Formula, Values
from simdnn.networks.calls import Call, words_for
from simdnn.networks.kernels import Kernels
from simdnn.networks.types import label

_FEW = 8  # steps of a formula that later passes compute again; what takes more is kept
_CONVERSION = {"input", "constant", "float", "mul"}  # steps of a value that is read: as f32, times a scale


@dataclass(eq=False)
class RecordedPass:
    """A pass: a formula over operands, which are arrays in memory or what other steps make; or, of a `kind`, one along
    `axes`.
    """

    call: Call
    made: Array
    operands: tuple[Array | RecordedPass, ...]
    shapes: tuple[tuple[int, ...], ...]  # of the operands as they are read
    formula: Formula | None = None
    kind: str = ""
    axes: tuple[int, ...] = ()
    divisor: int = 1
    order: str = ""
    pooling: PoolProblem | None = None  # of windows, whose padded source the operand is without padding
    counts: Array | None = None  # what their sums are divided by
    readers: list[RecordedPass] = field(default_factory=list)

    @functools.cached_property
    def formula_steps(self) -> tuple[FormulaStep, ...]:
        assert self.formula is not None
        types = [label(one.made.dtype if isinstance(one, RecordedPass) else one.dtype) for one in self.operands]
        return trace(self.formula, types).steps

    @functools.cached_property
    def is_long(self) -> bool:
        """Whether what it makes is better kept than computed again."""
        return len(self.formula_steps) > _FEW

    @functools.cached_property
    def is_light(self) -> bool:
        """Whether it is a few steps, element by element, from arrays in memory, which all its readers do themselves:
        over as many elements, or where it is but a conversion.
        """
        if self.kind or self.dtype not in ("f32", "s32") or self.is_long or not self.readers:
            return False
        alike = all(shape == self.shape or prod(shape) == 1 for shape in self.shapes)
        converts = _CONVERSION.issuperset(step.op for step in self.formula_steps)
        as_many = all(one.size == self.size for one in self.readers)
        inner = all(one.is_light for one in self.operands if isinstance(one, RecordedPass))
        return alike and inner and (as_many or converts)

    @property
    def size(self) -> int:
        """The elements that it goes over."""
        return prod(self.shapes[0]) if self.kind else self.made.size

    @functools.cached_property
    def line(self) -> int:
        """The size of the lines that are reduced: of the last dimensions; 0 where others are."""
        shape = self.shapes[0]
        along = {axis for axis in self.axes if shape[axis] > 1}
        kept = [axis for axis, size in enumerate(shape) if size > 1 and axis not in along]
        if not along or kept and min(along) < max(kept):
            return 0
        return prod(shape[axis] for axis in along)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.made.shape

    @property
    def dtype(self) -> str:
        return label(self.made.dtype)


@dataclass
class RecordingKernels(Kernels):
    """Kernels that record their steps: `steps` by where in memory they left what they made. `lanes` of f32 in their
    registers (0: of the widest).
    """

    steps: dict[int, RecordedPass] = field(default_factory=dict)
    lanes: int = 0

    @functools.cached_property
    def words(self) -> Vocabulary:
        """The vocabulary of everything but products."""
        widest = words_for(self.target.machine, self.target.caps)
        return X86Vocabulary(Unit(widest.isa, 32 * self.lanes)) if self.lanes else widest

    @property
    def goes_on(self) -> bool:
        """Whether a pass of the primitive came before, in whichever node of its graph."""
        return bool(self.steps)

    def map(
        self,
        formula: Formula,
        *operands: Array,
        dst: np.dtype[Any] | None = None,
        name: str = "map",
        values: Values | None = None,
    ) -> Array:
        found = super().map(formula, *operands, dst=dst, name=name, values=values)
        return self.recorded(found, operands, formula=formula)

    def reduce(
        self,
        kind: str,
        x: Array,
        axes: Sequence[int],
        divisor: int = 1,
        dst: np.dtype[Any] | None = None,
        order: str = "turns",
        values: Values | None = None,
    ) -> Array:
        found = super().reduce(kind, x, axes, divisor, dst, order, values)
        along = tuple(a % x.ndim for a in axes) if x.ndim else ()
        return self.recorded(found, (x,), kind=kind, axes=along, divisor=divisor, order=order)

    def pool(
        self,
        problem: PoolProblem,
        padded: Array,
        counts: Array | None,
        values: Values | None = None,
        source: Array | None = None,
    ) -> Array:
        found = super().pool(problem, padded, counts, values, source)
        return self.recorded(
            found, (padded if source is None else source,), kind="pool", pooling=problem, counts=counts
        )

    def recorded(self, made: Array, operands: Sequence[Array], **what: Any) -> Array:
        """`made`, by the call that was recorded last."""
        if made.size:
            read = tuple(self.maker(a) for a in operands)
            step = RecordedPass(self.calls[-1], made, read, tuple(a.shape for a in operands), **what)
            for one in dict.fromkeys(s for s in read if isinstance(s, RecordedPass)):
                one.readers.append(step)
            self.steps[place_of(made)] = step
        return made

    def maker(self, operand: Array) -> Array | RecordedPass:
        """The step that made an array, which is seen whole and in its order; else the array."""
        step = self.steps.get(place_of(operand))
        if step is None or step.made.size != operand.size or operand.dtype != step.made.dtype:
            return operand
        return step if operand.flags.c_contiguous or not any(operand.strides) else operand


def place_of(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


# -- which steps go together ------------------------------------------------------------------------------------------
@dataclass(eq=False)
class PassGroup:
    """Steps of one kernel over `size` elements, in lines of `line` where sums or extremes are found along them (None:
    nothing can be added).
    """

    size: int
    line: int | None = 0
    steps: list[RecordedPass] = field(default_factory=list)
    before: set[PassGroup] = field(default_factory=set)  # whose values it reads

    def takes(self, step: RecordedPass) -> bool:
        """Whether a step that reads what these make may be one of them."""
        makers = [one for one in step.operands if isinstance(one, RecordedPass) and one in self.steps]
        if self.line is None or any(one.dtype not in ("f32", "s32") for one in makers):
            return False  # or it is rounded on its way
        if step.kind:
            return step.line > 1 and step.size == self.size and self.line in (0, step.line)
        return step.size == self.size or self.line > 1 and step.size * self.line == self.size

    @property
    def left(self) -> list[RecordedPass]:
        """The steps whose values are read by others than these."""
        return [one for one in self.steps if not one.readers or not set(one.readers) <= set(self.steps)]

    def is_wide(self, step: RecordedPass) -> bool:
        """Whether a step makes a value at each place of a line."""
        return not step.kind and step.size == self.size


def grouped(steps: Sequence[RecordedPass], in_lines: bool) -> list[PassGroup]:
    """Steps in their order, each with those whose values it reads where it may; `in_lines`: along lines, too. Light
    ones that somebody reads are in none: who reads them works them out.
    """
    groups: list[PassGroup] = []
    at: dict[RecordedPass, PassGroup] = {}
    for step in steps:
        if step.is_light:
            continue
        read = {at[one] for one in step.operands if isinstance(one, RecordedPass) and one in at}
        home = next((one for one in read if one.takes(step) and not any(one in other.before for other in read)), None)
        if home is None or step.kind and not in_lines:
            home = PassGroup(step.size)
            groups.append(home)
        if step.kind:
            home.line = step.line if in_lines and step.line > 1 else None
        at[step] = home
        home.steps.append(step)
        home.before |= {one for other in read - {home} for one in (other, *other.before)}
    return groups
