"""The clock of tile instructions: by rows, from accumulator to accumulator, and line by line to and from memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import simdnn
from isa_models.errors import MachineFileError
from isa_models.machines.cpu_record import Machine, TileStores
from isa_models.machines.loader import cpu_machine as machine
from isa_models.machines.shipped import MACHINES_DIR
from simdnn.timing.cpu.pipeline import Step, block_cycles, loop_cycles
from tests.timing.tiles import tiled


def with_order(tmp_path: Path, order: str) -> Machine:
    """zen4 from a file that names the order of sums on tiles."""
    figure = f'amx_accumulation = {{value = "{order}", source = "asked of a CPU", confidence = "measured"}}'
    text = (MACHINES_DIR / "zen4.toml").read_text(encoding="utf-8")
    path = tmp_path / f"{order}.toml"
    path.write_text(text.replace("[frequency]", f"[numerics]\n{figure}\n\n[frequency]", 1), encoding="utf-8")
    return machine(path)


def test_a_machine_file_says_the_order_of_sums(tmp_path: Path) -> None:
    assert machine("spr").amx_accumulation == "even_odd"
    target = with_order(tmp_path, "sequential")
    assert target.amx_accumulation == "sequential"
    assert target.confidence_of("numerics.amx_accumulation") == "measured"
    with pytest.raises(MachineFileError, match="numerics.amx_accumulation.value.*even_odd, sequential.*'random'"):
        with_order(tmp_path, "random")


def product(accumulator: str, rows: int = 16) -> Step:
    reads = (accumulator, "a", "b")
    return Step("tdpbf16ps", "tmm,tmm,tmm", reads, (accumulator,), accumulator, rows=rows)


def load(register: str, rows: int = 16) -> Step:
    return Step("tileloadd", "tmm,m8192", (), (register,), rows=rows)


@pytest.mark.parametrize("rows", [1, 3, 8, 16])
def test_a_product_takes_all_rows_of_its_weights(rows: int) -> None:
    """Two products beside loads of their weights take 35.7 cycles on a Granite Rapids with 1, 8 and 16 rows of sums."""
    found = loop_cycles(tiled(), [product(f"c{i}", rows) for i in range(4)])
    assert found.cycles == pytest.approx(64)


def a_step(few: bool, src: str, wei: str) -> list[Step]:
    """64 bytes of K of one tile of rows, or two, by two of columns."""
    rows = ["a0"] if few else ["a0", "a1"]
    loads = [Step(src, "tmm,m8192", (), (row,), rows=16) for row in rows]
    loads += [Step(wei, "tmm,m8192", (), (column,), rows=16) for column in ("b0", "b1")]
    sums = [(f"{row}{column}", row, column) for row in rows for column in ("b0", "b1")]
    return loads + [Step("tdpbf16ps", "tmm,tmm,tmm", (c, a, b), (c,), c, rows=16) for c, a, b in sums]


@pytest.mark.parametrize(
    ("few", "src", "wei", "measured"),  # on a Granite Rapids, all lines in the first cache, or past it
    [
        (False, "tileloadd", "tileloadd", 64.1),
        (False, "tileloadd", "tileloaddt1", 67.7),
        (False, "tileloaddt1", "tileloaddt1", 79.0),
        (True, "tileloadd", "tileloadd", 35.7),
        (True, "tileloadd", "tileloaddt1", 44.2),
        (True, "tileloaddt1", "tileloadd", 41.5),
    ],
)
def test_tiles_come_one_after_the_other(few: bool, src: str, wei: str, measured: float) -> None:
    assert loop_cycles(machine("gnr"), a_step(few, src, wei)).cycles == pytest.approx(measured, rel=0.16)


def test_one_chain_of_products_is_forwarded() -> None:
    assert loop_cycles(tiled(), [product("c")]).cycles == pytest.approx(16)
    assert loop_cycles(tiled(), [product("c", 4)]).cycles == pytest.approx(16)  # as long as it was measured, no shorter


def test_a_result_that_becomes_a_source_is_waited_for() -> None:
    chain = [
        Step("tdpbf16ps", "tmm,tmm,tmm", ("c", "a", "b"), ("c",), "c"),
        Step("tdpbf16ps", "tmm,tmm,tmm", ("a", "c", "b"), ("a",), "a"),
    ]
    assert loop_cycles(tiled(), chain).cycles == pytest.approx(52 + 52, abs=1)


@pytest.mark.parametrize("rows", [1, 5, 16])
def test_loads_and_stores_are_a_line_a_row(rows: int) -> None:
    wide = machine("zen4").core.load(512)
    found = loop_cycles(tiled(), [load("a", rows), load("b", rows)])
    assert found.cycles == pytest.approx(2 * rows * wide.pipes / len(machine("zen4").core.load_ports), rel=0.02)
    stored = loop_cycles(tiled(), [Step("tilestored", "m8192,tmm", ("a",), rows=rows)])
    assert stored.cycles == pytest.approx(rows * machine("zen4").core.store(512).commit_cycles)


def test_a_load_waits_for_all_its_lines() -> None:
    """16 lines of a cycle each on zen4's pipes, load to use, the row's own latency, then the product's."""
    core = machine("zen4").core.load(512)
    assert block_cycles(tiled(), [load("a"), product("c")]) == pytest.approx(15 + core.latency + 20 + 52, abs=3)
    assert block_cycles(tiled(), [load("a", 1), product("c", 1)]) == pytest.approx(core.latency + 20 + 52 - 15, abs=3)


def test_loads_of_registers_pass_between_tiles() -> None:
    vector = Step("vmovups", "zmm,m512", (), ("z",))
    found = loop_cycles(tiled(), [load("a"), vector, vector])
    assert found.cycles == pytest.approx(18, rel=0.02)


def a_block(steps: int) -> list[Step]:
    """Four tiles of sums: cleared, `steps` steps of K, stored."""

    def part(c: str, a: str, b: str) -> Step:
        return Step("tdpbf16ps", "tmm,tmm,tmm", (c, a, b), (c,), c, rows=16)

    clear = [Step("tilezero", "tmm", (), (f"c{i}",), rows=16) for i in range(4)]
    step = [
        load("a0"),
        load("a1"),
        load("b0"),
        part("c0", "a0", "b0"),
        part("c2", "a1", "b0"),
        load("b1"),
        part("c1", "a0", "b1"),
        part("c3", "a1", "b1"),
    ]
    store = [Step("tilestored", "m8192,tmm", (f"c{i}",), rows=16) for i in range(4)]
    return [*clear, *step * steps, *store]


@pytest.mark.parametrize(("steps", "measured"), [(1, 129.1), (2, 195.4), (8, 577.0)])  # on an Emerald Rapids
def test_products_do_not_overtake_stores_of_tiles(steps: int, measured: float) -> None:
    """Else they would hide behind the next block's products: 64 cycles a step and no more."""
    found = loop_cycles(machine("spr"), a_block(steps)).cycles
    assert 64 * steps + 40 < found and found == pytest.approx(measured, rel=0.11)


@pytest.mark.parametrize(("k", "more"), [(512, 0), (4096, 640)])
def test_a_store_of_tiles_long_behind_the_last_takes_longer(k: int, more: int) -> None:
    """On a Granite Rapids nothing up to 2240 cycles, 540 to 790 from 2650 on."""
    target = machine("gnr")
    awake = replace(target, core=replace(target.core, tile_stores=TileStores()))
    how: dict[str, Any] = {"m": 32, "n": 32, "k": k, "dt": "bf16:bf16:f32", "dispatch": "onednn"}
    rested, other = (simdnn.estimate("matmul", machine=one, **how).cycles for one in (target, awake))
    assert rested - other == pytest.approx(more)


def test_tiles_wait_for_their_configuration() -> None:
    bare, configured = [load("a"), product("c")], Step("ldtilecfg", "m512", (), ("tilecfg",))
    waits = [Step(s.mnemonic, s.form, (*s.reads, "tilecfg"), s.writes, s.accumulator) for s in bare]
    assert block_cycles(machine("spr"), [configured, *waits]) >= block_cycles(machine("spr"), bare) + 150


def test_the_librarys_product_of_768_cubed() -> None:
    """oneDNN on a Granite Rapids takes 0.66 million cycles; 0.80 are predicted with the L3 of another one."""
    cycles = simdnn.estimate("matmul", m=768, n=768, k=768, dt="u8:s8:s32", machine="gnr", dispatch="onednn").cycles
    assert cycles == pytest.approx(0.66e6, rel=0.25)
