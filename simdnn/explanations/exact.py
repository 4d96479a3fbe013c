"""The sums that a problem asks for, in integers that neither round, wrap nor saturate: what kernels are held against.

Products are formed by BLAS, in f32 where no sum can reach 2**24, in f64 where none reaches 2**53: any order is exact
there. Beyond that they are Python's integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.problems import ConvProblem, Problem

_EXACT_F32, _EXACT_F64 = 1 << 24, 1 << 53


@dataclass(frozen=True, eq=False)
class Sums:
    """A problem's integer operands less their zero points, and the sums of their products.

    A sum is made of `terms`: one, or where scales change along K one for each group that shares them.
    """

    problem: Problem
    src: Array  # (…, M, K) or nchw, int64
    weights: Array  # (…, K, N) or (OC, IC/G, KH, KW), int64
    period: int  # k of a term; of a convolution 0
    limit: int  # the greatest magnitude of a source of this type, less the zero points

    @staticmethod
    def of(problem: Problem, src: Array, weights: Array, parameters: Parameters) -> Sums:
        """The operands as given, with the problem's zero points."""
        p, e = parameters, problem.epilogue
        conv = isinstance(problem, ConvProblem)
        a = src.astype(np.int64) - (int(p.zp_src) if e.zp_src else 0)
        w = weights.astype(np.int64) - (int(p.zp_wei) if e.zp_wei else 0)
        if p.src_zero_points is not None:
            a = a - (int(p.src_zero_points.reshape(-1)[0]) if conv else _along(p.src_zero_points, -1, a.shape[-1]))
        if p.wei_zero_points is not None:
            w = w - (int(p.wei_zero_points.reshape(-1)[0]) if conv else _along(p.wei_zero_points, -2, w.shape[-2]))
        form, points = fmt(problem.src), src - a
        limit = max(form.high - int(points.min(initial=0)), int(points.max(initial=0)) - form.low)
        if isinstance(problem, ConvProblem):
            return Sums(problem, a, w, 0, limit)
        return Sums(problem, a, w, problem.scale_period, limit)

    @property
    def length(self) -> int:
        """K of a matmul; a term of its sum takes `period` of it."""
        return 0 if isinstance(self.problem, ConvProblem) else int(self.weights.shape[-2])

    def of_weights(self, weights: Array) -> Sums:
        """The sources with other weights: int64 of the same shape."""
        return replace(self, weights=weights)

    def counting(self, weights: Array) -> Sums:
        """Sums that count: a product is 1 where the source is not zero and `weights` are true, else 0."""
        return replace(self, src=(self.src != 0).astype(np.int64), weights=weights.astype(np.int64))

    def of_magnitudes(self) -> Sums:
        """Sums of the products' magnitudes."""
        return replace(self, src=np.abs(self.src), weights=np.abs(self.weights))

    def bound(self, any_source: bool = False) -> int:
        """A bound that no term's magnitude exceeds, with the source that is there or with any of its type."""
        most = self.limit if any_source else int(np.abs(self.src).max(initial=0))
        size = np.abs(self.weights)
        if isinstance(self.problem, ConvProblem):
            return most * int(size.sum(axis=(1, 2, 3)).max(initial=0))
        parts = size.reshape(*size.shape[:-2], -1, self.period, size.shape[-1])
        return most * int(parts.sum(axis=-2).max(initial=0))

    def terms(self) -> Iterator[Array]:
        """Each term of all outputs: (…, M, N) or nchw; int64, or Python's integers where those do not hold it."""
        bound = self.bound()
        kept = np.float32 if bound < _EXACT_F32 else np.float64 if bound < _EXACT_F64 else object
        a, w = self.src.astype(kept), self.weights.astype(kept)
        if isinstance(self.problem, ConvProblem):
            yield _whole(_convolved(self.problem, a, w))
            return
        for first in range(0, w.shape[-2], self.period):
            part = slice(first, first + self.period)
            yield _whole(np.matmul(a[..., part], w[..., part, :]))


def _along(table: Array, axis: int, length: int) -> Array:
    """Zero points by group, one for each k."""
    found: Array = np.repeat(table.astype(np.int64), length // table.shape[axis], axis=axis)
    return found


def _whole(sums: Array) -> Array:
    return sums if sums.dtype == object else sums.astype(np.int64)


def _convolved(p: ConvProblem, src: Array, weights: Array) -> Array:
    """Tap by tap, a product of matrices each; padding adds nothing."""
    top, left, bottom, right = p.padding
    around, kernel = [(top, bottom), (left, right)], [p.kh, p.kw]
    steps = list(zip(p.strides, p.dilation, (p.oh, p.ow), strict=True))
    if d := p.depth:
        around, kernel = [(d.front, d.back), *around], [d.k, *kernel]
        steps.insert(0, (d.stride, d.dilation, d.o))
    padded = np.pad(src, [(0, 0), (0, 0), *around])
    taps = weights.reshape(p.groups, p.oc // p.groups, -1, *kernel)
    out = [o for _, _, o in steps]
    count, channels = prod(out), (slice(None),)
    total: Array = np.zeros((p.mb, p.groups, p.oc // p.groups, count), src.dtype)
    for tap in np.ndindex(*kernel):
        places = zip(tap, steps, strict=True)
        window = padded[channels * 2 + tuple(slice(t * d, t * d + (o - 1) * s + 1, s) for t, (s, d, o) in places)]
        total += np.matmul(taps[channels * 3 + tap][None], window.reshape(p.mb, p.groups, -1, count))
    return total.reshape(p.mb, p.oc, *out)
