"""A matmul of f32 as the GEMM that oneDNN 3.13 has for AVX2 forms it without copies (`jit_avx_gemm_f32.cpp`): the
order of a sum goes by where its output lies (docs/numerics.md, rule 17).

K in pieces of 256, what is left under two of them in halves; each piece is summed from zero and added to the total
for each block of rows (48, or 96 where weights lie along K) and of columns (4032), tiles of 6 x 16
    elsewhere        one chain of fused multiply-adds
    last tile small  even products and odd ones apart, then the two added; the last of an odd number joins that sum
    up to two rows   the same of products that are rounded
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from isa_models.readings.arrays import Array, to_a_line
from simdnn.kernels.common.activations import is_formula
from simdnn.kernels.common.code import Code, loop, op, pieces
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.kernel import Apart, Kernel
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.kernels.x86.code import Unit, broadcast32, load32, store32, zero
from simdnn.kernels.x86.epilogue import Plan, TileSums, add_parts, finish_tile
from simdnn.program.check import verify
from simdnn.program.records import SOURCE, WEIGHTS, Affine, Program, Register, Tensor

_UNIT = Unit("avx2", 256)
_LANES = _UNIT.lanes
_DEPTH, _COLUMNS, _ROWS = 256, 4032, {False: 48, True: 96}  # of a block, rows by whether weights lie along K
_WIDE, _HIGH = 16, 6  # columns and rows of a tile
_FEW_COLUMNS, _FEW_ROWS, _ROUNDED = 8, 3, 2  # of a last tile with two sums, and rows whose products are rounded


def parts(size: int, most: int, half: int = 2) -> list[tuple[int, int]]:
    """The first and the size of each part: of `most`, and of what is left under two, the halves of what is greater
    than one and a `half`th.

    >>> parts(700, 48)[-3:], parts(300, 256, 1)
    ([(576, 48), (624, 38), (662, 38)], [(0, 150), (150, 150)])
    """
    found, first = [], 0
    while first < size:
        left = size - first
        whole = most + (most // half if half > 1 else 0)
        part = most if left >= 2 * most else (left + 1) // 2 if left > whole else left
        found.append((first, part))
        first += part
    return found


@dataclass(frozen=True)
class TileRun:
    """`times` tiles of `size` rows or columns from `first` on; `split`: their sums are two."""

    first: int
    times: int
    size: int
    split: bool


def tiles(size: int, most: int, tile: int, few: int) -> Iterator[TileRun]:
    """Tiles of blocks of `most`, the last one of each split where it is no larger than `few`."""
    for first, part in parts(size, most):
        times, rest = divmod(part, tile)
        if times:
            yield TileRun(first, times, tile, False)
        if rest:
            yield TileRun(first + times * tile, 1, rest, rest <= few)


class OlderGemm:
    """The generator for one problem; `sum_first`: what the destination held is added to the first piece's sum."""

    def __init__(self, name: str, problem: MatmulProblem) -> None:
        self.name, self.problem = name, problem
        self.along_k = problem.wei_tag == "ba"
        self.whole = Plan(problem.epilogue, integer=False, merged_scales=True)
        e = problem.epilogue
        sums = self.whole.sums_first and not e.bias and not (e.src_scale or e.wei_scale)
        self.held = ("sum",) if sums else ()
        self.plan = self.whole.without(self.held)
        self.most = 2 if any(map(is_formula, e.post_ops)) else _HIGH  # rows at a time: formulas want registers

    @cached_property
    def columns(self) -> int:
        """Columns of parameters, as far as a register reads."""
        return self.problem.n + _WIDE

    @cached_property
    def program(self) -> Program:
        p = self.problem
        code = self.turned() if self.along_k else []
        for across in tiles(p.n, _COLUMNS, _WIDE, _FEW_COLUMNS):
            for down in tiles(p.m, _ROWS[self.along_k], _HIGH, _FEW_ROWS):
                for times, first, height in pieces("i", down.size, self.most):
                    body = self.tile(down, first, height, across)
                    body = loop("i", times, body)
                    code += loop("r", down.times, loop("j", across.times, body, parallel=True), parallel=True)
        return verify(Program(f"{self.name} {p}", _UNIT.isa, tuple(self.tensors()), tuple(code)))

    def tensors(self) -> list[Tensor]:
        p = self.problem
        several = p.k > _DEPTH
        return [
            Tensor("src", "f32", p.m * p.k, role=SOURCE),
            Tensor("wei", "f32", p.k * p.n, role=WEIGHTS),
            *([Tensor("turned", "f32", p.k * p.n, "scratch")] if self.along_k else []),
            *([Tensor("total", "f32", p.m * p.n, "scratch")] if several else []),
            *self.whole.tensors(_UNIT, self.columns, 1, p.m * p.n),
            Tensor("dst", p.epilogue.dst, p.m * p.n, "output"),
        ]

    def turned(self) -> Code:
        """Weights that lie along K, brought to rows of columns."""
        p, x = self.problem, _reg("x")
        k, n = Affine.var("k"), Affine.var("n")
        move: Code = [load32(_UNIT, x, "wei", n * p.k + k, 1), store32(_UNIT, "turned", k * p.n + n, x, 1)]
        return loop("n", p.n, loop("k", p.k, move), parallel=True)

    def tile(self, down: TileRun, first: Affine, height: int, across: TileRun) -> Code:
        """Some rows of a tile by its columns, from nothing to the destination."""
        p = self.problem
        row = Affine.var("r") * down.size + down.first + first
        column = Affine.var("j") * across.size + across.first
        lanes = [min(_LANES, across.size - j) for j in range(0, across.size, _LANES)]
        rows = (row * p.n + column).steps(p.n, height)
        sums = [[_reg(f"c{i}_{j}") for j in range(len(lanes))] for i in range(height)]
        tile = TileSums(_UNIT, sums, lanes, rows, column, rows)
        split, rounded = down.split or across.split, down.split and down.size <= _ROUNDED
        code: Code = []
        several = parts(p.k, _DEPTH, 1)
        for number, (at, depth) in enumerate(several):
            products = _Products(self, tile, row, column, at)
            code += products.apart(depth, rounded) if split and depth > 1 else products.chain(depth, rounded)
            code += add_parts(self.whole, tile, self.held) if not number else products.joined()
            code += products.kept() if number + 1 < len(several) else finish_tile(self.plan, tile)
        return code

    # -- arrays ---------------------------------------------------------------------------------------------------
    def kernel(self) -> Kernel:
        return Kernel(self.name, self.program, Apart(self.source, self.beside), self.problem.matrix, "f32", ("wei",))

    def source(self, src: Array) -> dict[str, Array]:
        return {"src": to_a_line(src).reshape(-1)}

    def beside(self, weights: Array, given: Parameters) -> dict[str, Array]:
        as_read = weights.T if self.along_k else weights
        found = {"wei": to_a_line(as_read).reshape(-1), **self.whole.inputs(given, self.spread)}
        wanted = {t.name for t in self.program.tensors if t.kind == "input"}
        return {name: np.ascontiguousarray(values) for name, values in found.items() if name in wanted}

    def spread(self, values: Array) -> Array:
        found = np.zeros(self.columns, values.dtype)
        found[: self.problem.n] = values
        return found


@dataclass(frozen=True)
class _Products:
    """The sums of one tile over a piece of K from `at` on."""

    of: OlderGemm
    tile: TileSums
    row: Affine
    column: Affine
    at: int

    def step(self, sums: str, k: Affine, rounded: bool) -> Code:
        """The products of one k added to the registers that are named so."""
        p, code = self.of.problem, Code()
        weights = "turned" if self.of.along_k else "wei"
        for j, lanes in enumerate(self.tile.lanes):
            code.append(load32(_UNIT, _reg(f"b{j}"), weights, k * p.n + self.column + j * _LANES, lanes))
        for i in range(len(self.tile.registers)):
            code.append(broadcast32(_reg("a"), "src", (self.row + i) * p.k + k))
            for j in range(len(self.tile.lanes)):
                acc, w = _reg(f"{sums}{i}_{j}"), _reg(f"b{j}")
                if rounded:
                    code += [op("vmulps", _reg("p"), _reg("a"), w), op("vaddps", acc, acc, _reg("p"))]
                else:
                    code.append(op("vfmadd231ps", acc, acc, _reg("a"), w))
        return code

    def zeros(self, sums: str) -> Code:
        return [zero(_reg(f"{sums}{i}_{j}")) for i, j in self.places()]

    def places(self) -> list[tuple[int, int]]:
        return [(i, j) for i in range(len(self.tile.registers)) for j in range(len(self.tile.lanes))]

    def chain(self, depth: int, rounded: bool) -> Code:
        return [*self.zeros("c"), *loop("k", depth, self.step("c", Affine.var("k") + self.at, rounded))]

    def apart(self, depth: int, rounded: bool) -> Code:
        """Even products and odd ones, then both, then the last of an odd number."""
        k = Affine.var("k") * 2 + self.at
        pair = [*self.step("c", k, rounded), *self.step("d", k + 1, rounded)]
        code = [*self.zeros("c"), *self.zeros("d"), *loop("k", depth // 2, pair)]
        code += [op("vaddps", _reg(f"c{i}_{j}"), _reg(f"c{i}_{j}"), _reg(f"d{i}_{j}")) for i, j in self.places()]
        return code + (self.step("c", Affine(self.at + depth - 1), rounded) if depth % 2 else [])

    def joined(self) -> Code:
        """The total of the pieces before added."""
        code: Code = []
        for i, j in self.places():
            at = self.tile.row_index[i] + j * _LANES
            acc = _reg(f"c{i}_{j}")
            code += [load32(_UNIT, _reg("p"), "total", at, self.tile.lanes[j]), op("vaddps", acc, acc, _reg("p"))]
        return code

    def kept(self) -> Code:
        return [
            store32(_UNIT, "total", self.tile.row_index[i] + j * _LANES, _reg(f"c{i}_{j}"), self.tile.lanes[j])
            for i, j in self.places()
        ]


def _reg(name: str) -> Register:
    return Register(name, "f32", _LANES)
