"""Machines as data: one TOML file each in `isa_models/machines`, with a source and a confidence for every figure.

    >>> from isa_models import machine
    >>> zen4 = machine("zen4")
    >>> zen4.timing("vpdpbusd", "zmm,zmm,zmm").latency
    4
    >>> zen4.cache("L2").size_bytes
    1048576

A *form* is the operand classes in Intel order, destination first, joined by commas: ``zmm,zmm,m512`` (with a load),
``m512{k},zmm`` (a masked store), ``zmm,zmm,m32bcst`` (an embedded broadcast), ``r64,i8``. AMX tiles: ``tmm,tmm,tmm``,
``tmm,m8192`` (tileloadd), ``m8192,tmm`` (tilestored), ``tmm`` (tilezero) and ``m512`` (ldtilecfg). `machine_schema`
reads the file; a figure's standing is kept by its dotted key in `Machine.provenance`.

A row with a ``tmm`` gives the figures of a full tile of 16 rows; of fewer, an instruction takes as much less of its
port (`occupancy`) and its unit (`interval`), and its latency is shorter by what the port saves. Memory operands of
tiles are a load or store of 512 bits for each row (`Core.loads`, `Core.stores`), so they need no uops. That the time
goes by rows is an estimate, from a unit that takes a row of its first source at a time. The unit wants a port of its
own (with a scheduler): ``{mnemonic = "tdpbf16ps", form = "tmm,tmm,tmm", latency = 52, slots = 1, uops = [["TMUL"]],
occupancy = 16, accumulator_latency = 16, …}``.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import gcd
from pathlib import Path

from isa_models.errors import UnknownTiming, counted, nearest, unknown_name
from isa_models.keywords import keywords_of_methods
from isa_models.machines.core_record import Core
from isa_models.machines.identity import Identical
from isa_models.machines.instruction_row import InstructionTiming
from isa_models.machines.provenance import Confidence, Provenance, weakest, weakest_below
from isa_models.machines.shipped import lists_row, machine_names
from isa_models.records.display import InNotebooks

#: in which order a tile dot product adds up a row's products (`isa_models.x86.amx`); the first unless a machine says
AMX_ACCUMULATIONS = ("even_odd", "sequential")


@dataclass(frozen=True, slots=True)
class CacheLevel(InNotebooks):
    """One cache level, as one core sees it."""

    name: str
    size_bytes: int  # of one instance
    line_bytes: int
    shared_by: int  # cores of one instance
    load_bytes_per_cycle: float  # towards the core, of one core
    store_bytes_per_cycle: float
    latency_cycles: float  # load to use
    exposed: float = 0.0  # share of its transfers' time that is not hidden behind the core's work
    exposed_to_tiles: float = 0.0  # the same of what tile instructions move
    exposed_fetched: float = 0.0  # the same of lines that a program fetches ahead of their loads
    exposed_walked: float = 0.0  # the same of lines that it reads in part, row after row
    exposed_streamed: float = 0.0  # the same of long runs of lines in order, beside no stores but near ones
    exposed_narrow: float = 0.0  # the same as `exposed` beside registers of 256 bits at most
    set_cycles: float = 0.0  # from a new line of a set to the next one there; 0: not known to be slower than others
    banks: int = 1  # which lines go to in turn
    bank_cycles: float = 0.0  # from a line of a bank to the next one there
    ways: int = 0  # lines of a set; 0: which set a line goes to is not known (hashed), so lines spread evenly
    stores_apart: tuple[tuple[float, float], ...] = ()  # (the first cache's sets that lines go to, share of the rate)
    loads_apart: tuple[tuple[float, float], ...] = ()  # (lines modulo `BANKS` that loads ask for, share of the rate)
    keeps: tuple[tuple[float, float], ...] = ((1.0, 1.0),)  # (lines for a place, share that stays) of a cyclic walk
    fill_cycles: float = 0.0  # that its loads wait for a line to come from the next level
    own_ghz: float = 0.0  # the core's clock at which rates and latency are as told, of a level that does not go by it

    def places(self, stride: int) -> tuple[int, int]:
        """How many sets and banks lines some bytes apart lie in, where neighbours lie in the next ones."""
        sets = self.size_bytes // (self.line_bytes * max(1, self.ways))
        if stride % self.line_bytes:
            return sets, self.banks
        lines = stride // self.line_bytes
        return sets // gcd(lines, sets), self.banks // gcd(lines, self.banks)

    def beside(self, ghz: float) -> CacheLevel:
        """The level beside a core at a clock: one that goes by another moves fewer bytes in shorter cycles."""
        if not self.own_ghz:
            return self
        share = self.own_ghz / ghz
        rates = {name: getattr(self, name) * share for name in ("load_bytes_per_cycle", "store_bytes_per_cycle")}
        return replace(self, **rates, latency_cycles=self.latency_cycles / share)


@dataclass(frozen=True, slots=True)
class Dram:
    """Main memory: 1e9 bytes per second, of one core alone and of a whole socket."""

    gb_s_core: float
    gb_s_socket: float
    exposed: float = 0.0  # as a cache level's


@dataclass(frozen=True, slots=True)
class Frequency:
    """Core clock in GHz by kind of code: the widest registers in use, and what is done there.

    None where it isn't known to differ. Heavy use of 512 bits is multiply-adds and sums of products.
    """

    base_ghz: float
    avx2_ghz: float | None
    avx512_ghz: float | None  # heavy use, and light use where that is not known apart
    avx512_light_ghz: float | None = None
    amx_ghz: float | None = None  # while tiles are in use

    def figure(self, vector_bits: int = 128, heavy: bool = True, tiles: bool = False) -> str:
        """The name of the figure by which code of a kind runs: the first of its kind that is known."""
        names = ["amx_ghz"] if tiles else []
        if vector_bits >= 512:
            names += ["avx512_ghz"] if heavy or tiles else ["avx512_light_ghz", "avx512_ghz"]
        elif vector_bits >= 256:
            names += ["avx2_ghz"]
        return next((name for name in names if getattr(self, name)), "base_ghz")

    def ghz(self, vector_bits: int = 128, heavy: bool = True, tiles: bool = False) -> float:
        """The clock while registers of `vector_bits` are in use, heavy use unless told, or tiles."""
        return float(getattr(self, self.figure(vector_bits, heavy, tiles)))


@keywords_of_methods
@dataclass(frozen=True, slots=True, eq=False)
class Machine(Identical):
    """One machine: a CPU core with its instruction table, caches, memory and clock."""

    name: str
    title: str
    vendor: str
    uarch: str
    isa: tuple[str, ...]
    cores: int
    frequency: Frequency
    core: Core
    caches: tuple[CacheLevel, ...]
    dram: Dram
    instructions: Mapping[tuple[str, str], InstructionTiming] = field(repr=False)
    provenance: Mapping[str, Provenance] = field(repr=False)  # of figures but those of rows, "caches.L2.size_bytes"
    path: Path
    amx_accumulation: str = AMX_ACCUMULATIONS[0]

    def __repr__(self) -> str:
        caches = ", ".join(f"{level.name} {level.size_bytes >> 10:,} KiB" for level in self.caches)
        return (
            f"Machine({self.name!r}: {self.title}; {counted(self.cores, 'core')} at {self.frequency.base_ghz} GHz, "
            f"up to {self.isa[-1]}; {caches}; {len(self.instructions):,} instruction forms; {self.path.name})"
        )

    def supports(self, isa: str) -> bool:
        """Whether the machine has an ISA cap of oneDNN's names."""
        return isa in self.isa

    def cache(self, name: str) -> CacheLevel:
        """A cache level by name; `UnknownName` where the machine lacks it."""
        for level in self.caches:
            if level.name == name:
                return level
        raise unknown_name(f"cache of {self.name}", name, [level.name for level in self.caches])

    def has(self, mnemonic: str, form: str) -> bool:
        """Whether the table holds a row."""
        return (mnemonic, form) in self.instructions

    def timing(self, mnemonic: str, form: str) -> InstructionTiming:
        """The row of one instruction form; `UnknownTiming` names the nearest form and the machines that have it."""
        row = self.instructions.get((mnemonic, form))
        if row is None:
            raise unknown_timing(self, mnemonic, form)
        return row

    def confidence_of(self, *keys: str) -> Confidence:
        """The weakest standing among figures named by dotted keys; a key that ends a level covers all below it.

        >>> from isa_models import machine
        >>> machine("zen4").confidence_of("caches.L2.load_bytes_per_cycle")
        'measured'
        """
        return weakest([weakest_below(self, key) for key in keys])


def unknown_timing(target: Machine, mnemonic: str, form: str) -> UnknownTiming:
    """The error for a missing row: what the machine has that is near, and who has the row."""
    text = f"machine {target.name!r} has no timing for '{mnemonic} {form}'"
    forms = [f for m, f in target.instructions if m == mnemonic]
    if forms:
        near = difflib.get_close_matches(form, forms, n=1, cutoff=0.0) or forms[:1]
        text += f"; nearest form there: {near[0]!r}"
    else:
        near = nearest(mnemonic, {m for m, _ in target.instructions})
        text += f"; nearest mnemonic there: {near[0]!r}" if near else ""
    others = [name for name in machine_names() if name != target.name and lists_row(name, mnemonic, form)]
    return UnknownTiming(f"{text}; machines that have it: {', '.join(others) if others else 'none'}")
