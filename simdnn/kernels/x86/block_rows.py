"""The shared part of products with weights in ggml's blocks: sizes, the source quantized, the whole kernel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property

from isa_models import Machine
from isa_models.block_formats import block_format
from isa_models.instruction import instruction
from isa_models.isa import implied
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, loop
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.kernel import Kernel
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.kernels.x86.code import Unit
from simdnn.kernels.x86.vec_dot_32 import Blocks32, Blocks64
from simdnn.kernels.x86.vec_dot_code import Constants256
from simdnn.kernels.x86.vec_dot_k import STEPS, Blocks256
from simdnn.program.check import verify
from simdnn.program.records import SOURCE, WEIGHTS, Affine, Program, Tensor


class BlockRows:
    """One problem with `blocks`: its formats, its constants, and the steps of a block of either side."""

    def __init__(self, problem: MatmulProblem, unit: Unit) -> None:
        self.problem, self.unit = problem, unit
        self.form = block_format(problem.blocks)
        self.acts = block_format(self.form.activations)
        self.count = problem.k // self.form.elements
        self.constants = Constants256()
        self.vnni = not implied(unit.isa).isdisjoint(instruction("vpdpbusd").caps[256])
        self.steps = (
            Blocks256(self.form, self.acts, self.constants)
            if problem.blocks in STEPS
            else (Blocks32 if self.form.elements == self.acts.elements else Blocks64)(
                self.form, self.acts, self.constants, self.vnni, problem.m
            )
        )

    @property
    def row(self) -> int:
        """Bytes of a row of weights."""
        return self.count * self.form.bytes

    @property
    def acts_row(self) -> int:
        """Bytes of a row of the source, quantized."""
        return self.problem.k // self.acts.elements * self.acts.bytes

    @property
    def acts_block(self) -> int:
        """Bytes of the quantized source that meet one block of weights."""
        return self.acts.bytes * self.form.elements // self.acts.elements

    def quantized(self) -> Code:
        """Every row of the source brought to blocks, in `acts`."""
        p = self.problem
        blocks = p.k // self.acts.elements
        start = Affine.var("r") * p.k + Affine.var("b") * self.acts.elements
        at = Affine.var("r") * self.acts_row + Affine.var("b") * self.acts.bytes
        body = loop("b", blocks, self.steps.block(start, at), parallel=True)
        return loop("r", p.m, body, parallel=True)

    def whole(self, name: str, code: Code, scratch: Sequence[Tensor]) -> Program:
        """The program of a kernel `name` with this code, and the constants that were asked for until now."""
        p = self.problem
        tensors = [
            Tensor("src", "f32", p.m * p.k, role=SOURCE),
            Tensor("wei", "u8", p.n * self.row, role=WEIGHTS),
            *self.constants.used.values(),
            Tensor("acts", "u8", p.m * self.acts_row, "scratch"),
            *scratch,
            Tensor("dst", "f32", p.m * p.n, "output"),
        ]
        return verify(Program(f"{name} {p}", self.unit.isa, tuple(tensors), tuple(code)))


class BlockKernel(ABC):
    """The generator for one problem with `blocks`: the source is quantized, and multiplied behind that."""

    def __init__(self, name: str, problem: MatmulProblem, unit: Unit) -> None:
        self.name, self.shared = name, BlockRows(problem, unit)

    @cached_property
    def program(self) -> Program:
        return self.shared.whole(self.name, [*self.shared.quantized(), *self.products()], self.scratch())

    @abstractmethod
    def products(self) -> Code:
        """All code behind the quantized source."""

    def scratch(self) -> list[Tensor]:
        """Tensors that `products` writes on."""
        return []

    def prepare(self, src: Array, weights: Array, p: Parameters) -> dict[str, Array]:
        """The program's inputs; `weights` are the stored bytes (n, bytes of a row)."""
        return {"src": src.reshape(-1), "wei": weights.reshape(-1)}


def built(kind: type[BlockKernel], name: str, unit: Unit, problem: MatmulProblem, machine: Machine) -> Kernel:
    """The kernel of a generator, as a row of the table asks for it."""
    made = kind(name, problem, unit)
    return Kernel(name, made.program, made.prepare, problem.matrix, "s8", ("wei",))
