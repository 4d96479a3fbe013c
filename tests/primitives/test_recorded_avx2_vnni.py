"""Recorded outputs of oneDNN 3.13.2 under the ISA cap AVX2_VNNI through the public functions, and those of other caps
that were recorded beside them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import simdnn
from isa_models.readings.arrays import Array
from simdnn import libraries

FOLDER = Path(__file__).parents[1] / "vectors" / "onednn_avx2_vnni"
CASES = json.loads((FOLDER / "manifest.json").read_text())["cases"]
RUNS = [(case, cap) for case in CASES for cap in case["runs"]]
COLUMNS_OF_U8 = "mm_int_s8u8_304_28"  # u8 weights contiguous along K: no kernel here reads them so
STORED = {"bf16": ml_dtypes.bfloat16, "s4": ml_dtypes.int4, "u4": ml_dtypes.uint4}


def typed(array: Array, dtype: str) -> Array:
    if dtype == "bf16":
        return array.view(ml_dtypes.bfloat16)
    return array.astype(STORED[dtype]) if dtype in STORED else array


def parameters(case: dict[str, Any], stored: Any, kind: str) -> dict[str, simdnn.Quant]:
    said = {name: case["attrs"].get(f"{kind}_{name}") for name in ("src", "wei", "dst")}
    return {
        name: simdnn.Quant(typed(stored[f"{kind}_{name}"].reshape(-1), what["dtype"]), dtype=what["dtype"])
        for name, what in said.items()
        if what
    }


def pair(text: str) -> tuple[int, int]:
    first, second = map(int, text.split("x"))
    return first, second


def run(case: dict[str, Any], isa: str, machine: str, dispatch: str) -> simdnn.Result:
    stored, said = np.load(FOLDER / f"{case['name']}.npz"), case["params"]
    src, weights = (typed(stored[name], case[name]["dtype"]) for name in ("src", "wei"))
    bias = stored["bias"].reshape(-1) if case["bias"] else None
    attr = simdnn.Attr(
        fpmath=said.get("fpmath"),
        apply_to_int=bool(said.get("fpint")),
        post_ops=["relu"] if "post" in said else [],
        scales=parameters(case, stored, "sc"),
        zero_points=parameters(case, stored, "zp"),
    )
    options: dict[str, Any] = {"machine": machine, "isa": isa, "dst": case["dst"]["dtype"], "attr": attr}
    options["dispatch"] = dispatch
    if case["op"] == "matmul":
        tag = {"plain": "ab"}.get(case["wei"]["tag"], case["wei"]["tag"])
        return simdnn.matmul(src, weights, bias, wei_tag=tag, **options)
    padding, groups = pair(said["pad"]) + pair(said["pad_r"]), weights.shape[0] if weights.ndim == 5 else 1
    taps = {"strides": pair(said["str"]), "dilation": pair(said["dil"]), "padding": padding, "groups": groups}
    return simdnn.convolution(src, weights, bias, **taps, **options)


@pytest.mark.parametrize(("case", "cap"), RUNS, ids=[f"{case['name']}-{cap}" for case, cap in RUNS])
def test_the_librarys_bits(case: dict[str, Any], cap: str) -> None:
    if case["name"] == COLUMNS_OF_U8:
        with pytest.raises(simdnn.Unimplemented, match="wei_tag='any'"):
            run(case, cap.lower(), "spr", "onednn")
        return
    r = run(case, cap.lower(), "spr", "onednn")
    stored, said = np.load(FOLDER / f"{case['name']}.npz"), case["runs"][cap]
    expected = stored["out__" + said.get("as", cap)]
    kernel, library = libraries.choose("onednn", r.problem, cap.lower(), r.fpmath)
    assert (r.implementation, library) == (kernel, said["impl"])
    assert r.output.tobytes() == expected.tobytes(), f"{np.sum(r.output.view(expected.dtype) != expected)} differ"
