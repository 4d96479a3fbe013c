"""The schema of a machine file: reads TOML into a `Machine`, or says which key is wrong, what was expected and met.

A figure is an inline table ``{value = 6, source = "…", confidence = "documented"}``. A source may start with a key of
the file's ``[sources]`` and a colon; it is then spelled out.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from .errors import MachineFileError
from .machine import (
    AMX_ACCUMULATIONS,
    CONFIDENCES,
    ISA_CAPS,
    CacheLevel,
    Confidence,
    Core,
    Dram,
    Frequency,
    InstructionTiming,
    LoadWidth,
    Machine,
    Provenance,
    Scheduler,
    StoreWidth,
)

_MISSING = object()


def broken(path: Path, key: str, expected: str, met: object) -> MachineFileError:
    """The error of one key, in one line."""
    shown = "nothing" if met is _MISSING else repr(met)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return MachineFileError(f"{path}: key {key!r}: expected {expected}, met {shown}")


class _Table:
    """One TOML table under its dotted key: typed access; `close` refuses keys that nobody asked for."""

    def __init__(self, reader: _Reader, key: str, data: object) -> None:
        self.reader, self.key = reader, key
        if not isinstance(data, dict):
            raise broken(reader.path, key or "(file)", "a table", data)
        self.data: dict[str, object] = data
        self.asked: set[str] = set()

    def path(self, key: str) -> str:
        return f"{self.key}.{key}" if self.key else key

    def error(self, key: str, expected: str, met: object) -> MachineFileError:
        return broken(self.reader.path, self.path(key), expected, met)

    def raw(self, key: str) -> object:
        self.asked.add(key)
        return self.data.get(key, _MISSING)

    def has(self, key: str) -> bool:
        return self.raw(key) is not _MISSING

    def text(self, key: str) -> str:
        value = self.raw(key)
        if not isinstance(value, str) or not value.strip():
            raise self.error(key, "a non-empty string", value)
        return value

    def number(self, key: str, least: float = 0.0, most: float = 1e15) -> float:
        return self._number(key, self.raw(key), least, most)

    def _number(self, key: str, value: object, least: float, most: float) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise self.error(key, f"a number from {least:g} to {most:g}", value)
        return value

    def integer(self, key: str, least: int = 0, most: int = 10**15) -> int:
        return self._integer(key, self.raw(key), least, most)

    def _integer(self, key: str, value: object, least: int, most: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.error(key, f"a whole number from {least} to {most}", value)
        return value

    def strings(self, key: str, allowed: Sequence[str] | None = None) -> tuple[str, ...]:
        return self._strings(key, self.raw(key), allowed)

    def _strings(self, key: str, value: object, allowed: Sequence[str] | None) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise self.error(key, "a list of non-empty strings", value)
        for item in value:
            if allowed is not None and item not in allowed:
                raise self.error(key, f"only names among {', '.join(allowed)}", item)
        return tuple(value)

    def table(self, key: str) -> _Table:
        return _Table(self.reader, self.path(key), self.raw(key))

    def tables(self, key: str) -> list[_Table]:
        """A non-empty array of tables, each under the key `KEY[i]`."""
        value = self.raw(key)
        if not isinstance(value, list) or not value:
            raise self.error(key, "a non-empty array of tables", value)
        return [_Table(self.reader, self.path(f"{key}[{i}]"), item) for i, item in enumerate(value)]

    def provenance(self, key: str | None = None) -> Provenance:
        """This table's own source and confidence; noted under `key` (its own key where None)."""
        confidence = self.raw("confidence")
        if confidence not in CONFIDENCES:
            raise self.error("confidence", f"one of {', '.join(CONFIDENCES)}", confidence)
        found = self.reader.cite(self.text("source"), next(c for c in CONFIDENCES if c == confidence))
        self.reader.provenance[self.key if key is None else key] = found
        return found

    def figure(self, key: str) -> object:
        """The value of a figure, its source and confidence noted."""
        inner = self.table(key)
        value = inner.raw("value")
        inner.provenance()
        inner.close()
        return value

    def figure_number(self, key: str, least: float = 0.0, most: float = 1e15) -> float:
        return self._number(f"{key}.value", self.figure(key), least, most)

    def figure_integer(self, key: str, least: int = 1, most: int = 10**15) -> int:
        return self._integer(f"{key}.value", self.figure(key), least, most)

    def figure_strings(self, key: str, allowed: Sequence[str] | None = None) -> tuple[str, ...]:
        return self._strings(f"{key}.value", self.figure(key), allowed)

    def close(self) -> None:
        """Refuse keys that the schema doesn't know."""
        for key in self.data:
            if key not in self.asked:
                near = difflib.get_close_matches(key, self.asked, n=1)
                hint = f"{near[0]!r}" if near else f"one of {', '.join(sorted(self.asked))}"
                raise broken(self.reader.path, self.path(key), f"a key of the schema ({hint})", key)


class _Reader:
    """What the tables of one file share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.provenance: dict[str, Provenance] = {}
        self.sources: dict[str, str] = {}
        self._cited: dict[tuple[str, Confidence], Provenance] = {}

    def cite(self, source: str, confidence: Confidence) -> Provenance:
        """A `Provenance` with the source's key spelled out; equal ones are one object."""
        key = (source, confidence)
        if key not in self._cited:
            short, colon, rest = source.partition(":")
            full = f"{self.sources[short]}: {rest.strip()}" if colon and short in self.sources else source
            self._cited[key] = Provenance(full, confidence)
        return self._cited[key]


def read_machine(path: Path) -> Machine:
    """Read and validate one machine file; `MachineFileError` names the first key that is wrong."""
    reader = _Reader(path)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise broken(path, "(file)", "a readable file", error.strerror) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise broken(path, "(file)", "TOML", str(error)) from error
    top = _Table(reader, "", data)
    sources = top.table("sources")
    reader.sources = {key: sources.text(key) for key in sources.data}
    name, title, vendor, uarch = (top.text(key) for key in ("name", "title", "vendor", "uarch"))
    isa = top.strings("isa", ISA_CAPS)
    cores = top.figure_integer("cores", 1, 4096)
    frequency = _frequency(top.table("frequency"))
    core = _core(top.table("core"))
    caches = _caches(top)
    dram = _dram(top.table("dram"))
    instructions = _instructions(top.table("instructions"), core)
    accumulation = _amx_accumulation(top.table("numerics")) if top.has("numerics") else AMX_ACCUMULATIONS[0]
    top.close()
    return Machine(
        name, title, vendor, uarch, isa, cores, frequency, core, caches, dram,
        MappingProxyType(instructions), MappingProxyType(reader.provenance), path, accumulation,
    )  # fmt: skip


def _amx_accumulation(table: _Table) -> str:
    found = table.figure("amx_accumulation")
    table.close()
    if found not in AMX_ACCUMULATIONS:
        raise table.error("amx_accumulation.value", f"one of {', '.join(AMX_ACCUMULATIONS)}", found)
    return str(found)


def _frequency(table: _Table) -> Frequency:
    def optional(key: str) -> float | None:
        return table.figure_number(key, 0.1, 10) if table.has(key) else None

    found = Frequency(table.figure_number("base_ghz", 0.1, 10), optional("avx2_ghz"), optional("avx512_ghz"))
    table.close()
    return found


def _core(table: _Table) -> Core:
    ports = table.figure_strings("ports")
    if len(set(ports)) != len(ports) or not ports:
        raise table.error("ports.value", "different names, at least one", list(ports))
    core = Core(
        dispatch_slots=table.figure_integer("dispatch_slots", 1, 64),
        retire_slots=table.figure_integer("retire_slots", 1, 64),
        reorder_buffer=table.figure_integer("reorder_buffer", 1, 100_000),
        load_queue=table.figure_integer("load_queue", 1, 100_000),
        store_queue=table.figure_integer("store_queue", 1, 100_000),
        vector_registers=_vector_registers(table),
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
    )
    if not core.load_ports:
        raise table.error("load_ports.value", "at least one port", [])
    if core.loads[-1].pipes > len(core.load_ports):
        raise table.error("load", f"at most {len(core.load_ports)} pipes a load", core.loads[-1].pipes)
    table.close()
    return core


def _vector_registers(table: _Table) -> Mapping[int, int]:
    inner = table.table("vector_registers")
    found: dict[int, int] = {}
    for key in ("128", "256", "512"):
        if inner.has(key):
            found[int(key)] = inner.integer(key, 1, 1024)
    inner.provenance()
    inner.close()
    return MappingProxyType(found)


def _schedulers(table: _Table, ports: tuple[str, ...]) -> tuple[Scheduler, ...]:
    found: list[Scheduler] = []
    taken: set[str] = set()
    for row in table.tables("scheduler"):
        mine = row.strings("ports", ports)
        if taken & set(mine) or not mine:
            raise row.error("ports", "ports of no other scheduler, at least one", list(mine))
        taken |= set(mine)
        banks_raw = row.raw("banks") if row.has("banks") else []
        if not isinstance(banks_raw, list):
            raise row.error("banks", "a list of lists of ports", banks_raw)
        banks = tuple(row._strings(f"banks[{i}]", bank, mine) for i, bank in enumerate(banks_raw))
        queue = row.integer("queue", 0, 100_000) if row.has("queue") else 0
        name = row.text("name")
        row.provenance(f"core.scheduler.{name}")
        found.append(Scheduler(name, mine, row.integer("size", 1, 100_000), queue, banks))
        row.close()
    if missing := [port for port in ports if port not in taken]:
        raise table.error("scheduler", "a scheduler for every port", f"none for {', '.join(missing)}")
    return tuple(found)


def _loads(table: _Table) -> tuple[LoadWidth, ...]:
    found = []
    for row in table.tables("load"):
        bits = row.integer("bits", 8, 4096)
        row.provenance(f"core.load.{bits}")
        pipes, latency = row.number("pipes", 1, 16), row.number("latency", 1, 1000)
        if pipes * 2 % 1:
            raise row.error("pipes", "whole or half pipes", pipes)
        forward, commit = row.number("forward_latency", 0, 1000), row.number("commit_cycles", 0, 1000)
        found.append(LoadWidth(bits, pipes, latency, forward, commit))
        row.close()
    return tuple(sorted(found, key=lambda r: r.bits))


def _stores(table: _Table) -> tuple[StoreWidth, ...]:
    found = []
    for row in table.tables("store"):
        bits = row.integer("bits", 8, 4096)
        row.provenance(f"core.store.{bits}")
        found.append(StoreWidth(bits, row.number("commit_cycles", 0.01, 1000)))
        row.close()
    return tuple(sorted(found, key=lambda r: r.bits))


def _points(table: _Table, key: str) -> tuple[tuple[float, float], ...]:
    """A curve: pairs of numbers with rising first member; empty where the machine has no such effect."""
    value = table.figure(key)
    good = isinstance(value, list) and all(
        isinstance(p, list) and len(p) == 2 and all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in p)
        for p in value
    )
    if not isinstance(value, list) or not good or any(not 0 < p[1] <= 1 for p in value):
        raise table.error(f"{key}.value", "a list of [slack, share from 0 to 1] pairs", value)
    if any(a[0] >= b[0] for a, b in zip(value, value[1:], strict=False)):
        raise table.error(f"{key}.value", "pairs with rising slack", value)
    return tuple((float(x), float(y)) for x, y in value)


def _caches(top: _Table) -> tuple[CacheLevel, ...]:
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
        )
        row.close()
        found.append(level)
    for inner, outer in zip(found, found[1:], strict=False):
        if inner.size_bytes >= outer.size_bytes or inner.name == outer.name:
            raise top.error(f"caches.{outer.name}.size_bytes", f"more than {inner.name}'s", outer.size_bytes)
    return tuple(found)


def _dram(table: _Table) -> Dram:
    dram = Dram(
        table.figure_number("gb_s_core", 0.01, 1e6),
        table.figure_number("gb_s_socket", 0.01, 1e6),
        table.figure_number("latency_ns", 0.1, 1e6),
    )
    if dram.gb_s_socket < dram.gb_s_core:
        raise table.error("gb_s_socket.value", f"at least gb_s_core ({dram.gb_s_core:g})", dram.gb_s_socket)
    table.close()
    return dram


def _instructions(table: _Table, core: Core) -> dict[tuple[str, str], InstructionTiming]:
    found: dict[tuple[str, str], InstructionTiming] = {}
    for row in table.tables("rows"):
        timing = _instruction(row, core)
        key = (timing.mnemonic, timing.form)
        if key in found:
            raise row.error("form", "one row for each form", f"{key[0]} {key[1]} twice")
        found[key] = timing
    table.close()
    return found


def _instruction(row: _Table, core: Core) -> InstructionTiming:
    mnemonic, form = row.text("mnemonic"), row.text("form")
    row.key = f"instructions.{mnemonic} {form}"
    uops = row.raw("uops")
    if not isinstance(uops, list):
        raise row.error("uops", "a list of lists of ports", uops)
    ports = [port for port in core.ports if port not in core.load_ports]  # loads are the memory operand's
    choices = tuple(row._strings(f"uops[{i}]", uop, ports) for i, uop in enumerate(uops))
    if not all(choices):
        raise row.error("uops", "at least one port for each uop", uops)
    eliminated = row.raw("eliminated") if row.has("eliminated") else False
    if not isinstance(eliminated, bool):
        raise row.error("eliminated", "true or false", eliminated)
    latency = row.number("latency", 0, 10_000)
    timing = InstructionTiming(
        mnemonic=mnemonic,
        form=form,
        latency=latency,
        slots=row.integer("slots", 0, 1000),
        uops=choices,
        occupancy=row.integer("occupancy", 1, 1000) if row.has("occupancy") else 1,
        interval=row.number("interval", 0, 100_000) if row.has("interval") else 0.0,
        accumulator_latency=row.number("accumulator_latency", 0, 10_000) if row.has("accumulator_latency") else latency,
        eliminated=eliminated,
        provenance=row.provenance(),
    )
    row.close()
    return timing
