"""Programs of a few nodes, one a primitive: what `simdnn.softmax` and its like run.

Sources become floats where they are integers, the operator's kernels compute in f32 between their passes, and the
result is rounded once into the destination's type. That is oneDNN's arithmetic for these primitives in what is exact
(greatest values, sums of integers, roundings); its polynomials for e**x and the like are other ones, so those bits are
not claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from isa_models import InvalidArgument, Unimplemented
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.networks.model import Graph, Node, Port
from simdnn.networks.types import is_float, label, number
from simdnn.primitives import arrays
from simdnn.primitives.checks import integer, one_of, padding_of, pair

Scales = Mapping[str, float]
_OPSET = 21
TYPES = ("f32", "bf16", "f16", "s8", "u8")
#: algorithms of `eltwise` by oneDNN's names: an operator, and its attributes of (alpha, beta)
_ELTWISE: dict[str, tuple[str, Callable[[float, float], dict[str, Any]]]] = {
    "relu": ("LeakyRelu", lambda a, b: {"alpha": a}),
    "tanh": ("Tanh", lambda a, b: {}),
    "elu": ("Elu", lambda a, b: {"alpha": a}),
    "abs": ("Abs", lambda a, b: {}),
    "sqrt": ("Sqrt", lambda a, b: {}),
    "logistic": ("Sigmoid", lambda a, b: {}),
    "exp": ("Exp", lambda a, b: {}),
    "gelu_tanh": ("Gelu", lambda a, b: {"approximate": "tanh"}),
    "gelu_erf": ("Gelu", lambda a, b: {"approximate": "none"}),
    "swish": ("Swish", lambda a, b: {"alpha": a}),
    "log": ("Log", lambda a, b: {}),
    "round": ("Round", lambda a, b: {}),
    "mish": ("Mish", lambda a, b: {}),
    "hardsigmoid": ("HardSigmoid", lambda a, b: {"alpha": a, "beta": b}),
}
#: algorithms that are written with several operators: nodes of (chain, source, alpha, beta)
_WRITTEN: dict[str, Callable[[_Draft, str, float, float], str]] = {
    "square": lambda c, x, a, b: c.add("Mul", x, x),
    "linear": lambda c, x, a, b: c.add("Add", c.add("Mul", x, c.number(a)), c.number(b)),
    "clip": lambda c, x, a, b: c.add("Clip", x, c.number(a), c.number(b)),
    "soft_relu": lambda c, x, a, b: c.add("Div", c.add("Softplus", c.add("Mul", x, c.number(a))), c.number(a)),
    "pow": lambda c, x, a, b: c.add("Mul", c.add("Pow", x, c.number(b)), c.number(a)),
    "hardswish": lambda c, x, a, b: c.add("Mul", x, c.add("HardSigmoid", x, alpha=a, beta=b)),
}
ELTWISE = tuple(sorted((*_ELTWISE, *_WRITTEN)))
_BINARY = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "max": "Max", "min": "Min"}
_COMPARED = {"eq": "Equal", "gt": "Greater", "ge": "GreaterOrEqual", "lt": "Less", "le": "LessOrEqual"}
BINARY = (*_BINARY, *_COMPARED, "ne")
POOLING = ("max", "avg_include_padding", "avg_exclude_padding")


@dataclass
class _Draft:
    """A program as it is written down, over sources in the types that the caller gives."""

    sources: Mapping[str, Array]
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """A node; the answer is its output's name."""
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(Node(name, op, "", _OPSET, inputs, (name,), attributes))
        return name

    def constant(self, values: Array) -> str:
        name = f"constant{len(self.constants)}"
        self.constants[name] = values
        return name

    def number(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def floats(self, name: str, scale: float | None = None) -> str:
        """A source as f32, times its scale."""
        dtype = self.sources[name].dtype
        if not is_float(dtype):
            return self.add("DequantizeLinear", name, self.number(1.0 if scale is None else scale))
        wide = name if dtype == np.float32 else self.add("Cast", name, to=1)
        return wide if scale is None else self.add("Mul", wide, self.number(scale))

    def ended(self, name: str, dst: str, scale: float | None) -> Graph:
        """The program: f32 values divided by the destination's scale and rounded once into its type."""
        dtype = fmt(dst).dtype
        if not is_float(dtype):
            zero = self.constant(np.zeros((), dtype))
            name = self.add("QuantizeLinear", name, self.number(1.0 if scale is None else scale), zero)
        else:
            name = name if scale is None else self.add("Div", name, self.number(scale))
            name = name if dst == "f32" else self.add("Cast", name, to=number(dtype))
        self.nodes.append(Node(f"identity{len(self.nodes)}", "Identity", "", _OPSET, (name,), ("dst",)))
        ports = tuple(Port(n, a.dtype, a.shape) for n, a in self.sources.items())
        return Graph("primitive", ports, (Port("dst", dtype, None),), tuple(self.nodes), self.constants)


# -- graphs -----------------------------------------------------------------------------------------------------------
def _scale(scales: Scales | None, name: str, known: Sequence[str]) -> float | None:
    """One argument's scale."""
    if scales is not None and not isinstance(scales, Mapping):
        raise InvalidArgument(f"scales={scales!r:.60}; a dict of numbers by argument is needed, as {{'dst': 0.5}}")
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


def _number(name: str, value: Any) -> float:
    if not _is_number(value) or np.isnan(value):
        raise InvalidArgument(f"{name}={value!r:.60}; a number is needed")
    return float(value)


def _row(name: str, row: Any, size: int) -> Array:
    """An f32 array of one dimension."""
    arrays.type_of(name, row)
    if row.shape != (size,) or row.dtype != np.float32:
        raise InvalidArgument(f"{name} of {row.dtype} {row.shape}; f32 ({size},) is needed")
    found: Array = row
    return found


def _type(what: str, array: Array) -> str:
    return one_of(f"type of {what}", label(array.dtype), TYPES)


def _destination(dst: str | None, source: Array) -> str:
    return one_of("dst", label(source.dtype) if dst is None else dst, TYPES)


def _checked(**given: Any) -> dict[str, Array]:
    """Arrays by their names, each of a type that these primitives read."""
    for name, array in given.items():
        arrays.type_of(name, array)
        _type(name, array)
    return given


def _axis(axis: Any, rank: int) -> int:
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)) or not -rank <= axis < rank:
        raise InvalidArgument(f"axis={axis!r} of an array with {rank} dimensions")
    return int(axis) % rank


def softmax(
    src: Array, *, axis: int = -1, logarithm: bool = False, dst: str | None = None, scales: Scales | None = None
) -> Graph:
    chain = _Draft(_checked(src=src))
    x = chain.floats("src", _scale(scales, "src", ("src", "dst")))
    x = chain.add("LogSoftmax" if logarithm else "Softmax", x, axis=_axis(axis, src.ndim))
    return chain.ended(x, _destination(dst, src), _scale(scales, "dst", ("src", "dst")))


def layer_normalization(
    src: Array,
    scale: Array | None = None,
    shift: Array | None = None,
    *,
    epsilon: float = 1e-5,
    dst: str | None = None,
    scales: Scales | None = None,
) -> Graph:
    sources = _checked(src=src)
    for name, row in (("scale", scale), ("shift", shift)):
        if row is not None:
            sources[name] = _row(name, row, src.shape[-1])
    chain = _Draft(sources)
    x = chain.floats("src", _scale(scales, "src", ("src", "dst")))
    one = "scale" if scale is not None else chain.constant(np.ones(src.shape[-1:], np.float32))
    more = ("shift",) if shift is not None else ()
    x = chain.add("LayerNormalization", x, one, *more, axis=-1, epsilon=_number("epsilon", epsilon))
    return chain.ended(x, _destination(dst, src), _scale(scales, "dst", ("src", "dst")))


def eltwise(
    src: Array,
    *,
    algorithm: str,
    alpha: float = 0.0,
    beta: float = 0.0,
    dst: str | None = None,
    scales: Scales | None = None,
) -> Graph:
    one_of("algorithm", algorithm, ELTWISE)
    chain, alpha, beta = _Draft(_checked(src=src)), _number("alpha", alpha), _number("beta", beta)
    x = chain.floats("src", _scale(scales, "src", ("src", "dst")))
    if algorithm in _WRITTEN:
        if algorithm == "soft_relu" and alpha == 0:
            raise InvalidArgument("soft_relu with alpha=0; it is log(1 + e**(alpha x)) / alpha")
        x = _WRITTEN[algorithm](chain, x, alpha, beta)
    else:
        op, attributes = _ELTWISE[algorithm]
        op = "Relu" if algorithm == "relu" and alpha == 0 else op
        x = chain.add(op, x, **({} if op == "Relu" else attributes(alpha, beta)))
    return chain.ended(x, _destination(dst, src), _scale(scales, "dst", ("src", "dst")))


def binary(src0: Array, src1: Array, *, algorithm: str, dst: str | None = None, scales: Scales | None = None) -> Graph:
    one_of("algorithm", algorithm, BINARY)
    chain, known = _Draft(_checked(src0=src0, src1=src1)), ("src0", "src1", "dst")
    both = [chain.floats(name, _scale(scales, name, known)) for name in known[:2]]
    if algorithm in _BINARY:
        x = chain.add(_BINARY[algorithm], *both)
    else:
        x = chain.add(_COMPARED.get(algorithm, "Equal"), *both)
        x = chain.add("Cast", chain.add("Not", x) if algorithm == "ne" else x, to=1)
    return chain.ended(x, _destination(dst, src0), _scale(scales, "dst", known))


def pooling(
    src: Array,
    *,
    kernel: int | Sequence[int],
    algorithm: str = "max",
    strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    dst: str | None = None,
    scales: Scales | None = None,
) -> Graph:
    one_of("algorithm", algorithm, POOLING)
    chain = _Draft(_checked(src=src))
    arrays.check_shape("src", src, ("N", "C", "IH", "IW"))
    windows = {
        "kernel_shape": list(pair("kernel", kernel)),
        "strides": list(pair("strides", strides)),
        "dilations": list(pair("dilation", dilation)),
        "pads": list(padding_of(padding)),
    }
    whole = algorithm == "max" and not scales and _destination(dst, src) == label(src.dtype)
    x = "src" if whole else chain.floats("src", _scale(scales, "src", ("src", "dst")))
    if algorithm == "max":
        x = chain.add("MaxPool", x, **windows)
    else:
        x = chain.add("AveragePool", x, **windows, count_include_pad=int(algorithm == "avg_include_padding"))
    if whole:
        chain.nodes[-1] = Node(x, "MaxPool", "", _OPSET, ("src",), ("dst",), windows)
        return Graph(
            "primitive", (Port("src", src.dtype, src.shape),), (Port("dst", src.dtype, None),), (chain.nodes[-1],), {}
        )
    return chain.ended(x, _destination(dst, src), _scale(scales, "dst", ("src", "dst")))


def deconvolution(
    src: Array,
    weights: Array,
    bias: Array | None = None,
    *,
    strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    output_padding: int | Sequence[int] = 0,
    dst: str | None = None,
    scales: Scales | None = None,
) -> Graph:
    sources, known = _checked(src=src, weights=weights), ("src", "wei", "dst")
    arrays.check_shape("src", src, ("N", "IC", "IH", "IW"))
    arrays.check_shape("weights", weights, ("OC", "IC/G", "KH", "KW"))
    groups, (oc, inside) = integer("groups", groups), weights.shape[:2]
    if src.shape[1] != inside * groups or oc % groups:
        raise InvalidArgument(f"src {src.shape} and weights {weights.shape} with groups={groups}: channels do not fit")
    if bias is not None:
        sources["bias"] = _row("bias", bias, oc)
    places = list(pair("strides", strides)), list(pair("dilation", dilation)), list(padding_of(padding))
    for i, (n, k, step, reach) in enumerate(zip(src.shape[2:], weights.shape[2:], *places[:2], strict=True)):
        if (size := (n - 1) * step + (k - 1) * reach + 1 - places[2][i] - places[2][i + 2]) < 1:
            raise InvalidArgument(f"padding={padding!r}: the output would have {size} {('rows', 'columns')[i]}")
    whole = not is_float(src.dtype)
    if whole and label(weights.dtype) != "s8" or not whole and src.dtype != weights.dtype:
        raise Unimplemented(
            f"{label(src.dtype)} x {label(weights.dtype)}; what works: one float type, or u8 or s8 x s8"
        )
    chain = _Draft(sources)
    # ONNX keeps (IC, OC/G, KH, KW)
    split = chain.add("Reshape", "weights", chain.constant(np.array([groups, oc // groups, *weights.shape[1:]])))
    turned = chain.add("Transpose", split, perm=[0, 2, 1, 3, 4])
    flat = chain.constant(np.array([src.shape[1], oc // groups, *weights.shape[2:]]))
    x = chain.add(
        "ConvTranspose",
        "src",
        chain.add("Reshape", turned, flat),
        strides=places[0],
        dilations=places[1],
        pads=places[2],
        output_padding=list(pair("output_padding", output_padding, 0)),
        group=groups,
    )
    x = chain.add("Cast", x, to=1) if whole or label(src.dtype) != "f32" else x
    parts = [_scale(scales, name, known) for name in ("src", "wei")]
    if given := [part for part in parts if part is not None]:
        x = chain.add("Mul", x, chain.number(float(np.prod(np.array(given, np.float32)))))
    if bias is not None:
        x = chain.add("Add", x, chain.add("Reshape", "bias", chain.constant(np.array([oc, 1, 1]))))
    wanted = one_of("dst", dst or ("f32" if whole else label(src.dtype)), TYPES)
    return chain.ended(x, wanted, _scale(scales, "dst", known))
