"""Weights in ggml's blocks: made, read, told apart and explained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import simdnn
from isa_models.block_encoders import ENCODED
from isa_models.block_formats import BLOCK_FORMATS, block_format

RECORDED = np.load(Path(__file__).parents[1] / "vectors" / "ggml" / "blocks.npz")


@pytest.mark.parametrize("name", ENCODED)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_blocks_lie_along_any_axis(name: str, axis: int) -> None:
    """Codes, scales and offsets in the array's shape; the stored bytes row by row, from which the same are read."""
    size = BLOCK_FORMATS[name].elements
    x = np.random.default_rng(0).normal(size=(2 * size, 2 * size)).astype(np.float16)
    q = simdnn.quantize_ggml(x, name, axis=axis)
    assert q.output.shape == x.shape and q.stored is not None and q.scales.shape[axis] * q.group == 2 * size
    assert np.abs(q.dequantize() - x).max() < 1 and q.dequantize().dtype == np.float32
    other = simdnn.ggml_blocks(q.stored, name)
    assert np.array_equal(q.dequantize(), other.dequantize() if axis == 0 else other.dequantize().T)


@pytest.mark.parametrize("name", BLOCK_FORMATS)
def test_a_block_is_explained(name: str) -> None:
    """A line for the scale, one for the offset where there is one, and one for each element of the group."""
    form = block_format(name)
    made = name in ENCODED
    if made:
        x = np.random.default_rng(1).normal(size=(form.elements, 2)).astype(np.float32)
        q = simdnn.quantize_ggml(x, name, axis=0)
    else:
        stored = RECORDED[f"{name}.stored"].copy()
        q = simdnn.ggml_blocks(stored, name)
    told = q.explain(0, 1)
    assert len(told.steps) == q.group + 1 + (q.offsets is not None)
    assert np.array_equal(told.value, q.dequantize()[: q.group, 1], equal_nan=True)
    assert form.about in str(told) and ("<- rounds" in str(told)) is made


def test_blocks_as_attribute() -> None:
    """Blocks without minima are weights with a scale for each group; those with minima say where they belong."""
    w = np.random.default_rng(2).normal(size=(64, 8)).astype(np.float32)
    x = np.random.default_rng(3).normal(size=(3, 64)).astype(np.float32)
    q = simdnn.quantize_ggml(w, "q4_0", axis=0)
    r = simdnn.matmul(x, q.output, machine="zen4", attr=q.attr("wei", apply_to_int=True))
    np.testing.assert_allclose(r.output, x @ q.dequantize(), rtol=1e-4, atol=1e-5)
    with pytest.raises(simdnn.InvalidArgument, match="q4_1 has minima"):
        simdnn.quantize_ggml(w, "q4_1", axis=0).attr("wei")


def test_refusals() -> None:
    x = np.zeros((33, 2), np.float32)
    with pytest.raises(
        simdnn.Unimplemented, match="'q4_K' is read from a GGUF file alone, by ggml_blocks; what works: q4_0"
    ):
        simdnn.quantize_ggml(np.ones(256, np.float32), "q4_K")
    with pytest.raises(simdnn.InvalidArgument, match="did you mean 'q4_0'"):
        simdnn.quantize_ggml(x, "q4_00")
    with pytest.raises(simdnn.InvalidArgument, match=r"32 do not divide the 33 elements of axis 0; .* zeros to 64"):
        simdnn.quantize_ggml(x, "q4_0", axis=0)
    with pytest.raises(simdnn.InvalidArgument, match=r"stored=\(17,\)"):
        simdnn.ggml_blocks(np.zeros(17, np.uint8), "q4_0")
