"""Who takes a product over layouts that a user names, in oneDNN 3.13: of convolutions its kernels for channels last, a
GEMM over a copy of the windows, or its reference; of matmuls brg_matmul or its reference.

Read in `init_conf` of its implementations (gemm_convolution_utils.cpp, jit_avx512_common_conv_kernel.cpp,
jit_uni_ncsp_convolution.cpp), and asked of the library for every pair of layouts, three kinds of weights, three types.
"""

from __future__ import annotations

from dataclasses import replace

from isa_models import Unimplemented
from isa_models.formats import fmt
from simdnn.kernels.common.layouts import Layouts
from simdnn.kernels.common.params import Params
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem

_USUAL = frozenset({"any", "last", "brought"})
_ROWS = frozenset({"any", "rows"})
_FIRST_LAYER = 16  # channels under which a kernel of its own reads rows and writes blocks


def matrices(p: MatmulProblem, params: Params, caps: frozenset[str]) -> str:
    """Who takes a matmul over named layouts: "reference", where the destination lies column by column, or weights in
    blocks do not fit what brg_matmul multiplies (`pick_blocked_B_layout`), or lack sums that come with its own.
    """
    if p.layouts.dst == "ba":
        return "reference"
    if p.layouts.wei in ("any", "apart"):
        return ""
    if fmt(p.wei).bits < 8:
        raise Unimplemented(f"{p.wei} weights in blocks: who takes them in oneDNN is not modelled: any, ab and ba work")
    bf16 = p.src == "bf16" and "avx512_core_bf16" in caps and p.wei in ("bf16", "s8", "u8")
    if not fmt(p.src).is_float:
        alone = p.src == "u8" and "src" not in params.zero_points
        fits = "blocks4" if alone and "avx512_core" in caps else ""
    else:
        fits = "blocks2" if bf16 else "" if p.src == "bf16" else "blocks"
    return "" if p.layouts.wei == fits and p.left_to in ("", "brgemm") else "reference"


def asked(p: ConvProblem, caps: frozenset[str]) -> ConvProblem:
    """A convolution as it is put to a kernel. f32 under AVX-512: one in rows is one over channels last, between two
    copies, and its kernels take weights in hwio as they are.
    """
    src, wei, dst = p.layouts
    src, dst = _settled(p, src, dst)
    if wei != "any" and p.kh * p.kw == 1 and 1 in (p.ic // p.groups, p.oc // p.groups):
        raise _unknown(p, "weights of any layout work where one tap and one channel leave open what theirs is")
    alike = {p.src, p.wei, p.epilogue.dst, p.epilogue.bias_stored} == {"f32"} and "avx512_core" in caps
    images = {src, dst}
    if alike and images == {"rows"}:
        src, dst, images = "brought", "brought", {"brought"}
    if alike and images <= _USUAL and wei == "last":
        wei = "kept"
    return replace(p, layouts=Layouts(src, wei, dst))


def _settled(p: ConvProblem, src: str, dst: str) -> tuple[str, str]:
    """Floats go by name. One channel, or one pixel, lies either way: integers in rows have their channels last."""
    if fmt(p.src).is_float or "rows" not in (src, dst):
        return src, dst
    pixels = (p.depth.i if p.depth else 1) * p.ih * p.iw, p.od * p.oh * p.ow
    either = [1 in pair for pair in zip((p.ic, p.oc), pixels, strict=True)]
    if any(either) and (src != dst or not all(either)):
        raise _unknown(p, "where one channel or one pixel leaves it open, channels last, and any, work")
    return ("last", "last") if all(either) else (src, dst)


def way(p: ConvProblem, wide: bool = True) -> str:
    """Who takes a convolution: "" as if no layout of images were named; "gemm" over rows, or "gemm over pixels", whose
    channels are last, of integers `wide` (AVX-512) alone; "reference".

    >>> from simdnn.kernels.common.epilogue import Epilogue
    >>> def of(src, *layouts):
    ...     return way(ConvProblem(1, 32, 9, 9, 8, 3, 3, src, src, Epilogue("f32"), layouts=Layouts(*layouts)))
    >>> of("bf16", "rows", "any", "rows"), of("u8", "any", "last", "any"), of("bf16", "last", "any", "rows")
    ('gemm', 'gemm over pixels', 'reference')
    """
    images, weights, e = {p.layouts.src, p.layouts.dst}, p.layouts.wei, p.epilogue
    usual = images <= _USUAL
    if usual and weights in ("any", "kept"):
        return ""
    if not fmt(p.src).is_float:  # others come with sums of the weights, which plain ones have not
        return (
            "gemm over pixels"
            if wide and usual and weights == "last" and p.src == "u8" and not e.zp_src
            else "reference"
        )
    if e.dst not in ("f32", p.src) or e.bias_stored not in ("f32", p.src):
        return "reference"
    if images <= _ROWS and weights in _ROWS:
        if p.layouts == Layouts("rows", "any", "any") and p.groups == 1 and p.ic < _FIRST_LAYER:
            raise _unknown(p, f"{_FIRST_LAYER} channels and more, or a destination in rows, too, work")
        return "gemm"
    return "gemm over pixels" if images == {"last"} and weights == "last" else "reference"


def by_gemm_for_layouts(p: ConvProblem) -> bool:
    """Whether layouts leave a convolution of floats to the GEMM."""
    return fmt(p.src).is_float and way(p).startswith("gemm")


def named_last(p: ConvProblem) -> bool:
    """Whether an image's channels are named last, or brought there, where kernels for blocks of channels are none."""
    return bool({"last", "brought"} & {p.layouts.src, p.layouts.dst}) and p.layouts.wei == "any"


def _unknown(p: ConvProblem, works: str) -> Unimplemented:
    named = ", ".join(f"{name} {layout}" for name, layout in p.layouts._asdict().items())
    return Unimplemented(f"oneDNN's kernel for a convolution of {p.src} over {named} is not modelled: {works}")
