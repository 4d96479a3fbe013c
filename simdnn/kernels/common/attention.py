"""Attention as a problem: softmax(q k^T * scale) v, head by head."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True)
class AttentionProblem:
    """`batch` products of `heads` heads of `lq` queries of size `d`, which `kv_heads` heads of `lk` keys serve; values
    of size `dv`. All are of `dtype`, the destination of `dst`.

    `causal`: the last query sees all keys, and each one before it a key less; of these each sees the
    last `window`, 0: all.
    """

    batch: int
    heads: int
    kv_heads: int
    lq: int
    lk: int
    d: int
    dv: int
    dtype: str
    dst: str
    scale: float
    causal: bool = False
    window: int = 0

    @property
    def shared(self) -> int:
        """Heads of queries by each head of keys."""
        return self.heads // self.kv_heads

    def by_keys(self) -> Self:
        """The problem as libraries compute it where heads have one query each: those that share keys are queries of
        one head, and none of them has keys that are not seen. They leave a window as it is.
        """
        if self.lq > 1 or self.window:
            return self
        return replace(self, heads=self.kv_heads, lq=self.shared, causal=False)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of both products, unseen keys among them."""
        return self.batch * self.heads * self.lq * self.lk * (self.d + self.dv)
