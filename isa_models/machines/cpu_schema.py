"""The schema of a machine file: reads TOML into a `Machine`, or says which key is wrong, what was expected and met.
`toml_table` says how a figure is written.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Callable, Mapping
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar, cast

from isa_models.isa import caps
from isa_models.machines.content import open_table
from isa_models.machines.core_record import (
    BINDINGS,
    Bypass,
    Core,
    Crowding,
    LateResults,
    LoadWidth,
    NarrowMasks,
    OtherUnit,
    Scheduler,
    StoreWidth,
    ThirdOperands,
    TileCrossing,
    TileRests,
    Translation,
)
from isa_models.machines.cpu_record import AMX_ACCUMULATIONS, CacheLevel, Dram, Frequency, Machine
from isa_models.machines.instruction_row import InstructionTiming
from isa_models.machines.rows import Key, names
from isa_models.machines.timing_rows import InstructionRows, WrittenRow, given
from isa_models.machines.toml_table import Table
from isa_models.records.frozen import Frozen

Mechanism = TypeVar("Mechanism")


def read_machine(path: Path) -> Machine:
    """Read and validate one machine file; `MachineFileError` names the first key that is wrong."""
    return machine_of(open_table(path), path)


def machine_of(top: Table, path: Path, base: Machine | None = None) -> Machine:
    """The machine that a file's table describes; an instruction without a row there has the row of `base`."""
    name, title, vendor, uarch = (top.text(key) for key in ("name", "title", "vendor", "uarch"))
    isa = top.strings("isa", caps())
    cores = top.figure_integer("cores", 1, 4096)
    frequency = _frequency(top.table("frequency"))
    core = _core(top.table("core"))
    caches = _caches(top)
    dram = _dram(top.table("dram"))
    instructions: Mapping[Key, InstructionTiming] = base.instructions if base else InstructionRows({})
    if not base or top.has("instructions"):
        instructions = InstructionRows(given(instructions) | _instructions(top.table("instructions"), core))
    numerics = top.table("numerics") if top.has("numerics") else None
    accumulation = numerics.figure_among("amx_accumulation", AMX_ACCUMULATIONS) if numerics else AMX_ACCUMULATIONS[0]
    top.close_all()
    provenance: Any = top.reader.provenance
    if base:  # a base may have a thousand variants, so nothing is copied
        provenance = ChainMap(provenance, cast(Any, base.provenance))
    return Machine(
        name,
        title,
        vendor,
        uarch,
        isa,
        cores,
        frequency,
        core,
        caches,
        dram,
        instructions,
        Frozen(provenance),
        path,
        accumulation,
    )


def _frequency(table: Table) -> Frequency:
    def optional(key: str) -> float | None:
        return table.figure_number(key, 0.1, 10) if table.has(key) else None

    names = "avx2_ghz", "avx512_ghz", "avx512_light_ghz", "amx_ghz"
    return Frequency(table.figure_number("base_ghz", 0.1, 10), *(optional(name) for name in names))


def _core(table: Table) -> Core:
    ports = table.figure_strings("ports")
    if len(set(ports)) != len(ports) or not ports:
        raise table.error("ports.value", "different names, at least one", list(ports))
    core = Core(
        dispatch_slots=table.figure_integer("dispatch_slots", 1, 64),
        retire_slots=table.figure_integer("retire_slots", 1, 64),
        reorder_buffer=table.figure_integer("reorder_buffer", 1, 100_000),
        load_queue=table.figure_integer("load_queue", 1, 100_000),
        store_queue=table.figure_integer("store_queue", 1, 100_000),
        ports=ports,
        load_ports=table.figure_strings("load_ports", ports),
        store_data_ports=table.figure_strings("store_data_ports", ports),
        store_address_ports=table.figure_strings("store_address_ports", ports),
        schedulers=_schedulers(table, ports),
        loads=_loads(table),
        stores=_stores(table),
        zero_idioms=frozenset(table.figure_strings("zero_idioms")),
        ports_lost_to_512=table.figure_strings("ports_lost_to_512", ports),
        addend_chain_use=_points(table, "addend_chain_use"),
        narrow_as_512=table.has("narrow_as_512") and table.figure_flag("narrow_as_512"),
        masks_reach=table.has("masks_reach") and table.figure_flag("masks_reach"),
        exposes_work=table.has("exposes_work") and table.figure_flag("exposes_work"),
        ports_lost_to_tiles=table.figure_strings("ports_lost_to_tiles", ports, ()),
        ones_idioms=frozenset(table.figure_strings("ones_idioms", None, ())),
        uop_cache_line=table.figure_integer("uop_cache_line", 0, 64, 0),
        uop_cache_evex=table.figure_integer("uop_cache_evex", 0, 64, 0),
        splits_indexed=table.figure_integer("splits_indexed", 0, 64, 0),
        address_units=table.figure_integer("address_units", 0, 16, 0),
        commit_bytes=table.figure_integer("commit_bytes", 0, 4096, 0),
        composed_address=table.figure_integer("composed_address", 0, 64, 0),
        memory_slots=table.figure_strings("memory_slots", None, ()),
        load_replay=table.figure_integer("load_replay", 0, 64, 0),
        loads_of_a_place=table.figure_integer("loads_of_a_place", 0, 64, 0),
        microcode_slots=table.figure_integer("microcode_slots", 0, 100, 0),
        mask_registers=table.figure_integer("mask_registers", 0, 100_000, 0),
        vector_registers=table.figure_integer("vector_registers", 0, 100_000, 0),
        result_ports=table.figure_strings("result_ports", ports, ()),
        retire_delay=table.figure_integer("retire_delay", 0, 1000, 0),
        binding=table.figure_among("binding", BINDINGS),
        crowding=_crowding(table) if table.has("crowding") else (),
        other_unit=_optional(table, "other_unit", _other_unit, OtherUnit()),
        tile_rests=_optional(table, "tile_rests", _tile_rests, TileRests()),
        translation=_optional(table, "translation", _translation, Translation()),
        tile_crossing=_optional(table, "tile_crossing", _tile_crossing, TileCrossing()),
        late_results=_optional(table, "late_results", _late_results, LateResults()),
        bypass=_optional(table, "bypass", _bypass, Bypass()),
        narrow_masks=_optional(table, "narrow_masks", _narrow_masks, NarrowMasks()),
        third_operands=_optional(table, "third_operands", _third_operands, ThirdOperands()),
        destination_awaited=table.figure_strings("destination_awaited", None, ()),
        split_updates=table.figure_strings("split_updates", None, ()),
        late_flags=table.figure_strings("late_flags", None, ()),
        lanes_as_loads=table.figure_strings("lanes_as_loads", None, ()),
        lane_crossers=table.figure_strings("lane_crossers", None, ()),
        loop_buffer=_loop_buffer(table) if table.has("loop_buffer") else (),
    )
    _check_loads(table, core)
    return core


def _optional(table: Table, name: str, read: Callable[[Table], Mechanism], without: Mechanism) -> Mechanism:
    """A core's record of a table, or the one that stands for it where the file has none."""
    return read(table.table(name)) if table.has(name) else without


def _check_loads(table: Table, core: Core) -> None:
    """Raise an error where loads have no ports, more than there are, or none of vectors."""
    if not core.load_ports:
        raise table.error("load_ports.value", "at least one port", [])
    if (most := max(row.pipes for row in core.loads)) > len(core.load_ports):
        raise table.error("load", f"at most {len(core.load_ports)} pipes a load", most)
    if all(row.general for row in core.loads) or all(row.general for row in core.stores):
        raise table.error("load", "a row, and one of store, that isn't for general registers alone", "general = true")


def _schedulers(table: Table, ports: tuple[str, ...]) -> tuple[Scheduler, ...]:
    schedulers: list[Scheduler] = []
    taken: set[str] = set()
    for row in table.tables("scheduler"):
        mine = row.strings("ports", ports)
        if taken & set(mine) or not mine:
            raise row.error("ports", "ports of no other scheduler, at least one", list(mine))
        taken |= set(mine)
        banks_raw = row.raw("banks") if row.has("banks") else []
        if not isinstance(banks_raw, list) or len(banks_raw) > 2:
            raise row.error("banks", "a list of at most two lists of ports", banks_raw)
        banks = tuple(row.strings_of(f"banks[{i}]", bank, mine) for i, bank in enumerate(banks_raw))
        if len({len(bank) for bank in banks}) > 1:
            raise row.error("banks", "two lists of as many ports", banks_raw)
        queue = row.integer("queue", 0, 100_000, 0)
        dealt, beside = row.flag("dealt"), row.strings("beside", mine) if row.has("beside") else ()
        name = row.text("name")
        row.provenance(f"core.scheduler.{name}")
        schedulers.append(Scheduler(name, mine, row.integer("size", 1, 100_000), queue, banks, dealt, beside))
        if sum(scheduler.is_split for scheduler in schedulers) > 1:
            raise row.error("banks", "banks behind the queue of one scheduler alone", banks_raw)
        if dealt and (queue or banks) or beside and not dealt:
            raise row.error("dealt", "ports without a queue or banks, true where some take one `beside`", dealt)
    if missing := [port for port in ports if port not in taken]:
        raise table.error("scheduler", "a scheduler for every port", f"none for {', '.join(missing)}")
    return tuple(schedulers)


def _loads(table: Table) -> tuple[LoadWidth, ...]:
    found = []
    for row in table.tables("load"):
        bits = row.integer("bits", 8, 4096)
        general = row.flag("general")
        row.provenance(f"core.load.{'general.' if general else ''}{bits}")
        pipes, latency = row.number("pipes", 0, 16), row.number("latency", 1, 1000)
        if pipes * 2 % 1:
            raise row.error("pipes", "whole or half pipes", pipes)
        forward = row.number("forward_latency", 0, 1000)
        blocked = row.number("blocked_latency", 0, 1000, latency)
        keys = "crossing_pipes", "crossing_latency"
        across, later = (row.number(key, 0, 1000, 0.0) for key in keys)
        update = row.number("update_latency", 0, 1000) if row.has("update_latency") else None
        found.append(LoadWidth(bits, pipes, latency, forward, blocked, general, across, later, update))
    return tuple(sorted(found, key=lambda r: r.bits))


def _stores(table: Table) -> tuple[StoreWidth, ...]:
    found = []
    for row in table.tables("store"):
        bits = row.integer("bits", 8, 4096)
        general = row.flag("general")
        row.provenance(f"core.store.{'general.' if general else ''}{bits}")
        commit = row.number("commit_cycles", 0.01, 1000)
        other = row.number("other_line_cycles", commit, 1000, commit)
        crossing = row.number("crossing_cycles", 0, 1000, other)
        taken = row.number("load_pipes", 0, 16, 0.0)
        addresses = row.integer("addresses", 1, 16) if row.has("addresses") else 1
        entries = row.integer("entries", 1, 16) if row.has("entries") else 1
        found.append(StoreWidth(bits, commit, other, general, crossing, taken, addresses, entries))
    return tuple(sorted(found, key=lambda r: r.bits))


def _crowding(table: Table) -> tuple[Crowding, ...]:
    found = []
    for row in table.tables("crowding"):
        bits = row.integer("bits", 8, 4096)
        row.provenance(f"core.crowding.{bits}")
        keys = "load", "store", "simple", "add", "multiply", "product", "beside"
        shares = dict(zip(keys, (row.number(key, 0, 1) for key in keys), strict=True))
        if shares["beside"] > (most := shares["simple"] + shares["multiply"]):
            raise row.error(
                "beside", f"at most what a simple operation and a multiplication take ({most:g})", shares["beside"]
            )
        adds = row.strings("adds") if row.has("adds") else ()
        vain = row.number("vain", 0, 1, 0.0)
        halves = row.strings("halves") if row.has("halves") else ()
        half, narrower = row.number("half", 0, 1, 0.0), row.flag("narrower")
        found.append(Crowding(bits, **shares, vain=vain, adds=adds, narrower=narrower, half=half, halves=halves))
    return tuple(found)


def _other_unit(table: Table) -> OtherUnit:
    table.provenance()
    names = {name: table.strings(name) for name in ("halves", "slow_on_first", "slow_on_second") if table.has(name)}
    half = table.number("half_cycles", 0, 100, 0.0)
    return OtherUnit(table.number("cycles", 0, 100), table.strings("spares"), half, **names)


def _tile_rests(table: Table) -> TileRests:
    table.provenance()
    cycles = {name: table.number(name, 0, 10**6) for name in ("after", "store", "product")}
    return TileRests(**cycles, awake=table.strings("awake"))


def _translation(table: Table) -> Translation:
    table.provenance()
    return Translation(table.number("pages", 1, 10**9), table.number("cycles", 0, 10**4))


def _tile_crossing(table: Table) -> TileCrossing:
    table.provenance()
    return TileCrossing(*(table.number(name, 0, 1000) for name in ("each", "cycles", "spared", "past", "hidden")))


def _late_results(table: Table) -> LateResults:
    table.provenance()
    bits = table.integer("bits", 128, 512, LateResults().bits)
    return LateResults(table.number("cycles", 0, 100), table.strings("of"), bits)


def _bypass(table: Table) -> Bypass:
    table.provenance()
    kinds = ("integers", "neutral", "floats", "products", "halves")
    names = {name: table.strings(name) for name in kinds if table.has(name)}
    cycles, back = int(table.number("cycles", 0, 100)), int(table.number("back_cycles", 0, 100, 0))
    own, each = table.flag("own_results"), table.flag("by_operand")
    return Bypass(cycles, back, table.strings("ports"), **names, own_results=own, by_operand=each)


def _narrow_masks(table: Table) -> NarrowMasks:
    table.provenance()
    halves = table.strings("halves") if table.has("halves") else ()
    half_cycles = table.number("half_cycles", 0, 100, 0.0)
    products = table.strings("products") if table.has("products") else ()
    product_cycles = table.number("product_cycles", 0, 100, 0.0)
    cycles, of = table.number("cycles", 0, 100), table.strings("of")
    return NarrowMasks(cycles, of, half_cycles, halves, product_cycles, products)


def _third_operands(table: Table) -> ThirdOperands:
    table.provenance()
    spared = table.strings("spared") if table.has("spared") else ()
    return ThirdOperands(table.strings("of"), spared, table.flag("fresh_is_free"), table.flag("addend_is_free"))


def _loop_buffer(table: Table) -> tuple[tuple[int, int], ...]:
    """Pairs of whole numbers, the first rising: slots of a loop, and how many copies of it are kept."""
    value = table.figure("loop_buffer")
    rows = value if isinstance(value, list) else [value]
    pairs = [(p[0], p[1]) for p in rows if isinstance(p, list) and len(p) == 2]
    if len(pairs) != len(rows) or not all(type(x) is int and x > 0 for pair in pairs for x in pair):
        raise table.error("loop_buffer.value", "a list of [slots, copies] pairs of positive whole numbers", value)
    if any(a[0] >= b[0] for a, b in zip(pairs, pairs[1:], strict=False)):
        raise table.error("loop_buffer.value", "pairs with rising slots", value)
    return tuple(pairs)


def _points(table: Table, key: str) -> tuple[tuple[float, float], ...]:
    """A curve: pairs of a number, which rises, and a share; empty where the machine has no such effect."""
    value = table.figure(key)
    good = isinstance(value, list) and all(
        isinstance(p, list) and len(p) == 2 and all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in p)
        for p in value
    )
    if not isinstance(value, list) or not good or any(not (0 < p[1] <= 1 and math.isfinite(p[0])) for p in value):
        raise table.error(f"{key}.value", "a list of [number, share above 0 and up to 1] pairs", value)
    if any(a[0] >= b[0] for a, b in zip(value, value[1:], strict=False)):
        raise table.error(f"{key}.value", "pairs whose first numbers rise", value)
    return tuple((float(x), float(y)) for x, y in value)


def _caches(top: Table) -> tuple[CacheLevel, ...]:
    found: list[CacheLevel] = []
    for row in top.tables("caches"):
        name = row.text("name")
        row.key = f"caches.{name}"
        level = CacheLevel(
            name=name,
            size_bytes=row.figure_integer("size_bytes"),
            line_bytes=row.figure_integer("line_bytes", 8, 4096),
            shared_by=row.figure_integer("shared_by", 1, 4096),
            load_bytes_per_cycle=row.figure_number("load_bytes_per_cycle", 0.01, 1e6),
            store_bytes_per_cycle=row.figure_number("store_bytes_per_cycle", 0.01, 1e6),
            latency_cycles=row.figure_number("latency_cycles", 0.1, 1e6),
            exposed=(exposed := row.figure_number("exposed", 0, 1, 0.0)),
            exposed_to_tiles=row.figure_number("exposed_to_tiles", 0, 1, exposed),
            exposed_fetched=row.figure_number("exposed_fetched", 0, 1, exposed),
            exposed_walked=row.figure_number("exposed_walked", 0, 1, exposed),
            exposed_streamed=row.figure_number("exposed_streamed", 0, 1, exposed),
            exposed_narrow=row.figure_number("exposed_narrow", 0, 1, exposed),
            set_cycles=row.figure_number("set_cycles", 0, 1e6, 0.0),
            banks=row.figure_integer("banks", 1, 4096, 1),
            bank_cycles=row.figure_number("bank_cycles", 0, 1e6, 0.0),
            ways=row.figure_integer("ways", 1, 4096, 0),
            fill_cycles=row.figure_number("fill_cycles", 0, 100, 0.0),
            own_ghz=row.figure_number("own_ghz", 0.1, 100, 0.0),
            stores_apart=_points(row, "stores_apart") if row.has("stores_apart") else (),
            loads_apart=_points(row, "loads_apart") if row.has("loads_apart") else (),
            keeps=_points(row, "keeps") or ((1.0, 1.0),) if row.has("keeps") else ((1.0, 1.0),),
        )
        if level.ways and level.size_bytes % (level.ways * level.line_bytes):
            raise row.error("ways.value", f"a divisor of the {level.size_bytes // level.line_bytes} lines", level.ways)
        found.append(level)
    if len(found) < 2:
        raise top.error("caches", "two levels or more", len(found))
    for inner, outer in zip(found, found[1:], strict=False):
        if inner.size_bytes >= outer.size_bytes or inner.name == outer.name:
            raise top.error(f"caches.{outer.name}.size_bytes", f"more than {inner.name}'s", outer.size_bytes)
    return tuple(found)


def _dram(table: Table) -> Dram:
    dram = Dram(
        table.figure_number("gb_s_core", 0.01, 1e6),
        table.figure_number("gb_s_socket", 0.01, 1e6),
        table.figure_number("exposed", 0, 1, 0.0),
    )
    if dram.gb_s_socket < dram.gb_s_core:
        raise table.error("gb_s_socket.value", f"at least gb_s_core ({dram.gb_s_core:g})", dram.gb_s_socket)
    return dram


def _instructions(table: Table, core: Core) -> dict[Key, InstructionTiming | WrittenRow]:
    found: dict[Key, InstructionTiming | WrittenRow] = {}
    for row in table.tables("rows"):
        mnemonics, forms = _names(row, "mnemonic"), _names(row, "form")
        row.key = f"instructions.{mnemonics[0]} {forms[0]}"
        written = _row(row, core)
        for mnemonic, form in product(mnemonics, forms):
            if (mnemonic, form) in found:
                row.key = f"instructions.{mnemonic} {form}"
                raise row.error("form", "one row for each form", f"{mnemonic} {form} twice")
            found[mnemonic, form] = written
    return dict(sorted(found.items(), key=itemgetter(0)))


def _row(row: Table, core: Core) -> WrittenRow:
    """The figures of a row, which all its forms have."""
    uops = row.raw("uops")
    if not isinstance(uops, list):
        raise row.error("uops", "a list of lists of ports", uops)
    ports = [port for port in core.ports if port not in core.load_ports]  # loads are the memory operand's
    choices = tuple(row.strings_of(f"uops[{i}]", uop, ports) for i, uop in enumerate(uops))
    if not all(choices):
        raise row.error("uops", "at least one port for each uop", uops)
    latency = row.number("latency", 0, 10_000)
    figures = (
        latency,
        row.integer("slots", 0, 1000),
        choices,
        row.integer("occupancy", 1, 1000, 1),
        row.number("interval", 0, 100_000, 0.0),
        row.number("accumulator_latency", 0, 10_000, latency),
        row.flag("eliminated"),
    )
    return WrittenRow(figures, row.text("source"), row.confidence())


def _names(row: Table, key: str) -> list[str]:
    found = names(value := row.raw(key))
    if not found:
        raise row.error(key, "a non-empty string, or a list of them", value)
    return found
