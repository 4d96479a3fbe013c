"""Machines with replaced figures: what is replaced changes, the rest doesn't, and what can't be is refused by name."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

import simdnn
from isa_models import Machine, SimdnnError, machine
from isa_models.machines.what_if import what_if


def figures(path: str, table: Any) -> Iterator[tuple[str, object]]:
    """Every figure of a file with its value, under the dotted key that names it."""
    if isinstance(table, list) and isinstance(table[0], dict):
        for row in table:
            name = row["name"] if "name" in row else f"{'general.' if row.get('general') else ''}{row['bits']}"
            own = {key: value for key, value in row.items() if key not in ("name", "bits", "general")}
            yield from figures(f"{path}.{name}", own)
    elif isinstance(table, dict) and "value" not in table:
        for key, inner in table.items():
            if key not in ("source", "confidence"):
                yield from figures(f"{path}.{key}" if path else key, inner)
    else:
        yield path, table["value"] if isinstance(table, dict) else table


def without_standing(target: Any) -> dict[str, Any]:
    found = {field.name: getattr(target, field.name) for field in dataclasses.fields(target)}
    return {key: value for key, value in found.items() if key not in ("name", "provenance", "path", "instructions")}


@pytest.mark.parametrize("name", ["zen4", "spr", "a770", "v100"])
def test_each_figure_replaced_by_itself_changes_nothing_but_its_standing(name: str) -> None:
    real = machine(name)
    data = tomllib.loads(real.path.read_text(encoding="utf-8"))
    left_out = ("name", "title", "vendor", "uarch", "platform", "sources", "instructions")
    known = list(figures("", {key: value for key, value in data.items() if key not in left_out}))
    assert len(known) > 25
    for key, value in known:
        if isinstance(value, list) and key.startswith("core.scheduler"):  # ports; banks are lists of lists
            continue
        same = what_if(name, {key: value})
        assert without_standing(same) == without_standing(real), key
        if key != "isa":
            assert same.confidence_of(key.rpartition(".")[0] or key) == "estimated", key


def test_a_row_is_found_by_a_pattern() -> None:
    real, one = machine("zen4"), what_if("zen4", {"instructions.vpdp*.uops": [["FP0"]]})
    assert isinstance(real, Machine) and isinstance(one, Machine)
    changed = {key for key, row in one.instructions.items() if row != real.instructions[key]}
    assert changed == {key for key in real.instructions if key[0].startswith("vpdp")}
    row = one.timing("vpdpbusd", "zmm,zmm,zmm")
    assert row.uops == (("FP0",),) and row.confidence == "estimated"
    assert row.source.startswith("uops.info") and row.source.endswith('what if: uops was [["FP0", "FP1"]]')
    wide = what_if("zen4", {"instructions.vpdp* zmm,*.occupancy": 1, "instructions.vpdpbusd.latency": 9})
    assert isinstance(wide, Machine)
    assert wide.timing("vpdpbusd", "zmm,zmm,zmm").occupancy == 1 and wide.timing("vpdpbusd", "ymm,ymm,ymm").latency == 9
    assert wide.timing("vpdpbusd", "zmm,zmm,zmm").latency == 9


def test_time_follows_the_figures() -> None:
    """One port of VNNI takes twice as long as two; units of full width half as long as those that work twice."""
    loop = "\n".join(f"vpdpbusd zmm{i}, zmm30, zmm31" for i in range(16))
    cycles = [
        simdnn.analyze(loop, machine=one).cycles_per_iteration  # type: ignore[arg-type]  # a CPU
        for one in (
            what_if("zen4", {"instructions.vpdp*.uops": [["FP0"]]}),
            machine("zen4"),
            what_if("zen4", {"instructions.vpdp* zmm,*.occupancy": 1}),
        )
    ]
    assert cycles == pytest.approx([32, 16, 8], rel=0.02)


def test_equal_calls_give_one_object() -> None:
    first, second = ({"cores": 8, "dram.gb_s_core": 60}, {"dram.gb_s_core": 60, "cores": 8})
    assert what_if("zen4", first) is what_if("zen4", second)
    assert what_if("zen4", {}) is machine("zen4")


@pytest.mark.parametrize(
    ("base", "key", "value", "said"),
    [
        ("zen4", "core.dispatch", 8, "'dispatch_slots'"),
        ("zen4", "core.dispatch_slots", 0, "a whole number from 1 to 64, met 0"),
        ("zen4", "core.dispatch_slots", "8", "a whole number from 1 to 64, met '8'"),
        ("zen4", "core.dispatch_slots.value", 8, "is a figure itself"),
        ("zen4", "dram.gb_s_core", float("nan"), "a number from 0.01 to 1e\\+06, met nan"),
        ("zen4", "dram.gb_s_core", 600, "gb_s_socket"),
        ("zen4", "caches.L4.size_bytes", 1, "L1, L2, L3"),
        ("zen4", "caches", 1, "allowed: caches.L1, caches.L2"),
        ("zen4", "core", 1, "allowed: core.dispatch_slots"),
        ("zen4", "core.load.pipes", 1, "general.64, 128"),
        ("zen4", "isa", ["avx3"], "only names among sse41"),
        ("zen4", "name", "zen9", "which machine it is"),
        ("zen4", "nothing.at", 1, "Known: caches, core"),
        ("zen4", "instructions.vpdpbusd.uops", [["FP9"]], "only names among FP0"),
        ("zen4", "instructions.vpdpbusd.port", 1, "FIELD of latency, slots, uops"),
        ("zen4", "instructions.nonsense.latency", 1, "no instruction of zen4 matches 'nonsense'"),
        ("zen4", "core.ports", ["FP0"], "only names among FP0, met 'LD0'"),
        ("zen4", "cores", {1}, "numbers, texts, and lists of them"),
        ("a770", "core.dispatch_slots", 8, "did you mean 'cores'"),
    ],
)
def test_what_a_machine_cannot_be_is_refused(base: str, key: str, value: object, said: str) -> None:
    with pytest.raises(SimdnnError, match=said):
        what_if(base, {key: value})
