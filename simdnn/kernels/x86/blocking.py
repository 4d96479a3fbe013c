"""Register and cache blocking: the rows and columns of a tile, and how many tiles share a pass over the weights."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from simdnn.kernels.x86.code import Unit
from simdnn.kernels.x86.dots import Dot

SECOND_LEVEL = 256 * 1024  # bytes of source kept beside the weights: half of the smallest L2 among the machines


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
    fixed = 2 + dot.temporaries + dot.ones + dot.scaled + shifted  # the source's, the epilogue's, and the dot's own
    best: tuple[float, int, int] | None = None
    for vectors in range(1, 9):
        if vectors > 1 and (vectors - 1) * unit.lanes >= columns:
            break
        for most in range(1, 15):
            if most > rows or most * vectors + vectors * (1 + dot.scaled_weights) + fixed > unit.registers:
                break
            tiles = -(-rows // most)
            per_tile = most * vectors
            busy = max(dot.uops * per_tile + dot.load_uops * vectors, vectors + most, 8.0)
            panels = -(-columns // (vectors * unit.lanes))
            wasted = panels * vectors * unit.lanes / columns
            effort = tiles * busy / rows * wasted / vectors
            effort *= 1 + 0.02 / most + 0.02 / vectors  # prefer to reread less
            if best is None or effort < best[0] - 1e-9:
                best = (effort, most, vectors)
    assert best is not None
    return Blocking(best[1], best[2])


def row_blocks(rows: int, most: int) -> list[tuple[int, int, int]]:
    """Blocks of equal height, or of two heights that differ by one: (first row, height, how many)."""
    count = -(-rows // most)
    tall = -(-rows // count)
    short = tall * count - rows
    blocks = [(0, tall, count - short)]
    if short:
        blocks.append(((count - short) * tall, tall - 1, short))
    return [b for b in blocks if b[2]]


def chunk(blocks: int, bytes_per_block: int, level: int) -> int:
    """How many row blocks share one pass over the weights: the divisor of `blocks` whose source fits `level` bytes."""
    fits = max(1, level // max(1, bytes_per_block))
    return max(d for d in range(1, blocks + 1) if blocks % d == 0 and d <= fits)
