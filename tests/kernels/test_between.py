"""Reductions and pooling on every target: what NumPy has in f64, on shapes of every kind and on random ones."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa_models.formats import fmt
from isa_models.machines.loader import gpu_machine
from isa_models.machines.shipped import gpu_machine_names
from simdnn import numerics
from simdnn.kernels.common.pool import PoolProblem, pool_inputs, pool_output, pooling
from simdnn.kernels.common.reduce import KINDS, ReduceProblem, merge
from simdnn.kernels.gpu import reduce as gpu_reduce
from simdnn.kernels.gpu.vocabulary import GpuVocabulary
from simdnn.kernels.x86.code import unit_of
from simdnn.kernels.x86.reduce import reduction
from simdnn.kernels.x86.vocabulary import X86Vocabulary
from tests.effort import examples, one_in

Array = np.ndarray[Any, np.dtype[Any]]
UNITS = ("avx2", "avx512_core", "avx512_core_bf16")
TARGETS = (*UNITS, *gpu_machine_names())
TYPED = [
    pair for pair in product(TARGETS, ("f32", "f16", "bf16")) if pair not in (("v100", "bf16"), ("titan_xp", "bf16"))
]
NEAR = {"f32": 1e-4, "f16": 2e-3, "bf16": 2e-2}
#: by row, by column, over several, all, nothing; a shape, and the axes that are reduced
SHAPES: list[tuple[tuple[int, ...], set[int]]] = [
    ((3, 5, 21), {2}),
    ((3, 5, 21), {1}),
    ((3, 5, 21), {0, 2}),
    ((7,), {0}),
    ((3, 100), {1}),
    ((1,), {0}),
    ((9, 17), set()),
]


def reduced(problem: ReduceProblem, target: str, x: Array, engine: str) -> Array:
    if target in UNITS:
        return numerics.run(reduction(problem, unit_of(target)), {"src": x}, engine=engine)["dst"]
    kernel = gpu_reduce.reduction(problem, gpu_machine(target))
    with np.errstate(all="ignore"):
        return kernel.finish(numerics.run(kernel.program, kernel.prepare({"src": x}), engine=engine))


def check_reduction(
    kind: str, shape: tuple[int, ...], axes: set[int], target: str, dtype: str, divisor: int, engine: str = "reference"
) -> None:
    dims, lengths = merge(shape, frozenset(axes))
    dst = dtype if target in UNITS else "f32"
    x = (np.random.default_rng(len(shape)).standard_normal(shape) * 3).astype(fmt(dtype).dtype)
    found = reduced(ReduceProblem(kind, dims, lengths, dtype, dst, divisor), target, x, engine).astype(np.float64)
    wide, over = x.astype(np.float64), tuple(sorted(axes))
    terms = {"sum_square": wide**2, "sum_abs": abs(wide)}.get(kind, wide)
    by = {"max": np.max, "min": np.min, "prod": np.prod}.get(kind, np.sum)
    scale = np.abs(terms).sum(over).max() if kind.startswith("sum") else 0
    with np.errstate(over="ignore"):
        expected = (np.asarray(by(terms, axis=over)) / divisor).ravel().astype(fmt(dst).dtype).astype(np.float64)
    np.testing.assert_allclose(found, expected, rtol=NEAR[dst], atol=1e-5 * scale)


@one_in(3, "target")
@pytest.mark.parametrize(("target", "dtype"), TYPED)
def test_reductions(target: str, dtype: str) -> None:
    for (shape, axes), kind in product(SHAPES, KINDS):
        check_reduction(kind, shape, axes, target, dtype, 2)


@given(
    st.sampled_from(TYPED),
    st.sampled_from(sorted(KINDS)),
    st.lists(st.integers(1, 40), min_size=1, max_size=4).map(tuple),
    st.data(),
)
@examples(60)
def test_reductions_of_any_shape(
    typed: tuple[str, str], kind: str, shape: tuple[int, ...], data: st.DataObject
) -> None:
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1)))
    check_reduction(kind, shape, axes, *typed, divisor=3 if kind == "sum" else 1, engine="compiled")


@one_in(3)
@pytest.mark.parametrize(("target", "dtype"), TYPED)
def test_pooling(target: str, dtype: str) -> None:
    vocabulary = X86Vocabulary(unit_of(target)) if target in UNITS else GpuVocabulary(gpu_machine(target))
    for kind, (channels, side, stride) in product(("max", "mean"), ((21, 3, 2), (1, 1, 1), (40, 2, 1))):
        x = np.random.default_rng(channels).normal(size=(2, channels, 7, 9)).astype(fmt(dtype).dtype)
        oh = (7 - side) // stride + 1
        problem = PoolProblem(kind, 2, channels, 7, 9, side, 2, oh, 8, dtype, (stride, 1))
        windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (side, 2), (2, 3))[:, :, ::stride]
        counts = np.arange(1, 1 + 8 * oh).reshape(oh, 8)
        expected = windows.max((4, 5)) if kind == "max" else windows.sum((4, 5)) / counts
        kernel = pooling(problem, vocabulary)
        inputs = kernel.prepare(pool_inputs(problem, x, None if kind == "max" else counts))
        found = kernel.finish(numerics.run(kernel.program, inputs, engine="reference"))
        np.testing.assert_allclose(pool_output(problem, found).astype(np.float64), expected, rtol=1e-2, atol=1e-3)
