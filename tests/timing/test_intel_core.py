"""Mechanisms of Intel's cores, each by a loop that shows it and one beside it that must not."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

import simdnn
from isa_models.errors import MachineFileError
from isa_models.machines.loader import cpu_machine as machine
from tests.loops import cycles_of

NOP = "nop"


# -- dispatch ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "slots", "expected"),
    [("hsw", 9, 7 / 3), ("clx", 9, 7 / 3), ("clx", 57, 15), ("clx", 65, 65 / 4), ("skx", 9, 9 / 4), ("skx", 57, 14.25)],
)
def test_a_group_ends_with_what_the_loop_buffer_holds(name: str, slots: int, expected: float) -> None:
    assert cycles_of(name, [NOP] * (slots - 1)) == pytest.approx(expected, abs=0.02)


def test_microcode_is_in_no_loop_buffer() -> None:
    gather = ["vpcmpeqd ymm2, ymm2, ymm2", "vpgatherdd ymm0, dword ptr [rsi+ymm1*4], ymm2"]
    found = simdnn.analyze("\n".join([*gather, *[NOP] * 40]), machine="hsw")
    slots = sum(op.slots for op in found.ops)
    assert slots % 4 and found.timing.limits["front-end"] == slots / 4


def test_a_loop_buffer_is_checked(tmp_path: Path) -> None:
    text = machine("icx").path.read_text(encoding="utf-8")
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(text.replace("[[6, 6], [8, 4]", "[[6, 6], [5, 4]"), encoding="utf-8")
    with pytest.raises(MachineFileError, match="loop_buffer.*rising slots"):
        machine(wrong)


@pytest.mark.parametrize("name", ["hsw", "skx", "clx", "icx", "spr", "adl-p"])
def test_indexed_operations_are_dispatched_as_two(name: str) -> None:
    def body(line: str) -> list[str]:
        return [text for i in range(8) for text in (line.format(i), NOP, NOP, NOP, NOP)]

    plain, indexed = "vpaddd ymm{0}, ymm14, [rsi]", "vpaddd ymm{0}, ymm14, [rsi+r8]"
    joined, moved = "paddd xmm{0}, [rsi+r8]", "vmovups ymm{0}, [rsi+r8]"
    assert cycles_of(name, body(indexed)) > 1.1 * cycles_of(name, body(plain))
    assert cycles_of(name, body(joined)) == cycles_of(name, body(plain)) == cycles_of(name, body(moved))


@pytest.mark.parametrize("end", ["cmp eax, ebx", "sub ecx, 1", "test al, al", "cmp rax, rbx"])
def test_fusion_with_a_jump_is_not_for_64_bits_alone(end: str) -> None:
    assert cycles_of("skx", [NOP] * 11, end) == 3


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("vaddps ymm{0}, ymm14, [rsi+r8]", 16),
        ("vcvtdq2ps ymm{0}, [rsi+r8]", 16),
        ("vaddps ymm{0}, ymm14, [rsi]", 12.17),
        ("add rax, [rsi+r8]", 12.17),
        ("vpshufd ymm{0}, [rsi+r8], 78", 14.17),
        ("vmovups [rsi+r8], ymm{0}", 12.17),
    ],
)
def test_where_in_a_group_golden_cove_takes_a_split_operation(line: str, expected: float) -> None:
    """Twelve with five nops each; measured 16.1, 16.1, 12.2, 12.3, 14.4 (at one register)."""
    body = [text for i in range(12) for text in (line.format(i), *[NOP] * 5)]
    assert cycles_of("spr", body) == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize(
    ("loop", "measured"),  # P: an operation on memory at two registers; n: a nop
    [
        ("Pnnn", 1.00),
        ("Pnnnn", 1.33),
        ("Pnnnnn", 1.50),
        ("PPnn", 1.33),
        ("PPnnn", 1.50),
        ("nPnnn", 1.33),
        ("PnPn", 1.50),
        ("PnnPn", 2.00),
        ("PPPn", 2.00),
        ("PPPnnnnn", 2.50),
        ("Pnn" * 4, 4.00),
        ("Pnnnn" * 4, 4.34),
        ("Pn" * 6, 3.50),
        ("Pnnnnnnn" * 12, 24.2),
    ],
)
def test_split_operations_are_among_the_first_three_of_a_group(loop: str, measured: float) -> None:
    lines = [f"vaddps ymm{i % 12}, ymm14, [rsi+r8+{32 * i}]" if c == "P" else NOP for i, c in enumerate(loop)]
    assert cycles_of("spr", lines) == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize(("slots", "expected"), [(8, 8 / 6), (9, 2), (12, 2), (14, 14 / 6), (18, 3)])
def test_lines_of_the_uop_cache(slots: int, expected: float) -> None:
    """Measured: 1.32, 2.01, 2.01, 2.35, 3.01."""
    assert cycles_of("spr", [NOP] * (slots - 1)) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("vpxord zmm0, zmm0, zmm0", 4.17),
        ("vpcmpgtb ymm0, ymm0, ymm0", 4.17),
        ("xor eax, eax", 4.17),
        ("vpcmpeqd ymm0, ymm0, ymm0", 12),
        ("vpandn ymm0, ymm0, ymm0", 24),
    ],
)
def test_registers_with_themselves(line: str, expected: float) -> None:
    """24 of each; measured 4.19, 4.19, 4.14, 12.4, 24.1."""
    assert cycles_of("spr", [line] * 24) == pytest.approx(expected, abs=0.05)


# -- loads and stores ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loads", "expected"),  # of three lines, measured four times each: widths and places in them
    [
        (("xmm 0", "xmm 0", "xmm 0"), 6.07),
        (("ymm 0", "ymm 4", "ymm 8"), 6.04),
        (("ymm 0", "ymm 8", "ymm 16"), 6.02),
        (("ymm 0", "ymm 16", "ymm 32"), 4.00),
        (("ymm 0", "ymm 8", "ymm 32"), 4.01),
        (("ymm 0", "ymm 0", "ymm 24"), 6.05),
        (("xmm 0", "xmm 8", "xmm 16"), 3.99),
        (("xmm 0", "xmm 8", "xmm 4"), 6.05),
        (("ymm 0", "ymm 0", "xmm 16"), 6.05),
        (("ymm 0", "xmm 0", "xmm 16"), 4.00),
        (("ymm 0", "dword 4", "dword 4"), 6.03),
        (("ymm 0", "ymm 0", "dword 36"), 4.00),
        (("dword 0", "dword 0", "dword 4"), 4.00),
        (("dword 0", "dword 0", "dword 0"), 6.03),
        (("dword 0", "dword 4", "dword 8"), 3.99),
    ],
)
def test_a_byte_of_a_line_is_read_twice_a_cycle(loads: tuple[str, ...], expected: float) -> None:
    lines = []
    for number in range(12):
        kind, place = loads[number % 3].split()
        pointer = ("rsi", "rdx", "r9")[number % 3]
        move = "vbroadcastss ymm" if kind == "dword" else f"vmovups {kind}"
        lines.append(f"{move}{number}, {kind if kind == 'dword' else kind + 'word'} ptr [{pointer}+{place}]")
    assert cycles_of("spr", lines) == pytest.approx(expected, abs=0.1)
    assert cycles_of("skx", lines) == pytest.approx(6, abs=0.1)


def test_wide_loads_leave_room_for_narrow_ones_or_for_each_other() -> None:
    """Measured 6.0 and 4.0."""
    wide = [f"vmovups zmm{i}, [rsi+{64 * i}]" for i in range(8)]
    narrow = [f"vbroadcastss zmm{16 + i}, [rdi+{36 * i}]" for i in range(8)]
    more_wide = [line for i in range(4) for line in (*wide[2 * i : 2 * i + 2], narrow[i])]
    more_narrow = [line for i in range(4) for line in (wide[i], *narrow[2 * i : 2 * i + 2])]
    assert cycles_of("spr", more_wide) >= 5
    assert cycles_of("spr", more_narrow) == pytest.approx(4, abs=0.1)


@pytest.mark.parametrize(
    ("line", "loads", "stores", "measured"),
    [
        ("vpaddd", 16, 0, 9.89),
        ("vpaddd", 12, 0, 9.14),
        ("vpaddd", 8, 8, 10.0),
        ("vpaddd", 16, 8, 12.19),
        ("vmulps", 16, 0, 9.06),
        ("vmulps", 12, 0, 8.03),
        ("vmulps", 8, 8, 8.98),
        ("vaddps", 16, 8, 8.47),
        ("vpmullw", 16, 8, 8.10),
        ("vpaddd", 8, 0, 8.01),
        ("vpaddd", 0, 8, 8.02),
    ],
)
def test_wide_operations_crowd_loads_and_stores(line: str, loads: int, stores: int, measured: float) -> None:
    """16 operations beside loads and stores, all of 512 bits and independent: more than any port explains."""
    body = [f"{line} zmm{8 + i % 8}, zmm30, zmm31" for i in range(16)]
    body += [f"vmovups zmm{i % 8}, [rsi+{64 * i}]" for i in range(loads)]
    body += [f"vmovups [rdi+{64 * i}], zmm29" for i in range(stores)]
    assert cycles_of("spr", body) == pytest.approx(measured, rel=0.03)
    narrow = [text.replace("zmm", "xmm").replace("30", "14").replace("31", "15").replace("29", "13") for text in body]
    assert simdnn.analyze("\n".join(narrow), machine="spr").timing.limits["crowding"] == 0
    assert simdnn.analyze("\n".join(body), machine="icx").timing.limits["crowding"] == 0


def test_what_crowds_is_told() -> None:
    body = [f"vpaddd zmm{i}, zmm31, [rsi+{64 * i}]" for i in range(8)]
    found = simdnn.analyze("\n".join(body), machine="spr")
    assert found.bound == "crowding" and "crowd each other" in found.sentence


def test_from_line_to_line() -> None:
    """Twelve loads in 12.9 cycles, twelve stores in 24.2; every second one: stores 18.2."""

    def lines(text: str, each: int) -> list[str]:
        return [text.format(i, 64 * i + (56 if i % each == 0 else 0)) for i in range(12)]

    load, store = "vmovups xmm{0}, [rsi+{1}]", "vmovups [rsi+{1}], xmm{0}"
    assert cycles_of("spr", lines(load, 1)) == pytest.approx(12, abs=0.1)
    assert cycles_of("spr", lines(store, 1)) == pytest.approx(24, abs=0.1)
    assert cycles_of("spr", lines(store, 2)) == pytest.approx(18, abs=0.1)


def test_a_loads_latency_from_line_to_line() -> None:
    def body(offset: int) -> list[str]:
        return [f"vmovups [rsi+{offset}], xmm0", f"vmovups xmm0, [rsi+{offset}]"]

    assert cycles_of("spr", body(0)) == pytest.approx(7, abs=0.1)
    assert cycles_of("spr", body(56)) == pytest.approx(14, abs=0.1)


# -- ports ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["skx", "icx", "spr"])
def test_three_ports_are_found_by_place(name: str) -> None:
    adds = [f"vpaddd ymm{i}, ymm14, ymm15" for i in range(12)]
    assert cycles_of(name, adds) == pytest.approx(4, abs=0.5)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("vaddps ymm{0}, ymm14, ymm15", 6),
        ("vpmaddwd ymm{0}, ymm14, ymm15", 6),
        ("vcvtdq2ps ymm{0}, ymm14", 6),
        ("vpsrld ymm{0}, ymm14, 3", 12),
        ("vpshufb ymm{0}, ymm14, ymm15", 12),
    ],
)
def test_narrow_instructions_beside_512_bits(line: str, expected: float) -> None:
    """Measured 6.02, 6.03, 6.05, 12.1, 12.0."""
    beside = "vmovups zmm16, [rsi]"
    assert cycles_of("spr", [beside, *(line.format(i) for i in range(12))]) == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("vfmadd231ps zmm{0}, zmm30, zmm31", 24),
        ("vpmullw zmm{0}, zmm30, zmm31", 24),
        ("vpaddd zmm{0}, zmm30, zmm31", 16),
        ("vfmadd231ps ymm{0}, ymm30, ymm31", 16),
    ],
)
def test_tiles_take_the_wide_products_of_port_5(line: str, expected: float) -> None:
    """24 beside a tile product; measured 23.4, 25.1, 16.2, 16.0."""
    beside = "tdpbssd tmm0, tmm1, tmm2"
    assert cycles_of("spr", [beside, *(line.format(i) for i in range(24))]) == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize(("name", "indexed", "plain"), [("hsw", 10, 8), ("skx", 10, 8), ("icx", 6, 6)])
def test_addresses_of_indexed_stores_take_load_ports(name: str, indexed: float, plain: float) -> None:
    """Twelve loads and eight stores; Haswell and Skylake store one a cycle, Ice Lake two to a line."""
    lines = [f"mov r{8 + i % 8}, [rsi+{8 * i}]" for i in range(12)]
    stores = [f"vmovups [rdi+rbx+{32 * i}], ymm{i}" for i in range(8)]
    assert cycles_of(name, [*lines, *stores]) == pytest.approx(indexed, abs=0.1)
    assert cycles_of(name, [*lines, *(line.replace("+rbx", "") for line in stores)]) == pytest.approx(plain, abs=0.1)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["vaddps ymm0, ymm0, ymm1"] * 4, 8),
        (["vaddps xmm0, xmm0, xmm1", "vshufps xmm0, xmm0, xmm0, 177"] * 2, 8),
        (["vsubss xmm0, xmm0, xmm1", "vmulss xmm0, xmm0, xmm1"] * 2, 14),
        (["vaddps zmm0, zmm0, zmm1"] * 4, 12),
    ],
)
def test_a_sum_comes_a_cycle_later_to_what_is_no_sum(lines: list[str], expected: float) -> None:
    """Measured: 2 cycles from sum to sum, 3 into other operations, at up to 256 bits."""
    assert cycles_of("spr", lines) == pytest.approx(expected, abs=0.1)


# -- ports by the places of a group --------------------------------------------------------------------------------

# Loops of sums (A: of a register each, which needs it again a cycle later) and nops (n) before the branch (J), and the
# cycles that they take on an Emerald Rapids, 2026-11-24.
SUMS = {
    "AJ": 1.0, "AAJ": 0.99, "AAAJ": 1.19, "AAnJ": 1.10, "AnAJ": 1.07, "AnnJ": 1.0, "nAAJ": 1.07, "nnAJ": 0.99,
    "AAAAJ": 1.31, "AAAnJ": 1.27, "AAnAJ": 1.24, "AAnnJ": 1.14, "AnAAJ": 1.23, "AnAnJ": 1.13, "AnnAJ": 1.13,
    "AnnnJ": 1.0, "nAAAJ": 1.26, "nAAnJ": 1.12, "nAnAJ": 1.10, "nAnnJ": 1.0, "nnAAJ": 1.13, "nnAnJ": 1.0, "nnnAJ": 1.0,
}  # fmt: skip


def test_places_of_a_group_take_ports_in_turn() -> None:
    registers = ("rax", "rbx", "r10", "r11")
    measured, predicted = list(SUMS.values()), []
    for loop in SUMS:
        free = iter(registers)
        lines = [f"add {next(free)}, r8" if what == "A" else NOP for what in loop[:-1]]
        predicted.append(cycles_of("spr", lines))
    off = [abs(p / m - 1) for p, m in zip(predicted, measured, strict=True)]
    assert sum(off) / len(off) < 0.035
    assert statistics.correlation(predicted, measured) > 0.8


@pytest.mark.parametrize("name", ["spr", "gnr"])
@pytest.mark.parametrize(
    ("constant", "expected"), [(64, 12), (128, 12), (-1024, 12), (1023, 12), (1024, 24), (-1025, 24)]
)
def test_constants_of_11_bits_are_added_at_rename(name: str, constant: int, expected: float) -> None:
    """Measured with 64, 128, 256: 12.5 to 12.6; 1024, 4096: 24.0. A 32-bit register takes its cycle always."""
    lines = [f"add rax, {constant}", "and rax, r9"] * 12
    assert cycles_of(name, lines) == pytest.approx(expected, abs=0.2)
    assert cycles_of(name, [f"add eax, {constant}"] * 12) == pytest.approx(12, abs=0.2)


@pytest.mark.parametrize("line", ["vaddph ymm0, ymm0, ymm1", "vfmadd213ph xmm0, xmm1, xmm2", "vmulsh xmm0, xmm0, xmm1"])
def test_f16_takes_four_cycles_up_to_256_bits(line: str) -> None:
    assert cycles_of("spr", [line] * 12) == pytest.approx(48, abs=0.1)


def test_conversions_of_512_bits_to_memory_go_one_a_cycle() -> None:
    wide = [f"vcvtps2ph ymmword ptr [rdi+{32 * i}], zmm{i}, 0" for i in range(4)]
    narrow = [f"vcvtps2ph xmmword ptr [rdi+{16 * i}], ymm{i}, 0" for i in range(4)]
    assert cycles_of("spr", wide) == pytest.approx(4.01, rel=0.03)  # as measured
    assert cycles_of("spr", narrow) == pytest.approx(2.17, abs=0.05)  # 2.16 to 2.19


def test_loads_whose_places_are_not_known_meet_none() -> None:
    """Three a cycle, by a register that is loaded in each round; at one place of their lines only two."""

    def six(*addresses: str) -> list[str]:
        return ["mov rbx, [rsi]", *(f"vmovups ymm{i}, [{address}]" for i, address in enumerate(addresses))]

    assert cycles_of("spr", six(*["rax+rbx"] * 6)) == pytest.approx(7 / 3, rel=0.05)
    assert cycles_of("spr", six(*(f"rax+{64 * i}" for i in range(6)))) == pytest.approx(7 / 2, rel=0.05)
