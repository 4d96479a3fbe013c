"""Programs bound to inputs that stay: the values of a run that finds all anew; and what else calls are made of."""

from __future__ import annotations

import os

import ml_dtypes
import numpy as np
import pytest

import simdnn
from isa_models.host.environment import variable
from isa_models.host.memory import address
from simdnn import numerics
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.kernel import Apart
from simdnn.numerics import compiled
from simdnn.numerics.bound import Inputs
from simdnn.program.records import Program, Tensor
from tests.effort import one_in


@one_in(3)
@pytest.mark.parametrize(("m", "k", "n"), [(1, 40, 20), (7, 33, 70), (20, 64, 64)])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int8])
def test_a_bound_program_leaves_what_others_do(m: int, k: int, n: int, dtype: type) -> None:
    rng = np.random.default_rng(k)
    weights = rng.integers(-9, 9, (k, n)).astype(np.float32 if dtype is np.float32 else np.int8)
    first, second = (rng.integers(0, 99, (m, k)).astype(dtype) for _ in range(2))
    kernel = simdnn.matmul(first, weights, machine="icx").kernel
    program, prepare = kernel.program, kernel.prepare
    assert isinstance(prepare, Apart)
    beside = Inputs(prepare.beside(weights, Parameters()))
    bound = beside.to(program)
    assert beside.to(program) is bound
    found = []
    for source in (first, second, first):
        inputs = prepare.source(source)
        expected = numerics.run(program, {**inputs, **beside})
        compiled._EXECUTED[program.signature] = compiled.HASTY_OPS + 1
        outputs = bound.run(inputs)
        assert outputs is not None and outputs.keys() == expected.keys()
        assert all((outputs[name] == expected[name]).all() for name in expected)
        found.append(outputs)
    assert not any(np.shares_memory(found[0][name], found[2][name]) for name in found[0])


def test_hasty_code_is_not_kept() -> None:
    src, weights = np.ones((3, 24), np.uint8), np.ones((24, 33), np.int8)
    kernel = simdnn.matmul(src, weights, machine="icx", engine="reference").kernel
    assert isinstance(kernel.prepare, Apart)
    bound = Inputs(kernel.prepare.beside(weights, Parameters())).to(kernel.program)
    for before, kept in ((0, False), (1, False), (compiled.HASTY_OPS, True)):
        compiled._EXECUTED[kernel.program.signature] = before
        outputs = bound.run(kernel.prepare.source(src))
        assert outputs is not None and (outputs["dst"] == 24).all()
        assert (bound.code is not None) == kept


def test_a_program_without_statements_leaves_zeros() -> None:
    tensors = Tensor("a", "f32", 16), Tensor("o", "f32", 16, "output")
    program = Program("nothing", "avx512_core", tensors, ())
    left = numerics.run(program, {"a": np.ones(16, np.float32)}, engine="compiled")
    assert (left["o"] == 0).all()


@pytest.mark.parametrize("slice_s", [0.0, 1e9])
def test_a_longer_program_is_called_at_once_when_a_run_was_short(
    slice_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In slices a call runs FIRST_OPS instructions at first, whatever the host's speed."""
    monkeypatch.setattr(compiled, "SLICE_S", slice_s)
    monkeypatch.setattr(compiled, "_CACHE", {})
    monkeypatch.setattr(compiled, "_EXECUTED", compiled.Counter())
    src, weights = np.ones((128, 512), np.float32), np.ones((512, 512), np.float32)
    kernel = simdnn.matmul(src, weights, machine="icx").kernel
    program, inputs = kernel.program, kernel.prepare(src, weights, Parameters())
    assert compiled.FIRST_OPS < program.executed < compiled.SHARED_OPS
    compiled._EXECUTED[program.signature] = compiled.HASTY_OPS + 1
    assert compiled.at_once(program) is None
    outputs = [numerics.run(program, inputs)["dst"] for _ in range(2)]
    assert (compiled.at_once(program) is not None) == bool(slice_s)
    assert all((output == 512).all() for output in outputs)


def test_weights_that_saturate_are_found_by_calls_that_are_bound() -> None:
    """A result tells of the operands of its own call."""
    weights = simdnn.reorder(
        np.full((64, 16), 127, np.int8),
        simdnn.matmul(np.zeros((2, 64), np.uint8), np.full((64, 16), 127, np.int8), machine="skx").weights_desc,
        machine="skx",
    )
    for _ in range(3):
        results = [simdnn.matmul(np.full((2, 64), v, np.uint8), weights, machine="skx") for v in (255, 1)]
        assert [int(r.output[0, 0]) for r in results] == [32 * 32767, 64 * 127]
        assert [int(r.saturation[0, 0]) for r in results] == [32, 0]  # type: ignore[index]


@pytest.mark.parametrize("dtype", ["f4", "f2", "u1", "i8", ml_dtypes.bfloat16, ml_dtypes.int4, ">f4"])
def test_an_array_begins_where_numpy_says(dtype: object) -> None:
    array = np.zeros((4, 6), dtype)  # type: ignore[call-overload]
    fixed = array.copy()
    fixed.setflags(write=False)
    for one in (array, fixed, array[1:], array[:, 1:], array.T, array[:0]):
        assert address(one) == one.ctypes.data


def test_variables_of_the_environment_are_seen_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "SIMDNN_OF_A_TEST"
    assert variable(name) is None
    monkeypatch.setenv(name, "on")
    assert variable(name) == "on"
    monkeypatch.delenv(name)
    assert variable(name) is None
    monkeypatch.setattr(os, "environ", {name: "another"})
    assert variable(name) == "another"
