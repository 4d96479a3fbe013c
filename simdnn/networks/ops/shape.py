"""Operators that move elements or change how they are seen. Those that only change the shape cost nothing."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from isa_models import InvalidArgument, Unimplemented
from isa_models.errors import counted
from isa_models.readings.arrays import Array
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.registry import axis_of, need, operator
from simdnn.networks.shadows import shadow
from simdnn.networks.types import is_float


def ints(array: Array, what: str) -> list[int]:
    """A list of integers that a node reads from a tensor."""
    need(
        array.dtype.kind in "iu" and array.ndim <= 1,
        f"{what} is {array.dtype} of shape {array.shape}, not a list of integers",
    )
    return [int(v) for v in array.reshape(-1)]


def parameter(node: Node, name: str, given: Array | None, since: int) -> list[int] | None:
    """A list that was an attribute before opset `since` and is an input from then on."""
    if node.version < since:
        return node.integers(name) if node.get(name) is not None else None
    return None if given is None else ints(given, name)


def view(k: Kernels, x: Array, shape: Sequence[int]) -> Array:
    """x in another shape with as many elements; shadows stay shadows."""
    need(prod(shape) == x.size, f"{counted(x.size, 'element')} of shape {x.shape} for {tuple(shape)}")
    if not k.values and is_float(x.dtype) and x.size and not x.flags.owndata and set(x.strides) <= {0}:
        return shadow(shape, x.dtype)
    return x.reshape(tuple(shape))


@operator("Identity")
def identity(k: Kernels, node: Node, x: Array) -> Array:
    return x


@operator("Dropout")
def dropout(
    k: Kernels, node: Node, x: Array, ratio: Array | None = None, training: Array | None = None
) -> tuple[Array, Array]:
    """Inference: the input as it is. Training draws at random, which only a ratio of 0 makes repeatable."""
    share = node.number("ratio", 0.5) if node.version < 12 else 0.5 if ratio is None else float(ratio)
    if training is not None and bool(training) and share:
        raise Unimplemented("training with a ratio above 0, which draws at random; inference works")
    return x, np.ones(x.shape, bool if node.version >= 10 else x.dtype)


@operator("Constant")
def constant(k: Kernels, node: Node) -> Array:
    for name, found in node.attributes.items():
        if name == "value":
            return np.asarray(found)
        if name.startswith("value_"):
            kinds = {"value_int": np.int64, "value_float": np.float32}
            return np.array(found, kinds.get(name.removesuffix("s"), object))
    raise InvalidArgument("no value")


@operator("Shape")
def shape(k: Kernels, node: Node, x: Array) -> Array:
    return np.array(x.shape[slice(node.get("start", 0), node.get("end"))], np.int64)


@operator("Size")
def size(k: Kernels, node: Node, x: Array) -> Array:
    return np.array(x.size, np.int64)


@operator("Reshape")
def reshape(k: Kernels, node: Node, x: Array, wanted: Array | None = None) -> Array:
    target = parameter(node, "shape", wanted, 5)
    need(target is not None, "no shape")
    sizes = list(target or [])
    need(all(s >= -1 for s in sizes) and sizes.count(-1) <= 1, f"shape {sizes}; sizes, and one -1 at most")
    if not node.integer("allowzero", 0):
        need(all(s != 0 or i < x.ndim for i, s in enumerate(sizes)), f"shape {sizes} copies sizes that {x.shape} lacks")
        sizes = [x.shape[i] if s == 0 else s for i, s in enumerate(sizes)]
    if -1 in sizes:
        others = prod(s for s in sizes if s != -1)
        need(others > 0 and x.size % others == 0, f"{counted(x.size, 'element')} for {sizes}")
        sizes[sizes.index(-1)] = x.size // others
    return view(k, x, sizes)


@operator("Flatten")
def flatten(k: Kernels, node: Node, x: Array) -> Array:
    axis = axis_of(node.integer("axis", 1), x.ndim, 1) if node.integer("axis", 1) != x.ndim else x.ndim
    if node.integer("axis", 1) < 0:
        axis = x.ndim + node.integer("axis", 1)
    return view(k, x, (prod(x.shape[:axis]), prod(x.shape[axis:])))


@operator("Squeeze")
def squeeze(k: Kernels, node: Node, x: Array, axes: Array | None = None) -> Array:
    wanted = parameter(node, "axes", axes, 13)
    gone = {i for i, n in enumerate(x.shape) if n == 1} if wanted is None else {axis_of(a, x.ndim) for a in wanted}
    need(all(x.shape[a] == 1 for a in gone), f"axes {sorted(gone)} of shape {x.shape} are not all of size 1")
    return view(k, x, [n for i, n in enumerate(x.shape) if i not in gone])


@operator("Unsqueeze")
def unsqueeze(k: Kernels, node: Node, x: Array, axes: Array | None = None) -> Array:
    wanted = parameter(node, "axes", axes, 13)
    need(wanted is not None, "no axes")
    rank = x.ndim + len(wanted or [])
    places = {axis_of(a, rank) for a in wanted or []}
    need(len(places) == len(wanted or []), f"axes {wanted} name one twice")
    sizes = iter(x.shape)
    return view(k, x, [1 if i in places else next(sizes) for i in range(rank)])


# -- moves ------------------------------------------------------------------------------------------------------------
@operator("Transpose")
def transpose(k: Kernels, node: Node, x: Array) -> Array:
    order = node.integers("perm", list(range(x.ndim))[::-1])
    need(sorted(order) == list(range(x.ndim)), f"perm {order} of an array with {counted(x.ndim, 'dimension')}")
    return transposed(k, x, order)


def transposed(k: Kernels, x: Array, order: Sequence[int]) -> Array:
    """x with its axes in another order; where only axes of size 1 move, nothing does."""
    moved = [a for a in order if x.shape[a] != 1]
    if moved == sorted(moved):
        return view(k, x, [x.shape[a] for a in order])
    steps = [prod(x.shape[a + 1 :]) for a in range(x.ndim)]
    result = x.transpose(order)
    return k.moved(np.ascontiguousarray(result) if k.values else result, source=tuple(steps[a] for a in order))


@operator("Concat")
def concat(k: Kernels, node: Node, *parts: Array) -> Array:
    need(bool(parts) and parts[0].ndim > 0, "nothing to join, or scalars")
    axis = axis_of(node.integer("axis", 1 if node.version < 4 else None), parts[0].ndim)
    k.allocate(
        [*parts[0].shape[:axis], sum(p.shape[axis] for p in parts if p.ndim), *parts[0].shape[axis + 1 :]],
        parts[0].dtype,
    )
    result = np.concatenate(parts, axis)
    return k.moved(result, prod(result.shape[axis:]) // max(1, len(parts)))


@operator("Split")
def split(k: Kernels, node: Node, x: Array, lengths: Array | None = None) -> tuple[Array, ...]:
    axis = axis_of(node.integer("axis", 0), x.ndim)
    sizes = parameter(node, "split", lengths, 13)
    length = x.shape[axis]
    if sizes is None:
        parts = node.integer("num_outputs", len(node.outputs))
        need(
            0 < parts == len(node.outputs), f"num_outputs={parts} of a node with {counted(len(node.outputs), 'output')}"
        )
        each = -(-length // parts)
        sizes = [min(each, length - i * each) for i in range(parts)]
    need(sum(sizes) == length and min(sizes) >= 0, f"split {sizes} of a dimension of {length}")
    found = np.split(x, np.cumsum(sizes)[:-1], axis)
    return tuple(k.moved(np.ascontiguousarray(p) if k.values else p, prod(p.shape[axis:])) for p in found)


@operator("Slice")
def slice_(
    k: Kernels,
    node: Node,
    x: Array,
    starts: Array | None = None,
    ends: Array | None = None,
    axes: Array | None = None,
    by_input: Array | None = None,
) -> Array:
    first, last = parameter(node, "starts", starts, 10), parameter(node, "ends", ends, 10)
    need(first is not None and last is not None, "no starts or ends")
    first, last = first or [], last or []
    where = parameter(node, "axes", axes, 10) or list(range(len(first)))
    by = [1] * len(first) if by_input is None else ints(by_input, "steps")
    need(len(first) == len(last) == len(where) == len(by), "starts, ends, axes and steps of different lengths")
    cut: list[slice] = [slice(None)] * x.ndim
    for a, b, axis, step in zip(first, last, where, by, strict=True):
        axis = axis_of(axis, x.ndim)
        need(step != 0, "a step of 0")
        cut[axis] = _slice(a, b, step, x.shape[axis])
    result = x[tuple(cut)]
    steps = [prod(x.shape[a + 1 :]) * (c.step or 1) for a, c in enumerate(cut)]
    return k.moved(np.array(result) if k.values else result, source=tuple(steps))


def _slice(first: int, last: int, step: int, size: int) -> slice:
    """ONNX clamps both ends into the dimension, backwards to one before it."""
    if size == 0:
        return slice(0, 0)
    first, last = (v + size if v < 0 else v for v in (first, last))
    if step > 0:
        return slice(min(max(first, 0), size), min(max(last, 0), size), step)
    first, last = min(max(first, 0), size - 1), min(max(last, -1), size - 1)
    return slice(first, None if last < 0 else last, step)


@operator("Expand")
def expand(k: Kernels, node: Node, x: Array, wanted: Array) -> Array:
    target = np.broadcast_shapes(x.shape, tuple(_sizes(ints(wanted, "shape"))))
    k.allocate(target, x.dtype)
    if target == x.shape:
        return x
    return k.moved(
        np.broadcast_to(x, target).copy() if k.values else np.broadcast_to(x, target), x.shape[-1] if x.ndim else 1
    )


def _sizes(given: list[int]) -> list[int]:
    need(all(s >= 0 for s in given) and len(given) <= 64, f"shape {given!s:.80}")
    return given


@operator("Tile")
def tile(k: Kernels, node: Node, x: Array, repeats: Array, axis: Array | None = None) -> Array:
    if node.version < 6:
        need(axis is not None, "no axis")
        count = [1] * x.ndim
        count[int(np.asarray(axis).reshape(-1)[0])] = int(np.asarray(repeats).reshape(-1)[0])
    else:
        count = _sizes(ints(repeats, "repeats"))
    need(len(count) == x.ndim, f"{counted(len(count), 'repeat')} for {counted(x.ndim, 'dimension')}")
    k.allocate([n * c for n, c in zip(x.shape, count, strict=True)], x.dtype)
    return k.moved(np.tile(x, count), x.shape[-1] if x.ndim else 1)


@operator("Pad")
def pad(
    k: Kernels, node: Node, x: Array, pads: Array | None = None, value: Array | None = None, axes: Array | None = None
) -> Array:
    name = "paddings" if node.version < 2 else "pads"
    amounts = parameter(node, name, pads, 11)
    need(amounts is not None, "no pads")
    amounts = amounts or []
    where = [axis_of(a, x.ndim) for a in ints(axes, "axes")] if axes is not None else list(range(x.ndim))
    need(
        len(amounts) == 2 * len(where),
        f"{counted(len(amounts), 'pad')} for {counted(len(where), 'dimension')}; two for each",
    )
    fill = (
        node.number("value", 0.0) if node.version < 11 else 0 if value is None or value.size == 0 else value.reshape(())
    )
    before, after = [0] * x.ndim, [0] * x.ndim
    for i, axis in enumerate(where):
        before[axis], after[axis] = amounts[i], amounts[len(where) + i]
    return padded(k, x, before, after, node.text("mode", "constant"), fill)


def padded(k: Kernels, x: Array, before: list[int], after: list[int], mode: str, fill: object = 0) -> Array:
    """x with elements around it, or without some where an amount is negative."""
    modes = ("constant", "reflect", "edge", "wrap")
    need(mode in modes, f"mode={mode!r}; allowed: {', '.join(modes)}")
    k.allocate([n + max(0, a) + max(0, b) for n, a, b in zip(x.shape, before, after, strict=True)], x.dtype)
    cut = x[tuple(slice(max(0, -a), n - max(0, -b)) for n, a, b in zip(x.shape, before, after, strict=True))]
    widths = [(max(0, a), max(0, b)) for a, b in zip(before, after, strict=True)]
    if mode == "constant":
        result = np.full([n + a + b for n, (a, b) in zip(cut.shape, widths, strict=True)], fill, x.dtype)
        result[tuple(slice(a, a + n) for n, (a, _) in zip(cut.shape, widths, strict=True))] = cut
    else:
        result = np.pad(cut, widths, mode)  # type: ignore[call-overload]  # one of four words
    return k.moved(result, x.shape[-1] if x.ndim else 1)


@operator("DepthToSpace")
def depth_to_space(k: Kernels, node: Node, x: Array) -> Array:
    need(x.ndim == 4, f"an input of shape {x.shape}; (N, C, H, W) is needed")
    b, (n, c, h, w) = node.integer("blocksize"), x.shape
    need(b > 0 and c % (b * b) == 0, f"blocksize {b} does not divide {c} channels")
    if node.text("mode", "DCR") == "DCR":
        parts = x.reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(n, c // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return k.moved(parts.reshape(n, c // (b * b), h * b, w * b), 1)


@operator("SpaceToDepth")
def space_to_depth(k: Kernels, node: Node, x: Array) -> Array:
    need(x.ndim == 4, f"an input of shape {x.shape}; (N, C, H, W) is needed")
    b, (n, c, h, w) = node.integer("blocksize"), x.shape
    need(b > 0 and h % b == 0 and w % b == 0, f"blocksize {b} does not divide {h}x{w}")
    parts = x.reshape(n, c, h // b, b, w // b, b)
    order = (0, 3, 5, 1, 2, 4) if node.text("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return k.moved(parts.transpose(order).reshape(n, c * b * b, h // b, w // b), 1)
