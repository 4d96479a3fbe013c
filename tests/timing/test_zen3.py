"""Mechanisms of Zen 3's core, each by loops that were measured on one (docs/validation/zen3.md)."""

from __future__ import annotations

import functools
import json
import re
import statistics
from collections import defaultdict
from pathlib import Path

import pytest

from isa_models.machines.loader import cpu_machine as machine
from tests.loops import cycles_of, recorded

cycles = functools.partial(cycles_of, "zen3")
TABLE = recorded("core-zen3")
SHOWN = TABLE[::26]  # whose predictions are made anew
#: mean errors of classes of loops that the clock is right about
RIGHT = {
    "a register with itself": 0.01,
    "chains": 0.01,
    "microcode": 0.005,
    "two slots": 0.005,
    "stores to lines": 0.005,
    "loads and stores": 0.04,
    "pairs of classes": 0.04,
    "third operands and stores": 0.05,
    "stores and transfers": 0.05,
    "results of a port": 0.03,
    "addresses": 0.005,
    "stores in order and across 32 bytes": 0.02,
    "chains of sums and stores": 0.07,
    "gathers": 0.08,
    "slots of instructions with memory": 0.025,
    "slots of instructions with memory, drawn later": 0.02,
}


def lines_of(loop: str) -> list[str]:
    """A loop's lines as the table has it: `3 x nop; dec rax`."""
    parts = [re.fullmatch(r"(?:(\d+) x )?(.*)", part) for part in loop.split("; ")]
    return [line for part in parts if part for line in [part[2]] * int(part[1] or 1)]


def test_the_table_is_the_clocks() -> None:
    for row in SHOWN:
        assert cycles(lines_of(row["loop"])) == pytest.approx(float(row["predicted"]), abs=0.006), row["loop"]


def test_classes_of_loops_are_as_near_as_the_page_says() -> None:
    errors: dict[str, list[float]] = defaultdict(list)
    for row in TABLE:
        errors[row["class"]].append(abs(float(row["predicted"]) / float(row["measured"]) - 1))
    assert len(TABLE) == 1636 and all(statistics.mean(errors[name]) < most for name, most in RIGHT.items())


@pytest.mark.parametrize(
    ("multiplied", "count", "stores", "measured"),
    [
        *[("vfmadd231ps", 24, 0, 12.0), ("vfmadd231ps", 24, 6, 17.5), ("vfmadd231ps", 24, 12, 23.9)],
        *[("vmulps", 24, 12, 12.0), ("vfmadd231ps", 4, 4, 4.0), ("vfmadd231ps", 8, 4, 4.0)],  # fresh addends
    ],
)
def test_stores_take_the_way_of_one_bank(multiplied: str, count: int, stores: int, measured: float) -> None:
    lines = [f"{multiplied} ymm{i % 13}, ymm14, ymm15" for i in range(count)]
    lines += [f"vmovups [rdi+{64 * i}], ymm13" for i in range(stores)]
    assert cycles(lines) == pytest.approx(measured, rel=0.04)


@pytest.mark.parametrize(
    ("first", "second", "measured"),
    [
        ("vpaddd {0}, {0}, {1}", "vmulps {0}, {0}, {1}", 6),
        ("vshufps {0}, {0}, {1}, 0", "vaddps {0}, {0}, {1}", 6),
        ("vshufps {0}, {0}, {1}, 0", "vpaddd {0}, {0}, {1}", 2),
        ("vxorps {0}, {0}, {1}", "vmulps {0}, {0}, {1}", 4),
        ("vmaxps {0}, {0}, {1}", "vpaddd {0}, {0}, {1}", 4),
        ("vcvtdq2ps {0}, {0}", "vpaddd {0}, {0}, {1}", 6),
    ],
)
def test_from_integers_to_floats_and_back_takes_a_cycle_each(first: str, second: str, measured: float) -> None:
    assert cycles([line.format("ymm1", "ymm15") for line in (first, second)]) == pytest.approx(measured, abs=0.02)


@pytest.mark.parametrize(
    ("one", "other", "measured"),
    [
        ("vextracti128 {0}, ymm15, 1", "vpmovsxbw y{0}, xmm15", 9.0),
        ("vbroadcastss y{0}, xmm15", "vperm2i128 y{0}, ymm15, ymm14, 1", 8.0),
        ("vinserti128 y{0}, ymm15, xmm14, 1", "vcvtps2pd y{0}, xmm15", 8.0),
        ("vextracti128 {0}, ymm15, 1", "vcvtpd2ps {0}, ymmword ptr [rsi]", 8.0),
        ("vextracti128 {0}, ymm15, 1", "vaddps y{0}, ymm15, ymm14", 4.0),
    ],
)
def test_what_crosses_lanes_takes_turns(one: str, other: str, measured: float) -> None:
    names = [f"xmm{number}" for number in range(8)]
    lines = [line.format(name) for line, name in zip([one, other] * 4, names, strict=True)]
    assert cycles([line.replace("yxmm", "ymm") for line in lines]) == pytest.approx(measured, rel=0.04)


@pytest.mark.parametrize(
    ("line", "measured"),
    [
        ("cmp edi, [rdx+rax]", 2.67),
        ("cmp edi, [rdx+16]", 2.0),
        ("movzx edi, byte ptr [rdx+rax]", 2.0),
        ("vpaddd ymm9, ymm15, [rdx+rax]", 2.0),
        ("andn edi, ebx, [rdx+rax]", 2.67),
    ],
)
def test_general_instructions_take_a_second_slot_with_memory(line: str, measured: float) -> None:
    """Three of them and eight zero idioms, which take slots alone."""
    idioms = [f"vpxor xmm{i}, xmm{i}, xmm{i}" for i in range(8)]
    assert cycles([line] * 3 + idioms) == pytest.approx(measured, rel=0.01)


@pytest.mark.parametrize(
    ("first", "second", "measured"),
    [
        ("vpaddd ymm0, ymm14, ymm15", "vaddps ymm1, ymm1, ymm0", 3),
        ("vpaddd ymm0, ymm14, ymm15", "vfmadd231ps ymm1, ymm0, ymm15", 4),
    ],
)
def test_a_sum_waits_no_longer_for_itself(first: str, second: str, measured: float) -> None:
    assert cycles([first, second]) == pytest.approx(measured, abs=0.02)


@pytest.mark.parametrize(
    ("lines", "measured"),
    [
        ("mov rax, [rsi+rax]", 4.0),
        ("mov rax, [rsi+rax*2]", 5.0),
        ("mov rax, [rsi+rax+64]", 5.0),
        ("; ".join(f"mov [rdi+{4 + 8 * i}], rdx" for i in range(8)), 6.0),
        ("; ".join(f"vmovups [rdi+{4 + 32 * i}], ymm0" for i in range(8)), 9.0),
        ("; ".join(f"mov r{9 + i}, [rsi+{60 + 64 * i}]" for i in range(6)), 4.0),
        ("vpcmpeqd ymm1, ymm1, ymm1; vgatherdps ymm0, [rsi+ymm15*4], ymm1; vaddps ymm0, ymm0, ymm14; add r8, r9", 13.0),
    ],
)
def test_addresses_pieces_of_lines_and_gathers(lines: str, measured: float) -> None:
    assert cycles(lines_of(lines)) == pytest.approx(measured, rel=0.08)


@pytest.mark.parametrize(
    ("pattern", "measured"),
    [
        ("azaziaazaia", 3.66),  # the jump's turn among ALU0, 2 and 3 makes a sum wait for ALU1, group by group
        ("aaaazziizzz", 3.66),  # two products and a sum on ALU1, in either order; three and two; six and one
        ("aaaazzizzzzizzzzz", 3.66),
        ("aaaazzaaaazziizzz", 3.99),
        ("aaaazziizzzziizzzziizzz", 8.99),
        ("iiaaaaaaa", 3.67),
        ("aaaaaaaaaaaa", 3.25),
    ],
)
def test_alus_are_dealt_out_to_groups(pattern: str, measured: float) -> None:
    """a: `lea`, i: `imul`, which ALU1 alone does, z: a zero idiom, which takes a slot alone."""
    line = {"a": "lea {}, [rdx+rdx]", "i": "imul {}, rdx, 3", "z": "vxorps xmm0, xmm0, xmm0"}
    lines = [line[one].format(f"r{8 + place % 8}") for place, one in enumerate(pattern)]
    assert cycles(lines) == pytest.approx(measured, rel=0.01)


def test_what_no_group_has_alus_for_goes_alone(tmp_path: Path) -> None:
    """A row of more operations on one ALU than it has entries: it waits until nothing else does, and queues."""
    uops = [["ALU1"]] * 30
    row = {"mnemonic": "imul", "form": "r64,r64,i32", "latency": 3, "slots": 6, "uops": uops}
    told = ", ".join(f"{key} = {json.dumps(value)}" for key, value in row.items())
    path = tmp_path / "wide.toml"
    head = 'base = "zen3"\nname = "wide"\n[instructions]\n'
    path.write_text(f'{head}rows = [{{{told}, source = "a test", confidence = "estimated"}}]\n')
    assert cycles_of(machine(str(path)), ["imul r8, r9, 3000"]) == pytest.approx(31, abs=1)
