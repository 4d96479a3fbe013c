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
from simdnn.kernels.common.scaled import RULES, Scaled, scaled
from simdnn.primitives.attr import Quant, TwoLevelQuant
from simdnn.primitives.block_scales import Blocks, quantize_mx, quantize_nvfp4

Scales = Mapping[str, Any]  # of a product, by argument
#: what is said of a network in a mode whose weights are in blocks
KEPT = "convolutions keep the weights they have: blocks along K are of products"


@dataclass(frozen=True)
class NarrowForm:
    """How a matrix is stored: elements of `dtype`; `scale` names a rule of `quantize_mx`, "nvfp4", "tensor" or
    "channel", whose largest magnitude becomes the type's greatest value. `group`: k that share a scale.
    """

    dtype: str
    scale: str
    group: int = 0

    def shared(self, k: int) -> int:
        """How many of `k` share a scale: the longest run that blocks are made of and that divides them."""
        return gcd(k, self.group) if self.group else k

    def rule(self, k: int) -> str:
        """How scales are found: NVFP4 has blocks of 16 alone, shorter ones have powers of two."""
        return "rceil" if self.scale == "nvfp4" and self.shared(k) != self.group else self.scale

    def quant(self, argument: str, k: int) -> Quant:
        """The scales of an argument of a product whose cost alone is asked for."""
        if not self.group:
            return Quant(None, mask="per_oc" if self.scale == "channel" else "common")
        groups = (self.shared(k), 1) if argument == "wei" else (1, self.shared(k))
        if self.rule(k) == "nvfp4":
            return TwoLevelQuant(None, mask=3, groups=groups, dtype="f8_e4m3")
        return Quant(None, mask=3, groups=groups, dtype="e8m0")

    def store(self, weights: Array) -> tuple[Array, Scales]:
        """Codes of f32 weights (K, N) in ml_dtypes' type, and the scales of a product by them."""
        if not np.isfinite(weights).all():
            raise InvalidArgument("weights hold NaN or infinity; finite values are needed to quantize them")
        if self.group:
            rule = self.rule(len(weights))
            if rule == "nvfp4":
                q = quantize_nvfp4(weights, axis=0)
            else:
                q = quantize_mx(weights, self.dtype, group=self.shared(len(weights)), rule=rule, axis=0)
            return q.output, q.attr("wei").scales
        largest = np.abs(weights).max(axis=0 if self.scale == "channel" else None)
        scale = np.where(largest > 0, largest / np.float32(fmt(self.dtype).greatest), 1).astype(np.float32)
        codes = encode((weights / scale).astype(np.float32), self.dtype).view(fmt(self.dtype).dtype)
        return codes, {"wei": Quant(scale.reshape(-1), mask="per_oc" if self.scale == "channel" else "common")}

    def filters(self, weights: Array, channels: int) -> tuple[Array, Scales]:
        """Codes of a convolution's f32 weights, whose first axes hold `channels` outputs, and the scales of it."""
        codes, scales = self.store(np.ascontiguousarray(weights.reshape(channels, -1).T))
        return np.ascontiguousarray(codes.T).reshape(weights.shape), scales

    def problem(self, m: int, k: int, src: str) -> Scaled:
        """The problem of the kernel that quantizes a source (M, K)."""
        group, rule = self.shared(k), self.rule(k)
        return Scaled(m, k // group, group, 1, src, self.dtype, rule, find=rule in ("nvfp4", "tensor"))

    def read(self, rows: Array, weights: Scales) -> tuple[Array, Scales]:
        """Codes of a source (M, K) of floats as it comes, and the scales of its product by `weights` with those scales;
        a form without blocks takes an array of any shape.

        A number that is none stays so: a block that holds NaN or infinity is NaN, or the element where none shares.
        """
        *_, k = rows.shape
        m = rows.size // k
        p = self.problem(m, k, "f32")
        codes, scales, tensor = scaled(p, rows.astype(np.float32).reshape(m, k // p.group, p.group, 1))
        codes = codes.view(fmt(self.dtype).dtype).reshape(rows.shape)
        if scales is None:
            assert "src" not in weights, "a factor of all sums besides"
            return codes, {**weights, "src": tensor}
        held = scales.view(fmt("f8_e4m3" if p.rule == "nvfp4" else "e8m0").dtype).reshape(m, k // p.group)
        q = Blocks(codes, held, tensor, self.dtype, p.group, 1, None, p.rule)
        return codes, q.attr("src", scales=weights).scales


@dataclass(frozen=True)
class NarrowMode:
    """A mode: the form of weights, and by name that of sources, quantized as they come; "": they stay."""

    weights: NarrowForm
    reads: str = ""

    @property
    def source(self) -> NarrowForm | None:
        return FORMS[self.reads] if self.reads else None

    @property
    def of_filters(self) -> bool:
        """Whether convolutions have it, too: blocks are along K of products alone."""
        return not self.weights.group

    @staticmethod
    def of(name: str, conv: bool) -> NarrowMode | None:
        """The one by name, of a product or of a convolution; None where it is none, or has nothing for that."""
        found = NARROW_MODES.get(name)
        return None if found is None or conv and not found.of_filters else found

    @staticmethod
    def kept(name: str, convolutions: bool) -> list[str]:
        """A note for a network, with convolutions or not, in a mode that is of products alone."""
        return [KEPT] if convolutions and name and NarrowMode.of(name, conv=True) is None else []

    def quant(self, k: int) -> dict[str, Quant]:
        """The scales of a product whose cost alone is asked for."""
        found = {"wei": self.weights.quant("wei", k)}
        return found | ({"src": self.source.quant("src", k)} if self.source else {})

    def read(self, rows: Array, weights: Scales) -> tuple[Array, Scales]:
        """A source (M, K) as a product reads it, and the scales of the product; `weights`: those of its weights."""
        return self.source.read(rows, weights) if self.source else (rows, weights)


def _with_rule(rule: str, name: str) -> str:
    """A name with a rule of powers of two; that of OCP's specification goes without saying."""
    return name if rule == "floor" else f"{name}-{rule}"


_MX = {"mxfp8": "f8_e4m3", "mxfp6": "f6_e2m3", "mxfp4": "f4_e2m1"}
FORMS: Mapping[str, NarrowForm] = {
    **{_with_rule(rule, name): NarrowForm(dtype, rule, 32) for name, dtype in _MX.items() for rule in RULES},
    "nvfp4": NarrowForm("f4_e2m1", "nvfp4", 16),
    "f8-tensor": NarrowForm("f8_e4m3", "tensor"),
    "f8-channel": NarrowForm("f8_e4m3", "channel"),
}
#: sources, and the weights that they meet, which share a rule where they have one
_PAIRS = (("mxfp8", "mxfp8"), ("mxfp8", "mxfp4"), ("mxfp4", "mxfp4"))
NARROW_MODES: Mapping[str, NarrowMode] = {
    **{name: NarrowMode(form) for name, form in FORMS.items()},
    **{
        _with_rule(rule, f"{source}-{weights}"): NarrowMode(FORMS[_with_rule(rule, weights)], _with_rule(rule, source))
        for source, weights in _PAIRS
        for rule in RULES
    },
    "nvfp4-nvfp4": NarrowMode(FORMS["nvfp4"], "nvfp4"),
    "f8-f8-tensor": NarrowMode(FORMS["f8-tensor"], "f8-tensor"),
    "f8-f8-channel": NarrowMode(FORMS["f8-channel"], "f8-tensor"),
}
