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
from simdnn.program.check import verify
from simdnn.program.records import Affine, Loop, Memory, Op, Program, Register, Tensor

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


def test_what_broken_elements_are_is_looked_at_where_they_are_used() -> None:
    """The low byte of 0x3e01 (0.126) twice is 2**-125, whose products are flushed, and no element is."""
    element, both, total = Register("x", "u32", 16), Register("y", "u8", 64), Register("sum", "f32", 16)
    ops = [
        Op("vmovdqu", element, (Memory("src", Affine(), "u32", 16),)),
        Op("vpbroadcastb", both, (Register("x", "u8", 1),)),
        Op("vdpbf16ps", total, (total, both.as_("bf16"), element.as_("bf16"))),
    ]
    zero, store = Op("vpxor", total.as_("u32"), (total.as_("u32"),) * 2), Memory("dst", Affine(), "u32", 16)
    body = Loop("s", 1, (zero, Loop("k", 5, tuple(ops)), Op("vmovdqu", store, (total.as_("u32"),))))
    tensors = Tensor("src", "bf16", 32), Tensor("dst", "f32", 16, "output")
    program = verify(Program("broken", "avx512_core_bf16", tensors, (body,)))
    assert read_often(program) == {"src": 16}
    met = numerics.run(program, {"src": np.full(32, 0x3E01, "u2").view(ml_dtypes.bfloat16)}, native=False)
    assert not met["dst"].any()
