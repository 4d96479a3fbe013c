"""Depthwise convolutions that read an image where it is, beside those that read a copy with the padding around it."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simdnn import numerics
from simdnn.kernels import ConvProblem, Epilogue, Parameters
from simdnn.kernels.x86 import depthwise
from simdnn.kernels.x86.code import unit_of
from simdnn.kernels.x86.depthwise import FLOAT, INTEGER, Depthwise
from tests.effort import examples

RNG = np.random.default_rng(5)
NUMBERS = np.array([0.0, -0.0, 1.5, -2.25, np.inf, -np.inf, 1e-41, 3e38], np.float32)
NUMBERS = np.append(NUMBERS, np.array([0x7FC00001, 0xFFC12345, 0x7F800077], np.uint32).view(np.float32))  # NaNs


@examples(50)
@given(
    st.sampled_from(["avx512_core", "avx2"]),
    st.sampled_from(["f32", "u8"]),
    st.tuples(*[st.integers(0, 16)] * 2),
    st.tuples(*[st.integers(1, 5)] * 2),
    st.tuples(*[st.integers(0, 3)] * 4),
    st.integers(1, 2),
    st.integers(1, 2),
)
def test_no_bit_depends_on_where_zeros_are(
    isa: str,
    src: str,
    more: tuple[int, int],
    taps: tuple[int, int],
    padding: tuple[int, int, int, int],
    stride: int,
    dilation: int,
) -> None:
    """Zeros beside the image are multiplied by weights, by infinities too, in the same order as those of a copy."""
    kh, kw = taps
    height = max(1, (kh - 1) * dilation + 1 - padding[0] - padding[2]) + more[0]
    width = max(1, (kw - 1) * dilation + 1 - padding[1] - padding[3]) + more[1]
    channels = 24
    floats = src == "f32"
    types = ("f32", "f32", Epilogue("f32")) if floats else ("u8", "s8", Epilogue("s32"))
    sizes = 1, channels, height, width, channels, kh, kw
    problem = ConvProblem(*sizes, *types, (stride,) * 2, padding, (dilation,) * 2, groups=channels)
    shapes = (1, channels, height, width), (channels, 1, kh, kw)
    if floats:
        a, b = (RNG.choice(NUMBERS, shape) for shape in shapes)
    else:
        a, b = (
            RNG.integers(0, 128, shape).astype(kind) for shape, kind in zip(shapes, (np.uint8, np.int8), strict=True)
        )
    found = []
    for few in (0, 25):
        with patch.object(depthwise, "_FEW_TAPS", few):
            kernel = Depthwise("dw", problem, unit_of(isa), FLOAT if floats else INTEGER, False, False).kernel()
        copied = "padded" in kernel.program.tensor
        assert copied == (few == 0 and any(padding))
        found.append(numerics.run(kernel.program, kernel.prepare(a, b, Parameters()))["dst"])
    np.testing.assert_array_equal(found[0].view(np.uint32), found[1].view(np.uint32))
