"""Some of a Program's outputs, in any array reading: enough to see what each instruction that stores an output leaves.

Turns of a loop that each store other outputs do the same with other numbers. So only some of them are executed; all
else runs whole. Which outputs came of it is part of the answer.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from isa_models.readings.arrays import Array, ArrayValue, silent
from simdnn.numerics import reference
from simdnn.numerics.buffers import buffers_of
from simdnn.program.check import verify
from simdnn.program.records import Loop, Memory, Op, Program, walk

_MOST_KNOWN = 4096  # results of instructions that are remembered: more than one turn of a tile has


@silent
def sample(
    program: Program, inputs: Mapping[str, Any], reading: type[ArrayValue] = ArrayValue, middle: bool = False
) -> tuple[dict[str, Array], dict[str, Array]]:
    """The outputs of a run, and for each of their elements whether it was computed.

    Turns that are executed: the first and last of parallel loops, the first of others; `middle`: the first, the one
    in the middle and the last of both, for programs whose turns differ at the edges of an image.
    """
    verify(program)
    run = _Sampled(program, buffers_of(program, inputs), reading, middle)
    run.statements(program.body, {}, {}, 1)
    return {name: run.buffers[name] for name in run.computed}, run.computed


class _Sampled(reference.Interpreter):
    """The readable engine on its way through a part of the turns."""

    def __init__(self, program: Program, buffers: dict[str, Array], reading: type[ArrayValue], middle: bool) -> None:
        super().__init__(program, buffers)
        self.reading, self.middle = reading, middle
        self.computed = {t.name: np.zeros(t.size, bool) for t in program.tensors if t.kind == "output"}
        self._spread: dict[int, bool] = {}
        self._known: dict[Hashable, ArrayValue] = {}

    def turns_of(self, loop: Loop) -> Sequence[int]:
        if not self.spread(loop):
            return range(loop.extent)
        if self.middle:
            return sorted({0, loop.extent // 2, loop.extent - 1})
        return sorted({0, loop.extent - 1}) if loop.parallel else [0]

    def spread(self, loop: Loop) -> bool:
        """Whether each turn stores outputs of its own, and nothing that other statements might read."""
        if id(loop) not in self._spread:
            stores = [op.dst for op, _ in walk(loop.body) if isinstance(op.dst, Memory)]
            kinds = {self.program.tensor[dst.tensor].kind for dst in stores}
            own = all(loop.var in dict(dst.index.terms) for dst in stores if dst.tensor in self.computed)
            self._spread[id(loop)] = "output" in kinds and "scratch" not in kinds and own
        return self._spread[id(loop)]

    def applied(self, op: Op, values: Sequence[ArrayValue]) -> ArrayValue:
        """The result, found once for the same operands: rows of a probe are alike, and so are those of a tile."""
        given = tuple((value.dtype, value.array.shape, value.array.tobytes()) for value in values)
        key = (id(op.definition), op.lanes, tuple(op.parameters.items()), given)
        if key not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = super().applied(op, values)
        return self._known[key]

    def store(self, memory: Memory, value: ArrayValue, variables: reference.Variables) -> None:
        super().store(memory, value, variables)
        if memory.tensor in self.computed:
            self.computed[memory.tensor][self.elements(memory, variables)] = True
