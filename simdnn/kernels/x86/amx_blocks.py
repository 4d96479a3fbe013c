"""A matmul on AMX tiles as a library goes through it (`TileBlocks`), for the clock alone: `amx.py` has the bits.

    for each block of columns, or of rows; for each chunk of K:
        for each block of rows, or panel of columns; for each part of K:
            for each panel of columns, or block of rows:
                clear the accumulators, or load the sums of the part before; products; store them to dst

Of some rows by some columns a library's call takes other tiles than these (`tiles_of_call`). Sums lie in dst between
two parts of K. Where it takes them in another type, or not all columns of a tile, a buffer has them, the epilogue
follows, and K is not cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import NamedTuple

from isa_models.formats import fmt
from simdnn.kernels.common.code import Code, loop, pieces
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.kernels.common.sums import Options, TileBlocks
from simdnn.kernels.x86.amx import AmxTiles, tiled
from simdnn.kernels.x86.amx_pixels import ChannelsInPlace
from simdnn.kernels.x86.code import Unit
from simdnn.kernels.x86.decompress import PanelWeights
from simdnn.kernels.x86.dots import Dot
from simdnn.kernels.x86.gemm import Gemm
from simdnn.kernels.x86.library_weights import LibraryWeights
from simdnn.kernels.x86.product import Product
from simdnn.kernels.x86.tile import Panel, TilePart
from simdnn.program.records import Affine, Program, Statement, Steps, Tensor

_LINE = 64  # bytes of a cache's line
_LEAST, _LOW, _WIDE = 8, 12, 64  # rows of tiles two by two, of a low tile; rows or columns of higher ones side by side
_ROWS = _STEPS = _COLUMNS = 16  # doublewords of a tile's row: of channels, and of sums


def in_blocks(name: str, problem: MatmulProblem, unit: Unit, dot: Dot, accumulation: str, options: Options) -> Program:
    """The program of a matmul whose options have blocks. Where K is no whole number of tiles' rows, tiles are loaded
    from the source as it lies, across lines, unless the library copies it; it copies the last rows' rest alone.
    """
    assert options.blocks
    made = replace(options, apart=options.blocks.apart)
    in_place = problem.k % dot.whole > 0 and not options.blocks.copies
    product = (ChannelsInPlace if in_place else Product)(name, problem, unit, dot, made)
    return NestInBlocks(tiled(product, accumulation), options.blocks).program()


def decompressed(
    name: str, problem: MatmulProblem, unit: Unit, dot: Dot, accumulation: str, options: Options, blocks: TileBlocks
) -> Program:
    """The program of a matmul that makes floats of a panel's weights before its blocks of rows, and once more for the
    next rows.
    """
    made = replace(options, line_by_line=True, ahead=True, blocks=blocks, apart=blocks.apart)
    tiles = TwoPanels if blocks.rows > _ROWS else AmxTiles
    gemm = tiled(Product(name, problem, unit, dot, made), accumulation, tiles, LibraryWeights)
    if blocks.block_rows >= problem.m:
        return gemm.program
    return gemm.program_of(_panels_anew(gemm, blocks.block_rows), gemm.tensors())


def _panels_anew(gemm: Gemm, together: int) -> Code:
    """The nest of some rows after the others; the last block of each begins as far ahead as makes it whole."""
    weights, high = gemm.weights, gemm.blocks.highest
    assert isinstance(weights, PanelWeights)
    code: Code = []
    for times, begin, rows in pieces("mc", gemm.product.rows, together):
        inner: Code = []
        for turns, some, panel in weights.at_once():
            body = weights.expand(panel, Affine(), weights.k, high)
            body = loop("j", some, body) if some > 1 else body
            for first, count in ((0, rows // high), (rows - high, int(rows % high > 0))):
                body += gemm.nest(begin + first, high, count, some, panel, parallel=False) if count else []
            inner += loop("panel", turns, body)
        code += loop("mc", times, inner, parallel=True)
    return code


@dataclass(frozen=True, eq=False)
class TwoPanels(AmxTiles):
    """Blocks of two tiles of rows by two of columns, in panels of more."""

    @cached_property
    def heights(self) -> tuple[int, ...]:
        return _ROWS, self.blocks.highest - _ROWS

    @property
    def vectors(self) -> int:
        return min(2, super().vectors)

    def tile(self, panel: Panel, sources: Steps, position: Steps, numbers: Steps) -> list[TilePart]:
        parts: list[TilePart] = []
        for first in range(0, panel.vectors, 2):
            half = panel.part(first, 2, _COLUMNS, self.dot.depth)
            parts += super().tile(half, sources, position, numbers)
        return parts


class CallTiles(NamedTuple):
    """The tiles of a call of the library's kernel: rows of one, 0: those of the nest's blocks; tiles of rows by tiles
    of columns that are multiplied side by side.
    """

    low: int = 0
    high: int = 2
    wide: int = 2


def tiles_of_call(rows: int, columns: int) -> CallTiles:
    """The tiles of a call of oneDNN 3.13's kernel (`brgemm_blocking_tmm` in its brgemm_utils.cpp): as high as divides
    its rows, two by two, or by one where columns are no whole tiles; whole ones and a rest where only low ones would.

    >>> [tiles_of_call(rows, 18).low for rows in (97, 85, 32)], tiles_of_call(29, 438)
    ([1, 5, 0], CallTiles(low=1, high=2, wide=1))
    >>> tiles_of_call(200, 32), tiles_of_call(48, 32), tiles_of_call(58, 32)
    (CallTiles(low=10, high=2, wide=2), CallTiles(low=16, high=2, wide=2), CallTiles(low=16, high=4, wide=1))
    >>> tiles_of_call(10, 77), tiles_of_call(8, 256)
    (CallTiles(low=10, high=1, wide=4), CallTiles(low=8, high=1, wide=5))
    """
    if rows <= _ROWS:
        each = -(-columns // _COLUMNS)
        return CallTiles(rows, 1, min(each, 5 if columns % _COLUMNS == 0 else 3 if each > 5 else 4))
    low = max(height for height in range(1, _ROWS + 1) if rows % height == 0)
    if columns % _COLUMNS:
        apart = columns <= _ROWS or max(rows, columns) <= 2 * _ROWS
        return CallTiles() if apart or (low > _LOW and columns <= _WIDE) else CallTiles(low, 2, 1)
    if rows <= 2 * _ROWS or rows % (2 * _ROWS) == 0:
        return CallTiles()
    if low >= _LEAST:
        return CallTiles(low)
    return CallTiles(_ROWS, 1, 2) if rows > _WIDE else CallTiles(_ROWS, -(-rows // _ROWS), 1)


@dataclass(frozen=True, eq=False)
class LowTiles(AmxTiles):
    """Blocks of the tiles of a call."""

    call: CallTiles = CallTiles()

    @cached_property
    def heights(self) -> tuple[int, ...]:
        return (self.call.low,) * self.call.high

    @property
    def vectors(self) -> int:
        return self.call.wide


def _groups(rows: int, call: CallTiles) -> list[tuple[int, int, Affine]]:
    """Groups of a call's tiles: how often, tiles of rows, first row; the last begins ahead, so that it is whole.

    >>> [(count, high, str(first)) for count, high, first in _groups(58, CallTiles(16, 4, 1))]
    [(1, 3, '0'), (1, 1, '42')]
    """
    whole, rest = divmod(rows, call.low)
    times, odd = divmod(whole, call.high)
    each = call.high * call.low
    found = [(times, call.high, Affine.var("lr") * each if times > 1 else Affine())] if times else []
    if rest and (odd + 1) * call.low <= rows:
        return [*found, (1, odd + 1, Affine(rows - (odd + 1) * call.low))]
    found += [(1, odd, Affine(times * each))] if odd else []
    return [*found, (1, 1, Affine(rows - call.low))] if rest else found


def _columns(panels: Sequence[tuple[int, Panel]]) -> int:
    """The columns of panels that come with the number of their like."""
    return sum(n * sum(panel.lanes) for n, panel in panels)


def _turns(panels: int, body: Code) -> Code:
    return loop("j", panels, body) if panels else body


@dataclass(frozen=True)
class KParts:
    """Equal parts of K: how many, the number of steps of 64 bytes before the first and in each; whether sums begin."""

    times: int
    first: Affine
    steps: int
    begins: bool


def parts_of(steps: int, each: int, chunk: int) -> list[list[KParts]]:
    """Parts of `each` steps, by chunk.

    >>> [[(part.times, str(part.first), part.steps) for part in parts] for parts in parts_of(9, 2, 4)]
    [[(1, '0', 2), (3, '2*kb + 2', 2)], [(1, '8', 1)]]
    """
    whole, rest = divmod(steps, each)
    found = []
    for first in range(0, whole + (rest > 0), chunk):
        full, begins = min(first + chunk, whole) - first, first == 0 < whole
        parts = [KParts(1, Affine(), each, True)] if begins else []
        if full > begins:
            at = Affine((first + begins) * each) + Affine.var("kb") * (each if full > begins + 1 else 0)
            parts.append(KParts(full - begins, at, each, False))
        if rest and first + chunk > whole:
            parts.append(KParts(1, Affine(whole * each), rest, whole == 0))
        found.append(parts)
    return found


@dataclass(frozen=True, eq=False)
class NestInBlocks:
    """The nest of one matmul."""

    gemm: Gemm
    cut: TileBlocks

    @property
    def tiles(self) -> AmxTiles:
        tiles = self.gemm.tiles
        assert isinstance(tiles, AmxTiles)
        return tiles

    def program(self) -> Program:
        """Calls with tiles as they are configured at first, then those with lower ones of each height."""
        code, tensors, configured = list[Statement](), self.gemm.tensors(), self.tiles.configuration()
        for number, tiles in enumerate(self.kinds()):
            calls = self.across(tiles) if self.cut.across else self.down(tiles)
            if not calls:
                continue
            if (shapes := self.lower(tiles).configuration()) != configured:
                name, configured = f"tiles{number}", shapes
                tensors.append(Tensor.constant(name, "u8", shapes))
                code += self.tiles.setup(name)
            code += loop("g", 1, loop("q", 1, calls), parallel=True)
        return self.gemm.program_of(code, tensors)

    def kinds(self) -> list[CallTiles]:
        """The tiles that some calls have, those of the nest first."""
        rows = {some for _, _, some in pieces("mb", self.tiles.product.rows, self.cut.block_rows)}
        if self.cut.across:
            columns = [_columns(panels) for _, panels in self.blocks_of_columns()]
        else:
            columns = [sum(panel.lanes) for _, panel in self.gemm.weights.panels()]
        return sorted({CallTiles(), *(tiles_of_call(some, many) for some in rows for many in columns)})

    def lower(self, call: CallTiles) -> AmxTiles:
        """The tiles of a call."""
        tiles = self.tiles
        return LowTiles(**{f.name: getattr(tiles, f.name) for f in fields(tiles)}, call=call) if call.low else tiles

    @cached_property
    def steps(self) -> int:
        """Steps of 64 bytes of K."""
        ((chain,),) = (repeat.chains for repeat in self.tiles.sums.sums(1))
        return chain.steps // _STEPS

    @cached_property
    def chunks(self) -> list[list[KParts]]:
        size = fmt(self.tiles.dot.src).bits // 8
        return parts_of(self.steps, -(-self.cut.k * size // _LINE), self.cut.chunk)

    def across(self, tiles: CallTiles) -> Code:
        """Rows meet one panel after the other, of a block of columns, in calls with these tiles."""
        code: Code = []
        for times, panels in self.blocks_of_columns():
            columns = _columns(panels)
            for parts in self.chunks:
                body: Code = []
                for begin, count, rows in self.rows(0, self.tiles.product.rows, columns):
                    if tiles_of_call(self.cut.block_rows if rows == self.cut.rows else rows, columns) != tiles:
                        continue
                    inner: Code = []
                    for part in parts:
                        inner += loop("kb", part.times, self.call(tiles, begin, rows, panels, part))
                    body += loop("r", count, inner)
                code += loop("nb", times, body) if body else []
        return code

    def down(self, tiles: CallTiles) -> Code:
        """A panel meets all rows of a block, in calls with these tiles."""
        code: Code = []
        for times, first, rows in pieces("mb", self.tiles.product.rows, self.cut.block_rows):
            for parts in self.chunks:
                body: Code = []
                for count, panel in self.gemm.weights.panels():
                    if tiles_of_call(rows, sum(panel.lanes)) != tiles:
                        continue
                    inner: Code = []
                    for part in parts:
                        one: Code = []
                        for begin, blocks, _ in [(first, 1, rows)] if tiles.low else self.rows(first, rows, 0):
                            one += loop("r", blocks, self.call(tiles, begin, rows, [(0, panel)], part))
                        inner += loop("kb", part.times, one)
                    body += loop("j", count, inner)
                code += loop("mb", times, body) if body else []
        return code

    def call(
        self, call: CallTiles, begin: Affine | int, rows: int, panels: Sequence[tuple[int, Panel]], part: KParts
    ) -> Code:
        """Rows of a block by panels: two tiles of rows by two of columns, or all `rows` in the call's own tiles: the
        last ones may be fewer, and begin as far ahead as makes them whole. Each panel comes with how many of its
        like a loop here goes through; 0: one around this does.
        """
        begin = Affine() + begin
        if not call.low:
            begin += min(0, rows - self.cut.rows) if self.cut.across else 0
            return [s for n, panel in panels for s in _turns(n, self.block(self.tiles, begin, panel, part))]
        code, lower = list[Statement](), self.lower(call)
        for count, high, first in _groups(rows, call):
            tiles = replace(lower, count=high)
            inner: Code = []
            for n, panel in panels:
                ahead = range(0, panel.vectors, call.wide)
                each = [panel.part(at, min(call.wide, panel.vectors - at), _COLUMNS, tiles.dot.depth) for at in ahead]
                inner += _turns(n, [s for one in each for s in self.block(tiles, begin + first, one, part)])
            code += loop("lr", count, inner)
        return code

    def rows(self, first: Affine | int, count: int, columns: int) -> list[tuple[Affine, int, int]]:
        """Blocks of rows: where each begins, how many there are, and their rows; where tiles are not lower the last one
        begins as far ahead as makes it whole. The last rows of a call with lower tiles are one block.
        """
        height = self.cut.rows
        times, rest = divmod(count, height)
        if self.cut.across and tiles_of_call(last := count % self.cut.block_rows, columns).low:
            times, rest = (count - last) // height, last
        found = [(Affine.var("r") * height + first, times, height)] if times else []
        ahead = 0 if self.cut.across else height - rest
        return [*found, *([(Affine(count - rest - ahead) + first, 1, rest)] if rest else [])]

    def blocks_of_columns(self) -> list[tuple[int, list[tuple[int, Panel]]]]:
        """Blocks of panels: how many of them, and the panels of one."""
        panels = self.gemm.weights.panels()
        whole, panel = panels[0]
        each = -(-self.cut.block_columns // self.cut.columns)
        if each >= whole:
            return [(1, panels)]
        times, rest = divmod(whole, each)
        found = [(times, [(each, panel.moved("j", Affine.var("nb") * each))])]
        last = [*([(rest, panel.moved("j", Affine(times * each)))] if rest else []), *panels[1:]]
        return [*found, *([(1, last)] if last else [])]

    def block(self, tiles: AmxTiles, row: Affine, panel: Panel, part: KParts) -> Code:
        """The sums of a block over a part of K; `row` is its first. Where a buffer has them, all of K is one part."""
        k = Affine.var("k")
        if tiles.buffered(panel):
            if not part.begins:
                return []
            part = KParts(1, Affine(), self.steps, True)
        ((chain,),) = (repeat.chains for repeat in tiles.sums.sums(panel.step))
        r = tiles.product.source_steps
        sources = (row * r.column).steps(r.column * tiles.heights[0], len(tiles.used))
        rows, weights = chain.at(sources, panel.base)
        numbers = row.steps(1, tiles.rows)
        begun = tiles.cleared(panel) if part.begins else tiles.loaded(panel, numbers)
        each = -(-tiles.rows // part.steps)
        asking, rest = divmod(tiles.rows, each)
        code = tiles.asked(panel, row, Affine(asking * each), rest)
        body = tiles.step(panel, rows, weights, k + part.first) + tiles.asked(panel, row, k * each, each)
        code += loop("k", asking, body)
        if part.steps > asking:
            code += loop("k", part.steps - asking, tiles.step(panel, rows, weights, k + part.first + asking))
        code += tiles.stored(panel, numbers)
        return [*begun, *code, *tiles.finish_rows(panel, tiles.buffered(panel), row * self.beside, row)]

    @property
    def beside(self) -> int:
        """Parameters of a row."""
        return self.tiles.product.conv.groups * self.tiles.blocks.layout.channels
