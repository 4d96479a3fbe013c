"""Tensors that a run writes whole before it reads: they need not be zeros ahead, which would take a pass of its own.

What the stores of a program reach is marked once, element by element, as its addresses are affine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from numpy.lib.stride_tricks import as_strided

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.program.records import Loop, Memory, Op, Program, Statement, Tensor

_LEAST = 1 << 17  # bytes of a tensor for which it is worth to look
_found: dict[tuple[str, str], bool] = {}


def written_whole(program: Program, tensor: Tensor) -> bool:
    """Whether each run of a program writes every element of a large output, and reads what it wrote at most; or all of
    a tensor that one part of it leaves to those behind.
    """
    if tensor.kind not in ("output", "scratch") or tensor.nbytes < _LEAST:
        return False
    key = program.signature, tensor.name
    if (found := _found.get(key)) is None:
        found = _found[key] = _Marks(tensor).of(program)
    return found


@dataclass
class _Marks:
    """The elements of a tensor that stores reach."""

    tensor: Tensor

    def of(self, program: Program) -> bool:
        """Whether every element is among them, and no instruction reads one that was not written."""
        body = program.body
        if self.tensor.kind == "scratch":
            body = tuple(takewhile(lambda statement: not self._reads((statement,)), body))
        elif not self._reads_own(body, frozenset()):
            return False
        marks = np.zeros(self.tensor.size, bool)
        self._mark(body, {}, marks)
        return bool(marks.all())

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

    def _mark(self, body: Sequence[Statement], around: Mapping[str, int], marks: Array) -> None:
        for statement in body:
            if isinstance(statement, Loop):
                self._mark(statement.body, {**around, statement.var: statement.extent}, marks)
            elif self._is_store(statement):
                assert isinstance(statement.dst, Memory)
                self._reached(statement.dst, around, marks)[...] = True

    def _is_store(self, op: Op) -> bool:
        """Whether an instruction writes all lanes of its place in the tensor."""
        return isinstance(op.dst, Memory) and op.dst.tensor == self.tensor.name and not op.definition.mask

    def _reached(self, memory: Memory, around: Mapping[str, int], marks: Array) -> Array:
        """The marks of all that a place reaches, in all turns of the loops around."""
        terms, lanes = memory.index.terms, memory.bits // memory.rows // fmt(self.tensor.dtype).bits
        shape = (*(around[name] for name, _ in terms), memory.rows, lanes)
        strides = (*(step for _, step in terms), memory.stride, 1)
        return as_strided(marks[memory.index.const :], shape, strides)
