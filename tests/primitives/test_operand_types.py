"""Types of second operands, and modes that are said of integers, too: what oneDNN takes of them."""

from __future__ import annotations

import numpy as np
import pytest

import simdnn
from isa_models.formats import fmt

SRC, WEIGHTS = np.ones((1, 16, 6, 6), np.float32), np.full((16, 16, 3, 3), 0.5, np.float32)


def convolved(dtype: str, isa: str, src: str = "f32") -> simdnn.Result:
    operand = np.full((1, 16, 1, 1), 3, fmt(dtype).dtype)
    arrays = (SRC.astype(fmt(src).dtype), WEIGHTS.astype(fmt(src).dtype))
    attr = simdnn.Attr(post_ops=[("mul", operand)])
    return simdnn.convolution(*arrays, machine="gnr", isa=isa, dst="f32", attr=attr, dispatch="onednn")


@pytest.mark.parametrize(("dtype", "isa"), [("bf16", "avx2"), ("f16", "avx2"), ("f16", "avx512_core_bf16")])
def test_operands_that_nothing_converts_are_refused(dtype: str, isa: str) -> None:
    with pytest.raises(simdnn.Unimplemented, match=f"second operands of {dtype} below .* f32 works"):
        convolved(dtype, isa)


def test_a_kernel_converts_what_its_own_instructions_do() -> None:
    with pytest.raises(simdnn.Unimplemented, match="avx512_core takes no second operands of f16"):
        convolved("f16", "avx512_core_fp16")
    for dtype, isa, src in (("bf16", "avx512_core", "f32"), ("f16", "avx512_core_fp16", "f16")):
        assert (convolved(dtype, isa, src).output == convolved("f32", isa, src).output).all()


def test_operands_are_rounded_to_the_type_that_is_named() -> None:
    values = np.array([0.1], np.float32)
    for given in (simdnn.Quant(values, dtype="f16"), values.astype(np.float16)):
        attr = simdnn.Attr(post_ops=[("add", given)])
        again = simdnn.Attr(post_ops=attr.post_ops)
        assert again.post_ops == attr.post_ops
        r = simdnn.matmul(np.zeros((1, 4), np.float32), np.zeros((4, 1), np.float32), machine="zen4", attr=again)
        assert r.output[0, 0] == np.float32(np.float16(0.1)) != np.float32(0.1)


def test_a_mode_said_of_integers_too_is_refused_by_older_kernels() -> None:
    forced, plain = simdnn.Attr(fpmath="bf16", apply_to_int=True), simdnn.Attr(fpmath="bf16")
    dense = [
        simdnn.convolution(SRC, WEIGHTS, machine="zen4", attr=a, dispatch="onednn").output for a in (forced, plain)
    ]
    assert (dense[0] == dense[1]).all()
    depthwise = np.ones((16, 1, 3, 3), np.float32)
    with pytest.raises(simdnn.Unimplemented, match="brdgmm_dw:avx512_core takes no such mode; leave it out"):
        simdnn.convolution(SRC, depthwise, groups=16, machine="zen4", attr=forced, dispatch="onednn")


def test_volumes_of_f32_are_not_convolved_to_f16() -> None:
    src, weights = np.ones((1, 4, 3, 3, 3), np.float32), np.ones((4, 4, 3, 3, 3), np.float32)
    with pytest.raises(simdnn.Unimplemented, match="convolutions to f16 from f16 alone"):
        simdnn.convolution(src, weights, machine="gnr", dst="f16", dispatch="onednn")
