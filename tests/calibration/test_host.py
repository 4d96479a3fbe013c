"""A machine file for this host: what is measured, what the file says of it, and --machine host."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import simdnn
from isa_models import UnknownName
from isa_models.isa import host_caps
from isa_models.machines.loader import cpu_machine as machine
from simdnn.calibration import clocks, figures, sampler, timer
from simdnn.calibration import identity as identification
from simdnn.calibration.behaviour import Behaviour, executes, nine_slots_of
from simdnn.calibration.figures import Bandwidth, Figure, _closest
from simdnn.calibration.forms import chained, forms, text
from simdnn.calibration.host import Calibration, toml_of, write_host
from simdnn.calibration.identity import Identity, explained, identity, nearest
from simdnn.calibration.ports import Ports
from simdnn.cli import main
from simdnn.progress import silent
from tests.loops import recorded

KEYS = (("vpdpbusd", "zmm,zmm,zmm"), ("vmulps", "ymm,ymm,ymm"), ("vmovups", "zmm,m512"), ("vpaddd", "xmm,xmm,xmm"))

SEEN = Ports({"add": 1.99, "shift": 1.0}, {("add", "shift"): 0.97})


def figures_of(name: str, factor: float = 1.0, spread: float = 0.01) -> dict[tuple[str, str], Figure]:
    """The figures that a perfect measurement of a shipped machine would find."""
    target = machine(name)
    return {
        key: Figure(factor * explained(target, target.timing(*key)), target.timing(*key).latency or None, spread)
        for key in KEYS
        if key in target.instructions
    }


def recorded_figures(table: str) -> dict[tuple[str, str], Figure]:
    """Every eighth form's figures that a host of the machine was measured with (docs/validation/data)."""
    return {
        (row["instruction"], row["form"]): Figure(
            float(row["throughput"]), float(row["latency"]) if row["latency"] else None, float(row["spread"])
        )
        for row in recorded(table)[::8]
    }


def calibration(**changes: object) -> Calibration:
    known: dict[str, object] = {
        "cpu": 'A "CPU" (family 1 model 2)',
        "date": "2026-01-01",
        "clocks": {"base_ghz": 3.5, "avx512_ghz": 3.1},
        "identity": Identity(machine("zen4"), Behaviour(), 9, 10, ()),
        "isa": machine("zen4").isa,
        "instructions": figures_of("zen4"),
        "bandwidth": {"L1": (Bandwidth(60, 210), Bandwidth(30, 105)), "DRAM": (Bandwidth(5, 15), Bandwidth(3, 9))},
        "cores": 2,
        "together": {"L2": Bandwidth(90, 315), "L3": None, "DRAM": Bandwidth(8, 24)},
        "forwarding": {64: 0.5, 128: 9.02, 512: None},
        "load_to_use": 4.01,
        "ports": SEEN,
    }
    return Calibration(**(known | changes))  # type: ignore[arg-type]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "folder" / "host.toml"
    monkeypatch.setenv("SIMDNN_HOST", str(path))
    return path


def test_host_is_an_error_until_it_is_measured(host: Path) -> None:
    with pytest.raises(UnknownName, match="simdnn calibrate.*host.toml"):
        machine("host")


def test_the_file_is_a_machine(host: Path) -> None:
    assert write_host(calibration()) == host
    assert list(host.parent.iterdir()) == [host]
    mine = machine("host")
    assert (mine.name, mine.title, mine.frequency.base_ghz) == ("host", 'A "CPU" (family 1 model 2)', 3.5)
    assert (mine.frequency.figure(512, heavy=False), mine.frequency.avx512_ghz) == ("avx512_ghz", 3.1)
    row = mine.timing("vpdpbusd", "zmm,zmm,zmm")
    assert (row.latency, row.confidence) == (4, "measured")
    assert "2026-01-01, by simdnn calibrate" in row.source
    assert mine.cache("L1").load_bytes_per_cycle == 60 and mine.dram.gb_s_core == 15
    assert mine.cores == 2 and mine.dram.gb_s_socket == 24
    assert "2 cores at once" in mine.provenance["dram.gb_s_socket"].source
    assert mine.core.load(128).forward_latency == 9.0
    assert simdnn.analyze("vpdpbusd zmm0, zmm1, zmm2", machine="host").cycles_per_iteration == 4
    assert main(["machines", "check", "host"]) == 0


def test_what_was_not_measured_says_whose_it_is(host: Path) -> None:
    write_host(calibration())
    row = machine("host").timing("vpshufb", "zmm,zmm,zmm")
    assert row.source.startswith("as zen4, not measured here") and row.confidence == "documented"


def test_slower_and_unstable_rows(host: Path) -> None:
    write_host(calibration(instructions=figures_of("zen4", factor=3.0, spread=0.2)))
    row = machine("host").timing("vmulps", "ymm,ymm,ymm")
    assert row.interval == 1.5 and row.confidence == "estimated" and "two runs differ by 20%" in row.source
    assert simdnn.analyze(
        "\n".join(f"vmulps ymm{i}, ymm14, ymm15" for i in range(8)), machine="host"
    ).cycles_per_iteration == pytest.approx(12, rel=0.02)


@pytest.mark.parametrize("name", ["zen3", "zen4", "zen5", "spr", "gnr"])
def test_nearest_machine(name: str) -> None:
    assert nearest(figures_of(name), machine(name).isa).name == name


def test_a_zen_3_is_told_by_what_was_measured_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simdnn.calibration.identity.host_caps", lambda: frozenset(machine("zen3").isa))
    found = identity(recorded_figures("forms-zen3"), Behaviour(2.0, 32, 32))
    assert found.machine.name == "zen3" and not found.apart and found.within > 0.9 * found.compared > 60


def test_a_core_is_told_by_its_behaviour() -> None:
    """CPUID may be masked: the loop of nine slots alone tells Redwood Cove from Golden Cove among equal figures."""
    figures, isa = figures_of("spr"), machine("spr").isa
    assert nearest(figures, isa, Behaviour(nine_slots=2.01)).name == "spr"
    assert nearest(figures, isa, Behaviour(nine_slots=1.5)).name == "gnr"
    slots = {name: round(nine_slots_of(machine(name)) or 0, 2) for name in ("spr", "gnr", "zen3", "zen4")}
    assert slots == {"spr": 2.0, "gnr": 1.5, "zen3": 2.0, "zen4": 1.0}  # on a Zen 4 (1.00 to 1.02) two nops are a slot
    seen = Behaviour(1.5, 64, 480, ("avx512_core_amx_fp16",))
    assert str(seen) == (
        "a loop of 9 slots takes 1.50 cycles, L1I 64 KiB, last cache 480 MiB, executes what CPUID hides: "
        "avx512_core_amx_fp16"
    )


@pytest.mark.parametrize(
    ("name", "caps", "nine_slots", "factor", "apart"),
    [
        ("gnr", "gnr", 1.5, 1.0, ""),
        ("gnr", "gnr", 2.0, 1.0, "takes 2.00 cycles for a loop of 9 slots instead of 1.50"),
        ("zen4", "zen4", 1.0, 1.3, "agrees in"),
        ("zen4", "icx", None, 1.0, "lacks avx512_core_bf16"),
    ],
)
def test_what_a_host_is(
    name: str, caps: str, nine_slots: float | None, factor: float, apart: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that has a machine's figures, ISA caps and loop is that machine; else it says in what it differs."""
    monkeypatch.setattr("simdnn.calibration.identity.host_caps", lambda: frozenset(machine(caps).isa))
    found = identity(figures_of(name, factor), Behaviour(nine_slots))
    assert found.machine.name == name
    assert bool(found.apart) == bool(apart) and apart in "".join(found.apart)
    assert str(found).startswith("this host is none of" if found.apart else f"this host behaves like {name}, ")
    assert "another core, icx" in found.beside(machine("icx"))
    assert found.beside(machine(found.machine.name)) == str(found)


def test_a_host_is_found_out_by_a_sample_of_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """All from all over the list are measured once, in parts, of which each has forms from all over the sample."""
    target, asked = machine("gnr"), list[list[tuple[str, str]]]()
    every = list(target.instructions)[: 3 * identification.SAMPLE]

    def measured(part: list[tuple[str, str]], seconds: float, _: object) -> dict[tuple[str, str], Figure]:
        assert seconds == identification.SECONDS / identification.PARTS
        asked.append(list(part))
        rows = {key: target.timing(*key) for key in part}
        return {key: Figure(explained(target, row), row.latency or None, 0.01) for key, row in rows.items()}

    monkeypatch.setattr(identification, "forms", lambda: every)
    monkeypatch.setattr(identification, "instruction_figures", measured)
    monkeypatch.setattr(identification, "behaviour", lambda: Behaviour(1.5))
    monkeypatch.setattr(identification, "host_caps", lambda: frozenset(target.isa))
    found = identification.identify(silent)
    assert found.machine.name == "gnr" and not found.apart and found.within == found.compared
    assert sorted(itertools.chain(*asked)) == sorted(every[::3])
    assert asked[1] == every[::3][1 :: identification.PARTS]


def test_a_host_with_more_than_its_nearest_machine_has_no_gaps(host: Path) -> None:
    write_host(calibration(isa=machine("spr").isa))
    assert machine("host").isa == machine("zen4").isa
    assert main(["machines", "check", "host"]) == 0


def test_two_closest_of_three() -> None:
    assert _closest([4.0, 9.0, 4.04]) == (pytest.approx(4.02), pytest.approx(0.01, abs=0.001))


def test_where_time_is_short_forms_are_left_out_and_not_their_second_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of every other form of 250 is done when 250 seconds are, one a run, and no run begins behind that."""
    keys, now = [(f"form{number}", "") for number in range(250)], itertools.count()
    monkeypatch.setattr(figures.time, "thread_time", lambda: float(next(now)))
    monkeypatch.setattr(figures, "_throughput", lambda *_: 2.0)
    monkeypatch.setattr(figures, "_latency", lambda *_: None)
    monkeypatch.setattr(figures, "_accumulator", lambda *_: None)
    found = figures.instruction_figures(keys, 250, silent)
    assert set(found) == set(keys[::2]) and all(figure.stable for figure in found.values())


def test_forms_and_their_text() -> None:
    assert text("vpdpbusd", "ymm,ymm,m256", 3, 14, 15, 1) == "vpdpbusd ymm3, ymm14, ymmword ptr [rsi+32]"
    assert chained("vpaddd", "ymm,ymm,ymm") and chained("vcvtdq2ps", "zmm,zmm") and not chained("vmovups", "zmm,m512")
    assert not chained("vpmovsxbw", "zmm,ymm")


def test_toml_of_strings() -> None:
    assert toml_of({"a": 'x"\\y', "t": {"b": 1.5, "c": [True, "z"]}}).splitlines()[1:] == [
        'a = "x\\"\\\\y"',
        "",
        "[t]",
        "b = 1.5",
        'c = [true, "z"]',
    ]


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Puts a core in the sampler's place: slots a cycle of moves and nops, cycles by which a run of a loop ends later,
    in the course of how many, and cycles of work before which its loops take a sixth more.
    """

    def of(moves: float, nops: float, later: float = 0.0, within: float = 30_000, cold: float = 0.0) -> None:
        class Fake:
            worked = 0.0

            def __init__(self, body: list[str], *_: object, canary: str = sampler.CANARIES[0], **__: object) -> None:
                self.rate = nops if canary == sampler.CANARIES[0] else moves

            def run(self, turns: int, samples: int, *_: int) -> sampler.Samples:
                chain, slots = 512.0, sampler.WIDTH * 512 / self.rate
                loop = 4 * turns + later * (1 - math.exp(-4 * turns / within))
                begun = Fake.worked + (loop + 1024) * np.arange(samples)
                Fake.worked = float(begun[-1] + loop + 1024)
                loops = np.where(begun < cold, loop * 7 / 6, loop)
                given = [np.full(samples, value) for value in (chain, slots)]
                ticks = begun.astype(np.int64), (begun + loops).astype(np.int64)
                return sampler.Samples(*given, loops, *reversed(given), *ticks)

        monkeypatch.setattr(timer, "Sampler", Fake)
        monkeypatch.setattr(timer, "PATIENCE_S", 0.05)  # with loops of two lengths that never agree
        monkeypatch.setattr(timer, "coarseness", lambda: 1)

    for cached in (timer.canary, timer.sample_cycles, timer._bare, timer.usual_ratio, timer._seen_of_a_cycle):
        cached.cache_clear()
    yield of
    for cached in (timer.canary, timer.sample_cycles, timer._bare, timer.usual_ratio, timer._seen_of_a_cycle):
        cached.cache_clear()


@pytest.mark.skipif("avx512_core_amx" not in host_caps(), reason="this host's CPU shows no tiles")
def test_an_instruction_on_tiles_is_tried_in_a_process_of_its_own() -> None:
    assert executes("tdpbssd tmm0, tmm1, tmm2") and not executes("tdpbssd tmm0, tmm0, tmm2")  # equal tiles are illegal


def test_nops_are_the_canary_but_where_moves_go_faster(core: Callable[..., None]) -> None:
    core(moves=5.4, nops=6.0)  # Redwood Cove
    assert timer.canary() == "nop dword ptr [rax+rax]"
    timer.canary.cache_clear()
    core(moves=7.6, nops=6.7)  # Zen 5
    assert timer.canary() == "mov rax, rdx"


@pytest.mark.parametrize(
    ("later", "within", "cycles"),
    [
        (0.0, 30_000, timer.SAMPLE_CYCLES),
        (700.0, 300, timer.LATER * timer.SAMPLE_CYCLES),  # Redwood Cove
        (4000.0, 30_000, timer.LONG_CYCLES),
    ],
)
def test_samples_are_long_where_wide_operations_start_slowly(
    core: Callable[..., None], later: float, within: float, cycles: int
) -> None:
    core(moves=6, nops=6, later=later, within=within)
    assert timer.sample_cycles() == cycles
    found = timer.measure(["vaddps zmm0, zmm1, zmm2"] * 4)
    assert found is not None and found.cycles * timer._seen_of_a_cycle() == pytest.approx(4, rel=timer.SLOWER - 1)


def test_wide_loops_count_once_the_core_is_warm(core: Callable[..., None]) -> None:
    """A Golden Cove takes a sixth more for the first 300 000 cycles, which is more than the first samples take."""
    core(moves=6, nops=6, cold=300_000)
    found = timer.measure(["vaddps zmm0, zmm1, zmm2"] * 4)
    assert found is not None and found.cycles * timer._seen_of_a_cycle() == pytest.approx(4)


@pytest.mark.skipif(not sampler.available(), reason="the loops are x86-64's, with System V's calls")
def test_each_kind_of_code_that_the_host_has_runs_for_its_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "SECONDS", 0.05)
    monkeypatch.setattr(clocks, "QUIET", math.inf)
    found = clocks.clocks()
    assert set(found) == {figure for figure, kind in clocks.KINDS.items() if {kind.cap} <= host_caps() | {""}}
    assert all(ghz > 0.1 for ghz in found.values())


@pytest.mark.skipif(not sampler.available(), reason="the loops are x86-64's, with System V's calls")
def test_a_clock_is_seen_where_others_have_the_core_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that takes longer than all the time for it, because others ran meanwhile, is a look at the clock too."""
    seconds = itertools.count()
    monkeypatch.setattr(clocks.time, "perf_counter", lambda: float(next(seconds)))
    monkeypatch.setattr(clocks, "QUIET", math.inf)
    monkeypatch.setattr(clocks, "canary", lambda: sampler.CANARIES[0])
    assert (clocks._ghz(clocks.KINDS["base_ghz"]) or 0) > 0.1


@pytest.mark.skipif(not sampler.available(), reason="the loops are x86-64's, with System V's calls")
def test_the_timer_runs_loops_here() -> None:
    """Numbers come out; how large they are is the host's affair, and its neighbours'."""
    assert timer.clock_ghz() > 0
    found = timer.measure(["add rax, 1"] * 8)
    assert found is None or found.cycles > 1
    usable = forms()
    assert ("add", "r64,r64") in usable and len(usable) > 100
