"""Traffic against hand-derived numbers, an LRU cache that is really simulated, and brute force over addresses."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa_models.formats import fmt
from isa_models.machines.cpu_record import CacheLevel, Machine
from isa_models.machines.loader import cpu_machine as machine
from simdnn.kernels.common.epilogue import Epilogue
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.kernels.x86.rows import KERNELS
from simdnn.program.records import Affine, Loop, Memory, Op, Program, Register, Statement, Tensor
from simdnn.timing.bundles import Lines
from simdnn.timing.cpu.walk import core_time
from simdnn.timing.estimate import estimate_program
from simdnn.timing.fetched import Fetched
from simdnn.timing.flows import APART, TILED, TILED_ASKED, Flows
from simdnn.timing.footprint import Accesses, Region, crossing, distinct_lines, moves_in_lines, parts
from simdnn.timing.memory import borrowed, transfers
from simdnn.timing.phases import phases
from simdnn.timing.spacing import Spacing
from tests.effort import examples
from tests.timing.programs import adds, gemm, loads, streamed

KIB = 1024
ZEN4 = machine("zen4")  # 32 KiB, 1 MiB, 32 MiB


def cache(size_bytes: int, ways: int = 0) -> CacheLevel:
    return replace(ZEN4.caches[0], size_bytes=size_bytes, ways=ways)


def every(program: Program) -> list[str]:
    return [tensor.name for tensor in program.tensors]


def moved(program: Program, *, cold: bool = False) -> dict[str, tuple[int, int]]:
    levels = transfers(program, ZEN4, cold=every(program) if cold else ()).levels
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
    """K = 1024: a panel of B is 128 KiB, so each tile reads panel and tile of A from L2; from L3 comes A per panel.

    A's 8 rows, 4 KiB apart, fill a set of 8; a line of B comes there in one k of 32, and they are read once more, but
    where a new line of each begins anyhow (one k of 16).
    """
    program = gemm("f32", 512, 1024, 1024, 8, 2)
    panels, tiles, panel, a = 32, 32 * 64, 128 * KIB, 2048 * KIB
    again = 1024 // 32 * 8 * 64 * 15 // 16
    b, c = panels * panel, 2048 * KIB
    found = moved(program)
    assert found["L2"] == (tiles * (panel + 32 * KIB + again) + c, c)
    assert found["L3"] == (panels * a + b + c, c)
    assert found["DRAM"] == (0, 0)


def test_more_than_an_even_share_of_a_shared_cache() -> None:
    """1 MiB of weights lies in L2, 8 MiB in an L3 of 32 MiB for eight, of 16 MiB half; from DRAM nothing stays."""
    for n, bytes_, shares in ((1024, 0, 0), (8192, 1024 * 8192, 2), (16384, 1024 * 8192, 2)):
        program = gemm("vnni", 1, n, 1024, 1, 4)
        found, times = borrowed(program, ZEN4, transfers(program, ZEN4).levels)
        assert found == pytest.approx(bytes_, rel=0.02) and times == pytest.approx(shares, rel=0.02)
        assert borrowed(program, ZEN4, transfers(program, ZEN4).levels, threads=8) == (0, 0)
        assert borrowed(program, ZEN4, transfers(program, ZEN4, cold=every(program)).levels) == (0, 0)


def test_cycles_are_bytes_over_the_rates() -> None:
    program = gemm("f32", 512, 1024, 1024, 8, 2)
    for level in transfers(program, ZEN4, cold=every(program)).levels[1:]:
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


def misses(tree: Region, cache: CacheLevel) -> Lines:
    """Lines that a cache fetches in one run, as the clock counts them."""
    (missed,) = Fetched(tree, (cache,), None).missed
    return missed


def lru_misses(program: Program, capacity_bytes: int, ways: int = 0) -> int:
    """Of a cache with so many ways (0: one set); tensors begin in its first set."""
    ways = ways or capacity_bytes // 64
    sets: defaultdict[int, OrderedDict[tuple[str, int], None]] = defaultdict(OrderedDict)
    missed = 0
    for line in lines_touched(program):
        held = sets[line[1] % (capacity_bytes // 64 // ways)]
        if line in held:
            held.move_to_end(line)
        else:
            missed += 1
            held[line] = None
            if len(held) > ways:
                held.popitem(last=False)
    return missed


@pytest.mark.parametrize("shape", [(32, 64, 64, 4, 1), (16, 96, 128, 8, 2), (48, 32, 48, 2, 1)])
@pytest.mark.parametrize("capacity", [1, 2, 3, 6, 12, 24, 48, 96])
def test_against_a_simulated_lru_cache(shape: tuple[int, int, int, int, int], capacity: int) -> None:
    """Within a tenth, except where a loop's footprint just misses fitting: there between no and full reuse."""
    program = gemm("f32", *shape)
    tree = parts(program)
    simulated = lru_misses(program, capacity * KIB)
    model = misses(tree, cache(capacity * KIB)).touched
    more, less = (misses(tree, cache(int(capacity * KIB * f))).touched for f in (1.5, 1 / 1.5))
    assert more * 0.9 <= simulated <= less * 1.1
    if more == less:
        assert model == pytest.approx(simulated, rel=0.1)


def columns(rows: int, stride: int, times: int = 5, beside: int = 0) -> Program:
    """`rows` lines `stride` elements apart, again and again, and `beside` lines in a row of another tensor."""
    walks = (("a", rows, stride), ("b", beside, 16))

    def load(tensor: str, step: int) -> Op:
        return Op("vmovups", Register("x", "f32", 16), (Memory(tensor, step * Affine.var("k"), "f32", 16),))

    loops = tuple(Loop("k", count, (load(tensor, step),)) for tensor, count, step in walks if count)
    tensors = tuple(Tensor(tensor, "f32", count * step + 16) for tensor, count, step in walks)
    return Program("columns", "avx512_core", tensors, (Loop("r", times, loops),))


@pytest.mark.parametrize("ways", [8, 12])
@pytest.mark.parametrize("shape", [(16, 32, 1024, 8, 2), (28, 32, 1024, 14, 2), (24, 32, 1024, 12, 1)])
def test_against_sets_that_are_simulated(shape: tuple[int, int, int, int, int], ways: int) -> None:
    """A's rows 4 KiB apart, or nearly: as many as fill a set, more, fewer."""
    program = gemm("f32", *shape)
    found = misses(parts(program), cache(ways * 4 * KIB, ways)).touched
    assert found == pytest.approx(lru_misses(program, ways * 4 * KIB, ways), rel=0.01)


@pytest.mark.parametrize("stride", [16, 48, 1024, 1040, 2048, 3072, 4096, 4160])
@pytest.mark.parametrize("rows", [4, 8, 9, 30, 60, 130, 400])
def test_lines_that_meet_in_few_sets(rows: int, stride: int) -> None:
    """Walks down columns: all or nothing stays of the lines of a set. 64 sets of 8."""
    program = columns(rows, stride)
    model = misses(parts(program), cache(32 * KIB, 8)).touched
    assert model == pytest.approx(lru_misses(program, 32 * KIB, 8), rel=0.1, abs=6)


def test_a_column_beside_a_row() -> None:
    """8 lines in one set of 8 stay by themselves, and do not beside 6 KiB: 1.5 lines in each set."""
    eight = cache(32 * KIB, 8)
    assert misses(parts(columns(8, 1024)), eight).touched == 8
    beside = columns(8, 1024, beside=96)
    found = misses(parts(beside), eight).touched
    assert found == 5 * 8 + 96
    assert found == pytest.approx(lru_misses(beside, 32 * KIB, 8), rel=0.1)  # there the row's two lines are lost, too


@given(rows=st.integers(1, 300), stride=st.integers(1, 5000), sets=st.sampled_from([1, 16, 64, 96]))
def test_lines_of_each_set(rows: int, stride: int, sets: int) -> None:
    program = columns(rows, stride)
    strided = parts(program).loops[0].strided
    lines = {line for tensor, line in lines_touched(columns(rows, stride, 1)) if tensor == "a"}
    if "a" not in strided:
        assert len(lines) == max(lines) - min(lines) + 1
        return
    runs, spread = strided["a"], Flows()
    spread.first_run, spread.more, spread.in_set = [0, len(runs.starts)], [0], [0.0] * (sets + 1)
    spread.low, spread.high = runs.starts.tolist(), runs.ends.tolist()
    spread.spread(0, sets)
    assert spread.in_set[:sets] == np.bincount([line % sets for line in lines], minlength=sets).tolist()


def test_what_stays_of_more_than_fits() -> None:
    """A cache that keeps half of half as much again: half of the lines are fetched once, the others each time."""
    lenient = replace(cache(4 * KIB), keeps=((1.0, 1.0), (1.5, 0.5), (2.0, 0.01)))
    for lines, share in ((60, 1.0), (96, 0.5)):
        found = misses(parts(columns(lines, 16)), lenient).touched
        assert found == share * lines + (1 - share) * 5 * lines


@given(capacity=st.integers(1, 1 << 20), larger=st.integers(1, 1 << 20))
def test_a_larger_cache_never_misses_more(capacity: int, larger: int) -> None:
    tree = parts(gemm("vnni", 64, 128, 256, 8, 2, taps=4))
    assert misses(tree, cache(capacity + larger)).touched <= misses(tree, cache(capacity)).touched


dimension = st.tuples(st.sampled_from([-640, -96, -4, 0, 1, 4, 64, 100, 256, 1000]), st.integers(1, 6))


@examples(300)
@given(
    rows=st.lists(st.tuples(st.integers(0, 500), st.integers(1, 130), st.booleans()), min_size=1, max_size=4),
    dims=st.lists(dimension, max_size=4),
)
def test_lines_by_brute_force(rows: list[tuple[int, int, bool]], dims: list[tuple[int, int]]) -> None:
    extents = tuple((f"i{n}", count) for n, (_, count) in enumerate(dims))
    strides = tuple((f"i{n}", stride) for n, (stride, _) in enumerate(dims))
    found = distinct_lines([(Accesses("a", [4000 + s], size, strides, w), extents) for s, size, w in rows], 64)["a"]
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


@given(
    start=st.integers(0, 100),
    size=st.sampled_from([1, 4, 16, 32, 64]),
    dims=st.lists(st.tuples(st.integers(-300, 300), st.integers(1, 90)), max_size=2),
)
def test_accesses_in_two_lines(start: int, size: int, dims: list[tuple[int, int]]) -> None:
    strides = tuple((f"i{n}", stride) for n, (stride, _) in enumerate(dims))
    places = [start]
    for stride, count in dims:
        places = [place + stride * i for place in places for i in range(count)]
    share = np.mean([place // 64 != (place + size - 1) // 64 for place in places])
    loops = [(f"i{n}", c) for n, (_, c) in enumerate(dims)]
    found = crossing(start % 64, size, moves_in_lines(strides, loops, 64), 64)
    assert found == pytest.approx(float(share))


def test_rows_off_the_line_take_the_load_ports_twice() -> None:
    """Rows of 100 floats: three quarters of the loads are in two lines; a load of 512 bits takes a cycle,
    and bytes come at 56.6 a cycle."""
    for row, cycles in ((64, 400 * 64 / 56.6), (100, 700)):
        x, r = Register("x", "f32", 16), Affine.var("r")
        loads = tuple(Op("vmovups", x, (Memory("a", row * r + 16 * j, "f32", 16),)) for j in range(4))
        program = Program("rows", "avx512_core", (Tensor("a", "f32", 100 * row),), (Loop("r", 100, loads),))
        first = transfers(program, ZEN4).levels[0]
        assert first.read_bytes == 400 * 64
        assert first.cycles == pytest.approx(cycles)


def test_too_many_runs_to_keep_apart() -> None:
    """A million lone elements, each in a line of its own: counted by a product."""
    access = Accesses("a", [0], 4, (("i", 128), ("j", 128 * 1024)), False)
    assert distinct_lines([(access, (("i", 1024), ("j", 1024)))], 64)["a"].touched == 1024 * 1024


def exposing(level: str, share: float, to_tiles: float = 0.0) -> Machine:
    """The machine with one level that leaves shares of its time exposed, and no other."""
    shares = {"exposed": share, "exposed_streamed": share, "exposed_to_tiles": to_tiles}
    caches = tuple(replace(c, **{key: value * (c.name == level) for key, value in shares.items()}) for c in ZEN4.caches)
    return replace(ZEN4, caches=caches, dram=replace(ZEN4.dram, exposed=share * (level == "DRAM")))


@pytest.mark.parametrize("level", ["L2", "L3", "DRAM"])
def test_what_a_level_leaves_exposed_adds_to_the_core(level: str) -> None:
    turn = (loads("i", 16, Affine.var("t") * 256), adds("j", 150))
    program = streamed(Loop("t", 512, turn))  # bound by its additions everywhere
    hidden, shown = (estimate_program(program, exposing(level, share), cold=every(program)) for share in (0.0, 0.5))
    cycles = {found.level: found.cycles for found in hidden.levels}
    assert hidden.cycles == hidden.core_cycles > max(cycles.values()) and cycles[level] > 0
    assert shown.cycles == pytest.approx(hidden.core_cycles + cycles[level] / 2)


def test_tiles_and_vectors_have_their_own_shares() -> None:
    """Of a product on tiles nearly all bytes go to and from tiles."""
    kind = next(kind for kind in KERNELS if kind.name == "gemm:avx512_core_amx")
    on_tiles = kind.build(MatmulProblem(64, 64, 1024, "bf16", "bf16", Epilogue("f32")), ZEN4).program
    for program, least, most in ((gemm("f32", 64, 64, 64, 8, 2), 0.2, 0.2), (on_tiles, 0.5, 0.6)):
        assert least <= transfers(program, exposing("L2", 0.2, to_tiles=0.6)).levels[1].exposed <= most


def tiles_twice(load: str, ahead: bool = False) -> Program:
    """A tile of `a`, four times over with 48 KiB of `b` each time, and 32 rows of 4 KiB of `c` that are stored to."""
    tile = Register("tmm0", "u32", 256)
    a, b = Memory("a", Affine(), "u32", 256, 16, 16), Memory("b", Affine.var("i") * 256, "u32", 256, 16, 16)
    where, line = Memory("c", Affine.var("t") * 16, "u32", 256, 16, 1024), Register("line", "u8", 4)
    loads = (Op("tileloadd", tile, (a,)), Loop("i", 48, (Op(load, tile, (b,)),)))
    asked = [Op("prefetchw", line, (Memory("c", Affine.var("t") * 16 + 1024 * r, "u8", 4),)) for r in range(16)]
    body = (*asked * ahead, *loads, Op("tilestored", where, (tile,)))
    tensors = (Tensor("a", "u32", 256), Tensor("b", "u32", 48 * 256), Tensor("c", "u32", 1 << 14, "output"))
    return Program("tiles", "avx512_core_amx", tensors, (Loop("t", 4, body),))


def test_what_passes_the_first_cache_by_leaves_it_to_others() -> None:
    """48 KiB that go through a cache of 48 KiB leave nothing of the tile beside them, unless they pass it by."""
    spr = machine("spr")
    stays, passes = (of_tensors(transfers(tiles_twice(name), spr).fetched) for name in ("tileloadd", "tileloaddt1"))
    assert stays["a"] > passes.get("a", 0)
    assert passes["b"] == 4 * 48 * 16


def of_tensors(found: Fetched) -> dict[str, float]:
    """Lines of each tensor that the first cache fetches again and again."""
    count = int(found.array("count")[0])
    tensors, lines = (found.array(name)[:count].tolist() for name in ("tensor", "fetched"))
    return {found.names[tensor]: touched for tensor, touched in zip(tensors, lines, strict=True)}


def test_lines_that_are_asked_for_show_as_little_as_those_of_vectors() -> None:
    spr = machine("spr")
    late, early = (transfers(tiles_twice("tileloaddt1", ahead), spr) for ahead in (False, True))
    assert late.kinds == {"b": APART, "c": TILED}  # what tiles are stored to has a share of its own
    assert early.kinds == {"b": APART, "c": TILED_ASKED}
    assert early.levels[1].exposed_asked == spr.cache("L2").exposed < early.levels[1].exposed
    assert early.levels[1].slower == late.levels[1].slower  # in few sets they are gone before they are stored to


def test_stores_of_tiles_show_as_far_as_loads_wait_behind_them() -> None:
    """Lines of `c` come from the second cache where the first is small: beside `b`'s they show, alone they do not.
    Those that come from the third one show alone, too.
    """
    spr = machine("spr")
    shown, lines = [], 4 * 16 * 64
    for program, few in ((tiles_twice("tileloaddt1"), 1), (tiles_alone(), 1), (tiles_alone(), 2)):
        caches = (replace(cache, size_bytes=2048, ways=0) for cache in spr.caches[:few])
        small = replace(spr, caches=(*caches, *spr.caches[few:]))
        moved = transfers(program, small)
        found = phases(small, core_time(program, small).span, moved)
        shown.append(sum(phase.times * phase.tiled for phase in found))
    near = spr.cache("L2").exposed_to_tiles * lines / moved.levels[1].store_bytes_per_cycle
    assert shown[0] == pytest.approx(near) and shown[1] < 0.1 * near
    far = moved.levels[2].exposed_stored * lines / moved.levels[2].store_bytes_per_cycle
    assert shown[2] == pytest.approx(far + shown[1], rel=0.01)


def tiles_alone() -> Program:
    """The same without `b`."""
    program = tiles_twice("tileloadd")
    (turn,) = program.body
    assert isinstance(turn, Loop)
    body = tuple([statement for statement in turn.body if not isinstance(statement, Loop)])
    return replace(program, body=(replace(turn, body=body),))


def test_beside_narrow_registers_a_share_of_its_own_shows() -> None:
    """The same bytes loaded in halves of a line, and in whole ones."""
    gnr = machine("gnr")
    halves, lines = (
        Program("load", isa, (Tensor("a", "f32", 1 << 16),), (Loop("i", (1 << 16) // lanes, (load,)),))
        for isa, lanes in (("avx2", 8), ("avx512_core", 16))
        for load in [Op("vmovups", Register("x", "f32", lanes), (Memory("a", Affine.var("i") * lanes, "f32", lanes),))]
    )
    shown = [transfers(program, gnr).levels[1].exposed for program in (halves, lines)]
    assert shown == [gnr.cache("L2").exposed_narrow, gnr.cache("L2").exposed] and shown[0] < shown[1]


@pytest.mark.parametrize(
    ("columns", "order", "sets"), [(272, "ij", 64), (256, "ji", 4), (256, "ij", 64), (1024, "ji", 1), (1024, "ij", 16)]
)
def test_stored_tiles_wait_for_each_other_in_sets(columns: int, order: str, sets: int) -> None:
    """Down a block of rows, and along them; the second cache takes what it takes longer by."""
    index = 16 * columns * Affine.var("i") + 16 * Affine.var("j")
    where = Memory("c", index, "u32", 256, 16, columns)
    body: tuple[Any, ...] = (Op("tilestored", where, (Register("t", "u32", 256),)),)
    extents = {"i": 32, "j": columns // 16}
    for var in reversed(order):
        body = (Loop(var, extents[var], body),)
    program = Program("tiles", "avx512_core_amx", (Tensor("c", "u32", 512 * columns),), body)
    gnr, zen4 = machine("gnr"), machine("zen4")
    ((name, longer),) = Spacing(program, gnr).stored(gnr.cache("L2"))
    share = dict(gnr.cache("L2").stores_apart)[sets]
    assert name == "c" and longer == pytest.approx(1 / share)
    level, plain = (transfers(program, target).levels[1] for target in (gnr, zen4))
    assert level.cycles == pytest.approx(level.written_bytes / level.store_bytes_per_cycle / share, rel=0.01)
    assert not plain.slower


@pytest.mark.parametrize(
    ("apart", "offset", "lines"), [(256, 0, 1 / 0.39), (256, 8, 2 / 0.53), (128, 0, 1 / 0.53), (192, 0, 1), (64, 8, 1)]
)
def test_loads_of_a_few_bytes_wait_for_each_other_in_banks(apart: int, offset: int, lines: float) -> None:
    """Where a mask's register reaches into the next line, that comes as well: the one of the next load at 64 bytes."""
    where = Memory("a", apart * Affine.var("i") + offset, "u8", 8)
    load = Loop("i", 256, (Op("vmovdqu8", Register("x", "u8", 64), (where,)),))
    program = Program("pixels", "avx512_core_amx", (Tensor("a", "u8", 256 * 256 + 64),), (load,))
    gnr = machine("gnr")
    assert dict(Spacing(program, gnr).loaded(gnr.cache("L2"))) == {"a": pytest.approx(lines, rel=0.01)}
    assert not Spacing(program, gnr).loaded(gnr.cache("L3"))


def test_a_tile_is_one_access_and_its_rows_are_counted() -> None:
    """Sixteen rows a line apart, and the same bytes load by load."""
    rows = Memory("a", Affine.var("i") * 4096, "u32", 256, 16, 64)
    tiled = parts(_loaded("tileloadd", Register("tmm0", "u32", 256), rows)).loops[0]
    words = [Memory("a", Affine.var("i") * 4096 + 64 * row, "u32", 16) for row in range(16)]
    one_by_one = parts(_loaded("vmovdqu", Register("x", "u32", 16), *words)).loops[0]
    assert [len(part.accesses[0].starts) for part in (tiled, one_by_one)] == [1, 16]
    assert (tiled.iteration, tiled.whole) == (one_by_one.iteration, one_by_one.whole)
    assert tiled.iteration["a"].touched == 16 and tiled.whole["a"].touched == 48


@pytest.mark.parametrize(("kib", "measured"), [(24, 2.61), (500, 3.11)])
def test_loads_wait_for_lines_that_come_from_the_next_level(kib: int, measured: float) -> None:
    """Two loads of each line and four of others, cycles a line on a Granite Rapids; the pipes alone would take 2."""
    lines = kib * 16
    places = [Memory("a", Affine.var("i") * 16 + 8 * half, "f32", 8) for half in range(2)]
    places += [Memory("b", Affine(8 * place), "f32", 8) for place in range(4)]
    ops = tuple(Op("vmovups", Register(f"r{i}", "f32", 8), (place,)) for i, place in enumerate(places))
    tensors = Tensor("a", "f32", 16 * lines), Tensor("b", "f32", 32)
    program = Program("p", "avx2", tensors, (Loop("i", lines, ops),))
    found = transfers(program, machine("gnr")).levels[0].cycles / lines
    assert found == pytest.approx(2 + 0.5 * (kib > 48), rel=0.02) and found < measured


def test_loops_that_run_once_ask_nothing_of_their_own() -> None:
    """One in another, they touch what the innermost touches."""
    x = Register("x", "f32", 16)
    body: tuple[Statement, ...] = (Op("vmovups", x, (Memory("a", Affine.var("i") * 16, "f32", 16),)),)
    for name, extent in (("i", 4096), ("j", 1), ("k", 1), ("l", 1)):
        body = (Loop(name, extent, body),)
    tree = parts(Program("p", "avx512_core", (Tensor("a", "f32", 1 << 16),), body))
    missed = misses(tree, ZEN4.caches[0])
    assert len(tree.bundles.wanted) == 3 and missed.touched == 4096


def _loaded(name: str, register: Register, *places: Memory) -> Program:
    ops = tuple(Op(name, register, (place,)) for place in places)
    return Program("p", "avx512_core_amx", (Tensor("a", "u32", 1 << 14),), (Loop("i", 3, ops),))
