"""Where a kernel's sums are cut, how they go through a convolution's taps, and what follows them: words of all kernels.

Which of these a row of the table takes is decided in `simdnn.libraries`, as it follows what a library does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from isa_models.machines.cpu_record import CacheLevel


@dataclass(frozen=True)
class Part:
    """Runs of kernel columns (first, how many), each summed from zero by itself: over all rows, or row by row, and over
    all planes, or plane by plane.
    """

    columns: tuple[tuple[int, int], ...]
    row_by_row: bool = False
    plane_by_plane: bool = False


@dataclass(frozen=True)
class Order:
    """How a sum goes through the taps; by default rows outside, columns, then channels inside, in one chain.

    `fold` makes channels of taps: "row" of the columns in a kernel row, all or `together` at a time, and "window" of
    all taps, column by column, where a group has few input channels; "gemm" of channels, rows and columns, one line,
    or "line" of rows, columns and channels, where padding holds the source's zero point. Neighbours of a line are
    pairs. "filled" fills each `block` of channels up to a whole step of a dot product. "steps" cuts runs, the channels
    of `together` neighbouring columns (0: of all taps, column by column), into blocks that go through all taps in turn,
    and blocks into steps: `blocks` has the elements of each block and of its steps. `columns_outside` goes through the
    taps column by column. `block`: channels that go through all taps before the next ones do; with "gemm", elements of
    the line after which a sum restarts.
    """

    fold: str = ""
    together: int = 0
    columns_outside: bool = False
    block: int = 0
    blocks: tuple[tuple[int, int], ...] = ()
    parts: tuple[Part, ...] = ()  # chains whose sums are added up in order; none: one chain


@dataclass(frozen=True)
class RegisterTile:
    """Sums of `rows` x `vectors` registers, where a library decides it; with `one_load` the source's rows are broadcast
    first, and one vector of weights is loaded at a time. A panel of weights meets `block` rows before the next does, or
    with `by_panel` all rows, block by block.
    """

    rows: int
    vectors: int
    one_load: bool = False
    block: int = 0  # 0: all rows
    held: bool = False  # a depthwise kernel's pixels stay in registers from one column of taps to the next
    fetches: bool = False  # a step fetches a line of each vector of weights ahead, as far as it has rows
    together: int = 0  # vectors of a block of columns, which tiles of `vectors` and one of what is left cut; 0: these
    by_panel: bool = False
    last: RegisterTile | None = None  # the tile of the last block of columns, where that is narrower


@dataclass(frozen=True)
class TileBlocks:
    """How a library's matmul on tiles goes through its blocks: one of `rows` x `columns` sums at a time, over `k`
    elements. Between two such parts of K sums lie in the destination; `chunk` parts follow each other in a block.
    `across`: the same rows meet one panel of columns after the other; else a panel meets all rows of a block.
    """

    rows: int
    columns: int
    block_rows: int
    block_columns: int
    k: int
    chunk: int
    across: bool
    apart: tuple[str, ...]  # operands whose tiles pass the first cache by
    fetches: str = ""  # the operand whose next panel is fetched ahead, "src" or "wei"
    copies: bool = False  # whether rows of the source go to a buffer, where a tile's rows are lines, on their way


@dataclass(frozen=True)
class Options:
    """How a kernel treats its problem, beyond the dot product."""

    halve: bool = False  # s8 convolution on vpmaddubsw: weights times 1/2
    merged_scales: bool = False
    cut: int = 0  # channels after which a sum restarts (floating point)
    split_k: int = 0  # matmul: K in parts of this length, dot products restart at each
    order: Order = Order()  # of a convolution's taps
    through_float: bool = False  # an s32 sum is rounded to f32 on its way to an s32 destination
    reference: bool = False  # ends as oneDNN's reference does
    nan_to_bound: bool = False  # a NaN on its way to an integer becomes the upper bound, not what conversion gives
    bias_first: bool = False  # the bias is added to the first of several chains, before the others are
    sum_first: bool = False  # what the destination held is, too, ahead of the bias, where it comes first of all
    starts: bool = False  # sums start from what comes first, which is then no addition to the first chain
    apart: tuple[str, ...] = ()  # operands whose tiles pass the first cache by: "src", "wei"
    tile: RegisterTile | None = None  # None: this package's choice
    caches: tuple[CacheLevel, ...] = ()  # of a machine, whose waits that choice weighs
    blocks: TileBlocks | None = None  # of a library on tiles: its time has them
    lines: int = 1  # of outputs that a library's convolution on tiles takes at a time: its time has them
    columns: int = 0  # and of outputs in one of its calls; 0: as here
    lanes: int = 0  # of a library's registers, where they are narrower than an ISA cap's: its time is theirs
    packs: int = 0  # rows of weights that a library packs at a time, panel by panel, in every run: its time has that
    widens: int = 0  # rows that meet a panel of f16 or bf16 made f32 in a buffer; 0: each tile widens it as it loads
    direct: bool = False  # a library's convolution leaves out taps beside the image, and copies none: its time has that
    line_by_line: bool = False  # a library's tiles have outputs of one line, a panel meets all rows: its time has that
    ahead: bool = False  # the destination's lines are asked for while the products before their stores run
    last: tuple[int, int] | None = None  # the last two chains of channels, where they are no rests of a cut


class DotProduct(Protocol):
    """The fields of a dot product that the order of sums depends on, as `simdnn.kernels.x86.dots.Dot` has them."""

    @property
    def wei(self) -> str: ...
    @property
    def depth(self) -> int: ...
    @property
    def acc(self) -> str: ...
    @property
    def compute(self) -> str: ...
    @property
    def saturates(self) -> bool: ...
    @property
    def unsigned(self) -> bool: ...
    @property
    def chain(self) -> int: ...
