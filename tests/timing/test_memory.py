"""Traffic against hand-derived numbers, an LRU cache that is really simulated, and brute force over addresses."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa_models.formats import fmt
from isa_models.machine import machine
from simdnn.program import Loop, Program, Statement
from simdnn.timing.footprint import Access, distinct_lines, parts
from simdnn.timing.memory import misses, traffic
from tests.timing.programs import gemm

KIB = 1024
ZEN4 = machine("zen4")  # 32 KiB, 1 MiB, 32 MiB


def every(program: Program) -> list[str]:
    return [tensor.name for tensor in program.tensors]


def moved(program: Program, *, cold: bool = False) -> dict[str, tuple[int, int]]:
    levels = traffic(program, ZEN4, cold=every(program) if cold else ())
    return {t.level: (t.read_bytes, t.written_bytes) for t in levels}


def test_gemm_in_the_first_cache() -> None:
    """A 1 KiB, B 4 KiB, C 1 KiB. One tile of 8 x 32: each k loads 2 vectors of B and 8 broadcasts of A."""
    program = gemm("f32", 8, 32, 32, 8, 2)
    first = (32 * (2 * 64 + 8 * 4), 16 * 64)
    assert moved(program) == {"L1": first, "L2": (0, 0), "L3": (0, 0), "DRAM": (0, 0)}
    once = ((1 + 4 + 1) * KIB, 1 * KIB)
    assert moved(program, cold=True) == {"L1": first, "L2": once, "L3": once, "DRAM": once}


def test_gemm_with_a_resident_panel() -> None:
    """K = 64: a panel of B (8 KiB) and a tile of A (2 KiB) stay in L1, A (128 KiB) is read again for each panel."""
    program = gemm("f32", 512, 128, 64, 8, 2)
    panels, a, b, c = 4, 128 * KIB, 32 * KIB, 256 * KIB
    found = moved(program)
    assert found["L1"][0] == (512 // 8) * panels * 64 * (2 * 64 + 8 * 4)
    assert found["L2"] == (panels * a + b + c, c)
    assert found["L3"] == found["DRAM"] == (0, 0)
    assert moved(program, cold=True)["DRAM"] == (a + b + c, c)


def test_gemm_with_panels_larger_than_the_first_cache() -> None:
    """K = 1024: a panel of B is 128 KiB, so each tile reads panel and tile of A from L2; from L3 comes A per panel."""
    program = gemm("f32", 512, 1024, 1024, 8, 2)
    panels, tiles, panel, a = 32, 32 * 64, 128 * KIB, 2048 * KIB
    b, c = panels * panel, 2048 * KIB
    found = moved(program)
    assert found["L2"] == (tiles * (panel + 32 * KIB) + c, c)
    assert found["L3"] == (panels * a + b + c, c)
    assert found["DRAM"] == (0, 0)


def test_cycles_are_bytes_over_the_rates() -> None:
    program = gemm("f32", 512, 1024, 1024, 8, 2)
    for level in traffic(program, ZEN4, cold=every(program))[1:]:
        only_read = level.read_bytes - level.written_bytes
        rates = level.load_bytes_per_cycle, level.store_bytes_per_cycle
        assert level.cycles == pytest.approx(only_read / rates[0] + level.written_bytes / rates[1])


def lines_touched(program: Program) -> Iterator[tuple[str, int]]:
    """(tensor, line) of every access in the order of execution."""

    def run(body: Sequence[Statement], at: dict[str, int]) -> Iterator[tuple[str, int]]:
        for statement in body:
            if isinstance(statement, Loop):
                for i in range(statement.extent):
                    yield from run(statement.body, {**at, statement.var: i})
            elif (memory := statement.memory) is not None:
                unit = fmt(program.tensor[memory.tensor].dtype).bits // 8
                first = unit * (memory.index.const + sum(c * at[v] for v, c in memory.index.terms))
                for line in range(first // 64, (first + memory.bits // 8 - 1) // 64 + 1):
                    yield memory.tensor, line

    return run(program.body, {})


def lru_misses(program: Program, capacity_bytes: int) -> int:
    cache: OrderedDict[tuple[str, int], None] = OrderedDict()
    missed = 0
    for line in lines_touched(program):
        if line in cache:
            cache.move_to_end(line)
        else:
            missed += 1
            cache[line] = None
            if len(cache) * 64 > capacity_bytes:
                cache.popitem(last=False)
    return missed


@pytest.mark.parametrize("shape", [(32, 64, 64, 4, 1), (16, 96, 128, 8, 2), (48, 32, 48, 2, 1)])
@pytest.mark.parametrize("capacity", [1, 2, 3, 6, 12, 24, 48, 96])
def test_against_a_simulated_lru_cache(shape: tuple[int, int, int, int, int], capacity: int) -> None:
    """Within a tenth, except where a loop's footprint just misses fitting: there between no and full reuse."""
    program = gemm("f32", *shape)
    tree = parts(program)
    simulated = lru_misses(program, capacity * KIB)
    model = misses(tree, capacity * KIB).touched
    more, less = (misses(tree, int(capacity * KIB * f)).touched for f in (1.5, 1 / 1.5))
    assert more * 0.9 <= simulated <= less * 1.1
    if more == less:
        assert model == pytest.approx(simulated, rel=0.1)


@given(capacity=st.integers(1, 1 << 20), larger=st.integers(1, 1 << 20))
def test_a_larger_cache_never_misses_more(capacity: int, larger: int) -> None:
    tree = parts(gemm("vnni", 64, 128, 256, 8, 2, taps=4))
    assert misses(tree, capacity + larger).touched <= misses(tree, capacity).touched


dimension = st.tuples(st.sampled_from([-640, -96, -4, 0, 1, 4, 64, 100, 256, 1000]), st.integers(1, 6))


@settings(max_examples=300)
@given(
    rows=st.lists(st.tuples(st.integers(0, 500), st.integers(1, 130), st.booleans()), min_size=1, max_size=4),
    dims=st.lists(dimension, max_size=4),
)
def test_lines_by_brute_force(rows: list[tuple[int, int, bool]], dims: list[tuple[int, int]]) -> None:
    extents = tuple((f"i{n}", count) for n, (_, count) in enumerate(dims))
    strides = tuple((f"i{n}", stride) for n, (stride, _) in enumerate(dims))
    found = distinct_lines([(Access("a", 4000 + s, size, strides, w), extents) for s, size, w in rows], 64)["a"]
    offsets = [0]
    for stride, count in dims:
        offsets = [o + stride * i for o in offsets for i in range(count)]
    touched, written = (
        {
            (4000 + s + o + byte) // 64
            for s, size, w in rows
            for o in offsets
            for byte in range(size)
            if w or not only_written
        }
        for only_written in (False, True)
    )
    assert (found.touched, found.written) == (len(touched), len(written))


def test_too_many_runs_to_keep_apart() -> None:
    """A million lone elements, each in a line of its own: counted by a product."""
    access = Access("a", 0, 4, (("i", 128), ("j", 128 * 1024)), False)
    assert distinct_lines([(access, (("i", 1024), ("j", 1024)))], 64)["a"].touched == 1024 * 1024
