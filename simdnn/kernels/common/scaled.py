"""Quantization by blocks that share a scale: MX (OCP Microscaling Formats 1.0) and NVFP4, as problems and as formulas.

x of a block, amax its greatest magnitude, e_max the exponent of the element type's greatest value, m its mantissa bits:

MX      a power of two for a block, 2**e, e within -127 … 127, stored in e8m0; element = x * 2**-e, rounded once to
        nearest even, saturating. A block of zeros has e = -127; with NaN or infinity its scale is NaN, its codes 0.
        s8 (mxint8): q = rint(64 x * 2**-e) from -127 to 127 stands for q / 64.
NVFP4   t = amax of the tensor / (448 * 6); scale = f8_e4m3(amax / 6 / t), saturating; element = f4_e2m1(x / d) with
        d = scale * t, saturating; every step in f32. Where d is 0 all codes are 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isa_models.formats import decode, encode, fmt
from isa_models.readings.arrays import Array

#: how a block's power of two is found, and who does so
RULES = {
    "floor": "2**floor(log2 amax) / 2**e_max: the OCP specification, oneDNN's dynamic_mx, ggml, torchao's default",
    "ceil": "2**ceil(log2 amax) / 2**e_max: nothing saturates",
    "even": "floor of amax rounded to the element's mantissa: torchao's EVEN",
    "rceil": "the least 2**e with amax / greatest <= 2**e: NVIDIA's cuBLAS, torchao's RCEIL",
}
ELEMENTS = ("f8_e4m3", "f8_e5m2", "f6_e2m3", "f6_e3m2", "f4_e2m1", "s8")
_FRACTION = 6  # bits behind the point of an mxint8
_HIDDEN = 23  # mantissa bits of f32
_GREATEST = 254  # the code of the greatest power of two


@dataclass(frozen=True)
class Scaled:
    """An array (outer, blocks, group, inner) of f32, f16 or bf16 whose elements along `group` share a scale.

    `rule`: one of RULES for MX; "nvfp4" for NVFP4, whose tensor's scale is found where `find` says so; "tensor" for
    floats with that scale alone, which is found: blocks mean nothing then.
    """

    outer: int
    blocks: int
    group: int
    inner: int
    src: str
    dst: str
    rule: str
    find: bool = False

    @property
    def size(self) -> int:
        return self.outer * self.blocks * self.group * self.inner

    @property
    def scales(self) -> int:
        return 0 if self.rule == "tensor" else self.outer * self.blocks * self.inner

    @property
    def levels(self) -> bool:
        """Whether the tensor has a scale."""
        return self.rule in ("nvfp4", "tensor")

    @property
    def most(self) -> float:
        """The value that the greatest magnitude of a tensor becomes by its scale."""
        blocks = fmt("f8_e4m3").greatest if self.rule == "nvfp4" else 1.0
        return blocks * self.greatest

    @property
    def mantissa(self) -> int:
        """Bits of an element behind its leading one."""
        form = fmt(self.dst)
        return form.mantissa_bits if form.is_float else _FRACTION

    @property
    def greatest(self) -> float:
        form = fmt(self.dst)
        return form.greatest if form.is_float else form.high / 2**_FRACTION

    @property
    def top(self) -> int:
        """The exponent of the greatest value."""
        return int(np.floor(np.log2(self.greatest)))


def mx(p: Scaled, values: Array) -> tuple[Array, Array]:
    """Codes (bytes of s8) and scales, both uint8, of f32 values (outer, blocks, group, inner)."""
    amax = np.abs(values).max(axis=2)  # NaN where one is
    exponents = np.clip(_exponents(p, amax), 0, _GREATEST).astype(np.uint8)
    scales = np.where(np.isfinite(amax), exponents, np.uint8(255))
    inverse = decode((_GREATEST - exponents).astype(np.uint8), "e8m0")[:, :, None]
    with np.errstate(all="ignore"):
        shrunk = np.where(np.isfinite(amax)[:, :, None], values * inverse, np.float32(0)).astype(np.float32)
    if fmt(p.dst).is_float:
        return encode(shrunk, p.dst), scales
    high = fmt(p.dst).high
    rounded = np.clip(np.rint(shrunk * np.float32(2**_FRACTION)), -high, high)
    return rounded.astype(np.int8).view(np.uint8), scales


def _exponents(p: Scaled, amax: Array) -> Array:
    """The codes of the blocks' powers of two, before they are brought into e8m0's range."""
    finite = np.where(np.isfinite(amax), amax, np.float32(0)).astype(np.float32)
    if p.rule == "rceil":
        return encode((finite / np.float32(p.greatest)).astype(np.float32), "e8m0", rounding="up").astype(np.int32)
    if p.rule == "ceil":
        return encode(finite, "e8m0", rounding="up", overflow="ieee").astype(np.int32) - p.top
    bits = finite.view(np.uint32).astype(np.int64)
    half = 1 << (_HIDDEN - p.mantissa - 1) if p.rule == "even" else 0
    return ((bits + half) >> _HIDDEN) - p.top


def nvfp4(p: Scaled, values: Array, tensor_scale: np.float32 | None) -> tuple[Array, Array, np.float32]:
    """Codes and scales, both uint8, of f32 values (outer, blocks, group, inner), and the tensor's scale.

    A block with NaN or infinity has the scale NaN, and no say in the tensor's.
    """
    six = np.float32(p.greatest)
    amax = np.abs(values).max(axis=2)
    finite = np.isfinite(amax)
    t = np.float32(np.where(finite, amax, 0).max() / np.float32(p.most)) if tensor_scale is None else tensor_scale
    with np.errstate(all="ignore"):
        wanted = ((amax / six).astype(np.float32) / t).astype(np.float32)
        wanted = np.where(t > 0, wanted, np.float32(0))
        scales = encode(np.where(finite, wanted, np.nan).astype(np.float32), "f8_e4m3")
        step = (decode(scales, "f8_e4m3") * t).astype(np.float32)[:, :, None]
        codes = encode(np.where(step > 0, (values / step).astype(np.float32), np.float32(0)).astype(np.float32), p.dst)
    return codes, scales, t


def whole(p: Scaled, values: Array) -> tuple[Array, np.float32]:
    """Codes (uint8) of f32 values, and the scale of all: greatest finite magnitude / greatest value of the type.

    NaN and infinity become NaN, in a type that has it.
    """
    known = np.where(np.isfinite(values), values, np.float32(np.nan)).astype(np.float32)
    t = np.float32(np.where(np.isnan(known), 0, np.abs(known)).max() / np.float32(p.most))
    with np.errstate(all="ignore"):
        shrunk = (known / t).astype(np.float32) if t > 0 else np.where(np.isnan(known), known, np.float32(0))
    return encode(shrunk, p.dst), t


def scaled(
    p: Scaled, values: Array, tensor_scale: np.float32 | None = None
) -> tuple[Array, Array | None, np.float32 | None]:
    """Codes of f32 values (outer, blocks, group, inner), the scales of blocks and of the tensor where there are any."""
    if p.rule == "nvfp4":
        return nvfp4(p, values, tensor_scale)
    if p.rule == "tensor":
        codes, found = whole(p, values)
        return codes, None, found
    return *mx(p, values), None
