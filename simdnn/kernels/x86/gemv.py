"""Matrix times vector (M = 1 or N = 1), in the two forms that oneDNN 3.13 has (docs/numerics.md, rule 8).

*along K*: each output is a dot product of two K-contiguous vectors, held in one register of partial sums and added up
at the end by halves; its older GEMMs have orders of their own, one of them for a few rows (`FORMS`). *plain*: with
M = 1 and weights as the user stores them (K, N), lanes run over N and k in order; so they run over M with N = 1 and a
source that lies column by column.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from isa_models.readings.arrays import Array, to_a_line
from simdnn.kernels.common.code import Code, along, loop, nest, op
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.kernel import Apart, Kernel
from simdnn.kernels.common.pack import Blocked, Layout, inputs_of
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.kernels.common.weight_cache import made_of
from simdnn.kernels.x86 import folds
from simdnn.kernels.x86.code import Unit, broadcast32, fetch, load32, load_float, store32, zero
from simdnn.kernels.x86.dots import BF16_EMULATED
from simdnn.kernels.x86.epilogue import Plan, TileSums, add_parts, finish_tile
from simdnn.program.check import verify
from simdnn.program.records import SOURCE, WEIGHTS, Affine, Memory, Op, Program, Register, Tensor

_ROWS = 8  # outputs computed side by side: their chains hide one another's latency
SUMS = "sums"


def _alone(code: Code) -> Code:
    """A tail as a statement of its own: registers live within one top-level statement."""
    return loop("tail", 1, code, parallel=True)


@dataclass(frozen=True)
class DotForm:
    """How dot products along K are formed: `add_up` adds the lanes of a register, which is named beside a spare one.

    `most`: how many outputs side by side. `whole`: elements of K that are summed by registers; what is left is in
    pieces of 8, 4, 2 and 1, a sum each. `merged`: scales of source and weights are one. `rows`: M may be more than 1.
    """

    add_up: Callable[..., Code]
    most: int = _ROWS
    whole: int = 0
    merged: bool = False
    rows: bool = False


#: "emulated": bf16 as oneDNN has it without AVX512_BF16, in two sums of 8 pairs (here the halves of one register);
#: "pairs": the same with vdpbf16ps, of its older GEMM; "older": f32 of that (`jit_avx_gemv_t_f32_kern`); "rows": its
#: kernel for small M and weights along K (`jit_avx512_core_gemm_smalln_tn_f32_kern`)
FORMS = {
    "": DotForm(folds.halves_then_neighbours),
    "emulated": DotForm(folds.neighbours, merged=True),
    "pairs": DotForm(folds.neighbours, merged=True),
    "older": DotForm(folds.between_neighbours, 4, whole=16, merged=True),
    "rows": DotForm(partial(folds.by_halves, lanes=8), merged=True, rows=True),
}


@dataclass(frozen=True)
class VectorLines:
    """Vectors that meet a matrix each: of `images`, and of `groups` in each, which have matrices and channels of their
    own. They lie in a `tensor`; `early` parts are added to their sums ahead of all else, and `reference` says how they
    end.
    """

    images: int
    groups: int = 1
    tensor: str = "vector"
    early: tuple[str, ...] = ()
    reference: bool = False


class Gemv:
    """The generator for one problem: of `form` along K, or `plain`; for `lines`, where there are several."""

    def __init__(
        self,
        name: str,
        problem: MatmulProblem,
        unit: Unit,
        plain: bool,
        form: str = "",
        lines: VectorLines | None = None,
    ) -> None:
        self.name = name
        self.problem = problem
        self.unit = unit
        self.plain = plain
        self.emulated = form == "emulated"
        self.form = FORMS[form]
        self.lines = lines or VectorLines(problem.m if self.form.rows and problem.n > 1 else 1)
        self.outputs = problem.m * problem.n // (self.lines.images * self.lines.groups)  # of one
        self.per_load = unit.width // 16 if problem.src == "bf16" else unit.lanes  # elements of a register along K

    @cached_property
    def plan(self) -> Plan:
        e = self.problem.epilogue
        return Plan(e, integer=False, merged_scales=self.form.merged, reference=self.lines.reference)

    @cached_property
    def program(self) -> Program:
        p = self.problem
        code = self.across_n() if self.plain else self.along_k() + self.epilogue()
        tensors = [
            Tensor("matrix", p.src, self.outputs * p.k, role=SOURCE),
            Tensor("vector", p.src, self.lines.images * p.k, role=WEIGHTS),
            *([] if self.plain else [Tensor(SUMS, "f32", p.m * p.n, "scratch")]),
            *([Tensor("wide", "f32", p.k, "scratch")] if self.plain and self.widens else []),
            *self.plan.tensors(self.unit, self.channels, 1, p.m * p.n),
            Tensor("dst", p.epilogue.dst, p.m * p.n, "output"),
        ]
        return verify(Program(f"{self.name} {p}", self.unit.isa, tuple(tensors), tuple(code)))

    @property
    def widens(self) -> bool:
        """Whether operands are stored narrower than f32."""
        return self.problem.src != "f32"

    # -- along K --------------------------------------------------------------------------------------------------
    def along_k(self) -> Code:
        turns, rest = divmod(self.outputs, self.form.most)
        code = self.each_line("r", turns, self.dots(Affine.var("r") * self.form.most, self.form.most))
        return code + (self.each_line("tail", 1, self.dots(Affine(turns * self.form.most), rest)) if rest else [])

    def each_line(self, var: str, turns: int, code: Code, parallel: bool = True) -> Code:
        """A loop as a statement of its own, for all lines of the source."""
        around = [(name, count) for name, count in (("m", self.lines.images), ("g", self.lines.groups)) if count > 1]
        return nest(around, loop(var, turns, code), parallel=True) if around else loop(var, turns, code, parallel)

    @property
    def line(self) -> Affine:
        images = Affine.var("m") if self.lines.images > 1 else Affine()
        return images * self.lines.groups + self.group

    @property
    def group(self) -> Affine:
        """Which of several matrices a line meets."""
        return Affine.var("g") if self.lines.groups > 1 else Affine()

    @property
    def channels(self) -> int:
        """Outputs of a line in whole registers: the room of a parameter by channel."""
        return -(-self.outputs // self.unit.lanes) * self.unit.lanes

    def dots(self, first: Affine, rows: int) -> Code:
        """`rows` outputs from `first`, each summed in lanes of its own register and stored to `sums`."""
        if self.form.whole:
            return self.dots_in_pieces(first, rows)
        code = self.summed(first, rows, Affine(), self.problem.k)
        for i in range(rows):
            code += [*self.add_up(f"c{i}"), self.kept(f"c{i}", first + i)]
        return code

    def dots_in_pieces(self, first: Affine, rows: int) -> Code:
        """`dots` over the part of K that fills registers, then over the rest in pieces; each is added to the total."""
        totals = [(Register(f"t{i}", "f32", 4), Register(f"c{i}", "f32", 4)) for i in range(rows)]
        code: Code = [zero(total) for total, _ in totals]
        at, rest = 0, self.problem.k % self.form.whole
        for piece in (self.problem.k - rest, *(n for n in (8, 4, 2, 1) if rest & n)):
            if not piece:
                continue
            code += self.summed(first, rows, Affine(at), piece)
            for total, part in totals:
                code += [*self.add_up(part.name, "s"), op("vaddps", total, total, part)]
            at += piece
        return code + [self.kept(total.name, first + i) for i, (total, _) in enumerate(totals)]

    def kept(self, register: str, output: Affine) -> Op:
        """A sum stored where the epilogue finds it."""
        place = self.line * self.outputs + output
        return op("vmovd", Memory(SUMS, place, "u32", 1), Register(register, "u32", 4))

    def summed(self, first: Affine, rows: int, at: Affine, count: int) -> Code:
        """Lanes of sums over `count` elements of K from `at`."""
        code: Code = [zero(self.unit.reg(f"c{i}", "f32")) for i in range(rows)]
        return code + along(count, self.per_load, partial(self.step, first, rows), at, "k")

    def step(self, first: Affine, rows: int, at: Affine, count: int) -> Code:
        unit, k = self.unit, self.problem.k
        code = self.load("x", self.lines.tensor, self.line * k + at, count)
        for i in range(rows):
            place, acc = (self.group * self.outputs + first + i) * k + at, unit.reg(f"c{i}", "f32")
            if self.in_products and count == self.per_load:
                code += self.ahead("matrix", place)
                code.append(op("vdpbf16ps", acc, acc, unit.reg("x", "bf16"), Memory("matrix", place, "bf16", count)))
                continue
            code += self.load("a", "matrix", place, count)
            if self.emulated:
                code += BF16_EMULATED.emit(unit, acc.name, "a", "x", "")
                continue
            dot, dtype = ("vdpbf16ps", "bf16") if self.problem.src == "bf16" else ("vfmadd231ps", "f32")
            code.append(op(dot, acc, acc, unit.reg("a", dtype), unit.reg("x", dtype)))
        return code

    @property
    def in_products(self) -> bool:
        """Whether products read the matrix from memory, as oneDNN's newer kernel has it for bf16."""
        return self.problem.src == "bf16" and self.form is FORMS[""]

    def ahead(self, tensor: str, at: Affine) -> Code:
        """The line that oneDNN's newer kernel fetches ahead with each load; here it is that of the load, as behind the
        last an address would leave its tensor.
        """
        return [fetch("prefetcht0", tensor, at, self.problem.src)] if self.problem.tiles else []

    def load(self, register: str, tensor: str, at: Affine, count: int) -> Code:
        """Load `count` elements of a tensor as the dot product takes them: pairs of bf16, or f32."""
        if self.problem.src != "bf16":
            return [*self.ahead(tensor, at), *self.load_f32(register, tensor, at, count)]
        words = self.unit.reg(register, "u16")
        ahead = self.ahead(tensor, at) if self.in_products else []
        return [*ahead, op("vmovdqu16", words, Memory(tensor, at, "u16", count))]

    def add_up(self, register: str, spare: str = "a") -> Code:
        """The register's lanes, down to eight by halves, into lane 0."""
        wide = self.form is FORMS[""] and self.unit.lanes == 16
        add_up = folds.halves_then_shuffled if wide else self.form.add_up
        return [*folds.down_to(8, register, self.unit.lanes, spare), *add_up(register, spare=spare)]

    def epilogue(self) -> Code:
        """The way from `sums` to dst, a register at a time."""
        unit = self.unit
        turns, rest = divmod(self.outputs, unit.lanes)

        def block(channel: Affine, live: int) -> Code:
            at = self.line * self.outputs + channel
            acc = unit.reg("c0", "f32")
            tile = TileSums(unit, [[acc]], [live], [at], self.group * self.channels + channel, [at])
            parts = self.lines.early
            early = add_parts(self.plan, tile, parts)
            return [load32(unit, acc, SUMS, at, live), *early, *finish_tile(self.plan.without(parts), tile)]

        code = self.each_line("e", turns, block(Affine.var("e") * unit.lanes, unit.lanes), parallel=False)
        return code + (self.each_line("tail", 1, block(Affine(turns * unit.lanes), rest)) if rest else [])

    # -- plain ----------------------------------------------------------------------------------------------------
    def across_n(self) -> Code:
        p, unit = self.problem, self.unit
        code: Code = []
        if self.widens:
            turns, rest = divmod(p.k, unit.lanes)
            code += loop("v", turns, self.widen(Affine.var("v") * unit.lanes, unit.lanes))
            code += _alone(self.widen(Affine(turns * unit.lanes), rest)) if rest else []
        turns, rest = divmod(self.outputs, unit.lanes * _ROWS)
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
            body += self.load_f32("b", "matrix", Affine.var("k") * self.outputs + first + j * unit.lanes, lanes)
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
            self.problem.matrix,
            compute,
            weights,
            blocked=self.blocked,
        )

    def source(self, src: Array) -> dict[str, Array]:
        """The source's tensor: with N = 1 it is the matrix."""
        if self.problem.n > 1:
            return {"vector": to_a_line(src).reshape(-1)}
        return {"matrix": to_a_line(src.T if self.plain else src).reshape(-1)}

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
        out = np.zeros(self.channels, values.dtype)
        out[: self.outputs] = values
        return out
