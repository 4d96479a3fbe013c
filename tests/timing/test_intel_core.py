"""Mechanisms of Intel's cores, each by a loop that shows it and one beside it that must not."""

from __future__ import annotations

from pathlib import Path

import pytest

import simdnn
from isa_models.errors import MachineFileError
from isa_models.machine import machine

NOP = "nop"


def cycles(name: str, lines: list[str], end: str = "dec rcx") -> float:
    return simdnn.analyze("\n".join(["1:", *lines, end, "jnz 1b"]), machine=name).cycles_per_iteration


# -- dispatch ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "slots", "expected"),
    [("hsw", 9, 7 / 3), ("clx", 9, 7 / 3), ("clx", 57, 15), ("clx", 65, 65 / 4), ("skx", 9, 9 / 4), ("skx", 57, 14.25)],
)
def test_a_group_ends_with_what_the_loop_buffer_holds(name: str, slots: int, expected: float) -> None:
    assert cycles(name, [NOP] * (slots - 1)) == pytest.approx(expected, abs=0.02)


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
    assert cycles(name, body(indexed)) > 1.1 * cycles(name, body(plain))
    assert cycles(name, body(joined)) == cycles(name, body(plain)) == cycles(name, body(moved))


@pytest.mark.parametrize("end", ["cmp eax, ebx", "sub ecx, 1", "test al, al", "cmp rax, rbx"])
def test_fusion_with_a_jump_is_not_for_64_bits_alone(end: str) -> None:
    assert cycles("skx", [NOP] * 11, end) == 3


# -- ports ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["skx", "icx", "spr"])
def test_three_ports_are_found_by_place(name: str) -> None:
    adds = [f"vpaddd ymm{i}, ymm14, ymm15" for i in range(12)]
    assert cycles(name, adds) == pytest.approx(4, abs=0.5)


@pytest.mark.parametrize(("name", "indexed", "plain"), [("hsw", 10, 8), ("skx", 10, 8), ("icx", 6, 6)])
def test_addresses_of_indexed_stores_take_load_ports(name: str, indexed: float, plain: float) -> None:
    """Twelve loads and eight stores; Haswell and Skylake store one a cycle, Ice Lake two to a line."""
    lines = [f"mov r{8 + i % 8}, [rsi+{8 * i}]" for i in range(12)]
    stores = [f"vmovups [rdi+rbx+{32 * i}], ymm{i}" for i in range(8)]
    assert cycles(name, [*lines, *stores]) == pytest.approx(indexed, abs=0.1)
    assert cycles(name, [*lines, *(line.replace("+rbx", "") for line in stores)]) == pytest.approx(plain, abs=0.1)
