"""Weights of products, and sources, as floats of 8 to 4 bits: how a mode stores a matrix, and the scales with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from isa_models import InvalidArgument
from isa_models.formats import encode, fmt
from isa_models.readings.arrays import Array
from simdnn.primitives.attr import Quant
from simdnn.primitives.scaled import quantize_mx, quantize_nvfp4


@dataclass(frozen=True)
class NarrowWeights:
    """How weights are stored: elements of `dtype`; `scale` names a rule of `quantize_mx`, "nvfp4", "tensor" or
    "channel", whose largest magnitude becomes the type's greatest value. `group`: k that share a scale. `source`: the
    type that a product's source is quantized to as it comes, in blocks of as many k (MX, floor rule); "": it stays.
    """

    dtype: str
    scale: str
    group: int = 0
    source: str = ""

    def shared(self, k: int) -> int:
        """How many of `k` share a scale: the longest run that blocks are made of and that divides them."""
        return gcd(k, self.group) if self.group else k

    def quant(self, k: int) -> dict[str, Quant]:
        """The scales of a product whose cost alone is asked for."""
        if not self.group:
            return {"wei": Quant(None, mask=2 if self.scale == "channel" else 0)}
        dtype = "f8_e4m3" if self.scale == "nvfp4" else "e8m0"
        found = {"wei": Quant(None, mask=3, groups=(self.shared(k), 1), dtype=dtype)}
        if self.source:
            return found | {"src": Quant(None, mask=3, groups=(1, self.shared(k)), dtype="e8m0")}
        return found | ({"src": Quant(None, mask=0)} if self.scale == "nvfp4" else {})

    def quantized(self, rows: Array) -> tuple[Array, dict[str, Any]]:
        """A source (M, K) as a product reads it, and its scales."""
        if not self.source:
            return rows, {}
        q = quantize_mx(rows, self.source, group=self.shared(rows.shape[-1]))
        return q.output, dict(q.attr("src").scales)

    def store(self, weights: Array) -> tuple[Array, dict[str, Any]]:
        """Codes of f32 weights (K, N) in ml_dtypes' type, and the scales of a product by them."""
        if not np.isfinite(weights).all():
            raise InvalidArgument("weights hold NaN or infinity; finite values are needed to quantize them")
        if self.group:
            whole = self.shared(len(weights))
            if self.scale == "nvfp4" and whole == self.group:
                q = quantize_nvfp4(weights, axis=0)
            else:  # NVFP4 has blocks of 16 alone
                rule = "rceil" if self.scale == "nvfp4" else self.scale
                q = quantize_mx(weights, self.dtype, group=whole, rule=rule, axis=0)
            return q.output, dict(q.attr("wei").scales)
        largest = np.abs(weights).max(axis=0 if self.scale == "channel" else None)
        scale = np.where(largest > 0, largest / np.float32(fmt(self.dtype).greatest), 1).astype(np.float32)
        codes = encode((weights / scale).astype(np.float32), self.dtype).view(fmt(self.dtype).dtype)
        return codes, {"wei": Quant(scale.reshape(-1), mask=2 if self.scale == "channel" else 0)}


NARROW_WEIGHTS: Mapping[str, NarrowWeights] = {
    "mxfp8": NarrowWeights("f8_e4m3", "floor", 32),
    "mxfp6": NarrowWeights("f6_e2m3", "floor", 32),
    "mxfp4": NarrowWeights("f4_e2m1", "floor", 32),
    **{f"mxfp4-{rule}": NarrowWeights("f4_e2m1", rule, 32) for rule in ("ceil", "even", "rceil")},
    "nvfp4": NarrowWeights("f4_e2m1", "nvfp4", 16),
    "mxfp8-mxfp8": NarrowWeights("f8_e4m3", "floor", 32, "f8_e4m3"),
    "mxfp8-mxfp4": NarrowWeights("f4_e2m1", "floor", 32, "f8_e4m3"),
    "f8-tensor": NarrowWeights("f8_e4m3", "tensor"),
    "f8-channel": NarrowWeights("f8_e4m3", "channel"),
}
