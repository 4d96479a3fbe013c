"""Problems that oneDNN 3.13 runs on AMX tiles, and those left to the vector unit there (docs/numerics.md, rule 14)."""

from __future__ import annotations

from dataclasses import replace

from isa_models import Unimplemented
from isa_models.formats import fmt
from simdnn.kernels.common.postops import previous_type
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem, Problem
from simdnn.kernels.common.sums import DotProduct, Options, Order
from simdnn.libraries.onednn.caches import FIRST, FIRST_BESIDE_TILES
from simdnn.libraries.onednn.older_gemm import starts_from_sum
from simdnn.libraries.onednn.order import (
    as_large_as_outputs,
    before_or_behind,
    behind,
    below,
    brgemm_convolution,
    by_gemm,
    by_vectors,
    columns_on_tiles,
    order_on_tiles,
    planes_behind,
    pointwise,
    shared_by_axes,
    weights_stay_in_order,
)
from simdnn.libraries.onednn.refusals import refuse_raw, refuse_scaled_parts, refuse_sum_in_gemm
from simdnn.libraries.onednn.tile_blocks import pointwise_blocks, tile_blocks
from simdnn.libraries.onednn.tile_cuts import TileCut, copy_is_small, cut_of, is_unsure
from simdnn.libraries.onednn.tile_lines import columns_of, lines_at_once
from simdnn.libraries.onednn.tile_room import has_room
from simdnn.libraries.onednn.tile_rounded import rounded_options

AMX = "avx10_1_512_amx"  # oneDNN's name of the cap
_ISA = "avx512_core_amx"  # that of rows


def on_tiles(p: Problem, caps: frozenset[str], fpmath: str) -> tuple[str, str] | None:
    """The kernel that runs on AMX tiles. None where it takes another unit: depthwise and small groups, scales along K,
    vectors and small problems (rule 14), f32 computed in f32.
    """
    return _matmul(p, caps, fpmath) if isinstance(p, MatmulProblem) else _convolution(p, caps, fpmath)


def _matmul(p: MatmulProblem, caps: frozenset[str], fpmath: str) -> tuple[str, str] | None:
    if p.left_to == "gemm":
        return None if p.decompression else _by_older_gemm(p)
    if fmt(p.src).is_float and (p.layouts.src, p.layouts.wei) != ("any", "any"):
        raise Unimplemented("how oneDNN cuts K for tiles over such layouts is not modelled: any, and ab, work")
    if p.group_scales or p.zero_points or p.reference:
        return None
    if p.decompression:
        half = p.decompression.computes == ("f16",)
        if not half and (p.decompression.computes != ("bf16",) or copy_is_small(p)):
            return None
        _refuse_unsure(p)
        return f"wdec:{_ISA}{'_fp16' * half}", f"brg_matmul:{AMX}{'_fp16' * half}"
    tiles_of_f16 = "avx512_core_amx_fp16" in caps
    if _too_small_for_tiles(p, tiles_of_f16):
        return None
    _refuse_unsure(p)
    if not _take_type(p, caps, fpmath):
        return None
    if p.wei in ("s4", "u4"):  # beside bytes, as floats have them decompressed
        refuse_raw(p, tiles=True)
    half = tiles_of_f16 and p.src not in ("f32", "bf16")  # integers run under the later cap, too
    return f"gemm:{_ISA}{_suffix(p)}", f"brg_matmul:{AMX}{'_fp16' * half}"


def _convolution(p: ConvProblem, caps: frozenset[str], fpmath: str) -> tuple[str, str] | None:
    if p.depthwise or p.wei_tag != "any":
        return None
    if _not_for_tiles(p):
        _refuse_older(p)
        return None
    if p.src == "f32" and fpmath in ("bf16", "any") and pointwise(p):
        ic = p.ic // p.groups
        if ic < 64 and ic % 32:
            return None
    if (p.src, p.wei, p.epilogue.dst) == ("f32", "f32", "bf16"):
        raise Unimplemented(
            "oneDNN cannot make a convolution f32:f32:bf16 where there are tiles, or fails on the way: dst='f32' "
            "works, isa='avx512_core_fp16', and dispatch='fastest'"
        )
    if not _take_type(p, caps, fpmath) or not pointwise(p) and not has_room(p):
        return None
    return f"conv:{_ISA}{_suffix(p)}", f"{brgemm_convolution(p)}:{AMX}{'_fp16' * (p.src == 'f16')}"


def _take_type(p: Problem, caps: frozenset[str], fpmath: str) -> bool:
    """Whether tiles compute the source's type: f16 under a cap of its own, f32 as bf16 where the mode allows it."""
    if p.src == "f16":
        return "avx512_core_amx_fp16" in caps
    return p.src != "f32" or fpmath in ("bf16", "any")


def _suffix(p: Problem) -> str:
    """The end of a row's name, behind the instruction set: how it computes the source's type."""
    return {"f16": "_fp16", "f32": "_down", "bf16": ""}.get(p.src, "_int8")


def _refuse_unsure(p: MatmulProblem) -> None:
    """Raises where it is not known how K is cut."""
    if p.src in ("bf16", "f16") and is_unsure(p):
        raise Unimplemented(
            f"how oneDNN cuts K = {p.k} for tiles depends on its count of instructions of post-operations, or what is "
            "left has parts of its own: other sizes work, isa='avx512_core_fp16', and dispatch='fastest'"
        )


def _by_older_gemm(p: MatmulProblem) -> tuple[str, str] | None:
    """The older GEMM on tiles, which adds up K in one chain, cut after every 32; vectors and f32 are not on them."""
    if p.src in ("f32", "f16") or 1 in (p.m, p.n) or p.reference:
        return None
    if p.src == "bf16":
        if starts_from_sum(p) and previous_type(p.epilogue.post_ops, "f32"):
            raise Unimplemented(
                "oneDNN's older GEMM on tiles starts its sums from what the destination held, not modelled: a bias, or "
                "no sum, works, isa='avx512_core_fp16', and dispatch='fastest'"
            )
        refuse_sum_in_gemm(p)
        refuse_scaled_parts(p)
        return "gemm:avx512_core_amx", "gemm:jit:bf16"
    return "gemm:avx512_core_amx_int8", "gemm:jit"


def refuse_errors(p: ConvProblem) -> None:
    """Raises where the library's convolution on tiles reads what it should not (docs/numerics_products.md, rule 14).

    With a single output a line it takes a line of its copy to be as many columns as the kernel reaches over, times the
    stride (`LDA` in `estimate_brgemm_ur` of jit_brgemm_conv_utils.cpp); its copy has the former alone. Of a kernel with
    planes, over an image that has one, it makes channels of a row's columns in the first plane's weights alone. Where
    taps as channels fill whole rows of a tile, and several, it goes through weights that stay in order by other steps.
    Weights of f32 lie as they are read.
    """
    taken, works = columns_on_tiles(p), "isa='avx512_core_fp16' works, and dispatch='fastest'"
    if in_lines(p) and p.ow == 1 and p.od * p.oh > 1 and p.kw > taken and p.strides[1] > taken:
        raise Unimplemented(
            f"oneDNN reads other rows of the source here on tiles, as lines of one output step over {p.strides[1]} "
            f"columns: {works}, and a stride of 1 along rows"
        )
    if taken > 1 or p.src == "f32" or not (fold := order_on_tiles(p).fold):
        return
    taps = p.kw if fold == "row" else p.kh * p.kw
    stay = weights_stay_in_order(p, taps) and (fold == "row" or 1 in (p.kh, p.kw))
    if p.depth and p.depth.k > 1 and not stay:
        raise Unimplemented(
            f"oneDNN leaves weights of this {p.depth.k}x{p.kh}x{p.kw} kernel out on tiles, as the image has one plane: "
            f"{works}"
        )
    if stay and taps * (p.ic // p.groups) > 512 // fmt(p.src).bits:
        raise Unimplemented(
            f"oneDNN reads other weights on tiles, as {taps} taps of {p.ic // p.groups} channels fill several rows of "
            f"a tile: {works}"
        )


def in_lines(p: ConvProblem) -> bool:
    """Whether blocks on tiles go from one line of outputs to the next: no padding is as large as the kernel."""
    d = p.depth
    sides = [(p.padding[0], p.kh), (below(p), p.kh), (p.padding[1], p.kw), (behind(p), p.kw)]
    if d:
        sides += [(d.front, d.k), (planes_behind(d), d.k)]
    return all(padding < k for padding, k in sides)


def _too_small_for_tiles(p: MatmulProblem, half: bool) -> bool:
    """Whether the library leaves a matmul to the vector unit (rule 14); `half`: there are tiles of f16, whose kernels
    take every integer and f16, but for vectors.
    """
    if p.src == "f16":
        return 1 in (p.m, p.n)
    if half and not fmt(p.src).is_float:
        return False
    if p.src == "bf16":
        return 1 in (p.m, p.n) or copy_is_small(p)
    if p.src == "f32" and (1 in (p.m, p.n) or p.epilogue.dst != "f32" or (p.m < 8 and p.wei_tag == "any")):
        return True
    return leaves_tiles(p)


def leaves_tiles(p: MatmulProblem) -> bool:
    """Whether a matmul of integers, or of f32, is too small for tiles (rule 14): of two dimensions, and but for s8 by
    other weights than u8.
    """
    if p.src == "s8" and p.wei != "u8" or p.dims > 2:
        return False
    return (p.m == 1 and p.k == 256) or (p.m <= 32 and p.m * p.n <= 256) or p.k <= 16


def has_few(p: ConvProblem) -> bool:
    """Whether a convolution has as few outputs and channels as the library leaves to vectors, where both sides do."""
    return p.od * p.oh * p.ow <= 4 and p.ic // p.groups <= 512


def _refuse_older(p: ConvProblem) -> None:
    """Raises where an older kernel on tiles takes what newer ones leave: bf16 of up to four channels and outputs."""
    few = has_few(p) and not p.turned
    flat = p.depth is None or (p.depth.i, p.depth.o, p.depth.k, p.depth.dilation) == (1, 1, 1, 1)
    if p.src == "bf16" and p.groups == 1 and p.ic <= 4 <= p.ic * p.tap_rows * p.kw // 4 and flat and few:
        raise Unimplemented(
            "oneDNN's older kernel on tiles, which takes bf16 of up to four channels and outputs, is not modelled: "
            "more outputs or channels work, isa='avx512_core_fp16', and dispatch='fastest'"
        )


def _not_for_tiles(p: ConvProblem) -> bool:
    """Whether the library leaves a convolution to the vector unit: few outputs, or a kernel in the padding before or
    behind the image (rule 14).
    """
    ic, oc = p.ic // p.groups, p.oc // p.groups
    most = FIRST // (2 if pointwise(p) else 1)
    if before_or_behind(p) or p.src != "f16" and has_few(p) and p.mb * p.groups * ic * oc <= most:
        return True
    row = 512 // fmt(p.src).bits
    if not pointwise(p) or p.src == "f32":
        return False
    odd = not fmt(p.src).is_float and ic % 4 > 0 and p.strides == (1, 1)
    return odd or (p.groups > 1 and ic > row and ic % row > 0)


def cut_for_tiles(dot: DotProduct, isa: str, problem: Problem) -> Options:
    """Rule 14: a matmul of floats of 16 bits as they come is cut as `tile_cuts` says."""
    if not isinstance(problem, MatmulProblem):
        if problem.src == "f32" and problem.tiles:
            return rounded_options(problem)
        made = Options(merged_scales=dot.acc == "s32", order=_order(problem))
        if not problem.tiles:
            return made
        blocks = pointwise_blocks(problem) if problem.wei_tag == "any" else None
        apart, lines = blocks.apart if blocks else (), lines_at_once(problem)
        return replace(made, lines=lines, columns=columns_of(problem), blocks=blocks, apart=apart)
    d = problem.decompression
    own = problem.src in ("bf16", "f16") and problem.left_to != "gemm" and (not d or fmt(problem.wei).is_float)
    chain, even, _ = cut_of(problem) if own else TileCut(0, 0)
    copied = problem.src == "f32" or d  # to a buffer, whose tiles the library loads as any others
    apart = () if copied else tiles_apart(problem.m, problem.k * fmt(problem.src).bits // 8)
    blocks = tile_blocks(problem) if problem.tiles and problem.wei_tag == "any" and not even else None
    return Options(split_k=even, cut=chain, merged_scales=True, apart=apart, ahead=True, blocks=blocks)


def tiles_apart(rows: int, row_bytes: int) -> tuple[str, ...]:
    """The operands that the library loads past the first cache (`tileloaddt1`): the one that streams, and both where
    the other is not used again or is too large: 32 rows or columns with room for two blocks of sums and one of results.
    """
    left = FIRST_BESIDE_TILES - 3 * 32 * 32 * 4
    return ("src",) if rows > 32 and 32 * row_bytes <= left else ("src", "wei")


def _order(p: ConvProblem) -> Order:
    """How a convolution on tiles goes through its taps."""
    if p.wei_tag != "any":
        return Order()  # the library takes no tiles
    return Order("gemm") if p.tiles and leaves_convolution_to_gemm(p) else order_on_tiles(p)


def leaves_convolution_to_gemm(p: ConvProblem) -> bool:
    """Whether the older GEMM takes a convolution of bf16, on tiles: over a copy of its windows, in one chain."""
    blocks = not (operands_beyond_blocks(p) or _not_for_tiles(p))
    return p.src == "bf16" and not (blocks or p.oc == p.groups or by_vectors(p)) and by_gemm(p, False)


def operands_beyond_blocks(p: ConvProblem) -> bool:
    """Whether second operands of a convolution of floats are no kernel's for blocks, on tiles or on vectors."""
    return as_large_as_outputs(p) or shared_by_axes(p)
