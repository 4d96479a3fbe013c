"""Conditions on elements that go into many products: asked of all at once, in a stage ahead."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import isa_models
from isa_models.readings.llvm import Condition
from simdnn import numerics
from simdnn.kernels import KERNELS, Epilogue, Kernel, MatmulProblem, Parameters
from simdnn.numerics.checked import checks, read_often
from simdnn.numerics.compiled import _Stage

K, N = 64, 128


def kernel_of(m: int, name: str, src: str) -> Kernel:
    kind = next(kind for kind in KERNELS if kind.name == name)
    return kind.build(MatmulProblem(m, N, K, src, src, Epilogue("f32")), isa_models.machine("gnr"))


@pytest.mark.parametrize(
    ("m", "name", "src", "sources"),
    [
        (200, "gemm:avx512_core_bf16", "bf16", {"src", "wei"}),
        (200, "gemm:avx512_core_amx", "bf16", {"src", "wei"}),
        (1, "gemm:avx512_core_bf16", "bf16", {"src"}),
        (200, "gemm:avx512_core_bf16_down", "f32", {"padded", "wei"}),
    ],
)
def test_each_tensor_that_is_read_often_is_looked_at_once(m: int, name: str, src: str, sources: set[str]) -> None:
    program = kernel_of(m, name, src).program
    often = read_often(program)
    stages = [_Stage(program, frozenset(), f"s{i}", s, True, sources=often) for i, s in enumerate(program.body)]
    asked = [condition for stage in stages for condition in stage.emitter.asked]
    assert {condition.source for condition in asked} == sources
    known = set[Condition]()
    assert len(checks(program, asked, known, "asks")) == len(sources)
    assert not checks(program, asked, known, "asks")


def test_an_element_that_needs_care_is_found_wherever_it_is() -> None:
    kernel = kernel_of(20, "gemm:avx512_core_amx", "bf16")
    rng = np.random.default_rng(4)
    values = [rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((20, K), (K, N))]
    values[1][-1, -1] = values[0][-1, -1] = 2.0**-130  # count as zero
    inputs = kernel.prepare(values[0], values[1], Parameters())
    met = numerics.run(kernel.program, inputs, engine="compiled", native=False)
    expected = numerics.run(kernel.program, inputs, engine="reference")
    assert all((met[out].view(np.uint8) == array.view(np.uint8)).all() for out, array in expected.items())
