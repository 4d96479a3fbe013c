"""Tensors that a run writes before it reads: they need not be zeros ahead, which would take a pass of its own, but for
the few places that it leaves out.

What the stores of a program reach is marked once, element by element, as its addresses are affine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from isa_models.formats import fmt
from isa_models.host.memory import empty, zeros
from isa_models.readings.arrays import Array
from simdnn.program.records import Loop, Memory, Op, Program, Statement, Tensor

_LEAST = 1 << 8  # bytes of a tensor for which it is worth to look
_MOST = 8  # runs of elements that are left out, up to which only they are cleared
_SHARE = 0.75  # of a tensor's elements that are written at the least: of new memory the system gives zeros
Left = tuple[slice, ...]  # runs of elements
_found: dict[tuple[str, str], Left | None] = {}
_stays: dict[tuple[str, str], bool] = {}


def left_out(program: Program, tensor: Tensor) -> Left | None:
    """The elements of a large output that a run of a program does not write before it reads them, where they are few
    runs of elements; None where all have to be zeros ahead. Of a scratch tensor: those that the part of the program
    ahead of its first read leaves out.
    """
    if tensor.kind not in ("output", "scratch") or tensor.nbytes < _LEAST:
        return None
    key = program.signature, tensor.name
    if key not in _found:
        _found[key] = _Marks(tensor).of(program)
    return _found[key]


def maker(program: Program, tensor: Tensor) -> Callable[[int, np.dtype[Any]], Array]:
    """The function that makes a tensor's array (its bytes, its type) as a run may find it."""
    left = left_out(program, tensor)
    if left is None:
        return zeros
    return partial(_cleared, left) if left else empty


def as_left(program: Program, tensor: Tensor) -> bool:
    """Whether a run may find a tensor as the run before left it: none writes the elements that are cleared ahead. Those
    of an output are cleared each time, as its memory is the caller's then.
    """
    left = left_out(program, tensor)
    if not left or tensor.kind == "output":
        return left == ()
    key = program.signature, tensor.name
    if key not in _stays:
        _stays[key] = _Marks(tensor).leave(program, left)
    return _stays[key]


def _cleared(left: Left, size: int, dtype: np.dtype[Any]) -> Array:
    array = empty(size, dtype)
    for run in left:
        array[run] = 0
    return array


@dataclass
class _Marks:
    """The elements of a tensor that stores reach."""

    tensor: Tensor

    def of(self, program: Program) -> Left | None:
        """The elements that are not among them; None where they are many runs, or an instruction may read one."""
        body = program.body
        if self.tensor.kind == "scratch":
            body = tuple(takewhile(lambda statement: not self._reads((statement,)), body))
        elif not self._reads_own(body, frozenset()):
            return None
        if not self._stores(body):
            return None
        marks = np.zeros(self.tensor.size, bool)
        self._mark(body, {}, marks, self._is_store)
        if np.count_nonzero(marks) < _SHARE * marks.size:
            return None
        ends = np.flatnonzero(np.diff(marks, prepend=True, append=True))
        return None if len(ends) > 2 * _MOST else tuple(map(slice, ends[::2].tolist(), ends[1::2].tolist()))

    def leave(self, program: Program, left: Left) -> bool:
        """Whether all stores of a program leave runs of elements as they are."""
        marks = np.zeros(self.tensor.size, bool)
        self._mark(program.body, {}, marks, self._writes)
        return not any(marks[run].any() for run in left)

    def _stores(self, body: Sequence[Statement]) -> bool:
        """Whether any instruction writes all lanes of a place in the tensor."""
        return any(self._stores(s.body) if isinstance(s, Loop) else self._is_store(s) for s in body)

    def _reads(self, body: Sequence[Statement]) -> bool:
        """Whether any instruction reads the tensor."""
        return any(
            self._reads(statement.body) if isinstance(statement, Loop) else bool(self._places(statement))
            for statement in body
        )

    def _places(self, op: Op) -> set[Memory]:
        """The places in the tensor that an instruction reads; one that fetches lines ahead of use reads no value."""
        if op.definition.ahead:
            return set()
        return {src for src in op.srcs if isinstance(src, Memory) and src.tensor == self.tensor.name}

    def _reads_own(self, body: Sequence[Statement], before: frozenset[Memory]) -> bool:
        """Whether each place is read behind a store to the very same one, in the same turn of all loops around that."""
        written = set(before)
        for statement in body:
            if isinstance(statement, Loop):
                if not self._reads_own(statement.body, frozenset(written)):
                    return False
                continue
            if not self._places(statement) <= written:
                return False
            if self._is_store(statement):
                assert isinstance(statement.dst, Memory)
                written.add(statement.dst)
        return True

    def _mark(
        self, body: Sequence[Statement], around: Mapping[str, int], marks: Array, counts: Callable[[Op], bool]
    ) -> None:
        for statement in body:
            if isinstance(statement, Loop):
                self._mark(statement.body, {**around, statement.var: statement.extent}, marks, counts)
            elif counts(statement):
                assert isinstance(statement.dst, Memory)
                self._reached(statement.dst, around, marks)[...] = True

    def _is_store(self, op: Op) -> bool:
        """Whether an instruction writes all lanes of its place in the tensor."""
        return self._writes(op) and not op.definition.mask

    def _writes(self, op: Op) -> bool:
        """Whether an instruction may write to the tensor."""
        return isinstance(op.dst, Memory) and op.dst.tensor == self.tensor.name

    def _reached(self, memory: Memory, around: Mapping[str, int], marks: Array) -> Array:
        """The marks of all that a place reaches, in all turns of the loops around."""
        terms, lanes = memory.index.terms, memory.bits // memory.rows // fmt(self.tensor.dtype).bits
        shape = (*(around[name] for name, _ in terms), memory.rows, lanes)
        strides = (*(step for _, step in terms), memory.stride, 1)
        return as_strided(marks[memory.index.const :], shape, strides)
