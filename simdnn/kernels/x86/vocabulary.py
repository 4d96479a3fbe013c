"""AVX2 and AVX-512 as a vocabulary: loops over whole registers, and a tail under a mask or one element at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isa_models import Unimplemented
from simdnn.kernels.common.code import Code, loop, nest, op
from simdnn.kernels.common.copy import CopyProblem
from simdnn.kernels.common.expression import INSTRUCTIONS, Expression
from simdnn.kernels.common.reduce import ReduceProblem
from simdnn.kernels.common.vocabulary import Body, Spread, Vocabulary, whole
from simdnn.kernels.x86.code import Unit
from simdnn.kernels.x86.copy import copying
from simdnn.kernels.x86.elements import broadcast, load
from simdnn.kernels.x86.epilogue import store, store_constants
from simdnn.kernels.x86.formula import X86Formula
from simdnn.kernels.x86.reduce import reduction
from simdnn.program.records import Affine, Register, Tensor

_UNROLL = 4  # vectors of 128 bits in a turn


@dataclass(frozen=True)
class X86Lines:
    """A loop for each axis and one over the vectors of a line; nothing is filled up."""

    outer: tuple[int, ...]
    line: int
    unit: Unit

    @property
    def full(self) -> tuple[int, ...]:
        return (*self.outer, self.line)

    def index(self, axis: int) -> Affine:
        return Affine.var(f"i{axis}")

    def nest(self, start: Code, body: Body, types: Sequence[str]) -> Code:
        lanes = self.unit.lanes
        vectors, rest = divmod(self.line, lanes)
        unroll = _UNROLL if lanes == 4 and vectors % _UNROLL == 0 else 1
        turns, tail = vectors // unroll, Affine(vectors * lanes)
        places = [Affine.var("v") * (unroll * lanes) + i * lanes for i in range(unroll)]
        whole = [statement for at in places for statement in body(at, lanes, False)]
        end: Code = []
        if rest and (self.unit.masks or {"f32", "s32"}.issuperset(types)):  # vmaskmov takes 32-bit elements only
            end = body(tail, rest, False)
        elif rest:
            end = loop("t", rest, body(tail + Affine.var("t"), 1, True), parallel=True)
        if self.outer:
            code = [*start, *loop("v", turns, whole, parallel=True), *end]
        else:  # registers do not cross the statements of a program, so each loads what it needs
            code = loop("v", turns, [*start, *whole], parallel=True) + (loop("once", 1, [*start, *end]) if end else [])
        return nest([(f"i{axis}", extent) for axis, extent in enumerate(self.outer)], code, parallel=True)


@dataclass(frozen=True)
class X86Vocabulary(Vocabulary):
    """The words of one vector unit."""

    unit: Unit

    @property
    def isa(self) -> str:
        return self.unit.isa

    @property
    def lanes(self) -> int:
        return self.unit.lanes

    def register(self, name: str, lanes: int) -> Register:
        return self.unit.reg(name, "f32")

    def load(self, register: str, tensor: str, dtype: str, at: Affine, lanes: int, same: bool = False) -> Code:
        if same:
            return broadcast(self.unit, register, tensor, dtype, at)
        return load(self.unit, register, tensor, dtype, at, lanes)

    def store(self, dtype: str, at: Affine, value: Register, lanes: int) -> Code:
        if value.dtype == "f32" and dtype in ("s32", "s8", "u8"):
            raise Unimplemented(f"{dtype} from a formula that ends in f32; a conversion to s32 is needed before it")
        return store(self.unit, dtype, value, at, lanes)

    def constants(self, dtype: str) -> list[Tensor]:
        return store_constants(self.unit, dtype)

    def apply(self, step: str, dst: Register, *sources: Register) -> Code:
        name, before, after = INSTRUCTIONS[step]
        return [op(name, dst.as_(after), *(source.as_(before) for source in sources))]

    def lines(self, outer: tuple[int, ...], line: int, single: bool = False) -> X86Lines:
        return X86Lines(outer, line, self.unit)

    def formula(self, expression: Expression, dst: str, fixed: Sequence[int]) -> X86Formula:
        return X86Formula(expression, dst, fixed, self.unit)

    def copying(self, p: CopyProblem) -> Spread:
        return whole(copying(p, self.unit))

    def reduction(self, p: ReduceProblem) -> Spread:
        return whole(reduction(p, self.unit))
