"""A convolution of few channels on AMX tiles as a library goes through it, for the clock alone: `amx.py` has the bits.

oneDNN makes channels of a kernel row's columns, or of all taps (`conv_brgemm_relo_type_t` in its
jit_brgemm_conv_utils.cpp). Pixels are copied one by one with masked moves (`maybe_conv_inp` in jit_brgemm_conv.cpp),
for a block of lines of outputs, into a buffer of the thread; lines of the padding are cleared in the same way. A row of
a tile is a window of that buffer, as it lies: rows overlap, and cross from a line of the cache to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from isa_models.formats import fmt
from isa_models.instruction import TILE_ROWS
from simdnn.kernels.common.code import Code, along, loop, nest
from simdnn.kernels.common.problems import ConvProblem
from simdnn.kernels.common.sums import Options
from simdnn.kernels.x86.amx import AmxTiles, tiled
from simdnn.kernels.x86.code import Unit, fill_zero, zero
from simdnn.kernels.x86.dots import Dot
from simdnn.kernels.x86.gemm import Gemm
from simdnn.kernels.x86.lines import copied
from simdnn.kernels.x86.product import Product
from simdnn.kernels.x86.source import Source
from simdnn.kernels.x86.source_steps import SourceSteps
from simdnn.kernels.x86.tile import Chain, Panel
from simdnn.program.records import Affine, Loop, Op, Program, Statement, Steps, Tensor

_HIGH = 5  # tiles of rows by one of columns, where a call has no more
_OUTER = ("n", "y", "q", "g")  # loops over images, lines of outputs, groups
_COLUMNS = 16  # of 32 bits in a row of a tile
_ROOM = 64 * 32  # elements of rows of tiles behind the last pixel


@dataclass(frozen=True)
class PixelLines:
    """A buffer of pixels, copied for `together` lines of outputs at a time.

    Its order is (line, x, c); (x, line, c) where `beside`, with the lines of a kernel side by side.
    """

    source: Source
    problem: ConvProblem
    together: int
    beside: bool
    apart: int  # elements from one pixel to the next

    @property
    def wide(self) -> int:
        """Pixels of a line, with the padding."""
        p = self.problem
        return p.iw + p.padding[1] + p.padding[3]

    @property
    def row(self) -> int:
        """Elements from one line of the image to the next."""
        return self.source.ic if self.beside else self.wide * self.apart

    @property
    def lines(self) -> int:
        """Lines of the image that one block of output lines reads."""
        p = self.problem
        return (self.together - 1) * p.strides[0] + p.kh

    @property
    def copied(self) -> int:
        """Lines that the buffer does not have from the block before: side by side, those of one group move on."""
        p = self.problem
        return min(p.kh, p.strides[0]) if self.beside and p.groups == 1 else self.lines

    def tensor(self) -> Tensor:
        p = self.problem
        copied = self.lines * self.row + self.wide * self.apart
        taken = self.together * -(-p.ow // TILE_ROWS) * TILE_ROWS * p.strides[1] * self.apart + p.kh * self.row
        size = max(copied, taken)  # whole tiles of a short line go on behind it
        return Tensor("lines", self.source.read, size + _ROOM, "scratch")

    def stage(self, unit: Unit) -> Code:
        """The copies of all blocks; lines of the padding cost what lines of the image do."""
        p, s, kind = self.problem, self.source, f"u{fmt(self.source.read).bits}"
        blocks, i, x = -(-p.oh // self.together), Affine.var("i"), Affine.var("x")
        count = min(self.copied, p.ih)
        step = (p.ih - count) // max(1, blocks - 1)
        stored = Affine.var("n") * s.image + (Affine.var("y") * step + i) * s.row + x * s.pixel + Affine.var("g") * s.ic
        at = i * self.row + (x + p.padding[1]) * self.apart
        line: Code = [zero(unit.reg("z"))]
        for first, edge in ((0, p.padding[1]), (p.padding[1] + p.iw, p.padding[3])):
            place = i * self.row + (x + first) * self.apart
            line += loop("x", edge, fill_zero(unit, "lines", s.read, place, s.ic, "f", "z")) if edge else []
        line += loop("x", p.iw, copied(unit, kind, (s.tensor, stored), ("lines", at), s.ic))
        beyond, whole = self.copied - count, i * self.row + x * self.apart  # of the padding alone
        empty: Code = [zero(unit.reg("z"))]
        empty += loop("x", self.wide, fill_zero(unit, "lines", s.read, whole + count * self.row, s.ic, "f", "z"))
        body = [*loop("i", count, line), *(loop("i", beyond, empty) if beyond > 0 else [])]
        return nest([("n", p.mb), ("y", blocks), ("g", p.groups)], body)


def side_by_side(oc: int, columns: int) -> tuple[int, int]:
    """Tiles of rows, and of columns, that a call of some columns multiplies side by side (`brgemm_blocking_tmm`)."""
    if min(oc, columns) <= TILE_ROWS:
        return _HIGH, 1
    odd = oc % TILE_ROWS > 0 and oc < columns
    return (3, 1) if columns % (2 * TILE_ROWS) else (2, 1 if odd else 2)


def rows_of_tiles(p: ConvProblem, together: int) -> int:
    """Rows of the tiles of some lines of outputs, one behind the other with what lies between them in the copy: each
    begins with an output, and has what follows (`brgM` in the library's jit_brgemm_conv_utils.cpp).
    """
    (down, step), rows, at = p.strides, 0, 0
    pitch = p.ow * down + (p.kw - 1) // step * down
    while at < (together - 1) * pitch + p.ow:
        rows += TILE_ROWS
        at += TILE_ROWS
        if at % pitch >= p.ow:
            at += pitch - at % pitch
    return rows


class FewChannels(Product):
    """A convolution of few channels as a product whose rows are windows of a `PixelLines` buffer."""

    def __init__(
        self, name: str, problem: ConvProblem, unit: Unit, dot: Dot, options: Options, together: int, blocks: int
    ) -> None:
        super().__init__(name, problem, unit, dot, options)
        self.beside, self.image, self.together = options.order.fold == "window", self.conv, together
        self.side_by_side = side_by_side(self.oc, options.columns)
        self.all = together * self.conv.ow  # rows of the tiles of these lines
        if self.goes_on:
            c = self.conv
            down, step = c.strides
            self.all = rows_of_tiles(c, together)
            high, wide = (blocks - 1) * down + c.kh, (self.all - 1) * step + c.kw
            self.conv = replace(c, ih=high, iw=wide, padding=(0, 0, 0, 0))

    def stored_rows(self, rows: int) -> int:
        return -(-rows * self.together * self.image.ow // self.all)

    @property
    def goes_on(self) -> bool:
        """Whether rows go on from a line of outputs to the next."""
        return not self.beside and self.image.dilation == (1, 1)

    @property
    def taps(self) -> int:
        """Elements of a sum that lie beside each other."""
        c = self.image
        return c.kw * (c.kh if self.beside else 1) * self.ic

    @cached_property
    def source_steps(self) -> SourceSteps:
        c, whole = self.image, self.dot.whole
        pixel = self.ic * (c.kh if self.beside else 1)
        s = Source(c.src, self.dot.src, c.mb, c.ih, c.iw, c.groups, self.ic, self.ic)
        lines = PixelLines(s, c, self.together, self.beside, pixel)
        down, kh = (0, 1) if self.beside else (lines.row, c.kh)
        padded = -(-self.taps // whole) * whole
        return SourceSteps(s, "lines", 0, 0, c.strides[1] * pixel, 0, down, 0, kh, 1, padded, planes=lines)


class ChannelsInPlace(Product):
    """A product of one tap whose rows are as short as the channels of the image, where they lie."""

    @property
    def taps(self) -> int:
        """Elements of a sum that lie beside each other."""
        return self.ic

    @cached_property
    def source_steps(self) -> SourceSteps:
        c, whole = self.conv, self.dot.whole
        s = WithRoom(c.src, self.dot.src, c.mb, c.ih, c.iw, c.groups, self.ic, self.ic)
        line, column = c.strides[0] * s.row, c.strides[1] * s.pixel
        return SourceSteps(s, "src", s.image, line, column, self.ic, 0, 0, 1, 1, -(-self.ic // whole) * whole)


class WithRoom(Source):
    """An image with room behind it for rows of tiles that are taken as whole ones."""

    def tensors(self) -> list[Tensor]:
        return [replace(tensor, size=tensor.size + _ROOM) for tensor in super().tensors()]


@dataclass(frozen=True, eq=False)
class ShortRows(AmxTiles):
    """Tiles whose rows are no longer than what is summed: they do not cross lines here, each in a line of its own."""

    @property
    def distance(self) -> int:
        return self.dot.whole


@dataclass(frozen=True, eq=False)
class BufferedTiles(AmxTiles):
    """Tiles whose sums all go through the buffer; the lines that they go to are asked for while products run.

    Here that is before all products of a block, in the steps in which they are stored.
    """

    @cached_property
    def stored_as_is(self) -> bool:
        return False

    def products(self, panel: Panel, chain: Chain, at: tuple[Steps, Affine], number: Affine | None) -> Code:
        code = super().products(panel, chain, at, None)
        if number is None or not self.product.options.ahead:
            return code
        rows, asked = self.product.stored_rows(self.rows), partial(self.asked, panel, number)
        return along(rows, self.together(self.buffered(panel)), asked, var="e") + code


@dataclass(frozen=True, eq=False)
class ShortBufferedTiles(BufferedTiles, ShortRows):
    """Tiles of short rows whose sums all go through the buffer."""


def few_channels(name: str, problem: ConvProblem, unit: Unit, dot: Dot, accumulation: str, options: Options) -> Program:
    """The program of a convolution of few channels on tiles."""

    def call(together: int, count: int) -> Program:
        product = FewChannels(name, problem, unit, dot, options, together, count)
        short = product.taps <= dot.whole
        program = panels_first(tiled(product, accumulation, ShortBufferedTiles if short else BufferedTiles)).program
        if problem.dilation != (1, 1):
            return program
        return by_lines(program, -(-product.taps * fmt(problem.src).bits // 32) if short else _COLUMNS)

    goes_on = options.order.fold != "window" and problem.dilation == (1, 1)
    return in_calls(problem, options.lines, call) if goes_on else call(options.lines, 1)


def in_calls(problem: ConvProblem, lines: int, call: Callable[[int, int], Program]) -> Program:
    """A program of calls of some lines of outputs, the last one of what is left; of as many lines each, where a last
    one would be of so few that tiles would be others. `call` makes one of (lines, calls).
    """
    count, rest = divmod(problem.oh, lines)
    if not count or 0 < rest and rows_of_tiles(problem, rest) <= 2 * TILE_ROWS:
        count = -(-problem.oh // lines)
        return call(-(-problem.oh // count), count)
    return followed(call(lines, count), call(rest, 1)) if rest else call(lines, count)


def followed(whole: Program, last: Program) -> Program:
    """A program and one of the last lines behind it, with the same tiles: its destination is behind the other's."""
    dst, sizes = whole.tensor["dst"].size, {t.name: t.size for t in last.tensors}
    tensors = [
        replace(t, size=t.size + sizes["dst"] if t.name == "dst" else max(t.size, sizes[t.name])) for t in whole.tensors
    ]

    def moved(statement: Statement) -> Statement:
        if isinstance(statement, Loop):
            return replace(statement, body=tuple(map(moved, statement.body)))
        memory = statement.memory
        return statement.at(memory.index + dst) if memory and memory.tensor == "dst" else statement

    body = [moved(statement) for statement in last.body if isinstance(statement, Loop)]
    return replace(whole, tensors=tuple(tensors), body=(*whole.body, *body))


def by_lines(program: Program, columns: int) -> Program:
    """A program that copies the lines of a block, group by group, right before the products that read them, into a
    buffer of the thread; a tile's rows have `columns` of 32 bits there. It is not proved: among the rows that tiles
    take are some between lines, which nobody copied.
    """
    loops = [statement for statement in program.body if isinstance(statement, Loop)]
    first = next(i for i, one in enumerate(loops) if any(loop.var == "g" for loop in _chain(one)))  # behind a rounding
    before = [statement for statement in program.body if statement not in loops[first:]]
    copies, *products = loops[first:]
    extents = {loop.var: loop.extent for statement in (copies, products[0]) for loop in _chain(statement)}
    around = [(var, extents[var]) for var in _OUTER]
    tensors = tuple([replace(t, kind="private") if t.name == "lines" else t for t in program.tensors])
    body = *before, *nest(around, _within([copies, *products], columns), parallel=True)
    return replace(program, tensors=tensors, body=body)


def _chain(loop: Loop) -> list[Loop]:
    """A loop, the first one in it, and so on."""
    first = loop.body[0]
    return [loop, *(_chain(first) if isinstance(first, Loop) else [])]


def _within(statements: Sequence[Statement], columns: int) -> Code:
    """Statements without the loops over images, blocks of lines and groups around them, tiles with their own rows."""
    found: Code = []
    for statement in statements:
        if not isinstance(statement, Loop):
            found.append(_as_wide(statement, columns))
        elif statement.var in _OUTER:
            found += _within(statement.body, columns)
        else:
            found.append(replace(statement, body=tuple(_within(statement.body, columns))))
    return found


def _as_wide(load: Op, columns: int) -> Op:
    """A load of a tile of pixels with rows of some columns, of weights with as many rows, and any other op as it is."""
    memory = load.memory
    if memory is None or memory is load.dst or memory.rows == 1 or memory.tensor not in ("lines", "wei"):
        return load
    rows = memory.rows if memory.tensor == "lines" else columns
    lanes = rows * (columns if memory.tensor == "lines" else _COLUMNS)
    return replace(load, srcs=(replace(memory, rows=rows, lanes=lanes), *load.srcs[1:]))


def panels_first(gemm: Gemm) -> Gemm:
    """The nest in which a panel of weights meets all rows of a line; where rows are one run, as it is."""
    return gemm if gemm.product.flat else replace(gemm, blocks=replace(gemm.blocks, panel_first=True))
