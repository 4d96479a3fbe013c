"""Rows of loops in assembly: every spelling has one, at the cost of its others; what has none is named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import simdnn
from isa_models import UnknownTiming
from isa_models.machines.loader import cpu_machine as machine
from isa_models.machines.shipped import machine_names
from isa_models.machines.variants import variant
from simdnn.assembly.analysis import read_body
from simdnn.assembly.assembler import machine_code
from simdnn.assembly.rows import rows, spellings
from simdnn.cli import main


def cycles(text: str, **options: Any) -> float:
    return simdnn.analyze(text, **options).cycles_per_iteration


def test_every_spelling_costs_the_same_where_tables_have_both() -> None:
    """One cycle of latency by operand and 0.7 of throughput: what uops.info's own scatter leaves.

    Zen 5's rows come from two sources, and MMX has ports of its own (its rows are marked as estimated). On Haswell
    uops.info counts the unpacks of quadwords from memory otherwise than the others. Golden Cove adds small constants at
    rename, which no other spelling shares. On Zen 3 and 4 a legacy transfer from a general register takes a uop more.
    Moves to 8 bits keep the rest of their register.
    """
    compared, wrong = 0, []
    for name in set(machine_names()) - {"zen5"}:
        table = machine(name).instructions
        for key, row in table.items():
            other = next((k for k in list(spellings(*key))[1:] if k in table), None)
            if other is None or "+" in key[0] or key[1].startswith("mm"):
                continue
            if (
                name in ("zen3", "zen4")
                and re.fullmatch("mov[dq]|cvtsi2s[sd]", key[0])
                and key[1] in ("xmm,r32", "xmm,r64")
            ):
                continue
            if name == "zen4" and key[0] == "movsx" and "m" in key[1]:  # an ALU and a cycle more than movzx (measured)
                continue
            if key[0] == "mov" and key[1].startswith("r8,"):
                continue
            if row.eliminated != table[other].eliminated and key[1].startswith("r64"):  # small sums on Golden Cove
                continue
            if name == "hsw" and re.fullmatch("vpunpck[lh]qdq", key[0]) and key[1][8] == "m":
                continue
            twin = table[other]
            compared += 1
            same = (row.uops, row.slots, row.eliminated) == (twin.uops, twin.slots, twin.eliminated)
            if not same or abs(row.latency - twin.latency) > 1 or abs(row.interval - twin.interval) > 0.7:
                wrong.append((name, key, other))
    assert compared > 4500 and not wrong


def test_missing_instructions_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = "cpuid\nvaddps zmm0, zmm0, zmm1\nfsin\ndec rcx\njnz .L"
    with pytest.raises(UnknownTiming, match="2 instructions: 'cpuid', 'fsin'; .*--assume"):
        simdnn.analyze(text)
    found = simdnn.analyze(text, assume=True)
    assert len(found.assumed) == 2 and "2 instructions assumed" in found.sentence and found.confidence == "estimated"
    path = tmp_path / "loop.s"
    path.write_text(text)
    assert main(["analyze", str(path)]) == 1
    assert "cpuid" in capsys.readouterr().err
    assert main(["analyze", str(path), "--assume"]) == 0
    assert "counts as one uop" in capsys.readouterr().out
    with pytest.raises(UnknownTiming):  # an assumption is not kept
        simdnn.analyze(text)


def test_rows_of_other_spellings_say_so() -> None:
    row = rows(machine("zen4")).find("addsd", "xmm,m64")
    assert row.load_bits == 64 and row.source.startswith("a load and vaddss")


def test_texts_read_back_as_the_same_code() -> None:
    text = """vaddps zmm0{k1}{z}, zmm1, zmm2, {rd-sae}
    vrndscaleps zmm0, zmm1, {sae}, 5
    vcmpps k1{k2}, zmm0, zmm1, {sae}, 3
    vgatherdps zmm0{k1}, [rax+zmm1*4]
    vpscatterdd [rsi+zmm1*4]{k1}, zmm2
    vfmadd231ps zmm0{k1}, zmm1, dword ptr [rax]{1to16}
    add dword ptr [rax+rcx*8-64], 5"""
    code = machine_code(text)
    for syntax in ("intel", "att"):
        shown = "\n".join(one.text for one in read_body(code, syntax).instructions)
        assert [one.text for one in read_body(shown, syntax).instructions] == shown.splitlines()


@pytest.mark.parametrize("name", machine_names())
def test_what_loads_shows_its_latency_and_ports(name: str) -> None:
    core = machine(name).core
    pipes = "/".join(core.load_ports)
    text = "mov rax, [rsi]\nvmovups ymm0, [rsi]\nvaddps ymm1, ymm0, [rdi]\nvaddps ymm2, ymm2, ymm0\nmov [rdi], rax"
    general, vector, added, plain, store = simdnn.analyze(text, name).instruction_rows()
    assert (general["latency"], general["ports"]) == (core.load(64, True).latency, pipes)
    assert (vector["latency"], vector["ports"]) == (core.load(256).latency, pipes)
    assert added["ports"] == f"{pipes} {plain['ports']}"
    assert pipes not in plain["ports"] and store["latency"] == 0


@pytest.mark.parametrize(
    ("text", "lanes", "limit"),
    [
        ("vgatherqps xmm0{k1}, [rax+ymm1*4]", 4, "load"),
        ("vgatherqps xmm0{k1}, [rax+xmm1*4]", 2, "load"),
        ("vgatherdps ymm0{k1}, [rax+ymm1*4]", 8, "load"),
        ("vgatherdpd zmm0{k1}, [rax+ymm1*8]", 8, "load"),
        ("vpgatherdq xmm0{k1}, [rax+xmm1*8]", 2, "load"),
        ("vpscatterdd [rax+zmm1*4]{k1}, zmm2", 16, "store"),
        ("vscatterqps [rax+zmm1*4]{k1}, ymm2", 8, "store"),
    ],
)
def test_an_assumed_gather_moves_its_lanes(text: str, lanes: int, limit: str) -> None:
    without = variant(machine("zen4"), {"remove": ["instructions.v*gather*", "instructions.v*scatter*"]})
    found = simdnn.analyze(f"vaddps zmm5, zmm6, zmm7\n{text}\ndec rcx\njnz .L", without, assume=True)
    access = {"load": "vmovss xmm0, [rsi]", "store": "vmovss [rdi], xmm1"}[limit]
    one = simdnn.analyze(access).timing.limits[limit]
    assert found.timing.limits[limit] == pytest.approx(lanes * one)
    assert found.cycles_per_iteration >= lanes * one and found.at_least and "at least" in str(found)
    row = found.instruction_rows()[1]
    assert row["source"].startswith(f"assumed: one {limit} a lane, at least")
    assert len(found.timeline.events) == 3 * (lanes + 2) and len(found.body) == 4
    assert text in found.texts


@pytest.mark.parametrize("name", ["skx", "clx", "icx", "spr", "gnr", "adl-p", "zen4", "zen5"])
def test_masks_and_quadwords_have_rows(name: str) -> None:
    """As uops.info lists them: unpacked masks and those of 64 bits as of 16, minima of quadwords as a group."""
    table = rows(machine(name))
    for mnemonic, like in (("kunpckdq", "kunpckbw"), ("kunpckwd", "kunpckbw"), ("korq", "korw"), ("kaddq", "kaddw")):
        assert table.find(mnemonic, "k,k,k").latency == table.find(like, "k,k,k").latency
        assert table.find(mnemonic, "k,k,k").uops == table.find(like, "k,k,k").uops
    zen = name.startswith("zen")
    for letter, latency in zip("bwdq", (1, 1, 1, 1) if zen else (3, 3, 1, 1), strict=True):
        for vector in ("xmm", "ymm", "zmm"):
            assert table.find(f"vpmovm2{letter}", f"{vector},k").latency == latency
    for which in ("minsq", "maxsq", "minuq", "maxuq"):
        for form in ("xmm,xmm,xmm", "ymm,ymm,m256", "zmm,zmm,m64bcst", "zmm{k},zmm,zmm"):
            assert table.find(f"vp{which}", form).latency == (2 if zen else 3)
