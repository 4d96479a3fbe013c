"""Recorded outputs of oneDNN 3.13.2's matmuls and convolutions on a Zen 4, at up to four ISA caps: what random problems
found otherwise than it was here (tests/vectors/onednn_products), then its older GEMMs and sums in f8 (onednn_gemms),
convolutions over layouts that are named (onednn_layouts), then denormals, exp of a NaN and single output pixels
(onednn_edges), matmuls over layouts that are named and what their groups decide (onednn_matrices). Last, problems on
AMX tiles: as the library saw the CPUID of an Emerald Rapids on a Zen 4, and a handler of illegal instructions did what
its tiles ask for (onednn_tiles), and on a Granite Rapids (onednn_amx; onednn_gnr, transposed convolutions among them).
There, too, integer sums beyond 2**24 (onednn_sums), and what was refused before (onednn_later). On a Zen 3, which has
neither AVX-512 nor VNNI, deconvolutions of bytes and zero points that are 0 (onednn_zen3).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simdnn
from simdnn.primitives.matmul import matmul_on
from simdnn.primitives.run import Target
from tests.recorded import runs, typed
from tests.test_recorded_orders import bits

NAMES = (
    *("onednn_products", "onednn_gemms", "onednn_layouts", "onednn_edges", "onednn_matrices"),
    *("onednn_tiles", "onednn_amx", "onednn_gnr", "onednn_sums", "onednn_later"),
    "onednn_zen3",
)
#: a machine for caps that a Zen 4 lacks
MACHINES = {"avx2_vnni": "spr", "avx512_core_fp16": "spr", "avx512_core_amx": "spr", "avx512_core_amx_fp16": "gnr"}
FOLDERS = [Path(__file__).parent / "vectors" / name for name in NAMES]
CASES = [case for folder in FOLDERS for case in json.loads((folder / "manifest.json").read_text())["cases"]]
STORED = {name: array for folder in FOLDERS for name, array in np.load(folder / "outputs.npz").items()}


def read(value: Any) -> Any:
    """Arrays in place of their names, lists as tuples."""
    if isinstance(value, dict) and "array" in value:
        found = typed(STORED[value["array"]], value["type"])
        return found.view(np.float16) if found.dtype.kind == "u" and value["type"] == "f16" else found
    if isinstance(value, dict):
        return {name: read(one) for name, one in value.items()}
    return tuple(read(one) for one in value) if isinstance(value, list) else value


def attribute(given: dict[str, Any]) -> simdnn.Attr:
    """The attribute of a case."""
    fields = read(given)
    for kind in ("scales", "zero_points"):
        if kind in fields:
            fields[kind] = {name: simdnn.Quant(**quant) for name, quant in fields[kind].items()}
    return simdnn.Attr(**fields)


@pytest.mark.parametrize(("case", "cap"), runs(CASES))
def test_the_librarys_bits(case: dict[str, Any], cap: str) -> None:
    options = read(case["options"]) | ({"attr": attribute(case["attr"])} if "attr" in case else {})
    told = case.get("told", {"runtime_dims": case["runtime_dims"]} if "runtime_dims" in case else {})
    machine = MACHINES.get(cap, "zen4")
    if case["call"] == "matmul":
        on = Target.of(machine, cap, 1, "auto", "onednn")
        found = matmul_on(on, *read(case["args"]), **options, **told)
    else:
        call = getattr(simdnn, case["call"])
        found = call(*read(case["args"]), **options, machine=machine, isa=cap, dispatch="onednn")
    expected = STORED[f"{case['name']}/out__{case['runs'][cap].get('as', cap)}"]
    wanted = expected.view(found.output.dtype) if expected.dtype != found.output.dtype else expected
    np.testing.assert_array_equal(bits(found.output), bits(wanted))
    if hasattr(found, "library"):  # sums of a transposed convolution are no product's result
        assert found.library == case["runs"][cap]["implementation"]
