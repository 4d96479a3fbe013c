"""Blocks of ggml's types: what stored ones stand for and what floats become, against ggml's own functions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from isa_models import InvalidArgument, Unimplemented, UnknownName
from isa_models.block_encoders import ENCODED, encode_blocks
from isa_models.block_formats import BLOCK_FORMATS, block_format

VECTORS = Path(__file__).parents[1] / "vectors" / "ggml"
RECORDED = np.load(VECTORS / "blocks.npz")
ZEROS = np.load(VECTORS / "zeros.npz")


@pytest.mark.parametrize("name", [name for name in BLOCK_FORMATS if f"{name}.stored" in RECORDED])
def test_values_are_those_of_ggml(name: str) -> None:
    form, wanted = block_format(name), RECORDED[f"{name}.values"]
    found = form.values(form.of_bytes(RECORDED[f"{name}.stored"])).reshape(wanted.shape)
    same = (found.view(np.uint32) == wanted.view(np.uint32)) | (np.isnan(found) & np.isnan(wanted))
    assert same.all() and np.isfinite(wanted).any()


@pytest.mark.parametrize("name", ENCODED)
def test_blocks_are_those_of_ggml(name: str) -> None:
    """Ties, zeros, subnormals, ends of f32: the bytes of `quantize_row_*_ref`, and of AVX."""
    x = RECORDED[f"{name}.x"]
    assert encode_blocks(x, name).view(np.uint8).tolist() == RECORDED[f"{name}.made"].tolist()
    if f"{name}.avx" in RECORDED:
        assert (RECORDED[f"{name}.avx"] != RECORDED[f"{name}.made"]).any()
        assert encode_blocks(x, name, by_avx=True).view(np.uint8).tolist() == RECORDED[f"{name}.avx"].tolist()


@pytest.mark.parametrize("name", [key.split(".")[0] for key in ZEROS if "." in key])
def test_zeros_of_both_signs(name: str) -> None:
    """Blocks of little else than zeros, whose signs the first one, or none, decides."""
    assert encode_blocks(ZEROS["x"], name).view(np.uint8).tolist() == ZEROS[f"{name}.made"].tolist()


def test_refusals() -> None:
    with pytest.raises(Unimplemented, match=r"q4_K blocks are read, not made; made: q4_0"):
        encode_blocks(np.zeros(256, np.float32), "q4_K")
    with pytest.raises(InvalidArgument, match="a multiple of 32 long"):
        encode_blocks(np.zeros(33, np.float32), "q4_0")
    with pytest.raises(InvalidArgument, match="NaN or infinity"):
        encode_blocks(np.full(32, np.inf, np.float32), "q8_0")
    with pytest.raises(InvalidArgument, match="18 a block"):
        block_format("q4_0").of_bytes(np.zeros(17, np.uint8))
    with pytest.raises(UnknownName, match="q4_0"):
        block_format("Q4_0")
