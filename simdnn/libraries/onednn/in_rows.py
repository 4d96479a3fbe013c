"""Convolutions of f32 whose source and destination are rows (abx), channels first, as oneDNN 3.13 takes them under
AVX-512 (`jit_uni_ncsp_convolution.cpp`): it brings both to channels last and asks for that convolution, or, where a
kernel is one tap and nothing follows the sums, multiplies weights by the image.
"""

from __future__ import annotations

from isa_models import Unimplemented
from simdnn.kernels.common.problems import ConvProblem
from simdnn.libraries.onednn.order import dense_and_pointwise


def by_matmul(p: ConvProblem) -> bool:
    """Whether weights are multiplied by the image in rows, in brg_matmul's order of sums."""
    alone = p.strides == (1, 1) and not p.epilogue.post_ops
    return "brought" in p.layouts and dense_and_pointwise(p) and p.groups == 1 and alone


def name(p: ConvProblem, inside: str) -> str:
    """The library's name for a convolution over rows; `inside`: its name for the same one over channels last.

    Raises `Unimplemented` where the order of sums is another one.
    """
    if not by_matmul(p):
        return f"jit_uni_ncsp:conv+{inside}"
    if 1 in (p.oc, p.od * p.oh * p.ow):
        raise _refused(f"a product of {p.oc}x{p.ic} weights by the image", "no vectors, and")
    return "jit_uni_ncsp:matmul+brg_matmul:avx512_core"


def _refused(what: str, works: str) -> Unimplemented:
    return Unimplemented(
        f"a convolution over rows (abx) of {what}: oneDNN takes another kernel, not modelled; what works: {works} "
        "channels last (axb)"
    )
