"""Pooling and resampling."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from isa_models import InvalidArgument
from isa_models.readings.arrays import Array
from simdnn.kernels.common.pool import PoolProblem, pooling
from simdnn.libraries import LineSums
from simdnn.networks.between_products import Values
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.elementwise import has_kernel, lines_of, widened
from simdnn.networks.ops.linear import windows
from simdnn.networks.ops.registry import need, operator
from simdnn.networks.passes.nchwc import LAID
from simdnn.networks.shadows import shadow
from simdnn.networks.types import F32, is_float, label

_MOST_STEPS = 1 << 40  # elements that windows read, all in all: a quarter of an hour


class PoolWindows:
    """Windows of a node over an input (N, C, …)."""

    def __init__(self, k: Kernels, node: Node, x: Array) -> None:
        need(x.ndim >= 3, f"an input of shape {x.shape}; (N, C, …) is needed")
        self.x, self.size = x, list(x.shape[2:])
        self.kernel = node.integers("kernel_shape")
        need(len(self.kernel) == len(self.size) and min(self.kernel) > 0, f"kernel_shape {self.kernel} for {x.shape}")
        self.strides, self.dilations, self.before, self.after = windows(node, self.size, self.kernel, k.runs_models)
        reach = [(w - 1) * d + 1 for w, d in zip(self.kernel, self.dilations, strict=True)]
        up = node.integer("ceil_mode", 0)
        self.out: list[int] = []
        parts = zip(self.size, self.before, self.after, reach, self.strides, strict=True)
        for n, a, b, r, s in parts:
            span = n + a + b - r
            need(span >= 0, f"a window of {r} on a padded dimension of {n + a + b}")
            count = (-(-span // s) if up else span // s) + 1
            self.out.append(count - 1 if up and (count - 1) * s >= n + a else count)
        steps = prod((*x.shape[:2], *self.out, *self.kernel))
        if k.values and steps > _MOST_STEPS:
            raise InvalidArgument(
                f"windows of {prod(self.kernel)} elements, {prod(self.out)} in each of {x.shape[:2]} "
                f"channels: {steps:.3g} steps; at most {_MOST_STEPS:.3g} are run"
            )
        #: elements behind the padding that the last windows reach
        self.beyond = [
            max(0, (o - 1) * s + r - n - a - b)
            for o, s, r, n, a, b in zip(self.out, self.strides, reach, self.size, self.before, self.after, strict=True)
        ]
        k.allocate(
            (*x.shape[:2], *(n + a + b for n, a, b in zip(self.size, self.before, self.after, strict=True))),
            x.dtype,
            shadowed=not k.values,
        )

    def padded(self, values: Array, fill: float) -> Array:
        """Values with `fill` around, so that every window is whole."""
        widths = [(a, b + c) for a, b, c in zip(self.before, self.after, self.beyond, strict=True)]
        lead = [(0, 0)] * (values.ndim - len(widths))
        return np.pad(values, lead + widths, constant_values=fill)

    @property
    def whole(self) -> list[int]:
        """The spatial sizes with what `padded` puts around."""
        return [n + a + b + c for n, a, b, c in zip(self.size, self.before, self.after, self.beyond, strict=True)]

    def windows(self, padded: Array) -> Array:
        """(…, out…, kernel…), a view."""
        rank = len(self.kernel)
        strides = padded.strides[-rank:]
        shape = (*padded.shape[:-rank], *self.out, *self.kernel)
        steps = [t * s for t, s in zip(strides, self.strides, strict=True)]
        taps = [t * d for t, d in zip(strides, self.dilations, strict=True)]
        return np.lib.stride_tricks.as_strided(padded, shape, (*padded.strides[:-rank], *steps, *taps), writeable=False)

    def counts(self, all_of_them: bool) -> Array:
        """How many elements count in each window: those of the source, or of the padding too."""
        ones = np.ones(self.size, np.float32)
        if all_of_them:
            ones = np.pad(ones, list(zip(self.before, self.after, strict=True)), constant_values=1)
            ones = np.pad(ones, [(0, c) for c in self.beyond])
        else:
            ones = self.padded(ones, 0)
        taps = tuple(range(-len(self.kernel), 0))
        return np.asarray(self.windows(ones).sum(taps))

    def run(
        self, k: Kernels, kind: str, counts: Array | None, first: bool = False, values: Values | None = None
    ) -> Array:
        """The pooling kernel, or its cost beside a library's `values`; of three dimensions it has the rows of all
        planes of a window, gathered, as rows.
        """
        x, rank = self.x, len(self.kernel)
        shape = (*x.shape[:2], *self.out)
        if not is_float(x.dtype) or not has_kernel(x) or rank > 3:
            return self.by_numpy(k, kind, counts)
        fill = -np.inf if kind == "max" else 0
        runs = k.values and values is None
        source = self.padded(x, fill) if runs else shadow((*x.shape[:2], *self.whole), x.dtype)
        lead = [1] * (2 - rank)
        (kh, kw), (sh, sw), (dh, dw), (oh, ow) = self.spans
        if rank == 3:
            source, kh, oh = self._gathered(k, source, runs), self.kernel[0] * kh, self.out[0] * oh
            sh, dh = kh, 1
        sides = (*lead, *source.shape[2:])
        ih, iw = sides[0], sides[1]
        mb, channels = x.shape[:2]
        steps = (sh, sw), (dh, dw)
        problem = PoolProblem(kind, mb, channels, ih, iw, kh, kw, oh, ow, label(x.dtype), *steps, first)
        planes = source.reshape(*x.shape[:2], ih, iw) if runs else shadow((*x.shape[:2], ih, iw), x.dtype)
        return k.pool(problem, planes, None if counts is None else counts.reshape(oh, ow), values, x).reshape(shape)

    @property
    def spans(self) -> list[list[int]]:
        """The last two dimensions of windows, strides, dilations and outputs, ones where there are fewer."""
        lead = [1] * (2 - len(self.kernel))
        return [[*lead, *v][-2:] for v in (self.kernel, self.strides, self.dilations, self.out)]

    def _gathered(self, k: Kernels, source: Array, runs: bool) -> Array:
        """The rows that each window of a padded source (N, C, D, H, W) sees, plane by plane: (N, C, rows, W)."""
        firsts = zip(self.out[:2], self.strides, self.kernel, self.dilations, strict=False)
        deep, high = (np.arange(o)[:, None] * s + np.arange(w) * d for o, s, w, d in firsts)
        rows = (deep[:, None, :, None] * source.shape[3] + high[None, :, None, :]).reshape(-1)
        shape = (*source.shape[:2], rows.size, source.shape[4])
        if not runs:
            return k.moved(shadow(shape, source.dtype), source.shape[4])
        return k.moved(source.reshape(*source.shape[:2], -1, source.shape[4]).take(rows, 2), source.shape[4])

    def sums(self, k: Kernels) -> Array:
        """Sums of windows of s32, which wrap."""
        shape, steps = (*self.x.shape[:2], *self.out), prod(self.kernel)
        if k.shadows(self.x):
            return k.plain(shadow(shape, self.x.dtype), self.x, steps=steps)
        taps = tuple(range(-len(self.kernel), 0))
        return k.plain(self.windows(self.padded(self.x, 0)).sum(taps, np.int32), self.x, steps=steps)

    def by_numpy(self, k: Kernels, kind: str, counts: Array | None) -> Array:
        x = self.x
        if k.shadows(x):
            return self.estimated(k, kind, shadow((*x.shape[:2], *self.out), x.dtype))
        taps = tuple(range(-len(self.kernel), 0))
        if kind == "max":
            low = -np.inf if is_float(x.dtype) else float(np.iinfo(x.dtype).min)
            wide = widened(x) if is_float(x.dtype) else x  # floats of a byte have no windows in NumPy, some no infinity
            found = self.windows(self.padded(wide, low)).max(taps).astype(x.dtype)
        else:
            found = (self.windows(self.padded(widened(x), 0)).sum(taps) / counts).astype(x.dtype)
        return self.estimated(k, kind, np.ascontiguousarray(found))

    def estimated(self, k: Kernels, kind: str, found: Array) -> Array:
        """`found` at an estimated cost. Greatest bytes take as long as the greatest f32 of as many registers."""
        bytes_ = self.x.dtype.itemsize == 1 and not is_float(self.x.dtype)
        if kind != "max" or not bytes_ or len(self.kernel) > 2:
            return k.plain(found, self.x, steps=prod(self.kernel))
        (kh, kw), (sh, sw), (dh, dw), (oh, ow) = self.spans
        ih, iw = [1, *self.whole][-2:]
        registers = self.x.shape[0], -(-self.x.shape[1] // 4)
        problem = PoolProblem(kind, *registers, ih, iw, kh, kw, oh, ow, "f32", (sh, sw), (dh, dw))
        k.called("pool", pooling, problem, "estimated", implementation="estimate:pool")
        return found


@operator("MaxPool")
def max_pool(k: Kernels, node: Node, x: Array) -> Any:
    pool = PoolWindows(k, node, x)
    lines = lines_of(k, x)

    def greatest() -> Array:
        assert lines is not None
        taps, inside = pool.windows(pool.padded(x, 0)), pool.windows(pool.padded(np.ones(pool.size, bool), False))
        padding, plain = (*pool.before, *pool.after), max(pool.dilations) == len(node.outputs) == 1
        return lines.greatest_of_windows(x, taps, inside, pool.strides, padding, plain, k.target.caps)

    result = pool.run(k, "max", None, values=None if lines is None else greatest)
    if len(node.outputs) < 2:
        return result
    numbers = np.arange(x.size, dtype=np.int64).reshape(x.shape)
    if node.integer("storage_order", 0):  # column major within an image
        flat = np.arange(prod(pool.size), dtype=np.int64).reshape(pool.size[::-1]).T
        numbers = np.arange(prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * len(pool.size)) * prod(pool.size) + flat
    rank = len(pool.kernel)
    low = -np.inf if is_float(x.dtype) else float(np.iinfo(x.dtype).min)
    taps = pool.windows(pool.padded(x.astype(F32) if is_float(x.dtype) else x, low))
    best = taps.reshape(*taps.shape[:-rank], -1).argmax(-1)
    places = pool.windows(pool.padded(numbers, 0)).reshape(*taps.shape[:-rank], -1)
    indices = np.take_along_axis(places, best[..., None], -1)[..., 0]
    return result, k.plain(indices, x, steps=prod(pool.kernel))


@operator("AveragePool")
def average_pool(k: Kernels, node: Node, x: Array) -> Array:
    pool = PoolWindows(k, node, x)
    counts = pool.counts(bool(node.integer("count_include_pad", 0)))
    if (lines := lines_of(k, x)) is None:
        return pool.run(k, "mean", counts)

    def means() -> Array:
        taps, padding = pool.windows(pool.padded(x, 0)), (*pool.before, *pool.after)
        laid = bool(node.get(LAID, 1))
        found = lines.mean_of_windows(x, taps, counts, pool.strides, padding, node.version, k.target.caps, laid)
        return found + np.float32(0)  # sums begin with 0: -0 becomes 0

    return pool.run(k, "mean", counts, values=means)


def average_pool_of_whole_windows(k: Kernels, node: Node, x: Array) -> Array:
    """Means for which, if padding counts, what `ceil_mode` adds beyond it counts, too."""
    pool = PoolWindows(k, node, x)
    counts = pool.counts(False)
    return pool.run(
        k, "mean", np.full_like(counts, prod(pool.kernel)) if node.integer("count_include_pad", 0) else counts
    )


@operator("LpPool")
def lp_pool(k: Kernels, node: Node, x: Array) -> Array:
    pool, p = PoolWindows(k, node, x), node.integer("p", 2)
    taps = pool.windows(pool.padded(x.astype(F32), 0))
    found = _norms(taps.reshape(*x.shape[:2], *pool.out, -1), p, lines_of(k, x))
    return k.plain(found.astype(x.dtype), x, steps=prod(pool.kernel) * 2)


def _norms(taps: Array, p: int, lines: LineSums | None) -> Array:
    """The p-norms of lines; a library that runs models adds powers, formed in f64, up one after the other."""
    if lines is None:
        return np.asarray((np.abs(taps) ** p).sum(-1) ** (1 / p))
    powers = np.power(np.abs(taps).astype(np.float64), p).astype(F32)
    total = np.add.accumulate(powers, -1)[..., -1]
    return lines.power(total, np.full(total.shape, np.float32(1) / np.float32(p)))


@operator("GlobalAveragePool", "GlobalMaxPool")
def global_pool(k: Kernels, node: Node, x: Array) -> Array:
    axes = list(range(2, x.ndim))
    if not has_kernel(x):
        find = np.mean if node.op == "GlobalAveragePool" else np.max
        return k.plain(np.asarray(find(x, axis=tuple(axes), keepdims=True), x.dtype), x)
    lines, laid = lines_of(k, x), bool(node.get(LAID, 1))
    if node.op == "GlobalMaxPool":
        greatest = None if lines is None else lambda: lines.greatest_of_images(x, k.target.caps, laid)
        return k.reduce("max", x, axes, values=greatest)
    means = None if lines is None else lambda: lines.mean_of_images(x, k.target.caps, laid)
    return k.reduce("sum", x, axes, prod(x.shape[2:]), values=means)


@operator("GlobalLpPool")
def global_lp_pool(k: Kernels, node: Node, x: Array) -> Array:
    p = node.integer("p", 2)
    found = _norms(x.astype(F32).reshape(*x.shape[:2], -1), p, lines_of(k, x))
    return k.plain(found.astype(x.dtype).reshape(*x.shape[:2], *[1] * (x.ndim - 2)), x, steps=4)


@operator("MaxUnpool")
def max_unpool(k: Kernels, node: Node, x: Array, indices: Array, wanted: Array | None = None) -> Array:
    kernel, rank = node.integers("kernel_shape"), x.ndim - 2
    strides, pads = node.integers("strides", [1] * rank), node.integers("pads", [0] * 2 * rank)
    shape = [
        (n - 1) * s + w - a - b
        for n, s, w, a, b in zip(x.shape[2:], strides, kernel, pads[:rank], pads[rank:], strict=True)
    ]
    inferred = (*x.shape[:2], *shape)
    final = inferred if wanted is None else tuple(int(v) for v in wanted)
    k.allocate(final, x.dtype)
    need(indices.size == x.size and len(final) == x.ndim, f"indices of shape {indices.shape}, output {final}")
    result = np.zeros(final, x.dtype)
    flat = indices.reshape(-1)
    need(bool(((flat >= 0) & (flat < prod(inferred))).all()), "indices beyond the output")
    places = np.unravel_index(flat, inferred)
    need(all(int(p.max(initial=0)) < n for p, n in zip(places, final, strict=True)), "indices beyond the output")
    result[places] = x.reshape(-1)
    return k.moved(result, 1)
