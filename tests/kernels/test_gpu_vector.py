"""Kernels between the products on a GPU: the CPU's problems with the CPU's answers, and what they cost."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa_models import Unimplemented
from isa_models.machines.loader import gpu_machine
from isa_models.machines.shipped import gpu_machine_names
from simdnn import numerics
from simdnn.kernels.common import functions
from simdnn.kernels.common.copy import CopyProblem
from simdnn.kernels.common.elementwise import MapProblem, collapse, elementwise
from simdnn.kernels.common.expression import trace
from simdnn.kernels.common.reduce import ReduceProblem, merge
from simdnn.kernels.common.vocabulary import Spread
from simdnn.kernels.gpu import copy as gpu_copy
from simdnn.kernels.gpu import reduce as gpu_reduce
from simdnn.kernels.gpu.grid import LANES, spread
from simdnn.kernels.gpu.vocabulary import GpuVocabulary
from simdnn.kernels.x86.code import unit_of
from simdnn.kernels.x86.vocabulary import X86Vocabulary
from simdnn.program.records import Register
from simdnn.timing.gpu.estimate import estimate_gpu
from tests.effort import examples

Array = np.ndarray[Any, np.dtype[Any]]
MACHINES = st.sampled_from(gpu_machine_names())
SHAPES = st.lists(st.integers(1, 40), min_size=1, max_size=4).map(tuple)
TYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "u8": np.uint8}
FORMULAS: dict[str, tuple[Any, tuple[str, ...], str]] = {
    "add": (lambda a, b: a + b, ("f32", "f32"), "f32"),
    "clipped": (lambda a, b: a.minimum(b).maximum(0.0), ("f32", "f32"), "f32"),
    "exp": (lambda a: functions.exp(a), ("f32",), "f32"),
    "log": (lambda a: functions.log(a), ("f32",), "f32"),
    "erf": (lambda a: functions.erf(a), ("f32",), "f32"),
    "narrow": (lambda a, b: (a / b).sqrt() - b.abs(), ("f16", "f16"), "f16"),
    "bf16": (lambda a, b: a * b, ("bf16", "f32"), "bf16"),
    "quantized": (lambda a, s: ((a * s).minimum(300.0).nearest() + 3).at_least(0), ("f32", "f32"), "u8"),
    "dequantized": (lambda a, z: (a - z).to_float() * 0.25, ("u8", "u8"), "f32"),
}


def run(kernel: Spread, inputs: dict[str, Array], engine: str = "auto") -> Array:
    with np.errstate(all="ignore"):
        return kernel.finish(numerics.run(kernel.program, kernel.prepare(inputs), engine=engine))


def drawn(dtype: str, shape: tuple[int, ...], seed: int) -> Array:
    rng = np.random.default_rng(seed)
    if dtype == "u8":
        return rng.integers(0, 128, shape).astype(TYPES[dtype])
    return (rng.standard_normal(shape) * 3).astype(TYPES[dtype])


@given(MACHINES, st.sampled_from(sorted(FORMULAS)), SHAPES, st.integers(0, 99), st.booleans())
@examples(50)
def test_elements_are_the_cpus(name: str, formula: str, shape: tuple[int, ...], seed: int, compiled: bool) -> None:
    function, types, dst = FORMULAS[formula]
    engine = "compiled" if compiled else "reference"
    name = "b580" if name == "v100" and "bf16" in types else name
    rng = np.random.default_rng(seed)
    shapes = [shape, tuple(n if rng.random() < 0.6 else 1 for n in shape)][: len(types)]
    operands = [drawn(t, s, seed + i) for i, (t, s) in enumerate(zip(types, shapes, strict=True))]
    own = [[0 if n == 1 else int(np.prod(s[i + 1 :])) for i, n in enumerate(s)] for s in shapes]
    dims, strides = collapse(shape, [tuple(s) for s in own])
    problem = MapProblem(trace(function, types), dims, tuple(strides), dst)
    inputs = {f"src{i}": a for i, a in enumerate(operands)}
    found = run(elementwise(problem, GpuVocabulary(gpu_machine(name))), inputs, engine)
    with np.errstate(all="ignore"):
        cpu = run(elementwise(problem, X86Vocabulary(unit_of("avx512_core"))), inputs, "reference")
    assert found.dtype == cpu.dtype
    np.testing.assert_array_equal(found.astype(np.float64), cpu.astype(np.float64))  # every NaN is like another


@pytest.mark.parametrize("lines", [1, 3])
@pytest.mark.parametrize("name", ["b580", "dg1", "v100"])
def test_few_long_lines_are_reduced_in_two_kernels(name: str, lines: int) -> None:
    x = drawn("f32", (lines, 50000), 1)
    dims, reduced = merge(x.shape, frozenset({1}))
    for kind, expected in (("max", x.max(1)), ("sum_square", (x.astype(np.float64) ** 2).sum(1))):
        kernel = gpu_reduce.reduction(ReduceProblem(kind, dims, reduced, "f32", "f32"), gpu_machine(name))
        assert len(kernel.program.body) == 2
        np.testing.assert_allclose(run(kernel, {"src": x}), expected, rtol=1e-5)


def test_an_addition_takes_the_time_of_its_bytes() -> None:
    expression = trace(lambda a, b: a + b, ["f32", "f32"])
    for name in gpu_machine_names():
        gpu = gpu_machine(name)
        problem = MapProblem(expression, (1 << 24,), ((1,), (1,)), "f32")
        cost = estimate_gpu(elementwise(problem, GpuVocabulary(gpu)).program, gpu, cold=True)
        least = 3 * 4 * 2**24 / (gpu.sustained_gb_s * gpu.stacks * 1e9)
        assert least <= cost.seconds < 1.5 * least + 1e-6, name


def test_turning_a_matrix_costs_more_than_copying_it() -> None:
    gpu = gpu_machine("b580")
    costs = [
        estimate_gpu(gpu_copy.copying(CopyProblem((1024, 1024), strides, 4), gpu).program, gpu).cycles
        for strides in ((1024, 1), (1, 1024))
    ]
    assert costs[0] < costs[1]
    for size in (1, 2, 4, 8):
        assert estimate_gpu(gpu_copy.copying(CopyProblem((5, 33), (1, 5), size), gpu).program, gpu).cycles > 0


@pytest.mark.parametrize("line", [1024, 128, 32])
def test_a_line_of_whole_vectors_is_copied_by_whole_vectors(line: int) -> None:
    program = gpu_copy.copying(CopyProblem((8, line), (line, 1), 4), gpu_machine("b580")).program
    moved = [(op.dst.lanes, times) for op, times in program.ops() if isinstance(op.dst, Register)]
    assert {lanes for lanes, _ in moved} == {LANES}
    assert sum(lanes * times for lanes, times in moved) >= 8 * line


@given(st.lists(st.integers(1, 300), min_size=1, max_size=4).map(tuple), MACHINES)
def test_a_grid_covers_its_pieces(extents: tuple[int, ...], name: str) -> None:
    gpu = gpu_machine(name)
    grid = spread(extents, gpu)
    assert all(n <= full < n + t for n, full, t in zip(extents, grid.full, grid.threads, strict=True))
    assert np.prod(grid.threads) <= gpu.engines_per_core * gpu.threads


def test_bf16_on_volta_is_refused() -> None:
    problem = MapProblem(trace(lambda a: a + 1.0, ["bf16"]), (64,), ((1,),), "bf16")
    with pytest.raises(Unimplemented, match="bf16"):
        elementwise(problem, GpuVocabulary(gpu_machine("v100")))
