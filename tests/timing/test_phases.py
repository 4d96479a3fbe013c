"""Waiting for memory: phases against hand-derived times, and nothing lost between them and the levels' traffic."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa_models.machines.loader import cpu_machine as machine
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.kernels.x86.rows import KERNELS
from simdnn.program.records import Affine, Loop, Op, Program, Register
from simdnn.timing.cpu.walk import core_time
from simdnn.timing.estimate import estimate_program
from simdnn.timing.memory import LONG, transfers
from simdnn.timing.phases import overlap, phases
from tests.effort import examples
from tests.timing.programs import adds, gemm, loads, streamed, unusual

ZEN4 = machine("zen4")  # nothing of its levels is exposed
DRAM = ZEN4.dram.gb_s_core / ZEN4.frequency.ghz(512)  # bytes a cycle


def cycles(program: Program, *cold: str) -> float:
    return estimate_program(program, ZEN4, cold=cold).cycles


def test_stages_in_a_row_take_the_sum_of_their_times() -> None:
    first, second = loads("i", 65536, Affine()), adds("j", 500_000)
    alone = [cycles(streamed(statement), "x") for statement in (first, second)]
    assert alone[0] == pytest.approx(65536 * 64 / DRAM, rel=0.01)
    assert cycles(streamed(first, second), "x") == pytest.approx(sum(alone), rel=0.01)


def test_what_lies_near_overlaps() -> None:
    """16 loads beside 150 additions, again and again: memory delivers while the core adds."""
    turn = (loads("i", 16, Affine.var("t") * 256), adds("j", 150))
    assert (16 + 150) * 4 < LONG * ZEN4.core.reorder_buffer  # with the loops' own
    both = streamed(Loop("t", 1024, turn))
    cost = estimate_program(both, ZEN4, cold=("x",))
    assert cost.cycles == pytest.approx(max(cost.core_cycles, cost.levels[-1].cycles), rel=0.01)


def test_the_tile_that_brings_weights_from_memory_waits_for_them() -> None:
    """Four tiles of 4 rows use each panel of 128 KiB: for the first it comes at 7.6 bytes a cycle, in twice the time
    that 4 x 2 products take, and the other three find it in L2.
    """
    program = gemm("f32", 16, 2048, 1024, 4, 2)
    cost = estimate_program(program, ZEN4, cold=("B",))
    panels, tile = 2048 // 32, 1024 * 8
    panel = 1024 * 128 / DRAM
    assert cost.core_cycles > cost.levels[-1].cycles  # over the whole run the core has more to do
    assert cost.cycles == pytest.approx(cost.core_cycles + panels * (panel - tile), rel=0.02)
    assert cost.bound == "compute"


def test_what_a_tile_stores_waits_in_the_store_queue() -> None:
    """Tiles of 8 x 2 vectors, whose 16 lines go to L2: beside the next tile's products where the queue holds them."""
    spr = machine("spr")
    program = gemm("f32", 512, 512, 256, 8, 2)
    core, moved = core_time(program, spr), transfers(program, spr)
    few, many = (replace(spr, core=replace(spr.core, store_queue=entries)) for entries in (4, 64))
    without, beside = (overlap(one, core, moved).cycles for one in (few, many))
    assert without - beside > 0.4 * 512 * 512 * 4 / spr.caches[1].store_bytes_per_cycle


def test_nothing_of_l3_shows_where_dispatch_bounds() -> None:
    """Loads of lines among idioms of zero, which take a slot each."""
    gnr = machine("gnr")
    nothing = Register("zero", "u32", 16)
    idioms = Loop("z", 80, (Op("vpxor", nothing, (nothing, nothing)),) * 8)
    turn = (loads("i", 4, Affine.var("t") * 64), idioms)
    cost = estimate_program(streamed(Loop("t", 32768, turn)), gnr)
    l2, l3 = cost.levels[1:3]
    assert cost.bound == "front-end"
    assert cost.cycles - cost.core_cycles < l2.exposed * l2.cycles + 0.1 * l3.cycles


@pytest.mark.parametrize("work", [150, 50])
@pytest.mark.parametrize("known", [True, False])
def test_a_share_of_the_shorter_shows(work: int, known: bool) -> None:
    """Of loads from L3 beside adds: of the levels' time where the adds take longer; of the adds' where L3 does, on a
    core that is known for it.
    """
    gnr = machine("gnr")
    caches = tuple(replace(cache, exposed_streamed=cache.exposed) for cache in gnr.caches)
    gnr = replace(gnr, core=replace(gnr.core, exposes_work=known), caches=caches)
    turn = (loads("i", 16, Affine.var("t") * 256), adds("j", work))
    cost = estimate_program(streamed(Loop("t", 8192, turn)), gnr)
    core, l3 = cost.core_cycles, cost.levels[2].cycles
    shown = sum(level.exposed * level.cycles for level in cost.levels)
    beside = shown * core / l3 if known else max(0.0, core + shown - l3)
    assert (core > l3) == (work == 150)
    assert cost.cycles == pytest.approx(core + shown if core > l3 else l3 + beside, rel=0.02)


@pytest.mark.parametrize("work", [150, 50])
def test_of_a_stream_a_share_of_its_own_shows(work: int) -> None:
    """Of lines loaded in order from L3 beside adds: where these take longer. Where L3 does, none of their time shows,
    but a share of theirs beside L2's lines.
    """
    gnr = machine("gnr")
    turn = (loads("i", 16, Affine.var("t") * 256), adds("j", work))
    cost = estimate_program(streamed(Loop("t", 8192, turn)), gnr)
    core, l2, l3 = cost.core_cycles, cost.levels[1], cost.levels[2]
    of_l2 = l2.exposed * l2.cycles
    shown = core + of_l2 + gnr.cache("L3").exposed_streamed * l3.cycles
    beside = l3.cycles + of_l2 * core / l3.cycles
    assert (core > l3.cycles) == (work == 150)
    assert cost.cycles == pytest.approx(max(shown, l3.cycles) if work == 150 else max(shown, beside), rel=0.02)


def test_a_level_with_a_clock_of_its_own_moves_as_many_bytes_a_second() -> None:
    """256 bits run at 4.1 GHz, 512 at 3.7: L3 moves fewer bytes in each of the shorter cycles, L2 as many."""
    gnr = machine("gnr")
    wide, narrow = (transfers(gemm("f32", 4, 64, 64, 4, 2, width=width), gnr) for width in (512, 256))
    rates = [[level.load_bytes_per_cycle for level in moved.levels] for moved in (wide, narrow)]
    clocks = [gnr.frequency.ghz(*moved.kind) for moved in (wide, narrow)]
    assert rates[0][2] * clocks[0] == pytest.approx(rates[1][2] * clocks[1])
    assert rates[0][1] == rates[1][1] and clocks[0] < clocks[1]


GEMMS = {
    "panels from L2": gemm("f32", 64, 256, 1024, 8, 2),
    "short": gemm("vnni", 56, 128, 16, 14, 2),
    "one row": gemm("vnni", 1, 1024, 1024, 1, 4),
    "taps": gemm("vnni", 32, 64, 576, 8, 2, taps=9),
}


@pytest.mark.parametrize("name", ["zen4", "spr"])
@pytest.mark.parametrize("program", GEMMS.values(), ids=GEMMS)
@pytest.mark.parametrize("cold", [(), ("B",)], ids=["warm", "cold"])
def test_phases_hold_all_of_a_levels_traffic(program: Program, cold: tuple[str, ...], name: str) -> None:
    held(program, name, cold)


@examples(12)
@given(st.sampled_from(sorted(unusual(), key=str)), st.sampled_from(["zen4", "spr"]))
def test_phases_of_compressed_weights_hold_all_of_a_levels_traffic(problem: MatmulProblem, name: str) -> None:
    kind = next(k for k in KERNELS if not k.accepts(problem) and machine(name).supports(k.isa))
    held(kind.build(problem, machine(name)).program, name, ())


def held(program: Program, name: str, cold: tuple[str, ...]) -> None:
    """Each level's cycles are in phases, and the time is no less than any level's and no more than all in a row."""
    target = machine(name)
    core, moved = core_time(program, target), transfers(program, target, cold=cold)
    levels = moved.levels[1:]
    sums = [0.0] * len(levels)
    for phase in phases(target, core.span, moved):
        sums = [total + phase.times * busy for total, busy in zip(sums, phase.levels, strict=True)]
    assert sums == pytest.approx([level.cycles for level in levels], rel=1e-6, abs=8)  # bytes are rounded
    found = overlap(target, core, moved).cycles
    own = max(core.cycles, moved.levels[0].cycles)
    assert max(own, *(level.cycles for level in levels)) <= found
    assert found <= own + sum(level.cycles * max(1, level.exposed) for level in levels) + 1
