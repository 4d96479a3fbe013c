"""Sums of transposed convolutions of floats in oneDNN's orders (docs/numerics.md, rule 18): made of convolutions, an
offset within the strides each, or of products, a tap each.

A convolution goes through its taps in order, so one of the image turned round goes through those of the transposed
convolution in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import prod
from typing import Any

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.kernels.x86.gemm_older import parts
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.registry import OWN, operator
from simdnn.networks.ops.shape import view
from simdnn.networks.shadows import shadow
from simdnn.networks.types import F32, S32, is_float, label

_OF_A_TILE = 32  # products of bf16 that a tile sums before they are added to what is there
_SHORT = 8  # products of bf16 after which a GEMM's sum restarts where a side of it is a vector

# Of the GEMM of AVX2: products of a sum, rows and columns of a block, then of a tile and how many are few, which has
# two sums, of even and odd products.
_DEPTHS, _ROWS, _COLUMNS = 96, (4032, 16, 8), (48, 6, 3)
_WHOLE = 256  # products of bytes that a GEMM of AVX2 does not cut, where pairs would begin anew
_FUSED = 3  # columns of such a tile from which its products are not rounded


@dataclass(frozen=True)
class AxisLine:
    """One axis at one offset within its stride: the taps that fall there, and what they read.

    Output m of the line, counted from its end, reads element `start` - (m + tap number * `gap`) of the source.
    """

    offset: int
    stride: int
    count: int  # outputs
    taps: tuple[int, ...]
    gap: int
    start: int
    size: int  # of the source

    @property
    def read(self) -> int:
        """Elements that are read, those outside of the source among them."""
        return self.count + (len(self.taps) - 1) * self.gap

    @property
    def around(self) -> tuple[int, int]:
        """Elements that are read outside of the source, ahead of it as it is turned round and behind."""
        ahead = min(max(0, self.start + 1 - self.size), self.read)
        return ahead, min(max(0, self.read - 1 - self.start), self.read - ahead)

    def outputs(self) -> slice:
        return slice(self.offset, None, self.stride)

    def of(self, source: Array, axis: int) -> Array:
        """The source along this axis turned round, zeros where it has none."""
        places = self.start - np.arange(self.read)
        inside = (places >= 0) & (places < self.size)
        shape = [-1 if i == axis else 1 for i in range(source.ndim)]
        found = source.take(np.where(inside, places, 0), axis)
        return np.where(inside.reshape(shape), found, np.zeros((), found.dtype))

    def seen(self, tap: int) -> tuple[bool, ...]:
        """Whether each output sees the source through a tap."""
        places = self.start - np.arange(self.count) - tap * self.gap
        return tuple(bool(0 <= place < self.size) for place in places)

    def parts(self) -> list[list[int]]:
        """Numbers of taps that are summed together: those that see the source from every output, else each alone."""
        found: list[list[int]] = []
        full = False
        for tap in range(len(self.taps)):
            seen = self.seen(tap)
            if not any(seen):
                continue
            if all(seen) and full:
                found[-1].append(tap)
            else:
                found.append([tap])
            full = all(seen)
        return found


def lines(size: int, kernel: int, stride: int, dilation: int, before: int, out: int) -> Iterator[AxisLine]:
    """The lines of an axis, those without taps left out.

    >>> [(line.offset, line.taps) for line in lines(3, 3, 2, 1, 0, 7)]
    [(0, (0, 2)), (1, (1,))]
    """
    for offset in range(min(stride, out)):
        taps = tuple(t for t in range(kernel) if (offset + before - t * dilation) % stride == 0)
        if taps:
            count = -(-(out - offset) // stride)
            gap = (taps[1] - taps[0]) * dilation // stride if len(taps) > 1 else 1
            first = (offset + before - taps[0] * dilation) // stride
            yield AxisLine(offset, stride, count, taps, gap, count - 1 + first, size)


@dataclass(frozen=True)
class TransposedSums:
    """A transposed convolution of x (N, groups * ic, D, H, W) with weights (groups, oc, ic, KD, KH, KW)."""

    k: Kernels
    order: str
    out: tuple[int, ...]
    axes: tuple[tuple[AxisLine, ...], ...]

    def run(self, x: Array, w: Array, sizes: Sequence[int]) -> Array:
        n, (groups, oc, ic) = x.shape[0], w.shape[:3]
        dtype = F32 if is_float(x.dtype) else S32
        result = np.zeros((n, groups * oc, *self.out), dtype)
        for deep, high, wide in product(*self.axes):
            parts = wide.parts() if self.order == "strided" and self.out[2] % wide.stride == 0 else None
            runs = [range(len(wide.taps))] if parts is None else parts
            blocks = self._blocks(ic, *sizes)
            total: Array | None = None
            if self.order == "reference" and any(sum(line.around) == line.read for line in (high, wide)):
                continue
            for run, channels in product(runs, blocks):
                found = self._convolved(x, w, (deep, high, wide), run, channels)
                total = found if total is None else self.k.map(lambda a, b: a + b, total, found, name="add")
            if total is not None and self.k.values:
                places = (slice(None), slice(None), deep.outputs(), high.outputs(), wide.outputs())
                result[places] = total
        return result if self.k.values else shadow(result.shape, dtype)

    def _blocks(self, ic: int, block: int = 0, together: int = 0) -> list[list[range]]:
        """Blocks of channels, those of one sum together."""
        if not block:
            return [[range(ic)]]
        every = [range(i, min(i + block, ic)) for i in range(0, ic, block)]
        step = together or len(every)
        return [every[i : i + step] for i in range(0, len(every), step)]

    def _places(self, channels: int) -> Array:
        """Where channels of a block lie: on tiles each step takes as many as the largest even divisor says that a row
        has room for (`rd_block` in brgemm_utils.cpp).
        """
        each = np.arange(channels)
        if self.order != "tiles" or channels <= _OF_A_TILE:
            return each
        step = max(n for n in range(2, _OF_A_TILE + 1, 2) if channels % n == 0)
        return each // step * _OF_A_TILE + each % step

    def _convolved(
        self,
        x: Array,
        w: Array,
        where: tuple[AxisLine, AxisLine, AxisLine],
        run: Sequence[int],
        blocks: Sequence[range],
    ) -> Array:
        """Sums over some taps of a row and some channels; planes of the source and blocks are an image's planes."""
        deep, high, wide = where
        groups, oc = w.shape[:2]
        first = wide.start - run[0] * wide.gap
        wide = replace(wide, taps=tuple(wide.taps[i] for i in run), start=first)
        places = self._places(max(map(len, blocks)))
        channels = int(places[-1]) + 1
        channels += -channels % (2 if label(x.dtype) == "bf16" else 1)
        n, planes = x.shape[0], len(blocks) * len(deep.taps)
        image_shape = (n * deep.count, groups * channels, planes, high.read, wide.read)
        kernel_shape = (groups * oc, channels, planes, len(high.taps), len(wide.taps))
        if self.k.values:
            image = self._image(x.reshape(n, groups, -1, *x.shape[2:]), where[:2], wide, blocks, places, channels)
            image = image.reshape(image_shape)
            kernel = np.zeros((groups, oc, len(blocks), channels, *(len(a.taps) for a in (deep, high, wide))), w.dtype)
            for i, block in enumerate(blocks):
                kernel[:, :, i, places[: len(block)]] = w[:, :, block][..., list(deep.taps), :, :][
                    ..., list(high.taps), :
                ][..., list(wide.taps)]
            kernel = np.ascontiguousarray(np.moveaxis(kernel, 2, 3).reshape(kernel_shape))
        else:
            image, kernel = shadow(image_shape, x.dtype), shadow(kernel_shape, w.dtype)
        gaps = [high.gap, wide.gap]
        if planes == 1:  # as images of two dimensions
            image, kernel = (view(self.k, a, (*a.shape[:2], *a.shape[3:])) for a in (image, kernel))
        options: dict[str, Any] = {"dilation": tuple(gaps if planes == 1 else [1, *gaps])}
        if self.order == "reference":  # which skips taps beside the source, infinite weights among them
            (top, bottom), (left, right) = high.around, wide.around
            image = _laid(self.k, image[..., top : high.read - bottom, left : wide.read - right])
            options["padding"] = (top, left, bottom, right) if planes == 1 else (0, top, left, 0, bottom, right)
        found = self._convolution(image, kernel, groups, options)
        if self.k.values and self.order not in ("reference", "tiles") and not np.isfinite(kernel).all():
            again = partial(self._convolution, image, groups=groups, where=options)
            copied = self.order == "strided" and self.out[2] % wide.stride > 0  # lines, with zeros around them
            found = _left_out(found, kernel, (deep, high, wide), copied, again)
        shape = (n, deep.count, groups * oc, high.count, wide.count)
        if not self.k.values:
            return shadow((n, groups * oc, deep.count, *shape[3:]), found.dtype)
        turned = np.moveaxis(found.reshape(shape), 1, 2)[:, :, ::-1, ::-1, ::-1]
        return np.ascontiguousarray(turned)

    def _image(
        self,
        x: Array,
        ahead: Sequence[AxisLine],
        wide: AxisLine,
        blocks: Sequence[range],
        places: Array,
        channels: int,
    ) -> Array:
        """(N, output planes, groups, channels, blocks * planes, rows, columns) of x (N, groups, ic, D, H, W)."""
        deep, high = ahead
        turned = wide.of(high.of(x, 4), 5)
        planes = deep.of(turned, 3)
        found = np.zeros(
            (x.shape[0], deep.count, x.shape[1], channels, len(blocks), len(deep.taps), *planes.shape[4:]), x.dtype
        )
        for i, block in enumerate(blocks):
            for t in range(len(deep.taps)):
                place = slice(t * deep.gap, t * deep.gap + deep.count)
                found[:, :, :, places[: len(block)], i, t] = np.moveaxis(planes[:, :, block, place], 3, 1)
        return found

    def _convolution(self, image: Array, kernel: Array, groups: int, where: Mapping[str, Any]) -> Array:
        """A convolution in one chain: by a row of the kernel table whose order knows no exception here."""
        kind, alone = label(image.dtype), groups > 1 or kernel.shape[1] == 1
        isa = "avx512_core" if "avx512_core" in self.k.target.caps and not (kind == "f32" and alone) else "avx2"
        row = f"conv:{isa}"
        if kind == "f32" and kernel.shape[:2] == (groups, 1) and len(where["dilation"]) == 2 and groups > 1:
            row = "dw:avx512_core" if "avx512_core" in self.k.target.caps else "dw:avx2"
        elif kind in ("bf16", "f16"):
            row = self._row_of_halves(kind, kernel.shape[:2] == (groups, 1) and groups > 1)
        elif kind != "f32":
            row = next(f"conv:{isa}" for isa in ("avx512_core_vnni", "avx2_vnni") if isa in self.k.target.caps)
        kernels = replace(self.k, target=replace(self.k.target, dispatch=row))
        dst = "f32" if is_float(image.dtype) else "s32"
        return kernels.convolution(image, kernel, **where, groups=groups, dst=dst, turned=True)

    def _row_of_halves(self, kind: str, depthwise: bool) -> str:
        """The row for floats of 16 bits."""
        if self.order == "reference":
            return "ref_conv:avx512_core"
        if self.order == "tiles":
            return f"conv:avx512_core_amx{'_fp16' * (kind == 'f16')}"
        if kind == "f16":
            return f"conv:avx512_core_f16{'_taps' * depthwise}"
        return f"conv:avx512_core_bf16{'_emulated' * ('avx512_core_bf16' not in self.k.target.caps)}"


def _left_out(
    found: Array, kernel: Array, where: Sequence[AxisLine], copied: bool, run: Callable[[Array], Array]
) -> Array:
    """Sums without the taps beside the source, of a line only where that is not `copied`, which differ where weights
    are infinite or NaN: outputs that see the source through the same taps come from a `run` in which such weights of
    the others are zeros.
    """
    sees = [np.array([line.seen(tap) for tap in range(len(line.taps))]) for line in where]
    sees[2] |= copied
    kinds = [np.unique(one, axis=1, return_inverse=True) for one in sees]
    shape = (-1, where[0].count, found.shape[1], where[1].count, where[2].count)
    taps = kernel.reshape(*kernel.shape[:2], -1, *(len(line.taps) for line in where))
    result = np.array(found).reshape(shape)
    for deep, high, wide in product(*(range(one.shape[1]) for one, _ in kinds)):
        seen = kinds[0][0][:, deep, None, None] & kinds[1][0][:, high, None] & kinds[2][0][:, wide]
        hidden = ~np.isfinite(taps) & ~seen
        if hidden.any():
            other = run(np.where(hidden, kernel.dtype.type(0), taps).reshape(kernel.shape)).reshape(shape)
            places = [np.flatnonzero(which == kind) for (_, which), kind in zip(kinds, (deep, high, wide), strict=True)]
            at = np.ix_(np.arange(len(result)), places[0], np.arange(shape[2]), places[1], places[2])
            result[at] = other[at]
    return result.reshape(found.shape)


@operator("TransposedSums", domain=OWN)
def transposed_sums(k: Kernels, node: Node, x: Array, w: Array) -> Array:
    """f32 sums, or exact ones of integers, (N, OC, …) of x (N, IC, …) and weights (OC, IC/G, …) in an `order` (see
    `simdnn.libraries.onednn.deconvolution.form`).
    """
    rank, groups, order = x.ndim - 2, node.integer("group", 1), node.text("order")
    ones, zeros = [1] * (3 - rank), [0] * (3 - rank)
    out = (*ones, *node.integers("out"))
    strides, gaps = ([*ones, *node.integers(name)] for name in ("strides", "dilations"))
    before = [*zeros, *node.integers("pads")]
    x3 = view(k, x, (*x.shape[:2], *ones, *x.shape[2:]))
    w6 = view(k, w, (groups, w.shape[0] // groups, w.shape[1], *ones, *w.shape[2:]))
    if order == "chain" and label(x.dtype) == "bf16" and w.shape[1] == 1 == w.shape[0] // groups:
        x3, w6 = (k.map(lambda v: v * 1.0, a, dst=F32, name="convert") for a in (x3, w6))  # a depthwise kernel widens
    if order in ("products", "exact", "halved", "pairs"):
        found = _products(k, x3, w6, out, strides, gaps, before, rank == 3, order)
    else:
        every = zip(x3.shape[2:], w6.shape[3:], strides, gaps, before, out, strict=True)
        axes = tuple(tuple(lines(*axis)) for axis in every)
        found = TransposedSums(k, order, out, axes).run(x3, w6, node.integers("sizes"))
    return view(k, found, (*found.shape[:2], *out[3 - rank :]))


def _products(
    k: Kernels,
    x: Array,
    w: Array,
    out: Sequence[int],
    strides: Sequence[int],
    gaps: Sequence[int],
    before: Sequence[int],
    turned: bool,
    order: str,
) -> Array:
    """The products of each tap, added where they fall: tap after tap; `turned`: the last one first. Of bytes "exact"
    ones without pairs that saturate; "halved" ones by halves of weights, "pairs" a kernel's, "products" a GEMM's.
    """
    n, (groups, oc, ic), taps = x.shape[0], w.shape[:3], w.shape[3:]
    size, columns = x.shape[2:], oc * prod(taps)
    dtype = np.dtype(np.int32) if w.dtype == np.int8 else F32
    result = np.zeros((n, groups * oc, *out), dtype)
    for group in range(groups):
        if k.values:
            rows = np.ascontiguousarray(np.moveaxis(x[:, group * ic : (group + 1) * ic], 1, -1).reshape(-1, ic))
            weights = np.ascontiguousarray(np.moveaxis(w[group], 1, 0).reshape(ic, columns))
        else:
            rows, weights = shadow((n * prod(size), ic), x.dtype), shadow((ic, columns), w.dtype)
        parts = _multiplied(k, rows, weights, size[1] * size[2]) if dtype == F32 else _of_bytes(k, rows, weights, order)
        if not k.values:
            k.plain(shadow((n * prod(size), columns), dtype), shadow((n * prod(size), columns), dtype))
            continue
        shaped = parts.reshape(n, *size, oc, *taps)
        target = result[:, group * oc : (group + 1) * oc]
        in_order = list(np.ndindex(*taps))
        for tap in reversed(in_order) if turned else in_order:
            _add_where_it_falls(target, np.moveaxis(shaped[(..., *tap)], -1, 1), tap, strides, gaps, before)
        k.plain(parts, parts)
    return result if k.values else shadow(result.shape, dtype)


def _of_bytes(k: Kernels, rows: Array, weights: Array, order: str) -> Array:
    """Products of bytes in s32: without VNNI pairs of neighbours along K saturate, of an s8 source shifted by 128."""
    caps = k.target.caps
    row = next((f"gemm:{isa}" for isa in ("avx512_core_vnni", "avx2_vnni") if isa in caps), "")
    if not row:
        row = f"gemm:{'avx512_core' if 'avx512_core' in caps else 'avx2'}_int8" + "_exact" * (order == "exact")
    kernels = replace(k, target=replace(k.target, dispatch=row))
    if order == "halved" and k.values:
        weights = np.rint(weights * np.float32(0.5)).astype(np.int8)
    step = _WHOLE if order == "pairs" and row.endswith("_int8") else max(1, len(weights))
    total: Array | None = None
    for first in range(0, max(1, len(weights)), step):
        part = slice(first, first + step)
        found = kernels.matmul(_laid(k, rows[:, part]), _laid(k, weights[part]), dst="s32")
        total = found if total is None else k.map(lambda p, q: p + q, total, found, dst=S32, name="add")
    assert total is not None
    return total * np.int32(2) if order == "halved" and k.values else total  # their scale is doubled


def _add_where_it_falls(
    target: Array, part: Array, tap: Sequence[int], strides: Sequence[int], gaps: Sequence[int], before: Sequence[int]
) -> None:
    """Adds the products of a tap and each source element to the outputs that they fall on."""
    to, source = [slice(None)] * 2, [slice(None)] * 2
    for axis, (t, s, d, b) in enumerate(zip(tap, strides, gaps, before, strict=True), 2):
        places = np.arange(part.shape[axis]) * s + t * d - b
        inside = np.flatnonzero((places >= 0) & (places < target.shape[axis]))
        if not len(inside):
            return
        first, last = inside[0], inside[-1]
        source.append(slice(first, last + 1))
        to.append(slice(places[first], places[last] + 1, s))
    target[tuple(to)] += part[tuple(source)]


def _multiplied(k: Kernels, rows: Array, weights: Array, plane: int) -> Array:
    """rows (M, K) x weights (K, N) as its GEMMs of `plane` rows each add up: one chain; of bf16, where a side is a
    vector, one every eight; of f32 under AVX2 even and odd products apart in tiles of half the rows or few columns.
    """
    depth, columns = weights.shape
    vector = 1 in (columns, plane)
    if label(rows.dtype) == "bf16":
        tiles = "avx512_core_amx" in k.target.caps and not vector
        native = f"gemm:avx512_core_{'amx' if tiles else 'bf16'}"
        row = native if "avx512_core_bf16" in k.target.caps else "gemm:avx512_core_bf16_emulated"
        step = _SHORT if vector else _OF_A_TILE if tiles else depth
        return _summed(k, rows, weights, row, [slice(i, i + step) for i in range(0, depth, step)])
    if "avx512_core" in k.target.caps:
        return _summed(k, rows, weights, "gemm:avx512_core", [slice(None)])
    in_rows, in_columns = _last_tiles(plane, *_ROWS)[np.arange(len(rows)) % plane], _last_tiles(columns, *_COLUMNS)
    total: Array | None = None
    for first, size in parts(depth, _DEPTHS, 1):
        part = slice(first, first + size)
        found = _summed(k, rows, weights, "gemm:avx2", [part])
        if not vector:
            a, b = (_laid(k, m) for m in (rows[:, part], weights[part]))
            if size > 1 and (in_rows.any() or in_columns.any()):
                halves = _by_halves(k, a, b)
                found = np.where((in_rows > 0)[:, None] | (in_columns > 0), halves, found) if k.values else found
            unfused = np.flatnonzero((in_columns > 0) & (in_columns < _FUSED))
            if len(unfused):
                apart = _rounded_products(k, a, _laid(k, b[:, unfused]))
                if k.values:
                    found[:, unfused] = apart
        total = found if total is None else k.map(lambda p, q: p + q, total, found, name="add")
    assert total is not None
    return total


def _laid(k: Kernels, a: Array) -> Array:
    return np.ascontiguousarray(a) if k.values else shadow(a.shape, a.dtype)


def _last_tiles(size: int, most: int, tile: int, few: int) -> Array:
    """The size of a block's last tile for each of `size` that lies in it, if that is no larger than `few`; else 0."""
    found = np.zeros(size, np.int64)
    for first, part in parts(size, most):
        rest = part % tile
        if 0 < rest <= few:
            found[first + part - rest : first + part] = rest
    return found


def _by_halves(k: Kernels, rows: Array, weights: Array) -> Array:
    """Even and odd products apart; the last of an odd number joins both."""
    even = rows.shape[1] // 2 * 2
    found = _summed(k, rows, weights, "gemm:avx2", [slice(0, even, 2), slice(1, even, 2)])
    if even == rows.shape[1]:
        return found
    return k.map(lambda a, b, t: a.fma(b, t), *_pair(k, rows, weights, even), found, name="fma")


def _rounded_products(k: Kernels, rows: Array, weights: Array) -> Array:
    """`_by_halves` of products that are rounded."""
    depth, even = rows.shape[1], rows.shape[1] // 2 * 2
    shape = (rows.shape[0], weights.shape[1])
    sums = [np.zeros(shape, F32) if k.values else shadow(shape, F32)] * 2
    for i in range(even):
        sums[i % 2] = k.map(lambda a, b, t: t + a * b, *_pair(k, rows, weights, i), sums[i % 2], name="add")
    total = k.map(lambda p, q: p + q, *sums, name="add")
    if even < depth:
        total = k.map(lambda a, b, t: t + a * b, *_pair(k, rows, weights, even), total, name="add")
    return total


def _pair(k: Kernels, rows: Array, weights: Array, i: int) -> tuple[Array, Array]:
    return _laid(k, rows[:, i : i + 1]), _laid(k, weights[i : i + 1])


def _summed(k: Kernels, rows: Array, weights: Array, row: str, parts: Sequence[slice]) -> Array:
    """The products over some parts of K, added in order."""
    kernels = replace(k, target=replace(k.target, dispatch=row))
    total: Array | None = None
    for part in parts:
        if k.values:
            a, b = np.ascontiguousarray(rows[:, part]), np.ascontiguousarray(weights[part])
        else:
            depth = len(range(*part.indices(rows.shape[1])))
            a, b = shadow((rows.shape[0], depth), rows.dtype), shadow((depth, weights.shape[1]), weights.dtype)
        found = kernels.matmul(a, b, dst="f32")
        total = found if total is None else k.map(lambda p, q: p + q, total, found, name="add")
    assert total is not None
    return total
