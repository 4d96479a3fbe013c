"""ggml on x86 CPUs: which of its dot products a build for an ISA takes. Their order of sums is the rows' own.

llama.cpp interleaves rows of some types when it loads them, by eights, where their number allows (its buffer type
CPU_REPACK, on unless `--no-repack` says otherwise). Builds with AMX have yet another form, which is not modelled.
"""

from __future__ import annotations

from collections.abc import Callable

from isa_models import Unimplemented
from isa_models.block_formats import block_format
from isa_models.isa import implied
from simdnn.kernels.common.problems import MatmulProblem, Problem
from simdnn.libraries.model import Library, Pick, refuses

#: caps that it has code of its own for, the strongest first
_CAPS = ("avx512_core_vnni", "avx2_vnni", "avx2")
_REPACKED, _EIGHT = ("q4_0", "q4_K", "iq4_nl", "mxfp4"), 8
_PROMPT = 8  # rows of the source, at least, that blocks of 256 are multiplied with in tiles
_LLAMAFILE = ("q4_0", "q5_0", "q8_0", "iq4_nl")  # types whose prompts llamafile's kernels multiply
_WORKS = "f32 times weights in its blocks (simdnn.quantize_ggml, simdnn.ggml_blocks)"


def choose(problem: Problem, isa: str, fpmath: str) -> Pick:
    """The dot product that ggml takes for a type of weights; builds for AVX-512 without VNNI run AVX2's."""
    check(problem)
    assert isinstance(problem, MatmulProblem)
    cap = _cap(isa)
    activations = block_format(problem.blocks).activations
    if activations == "q8_K" and problem.m >= _PROMPT:
        return Pick("tiled:avx2", "ggml_mul_mat_tiled")
    several = problem.m > 1 and problem.blocks in _LLAMAFILE
    name = "llamafile_sgemm" if several else f"ggml_vec_dot_{problem.blocks}_{activations}"
    return Pick(f"vec_dot:{cap}", name)


def choose_repacked(problem: Problem, isa: str, fpmath: str) -> Pick:
    """The kernel for weights that llama.cpp interleaves by eight rows, and ggml's dot product of others."""
    plain = choose(problem, isa, fpmath)
    assert isinstance(problem, MatmulProblem)
    if problem.blocks == "q2_K" and "avx512_core" in implied(isa) and not problem.n % _EIGHT:
        works = "avx2, --no-repack (dispatch='ggml')"
        raise Unimplemented(f"llama.cpp interleaves q2_K under {isa}, whose sums are not modelled; what works: {works}")
    if problem.blocks not in _REPACKED or problem.n % _EIGHT:
        return plain
    cap = _cap(isa)
    kernel = "gemm" if problem.m > 3 else "gemv"
    return Pick(f"repacked:{cap}", f"ggml_{kernel}_{problem.blocks}_8x8_{block_format(problem.blocks).activations}")


def _cap(isa: str) -> str:
    """The strongest cap that it has code of its own for."""
    cap = next((cap for cap in _CAPS if cap in implied(isa)), "")
    if not cap:
        raise Unimplemented(f"ggml built for {isa}: its order of sums without AVX2 is not modelled; avx2 and above are")
    return cap


def check(problem: Problem) -> None:
    """Raises for what is no product with weights in its blocks."""
    if not isinstance(problem, MatmulProblem) or not problem.blocks:
        what = "matmul" if isinstance(problem, MatmulProblem) else "convolution"
        types = f"{problem.src}:{problem.wei}:{problem.epilogue.dst}"
        raise Unimplemented(f"dispatch='ggml' of a {what} {types}: not modelled; what works: {_WORKS}")


def _library(title: str, version: str, answers: str, chosen: Callable[[Problem, str, str], Pick]) -> Library:
    return Library(
        title,
        version,
        answers,
        chosen,
        refuses(title, "products of integers as the user stores them", _WORKS),
        refuses(title, "scales and zero points of an attribute", _WORKS),
        check,
        refuses(title, "zero points of an attribute", _WORKS),
        blocks_alone=True,
    )


LIBRARY = _library("ggml", "0.25", "products of f32 activations with weights in its blocks", choose)
REPACKING = _library("ggml CPU_REPACK", "0.25", "those products as llama.cpp forms them by default", choose_repacked)
