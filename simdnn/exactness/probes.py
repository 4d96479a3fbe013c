"""Operands that show in which order a kernel adds up: the same along rows and columns, other numbers along K.

All rows of a source are alike. Columns of weights repeat some: those of each *kind* are numbers that show another
difference. So outputs of one kind are equal, bit for bit, wherever a kernel has one order for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array

_Make = Callable[[np.random.Generator, tuple[int, ...], "_Pairing", str], Array]


@dataclass(frozen=True, eq=False)
class _Pairing:
    """Positions of the source in pairs that hold the same number; an odd one is left over."""

    first: Array
    second: Array


def _numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, low: int = -4, high: int = 4) -> Array:
    """Floats of either sign from 2**low to 2**high; all integers of a type."""
    form = fmt(dtype)
    if not form.is_float:
        return rng.integers(form.low, form.high + 1, shape).astype(form.dtype)
    found = rng.choice([-1.0, 1.0], shape) * rng.uniform(1, 2, shape) * 2.0 ** rng.integers(low, high, shape)
    return found.astype(np.float32).astype(form.dtype)


def _usual(rng: np.random.Generator, shape: tuple[int, ...], pairs: _Pairing, dtype: str) -> Array:
    return _numbers(rng, shape, dtype)


def _cancelling(rng: np.random.Generator, shape: tuple[int, ...], pairs: _Pairing, dtype: str) -> Array:
    """Pairs whose products cancel out, so that rounding is all that is left."""
    found = _numbers(rng, shape, dtype, -8, 8)
    if fmt(dtype).low < 0:
        found[pairs.second] = np.maximum(-found[pairs.first].astype(np.float32), fmt(dtype).low).astype(found.dtype)
    return found


def _wide(rng: np.random.Generator, shape: tuple[int, ...], pairs: _Pairing, dtype: str) -> Array:
    """Large and small numbers; of integers the least and the greatest alone."""
    form = fmt(dtype)
    if form.is_float:
        return _numbers(rng, shape, dtype, -12, 12)
    return rng.choice([form.low, form.high], shape).astype(form.dtype)


def _low(rng: np.random.Generator, shape: tuple[int, ...], pairs: _Pairing, dtype: str) -> Array:
    """Normal numbers whose products with each other are denormals, and lose digits; all integers."""
    half = (2 - fmt(dtype).bias) // 2 if fmt(dtype).is_float else 0
    return _numbers(rng, shape, dtype, half - 9, half - 2)


def _tiny(rng: np.random.Generator, shape: tuple[int, ...], pairs: _Pairing, dtype: str) -> Array:
    """Denormals, whose products may be lost; small integers."""
    form = fmt(dtype)
    if not form.is_float:
        return rng.integers(max(form.low, -1), 2, shape).astype(form.dtype)
    least = 1 - form.bias - form.mantissa_bits
    return _numbers(rng, shape, dtype, least, least + 6)


def _zeros(rng: np.random.Generator, shape: tuple[int, ...], pairs: _Pairing, dtype: str) -> Array:
    """Zeros of either sign."""
    zeros = np.zeros(shape, np.float32)
    return (np.where(rng.random(shape) < 0.5, -zeros, zeros) if fmt(dtype).is_float else zeros).astype(fmt(dtype).dtype)


#: of the columns of weights, in the order in which a matrix has them
KINDS: tuple[_Make, ...] = (_cancelling, _usual, _low, _wide, _tiny, _zeros)


@dataclass(frozen=True, eq=False)
class Probe:
    """One row of a source (K,), and columns of weights (K, taps, columns); `kinds`: what each column shows."""

    row: Array
    columns: Array

    @staticmethod
    def of(k: int, taps: int, types: tuple[str, str], kinds: tuple[_Make, ...], seed: int) -> Probe:
        """The probe of sizes and types (source, weights); equal arguments give equal numbers.

        Sources of odd seeds hold small numbers, every fourth one those of a wide range.
        """
        rng = np.random.default_rng([seed, k, taps])
        order = rng.permutation(k)
        pairs = _Pairing(order[0 : k - 1 : 2], order[1:k:2])
        row = (_usual, _low, _wide, _low)[seed % 4](rng, (k,), pairs, types[0])
        row[pairs.second] = row[pairs.first]
        columns = [make(rng, (k, taps), pairs, types[1]) for make in kinds]
        return Probe(row, np.stack(columns, axis=-1))

    def matmul(self, m: int, n: int) -> tuple[Array, Array]:
        """Source (M, K) and weights (K, N)."""
        columns = self.columns[:, 0, np.arange(n) % self.columns.shape[-1]]
        return np.ascontiguousarray(np.broadcast_to(self.row, (m, len(self.row)))), np.ascontiguousarray(columns)

    def convolution(
        self, image: tuple[int, int, int], channels: int, taps: tuple[int, int], groups: int
    ) -> tuple[Array, Array]:
        """Source (N, IC, IH, IW) of images (N, IH, IW), and weights (OC, IC/G, KH, KW)."""
        mb, ih, iw = image
        row = np.tile(self.row, groups)
        src = np.broadcast_to(row[None, :, None, None], (mb, len(row), ih, iw))
        kinds = np.arange(channels) % (channels // groups) % self.columns.shape[-1]
        weights = self.columns[:, :, kinds].transpose(2, 0, 1).reshape(channels, len(self.row), *taps)
        return np.ascontiguousarray(src), np.ascontiguousarray(weights)
