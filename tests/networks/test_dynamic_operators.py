"""Operators that quantize their source as they run, beside onnxruntime; by u8 weights, which are exact on every CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import simdnn  # noqa: E402
from tests.networks import peer  # noqa: E402
from tests.networks.test_qlinear import compare, drawn, model  # noqa: E402

RNG = np.random.default_rng(3)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("columns", [(), (5,)])
@pytest.mark.parametrize("biased", [False, True])
def test_products_that_end_in_floats(columns: tuple[int, ...], biased: bool) -> None:
    b, scale, zero = drawn(np.uint8, 40, 5), np.float32(0.02) * np.ones(columns, np.float32), drawn(np.uint8, *columns)
    bias = [floats(5)] * biased
    a = drawn(np.uint8, 3, 40)
    compare("MatMulIntegerToFloat", {"a": a}, ["a", b, np.float32(0.1), scale, np.uint8(9), zero, *bias])
    x = floats(2, 3, 40)
    compare("DynamicQuantizeMatMul", {"x": x}, ["x", b, scale, zero, *bias])


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("gates", [False, True])
def test_long_short_term_memory(direction: str, gates: bool) -> None:
    """Weights with a scale a direction, or one a gate; the functions of gates are this package's own."""
    count, hidden = 1 + (direction == "bidirectional"), 4
    shape = (count, 4 * hidden) if gates else (count,)
    parts: list[Any] = ["x"]
    for rows in (6, hidden):
        parts.append(drawn(np.uint8, count, rows, 4 * hidden))
    parts += [floats(count, 8 * hidden), "", "", "", ""]
    for _ in range(2):
        parts += [np.float32(0.004) * np.ones(shape, np.float32), np.full(shape, 127, np.uint8)]
    x = floats(5, 2, 6)
    made = model(
        "DynamicQuantizeLSTM", {"x": x, "": np.zeros(0)}, parts, {"direction": direction, "hidden_size": hidden}
    )
    del made.graph.input[1]
    wanted = peer.session(made.SerializeToString(), threads=1).run(None, {"x": x})[0]  # each thread quantizes its rows
    result = simdnn.load(made).run({"x": x}, machine="zen4", dispatch="onnxruntime")
    np.testing.assert_allclose(result.outputs["y"], wanted, atol=1e-6)
    assert result.cycles > 0
