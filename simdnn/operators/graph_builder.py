"""A primitive's program as it is written down: sources into f32, the operator, post-operations, one last rounding.

Sources become f32 and are multiplied by their scales; what comes of the operator passes through the post-operations, is
divided by the destination's scale and rounded once into its type. That is oneDNN's order for these primitives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from isa_models import InvalidArgument
from isa_models.errors import counted, shortly
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.postops import ELTWISE as NUMBERS
from simdnn.kernels.common.postops import written_sum
from simdnn.libraries import OperatorForm
from simdnn.networks.model import Graph, Node, Port
from simdnn.networks.ops.registry import OWN
from simdnn.networks.types import is_float, label, number
from simdnn.primitives import arrays
from simdnn.primitives.checks import one_of

Scales = Mapping[str, float]
PostOps = Sequence[Any]
OPSET = 21
TYPES = ("f32", "bf16", "f16", "f8_e4m3", "f8_e5m2", "s8", "u8", "s32")
STORED = (*TYPES, "s4", "u4", "f4_e2m1")  # and what a conversion alone reads and writes
_BY_F16 = ("f8_e4m3", "f8_e5m2")
#: functions of an element by oneDNN's names that ONNX's operators compute alike, or nearer: nodes of (builder, source,
#: alpha, beta)
_ALIKE: dict[str, Callable[[GraphBuilder, str, float, float], str]] = {
    "relu": lambda c, x, a, b: c.add("LeakyRelu", x, alpha=a) if a else c.add("Relu", x),
    "abs": lambda c, x, a, b: c.add("Abs", x),
    "sqrt": lambda c, x, a, b: c.add("Sqrt", x),
    "round": lambda c, x, a, b: c.add("Round", x),
    "log": lambda c, x, a, b: c.add("Log", x),  # oneDNN's is off by up to 4e-6 near 1
    "square": lambda c, x, a, b: c.add("Mul", x, x),
    "clip": lambda c, x, a, b: c.add("Clip", x, c.number(a), c.number(b)),
    "clip_v2": lambda c, x, a, b: c.add("Clip", x, c.number(a), c.number(b)),
}
#: and those that have formulas of its own (`simdnn.networks.ops.onednn_eltwise`)
_OWN = (
    *("tanh", "elu", "logistic", "exp", "gelu_tanh", "gelu_erf", "swish", "mish", "soft_relu", "pow"),
    *("linear", "hardsigmoid", "hardswish"),
)
ELTWISE = tuple(sorted((*_ALIKE, *_OWN)))
_BINARY = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "max": "Max", "min": "Min"}
_COMPARED = {"eq": "Equal", "gt": "Greater", "ge": "GreaterOrEqual", "lt": "Less", "le": "LessOrEqual"}
BINARY = (*_BINARY, *_COMPARED, "ne")


@dataclass(frozen=True, eq=False)
class OperatorGraph:
    """A primitive's program, and the arrays that it reads, by the names of its inputs; of a library's: cycles that it
    takes around its kernels, by how many threads it has, lanes of f32 in its registers (0: the widest), and bytes that
    it stores past the caches.
    """

    graph: Graph
    feeds: Mapping[str, Array]
    around: Callable[[int], float] = lambda threads: 0.0
    lanes: int = 0
    streamed: int = 0


class Followed:
    """A computation in a library's way, `form`, where there is one."""

    form: OperatorForm | None

    @property
    def exactly(self) -> bool:
        """Whether a library's bits are asked for."""
        return self.form is not None

    @property
    def by_reference(self) -> bool:
        """Whether a library ends it by loops over elements."""
        return self.form is not None and self.form.by_reference


@dataclass(frozen=True)
class Ending(Followed):
    """A caller's wishes behind the operator: the destination's type, scales by argument, post-operations, and what the
    destination held before (read by the post-operation sum). `zero_points` by argument, where a primitive has them.
    `form`: a library's way to compute it under the ISA `caps`, with its formulas and in its order, where "fastest" has
    other ones. `last`: whether the first source lies with its channels last, which one without values does not tell.
    """

    dst: str | None = None
    scales: Scales | None = None
    post_ops: PostOps = ()
    into: Array | None = None
    zero_points: Mapping[str, Any] | None = None
    form: OperatorForm | None = None
    caps: frozenset[str] = frozenset()
    last: bool = False

    def __post_init__(self) -> None:
        given = self.post_ops
        several = isinstance(given, (list, tuple)) and all(isinstance(one, (str, tuple, list)) and one for one in given)
        if not several or not all(isinstance(one, str) or isinstance(one[0], str) for one in given):
            raise InvalidArgument(f"post_ops={shortly(given)}; a list is needed, as ['relu', ('linear', 2.0, 1.0)]")
        for name, by_argument in (("scales", self.scales), ("zero_points", self.zero_points)):
            if by_argument is not None and not isinstance(by_argument, Mapping):
                raise InvalidArgument(f"{name}={shortly(by_argument)}; a dict by argument is needed, as {{'src': 3}}")
        if self.dst is not None and not isinstance(self.dst, str):
            raise InvalidArgument(f"dst={shortly(self.dst)}; the name of a type is needed, as 'f32'")


@dataclass
class GraphBuilder(Followed):
    """A program over sources in the types that the caller gives; `form` as `Ending` has it."""

    sources: dict[str, Array]
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    form: OperatorForm | None = None

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """A node of ONNX's; the answer is its output's name."""
        return self._node(op, "", inputs, attributes)

    def own(self, op: str, *inputs: str, **attributes: Any) -> str:
        """A node of this package's (`simdnn.networks.ops.onednn_eltwise`)."""
        return self._node(op, OWN, inputs, attributes)

    def several(self, op: str, count: int, *inputs: str, **attributes: Any) -> tuple[str, ...]:
        """A node of this package's with several outputs; the answer is their names."""
        names = tuple(f"{op.lower()}{len(self.nodes)}_{i}" for i in range(count))
        self.nodes.append(Node(names[0], op, OWN, OPSET, inputs, names, attributes))
        return names

    def _node(self, op: str, domain: str, inputs: tuple[str, ...], attributes: dict[str, Any]) -> str:
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(Node(name, op, domain, OPSET, inputs, (name,), attributes))
        return name

    def constant(self, values: Array) -> str:
        name = f"constant{len(self.constants)}"
        self.constants[name] = values
        return name

    def number(self, value: float | Array) -> str:
        return self.constant(np.array(value, np.float32))

    def floats(self, name: str, scale: float | None = None) -> str:
        """A source as f32, times its scale."""
        wide = name if self.sources[name].dtype == np.float32 else self.add("Cast", name, to=1)
        return wide if scale is None else self.add("Mul", wide, self.number(scale))

    def function(self, algorithm: str, x: str, alpha: float, beta: float) -> str:
        """A function of each element of f32, of `ELTWISE`."""
        if algorithm == "soft_relu" and alpha == 0:
            raise InvalidArgument("soft_relu with alpha=0; it is log(1 + e**(alpha x)) / alpha")
        if self.by_reference:
            return self.own("Eltwise", x, function=algorithm, alpha=alpha, beta=beta, reference=1)
        if self.exactly and (algorithm in ("clip", "clip_v2") or (algorithm == "relu" and not alpha)):
            found = self.add("Max", self.number(alpha), x)  # of two zeros oneDNN takes the bound
            return found if algorithm == "relu" else self.add("Min", self.number(beta), found)
        if algorithm in _ALIKE and not (self.exactly and algorithm in ("log", "relu")):
            return _ALIKE[algorithm](self, x, alpha, beta)
        return self.own("Eltwise", x, function=algorithm, alpha=alpha, beta=beta)

    def pair(self, algorithm: str, x: str, y: str) -> str:
        """Two values of f32 brought together, by a name of `BINARY`; comparisons give 1 or 0."""
        if algorithm in _BINARY:
            turned = self.exactly and algorithm in ("max", "min")  # of two zeros oneDNN takes the second
            return self.add(_BINARY[algorithm], *((y, x) if turned else (x, y)))
        inverse = {"ne": "Equal"}
        if self.exactly and not self.by_reference:  # oneDNN's kernels ask whether it is not less: true of a NaN
            inverse |= {"ge": "Less", "gt": "LessOrEqual"}
        found = self.add(inverse.get(algorithm) or _COMPARED[algorithm], x, y)
        return self.add("Cast", self.add("Not", found) if algorithm in inverse else found, to=1)

    def chosen(self, condition: str, x: str, y: str) -> str:
        """x where the condition, a source of s8, is not 0, else y."""
        return self.add("Where", self.add("Cast", condition, to=9), x, y)

    def ended(
        self,
        x: str,
        ending: Ending,
        usual: str,
        scale: float | Array | None,
        known: Sequence[str] = TYPES,
        multiplied: bool = False,
    ) -> OperatorGraph:
        """The program behind `x` in f32; `usual` is the destination's type, of `known`, where the caller names none.
        `multiplied`: the scale is the inverse of the destination's.
        """
        dst, self.form = one_of("dst", usual if ending.dst is None else ending.dst, known), ending.form
        if any((op if isinstance(op, str) else op[0]) == "sum" for op in ending.post_ops) != (ending.into is not None):
            said = "missing: what the destination held" if ending.into is None else "given, yet no 'sum' reads it"
            raise InvalidArgument(f"into is {said}")
        for place, op in enumerate(ending.post_ops):
            x = self._after(x, op, place, dst, ending.into)
        points = ending.zero_points or {}
        if multiplied and scale is not None:
            x, scale = self.add("Mul", x, self.number(scale)), None
        return self._rounded(x, dst, scale, points.get("dst"))

    def _after(self, x: str, op: Any, place: int, dst: str, into: Array | None) -> str:
        name, *given = (op,) if isinstance(op, str) else op
        one_of("post-operation", name, (*ELTWISE, *BINARY, "prelu", "select", "sum"))
        if name in ELTWISE:
            defaults = NUMBERS[name]
            if len(given) > len(defaults) or None in defaults[len(given) :]:
                raise InvalidArgument(f"post-operation {op!r:.60}; {name} takes {len(defaults)} numbers")
            numbers = (numeric(f"number of {name}", n) for n in (*given, *defaults[len(given) :]))
            alpha, beta = (*numbers, 0.0, 0.0)[:2]
            return self.function(name, x, alpha, beta)
        if name == "sum":
            return self._sum(x, given, dst, into)
        wanted = 2 if name == "select" else 1
        if len(given) != wanted:
            raise InvalidArgument(f"post-operation {name} with {len(given)} arrays; {wanted} needed")
        names = [self.source(f"operand{place}_{i}", array) for i, array in enumerate(given)]
        if name == "select":
            return self.chosen(names[1], x, self.floats(names[0]))
        other = self.floats(names[0])
        return self.slopes(x, other) if name == "prelu" else self.pair(name, x, other)

    def slopes(self, x: str, slopes: str) -> str:
        """x, or x times a slope where it is below 0."""
        return self.add("PRelu", x, slopes) if self.form is None else self.own("PRelu", x, slopes, of=self.form.slopes)

    def source(self, name: str, array: Array) -> str:
        """One more source, that is checked."""
        self.sources.update(checked({name: array}))
        return name

    def _sum(self, x: str, given: Sequence[Any], dst: str, into: Array | None) -> str:
        """x + scale * (what the destination held - zero point), in its own type or another one."""
        assert into is not None
        scale, point, held_as = written_sum(given, dst)
        if len(given) > 3 or label(into.dtype) != held_as:
            raise InvalidArgument(f"post-operation {('sum', *given)} with into of {into.dtype}; {held_as} is needed")
        if "into" not in self.sources:
            self.source("into", into)
        held = self.floats("into")
        if point:
            held = self.add("Sub", held, self.number(numeric("zero point of sum", point)))
        factor = numeric("scale of sum", scale)
        if factor == 1:
            return self.add("Add", x, held)
        if self.by_reference:
            return self.add("Add", x, self.add("Mul", held, self.number(factor)))
        return self.own("Accumulate", x, held, scale=factor)

    def _rounded(self, name: str, dst: str, scale: Any, point: Any) -> OperatorGraph:
        """f32 values divided by the destination's scale, moved by its zero point, rounded once into its type."""
        if point is not None or isinstance(scale, np.ndarray):
            name = name if scale is None else self.add("Div", name, self.number(scale))
            name, scale = name if point is None else self.add("Add", name, self.number(point)), None
        name = name if scale is None else self.add("Div", name, self.number(scale))
        how = ("bounded", False) if self.form is None else (self.form.integers, self.form.flushes)
        return self.finished(self.stored(name, dst, *how), dst)

    def stored(self, name: str, dst: str, integers: str, flushes: bool) -> str:
        """f32 values rounded once into a type: integers by a key of `INTEGERS` of libraries; `flushes`: denormals of
        bf16 become zeros.
        """
        dtype = fmt(dst).dtype
        if not is_float(dtype):
            return self.own("Quantize", name, to=number(dtype), how=integers)
        return self.narrowed(self.own("WithoutDenormals", name) if flushes else name, dst)

    def narrowed(self, name: str, dst: str) -> str:
        """f32 in another float type; into 8 bits by way of f16 and without saturation, as oneDNN does it."""
        if dst in _BY_F16:
            return self.add("Cast", self.add("Cast", name, to=10), to=number(fmt(dst).dtype), saturate=0)
        return name if dst == "f32" else self.add("Cast", name, to=number(fmt(dst).dtype))

    def finished(self, name: str, dst: str) -> OperatorGraph:
        """The program whose output is `name`."""
        self.nodes.append(Node(f"identity{len(self.nodes)}", "Identity", "", OPSET, (name,), ("dst",)))
        ports = tuple(Port(n, a.dtype, a.shape) for n, a in self.sources.items())
        graph = Graph("primitive", ports, (Port("dst", fmt(dst).dtype, None),), tuple(self.nodes), self.constants)
        return OperatorGraph(graph, dict(self.sources))


def scale_of(scales: Scales | None, name: str, known: Sequence[str]) -> float | None:
    """One argument's scale."""
    given = dict(scales or {})
    for other in given:
        one_of("scales of", other, known)
    if name not in given:
        return None
    value = given[name]
    if not _is_number(value) or not np.isfinite(value) or value == 0:
        raise InvalidArgument(f"scales[{name!r}]={value!r}; one finite number other than 0 is needed")
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def numeric(name: str, value: Any) -> float:
    """A number that is not NaN, and has a float."""
    try:
        found = float(value) if _is_number(value) else np.nan
    except OverflowError:
        raise InvalidArgument(f"{name}={shortly(value)}; a number of f32 is needed, up to 3.4e38") from None
    if np.isnan(found):
        raise InvalidArgument(f"{name}={shortly(value)}; a number is needed")
    return found


def checked(given: Mapping[str, Any], known: Sequence[str] = TYPES) -> dict[str, Array]:
    """Arrays by their names, each of a type among `known`."""
    for name, array in given.items():
        arrays.type_of(name, array, ("s32",))
        one_of(f"type of {name}", label(array.dtype), known)
    return dict(given)


def row_of(name: str, row: Any, size: int) -> Array:
    """An f32 array of one dimension."""
    arrays.type_of(name, row)
    if row.shape != (size,) or row.dtype != np.float32:
        raise InvalidArgument(f"{name} of {row.dtype} {row.shape}; f32 ({size},) is needed")
    found: Array = row
    return found


def axis_of(axis: Any, rank: int) -> int:
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)) or not -rank <= axis < rank:
        raise InvalidArgument(f"axis={axis!r} of an array with {counted(rank, 'dimension')}")
    return int(axis) % rank
