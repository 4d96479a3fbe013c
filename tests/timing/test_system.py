"""Cores and channels: conservation (no channel over its bandwidth, no negative wait, never under the roofline)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models import cpu_machine
from simdnn.program.records import Loop, Op, Register, Statement
from simdnn.timing.cpu.threads import HANDOVER, _cut, parallel_extent, share_out
from simdnn.timing.system import ROUNDS, Channel, Stage, System, floor, simulate
from tests.effort import examples
from tests.work import at_most

CHANNELS = st.lists(
    st.builds(
        Channel,
        st.sampled_from(["L2", "L3", "DRAM"]),
        st.floats(0.5, 500),
        st.sampled_from([0, 1, 3, 8]),
        st.sampled_from([0.0, 40.0, 600.0]),
    ),
    max_size=3,
    unique_by=lambda c: c.name,
)


@given(
    st.integers(1, 12),
    CHANNELS,
    st.integers(1, 150),
    st.floats(0, 5000, allow_subnormal=False),
    st.integers(1, 8),
    st.lists(st.floats(0, 1e5), min_size=3, max_size=3),
)
@examples(80)
def test_conservation(
    cores: int, channels: list[Channel], tiles: int, cycles: float, chunks: int, bytes_: list[float]
) -> None:
    system = System(cores, tuple(channels))
    stage = Stage(tiles, cycles, {c.name: b for c, b in zip(channels, bytes_, strict=False)}, chunks)
    found = simulate(system, [stage], spans=True)
    assert found.cycles >= floor(system, stage) * (1 - 1e-9)
    assert found.waited >= 0 and found.computing == pytest.approx(tiles * cycles)
    for channel in channels:
        moved = stage.bytes[channel.name] * tiles
        assert found.busy[channel.name] == pytest.approx(moved / channel.bytes_per_cycle)
        assert found.busy[channel.name] <= found.cycles * channel.instances(cores) * (1 + 1e-9)
    places: dict[str, list[tuple[float, float]]] = {}
    for span in found.spans:
        assert 0 <= span.start <= span.end
        places.setdefault(span.place, []).append((span.start, span.end))
    for spans in places.values():  # one thing at a time
        ordered = sorted(spans)
        assert all(a[1] <= b[0] + 1e-6 for a, b in zip(ordered, ordered[1:], strict=False))


def test_compute_bound_and_memory_bound() -> None:
    system = System(8, (Channel("DRAM", 100.0),))
    assert simulate(system, [Stage(64, 1000.0)]).cycles == 8000
    bound = simulate(system, [Stage(64, 10.0, {"DRAM": 1000.0}, 4)])
    assert 640 <= bound.cycles < 660 and bound.waited > 0
    both = simulate(system, [Stage(64, 1000.0), Stage(1, 77.0)])
    assert both.cycles == 8077 and both.computing == 64077


def test_private_channels_do_not_wait() -> None:
    shared = simulate(System(4, (Channel("L2", 10.0, 0),)), [Stage(4, 0.0, {"L2": 100.0})])
    private = simulate(System(4, (Channel("L2", 10.0, 1),)), [Stage(4, 0.0, {"L2": 100.0})])
    assert private.waited == 0 and private.cycles == 10 and shared.cycles == 40


def test_latency_is_hidden_behind_the_steps_before() -> None:
    system = System(1, (Channel("DRAM", 100.0, 0, 600.0),))
    found = simulate(system, [Stage(1, 8000.0, {"DRAM": 800.0}, 8)])
    assert found.cycles == pytest.approx(8000 + 600 + 1)


@pytest.mark.parametrize("rest", [0, 1, 5])
def test_the_steady_state_is_extrapolated(rest: int) -> None:
    system = System(6, (Channel("L3", 40.0, 3), Channel("DRAM", 50.0)))
    few = 2 * ROUNDS + 1
    for cycles in (10.0, 300.0):
        stages = [Stage(6 * n + rest, cycles, {"L3": 900.0, "DRAM": 1000.0}, 3) for n in (few, few + 1, 4 * few)]
        times = [simulate(system, [stage]).cycles for stage in stages]
        rate = (times[2] - times[0]) / (3 * few)
        assert rate == pytest.approx(max(cycles, 6 * 1000 / 50, 3 * 900 / 40), rel=0.05)
        assert times[0] < times[1] < times[2]


def test_many_tiles_take_no_more_work() -> None:
    system = System(64, (Channel("L2", 4096.0), Channel("DRAM", 1024.0, 0, 700.0)))
    done = []
    for tiles in (10**4, 10**6):
        with at_most(calls=10**6) as work:
            simulate(system, [Stage(tiles, 60000.0, {"L2": 4e6, "DRAM": 1e6}, 8)])
        done.append(work.calls)
    assert done[1] < 1.5 * done[0]


@pytest.mark.parametrize("dt", ["f32", "u8:s8:s32"])
def test_cpu_threads_share_the_last_cache_and_memory(dt: str) -> None:
    cycles = [
        simdnn.estimate("matmul", m=256, n=512, k=512, dt=dt, machine="zen4", threads=t).cycles for t in (1, 2, 4, 8)
    ]
    assert cycles == sorted(cycles, reverse=True)
    for threads, found in zip((1, 2, 4, 8), cycles, strict=True):
        assert cycles[0] / threads <= found * 1.001 and found <= 1.4 * cycles[0] / threads


def test_memory_bound_work_stops_scaling() -> None:
    one, many, most, all_ = (
        simdnn.estimate("matmul", m=1, n=8192, k=8192, dt="f32", machine="zen4", threads=t) for t in (1, 32, 40, 96)
    )
    assert one.bound == many.bound == most.bound == "DRAM"
    assert all_.bound == "L3" and all_.cycles < most.cycles / 2  # twelve caches hold what five do not
    zen4 = cpu_machine("zen4")
    gb_s = 8192 * 8192 * 4 / most.seconds / 1e9
    assert 0.7 * zen4.dram.gb_s_socket < gb_s <= zen4.dram.gb_s_socket
    assert 8192 * 8192 * 4 / one.seconds / 1e9 <= zen4.dram.gb_s_core


@pytest.mark.parametrize("machine", ["spr", "zen4"])
def test_two_threads_halve_what_memory_bounds(machine: str) -> None:
    """Weights of 9.4 MB come from L3 (fewer would stay in the two cores' L2): the threads' data come side by side."""
    one, two = (simdnn.estimate("matmul", m=1, n=3072, k=768, dt="f32", machine=machine, threads=t) for t in (1, 2))
    assert one.bound == two.bound == "L3"
    assert 1.85 < one.cycles / two.cycles <= 2


def test_a_thread_keeps_its_own_part_in_its_cache() -> None:
    """2.4 MB of weights do not stay in 2 MiB of L2, each half of them does."""
    one, two = (simdnn.estimate("matmul", m=1, n=3072, k=768, dt="u8:s8:s32", machine="spr", threads=t) for t in (1, 2))
    assert one.bound == "L3" and two.bound != "L3" and one.cycles > 2 * two.cycles


def test_threads_meet_behind_each_stage() -> None:
    """Work for one thread takes no less on two, but for the barrier: a line to the other core and back."""
    one, two = (simdnn.estimate("matmul", m=8, n=16, k=64, dt="f32", machine="spr", threads=t) for t in (1, 2))
    barrier = 2 * cpu_machine("spr").cache("L3").latency_cycles
    assert two.cycles - one.cycles == pytest.approx(len(two.kernel.program.body) * barrier, rel=0.01)


def test_what_one_thread_wrote_costs_the_others_more() -> None:
    """The exact int8 kernel widens its source by one thread, and all threads read it."""
    exact = simdnn.Attr(exact_int8=True)
    one, two = (
        simdnn.estimate(
            "matmul", m=256, n=256, k=256, dt="u8:s8:s32", machine="spr", isa="avx512_core", attr=exact, threads=t
        )
        for t in (1, 2)
    )
    lines = 256 * 256 * 2 // 64
    handed = lines * HANDOVER * cpu_machine("spr").cache("L3").latency_cycles
    assert [t.kind for t in one.kernel.program.tensors].count("scratch") == 1
    shared = share_out(one.kernel.program, cpu_machine("spr"), 2)
    assert shared.stages[0].tiles == 1 and shared.stages[1].tiles == 2
    assert handed < two.cycles - one.cycles / 2 < 1.5 * handed


@given(st.lists(st.integers(1, 9), min_size=1, max_size=3), st.integers(1, 40))
def test_a_cut_nest_has_no_fewer_iterations_than_wanted(extents: list[int], wanted: int) -> None:
    statement = loops(extents)
    total = parallel_extent(statement)
    cut = _cut(statement, min(wanted, total))
    assert min(wanted, total) <= parallel_extent(cut) <= total
    assert parallel_extent(cut) < 2 * min(wanted, total)


def loops(extents: list[int]) -> Statement:
    """A nest of parallel loops, the outermost first, around one instruction."""
    register = Register("zero", "f32", 16)
    found: Statement = Op("vpxor", register, (register, register))
    for number, extent in enumerate(reversed(extents)):
        found = Loop(f"i{number}", extent, (found,), True)
    return found


def test_stages_and_their_parallel_iterations() -> None:
    kernel = simdnn.estimate("matmul", m=100, n=200, k=64, dt="u8:s8:s32", machine="zen4").kernel
    shared = share_out(kernel.program, cpu_machine("zen4"), 3)
    assert len(shared.stages) == len(kernel.program.body)
    for stage, statement in zip(shared.stages, kernel.program.body, strict=True):
        assert stage.tiles == min(3, parallel_extent(statement))
    assert shared.simulated.cycles >= sum(floor(shared.system, stage) for stage in shared.stages) * (1 - 1e-9)
