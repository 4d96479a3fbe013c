"""Resize and Upsample: each output element is a weighted sum of input elements along one axis after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from isa_models.errors import counted
from isa_models.readings.arrays import Array
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.registry import axis_of, need, operator
from simdnn.networks.ops.resize_f32 import ResizedAxis, resized
from simdnn.networks.ops.shape import ints
from simdnn.networks.shadows import shadow
from simdnn.networks.types import is_float


def _positions(mode: str, out: int, size: int, scale: float, roi: tuple[float, float], exact: float) -> Array:
    """Where each output element lies in the input (ONNX Resize, coordinate_transformation_mode)."""
    i = np.arange(out, dtype=np.float64)
    if mode == "asymmetric":
        return i / scale
    if mode == "align_corners":
        return i * (size - 1) / (exact - 1) if out > 1 else np.zeros(out)
    if mode == "pytorch_half_pixel":
        return (i + 0.5) / scale - 0.5 if out > 1 else np.zeros(out)
    if mode == "tf_half_pixel_for_nn":
        return (i + 0.5) / scale
    if mode == "half_pixel_symmetric":
        return size / 2 * (1 - out / exact) + (i + 0.5) / scale - 0.5
    if mode == "tf_crop_and_resize":
        first, last = roi
        if out == 1:
            return np.full(1, 0.5 * (first + last) * (size - 1))
        return first * (size - 1) + i * (last - first) * (size - 1) / (out - 1)
    need(mode == "half_pixel", f"coordinate_transformation_mode={mode!r} is not known")
    return (i + 0.5) / scale - 0.5


def _nearest(position: Array, kind: str) -> Array:
    rounding: dict[str, Callable[[Array], Array]] = {
        "round_prefer_floor": lambda p: np.ceil(p - 0.5),
        "round_prefer_ceil": lambda p: np.floor(p + 0.5),
        "floor": np.floor,
        "ceil": np.ceil,
    }
    need(kind in rounding, f"nearest_mode={kind!r}; allowed: {', '.join(rounding)}")
    return rounding[kind](position)


def _cubic(distance: Array, a: float) -> Array:
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _matrix(node: Node, mode: str, out: int, size: int, scale: float, roi: tuple[float, float]) -> tuple[Array, Array]:
    """(out, size) weights, and which outputs lie outside of the input."""
    where = node.text("coordinate_transformation_mode", "half_pixel" if node.version >= 11 else "asymmetric")
    position = _positions(where, out, size, scale, roi, scale * size)
    outside = (position < 0) | (position > size - 1) if where == "tf_crop_and_resize" else np.zeros(out, bool)
    weights = np.zeros((out, size))
    rows = np.arange(out)
    if mode == "nearest":
        kind = node.text("nearest_mode", "round_prefer_floor" if node.version >= 11 else "floor")
        weights[rows, np.clip(_nearest(position, kind), 0, size - 1).astype(int)] = 1
        return weights, outside
    shrink = min(1.0, scale) if node.integer("antialias", 0) else 1.0
    reach = 1 if mode == "linear" else 2
    a = node.number("cubic_coeff_a", -0.75)
    first = np.floor(position) - int(np.ceil(reach / shrink)) + 1
    taps = first[:, None] + np.arange(2 * int(np.ceil(reach / shrink)))
    distance = (taps - position[:, None]) * shrink
    shares = np.maximum(0, 1 - np.abs(distance)) if mode == "linear" else _cubic(distance, a)
    if node.integer("exclude_outside", 0):
        shares = np.where((taps < 0) | (taps > size - 1), 0, shares)
    if node.integer("exclude_outside", 0) or node.integer("antialias", 0):
        shares = shares / shares.sum(1, keepdims=True)
    clipped = np.clip(taps, 0, size - 1).astype(int)
    np.add.at(weights, (rows[:, None], clipped), shares)
    return weights, outside


@operator("Resize", "Upsample")
def resize(k: Kernels, node: Node, x: Array, *more: Array | None) -> Array:
    roi, factors, wanted = _arguments(node, x, more)
    axes = [axis_of(a, x.ndim) for a in node.integers("axes", list(range(x.ndim)))]
    mode = node.text("mode", "nearest")
    need(mode in ("nearest", "linear", "cubic", "bilinear"), f"mode={mode!r}; allowed: nearest, linear, cubic")
    mode = "linear" if mode == "bilinear" else mode
    sizes, scales = _target(node, x, axes, factors, wanted)
    shape = list(x.shape)
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis] = size
    k.allocate(shape, x.dtype, shadowed=not k.values)
    if k.shadows(x):
        dims = sum(a != b for a, b in zip(shape, x.shape, strict=True))
        steps = 1 + dims * {"nearest": 0, "linear": 2, "cubic": 4}[mode]
        found = shadow(shape, x.dtype)
        return k.plain(found, x, steps=steps) if mode != "nearest" else k.moved(found, 1)
    if k.runs_models:
        return _as_library(
            k, node, mode, x, [(axis, scales[i], _ends(roi, i, axes)) for i, axis in enumerate(axes)], shape
        )
    parts = [(axis, shape[axis], scales[i], _ends(roi, i, axes)) for i, axis in enumerate(axes)]
    result, taps = _along_axes(k, node, mode, x, parts)
    if not is_float(x.dtype) and mode != "nearest":
        result = np.rint(result)
    if mode == "nearest":
        return k.moved(result.astype(x.dtype), 1)
    return k.plain(np.ascontiguousarray(result).astype(x.dtype), x, steps=taps)


def _along_axes(
    k: Kernels, node: Node, mode: str, x: Array, parts: Sequence[tuple[int, int, float, tuple[float, float]]]
) -> tuple[Array, int]:
    """x with one axis after the other in another size, and the multiply-adds of an element.

    `parts`: an axis, its new size, the scale, and where the region of interest begins and ends on it.
    """
    result = x.astype(np.float64) if mode != "nearest" else x
    beyond = np.zeros((1,) * x.ndim, bool)
    taps = 1
    for axis, size, scale, ends in parts:
        if size == x.shape[axis] and scale == 1 and ends == (0.0, 1.0):
            continue
        k.allocate((size, x.shape[axis]), np.dtype(np.float64))
        weights, outside = _matrix(node, mode, size, x.shape[axis], scale, ends)
        if mode == "nearest":
            result = np.take(result, weights.argmax(1), axis)
        else:
            result = np.moveaxis(np.tensordot(weights, result, (1, axis)), 0, axis)
            taps += 2 if mode == "linear" else 4
        beyond = beyond | outside.reshape([-1 if a == axis else 1 for a in range(x.ndim)])
    if beyond.any():
        result = np.where(beyond, node.number("extrapolation_value", 0.0), result)
    return result, taps


def _ends(roi: Array | None, i: int, axes: list[int]) -> tuple[float, float]:
    """Where a region of interest begins and ends along an axis."""
    if roi is None or roi.size != 2 * len(axes):
        return 0.0, 1.0
    return float(roi[i]), float(roi[i + len(axes)])


def _as_library(
    k: Kernels,
    node: Node,
    mode: str,
    x: Array,
    given: list[tuple[int, float, tuple[float, float]]],
    shape: list[int],
) -> Array:
    """The values of a library that runs models."""
    axes = [ResizedAxis(size, out, 1.0) for size, out in zip(x.shape, shape, strict=True)]
    for axis, scale, ends in given:
        axes[axis] = ResizedAxis(x.shape[axis], shape[axis], scale, ends)
    found = np.ascontiguousarray(resized(node, mode, x, axes))
    if mode == "nearest":
        return k.moved(found, 1)
    taps = 2 if mode == "linear" else 4
    return k.plain(found, x, steps=1 + taps * sum(axis.size != axis.out for axis in axes))


def _arguments(node: Node, x: Array, more: tuple[Array | None, ...]) -> tuple[Array | None, Array | None, Array | None]:
    """roi, scales and sizes, wherever the opset has them."""
    given = [*more, None, None, None]
    if node.op == "Upsample":
        if node.version < 9:
            return None, np.array(node.get("scales", [])), None
        return None, given[0], None
    if node.version < 11:
        return None, given[0], None
    return given[0], given[1], given[2]


def _target(
    node: Node, x: Array, axes: list[int], factors: Array | None, wanted: Array | None
) -> tuple[list[int], list[float]]:
    """Output sizes and scales of the axes."""
    lengths = [x.shape[a] for a in axes]
    if factors is not None and factors.size:
        need(
            factors.size == len(axes) and bool((factors > 0).all()),
            f"{counted(factors.size, 'scale')} for {counted(len(axes), 'axis', 'axes')}",
        )
        scales = [float(s) for s in factors]
        return [
            int(np.floor(np.float32(n) * s)) for n, s in zip(lengths, factors.astype(np.float32), strict=True)
        ], scales
    need(wanted is not None and wanted.size == len(axes), "neither scales nor sizes for each axis")
    sizes = ints(np.asarray(wanted), "sizes")
    need(min(sizes) > 0 and min(lengths) > 0, f"sizes {sizes}")
    scales = [s / n for s, n in zip(sizes, lengths, strict=True)]
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        need(policy in ("not_larger", "not_smaller"), f"keep_aspect_ratio_policy={policy!r}")
        common = min(scales) if policy == "not_larger" else max(scales)
        return [int(np.floor(n * common + 0.5)) for n in lengths], [common] * len(scales)
    return sizes, scales
