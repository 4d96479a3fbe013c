"""FBGEMM on x86, as PyTorch's dynamic quantization of Linear calls it: products of u8 sources and s8 weights to floats.

Sums are integers, exact but without VNNI, where neighbours of K are a pair that saturates (PackedLinear, with 32-bit
sums); one factor, source scale x weights scale, multiplies them, and the bias is added to that with one rounding
(include/fbgemm/OutputProcessing-inl.h, ReQuantizeForFloat, as its compiler fuses it).
"""

from __future__ import annotations

from isa_models import Unimplemented
from isa_models.isa import implied
from simdnn.kernels.common.params import Params
from simdnn.kernels.common.problems import MatmulProblem, Problem
from simdnn.libraries.model import Form, Library, Pick, refuses
from simdnn.libraries.onnxruntime import choice

_TITLE = "FBGEMM"
_WORKS = "u8 sources times s8 weights to f32"
_WAY_OUT = f"what works: {_WORKS}, and dispatch='fastest'"


def choose(problem: Problem, isa: str, fpmath: str) -> Pick:
    """The row that yields its bits: pairs as onnxruntime has them, where there is no VNNI."""
    check(problem)
    caps = implied(isa)
    if "avx2" not in caps:
        raise Unimplemented(f"{_TITLE} under {isa} is not modelled; what works: avx2 and above")
    return Pick(choice.choose(problem, isa, fpmath).row, f"fbgemmPacked:{choice.tier_of(caps)}")


def check(problem: Problem) -> None:
    """Raises for all but products of u8 by s8 to floats, without post-operations."""
    e = problem.epilogue
    types = f"{problem.src}:{problem.wei}:{e.dst}"
    if (
        not isinstance(problem, MatmulProblem)
        or (problem.src, problem.wei) != ("u8", "s8")
        or e.dst not in ("f32", "s32")
    ):
        what = "matmul" if isinstance(problem, MatmulProblem) else "convolution"
        raise Unimplemented(f"{_TITLE}'s {what} {types} is not modelled; {_WAY_OUT}")
    if e.post_ops:
        raise Unimplemented(f"{_TITLE}'s {e.post_ops[0].kind!r} behind a product is not modelled; {_WAY_OUT}")


def form(problem: MatmulProblem, params: Params, caps: frozenset[str]) -> Form:
    """Scales common or one a column, common zero points."""
    if params.along_k or params.reductions:
        raise Unimplemented(f"{_TITLE} has no parameters by group along K here; {_WAY_OUT}")
    return Form()


LIBRARY = Library(
    _TITLE,
    "of PyTorch 2.14",
    "dynamically quantized Linear: u8 by s8 to f32",
    choose,
    form,
    refuses(_TITLE, "product of compressed weights here", _WORKS),
    check,
    refuses(_TITLE, "zero points by group, and no strategy of them", "common ones"),
    one_factor=True,
    fused_bias=True,
)
