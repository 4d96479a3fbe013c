"""GEMM of integers on Intel GPUs with zero points or scales that change along K.

for each period of K with its own scales:       (one, and no totals, where scales do not change along K)
    for each group of zero points:
        for each step of K:                     load, multiply
        what the group's end takes from the sums
    to f32, times the source's scale, times the weights'; added to the totals

Groups are filled up with zeros to whole steps. Every group of scales is scaled by both, the source's first, and groups
are added up in order, each step rounded to f32: the bits of `ref_int8` on CPUs.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from isa_models import GpuMachine
from isa_models.formats import fmt
from isa_models.intel_gpu.packing import pack_a, pack_b
from isa_models.readings.arrays import Array
from simdnn.kernels.common.batch import SIDES
from simdnn.kernels.common.code import Code, loop, op
from simdnn.kernels.common.spec import Parameters
from simdnn.kernels.intel_gpu.gemm import GpuGemm, GpuMatmulProblem
from simdnn.kernels.intel_gpu.tile import Budget
from simdnn.program.check import verify
from simdnn.program.records import Affine, Memory, Op, Program, Register, Tensor

_SCALES = 16  # GRFs that a period's scales take


class GpuGroupedGemm(GpuGemm):
    """The generator for one problem with `zero_points`, `group_scales` or both; this class alone has the scales."""

    def __init__(
        self, problem: GpuMatmulProblem, machine: GpuMachine, budget: Budget | None = None, group: int = 0
    ) -> None:
        zeros, scales, budget = problem.zero_points, problem.group_scales, budget or Budget()
        self.period = scales.group if scales else problem.k
        self.group = group or (zeros.group if zeros else self.period)
        self.periods = problem.k // self.period
        if scales:
            budget = replace(budget, registers=budget.registers + _SCALES, copies=budget.copies + (self.periods > 1))
        super().__init__(problem, machine, budget)
        self.parts = problem.k // self.group
        self.inside = -(-self.group // self.block.k)  # steps of a group, which is filled up with zeros
        self.steps = self.parts * self.inside

    # -- program --------------------------------------------------------------------------------------------------
    @cached_property
    def program(self) -> Program:
        q, each = Affine.var("q"), self.parts // self.periods
        g = Affine.var("g") + (q * each if self.periods > 1 else 0)
        steps = self.k_loop(self.inside, self.step(g * self.inside + Affine.var("k")))
        groups = loop("g", each, [*self.opening(g), *steps, *self.closing(g)])
        if self.periods > 1:
            period = [*self.clear(), *groups, *self.joined(q), *self.scaled(q)]
            body = [*self.clear_totals(), *self.before(), *loop("q", self.periods, period)]
        else:
            body = [*self.clear(), *self.before(), *groups, *self.joined(Affine()), *self.scaled(Affine())]
        p = self.problem
        text = f"{self.name} {p.m}x{p.k}:{p.k}x{p.n} {p.src}:{p.wei}:{p.epilogue.dst} {p.zero_points or ''}"
        code = self.nest([*body, *self.epilogue()])
        return verify(Program(text, self.machine.platform.name, tuple(self.tensors()), tuple(code)))

    def before(self) -> Code:
        """What stands before all loops."""
        return []

    def opening(self, g: Affine) -> Code:
        """What stands before the steps of a group."""
        return []

    def closing(self, g: Affine) -> Code:
        """What a group's end takes from the sums."""
        return []

    def joined(self, q: Affine) -> Code:
        """What is left to do to the sums of a period."""
        return []

    # -- scales ---------------------------------------------------------------------------------------------------
    def total(self, i: int, j: int) -> Register:
        """The f32 sum of scaled periods; of one alone, its accumulator."""
        name = f"t_{i}_{j}" if self.periods > 1 else self.acc(i, j).name
        return Register(name, "f32", self.block.m * self.block.n)

    def clear_totals(self) -> Code:
        bits = [self.total(i, j).as_("u32") for i in range(self.tile.rows) for j in range(self.tile.cols)]
        return [op("xor.u32", register, register, register) for register in bits]

    def scaled(self, q: Affine) -> Code:
        """A period's sums times its scales, into the totals."""
        scales = self.problem.group_scales
        if not scales:
            return []
        code: Code = []
        if scales.wei:
            code += [self.row_of("wei_group_scale", f"ws_{j}", "f32", j, q, self.periods) for j in self.cols]
        column = Register("ss", "f32", self.block.m)
        for i in self.rows:
            if scales.src:
                code.append(self.column_of("src_group_scale", column, i, q, self.periods))
            for j in self.cols:
                x = self.acc(i, j, "f32")
                code += [op("mov.f32.s32", x, x.as_("s32"))] if self.block.acc == "s32" else []
                code += [op(f"mul.f32.{self.size}.col", x, x, column)] if scales.src else []
                row = Register(f"ws_{j}", "f32", self.block.n)
                code += [op(f"mul.f32.{self.size}.row", x, x, row)] if scales.wei else []
                if self.periods > 1:
                    code.append(op("add.f32", self.total(i, j), self.total(i, j), x))
        return code

    def result(self, i: int, j: int) -> Register:
        """Where the sums stand before the epilogue."""
        return self.total(i, j) if self.problem.group_scales else self.acc(i, j)

    @property
    def pairs(self) -> int:
        """Rows of B that lie side by side where its elements have 16 bits: two of DPAS's, one of the vector pipe's."""
        return 1 if self.block.unit == "mad" else 2

    # -- tables by group ------------------------------------------------------------------------------------------
    @property
    def rows(self) -> range:
        return range(self.tile.rows)

    @property
    def cols(self) -> range:
        return range(self.tile.cols)

    def row_of(self, tensor: str, register: str, dtype: str, j: int, g: Affine, parts: int, copies: int = 1) -> Op:
        """Group `g`'s values for the columns of a block."""
        n = self.block.n * copies
        product = self.problem.batch.at(SIDES.get(tensor, "columns"))
        block = self.tile.col(j) + product * self.col_blocks
        place = Memory(tensor, (block * parts + g) * n, dtype, n)
        return op(f"load.{dtype}", Register(register, dtype, n), place)

    def column_of(self, tensor: str, register: Register, i: int, g: Affine, parts: int) -> Op:
        """Group `g`'s values for the rows of a block."""
        product, dtype = self.problem.batch.at(SIDES.get(tensor, "rows")), register.dtype
        block = self.tile.row(i) + product * self.row_blocks
        return op(f"load.{dtype}", register, Memory(tensor, (block * parts + g) * self.block.m, dtype, self.block.m))

    def tensors(self) -> list[Tensor]:
        scales, found, columns = self.problem.group_scales, super().tensors(), self.problem.batch.products("columns")
        for name, side, size in (
            ("src_group_scale", scales and scales.src, self.row_blocks * self.block.m),
            ("wei_group_scale", scales and scales.wei, columns * self.col_blocks * self.block.n),
        ):
            found += [Tensor(name, "f32", size * self.periods)] if side else []
        return found

    # -- arrays ---------------------------------------------------------------------------------------------------
    def prepare(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        p, inputs = self.problem, super().prepare(src, weights, parameters)
        if p.group_scales and p.group_scales.src:
            table = by_group(parameters.src_group_scale, (p.m, self.periods), 1)
            inputs["src_group_scale"] = self.columns_of(table, "f32")
        if p.group_scales and p.group_scales.wei:
            inputs["wei_group_scale"] = self.rows_of(by_group(parameters.wei_scale, (self.periods, p.n), 0), "f32")
        return inputs

    def rows_of(self, values: Array, dtype: str, copies: int = 1) -> Array:
        """(groups, columns) as (column blocks, groups, block's columns, copies)."""
        parts, width = len(values), self.block.n
        full = np.zeros((parts, self.col_blocks * width), values.dtype)
        full[:, : values.shape[1]] = values
        blocks = full.reshape(parts, self.col_blocks, width).swapaxes(0, 1)
        return np.repeat(blocks.reshape(-1), copies).astype(fmt(dtype).dtype)

    def columns_of(self, values: Array, dtype: str) -> Array:
        """(rows, groups) as (row blocks, groups, block's rows); sums wrap to s32."""
        parts = values.shape[1]
        full = np.zeros((self.row_blocks * self.block.m, parts), values.dtype)
        full[: self.problem.m] = values
        blocks = full.reshape(self.row_blocks, self.block.m, parts).swapaxes(1, 2)
        return np.ascontiguousarray(blocks).astype(fmt(dtype).dtype).reshape(-1)

    def blocks_of_a(self, src: Array) -> Array:
        return pack_a(self.grouped_a(src), self.block.src)

    def blocks_of_b(self, weights: Array) -> Array:
        return pack_b(self.grouped_b(weights), self.block.wei)

    def grouped_a(self, src: Array, fill: Array | int = 0) -> Array:
        """The source as (row blocks, steps, rows, k); groups are filled up with `fill` (rows, groups, 1)."""
        b, p = self.block, self.problem
        full = np.zeros((self.row_blocks * b.m, self.parts, self.inside * b.k), src.dtype)
        full[: p.m] = fill
        full[: p.m, :, : self.group] = src.reshape(p.m, self.parts, -1)
        return full.reshape(self.row_blocks, b.m, self.steps, b.k).swapaxes(1, 2)

    def grouped_b(self, weights: Array, fill: Array | int = 0) -> Array:
        """The weights as (column blocks, steps, k, columns); groups are filled up with `fill` (groups, 1, columns)."""
        b, p = self.block, self.problem
        full = np.zeros((self.parts, self.inside * b.k, self.col_blocks * b.n), weights.dtype)
        full[:, :, : p.n] = fill
        full[:, : self.group, : p.n] = weights.reshape(self.parts, -1, p.n)
        return full.reshape(self.steps, b.k, self.col_blocks, b.n).transpose(2, 0, 1, 3)


def load_narrow(
    name: str, tensor: str, block: Affine, dtype: str, lanes: int, first: str = ""
) -> tuple[Register, Code]:
    """A block of bytes or nibbles as words: the register with `name`, and its code. `first`: what bytes go to."""
    wide = Register(name, "s16", lanes)
    stored = Register(f"{first or name}_stored", stored_type(dtype), lanes * fmt(dtype).bits // 8)
    place = Memory(tensor, block * stored.lanes, stored.dtype, stored.lanes)
    return wide, [op(f"load.{stored.dtype}", stored, place), op(f"mov.s16.{dtype}", wide, stored)]


def in_pairs(blocks: Array, pairs: int) -> Array:
    """(…, k, columns) with so many rows side by side."""
    *outer, k, n = blocks.shape
    return blocks.reshape(*outer, k // pairs, pairs, n).swapaxes(-1, -2)


def stored_type(dtype: str) -> str:
    """Nibbles lie in bytes."""
    return dtype if fmt(dtype).bits == 8 else "u8"


def stored(elements: Array, dtype: str) -> Array:
    """Integers one behind the other, as they lie in memory: of 4 bits two in a byte, the first one low."""
    flat = np.ascontiguousarray(elements).reshape(-1).astype(np.int64)
    if fmt(dtype).bits == 8:
        return flat.astype(fmt(dtype).dtype)
    return ((flat[0::2] & 15) | ((flat[1::2] & 15) << 4)).astype(np.uint8)


def by_group(values: Array | None, size: tuple[int, int], axis: int) -> Array:
    """A table with fewer groups repeated along them; zeros where there is none."""
    if values is None:
        return np.zeros(size, np.int64)
    wide = values if values.dtype.kind == "f" else values.astype(np.int64)
    return np.broadcast_to(np.repeat(wide, size[axis] // values.shape[axis], axis=axis), size)
