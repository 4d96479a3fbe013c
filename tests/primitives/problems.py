"""Random problems whose exact result f32 holds, and that result: what every kernel must give, whatever its order.

Integers are small and scales powers of two, so that no sum rounds and no pair of products saturates; s8 weights are
even, so that halving them loses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from isa_models.machines.shipped import gpu_machine_names
from simdnn import Attr
from simdnn.kernels.common.problems import ConvProblem

TYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "u8": np.uint8, "s8": np.int8, "s32": np.int32}
TARGETS = [
    (machine, isa)
    for machine, isas in {
        "skx": (None, "avx2"),
        "clx": (None, "avx512_core", "avx2"),
        "icx": (None,),
        "zen4": (None, "avx512_core_bf16", "avx512_core_vnni", "avx512_core", "avx2"),
        **{name: (None,) for name in gpu_machine_names()},
    }.items()
    for isa in isas
]
Array = NDArray[Any]


@dataclass(frozen=True)
class Case:
    """A call's arguments, and its right answer in the destination's type."""

    src: Array
    weights: Array
    bias: Array | None
    options: dict[str, Any]
    expected: Array


def integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Small integers in a type; weights (s8, and float types) even."""
    low, high = (0, 6) if dtype == "u8" else (-5, 5)
    values: Array = rng.integers(low, high, shape, endpoint=True).astype(TYPES[dtype])
    return values


def expected(sums: Array, src: str, attr: Attr, bias: Array | None, dst: str, channel_axis: int) -> Array:
    """Exact sums (zero points taken off) through the attribute in f64, as `Epilogue` says."""
    shape = [1] * sums.ndim
    shape[channel_axis] = -1
    x = sums.astype(np.float64)
    for argument in ("src", "wei"):
        if argument in attr.scales:
            values = attr.scales[argument].values.astype(np.float64).reshape(-1)
            x = x * values.reshape(shape) if values.size > 1 else x * values[0]
    x = x if bias is None else x + bias.astype(np.float64).reshape(shape)
    x = np.maximum(x, 0) if attr.post_ops else x
    x = x / float(attr.scales["dst"].values) if "dst" in attr.scales else x
    x = x + int(attr.zero_points["dst"].values) if "dst" in attr.zero_points else x
    if dst in ("s8", "u8", "s32"):
        info = np.iinfo(TYPES[dst])
        x = np.clip(np.rint(x), info.min, info.max)
    return x.astype(np.float32).astype(TYPES[dst]) if dst != "s32" else x.astype(np.int32)


@st.composite
def attributes(draw: st.DrawFn, src: str, wei_point: bool, channels: int) -> Attr:
    """Scales, zero points and relu, in any combination that kernels here take."""
    scale = st.sampled_from([0.25, 0.5, 1.0, 2.0])
    scales: dict[str, Any] = {}
    points: dict[str, Any] = {}
    if src in ("u8", "s8"):
        if draw(st.booleans()):
            scales["src"] = draw(scale)
        if draw(st.booleans()):
            per_channel = draw(st.booleans())
            scales["wei"] = [draw(scale) for _ in range(channels)] if per_channel else draw(scale)
        if draw(st.booleans()):
            scales["dst"] = draw(scale)
        for argument in ("src", "wei", "dst") if wei_point else ("src", "dst"):
            if draw(st.booleans()):
                points[argument] = draw(st.integers(-4, 4))
    return Attr(scales=scales, zero_points=points, post_ops=["relu"] if draw(st.booleans()) else [])


@st.composite
def matmuls(draw: st.DrawFn) -> Case:
    """A matmul on any machine and ISA cap that can do it."""
    machine, isa = draw(st.sampled_from(TARGETS))
    src = draw(st.sampled_from(sources(machine, isa)))
    m, n, k = (draw(st.integers(1, top)) for top in (9, 40, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    a, w = integers(rng, (m, k), src), integers(rng, (k, n), "s8" if src in ("u8", "s8") else src)
    bias = rng.integers(-8, 8, n).astype(np.float32) if draw(st.booleans()) else None
    attr = draw(attributes(src, True, n))
    dst = draw(st.sampled_from(destinations(machine, src, isa)))
    tag = draw(st.sampled_from(["any", "ab"] if machine == "v100" else ["any", "ab", "ba"]))
    options = {"machine": machine, "isa": isa, "attr": attr, "dst": dst, "wei_tag": tag}
    zero = {name: int(point.values) for name, point in attr.zero_points.items()}
    sums = (a.astype(np.int64) - zero.get("src", 0)) @ (w.astype(np.int64) - zero.get("wei", 0))
    return Case(a, w, bias, options, expected(sums, src, attr, bias, dst, 1))


@st.composite
def convolutions(draw: st.DrawFn) -> Case:
    """A convolution with strides, padding, dilation and groups."""
    machine, isa = draw(st.sampled_from(TARGETS))
    src = draw(st.sampled_from(sources(machine, isa)))
    channels = [(1, 3, 5), (1, 16, 24), (2, 3, 4), (4, 4, 1), (7, 1, 1), (20, 1, 1)]
    groups, group_ic, group_oc = draw(st.sampled_from(channels))
    kh, kw = draw(st.sampled_from([(1, 1), (3, 3), (2, 3), (1, 5)]))
    strides = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    dilation = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    padding = draw(st.tuples(*[st.integers(0, 2)] * 4))
    ih = draw(st.integers(max(1, (kh - 1) * dilation[0] + 1 - padding[0] - padding[2]), 9))
    iw = draw(st.integers(max(1, (kw - 1) * dilation[1] + 1 - padding[1] - padding[3]), 9))
    mb, ic, oc = draw(st.integers(1, 2)), groups * group_ic, groups * group_oc
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    a = integers(rng, (mb, ic, ih, iw), src)
    w = integers(rng, (oc, group_ic, kh, kw), "s8" if src in ("u8", "s8") else src)
    w = w * np.asarray(2, w.dtype)
    bias = rng.integers(-8, 8, oc).astype(np.float32) if draw(st.booleans()) else None
    attr = draw(attributes(src, False, oc))
    dst = draw(st.sampled_from(destinations(machine, src, isa)))
    options = {"machine": machine, "isa": isa, "attr": attr, "dst": dst, "groups": groups}
    options |= {"strides": strides, "padding": padding, "dilation": dilation}
    zero = int(attr.zero_points["src"].values) if "src" in attr.zero_points else 0
    sums = convolve(a.astype(np.int64) - zero, w.astype(np.int64), strides, padding, dilation, groups)
    if groups > 1 and draw(st.booleans()):
        w = w.reshape(groups, group_oc, *w.shape[1:])
    return Case(a, w, bias, options, expected(sums, src, attr, bias, dst, 1))


def sources(machine: str, isa: str | None) -> list[str]:
    """Source types that a target computes."""
    if machine == "v100":
        return ["f32"]
    with_bf16 = machine in gpu_machine_names() or machine == "zen4" and isa in (None, "avx512_core_bf16")
    return ["f32", "u8", "s8"] + (["bf16"] if with_bf16 else [])


def destinations(machine: str, src: str, isa: str | None) -> list[str]:
    """The types that every kernel of a target stores."""
    if machine == "v100":
        return ["f32"]
    found = ["f32", "s8", "u8"] + (["s32"] if src in ("u8", "s8") else [])
    return found + (["bf16"] if isa != "avx2" else [])


def convolve(
    src: Array,
    weights: Array,
    strides: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
    groups: int,
) -> Array:
    """Exact sums of a convolution, one tap at a time; padding counts as 0."""
    top, left, bottom, right = padding
    padded = np.pad(src, ((0, 0), (0, 0), (top, bottom), (left, right)))
    oc, group_ic, kh, kw = weights.shape
    oh = (padded.shape[2] - (kh - 1) * dilation[0] - 1) // strides[0] + 1
    ow = (padded.shape[3] - (kw - 1) * dilation[1] - 1) // strides[1] + 1
    grouped = padded.reshape(len(src), groups, group_ic, *padded.shape[2:])
    taps = weights.reshape(groups, oc // groups, group_ic, kh, kw)
    out = np.zeros((len(src), groups, oc // groups, oh, ow), np.int64)
    for i in range(kh):
        for j in range(kw):
            y, x = i * dilation[0], j * dilation[1]
            window = grouped[..., y : y + oh * strides[0] : strides[0], x : x + ow * strides[1] : strides[1]]
            out += np.einsum("ngchw,goc->ngohw", window[..., :oh, :ow], taps[..., i, j])
    return out.reshape(len(src), oc, oh, ow)


def exact_sums(c: ConvProblem, src: Array, weights: Array, src_point: int = 0, wei_point: int = 0) -> Array:
    """Sums of a problem in s64, zero points taken off; padding counts as the source's."""
    wide = src.astype(np.int64) - src_point, weights.astype(np.int64) - wei_point
    return convolve(*wide, c.strides, c.padding, c.dilation, c.groups)
