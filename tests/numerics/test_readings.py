"""Every instruction at every width: compiled code, portable and native, against the reference reading."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest

from isa_models import REGISTRY, instruction
from isa_models.instruction import Instruction
from isa_models.isa import host_caps
from simdnn.calibration import hostcheck
from simdnn.calibration.hostcheck import HostCheck, check_host, compare
from simdnn.numerics.native import own_width

VALUED = {name: definition for name, definition in REGISTRY.items() if not definition.configures}
#: the classes whose semantics are more than one operation: 2**20 lanes each
DEEP = (
    "vpmaddubsw",
    "vpmaddwd",
    "vpdpbusd",
    "vpdpbusds",
    "vpdpwssd",
    "vpdpwssds",
    "vdpbf16ps",
    "vcvtneps2bf16",
    "vcvtph2ps",
    "vcvtps2ph",
    "vfmadd231ps",
    "vfmadd213ps",
    "vcvtps2dq",
)


@pytest.mark.parametrize("native", [False, True], ids=["portable", "native"])
@pytest.mark.parametrize("name", sorted(VALUED))
def test_every_instruction(name: str, native: bool) -> None:
    definition = instruction(name)
    checked = 0
    for width in definition.caps:
        if native and not own_width(definition, width, host_caps()):
            continue
        rng = np.random.default_rng([width, zlib.crc32(name.encode())])
        found = compare(definition, width, native, 24 if definition.tile else 600, rng)
        assert found.mismatches == 0, found.first
        checked += found.vectors
    if not checked:
        pytest.skip(f"this CPU shows no {name}")
    assert checked >= (12 if definition.tile else 600)


@pytest.mark.parametrize("native", [False, True], ids=["portable", "native"])
@pytest.mark.parametrize("name", DEEP)
def test_a_million_lanes(name: str, native: bool) -> None:
    definition = instruction(name)
    if native and not own_width(definition, 512, host_caps()):
        pytest.skip(f"this CPU shows no {name}")
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    found = compare(definition, 512, native, (1 << 20) // definition.lanes(512), rng)
    assert found.mismatches == 0, found.first


def test_the_table_covers_every_instruction_and_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same instructions are compared above, on more vectors; here only the integer additions are."""

    def some(definition: Instruction, width: int, native: bool, vectors: int, rng: np.random.Generator) -> HostCheck:
        if definition.name.startswith("vpadd"):
            return compare(definition, width, native, vectors, rng)
        return HostCheck(vectors)

    monkeypatch.setattr(hostcheck, "compare", some)
    table = check_host(vectors=32, seed=1, jobs=1)
    assert set(table.instruction) == set(VALUED)
    assert len(table) == sum(len(d.caps) for d in VALUED.values())
    assert set(table.status) <= {"ok", "not on this CPU"}
    here = [
        bool(host_caps().intersection(REGISTRY[n].caps[w])) for n, w in zip(table.instruction, table.width, strict=True)
    ]
    assert ((table.vectors > 0) == np.array(here)).all() and (table.portable_vectors > 0).all()


def test_a_wrong_model_is_found_and_shown() -> None:
    wrong = replace(instruction("vpaddb"), function=lambda a, b: a - b)
    found = compare(wrong, 256, False, 50, np.random.default_rng(0))
    assert found.mismatches == found.vectors == 50
    assert found.first.startswith("portable: a [") and " gives [" in found.first
