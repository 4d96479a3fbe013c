"""Machine files that inherit: what differs counts, the rest stays with its source, and faults name file and key."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import pytest

import simdnn
from isa_models import Machine, MachineFileError, difference_file, machine, what_if
from isa_models.machines.shipped import GPU_MACHINES_DIR, MACHINES_DIR


def written(folder: Path, text: str, name: str = "mine") -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return path


def facts(target: Any, *but: str) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(target) if field.name not in ("path", "differs", *but)]
    return {name: getattr(target, name) for name in names} | {"provenance": dict(target.provenance)}


def test_three_lines_are_a_machine(tmp_path: Path) -> None:
    mine = machine(written(tmp_path, 'base = "zen4"\n[core]\ndispatch_slots = 8\n'))
    real = machine("zen4")
    assert isinstance(mine, Machine) and isinstance(real, Machine)
    assert (mine.name, mine.core.dispatch_slots, mine.confidence_of("core.dispatch_slots")) == ("mine", 8, "estimated")
    assert mine.provenance["core.dispatch_slots"].source.endswith("what if: it was 6")
    kept = {key: p for key, p in mine.provenance.items() if key != "core.dispatch_slots"}
    assert kept == {key: p for key, p in real.provenance.items() if key != "core.dispatch_slots"}
    assert mine.instructions == real.instructions
    loop = "\n".join(
        ["add rax, 1", *(f"vpaddd xmm{i}, xmm14, xmm15" for i in range(3)), *["nop"] * 24]
    )  # two are a slot
    cycles = [simdnn.analyze(loop, machine=one).cycles_per_iteration for one in (real, mine)]
    assert cycles == pytest.approx([16 / 6, 2], rel=0.02)


FIGURES = """
base = "zen4"
name = "wide"
title = "A Zen 4 with units of 512 bits"
remove = ["core.scheduler.FP.banks", "instructions.vpdpwss*", "instructions.vaddps xmm,*", "core.store.256"]

[sources]
core = "thought out"

[core]
dispatch_slots = {value = 8, source = "core: two more", confidence = "documented"}
load.512.pipes = 1

[core.load.256]
pipes = 2
source = "core: halves"
confidence = "documented"

[[caches]]
name = "L2"
size_bytes = {value = 2097152, source = "twice", confidence = "estimated"}

[dram]
gb_s_core = 60

[instructions]
"vpdpbusd zmm,*".occupancy = 1
"vpmaddubsw" = {latency = 2, source = "core: faster", confidence = "documented"}
rows = [
  {mnemonic = ["vpdpbssd", "vpdpbsud"], form = ["xmm,xmm,xmm", "ymm,ymm,ymm"], latency = 4, slots = 1, uops = [[
    "FP0"]]},
  {mnemonic = "vpaddd", form = "zmm,zmm,zmm", latency = 3, slots = 1, uops = [], source = "x", confidence = "measured"},
]
"""


def test_anything_may_differ(tmp_path: Path) -> None:
    mine, real = machine(written(tmp_path, FIGURES)), machine("zen4")
    assert isinstance(mine, Machine) and isinstance(real, Machine)
    assert (mine.name, mine.title) == ("wide", "A Zen 4 with units of 512 bits")
    assert mine.core.dispatch_slots == 8 and mine.core.load(512).pipes == 1 and mine.core.load(256).pipes == 2
    assert mine.provenance["core.dispatch_slots"].source == "thought out: two more"
    assert mine.provenance["core.load.256"].source == "thought out: halves"
    assert mine.provenance["core.load_ports"] == real.provenance["core.load_ports"]  # cites Zen 4's own "core"
    assert mine.provenance["core.load.512"].source.endswith("what if: pipes was 2")
    assert mine.core.load(512).latency == real.core.load(512).latency
    assert mine.cache("L2").size_bytes == 2 << 20 and mine.cache("L2").ways == real.cache("L2").ways
    assert mine.dram.gb_s_core == 60 and mine.core.schedulers[0].banks == ()
    assert [row.bits for row in mine.core.stores] == [r.bits for r in real.core.stores if r.bits != 256]
    assert not mine.has("vpdpwssd", "zmm,zmm,zmm") and not mine.has("vaddps", "xmm,xmm,xmm")
    assert mine.timing("vaddps", "ymm,ymm,ymm") == real.timing("vaddps", "ymm,ymm,ymm")
    assert mine.timing("vpdpbusd", "zmm,zmm,zmm").occupancy == 1
    assert mine.timing("vpdpbusd", "ymm,ymm,ymm") == real.timing("vpdpbusd", "ymm,ymm,ymm")
    assert mine.timing("vpmaddubsw", "xmm,xmm,xmm").source == "thought out: faster"
    row = mine.timing("vpdpbsud", "ymm,ymm,ymm")
    assert (row.latency, row.uops, row.confidence) == (4, (("FP0",),), "estimated")
    assert mine.timing("vpaddd", "zmm,zmm,zmm").latency == 3
    assert mine.timing("vpaddd", "zmm,zmm,m512") == real.timing("vpaddd", "zmm,zmm,m512")


def test_a_file_inherits_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    first = written(tmp_path, 'base = "skx"\n[core]\nload_queue = 80\nstore_queue = 60\n', "first")
    last = written(tmp_path / "deep", 'base = "../first.toml"\n[core]\nload_queue = 90\n', "last")
    mine = machine(str(last))
    assert isinstance(mine, Machine)
    assert (mine.core.load_queue, mine.core.store_queue, mine.uarch) == (90, 60, "Skylake-X")
    assert mine is machine(last)
    first.write_text('base = "skx"\n[core]\nstore_queue = 61  # edited\n', encoding="utf-8")
    again = machine(last)
    assert isinstance(again, Machine) and again.core.store_queue == 61


def test_a_gpu_inherits(tmp_path: Path) -> None:
    text = 'base = "b580"\nremove = ["frequency.max_ghz"]\n[cores]\nxe_cores = 32\n[latency]\nl1 = 40\n'
    mine, real = machine(written(tmp_path, text)), machine("b580")
    assert mine.engines == 32 * 8 and mine.latency.l1 == 40 and mine.max_ghz is None  # type: ignore[union-attr]
    assert mine.provenance["latency.slm"] == real.provenance["latency.slm"]
    cycles = [
        simdnn.estimate("matmul", m=4096, n=4096, k=512, dt="f16:f16:f32", machine=one).cycles for one in (mine, real)
    ]
    assert cycles[0] < cycles[1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('base = "zen9"', r"key 'base'.*did you mean 'zen4'|key 'base'.*did you mean 'zen5'"),
        ('base = "absent.toml"', "key 'base'.*absent.toml"),
        ("base = 4", "key 'base'"),
        ('base = ""', "key 'base'"),
        ('base = "mine.toml"', "mine.toml -> mine.toml"),
        ('base = "other.toml"', "mine.toml -> other.toml -> mine.toml"),
        ('base = "wrong.toml"', r"wrong.toml: key 'core.dispatch_slots.value'"),
        ('base = "zen4"\ncore.dispach_slots = 8', "'core.dispach_slots'.*'dispatch_slots'"),
        ('base = "zen4"\ncore.dispatch_slots = 0', "'core.dispatch_slots.value'"),
        ('base = "zen4"\ncore = 3', "'core' of zen4 is a table"),
        ('base = "zen4"\ncaches.L7.ways = 3', "L1, L2, L3"),
        ('base = "zen4"\n[core.dispatch_slots]\nvalue = 8\nsource = "x"', "'core.dispatch_slots.confidence'"),
        ('base = "zen4"\n[core.load.512]\npipes = 1\nsource = "x"', "'core.load\\[3\\].confidence'"),
        ('base = "zen4"\nremove = ["core.nothing"]', "'core.nothing'"),
        ('base = "zen4"\nremove = ["core.dispatch_slots"]', "'core.dispatch_slots'"),
        ('base = "zen4"\nremove = ["instructions.nonsense"]', "'nonsense'"),
        ('base = "zen4"\nremove = "core"', "a list of dotted keys"),
        ('base = "zen4"\nremove = ["caches.L2", "caches.L3"]', "two levels or more, met 1"),
        ('base = "zen4"\ninstructions.vpdpbusd.port = 1', "FIELD of latency"),
        ('base = "zen4"\ninstructions.rows = [3]', "a list of rows"),
        ('base = "zen4"\n[instructions]\nrows = [{mnemonic = "x", form = "xmm"}]', "'instructions.x xmm.uops'"),
        ('base = "b580"\ncore.dispatch_slots = 8', "did you mean 'cores'"),
        ('base = "zen4"\nunknown = 8', "'unknown'"),
    ],
)
def test_faults_name_file_and_key(text: str, said: str, tmp_path: Path) -> None:
    written(tmp_path, 'base = "mine.toml"', "other")
    written(tmp_path, 'base = "zen4"\ncore.dispatch_slots = "wide"', "wrong")
    path = written(tmp_path, text)
    with pytest.raises(MachineFileError, match=said) as caught:
        machine(path)
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("path", [MACHINES_DIR / "clx.toml", *sorted(GPU_MACHINES_DIR.glob("max1?[05]0*.toml"))])
def test_a_relative_is_short(path: Path) -> None:
    """A machine of a known family takes fewer than 70 lines of its own, without blank lines."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    assert len(lines) < 70 or "base" not in tomllib.loads("\n".join(lines)), len(lines)


def test_provenance_of_relatives() -> None:
    """Both cite a machine file of kerncraft, each its own."""
    clx, skx = machine("clx"), machine("skx")
    assert "Cascadelake" in clx.provenance["caches.L1.ways"].source
    assert "Skylake" in skx.provenance["caches.L1.ways"].source
    assert clx.provenance["core.load_queue"] == skx.provenance["core.load_queue"]


CHANGES: list[tuple[str, dict[str, object]]] = [
    ("zen4", {"core.dispatch_slots": 8}),
    ("spr", {"instructions.tdp* tmm,*.latency": 40, "isa": ["sse41", "avx2"], "core.load.512.pipes": 1.5}),
    ("skx", {"remove": ["frequency.avx512_ghz", "instructions.vpadd*"], "core.binding": "banks"}),
    (
        "zen4",
        {
            "instructions.rows": [
                {"mnemonic": "vpdpbssd", "form": ["ymm,ymm,ymm"], "latency": 4, "slots": 1, "uops": [["FP0", "FP1"]]}
            ],
            "core.scheduler.I2F.size": 60,
            "instructions.vpdp*.interval": 0.1,
        },
    ),
    ("v100", {"latency.mma": 20, "engine.systolic_ops.s8": 512}),
]


@pytest.mark.parametrize("base, figures", CHANGES)
def test_a_what_if_is_a_file(base: str, figures: dict[str, object], tmp_path: Path) -> None:
    made = what_if(base, figures)
    text = difference_file(made)
    assert 3 <= len(text.splitlines()) <= 20
    assert facts(machine(written(tmp_path, text))) == facts(made)
    both = what_if(made, {"core.load_queue": 99} if isinstance(made, Machine) else {"latency.l1": 99})
    assert facts(machine(written(tmp_path, difference_file(both), "both"))) == facts(both)
    assert {**figures}.items() <= both.differs.items()


def test_a_file_of_a_file_names_it(tmp_path: Path) -> None:
    own = written(tmp_path, 'base = "zen4"\ncore.load_queue = 70\n')
    made = what_if(own, {"core.store_queue": 70})
    (tmp_path / "elsewhere").mkdir()
    other = machine(written(tmp_path / "elsewhere", difference_file(made), "other"))
    assert facts(other) == facts(made)
