"""The order in which oneDNN 3.13's `brg_conv_fwd` sums a convolution (docs/numerics.md, rule 9).

Integer sums without saturation do not depend on it: there, a single input channel is folded for speed alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import groupby

from isa_models.formats import fmt
from isa_models.isa import implied
from simdnn.kernels.common.layouts import ANY_LAYOUTS
from simdnn.kernels.common.postops import PostOp, sums_first
from simdnn.kernels.common.problems import ConvProblem, Depth
from simdnn.kernels.common.sums import DotProduct, Order, Part
from simdnn.libraries.onednn.layouts import by_gemm_for_layouts, named_last, way

_TILE_ROWS = {True: (28, 14, 9, 6), False: (14, 6, 4, 2)}  # of AVX-512 and AVX2, by vectors of output channels
_MOST_COLUMNS = 28  # of a tile of oneDNN's older kernels


def order_of(p: ConvProblem, dot: DotProduct, wide: bool, halved: bool) -> Order:
    """The order in which a convolution goes through its taps.

    `wide`: AVX-512. `halved`: weights so small that no pair saturates.
    """
    by_others = way(p, wide) == "gemm over pixels"
    if p.depth is None and not by_others and (found := _of_single_channels(p, dot, wide, halved)):
        return found
    if wide and dot.saturates and way(p) == "gemm over pixels":
        return Order("line")
    if p.depth and p.depthwise and wide and dot.saturates and not halved:
        return Order("gemm")
    if p.depth and wide and dot.wei == "f32" and (p.ic, p.dilation[1]) == (1, 1) and p.kw > 1 and not p.turned:
        return Order()  # it makes channels of columns
    if wide and dot.wei in ("f32", "bf16") and jit_takes(p):
        return in_blocks(p) if dot.depth > 1 else Order()
    return in_parts(p) if dot.acc != "s32" and not p.depthwise else Order()


def _of_single_channels(p: ConvProblem, dot: DotProduct, wide: bool, halved: bool) -> Order | None:
    """The order where groups have one input channel, and of sums that no order changes; None: it is that of others."""
    neighbours = p.kw > 1 and p.dilation[1] == 1
    single = p.ic == p.groups and not p.turned
    if dot.acc == "s32" and (halved or not dot.saturates):
        return Order("row" if single and neighbours and p.groups == 1 else "")
    if (
        single
        and wide
        and not lacks_room(p)
        and not (dot.depth == 1 and (p.groups > 1 or folds_columns(p) or dot.wei == "f16"))
    ):
        if p.kh > 1 and p.ow > 4 and p.dilation == (1, 1):
            return Order("window") if dot.depth > 1 else Order(columns_outside=True)
        if neighbours:
            return Order("row") if dot.depth > 1 else Order()
    return None


def lacks_room(p: ConvProblem) -> bool:
    """Whether the library's buffers for taps of a single channel of f32 that become channels would be more than 64
    times the tensors (`init_scratchpad` of its jit_brgemm_conv_utils.cpp), under AVX-512: an older kernel takes it.
    """
    folds = p.kw > 1 or p.kh > 1 and p.ow > 4
    if (
        p.src != "f32"
        or p.wei != "f32"
        or p.ic != 1
        or p.turned
        or p.dilation != (1, 1)
        or not folds
        or folds_columns(p)
    ):
        return False
    taps, planes = p.tap_rows * p.kw, p.depth.i if p.depth else 1
    tensors = p.mb * (planes * p.ih * p.iw + p.od * p.oh * p.ow * p.oc) + taps * -(-p.oc // 16) * 16
    return 64 * 4 * tensors < 11 * 4096  # a page of each of four buffers, four of the copy, and where they begin


def in_parts(p: ConvProblem) -> Order:
    """The order of `brg_conv_fwd`: kernel columns are sums of their own where padding beside the image is wide."""
    return Order(parts=_parts(p)) if padding_is_wide(p) else Order()


def order_on_tiles(p: ConvProblem) -> Order:
    """The taps that the library makes channels of where few channels, or such as fill rows badly, meet tiles
    (rule 14): columns that strides step over whole, all columns of a kernel row, or all taps.
    """
    if p.turned:
        return Order()
    ic, oc, row = p.ic // p.groups, p.oc // p.groups, 512 // fmt(p.src).bits
    planes = p.depth.i if p.depth else 1
    together = columns_on_tiles(p)
    if together > 1:
        return Order("row", together) if ic < row else Order()

    def filled(taps: int) -> float:
        """How much of the rows that a run of taps takes is channels."""
        return taps * ic / (row * -(-taps * ic // row))

    def pays(taps: int, apart: bool) -> bool:
        whole = weights_stay_in_order(p, taps) and not apart
        light = oc * p.tap_rows * p.kw <= 4 * p.mb * planes * p.ih * p.iw
        rows = -(-taps * ic // row) / (taps * -(-ic // row))
        return ic < row // 2 or (taps * ic > row and rows < 0.5 and (whole or light))

    stays = p.src == "f32" or weights_stay_in_order(p, p.kw)  # f32 lies channel by channel
    across = p.kw > 1 and p.dilation[1] == 1 and pays(p.kw, False) and (planes == 1 or stays)
    window = (
        not p.depth
        and p.kh > 1
        and p.dilation == (1, 1)
        and pays(p.kh * p.kw, p.kw > 1)
        and (p.ow > 48 or p.ow % 16 == 0)
    )
    fuller = filled(p.kh * p.kw) > filled(p.kw) and (not across or filled(p.kh * p.kw) > 0.7)
    return Order("window" if window and fuller else "row" if across else "")


def columns_on_tiles(p: ConvProblem) -> int:
    """The columns that are made channels of for tiles, as strides step over them whole; 1: none."""
    whole = weights_stay_in_order(p, 1)
    return _columns_together(p, lambda n: whole and weights_stay_in_order(p, n))


def weights_stay_in_order(p: ConvProblem, taps: int) -> bool:
    """Whether `taps` become channels, for tiles, of weights that lie as they did: in one row, or in whole ones."""
    ic, row, dword = p.ic // p.groups, 512 // fmt(p.src).bits, 32 // fmt(p.src).bits
    return ic % dword == 0 and (taps * ic <= row or taps * ic % row == 0)


def single_pixel(p: ConvProblem) -> bool:
    """Whether the output is one."""
    return p.mb * p.oh * p.ow * p.od == 1


def as_large_as_outputs(p: ConvProblem) -> bool:
    """Whether a second operand has the output's shape, but for a slope's; one by channel has that of a single pixel."""
    single = single_pixel(p)
    ops = [op for op in p.epilogue.post_ops if op.kind != "prelu"]
    return any(_shared_by(op, p) == "none" or single and op.per_channel for op in ops)


def shared_by_pixels(p: ConvProblem) -> bool:
    """Whether a second operand has a value for each channel of each image, which oneDNN's newer kernels take."""
    return any(_shared_by(op, p) == "pixels" for op in p.epilogue.post_ops)


def shared_by_axes(p: ConvProblem) -> bool:
    """Whether a second operand is shared along dimensions in a way that none of oneDNN's kernels takes."""
    return any(_shared_by(op, p) == "axes" for op in p.epilogue.post_ops)


def beyond_older_kernels(p: ConvProblem) -> bool:
    """Whether oneDNN's older kernels refuse what follows the sums: second operands as `shared_by_pixels` says, and
    slopes as large as the output, which lie otherwise than its blocks of channels.
    """
    ops, single = p.epilogue.post_ops, single_pixel(p)
    whole = [op for op in ops if op.kind == "prelu" and (_shared_by(op, p) == "none" or single and op.per_channel)]
    slopes = bool(whole) and not named_last(p)
    return slopes or shared_by_pixels(p)


def _shared_by(op: PostOp, p: ConvProblem) -> str:
    """Who shares a value of a second operand that is neither one nor by channel: "none", "pixels", or other "axes"."""
    if not op.per_output:
        return ""
    sizes = (p.mb, p.oc, *((p.od,) if p.depth else ()), *(() if p.line else (p.oh,)), p.ow)
    along = op.along or (True,) * len(sizes)
    if all(moves or size == 1 for moves, size in zip(along, sizes, strict=True)):
        return "none"
    return "pixels" if along[:2] == (True, True) and not any(along[2:]) else "axes"


def jit_takes(p: ConvProblem) -> bool:
    """Whether oneDNN takes a kernel for small groups of floats: by fours, f32 whose channels are named last any; no tap
    window wholly in the padding, and no more padding on a side than the columns of a tile, what is added the first of
    what follows.
    """
    first = sums_first(p.epilogue.post_ops) and not beyond_older_kernels(p)
    small = small_groups(p) if p.src == "f32" and named_last(p) else groups_by_fours(p, 16)
    return small and not is_copied(p) and first and p.layouts.wei == "any"


def small_groups(p: ConvProblem) -> bool:
    """Whether groups of up to 16 channels are no kernel's of oneDNN's for depthwise convolutions, channels last."""
    if p.depthwise:
        return p.line or p.depth is not None and is_dilated(p)
    return p.groups > 1 and p.ic // p.groups <= 16


def too_wide(p: ConvProblem) -> bool:
    """Whether the padding on a side is more than the columns of a tile of oneDNN's older kernels."""
    return max(p.padding[1], behind(p)) > min(p.ow, _MOST_COLUMNS)


def by_gemm(p: ConvProblem, emulated: bool) -> bool:
    """Whether oneDNN leaves a convolution of bf16 to a GEMM over a copy of the windows; `emulated`: without
    AVX512_BF16, where its other kernels take all groups by fours, else small ones. Second operands as large as the
    output are the GEMM's, too.
    """
    if as_large_as_outputs(p) or by_gemm_for_layouts(p):
        return True
    fours = groups_by_fours(p, 16 if not emulated else p.ic)
    if emulated and p.groups > 1 and not fours:
        return not (named_last(p) and not is_copied(p))
    return (fours or emulated) and is_copied(p)


def by_int8_gemm(p: ConvProblem, isa: str) -> bool:
    """Whether oneDNN leaves a convolution of integers to a GEMM: with a bias of bf16 under AVX-512, and depthwise ones
    of three spatial dimensions, with VNNI the dilated ones alone.
    """
    deep = p.depthwise and p.depth is not None
    if way(p, True) == "gemm over pixels":
        return True
    saturates = not implied(isa) & {"avx512_core_vnni", "avx2_vnni"}
    return p.epilogue.bias_stored == "bf16" or deep and (saturates or is_dilated(p))


def is_dilated(p: ConvProblem) -> bool:
    """Whether taps are apart in any dimension."""
    return p.dilation != (1, 1) or p.depth is not None and p.depth.dilation != 1


def gemm_over_pixels(p: ConvProblem) -> bool:
    """Whether that GEMM's lines are rows, columns and channels, as these lie last; else channels, rows and columns."""
    return {p.layouts.src, p.layouts.dst} == {"last"}


def gemm_is_known(p: ConvProblem) -> bool:
    """Whether the order of that GEMM's sums is known: over pixels those that are one chain, of pairs within a tap."""
    ic = p.ic // p.groups
    one_chain = ic * p.tap_rows * p.kw <= 384 and ic % 2 == 0 and p.oc > p.groups and p.oh * p.ow > 1
    return one_chain or not gemm_over_pixels(p)


def by_vectors(p: ConvProblem) -> bool:
    """Whether that GEMM multiplies a vector: planes have a single output pixel, and groups several channels."""
    return not gemm_over_pixels(p) and p.oc != p.groups and p.oh * p.ow == 1


def vector_of_f32(p: ConvProblem) -> bool:
    """Whether that GEMM multiplies a vector of f32: with a single output pixel, a second operand by channel is as large
    as the output.
    """
    e = p.epilogue
    large = single_pixel(p) and as_large_as_outputs(p) and not shared_by_axes(p)
    plain = p.layouts == ANY_LAYOUTS and not p.depthwise
    return p.src == p.wei == e.dst == "f32" and plain and large and sums_first(e.post_ops)


def odd_bias(p: ConvProblem) -> bool:
    """Whether a convolution of f32 has a bias of bf16, which `jit_dw` alone takes."""
    return p.src == p.wei == "f32" and p.epilogue.bias and p.epilogue.bias_stored == "bf16"


def jit_dw_takes(p: ConvProblem) -> bool:
    """Whether `jit_dw` takes a depthwise convolution of f32, by its sizes and what follows the sums."""
    e, plain = p.epilogue, p.layouts == ANY_LAYOUTS and not (p.line or p.depth or is_copied(p))
    alone = plain and p.depthwise and e.dst == "f32" and sums_first(e.post_ops)
    return alone and not (as_large_as_outputs(p) or shared_by_axes(p) or beyond_older_kernels(p))


def depthwise_by_gemm(p: ConvProblem) -> bool:
    """Whether oneDNN leaves a depthwise convolution of floats to that GEMM: dilated ones, bf16 as above, f32 to a
    single pixel, too, and all of one spatial dimension but for those whose channels are named last.
    """
    large = (p.src == "bf16" or single_pixel(p)) and as_large_as_outputs(p)
    if by_gemm_for_layouts(p) or large:
        return True
    return p.line and not named_last(p) or p.dilation != (1, 1) and is_copied(p)


def is_copied(p: ConvProblem) -> bool:
    """Whether padding is too wide for oneDNN's older kernels: a GEMM takes a copy of the windows."""
    return sees_padding_alone(p) or too_wide(p)


def small_block(p: ConvProblem) -> int:
    """Channels of a group that such a kernel takes together: the most, up to 16, that divide those of both sides; of
    channels last 16 where a side has as many, or no fours.
    """
    ic, oc = p.ic // p.groups, p.oc // p.groups
    both = math.gcd(16, ic, oc)
    return both if not named_last(p) or max(ic, oc) < 16 and both >= 4 else 16


def groups_by_fours(p: ConvProblem, most: int) -> bool:
    """Whether there are groups of at most `most` input channels, multiples of four on both sides."""
    ic, oc = p.ic // p.groups, p.oc // p.groups
    return p.groups > 1 and ic <= most and ic % 4 == 0 and oc % 4 == 0


def jit_with_avx_vnni(p: ConvProblem) -> bool:
    """Whether oneDNN's older kernel takes an int8 convolution under avx2_vnni: depthwise ones that are dilated or of
    one spatial dimension, or small groups.
    """
    return p.line or p.dilation != (1, 1) if p.depthwise else groups_by_fours(p, 8)


def sees_padding_alone(p: ConvProblem) -> bool:
    """Whether the padding on some side holds the whole kernel."""
    height, width = _extent(p)
    flat = max(p.padding[0], below(p)) >= height or max(p.padding[1], behind(p)) >= width
    return flat or p.depth is not None and _planes_see_padding_alone(p.depth)


def _planes_see_padding_alone(d: Depth) -> bool:
    return max(d.front, planes_behind(d)) >= _reach(d)


def _reach(d: Depth) -> int:
    """Planes of the image that a kernel reaches over."""
    return (d.k - 1) * d.dilation + 1


def unpadded(p: ConvProblem) -> bool:
    """Whether no output reaches beyond the image; padding that a stride steps over counts for nothing."""
    return not any(p.padding[:2]) and below(p) <= 0 and behind(p) <= 0


def pointwise(p: ConvProblem) -> bool:
    """Whether a kernel has one tap, and sees the image alone."""
    d = p.depth
    flat = d is None or (d.k, d.front) == (1, 0) and (d.o - 1) * d.stride < d.i
    return flat and (p.kh, p.kw) == (1, 1) and unpadded(p)


def brgemm_convolution(p: ConvProblem) -> str:
    """The name of the kernel that multiplies blocks of a convolution, by its taps."""
    return "brgconv_1x1" if pointwise(p) else "brg_conv_fwd"


def before_or_behind(p: ConvProblem) -> bool:
    """Whether the padding in front of the image or above it holds the whole kernel, or that to the right of it."""
    height, width = _extent(p)
    d = p.depth
    in_front = d is not None and d.front >= _reach(d)
    return in_front or p.padding[0] >= height or behind(p) >= width


def _extent(p: ConvProblem) -> tuple[int, int]:
    """Rows and columns of the image that a kernel reaches over."""
    height, width = ((k - 1) * d + 1 for k, d in zip((p.kh, p.kw), p.dilation, strict=True))
    return height, width


def order_of_emulated(p: ConvProblem) -> Order:
    """The order of `jit_bf16`, which takes a block of channels through all taps together (rule 12)."""
    return in_blocks(p)


def dense_and_pointwise(p: ConvProblem) -> bool:
    """Whether a kernel has one tap and looks at every pixel, in one group, or at as many as its strides divide evenly
    (a copy of those is then made): `jit_bf16_1x1` takes it.
    """
    if p.depth:
        stepped = p.strides == (1, 1) and p.depth.stride == 1
    else:
        stepped = (p.oh * p.strides[0], p.ow * p.strides[1]) == (p.ih, p.iw)
    return pointwise(p) and p.groups == 1 and stepped


def pointwise_block(p: ConvProblem) -> int:
    """Channels after which `jit_bf16_1x1` restarts its sums, by lines of the image; 0: other kernels, which do not."""
    if not dense_and_pointwise(p):
        return 0
    lines = p.od * p.oh
    if lines <= 10:
        return 512
    return 160 if lines < 28 and p.oc <= 256 else 1024


def pointwise_block_is_unsure(p: ConvProblem) -> bool:
    """Whether that kernel may take fewer channels together, as their pixels alias in the second cache."""
    block = min(-(-p.ic // 16) * 16, pointwise_block(p))
    return p.od * p.oh * p.ow * block > 7 * 32768


def in_blocks(p: ConvProblem) -> Order:
    """A block of channels goes through all taps before the next one does: 16, in small groups fewer."""
    block = 16 if p.groups == 1 else small_block(p)
    return Order(block=block if p.ic // p.groups > block and p.kh * p.kw > 1 else 0)


def below(p: ConvProblem) -> int:
    """Rows below the image that the last output reaches; negative where the image is not used up."""
    return (p.oh - 1) * p.strides[0] + (p.kh - 1) * p.dilation[0] + 1 - p.ih - p.padding[0]


def behind(p: ConvProblem) -> int:
    """Columns behind the image that the last output reaches; negative where the image is not used up."""
    return (p.ow - 1) * p.strides[1] + (p.kw - 1) * p.dilation[1] + 1 - p.iw - p.padding[1]


def planes_behind(d: Depth) -> int:
    """Planes behind the image that the last output reaches; negative where the image is not used up."""
    return (d.o - 1) * d.stride + _reach(d) - d.i - d.front


def folds_columns(p: ConvProblem) -> bool:
    """Whether oneDNN makes channels of neighbouring columns (and so a narrower kernel), which keeps the order."""
    return _columns_together(p, lambda n: True) > 1


def _columns_together(p: ConvProblem, fits: Callable[[int], bool]) -> int:
    """How many neighbouring columns oneDNN turns into channels: the most that fit and that strides step over whole."""
    stride = p.strides[1]
    if p.groups > 1 or stride == 1 or p.kw == 1 or p.dilation[1] > 1 or p.padding[1] or behind(p) > 0:
        return 1
    some = range(2, min(p.kw, stride, p.iw) + 1)
    return max((n for n in some if p.iw % n == 0 and p.kw % n == 0 and stride % n == 0 and fits(n)), default=1)


def width_is_unsure(p: ConvProblem, wide: bool) -> bool:
    """Whether padding counts as wide only by both sides together, on lines longer than a tile: there the library was
    seen to do the one and the other.
    """
    vectors = -(-(p.oc // p.groups) // (16 if wide else 8))
    rows = _TILE_ROWS[wide][min(vectors, 4) - 1]
    return p.ow > rows and not _one_side_is_wide(p) and _both_are_wide(p)


def padding_is_wide(p: ConvProblem) -> bool:
    """Whether padding beside the image is more than oneDNN's kernel skips on the way."""
    return _one_side_is_wide(p) or _both_are_wide(p)


def _one_side_is_wide(p: ConvProblem) -> bool:
    most = max(p.padding[1], behind(p), 0)
    return most > (p.kw - 1) * p.strides[1] or most > p.ow


def _both_are_wide(p: ConvProblem) -> bool:
    return (p.ow - 1) * p.strides[1] >= p.iw


def _parts(p: ConvProblem) -> tuple[Part, ...]:
    """Columns that see the image from every output make one run; each other one that sees it at all is its own."""

    def seen(j: int) -> tuple[bool, ...]:
        first = j * p.dilation[1] - p.padding[1]
        return tuple(0 <= first + x * p.strides[1] < p.iw for x in range(p.ow))

    parts: list[Part] = []
    for full, group in groupby(filter(lambda j: any(seen(j)), range(p.kw)), key=lambda j: all(seen(j))):
        columns = list(group)
        if full:
            parts.append(Part(((columns[0], len(columns)),)))
        else:
            deep = p.depth is not None and p.depth.k > p.kh
            parts.append(Part(tuple((j, 1) for j in columns), row_by_row=p.kh > p.kw, plane_by_plane=deep))
    return tuple(parts)
