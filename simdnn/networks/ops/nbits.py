"""Numbers of a few bits in blocks: MatMulNBits as a library that runs models forms it (`Library.way_of_blocks`), and
rows of such a table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from isa_models import Unimplemented
from isa_models.readings.arrays import Array
from simdnn.kernels.common.nbits import BlockedWeights, FloatRow, IntegerDots, SourceBlocks
from simdnn.kernels.x86.nbits import integer_dots
from simdnn.kernels.x86.nbits_float import float_row
from simdnn.kernels.x86.nbits_source import source_blocks
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.indexing import checked
from simdnn.networks.ops.linear import products
from simdnn.networks.ops.registry import MICROSOFT, axis_of, need, operator
from simdnn.networks.shadows import shadow
from simdnn.networks.types import F32, bits, is_float, limits

#: types of weights that onnxruntime makes blocks of where it meets them dequantized beside a source of floats
CODES = ("s8", "u8", "s4", "u4")
INTEGERS = 4  # the accuracy level at which it then multiplies
_BLOCK = 32


@dataclass(frozen=True, eq=False)
class CodeBlocks:
    """Codes (n, K up to a whole block) in u8, their scales (n, blocks) in f32, and zero points like those, or None."""

    bits: int
    block: int
    codes: Array
    scales: Array
    zeros: Array | None

    @property
    def middle(self) -> int:
        """The code that stands for zero where blocks have none of their own."""
        return 1 << (self.bits - 1)

    @property
    def filled(self) -> Array:
        """Zero points of all blocks."""
        return np.full(self.scales.shape, self.middle, np.uint8) if self.zeros is None else self.zeros

    def cut(self, block: int, inner: int) -> CodeBlocks:
        """Shorter blocks, as many as K = `inner` takes."""
        if block == self.block:
            return self
        each, count = self.block // block, -(-inner // block)
        spread = [None if a is None else a.repeat(each, 1)[:, :count] for a in (self.scales, self.zeros)]
        assert spread[0] is not None
        return CodeBlocks(self.bits, block, self.codes[:, : count * block], spread[0], spread[1])

    @property
    def form(self) -> BlockedWeights:
        n, count = self.scales.shape
        return BlockedWeights(n, count, self.bits, self.block, self.zeros is not None)


def of_columns(w: Array, scale: Array, zero: Array | None) -> CodeBlocks:
    """Blocks of weights (K, N) with a scale and a zero point a column, or a block of a column, or one in all."""
    inner, n = w.shape
    count, half = -(-inner // _BLOCK), -limits(w.dtype)[0]
    codes = np.zeros((n, count * _BLOCK), np.uint8)
    codes[:, :inner] = (w.astype(np.int16) + half).T

    def spread(values: Array) -> Array:
        lines = values if values.ndim == 2 else values.reshape(1, -1)
        return np.ascontiguousarray(np.broadcast_to(lines, (count, n)).T)

    zeros = np.zeros(1, np.int16) if zero is None else zero.astype(np.int16)
    width = bits(w.dtype)
    return CodeBlocks(width, _BLOCK, codes, spread(scale).astype(F32), (spread(zeros) + half).astype(np.uint8))


def as_library(k: Kernels, rows: Array, w: CodeBlocks, bias: Array | None, level: int) -> Array:
    """Rows (m, K) of f32 times blocks, with their bias."""
    library, (m, inner) = k.target.library, rows.shape
    assert library is not None
    if k.on_gpu:
        raise Unimplemented(f"{library.title}'s MatMulNBits on {k.target.machine.name!r}; CPUs work")
    way = library.way_of_blocks(w.bits, level, m, k.constant_weights)
    w = w.cut(library.block_as_formed(w.block), inner)
    n = w.form.n
    if way == "integers":
        return _of_integers(k, rows, w, bias, library.zeros_ahead(w.bits, w.block, m, k.target.caps))
    if way == "row":
        macs = n * inner
        run = k.called("nbits", float_row, FloatRow(inner, w.form, bias is not None), macs=macs, compute_dtype="f32")
        if not k.values:
            return shadow((m, n), F32)
        given = {"src": rows, "w": w.codes, "w_scales": w.scales, "zeros": w.filled}
        return np.asarray(run(given | _bias(bias), macs)).reshape(m, n)
    floats = _as_floats(k, w, inner)
    if way == "chain":
        result = products(replace(k.in_one_chain(), constant_weights=True), rows, floats.T)
        return result if bias is None else k.map(lambda v, b: v + b, result, bias, name="add")
    return products(replace(k, constant_weights=False, transposed=("wei",), followed=""), rows, floats.T, bias)


def by_floats(
    k: Kernels, rows: Array, codes: Array, scales: Array, zeros: Array, bias: Array | None, scaled_apart: bool
) -> Array:
    """Rows (m, K) of f32 times weights that are made floats first: codes (n, K), each with a scale and a zero point.

    `scaled_apart`: code and zero point are scaled each by itself, not their difference.
    """
    if scaled_apart:
        zeros = zeros.astype(F32)
        floats = k.map(lambda c, z, s: c.to_float() * s + (-s) * z, codes, zeros, scales, dst=F32, name="dequantize")
    else:
        points = zeros.astype(np.int32)
        floats = k.map(lambda c, z, s: (c - z).to_float() * s, codes, points, scales, dst=F32, name="dequantize")
    given = replace(k, constant_weights=False, transposed=("wei",), followed="") if k.runs_models else k
    return products(given, rows, floats.T, bias)


def _of_integers(k: Kernels, rows: Array, w: CodeBlocks, bias: Array | None, ahead: bool) -> Array:
    """The source to s8 by blocks; sums of codes; and, unless zero points go off ahead, what they take off."""
    (m, inner), form = rows.shape, w.form
    quantized = k.called("quantize", source_blocks, SourceBlocks(m, inner, w.block))
    problem, macs = IntegerDots(m, form, bias is not None, ahead), m * form.n * inner
    dots = k.called("nbits", integer_dots, problem, macs=macs, compute_dtype="s8")
    sums, total = shadow((m, form.count), F32), shadow((m, form.n), F32)
    if k.values:
        if np.isnan(rows).any():
            raise Unimplemented(
                "MatMulNBits at accuracy_level=4 of a source with NaN: some lanes of onnxruntime's greatest of a block "
                "forget one; other levels work"
            )
        source = quantized({"src": rows.reshape(-1)}, rows.size)
        sums = source["sums"].reshape(m, form.count)
        given = {"codes": source["codes"].view(np.int8), "scales": source["scales"]}
        given |= {"w": w.codes, "w_scales": w.scales, "zeros": w.filled}
        total = np.asarray(dots(given | _bias(bias), macs)).reshape(m, form.n)
    if ahead:
        return total
    taken = np.ascontiguousarray(-(w.scales * w.filled.astype(F32)).T)
    correction = products(replace(k.in_one_chain(), constant_weights=True), sums, taken)
    return k.map(lambda v, c: v + c, total, correction, name="add")


def _bias(bias: Array | None) -> dict[str, Array]:
    return {} if bias is None else {"bias": bias}


def _as_floats(k: Kernels, w: CodeBlocks, inner: int) -> Array:
    """(n, K) in f32: (code - zero point) * scale."""
    n, count = w.scales.shape
    codes = w.codes.reshape(n, count, w.block)
    zeros, scales = w.filled.astype(np.int32)[..., None], w.scales[..., None]
    floats = k.map(lambda c, z, s: (c - z).to_float() * s, codes, zeros, scales, dst=F32, name="dequantize")
    return floats.reshape(n, -1)[:, :inner]


def unpacked(packed: Array, width: int) -> Array:
    """Bytes of the last dimension to values of `width` bits, the lowest first.

    >>> unpacked(np.array([[0x21]], np.uint8), 4).tolist()
    [[1, 2]]
    """
    parts = [packed >> shift & (1 << width) - 1 for shift in range(0, 8, width)]
    return np.stack(parts, -1).reshape(*packed.shape[:-1], -1).astype(np.uint8)


@operator("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(
    k: Kernels, node: Node, data: Array, indices: Array, scales: Array, zeros: Array | None = None
) -> Array:
    """Slices of a table of integers, (code - zero point) * scale; each block along `quantize_axis` has a scale and a
    zero point. Bytes hold codes of `bits` bits each.
    """
    axis, along = (axis_of(node.integer(name, i), data.ndim) for i, name in enumerate(("gather_axis", "quantize_axis")))
    block, width = node.integer("block_size", 128), node.integer("bits", 4)
    need(block > 0 and axis != along and scales.ndim == data.ndim, f"block_size={block}, axes {axis} and {along}")
    if is_float(data.dtype):
        raise Unimplemented(f"GatherBlockQuantized of {data.dtype}; u8, u4 and s4 work")
    packed = data.dtype == np.uint8
    need(not packed or width in (2, 4, 8) and along == data.ndim - 1, f"bytes of {width} bits along axis {along}")
    middle = 0
    if packed:
        middle = 1 << width - 1
        data = unpacked(data, width)
        zeros = None if zeros is None else unpacked(zeros, width)[..., : scales.shape[along]]
    need(scales.shape[along] == -(-data.shape[along] // block), f"scales {scales.shape} for {data.shape} by {block}")

    def found(table: Array, repeats: int) -> Array:
        wide = np.repeat(table, repeats, along) if repeats > 1 else table
        taken = np.take(wide, at, axis)
        return taken if repeats == 1 else np.take(taken, np.arange(data.shape[along]), where)

    at = checked(indices, data.shape[axis])
    where = along if along < axis else along + indices.ndim - 1
    codes = k.moved(found(data.astype(np.int32), 1), 1)
    factors = found(scales, block).astype(F32)
    points = np.int32(middle) if zeros is None else found(zeros.astype(np.int32), block)
    given = codes, factors, np.broadcast_to(points, codes.shape)
    return k.map(lambda c, s, z: (c - z).to_float() * s, *given, dst=scales.dtype, name="dequantize")
