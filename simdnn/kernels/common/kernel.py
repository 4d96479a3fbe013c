"""A kernel, which is a Program and how to feed it, and a row of the table that builds one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from isa_models.records.alike import Alike
from isa_models.records.display import InNotebooks
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.narrow_floats import is_narrow
from simdnn.kernels.common.pack import Blocked
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem, Problem
from simdnn.program.records import Program

Prepare = Callable[[Array, Array, Parameters], dict[str, Array]]
Finish = Callable[[Mapping[str, Array]], Array]


#: the tensor of narrow floats that the destination held, which become what kernels read as `previous`
HELD = "held"
#: tensors of scales, zero points and sums of weights that have more than one a column
BESIDE = ("group_scale", "zero_point", "wei_group_scale", "group_comp", "wei_zeros", "wei_scales")


@dataclass(frozen=True)
class Saturating:
    """A step of a kernel that can saturate. `counting` makes the kernel that counts for each output how often it does,
    `sums` one of the s32 sums in which it and the steps before it saturate, with nothing after them.
    """

    of: str  # what saturates: "pair" of products, "sum" of such pairs
    step: str  # the instruction
    counting: Callable[[], Kernel] = field(repr=False, compare=False)
    sums: Callable[[], Kernel] = field(repr=False, compare=False)


@dataclass(frozen=True)
class Apart:
    """The way of arrays to a program's inputs where the source goes by itself, and all `beside` it reads no source."""

    source: Callable[[Array], dict[str, Array]]
    beside: Callable[[Array, Parameters], dict[str, Array]]
    panels_alone: bool = False  # whether it reads nothing of weights but the panels in the kernel's own layout

    def __call__(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        return {**self.source(src), **self.beside(weights, parameters)}


@dataclass(frozen=True, eq=False)
class Kernel(Alike, InNotebooks):
    """A Program for one problem, and the way between the user's arrays and its tensors.

    `prepare(src, weights, parameters)` takes src (m, k) or nchw and weights (k, n) or goihw in their storage types and
    gives the program's inputs; weights are put in the kernel's own layout there. `finish(outputs)` gives dst (m, n)
    or nchw.
    """

    name: str  # "gemm:avx512_core_vnni"
    program: Program
    prepare: Prepare
    finish: Finish
    compute_dtype: str  # the type that products are formed in
    weights: tuple[str, ...] = ("wei", "wei_tail", "plain")  # the tensors that may hold the user's weights
    blocked: Blocked | None = None  # the weights' layout, where it is the kernel's own and a reorder can make it
    accumulation: str = ""  # on tiles: in which order an instruction adds up its products
    timed: Program | None = None  # what the clock sees where it is more than `program`: copies ahead of it
    saturating: tuple[Saturating, ...] = ()  # the steps on the way to the sum that can saturate, in order
    halves: bool = False  # multiplies by halved weights, rounded to nearest even, and doubles the sums
    scales: Finish | None = None  # of a destination, where they are found on the way: (m, groups of columns)
    copies: tuple[tuple[str, float], ...] = ()  # tensors that hold elements of memory several times, and how often
    beside: tuple[str, ...] = BESIDE  # those that may hold what changes with weights by group: they come with them

    def __repr__(self) -> str:
        return f"Kernel(computes {self.compute_dtype}: {self.program!r})"

    @property
    def saturates(self) -> bool:
        """Whether some step can saturate on the way to the accumulator."""
        return bool(self.saturating)

    def with_others(self, made: Callable[[Kernel], Kernel]) -> Kernel:
        """The kernel with the counts and sums of kernels that are `made` in the way that it was itself."""
        steps = tuple(
            replace(step, counting=partial(_made_of, step.counting, made), sums=partial(_made_of, step.sums, made))
            for step in self.saturating
        )
        return replace(self, saturating=steps)


def _made_of(make: Callable[[], Kernel], made: Callable[[Kernel], Kernel]) -> Kernel:
    return made(make())


def as_asked(problem: Problem) -> Problem:
    """The problem itself: what most kinds' generators are asked."""
    return problem


Want = Callable[[Any], str]

_LAYOUTS = ("any", "ab", "ba")
#: a parameter of a problem -> what a row says that does not take it, and one that computes nothing without it
_PARAMETERS = {
    "decompression": ("does not decompress weights", "computes with compressed weights only"),
    "zero_points": ("takes no zero points ({})", "computes integers with zero points only"),
    "group_scales": ("takes no scales along K ({})", "computes with scales along K only"),
    "narrow": ("takes no floats of 8 bits and fewer", "computes with floats of 8 bits and fewer only"),
    "blocks": ("takes no weights in blocks of {}", "computes with weights in blocks only"),
    "depth": ("computes one and two spatial dimensions", "computes three spatial dimensions only"),
}
assert _PARAMETERS.keys() <= {f.name for problem in (MatmulProblem, ConvProblem) for f in fields(problem)}


@dataclass(frozen=True, eq=False)
class KernelKind:
    """A row of the kernel table, equal to itself alone: what it takes, and what builds it.

    `accepts` reads the fields, and asks each of `sizes` and `wants` why a problem cannot be had; "" where it can.
    `generator(problem, machine)` makes the kernel of a problem that is accepted, for a machine that has `isa`.
    `refine(problem)` fills in what the row decides (the type multiplied, the strategy of zero points); `build` makes
    the kernel of either.
    """

    name: str
    isa: str  # an ISA cap of CPUs, or the platform of GPUs
    compute_dtype: str  # the type that products are formed in; "": the one that operands are stored in
    generator: Callable[[Any, Any], Kernel]
    operation: type[MatmulProblem] | type[ConvProblem] = MatmulProblem
    exact: bool = True  # integer kernels: no step on the way can saturate or round
    library: str = (
        ""  # stands for a form of this library's, slow or of other bits, and runs only where that is asked for
    )
    more_than: str = ""  # the kind whose work this one does too, and more besides: it is never faster
    target: str = "x86"  # x86 | intel_gpu | nvidia
    sources: tuple[str, ...] = ()  # types that it reads
    weights: tuple[str, ...] = ()  # types that the user's weights are stored in
    registered: bool = False  # whether weights may also be of any float of at most a byte that is registered
    multiplied: str = ""  # the type of weights in the kernel's own layout; "": the one that the user stores
    accumulates: tuple[str, ...] = ()  # types of the sums
    promotes: int = (
        0  # products of a partial sum are a multiple of this, where their number is asked for; 0: they are not
    )
    tags: tuple[str, ...] = _LAYOUTS  # layouts of the user's weights
    takes: tuple[str, ...] = ()  # parameters by group: decompression | zero_points | group_scales | narrow | depth
    needs: str = ""  # the one of them without which there is nothing for this row to do
    mixes: bool = False  # whether floats of one type may meet floats of another
    strategies: tuple[str, ...] = ()  # by which it takes zero points; () where it takes none, or the only way
    unasked: str = ""  # why "fastest" takes it only where its strategy, or the type of its sums, is asked for
    sizes: tuple[Want, ...] = ()  # asked first: whether a problem of its sizes is this row's at all
    wants: tuple[Want, ...] = ()  # asked last
    refine: Callable[[Any], Problem] = as_asked
    plain: Callable[[Any], Problem] = as_asked  # the problem that is left behind stages which it puts around a kernel

    @property
    def narrow_sums(self) -> bool:
        """Whether products are added up in fewer than 32 bits, which a mode must allow."""
        return any(fmt(acc).bits < 32 for acc in self.accumulates)

    def accepts(self, problem: Problem, of_form: bool = False) -> str:
        """Why this kind cannot do a problem; empty where it can. `of_form`: its form is known to be taken."""
        if not isinstance(problem, self.operation):
            return f"computes {'matmul' if issubclass(self.operation, MatmulProblem) else 'convolution'} only"
        plain = self.plain(problem)
        for want in self.wants if of_form else (*self.sizes, self._refused_form, *self.wants):
            if reason := want(plain):
                return reason
        return ""

    def refuses(self, form: Problem) -> str:
        """Why this kind cannot do any problem of a form (`Problem.form`); empty where some it may."""
        return "" if self.sizes else self._refused_form(self.plain(form))

    def build(self, problem: Problem, machine: Any) -> Kernel:
        """The kernel of a problem on a machine."""
        return self.generator(problem, machine)

    def _refused_form(self, problem: Problem) -> str:
        return self._refused_parameters(problem) or self._refused_types(problem) or self._refused_layout(problem)

    def _refused_parameters(self, problem: Problem) -> str:
        for name, (taken_not, needed) in _PARAMETERS.items():
            given = getattr(problem, name, None)
            if given and name not in self.takes:
                return taken_not.format(given)
            if not given and name == self.needs:
                return needed
        zeros = getattr(problem, "zero_points", None)
        if zeros and self.strategies and zeros.strategy not in ("", *self.strategies):
            return f"zero_point_strategy={zeros.strategy!r} is asked for"
        return ""

    def _refused_types(self, problem: Problem) -> str:
        src, wei = problem.src, problem.wei
        alike = src == wei or self.mixes or not fmt(wei).is_float or fmt(wei).bits <= 8  # their own type, or stored
        if src in self.sources and self.reads(wei) and alike:
            return ""
        return f"computes {'/'.join(self.sources)} sources with {'/'.join(self.weights)} weights, not {src}:{wei}"

    def reads(self, wei: str) -> bool:
        """Whether the user's weights may be stored in a type."""
        return wei in self.weights or self.registered and is_narrow(wei)

    def _refused_layout(self, problem: Problem) -> str:
        if problem.wei_tag in self.tags:
            return ""
        return f"wei_tag={problem.wei_tag!r}; what works: {', '.join(map(repr, self.tags))}"
