"""The clock by which cycles become seconds goes by the kind of code."""

from __future__ import annotations

import pytest

import simdnn
from isa_models.machines.loader import cpu_machine as machine
from isa_models.machines.variants import variant

SHAPE = {"m": 64, "n": 64, "k": 256}


@pytest.mark.parametrize(
    ("types", "isa", "figure", "kind"),
    [
        ("u8:s8:s32", "avx512_core_amx", "amx_ghz", "tiles"),
        ("f32", "avx512_core", "avx512_ghz", "512 bits, heavy use"),
        ("f32", "avx2", "avx2_ghz", "256 bits"),
    ],
)
def test_seconds_are_cycles_at_the_clock_of_the_code(types: str, isa: str, figure: str, kind: str) -> None:
    gnr = machine("gnr")
    found = simdnn.estimate("matmul", **SHAPE, dt=types, machine="gnr", isa=isa)
    ghz = getattr(gnr.frequency, figure)
    assert found.seconds == pytest.approx(found.cycles / ghz / 1e9)
    assert found.clock == f"{ghz:g} GHz, gnr's frequency.{figure} ({kind})"


def test_light_use_of_wide_registers_is_faster_than_heavy_use_and_that_than_tiles() -> None:
    frequency = machine("gnr").frequency
    light, heavy, tiles = frequency.ghz(512, heavy=False), frequency.ghz(512), frequency.ghz(512, tiles=True)
    assert frequency.base_ghz > light > heavy > tiles
    assert (frequency.figure(512, heavy=False), frequency.figure(512, tiles=True)) == ("avx512_light_ghz", "amx_ghz")


def test_a_clock_that_is_not_known_is_that_of_the_next_kind() -> None:
    skx, zen4 = machine("skx").frequency, machine("zen4").frequency
    assert skx.ghz(512, heavy=False) == skx.ghz(512) == skx.ghz(512, tiles=True) == skx.avx512_ghz
    assert {zen4.ghz(bits, heavy, tiles) for bits in (128, 256, 512) for heavy in (0, 1) for tiles in (0, 1)} == {3.69}


def test_speedups_on_tiles_are_smaller_in_time() -> None:
    def ratio(of: str) -> float:
        slow, fast = (
            simdnn.estimate("matmul", m=256, n=256, k=256, dt=types, machine="gnr", isa=isa)
            for types, isa in (("f32", "avx512_core"), ("bf16", "avx512_core_amx"))
        )
        return float(getattr(slow, of) / getattr(fast, of))

    clock = machine("gnr").frequency
    slower = clock.ghz(512, tiles=True) / clock.ghz(512)
    assert slower < 1 and ratio("seconds") / ratio("cycles") == pytest.approx(slower)


def test_the_clock_has_a_standing() -> None:
    with_standing = simdnn.estimate("matmul", **SHAPE, dt="bf16", machine="gnr", isa="avx512_core_amx")
    assert with_standing.confidence == "estimated"
    assert variant(machine("gnr"), {"frequency.amx_ghz": 2}).frequency.ghz(512, tiles=True) == 2
