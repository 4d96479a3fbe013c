"""Matrix times vector (M = 1 or N = 1), in the two forms that oneDNN 3.13 has (docs/numerics.md, rule 8).

*along K*: each output is a dot product of two K-contiguous vectors, held in one register of partial sums and added up
at the end by halves. *plain*: with M = 1 and weights as the user stores them (K, N), lanes run over N and k in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial

import numpy as np

from isa_models.readings.arrays import Array, to_a_line
from simdnn.kernels.common.code import Code, along, loop, op
from simdnn.kernels.common.kept import made_of
from simdnn.kernels.common.pack import Blocked, Layout, inputs_of
from simdnn.kernels.common.spec import Apart, Kernel, MatmulProblem, Parameters
from simdnn.kernels.x86.code import Unit, broadcast32, load32, load_float, store32, zero
from simdnn.kernels.x86.dots import BF16_EMULATED
from simdnn.kernels.x86.epilogue import Plan, TileSums, finish_tile
from simdnn.program.check import verify
from simdnn.program.records import SOURCE, WEIGHTS, Affine, Memory, Program, Register, Tensor

_ROWS = 8  # outputs computed side by side: their chains hide one another's latency
_SUMS = "sums"


def _alone(code: Code) -> Code:
    """A tail as a statement of its own: registers live within one top-level statement."""
    return loop("tail", 1, code, parallel=True)


class Gemv:
    """The generator for one problem; `plain` chooses the form. `emulated`: bf16 as oneDNN has it without AVX512_BF16,
    in two sums of 8 pairs (here the halves of one register), whose lanes are then added up as neighbours.
    """

    def __init__(self, name: str, problem: MatmulProblem, unit: Unit, plain: bool, emulated: bool = False) -> None:
        self.name = name
        self.problem = problem
        self.unit = unit
        self.plain = plain
        self.emulated = emulated
        self.outputs = problem.m * problem.n
        self.per_load = unit.width // 16 if problem.src == "bf16" else unit.lanes  # elements of a register along K

    @cached_property
    def plan(self) -> Plan:
        return Plan(self.problem.epilogue, integer=False, merged_scales=self.emulated)

    @cached_property
    def program(self) -> Program:
        p = self.problem
        code = self.across_n() if self.plain else self.along_k() + self.epilogue()
        lanes = self.unit.lanes
        tensors = [
            Tensor("matrix", p.src, self.outputs * p.k, role=SOURCE),
            Tensor("vector", p.src, p.k, role=WEIGHTS),
            *([] if self.plain else [Tensor(_SUMS, "f32", self.outputs, "scratch")]),
            *([Tensor("wide", "f32", p.k, "scratch")] if self.plain and self.widens else []),
            *self.plan.tensors(self.unit, -(-self.outputs // lanes) * lanes, 1, self.outputs),
            Tensor("dst", p.epilogue.dst, self.outputs, "output"),
        ]
        return verify(Program(f"{self.name} {p}", self.unit.isa, tuple(tensors), tuple(code)))

    @property
    def widens(self) -> bool:
        """Whether operands are stored narrower than f32."""
        return self.problem.src != "f32"

    # -- along K --------------------------------------------------------------------------------------------------
    def along_k(self) -> Code:
        turns, rest = divmod(self.outputs, _ROWS)
        code = loop("r", turns, self.dots(Affine.var("r") * _ROWS, _ROWS), parallel=True)
        return code + (_alone(self.dots(Affine(turns * _ROWS), rest)) if rest else [])

    def dots(self, first: Affine, rows: int) -> Code:
        """`rows` outputs from `first`, each summed in lanes of its own register and stored to `sums`."""
        unit, k = self.unit, self.problem.k
        code: Code = [zero(unit.reg(f"c{i}", "f32")) for i in range(rows)]
        code += along(k, self.per_load, partial(self.step, first, rows), var="k")
        for i in range(rows):
            code += self.add_up(f"c{i}")
            code.append(op("vmovd", Memory(_SUMS, first + i, "u32", 1), Register(f"c{i}", "u32", 4)))
        return code

    def step(self, first: Affine, rows: int, at: Affine, count: int) -> Code:
        unit, k = self.unit, self.problem.k
        code = self.load("x", "vector", at, count)
        for i in range(rows):
            code += self.load("a", "matrix", (first + i) * k + at, count)
            acc = unit.reg(f"c{i}", "f32")
            if self.emulated:
                code += BF16_EMULATED.emit(unit, acc.name, "a", "x", "")
                continue
            dot, dtype = ("vdpbf16ps", "bf16") if self.problem.src == "bf16" else ("vfmadd231ps", "f32")
            code.append(op(dot, acc, acc, unit.reg("a", dtype), unit.reg("x", dtype)))
        return code

    def load(self, register: str, tensor: str, at: Affine, count: int) -> Code:
        """Load `count` elements of a tensor as the dot product takes them: pairs of bf16, or f32."""
        if self.problem.src != "bf16":
            return self.load_f32(register, tensor, at, count)
        words = self.unit.reg(register, "u16")
        return [op("vmovdqu16", words, Memory(tensor, at, "u16", count))]

    def add_up(self, register: str) -> Code:
        """The register's lanes by halves down to four (emulated: eight), then neighbours, into lane 0."""
        low, high = Register(register, "f32", 4), Register("a", "f32", 4)
        code: Code = []
        if self.unit.width == 512:
            whole, half, upper = (Register(n, "f32", w) for n, w in ((register, 16), (register, 8), ("a", 8)))
            code += [op("vextractf64x4", upper, whole, imm=1), op("vaddps", half, half, upper)]
        eight = Register(register, "f32", 8)
        folded = [op("vextractf128", high, eight, imm=1), op("vaddps", low, low, high)]
        if self.emulated:
            return [*code, op("vhaddps", eight, eight, eight), op("vhaddps", eight, eight, eight), *folded]
        code += folded
        return [*code, op("vhaddps", low, low, low), op("vhaddps", low, low, low)]

    def epilogue(self) -> Code:
        """The way from `sums` to dst, a register at a time."""
        unit = self.unit
        turns, rest = divmod(self.outputs, unit.lanes)

        def block(at: Affine, live: int) -> Code:
            acc = unit.reg("c0", "f32")
            tile = TileSums(unit, [[acc]], [live], [at], at, [at])
            return [load32(unit, acc, _SUMS, at, live), *finish_tile(self.plan, tile)]

        code = loop("e", turns, block(Affine.var("e") * unit.lanes, unit.lanes))
        return code + (_alone(block(Affine(turns * unit.lanes), rest)) if rest else [])

    # -- plain ----------------------------------------------------------------------------------------------------
    def across_n(self) -> Code:
        p, unit = self.problem, self.unit
        code: Code = []
        if self.widens:
            turns, rest = divmod(p.k, unit.lanes)
            code += loop("v", turns, self.widen(Affine.var("v") * unit.lanes, unit.lanes))
            code += _alone(self.widen(Affine(turns * unit.lanes), rest)) if rest else []
        turns, rest = divmod(p.n, unit.lanes * _ROWS)
        code += loop("j", turns, self.columns(Affine.var("j") * unit.lanes * _ROWS, unit.lanes * _ROWS), parallel=True)
        return code + (_alone(self.columns(Affine(turns * unit.lanes * _ROWS), rest)) if rest else [])

    def widen(self, at: Affine, count: int) -> Code:
        value = self.unit.reg("a", "f32")
        return [*self.load_f32("a", "vector", at, count), store32(self.unit, "wide", at, value, count)]

    def load_f32(self, register: str, tensor: str, at: Affine, count: int) -> Code:
        """Up to a register of elements as f32."""
        return load_float(self.unit, register, tensor, self.problem.src, at, count)

    def columns(self, first: Affine, count: int) -> Code:
        """`count` neighbouring outputs, k in order, one fused multiply-add each."""
        p, unit = self.problem, self.unit
        live = [min(unit.lanes, count - j) for j in range(0, count, unit.lanes)]
        a = unit.reg("a", "f32")
        body: Code = [broadcast32(a, "wide" if self.widens else "vector", Affine.var("k"))]
        for j, lanes in enumerate(live):
            body += self.load_f32("b", "matrix", Affine.var("k") * p.n + first + j * unit.lanes, lanes)
            acc = unit.reg(f"c{j}", "f32")
            body.append(op("vfmadd231ps", acc, acc, a, unit.reg("b", "f32")))
        registers = [[unit.reg(f"c{j}", "f32") for j in range(len(live))]]
        code: Code = [zero(acc) for acc in registers[0]]
        code += loop("k", p.k, body)
        return code + finish_tile(self.plan, TileSums(unit, registers, live, [first], first, [first]))

    # -- arrays ---------------------------------------------------------------------------------------------------
    def kernel(self) -> Kernel:
        compute = "bf16" if self.problem.src == "bf16" and not self.plain else "f32"
        p = self.problem
        weights = ("vector" if p.n == 1 else "matrix",)
        return Kernel(
            self.name,
            self.program,
            Apart(self.source, self.beside),
            self.finish,
            compute,
            weights,
            blocked=self.blocked,
        )

    def source(self, src: Array) -> dict[str, Array]:
        """The source's tensor: with N = 1 it is the matrix."""
        return {"matrix" if self.problem.n == 1 else "vector": to_a_line(src).reshape(-1)}

    def beside(self, weights: Array, p: Parameters) -> dict[str, Array]:
        """The program's other inputs."""
        name = "vector" if self.problem.n == 1 else "matrix"
        return inputs_of(self.program, {name: self.rows(weights), **self.plan.inputs(p, self.per_output)})

    def rows(self, weights: Array) -> Array:
        """The weights as they are multiplied: by columns, unless they are plain."""
        if self.blocked is None or self.problem.n == 1:
            return to_a_line(weights).reshape(-1)
        return made_of(weights, self.blocked, lambda: {"wei": to_a_line(weights.T).reshape(-1)})["wei"]

    @cached_property
    def blocked(self) -> Blocked | None:
        """The layout of weights by columns; None where they are plain."""
        p = self.problem
        return None if self.plain else Blocked(self.unit.isa, p.wei, Layout(1, p.n, 1, 0, 1, p.k), p.k)

    def per_output(self, values: Array) -> Array:
        """A per-channel parameter for every output, in whole registers; with N = 1 all outputs share one channel."""
        out = np.zeros(-(-self.outputs // self.unit.lanes) * self.unit.lanes, values.dtype)
        out[: self.outputs] = values
        return out

    def finish(self, outputs: Mapping[str, Array]) -> Array:
        """dst (m, n)."""
        return outputs["dst"].reshape(self.problem.m, self.problem.n)
