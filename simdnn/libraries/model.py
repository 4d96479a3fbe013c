"""Facts of a library: which kernel here yields its bits, in which form it takes a problem, what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn, Protocol

from isa_models import Machine, Unimplemented
from isa_models.readings.arrays import Array
from simdnn.kernels.common.expression import Element
from simdnn.kernels.common.params import Param, Params
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem, Problem
from simdnn.kernels.common.windows import ImageWindows


class Pick(NamedTuple):
    """A library's choice: the row of the kernel table that yields its bits, and its own name for the implementation.

    The order of sums is the row's: one that adds up otherwise is another row.
    """

    row: str
    name: str


class Form(NamedTuple):
    """How a library takes a matmul of integers with scales by group, or one of compressed weights."""

    reference: bool = False  # left to its reference implementation
    merged: bool = False  # the weights' scales by group come multiplied by the source's common one
    compute: str = ""  # of compressed weights: the type that products are formed in


def refuses(title: str, what: str, works: str) -> Callable[..., NoReturn]:
    """A function of a `Library` for what that does not have, whatever it is asked.

    >>> refuses("Mine", "compressed weights", "weights of s8")("any", "problem")
    Traceback (most recent call last):
    ...
    isa_models.errors.Unimplemented: Mine has no compressed weights; what works: weights of s8, and dispatch='fastest'
    """

    def refused(*_: Any) -> NoReturn:
        raise Unimplemented(f"{title} has no {what}; what works: {works}, and dispatch='fastest'")

    return refused


class OperatorCall(NamedTuple):
    """A primitive beside products, as a library is asked for its bits. Arrays lie in rows (oneDNN's tag abx)."""

    primitive: str  # as `simdnn` has it: "softmax", "conversion"
    types: tuple[str, ...]  # of the sources
    dst: str
    shapes: tuple[tuple[int, ...], ...]  # of the sources
    options: Mapping[str, Any]  # axis, algorithm, kernel, …
    scales: Mapping[str, Any]
    zero_points: Mapping[str, Any]
    post_ops: tuple[tuple[Any, ...], ...]  # names with numbers, and shapes in place of arrays
    rows: frozenset[str]  # sources of f32 that may be left out: scale, shift, mean, variance, bias; condition
    caps: frozenset[str]
    in_rows: bool = True  # whether the first source lies in rows
    channels_last: bool = False  # whether it lies with its channels last
    bias: str = ""  # its type, where there is one
    operands: tuple[str, ...] = ()  # types of arrays among the post-operations

    @property
    def named_last(self) -> bool:
        """Whether the first source lies with its channels last, and not in rows as well."""
        return self.channels_last and not self.in_rows


class ReorderPart(NamedTuple):
    """A reorder inside of a primitive: by "loops" over elements, which add 0 to floats, by a "kernel" or a "copy"; how
    f32 becomes an integer, by a key of `INTEGERS`; and whether denormals become zeros on their way to bf16.
    """

    by: str
    integers: str = "bounded"
    flushes: bool = False


class OperatorForm(NamedTuple):
    """A library's way to compute an operator: its implementation's name, of most without instructions ("jit",
    "ref"); whether its end (post-operations, the destination's scale) is that of loops over elements; and the order of
    sums where an implementation has several, with sizes that it speaks of. `slopes`: what a prelu behind it multiplies,
    what is "less" than 0, has the "sign" set, or is "no greater" than 0. `merged`: the scales of source and weights
    are multiplied first. `integers`: how f32 becomes one, by a key of `INTEGERS`. `lanes` of f32 in its registers,
    where these are narrower than the widest. `streams`: whether it stores past the caches. `flushes`: whether denormals
    become zeros on their way to bf16 where no instruction does that. `parts`: of a primitive that reorders its sources
    one by one, each one's implementation, and that of a reorder behind them. `lifted`: whether a shifted source's sums
    become f32 before what the shift has added is taken off.
    """

    name: str
    by_reference: bool = False
    order: str = ""
    sizes: tuple[int, ...] = ()
    slopes: str = "less"
    merged: bool = False
    integers: str = "bounded"
    lanes: int = 0
    streams: bool = False
    flushes: bool = False
    parts: tuple[ReorderPart, ...] = ()
    lifted: bool = False


#: bounded by the type's least and greatest number, where a NaN becomes the least, the greatest, or 0; or converted to
#: s32, where what has no place and a NaN become the least, and then saturated
INTEGERS = ("bounded", "greatest", "zero", "converted")


def _no_operators(call: OperatorCall) -> NoReturn:
    raise Unimplemented(f"a library's {call.primitive} is not modelled; what works: dispatch='fastest' or 'onednn'")


def _all_sizes_known(p: MatmulProblem, params: Params, dims: int, shape: Sequence[int], runtime: str) -> str:
    if runtime:
        raise Unimplemented(f"sizes that a library learns at run time ({runtime}): what works: dispatch='onednn'")
    return ""


class LineSums(Protocol):
    """Sums over the last dimension, which stays as 1, in a library's own order."""

    def sum_of_powers(self, x: Array, caps: frozenset[str]) -> Array:
        """The sums of a softmax."""
        ...

    def logarithm(self, x: Array) -> Array:
        """The natural logarithm of the sums of a softmax."""
        ...

    def of_elements(self, op: str, x: Array, *numbers: float) -> Array:
        """A tensor's elements as ONNX's operator `op` has them, which takes the numbers of a node."""
        ...

    def power(self, x: Array, exponent: Array) -> Array:
        """x**exponent, element by element."""
        ...

    def reduced(self, kind: str, x: Array, axes: Sequence[int]) -> Array:
        """A reduction over `axes`, which stay as ones: "sum", "mean", "sum_abs", "sum_square", "prod", "max", "min";
        "sum_log", the sum that a logarithm is taken of; "chain", a sum of one element after the other.
        """
        ...

    def of_channels(self, around: Sequence[Array], alpha: float, bias: float) -> Array:
        """The sum that LRN takes a power of: bias and alpha times the mean of the squares of channels `around` each,
        those at the first place in a window first.
        """
        ...

    def squares_of_rows(self, x: Array) -> Array:
        """Each row's sum of squares (rows,), for distances between rows."""
        ...

    def exponential(self, x: Array) -> Array:
        """e**x, where a library calls the one of the system."""
        ...

    def dots(self, query: Array, keys: Array) -> Array:
        """Products of one query and keys, and `weighted` the sums of values by their shares."""
        ...

    def weighted(self, shares: Array, values: Array) -> Array:
        """Sums of values (…, places, size) by shares (…, 1, places)."""
        ...

    def way_of(self, n: int, centred: bool) -> str:
        """How a normalization of `n` elements finds its statistics: in "lanes", then it multiplies by 1 / deviation;
        by "updates" after each element, or in two "passes", then it divides; of "images" one factor comes of both.
        """
        ...

    def statistics(self, x: Array, centred: bool, way: str) -> tuple[Array, Array]:
        """Means (zeros where not `centred`), and the mean square of what is left."""
        ...

    def mean_of_images(self, x: Array, caps: frozenset[str], laid: bool) -> Array:
        """Means over all dimensions behind the second, which stay as ones; whole blocks of channels may be `laid`."""
        ...

    def greatest_of_images(self, x: Array, caps: frozenset[str], laid: bool) -> Array:
        """The greatest over all dimensions behind the second, which stay as ones."""
        ...

    def extreme_of_all(self, kind: str, x: Array) -> Array:
        """The greatest ("max") or the least ("min") of a tensor that is quantized by its range."""
        ...

    def greatest_of_windows(
        self,
        x: Array,
        taps: Array,
        inside: Array,
        strides: Sequence[int],
        padding: Sequence[int],
        plain: bool,
        caps: frozenset[str],
    ) -> Array:
        """The greatest of windows, whose elements are the last dimensions of `taps`, among those `inside` the image."""
        ...

    def mean_of_windows(
        self,
        x: Array,
        taps: Array,
        counts: Array,
        strides: Sequence[int],
        padding: Sequence[int],
        opset: int,
        caps: frozenset[str],
        laid: bool = True,
    ) -> Array:
        """Means of windows of x, whose elements are the last dimensions of `taps`."""
        ...


@dataclass(frozen=True)
class Library:
    """One library's habits; each function raises `Unimplemented` for what the library refuses or is not known to do.

    `choose` is asked last, of every problem; the others before it, each where its kind of parameter comes up. What the
    library has none of is `refuses(…)`.
    """

    title: str
    version: str  # that its bits were compared with
    answers: str  # what it is asked for: the products whose bits are its own
    #: (problem, the strongest ISA cap, math mode for f32 data) -> its choice
    choose: Callable[[Problem, str, str], Pick]
    #: (problem so far, its parameters, ISA caps) -> how it takes integers
    integers: Callable[[MatmulProblem, Params, frozenset[str]], Form]
    #: (problem so far, math mode, scale and zero point of the weights, ISA caps) -> how it takes compressed weights
    decompressed: Callable[[MatmulProblem, str, Param | None, Param | None, frozenset[str]], Form]
    #: (problem) -> nothing: whether its attributes are known
    check: Callable[[Problem], None]
    #: (strategy, whether rows of the source have zero points without groups) -> nothing: whether it has them
    check_zero_points: Callable[[str, bool], None]
    #: (primitive, "scales" or "zero_points", argument, type) -> nothing: whether these may be stored in that type
    check_parameter_type: Callable[[str, str, str, str], None] = lambda primitive, kind, argument, dtype: None
    #: (type) -> nothing: whether its kernel for compressed weights takes a destination's scale that is stored in it
    check_scaled_dst: Callable[[str], None] = lambda dtype: None
    #: (a batch of products) -> nothing: whether the library is known to take it
    check_dimensions: Callable[[MatmulProblem], None] = lambda problem: None
    #: (problem of floats, its name for its choice) -> nothing: whether that takes a mode that is said of integers, too
    check_forced: Callable[[Problem, str], None] = lambda problem, name: None
    #: (matmul, its parameters, number of its dimensions, sizes of its output, those that are learnt at run time) -> who
    #: takes its second operands, and such sizes
    left_to: Callable[[MatmulProblem, Params, int, Sequence[int], str], str] = _all_sizes_known
    #: (matmul over layouts that are named, its parameters, ISA caps) -> who takes it by these, as `left_to` says it;
    #: None: it has one layout
    matrices: Callable[[MatmulProblem, Params, frozenset[str]], str] | None = None
    #: (problem, the row of its choice) -> why its order of sums is not known, empty where it is: then there is a cost,
    #: and there are no values
    order_unknown: Callable[[Problem, str], str] = lambda problem, row: ""
    #: (convolution over layouts that are named, ISA caps) -> as its kernels are asked; None: it has one layout
    asked: Callable[[ConvProblem, frozenset[str]], ConvProblem] | None = None
    plain_from: int = 0  # dimensions from which integer weights of tag "any" lie in rows; 0: they do not
    vectors_apart: bool = False  # single rows of floats in a batch, by one matrix of weights, are a product each
    #: whether it runs quantized ONNX models itself: weights of u8 are exact, sums are scaled by one factor, patterns of
    #: DequantizeLinear and QuantizeLinear are its QLinear operators, and floats tell constant weights from others
    runs_models: bool = False
    #: whether sums of integers are scaled by one factor, the destination's scale in it; a bias of s32 is in the sums,
    #: and zero points of 8 bits are added to rounded integers
    one_factor: bool = False
    fused_bias: bool = False  # a bias of floats is added to integers times that factor with one rounding
    #: (problem, the row of its choice) -> whether that is cut into tiles of registers as the library's kernel is
    tiles: Callable[[Problem, str], bool] = lambda problem, row: False
    #: (problem, its name for its choice, ISA caps) -> whether it makes zeros of denormals on their way to bf16
    flushes: Callable[[Problem, str, frozenset[str]], bool] = lambda problem, name, caps: False
    #: (problem, its name for its choice) -> how far s32 sums go through f32: `Epilogue.lifted`
    lifts: Callable[[Problem, str], str] = lambda problem, name: ""
    #: (problem, its name for its choice) -> which taps beside the image sums leave out, where others add zeros: "all",
    #: or those of "rows" or "planes" beside it
    leaves_out: Callable[[Problem, str], str] = lambda problem, name: ""
    #: (problem, the row of its choice, a CPU, threads) -> cycles of its own code around its kernels in an execution
    around: Callable[[Problem, str, Machine, int], float] = lambda problem, row, machine, threads: 0.0
    #: (problem) -> which of these pass between two executions, while units for tiles rest
    between: Callable[[Problem], float] = lambda problem: 0.0
    #: and before each call of a kernel on tiles
    before_call: float = 0.0
    nested: float = 0.0  # cycles more where a primitive of it runs another one
    #: (columns, K, whether weights are packed ahead of time, whether the source is stored transposed) -> how much of K
    #: a product of floats adds up at once
    part_of_k: Callable[[int, int, bool, bool], int] = lambda n, k, packed, turned: k
    #: (what the values of an operand decide, ISA caps) -> the row that it takes then; "" where that is the usual one.
    #: "matrices": a product of a vector as one of matrices; "chain": one of floats whose K is not cut;
    #: "varying": a convolution of floats whose weights or bias are no constants; "own zeros": one of u8 by s8 with one
    #: channel a group, whose weights' zero points differ from channel to channel
    row_for: Callable[[str, frozenset[str]], str] = lambda what, caps: ""
    #: (windows, whether weights and bias are constants, ISA caps) -> whether a convolution of floats is products of a
    #: vector, a group and an image each
    by_vectors: Callable[[ImageWindows, bool, frozenset[str]], bool] = lambda windows, constant, caps: False
    #: (bits, accuracy level, rows, whether weights are constants) of ONNX's MatMulNBits -> how it is formed:
    #: "integers", "row", "chain" or "floats"; (a block's length along K) -> that of the blocks it is formed with; and
    #: (bits, block, rows, ISA caps) -> whether zero points go off codes ahead
    way_of_blocks: Callable[[int, int, int, bool], str] = lambda bits, level, rows, constant: ""
    block_as_formed: Callable[[int], int] = lambda block: block
    zeros_ahead: Callable[[int, int, int, frozenset[str]], bool] = lambda bits, block, rows, caps: False
    #: (ISA caps) -> the strongest that has kernels of integers of its own
    tier_of: Callable[[frozenset[str]], str] = lambda caps: ""
    references: frozenset[str] = frozenset()  # its names of implementations that are loops over elements
    #: operators of ONNX whose values it approximates by functions of its own
    functions: Mapping[str, Callable[[Element], Element]] = field(default_factory=dict)
    #: activations of recurrent layers by ONNX's names, small; "NAME, then times" are those whose output is multiplied
    #: by something in the same loop
    gates: Mapping[str, Callable[[Element], Element]] = field(default_factory=dict)
    plain_gates: Mapping[str, Callable[[Element], Element]] = field(default_factory=dict)  # those of an RNN
    #: sums along a line in an order of its own; None: as here
    lines: LineSums | None = None
    fuses_functions: bool = True  # whether multiply-adds of its elementwise functions are rounded once
    #: (ISA caps) -> channels that lie beside each other in its layout of images
    block_of: Callable[[frozenset[str]], int] = lambda caps: 1
    #: (a primitive beside products) -> its way to compute it, whose bits programs here have
    operator: Callable[[OperatorCall], OperatorForm] = lambda call: _no_operators(call)
    #: (such a primitive, its way, threads) -> cycles of its own code around its kernels in an execution
    around_operator: Callable[[OperatorCall, OperatorForm, int], float] = lambda call, form, threads: 0.0
    #: (type of the source, channels, pixels, ISA caps) -> the layout of the weights of the matmul that an inner product
    #: is, and whether channels lie inside of pixels there
    inner_product: Callable[[str, int, int, frozenset[str]], tuple[str, bool]] | None = None
    #: (types of source, weights, destination and bias, its name of the matmul's implementation, output channels,
    #: pixels, ISA caps) -> its name of the inner product's, where those are left to that
    name_inner_product: Callable[[tuple[str, ...], str, int, int, frozenset[str]], str] = lambda types, name, *_: name
    #: (a transposed convolution) -> what it is: "convolution" of turned weights, or "sums" of its own
    deconvolution: Callable[[OperatorCall], str] | None = None
    #: (type of the source, its name of the convolution's implementation, channels in a group, ISA caps) -> its name of
    #: the transposed one's, where that takes those
    name_deconvolution: Callable[[str, str, int, frozenset[str]], str] = lambda src, name, channels, caps: name
    #: variables of the environment that limit its ISA caps, and the cap that they say; "" where they say none
    variables: tuple[str, ...] = ()
    most_isa: Callable[[], str] = lambda: ""
    blocks_alone: bool = False  # its products are those with weights in blocks: a network has the others from elsewhere
