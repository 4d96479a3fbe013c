"""Sums in oneDNN's orders, for graphs of primitives: reductions, statistics of batches and of groups, on a CPU.

Each is made of chains (one element after the other), of lanes that such chains run in, and of lanes joined
(docs/numerics.md, rule 18).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.kernels.common.expression import Element
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.elementwise import by_numpy
from simdnn.networks.ops.extremes import EXTREMES, chained, in_register, is_special, lines_of
from simdnn.networks.ops.registry import OWN, operator
from simdnn.networks.ops.shape import view
from simdnn.networks.shadows import shadow
from simdnn.networks.types import F32, is_float

_STEPS: dict[str, Callable[[Element, Element], Element]] = {
    "sum": lambda a, b: a + b,
    "prod": lambda a, b: a * b,
}
_FOURS = 8  # elements: a compiler's loop over a run of as many has four lanes
_BLOCK = 16  # pixels that its group normalization converts together
_ACCUMULATORS = 4  # registers of channels that the vector kernel of groups keeps


def chain(k: Kernels, kind: str, x: Array, axes: Sequence[int]) -> Array:
    """`kind` over `axes`, which stay as 1, element after element from what nothing yields."""
    return k.reduce(kind, x, axes, order="chain")


def _part(k: Kernels, x: Array, start: int, stop: int) -> Array:
    """Neighbours along the last dimension, in registers: no time."""
    return x[..., start:stop] if k.values else shadow((*x.shape[:-1], stop - start), x.dtype)


def _joined(k: Kernels, parts: Sequence[Array]) -> Array:
    """Arrays beside each other along the last dimension."""
    if k.values:
        return k.moved(np.concatenate(parts, -1))
    return k.moved(shadow((*parts[0].shape[:-1], sum(part.shape[-1] for part in parts)), parts[0].dtype))


def _turned(k: Kernels, x: Array, order: Sequence[int]) -> Array:
    """x with its dimensions in another order, copied."""
    if k.values:
        return k.moved(np.ascontiguousarray(x.transpose(order)), 1)
    return k.moved(shadow([x.shape[i] for i in order], x.dtype), 1)


def halves(k: Kernels, kind: str, x: Array, least: int) -> Array:
    """Upper halves of the last dimension onto lower ones, until `least` lanes are left."""
    while (lanes := x.shape[-1]) > least:
        low, high = _part(k, x, 0, lanes // 2), _part(k, x, lanes // 2, lanes)
        x = k.map(_STEPS[kind], low, high, name=kind)
    return x


def _one_after_the_other(k: Kernels, kind: str, x: Array) -> Array:
    """Lanes of the last dimension, the first one's sum growing."""
    total = _part(k, x, 0, 1)
    for lane in range(1, x.shape[-1]):
        total = k.map(_STEPS[kind], total, _part(k, x, lane, lane + 1), name=kind)
    return total


def _of_register(k: Kernels, kind: str, x: Array, lanes: int) -> Array:
    """The last dimension's lanes of a register, which may fill fewer than `lanes`: upper halves onto lower ones while
    all are filled, else each half by itself; four and fewer one after the other.
    """
    count = x.shape[-1]
    if lanes == 4:
        return _one_after_the_other(k, kind, x)
    if count == lanes:
        return _one_after_the_other(k, kind, halves(k, kind, x, 4))
    half = lanes // 2
    if count <= half:
        return _of_register(k, kind, x, half)
    low, high = (_of_register(k, kind, _part(k, x, *ends), half) for ends in ((0, half), (half, count)))
    return k.map(_STEPS[kind], low, high, name=kind)


@operator("Reduce", domain=OWN)
def reduce(k: Kernels, node: Node, x: Array) -> Array:
    """`kind` over `axes`, divided by their size where `mean`: a chain, or registers of `lanes` lanes along a line. Of
    integers it is the sum or product, as s32. "max" and "min" begin with the `last` number of a type.

    What fills no register is joined by itself and goes onto the first lane.
    """
    kind, axes, lanes = node.text("kind"), node.integers("axes"), node.integer("lanes", 0)
    if not is_float(x.dtype):  # integers wrap
        joined = np.prod if kind == "prod" else np.sum
        return by_numpy(k, lambda v: joined(v, tuple(axes), np.int32, keepdims=True), x, steps=1, dst=np.int32)
    shape = [1 if axis in axes else size for axis, size in enumerate(x.shape)]
    count = prod(x.shape[axis] for axis in axes)
    if kind in EXTREMES:
        return k.reduce(kind, x, axes, values=_extremes(node, x, lanes) if k.values and is_special(x) else None)
    if not lanes:
        total = chain(k, kind, x, axes)
    elif lanes == k.words.lanes:
        total = view(k, k.reduce(kind, view(k, x, (x.size // count, count)), [1], order="register"), shape)
    else:
        total = view(k, _of_line(k, kind, view(k, x, (x.size // count, count)), lanes), shape)
    return k.map(lambda v: v / float(count), total, name="div") if node.integer("mean", 0) else total


def _extremes(node: Node, x: Array, lanes: int) -> Callable[[], Array]:
    """The greatest or least of lines by a library's registers or its loop, which begin with a type's last number."""
    kind, axes = node.text("kind"), node.integers("axes")
    nothing = (-1 if kind == "max" else 1) * node.number("last")
    lines = lines_of(x, axes)
    return lambda: in_register(kind, lines, lanes, nothing) if lanes else chained(kind, lines, nothing)


def _of_line(k: Kernels, kind: str, x: Array, lanes: int) -> Array:
    """Rows (rows, n) to (rows, 1): one register of lanes along each."""
    rows, n = x.shape
    turns, rest = divmod(n, lanes)
    tail = _of_register(k, kind, _part(k, x, n - rest, n), lanes) if rest else None
    nothing = {"prod": 1.0, "sum": 0.0}
    if not turns:
        assert tail is not None
        return k.map(lambda t: _STEPS[kind](t.same(nothing[kind]), t), tail, name=kind)
    whole = view(k, _part(k, x, 0, n - rest), (rows, turns, lanes))
    total = view(k, chain(k, kind, whole, [1]), (rows, lanes))
    if tail is not None:
        first = k.map(_STEPS[kind], _part(k, total, 0, 1), tail, name=kind)
        total = _joined(k, [first, _part(k, total, 1, lanes)])
    return _of_register(k, kind, total, lanes)


def in_two_lanes(k: Kernels, x: Array) -> Array:
    """Sums (rows, 1) of x (rows, n): of even and of odd elements, both, then what is left."""
    rows, n = x.shape
    total = _part(k, x, 0, 1) + np.float32(0) if k.values else _part(k, x, 0, 1)  # from 0 on: -0 becomes 0
    if n > 1:
        pairs = view(k, _part(k, x, 0, n - n % 2), (rows, n // 2, 2))
        total = halves(k, "sum", view(k, chain(k, "sum", pairs, [1]), (rows, 2)), 1)
    return k.map(_STEPS["sum"], total, _part(k, x, n - 1, n), name="sum") if n % 2 and n > 1 else total


# -- statistics -------------------------------------------------------------------------------------------------------
def _items(k: Kernels, runs: Array) -> Array:
    """The addends of a compiler's loop over runs (rows, n), in order: the sums of four lanes, then what is left;
    of short runs each element.
    """
    rows, n = runs.shape
    if n < _FOURS:
        return runs
    turns, rest = divmod(n, 4)
    lanes = view(k, _part(k, runs, 0, n - rest), (rows, turns, 4))
    sums = view(k, chain(k, "sum", lanes, [1]), (rows, 4))
    return _joined(k, [sums, _part(k, runs, n - rest, n)]) if rest else sums


def _sums_of_runs(k: Kernels, x: Array, block: int) -> Array:
    """Sums (rows, 1) of x (rows, runs, n), runs cut into blocks (0: into none)."""
    rows, runs, n = x.shape
    flat = view(k, x, (rows * runs, n))
    whole = n // block if block else 0
    parts = [_items(k, _part(k, flat, i * block, (i + 1) * block)) for i in range(whole)]
    if n > whole * block:
        parts.append(_items(k, _part(k, flat, whole * block, n)))
    items = _joined(k, parts) if len(parts) > 1 else parts[0]
    return chain(k, "sum", view(k, items, (rows, runs * items.shape[-1])), [1])


def _sums_in_registers(k: Kernels, x: Array, lanes: int, square: bool) -> Array:
    """Sums (rows, 1) of x (rows, pixels, channels): up to four registers of channels, pixel after pixel, then the next
    channels; what fills no register goes to the first one.
    """
    rows, pixels, channels = x.shape
    most = _ACCUMULATORS * lanes
    blocks, rest = divmod(channels, most)
    used = _ACCUMULATORS if blocks else max(1, rest // lanes)
    ends = [*(i * most for i in range(blocks + 1)), channels - rest % lanes, channels]
    parts = []
    for start, stop in zip(ends, ends[1:], strict=False):
        if stop > start:
            part = _part(k, x, start, stop)
            empty = used * lanes - (stop - start)
            parts.append(_joined(k, [part, _zeros(k, (rows, pixels, empty))]) if empty else part)
    steps = view(k, _stacked(k, parts), (rows, len(parts) * pixels, used * lanes))
    total = view(k, chain(k, "sum_square" if square else "sum", steps, [1]), (rows, used * lanes))
    registers = [_part(k, total, i * lanes, (i + 1) * lanes) for i in range(used)]
    while len(registers) > 1:
        first, second, *others = registers
        if len(others) == 2:
            others = [k.map(_STEPS["sum"], *others, name="sum")]
        registers = [k.map(_STEPS["sum"], first, second, name="sum"), *others]
    return halves(k, "sum", registers[0], 1)


def _zeros(k: Kernels, shape: Sequence[int]) -> Array:
    return np.zeros(shape, np.float32) if k.values else shadow(shape, F32)


def _stacked(k: Kernels, parts: Sequence[Array]) -> Array:
    """Arrays (rows, pixels, lanes) after each other along the pixels."""
    if len(parts) == 1:
        return parts[0]
    if k.values:
        return k.moved(np.concatenate(parts, 1))
    rows, pixels, lanes = parts[0].shape
    return k.moved(shadow((rows, pixels * len(parts), lanes), parts[0].dtype))


def _statistics(k: Kernels, x: Array, order: str, lanes: int) -> tuple[Array, Array]:
    """Mean and variance of each row: of x (rows, runs, n) as "runs" or "blocks" of a compiler's loop; in "registers",
    pixels (rows, pixels, channels) of a group; as "chain" or "fused" chain of x (n, rows).
    """
    count = x.size // (x.shape[1] if order in ("chain", "fused") else x.shape[0])

    def sums(values: Array, square: bool) -> Array:
        if order == "registers":
            return _sums_in_registers(k, values, lanes, square)
        if order == "fused":
            return chain(k, "sum_square" if square else "sum", values, [0])
        values = k.map(lambda v: v * v, values, name="square") if square else values
        if order == "chain":
            return chain(k, "sum", values, [0])
        return _sums_of_runs(k, values, _BLOCK if order == "blocks" else 0)

    def divided(total: Array) -> Array:
        return k.map(lambda v: v / float(np.float32(count)), total, name="div")

    def spread(row: Array) -> Array:
        return row if order in ("chain", "fused") else view(k, row, (row.size, 1, 1))

    mean = divided(sums(x, False))
    centred = k.map(lambda v, m: v - m, x, spread(mean), name="sub")
    return mean, divided(sums(centred, True))


@operator("Statistics", domain=OWN)
def statistics(k: Kernels, node: Node, x: Array) -> tuple[Array, Array]:
    """Mean and variance of each of `groups` of neighbouring channels, of an image each or, `batch`, of all together:
    (N, groups), or (1, C).
    """
    order, lanes, batch = node.text("order"), node.integer("lanes", 0), node.integer("batch", 0)
    n, c = x.shape[:2]
    groups, pixels = node.integer("groups", c), prod(x.shape[2:])
    flat = view(k, x, (n, groups, c // groups, pixels))
    if batch:
        shape = (1, c)
        if order in ("chain", "fused"):
            rows = view(k, _turned(k, flat, (0, 3, 1, 2)), (n * pixels, c))
        else:
            rows = view(k, _turned(k, flat, (1, 2, 0, 3)), (c, n, pixels))
    else:
        shape = (n, groups)
        if order in ("chain", "fused"):
            rows = view(k, _turned(k, flat, (2, 3, 0, 1)), (c // groups * pixels, n * groups))
        elif order == "registers":
            rows = view(k, _turned(k, flat, (0, 1, 3, 2)), (n * groups, pixels, c // groups))
        else:
            rows = view(k, flat, (n * groups, c // groups, pixels))
    mean, variance = _statistics(k, rows, order, lanes)
    return view(k, mean, shape), view(k, variance, shape)
