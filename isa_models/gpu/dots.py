"""Dot products of bytes in 32-bit lanes, as both vendors' DP4A have them."""

from __future__ import annotations

from isa_models.algebra import Value


def dot(acc: Value, a: Value, b: Value) -> Value:
    """acc (s32 or u32) plus four neighbouring products, wrapping."""
    total = acc.view("s32")
    for x, y in zip(a.split(4), b.split(4), strict=True):
        total = total + x.to("s32") * y.to("s32")
    return total.view(acc.dtype)
