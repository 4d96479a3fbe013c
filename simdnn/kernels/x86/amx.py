"""GEMM and convolution on AMX tiles: what a block of rows and a panel of columns become on the eight tile registers.

    configure the tiles, once: every block of a program has the same rows
    for each block of up to two tiles of rows, each panel of up to four tiles of columns:
        clear the accumulators; for each tap, for each 64 bytes of channels:
            load the tiles of rows, and one tile of columns after the other with its products
        store the accumulators: to dst where nothing is left to do, else to a buffer, and from there
        epilogue, store, a few rows at a time in vector registers (epilogue.py)

Rows of a tile are neighbouring outputs; a row is 64 bytes of channels, filled up with zeros where there are fewer. Sums
stay in tiles over a whole chain; those of several chains are added up in a buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial

from isa_models import Machine
from isa_models.formats import fmt
from isa_models.instruction import TILE_ROW_BITS, TILE_ROWS
from isa_models.machines.cpu_record import AMX_ACCUMULATIONS
from simdnn.kernels.common.code import Code, along, loop, op
from simdnn.kernels.common.problems import Problem
from simdnn.kernels.common.sums import Options
from simdnn.kernels.x86.code import Unit, fetch, load32, store32
from simdnn.kernels.x86.compensation import Compensation, compensated
from simdnn.kernels.x86.decompress import PanelWeights
from simdnn.kernels.x86.dots import BF16, VNNI, Dot
from simdnn.kernels.x86.epilogue import Plan, TileSums, finish_tile
from simdnn.kernels.x86.gemm import Gemm, epilogue_of
from simdnn.kernels.x86.product import PanelBlocks, Product, panels_of
from simdnn.kernels.x86.reduction import Chains
from simdnn.kernels.x86.tile import Chain, Panel, TilePart, turns
from simdnn.kernels.x86.weights import PackedWeights
from simdnn.program.records import Affine, Memory, Op, Register, Steps, Tensor
from simdnn.program.tiles import TILES, configuration

_COLUMNS = TILE_ROW_BITS // 32  # of an accumulator
_STEPS = TILE_ROWS  # doublewords of channels in a row
_MOST_ACCUMULATORS = 4
_VECTORS = 16  # registers that hold sums in the epilogue
_LINE = 64  # bytes of a cache's line
_SECOND_LEVEL = 1024 * 1024  # half the L2 of the CPUs that have tiles
_FIRST_LEVEL, _TOGETHER = 40 * 1024, 32 * 1024  # of their first cache, beside a few rows, and beside a few lines
_SUMS, _EARLIER = "sums", "earlier"


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


def accumulation_of(machine: Machine | None) -> str:
    """The order in which a machine's tile products are added up."""
    return machine.amx_accumulation if machine else AMX_ACCUMULATIONS[0]


def tiled_gemm(
    name: str,
    problem: Problem,
    unit: Unit,
    dot: Dot,
    accumulation: str,
    options: Options,
    compressed: bool,
) -> Gemm:
    """A matmul or a convolution on tiles; `compressed`: each panel's weights are decompressed before its tiles, or
    rounded by the program.
    """
    product = Product(name, problem, unit, dot, options)
    return tiled(product, accumulation, panels=PanelWeights if compressed else None)


def tiled(
    product: Product,
    accumulation: str,
    tiles: type[AmxTiles] | None = None,
    panels: type[PanelWeights] | None = None,
) -> Gemm:
    """The nest of a product on `tiles`, those of this module where none are given; its weights are in the kernel's own
    layout, or come by `panels`.
    """
    blocks, sums = in_tiles(product), Chains(product)
    compensation = Compensation(product, blocks.layout, "" if panels else compensated(product))
    weights: PackedWeights | PanelWeights
    if panels:
        weights = panels(product, blocks)
        plan = weights.decompressor.epilogue()
    else:
        weights, plan = PackedWeights(product, blocks.layout), epilogue_of(product, compensation.by)
    order = accumulation if product.dot.acc == "f32" else ""
    made = (tiles or AmxTiles)(product, blocks, sums, plan, order)
    return Gemm(product, blocks, weights, sums, compensation, plan, made)


def in_tiles(product: Product) -> PanelBlocks:
    """Two tiles of rows and up to two of columns; of few rows one tile, and up to four of columns; of a product with
    `side_by_side` those. Where a line of outputs is one tile, or two and
    one of columns, a block has two of them, which then read each tile of weights once; of half a tile four.

    Tiles are configured once, so all tiles have one height: the last block computes some rows a second time, or has
    fewer lines.
    """
    rows, columns, blocks = product.rows, -(-product.oc // _COLUMNS), product.options.blocks
    if (lines := lines_of(product)) > 1:
        count, rest = divmod(product.conv.oh, lines)
        cut = [(0, lines * rows, count), *([(count * lines, rest * rows, 1)] if rest else [])]
        wide = min(columns, 2 if rows <= TILE_ROWS and lines == 2 else 1)
        return PanelBlocks(cut, panels_of(product, wide), _SECOND_LEVEL, lines, panel_first=True)
    if three_high(product):
        return _in_turn(product, PanelBlocks([(0, rows, 1)], panels_of(product, 1), _SECOND_LEVEL))
    if product.side_by_side and rows > 2 * TILE_ROWS:
        high, wide = product.side_by_side
        whole = min(high, rows // TILE_ROWS) * TILE_ROWS
        count, rest = divmod(rows, whole)
        last = -(-rest // TILE_ROWS) * TILE_ROWS
        cut = [(0, whole, count), *([(rows - last, last, 1)] if rest else [])]
        return PanelBlocks(cut, panels_of(product, min(wide, columns)), _SECOND_LEVEL)
    if blocks:
        height, most = blocks.rows, -(-blocks.columns // _COLUMNS)
    elif rows <= TILE_ROWS:
        height, most = rows, _MOST_ACCUMULATORS
    else:
        height, most = -(-rows // -(-rows // (2 * TILE_ROWS))), 2
    count, rest = divmod(rows, height)
    cut = [(0, height, count), *([(rows - height, height, 1)] if rest else [])]
    return _in_turn(product, PanelBlocks(cut, panels_of(product, min(most, columns)), _SECOND_LEVEL))


def _in_turn(product: Product, blocks: PanelBlocks) -> PanelBlocks:
    """Blocks of rows that go along the destination's lines, over as many panels as the second cache keeps: down the
    columns a tile's rows are on a page of memory each, and fall on few sets of the caches. A panel meets all rows where
    the first cache keeps it for the many products of several taps, where one of each group is too much, in a library.
    """
    layout, conv, steps = blocks.layout, product.conv, product.source_steps
    groups, panel = conv.groups, product.panel_bytes(layout.width)
    all_panels = groups * layout.full * panel
    kept = not product.flat and panel <= _FIRST_LEVEL and all_panels > _TOGETHER
    library = product.options.line_by_line or product.options.blocks
    if library or kept or groups * panel > _SECOND_LEVEL:
        return blocks
    source = product.rows * steps.column if product.flat else conv.mb * steps.image
    beside = source * fmt(steps.source.read).bits // 8 <= _SECOND_LEVEL  # it stays there from panel to panel
    near = _SECOND_LEVEL // 4 if beside and all_panels > _SECOND_LEVEL else _SECOND_LEVEL
    return replace(blocks, near=near, streamed=all_panels > _FIRST_LEVEL)


def three_high(product: Product) -> bool:
    """Whether a line of 33 to 48 pixels is one block of three tiles by one of columns: by two and two it is four, and
    reads the weights twice. Only where several taps share lines of the source, which come for each tile of columns.
    """
    steps, library = product.source_steps, product.options.line_by_line or product.options.blocks
    several = not product.flat and steps.kd * steps.kh * steps.kw > 1
    return several and not library and 2 * TILE_ROWS < product.rows <= 3 * TILE_ROWS


def lines_of(product: Product) -> int:
    """Lines of outputs in a block. Four of h rows by one tile of columns load 4 h + 16 rows for four products, two
    by two 2 h + 32, and weights twice as often. A library has two.
    """
    steps, one_by_one = product.source_steps, product.conv.strides == (1, 1)
    tiles = 2 if one_by_one and steps.kd * steps.kh * steps.kw > 1 else 1  # whose taps share lines of the source
    apart = product.flat or product.options.line_by_line or product.rows > tiles * TILE_ROWS
    four = 2 * product.rows <= TILE_ROWS and not product.problem.tiles
    return 1 if apart else min(4 if four else 2, product.conv.oh)


# Loads of tiles, where their index is zero, and their products are made once: programs of all shapes have them alike.


@lru_cache(maxsize=1 << 10)
def _load(name: str, tile: Register, tensor: str, rows: int, stride: int) -> Op:
    return op(name, tile, Memory(tensor, Affine(), "u32", rows * _COLUMNS, rows, stride))


@lru_cache(maxsize=1 << 10)
def _product(name: str, total: Register, a: Register, b: Register, choices: tuple[tuple[str, str], ...]) -> Op:
    return Op(name, total, (total, a, b), (), choices)


@dataclass(frozen=True, eq=False)
class AmxTiles:
    """Blocks of rows by panels of columns; `accumulation` is the machine's order of adding up a row's products."""

    product: Product
    blocks: PanelBlocks
    sums: Chains
    plan: Plan
    accumulation: str
    count: int = 0  # of a block's tiles of rows; 0: all
    apart = False

    @property
    def dot(self) -> Dot:
        return self.product.dot

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return sum(self.used)

    @property
    def vectors(self) -> int:
        """Tiles of columns of a block."""
        return self.blocks.layout.width // _COLUMNS

    @cached_property
    def heights(self) -> tuple[int, ...]:
        """Rows of each tile that a block may have."""
        rows = self.blocks.highest
        if (lines := self.blocks.lines) > 1:
            whole, rest = divmod(rows // lines, TILE_ROWS)
            return ((TILE_ROWS,) * whole + (rest,) * (rest > 0)) * lines
        if rows <= TILE_ROWS:
            return (rows,)
        if self.product.options.blocks:
            return -(-rows // 2), rows // 2
        whole, rest = divmod(rows, TILE_ROWS)
        return (TILE_ROWS,) * whole + (rest,) * (rest > 0)

    @property
    def used(self) -> tuple[int, ...]:
        """Rows of each tile that this block has."""
        return self.heights[: self.count or None]

    @property
    def distance(self) -> int:
        """Elements of the source from a row of a tile to the next."""
        return self.product.source_steps.column

    # -- tile registers: accumulators, tiles of rows, tiles of columns in turn ----------------------------------------
    def accumulator(self, i: int, j: int, dtype: str) -> Register:
        return Register.of(TILES[i * self.vectors + j], "u32", self.heights[i] * _COLUMNS).as_(dtype)

    def of_rows(self, i: int, dtype: str) -> Register:
        first = len(self.heights) * self.vectors
        return Register.of(TILES[first + i % self.at_once], "u32", self.heights[i] * _STEPS).as_(dtype)

    def of_columns(self, j: int, dtype: str) -> Register:
        left = TILES[len(self.heights) * self.vectors + self.at_once :]
        return Register.of(left[j % len(left)], "u32", TILE_ROWS * _COLUMNS).as_(dtype)

    @property
    def at_once(self) -> int:
        """Tiles of the source that there are registers for, beside one of the weights; of several lines whole ones."""
        found = min(len(self.heights), len(TILES) - len(self.heights) * self.vectors - 1)
        return found - (found % (len(self.heights) // self.blocks.lines) if self.blocks.lines > 1 else 0)

    def setup(self, name: str = "tiles") -> Code:
        data = Memory(name, Affine(), "u8", TILE_ROW_BITS // 8)
        return [op("ldtilecfg", Register("tilecfg", "u8", data.lanes), data)]

    def configuration(self) -> bytes:
        rows = [height for height in self.heights for _ in range(self.vectors)] + list(self.heights[: self.at_once])
        return configuration([*rows, *[TILE_ROWS] * (len(TILES) - len(rows))])

    def tensors(self, panels: Sequence[Panel]) -> list[Tensor]:
        """The configuration, and buffers for sums that the epilogue changes, and for those of earlier chains."""
        found, size = [Tensor.constant("tiles", "u8", self.configuration())], self.rows * self.vectors * _COLUMNS
        if any(self.buffered(panel) for panel in panels):
            found.append(Tensor(_SUMS, self.dot.acc, size, "private"))
        if self.sums.chained:
            found.append(Tensor(_EARLIER, self.dot.acc, size, "private"))
        return found

    # -- one block of rows times one panel ----------------------------------------------------------------------------
    def tile(self, panel: Panel, sources: Steps, position: Steps, numbers: Steps) -> list[TilePart]:
        """Chain after chain from zero: the first one's sums are kept, those of others are added to them."""
        if len(numbers) < self.rows:
            return replace(self, count=len(self.used) - 1).tile(panel, sources, position, numbers)
        in_line = len(self.heights) // self.blocks.lines
        of_tiles = Steps(
            sources.first, sources.step * TILE_ROWS, len(self.used), in_line, self.product.source_steps.line
        )
        parts, pieces = list[TilePart](), turns(self.sums.sums(panel.step))
        for p, (repeat, begin, count) in enumerate(pieces):
            over = repeat.over
            turn = Affine.var(over.var) + begin if count > 1 else Affine(begin)
            body: Code = []
            for c, chain in enumerate(repeat.chains):
                opening, closing = p == c == 0, p == len(pieces) - 1 and c == len(repeat.chains) - 1
                at = chain.at(of_tiles + turn * over.source, panel.base + turn * over.weights)
                body += self.cleared(panel) + self.products(panel, chain, at, numbers[0] if closing else None)
                body += self.stored(panel, numbers, _EARLIER if opening and not closing else _SUMS)
                body += [] if opening or closing else self.added(panel)
            if p == len(pieces) - 1:
                body += self.finish_rows(panel, self.buffered(panel), position[0], numbers[0])
            parts.append(TilePart(over.var, count, body))
        return parts

    def cleared(self, panel: Panel) -> Code:
        """All accumulators."""
        of = [self.accumulator(i, j, "u32") for i in range(len(self.used)) for j in range(panel.vectors)]
        return [op("tilezero", bits, bits) for bits in of]

    def loaded(self, panel: Panel, numbers: Steps) -> Code:
        """Accumulators from where they were stored."""
        return [op("tileloadd", bits, place) for bits, place in self.places(panel, numbers)]

    def stored(self, panel: Panel, numbers: Steps, buffer: str = _SUMS) -> Code:
        """Accumulators in a buffer, or in dst where they are what it wants."""
        return [op("tilestored", place, bits) for bits, place in self.places(panel, numbers, buffer)]

    def places(self, panel: Panel, numbers: Steps, buffer: str = _SUMS) -> list[tuple[Register, Memory]]:
        """Accumulators, and where each is stored: in a buffer, or in dst where they are what it wants."""
        found: list[tuple[Register, Memory]] = []
        buffered, width, oc = self.buffered(panel), panel.vectors * _COLUMNS, self.product.conv.oc
        for i in range(len(self.used)):
            at = sum(self.heights[:i])
            for j in range(panel.vectors):
                if j in buffered:
                    place = self.rows_at(i, buffer, Affine(at * width + j * _COLUMNS), width)
                else:
                    place = self.rows_at(i, "dst", numbers[at] * oc + panel.dst + j * _COLUMNS, oc)
                found.append((self.accumulator(i, j, "u32"), place))
        return found

    def added(self, panel: Panel) -> Code:
        """The sums of a chain onto those of the ones before it."""
        unit, width = self.product.unit, panel.vectors * _COLUMNS

        def row(first: Affine, count: int) -> Code:
            code: Code = []
            for n, at in enumerate((first * width).steps(_COLUMNS, count * panel.vectors)):
                total, place = unit.reg(f"c{n}_0", "f32"), Memory(_EARLIER, at, "f32", _COLUMNS)
                code.append(load32(unit, total.as_("u32"), _SUMS, at, _COLUMNS))
                code += [op("vaddps", total, total, place), store32(unit, _EARLIER, at, total, _COLUMNS)]
            return code

        return along(self.rows, min(self.rows, max(1, _VECTORS // panel.vectors)), row, var="e")

    def rows_at(self, i: int, tensor: str, index: Affine, stride: int) -> Memory:
        """Tile i's rows of a matrix."""
        return Memory(tensor, index, "u32", self.heights[i] * _COLUMNS, self.heights[i], stride)

    def products(self, panel: Panel, chain: Chain, at: tuple[Steps, Affine], number: Affine | None) -> Code:
        """The accumulators over a chain's taps and channels, source and weights from `at` on; `number` is that of the
        block's first row where its results follow.
        """
        (rows, weights), steps, k = at, chain.steps // _STEPS, Affine.var("k")
        if not self.product.options.ahead or number is None:
            return chain.around(loop("k", steps, self.step(panel, rows, weights, k)))
        if chain.loops:
            before = self.asked(panel, number, Affine(), self.rows)
            return before + chain.around(loop("k", steps, self.step(panel, rows, weights, k)))
        each = -(-self.rows // steps)
        asking, rest = divmod(self.rows, each)
        code = self.asked(panel, number, Affine(asking * each), rest)
        body = self.step(panel, rows, weights, k) + self.asked(panel, number, k * each, each)
        code += loop("k", asking, body)
        if steps > asking:
            code += loop("k", steps - asking, self.step(panel, rows, weights, k + asking))
        return code

    def asked(self, panel: Panel, number: Affine, first: Affine, count: int) -> Code:
        """The lines that `count` rows of the block will have in the destination, from row `first`, asked for."""
        conv = self.product.conv
        size = fmt(conv.epilogue.dst).bits // 8
        ask = fetch("prefetchw", "dst", Affine(), conv.epilogue.dst)
        step = _LINE // size
        rows = ((number + first) * conv.oc + panel.dst).steps(conv.oc, count)
        return [ask.at(at) for row in rows for at in row.steps(step, -(-sum(panel.lanes) // step))]

    def step(self, panel: Panel, rows: Steps, weights: Affine, k: Affine) -> Code:
        """64 bytes of channels: `rows` and `weights` are where the first ones lie."""
        dot = self.dot
        choices = (("accumulation", self.accumulation),) if dot.acc == "f32" else ()
        tensor, loads = self.product.source_steps.tensor, list[Op]()
        for i, row in enumerate(rows + k * (_STEPS * dot.depth)):
            load = _load(self.load("src"), self.of_rows(i, "u32"), tensor, self.heights[i], self.distance)
            loads.append(load.at(row))
        body: Code = [*loads[: self.at_once]]
        first = weights + k * (_STEPS * panel.step)
        for j, at in enumerate(first.steps(_COLUMNS * dot.depth, panel.vectors)):
            body.append(_load(self.load("wei"), self.of_columns(j, "u32"), panel.tensor, TILE_ROWS, panel.step).at(at))
            for i in range(len(rows)):
                body += loads[i : i + 1] if i >= self.at_once else []
                operands = self.of_rows(i, dot.src), self.of_columns(j, dot.wei)
                body.append(_product(dot.name, self.accumulator(i, j, dot.acc), *operands, choices))
        return body

    def load(self, operand: str) -> str:
        """The instruction that loads an operand's tiles."""
        past = operand in self.product.options.apart or (operand == "wei" and self.blocks.streamed)
        return "tileloaddt1" if past else "tileloadd"

    # -- from the accumulators to dst ---------------------------------------------------------------------------------
    def buffered(self, panel: Panel) -> list[int]:
        """The tiles of columns that cannot be stored to dst as they are."""
        if self.stored_as_is and not self.sums.chained:
            return [j for j, lanes in enumerate(panel.lanes) if lanes < _COLUMNS]
        return list(range(panel.vectors))

    @cached_property
    def stored_as_is(self) -> bool:
        """Whether an accumulator is what dst wants: nothing but a store in the epilogue."""
        acc = self.product.unit.reg("c0_0", self.dot.acc)
        tile = TileSums(self.product.unit, [[acc]], [_COLUMNS], [Affine()], Affine(), [Affine()])
        return (
            self.product.conv.epilogue.dst == self.dot.acc
            and len(finish_tile(self.plan, tile)) == 1
            and not self.rowsum
        )

    @property
    def rowsum(self) -> bool:
        return self.product.conv.epilogue.zp_wei

    def finish_rows(self, panel: Panel, columns: Sequence[int], position: Affine, number: Affine) -> Code:
        """The epilogue of the tiles of columns named, from the buffer, as many rows at a time as registers hold."""
        if not columns:
            return []
        finish = partial(self.finish_group, panel, columns, position, number)
        return along(self.product.stored_rows(self.rows), self.together(columns), finish, var="e")

    def together(self, columns: Sequence[int]) -> int:
        """Rows that the epilogue takes at a time, of the tiles of columns named."""
        return min(self.rows, max(1, _VECTORS // len(columns)))

    def finish_group(
        self, panel: Panel, columns: Sequence[int], position: Affine, number: Affine, first: Affine, count: int
    ) -> Code:
        """`count` rows from row `first` of the block; `position` and `number` are those of the block's first row."""
        unit, width = self.product.unit, panel.vectors * _COLUMNS
        skipped = columns[0] * _COLUMNS
        registers = [[unit.reg(f"c{i}_{j}", self.dot.acc) for j in columns] for i in range(count)]
        load: Code = []
        for at, row in zip((first * width).steps(width, count), registers, strict=True):
            load += [
                load32(unit, register.as_("u32"), _SUMS, at + j * _COLUMNS, _COLUMNS)
                for j, register in zip(columns, row, strict=True)
            ]
            for j, register in zip(columns, row, strict=True) if self.sums.chained else ():
                load.append(op("vaddps", register, register, Memory(_EARLIER, at + j * _COLUMNS, "f32", _COLUMNS)))
        numbers = (number + first).steps(1, count)
        in_dst = numbers[0] * self.product.conv.oc + panel.dst + skipped
        beside = self.product.conv.groups * self.blocks.layout.channels
        tile = TileSums(
            unit,
            registers,
            [panel.lanes[j] for j in columns],
            in_dst.steps(self.product.conv.oc, count),
            panel.channel + skipped,
            (position + first * beside + panel.channel + skipped).steps(beside, count),
            numbers,
        )
        return load + finish_tile(self.plan, tile, self.rowsum)
