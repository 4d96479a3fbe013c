"""Recorded outputs of oneDNN 3.13.2's primitives beside matmul and convolution, at four ISA caps: its bits, or refused.

The caps are those of an Intel core with AVX512_FP16 and without tiles (tests/vectors/onednn_primitives).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simdnn
from isa_models.readings.arrays import Array
from tests.recorded import runs, typed

FOLDER = Path(__file__).parent / "vectors" / "onednn_primitives"
CASES = json.loads((FOLDER / "manifest.json").read_text())["cases"]
STORED = np.load(FOLDER / "outputs.npz")
#: what the library takes at a cap and is refused here: the order of its sums, or a zero's sign, is not followed
REFUSED = {
    ("ip_5001", "AVX2"),  # wrong there
    ("deconvi_503", "AVX2"),  # wrong there
}


def arrays_of(case: dict[str, Any]) -> Iterator[tuple[str, Array]]:
    """Sources by their arguments' names; images that lay channels last do so again."""
    for name, dtype in case["types"].items():
        array = typed(STORED[f"{case['name']}/{name}"], dtype)
        if case.get("channels_last") and array.ndim > 2:
            array = np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)
        yield name, array


def post_ops_of(case: dict[str, Any]) -> list[Any]:
    found: list[Any] = []
    for i, (name, *numbers) in enumerate(case.get("post_ops", [])):
        if numbers == [None]:
            found.append((name, STORED[f"{case['name']}/post{i}"]))
        else:
            found.append((name, *numbers) if numbers else name)
    return found


def run(case: dict[str, Any], **where: Any) -> Any:
    given, options = dict(arrays_of(case)), dict(case["options"])
    into, call = given.pop("into", None), case["call"]
    scales: dict[str, Any] = {
        name: STORED[f"{case['name']}/scale_{name}"] if value is None else value
        for name, value in case.get("scales", {}).items()
    }
    if "wei_scale" in given:
        scales["wei"] = given.pop("wei_scale")
    where |= {"dst": case["dst"], "into": into}
    if call == "inner_product":
        quants = {name: simdnn.Quant(value, "per_oc" if np.ndim(value) else None) for name, value in scales.items()}
        attr = simdnn.Attr(fpmath=options.get("fpmath"), scales=quants, post_ops=post_ops_of(case))
        return simdnn.inner_product(given.pop("src"), given.pop("weights"), given.get("bias"), attr=attr, **where)
    if call == "shuffle":
        return simdnn.shuffle(given["src"], **options, **{k: v for k, v in where.items() if k not in ("dst", "into")})
    where |= {"scales": {n: float(v) if np.ndim(v) == 0 else v for n, v in scales.items()} or None}
    if "zero_points" in case:
        where["zero_points"] = case["zero_points"]
    where["post_ops"] = post_ops_of(case)
    function = getattr(simdnn, call)
    if call in ("concat", "weighted_sum"):
        return function(list(given.values()), **options, **where)
    places = {"binary": ("src0", "src1"), "prelu": ("src", "weights"), "deconvolution": ("src", "weights")}
    names = places.get(call, ("src",))
    operands = [given.pop(name) for name in names]
    return function(*operands, **given, **options, **where)


@pytest.mark.parametrize(("case", "cap"), runs(CASES))
def test_the_librarys_bits(case: dict[str, Any], cap: str) -> None:
    where = {"machine": "spr", "isa": cap.lower(), "dispatch": "onednn"}
    if (case["name"], cap) in REFUSED:
        with pytest.raises(simdnn.Unimplemented, match="what works"):
            run(case, **where)
        return
    found = run(case, **where).output
    expected = STORED[f"{case['name']}/out__{case['runs'][cap].get('as', cap)}"]
    assert found.tobytes() == expected.tobytes(), f"{np.sum(found.view(expected.dtype) != expected)} differ"
