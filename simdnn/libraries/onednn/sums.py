"""Where oneDNN 3.13 cuts the sums of a kernel, and what follows them (docs/numerics.md, rules 4 to 10 and 12 to 14).

A row of the kernel table names one of these functions: what it takes by default, whoever asks for the row.
"""

from __future__ import annotations

from dataclasses import replace

from isa_models.formats import fmt
from isa_models.isa import implied
from simdnn.kernels.common.activations import is_formula
from simdnn.kernels.common.layouts import ANY_LAYOUTS
from simdnn.kernels.common.postops import sums_differ, sums_late
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem, Problem, of_integers
from simdnn.kernels.common.sums import DotProduct, Options, Order, Part
from simdnn.libraries.onednn import in_rows, older_gemm
from simdnn.libraries.onednn.blocking import register_tile, tile_in_columns
from simdnn.libraries.onednn.convolution_blocks import convolution_tile
from simdnn.libraries.onednn.layouts import by_gemm_for_layouts, named_last, way
from simdnn.libraries.onednn.log import family, instructions, is_on_tiles
from simdnn.libraries.onednn.order import (
    as_large_as_outputs,
    by_gemm,
    by_int8_gemm,
    dense_and_pointwise,
    depthwise_by_gemm,
    folds_columns,
    gemm_over_pixels,
    groups_by_fours,
    in_blocks,
    in_parts,
    is_dilated,
    jit_takes,
    jit_with_avx_vnni,
    odd_bias,
    order_of,
    order_of_emulated,
    pointwise_block,
    shared_by_axes,
    shared_by_pixels,
    small_block,
    vector_of_f32,
)
from simdnn.libraries.onednn.refusals import REFERENCES
from simdnn.libraries.onednn.tiles import in_lines


def cut_by_channels(dot: DotProduct, isa: str, problem: Problem) -> Options:
    """A GEMM or convolution on vectors: rules 4, 5, 7, 8 and 9."""
    wide = "avx512_core" in implied(isa)
    if isinstance(problem, ConvProblem):
        found = _convolution(dot, isa, problem, wide)
        return _direct(found, dot, isa, problem, wide) if problem.tiles == "onednn" else found
    if dot.chain:
        return Options(cut=dot.chain)
    cut, split, k, integer = 0, 0, problem.k, dot.acc == "s32"
    if problem.left_to == "gemm" and not integer:
        return cut_in_older_gemm(dot, problem, wide)
    row = problem.m == 1 and problem.layouts != ANY_LAYOUTS  # dense ones are its kernels' of vectors
    if dot.acc == "f32":
        cut = _most(problem, wide, row)
    if dot.saturates and older_gemm.halves(problem, wide):
        split = -(-k // 2)
    exact = (
        dot.compute == "s16"
        and not wide
        and (problem.epilogue.dst in ("bf16", "f16") or sums_late(problem.epilogue.post_ops))
    )
    reference = exact or problem.reference
    merged = integer and (older_kernel(isa, problem) or problem.left_to == "gemm") and not reference
    found = Options(False, merged, cut, split, Order(), problem.reference, reference)
    if problem.tiles != "onednn":
        return found
    if integer and older_kernel(isa, problem):
        if not dot.saturates:
            return found
        return replace(found, packs=older_gemm.packed_rows(k, wide, dot.depth), tile=older_gemm.TILE_OF_BYTES)
    cut = found.cut or (0 if split else _most(problem, wide, row))
    if dot.wei == "f16":
        return replace(found, cut=cut, tile=register_tile(problem, dot, wide), packs=cut or k)
    return replace(found, cut=cut, tile=tile_in_columns(problem, dot, wide))


def _direct(found: Options, dot: DotProduct, isa: str, problem: ConvProblem, wide: bool) -> Options:
    """A convolution in place, as the library's kernel goes through it; its older ones have tiles of their own."""
    narrow = groups_by_fours(problem, 16) and small_block(problem) < (16 if wide else 8)
    narrow = narrow and by_older_kernel(problem, isa)
    formulas = any(map(is_formula, problem.epilogue.post_ops))  # want registers of their own, and tables whole ones
    if found.order.fold and dot.acc == "s32" and by_older_kernel(problem, isa):  # which make no channels of taps
        found = replace(found, order=Order())
    if found.order.fold or found.order.parts or formulas and (narrow or not wide):
        return found
    if not by_older_kernel(problem, isa):
        return replace(found, direct=True, tile=convolution_tile(problem, dot, wide))
    lanes = small_block(problem) if narrow else 0  # `simd_w` in its sources
    return replace(found, direct=True, lanes=lanes, through_float=dot.acc == "s32")


def by_older_kernel(p: ConvProblem, isa: str) -> bool:
    """Whether an older kernel takes a convolution, in tiles of its own: integers, and under AVX-512 small groups and
    bf16 that is emulated.
    """
    if older_kernel(isa, p) and not fmt(p.src).is_float or p.src == "bf16" and "avx512_core_bf16" not in implied(isa):
        return True
    widened = p.src == "f32" and (p.wei != "f32" or p.read)  # by brg_conv_fwd alone
    small = jit_takes(p) and not widened if p.src == "f32" else p.src != "f16" and groups_by_fours(p, 16)
    return "avx512_core" in implied(isa) and small


def _convolution(dot: DotProduct, isa: str, problem: ConvProblem, wide: bool) -> Options:
    if dot.chain:
        return Options(cut=dot.chain // (problem.tap_rows * problem.kw) // dot.depth * dot.depth)
    if dot.wei == "bf16" and dot.depth == 2 and by_gemm(problem, False):
        return _as_gemm(problem)
    if dot.wei == "f32" and problem.oc == problem.groups and vector_of_f32(problem):  # a GEMM of one column
        return Options(reference=True, sum_first=True, starts=True, order=Order("gemm"))
    deep = problem.depthwise and problem.depth and problem.src == "f32"
    if deep and (is_dilated(problem) or depthwise_by_gemm(problem)):
        return Options(reference=True, sum_first=True, starts=True)  # a GEMM
    cut = 0
    if problem.src == "f32" and by_gemm_for_layouts(problem):
        return Options(order=Order("gemm"), reference=True, sum_first=True, starts=True)
    if dot.acc == "f32" and dot.depth == 1 and problem.src == "f32":
        cut = 1280 if wide else 320 if problem.ic // problem.groups > 2048 else 0
        if in_rows.by_matmul(problem):
            cut = 512 if problem.ic <= 1024 else 1024
        if wide and dot.wei == "f32" and jit_takes(problem):
            if named_last(problem):  # sums stay in registers from block to block
                return Options(order=in_blocks(problem), bias_first=True, sum_first=True)
            return Options(cut=small_block(problem), bias_first=True, sum_first=True)
    older, exact = older_kernel(isa, problem), dot.compute == "s16"
    halve = dot.saturates and problem.src == "s8"
    left = dot.acc == "s32" and _operands_referred(problem, isa)
    reference = left or exact and not wide
    by_gemm_of_bytes = wide and not reference and by_int8_gemm(problem, isa)
    merged = dot.acc == "s32" and (older and not exact or by_gemm_of_bytes)
    order = order_of(problem, dot, wide, halve)
    by_fours = dot.wei == "bf16" and dot.depth == 2 and groups_by_fours(problem, 16)
    bound = merged and older and not dense_and_pointwise(problem)  # jit_uni_int8_1x1 has the bound first
    return Options(halve, merged, cut, 0, order, older, reference, nan_to_bound=bound, sum_first=by_fours)


def cut_as_emulated(dot: DotProduct, isa: str, problem: Problem) -> Options:
    """Rule 12, bf16 by f32: a vector restarts every 8 k; a matrix in the middle of K, or every 768."""
    if isinstance(problem, ConvProblem):
        direct = bool(problem.tiles) and not problem.depthwise
        blocks = Options(cut=pointwise_block(problem), order=order_of_emulated(problem), sum_first=True, direct=direct)
        return _as_gemm(problem) if by_gemm(problem, True) else blocks
    first = older_gemm.starts_from_sum(problem)
    if older_gemm.in_chains(problem):
        return Options(merged_scales=True, cut=8, sum_first=first)
    part = _restarts(problem.k)
    if part in (0, 768):
        return Options(
            merged_scales=True,
            cut=part,
            sum_first=first,
            packs=(part or problem.k + problem.k % 2) if problem.tiles else 0,
        )
    order = Order(parts=(Part(((0, 1), (1, 1))),))
    alike = -(-part // dot.depth) == -(-(problem.k - part) // dot.depth)  # else a pair is left that nothing packs
    packs = part + part % 2 if problem.tiles and alike else 0
    return Options(merged_scales=True, split_k=part, order=order, sum_first=first, packs=packs)


def cut_in_older_gemm(dot: DotProduct, problem: MatmulProblem, wide: bool) -> Options:
    """A matmul of floats that is left to the older GEMM: of f32 by `older_gemm.parts`; sums of bf16 restart every 768
    products, and less than two such parts are halved.
    """
    first = older_gemm.starts_from_sum(problem)
    found = Options(merged_scales=True, sum_first=first)
    if problem.src == "f32":
        cut, last = older_gemm.parts(problem, wide)
        return replace(found, cut=cut, last=last)
    part = 8 if older_gemm.in_chains(problem) else _restarts(problem.k)
    if part in (0, 8, 768):
        return replace(found, cut=part)
    return replace(found, split_k=part, order=Order(parts=(Part(((0, 1), (1, 1))),)))


def cut_as_gemm(dot: DotProduct, isa: str, problem: Problem) -> Options:
    """Rule 13, bf16 that is left to a GEMM."""
    assert isinstance(problem, ConvProblem)
    return _as_gemm(problem)


def _as_gemm(p: ConvProblem) -> Options:
    """A GEMM over the windows of the image; with one output channel its sums restart every 8."""
    part = 8 if p.oc == p.groups else _restarts(p.ic // p.groups * p.tap_rows * p.kw)
    over_pixels = gemm_over_pixels(p)
    order = Order() if over_pixels else Order("gemm", block=part)
    return Options(cut=0 if over_pixels else part + part % 2, order=order, sum_first=p.epilogue.dst == "f32")


def cut_by_columns(dot: DotProduct, isa: str, problem: Problem) -> Options:
    """A convolution that `brg_conv_fwd` takes as it is: rule 9's one chain, or one for each column."""
    assert isinstance(problem, ConvProblem)
    found = Options(order=in_parts(problem))
    if problem.tiles != "onednn" or problem.depthwise:
        return found
    return _direct(found, dot, isa, problem, "avx512_core" in implied(isa))


def in_one_chain(dot: DotProduct, isa: str, problem: Problem) -> Options:
    """Floats whose taps come one after the other, a pair of vdpbf16ps having one of them."""
    return Options()


def _restarts(k: int) -> int:
    """How much of K the GEMM adds up before a sum restarts; 0 for all of it."""
    return 0 if k <= 384 else 768 if k >= 2 * 768 else -(-k // 2)


def not_cut(dot: DotProduct, isa: str, problem: Problem) -> Options:
    """The library's reference for floats: one chain."""
    return Options(reference=True)


def cut_decompressed(dot: DotProduct, isa: str, problem: MatmulProblem) -> Options:
    """Rule 10: weights made floats of; the reference form is one chain."""
    if dot.chain:
        return Options(cut=dot.chain)
    if problem.decompression and problem.decompression.reference:
        return Options()
    wide = "avx512_core" in implied(isa)
    tile = register_tile(problem, dot, wide) if problem.tiles == "onednn" else None
    return Options(cut=_most(problem, wide, problem.m == 1), tile=tile)


def _most(p: MatmulProblem, wide: bool, row: bool) -> int:
    """The products of a chain of brg_matmul; a single `row` counts as one that lies column by column
    (`use_extended_k_blk` in brgemm_matmul_utils.cpp).
    """
    return 512 if wide and (p.k <= 1024 or row or older_gemm.is_turned(p)) else 1024


def cut_widened(dot: DotProduct, isa: str, problem: Problem) -> Options:
    """f32 by weights that are made f32 of (rule 8): the cuts of compressed ones."""
    assert isinstance(problem, MatmulProblem)
    return cut_decompressed(dot, isa, problem)


def older_kernel(isa: str, problem: Problem) -> bool:
    """Whether an int8 problem is the library's older kernels' under a cap, which merge scales (rule 7): all below
    AVX-512, but with VNNI what `jit_with_avx_vnni` says.
    """
    if isa == "avx2_vnni":
        return isinstance(problem, ConvProblem) and jit_with_avx_vnni(problem)
    return "avx512_core" not in implied(isa)


def flushes(problem: Problem, name: str, caps: frozenset[str]) -> bool:
    """Whether denormals become zeros on their way to bf16 (rule 2): in the reference by C++ or by vcvtneps2bf16, not by
    its own code for AVX-512 without that; and in its kernels of f32, which have the instruction under every cap.
    """
    if problem.epilogue.dst != "bf16":
        return False
    if name in REFERENCES:
        return "avx512_core" not in caps or "avx512_core_bf16" in caps
    return problem.src == "f32"


def lifts(problem: Problem, name: str) -> str:
    """How far integer sums go through f32 by the implementation `name`: `Epilogue.lifted`.

    Its newer kernels bring sums there where anything follows them (`are_post_ops_applicable` in brgemm_types.hpp), the
    shift of s8 sources off tiles too; that for depthwise convolutions has zero points of the source in its sums. On
    tiles, and in `jit_uni_int8_1x1`, terms of zero points are added behind that. Older ones do it always.
    """
    e, of = problem.epilogue, family(name)
    if not of_integers(problem) or not name or name in REFERENCES:
        return ""
    if of == "jit_uni_int8_1x1":
        return "all"
    if not of.startswith("br"):
        return "sums"
    on_tiles, depthwise = is_on_tiles(name), of == "brdgmm_dw"
    if on_tiles and (e.zp_src or e.zp_wei):
        return "terms"
    behind = e.in_float or e.post_ops or (e.zp_src or e.zp_wei) and not depthwise
    return "sums" if behind or problem.src == "s8" and not (on_tiles or depthwise) else ""


def leaves_out(problem: Problem, name: str) -> str:
    """Which taps beside the image a convolution of floats leaves out of its sums, so that an infinite or NaN weight
    makes no NaN there: on vectors "all". On tiles, and in a GEMM, the image is copied with zeros around it, on tiles
    but for "planes", or "rows" where blocks are not of several lines; so it is where taps of a single channel become
    channels, or its lines are, and then those of "rows" alone are left out.
    """
    p = problem
    if not isinstance(p, ConvProblem) or not p.padded or not fmt(p.wei).is_float:
        return ""
    if not name or is_on_tiles(name) or "gemm" in (family(name), family(instructions(name))):
        return ("planes" if in_lines(p) else "rows") if is_on_tiles(name) else ""
    one = p.ic == p.groups and p.groups < p.oc and p.src == p.wei
    single = one and (p.src == "bf16" or p.src == "f32" and p.groups == 1)
    apart = p.src == "f32" and folds_columns(p)  # no padding is beside its columns
    wide = family(name) == "brg_conv_fwd" and instructions(name).startswith(("avx512", "avx10"))
    if apart or not single or not wide:
        return "all"
    if not p.depth and p.kh > 1 and p.ow > 4 and p.dilation == (1, 1):
        return ""
    return "rows" if p.kw > 1 and p.dilation[1] == 1 else "all"


def starts_from_bias(problem: ConvProblem, isa: str) -> bool:
    """Whether a depthwise sum of floats starts from the bias and what the destination held (rule 13): of dilated ones,
    bf16 that is widened first, and f32 with a bias of bf16.
    """
    widened = problem.src == "bf16" and "avx512_core_bf16" not in implied(isa)
    return widened or (problem.dilation != (1, 1) or odd_bias(problem)) and not depthwise_by_gemm(problem)


def ends_as_reference(problem: ConvProblem, isa: str) -> bool:
    """Whether an int8 convolution is the library's reference's at every size: below AVX-512 to bf16 or with a bias of
    bf16, and under every cap with second operands that its kernels do not take.
    """
    e = problem.epilogue
    of_bf16 = "bf16" in (e.dst, e.bias_stored) and "avx512_core" not in implied(isa)
    return of_bf16 or _operands_referred(problem, isa)


def _operands_referred(problem: ConvProblem, isa: str) -> bool:
    """Whether second operands are as large as the output, or shared in a way that no int8 kernel takes; older ones, the
    GEMM among them, take none that the pixels of an image share, and that GEMM adds no bf16 destination. Layouts may
    leave integers to the reference, too, as zero points of the destination by channel do.
    """
    if way(problem, "avx512_core" in implied(isa)) == "reference" or "dst" in problem.epilogue.by_channel:
        return True
    if "src" in problem.epilogue.by_channel and not by_brdgmm(problem, isa):
        return True
    if sums_differ(problem.epilogue.post_ops):
        return True
    wide = "avx512_core" in implied(isa)
    left = wide and by_int8_gemm(problem, isa)
    if left and (problem.epilogue.dst == "bf16" or not _gemm_adds(problem)):
        return True
    older = left or problem.depthwise or (groups_by_fours(problem, 16) if wide else older_kernel(isa, problem))
    return as_large_as_outputs(problem) or shared_by_axes(problem) or older and shared_by_pixels(problem)


def by_brdgmm(problem: ConvProblem, isa: str) -> bool:
    """Whether depthwise integers are `brdgmm_dw`'s, which alone takes zero points of the source by channel."""
    if not problem.depthwise or not implied(isa) & {"avx512_core_vnni", "avx2_vnni"}:
        return False
    if problem.depth:
        return not is_dilated(problem)
    return not problem.line and problem.dilation == (1, 1)


def _gemm_adds(problem: ConvProblem) -> bool:
    """Whether the GEMM of integers adds what the destination held: first of all, without a zero point."""
    ops = problem.epilogue.post_ops
    return not sums_late(ops) and not any(op.zero_point for op in ops)
