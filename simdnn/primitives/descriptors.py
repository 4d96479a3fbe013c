"""Memory descriptors: the shape, type and layout of one argument, as the user has it or as a kernel wants it.

What a primitive answers when it is asked (`Estimate.weights_desc` and its like) follows oneDNN's proposal on implicit
down-conversion (rfcs/20210301-computation-datatype, "Allow down-conversion through reorder vs hide it in execution"):
a plain layout keeps the user's type; for "any" the answer may have the kernel's layout and the type that it computes
in, so that weights can be converted ahead of time. Sources and destinations keep their types here for every layout.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from types import NoneType

from isa_models import InvalidArgument
from isa_models.errors import did_you_mean, shortly
from isa_models.formats import fmt
from isa_models.keywords import keywords_of_class
from isa_models.records.display import InNotebooks
from simdnn.kernels.common.kernel import Kernel
from simdnn.kernels.common.pack import Blocked
from simdnn.kernels.common.problems import MatmulProblem, Problem
from simdnn.primitives.checks import integer
from simdnn.primitives.postops import output_shape

#: plain layouts by the number of dimensions, the one that NumPy arrays have first
PLAIN = {2: ("ab", "ba"), 3: ("abc", "acb"), 4: ("oihw", "nchw", "nhwc"), 5: ("goihw", "oidhw", "ncdhw", "ndhwc")}


@keywords_of_class
@dataclass(frozen=True)
class MemoryDesc(InNotebooks):
    """The logical `shape` of an argument, its type, and its layout by oneDNN's name of the tag.

    "ab" rows of a matrix, "ba" its columns ("abc", "acb": of several); "oihw", "goihw", "nchw", "nhwc"; "any":
    whatever the kernel has. The layout of a kernel's own, such as "BA48b2a" (panels of 48 columns, two rows side by
    side), comes from a query alone, which fills in `blocked`.

    >>> MemoryDesc((64, 48), "f32", "ab") == MemoryDesc((64, 48), "f32", "ba")
    False

    Raises `InvalidArgument` for a shape or tag that makes no sense, `UnknownName` for a type.
    """

    shape: tuple[int, ...]
    dtype: str
    tag: str = "any"
    blocked: Blocked | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        fmt(self.dtype)
        if not isinstance(self.shape, (tuple, list)) or not self.shape:
            raise InvalidArgument(f"shape {shortly(self.shape)}; positive integers are needed, e.g. (64, 48)")
        object.__setattr__(self, "shape", tuple(integer("size of shape", size) for size in self.shape))
        if not isinstance(self.blocked, (Blocked, NoneType)):
            raise InvalidArgument(f"blocked={shortly(self.blocked)}; leave it out: a query alone fills it in")
        allowed = (*PLAIN.get(len(self.shape), ()), "any")
        if self.blocked is None and not (isinstance(self.tag, str) and self.tag in allowed):
            question = did_you_mean(self.tag, allowed)
            said = f"tag {shortly(self.tag)} of {len(self.shape)} dimensions{': ' * bool(question)}{question}"
            raise InvalidArgument(
                f"{said}; allowed: {', '.join(allowed)}; a kernel's own layout comes from a query: "
                "simdnn.estimate(…).weights_desc"
            )

    @property
    def nbytes(self) -> int:
        """Bytes in this layout, padding included."""
        if self.blocked is None:
            return int(prod(self.shape) * fmt(self.dtype).bytes)
        return int(sum(self.blocked.sizes.values()) * fmt(self.dtype).bytes)

    def __str__(self) -> str:
        return f"{self.dtype} {self.tag} {'x'.join(map(str, self.shape))}"


def _matrices(problem: MatmulProblem, side: str, shape: tuple[int, int], dtype: str, tag: str = "any") -> MemoryDesc:
    """A matrix by rows (tag "ba": by columns), or as many as a batch has on that side."""
    tag = "ab" if tag == "any" else tag
    count = problem.batch.products(side)
    if count == 1:
        return MemoryDesc(shape, dtype, tag)
    return MemoryDesc((count, *shape), dtype, {"ab": "abc", "ba": "acb"}[tag])


def src_desc(problem: Problem) -> MemoryDesc:
    """The source as kernels read it: rows of K, or channels last."""
    if isinstance(problem, MatmulProblem):
        return _matrices(problem, "src", (problem.m, problem.k), problem.src)
    planes = (problem.depth.i,) if problem.depth else ()
    tag = "ndhwc" if problem.depth else "nhwc"
    return MemoryDesc((problem.mb, problem.ic, *planes, problem.ih, problem.iw), problem.src, tag)


def dst_desc(problem: Problem) -> MemoryDesc:
    """The destination as kernels write it."""
    dtype = problem.epilogue.dst
    if isinstance(problem, MatmulProblem):
        return _matrices(problem, "dst", (problem.m, problem.n), dtype)
    return MemoryDesc(output_shape(problem), dtype, "ndhwc" if problem.depth else "nhwc")


def plain_weights(problem: Problem, tag: str = "any") -> MemoryDesc:
    """The weights as the user stores them; "any" is NumPy's own order."""
    if isinstance(problem, MatmulProblem):
        return _matrices(problem, "wei", (problem.k, problem.n), problem.wei, tag)
    planes = (problem.depth.k,) if problem.depth else ()
    shape = problem.oc, problem.ic // problem.groups, *planes, problem.kh, problem.kw
    return MemoryDesc(shape, problem.wei, "oidhw" if problem.depth else "oihw")


def weights_desc(problem: Problem, kernel: Kernel) -> MemoryDesc:
    """The weights that the kernel wants: the user's where their layout is given, else the kernel's own.

    A kernel that no reorder can serve keeps "any" and the user's type: it brings them into its layout by itself.
    """
    plain = plain_weights(problem, problem.wei_tag)
    if problem.wei_tag != "any":
        return plain
    blocked = kernel.blocked
    if blocked is None:
        return MemoryDesc(plain.shape, plain.dtype)
    if blocked.columns:
        tag = plain.tag if plain.shape[-1] == 1 else blocked.tag("matmul")  # one column is one row
        return MemoryDesc(plain.shape, blocked.holds, tag)
    operation = "matmul" if isinstance(problem, MatmulProblem) else "convolution"
    tag = blocked.tag(operation)
    if not isinstance(problem, MatmulProblem) and problem.depth:  # one dimension more, ahead of the channels
        tag = tag.replace("cd", "cde", 1).replace("deC", "defC", 1)
    return MemoryDesc(plain.shape, blocked.holds, tag, blocked)
