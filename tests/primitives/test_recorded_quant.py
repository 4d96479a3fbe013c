"""Recorded outputs of oneDNN 3.13.2: decompression, grouped scales and math modes through the public functions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simdnn
from simdnn import libraries
from tests.recorded import runs, typed

FOLDER = Path(__file__).parents[1] / "vectors" / "onednn_quant"
CASES = json.loads((FOLDER / "manifest.json").read_text())["cases"]
ISA = {"AVX2": "avx2", "AVX512_CORE": "avx512_core", "AVX512_CORE_VNNI": "avx512_core_vnni", "NATIVE": None}


def parameters(case: dict[str, Any], stored: Any, kind: str) -> dict[str, simdnn.Quant]:
    found = {}
    for argument in ("src", "wei", "dst"):
        said = case["attrs"].get(f"{kind}_{argument}")
        if said:
            groups = tuple(said["groups"]) if said["groups"] else None
            values = stored[f"{kind}_{argument}"]
            values = typed(values if groups else values.reshape(-1), said["dtype"])
            found[argument] = simdnn.Quant(values, groups=groups, dtype=said["dtype"])
    return found


@pytest.mark.parametrize(("case", "cap"), runs(CASES))
def test_the_librarys_bits(case: dict[str, Any], cap: str) -> None:
    stored = np.load(FOLDER / f"{case['name']}.npz")
    said = case["attrs"] | case["params"]
    attr = simdnn.Attr(
        fpmath=said.get("fpmath"),
        apply_to_int=bool(said.get("fpint")),
        scales=parameters(case, stored, "sc"),
        zero_points=parameters(case, stored, "zp"),
        post_ops=["relu"] if said.get("post") == "relu" else [],
    )
    r = simdnn.matmul(
        typed(stored["src"], case["src"]["dtype"]),
        typed(stored["wei"], case["wei"]["dtype"]),
        stored["bias"].reshape(-1) if case["bias"] else None,
        machine="zen4",
        isa=ISA[cap],
        dst=case["dst"]["dtype"],
        attr=attr,
        dispatch="onednn",
        wei_tag="ab" if case["wei"]["tag"] == "plain" else "any",
    )
    assert r.output.tobytes() == stored[f"out__{cap}"].tobytes()
    kernel, implementation = libraries.choose("onednn", r.problem, ISA[cap] or "avx512_core_bf16", r.fpmath)
    assert r.implementation == kernel and case["runs"][cap]["impl"] in implementation
