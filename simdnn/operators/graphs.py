"""Programs of primitives that normalize, reduce, or bring elements together: what `simdnn.softmax` and its like run.

What is exact in them (greatest values, sums of integers, roundings) is anybody's, and functions of elements but log are
oneDNN's. Sums of floats and what softmax makes of e**x go in another order than there, but where `Ending.exactly` asks
for its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from isa_models import InvalidArgument
from isa_models.errors import shortly
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.networks.types import is_float, label
from simdnn.operators.graph_builder import (
    BINARY,
    ELTWISE,
    Ending,
    GraphBuilder,
    OperatorGraph,
    axis_of,
    checked,
    numeric,
    row_of,
    scale_of,
)
from simdnn.primitives import arrays
from simdnn.primitives.checks import flag, integer, one_of

_ONE = ("src", "dst")
#: algorithms of `reduction`: an operator, or a norm: how it is brought together with eps, and whether a root is drawn
REDUCTIONS = {"sum": "ReduceSum", "mul": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin", "mean": "ReduceMean"}
NORMS = {
    "norm_lp_max": ("Max", True),
    "norm_lp_sum": ("Add", True),
    "norm_lp_power_p_max": ("Max", False),
    "norm_lp_power_p_sum": ("Add", False),
}


def _begun(src: Array, end: Ending) -> tuple[GraphBuilder, str]:
    """A program over one source, and that as f32 times its scale."""
    builder = GraphBuilder(checked({"src": src}), form=end.form)
    return builder, builder.floats("src", scale_of(end.scales, "src", _ONE))


def _ended(builder: GraphBuilder, x: str, end: Ending, src: Array) -> OperatorGraph:
    return builder.ended(x, end, label(src.dtype), scale_of(end.scales, "dst", _ONE))


def _normalized(builder: GraphBuilder, x: str, end: Ending, src: Array) -> OperatorGraph:
    """The end of a library's softmax or normalization: both scales multiply what comes of it."""
    scale, divisor = (scale_of(end.scales, name, _ONE) for name in _ONE)
    x = x if scale is None else builder.add("Mul", x, builder.number(scale))
    if builder.by_reference:
        return builder.ended(x, end, label(src.dtype), divisor)
    inverse = None if divisor is None else float(np.float32(1) / np.float32(divisor))
    return builder.ended(x, end, label(src.dtype), inverse, multiplied=True)


def _small(epsilon: object) -> float:
    """A number that is added to a variance."""
    found = numeric("epsilon", epsilon)
    if not 0 <= found < np.inf:
        raise InvalidArgument(f"epsilon={shortly(epsilon)}; 0 or a positive number is needed, as 1e-5")
    return found


def softmax(src: Array, end: Ending, *, axis: int = -1, logarithm: bool = False) -> OperatorGraph:
    checked({"src": src})
    along, logarithm = axis_of(axis, src.ndim), flag("logarithm", logarithm)
    if end.exactly:
        builder = GraphBuilder({"src": src}, form=end.form)
        how = {"axis": along, "logarithm": int(logarithm), "channels_last": int(end.last and src.ndim > 2)}
        x = builder.own("Softmax", builder.floats("src"), **how)
        return _normalized(builder, x, end, src)
    builder, x = _begun(src, end)
    x = builder.add("LogSoftmax" if logarithm else "Softmax", x, axis=along)
    return _ended(builder, x, end, src)


def layer_normalization(
    src: Array,
    end: Ending,
    scale: Array | None = None,
    shift: Array | None = None,
    mean: Array | None = None,
    variance: Array | None = None,
    *,
    epsilon: float = 1e-5,
    rms: bool = False,
) -> OperatorGraph:
    rms = flag("rms", rms)
    if end.exactly:
        return _library_normalization(src, end, (scale, shift, mean, variance), _small(epsilon), rms)
    builder, x = _begun(src, end)
    for name, row in (("scale", scale), ("shift", shift)):
        if row is not None:
            builder.sources[name] = row_of(name, row, src.shape[-1])
    one = "scale" if scale is not None else builder.constant(np.ones(src.shape[-1:], np.float32))
    small = _small(epsilon)
    if variance is not None or mean is not None:
        unit = _standard(builder, x, src.shape[:-1], None if rms else mean, variance, small)
        x = builder.add("Mul", unit, one) if scale is not None else unit
    elif rms:
        x = builder.add("RMSNormalization", x, one, axis=-1, epsilon=small)
    else:
        more = ("shift",) if shift is not None else ()
        return _ended(builder, builder.add("LayerNormalization", x, one, *more, axis=-1, epsilon=small), end, src)
    x = builder.add("Add", x, "shift") if shift is not None else x
    return _ended(builder, x, end, src)


def _library_normalization(
    src: Array, end: Ending, rows: tuple[Array | None, ...], epsilon: float, rms: bool
) -> OperatorGraph:
    """A layer normalization in a library's order; rows: scale, shift, mean, variance."""
    builder, names = GraphBuilder(checked({"src": src}), form=end.form), []
    lines = builder.constant(np.array([*src.shape[:-1], 1]))
    for name, row in zip(("scale", "shift", "mean", "variance"), rows, strict=True):
        statistic = name in ("mean", "variance")
        if row is None or (rms and name == "mean"):
            names.append("")
            continue
        builder.sources[name] = row_of(
            name, *((row.reshape(-1), prod(src.shape[:-1])) if statistic else (row, src.shape[-1]))
        )
        names.append(builder.add("Reshape", name, lines) if statistic else name)
    if names[2] and not names[3]:
        raise InvalidArgument("mean without variance; both are needed, or neither")
    simple = int(builder.by_reference)
    x = builder.own("LayerNormalization", builder.floats("src"), *names, epsilon=epsilon, rms=int(rms), simple=simple)
    return _normalized(builder, x, end, src)


def _standard(
    builder: GraphBuilder, x: str, shape: tuple[int, ...], mean: Array | None, variance: Array | None, epsilon: float
) -> str:
    """(x - mean) / sqrt(variance + epsilon) with statistics of `shape` that the caller gives."""
    if variance is None:
        raise InvalidArgument("mean without variance; both are needed, or neither")
    last = builder.constant(np.array([*shape, 1]))
    found = {}
    for name, row in (("mean", mean), ("variance", variance)):
        if row is not None:
            arrays.type_of(name, row)
            builder.sources[name] = row_of(name, row.reshape(-1), prod(shape))
            found[name] = builder.add("Reshape", name, last)
    centred = builder.add("Sub", x, found["mean"]) if "mean" in found else x
    return builder.add(
        "Div", centred, builder.add("Sqrt", builder.add("Add", found["variance"], builder.number(epsilon)))
    )


def batch_normalization(
    src: Array,
    end: Ending,
    scale: Array | None = None,
    shift: Array | None = None,
    mean: Array | None = None,
    variance: Array | None = None,
    *,
    epsilon: float = 1e-5,
) -> OperatorGraph:
    builder, x = _begun(src, end)
    if src.ndim < 2:
        raise InvalidArgument(f"src of shape {src.shape}; (N, C, …) is needed")
    if (mean is None) != (variance is None):
        raise InvalidArgument("mean or variance alone; both are needed, or neither")
    if end.exactly:
        return _library_batch_normalization(src, end, (scale, shift, mean, variance), _small(epsilon))
    statistics = ("mean", mean, 0.0), ("variance", variance, 1.0)
    names = _rows(builder, src.shape[1], ("scale", scale, 1.0), ("shift", shift, 0.0), *statistics)
    found = int(mean is None)  # statistics of the batch itself
    x = builder.add("BatchNormalization", x, *names, epsilon=_small(epsilon), training_mode=found)
    return _ended(builder, x, end, src)


def _library_batch_normalization(
    src: Array, end: Ending, rows: tuple[Array | None, ...], epsilon: float
) -> OperatorGraph:
    """A batch normalization in a library's order; rows: scale, shift, mean, variance."""
    builder, channels = GraphBuilder(checked({"src": src}), form=end.form), src.shape[1]
    column = builder.constant(np.array([-1, *[1] * (src.ndim - 2)]))
    given: dict[str, str] = {}
    for name, row in zip(("scale", "shift", "mean", "variance"), rows, strict=True):
        if row is not None:
            builder.sources[name] = row_of(name, row, channels)
            given[name] = builder.add("Reshape", name, column)
    assert end.form is not None
    x, name = builder.floats("src"), end.form.name
    if "mean" not in given:
        order = {"tbb": "fused", "ncsp": "runs"}.get(name, "chain")
        found = builder.several("Statistics", 2, x, order=order, batch=1)
        given |= {n: builder.add("Reshape", row, column) for n, row in zip(("mean", "variance"), found, strict=True)}
    spread = builder.add("Sqrt", builder.add("Add", given["variance"], builder.number(epsilon)))
    if name == "jit":
        x = _in_one_step(builder, x, spread, given)
    else:
        x = builder.add("Sub", x, given["mean"])
        x = _rescaled(builder, x, spread, given, ahead=builder.by_reference)
    return builder.ended(x, end, label(src.dtype), None)


def _in_one_step(builder: GraphBuilder, x: str, spread: str, given: dict[str, str]) -> str:
    """x times scale over spread, plus what shift and mean make of that, fused: a library's kernel of s8."""
    factor = builder.add("Div", given.get("scale") or builder.number(1.0), spread)
    if "shift" in given:
        against = builder.add("Mul", factor, builder.number(-1.0))
        moved = builder.own("MultiplyAdd", given["mean"], against, given["shift"])
    else:
        moved = builder.add("Sub", builder.number(0.0), builder.add("Mul", given["mean"], factor))
    return builder.own("MultiplyAdd", x, factor, moved)


def _rescaled(builder: GraphBuilder, x: str, spread: str, given: dict[str, str], ahead: bool) -> str:
    """Centred values over their spread, times scale, plus shift: scale over spread `ahead`, or 1 over spread first,
    then both in one rounding.
    """
    scale, shift, one = given.get("scale"), given.get("shift"), builder.number(1.0)
    if ahead:
        x = builder.add("Mul", x, builder.add("Div", scale or one, spread))
        return builder.add("Add", x, shift or builder.number(0.0))
    x = builder.add("Mul", x, builder.add("Div", one, spread))
    if scale and shift:
        return builder.own("MultiplyAdd", x, scale, shift)
    x = builder.add("Mul", x, scale) if scale else x
    return builder.add("Add", x, shift) if shift else x


def group_normalization(
    src: Array,
    end: Ending,
    scale: Array | None = None,
    shift: Array | None = None,
    mean: Array | None = None,
    variance: Array | None = None,
    *,
    groups: int,
    epsilon: float = 1e-5,
) -> OperatorGraph:
    builder, x = _begun(src, end)
    if src.ndim < 2 or src.shape[1] % integer("groups", groups):
        raise InvalidArgument(f"groups={groups} of src {src.shape}; (N, C, …) with C a multiple is needed")
    small = _small(epsilon)
    if end.exactly:
        return _library_group_normalization(src, end, (scale, shift, mean, variance), groups, small)
    names = _rows(builder, src.shape[1], ("scale", scale, 1.0), ("shift", shift, 0.0))
    if mean is None and variance is None:
        x = builder.add("GroupNormalization", x, *names, num_groups=groups, epsilon=small)
        return _ended(builder, x, end, src)
    flat = builder.add("Reshape", x, builder.constant(np.array([src.shape[0], groups, -1])))
    unit = _standard(builder, flat, (src.shape[0], groups), mean, variance, small)
    x = builder.add("Reshape", unit, builder.constant(np.array(src.shape)))
    column = builder.constant(np.array([-1, *[1] * (src.ndim - 2)]))
    x = builder.add("Mul", x, builder.add("Reshape", names[0], column)) if scale is not None else x
    x = builder.add("Add", x, builder.add("Reshape", names[1], column)) if shift is not None else x
    return _ended(builder, x, end, src)


def _library_group_normalization(
    src: Array, end: Ending, rows: tuple[Array | None, ...], groups: int, epsilon: float
) -> OperatorGraph:
    """A group normalization in a library's order; rows: scale, shift, mean, variance."""
    builder, (n, channels), given = GraphBuilder(checked({"src": src}), form=end.form), src.shape[:2], {}
    column = builder.constant(np.array([channels, *[1] * (src.ndim - 2)]))
    for name, row in zip(("scale", "shift"), rows[:2], strict=True):
        if row is not None:
            builder.sources[name] = row_of(name, row, channels)
            given[name] = builder.add("Reshape", name, column)
    assert end.form is not None
    x, name, lanes = builder.floats("src"), end.form.name, 16 if "avx512_core" in end.caps else 8
    mean, variance = rows[2:]
    if (mean is None) != (variance is None):
        raise InvalidArgument("mean or variance alone; both are needed, or neither")
    if mean is None or variance is None:
        vector = "registers" if channels > groups else "fused"
        order = {"jit": vector, "ncsp": "blocks"}.get(name, "chain")
        found = builder.several("Statistics", 2, x, order=order, groups=groups, lanes=lanes)
    else:
        for part, row in (("mean", mean), ("variance", variance)):
            builder.sources[part] = row_of(part, row.reshape(-1), n * groups)
        found = ("mean", "variance")
    whole = builder.constant(np.array([n, groups, 1, 1]))
    several = builder.constant(np.array([n, channels, *[1] * (src.ndim - 2)]))
    share = builder.constant(np.array([n, groups, channels // groups, 1]))
    spread = builder.add("Sqrt", builder.add("Add", found[1], builder.number(epsilon)))
    rest = [
        builder.add("Reshape", builder.add("Expand", builder.add("Reshape", part, whole), share), several)
        for part in (found[0], spread)
    ]
    x = _rescaled(builder, builder.add("Sub", x, rest[0]), rest[1], given, ahead=builder.by_reference)
    scales = end.scales or {}
    if name == "ncsp" and scales:
        scale, divisor = (np.float32(scale_of(scales, part, _ONE) or 1.0) for part in _ONE)
        return builder.ended(builder.add("Mul", x, builder.number(float(scale / divisor))), end, label(src.dtype), None)
    return _normalized(builder, x, end, src)


def lies(src: Array, last: bool = False) -> tuple[bool, bool]:
    """Whether an image (N, C, …) lies in rows, and whether with its channels last (oneDNN's abx and axb); one of one
    channel or one pixel does both. `last`: how one without values does, whose strides are 0.

    >>> lies(np.zeros((1, 4, 4, 8)).transpose(0, 3, 1, 2)), lies(np.zeros((1, 8, 4, 4))), lies(np.zeros((2, 1, 4, 4)))
    ((False, True), (True, False), (True, True))
    """
    if src.size > 1 and not any(src.strides):
        both = src.ndim < 3 or 1 in (src.shape[1], prod(src.shape[2:]))
        return both or not last, src.ndim > 1 and (both or last)
    return bool(src.flags.c_contiguous), src.ndim > 1 and bool(np.moveaxis(src, 1, -1).flags.c_contiguous)


def _rows(builder: GraphBuilder, channels: int, *given: tuple[str, Array | None, float]) -> list[str]:
    """Rows of f32, one value a channel; constants of the usual value where the caller gives none."""
    names = []
    for name, row, usual in given:
        if row is not None:
            builder.sources[name] = row_of(name, row, channels)
        names.append(name if row is not None else builder.constant(np.full(channels, usual, np.float32)))
    return names


def reduction(
    src: Array, end: Ending, *, axes: Sequence[int], algorithm: str = "sum", p: float = 1.0, eps: float = 0.0
) -> OperatorGraph:
    one_of("algorithm", algorithm, (*REDUCTIONS, *NORMS))
    p, eps = numeric("p", p), numeric("eps", eps)
    builder, x = _begun(src, end)
    every = sorted({axis_of(a, src.ndim) for a in axes}) if isinstance(axes, (list, tuple, range)) else []
    if not every or len(every) < len(axes):
        raise InvalidArgument(f"axes={shortly(axes)}; a list is needed, as [1] or [2, 3], each axis once")
    if end.exactly:
        return _library_reduction(builder, x, end, src, (every, algorithm, p, eps))
    along = builder.constant(np.array(every, np.int64))
    if algorithm in REDUCTIONS:
        x = builder.add(REDUCTIONS[algorithm], x, along)
    else:
        x = _norm(builder, x, along, NORMS[algorithm], p, eps)
    return _ended(builder, x, end, src)


def _library_reduction(
    builder: GraphBuilder, x: str, end: Ending, src: Array, asked: tuple[list[int], str, float, float]
) -> OperatorGraph:
    """A reduction in a library's order, by axes, algorithm, p and eps: in registers along lines, or one by one."""
    axes, algorithm, p, eps = asked
    lanes = 0 if builder.by_reference else 16
    if lanes and "avx512_core" not in end.caps:
        lanes = 4 if {label(src.dtype), end.dst or label(src.dtype)} & {"s8", "u8"} else 8
    where = {"axes": axes, "lanes": lanes}
    if algorithm in ("max", "min"):
        of = fmt(label(src.dtype)) if not lanes and is_float(src.dtype) else fmt("f32")
        x = builder.own("Reduce", x, kind=algorithm, last=of.greatest, **where)
        return _ended(builder, x, end, src)
    if algorithm in REDUCTIONS:
        kind = "prod" if algorithm == "mul" else "sum"
        own, dst = label(src.dtype), end.dst or label(src.dtype)
        whole = own in ("s8", "u8") or (own == "s32" and dst in ("s8", "u8", "s32"))
        if not lanes and whole and (kind == "prod" or own == "s32"):
            total = builder.add("Cast", builder.own("Reduce", "src", kind=kind, **where), to=1)
            if algorithm == "mean":
                total = builder.add("Div", total, builder.number(float(prod(src.shape[axis] for axis in axes))))
            return _ended(builder, total, end, src)
        return _ended(builder, builder.own("Reduce", x, kind=kind, mean=int(algorithm == "mean"), **where), end, src)
    joined, root = NORMS[algorithm]
    power = builder.function("pow", builder.add("Abs", x), 1.0, p)
    total = builder.add(joined, builder.number(eps), builder.own("Reduce", power, kind="sum", **where))
    inverse = float(np.float32(1) / np.float32(p))
    return _ended(builder, builder.function("pow", total, 1.0, inverse) if root else total, end, src)


def _norm(builder: GraphBuilder, x: str, along: str, kind: tuple[str, bool], p: float, eps: float) -> str:
    """(sum of |x|**p, and eps) ** (1 / p), or without the root."""
    if p < 1:
        raise InvalidArgument(f"p={p:g}; at least 1 is needed")
    joined, root = kind
    if p in (1, 2):
        total = builder.add("ReduceL1" if p == 1 else "ReduceSumSquare", x, along)
    else:
        total = builder.add("ReduceSum", builder.add("Pow", builder.add("Abs", x), builder.number(p)), along)
    total = builder.add(joined, total, builder.number(eps))
    if not root or p == 1:
        return total
    return builder.add("Sqrt", total) if p == 2 else builder.add("Pow", total, builder.number(1 / p))


def eltwise(src: Array, end: Ending, *, algorithm: str, alpha: float = 0.0, beta: float = 0.0) -> OperatorGraph:
    one_of("algorithm", algorithm, ELTWISE)
    builder, x = _begun(src, end)
    x = builder.function(algorithm, x, numeric("alpha", alpha), numeric("beta", beta))
    return _ended(builder, x, end, src)


def binary(src0: Array, src1: Array, end: Ending, condition: Array | None = None, *, algorithm: str) -> OperatorGraph:
    one_of("algorithm", algorithm, (*BINARY, "select"))
    if (condition is not None) != (algorithm == "select"):
        raise InvalidArgument(f"{algorithm} {'without' if condition is None else 'with'} a condition; select has one")
    builder, known = GraphBuilder(checked({"src0": src0, "src1": src1}), form=end.form), ("src0", "src1", "dst")
    both = [builder.floats(name, scale_of(end.scales, name, known)) for name in known[:2]]
    if condition is None:
        x = builder.pair(algorithm, *both)
    else:
        x = builder.chosen(builder.source("condition", condition), *both)
    return builder.ended(x, end, label(src0.dtype), scale_of(end.scales, "dst", known))


def prelu(src: Array, weights: Array, end: Ending) -> OperatorGraph:
    builder = GraphBuilder(checked({"src": src, "weights": weights}), form=end.form)
    both = builder.floats("src"), builder.floats("weights")
    x = builder.own("PRelu", *both, of="no greater") if builder.by_reference else builder.add("PRelu", *both)
    return builder.ended(x, end, label(src.dtype), scale_of(end.scales, "dst", ("dst",)))
