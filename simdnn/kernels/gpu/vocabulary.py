"""A GPU's vector pipe as a vocabulary: lines spread over threads, filled up to whole vectors and workgroups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isa_models import GpuMachine
from simdnn.kernels.common.code import Code
from simdnn.kernels.common.copy import CopyProblem
from simdnn.kernels.common.expression import Expression
from simdnn.kernels.common.reduce import ReduceProblem
from simdnn.kernels.common.vocabulary import Spread, Vocabulary
from simdnn.kernels.gpu.copy import copying
from simdnn.kernels.gpu.formula import GpuFormula
from simdnn.kernels.gpu.grid import LANES, GpuLines, lines_of
from simdnn.kernels.gpu.reduce import reduction
from simdnn.kernels.gpu.words import words_of
from simdnn.program.records import Affine, Register, Tensor


@dataclass(frozen=True)
class GpuVocabulary(Vocabulary):
    """The words of one GPU's vendor, for as many threads as it has."""

    machine: GpuMachine

    @property
    def isa(self) -> str:
        return self.machine.platform.name

    @property
    def lanes(self) -> int:
        return LANES

    def register(self, name: str, lanes: int) -> Register:
        return Register(name, "f32", lanes)

    def load(self, register: str, tensor: str, dtype: str, at: Affine, lanes: int, same: bool = False) -> Code:
        return words_of(self.machine).load(register, tensor, dtype, at, lanes, same)

    def store(self, dtype: str, at: Affine, value: Register, lanes: int) -> Code:
        return words_of(self.machine).store("dst", dtype, at, value)

    def constants(self, dtype: str) -> list[Tensor]:
        return []

    def apply(self, step: str, dst: Register, *sources: Register) -> Code:
        return words_of(self.machine).apply(step, dst, *sources)

    def lines(self, outer: tuple[int, ...], line: int, single: bool = False) -> GpuLines:
        return lines_of(outer, line, self.machine, single)

    def formula(self, expression: Expression, dst: str, fixed: Sequence[int]) -> GpuFormula:
        return GpuFormula(expression, fixed, words_of(self.machine))

    def copying(self, p: CopyProblem) -> Spread:
        return copying(p, self.machine)

    def reduction(self, p: ReduceProblem) -> Spread:
        return reduction(p, self.machine)
