"""Register and cache blocking: the rows and columns of a tile, and how many tiles share a pass over the weights."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from isa_models import Machine, UnknownTiming
from isa_models.machines.cpu_record import CacheLevel
from simdnn.kernels.common.sums import RegisterTile
from simdnn.kernels.x86.code import Unit
from simdnn.kernels.x86.dots import Dot, emitted

FIRST_LEVEL = 32 * 1024  # bytes of the smallest first cache among the machines
SECOND_LEVEL = 256 * 1024  # bytes of source kept beside the weights: half of the smallest L2 among the machines
WIDEST = 8  # vectors of a tile
_SHARED = 8  # rows of one set of the first cache, at most: more were slower in a set of twelve
ALL = 1 << 60  # bytes: a library's block of rows is one chunk, whatever its size


@dataclass(frozen=True)
class Blocking:
    """Tiles of `rows` x `vectors` registers."""

    rows: int
    vectors: int


@dataclass(frozen=True)
class Waits:
    """Cycles that work does not hide of what comes from the second cache in a step: for each vector of weights and each
    row of the source, and for each row of a tile of more than `most`, whose lines drive each other out of the first.
    """

    vector: float = 0.0
    row: float = 0.0
    crowded: float = 0.0
    most: int = 0

    def of(self, tile: Blocking) -> float:
        """Cycles of a step of a tile."""
        return tile.vectors * self.vector + tile.rows * (self.row if tile.rows <= self.most else self.crowded)


NO_WAITS = Waits()


@functools.lru_cache(maxsize=1024)
def choose(
    unit: Unit, dot: Dot, rows: int, columns: int, shifted: bool, waits: Waits = NO_WAITS, most: int = WIDEST
) -> Blocking:
    """The tile with the least work per useful product, among those that fit the registers.

    Work counts what any of these CPUs has two of a cycle: multiply uops against loads; a chain of accumulators
    shorter than latency x 2 leaves units idle; columns beyond the matrix are wasted. A step also takes the time that it
    waits for the second cache. `most`: vectors that a tile may have.
    """
    best: tuple[float, Blocking] | None = None
    needed = -(-columns // unit.lanes)
    for tile, rereads in _tiles(unit, dot, shifted):
        if tile.rows > rows or tile.vectors > min(needed, most):
            continue
        whole, rest = divmod(needed, tile.vectors)
        effort = busy(dot, tile) + 2 * waits.of(tile)
        if waits.vector and rest:  # the last panel is narrower
            last = Blocking(tile.rows, rest)
            effort = whole * effort + busy(dot, last) + 2 * waits.of(last)
        else:
            effort *= whole + bool(rest)
        effort *= -(-rows // tile.rows) / rows / columns * rereads
        if best is None or effort < best[0] * (1 - 1e-9):
            best = effort, tile
    assert best is not None
    return best[1]


@functools.lru_cache(maxsize=64)
def _tiles(unit: Unit, dot: Dot, shifted: bool) -> list[tuple[Blocking, float]]:
    """Tiles that the registers have room for, each with a factor for one that reads little again."""
    found, fixed = [], _fixed(dot, shifted)
    for vectors in range(1, WIDEST + 1):
        for rows in range(1, 15):
            held = rows * vectors * (1 + dot.beside) + vectors * (1 + dot.scaled_weights)
            if held + fixed <= unit.registers:
                found.append((Blocking(rows, vectors), 1 + 0.02 / rows + 0.02 / vectors))
    return found


def busy(dot: Dot, tile: Blocking) -> float:
    """Half cycles that products or loads of a step of a tile take."""
    products = dot.uops * tile.rows * tile.vectors
    return max(products + dot.load_uops * tile.vectors, tile.vectors + tile.rows, 8.0)


def outrun(machine: Machine, unit: Unit, dot: Dot) -> tuple[CacheLevel, ...]:
    """A machine's caches, where a product is one uop there, of weights as they are stored: such products take weights
    faster than caches bring them.
    """
    product = emitted(dot.emit, unit, "c0_0", "a", "b0", "t0")
    form = ",".join([{128: "xmm", 256: "ymm", 512: "zmm"}[unit.width]] * 3)
    with suppress(UnknownTiming):
        if len(product) == 1 and not dot.load_uops and len(machine.timing(product[0].instruction, form).uops) == 1:
            return machine.caches
    return ()


def waits_of(caches: Sequence[CacheLevel], vector: int, row: int, apart: int) -> Waits:
    """A machine's waits for the bytes of a vector of weights and of a row's step; `apart`: bytes from row to row."""
    first, second = caches[:2]
    byte = second.exposed / second.load_bytes_per_cycle
    shared = first.ways and apart % (first.size_bytes // first.ways) == 0  # set of all rows
    return Waits(vector * byte, row * byte, first.line_bytes * byte, min(_SHARED, first.ways) if shared else ALL)


def _fixed(dot: Dot, shifted: bool) -> int:
    """Registers beside sums and weights: the source's, the epilogue's, and the dot's own."""
    return 2 + dot.temporaries + dot.ones + dot.scaled + shifted


def fitting(tile: RegisterTile, unit: Unit, dot: Dot, shifted: bool) -> Blocking:
    """A library's tile, with as many of its rows as there are registers for: it may keep fewer beside its sums."""
    left = unit.registers - _fixed(dot, shifted) + 1  # registers of weights are the epilogue's later
    if tile.one_load:  # each row of the source has a register
        return Blocking(min(tile.rows, left // (tile.vectors + 1)), tile.vectors)
    left -= tile.vectors == 1  # which epilogues want two of
    per_vector = tile.rows + 1 + dot.scaled_weights
    while per_vector * tile.vectors > left:
        per_vector -= 1
    return Blocking(per_vector - 1 - dot.scaled_weights, tile.vectors)


def row_blocks(rows: int, most: int, even: bool = True) -> list[tuple[int, int, int]]:
    """Blocks of equal height, or of two heights that differ by one: (first row, height, how many); or else as high as
    can be, and one of what is left.

    >>> row_blocks(16, 6), row_blocks(16, 6, even=False)
    ([(0, 6, 1), (6, 5, 2)], [(0, 6, 2), (12, 4, 1)])
    """
    if not even:
        whole, rest = divmod(rows, most)
        return [block for block in ((0, most, whole), (whole * most, rest, 1)) if block[1] * block[2]]
    count = -(-rows // most)
    tall = -(-rows // count)
    short = tall * count - rows
    blocks = [(0, tall, count - short)]
    if short:
        blocks.append(((count - short) * tall, tall - 1, short))
    return [b for b in blocks if b[2]]


def chunk(blocks: int, bytes_per_block: int, level: int) -> int:
    """How many row blocks share one pass over the weights: the divisor of `blocks` whose source fits `level` bytes."""
    most = min(blocks, max(1, level // max(1, bytes_per_block)))
    return next(d for d in range(most, 0, -1) if blocks % d == 0)


def evenly_chunked(first: int, height: int, count: int, row: int, level: int) -> list[tuple[int, int, int]]:
    """Row blocks, of `row` bytes a row, in two parts where few would share a pass over the weights otherwise, as their
    count has no good divisor.

    >>> evenly_chunked(0, 13, 79, 4096, 1 << 18)
    [(0, 13, 76), (988, 13, 3)]
    """
    most = min(count, max(1, level // (height * row)))
    if 2 * chunk(count, height * row, level) > most:
        return [(first, height, count)]
    whole = count - count % most
    return [(first, height, whole), (first + whole * height, height, count - whole)]
