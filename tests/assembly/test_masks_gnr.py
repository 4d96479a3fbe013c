"""Redwood Cove's clock in chains through masks, choices by signs and permutations, as measured on a Granite Rapids."""

from __future__ import annotations

import statistics

import pytest

from tests.loops import cycles_of, recorded


def step(*lines: str, name: str = "gnr") -> float:
    """Cycles of one of eight steps of a chain."""
    return cycles_of(name, lines * 8) / 8


@pytest.mark.parametrize(
    ("lines", "measured"),
    [
        (("vcmpps k1, ymm0, ymm1, 1", "vblendmps ymm0{k1}, ymm3, ymm2"), 4.00),
        (("vcmpps k1, zmm0, zmm1, 1", "vpaddd zmm0{k1}{z}, zmm3, zmm2"), 3.99),
        (("vcmpps k1, zmm0, zmm1, 1", "vfmadd231ps zmm0{k1}, zmm3, zmm2"), 8.01),
        (("vcmpps ymm0, ymm0, ymm1, 1", "vpaddd ymm0, ymm0, ymm2"), 6.37),
        (("vpcmpub k1, zmm0, zmm1, 1", "vmovdqu8 zmm0{k1}{z}, zmm2"), 5.99),
        (("vptestmb k1, zmm0, zmm1", "vpmaxub zmm0{k1}{z}, zmm3, zmm2"), 5.99),
        (("vpblendmw zmm0{k1}, zmm3, zmm0",), 2.98),
    ],
)
def test_comparisons_into_masks(lines: tuple[str, ...], measured: float) -> None:
    """They have a shuffle's port: nothing longer behind integers, and at 512 bits a cycle behind products alone."""
    assert step(*lines) == pytest.approx(measured, rel=0.01)


@pytest.mark.parametrize("bits", ["b", "w", "d", "q"])
def test_masks_and_general_registers(bits: str) -> None:
    """Four cycles there and back, and two for a test of masks, whose flags three instructions read."""
    register = "rax" if bits == "q" else "eax"
    assert step(f"kmov{bits} k1, {register}", f"kmov{bits} {register}, k1") == pytest.approx(4.0, rel=0.01)
    for reader in ("setc al", "cmovz eax, edx", "adc eax, edx"):
        assert step(f"kortest{bits} k1, k1", reader, "kmovw k1, eax") == pytest.approx(5.0, rel=0.01)


@pytest.mark.parametrize(
    ("line", "measured", "golden_cove"),
    [
        ("vblendvps ymm0, ymm0, ymm2, ymm3", 2.0, 3.0),
        ("vpblendvb xmm0, xmm1, xmm0, xmm3", 2.0, 3.0),
        ("vpblendvb ymm0, ymm1, ymm2, ymm0", 3.0, 3.0),
        ("vpermw zmm0, zmm3, zmm0", 3.0, 3.0),
        ("vpermw zmm0, zmm0, zmm3", 4.0, 3.0),
        ("vpermt2b zmm0, zmm3, zmm2", 4.0, 5.0),
    ],
)
def test_an_operand_has_a_way_of_its_own(line: str, measured: float, golden_cove: float) -> None:
    """Of a Golden Cove one figure stands for all operands."""
    assert step(line) == pytest.approx(measured, rel=0.01)
    assert step(line, name="spr") == pytest.approx(golden_cove, rel=0.01)


def test_chains_of_the_page() -> None:
    """Of docs/validation/data/masks-gnr.csv every ninth is analysed: 1.2 % off, and 4.9 % before."""
    rows = recorded("masks-gnr")
    assert len(rows) == 886
    errors = {"predicted cycles before": [0.0], "predicted cycles": [0.0]}
    for name, found in errors.items():
        found[:] = [abs(float(row[name]) / float(row["measured cycles"]) - 1) for row in rows]
    assert [round(100 * statistics.mean(found), 1) for found in errors.values()] == [4.9, 1.2]
    for row in rows[::9]:
        body = row["lines"].split("; ") * int(row["times"])
        predicted = pytest.approx(float(row["predicted cycles"]), abs=0.006)
        assert cycles_of("gnr", body) == predicted, row["lines"]


def test_mixes_drawn_at_random() -> None:
    """Of docs/validation/data/mixes-gnr.csv: 256 bits, loads side by side; every sixth is analysed."""
    rows = [row for row in recorded("mixes-gnr") if row["set"] == "drawn at random"]
    errors = [abs(cycles_of("gnr", row["loop"].split("; ")) / float(row["measured cycles"]) - 1) for row in rows[::6]]
    assert len(rows) == 120 and statistics.mean(errors) < 0.025
