"""Programs of primitives that look at windows of images: pooling, resampling, response normalization, transposed
convolution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from isa_models import InvalidArgument, Unimplemented
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.windows import window_count
from simdnn.libraries import OperatorForm
from simdnn.networks.types import is_float, label
from simdnn.operators.graph_builder import Ending, GraphBuilder, OperatorGraph, checked, numeric, row_of, scale_of
from simdnn.primitives import arrays
from simdnn.primitives.checks import around, integer, one_of, padding_of, pair, sides, single, three

POOLING = ("max", "avg_include_padding", "avg_exclude_padding")
RESAMPLING = ("nearest", "linear")
RESPONSES = ("across_channels", "within_channel")
_IMAGE = ("ID", "IH", "IW")
_TAPS = ("KD", "KH", "KW")
Numbers = int | Sequence[int]


def axes_of(what: str, value: Any, rank: int, least: int = 1) -> list[int]:
    """A number for each of `rank` spatial axes, from one integer or as many.

    >>> axes_of("strides", 2, 1), axes_of("strides", (1, 2, 2), 3)
    ([2], [1, 2, 2])
    """
    if rank == 2:
        return list(pair(what, value, least))
    if rank == 3:
        return list(three(what, value, least))
    return [single(what, value, least)]


def padding_around(value: Any, rank: int) -> list[int]:
    """Padding ahead of each spatial axis, then behind each.

    >>> padding_around(1, 1), padding_around((0, 1), 1), padding_around((1, 0), 2)
    ([1, 1], [0, 1], [1, 0, 1, 0])
    """
    if rank == 2:
        return list(padding_of(value))
    if rank == 3:
        return [size for side in around(value) for size in side]
    return list(sides(value))


def taps_of(src: Array, options: Mapping[str, Any]) -> dict[str, list[int]]:
    """The taps of a transposed convolution as lists, padding ahead of each axis and behind."""
    rank = spatial_rank(src)
    return {
        "strides": axes_of("strides", options.get("strides", 1), rank),
        "dilation": axes_of("dilation", options.get("dilation", 1), rank),
        "output_padding": axes_of("output_padding", options.get("output_padding", 0), rank, 0),
        "padding": padding_around(options.get("padding", 0), rank),
    }


def pooled(src: Array, options: Mapping[str, Any]) -> dict[str, list[int]]:
    """The windows of a pooling as lists, padding ahead of each axis and behind, and the output's sizes."""
    rank = spatial_rank(src)
    found = {name: axes_of(name, options.get(name, 1), rank) for name in ("kernel", "strides", "dilation")}
    pads = padding_around(options.get("padding", 0), rank)
    every = zip(src.shape[2:], *found.values(), pads[:rank], pads[rank:], strict=True)
    out = [window_count(n, k, step, gap, a + b) for n, k, step, gap, a, b in every]
    return {**found, "padding": pads, "out": out}


def spatial_rank(src: Array) -> int:
    """How many spatial dimensions a source (N, C, …) has: one to three."""
    arrays.type_of("src", src, ("s32",))
    rank = src.ndim - 2
    if rank not in (1, 2, 3):
        arrays.check_shape("src", src, ("N", "C", *_IMAGE[1:]))
    arrays.check_shape("src", src, ("N", "C", *_IMAGE[3 - rank :]))
    return rank


def pooling(
    src: Array,
    end: Ending,
    *,
    kernel: Numbers,
    algorithm: str = "max",
    strides: Numbers = 1,
    padding: Numbers = 0,
    dilation: Numbers = 1,
) -> OperatorGraph:
    one_of("algorithm", algorithm, POOLING)
    builder = GraphBuilder(checked({"src": src}))
    rank = spatial_rank(src)
    windows = {
        "kernel_shape": axes_of("kernel", kernel, rank),
        "strides": axes_of("strides", strides, rank),
        "dilations": axes_of("dilation", dilation, rank),
        "pads": padding_around(padding, rank),
    }
    own = label(src.dtype)
    greatest = builder.own if end.exactly and is_float(src.dtype) else builder.add
    of_floats = {}
    if end.exactly and is_float(src.dtype):
        of = fmt(end.dst or own if end.by_reference else "f32")
        of_floats["least"] = -of.greatest if of.is_float else float(of.low)
    exact = not (end.by_reference and own == "s32")  # a reference passes through f32
    if (
        exact
        and algorithm == "max"
        and not end.scales
        and not end.post_ops
        and end.dst in (None, own)
        and end.into is None
    ):
        return builder.finished(greatest("MaxPool", "src", **windows, **of_floats), own)
    direct = end.exactly and not end.by_reference and not is_float(src.dtype)
    whole = direct and own == "s32" and algorithm != "max"
    x = "src" if whole else builder.floats("src", scale_of(end.scales, "src", ("src", "dst")))
    if algorithm == "max":
        x = greatest("MaxPool", x, **windows, **of_floats)
    else:
        average = builder.own if direct else builder.add
        x = average("AveragePool", x, **windows, count_include_pad=int(algorithm == "avg_include_padding"))
    return builder.ended(x, end, own, scale_of(end.scales, "dst", ("src", "dst")))


def resampling(src: Array, end: Ending, *, size: Numbers, algorithm: str = "nearest") -> OperatorGraph:
    one_of("algorithm", algorithm, RESAMPLING)
    builder, rank = GraphBuilder(checked({"src": src})), spatial_rank(src)
    x = builder.floats("src", scale_of(end.scales, "src", ("src", "dst")))
    if end.exactly:
        sizes, last = axes_of("size", size, rank), int(end.last)
        order = end.form.order if end.form else ""
        x = builder.own("Resize", x, sizes=sizes, mode=algorithm, channels_last=last, how=order)
        return builder.ended(x, end, label(src.dtype), None)
    wanted = builder.constant(np.array([*src.shape[:2], *axes_of("size", size, rank)], np.int64))
    how = {"mode": algorithm, "coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}
    x = builder.add("Resize", x, "", "", wanted, **how)
    return builder.ended(x, end, label(src.dtype), scale_of(end.scales, "dst", ("src", "dst")))


def lrn(
    src: Array,
    end: Ending,
    *,
    size: int,
    algorithm: str = "across_channels",
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
) -> OperatorGraph:
    across = one_of("algorithm", algorithm, RESPONSES) == "across_channels"
    before = (integer("size", size) - 1) // 2
    builder, rank = GraphBuilder(checked({"src": src}, ("f32", "bf16", "f16")), form=end.form), spatial_rank(src)
    one_of("dst", end.dst or label(src.dtype), (label(src.dtype),))
    axes = [1] if across else list(range(2, 2 + rank))
    order, fused = end.form.order if end.form else "rows", not builder.by_reference
    x, count = builder.floats("src"), np.float32(size ** len(axes))
    behind = size - 1 - before if end.form and fused and not across else before  # which its kernel for pixels has
    sides = {"before": before, "behind": behind}
    total = builder.own("SquaresAround", x, axes=axes, **sides, order=order, fused=int(fused))
    share, bias, power = numeric("alpha", alpha), numeric("k", k), float(np.float32(numeric("beta", beta)))
    if fused:
        each = builder.number(float(np.float32(share) / count))
        base = builder.own("MultiplyAdd", total, each, builder.number(bias))
    else:
        mean = builder.add("Div", builder.add("Mul", total, builder.number(share)), builder.number(float(count)))
        base = builder.add("Add", mean, builder.number(bias))
    return builder.ended(_over_power(builder, x, base, power, fused), end, label(src.dtype), None)


def _over_power(builder: GraphBuilder, x: str, base: str, power: float, divides: bool) -> str:
    """x divided by a power of `base`, or times its inverse: three quarters are drawn as roots."""
    if power == 0.75 and divides:
        cube = builder.add("Mul", builder.add("Mul", base, base), base)
        return builder.add("Div", x, builder.add("Sqrt", builder.add("Sqrt", cube)))
    one = builder.number(1.0)
    if power == 0.75:
        below = builder.add("Mul", builder.add("Sqrt", base), base)
        return builder.add("Mul", x, builder.add("Sqrt", builder.add("Div", one, below)))
    if divides:
        return builder.add("Div", x, base if power == 1 else builder.function("pow", base, 1.0, power))
    return builder.add("Mul", x, builder.add("Div", one, builder.function("pow", base, 1.0, power)))


# -- transposed convolution -------------------------------------------------------------------------------------------
def deconvolution(
    src: Array,
    weights: Array,
    end: Ending,
    bias: Array | None = None,
    *,
    strides: Numbers = 1,
    padding: Numbers = 0,
    dilation: Numbers = 1,
    groups: int = 1,
    output_padding: Numbers = 0,
) -> OperatorGraph:
    sources = checked({"src": src, "weights": weights})
    rank, groups = spatial_rank(src), integer("groups", groups)
    arrays.check_shape("weights", weights, ("OC", "IC/G", *_TAPS[3 - rank :]))
    oc, inside = weights.shape[:2]
    if src.shape[1] != inside * groups or oc % groups:
        raise InvalidArgument(f"src {src.shape} and weights {weights.shape} with groups={groups}: channels do not fit")
    if bias is not None:
        sources["bias"] = _bias_of(bias, oc)
    steps, gaps = axes_of("strides", strides, rank), axes_of("dilation", dilation, rank)
    pads, more = padding_around(padding, rank), axes_of("output_padding", output_padding, rank, 0)
    _check_output(src, weights, steps, gaps, pads, padding, more)
    whole, widened = _integers_or_widened(src, weights)
    builder = GraphBuilder(sources)
    where = {"strides": steps, "dilations": gaps, "pads": pads, "group": groups, "output_padding": more, "wide": 1}
    if end.form is not None and end.form.order:
        out = [size + m for size, m in zip(_sizes(src, weights, steps, gaps, pads), more, strict=True)]
        sums = _ordered_sums(builder, end.form, {**where, "pads": pads[:rank], "out": out})
    else:
        turned = _turned(builder, builder.floats("weights") if widened else "weights", weights.shape, groups)

        def sums(x: str, exactly: bool = False) -> str:
            return builder.add("ConvTranspose", x, turned, **where)

    x = sums("src")
    points = _points(end, src, oc)
    by_reference = end.exactly and end.by_reference
    if "src" in points:
        seen = _compensation(builder, points["src"], src, sums)
        x = _less_point(builder, x, seen, points["src"], src.shape[1]) if by_reference else builder.add("Sub", x, seen)
    if end.form is not None and end.form.lifted:
        x = builder.own("LiftedSums", x, "weights")
    elif whole and not (by_reference and "src" in points):
        x = builder.add("Cast", x, to=1)
    scales = end.scales or {}
    dst_scale = scale_of({n: v for n, v in scales.items() if n != "wei"}, "dst", ("src", "dst"))
    x = _scaled(builder, x, scales, oc, rank, apart=end.form is not None and not end.form.merged)
    x = x if bias is None else builder.add("Add", x, _by_channel(builder, "bias", rank))
    behind = points.get("dst", 0)
    moved = {"dst": behind.reshape(-1, *[1] * rank) if isinstance(behind, np.ndarray) else behind or None}
    inverted = end.exactly and not end.by_reference and dst_scale is not None  # kernels multiply by it
    if inverted:
        dst_scale = float(np.float32(1) / np.float32(dst_scale))
    usual = "f32" if whole else label(src.dtype)
    return builder.ended(x, replace(end, zero_points=moved), usual, dst_scale, multiplied=inverted)


def _integers_or_widened(src: Array, weights: Array) -> tuple[bool, bool]:
    """Whether integers are multiplied, and whether narrower weights become f32; else both have one float type."""
    whole = not is_float(src.dtype)
    widened = src.dtype == np.float32 and label(weights.dtype) in ("bf16", "f16")
    if whole and label(weights.dtype) != "s8" or not whole and not widened and src.dtype != weights.dtype:
        works = "one float type, f32 x bf16 or f16, or u8 or s8 x s8"
        raise Unimplemented(f"{label(src.dtype)} x {label(weights.dtype)}; what works: {works}")
    return whole, widened


def _bias_of(bias: Array, channels: int) -> Array:
    """A bias as f32, which every type of it is converted to first."""
    found = arrays.bias_of(bias)
    if found is None or found.shape != (channels,):
        raise InvalidArgument(f"bias of {bias.dtype} {bias.shape}; one value a channel is needed: ({channels},)")
    return found.astype(np.float32)


def _check_output(
    src: Array,
    weights: Array,
    steps: Sequence[int],
    gaps: Sequence[int],
    pads: Sequence[int],
    padding: Any,
    more: Sequence[int],
) -> None:
    names = ("planes", "rows", "columns")[3 - len(steps) :]
    for name, size, behind in zip(names, _sizes(src, weights, steps, gaps, pads), more, strict=True):
        if size + behind < 1:
            raise InvalidArgument(f"padding={padding!r}: the output would have {size + behind} {name}")


def _sizes(src: Array, weights: Array, steps: Sequence[int], gaps: Sequence[int], pads: Sequence[int]) -> list[int]:
    """The output's sizes without output padding."""
    rank = len(steps)
    every = zip(src.shape[2:], weights.shape[2:], steps, gaps, pads[:rank], pads[rank:], strict=True)
    return [(n - 1) * step + (k - 1) * gap + 1 - a - b for n, k, step, gap, a, b in every]


def _ordered_sums(builder: GraphBuilder, form: OperatorForm, where: Mapping[str, Any]) -> Callable[..., str]:
    """A function to add a source's sums in the order of a library's kernel, or `exactly`, without saturating pairs."""
    builder.form = form
    how = {**where, "sizes": list(form.sizes)}

    def sums(x: str, exactly: bool = False) -> str:
        return builder.own("TransposedSums", x, "weights", **how, order="exact" if exactly else form.order)

    return sums


def _turned(builder: GraphBuilder, weights: str, shape: tuple[int, ...], groups: int) -> str:
    """Weights of a `shape` (OC, IC/G, …) as ONNX keeps them: (IC, OC/G, …)."""
    oc, inside, *kernel = shape
    split = builder.add("Reshape", weights, builder.constant(np.array([groups, oc // groups, inside, *kernel])))
    order = [0, 2, 1, *range(3, 3 + len(kernel))]
    flat = builder.constant(np.array([inside * groups, oc // groups, *kernel]))
    return builder.add("Reshape", builder.add("Transpose", split, perm=order), flat)


def _points(end: Ending, src: Array, oc: int) -> dict[str, int | Array]:
    """The zero points of source and destination, one or one a channel; those that are 0 left out."""
    points, channels = end.zero_points or {}, {"src": src.shape[1], "dst": oc}
    found: dict[str, int | Array] = {}
    for name, value in points.items():
        one_of("zero_points of", name, ("src", "dst"))
        if is_float(src.dtype):
            raise InvalidArgument(f"zero_points of a deconvolution of {label(src.dtype)}; integers have some")
        if not isinstance(value, np.ndarray) or value.ndim == 0:
            if point := integer(f"zero_points[{name!r}]", value if value is not None else 0, -(1 << 31)):
                found[name] = point
        elif value.shape != (channels[name],) or value.dtype.kind not in "iu":
            raise InvalidArgument(f"zero_points[{name!r}] of {value.dtype} {value.shape}; integers ({channels[name]},)")
        else:
            found[name] = value
    return found


def _compensation(builder: GraphBuilder, point: int | Array, src: Array, sums: Callable[..., str]) -> str:
    """Sums over a source of nothing but its zero points: s32, of one image; of those by channel without pairs that
    saturate.
    """
    shape = (1, *src.shape[1:])
    if isinstance(point, int):
        ones = sums(builder.constant(np.ones(shape, np.uint8)))
        return builder.add("Mul", ones, builder.constant(np.array(point, np.int32)))
    dtype = np.int8 if point.min() < 0 else np.uint8
    if (point != point.astype(dtype)).any():
        raise Unimplemented(f"zero points by channel from {point.min()} to {point.max()}; what works: s8, or u8")
    image = np.broadcast_to(point.astype(dtype).reshape(-1, *[1] * (src.ndim - 2)), shape)
    return sums(builder.constant(np.ascontiguousarray(image)), exactly=True)


def _less_point(builder: GraphBuilder, x: str, seen: str, point: int | Array, channels: int) -> str:
    """Sums `x` less those `seen` over nothing but the source's zero point, as a reference kernel takes them off."""
    each = np.broadcast_to(np.asarray(point, np.int32), channels)
    return builder.own("SumsLessPoint", x, seen, "weights", builder.constant(np.ascontiguousarray(each)))


def _by_channel(builder: GraphBuilder, row: str, rank: int) -> str:
    """A row (OC,) as it broadcasts over (N, OC, …)."""
    return builder.add("Reshape", row, builder.constant(np.array([-1, *[1] * rank])))


def _scaled(builder: GraphBuilder, x: str, scales: Mapping[str, Any], oc: int, rank: int, apart: bool) -> str:
    """Sums times the scales of source and weights; those of the weights may be one an output channel.

    `apart`: one after the other, as oneDNN does it, and not by their product.
    """
    wei, known = scales.get("wei"), ("src", "wei", "dst")
    rows = isinstance(wei, np.ndarray) and wei.ndim > 0
    common = {name: value for name, value in scales.items() if not (rows and name == "wei")}
    parts = [scale_of(common, name, known) for name in ("src", "wei")]
    given = [part for part in parts if part is not None]
    if rows:
        builder.sources["wei_scales"] = row_of("scales['wei']", wei, oc)
        row = _by_channel(builder, "wei_scales", rank)
        if given and not apart:
            return builder.add("Mul", x, builder.add("Mul", row, builder.number(given[0])))
        x = x if not given else builder.add("Mul", x, builder.number(given[0]))
        return builder.add("Mul", x, row)
    for factor in given if apart else [float(np.prod(np.array(given, np.float32)))] * bool(given):
        x = builder.add("Mul", x, builder.number(factor))
    return x
