"""Rows of kernels for a matrix and a vector, and for what a library's older GEMMs do otherwise than its newer ones."""

from __future__ import annotations

from functools import partial

from isa_models import Machine
from simdnn.kernels.common.epilogue import Epilogue
from simdnn.kernels.common.kernel import Kernel, KernelKind
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem
from simdnn.kernels.x86.code import Unit, unit_of
from simdnn.kernels.x86.gemv import FORMS, Gemv

_GEMV = (("avx2", "f32"), ("avx512_core_bf16", "bf16"), ("avx512_core", "f16"), ("avx2", "f16"))
#: those of oneDNN's older GEMMs
_GEMV_OF_GEMMS = (
    ("avx512_core", "bf16", False, "emulated"),
    ("avx512_core_bf16", "bf16", False, "pairs"),
    ("avx2", "f32", False, "older"),
    ("avx512_core", "f32", False, "rows"),
)
_PIXEL_GEMV = (
    ("avx512_core", "bf16", "emulated", "_bf16_emulated_pixel"),
    ("avx512_core_bf16", "bf16", "pairs", "_pixel"),
    ("avx2", "f32", "older", "_pixel"),
)


def vector_kinds() -> list[KernelKind]:
    """All of them, in the order of the table."""
    return [
        *(_gemv(isa, dtype, plain) for isa, dtype in _GEMV for plain in (False, True)),
        *(_gemv(*row) for row in _GEMV_OF_GEMMS),
        _older_gemm(),
        *(_pixel_gemv(*row) for row in _PIXEL_GEMV),
        *(_unfused_gemv(plain) for plain in (False, True)),
    ]


def _gemv(isa: str, dtype: str, plain: bool, form: str = "") -> KernelKind:
    """`plain`: lanes run over N, and weights are as the user stores them; else along K, in a `form` (`Gemv`)."""
    emulated = form == "emulated"
    name = f"gemv:{isa}" + ("_f16" if dtype == "f16" else "_bf16_emulated" if emulated else "_" * bool(form) + form)
    name += ("_plain" if plain else "") + ("_bf16" if plain and dtype == "bf16" else "")
    return KernelKind(
        name,
        isa,
        "bf16" if dtype == "bf16" and not plain and not emulated else "f32",
        partial(_gemv_kernel, name, unit_of(isa), plain, form),
        library="onednn" if form else "",
        sources=(dtype,),
        weights=(dtype,),
        multiplied=dtype,
        accumulates=("f32",),
        tags=("any", "ab", "ba"),
        sizes=() if FORMS[form].rows else (_vector,),
        wants=(_across_n if plain else _along_k,),
    )


def _pixel_gemv(isa: str, dtype: str, form: str, suffix: str) -> KernelKind:
    """A convolution of floats to a single pixel as products of a vector, in a `form` of `Gemv`."""
    name = f"conv:{isa}{suffix}"
    return KernelKind(
        name,
        isa,
        "f32" if form == "emulated" else dtype,
        partial(_pixel_kernel, name, unit_of(isa), form),
        ConvProblem,
        library="onednn",
        sources=(dtype,),
        weights=(dtype,),
        multiplied=dtype,
        accumulates=("f32",),
        tags=("any",),
        takes=("depth",),
        sizes=(_single_pixel,),
    )


def _single_pixel(problem: ConvProblem) -> str:
    return "" if problem.oh * problem.ow == 1 else "computes a single output pixel of each plane only"


def _pixel_kernel(name: str, unit: Unit, form: str, problem: ConvProblem, machine: Machine) -> Kernel:
    from simdnn.kernels.x86.gemv_pixel import PixelGemv  # the kernels of few

    return PixelGemv(name, problem, unit, form).kernel()


def _vector(problem: MatmulProblem) -> str:
    return "" if 1 in (problem.m, problem.n) else "computes matrix times vector only (M = 1 or N = 1)"


def _across_n(problem: MatmulProblem) -> str:
    plain = problem.wei_tag == "ab" if problem.n > 1 else problem.layouts.src == "ba"
    return "" if plain else "wants plain (K, N) weights with M = 1, or with N = 1 a source that lies column by column"


def _along_k(problem: MatmulProblem) -> str:
    return "wants weights contiguous along K" if problem.n > 1 and problem.wei_tag == "ab" else ""


def _gemv_kernel(name: str, unit: Unit, plain: bool, form: str, problem: MatmulProblem, machine: Machine) -> Kernel:
    return Gemv(name, problem, unit, plain, form).kernel()


def _older_gemm() -> KernelKind:
    """f32 as oneDNN's older GEMM has it below AVX-512 (`OlderGemm`)."""
    name = "gemm:avx2_older"
    return KernelKind(
        name,
        "avx2",
        "f32",
        partial(_older_kernel, name),
        library="onednn",
        sources=("f32",),
        weights=("f32",),
        accumulates=("f32",),
        tags=("any", "ab", "ba"),
    )


def _older_kernel(name: str, problem: MatmulProblem, machine: Machine) -> Kernel:
    from simdnn.kernels.x86.gemm_older import OlderGemm  # the kernels of few

    return OlderGemm(name, problem).kernel()


def _unfused_gemv(plain: bool) -> KernelKind:
    """f32 with products that are rounded before they are added (`UnfusedGemv`)."""
    name = "gemv:avx2_unfused" + "_plain" * plain
    return KernelKind(
        name,
        "avx2",
        "f32",
        partial(_unfused_kernel, name, plain),
        library="onnxruntime",
        sources=("f32",),
        weights=("f32",),
        accumulates=("f32",),
        tags=("ab",) if plain else ("ab", "ba"),
        sizes=(_vector,),
        wants=(_one_row if plain else _along_k, _sums_and_bias),
    )


def _unfused_kernel(name: str, plain: bool, problem: MatmulProblem, machine: Machine) -> Kernel:
    from simdnn.kernels.x86.gemv_unfused import UnfusedGemv  # the kernels of few

    return UnfusedGemv(name, problem, plain).kernel()


def _one_row(problem: MatmulProblem) -> str:
    return "" if problem.m == 1 else "wants M = 1"


def _sums_and_bias(problem: MatmulProblem) -> str:
    known = Epilogue("f32", bias=problem.epilogue.bias)
    return "" if problem.epilogue == known else "computes f32 sums, with a bias at most after them"
