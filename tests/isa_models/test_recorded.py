"""The models against what real CPUs gave, for those that lack these instructions (recorded by tools/record_x86.py)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from isa_models import instruction
from isa_models.formats import fmt
from simdnn.calibration.hostcheck import parameters_of

FILES = {name: np.load(Path(__file__).parents[1] / "vectors" / f"x86_{name}.npz") for name in ("zen4", "spr", "gnr")}
RECORDED = sorted({(cpu, key.split(".")[0]) for cpu, file in FILES.items() for key in file.files if "." in key})


@pytest.mark.parametrize(
    ("cpu", "model", "names"),
    [
        ("zen4", "family 25 model 17", {"vpdpbusd", "vpdpwssds", "vdpbf16ps", "vcvtneps2bf16"}),
        ("spr", "family 6 model 207", {"tdpbf16ps", "tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud", "vfmadd231ph"}),
        ("gnr", "Granite Rapids", {"tdpfp16ps"}),  # by hand, as this guest's CPUID hides it from the tool
    ],
)
def test_the_source_is_named(cpu: str, model: str, names: set[str]) -> None:
    assert model in str(FILES[cpu]["cpu"])
    assert names <= {name for source, name in RECORDED if source == cpu}


@pytest.mark.parametrize(("cpu", "name"), RECORDED)
def test_recorded_results(cpu: str, name: str) -> None:
    file, definition = FILES[cpu], instruction(name)
    operands = [file[f"{name}.{o.name}"].view(fmt(o.dtype).dtype) for o in definition.operands]
    if definition.tile:
        operands = [
            a.reshape(len(a), -1, definition.row_lanes(o.dtype))
            for a, o in zip(operands, definition.operands, strict=True)
        ]
    expected = file[f"{name}.out"]
    met = definition(*operands, **parameters_of(definition)[0]).view(expected.dtype)
    assert expected.size >= 1200
    assert (met.reshape(expected.shape) == expected).all()
