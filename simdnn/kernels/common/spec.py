"""Problems that a kernel is asked to compute, and the kernel: a Program and how to feed it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from isa_models.alike import Alike
from isa_models.display import InNotebooks
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.batch import Batch
from simdnn.kernels.common.layouts import ANY_LAYOUTS, Layouts
from simdnn.kernels.common.narrow import Narrow
from simdnn.kernels.common.pack import Blocked
from simdnn.kernels.common.params import Param
from simdnn.kernels.common.postops import RELU, PostOp
from simdnn.kernels.common.windows import window_count
from simdnn.program.records import Program


@dataclass(frozen=True)
class Epilogue:
    """The steps of an accumulator on its way to the destination, in this order."""

    dst: str = "s32"  # s32 f32 bf16 f16 s8 u8
    zp_src: bool = False  # a source zero point, s32
    zp_wei: bool = False  # a common weights zero point, s32
    src_scale: bool = False  # a common f32 scale
    wei_scale: Param | None = None  # a common one, or one per output channel
    bias: bool = False  # f32, one per output channel
    post_ops: tuple[PostOp, ...] = ()
    dst_scale: bool = False  # a common f32 scale: the result is divided by it
    dst_zero_point: bool = False  # an s32 zero point, added last
    by_channel: tuple[str, ...] = ()  # arguments of a convolution whose zero points are one a channel: src, dst
    bias_stored: str = field(default="f32", repr=False)  # its type before it became f32, which a library may go by
    bias_in_sums: bool = False  # it is s32, and added before anything is scaled
    bias_fused: bool = False  # it is added to scaled sums with one rounding
    rounds_first: bool = False  # the destination's zero point is added to rounded integers, not to what is rounded

    flushes: bool = False  # denormals become zeros on their way to bf16, where integer arithmetic rounds to it, too

    @property
    def in_float(self) -> bool:
        """Whether an s32 accumulator goes through f32 at all."""
        return self.dst != "s32" or bool(
            any([post_op != RELU for post_op in self.post_ops])
            or self.src_scale
            or self.wei_scale is not None
            or self.bias
            or self.dst_scale
            or self.dst_zero_point
        )


@dataclass(frozen=True)
class GroupScales:
    """Scales of an integer matmul that change along K, of the source and of the weights, as far as sums of groups are
    scaled by them.

    Each group's s32 sum is scaled in f32 by itself; the groups are added up in order.
    """

    src: Param | None = None  # Parameters.src_group_scale is (M, K / its length)
    wei: Param | None = None  # Parameters.wei_scale is (K / its length, N)
    weights_first: bool = True  # (sum * weights scale) * source scale, as oneDNN's brgemm; else the other way round
    reference: bool = False  # what oneDNN leaves to its reference implementation, which is exact
    merged: bool = False  # the weights' scales come multiplied by the source's common one, as oneDNN has them on tiles

    def lengths(self, k: int) -> list[int]:
        """How many of `k` share a scale of the source, and of the weights, where sums of groups are scaled by it."""
        return [param.length(k) for param in (self.src, self.wei) if param]

    def __str__(self) -> str:
        given = [param for param in (self.src, self.wei) if param]
        return " ".join(f"{p.argument} {f'by {p.group}' if p.group else p.granularity}" for p in given)


@dataclass(frozen=True)
class Decompression:
    """Integer weights that are brought to floating point before the products: (w - zero point) * scale."""

    computes: tuple[str, ...]  # the types that products may be formed in, f32 or bf16; a kernel has one of its own
    scale: Param | None = None
    zero_point: Param | None = None
    reference: bool = False  # as oneDNN's reference does it: multiply, then add, scale always in the weights
    merged: bool = False  # a scale of the sums comes multiplied by the source's, as oneDNN has it for f8 on tiles
    by: str = ""  # how narrow floats become wider ones where there are two ways: "table" | "arithmetic"; "": as usual


#: why sums of the source that are read cannot be had
NO_REDUCTIONS = "precomputed_reductions={'src': R} are missing; 'in_kernel' finds them itself"


@dataclass(frozen=True)
class ZeroPoints:
    """Zero points of an integer matmul that change along K or by column, and how their part of the sum is found."""

    group: int  # how many k have all their zero points (and scales) in common, and one reduction of the source
    wei: Param | None = None  # Parameters.wei_zero_points is (K / any multiple, N)
    src: Param | None = None  # Parameters.src_zero_points is (M, K / any multiple)
    reductions: bool = False  # Parameters.reductions, (M, K / group), are the user's
    strategy: str = ""  # direct | in_kernel | precomputed | bias | upconvert
    wei_range: tuple[int, int] = (0, 0)  # the least and the largest of the weights', where a kernel asks for it
    src_range: tuple[int, int] = (0, 0)
    reference: bool = True  # what follows the sums is as oneDNN's reference has it

    def splits(self, k: int) -> int:
        """How many k oneDNN's reference adds up before it scales a sum: groups of single k do not split it."""
        lengths = [param.length(k) for param in (self.wei, self.src) if param]
        return min([n for n in (*lengths, self.group if self.reductions else k) if n > 1], default=k)

    def __str__(self) -> str:
        given = " reductions given" if self.reductions else ""
        sides = "".join(f"{param.argument} " for param in (self.src, self.wei) if param)
        return f"{sides}by {self.group}{given} {self.strategy}".strip()


@dataclass(frozen=True)
class Parameters:
    """The run-time arguments that an `Epilogue` announces. Scales are f32, zero points s32.

    With a `Decompression`, `wei_scale` is (1,), (N,), (K / group, N) or (K / group, 1), and so is
    `wei_zero_points`.
    """

    bias: npt.NDArray[np.float32 | np.int32] | None = None  # (N,), s32 where it is in the sums
    src_scale: float = 1.0
    wei_scale: npt.NDArray[np.float32] | None = None  # (1,) or (N,)
    dst_scale: float = 1.0
    zp_src: int | Array = 0  # or one an input channel
    zp_wei: int = 0
    dst_zero_point: int | Array = 0  # or one an output channel
    wei_zero_points: Array | None = None  # of compressed weights, s32
    operands: tuple[Array, ...] = ()  # f32, one for each post-operation: sum's scale, what add adds; else empty
    previous: Array | None = None  # what the destination held before, which sum reads
    src_group_scale: Array | None = None  # f32 (M, K / group)
    src_zero_points: Array | None = None  # with `ZeroPoints`, s32 (M, groups)
    reductions: Array | None = None  # s32 (M, groups)


#: marks a field of a problem that kernels and libraries know, and that no user gave
INNER: Mapping[str, bool] = {"inner": True}


@dataclass(frozen=True)
class MatmulProblem:
    """dst (m, n) = src (m, k) x weights (k, n), or a `batch` of such products; types by oneDNN's names."""

    m: int
    n: int
    k: int
    src: str
    wei: str
    epilogue: Epilogue
    wei_tag: str = "any"  # any | ab (plain) | ba (k contiguous)
    decompression: Decompression | None = None
    group_scales: GroupScales | None = None
    # integers that oneDNN leaves to its reference implementation, which is exact
    reference: bool = field(default=False, metadata=INNER)
    zero_points: ZeroPoints | None = None
    batch: Batch = Batch()
    # a common zero point is no number of s8, for which a library may go another way
    beyond_s8: bool = field(default=False, metadata=INNER)
    narrow: Narrow | None = field(default=None, kw_only=True)  # of products with floats of at most a byte
    # products after which a partial sum joins one in f32; 0: the row's
    promote: int = field(default=0, kw_only=True, metadata=INNER)
    # the library that tiles of registers are cut as; "": as here
    tiles: str = field(default="", kw_only=True, metadata=INNER)
    blocks: str = field(default="", kw_only=True)  # weights are stored in blocks: a name of `isa_models.block_formats`
    # dimensions of the problem that a library is asked
    dims: int = field(default=2, kw_only=True, repr=False, metadata=INNER)
    # who of a library takes second operands and sizes of run time
    left_to: str = field(default="", kw_only=True, repr=False, metadata=INNER)
    # which a library's choice goes by
    layouts: Layouts = field(default=ANY_LAYOUTS, kw_only=True, repr=False, metadata=INNER)

    @property
    def macs(self) -> int:
        return self.m * self.n * self.k * self.batch.count

    @property
    def form(self) -> MatmulProblem:
        """The problem of size one with the same types, layouts and parameters."""
        return replace(self, m=1, n=1, k=1, batch=Batch())

    @property
    def scale_period(self) -> int:
        """How many k have all their scales in common."""
        return min(self.group_scales.lengths(self.k)) if self.group_scales else self.k


@dataclass(frozen=True)
class Depth:
    """The third spatial dimension of a convolution: planes of the image, and of the kernel."""

    i: int
    k: int
    stride: int = 1
    dilation: int = 1  # 1: dense taps
    front: int = 0  # padding ahead of the first plane, and behind the last
    back: int = 0

    @property
    def o(self) -> int:
        return window_count(self.i, self.k, self.stride, self.dilation, self.front + self.back)

    @property
    def pointwise(self) -> bool:
        """Whether each plane is a convolution of its own."""
        return (self.k, self.stride, self.front, self.back) == (1, 1, 0, 0)


class SpatialAxis(NamedTuple):
    """One spatial dimension of a convolution: pixels of the image, taps of the kernel, output pixels, padding."""

    i: int
    k: int
    o: int
    stride: int
    dilation: int
    before: int
    behind: int

    @property
    def reach(self) -> int:
        """Pixels from the first tap to the last."""
        return (self.k - 1) * self.dilation + 1


@dataclass(frozen=True)
class ConvProblem:
    """Forward convolution: src (mb, ic, ih, iw), weights (oc, ic / groups, kh, kw), dst (mb, oc, oh, ow).

    With a `depth`, which stands in front of the height: src (mb, ic, id, ih, iw) and so on.
    """

    mb: int
    ic: int
    ih: int
    iw: int
    oc: int
    kh: int
    kw: int
    src: str
    wei: str
    epilogue: Epilogue
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)  # top, left, bottom, right
    dilation: tuple[int, int] = (1, 1)  # 1: dense taps (oneDNN writes 0)
    groups: int = 1
    wei_tag: str = "any"  # any | oihw (plain; goihw with groups)
    # products after which a partial sum joins one in f32; 0: the row's
    promote: int = field(default=0, kw_only=True, metadata=INNER)
    depth: Depth | None = field(default=None, kw_only=True)
    # the library as whose kernel the clock sees it; "": as here
    tiles: str = field(default="", kw_only=True, metadata=INNER)
    line: bool = field(default=False, kw_only=True)  # of one spatial dimension, written as an image of one row
    layouts: Layouts = field(default=ANY_LAYOUTS, kw_only=True, metadata=INNER)  # which a library's choice goes by

    @property
    def od(self) -> int:
        """Planes of an output image; 1 without a depth."""
        return self.depth.o if self.depth else 1

    @property
    def padded(self) -> bool:
        """Whether any tap falls beside the image."""
        return any(self.padding) or self.depth is not None and (self.depth.front, self.depth.back) != (0, 0)

    @property
    def axes(self) -> tuple[SpatialAxis, ...]:
        """The two or three spatial dimensions, planes ahead of rows and columns."""
        d, (top, left, bottom, right), (s, t), (e, f) = self.depth, self.padding, self.strides, self.dilation
        planes = (SpatialAxis(d.i, d.k, d.o, d.stride, d.dilation, d.front, d.back),) if d else ()
        rows = SpatialAxis(self.ih, self.kh, self.oh, s, e, top, bottom)
        return (*planes, rows, SpatialAxis(self.iw, self.kw, self.ow, t, f, left, right))

    @property
    def tap_rows(self) -> int:
        """Rows of the kernel, those of all its planes."""
        return self.kh * (self.depth.k if self.depth else 1)

    @property
    def oh(self) -> int:
        top, _, bottom, _ = self.padding
        return window_count(self.ih, self.kh, self.strides[0], self.dilation[0], top + bottom)

    @property
    def ow(self) -> int:
        _, left, _, right = self.padding
        return window_count(self.iw, self.kw, self.strides[1], self.dilation[1], left + right)

    @property
    def form(self) -> ConvProblem:
        """The problem of one channel with the same types, layouts and parameters."""
        return replace(self, mb=1, ic=1, ih=1, iw=1, oc=1, kh=1, kw=1, padding=(0, 0, 0, 0), groups=1)

    @property
    def depthwise(self) -> bool:
        """Whether every channel is a group of its own."""
        return 1 < self.groups == self.ic == self.oc

    @property
    def macs(self) -> int:
        outputs = self.mb * self.oc * self.od * self.oh * self.ow
        return outputs * (self.ic // self.groups) * self.tap_rows * self.kw


Problem = MatmulProblem | ConvProblem


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

    def accepts(self, problem: Problem) -> str:
        """Why this kind cannot do a problem; empty where it can."""
        if not isinstance(problem, self.operation):
            return f"computes {'matmul' if issubclass(self.operation, MatmulProblem) else 'convolution'} only"
        plain = self.plain(problem)
        for want in (*self.sizes, self._refused_form, *self.wants):
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
        if src in self.sources and wei in self.weights and alike:
            return ""
        return f"computes {'/'.join(self.sources)} sources with {'/'.join(self.weights)} weights, not {src}:{wei}"

    def _refused_layout(self, problem: Problem) -> str:
        if problem.wei_tag in self.tags:
            return ""
        return f"wei_tag={problem.wei_tag!r}; what works: {', '.join(map(repr, self.tags))}"
