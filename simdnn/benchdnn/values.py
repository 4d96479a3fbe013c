"""Correctness: seeded data, a plain float64 reference, and bounds that follow from the types and the number of terms.

Data are small integers, as in benchdnn, so that most sums stay exact in f32; pairs of u8 x s8 products stay below
2**15, so no kernel here saturates on its way: what saturation does to values is `simdnn run`'s subject. Where all of a
problem is exact up to the last rounding, the output must be the reference rounded once, bit for bit; elsewhere
(scales that are no powers of two, very long sums) it must stay within `_bound`. s8 convolutions without VNNI halve
their weights, so that no pair saturates: there the reference multiplies halved weights as well, and what they lose
against exact arithmetic is told beside it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isa_models.formats import Format, fmt
from isa_models.readings.arrays import Array
from simdnn.benchdnn.attributes import Parameter, modelled_post_ops
from simdnn.benchdnn.definitions import ELTWISE
from simdnn.benchdnn.tasks import Task
from simdnn.kernels.common.pack import halved
from simdnn.kernels.common.postops import BINARY, COMPARISONS
from simdnn.primitives import Attr, convolution
from simdnn.primitives.matmul import matmul_on
from simdnn.primitives.result import Result
from simdnn.primitives.run import Target

Floats = NDArray[np.float64]
_OF_MATMULS = ("src_tag", "wei_tag", "dst_tag", "runtime_dims")
_OF_CONVOLUTIONS = ("strides", "padding", "dilation", "groups", "src_tag", "wei_tag", "dst_tag")
_TERMS = 64  # expected products that are not 0 in an output of 8 bits, so that most outputs do not clip
_MANTISSA = 2.0**24
#: post-operations whose slope has a bound, and those that have none
_GENTLE = ("elu", "gelu_erf", "gelu_tanh", "logistic", "mish", "soft_relu", "swish", "tanh")
_STEEP = ("exp", "log", "pow", "round", "sqrt", *COMPARISONS)


@dataclass(frozen=True)
class Check:
    """Findings about one problem's values."""

    max_error: float  # against the reference, rounded to the destination's type
    wrong: int  # outputs beyond the bound
    loss: float | None  # where the kernel halves its weights: how far outputs are from exact arithmetic


def check(task: Task) -> Check:
    """Run the compiled engine and compare every output."""
    dst = task.types[2]
    rng = np.random.default_rng(zlib.crc32(repr((task.types, task.sizes)).encode()))  # the same on every machine
    src, wei, bias = _data(task, rng)
    attr = task.attr(parameter_values(rng, src))
    held = [(op[3] if len(op) > 3 and op[3] else dst) for op in attr.post_ops if op[0] == "sum"]
    into = _integers(rng, held[0], task.output, 1.0) if held else None
    result = _run(task, src, wei, bias, attr, into)
    halves = result.kernel.halves
    meant = 2 * halved(wei) if halves else wei
    exact, magnitude = reference(task, src, meant, bias, attr, into)
    error, allowed = _compare(task, result, exact, magnitude, _unit(attr, bias))
    wrong = int((~(error <= allowed)).sum())  # a NaN is wrong, too
    if not halves:
        return Check(float(error.max()), wrong, None)
    whole, _ = reference(task, src, wei, bias, attr, into)
    return Check(float(error.max()), wrong, float(abs(_rounded(whole, dst) - _wide(result.output)).max()))


def _data(task: Task, rng: np.random.Generator) -> tuple[Array, Array, Array | None]:
    src_type, wei_type, dst = task.types
    s = task.sizes
    src_shape: tuple[int, ...]
    wei_shape: tuple[int, ...]
    if task.primitive == "matmul":
        src_shape, wei_shape, terms, channels = task.shapes["src"], task.shapes["wei"], s["k"], s["n"]
    else:
        deep = "kd" in s
        wei_shape = (s["oc"], s["ic"] // s["groups"], *((s["kd"],) if deep else ()), s["kh"], s["kw"])
        src_shape = (s["mb"], s["ic"], *((s["id"],) if deep else ()), s["ih"], s["iw"])
        terms, channels = prod(wei_shape[1:]), s["oc"]
    share = min(1.0, _TERMS / terms) if dst in ("s8", "u8") else 1.0
    bias = rng.integers(-4, 5, channels).astype(np.float32) if task.bias else None
    return _integers(rng, src_type, src_shape, share), _integers(rng, wei_type, wei_shape, 1.0), bias


def _integers(rng: np.random.Generator, dtype: str, shape: tuple[int, ...], share: float) -> Array:
    """Small integers in a type; all but about `share` of them are 0."""
    kind = fmt(dtype)
    low, high = (-4, 4) if kind.is_float or kind.signed else (0, 8)
    numbers = rng.integers(low, high + 1, shape, np.int8)
    if share < 1:
        numbers *= rng.random(shape) < share
    return numbers.astype(np.float32 if kind.is_float else np.int8).astype(kind.dtype)


def parameter_values(rng: np.random.Generator, src: Array) -> Callable[[str, Parameter, tuple[int, ...]], Array]:
    """Parameters: what the text gives, else powers of two for scales, small integers for zero points; reductions are
    the source's sums.
    """

    def make(option: str, parameter: Parameter, shape: tuple[int, ...]) -> Array:
        if option == "attr-precomputed-reductions":
            sums: Array = src.astype(np.int32).reshape(*shape, -1).sum(axis=-1, dtype=np.int32)
            return sums
        if option == "attr-post-ops":
            return np.asarray(rng.integers(-4, 5, shape), np.float32)
        if option == "attr-scales":
            given = parameter.value
            return np.full(shape, given, np.float32) if given is not None else _powers(rng, shape)
        low = 0 if parameter.dtype in ("u8", "u4") else -2
        if parameter.value is not None:
            return np.full(shape, int(parameter.value), np.int64)
        return np.asarray(rng.integers(low, 3, shape), np.int64)

    return make


def _powers(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.asarray(2.0 ** rng.integers(-2, 2, shape), np.float32)


def _run(task: Task, src: Array, wei: Array, bias: Array | None, attr: Attr, into: Array | None) -> Result:
    shared = task.case.where | {"dst": task.types[2], "attr": attr, "engine": "compiled", "into": into}
    if task.primitive == "matmul":
        where = Target.of(**task.case.where, threads=1, engine="compiled")
        told = {name: task.sizes[name] for name in _OF_MATMULS if name in task.sizes}
        return matmul_on(where, src, wei, bias, task.types[2], attr, into=into, **told)
    named = {name: task.sizes[name] for name in _OF_CONVOLUTIONS}
    return convolution(src, wei, bias, **named, **shared)


def reference(
    task: Task, src: Array, wei: Array, bias: Array | None, attr: Attr, into: Array | None = None
) -> tuple[Floats, Floats]:
    """The outputs before their last rounding, in float64, and the sum of the magnitudes of what was added up.

    float64 holds the integers here exactly, and BLAS adds them exactly: it is an integer reference, too.
    """
    matrix = task.primitive == "matmul"

    def of(quants: Mapping[str, Any], name: str, neutral: float, shape: tuple[int, ...]) -> Floats:
        return _spread(_parameter(quants, name, neutral), shape, matrix, int(name == "src"))

    a, b = (
        (values - of(attr.zero_points, name, 0.0, values.shape)) * of(attr.scales, name, 1.0, values.shape)
        for name, values in (("src", _real(src)), ("wei", _real(wei)))
    )
    product: Callable[[Floats, Floats], Floats] = np.matmul if matrix else _convolver(task)
    sums, magnitude = product(a, b), product(abs(a), abs(b))
    if bias is not None:
        added = bias.astype(np.float64) if matrix else _by_channel(bias.astype(np.float64), task)
        sums, magnitude = sums + added, magnitude + abs(added)
    for op in attr.post_ops:
        name, *rest = (op,) if isinstance(op, str) else op
        if name == "sum":
            assert into is not None
            values = rest[0] * (_real(into) - (rest[1] if len(rest) > 1 else 0))
            sums, magnitude = sums + values, magnitude + abs(values)
        elif name in BINARY:
            values = _real(np.asarray(rest[0].values))
            values = values if matrix or values.ndim != 1 or values.size == 1 else _by_channel(values, task)
            sums, magnitude = _second(name, sums, magnitude, values)
        else:
            sums, magnitude = _lone(name, sums, magnitude, *rest)
    divisor, shift = float(_parameter(attr.scales, "dst", 1)), _parameter(attr.zero_points, "dst", 0)
    shift = shift.reshape(()) if shift.size == 1 else _by_channel(shift, task)
    return sums / divisor + shift, magnitude / divisor + abs(shift)


def _second(name: str, x: Floats, magnitude: Floats, v: Floats) -> tuple[Floats, Floats]:
    """A post-operation of two operands on sums and on what bounds their error."""
    if name in ("add", "sub"):
        return (x + v if name == "add" else x - v), magnitude + abs(v)
    if name in ("mul", "div"):
        factor = v if name == "mul" else 1 / v
        return x * factor, magnitude * abs(factor)
    if name == "prelu":
        return np.where(x > 0, x, x * v), magnitude * np.maximum(1, abs(v))
    bound = np.where(np.isfinite(v), abs(v), 0)  # an infinite one, of a choice, changes nothing
    return (np.maximum(x, v) if name == "max" else np.minimum(x, v)), magnitude + bound


def _lone(name: str, x: Floats, magnitude: Floats, alpha: float = 0, beta: float = 0) -> tuple[Floats, Floats]:
    """A post-operation of a single operand, so."""
    slope = max(1.0, abs(alpha))
    if name == "relu":
        return np.where(x > 0, x, alpha * x), magnitude * slope
    if name == "abs":
        return abs(x), magnitude
    if name == "square":
        return x * x, 3 * magnitude * magnitude
    if name in ("clip", "clip_v2"):
        return np.clip(x, alpha, beta), magnitude
    if name in _GENTLE:
        return np.asarray(ELTWISE[name](x, alpha, beta), np.float64), 1.2 * slope * (magnitude + 1)
    line, bound = alpha * x + beta, abs(alpha) * magnitude + abs(beta)
    if name == "linear":
        return line, bound
    part = np.clip(line, 0, 1)
    return (part, bound) if name == "hardsigmoid" else (x * part, magnitude * (2 + bound))


def steep(task: Task) -> str:
    """Why values are not compared: a post-operation that can make a small error any size."""
    asked = [op.kind for op in modelled_post_ops(task.case.options["attr-post-ops"])]
    found = next((kind for kind in asked if kind in _STEEP), "")
    return f"values not checked: no bound on what {found} makes of a rounding" if found else ""


def _real(array: Array) -> Floats:
    return array.astype(np.float32).astype(np.float64)


def _parameter(quants: Mapping[str, Any], argument: str, neutral: float) -> Floats:
    return np.asarray(neutral) if argument not in quants else _real(np.asarray(quants[argument].values))


def _by_channel(values: Floats, task: Task) -> Floats:
    """One value for each channel, in front of the spatial dimensions."""
    return values.reshape(-1, *[1] * (len(task.output) - 2))


def _spread(values: Floats, shape: tuple[int, ...], matrix: bool, axis: int = 0) -> Floats:
    """Parameters as they meet a tensor: common, for each channel, which are dimension `axis`, or in groups."""
    if values.size == 1:
        return values.reshape(())
    if not matrix:
        return values.reshape(-1, *[1] * (len(shape) - axis - 1))
    if values.ndim == 1:
        return values
    return values.repeat(shape[-2] // values.shape[0], 0).repeat(shape[-1] // values.shape[1], 1)


def _convolver(task: Task) -> Callable[[Floats, Floats], Floats]:
    """Convolution as a sum over taps of matrix products, group by group."""
    s = task.sizes
    strides, dilation, count = s["strides"], s["dilation"], len(s["strides"])
    around = list(zip(s["padding"][:count], s["padding"][count:], strict=True))
    groups, per_group = s["groups"], s["ic"] // s["groups"]

    def convolve(src: Floats, wei: Floats) -> Floats:
        padded = np.pad(src, [(0, 0), (0, 0), *around])
        kernel = wei.shape[2:]
        sides = zip(padded.shape[2:], kernel, strides, dilation, strict=True)
        out = [(size - (k - 1) * d - 1) // step + 1 for size, k, step, d in sides]
        images = padded.reshape(s["mb"], groups, per_group, *padded.shape[2:])
        weights = wei.reshape(groups, s["oc"] // groups, per_group, *kernel)
        total = np.zeros((s["mb"], groups, s["oc"] // groups, prod(out)))
        for tap in np.ndindex(*kernel):
            places = zip(tap, out, strides, dilation, strict=True)
            window = tuple(slice(t * d, t * d + (o - 1) * step + 1, step) for t, o, step, d in places)
            seen = images[(slice(None),) * 3 + window].reshape(s["mb"], groups, per_group, prod(out))
            total += weights[(slice(None),) * 3 + tap] @ seen
        return total.reshape(s["mb"], s["oc"], *out)

    return convolve


def _unit(attr: Attr, bias: Array | None) -> float:
    """The unit that every partial sum is a multiple of, or 0 where scales are no powers of two."""
    unit = 1.0
    if any(op != "relu" and op[0] not in ("sum", "add") for op in attr.post_ops):
        return 0.0
    for argument in ("src", "wei"):
        values = _parameter(attr.scales, argument, 1)
        if (np.frexp(values)[0] != 0.5).any():
            return 0.0
        unit *= float(values.min())
    for scale in (op[1] for op in attr.post_ops if op[0] == "sum"):
        unit = min(unit, abs(scale)) if abs(np.frexp(scale)[0]) == 0.5 else 0.0
    divisor = float(_parameter(attr.scales, "dst", 1))
    return 0.0 if np.frexp(divisor)[0] != 0.5 else min(unit, 1.0) / max(divisor, 1.0)


def _compare(
    task: Task, result: Result, exact: Floats, magnitude: Floats, unit: float
) -> tuple[Floats, Floats | float]:
    """The error of each output, and how much of it the types allow."""
    dst = fmt(task.types[2])
    got = _wide(result.output)
    integer = not fmt(task.types[0]).is_float and not fmt(task.types[1]).is_float
    through_float = result.problem.epilogue.in_float or result.kernel.halves  # whose sums are doubled in f32
    plain = integer and result.problem.epilogue.dst == "s32" and not through_float
    sharp = plain or (unit > 0 and float(magnitude.max()) < _MANTISSA * unit)
    exact = _held(exact, dst)
    rounded = _rounded(exact, dst.name)
    wanted = rounded if sharp or not dst.is_float else exact
    error = np.where(np.isinf(got) & (got == rounded), 0.0, abs(got - wanted))  # beyond the type alike
    if sharp:
        return error, 0.0
    allowed = _bound(task, result.compute_dtype, exact, magnitude)
    return error, allowed if dst.is_float else np.ceil(allowed)


def _rounded(exact: Floats, dtype: str) -> Floats:
    """Outputs rounded once to the destination's type; integers saturate."""
    dst = fmt(dtype)
    if not dst.is_float:
        return np.clip(np.rint(exact), dst.low, dst.high)
    return _held(exact, dst).astype(np.float32).astype(dst.dtype).astype(np.float64)


def _held(exact: Floats, dst: Format) -> Floats:
    """Outputs within a float of at most a byte: own kernels saturate."""
    small = dst.is_float and dst.bits <= 8
    return np.clip(exact, -dst.greatest, dst.greatest) if small else exact


def _wide(output: Array) -> Floats:
    return output.astype(np.float64) if output.dtype.kind in "iu" else _real(output)


def _bound(task: Task, compute: str, exact: Floats, magnitude: Floats) -> Floats:
    """Each input rounded once to the compute type (weights twice: with their scale), every step in f32, then the
    destination's rounding."""
    s = task.sizes
    terms = s["k"] if task.primitive == "matmul" else task.macs // max(prod(task.output), 1)
    inputs = 3 * _rounding(compute) if fmt(compute).is_float else 0.0
    dst = fmt(task.types[2])
    last = _rounding(dst.name) * abs(exact) if dst.is_float else 0.0
    bound: Floats = (inputs + (terms + 8) / _MANTISSA) * magnitude + last
    return bound


def _rounding(dtype: str) -> float:
    """The relative error of a rounding to nearest, doubled for a type in wider lanes (tf32), which units truncate."""
    form = fmt(dtype)
    return 2.0 ** -(form.mantissa_bits + (0 if form.container else 1))
