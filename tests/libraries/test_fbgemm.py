"""FBGEMM's products as PyTorch's dynamic quantization calls them: recorded outputs, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simdnn
from simdnn import Attr, Unimplemented

STORED = np.load(Path(__file__).parents[1] / "vectors" / "fbgemm" / "dynamic.npz")
CASES = sorted({key.split("/")[0] for key in STORED}, key=int)


def run(case: str, **how: Any) -> Any:
    held = {key.split("/")[1]: STORED[key] for key in STORED if key.startswith(f"{case}/")}
    zero = held["src_zero"]
    attr = Attr(scales={"src": held["src_scale"], "wei": held["wei_scale"]}, zero_points={"src": zero} if zero else {})
    return simdnn.matmul(held["src"], held["wei"], held.get("bias"), dst="f32", attr=attr, **how)


@pytest.mark.parametrize("machine", ["zen4", "hsw"])
@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_recorded_layers_have_its_bits(machine: str, engine: str) -> None:
    """Sources of 7 bits saturate in no pair, so a CPU without VNNI gives the same."""
    found = [run(case, machine=machine, engine=engine, dispatch="fbgemm").output for case in CASES]
    assert [a.tobytes() == STORED[f"{case}/dst"].tobytes() for a, case in zip(found, CASES, strict=True)] == [True] * 12


def test_the_bias_is_what_tells_it_from_others() -> None:
    """Others round the scaled sum before the bias comes."""
    biased = [case for case in CASES if f"{case}/bias" in STORED]
    other = [run(case, machine="zen4", dispatch="fastest").output.tobytes() for case in biased]
    assert len(biased) == 8
    assert sum(found != STORED[f"{case}/dst"].tobytes() for found, case in zip(other, biased, strict=True)) > 4


def test_its_program_is_timed_and_has_one_multiply_add_for_both() -> None:
    attr = Attr(scales={"src": np.float32(0.1), "wei": np.float32(0.2)})
    how: dict[str, Any] = {"m": 4, "n": 64, "k": 64, "dt": "u8:s8:f32", "machine": "zen4", "bias": True, "attr": attr}
    ours, theirs = (simdnn.estimate("matmul", **how, dispatch=rule) for rule in ("fastest", "fbgemm"))
    assert 0 < theirs.cycles <= ours.cycles


def test_what_is_refused_by_name() -> None:
    src, wei = np.ones((2, 8), np.uint8), np.ones((8, 4), np.int8)
    for given, why in (
        ({"dst": "u8"}, "u8:s8:u8 is not modelled"),
        ({"attr": Attr(post_ops=["relu"]), "dst": "f32"}, "'relu' behind a product"),
    ):
        with pytest.raises(Unimplemented, match=why):
            simdnn.matmul(src, wei, machine="zen4", dispatch="fbgemm", **given)  # type: ignore[arg-type]
    with pytest.raises(Unimplemented, match="s8:s8:s32 is not modelled; what works: u8 sources"):
        simdnn.matmul(src.astype(np.int8), wei, machine="zen4", dispatch="fbgemm")
    with pytest.raises(Unimplemented, match="convolution u8:s8:s32 is not modelled"):
        simdnn.convolution(
            np.ones((1, 4, 3, 3), np.uint8), np.ones((4, 4, 1, 1), np.int8), machine="zen4", dispatch="fbgemm"
        )
