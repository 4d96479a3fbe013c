"""GEMM and convolution on a V100: chains of fused sums or of FMA, both engines alike, and what it costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models import Unimplemented, instruction, machine
from isa_models.machines.loader import gpu_machine
from simdnn.kernels.common.epilogue import Epilogue
from simdnn.kernels.common.problems import ConvProblem
from simdnn.kernels.gpu.implicit import view_copies
from simdnn.kernels.gpu.problem import product_of
from simdnn.kernels.nvidia.gemm import SmGemm
from simdnn.timing.gpu.estimate import estimate_gpu
from tests.effort import examples
from tests.work import at_most

V100 = gpu_machine("v100")
TYPES = {"f32": np.float32, "f16": np.float16}
Array = np.ndarray[Any, np.dtype[Any]]
ENGINES = st.sampled_from(["compiled", "reference"])


def drawn(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(TYPES[dtype])


def chained(a: Array, b: Array) -> Array:
    """K in the order of the kernel: single fused multiply-adds of f32, fused sums of four products of f16."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    if a.dtype == np.float32:
        for k in range(a.shape[1]):
            column, row = np.broadcast_arrays(a[:, k, None], b[None, k])
            total = instruction("fma.rn.f32")(total, np.ascontiguousarray(column), np.ascontiguousarray(row))
        return total
    spare = -a.shape[1] % 4
    a, b = np.pad(a, ((0, 0), (0, spare))), np.pad(b, ((0, spare), (0, 0)))
    for k in range(0, a.shape[1], 4):
        total = instruction("mma")(total, a[:, k : k + 4], b[k : k + 4], arch="volta")
    return total


@given(
    st.sampled_from(["f32", "f16"]),
    st.integers(1, 40),
    st.integers(1, 70),
    st.integers(1, 24),
    ENGINES,
    st.floats(1e-4, 1e4),
)
@examples(12)
def test_matmul_is_a_chain_of_its_instruction(dtype: str, m: int, n: int, k: int, engine: str, scale: float) -> None:
    a = (drawn(dtype, (m, k), k) * np.float32(scale)).astype(TYPES[dtype])
    b = drawn(dtype, (k, n), m)
    found = simdnn.matmul(a, b, machine="v100", engine=engine)
    assert found.output.dtype == np.float32 and found.compute_dtype == dtype
    assert found.output.tobytes() == chained(a, b).tobytes()
    exact = a.astype(np.float64) @ b.astype(np.float64)
    sizes = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    assert (np.abs(found.output - exact) <= sizes * k * 2.0**-22 + 1e-30).all()


def test_special_values_and_ties_of_the_fused_sum() -> None:
    rows = [[np.inf, 1, 0, 0], [np.nan, 0, 0, 0], [2**-24, 2**-24, 0, 0], [1, 2**-10, 2**-10, 2**-10]]
    a = np.array(rows, np.float16)
    b = np.ones((4, 2), np.float16)
    b[:, 1] = [2**-14, 2**-13, 2**-14, 2**-14]
    for engine in ("compiled", "reference"):
        found = simdnn.matmul(a, b, machine="v100", engine=engine).output
        assert found.tobytes() == chained(a, b).tobytes()
        assert np.isinf(found[0, 0]) and found[1, 0].view(np.uint32) == 0x7FFFFFFF and found[2, 0] == 2**-23


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_a_view_of_the_source_is_not_what_memory_holds(dtype: str) -> None:
    problem = ConvProblem(16, 64, 56, 56, 64, 3, 3, dtype, dtype, Epilogue(dtype), padding=(1, 1, 1, 1))
    program = SmGemm(product_of(problem), V100).program
    copies = view_copies(problem, program)
    size = np.dtype(TYPES[dtype]).itemsize
    source = 16 * 64 * 56 * 56 * size
    assert copies["src"] == pytest.approx(9, rel=0.05)
    found = estimate_gpu(program, V100, cold=True, copies=copies)
    assert source <= found.levels[2].read_bytes < 1.5 * source + 64 * 64 * 9 * size
    assert found.levels[1].read_bytes > 8 * source
    assert 2 * problem.macs / found.seconds <= V100.peak_ops(dtype)


def test_large_estimates_take_few_steps_and_are_cheaper_in_f16() -> None:
    shape = {"mb": 128, "ic": 256, "ih": 56, "iw": 56, "oc": 256, "kh": 3, "kw": 3, "padding": 1}
    with at_most(calls=2_000_000):  # it is some hundred times as many if every step is simulated
        seconds = [
            simdnn.estimate("convolution", **shape, dt=dtype, machine=machine("v100")).seconds
            for dtype in ("f16", "f32")
        ]
    assert 4 < seconds[1] / seconds[0] < 8  # peaks are 8 apart


def test_a_small_kernel_is_bound_by_its_launch() -> None:
    found = simdnn.estimate("matmul", m=16, n=16, k=16, dt="f16", machine="v100")
    assert found.bound == "launch" and found.confidence == "estimated" and found.seconds > 0.9e-6
    assert found.dispatch.chosen.sum() == 1 and '"implementation": "gemm:volta_mma"' in found.to_json()


@given(st.integers(1, 150), st.integers(1, 140), st.integers(1, 40), ENGINES)
@examples(8)
def test_without_tensor_cores_f16_is_widened_and_multiplied_in_f32(m: int, n: int, k: int, engine: str) -> None:
    """On a Titan Xp: the bits of f32 products of the widened operands, rounded once."""
    a, b = drawn("f16", (m, k), k), drawn("f16", (k, n), k + 1)
    r = simdnn.matmul(a, b, machine="titan_xp", dst="f16", engine=engine)
    wanted = simdnn.matmul(a.astype(np.float32), b.astype(np.float32), machine="titan_xp", dst="f32").output
    assert r.compute_dtype == "f32" and r.output.tobytes() == wanted.astype(np.float16).tobytes()


def test_what_widening_costs() -> None:
    """Each element once, as it comes into shared memory: fewer bytes, hardly more instructions."""
    ms = {
        (gpu, dt): simdnn.estimate("matmul", m=2048, n=2048, k=2048, dt=dt, machine=gpu).seconds
        for gpu in ("titan_xp", "v100")
        for dt in ("f32", "f16")
    }
    assert 0.9 < ms["titan_xp", "f32"] / ms["titan_xp", "f16"] < 1.2 < 3 < ms["v100", "f32"] / ms["v100", "f16"]
    with pytest.raises(Unimplemented, match="Pascal has no tensor cores; what works: f16:f16, f32:f32"):
        simdnn.estimate("matmul", m=8, n=8, k=8, dt="bf16", machine="titan_xp")
