"""Passes of a primitive as libraries run them: one kernel over the data, whose steps hand their values on in registers.

A primitive's program is a graph whose nodes are passes over arrays. Here each call of a kernel is noted together with
what it reads. Passes over the same elements become one elementwise kernel; those along lines, with the sums and
greatest values of a line between them, become one of `simdnn.kernels.x86.line_passes`. Values are computed pass by
pass, with the same bits: f32 is what registers hold, too.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

from isa_models import Machine, Unimplemented
from isa_models.errors import OutOfRegisters
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.elementwise import MapProblem, collapse, elementwise
from simdnn.kernels.common.expression import Element, trace
from simdnn.kernels.common.pool import PoolProblem, pooling
from simdnn.kernels.common.vocabulary import Spread, Vocabulary, whole
from simdnn.kernels.x86.line_passes import LineOperand, LinePass, LinesProblem, line_passes
from simdnn.kernels.x86.vocabulary import X86Vocabulary
from simdnn.networks.between_products import strides_of
from simdnn.networks.calls import Build, Call, behind, kernel_cost
from simdnn.networks.result import NodeRun
from simdnn.networks.types import label
from simdnn.operators.recorded_passes import PassGroup, RecordedPass, RecordingKernels, grouped, place_of
from simdnn.primitives.run import Target

if TYPE_CHECKING:
    from simdnn.timing.estimate import Cost


@dataclass(eq=False)
class FusedKernel:
    """The kernel of a group: what builds it, its problem, the arrays that it reads, what it makes of them, and the
    light steps that it works out by itself.
    """

    build: Build
    problem: MapProblem | LinesProblem | PoolProblem
    sources: list[Array]
    made: Array
    light: set[RecordedPass]


class _Unfit(Exception):
    """A group has no kernel of its own."""


class GroupOperands:
    """The operands of a group's kernel by number: arrays first, then what its passes make."""

    def __init__(self, group: PassGroup, out: RecordedPass) -> None:
        self.group, self.out = group, out
        self.sources: list[Array] = []
        self.strides: list[tuple[int, ...]] = []
        self.numbers: dict[Any, int] = {}  # by array or step
        self.light: set[RecordedPass] = set()  # that others have made, and these do again
        wide = [one for one in group.steps if group.is_wide(one)]
        self.shape = wide[0].shape if wide else next(one for one in group.steps if one.kind).shapes[0]
        for step in group.steps:
            for operand, shape in zip(step.operands, step.shapes, strict=True):
                self.read(step, operand, shape)

    def inside(self, operand: Array | RecordedPass) -> bool:
        return isinstance(operand, RecordedPass) and operand in self.group.steps

    def read(self, step: RecordedPass, operand: Array | RecordedPass, shape: tuple[int, ...]) -> None:
        """Number an operand that a step reads in a shape: an array from memory, or those of a light step."""
        if self.inside(operand):
            return
        if isinstance(operand, RecordedPass) and operand.is_light:
            self.light.add(operand)
            for inner, own in zip(operand.operands, operand.shapes, strict=True):
                self.read(step, inner, shape if own == operand.shape else own)
            return
        array = operand.made if isinstance(operand, RecordedPass) else operand
        key = self.key(array, shape)
        if key not in self.numbers:
            self.numbers[key] = len(self.sources)
            self.sources.append(array)
            self.strides.append(self.steps_through(step, shape))

    @staticmethod
    def key(array: Array, shape: tuple[int, ...]) -> tuple[Any, ...]:
        return (place_of(array), array.dtype, shape)

    def steps_through(self, step: RecordedPass, shape: tuple[int, ...]) -> tuple[int, ...]:
        """An array's element strides along the dimensions of the group's shape."""
        whole = step.shapes[0] if step.kind else step.shape
        if prod(shape) == 1:
            return (0,) * len(self.shape)
        if prod(whole) == self.group.size and (whole == self.shape or shape == whole):
            return strides_of(self.shape if shape == whole else shape, self.shape)
        if prod(shape) * (self.group.line or 1) == self.group.size and shape == whole:  # one value a line
            lines, rank = self.shape, len(self.shape)
            behind = next(k for k in range(rank, -1, -1) if prod(lines[k:]) == self.group.line)
            return strides_of((*lines[:behind], *[1] * (rank - behind)), lines)
        raise _Unfit

    def number(self, operand: Array | RecordedPass, shape: tuple[int, ...]) -> int:
        if self.inside(operand):
            return self.numbers.setdefault(operand, len(self.numbers))
        return self.numbers[self.key(operand.made if isinstance(operand, RecordedPass) else operand, shape)]

    def types(self, made: int) -> list[str]:
        return [label(a.dtype) for a in self.sources] + ["f32"] * made

    def value(self, elements: Sequence[Element], step: RecordedPass, known: dict[RecordedPass, Element]) -> Element:
        """A step's value from those of the operands; `known` are steps that others have made."""
        if step not in known:
            known[step] = self.of(step, [self.given(elements, *one, known) for one in self.operands(step)])
        return known[step]

    def operands(self, step: RecordedPass) -> Iterator[tuple[Array | RecordedPass, tuple[int, ...]]]:
        return zip(step.operands, step.shapes, strict=True)

    def of(self, step: RecordedPass, values: Sequence[Element]) -> Element:
        assert step.formula is not None
        return step.formula(*values)

    def given(
        self,
        elements: Sequence[Element],
        operand: Array | RecordedPass,
        shape: tuple[int, ...],
        known: dict[RecordedPass, Element],
    ) -> Element:
        """An operand as a step reads it in a shape."""
        if isinstance(operand, RecordedPass) and self.inside(operand):
            return self.value(elements, operand, known)
        if isinstance(operand, RecordedPass) and operand.is_light:
            inner = [(one, shape if own == operand.shape else own) for one, own in self.operands(operand)]
            return self.of(operand, [self.given(elements, *one, known) for one in inner])
        return elements[self.number(operand, shape)]


def kernel_of(group: PassGroup) -> FusedKernel:
    """The kernel of a group. Raises `_Unfit` where it has none."""
    left = group.left
    if group.steps[0].pooling is not None:
        return _in_windows(group, group.steps[0].pooling)
    if len(left) != 1 or group.line is None:
        raise _Unfit
    plan = GroupOperands(group, left[0])
    if len(group.steps) + len(plan.light) == 1:
        raise _Unfit  # a pass as it is
    return _in_lines(plan) if group.line else _by_elements(plan)


def _by_elements(plan: GroupOperands) -> FusedKernel:
    expression = trace(lambda *given: plan.value(given, plan.out, {}), plan.types(0))
    dims, strides = collapse(plan.shape, plan.strides)
    return FusedKernel(
        elementwise,
        MapProblem(expression, dims, tuple(strides), plan.out.dtype),
        plan.sources,
        plan.out.made,
        plan.light,
    )


def _in_lines(plan: GroupOperands) -> FusedKernel:
    group, out = plan.group, plan.out
    behind = next(k for k in range(len(plan.shape), -1, -1) if prod(plan.shape[k:]) == group.line)
    inner = [collapse(plan.shape[behind:], [steps[behind:]]) for steps in plan.strides]
    if any(len(dims) > 1 or steps[0][-1] > 1 for dims, steps in inner):
        raise _Unfit
    outer, steps = collapse(plan.shape[:behind], [strides[:behind] for strides in plan.strides])
    operands = [
        LineOperand(label(a.dtype), (*lines, along[0][-1]))
        for a, lines, (_, along) in zip(plan.sources, steps, inner, strict=True)
    ]
    passes = LineRuns(plan).passes()
    made = [one for one in plan.numbers if isinstance(one, RecordedPass)]
    operands += [LineOperand(whole=group.is_wide(one)) for one in made]
    assert group.line
    problem = LinesProblem(outer, group.line, tuple(operands), tuple(passes), out.dtype)
    return FusedKernel(lines, problem, plan.sources, plan.out.made, plan.light)


def _of_windows(groups: Sequence[PassGroup]) -> list[PassGroup]:
    """Windows of images with all that is done with what they yield, element by element."""
    found = []
    for group in groups:
        behind = [other for other in groups if other.line == 0 and other.before == {group}]
        alone = group.steps[0].pooling is not None and len(behind) <= 1
        if alone and (not behind or len(behind[0].left) == 1):
            size = group.steps[0].made.size
            found.append(PassGroup(size, None, [*group.steps, *(step for one in behind for step in one.steps)]))
    return found


def _in_windows(group: PassGroup, problem: PoolProblem) -> FusedKernel:
    """The kernel of windows whose source is read as it is stored, and what comes behind them."""
    pool, *behind = group.steps
    (source,), light = pool.operands, set()
    if isinstance(source, RecordedPass):
        if not source.is_light or len(source.operands) > 1 or isinstance(source.operands[0], RecordedPass):
            raise _Unfit
        light, source = {source}, source.operands[0]
    if not light and not behind:
        raise _Unfit  # a pass as it is
    dtype = label(source.dtype)
    problem = replace(problem, dtype=dtype if problem.kind == "sum" or fmt(dtype).is_float else problem.dtype)
    if light and problem.dtype != dtype:
        raise _Unfit
    if not behind:
        return FusedKernel(pooling, replace(problem, dst=label(pool.made.dtype)), [source], pool.made, light)
    plan = GroupOperands(PassGroup(pool.made.size, 0, behind), behind[-1])
    (place,) = [i for i, array in enumerate(plan.sources) if array is pool.made]
    order = [place, *(i for i in range(len(plan.sources)) if i != place)]
    image = (0, 0, pool.made.shape[-1], 1)
    by_position = tuple(at for at, i in enumerate(order) if plan.strides[i] == image)
    if any(at not in by_position and any(plan.strides[i]) for at, i in enumerate(order) if at):
        raise _Unfit

    def formula(*given: Element) -> Element:
        return plan.value([given[order.index(i)] for i in range(len(order))], plan.out, {})

    after = trace(formula, [plan.types(0)[i] for i in order])
    problem = replace(problem, after=after, by_position=by_position, dst=plan.out.dtype)
    others = [plan.sources[i] for i in order[1:]]
    return FusedKernel(pooling, problem, [source, *others], plan.out.made, light | plan.light)


class LineRuns:
    """The passes of a group over its lines, in their order."""

    def __init__(self, plan: GroupOperands) -> None:
        self.plan, self.group = plan, plan.group
        self.ends = [one for one in self.group.steps if not self.group.is_wide(one) or one is plan.out]
        counts = [one for end in self.ends for one in self.under(end)]
        self.kept = {one for one in set(counts) if counts.count(one) > 1 and one.is_long}
        if len(self.kept) > 1:
            raise _Unfit
        self.made: set[RecordedPass] = set()

    def under(self, end: RecordedPass) -> set[RecordedPass]:
        """The steps along the line that one pass works out."""
        found: set[RecordedPass] = set()
        stack = [end]
        while stack:
            step = stack.pop()
            if step in found:
                continue
            if self.group.is_wide(step):
                found.add(step)
            if self.group.is_wide(step) or step is end:
                stack += [one for one in step.operands if isinstance(one, RecordedPass) and self.plan.inside(one)]
        return found

    def passes(self) -> list[LinePass]:
        passes: list[LinePass] = []
        for end in self.ends:
            keeps = -1
            for step in self.under(end) & self.kept - self.made - {end}:
                if end.kind and step is end.operands[0]:
                    keeps = self.plan.number(step, ())
                else:
                    passes.append(self.pass_up_to(step, self.plan.number(step, ())))
                    self.made.add(step)
            passes.append(self.pass_up_to(end, -1 if end is self.plan.out else self.plan.number(end, ()), keeps))
            self.made |= {end} | {step for step in self.kept if keeps >= 0 and self.plan.numbers[step] == keeps}
        return passes

    def pass_up_to(self, end: RecordedPass, makes: int, keeps: int = -1) -> LinePass:
        """A pass up to a step."""
        plan = self.plan

        def formula(*elements: Element) -> Element:
            known = {step: elements[plan.numbers[step]] for step in self.made if step in plan.numbers}
            if not end.kind:
                return plan.value(elements, end, known)
            return plan.given(elements, end.operands[0], end.shapes[0], known)

        for step in self.made:
            plan.number(step, ())
        expression = trace(formula, plan.types(len(plan.numbers) - len(plan.sources)))
        wide = bool(end.kind) or self.group.is_wide(end)
        return LinePass(expression, makes, end.kind, end.order or "turns", end.divisor, wide, keeps)


def lines(problem: LinesProblem, words: Vocabulary) -> Spread:
    """Inputs src0, src1, … of the operands from memory, output dst."""
    assert isinstance(words, X86Vocabulary)
    narrow = any(operand.dtype not in ("", "f32", "s32") for operand in problem.operands)
    if narrow and not words.unit.masks and problem.line % words.unit.lanes:
        raise Unimplemented(f"lines of {problem.line} in bytes without masks; multiples of {words.unit.lanes} work")
    return whole(line_passes(problem, words.unit))


# -- what it costs ----------------------------------------------------------------------------------------------------
def fused(
    nodes: Sequence[NodeRun], kernels: RecordingKernels, name: str, around: float, streamed: int = 0
) -> tuple[NodeRun, ...]:
    """The nodes of a primitive's program, calls of steps that go together being one, of the last of their nodes; the
    last of all takes some cycles `around` it, too, and stores `streamed` bytes past the caches.
    """
    noted = {id(step.call): step for step in kernels.steps.values()}
    steps = [noted[id(call)] for node in nodes for call in node.calls if id(call) in noted]
    instead: dict[int, Call | None] = {}
    again: set[RecordedPass] = set()  # light steps that kernels have within
    groups = grouped(steps, isinstance(kernels.words, X86Vocabulary))
    for group in [*(one for one in groups if one.steps[0].pooling is None), *_of_windows(groups)]:
        try:
            found = kernel_of(group)
            found.build(found.problem, kernels.words)
        except (_Unfit, Unimplemented, OutOfRegisters):
            continue
        instead |= {id(step.call): None for step in group.steps}
        instead[id(group.steps[-1].call)] = _call(found, kernels, name, goes_on=group.steps[0] is not steps[0])
        again |= found.light
    for step in reversed(steps):  # readers first
        if step in again and all(id(one.call) in instead for one in step.readers):
            instead[id(step.call)] = None
    last = next((call for node in reversed(nodes) for call in reversed(node.calls)), None)
    if last is not None and around:
        call = instead.get(id(last)) or last
        seconds = _seconds(streamed, kernels.target) if streamed else 0.0
        instead[id(last)] = replace(call, find_cost=functools.partial(_launched, call, around, seconds))
    return tuple(_with(node, instead) for node in nodes)


def _launched(call: Call, around: float, least: float) -> Cost:
    return call.find_cost().streamed(least).launched(around)


def _seconds(written: int, target: Target) -> float:
    """How long a CPU's memory takes bytes that are stored past the caches."""
    assert isinstance(target.machine, Machine)
    dram = target.machine.dram
    return written / min(dram.gb_s_core * target.threads, dram.gb_s_socket) / 1e9


def _call(kernel: FusedKernel, kernels: RecordingKernels, name: str, goes_on: bool) -> Call:
    machine = behind(kernels.target.machine) if goes_on else kernels.target.machine
    cost = functools.partial(kernel_cost, kernel.build, kernel.problem, kernels.words, machine, kernels.target.threads)
    return Call(f"{name}:{kernels.words.isa}", cost, task=name)


def _with(node: NodeRun, instead: Mapping[int, Call | None]) -> NodeRun:
    calls = tuple(found for call in node.calls if (found := instead.get(id(call), call)) is not None)
    return replace(node, calls=calls, free="fused" if node.calls and not calls else node.free)
