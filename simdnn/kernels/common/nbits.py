"""Products with weights of 4 or 8 bits in blocks along K, as ONNX's MatMulNBits stores them: the problems.

What stands here of the order of sums is MLAS's, onnxruntime's library (docs/numerics_onnxruntime.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isa_models.readings.arrays import Array


@dataclass(frozen=True)
class BlockedWeights:
    """`n` columns of weights in blocks of `block` along K: `count` blocks each, of codes of `bits` bits.

    A block has one scale; `zeros`: and a zero point of its own, else the middle code is zero.
    """

    n: int
    count: int
    bits: int
    block: int
    zeros: bool

    @property
    def k(self) -> int:
        """Codes of a column, those that fill up the last block among them."""
        return self.count * self.block


@dataclass(frozen=True)
class IntegerDots:
    """dst (m, n) in f32: the sum over blocks of scales * sum of codes, for a source of s8 with a scale a block.

    Codes count from 0: zero points are taken off afterwards. `signed`: they are taken off the codes ahead.
    """

    m: int
    weights: BlockedWeights
    bias: bool
    signed: bool = False


@dataclass(frozen=True)
class FloatRow:
    """dst (1, n) in f32: one row of floats of length `k` times weights that become floats on the way."""

    k: int
    weights: BlockedWeights
    bias: bool


@dataclass(frozen=True)
class SourceBlocks:
    """A source (m, k) in f32 to s8 codes in blocks of `block`, their scales, and scale * sum of the codes."""

    m: int
    k: int
    block: int

    @property
    def count(self) -> int:
        """Blocks of a row."""
        return -(-self.k // self.block)


def nibbles(codes: Array, apart: int) -> Array:
    """Codes of 4 bits (n, k), two a byte: of each 2 * `apart` in a row the second half above the first."""
    halves = codes.reshape(len(codes), -1, 2, apart)
    found: Array = (halves[:, :, 0] | halves[:, :, 1] << 4).astype(np.uint8)
    return found.reshape(len(codes), -1)
