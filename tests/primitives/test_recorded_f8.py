"""Recorded outputs of oneDNN 3.13.2 (tests/vectors/onednn_f8): f8 and f4 through the public functions, bit for bit."""

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
from tests.effort import one_in

FOLDER = Path(__file__).parents[1] / "vectors" / "onednn_f8"
CASES = json.loads((FOLDER / "manifest.json").read_text())["cases"]
TYPES = {
    "bf16": ml_dtypes.bfloat16,
    "f8_e4m3": ml_dtypes.float8_e4m3fn,
    "f8_e5m2": ml_dtypes.float8_e5m2,
    "f4_e2m1": ml_dtypes.float4_e2m1fn,
    "e8m0": ml_dtypes.float8_e8m0fnu,
}


def typed(array: Array, dtype: str) -> Array:
    """Stored bits as elements of a type; int4 is stored as numbers."""
    if dtype == "s4":
        return array.astype(ml_dtypes.int4)
    return array.view(TYPES[dtype]) if dtype in TYPES else array


def runs(*families: str) -> list[tuple[dict[str, Any], str]]:
    return [(case, cap) for case in CASES if case["family"] in families for cap in case["runs"]]


def named(found: list[tuple[dict[str, Any], str]]) -> list[str]:
    return [f"{case['name']}-{cap}" for case, cap in found]


def recorded(stored: Any, cap: str, name: str = "out") -> Array:
    found: Array = stored[f"{name}__{cap}"] if f"{name}__{cap}" in stored else stored[name]
    return found


def same(met: Array, wanted: Array, dtype: str) -> bool:
    """Equal bits, or NaN on both sides: its sign and payload depend on a compiler's order of operands."""
    left, right = (np.ascontiguousarray(a).view(f"u{a.itemsize}") for a in (met, wanted))
    values = [typed(np.ascontiguousarray(a), dtype).astype(np.float32) for a in (met.view(wanted.dtype), wanted)]
    return bool(((left == right) | (np.isnan(values[0]) & np.isnan(values[1]))).all())


def attribute(case: dict[str, Any], stored: Any) -> simdnn.Attr:
    scales = {}
    for key, said in case["attrs"].items():
        groups = tuple(said["groups"]) if said["groups"] else None
        if "mode" in said and said["mode"]:
            scales["dst"] = simdnn.Quant(mask=3, groups=groups, dtype=said["dtype"], mode=said["mode"])
            continue
        values = typed(stored[key], said["dtype"])
        scales[key[3:]] = simdnn.Quant(
            values if groups else values.reshape(-1), mask=said["mask"], groups=groups, dtype=said["dtype"]
        )
    params = case["params"]
    post = ["relu"] if params.get("post") else []
    return simdnn.Attr(
        fpmath=params.get("fpmath"), apply_to_int=bool(params.get("fpint")), scales=scales, post_ops=post
    )


MATMULS = runs("f8", "to8", "dyn", "bf16f8")


@one_in(3, "cap")
@pytest.mark.parametrize(("case", "cap"), MATMULS, ids=named(MATMULS))
def test_matmul(case: dict[str, Any], cap: str) -> None:
    stored = np.load(FOLDER / f"{case['name']}.npz")
    bias = typed(stored["bias"], case["bias"]).reshape(-1) if case["bias"] else None
    r = simdnn.matmul(
        typed(stored["src"], case["src"]["dtype"]),
        typed(stored["wei"], case["wei"]["dtype"]),
        bias,
        machine="spr",
        isa=cap.lower(),
        dst=case["dst"]["dtype"],
        attr=attribute(case, stored),
        dispatch="onednn",
        wei_tag="ab" if case["wei"]["tag"] == "plain" else "any",
    )
    assert same(r.output, recorded(stored, cap), case["dst"]["dtype"])
    if "dst_scales" in case["attrs"] or any(said.get("mode") for said in case["attrs"].values()):
        found = recorded(stored, cap, "sc_dst__out")
        assert r.dst_scales is not None and same(r.dst_scales, found, case["attrs"]["sc_dst"]["dtype"])
    kernel, implementation = libraries.choose("onednn", r.problem, cap.lower(), r.fpmath)
    assert r.implementation == kernel and implementation == case["runs"][cap]["impl"]


CONVOLUTIONS = runs("conv8")


@pytest.mark.parametrize(("case", "cap"), CONVOLUTIONS, ids=named(CONVOLUTIONS))
def test_convolution(case: dict[str, Any], cap: str) -> None:
    stored, params = np.load(FOLDER / f"{case['name']}.npz"), case["params"]
    bias = typed(stored["bias"], case["bias"]).reshape(-1).astype(np.float32) if case["bias"] else None
    strides, padding, dilation = (tuple(map(int, params[key].split("x"))) for key in ("str", "pad", "dil"))
    weights = typed(stored["wei"], case["wei"]["dtype"])
    r = simdnn.convolution(
        typed(stored["src"], case["src"]["dtype"]),
        weights,
        bias,
        strides=strides,
        padding=padding,
        dilation=tuple(d + 1 for d in dilation),
        groups=weights.shape[0] if weights.ndim == 5 else 1,
        machine="spr",
        isa=cap.lower(),
        dst=case["dst"]["dtype"],
        attr=simdnn.Attr(post_ops=["relu"] if params.get("post") else []),
        dispatch="onednn",
    )
    assert same(r.output, recorded(stored, cap), case["dst"]["dtype"])
    assert r.reference and r.cycles > 0


REORDERS = runs("reorder")


@pytest.mark.parametrize(("case", "cap"), REORDERS, ids=named(REORDERS))
def test_reorder(case: dict[str, Any], cap: str) -> None:
    """Bit for bit, NaN and all."""
    stored = np.load(FOLDER / f"{case['name']}.npz")
    source, target = case["src"], case["dst"]
    desc = simdnn.MemoryDesc(tuple(target["dims"]), target["dtype"], "ab")
    r = simdnn.reorder(typed(stored["src"], source["dtype"]), desc, machine="spr", isa=cap.lower())
    wanted = recorded(stored, cap)
    met = r.output.view(wanted.dtype)
    assert met.shape == wanted.shape and met.tobytes() == wanted.tobytes() and r.cycles > 0
