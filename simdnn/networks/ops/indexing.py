"""Operators that read or write elements where indices say. Values are NumPy's, costs are those of the moves."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from isa_models import UnknownTiming
from isa_models.errors import counted
from isa_models.readings.arrays import Array
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.elementwise import widened
from simdnn.networks.ops.registry import MICROSOFT, axis_of, need, operator
from simdnn.networks.ops.shape import ints
from simdnn.networks.types import element, is_float, label


def checked(indices: Array, size: int) -> Array:
    """Indices into a dimension, negative ones counted from its end."""
    need(indices.dtype.kind in "iu", f"indices of {label(indices.dtype)}; integers are needed")
    if indices.size:
        low, high = int(indices.min()), int(indices.max())
        need(-size <= low and high < size, f"indices from {low} to {high} into a dimension of {size}")
    wrapped: Array = np.where(indices < 0, indices + size, indices).astype(np.int64)
    return wrapped


@operator("Gather")
def gather(k: Kernels, node: Node, x: Array, indices: Array) -> Array:
    need(x.ndim > 0, "a scalar has nothing to gather")
    axis = axis_of(node.integer("axis", 0), x.ndim)
    k.allocate([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]], x.dtype)
    found = np.take(x, checked(indices, x.shape[axis]), axis)
    return k.moved(np.asarray(found, x.dtype), prod(x.shape[axis + 1 :]))


@operator("GatherElements")
def gather_elements(k: Kernels, node: Node, x: Array, indices: Array) -> Array:
    axis = axis_of(node.integer("axis", 0), x.ndim)
    return k.moved(_picked_along(x, checked(indices, x.shape[axis]), axis), 1)


def _picked_along(x: Array, indices: Array, axis: int) -> Array:
    """x[i, indices[i, j], j] for an axis in the middle."""
    places: list[Any] = list(np.indices(indices.shape, sparse=True))
    places[axis] = indices
    return np.asarray(x[tuple(places)])


@operator("GatherND")
def gather_nd(k: Kernels, node: Node, x: Array, indices: Array) -> Array:
    batch = node.integer("batch_dims", 0)
    depth = indices.shape[-1] if indices.ndim else 0
    need(0 <= batch < min(x.ndim, indices.ndim) and batch + depth <= x.ndim, "indices deeper than the data")
    need(x.shape[:batch] == indices.shape[:batch], "batch dimensions differ")
    count = prod(x.shape[:batch])
    flat, where = x.reshape(count, *x.shape[batch:]), indices.reshape(count, -1, depth)
    parts = []
    for values, rows in zip(flat, where, strict=True):
        columns = tuple(checked(rows[:, d], values.shape[d]) for d in range(depth))
        parts.append(values[columns])
    shape = (*indices.shape[:-1], *x.shape[batch + depth :])
    return k.moved(np.asarray(parts, x.dtype).reshape(shape), prod(x.shape[batch + depth :]))


_COMBINE = {"none": None, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _combine(node: Node) -> Any:
    kind = node.text("reduction", "none")
    need(kind in _COMBINE, f"reduction={kind!r}; allowed: {', '.join(_COMBINE)}")
    return _COMBINE[kind]


def _put(result: Array, where: tuple[Array, ...], updates: Array, combine: Any) -> None:
    if combine is None:
        result[where] = updates
    else:
        combine.at(result, where, updates)


@operator("ScatterElements", "Scatter")
def scatter_elements(k: Kernels, node: Node, x: Array, indices: Array, updates: Array) -> Array:
    axis = axis_of(node.integer("axis", 0), x.ndim)
    need(indices.shape == updates.shape, f"indices {indices.shape} and updates {updates.shape}")
    result = x.copy()
    places: list[Any] = list(np.indices(indices.shape))
    places[axis] = checked(indices, x.shape[axis])
    _put(result, tuple(places), updates, _combine(node))
    k.moved(updates, 1)
    return k.moved(result)


@operator("ScatterND")
def scatter_nd(k: Kernels, node: Node, x: Array, indices: Array, updates: Array) -> Array:
    depth = indices.shape[-1]
    need(depth <= x.ndim, "indices deeper than the data")
    rows = indices.reshape(-1, depth)
    where = tuple(checked(rows[:, d], x.shape[d]) for d in range(depth))
    result = x.copy()
    _put(result, where, updates.reshape(len(rows), *x.shape[depth:]), _combine(node))
    k.moved(updates, prod(x.shape[depth:]))
    return k.moved(result)


@operator("TensorScatter")
def tensor_scatter(k: Kernels, node: Node, past: Array, update: Array, index: Array | None = None) -> Array:
    axis = axis_of(node.integer("axis", -2), past.ndim)
    need(axis > 0, "axis 0 is the batch")
    result, length = past.copy(), update.shape[axis]
    starts = np.zeros(len(past), np.int64) if index is None else index
    for row, start in enumerate(starts):
        at = np.arange(length) + int(start)
        at = at % past.shape[axis] if node.text("mode", "linear") == "circular" else at
        need(length == 0 or int(at.max()) < past.shape[axis], "writes beyond the end")
        np.moveaxis(result[row], axis - 1, 0)[at] = np.moveaxis(update[row], axis - 1, 0)
    return k.moved(result)


# -- made from sizes --------------------------------------------------------------------------------------------------
@operator("ConstantOfShape")
def constant_of_shape(k: Kernels, node: Node, wanted: Array) -> Array:
    value = np.asarray(node.get("value", np.zeros(1, np.float32)))
    need(value.size == 1, f"a value of {value.size} elements")
    shape = ints(wanted, "shape")
    k.allocate(shape, value.dtype)
    return k.moved(np.full(shape, value.reshape(()), value.dtype))


@operator("Range")
def range_(k: Kernels, node: Node, start: Array, limit: Array, delta: Array) -> Array:
    first, last, step = (v.reshape(-1)[0] for v in (start, limit, delta))
    need(float(step) != 0, "a delta of 0")
    count = max(0, int(np.ceil((float(last) - float(first)) / float(step))))
    k.allocate([count], start.dtype)
    wide = start.dtype if start.dtype.itemsize >= 4 else np.dtype(np.float32 if is_float(start.dtype) else np.int32)
    return k.plain((first.astype(wide) + np.arange(count).astype(wide) * step.astype(wide)).astype(start.dtype))


@operator("EyeLike")
def eye_like(k: Kernels, node: Node, x: Array) -> Array:
    need(x.ndim == 2, f"an input of shape {x.shape}; a matrix is needed")
    dtype = element(node.integer("dtype")) if node.get("dtype") else x.dtype
    return k.moved(np.eye(x.shape[0], x.shape[1], k=node.integer("k", 0)).astype(dtype))


@operator("OneHot")
def one_hot(k: Kernels, node: Node, indices: Array, depth: Array, values: Array) -> Array:
    size = int(depth.reshape(-1)[0])
    need(size > 0 and values.size == 2, "a depth above 0 and two values are needed")
    axis = axis_of(node.integer("axis", -1), indices.ndim + 1)
    k.allocate([*indices.shape, size], values.dtype)
    whole = indices.astype(np.int64)
    wrapped = np.expand_dims(np.where((whole < -size) | (whole >= size), -1, whole % size), axis)
    counts = np.arange(size).reshape([size if i == axis else 1 for i in range(indices.ndim + 1)])
    return k.plain(np.where(wrapped == counts, values[1], values[0]).astype(values.dtype))


@operator("Trilu")
@operator("Trilu", domain=MICROSOFT)
def trilu(k: Kernels, node: Node, x: Array, diagonal: Array | None = None) -> Array:
    offset = 0 if diagonal is None else int(diagonal.reshape(-1)[0])
    return k.moved(np.triu(x, offset) if node.integer("upper", 1) else np.tril(x, offset))


# -- order ------------------------------------------------------------------------------------------------------------
@operator("ArgMax", "ArgMin")
def arg_extreme(k: Kernels, node: Node, x: Array) -> Array:
    axis = axis_of(node.integer("axis", 0), x.ndim)
    find = np.argmax if node.op == "ArgMax" else np.argmin
    wide = widened(x)
    if node.integer("select_last_index", 0):
        found = x.shape[axis] - 1 - find(np.flip(wide, axis), axis)
    else:
        found = find(wide, axis)
    found = np.expand_dims(found, axis) if node.integer("keepdims", 1) else np.asarray(found)
    return k.plain(found.astype(np.int64), x, steps=3)


@operator("TopK")
def top_k(k: Kernels, node: Node, x: Array, count: Array | None = None) -> tuple[Array, Array]:
    wanted = node.integer("k") if node.version < 10 or count is None else int(count.reshape(-1)[0])
    axis = axis_of(node.integer("axis", -1), x.ndim)
    need(0 <= wanted <= x.shape[axis], f"k={wanted} of a dimension of {x.shape[axis]}")
    key = x.astype(np.float64 if is_float(x.dtype) else x.dtype)
    if node.integer("largest", 1):
        order = np.flip(np.argsort(np.flip(key, axis), axis, kind="stable"), axis)
        order = x.shape[axis] - 1 - order
    else:
        order = np.argsort(key, axis, kind="stable")
    order = np.take(order, np.arange(wanted), axis)
    steps = 4 * max(1, int(np.log2(max(2, x.shape[axis]))))  # compare and exchange, as in a sort
    return k.plain(_picked_along(x, order, axis), x, steps=steps), order.astype(np.int64)


@operator("NonZero")
def non_zero(k: Kernels, node: Node, x: Array) -> Array:
    _data_decides(k, x, "NonZero")
    return k.plain(np.array(np.nonzero(x), np.int64).reshape(max(x.ndim, 1) if x.ndim else 0, -1), x, steps=3)


def _data_decides(k: Kernels, x: Array, op: str) -> None:
    """Shapes that depend on values exist only where there are values."""
    if not k.values and is_float(x.dtype):
        raise UnknownTiming(f"the output's shape of {op} depends on values, which a cost alone does not have; run it")


@operator("Compress")
def compress(k: Kernels, node: Node, x: Array, condition: Array) -> Array:
    axis = node.get("axis")
    return k.moved(np.compress(condition, x, None if axis is None else axis_of(axis, x.ndim)), 1)


@operator("Unique")
def unique(k: Kernels, node: Node, x: Array) -> tuple[Array, ...]:
    _data_decides(k, x, "Unique")
    axis = node.get("axis")
    found, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not node.integer("sorted", 1):
        order = np.argsort(first)
        place = np.argsort(order)
        found = np.take(found, order, 0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], place[inverse]
    return k.plain(found, x, steps=40), *(v.astype(np.int64) for v in (first, inverse, counts))


@operator("ReverseSequence")
def reverse_sequence(k: Kernels, node: Node, x: Array, lengths: Array) -> Array:
    time, batch = node.integer("time_axis", 0), node.integer("batch_axis", 1)
    need({time, batch} == {0, 1}, f"time_axis={time}, batch_axis={batch}; one is 0 and one is 1")
    moved = x if batch == 0 else x.swapaxes(0, 1)
    result = moved.copy()
    for row, length in enumerate(lengths):
        need(0 <= int(length) <= moved.shape[1], f"a length of {int(length)} among {moved.shape[1]} steps")
        result[row, : int(length)] = moved[row, : int(length)][::-1]
    return k.moved(result if batch == 0 else np.ascontiguousarray(result.swapaxes(0, 1)), prod(x.shape[2:]))


@operator("CumSum", "CumProd")
def cumulate(k: Kernels, node: Node, x: Array, axis: Array) -> Array:
    along = axis_of(int(axis.reshape(-1)[0]), x.ndim)
    total = np.cumsum if node.op == "CumSum" else np.cumprod
    v = np.flip(x, along) if node.integer("reverse", 0) else x
    if node.integer("exclusive", 0):
        shifted = np.full_like(v, 0 if node.op == "CumSum" else 1)
        keep = [slice(None)] * x.ndim
        into = list(keep)
        keep[along], into[along] = slice(0, -1), slice(1, None)
        shifted[tuple(into)] = v[tuple(keep)]
        v = shifted
    result = total(v, axis=along, dtype=x.dtype)
    return k.plain(np.ascontiguousarray(np.flip(result, along) if node.integer("reverse", 0) else result), x, steps=2)


@operator("CenterCropPad")
def center_crop_pad(k: Kernels, node: Node, x: Array, wanted: Array) -> Array:
    sizes = ints(wanted, "shape")
    axes = [axis_of(a, x.ndim) for a in node.integers("axes", list(range(x.ndim)))]
    need(len(sizes) == len(axes), f"{len(sizes)} sizes for {counted(len(axes), 'axis', 'axes')}")
    shape = list(x.shape)
    source, dest = [slice(None)] * x.ndim, [slice(None)] * x.ndim
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis], extra = size, size - x.shape[axis]
        cut = slice(abs(extra) // 2, abs(extra) // 2 + min(size, x.shape[axis]))
        (dest if extra > 0 else source)[axis] = cut
    k.allocate(shape, x.dtype)
    result = np.zeros(shape, x.dtype)
    result[tuple(dest)] = x[tuple(source)]
    return k.moved(result, result.shape[-1])
