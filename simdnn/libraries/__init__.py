"""Whose bits: for each library that is modelled, which kernel it picks, how its sums go, what it refuses.

`choose("onednn", problem, "avx2")` names the row of the kernel table that yields a library's bits. Each row names the
function that orders its sums (`simdnn.libraries.onednn.sums`), so dispatch by cost asks no library.
"""

from __future__ import annotations

from isa_models import InvalidArgument
from isa_models.errors import did_you_mean
from simdnn.kernels.common.problems import Problem
from simdnn.libraries import fbgemm, ggml, onednn, onnxruntime
from simdnn.libraries.model import Form, Library, LineSums, OperatorCall, OperatorForm, Pick, ReorderPart, refuses
from simdnn.libraries.onednn.log import line as log_line
from simdnn.libraries.onednn.refusals import MOST_DIMS, MOST_POST_OPS, no_reorder

#: the one table of libraries: a name here is a rule of dispatch in every call, command and study
LIBRARIES: dict[str, Library] = {
    "onednn": onednn.LIBRARY,
    "onnxruntime": onnxruntime.LIBRARY,
    "ggml": ggml.LIBRARY,
    "ggml-repack": ggml.REPACKING,
    "fbgemm": fbgemm.LIBRARY,
}
#: variables of the environment that limit ISA caps under a library's dispatch
VARIABLES = tuple(name for library in LIBRARIES.values() for name in library.variables)
#: whose choice is asked where no time is wanted: it takes every problem that networks have, and needs no clock
UNTIMED = "onednn"
#: libraries by name that are not modelled
UNKNOWN = {"mkl": "oneMKL", "openblas": "OpenBLAS", "xnnpack": "XNNPACK"}

__all__ = [
    "LIBRARIES",
    "MOST_DIMS",
    "MOST_POST_OPS",
    "UNKNOWN",
    "UNTIMED",
    "VARIABLES",
    "Form",
    "Library",
    "LineSums",
    "OperatorCall",
    "OperatorForm",
    "ReorderPart",
    "Pick",
    "choose",
    "is_reference",
    "log_line",
    "no_reorder",
    "refuses",
]


def choose(library: str, problem: Problem, isa: str, fpmath: str = "strict") -> Pick:
    """The kernel that a library picks for a problem under the ISA cap `isa`, in a math mode for f32 data.

    Raises `InvalidArgument` for a library without a model, `Unimplemented` where the library refuses the problem.

    >>> from simdnn.kernels import Epilogue, MatmulProblem
    >>> choose("onednn", MatmulProblem(4, 16, 64, "u8", "s8", Epilogue()), "avx2")
    Pick(row='gemm:avx2_int8', name='gemm:jit')
    """
    if library not in LIBRARIES:
        question = did_you_mean(library, LIBRARIES)
        raise InvalidArgument(f"library {library!r:.60}: {question}{' ' * bool(question)}{modelled()}")
    return LIBRARIES[library].choose(problem, isa, fpmath)


def is_reference(name: str) -> bool:
    """Whether a library's name of an implementation is that of its reference one.

    >>> is_reference("ref_int8:any"), is_reference("brg_matmul:avx512_core"), is_reference("")
    (True, False, False)
    """
    return any(name in library.references for library in LIBRARIES.values())


def versions() -> str:
    """The libraries with their versions, as a help text says it.

    >>> versions().split(" or ")[0]
    'oneDNN 3.13'
    """
    return " or ".join(f"{library.title} {library.version}" for library in LIBRARIES.values())


def modelled() -> str:
    """Which libraries there are, as an error says it."""
    return f"what is modelled: {', '.join(LIBRARIES)}"
