"""Register and cache blocking: the rows and columns of a tile, and how many tiles share a pass over the weights."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from simdnn.kernels.common.sums import RegisterTile
from simdnn.kernels.x86.code import Unit
from simdnn.kernels.x86.dots import Dot

SECOND_LEVEL = 256 * 1024  # bytes of source kept beside the weights: half of the smallest L2 among the machines
ALL = 1 << 60  # bytes: a library's block of rows is one chunk, whatever its size


@dataclass(frozen=True)
class Blocking:
    """Tiles of `rows` x `vectors` registers."""

    rows: int
    vectors: int


@functools.lru_cache(maxsize=1024)
def choose(unit: Unit, dot: Dot, rows: int, columns: int, shifted: bool) -> Blocking:
    """The tile with the least work per useful product, among those that fit the registers.

    Work counts what any of these CPUs has two of a cycle: multiply uops against loads; a chain of accumulators
    shorter than latency x 2 leaves units idle; columns beyond the matrix are wasted.
    """
    best: tuple[float, Blocking] | None = None
    for tile, busy, rereads in _tiles(unit, dot, shifted):
        if tile.rows > rows or (tile.vectors - 1) * unit.lanes >= columns:
            continue
        tiles, panels = -(-rows // tile.rows), -(-columns // (tile.vectors * unit.lanes))
        wasted = panels * tile.vectors * unit.lanes / columns
        effort = tiles * busy / rows * wasted / tile.vectors * rereads
        if best is None or effort < best[0] - 1e-9:
            best = effort, tile
    assert best is not None
    return best[1]


@functools.lru_cache(maxsize=64)
def _tiles(unit: Unit, dot: Dot, shifted: bool) -> list[tuple[Blocking, float, float]]:
    """Tiles that the registers have room for, each with what a step of it keeps busy, and a factor for one that reads
    little again.
    """
    found, fixed = [], _fixed(dot, shifted)
    for vectors in range(1, 9):
        for rows in range(1, 15):
            held = rows * vectors * (1 + dot.beside) + vectors * (1 + dot.scaled_weights)
            if held + fixed <= unit.registers:
                busy = max(dot.uops * rows * vectors + dot.load_uops * vectors, vectors + rows, 8.0)
                found.append((Blocking(rows, vectors), busy, 1 + 0.02 / rows + 0.02 / vectors))
    return found


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
