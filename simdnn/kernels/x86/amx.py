"""GEMM and convolution on AMX tiles: what a block of rows and a panel of columns become on the eight tile registers.

    configure the tiles, once: every block of a program has the same rows
    for each block of up to two tiles of rows, each panel of up to four tiles of columns:
        clear the accumulators; for each tap, for each 64 bytes of channels:
            load the tiles of rows, and one tile of columns after the other with its products
        store the accumulators: to dst where nothing is left to do, else to a buffer, and from there
        epilogue, store, a few rows at a time in vector registers (epilogue.py)

Rows of a tile are neighbouring outputs; a row is 64 bytes of channels, filled up with zeros where there are fewer. Sums
stay in tiles over the whole of K.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from isa_models.instruction import TILE_ROW_BITS, TILE_ROWS
from simdnn.kernels.common.code import Code, Unit, fill_zero, load32, loop, op, zero
from simdnn.kernels.common.spec import Kernel, Problem
from simdnn.kernels.x86.blocking import Blocking
from simdnn.kernels.x86.decompress import CompressedGemm
from simdnn.kernels.x86.dots import BF16, VNNI, Dot
from simdnn.kernels.x86.epilogue import Tile, finish_tile
from simdnn.kernels.x86.gemm import Gemm, Options
from simdnn.kernels.x86.tile import Panel, Part
from simdnn.program.records import Affine, Memory, Op, Register, Tensor
from simdnn.program.tiles import TILES, configuration

_COLUMNS = TILE_ROW_BITS // 32  # of an accumulator
_STEPS = TILE_ROWS  # doublewords of channels in a row
_MOST_ACCUMULATORS = 4
_VECTORS = 16  # registers that hold sums in the epilogue
_SECOND_LEVEL = 1024 * 1024  # half the L2 of the CPUs that have tiles
_SUMS = "sums"


def _row_sum_s8(unit: Unit, acc: str, a: str, b: str, temp: str) -> list[Op]:
    total = unit.reg(acc, "s32")
    return [op("vpdpbusd", total, total, unit.reg(b, "u8"), unit.reg(a, "s8"))]  # b holds ones


def _dot(instruction: str, src: str, wei: str, like: Dot) -> Dot:
    """`emit` is that of `like` and sums up the rows of an integer source, where there is a weights zero point."""
    return Dot(instruction, src, wei, wei, like.depth, like.acc, wei, like.emit, whole=_STEPS * like.depth)


TILED_BF16 = _dot("tdpbf16ps", "bf16", "bf16", BF16)
TILED_F16 = _dot("tdpfp16ps", "f16", "f16", BF16)
TILED_U8 = _dot("tdpbusd", "u8", "s8", VNNI)
TILED_S8 = replace(_dot("tdpbssd", "s8", "s8", VNNI), emit=_row_sum_s8)


def even_parts(k: int) -> int:
    """The length of equal, even parts of K that are as few as parts of 32 would be; 0 where there are none such.

    >>> even_parts(52), even_parts(80), even_parts(64)
    (26, 0, 0)
    """
    parts = -(-k // 32)
    return k // parts if k % (2 * parts) == 0 and k % 32 and parts > 1 else 0


class TiledGemm(Gemm):
    """The generator for one problem; `accumulation` is the order in which the machine adds up a row's products."""

    def __init__(
        self, name: str, problem: Problem, unit: Unit, dot: Dot, accumulation: str, options: Options | None = None
    ) -> None:
        super().__init__(name, problem, unit, dot, options or Options())
        self.accumulation = accumulation

    @cached_property
    def blocking(self) -> Blocking:
        """Two tiles of rows and up to two of columns; of few rows one tile, and up to four of columns."""
        columns = -(-self.oc // _COLUMNS)
        if self.rows <= TILE_ROWS:
            return Blocking(self.rows, min(_MOST_ACCUMULATORS, columns))
        blocks = -(-self.rows // (2 * TILE_ROWS))
        return Blocking(-(-self.rows // blocks), min(2, columns))

    @cached_property
    def row_blocks(self) -> list[tuple[int, int, int]]:
        """All of one height, as tiles are configured once: the last block computes some rows a second time."""
        height = self.blocking.rows
        count, rest = divmod(self.rows, height)
        return [(0, height, count), *([(self.rows - height, height, 1)] if rest else [])]

    @property
    def second_level(self) -> int:
        return _SECOND_LEVEL

    @cached_property
    def heights(self) -> tuple[int, ...]:
        """Rows of each tile of a block."""
        rows = self.blocking.rows
        return (rows,) if rows <= TILE_ROWS else (TILE_ROWS, rows - TILE_ROWS)

    # -- tile registers: accumulators, tiles of rows, tiles of columns in turn ----------------------------------------
    def accumulator(self, i: int, j: int, dtype: str) -> Register:
        return Register(TILES[i * self.blocking.vectors + j], "u32", self.heights[i] * _COLUMNS).as_(dtype)

    def of_rows(self, i: int, dtype: str) -> Register:
        first = len(self.heights) * self.blocking.vectors
        return Register(TILES[first + i], "u32", self.heights[i] * _STEPS).as_(dtype)

    def of_columns(self, j: int, dtype: str) -> Register:
        left = TILES[len(self.heights) * (self.blocking.vectors + 1) :]
        return Register(left[j % len(left)], "u32", TILE_ROWS * _COLUMNS).as_(dtype)

    def setup(self) -> Code:
        data = Memory("tiles", Affine(), "u8", TILE_ROW_BITS // 8)
        return [op("ldtilecfg", Register("tilecfg", "u8", data.lanes), data)]

    def configuration(self) -> bytes:
        rows = [height for height in self.heights for _ in range(self.blocking.vectors)] + list(self.heights)
        return configuration([*rows, *[TILE_ROWS] * (len(TILES) - len(rows))])

    def tensors(self) -> list[Tensor]:
        found = [*super().tensors(), Tensor.constant("tiles", "u8", self.configuration())]
        if any(self.buffered(panel) for _, panel in self.panels()):
            found.append(Tensor(_SUMS, self.dot.acc, self.blocking.rows * self.blocking.vectors * _COLUMNS, "private"))
        return found

    # -- one block of rows times one panel ----------------------------------------------------------------------------
    def tile(
        self, panel: Panel, sources: Sequence[Affine], position: Sequence[Affine], numbers: Sequence[Affine]
    ) -> list[Part]:
        columns, first = range(panel.vectors), [sum(self.heights[:i]) for i in range(len(self.heights))]
        clear: Code = []
        store: Code = []
        buffered = self.buffered(panel)
        width = panel.vectors * _COLUMNS
        for i, at in enumerate(first):
            for j in columns:
                bits = self.accumulator(i, j, "u32")
                clear.append(op("tilezero", bits, bits))
                if j in buffered:
                    place = self.rows_at(i, _SUMS, Affine(at * width + j * _COLUMNS), width)
                else:
                    place = self.rows_at(i, "dst", numbers[at] * self.conv.oc + panel.dst + j * _COLUMNS, self.conv.oc)
                store.append(op("tilestored", place, bits))
        code = [*clear, *self.products(panel, [sources[at] for at in first]), *store]
        return [Part("part", 1, code + self.finish_rows(panel, buffered, position[0], numbers[0]))]

    def rows_at(self, i: int, tensor: str, index: Affine, stride: int) -> Memory:
        """Tile i's rows of a matrix."""
        return Memory(tensor, index, "u32", self.heights[i] * _COLUMNS, self.heights[i], stride)

    def products(self, panel: Panel, sources: Sequence[Affine]) -> Code:
        """The accumulators over all taps and channels."""
        ((chain,),) = (repeat.chains for repeat in self.sums(panel.step))
        rows, weights = chain.at(sources, panel.base)
        dot, k = self.dot, Affine.var("k")
        choices = (("accumulation", self.accumulation),) if dot.acc == "f32" else ()
        body: Code = []
        for i, row in enumerate(rows):
            at = row + k * (_STEPS * dot.depth)
            body.append(
                op("tileloadd", self.of_rows(i, "u32"), self.rows_at(i, self.reading.tensor, at, self.reading.column))
            )
        for j in range(panel.vectors):
            at = weights + k * (_STEPS * panel.step) + j * _COLUMNS * dot.depth
            whole = Memory(panel.tensor, at, "u32", TILE_ROWS * _COLUMNS, TILE_ROWS, panel.step)
            body.append(op("tileloadd", self.of_columns(j, "u32"), whole))
            for i in range(len(rows)):
                total = self.accumulator(i, j, dot.acc)
                operands = (total, self.of_rows(i, dot.src), self.of_columns(j, dot.wei))
                body.append(Op(dot.name, total, operands, (), choices))
        return chain.around(loop("k", chain.steps // _STEPS, body))

    # -- from the accumulators to dst ---------------------------------------------------------------------------------
    def buffered(self, panel: Panel) -> list[int]:
        """The tiles of columns that cannot be stored to dst as they are."""
        if self.stored_as_is:
            return [j for j, lanes in enumerate(panel.lanes) if lanes < _COLUMNS]
        return list(range(panel.vectors))

    @cached_property
    def stored_as_is(self) -> bool:
        """Whether an accumulator is what dst wants: nothing but a store in the epilogue."""
        acc = self.unit.reg("c0_0", self.dot.acc)
        tile = Tile(self.unit, [[acc]], [_COLUMNS], [Affine()], Affine(), [Affine()])
        return self.conv.epilogue.dst == self.dot.acc and len(finish_tile(self.plan, tile)) == 1 and not self.rowsum

    @property
    def rowsum(self) -> bool:
        return self.conv.epilogue.zp_wei

    def finish_rows(self, panel: Panel, columns: Sequence[int], position: Affine, number: Affine) -> Code:
        """The epilogue of the tiles of columns named, from the buffer, as many rows at a time as registers hold."""
        if not columns:
            return []
        together = min(self.blocking.rows, max(1, _VECTORS // len(columns)))
        turns, rest = divmod(self.blocking.rows, together)
        first = Affine.var("e") * together
        code = loop("e", turns, self.finish_group(panel, columns, first, together, position, number))
        last = Affine(turns * together)
        return code + (self.finish_group(panel, columns, last, rest, position, number) if rest else [])

    def finish_group(
        self, panel: Panel, columns: Sequence[int], first: Affine, count: int, position: Affine, number: Affine
    ) -> Code:
        """`count` rows from row `first` of the block; `position` and `number` are those of the block's first row."""
        unit, width = self.unit, panel.vectors * _COLUMNS
        rows, skipped = range(count), columns[0] * _COLUMNS
        registers = [[unit.reg(f"c{i}_{j}", self.dot.acc) for j in columns] for i in rows]
        load: Code = []
        for i in rows:
            at = (first + i) * width
            load += [
                load32(unit, register.as_("u32"), _SUMS, at + j * _COLUMNS, _COLUMNS)
                for j, register in zip(columns, registers[i], strict=True)
            ]
        numbers = [number + first + i for i in rows]
        beside = self.conv.groups * self.layout.channels
        tile = Tile(
            unit,
            registers,
            [panel.lanes[j] for j in columns],
            [n * self.conv.oc + panel.dst + skipped for n in numbers],
            panel.channel + skipped,
            [position + (first + i) * beside + panel.channel + skipped for i in rows],
            numbers,
        )
        return load + finish_tile(self.plan, tile, self.rowsum)

    def kernel(self) -> Kernel:
        return replace(super().kernel(), accumulation=self.accumulation if self.dot.acc == "f32" else "")


class TiledCompressedGemm(TiledGemm, CompressedGemm):
    """GEMM on tiles over compressed weights, or over f32 weights that the program itself rounds."""

    def expand(self, panel: Panel, number: Affine) -> Code:
        """And zeros in the buffer, from the last pair of rows to a whole tile."""
        row = panel.vectors * _COLUMNS * self.dot.depth
        filled = -(-self.matmul.k // self.dot.depth)
        missing = self.layout.icp // self.dot.depth - filled
        code = super().expand(panel, number)
        if not missing:
            return code
        clear: Code = [zero(self.unit.reg("z"))]
        return [
            *clear,
            *fill_zero(self.unit, panel.tensor, self.dot.wei, panel.base + filled * row, missing * row, "f", "z"),
            *code,
        ]
