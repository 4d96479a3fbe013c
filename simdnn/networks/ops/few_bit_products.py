"""Products with weights that are stored in few bits: MatMulNBits, floats of at most a byte, blocks of GGUF files."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from isa_models import Unimplemented
from isa_models.block_formats import block_format
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.narrow_weights import FORMS, Scales
from simdnn.networks.ops.linear import converted, convolve, in_floats
from simdnn.networks.ops.nbits import INTEGERS, CodeBlocks, as_library, by_floats, unpacked
from simdnn.networks.ops.registry import MICROSOFT, need, operator
from simdnn.networks.ops.shape import padded
from simdnn.networks.types import F32, is_float, label
from simdnn.primitives import Quant


@dataclass(frozen=True, eq=False)
class StoredBits:
    """Weights of MatMulNBits: codes (K up to a whole block, N) of `width` bits.

    Each block of `block` codes along K has a scale and a zero point (blocks, N), the middle code where none are given.
    """

    inner: int
    width: int
    block: int
    codes: Array
    scales: Array
    zeros: Array
    has_zeros: bool

    @staticmethod
    def of(node: Node, b: Array, scales: Array, zeros: Array | None) -> StoredBits:
        """The weights as a node stores them, its attributes checked."""
        inner, columns = node.integer("K"), node.integer("N")
        width, block = node.integer("bits", 4), node.integer("block_size")
        need(
            width in (2, 4, 8) and block >= 16 and inner > 0 and columns > 0,
            f"bits={width}, block_size={block}, K={inner}, N={columns}",
        )
        blocks = -(-inner // block)
        need(
            b.size == columns * blocks * block * width // 8,
            f"{b.size} bytes of weights for K={inner}, N={columns}, block_size={block}",
        )
        if zeros is None:
            zero = np.full((blocks, columns), 1 << (width - 1), np.uint8)
        elif is_float(zeros.dtype):
            zero = zeros.reshape(columns, blocks).T
        else:
            zero = unpacked(zeros.reshape(columns, -1), width)[:, :blocks].T
        codes = unpacked(b.reshape(columns, -1), width).T
        scale = scales.reshape(columns, blocks).T.astype(F32)
        return StoredBits(inner, width, block, codes, scale, zero, zeros is not None)

    @property
    def float_zeros(self) -> bool:
        return is_float(self.zeros.dtype)

    def groups(self, given: Array | None) -> Array:
        """The block of each k: as given, else in their order."""
        of = np.arange(self.inner) // self.block if given is None else np.asarray(given).reshape(-1)[: self.inner]
        blocks = len(self.scales)
        need(of.size == self.inner and 0 <= int(of.min()) and int(of.max()) < blocks, f"g_idx for {blocks} groups")
        return of


@operator("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(
    k: Kernels,
    node: Node,
    a: Array,
    b: Array,
    scales: Array,
    zeros: Array | None = None,
    groups: Array | None = None,
    bias: Array | None = None,
) -> Array:
    """a x weights of 2, 4 or 8 bits in groups along K, decompressed by the kernel that the math mode allows; made
    floats ahead where they have 2 bits or zero points in floats, or where `groups` tells the group of each k.
    """
    stored, level = StoredBits.of(node, b, scales, zeros), node.integer("accuracy_level", 0)
    added = None if bias is None else converted(k, bias, F32)
    groups = groups if groups is not None and groups.size > 0 else None
    if groups is not None or stored.width == 2 or stored.float_zeros:
        if k.runs_models:
            _check_known(node, stored, groups is not None, level)
        result = _floats_ahead(k, _rows(k, a, stored), stored, groups, added)
    elif k.runs_models:
        codes, zero = np.ascontiguousarray(stored.codes.T), stored.zeros.T if stored.has_zeros else None
        blocked = CodeBlocks(stored.width, stored.block, codes, stored.scales.T, zero)
        result = as_library(k, _rows(k, a, stored), blocked, added, level)
    else:
        result = _decompressed(k, in_floats(k, a).reshape(-1, stored.inner), stored, added)
    return converted(k, result.reshape(*a.shape[:-1], stored.codes.shape[1]), a.dtype)


def _rows(k: Kernels, a: Array, stored: StoredBits) -> Array:
    return converted(k, a, F32).reshape(-1, stored.inner)


def _check_known(node: Node, stored: StoredBits, grouped: bool, level: int) -> None:
    """`Unimplemented` where onnxruntime has no such product or gets it wrong, or its order of sums is not known."""
    width, works = stored.width, "4 bits with g_idx or zero points in floats work, and 2 bits below level 4 without"
    named = f"{node.op} of {width} bits, accuracy_level={level}{', g_idx' * grouped}"
    if width == 8:
        raise Unimplemented(f"{named}: onnxruntime has none with g_idx or zero points in floats; {works}")
    if width == 2 and (grouped or stored.float_zeros):
        raise Unimplemented(f"{named}: onnxruntime reads the codes as 4 bits, beyond its memory; {works}")
    if grouped and stored.has_zeros and not stored.float_zeros:
        raise Unimplemented(f"{named}: onnxruntime leaves zero points of integers out; {works}")
    if width == 2 and level == INTEGERS:
        raise Unimplemented(f"{named}: onnxruntime's order of sums is not known; {works}")


def _floats_ahead(k: Kernels, rows: Array, stored: StoredBits, groups: Array | None, bias: Array | None) -> Array:
    """Rows times weights that are made floats ahead of the product."""
    of, codes = stored.groups(groups), np.ascontiguousarray(stored.codes[: stored.inner].T)
    scaled_apart = groups is not None or stored.float_zeros
    return by_floats(k, rows, codes, stored.scales[of].T, stored.zeros[of].T, bias, scaled_apart)


def _decompressed(k: Kernels, rows: Array, stored: StoredBits, bias: Array | None) -> Array:
    """Rows times weights that a kernel decompresses as it multiplies."""
    storage = np.dtype(ml_dtypes.uint4 if stored.width == 4 else np.uint8)
    by_block: Any = {"groups": (stored.block, 1)}
    zeros = np.ascontiguousarray(stored.zeros.astype(storage))
    attr = replace(
        k.attr,
        apply_to_int=True,
        scales={"wei": Quant(np.ascontiguousarray(stored.scales), **by_block)},
        zero_points={"wei": Quant(zeros, **by_block)},
    )
    if missing := -stored.inner % stored.block:  # what fills the last block meets zeros
        rows = padded(k, rows, [0, 0], [0, missing], "constant")
    return k.matmul(rows, np.ascontiguousarray(stored.codes).astype(storage), bias, attr=attr, dst="f32")


@operator("MatMulBlocks", domain="simdnn")
def matmul_blocks(
    k: Kernels,
    node: Node,
    a: Array,
    codes: Array,
    scales: Array,
    common: Array | None = None,
    bias: Array | None = None,
) -> Array:
    """a x weights (K, N) of narrow floats, with one scale, one a column, or one for each run of k in a column.

    `common` is a factor of all sums. An attribute `dtype` names the type of codes that are bytes, as ONNX lacks it;
    `source` the form that a is quantized to as it comes (`simdnn.networks.narrow_weights`).
    """
    if kind := node.text("dtype", ""):
        need(codes.dtype == np.uint8, f"{label(codes.dtype)} codes with dtype={kind!r}; u8 bytes of them are")
        codes = codes.view(fmt(kind).dtype)
    inner, columns = codes.shape
    need(scales.ndim < 2 or inner % len(scales) == 0, f"scales {scales.shape} of weights {codes.shape}")
    quant = Quant(scales, mask=0 if scales.size == 1 else 2)
    if scales.ndim == 2:
        quant = Quant(scales, mask=3, groups=(inner // len(scales), 1), dtype=label(scales.dtype))
    given: Scales = {"wei": quant} | ({} if common is None else {"src": Quant(common)})
    added = None if bias is None else converted(k, bias, F32)
    rows = in_floats(k, a).reshape(-1, inner)
    if name := node.text("source", ""):
        need(name in FORMS, f"source={name!r}; {', '.join(FORMS)} are")
        rows, given = k.quantized(rows, FORMS[name], given)
    attr = replace(k.attr, apply_to_int=False, scales=given)
    result = k.matmul(rows, codes, added, attr=attr, dst="f32")
    return converted(k, result.reshape(*a.shape[:-1], columns), a.dtype)


@operator("ConvBlocks", domain="simdnn")
def conv_blocks(k: Kernels, node: Node, x: Array, codes: Array, scales: Array, bias: Array | None = None) -> Array:
    """A convolution with weights of narrow floats that have one scale, or one an output channel.

    An attribute `source` names the form that x is quantized to as it comes, one without blocks. Where no kernel has
    such weights beside a source as it is, they are the floats that they stand for, made ahead of time.
    """
    given: Scales = {"wei": Quant(scales, mask="common" if scales.size == 1 else "per_oc")}
    source = in_floats(k, x)
    if name := node.text("source", ""):
        need(name in FORMS and not FORMS[name].group, f"source={name!r}; a form of one scale is")
        lines, given = k.quantized(source.reshape(x.shape[0] * x.shape[1], -1), FORMS[name], given)
        source = lines.reshape(x.shape)
    with contextlib.suppress(*([] if name else [Unimplemented])):
        return convolve(k, node, source, codes, bias, attr=replace(k.attr, apply_to_int=False, scales=given))
    factor = scales.reshape(-1, *[1] * (codes.ndim - 1)).astype(F32)
    return convolve(k, node, source, codes.astype(F32) * factor, bias)


@operator("MulMat", domain="ggml")
def mul_mat(k: Kernels, node: Node, a: Array, stored: Array) -> Array:
    """a (…, M, K) x weights whose rows (N, bytes) are blocks of `type`: the source is quantized by blocks, too."""
    form = block_format(node.text("type"))
    need(stored.ndim == 2 and stored.dtype == np.uint8, f"weights {stored.dtype} {stored.shape}; rows of bytes needed")
    inner = stored.shape[1] // form.bytes * form.elements
    need(a.ndim >= 2 and a.shape[-1] == inner, f"{a.shape} x {form.name} rows of {inner}: other sizes of K")
    return converted(k, k.blocks(converted(k, a, F32), stored, form.name), a.dtype)
