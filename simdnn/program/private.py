"""Proof that nothing is read of a private tensor that the same iteration has not stored before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isa_models import ProgramError
from simdnn.program.apart import Elements, IterationAccess, access_of, distinct, placed_below
from simdnn.program.records import Op, Program, Statement


@dataclass(frozen=True)
class _Step:
    """An access with its place in the text: the position in the body of each loop around it, outermost first."""

    op: Op
    tensor: str
    access: IterationAccess
    place: tuple[int, ...]
    loops: tuple[str, ...]

    def shared(self, later: _Step) -> tuple[str, ...]:
        """The loops around both."""
        count = next(i for i, (a, b) in enumerate(zip(self.place, later.place, strict=False)) if a != b)
        return self.loops[:count]

    def elements(self, fixed: tuple[str, ...]) -> Elements | None:
        """The elements that are touched while the loops named stand still, at their variables' zero."""
        inner = {name: extent for name, extent in self.access.inner.items() if name not in fixed}
        return IterationAccess(self.access.index, self.access.count, self.access.store, inner).points()


def verify_private(program: Program, statement: Statement) -> None:
    """Each load of a private tensor must be covered by stores that stand before it under the same loops' variables."""
    private = {tensor.name for tensor in program.tensors if tensor.kind == "private"}
    if not private:
        return
    steps: list[_Step] = []
    for op, place, loops in placed_below((statement,), (), ()):
        if (memory := op.memory) is not None and memory.tensor in private:
            access = access_of(program, memory, memory is op.dst, {loop.var: loop.extent for loop in loops})
            steps.append(_Step(op, memory.tensor, access, place, tuple(loop.var for loop in loops)))
    stored = {name: _Stored() for name in private}
    for step in steps:
        if step.access.store:
            stored[step.tensor].add(step)
        elif not stored[step.tensor].covers(step):
            raise ProgramError(f"{program.name}: `{step.op}`: cannot show that it reads what was stored before")


class _Stored:
    """The stores to a private tensor so far, and the elements that those under the same loops' variables write."""

    def __init__(self) -> None:
        self.stores = list[_Step]()
        self.around: dict[tuple[int, ...], dict[tuple[str, ...], list[_Step]]] = {}  # by the place of a body, and loops
        self.written: dict[tuple[tuple[str, ...], tuple[int, ...]], Elements | None] = {}  # by loops and stores

    def add(self, store: _Step) -> None:
        self.stores.append(store)
        self.around.clear()

    def covers(self, load: _Step) -> bool:
        """Whether stores that share the same loops with the load cover it, wherever those loops stand."""
        body = load.place[:-1]
        if body not in self.around:
            found = self.around[body] = {}
            for store in self.stores:
                found.setdefault(store.shared(load), []).append(store)
        return any(self._all_of(load, stores, loops) for loops, stores in self.around[body].items())

    def _all_of(self, load: _Step, stores: Sequence[_Step], loops: tuple[str, ...]) -> bool:
        if any(step.access.stride(name) != load.access.stride(name) for name in loops for step in stores):
            return False
        key = loops, tuple([id(step) for step in stores])
        if key not in self.written:
            every = [step.elements(loops) for step in stores]
            found = [points for points in every if points is not None]
            self.written[key] = distinct(found) if len(found) == len(every) else None
        read, written = load.elements(loops), self.written[key]
        if read is None or written is None:
            return False
        return bool((written[np.minimum(np.searchsorted(written, read), len(written) - 1)] == read).all())
