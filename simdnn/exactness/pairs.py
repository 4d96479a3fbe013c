"""The pairs that a fast int8 kernel multiplies and adds in 16 bits, as it lays them out itself.

vpmaddubsw takes neighbouring bytes of a register, and registers of weights are loaded from memory as it is: so the
pairs are the neighbours in the prepared weights, whatever the kernel's layout, its order of taps or its cut of K.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from isa_models import Machine, instruction
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from isa_models.readings.intervals import IntervalValue, Watch
from simdnn.kernels import kernels
from simdnn.kernels.common.batch import Batch
from simdnn.kernels.common.edges import taps_inside
from simdnn.kernels.common.epilogue import Epilogue, Parameters
from simdnn.kernels.common.kernel import Kernel
from simdnn.kernels.common.origin import origins_of
from simdnn.kernels.common.problems import ConvProblem, Problem
from simdnn.late import pd
from simdnn.primitives.costs import built
from simdnn.primitives.result import Estimate, Result

SHIFT = 128  # what kernels for u8 add to s8 sources (docs/numerics.md, rules 4 and 5)
INSTRUCTION = "vpmaddubsw"


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of weights by output channel. Positions are flat indices in one channel's weights: k of a matmul, (ic, kh,
    kw) of a convolution's group; -1 where a single weight has no partner."""

    channel: Array  # (P,)
    position: Array  # (P, 2)
    weight: Array  # (P, 2), s8 as the kernel reads them

    @cached_property
    def channels(self) -> int:
        return int(self.channel.max(initial=-1)) + 1

    def sums(self, low: int, high: int, weight: Array | None = None) -> tuple[Array, Array]:
        """The least and greatest sum of each pair before it saturates, for sources (u8) from `low` to `high`."""
        both = (self.weight if weight is None else weight).view(np.uint16)[:, 0]
        met, which = np.unique(both, return_inverse=True)  # there are at most 65536 kinds of pairs
        flat = met.view(np.int8)
        watch = Watch()
        source = IntervalValue.between("u8", np.full(flat.size, low), np.full(flat.size, high), watch)
        instruction(INSTRUCTION).apply(source, IntervalValue.between("s8", flat, flat, watch))
        (clip,) = watch.clips
        return clip.low[which], clip.high[which]


def pairs_of(kernel: Kernel, problem: Problem, weights: Array) -> Pairs:
    """The pairs of a kernel that can saturate; those that padding keeps from ever meeting the image are left out."""
    src = np.zeros(_source_shape(problem), np.uint8 if problem.src == "u8" else np.int8)
    origins = origins_of(kernel, src, weights, Parameters())
    channel, position, values = [], [], []
    for origin in origins.values():
        if origin.operand != "weights":
            continue
        index = origin.index.reshape(-1, 2)
        flat = weights.reshape(-1)
        index = index[(index >= 0).any(axis=1)]
        channels, positions = _split(index, weights.shape)
        channel.append(np.where(index[:, 0] >= 0, channels[:, 0], channels[:, 1]))
        position.append(np.where(index >= 0, positions, -1))
        values.append(np.where(index >= 0, flat[index], 0))
    found = Pairs(np.concatenate(channel), np.concatenate(position), np.concatenate(values).astype(np.int8, order="C"))
    return _reachable(found, problem)


def _source_shape(problem: Problem) -> tuple[int, ...]:
    if isinstance(problem, ConvProblem):
        return problem.mb, problem.ic, problem.ih, problem.iw
    return problem.m, problem.k


def _split(index: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Output channel and position of flat indices into weights (K, N) or (OC, IC/G, KH, KW)."""
    if len(shape) == 2:
        return index % shape[1], index // shape[1]
    each = int(np.prod(shape[1:]))
    return index // each, index % each


def _reachable(pairs: Pairs, problem: Problem) -> Pairs:
    """Pairs across taps meet the image with both halves from some output, or can be left out: one product fits."""
    if not isinstance(problem, ConvProblem):
        return pairs
    taps = problem.kh * problem.kw
    tap = pairs.position % taps
    inside = taps_inside(problem).reshape(-1, taps)
    together = inside.T.astype(np.int64) @ inside.astype(np.int64) > 0
    kept = (pairs.position >= 0).all(axis=1) & together[tap[:, 0], tap[:, 1]]
    return Pairs(pairs.channel[kept], pairs.position[kept], np.ascontiguousarray(pairs.weight[kept]))


def counting(estimate: Estimate, rows: int) -> Kernel:
    """The kernel that counts saturated pairs in each output of the same problem with `rows` rows or images."""
    problem = estimate.problem
    larger: Problem
    if isinstance(problem, ConvProblem):
        larger = replace(problem, mb=rows, epilogue=Epilogue("s32"))
    else:
        larger = replace(problem, m=rows, epilogue=Epilogue("s32"))
    assert isinstance(estimate.machine, Machine)
    kind = next(kind for kind in kernels() if kind.name == estimate.implementation)
    assert isinstance(estimate.machine, Machine)  # no step of a GPU's kernels saturates
    pairs, *_ = kind.build(larger, estimate.machine).saturating
    return pairs.counting()


def count(estimate: Estimate, src: Array, weights: Array) -> Array:
    """How many pairs saturate on the way to each output."""
    from simdnn import numerics  # brings LLVM, which a cost alone doesn't need

    counter = counting(estimate, len(src))
    outputs = numerics.run(counter.program, counter.prepare(src, weights, Parameters()))
    return counter.finish(outputs)


def saturated_pairs(result: Result, src: Array, weights: Array) -> pd.DataFrame:
    """Frame: positions (of the pair along the sum), outputs (in how many it saturated), the most frequent first.

    The pairs of a whole problem, by the instruction itself, wherever the ranges of source and weights let it saturate.
    """
    columns = ["positions", "outputs"]
    if not result.kernel.saturates:
        return pd.DataFrame([], columns=columns)
    found: Counter[tuple[int, int]] = Counter()
    for kernel, problem, *operands in _products(result, src, weights):
        found.update(_pairs_that_saturate(kernel, problem, *operands))
    shape = weights.shape[1:] if isinstance(result.problem, ConvProblem) else (result.problem.k,)
    rows = [(tuple(_place(p, shape) for p in key), n) for key, n in found.items() if n]
    return pd.DataFrame(rows, columns=columns).sort_values("outputs", ascending=False, ignore_index=True)


def _products(result: Result, src: Array, weights: Array) -> Iterator[tuple[Kernel, Problem, Array, Array]]:
    """The kernel, problem and operands of each product of a batch, or of what is one problem."""
    problem = result.problem
    if isinstance(problem, ConvProblem):
        yield result.kernel, problem, src, weights
        return
    kind = next(kind for kind in kernels() if kind.name == result.implementation)
    alone = replace(problem, batch=Batch())
    kernel = built(kind, alone, result.machine)
    sources, matrices = src.reshape(-1, problem.m, problem.k), weights.reshape(-1, problem.k, problem.n)
    for a, b in zip(problem.batch.parts("src"), problem.batch.parts("wei"), strict=True):
        yield kernel, alone, sources[a], matrices[b]


def _pairs_that_saturate(kernel: Kernel, problem: Problem, src: Array, weights: Array) -> dict[tuple[int, int], int]:
    """Positions of pairs in a channel's weights, and in how many outputs each saturated."""
    pairs = pairs_of(kernel, problem, weights)
    shift = SHIFT if problem.src == "s8" else 0
    source = (src.astype(np.int16) + shift).astype(np.uint8)
    least, most = pairs.sums(int(source.min()), int(source.max()))
    risky = np.flatnonzero((least < fmt("s16").low) | (most > fmt("s16").high))
    groups = problem.groups if isinstance(problem, ConvProblem) else 1
    per_group = (int(pairs.channel.max(initial=0)) + 1) // groups or 1
    found: dict[tuple[int, int], int] = {}
    kinds, which = np.unique(pairs.position[risky], axis=0, return_inverse=True)
    for kind, position in enumerate(kinds):
        if (position < 0).any():
            continue
        chosen = risky[which.reshape(-1) == kind]
        for group in range(groups):
            members = chosen[pairs.channel[chosen] // per_group == group]
            if len(members):
                key = (int(position[0]), int(position[1]))
                found[key] = found.get(key, 0) + _saturating(problem, source, position, group, pairs.weight[members])
    return found


def _place(flat: int, shape: tuple[int, ...]) -> int | tuple[int, ...]:
    return flat if len(shape) == 1 else tuple(int(i) for i in np.unravel_index(flat, shape))


def _saturating(problem: Problem, source: Array, position: Array, group: int, weight: Array) -> int:
    """How many outputs of these channels (P, 2) have a pair that saturates, over all rows or pixels."""
    taken = np.stack([_column(problem, source, int(p), group) for p in position], axis=1)  # (R, 2)
    taken = np.repeat(taken[:, None], len(weight), axis=1)  # (R, P, 2)
    met = instruction(INSTRUCTION)(taken.reshape(len(taken), -1), weight.reshape(-1))
    wide = (taken.astype(np.int32) * weight).sum(axis=2)
    return int((met != wide).sum())


def _column(problem: Problem, source: Array, position: int, group: int) -> Array:
    """Source elements that one weight of a channel meets, in each row of a matmul or each output pixel."""
    if not isinstance(problem, ConvProblem):
        return source[:, position]
    p = problem
    ic, (u, w) = position // (p.kh * p.kw), divmod(position % (p.kh * p.kw), p.kw)
    top, left, bottom, right = p.padding
    plane = np.pad(source[:, group * (p.ic // p.groups) + ic], ((0, 0), (top, bottom), (left, right)))
    y, x = u * p.dilation[0], w * p.dilation[1]
    window = plane[:, y : y + p.oh * p.strides[0] : p.strides[0], x : x + p.ow * p.strides[1] : p.strides[1]]
    return np.ascontiguousarray(window[:, : p.oh, : p.ow]).reshape(-1)


def inputs_for(problem: Problem, asked: Sequence[dict[int, int]], fill: int) -> Array:
    """Sources, one row or image each, that hold the numbers asked for at positions of a channel's weights.

    `fill` stands elsewhere. Of a convolution the taps of one output that sees them all are set, and keys count on from
    group to group: group * positions + position.
    """
    dtype = np.uint8 if problem.src == "u8" else np.int8
    if not isinstance(problem, ConvProblem):
        src: Array = np.full((len(asked), problem.k), fill, dtype)
        for row, numbers in enumerate(asked):
            src[row, list(numbers)] = list(numbers.values())
        return src
    p, inside = problem, taps_inside(problem).reshape(-1, problem.kh * problem.kw)
    src = np.full((len(asked), p.ic, p.ih, p.iw), fill, dtype)
    ic, taps = p.ic // p.groups, p.kh * p.kw
    for row, numbers in enumerate(asked):
        used = sorted({key % taps for key in numbers})
        output = int(inside[:, used].all(axis=1).argmax())
        y, x = divmod(output, p.ow)
        for key, number in numbers.items():
            channel, tap = divmod(key, taps)
            assert channel < p.groups * ic
            u, w = divmod(tap, p.kw)
            at = (
                y * p.strides[0] + u * p.dilation[0] - p.padding[0],
                x * p.strides[1] + w * p.dilation[1] - p.padding[1],
            )
            src[row, channel, at[0], at[1]] = number
    return src
