"""Recorded outputs of oneDNN 3.13.2 through the public functions: its bits, and its names of implementations.

At seven ISA caps on an Emerald Rapids (onednn_caps), at those that a Zen 5 has (onednn_zen5), and at those of an Intel
core with AVX512_FP16 and without tiles (onednn_fp16).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simdnn
from isa_models.readings.arrays import Array
from simdnn import libraries
from tests.recorded import runs, typed

FOLDERS = [Path(__file__).parents[1] / "vectors" / name for name in ("onednn_caps", "onednn_zen5", "onednn_fp16")]
CASES = [
    case | {"file": folder / f"{case['name']}.npz"}
    for folder in FOLDERS
    for case in json.loads((folder / "manifest.json").read_text())["cases"]
]
#: what is refused
REFUSED = {
    ("conv_f32_203_44", "AVX512_CORE_FP16"),
    ("conv_f32_203_44", "AVX512_CORE_AMX"),
}


def parameters(case: dict[str, Any], stored: Any, kind: str) -> dict[str, simdnn.Quant]:
    said = {name: case["attrs"].get(f"{kind}_{name}") for name in ("src", "wei", "dst")}
    return {
        name: simdnn.Quant(
            typed(stored[f"{kind}_{name}"] if what["groups"] else stored[f"{kind}_{name}"].reshape(-1), what["dtype"]),
            "per_oc" if what["mask"] and not what["groups"] else None,
            what["groups"] and tuple(what["groups"]),
            what["dtype"],
        )
        for name, what in said.items()
        if what
    }


def post_op(entry: list[Any], operand: Array | None) -> Any:
    """A recorded post-operation as a caller writes it."""
    name, *numbers = entry
    if operand is not None:
        return name.removeprefix("binary_"), operand
    while numbers and not numbers[-1]:
        numbers.pop()
    return (name, *numbers) if numbers else name


def sizes(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x")))


def run(case: dict[str, Any], isa: str, machine: str, dispatch: str) -> simdnn.Result:
    stored, said = np.load(case["file"]), case["params"]
    src, weights = (typed(stored[name], case[name]["dtype"]) for name in ("src", "wei"))
    bias = typed(stored["bias"].reshape(-1), case["bias"]) if case["bias"] else None
    attr = simdnn.Attr(
        fpmath=said.get("fpmath"),
        apply_to_int=bool(said.get("fpint")),
        post_ops=[post_op(entry, stored.get(f"po{i}")) for i, entry in enumerate(said.get("post", []))],
        scales=parameters(case, stored, "sc"),
        zero_points=parameters(case, stored, "zp"),
    )
    options: dict[str, Any] = {"machine": machine, "isa": isa, "dst": case["dst"]["dtype"], "attr": attr}
    options |= {"dispatch": dispatch} | (
        {"into": typed(stored["into"], case["dst"]["dtype"])} if "into" in stored else {}
    )
    if case["op"] == "matmul":
        tag = {"plain": "ab"}.get(case["wei"]["tag"], case["wei"]["tag"])
        return simdnn.matmul(src, weights, bias, wei_tag=tag, **options)
    padding, groups = sizes(said["pad"]) + sizes(said["padr"]), weights.shape[0] if weights.ndim > src.ndim else 1
    dilation = tuple(d + 1 for d in sizes(said["dil"]))  # oneDNN writes 0 for dense taps
    taps = {"strides": sizes(said["str"]), "dilation": dilation, "padding": padding, "groups": groups}
    return simdnn.convolution(src, weights, bias, **taps, **options)


@pytest.mark.parametrize(("case", "cap"), runs(CASES))
def test_the_librarys_bits(case: dict[str, Any], cap: str) -> None:
    if (case["name"], cap) in REFUSED:
        with pytest.raises(simdnn.Unimplemented):
            run(case, cap.lower(), "spr", "onednn")
        return
    r = run(case, cap.lower(), "spr", "onednn")
    stored, said = np.load(case["file"]), case["runs"][cap]
    expected = stored["out__" + said.get("as", cap)]
    kernel, library = libraries.choose("onednn", r.problem, cap.lower(), r.fpmath)
    assert (r.implementation, library) == (kernel, said["impl"])
    assert r.output.tobytes() == expected.tobytes(), f"{np.sum(r.output.view(expected.dtype) != expected)} differ"
