"""Refusals of oneDNN 3.13, and what it does in a way that is not known here: types, attributes, orders of sums."""

from __future__ import annotations

from dataclasses import replace

from isa_models import Unimplemented
from isa_models.formats import fmt
from isa_models.isa import implied
from simdnn.kernels.common.layouts import ANY_LAYOUTS
from simdnn.kernels.common.postops import BINARY, COMPARISONS, ELTWISE, previous_type, sums_first
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem, Problem
from simdnn.libraries.onednn.blocks import may_cut_channels
from simdnn.libraries.onednn.layouts import by_gemm_for_layouts
from simdnn.libraries.onednn.log import family, instructions, is_on_tiles
from simdnn.libraries.onednn.older_gemm import (
    copies,
    in_chains,
    in_dots,
    in_halves,
    in_rows,
    is_turned,
    parts,
    starts_from_sum,
)
from simdnn.libraries.onednn.order import (
    as_large_as_outputs,
    by_gemm,
    by_int8_gemm,
    gemm_is_known,
    groups_by_fours,
    jit_dw_takes,
    jit_takes,
    odd_bias,
    pointwise_block_is_unsure,
    shared_by_axes,
    width_is_unsure,
)

REFERENCES = frozenset({"ref:any", "ref_int8:any"})  # what it calls its loops over elements
#: sources and destinations of reorders that are accepted, and do not write what they should
_UNWRITTEN = ("bf16", "f16", "f8_e4m3", "f8_e5m2"), ("f4_e2m1", "e8m0")
MOST_DIMS = 12  # dimensions of a tensor; primitives and benchdnn's syntax go by it, too
MOST_POST_OPS = 32
STRATEGIES = ("auto", "direct", "precomputed")  # of zero points: what its reference does


def no_reorder(source: str, target: str) -> str:
    """Why there is no reorder of one narrow float to another: the library has none, or writes nothing."""
    unwritten = source in _UNWRITTEN[0] and target in _UNWRITTEN[1]
    return "oneDNN 3.13 accepts it and leaves the destination unwritten" if unwritten else "oneDNN has none"


def check_post_ops(problem: Problem) -> None:
    """Raises for a post-operation whose roundings in the library are not known, and for sums that it refuses."""
    dst = problem.epilogue.dst
    for op in problem.epilogue.post_ops:
        if op.kind not in (*ELTWISE, *BINARY, "sum"):
            raise Unimplemented(f"dispatch='onednn' with post-operation {op.kind!r}: not modelled; 'fastest' takes it")
        if op.kind == "sum" and (why := sum_missing(problem.src, dst, op.stored or dst, op.zero_point)):
            types = f"{problem.src}:{problem.wei}:{dst}"
            raise Unimplemented(f"oneDNN refuses {why} for {types}: dispatch='fastest' takes it")


def check_dimensions(p: MatmulProblem) -> None:
    """Raises for several matrices of weights that would begin within a byte."""
    if fmt(p.wei).bits == 4 and p.batch.products("wei") > 1 and p.k * p.n % 2:
        raise Unimplemented(
            f"oneDNN refuses several matrices of {p.wei} with an odd number of elements ({p.k}x{p.n}): an even K or N "
            "works, and dispatch='fastest'"
        )


def check_zero_points(strategy: str, by_row: bool) -> None:
    """Raises for a strategy of zero points that is not its own, and for source zero points by row without groups."""
    if strategy in STRATEGIES and not by_row:
        return
    what = f"zero_point_strategy={strategy!r}" if strategy not in STRATEGIES else "zero_points['src'] with mask 1"
    raise Unimplemented(
        f"dispatch='onednn' with {what}: oneDNN has none; what works: dispatch='fastest', "
        f"strategies {', '.join(STRATEGIES)}, and groups=(1, K) for a zero point a row"
    )


def check_parameter_type(primitive: str, kind: str, argument: str, dtype: str) -> None:
    """Raises for scales in another type than f32 of what is no matmul, and for zero points in another than s32 but
    those of a matmul's source and weights: no implementation passes `skip_mask_t::scales_data_type` or
    `zero_points_data_type` for others.
    """
    own = "f32" if kind == "scales" else "s32"
    if dtype != own and (primitive != "matmul" or argument == "dst" and kind == "zero_points"):
        where = f"{kind}[{argument!r}]"
        raise Unimplemented(
            f"oneDNN refuses {where} of {'an' if primitive[0] == 'i' else 'a'} {primitive} stored in {dtype}: {own} "
            f"works, {where} = Quant(values, dtype={own!r}), and dispatch='fastest'"
        )


def check_scaled_dst(dtype: str) -> None:
    """Raises for a destination's scale that the kernel for compressed weights reads as what it is not."""
    if dtype != "f32":
        raise Unimplemented(
            f"oneDNN's kernel for compressed weights reads a destination's scale of {dtype} as f32, an error: f32 "
            "works, and dispatch='fastest'"
        )


def check_forced(p: Problem, name: str) -> None:
    """Raises for a math mode that is said of integers, too, beside floats: its older kernels refuse it, and who does it
    then is not modelled (`skip_mask_t::fpmath_mode` in its implementations).
    """
    loops = isinstance(p, MatmulProblem) and name in REFERENCES
    if not loops and family(name) not in ("brg_matmul", "brg_conv_fwd", "brgconv_1x1"):
        raise Unimplemented(
            f"apply_to_int beside floats: oneDNN's kernel {name} takes no such mode; leave it out, as it says nothing"
        )


def _refuse_bias(p: Problem) -> None:
    """Raises for types of the bias of an int8 convolution that the library refuses."""
    if p.epilogue.bias_stored in ("f16", *_UNWRITTEN[0][2:]):
        raise Unimplemented(
            f"oneDNN has no int8 convolution with a bias of {p.epilogue.bias_stored}: f32, s32, s8 and u8 work, and "
            "dispatch='fastest'"
        )


def refuse_int8_gemm(p: ConvProblem) -> None:
    """Raises where the GEMM that takes a convolution of integers answers otherwise than it should."""
    if p.epilogue.bias_stored == "bf16":
        raise Unimplemented(
            "oneDNN takes a GEMM for an int8 convolution with a bf16 bias, and adds what is not the bias (0, or any "
            "number up to 1e37): f32, s32, s8 and u8 work, and dispatch='fastest'"
        )
    compared = [
        op.kind for op in p.epilogue.post_ops if op.kind in COMPARISONS and not (op.per_channel or op.per_output)
    ]
    if compared and p.epilogue.dst in ("s8", "u8"):
        raise Unimplemented(
            f"oneDNN's GEMM answers post-operation {compared[0]!r} with one operand otherwise to {p.epilogue.dst}: an "
            "operand by channel, or dst='f32', works, and dispatch='fastest'"
        )


def refuse_left_out_planes(p: ConvProblem) -> None:
    """Raises where columns of one channel become channels in the first plane's weights alone, as the image has a single
    plane, and those of the kernel's other planes are left out (`relo_supported_shape` in jit_brgemm_conv_utils.cpp).
    """
    d = p.depth
    if d and d.i == 1 < d.k and _columns_are_channels(p):
        raise Unimplemented(
            f"oneDNN leaves weights of this {d.k}x{p.kh}x{p.kw} kernel out, as the image has one plane: several input "
            "channels work, and dispatch='fastest'"
        )


def _columns_are_channels(p: ConvProblem) -> bool:
    """Whether columns of a group's single channel become channels (`try_relo_wi` in `init_jcp`)."""
    return p.ic == p.groups and p.kw > 1 and p.dilation[1] == 1 and not p.turned


def refuse_later_groups(p: ConvProblem) -> None:
    """Raises where columns of one channel become channels, in groups, and what an s8 source or a zero point adds to
    sums is read at other groups' places: weights hold it for blocks of 16 outputs, and kernels go by blocks of 64, or
    by several. Without padding whole blocks of 64 are right in some shapes, wrong in others.
    """
    outputs = -(-p.oc // p.groups // 16) * 16
    apart = outputs > 32 and (outputs != 64 if p.padded else outputs % 64)
    flat = p.depth is None or p.depth.i == 1
    if p.groups > 1 and apart and flat and _columns_are_channels(p) and (p.src == "s8" or p.epilogue.zp_src):
        raise Unimplemented(
            f"oneDNN gets all groups but the first wrong here, of one channel and {p.oc // p.groups} outputs each: up "
            "to 32 outputs a group work, u8 without a zero point, and dispatch='fastest'"
        )


def refuse_lost_constants(p: Problem) -> None:
    """Raises where a depthwise kernel of bytes to bf16 overwrites a constant of its rounding by the first result.

    The kernel keeps sums in up to 26 registers, and rounds into the next one; the 27th holds the constant
    (`get_src_down_idx` in jit_avx512_core_x8s8s32x_conv_kernel.hpp).
    """
    e = p.epilogue
    if not isinstance(p, ConvProblem) or not p.depthwise or p.src != "u8" or e.zp_src or e.dst_zero_point:
        return
    blocks = -(-p.groups // 16)
    together = next(n for n in (4, 3, 2, 1) if blocks % n == 0)
    again = p.strides[1] < p.kw < 4 and p.dilation[1] == 1  # sources are read again
    if together < 3 and not again and p.ow >= 26 // together:
        raise Unimplemented(
            "oneDNN rounds bytes of this depthwise convolution to bf16 wrong, by a unit in the last place, as its "
            f"kernel overwrites a constant: dst='f32' works, lines of fewer than {26 // together} outputs, and "
            "dispatch='fastest'"
        )


def refuse_lost_zero_point(p: ConvProblem, name: str) -> None:
    """Raises where `brgconv_1x1` has nothing behind sums of s32 but a zero point of the destination, and then leaves
    that out (`need_postwork_` in jit_brgemm_1x1_conv.cpp).
    """
    e, shifted = p.epilogue, p.src == "s8" and not is_on_tiles(name)
    alone = replace(e, dst_zero_point=False)
    behind = shifted or e.zp_src or e.post_ops or alone.in_float
    if family(name) == "brgconv_1x1" and e.dst_zero_point and not behind:
        raise Unimplemented(
            "oneDNN leaves out the zero point of an s32 destination of this 1x1 convolution, as nothing else stands "
            "behind its sums: a zero point of the source, a bias, or relu work, and dispatch='fastest'"
        )


def refuse_float_bias(p: Problem) -> None:
    """Raises for types of the bias that the library's products of floats do not take: f32 always; a matmul with weights
    of 16 bits has theirs, one with integer weights both; a convolution of bf16 or f16 its own, depthwise f32 bf16.
    """
    matmul, stored = isinstance(p, MatmulProblem), p.epilogue.bias_stored
    own = ("bf16", "f16") if not fmt(p.wei).is_float else (p.wei,) if matmul or p.src == p.wei else ()
    if isinstance(p, ConvProblem) and odd_bias(p) and jit_dw_takes(p):
        own = ("bf16",)
    known = ("f32", *(name for name in own if name in ("bf16", "f16")))
    if p.epilogue.bias and stored not in known:
        what = "matmul" if matmul else "convolution"
        raise Unimplemented(
            f"oneDNN has no {what} {p.src}:{p.wei}:{p.epilogue.dst} with a bias of {stored}: {' and '.join(known)} "
            f"work{'s' * (len(known) == 1)}, and dispatch='fastest'"
        )


def refuse_halves(p: Problem, caps: frozenset[str], isa: str) -> None:
    """Raises for floats of 16 bits where the library has no products of them."""
    if p.src == "bf16" and "avx512_core" not in caps:
        raise Unimplemented(f"oneDNN has no bf16 under {isa}: use avx512_core_bf16, or f32")
    if p.src == "f16" and "avx512_core_fp16" not in caps:
        raise Unimplemented(f"oneDNN refuses f16 under {isa}: use avx512_core_fp16, or dispatch='fastest'")


def refuse_missing(p: Problem) -> None:
    """Raises for types that the library has no primitive for."""
    matmul, dst = isinstance(p, MatmulProblem), p.epilogue.dst
    has = ""
    if matmul and "dst" in p.epilogue.by_channel:
        raise Unimplemented(
            "zero points of a destination by channel in oneDNN's kernels are not modelled: dispatch='fastest' works"
        )
    if not matmul and dst == "f16" and p.src != "f16":
        has = "convolutions to f16 from f16 alone, and to f32 from all types"
    if not matmul and not fmt(p.src).is_float and p.epilogue.bias:
        _refuse_bias(p)
    if p.src == "f16" == p.wei and (dst == "bf16" or matmul and dst in ("s8", "u8")):
        has = f"f16 {'matmuls' if matmul else 'convolutions'} to f16 and f32"
    if has:
        what = "matmul" if matmul else "convolution"
        raise Unimplemented(f"oneDNN has no {what} {p.src}:{p.wei}:{dst}; it has {has}; dispatch='fastest' takes it")


#: types of second operands -> the cap whose kernels convert them
_CONVERTED_FROM = {"bf16": "avx512_core", "f16": "avx512_core_fp16"}


def refuse_operand_types(p: Problem, name: str, caps: frozenset[str]) -> None:
    """Raises for second operands of a type that nothing converts under these caps (`has_data_type_support` in its
    platform.cpp), or that the kernel `name` does not (`is_data_supported` in jit_uni_binary_injector.cpp).
    """
    types = {op.stored for op in p.epilogue.post_ops if op.second and op.kind != "prelu"}
    own = instructions(name)
    by_kernel = own.startswith("avx") and not own.startswith("avx10")
    for dtype in sorted(types & _CONVERTED_FROM.keys()):
        least = _CONVERTED_FROM[dtype]
        if least not in caps:
            raise Unimplemented(f"oneDNN refuses second operands of {dtype} below {least}: f32 works")
        if by_kernel and least not in implied(own):
            raise Unimplemented(
                f"oneDNN's kernel {name} takes no second operands of {dtype}; who does then is not modelled: f32 works"
            )


def sum_missing(src: str, dst: str, held: str, has_point: bool) -> str:
    """Why no implementation adds what a destination held, read as `held` (`check_sum_consistency`); "" if one does."""
    if fmt(held).bits != fmt(dst).bits:
        return f"a sum of {held}, which is not as wide as {dst},"
    if has_point and (fmt(src).is_float or fmt(held).is_float):
        return "a sum with a zero point"
    return ""


def refuse_float_attributes(problem: Problem, caps: frozenset[str]) -> None:
    """Raises for what may follow floating-point sums here and oneDNN refuses, or does in an order not known."""
    refuse_float_bias(problem)
    e, types = problem.epilogue, f"{problem.src}:{problem.wei}:{problem.epilogue.dst}"
    if e.dst_zero_point:
        raise Unimplemented(f"oneDNN refuses a destination zero point for {types}: dispatch='fastest' takes it")
    if isinstance(problem, MatmulProblem):
        return
    if e.src_scale or e.wei_scale or e.dst_scale:
        raise Unimplemented(f"oneDNN refuses scales of a convolution {types}: dispatch='fastest' takes them")
    small = problem.groups > 1 and problem.ic // problem.groups <= 16
    if (problem.src, e.dst) == ("f32", "bf16") and (small or "avx512_core" not in caps):
        raise Unimplemented(f"oneDNN refuses {types} below avx512_core, and groups of up to 16 channels: use dst f32")
    if (problem.src, e.dst) == ("f32", "bf16") and (as_large_as_outputs(problem) or shared_by_axes(problem)):
        raise Unimplemented(f"oneDNN refuses {types} with second operands as large as the output: use dst f32")


#: rows of float convolutions whose library kernels go through the taps of a block of channels -> whether AVX-512's
_IN_BLOCKS = {"conv:avx2": False, "conv:avx512_core": True, "conv:avx512_core_bf16": True, "conv:avx512_core_f16": True}
#: and those for depthwise ones, whose kernel columns alone may become chains
_IN_COLUMNS = {"conv:avx2_taps": False, "conv:avx512_core_taps": True, "conv:avx512_core_f16_taps": True}


def order_unknown(p: Problem, row: str) -> str:
    """Why it is not known whether kernel columns, or blocks of channels, become chains; empty where it is."""
    if not isinstance(p, ConvProblem):
        return ""
    if p.src == "f32" and by_gemm_for_layouts(p):
        return (
            "oneDNN takes its older GEMM over these layouts, whose order goes by blocks of the image, which is not "
            "modelled: simdnn.estimate has the cost; channels last (axb) work, and dispatch='fastest'"
        )
    if row == "conv:avx512_core_int8" and (why := _in_odd_halves(p)):
        return why
    if row == "conv:avx512_core_bf16_emulated" and pointwise_block_is_unsure(p):
        return (
            f"oneDNN may cut sums over {p.ic} channels of {p.ih}x{p.iw} pixels, by their lines in the second cache, "
            "which is not modelled: simdnn.estimate has the cost; fewer channels work, and dispatch='fastest'"
        )
    if row not in _IN_BLOCKS and row not in _IN_COLUMNS or row in _IN_BLOCKS and p.depthwise:
        return ""
    wide = {**_IN_BLOCKS, **_IN_COLUMNS}[row]
    if (p.src == "f32" and wide and jit_takes(p)) or (
        p.src == "bf16" and (by_gemm(p, False) or groups_by_fours(p, 16))
    ):
        return ""
    if may_cut_channels(p, wide):
        return (
            f"oneDNN may cut sums over {p.ic // p.groups} channels of a {p.kh}x{p.kw} kernel, by an estimate from the "
            "sizes of caches which is not modelled: simdnn.estimate has the cost; fewer channels work, and "
            "dispatch='fastest'"
        )
    if width_is_unsure(p, wide):
        return (
            "whether oneDNN adds up each column of the kernel by itself is not known where padding beside the image is "
            f"this wide and a line has {p.ow} outputs: simdnn.estimate has the cost; less padding works, and "
            "dispatch='fastest'"
        )
    return ""


def _in_odd_halves(p: ConvProblem) -> str:
    """Why pairs of bytes that saturate are others in its older GEMM, which halves sums; empty where they are not."""
    products = p.ic // p.groups * p.tap_rows * p.kw
    if not by_int8_gemm(p, "avx512_core") or not in_halves(products, wide=True) or -(-products // 2) % 2 == 0:
        return ""
    return (
        f"oneDNN takes its older GEMM here, which begins with new pairs after half of {products} products, not "
        "modelled: simdnn.estimate has the cost; isa='avx512_core_vnni' works, and dispatch='fastest'"
    )


def refuse_float_gemm(p: MatmulProblem, wide: bool) -> None:
    """Raises where the older GEMM of f32 scales on the way what several chains add up, or a vector starts from what the
    destination held; kernels for few rows, and those that copy, multiply an operand by a common scale.
    """
    e = p.epilogue
    if is_turned(p) and not wide and 1 not in (p.m, p.n):
        raise _another_gemm(p, "a source in rows,")
    common = (e.src_scale or e.wei_scale) and not (e.wei_scale and e.wei_scale.by_channel) and not e.bias
    held = bool(previous_type(e.post_ops, e.dst)) and starts_from_sum(p)
    pieces = p.k > 16 and p.k % 16 or p.k % 16 not in (0, 1, 2, 4, 8) if in_dots(p) else in_chains(p) and p.k > 1
    if (common or held) and pieces or common and (in_rows(p, wide) or copies(p, wide)):
        raise _another_gemm(p, "no common scale and no sum, or a bias,")
    refuse_sum_in_gemm(p)
    if common and not in_dots(p) and parts(p, wide)[0] or common and not wide and p.k > 256:
        raise _another_gemm(p, "a scale by column, or a bias,")


def _another_gemm(p: MatmulProblem, works: str) -> Unimplemented:
    return Unimplemented(
        f"oneDNN takes another GEMM for this matmul of {p.src} ({p.m}x{p.k}:{p.k}x{p.n}), by its second operands or "
        f"sizes of run time, in an order of sums that is not modelled: {works} work, else operands of one value, or a "
        "column of two and four dimensions, and dispatch='fastest'"
    )


def refuse_gemm(p: ConvProblem) -> None:
    """Raises where the order of the GEMM that takes a convolution is not known."""
    if not gemm_is_known(p):
        works = "several outputs of an image, and with channels last an even number of them and up to 384 products,"
        raise Unimplemented(
            f"oneDNN takes a GEMM for this convolution of {p.src}, in an order not known: {works} work, and "
            "dispatch='fastest'"
        )


def refuse_single_pixel(p: ConvProblem) -> None:
    """Raises for second operands of a convolution of f32 to a single pixel, which a GEMM takes."""
    if p.layouts != ANY_LAYOUTS and p.epilogue.dst == "f32" and p.mb * p.oh * p.ow == 1:
        raise Unimplemented(
            "oneDNN takes a GEMM for a convolution of f32 to a single pixel with second operands by channel, in an "
            "order not known: several outputs of an image work, and dispatch='fastest'"
        )


def refuse_sum_in_gemm(p: MatmulProblem) -> None:
    """Raises where a GEMM of floats starts from what the destination held, and something is scaled on the way."""
    e = p.epilogue
    scaled = e.src_scale or e.wei_scale or not sums_first(e.post_ops)
    if scaled and starts_from_sum(p) and previous_type(e.post_ops, e.dst):
        raise Unimplemented(
            f"oneDNN's GEMM of {p.src} starts its sums from what the destination held, scaled: a bias, a scale by "
            "column, or no scales, works, and dispatch='fastest'"
        )


def refuse_scaled_parts(p: MatmulProblem) -> None:
    """Raises where a GEMM of floats multiplies each part of its sums by a common scale, and adds it in one rounding."""
    e = p.epilogue
    common = (e.src_scale or e.wei_scale) and not (e.wei_scale and e.wei_scale.by_channel)
    chain = 8 if in_chains(p) else 384
    if common and p.k > chain and not in_dots(p) and not e.bias:
        raise Unimplemented(
            f"oneDNN's GEMM of floats scales each part of sums over K = {p.k} by itself, not modelled here: a scale by "
            "column, or a bias, works, and dispatch='fastest'"
        )


def refuse_saturated_groups(p: MatmulProblem, tier: str) -> None:
    """Raises where parts of K are scaled beside sums that saturate: on their way to s32, or with halves of fours."""
    exact = p.reference or p.group_scales is None or p.group_scales.reference
    if not exact and p.wei == "s8" and tier in ("avx2", "avx512_core"):
        raise Unimplemented(
            f"oneDNN adds up saturated pairs in groups of {p.scale_period} along K for dst={p.epilogue.dst!r}, not "
            "modelled here: groups of multiples of four to another destination than s32 work, and dispatch='fastest'"
        )


def refuse_dots_of_s8(p: MatmulProblem) -> None:
    """Raises where a kernel for a vector of bytes multiplies magnitudes of s8, which saturate in other pairs."""
    if p.src == "s8" and in_dots(p):
        raise Unimplemented(
            "oneDNN takes a GEMM's kernel for a vector of s8 without VNNI, which is not modelled: several rows and "
            "columns work, isa='avx512_core_vnni', and dispatch='fastest'"
        )


def refuse_raw(p: MatmulProblem, tiles: bool = False) -> None:
    """Raises where the library leaves the bits of s32 sums in an f32 destination."""
    e = p.epilogue
    later = e.bias or e.post_ops or e.src_scale or e.wei_scale or e.dst_scale or p.group_scales
    if e.dst == "f32" and not later and (p.src == "u8" or tiles):
        raise Unimplemented(
            f"oneDNN 3.13 leaves bits of s32 in the f32 output of {p.src} x {p.wei} without scales; "
            "with scales, dst='s32' or dispatch='fastest' it works"
        )
