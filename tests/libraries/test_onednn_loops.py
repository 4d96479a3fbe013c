"""Cycles of oneDNN's loops over elements, and of its stores past the caches, beside what was measured on a Zen 4."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import simdnn
from isa_models import machine
from simdnn.libraries.model import OperatorCall
from simdnn.libraries.onednn import loops
from simdnn.libraries.onednn.operators import JIT, REFERENCE

#: primitive, shape, options, measured cycles (docs/validation/primitives-cost.md; none of them was fitted to)
MEASURED: list[tuple[str, tuple[int, ...], str, dict[str, Any], float]] = [
    ("reduction", (128, 1000), "f32", {"axes": [0], "algorithm": "mean"}, 2667009),
    ("reduction", (128, 1000), "bf16", {"axes": [0], "algorithm": "mean"}, 3243025),
    ("pooling", (1, 64, 56, 56), "u8", {"kernel": 3, "strides": 2, "padding": (1, 1, 0, 0)}, 14665183),
    ("pooling", (1, 128, 28, 28), "u8", {"kernel": 2, "strides": 2, "algorithm": "avg_exclude_padding"}, 3548382),
]


@pytest.mark.parametrize(("primitive", "src", "dtype", "options", "cycles"), MEASURED)
def test_its_reference_takes_what_was_measured(
    primitive: str, src: tuple[int, ...], dtype: str, options: dict[str, Any], cycles: float
) -> None:
    found = simdnn.estimate(primitive, src=src, dt=dtype, machine="zen4", dispatch="onednn", **options)
    assert found.cycles == pytest.approx(cycles, rel=0.27)
    assert found.cycles > 20 * simdnn.estimate(primitive, src=src, dt=dtype, machine="zen4", **options).cycles


@given(size=st.integers(1, 9), kernel=st.integers(1, 4), stride=st.integers(1, 3), before=st.integers(0, 3))
def test_a_tap_beside_the_image_takes_nothing(size: int, kernel: int, stride: int, before: int) -> None:
    assume(before < kernel and size + before >= kernel)
    out = (size + before - kernel) // stride + 1
    axes = {"out": out, "kernel": kernel, "strides": stride, "dilation": 1, "padding": before}
    options = {name: [value, value] for name, value in axes.items()}
    call = OperatorCall("pooling", ("u8",), "u8", ((2, 3, size, size),), options, {}, {}, (), frozenset(), frozenset())
    image = np.pad(np.ones((size, size)), ((before, 0), (before, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(image, (kernel, kernel))[::stride, ::stride]
    expected = 6 * (loops.OUTPUT_OF_POOLING * out**2 + loops.TAP * windows.sum())
    assert loops.cycles(call, REFERENCE) == pytest.approx(expected)
    assert loops.cycles(call, JIT) == 0


@pytest.mark.parametrize(
    ("channels", "size", "kernel", "stride", "padding", "cycles"),
    [(64, 28, 3, 2, 1, 14430), (256, 14, 3, 1, 1, 23200), (128, 14, 7, 7, 0, 2750), (1024, 7, 7, 7, 0, 4100)],
)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_greatest_bytes_are_compared_a_pixel_a_call(
    channels: int, size: int, kernel: int, stride: int, padding: int, cycles: float, dtype: type
) -> None:
    src = np.zeros((1, size, size, channels), dtype).transpose(0, 3, 1, 2)
    found = simdnn.pooling(src, kernel, machine="zen4", dispatch="onednn", strides=stride, padding=padding)
    assert found.cycles == pytest.approx(cycles, rel=0.2)


def batch_normalized(channels: int, size: int, dtype: type, last: bool) -> Any:
    shape = (1, size, size, channels) if last else (1, channels, size, size)
    src = np.ones(shape, np.float32).astype(dtype)
    rows = {name: np.ones(channels, np.float32) for name in ("scale", "shift", "mean", "variance")}
    src = src.transpose(0, 3, 1, 2) if last else src
    return simdnn.batch_normalization(src, machine="zen4", dispatch="onednn", **rows)


@pytest.mark.parametrize(("channels", "size", "cycles"), [(64, 14, 6885), (64, 28, 26551)])
def test_stores_past_the_caches_go_at_the_memorys_rate(channels: int, size: int, cycles: float) -> None:
    found = batch_normalized(channels, size, np.float32, last=True)
    assert found.cycles == pytest.approx(cycles, rel=0.06)
    assert found.seconds >= 4 * channels * size**2 / machine("zen4").dram.gb_s_core / 1e9
    in_registers = batch_normalized(channels + 4, size, np.float32, last=True)  # whose last one is not full
    assert in_registers.cycles < 0.9 * found.cycles


def test_a_batch_normalization_in_rows_is_a_compilers_loop() -> None:
    assert batch_normalized(32, 40, np.float32, last=False).cycles == pytest.approx(2.1 * 32 * 1600, rel=0.1)


@pytest.mark.parametrize(
    ("algorithm", "src", "dst", "least", "most"),
    [
        ("mul", np.int8, "s32", -128, 127),
        ("mul", np.uint8, "s32", 1, 255),
        ("mul", np.uint8, "u8", 0, 5),
        ("sum", np.int32, "s32", -(2**31), 2**31 - 2),
        ("mul", np.int32, "s32", -(2**20), 2**20),
    ],
)
def test_reductions_of_integers_wrap(algorithm: str, src: type, dst: str, least: int, most: int) -> None:
    """Its reference adds up and multiplies in s32, as oneDNN 3.13.2 does on such data; the end rounds by way of f32."""
    x = np.random.default_rng(5).integers(least, most, (3, 24, 5), endpoint=True).astype(src)
    function = np.multiply if algorithm == "mul" else np.add
    with np.errstate(over="ignore"):
        wrapped = function.reduce(x, axis=1, dtype=np.int32, keepdims=True).astype(np.float32).astype(np.float64)
    low, high = (0, 255) if dst == "u8" else (-(2**31), 2**31 - 128)
    where: dict[str, Any] = {"machine": "gnr", "isa": "avx512_core", "dispatch": "onednn", "dst": dst}
    found = simdnn.reduction(x, axes=[1], algorithm=algorithm, **where).output
    np.testing.assert_array_equal(found, np.clip(wrapped, low, high).astype(found.dtype))
