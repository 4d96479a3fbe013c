"""Kernels of several passes beside the passes that they are made of: the same bits, and the bytes of one pass."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import isa_models
import simdnn
from isa_models import Unimplemented
from isa_models.errors import OutOfRegisters
from simdnn import numerics
from simdnn.kernels.common.pool import PoolProblem, pool_inputs, pool_output
from simdnn.networks.calls import words_for
from simdnn.operators import fusing, recorded_passes
from simdnn.primitives.run import Target

TYPES: dict[str, Any] = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "s8": np.int8, "u8": np.uint8}
RNG = np.random.default_rng(8)


def drawn(dtype: str, *shape: int) -> Any:
    if dtype in ("s8", "u8"):
        return RNG.integers(0, 100, shape).astype(TYPES[dtype])
    return RNG.standard_normal(shape).astype(np.float32).astype(TYPES[dtype])


def checked(patch: pytest.MonkeyPatch, machine: str, call: Any, *args: Any, **options: Any) -> tuple[Any, int]:
    """A primitive's result, and how many kernels of several passes it has, each of which makes the passes' bits."""
    found: list[fusing.FusedKernel] = []
    true = fusing.kernel_of

    def noting(group: recorded_passes.PassGroup) -> fusing.FusedKernel:
        found.append(true(group))
        return found[-1]

    patch.setattr(fusing, "kernel_of", noting)
    result = call(*args, machine=machine, **options)
    patch.undo()
    words = words_for(isa_models.machine(machine), Target.of(machine, None, 1, "auto", "fastest").caps)
    built = 0
    for one in found:
        if isinstance(one.problem, PoolProblem):
            continue
        try:
            kernel = one.build(one.problem, words)
        except (Unimplemented, OutOfRegisters):  # which leaves the passes as they are
            continue
        built += 1
        inputs = {f"src{i}": array.reshape(-1) for i, array in enumerate(one.sources)}
        made = kernel.finish(numerics.run(kernel.program, kernel.prepare(inputs), engine="reference"))
        np.testing.assert_array_equal(made.view(np.uint8), one.made.reshape(-1).view(np.uint8))
    return result, built


@settings(max_examples=20)
@given(
    rows=st.integers(1, 4),
    line=st.sampled_from([2, 7, 16, 33, 64, 90, 137]),
    src=st.sampled_from(["f32", "bf16", "s8"]),
    dst=st.sampled_from(["f32", "bf16", "u8"]),
    dispatch=st.sampled_from(["fastest", "onednn"]),
    machine=st.sampled_from(["zen4", "hsw"]),
    which=st.sampled_from(["softmax", "logsoftmax", "layer", "rms", "mean"]),
)
def test_lines(rows: int, line: int, src: str, dst: str, dispatch: str, machine: str, which: str) -> None:
    if machine == "hsw" and "bf16" in (src, dst) and dispatch == "onednn":
        dispatch = "fastest"  # which has no bf16 without AVX-512
    if which == "mean" and dispatch == "onednn" and dst != src:
        dst = src
    x = drawn(src, rows, line)
    calls = {
        "softmax": (simdnn.softmax, {"axis": 1}),
        "logsoftmax": (simdnn.softmax, {"axis": 1, "logarithm": True}),
        "layer": (
            simdnn.layer_normalization,
            {"scale": drawn("f32", line), "shift": drawn("f32", line)},
        ),
        "rms": (simdnn.layer_normalization, {"rms": True, "scale": drawn("f32", line)}),
        "mean": (simdnn.reduction, {"axes": [1], "algorithm": "mean"}),
    }
    call, options = calls[which]
    with pytest.MonkeyPatch.context() as patch:
        checked(patch, machine, call, x, dst=dst, dispatch=dispatch, **options)


@settings(max_examples=20)
@given(
    shape=st.lists(st.integers(1, 20), min_size=1, max_size=3).map(tuple),
    src=st.sampled_from(["f32", "bf16", "s8", "u8"]),
    other=st.sampled_from(["f32", "bf16", "u8"]),
    dst=st.sampled_from(["f32", "bf16", "s8"]),
    spread=st.booleans(),
    machine=st.sampled_from(["zen4", "hsw", "b580"]),
)
def test_elements(shape: tuple[int, ...], src: str, other: str, dst: str, spread: bool, machine: str) -> None:
    a, b = drawn(src, *shape), drawn(other, *([1] * len(shape) if spread else shape))
    with pytest.MonkeyPatch.context() as patch:
        options = {"scales": {"src0": 0.5}, "post_ops": ["relu", ("linear", 2.0, 1.0)], "dst": dst}
        _, kernels = checked(patch, machine, simdnn.binary, a, b, "add", **options)
    assert kernels


@pytest.mark.parametrize("machine", ["zen4", "hsw", "b580"])
@pytest.mark.parametrize("src", ["f32", "bf16", "u8"])
@pytest.mark.parametrize(("algorithm", "dispatch"), [("max", "fastest"), ("avg_exclude_padding", "onednn")])
def test_windows(src: str, algorithm: str, dispatch: str, machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pooling with what is behind it, channels last, is one kernel with the bits of its passes."""
    if (machine, src) == ("hsw", "bf16") or machine == "b580":
        dispatch = "fastest"  # oneDNN has no bf16 without AVX-512; its GPUs' bits are not known here
    found: list[fusing.FusedKernel] = []
    true = fusing.kernel_of

    def noting(group: recorded_passes.PassGroup) -> fusing.FusedKernel:
        found.append(true(group))
        return found[-1]

    monkeypatch.setattr(fusing, "kernel_of", noting)
    image = np.ascontiguousarray(drawn(src, 2, 5, 6, 21)).transpose(0, 3, 1, 2)
    simdnn.pooling(image, 2, algorithm, strides=2, machine=machine, post_ops=["relu"], dispatch=dispatch)
    kernels = [one for one in found if isinstance(one.problem, PoolProblem)]
    assert len(kernels) == (src != "u8" or dispatch == "onednn")  # others of u8 become f32 first
    words = words_for(isa_models.machine(machine), Target.of(machine, None, 1, "auto", "fastest").caps)
    for one in kernels:
        problem = one.problem
        assert isinstance(problem, PoolProblem)
        kernel = one.build(problem, words)
        counts = np.full((problem.oh, problem.ow), 4, np.float32) if problem.kind == "mean" else None
        inputs = pool_inputs(problem, one.sources[0], counts)
        inputs |= {f"beside{i}": array for i, array in enumerate(one.sources[1:], 1)}
        made = pool_output(problem, kernel.finish(numerics.run(kernel.program, kernel.prepare(inputs))))
        np.testing.assert_array_equal(made.view(np.uint8), np.ascontiguousarray(one.made).view(np.uint8))


def test_one_kernel_reads_and_writes_once() -> None:
    """bf16 through a function: 2 bytes in, 2 bytes out, and no array of f32 between."""
    x = drawn("bf16", 1 << 16)
    r = simdnn.eltwise(x, "relu", machine="zen4", dispatch="onednn")
    assert r.implementation == "eltwise:avx512_core_bf16"
    near, second = (r.traffic.set_index("level").loc[level] for level in ("L1", "L2"))
    assert near["written_bytes"] == x.nbytes and near["read_bytes"] < 2 * x.nbytes  # a constant a vector beside it
    assert x.nbytes <= second["read_bytes"] < 2.1 * x.nbytes  # and what is stored comes in, too
    assert [run.free for run in r.nodes] == ["fused", "fused", "", "view"]


def test_a_normalization_is_one_kernel() -> None:
    x = drawn("bf16", 16, 256)
    scale, shift = drawn("f32", 256), drawn("f32", 256)
    with pytest.MonkeyPatch.context() as patch:
        r, kernels = checked(patch, "zen4", simdnn.layer_normalization, x, scale, shift, dispatch="onednn", dst="bf16")
    assert kernels == 1 and r.implementation == "layer_normalization:avx512_core_bf16"


def test_a_step_that_two_passes_read_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A softmax's exponentials, each with one conversion to an integer, are kept along the line for the division."""
    kernels: list[fusing.FusedKernel] = []
    true = fusing.kernel_of
    monkeypatch.setattr(fusing, "kernel_of", lambda group: kernels.append(true(group)) or kernels[-1])
    simdnn.softmax(drawn("f32", 4, 160), 1, machine="zen4")
    (kernel,) = kernels
    words = words_for(isa_models.machine("zen4"), Target.of("zen4", None, 1, "auto", "fastest").caps)
    ops = kernel.build(kernel.problem, words).program.ops()
    assert sum(times for op, times in ops if op.instruction == "vcvtps2dq") == 4 * 160 / 16


def test_the_estimate_is_that_of_the_run() -> None:
    x = drawn("bf16", 32, 100)
    for dispatch in ("fastest", "onednn"):
        ran = simdnn.softmax(x, 1, machine="zen4", dst="u8", scales={"dst": 1 / 255}, dispatch=dispatch)
        asked = {"src": x.shape, "axis": 1, "dt": "bf16:u8", "scales": {"dst": 1 / 255}}
        assert simdnn.estimate("softmax", machine="zen4", dispatch=dispatch, **asked).cycles == ran.cycles


@pytest.mark.parametrize("isa", ["avx2", "avx512_core"])
@pytest.mark.parametrize("algorithm", ["mul", "max", "min", "sum"])
def test_lanes_of_a_register_are_joined_without_the_zeros_beside_them(algorithm: str, isa: str) -> None:
    """Numbers below -1, whose product and greatest value a zero would be seen in."""
    exact = {"mul": np.prod, "max": np.max, "min": np.min, "sum": np.sum}[algorithm]
    for size in (3, 4, 8, 13, 16, 37, 64):
        x = -1 - np.random.default_rng(size).random((2, size), np.float32) / 4
        found = simdnn.reduction(x, axes=[1], algorithm=algorithm, machine="zen4", isa=isa, dispatch="onednn")
        np.testing.assert_allclose(found.output[:, 0], exact(x.astype(np.float64), 1), rtol=1e-5)
