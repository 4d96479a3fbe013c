"""The sums that every output is: steps of K multiplied, and what zero points and scales along K make of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, loop, op
from simdnn.kernels.common.epilogue import GroupScales, Parameters
from simdnn.kernels.gpu.partition import by_group
from simdnn.kernels.intel_gpu.products import BlockProducts, cleared
from simdnn.kernels.intel_gpu.zero_parts import SourceZeros, ZeroPart
from simdnn.program.records import SCALES, Affine, Register, Tensor


class BlockSums(Protocol):
    """Sums that the epilogue begins with."""

    def code(self) -> Code: ...

    def result(self, i: int, j: int) -> Register:
        """Where the sum of a block stands."""

    def tensors(self) -> list[Tensor]: ...

    def arrays(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]: ...


@dataclass(frozen=True)
class PlainSums:
    """One sum over all of K."""

    products: BlockProducts

    def code(self) -> Code:
        p = self.products
        return [*p.clear(), *p.k_loop(p.partition.steps, p.step(Affine.var("k")))]

    def result(self, i: int, j: int) -> Register:
        return self.products.acc(i, j)

    def tensors(self) -> list[Tensor]:
        return []

    def arrays(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        return {}


@dataclass(frozen=True)
class JoinedSums(PlainSums):
    """Partial sums of `every` products in the accumulators' type (0: one of all of K), each added to one in f32."""

    every: int

    def code(self) -> Code:
        p = self.products
        turns, each, last = p.partition.joined(self.every)
        q = Affine.var("q") * each
        sums = [*loop("q", turns, self.partial(q, each)), *(self.partial(Affine(turns * each), last) if last else [])]
        return [*cleared([self.result(i, j) for i, j in p.partition.cut.pairs]), *sums]

    def partial(self, first: Affine, steps: int) -> Code:
        """A partial sum of some steps from `first` on, into the totals."""
        p = self.products
        code: Code = [*p.clear(), *p.k_loop(steps, p.step(first + Affine.var("k")))]
        for i, j in p.partition.cut.pairs:
            acc, total = p.acc(i, j), self.result(i, j)
            wide = acc if acc.dtype == "f32" else Register("wide", "f32", acc.lanes)
            code += [op(f"mov.f32.{acc.dtype}", wide, acc)] if wide is not acc else []
            code.append(op("add.f32", total, total, wide))
        return code

    def result(self, i: int, j: int) -> Register:
        """The sum in f32 of a block's partial sums."""
        acc = self.products.acc(i, j)
        return Register(f"t_{i}_{j}", "f32", acc.lanes)


@dataclass(frozen=True)
class GroupedSums:
    """A sum for every group of K, less what zero points add; each period of them is scaled and added to totals."""

    products: BlockProducts
    period: int
    scales: GroupScales | None
    zeros: ZeroPart  # of the weights
    source_zeros: SourceZeros | None = None

    @property
    def periods(self) -> int:
        return self.products.partition.k // self.period

    def code(self) -> Code:
        p, zeros = self.products, self.zeros
        q, each = Affine.var("q"), p.partition.parts // self.periods
        g = Affine.var("g") + (q * each if self.periods > 1 else 0)
        steps = p.k_loop(p.partition.inside, zeros.step(g * p.partition.inside + Affine.var("k")))
        opening = [*zeros.opening(g), *(found for part in p.by_group for found in part.opening(g))]
        groups = loop("g", each, [*opening, *steps, *zeros.closing(g), *self.source_part(g, late=False)])
        end = q if self.periods > 1 else Affine()
        ends = [*groups, *self.source_part(end, late=True), *zeros.joined(end), *self.scaled(end)]
        if self.periods == 1:
            return [*zeros.clear(), *zeros.before(), *ends]
        period = [*zeros.clear(), *ends]
        totals = cleared([self.total(i, j) for i, j in p.partition.cut.pairs])
        return [*totals, *zeros.before(), *loop("q", self.periods, period)]

    def source_part(self, g: Affine, late: bool) -> Code:
        """Code that takes the part of the source's zero points from a period, if `late`, or from a group."""
        zeros = self.source_zeros
        return zeros.code(self.zeros, g) if zeros and zeros.late == late else []

    def total(self, i: int, j: int) -> Register:
        """The f32 sum of scaled periods; of one alone, its accumulator."""
        acc = self.products.acc(i, j, "f32")
        return Register(f"t_{i}_{j}", "f32", acc.lanes) if self.periods > 1 else acc

    def result(self, i: int, j: int) -> Register:
        return self.total(i, j) if self.scales else self.products.acc(i, j)

    def scaled(self, q: Affine) -> Code:
        """A period's sums times its scales, into the totals."""
        scales, partition = self.scales, self.products.partition
        if not scales:
            return []
        cut, block, code = partition.cut, partition.cut.block, Code()
        if scales.wei:
            code += [partition.row_of("wei_group_scale", f"ws_{j}", "f32", j, q, self.periods) for j in cut.cols]
        column, size = Register("ss", "f32", block.m), f"{block.m}x{block.n}"
        for i in cut.rows:
            if scales.src:
                code.append(partition.column_of("src_group_scale", column, i, q, self.periods))
            for j in cut.cols:
                x = self.products.acc(i, j, "f32")
                code += [op("mov.f32.s32", x, x.as_("s32"))] if block.acc == "s32" else []
                code += [op(f"mul.f32.{size}.col", x, x, column)] if scales.src else []
                row = Register(f"ws_{j}", "f32", block.n)
                code += [op(f"mul.f32.{size}.row", x, x, row)] if scales.wei else []
                if self.periods > 1:
                    code.append(op("add.f32", self.total(i, j), self.total(i, j), x))
        return code

    def tensors(self) -> list[Tensor]:
        cut, p, found = self.products.partition.cut, self.products, []
        for name, side, size in (
            ("src_group_scale", self.scales and self.scales.src, cut.full_rows),
            ("wei_group_scale", self.scales and self.scales.wei, cut.batch.products("columns") * cut.full_columns),
        ):
            found += [Tensor(name, "f32", size * self.periods, role=SCALES)] if side else []
        found += [*(table for part in p.by_group for table in part.tables()), *self.zeros.tensors()]
        return found + (self.source_zeros.tensors() if self.source_zeros else []) + self.zeros.constants()

    def arrays(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        partition, inputs = self.products.partition, self.zeros.arrays(src, weights, parameters)
        cut = partition.cut
        if self.source_zeros:
            inputs |= self.source_zeros.arrays(src, weights, parameters)
        if self.scales and self.scales.src:
            table = by_group(parameters.src_group_scale, (cut.m, self.periods), 1)
            inputs["src_group_scale"] = partition.columns_of(table, "f32")
        if self.scales and self.scales.wei:
            table = by_group(parameters.wei_scale, (self.periods, cut.n), 0)
            inputs["wei_group_scale"] = partition.rows_of(table, "f32")
        return inputs
