"""Matrix times vector as MLAS, onnxruntime's library, forms it for weights that are no constants: products are rounded
and then added, 256 bits wide under every cap (docs/numerics_onnxruntime.md).

*plain*: with M = 1 and weights (K, N), lanes run over N. Four rows of weights are added up, from the first product on,
and that sum is added to what the earlier ones left, which the bias begins; then two rows, then one.
*along K*: each output is a dot product in eight lanes, of four outputs at a time, then two, then one; each of the three
adds its lanes up in an order of its own. The bias, or a zero, comes last.
"""

from __future__ import annotations

import numpy as np

from isa_models.readings.arrays import Array, to_a_line
from simdnn.kernels.common.code import Code, along, loop, op
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.kernel import Apart, Kernel
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.kernels.x86 import folds
from simdnn.kernels.x86.code import Unit, broadcast32, load32, store32, zero
from simdnn.program.check import verify
from simdnn.program.records import SOURCE, WEIGHTS, Affine, Program, Register, Tensor

_UNIT = Unit("avx2", 256)
_LANES = _UNIT.lanes
_ROWS = 4  # of weights, or outputs, that are taken together


def _reg(name: str, lanes: int = _LANES) -> Register:
    return Register(name, "f32", lanes)


class UnfusedGemv:
    """The generator for one problem; `plain` chooses the form."""

    def __init__(self, name: str, problem: MatmulProblem, plain: bool) -> None:
        self.name, self.problem, self.plain = name, problem, plain
        self.outputs = problem.m * problem.n
        self.first = "bias" if problem.epilogue.bias else ""

    def kernel(self) -> Kernel:
        p = self.problem
        tensors = [
            Tensor("matrix", "f32", self.outputs * p.k, role=SOURCE),
            Tensor("vector", "f32", p.k, role=WEIGHTS),
            *([Tensor("bias", "f32", self.outputs)] if self.first else []),
            *([Tensor("sums", "f32", self.outputs, "scratch")] if self.plain else []),
            Tensor("dst", "f32", self.outputs, "output"),
        ]
        code = self.across_n() if self.plain else self.along_k()
        program = verify(Program(f"{self.name} {p}", _UNIT.isa, tuple(tensors), tuple(code)))
        weights = ("vector" if p.n == 1 else "matrix",)
        return Kernel(self.name, program, Apart(self.source, self.beside), self.problem.matrix, "f32", weights)

    # -- plain ----------------------------------------------------------------------------------------------------
    def across_n(self) -> Code:
        """The bias or zeros to `sums`; K four rows of weights at a time; `sums` to dst."""
        k = self.problem.k
        turns, rest = divmod(k, _ROWS)
        code = self.moved(self.first, "sums", "b")
        code += loop("k", turns, self.rows(Affine.var("k") * _ROWS, _ROWS))
        done = turns * _ROWS
        for rows in (2, 1):
            if rest & rows:
                code += loop(f"k{rows}", 1, self.rows(Affine(done), rows))
                done += rows
        return code + self.moved("sums", "dst", "e")

    def moved(self, source: str, target: str, var: str) -> Code:
        """A line of N copied, or cleared where there is no source."""

        def step(at: Affine, lanes: int) -> Code:
            x = _reg("x")
            read = load32(_UNIT, x, source, at, lanes) if source else zero(x)
            return [read, store32(_UNIT, target, at, x, lanes)]

        return loop(f"{var}0", 1, along(self.outputs, _LANES, step, var=var))

    def rows(self, first: Affine, count: int) -> Code:
        """`count` rows of weights times their elements of the source, added up and then to `sums`."""
        n = self.problem.n
        code: Code = [broadcast32(_reg(f"a{i}"), "vector", first + i) for i in range(count)]

        def columns(at: Affine, lanes: int) -> Code:
            found: Code = []
            for start in range(0, lanes, _LANES):
                live = min(_LANES, lanes - start)
                total, part = _reg(f"t{start}"), _reg("p")
                for i in range(count):
                    here = (first + i) * n + at + start
                    found.append(load32(_UNIT, part, "matrix", here, live))
                    found.append(op("vmulps", part if i else total, part, _reg(f"a{i}")))
                    found += [op("vaddps", total, total, part)] if i else []
                found += [load32(_UNIT, part, "sums", at + start, live), op("vaddps", total, total, part)]
                found.append(store32(_UNIT, "sums", at + start, total, live))
            return found

        return code + along(n, 2 * _LANES if count == _ROWS else _LANES, columns, var="v")

    # -- along K --------------------------------------------------------------------------------------------------
    def along_k(self) -> Code:
        turns, rest = divmod(self.outputs, _ROWS)
        code = loop("r", turns, self.dots(Affine.var("r") * _ROWS, _ROWS), parallel=True)
        done = turns * _ROWS
        for rows in (2, 1):
            if rest & rows:
                code += loop(f"r{rows}", 1, self.dots(Affine(done), rows))
                done += rows
        return code

    def dots(self, first: Affine, rows: int) -> Code:
        """`rows` outputs from `first`, summed in lanes, added up and stored with the bias."""
        k = self.problem.k
        code: Code = [zero(_reg(f"c{i}")) for i in range(rows)]

        def step(at: Affine, lanes: int) -> Code:
            found: Code = [load32(_UNIT, _reg("x"), "vector", at, lanes)]
            for i in range(rows):
                found.append(load32(_UNIT, _reg("a"), "matrix", (first + i) * k + at, lanes))
                found += [op("vmulps", _reg("a"), _reg("x"), _reg("a")), op("vaddps", *[_reg(f"c{i}")] * 2, _reg("a"))]
            return found

        code += along(k, _LANES, step, var="k")
        names = [f"c{i}" for i in range(rows)]
        code += folds.four(names) if rows == _ROWS else folds.two(names) if rows == 2 else folds.neighbours("c0")
        total, last = _reg("c0", 4), _reg("a", 4)
        code.append(load32(Unit("avx2", 128), last, "bias", first, rows) if self.first else zero(last))
        return [*code, op("vaddps", total, total, last), store32(Unit("avx2", 128), "dst", first, total, rows)]

    # -- arrays ---------------------------------------------------------------------------------------------------
    def source(self, src: Array) -> dict[str, Array]:
        return {"matrix" if self.problem.n == 1 else "vector": to_a_line(src).reshape(-1)}

    def beside(self, weights: Array, p: Parameters) -> dict[str, Array]:
        """Weights as they lie: a column's elements beside one another unless they are plain."""
        n = self.problem.n
        as_read = weights if self.plain or n == 1 else weights.T
        found = {"vector" if n == 1 else "matrix": np.ascontiguousarray(to_a_line(as_read)).reshape(-1)}
        if p.bias is not None:  # one a column, and with one column all outputs have it
            found["bias"] = np.broadcast_to(np.asarray(p.bias, np.float32).reshape(-1), (self.outputs,)).copy()
        return found
