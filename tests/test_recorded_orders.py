"""Recorded outputs of oneDNN 3.13.2's primitives on a Zen 4, at up to four ISA caps: deconvolutions, reductions,
statistics and what its reference ends (tests/vectors/onednn_orders); functions of C's library, NaN on its way to
integers, inner products by its GEMM (tests/vectors/onednn_reference); images whose channels lie last, and biases of
other types than f32 (tests/vectors/onednn_last). NaN, infinities, zeros of both signs and denormals on a Granite Rapids
(tests/vectors/onednn_special).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simdnn
from isa_models.readings.arrays import Array
from simdnn import Attr, Quant
from simdnn.libraries.onednn.deconvolution import Transposed
from tests.recorded import runs, typed

NAMES = ("onednn_orders", "onednn_reference", "onednn_last", "onednn_special")
FOLDERS = [Path(__file__).parent / "vectors" / name for name in NAMES]
CASES = [case for folder in FOLDERS for case in json.loads((folder / "manifest.json").read_text())["cases"]]
STORED = {name: array for folder in FOLDERS for name, array in np.load(folder / "outputs.npz").items()}


def read(value: Any) -> Any:
    """Arrays in place of their names; images that lay channels last do so again."""
    if isinstance(value, dict) and "array" in value:
        found = typed(STORED[value["array"]], value["type"])
        if found.dtype.kind == "u" and value["type"] == "f16":
            found = found.view(np.float16)
        last = value.get("channels_last")
        return np.moveaxis(np.ascontiguousarray(np.moveaxis(found, 1, -1)), -1, 1) if last else found
    if isinstance(value, dict):
        return {name: read(one) for name, one in value.items()}
    return [read(one) for one in value] if isinstance(value, list) else value


def bits(array: Array) -> Array:
    """As integers, every NaN alike."""
    whole: Array = np.ascontiguousarray(array).view(f"u{array.itemsize}").copy()
    if array.dtype.kind not in "iu":
        whole[np.isnan(array.astype(np.float32))] = 0xFF
    return whole


@pytest.mark.parametrize(("case", "cap"), runs(CASES))
def test_the_librarys_bits(case: dict[str, Any], cap: str) -> None:
    options = {
        n: tuple(v) if n in ("strides", "padding", "dilation", "kernel", "size") and isinstance(v, list) else v
        for n, v in read(case["options"]).items()
    }
    if case["call"] == "inner_product":
        quants = {n: Quant(v, "per_oc") if np.ndim(v) else np.float32(v) for n, v in options.pop("scales", {}).items()}
        options["attr"] = Attr(scales=quants, post_ops=options.pop("post_ops", []))
    where: dict[str, Any] = {"machine": case.get("machine", "zen4"), "isa": cap.lower(), "dispatch": "onednn"}
    result = getattr(simdnn, case["call"])(*read(case["args"]), **options, **where)
    assert getattr(result, "library", case["runs"][cap]["impl"]) == case["runs"][cap]["impl"]
    found = result.output
    expected = STORED[f"{case['name']}/out__{case['runs'][cap].get('as', cap)}"]
    wanted = expected.view(found.dtype) if expected.dtype != found.dtype else expected
    np.testing.assert_array_equal(bits(found), bits(wanted.reshape(found.shape)))


def transposed(**changes: Any) -> Transposed:
    usual: dict[str, Any] = {"src": "f32", "groups": 1, "ic": 16, "oc": 16, "size": (4, 5), "kernel": (3, 3)}
    usual |= {"strides": (1, 2), "dilation": (1, 1), "before": (0, 1), "behind": (0, 0)}
    return Transposed(**{**usual, **changes})


def test_sizes_of_a_transposed_convolution() -> None:
    p = transposed()
    assert p.out == (6, 10) and p.stepped and p.strided(16) and not p.outside
    assert not transposed(dilation=(1, 2)).strided(16)
    assert not transposed(groups=4).strided(16) and transposed(groups=4).divided_by(16)
    assert transposed(before=(3, 0)).outside


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"strides": (1, 2)}, "wrong at edges"),
        ({"strides": (1, 2), "zero_points": {"src": np.ones(4, np.int32)}}, "zero points by channel"),
    ],
)
def test_refusals_of_deconvolutions_name_why(options: dict[str, Any], why: str) -> None:
    rng = np.random.default_rng(0)
    src, weights = (rng.integers(0, 8, shape).astype(np.int8) for shape in ((1, 4, 2, 2), (4, 4, 1, 5)))
    with pytest.raises(simdnn.Unimplemented, match=why):
        simdnn.deconvolution(src, weights, machine="zen4", dispatch="onednn", dst="s32", **options)
