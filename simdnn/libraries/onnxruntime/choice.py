"""The kernel here that yields onnxruntime's bits under an ISA cap, and MLAS's name for what does so there.

Integers are exact but for one case: u8 sources times s8 weights on a CPU without VNNI, whose products are added in
pairs that saturate at 16 bits. Pairs are neighbours of a line K; a convolution's line is (rows, columns, channels) of a
group, and padding holds the source's zero point. Floats are products of matrices by MLAS's SGEMM, and convolutions in
blocks of channels.
"""

from __future__ import annotations

from isa_models import Unimplemented
from isa_models.formats import fmt
from isa_models.isa import implied
from simdnn.kernels.common.params import Params
from simdnn.kernels.common.postops import PostOp
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem, Problem
from simdnn.kernels.common.windows import ImageWindows
from simdnn.libraries.model import Form, Pick
from simdnn.libraries.onnxruntime.sums import block_of

_WAY_OUT = "dispatch='fastest' takes it"
#: the caps whose kernels of integers differ, the strongest first
_TIERS = ("avx512_core_vnni", "avx512_core", "avx2_vnni", "avx2")
_VNNI = ("avx512_core_vnni", "avx2_vnni")


def choose(problem: Problem, isa: str, fpmath: str) -> Pick:
    """The row and MLAS's name of the kernel for the cap `isa`.

    Raises `Unimplemented` for types that onnxruntime's CPU provider does not multiply, and orders that are not known.
    """
    caps = implied(isa)
    if "avx2" not in caps:
        raise Unimplemented(f"onnxruntime under {isa} is not modelled; what works: avx2 and above")
    if fmt(problem.src).is_float:
        return _floats(problem, caps, fpmath)
    tier = tier_of(caps)
    kind = "U8" if problem.src == "u8" else "S8"
    name = f"{kind}{problem.wei.upper()}:{tier}"
    pairs = problem.src == "u8" and problem.wei == "s8" and tier not in _VNNI
    if isinstance(problem, MatmulProblem):
        return Pick(_row("gemm", tier, pairs), f"MlasGemm:{name}")
    if problem.ic == problem.oc == problem.groups:
        exact = "" if tier in _VNNI else "_exact"
        row = f"dw:{tier}_int8{exact}" if problem.depthwise else _row("conv", tier, False)
        return Pick(row, f"MlasConvDepthwise:{name}")
    return Pick(_row("conv", tier, pairs), f"MlasGemm:{name}")


def tier_of(caps: frozenset[str]) -> str:
    """The strongest ISA cap among `caps` that has kernels of integers of its own."""
    return next(cap for cap in _TIERS if cap in caps)


def row_for(what: str, caps: frozenset[str]) -> str:
    """The row for a convolution with weights that are no constants, or with zero points of their own a channel, and for
    a product of a vector with a factor.
    """
    isa = "avx512_core" if "avx512_core" in caps else "avx2"
    if what in ("matrices", "chain"):
        return f"gemm:{isa}_{'sgemm' if what == 'matrices' else 'chain'}"
    if what == "varying":
        return f"conv:{isa}_columns"
    return "" if caps.intersection(_VNNI) else f"conv:{isa}_int8_line"


def _row(family: str, tier: str, pairs: bool) -> str:
    if tier in _VNNI:
        return f"{family}:{tier}"
    return f"{family}:{tier}_int8_{'line' if pairs else 'exact'}"


def _floats(p: Problem, caps: frozenset[str], fpmath: str) -> Pick:
    types = f"{p.src}:{p.wei}:{p.epilogue.dst}"
    if {p.src, p.wei, p.epilogue.dst} != {"f32"}:
        raise Unimplemented(f"onnxruntime's {types} is not modelled; what works: f32, integers; {_WAY_OUT}")
    if fpmath != "strict":
        raise Unimplemented(f"onnxruntime has no math mode {fpmath!r} on x86; what works: 'strict'; {_WAY_OUT}")
    if isinstance(p, ConvProblem):
        return _convolution(p, caps)
    if p.wei_tag != "any" and (p.m == 1 or p.n == 1 and p.wei_tag == "ab"):
        plain = p.m == 1 and p.wei_tag == "ab"
        return Pick(f"gemv:avx2_unfused{'_plain' * plain}", f"MlasSgemmKernelM1{'' if plain else 'TransposeB'}Avx")
    wide = "avx512_core" if "avx512_core" in caps else "avx2"
    return Pick(f"gemm:{wide}_sgemm", f"MlasSgemm:{wide}")


def by_vectors(w: ImageWindows, constant: bool, caps: frozenset[str]) -> bool:
    """Whether MLAS forms a convolution of floats as products of a vector: to one pixel or by one filter a group, where
    channels do not lie in blocks.
    """
    if 1 not in (w.filters, w.pixels):
        return False
    alone = w.groups > 1 and w.channels == w.filters == 1
    if constant and alone and w.groups % 4 == 0:
        return False
    return not (constant and _in_blocks(w.channels, w.filters, w.groups, block_of(caps)))


def _in_blocks(channels: int, filters: int, groups: int, block: int) -> bool:
    """Whether the channels of a convolution with constant weights lie in blocks."""
    if groups > 1:
        return channels > 1 and channels % block == 0 == filters % block
    return channels < block or channels % 4 == 0


def _convolution(p: ConvProblem, caps: frozenset[str]) -> Pick:
    """A convolution of floats, which goes through blocks of channels, or is left to a product of matrices."""
    isa = "avx512_core" if "avx512_core" in caps else "avx2"
    block, channels, filters = block_of(caps), p.ic // p.groups, p.oc // p.groups
    alone = p.depthwise and p.ic % 4 == 0
    if alone and p.epilogue.post_ops:
        raise Unimplemented(f"onnxruntime's depthwise convolution onto a value: not compared; {_WAY_OUT}")
    if alone:
        return Pick(f"dw:{isa}", f"MlasNchwcConv:{isa}")
    whole = _in_blocks(channels, filters, p.groups, block)
    onto = ", onto a value" if p.epilogue.post_ops else ""
    if not whole and (1 in (filters, p.oh * p.ow) or onto):
        raise Unimplemented(
            f"the order in which onnxruntime's MlasConv adds up f32 is not known with a kernel of {p.kh}x{p.kw}, "
            f"{channels} input and {filters} output channels a group and {p.oh}x{p.ow} pixels{onto}; with one group "
            f"of fewer than {block} input channels, or of a multiple of 4, it is; {_WAY_OUT}"
        )
    if whole:
        return Pick(f"conv:{isa}_nchwc", f"MlasNchwcConv:{isa}")
    return Pick(f"conv:{isa}_columns", f"MlasConv:{isa}")


def form(problem: MatmulProblem, params: Params, caps: frozenset[str]) -> Form:
    """How integers with parameters are taken: common zero points, scales of the sums."""
    if params.along_k or params.reductions:
        raise Unimplemented(f"onnxruntime has no integer product with parameters by group along K; {_WAY_OUT}")
    if problem.wei in ("s4", "u4"):
        raise Unimplemented(f"onnxruntime has no integer product of {problem.wei} weights; u8 and s8 work; {_WAY_OUT}")
    return Form()


def check(problem: Problem) -> None:
    """Raises for what onnxruntime's products are not followed by, or by other roundings than here."""
    e = problem.epilogue
    onto = isinstance(problem, ConvProblem) and problem.src == "f32" and e.post_ops == (PostOp("sum", 1),)
    if e.post_ops and not onto:
        raise Unimplemented(f"onnxruntime's products have no post-operation {e.post_ops[0].kind!r}; {_WAY_OUT}")
    if fmt(problem.src).is_float:
        return
    if e.dst not in ("s32", "f32", problem.src):
        raise Unimplemented(
            f"onnxruntime has no product of {problem.src} to {e.dst}; what works: dst={problem.src!r}, 's32' and "
            f"'f32'; {_WAY_OUT}"
        )
    if e.dst == problem.src == "s8" and problem.wei != "s8":
        raise Unimplemented(
            f"onnxruntime has no product of s8 x {problem.wei} to s8; what works: weights of s8; {_WAY_OUT}"
        )
    if "dst" in e.by_channel:
        raise Unimplemented(f"onnxruntime has one zero point of a destination, not one a channel; {_WAY_OUT}")
    if e.bias and e.dst == "s32":
        raise Unimplemented("onnxruntime's integer products have no bias to s32; what works: dst='f32'")
