"""Alarms: what optimistic LLVM code collects instead of branching.

An instruction's shortcut names conditions under which it may be wrong. Optimistic code takes every shortcut and keeps
running alarms, which the function returns at its end; where one went off, the caller throws the results away and runs
the careful code. So only that an alarm is heard matters, not when. That makes two things cheap: `x < bound` of
unsigned lanes becomes one running minimum, and a NaN, which any sum or product hands on, is looked for only where the
chain of sums and products ends (after the loop, for an accumulator).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isa_models.readings.llvm import Emitter, LlvmValue

_WIDEST = 512  # bits of a register
_WORD = 64  # bits of an integer: alarms are joined as such, as a branch on one or another of two would be two branches
_Key = tuple[str, int, int]  # LLVM type, lanes, bound (0: lanes of i1, or-ed)


@dataclass
class _Frame:
    """The values known in one loop body (or in the function outside all loops)."""

    phis: dict[_Key, str] = field(default_factory=dict)
    now: dict[_Key, str] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)  # conditions that have their alarm already
    unchecked: dict[str, LlvmValue] = field(default_factory=dict)  # floats that may be NaN
    heard: set[str] = field(default_factory=set)  # floats whose NaN a later unchecked one hands on


class Alarms:
    """The alarms of one function, carried through its loops as LLVM phis."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter = emitter
        self.frames = [_Frame()]
        self.hands_on: dict[str, tuple[str, ...]] = {}  # a float result's name -> operands whose NaN it inherits

    # -- conditions -----------------------------------------------------------------------------------------------
    def watch(self, condition: LlvmValue) -> None:
        """Sound the alarm if any lane of `condition` is true."""
        if condition.name == "zeroinitializer" or any(condition.name in frame.seen for frame in self.frames):
            return
        self.frames[-1].seen.add(condition.name)
        test = condition.test
        if test is None:
            self._collect((condition.type, condition.lanes, 0), condition)
        elif test[0] == "nan":
            self.frames[-1].unchecked[test[1].name] = test[1]
            for operand in self.hands_on.get(test[1].name, ()):
                self._hear(operand)
        else:
            least = self._least(test[1])
            self._collect((least.type, least.lanes, test[2]), least)

    def _hear(self, name: str) -> None:
        """A NaN in `name`, or in what it was computed from, will be seen in a later float."""
        if name in self.frames[-1].heard:  # and so is all that it was computed from, by however many ways
            return
        self.frames[-1].heard.add(name)
        for frame in self.frames:
            frame.unchecked.pop(name, None)
        for operand in self.hands_on.get(name, ()):
            self._hear(operand)

    def _least(self, value: LlvmValue) -> LlvmValue:
        """The least of what goes to one lane, where a value's lanes fill several registers."""
        while value.lanes * value.format.bits > _WIDEST and value.lanes % 2 == 0:
            half = value.lanes // 2
            low, high = value.permute(range(half)), value.permute(range(half, value.lanes))
            function = f"llvm.umin.{lanes_suffix(low)}"
            least = self.emitter.call(low.type, function, (low.type, low.name), (high.type, high.name))
            value = type(value)(self.emitter, least, low.dtype, half)
        return value

    def _collect(self, key: _Key, value: LlvmValue) -> None:
        type_, lanes, bound = key
        before = self._now(key)
        if bound:
            function = f"llvm.umin.{lanes_suffix(value)}"
            after = self.emitter.call(type_, function, (type_, before), (type_, value.name))
        else:
            after = self.emitter.value(f"or {type_} {before}, {value.name}")
        self.frames[-1].now[key] = after

    def _now(self, key: _Key) -> str:
        frame = self.frames[-1]
        if key not in frame.now:
            if len(self.frames) == 1:
                return "splat (i{} -1)".format(key[0].split("i")[-1].rstrip(">")) if key[2] else "zeroinitializer"
            frame.now[key] = frame.phis[key] = self.emitter.name("alarm")
        return frame.now[key]

    # -- loops ----------------------------------------------------------------------------------------------------
    def enter(self) -> None:
        self.frames.append(_Frame())

    def leave(self, before: str, carried: Sequence[tuple[LlvmValue, LlvmValue, LlvmValue]]) -> list[str]:
        """The phis of a loop whose body ends here. `carried`: (value before, phi, value at the body's end) each."""
        frame, outer = self.frames[-1], self.frames[-2]
        passed_on = [(first, last) for first, phi, last in carried if phi.name in frame.heard]
        for _, last in passed_on:  # the next iteration looks at it, or what follows the loop
            for name in self._aliases(last.name):
                if name in frame.unchecked:
                    outer.unchecked[name] = frame.unchecked.pop(name)
        self._check(frame)
        self.frames.pop()
        for first, _ in passed_on:
            self._hear(first.name)
        lines = []
        for key, phi_name in frame.phis.items():
            ends = f"[ {self._now(key)}, %{before} ], [ {frame.now[key]}, %{self.emitter.block} ]"
            lines.append(f"  {phi_name} = phi {key[0]} {ends}")
            outer.now[key] = frame.now[key]
        outer.heard |= frame.heard
        return lines

    def _aliases(self, name: str) -> list[str]:
        """`name`, and what it is a plain view of."""
        names = [name]
        while len(self.hands_on.get(names[-1], ())) == 1:
            names += self.hands_on[names[-1]]
        return names

    def _check(self, frame: _Frame) -> None:
        """Look for NaN in the floats that no later one speaks for."""
        for value in frame.unchecked.values():
            nan = value._new(f"fcmp uno {value.type} {value.name}, zeroinitializer", "b1")
            self._collect((nan.type, nan.lanes, 0), nan)
        frame.unchecked.clear()

    def finish(self) -> str:
        """The name of an i1: some alarm went off in this function."""
        self._check(self.frames[0])
        emit, found = self.emitter, list[str]()
        for (type_, lanes, bound), some in self.frames[0].now.items():
            if bound:
                bits = int(type_.split("x i")[1].rstrip(">"))
                some = emit.value(f"icmp ult {type_} {some}, splat (i{bits} {bound})")
            found.append(self._word(lanes, some))
        if not found:
            return "false"
        return emit.value(f"icmp ne i{_WORD} {functools.reduce(self._either, found)}, 0")

    def _word(self, lanes: int, some: str) -> str:
        """An integer that is zero where no lane is true."""
        emit = self.emitter
        if lanes > _WORD:
            any_ = emit.call("i1", f"llvm.vector.reduce.or.v{lanes}i1", (f"<{lanes} x i1>", some))
            return emit.value(f"zext i1 {any_} to i{_WORD}")
        word = emit.value(f"bitcast <{lanes} x i1> {some} to i{lanes}")
        return word if lanes == _WORD else emit.value(f"zext i{lanes} {word} to i{_WORD}")

    def _either(self, one: str, other: str) -> str:
        return self.emitter.value(f"or i{_WORD} {one}, {other}")


def lanes_suffix(value: LlvmValue) -> str:
    """The end of an intrinsic's name for integers of these lanes, as `v16i32`."""
    return f"v{value.lanes}i{value.format.bits}"
