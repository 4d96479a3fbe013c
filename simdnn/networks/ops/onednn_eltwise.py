"""Operators that graphs of primitives are written with: oneDNN's formulas and orders of sums, with its roundings.

ONNX's operators of these names have formulas of their own (`activation`, `elementwise`, `reduction`); last places may
differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod

import numpy as np

from isa_models import Unimplemented
from isa_models.readings.arrays import Array
from simdnn.kernels.common.activations import exp, function_of, log, power_of
from simdnn.kernels.common.expression import Element
from simdnn.kernels.common.masks import negative, opposite
from simdnn.kernels.common.pointwise import OF_KERNELS, OF_REFERENCE, PLAIN, function_on_gpus
from simdnn.kernels.common.postops import ELTWISE, PostOp
from simdnn.kernels.common.resample import MOST_PIXELS, ResampleProblem, places_of, resampling
from simdnn.networks.between_products import Formula
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops import extremes
from simdnn.networks.ops.elementwise import by_numpy
from simdnn.networks.ops.onednn_sums import in_two_lanes
from simdnn.networks.ops.pool import PoolWindows
from simdnn.networks.ops.quantized import S32_IN_F32, bounded
from simdnn.networks.ops.registry import OWN, operator
from simdnn.networks.ops.shape import view
from simdnn.networks.shadows import shadow
from simdnn.networks.types import bits, element, is_float, limits

_AXES = 3  # planes, rows, columns
_LARGEST = float(np.finfo(np.float32).max)


def formula(name: str, alpha: float, beta: float, lanes: int, reference: bool = False) -> Formula:
    """A function by oneDNN's name for registers of `lanes` lanes; 0 on GPUs, which look nothing up in registers.
    `reference`: as its loops over elements have it.
    """
    op = PostOp(name, len(ELTWISE[name]), power=power_of(beta) if name == "pow" else "")
    plain = (OF_REFERENCE if reference else OF_KERNELS if lanes else PLAIN).get(name)
    found = plain or (function_of(op, lanes, reference) if lanes else function_on_gpus(op))
    numbers = (alpha, beta)[: op.numbers]
    return lambda x: found(x, *(x.same(number) for number in numbers))


@operator("Eltwise", domain=OWN)
def eltwise(k: Kernels, node: Node, x: Array) -> Array:
    name = node.text("function")
    lanes = 0 if k.target.gpu else k.words.lanes
    numbers = node.number("alpha"), node.number("beta")
    return k.map(formula(name, *numbers, lanes, bool(node.integer("reference", 0))), x, name=name)


@operator("Quantize", domain=OWN)
def quantize(k: Kernels, node: Node, x: Array) -> Array:
    """The nearest integer, saturated; how a NaN fares by a name of `simdnn.libraries.model.INTEGERS`."""
    dtype = element(node.integer("to"))
    low, high = limits(dtype)
    if bits(dtype) < 8:
        return by_numpy(k, lambda v: np.clip(np.rint(v), low, high).astype(np.int64), x, steps=4, dst=dtype)
    name = node.text("how")
    ends = S32_IN_F32 if name == "bounded" and bits(dtype) == 32 else (low, high)
    return k.map(lambda v: _INTEGERS[name](v, *ends), x, dst=dtype, name="quantize")


def _bounded(v: Element, low: float, high: float) -> Element:
    return bounded(v, low, high).nearest()


def _as_greatest(v: Element, low: float, high: float) -> Element:
    return v.maximum(float(low)).bounded_by(float(high)).nearest()


def _as_zero(v: Element, low: float, high: float) -> Element:
    is_nan = negative(v.same(float("inf")).read_as("s32") - v.abs().read_as("s32"))
    return bounded(v.bits("and", opposite(is_nan)), low, high).nearest()


def _converted(v: Element, low: float, high: float) -> Element:
    return v.nearest() if low else v.nearest().at_least(0)


_INTEGERS = {"bounded": _bounded, "greatest": _as_greatest, "zero": _as_zero, "converted": _converted}


@operator("PRelu", domain=OWN)
def prelu(k: Kernels, node: Node, x: Array, slopes: Array) -> Array:
    """x, or x times a slope: where it is "less" than 0, or `of`, where its "sign" is set or it is "no greater"."""
    of = node.text("of", "less")
    return k.map(lambda v, s: _SLOPES[of](v, s), x, slopes, name="prelu")


def _where(is_so: Callable[[Element], Element]) -> Callable[[Element, Element], Element]:
    """x, or x times a slope where a formula has all ones."""
    return lambda x, s: x.bits("xor", x.bits("xor", x * s).bits("and", is_so(x)))


def _is_less(x: Element) -> Element:
    """All ones where x < 0: the sign bit is set, and x is no zero."""
    return (-(x.abs().read_as("s32"))).bits("and", x.read_as("s32")).shift("sar", 31)


_SLOPES = {
    "less": _where(_is_less),
    "sign": _where(lambda x: x.read_as("s32").shift("sar", 31)),
    "no greater": PLAIN["relu"],
}


@operator("MultiplyAdd", domain=OWN)
def multiply_add(k: Kernels, node: Node, x: Array, factor: Array, addend: Array) -> Array:
    """x * factor + addend, rounded once."""
    return k.map(lambda a, b, c: a.fma(b, c), x, factor, addend, name="scale")


@operator("WithoutDenormals", domain=OWN)
def without_denormals(k: Kernels, node: Node, x: Array) -> Array:
    """f32 with zeros in place of denormals, as instructions of bf16 and C++'s conversion have them: no time of its
    own.
    """
    small = np.abs(x) < np.finfo(np.float32).tiny if k.values else False
    return np.where(small, np.copysign(np.float32(0), x), x) if np.any(small) else x


@operator("Accumulate", domain=OWN)
def accumulate(k: Kernels, node: Node, x: Array, held: Array) -> Array:
    """x + scale * held, rounded once."""
    scale = node.number("scale")
    return k.map(lambda a, b: b.fma(scale, a), x, held, name="sum")


@operator("Softmax", domain=OWN)
def softmax(k: Kernels, node: Node, x: Array) -> Array:
    """e**(x - greatest) times 1 over their sum, or x - greatest - log(sum): oneDNN's order, on a CPU.

    `channels_last`: the second dimension is the innermost one in memory, by which registers are filled.
    """
    if node.integer("channels_last", 0):
        axis = node.integer("axis", -1) % x.ndim
        along = {0: 0, 1: x.ndim - 1}.get(axis, axis - 1)
        return np.moveaxis(_softmax(k, np.moveaxis(x, 1, -1), along, node.integer("logarithm", 0)), -1, 1)
    return _softmax(k, x, node.integer("axis", -1), node.integer("logarithm", 0))


def _softmax(k: Kernels, x: Array, axis: int, logarithm: int) -> Array:
    axes, lanes = [axis], k.words.lanes
    found = _greatest(x, axis, lanes) if k.values and extremes.is_special(x) else None
    if found is not None and _is_one_a_line(found, axis, bool(logarithm)):
        first = found.take([0], axis)  # a pass like any other, of a kernel with those behind it
        top = k.reduce("max", x, axes, values=lambda: first)
    else:
        top = k.reduce("max", x, axes)
        top = top if found is None else found
    powers = k.map(lambda v, t: exp(v - t), x, top, name="exp")
    total = k.reduce("sum", powers, axes, order="turns, rest first")
    if logarithm:
        total = k.map(lambda s: log(s, lanes), total, name="log")
        return k.map(lambda v, t, s: v - t - s, x, top, total, name="logsoftmax")
    return k.map(lambda v, s: v * s, powers, k.map(lambda s: 1.0 / s, total, name="reciprocal"), name="mul")


def _greatest(x: Array, axis: int, lanes: int) -> Array:
    """The greatest of each line as the library's softmax finds it, along the innermost axis in registers; it may differ
    from lane to lane where a NaN is there.
    """
    if prod(x.shape[axis % x.ndim + 1 :]) == 1:
        return extremes.in_turns(x.reshape(-1, x.shape[axis]), lanes, -_LARGEST).reshape(x.shape)
    found = extremes.chained("max", extremes.lines_of(x, [axis]), -_LARGEST)
    return np.expand_dims(found.reshape([n for i, n in enumerate(x.shape) if i != axis]), axis)


def _is_one_a_line(greatest: Array, axis: int, logarithm: bool) -> bool:
    """Whether lanes agree on a line's greatest: no NaN, and no zero whose sign a logarithm may show."""
    agree = bool((greatest == greatest.take([0], axis)).all())
    return agree and not (logarithm and bool((greatest == 0).any()))


@operator("LayerNormalization", domain=OWN)
def layer_normalization(
    k: Kernels,
    node: Node,
    x: Array,
    scale: Array | None = None,
    shift: Array | None = None,
    mean: Array | None = None,
    variance: Array | None = None,
) -> Array:
    """(x - mean) * (1 / sqrt(variance + epsilon)) * scale + shift over the last dimension: oneDNN's order, on a CPU.

    Statistics are of (…, 1); without `variance` they are found. `rms`: nothing is subtracted. `simple`: scale times the
    inverse first.
    """
    epsilon, rms, simple = node.number("epsilon", 1e-5), node.integer("rms", 0), node.integer("simple", 0)
    averaged = _averaged_by_lines if simple else _averaged_in_rounds
    if variance is None and not rms:
        mean = averaged(k, x, False)
    unit = x if mean is None else k.map(lambda v, m: v - m, x, mean, name="sub")
    spread = averaged(k, unit, True) if variance is None else variance
    inverse = k.map(lambda v: 1.0 / (v + epsilon).sqrt(), spread, name="rsqrt")
    if simple:
        factor = inverse if scale is None else k.map(lambda i, s: s * i, inverse, scale, name="mul")
        unit = k.map(lambda c, f: c * f, unit, factor, name="mul")
        return unit if shift is None else k.map(lambda u, b: u + b, unit, shift, name="shift")
    unit = k.map(lambda c, i: c * i, unit, inverse, name="mul")
    if scale is not None and shift is not None:
        return k.map(lambda u, s, b: u.fma(s, b), unit, scale, shift, name="scale")
    if scale is not None:
        return k.map(lambda u, s: u * s, unit, scale, name="scale")
    return unit if shift is None else k.map(lambda u, b: u + b, unit, shift, name="shift")


def _averaged_in_rounds(k: Kernels, x: Array, square: bool) -> Array:
    """Means along lines, or of squares, in rounds of four registers."""
    return k.reduce("sum_square" if square else "sum", x, [-1], divisor=x.shape[-1], order="rounds")


def _averaged_by_lines(k: Kernels, x: Array, square: bool) -> Array:
    """Means along lines, or of squares, by a compiler's loop: even and odd elements apart."""
    x, count = k.map(lambda v: v * v, x, name="square") if square else x, x.shape[-1]
    total = view(k, in_two_lanes(k, view(k, x, (x.size // count, count))), (*x.shape[:-1], 1))
    return k.map(lambda v: v / float(count), total, name="div")


@operator("MaxPool", domain=OWN)
def max_pool(k: Kernels, node: Node, x: Array) -> Array:
    """The greatest of each window of floats, and of a number that is the `least`; of two zeros the first."""
    found = PoolWindows(k, node, x).run(k, "max", None, first=True)
    least = np.float32(node.number("least"))
    return np.where(found > least, found, least).astype(x.dtype) if k.values else found


@operator("AveragePool", domain=OWN)
def average_pool(k: Kernels, node: Node, x: Array) -> Array:
    """Sums of windows times 1 over the number of taps that count: oneDNN's means of integers, channels last. Sums of
    s32 wrap; those of bytes are exact, as f32.
    """
    windows = PoolWindows(k, node, x)
    counts = windows.counts(bool(node.integer("count_include_pad", 0)))
    parts = np.float32(1) / counts.astype(np.float32)
    if not is_float(x.dtype):
        return k.map(lambda v, p: v.to_float() * p, windows.sums(k), parts, dst=parts.dtype, name="mul")
    sums = windows.run(k, "sum", None)
    return k.map(lambda v, p: v * p, sums, parts, name="mul")


@operator("Resize", domain=OWN)
def resize(k: Kernels, node: Node, x: Array) -> Array:
    """Images (N, C, …) of another size, places in f32: the nearest element, or a blend of the two on each axis.

    `channels_last`: axis by axis, the last one first; else all corners, each times the product of its shares. `how`
    says otherwise: "corner by corner", each times one share after the other, or "plane by plane", axis by axis from
    planes on, all products rounded.
    """
    sizes, axes = node.integers("sizes"), range(2, x.ndim)
    places = [_places(size, x.shape[axis]) for size, axis in zip(sizes, axes, strict=True)]
    if node.text("mode") == "nearest":
        half = np.float32(0.5)
        rounded = [np.copysign(np.floor(np.abs(place) + half), place) for place in places]  # ties away from zero
        nearest = [np.clip(r.astype(int), 0, x.shape[a] - 1) for r, a in zip(rounded, axes, strict=True)]
        if node.integer("channels_last", 0) and (found := _resampled(k, x, [(one,) for one in nearest])) is not None:
            return found
        return _taken(k, x, nearest, x.shape[1] if node.integer("channels_last", 0) else 1)
    lows = [np.maximum(place.astype(int), 0) for place in places]
    highs = [
        np.minimum(np.where(place < 0, 0, np.ceil(place)).astype(int), x.shape[axis] - 1)
        for place, axis in zip(places, axes, strict=True)
    ]
    shares = [np.abs(place - low.astype(np.float32)) for place, low in zip(places, lows, strict=True)]
    pairs = [(np.float32(1) - share, share) for share in shares]
    if how := node.text("how", ""):
        return (_corner_by_corner if how == "corner by corner" else _plane_by_plane)(k, x, lows, highs, pairs)
    if node.integer("channels_last", 0):
        found = _resampled(k, x, [*zip(lows, highs, strict=True)], pairs)
        return _axis_by_axis(k, x, lows, highs, pairs) if found is None else found
    corners = list(product((0, 1), repeat=len(sizes)))
    taken = [_taken(k, x, [(lo, hi)[bit] for bit, lo, hi in zip(bits, lows, highs, strict=True)]) for bits in corners]
    weights = [_spread([pair[bit] for bit, pair in zip(bits, pairs, strict=True)]) for bits in corners]
    total = k.map(lambda v, w: v * w, taken[0], weights[0], name="resize")
    for value, weight in zip(taken[1:], weights[1:], strict=True):
        total = k.map(lambda v, w, t: v.fma(w, t), value, weight, total, name="resize")
    return total


def _resampled(
    k: Kernels, x: Array, indices: Sequence[tuple[Array, ...]], shares: Sequence[tuple[Array, Array]] = ()
) -> Array | None:
    """The one kernel of images of two dimensions whose sizes are in a ratio of few pixels; None for others, and where
    it asks for more registers than there are.
    """
    if len(indices) != 2 or x.dtype != np.float32 or 0 in x.shape:
        return None
    size = (x.shape[2], x.shape[3])
    out = (len(indices[0][0]), len(indices[1][0]))
    rows, columns = (places_of(n, o, at) for n, o, at in zip(size, out, indices, strict=True))
    if rows is None or columns is None or len(rows) * len(columns) > MOST_PIXELS:
        return None
    problem = ResampleProblem(x.shape[0], x.shape[1], size, out, (rows, columns))
    try:
        run = k.called("resize", resampling, problem)
    except Unimplemented:  # the shares of its pixels take more registers than the unit has
        return None
    if not k.values:
        return shadow((*x.shape[:2], *out), x.dtype)
    given = {"src": np.ascontiguousarray(x.transpose(0, 2, 3, 1))}
    given |= {name: np.stack(pair, 1) for name, pair in zip(("rows", "columns"), shares, strict=False)}
    found: Array = run(given, prod((*x.shape[:2], *out)))
    return np.ascontiguousarray(found.reshape(x.shape[0], *out, x.shape[1]).transpose(0, 3, 1, 2))


def _places(out: int, size: int) -> Array:
    """Where each output element lies in the input, each step rounded to f32."""
    half, i = np.float32(0.5), np.arange(out, dtype=np.float32)
    return np.asarray((i + half) * np.float32(size) / np.float32(out) - half, np.float32)


def _taken(k: Kernels, x: Array, indices: Sequence[Array], run: int = 1) -> Array:
    """Elements of images by their places on each axis; `run` of them lie beside each other in memory."""
    shape = (*x.shape[:2], *(len(index) for index in indices))
    if not k.values:
        return k.moved(shadow(shape, x.dtype), run)
    found = x
    for axis, index in enumerate(indices, 2):
        found = found.take(index, axis)
    return k.moved(np.ascontiguousarray(found), run)


def _spread(parts: Sequence[Array]) -> Array:
    """Products of shares on each axis, the outermost first, as they broadcast over images."""
    rank = len(parts)
    total = np.ones([1] * rank, np.float32)
    for axis, part in enumerate(parts):
        total = np.asarray(total * part.reshape([-1 if a == axis else 1 for a in range(rank)]), np.float32)
    return total


def _along(part: Array, axis: int, rank: int) -> Array:
    """Shares of one axis as they broadcast over images."""
    return part.reshape([-1 if a == axis else 1 for a in range(rank)])


def _corner_by_corner(
    k: Kernels, x: Array, lows: Sequence[Array], highs: Sequence[Array], pairs: Sequence[tuple[Array, Array]]
) -> Array:
    """Sums of corners, each times its shares, one after the other, all rounded."""
    rank, total = len(lows), None
    for corner in product((0, 1), repeat=rank):
        value = _taken(k, x, [(lo, hi)[bit] for bit, lo, hi in zip(corner, lows, highs, strict=True)])
        for axis, bit in enumerate(corner):
            value = k.map(lambda v, w: v * w, value, _along(pairs[axis][bit], axis, rank), name="resize")
        if total is None and k.values:
            value = value + np.float32(0)  # sums begin with 0: -0 becomes 0
        total = value if total is None else k.map(lambda a, b: a + b, total, value, name="resize")
    assert total is not None
    return total


def _plane_by_plane(
    k: Kernels, x: Array, lows: Sequence[Array], highs: Sequence[Array], pairs: Sequence[tuple[Array, Array]]
) -> Array:
    """a * share + b * (1 - share) on the first axis, then on the one behind, all rounded. Axes that images lack are
    there with shares of 1 and 0, so that an infinity becomes a NaN.
    """
    rank = len(lows)
    if rank < _AXES and k.values and not np.isfinite(x).all():
        x = np.where(np.isfinite(x), x, np.float32(np.nan))
    for axis in range(rank):
        whole = [np.arange(size) for size in x.shape[2:]]
        low, high = (_taken(k, x, [*whole[:axis], index[axis], *whole[axis + 1 :]]) for index in (lows, highs))
        share = _along(pairs[axis][0], axis, rank)
        x = k.map(lambda a, b, p, q: a * p + b * q, low, high, share, np.float32(1) - share, name="resize")
    return x


def _axis_by_axis(
    k: Kernels, x: Array, lows: Sequence[Array], highs: Sequence[Array], pairs: Sequence[tuple[Array, Array]]
) -> Array:
    """a * share + b * other on the last axis, then on the one before; the second product is not rounded."""
    rank = len(lows)
    for axis in reversed(range(rank)):
        whole = [np.arange(size) for size in x.shape[2:]]
        low, high = (
            _taken(k, x, [*whole[:axis], index[axis], *whole[axis + 1 :]], x.shape[1]) for index in (lows, highs)
        )
        left, right = (part.reshape([-1 if a == axis else 1 for a in range(rank)]) for part in pairs[axis])
        x = k.map(lambda a, b, p, q: b.fma(q, a * p), low, high, left, right, name="resize")
    return x
