"""Sizes of fragments and orders of instructions that kernels of attention for NVIDIA's tensor cores share."""

from __future__ import annotations

from collections.abc import Sequence
from math import e, log2

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code

ROWS, COLUMNS, DEPTH = 16, 8, 16  # of mma.m16n8k16
AHEAD = 3  # fragments that are loaded ahead of the products that read them
MINUS_INFINITY = 0xFF800000  # as f32
THREADS = 4  # of a row of sums
QUADS = THREADS * ROWS  # lanes of what each thread keeps of a row

Parts = list[tuple[Code, Code]]  # loads, and what needs them


def bits_of(number: float) -> int:
    """The bits of a number as f32."""
    return int(np.float32(number).view(np.uint32))


def log2_factor(scale: float) -> int:
    """The bits of scale * log2(e), as the kernel multiplies scores by it."""
    return bits_of(float(np.float32(scale) * np.float32(log2(e))))


def blocks(matrices: Array, rows: int, columns: int) -> Array:
    """(…, M, N) as blocks by rows, each row of blocks after the one before."""
    count, m, n = matrices.shape
    cut = matrices.reshape(count, m // rows, rows, n // columns, columns).swapaxes(2, 3)
    return np.ascontiguousarray(cut).reshape(-1)


def turned(matrices: Array, rows: int, columns: int) -> Array:
    """(…, N, M) as `blocks` of columns of the transposed matrix, each block by rows of that."""
    count, n, m = matrices.shape
    cut = matrices.reshape(count, n // columns, columns, m // rows, rows).transpose(0, 1, 3, 4, 2)
    return np.ascontiguousarray(cut).reshape(-1)


def ahead(parts: Parts, count: int) -> Code:
    """Loads and what needs them, one after the other, each load some parts before its own."""
    code = [found for loads, _ in parts[:count] for found in loads]
    for at, (_, products) in enumerate(parts):
        code += [*(parts[at + count][0] if at + count < len(parts) else []), *products]
    return code


def staggered(stages: Sequence[Sequence[Code]], behind: Sequence[int]) -> Code:
    """Steps of several stages side by side, each stage some steps behind the first."""
    code: Code = []
    for at in range(len(stages[0]) + max(behind)):
        for steps, late in zip(stages, behind, strict=True):
            code += steps[at - late] if 0 <= at - late < len(steps) else []
    return code


def mixed(one: Code, other: Code) -> Code:
    """Two sequences, the shorter one spread evenly among the longer one."""
    places = [
        ((n + 0.5) / len(code), which, step) for which, code in enumerate((one, other)) for n, step in enumerate(code)
    ]
    return [step for _, _, step in sorted(places, key=lambda place: place[:2])]
