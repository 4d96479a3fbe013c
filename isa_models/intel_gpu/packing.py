"""Matrices in the registers of DPAS: A in rows, B in the layout that every lane reads down its own column.

A and C lie row by row. B ("VNNI"): dword row r of lane n holds elements r*per .. r*per + per-1 of column n,
per = 32 / bits, little-endian (IGC documentation/visa/instructions/DPAS.md).
"""

from __future__ import annotations

import numpy as np

from isa_models.errors import InvalidArgument
from isa_models.formats import fmt
from isa_models.readings.arrays import Array


def _words(elements: Array, dtype: str) -> Array:
    """Elements in the last axis as dwords, the first in the lowest bits."""
    bits = fmt(dtype).bits
    if bits >= 8:
        return np.ascontiguousarray(elements.astype(fmt(dtype).dtype, copy=False)).view(np.uint32)
    per = 32 // bits
    fields = elements.astype(np.int64).reshape(*elements.shape[:-1], -1, per) & ((1 << bits) - 1)
    return np.asarray((fields << (bits * np.arange(per))).sum(axis=-1).astype(np.uint32))


def _elements(words: Array, dtype: str) -> Array:
    form = fmt(dtype)
    words = np.ascontiguousarray(words)
    if form.bits >= 8:
        return words.view(form.dtype)
    fields = (words[..., None].astype(np.int64) >> (form.bits * np.arange(32 // form.bits))) & ((1 << form.bits) - 1)
    if form.signed:
        fields = fields - ((fields > form.high) << form.bits)
    return fields.reshape(*words.shape[:-1], -1).astype(form.dtype)


def pack_a(a: Array, dtype: str) -> Array:
    """A (…, M, K) as dwords (…, M*K*bits/32), row by row.

    >>> [hex(w) for w in pack_a(np.array([[1, 2, -1, 3]], "i1"), "s8")]
    ['0x3ff0201']
    """
    if a.shape[-1] * fmt(dtype).bits % 32:
        raise InvalidArgument(f"A of shape {a.shape} and {dtype}: a row of K elements fills whole dwords")
    words = _words(a, dtype)
    return words.reshape(*a.shape[:-2], -1)


def unpack_a(words: Array, dtype: str, m: int) -> Array:
    """The inverse of `pack_a`: (…, M, K)."""
    return _elements(words, dtype).reshape(*words.shape[:-1], m, -1)


def pack_b(b: Array, dtype: str) -> Array:
    """B (…, K, N) as dwords (…, K*N*bits/32): K in steps of 32 / bits, N inside them, then the step's elements.

    >>> [hex(w) for w in pack_b(np.array([[1, 5], [2, 6], [3, 7], [4, 8]], "i1"), "s8")]
    ['0x4030201', '0x8070605']
    """
    per, (k, n) = 32 // fmt(dtype).bits, b.shape[-2:]
    if k % per:
        raise InvalidArgument(f"B of shape {b.shape} and {dtype}: K a multiple of {per} fills whole dwords")
    steps = b.reshape(*b.shape[:-2], k // per, per, n).swapaxes(-1, -2)
    return _words(steps.reshape(*b.shape[:-2], -1), dtype)


def unpack_b(words: Array, dtype: str, n: int) -> Array:
    """The inverse of `pack_b`: (…, K, N)."""
    per = 32 // fmt(dtype).bits
    steps = _elements(words, dtype).reshape(*words.shape[:-1], -1, n, per).swapaxes(-1, -2)
    return steps.reshape(*words.shape[:-1], -1, n)


def split_a(words: Array) -> tuple[Array, Array]:
    """Packed A of DPASW, shared out to the two fused engines: the first holds the larger half of its 32-byte registers.

    Source: DPASW.md; NGrf = ceil(bytes / 32), and the first engine supplies ceil(NGrf / 2) of them.
    """
    registers = -(-words.shape[-1] // 8)
    cut = 8 * -(-registers // 2)
    return words[..., :cut], words[..., cut:]


def join_a(first: Array, second: Array) -> Array:
    """The registers that both engines of DPASW read: the first's registers, then the second's."""
    return np.concatenate([first, second], axis=-1)
