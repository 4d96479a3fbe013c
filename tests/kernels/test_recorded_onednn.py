"""Kernels against recorded outputs of oneDNN 3.13.2 (tests/vectors/onednn and onednn_spr): its bits, under each cap."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from isa_models.machines.loader import cpu_machine as machine
from isa_models.readings.arrays import Array
from simdnn import libraries, numerics
from simdnn.kernels import KERNELS, ConvProblem, Epilogue, MatmulProblem, Parameters, Problem
from simdnn.kernels.common.postops import RELU
from tests.params import BY_CHANNEL, COMMON
from tests.recorded import runs

VECTORS = Path(__file__).parents[1] / "vectors"
#: the folder is named after the CPU: of a Zen 4, and of an Emerald Rapids with AMX and FP16
CASES: list[dict[str, Any]] = [
    case | {"file": VECTORS / folder / f"{case['name']}.npz"}
    for folder in ("onednn", "onednn_spr")
    for case in json.loads((VECTORS / folder / "manifest.json").read_text())["cases"]
]
KINDS = {kind.name: kind for kind in KERNELS}


def isa_of(cap: str) -> str:
    return "avx512_core_bf16" if cap == "NATIVE" else cap.lower()


def pair(text: str) -> tuple[int, int]:
    first, second = map(int, text.split("x"))
    return first, second


def same_family(implementation: str) -> str:
    """On AVX2 the library's two int8 kernels share strided pointwise problems by channel counts, and their bits."""
    return implementation.replace("jit_uni_int8_1x1", "jit_uni_int8")


@functools.cache
def arrays(path: Path) -> dict[str, Array]:
    with np.load(path) as file:
        return dict(file)


def problem_of(case: dict[str, Any]) -> Problem:
    attrs, params = case["attrs"], case["params"]
    per_channel = attrs.get("sc_wei", {}).get("mask", 0) != 0
    epilogue = Epilogue(
        case["dst"]["dtype"],
        zp_src="zp_src" in attrs,
        zp_wei="zp_wei" in attrs,
        src_scale="sc_src" in attrs,
        wei_scale=(BY_CHANNEL if per_channel else COMMON) if "sc_wei" in attrs else None,
        bias=bool(case["bias"]),
        post_ops=(RELU,) if params.get("post") == "relu" else (),
        dst_scale="sc_dst" in attrs,
        dst_zero_point="zp_dst" in attrs,
    )
    src, wei, types = case["src"]["dims"], case["wei"]["dims"], (case["src"]["dtype"], case["wei"]["dtype"])
    if case["op"] == "matmul":
        tag = {"plain": "ab"}.get(case["wei"]["tag"], case["wei"]["tag"])
        moves = epilogue.zp_src or epilogue.zp_wei  # by recorded numbers of s8, none of them 0
        return MatmulProblem(src[0], wei[1], src[1], *types, epilogue, tag, moves_in_s8=moves)
    padding = (*pair(params["pad"]), *pair(params.get("pad_r", params["pad"])))
    groups = wei[0] if len(wei) == 5 else 1
    return ConvProblem(
        *src,
        wei[-4] * groups,
        *wei[-2:],
        *types,
        epilogue,
        pair(params["str"]),
        padding,
        pair(params.get("dil", "1x1")),
        groups,
    )


def parameters_of(stored: dict[str, Array]) -> Parameters:
    def one(key: str, default: float) -> Any:
        return stored[key].reshape(-1)[0] if key in stored else default

    flat = {key: stored[key].reshape(-1) if key in stored else None for key in ("bias", "sc_wei")}
    points = [int(one(key, 0)) for key in ("zp_src", "zp_wei", "zp_dst")]
    return Parameters(flat["bias"], one("sc_src", 1.0), flat["sc_wei"], one("sc_dst", 1.0), *points)


@pytest.mark.parametrize(("case", "cap"), runs(CASES))
def test_the_librarys_bits(case: dict[str, Any], cap: str) -> None:
    stored, problem, run = arrays(case["file"]), problem_of(case), case["runs"][cap]
    kind, implementation = libraries.choose("onednn", problem, isa_of(cap), case["params"].get("fpmath", "strict"))
    assert same_family(implementation) == same_family(run["impl"])
    kernel = KINDS[kind].build(problem, machine("zen4"))
    views = [
        stored[key].view(ml_dtypes.bfloat16) if case[key]["dtype"] == "bf16" else stored[key] for key in ("src", "wei")
    ]
    inputs = kernel.prepare(*views, parameters_of(stored))
    got = kernel.finish(numerics.run(kernel.program, inputs))
    expected = stored["out__" + run.get("as", cap)]
    assert got.tobytes() == expected.tobytes(), f"{np.sum(got.view(expected.dtype) != expected)} of {got.size} differ"


def test_what_is_recorded() -> None:
    """The recordings do tell kernels apart: saturating from exact, and orders of floating-point sums."""
    assert {case["src"]["dtype"] for case in CASES} == {"f32", "bf16", "f16", "u8", "s8"}
    unlike = [case for case in CASES if len({run.get("as", cap) for cap, run in case["runs"].items()}) > 1]
    assert len(unlike) >= 20
