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
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from math import inf
from pathlib import Path
from typing import TypeVar

from isa_models.display import InNotebooks
from isa_models.errors import UnknownTiming, nearest, unknown_name
from isa_models.identity import Identical
from isa_models.machines.provenance import Confidence, Provenance, weakest, weakest_below
from isa_models.machines.shipped import lists_row, machine_names

#: in which order a tile dot product adds up a row's products (`isa_models.x86.amx`); the first unless a machine says
AMX_ACCUMULATIONS = ("even_odd", "sequential")


#: "banks": the bank in which least waits and there the first port, unless that or the bank has far more; without banks
#: the port with the fewest. "pairs": uops at even places of the dispatch group go to that port, those at odd ones to
#: the next, unless that has three more. "order": places take the ports of a uop in turn so, of more than two all but
#: the one with the most
BINDINGS = ("banks", "pairs", "order")


#: mnemonics that no VEX instruction has, of those that also work on 128 and 256 bits
_EVEX_ALONE = re.compile(
    r"vmovdq[ua](8|16|32|64)|vp(and|andn|or|xor)[dq]|vpternlog[dq]|vperm[it]2\w+|vpblendm\w|vblendmp[sd]|valign[dq]"
    r"|vpmov(us|s)?(db|dw|qb|qw|qd|wb)|vpmov([bwdq]2m|m2[bwdq])|vrndscale\w+|vscalef\w+|vrange\w+|vget(exp|mant)\w+"
    r"|v(broadcast|extract|insert)[fi](32|64)x[248]|vcvtne\w+|vdpbf16ps|vcvt\w*u(dq|qq)2?\w*|vcompress\w+|vexpand\w+"
    r"|vp(compress|expand)\w+|vshuff(32|64)x[24]|vshufi(32|64)x[24]|vpror\w+|vprol\w+|vscatter\w+|vpscatter\w+|vp(max|min)[su]q"
)


@dataclass(frozen=True, slots=True)
class InstructionTiming(InNotebooks):
    """The cost of one instruction form on one machine.

    Loads and stores are not among `uops`: the form's memory operand says that they happen (`load_bits`, `store_bits`)
    and `Core` what they cost.
    """

    mnemonic: str
    form: str
    latency: float  # cycles from the last register operand to the result; what a load adds is in `Core.loads`
    slots: int  # places taken in the dispatch group and the reorder buffer (fused uops)
    uops: tuple[tuple[str, ...], ...]  # for each uop the ports that can run it; none: done at rename
    occupancy: int  # cycles that each uop holds its port (2: a 512-bit operation on a 256-bit unit)
    interval: float  # cycles between two of this mnemonic beyond what ports explain (dividers, microcode); 0: none
    accumulator_latency: float  # cycles from the accumulator (addend) to the result
    eliminated: bool  # a register move done by renaming: no uop, no latency
    provenance: Provenance
    load_bits: int = field(init=False)
    store_bits: int = field(init=False)
    vector_bits: int = field(init=False)  # of the widest register; 0: no vector register
    tile: bool = field(init=False)  # whether the figures are those of a full tile
    mask: bool = field(init=False)  # whether its result is in a mask register
    evex: bool = field(init=False)  # encoded so whatever its registers are

    def __post_init__(self) -> None:
        load_bits, store_bits, vector_bits = form_widths(self.mnemonic, self.form)
        object.__setattr__(self, "load_bits", load_bits)
        object.__setattr__(self, "store_bits", store_bits)
        object.__setattr__(self, "vector_bits", vector_bits)
        object.__setattr__(self, "tile", "tmm" in self.form.split(","))
        object.__setattr__(self, "mask", self.form.split(",")[0] == "k")
        evex = vector_bits == 512 or "{k}" in self.form or "bcst" in self.form
        object.__setattr__(self, "evex", evex or bool(_EVEX_ALONE.fullmatch(self.mnemonic)))

    @property
    def confidence(self) -> Confidence:
        return self.provenance.confidence

    @property
    def source(self) -> str:
        return self.provenance.source


#: what a form does not say: whether a first operand in memory is written, as all others write it. These work on general
#: registers, and nobody here defines them, so there is no definition to ask
_ONLY_READ = frozenset("bt cmp div idiv imul jmp ldtilecfg mul nop test".split())
_ONLY_READ |= frozenset(f"prefetch{where}" for where in ("nta", "t0", "t1", "t2", "w", "wt1"))
_READ_AND_WRITTEN = frozenset(
    "adc add and btc btr bts dec inc neg not or rcl rcr rol ror sar sbb shl shld shr shrd sub xadd xchg xor".split()
)


@functools.lru_cache(maxsize=1 << 14)  # machines have the same forms
def form_widths(mnemonic: str, form: str) -> tuple[int, int, int]:
    """Bits loaded, bits stored, and bits of the widest vector register of a form.

    >>> form_widths("vpmovsdb", "m128,zmm")
    (0, 128, 512)
    >>> form_widths("vaddps", "ymm,ymm,m256")
    (256, 0, 256)
    """
    load = store = vector = 0
    for position, operand in enumerate(form.split(",")):
        if memory := re.match(r"m(\d+)", operand):
            bits = int(memory[1])
            writes = position == 0 and mnemonic not in _ONLY_READ
            store = bits if writes else store
            load = bits if not writes or mnemonic in _READ_AND_WRITTEN else load
        vector = max(vector, {"x": 128, "y": 256, "z": 512}.get(operand[:1], 0) if operand[1:3] == "mm" else 0)
    return load, store, vector


@dataclass(frozen=True, slots=True)
class Scheduler:
    """A pool of waiting uops in front of some ports.

    `queue` uops can wait in order before it. `banks`, where given, are its two halves of `size` entries each.
    """

    name: str
    ports: tuple[str, ...]
    size: int
    queue: int
    banks: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class LoadWidth:
    """Loads of up to `bits`; `general`: into general registers, where a machine tells them from vector loads."""

    bits: int
    pipes: float  # load pipes that one takes; 1.5: it takes one, but only two of three pipes can
    latency: float  # cycles, load to use
    forward_latency: float  # cycles from the data of a store still in flight to the use
    blocked_latency: float  # from the commit of a store that wrote only a part of what is read to the use
    general: bool = False
    crossing_pipes: float = 0.0  # the least pipes that an access across two lines takes
    crossing_latency: float = 0.0  # cycles that such an access takes longer
    update_latency: float | None = None  # as forward_latency, of an operation of a register on memory; None: the same


@dataclass(frozen=True, slots=True)
class StoreWidth:
    """Stores of up to `bits`: cycles that one holds the commit of the store queue (1/2: two a cycle)."""

    bits: int
    commit_cycles: float
    other_line_cycles: float  # of one alone, where two commit together to one line only (else as commit_cycles)
    general: bool = False  # from general registers, where a machine tells them from vector stores
    crossing_cycles: float = 0.0  # of one that crosses from a line to the next
    load_pipes: float = 0.0  # what it takes of the load pipes, on the average
    addresses: int = 1  # of the units that form addresses, where a machine tells them


@dataclass(frozen=True, slots=True)
class Crowding:
    """Shares of a cycle that loads, stores and operations of `bits` take, all together, of what the core moves at once.

    So a core may do less than its ports could. Operations by latency: `simple` ones of a cycle, and shuffles of up to
    three on one port; `add` to `add_cycles`, `multiply` four, `product` more. `beside`: what a simple operation gives
    back for which there is a multiplication.
    """

    bits: int
    load: float
    store: float
    simple: float
    add: float
    multiply: float
    product: float
    beside: float
    add_cycles: float = 3.0

    def kind(self, latency: float, one_port: bool) -> str:
        """Which of the shares is an operation's uop's."""
        if latency <= 1 or one_port and latency <= 3:
            return "simple"
        return "add" if latency <= self.add_cycles else "multiply" if latency <= 4 else "product"


@dataclass(frozen=True, slots=True)
class TileStores:
    """How many cycles a store of a tile takes more that comes later than `after` cycles behind the last one."""

    after: float = inf
    cycles: float = 0.0


@dataclass(frozen=True, slots=True)
class TileCrossing:
    """How much longer a load of a tile takes for rows that cross from a line to the next.

    That is `each` cycles a row, or `cycles` a row less `spared`, whichever is more; past the first cache `past` a row.
    """

    each: float = 0.0
    cycles: float = 0.0
    spared: float = 0.0
    past: float = 0.0

    def longer(self, rows: int, past: bool) -> float:
        """The cycles of a number of such rows; `past`: of a load past the first cache."""
        return self.past * rows if past else max(self.each * rows, self.cycles * rows - self.spared)


@dataclass(frozen=True, slots=True)
class OtherUnit:
    """How much later operations of 512 bits on the second of two units for them have an operand of the first one.

    Those of one cycle, and those whose mnemonics `spares` matches (patterns as in a shell), lose nothing.
    """

    cycles: float = 0.0
    spares: tuple[str, ...] = ()
    half_cycles: float = 0.0  # that those lose whose mnemonics `halves` matches
    halves: tuple[str, ...] = ()
    slow_on_first: tuple[str, ...] = ()  # those take the cycles longer on the first unit, whatever their operands
    slow_on_second: tuple[str, ...] = ()

    def cycles_on(self, row: InstructionTiming) -> float:
        """The cycles that an instruction takes longer on the second unit, below 0: on the first."""
        slow = [any(fnmatchcase(row.mnemonic, name) for name in of) for of in (self.slow_on_second, self.slow_on_first)]
        return self.cycles * (slow[0] - slow[1]) if row.vector_bits == 512 else 0.0

    def cycles_to(self, row: InstructionTiming) -> float:
        """The cycles that an instruction loses so."""
        if row.vector_bits < 512 or row.latency <= 1:
            return 0.0
        if any(fnmatchcase(row.mnemonic, name) for name in self.halves):
            return self.half_cycles
        spared = any(fnmatchcase(row.mnemonic, name) for name in self.spares)
        return 0.0 if spared or self.cycles_on(row) else self.cycles


@dataclass(frozen=True, slots=True)
class NarrowMasks:
    """Cycles that a mask adds to operations on elements of less than 32 bits, whether it merges or zeroes.

    `cycles` of the mnemonics `of` (patterns as in a shell); `half_cycles` of `halves`, up to 256 bits.
    """

    cycles: float = 0.0
    of: tuple[str, ...] = ()
    half_cycles: float = 0.0
    halves: tuple[str, ...] = ()

    def cycles_of(self, mnemonic: str, form: str) -> float:
        """Cycles by which the masked form of an instruction takes longer.

        >>> from isa_models import machine
        >>> masks = machine("gnr").core.narrow_masks
        >>> masks.cycles_of("vpaddb", "zmm{k},zmm,zmm"), masks.cycles_of("vpaddd", "zmm{k},zmm,zmm")
        (2, 0.0)
        """
        if any(fnmatchcase(mnemonic, name) for name in self.of):
            return self.cycles
        halves = not form.startswith("zmm") and any(fnmatchcase(mnemonic, name) for name in self.halves)
        return self.half_cycles if halves else 0.0


@dataclass(frozen=True, slots=True)
class LateResults:
    """Cycles that results of up to 256 bits of the mnemonics `of` (patterns as in a shell) come later to all others."""

    cycles: float = 0.0
    of: tuple[str, ...] = ()

    def cycles_of(self, row: InstructionTiming) -> float:
        """Cycles by which the result of an instruction is late; 0 of one that such a result reaches in its latency."""
        late = 0 < row.vector_bits < 512 and any(fnmatchcase(row.mnemonic, name) for name in self.of)
        return self.cycles if late else 0.0


Width = TypeVar("Width", LoadWidth, StoreWidth)


def _of_width(rows: tuple[Width, ...], bits: int, general: bool) -> Width:
    """The narrowest row that holds `bits`; a machine without rows for general registers has one kind."""
    mine = [row for row in rows if row.general == general] or [row for row in rows if not row.general]
    return next((row for row in mine if bits <= row.bits), mine[-1])


@dataclass(frozen=True, slots=True, repr=False)
class Core:
    """The out-of-order core: what `simdnn.timing.cpu.pipeline` needs beside the instruction rows."""

    dispatch_slots: int
    retire_slots: int
    reorder_buffer: int
    load_queue: int
    store_queue: int
    vector_registers: Mapping[int, int]  # architectural registers by vector bits
    ports: tuple[str, ...]
    load_ports: tuple[str, ...]
    store_data_ports: tuple[str, ...]
    store_address_ports: tuple[str, ...]
    schedulers: tuple[Scheduler, ...]
    loads: tuple[LoadWidth, ...]
    stores: tuple[StoreWidth, ...]
    zero_idioms: frozenset[str]  # with one source register twice: no uop, no dependence
    ports_lost_to_512: tuple[str, ...]  # closed to vector uops while 512-bit instructions are in flight
    addend_chain_use: tuple[tuple[float, float], ...]  # (slack in cycles a step, share of the ports reached)
    splits_indexed: int = 0  # operations on memory at two registers are two, with fewer before them in a group; 0: one
    exposes_work: bool = False  # where a transfer takes longer than the work beside it, that share of the work shows
    narrow_as_512: bool = False  # beside 512-bit instructions narrow ones run on the ports of their own 512-bit form
    ports_lost_to_tiles: tuple[str, ...] = ()  # beside tiles, to 512-bit uops whose 256-bit form doesn't run there
    ones_idioms: frozenset[str] = frozenset()  # with one source register twice: no dependence
    uop_cache_line: int = 0  # slots of a loop that come from the uop cache in a cycle, none across its end; 0: any
    uop_cache_evex: int = 0  # EVEX instructions behind a line's first that take a further place of it together; 0: none
    address_units: int = 0  # that loads and stores take in turn, wide loads two at once; 0: each pipe has its own
    loads_of_a_place: int = 0  # loads a cycle that read one byte of their lines; 0: any
    binding: str = "banks"  # how a uop gets its port: one of `BINDINGS`
    crowding: tuple[Crowding, ...] = ()  # of the widths that crowd each other
    other_unit: OtherUnit = OtherUnit()
    tile_stores: TileStores = TileStores()
    tile_crossing: TileCrossing = TileCrossing()
    late_results: LateResults = LateResults()
    narrow_masks: NarrowMasks = NarrowMasks()
    destination_ignored: tuple[str, ...] = ()  # mnemonics (patterns) that don't wait for what a mask lets them keep
    destination_awaited: tuple[str, ...] = ()  # mnemonics (patterns) that wait for what they overwrite
    lanes_as_loads: tuple[str, ...] = ()  # mnemonics (patterns) whose lanes are loads of one place
    microcode_slots: int = 0  # from which one has dispatch groups for itself, and below which it is in one; 0: neither
    mask_registers: int = 0  # that masks and results in flight share; 0: never too few
    result_ports: tuple[str, ...] = ()  # that yield one result a cycle: a second one comes in the next that is free
    retire_delay: int = 0  # cycles from a result to its retirement at least
    loop_buffer: tuple[tuple[int, int], ...] = ()  # (slots up to which a loop is kept so, its copies there)

    def __repr__(self) -> str:
        width = f"{self.dispatch_slots} slots a cycle, {self.reorder_buffer} in flight"
        return f"Core({width}, ports {' '.join(self.ports)}, {len(self.schedulers)} schedulers)"

    def loop_copies(self, slots: int) -> int:
        """How often the loop buffer holds a loop of some fused slots; a dispatch group ends with the last copy.

        0: the buffer doesn't hold it, and groups go on across its end.

        >>> from isa_models import machine
        >>> machine("icx").core.loop_copies(10), machine("skx").core.loop_copies(10)
        (3, 0)
        """
        return next((copies for most, copies in self.loop_buffer if slots <= most), 0)

    def ignores_destination_of(self, mnemonic: str) -> bool:
        """Whether an instruction doesn't wait for what its destination, its first written register, held before."""
        return any(fnmatchcase(mnemonic, name) for name in self.destination_ignored)

    def awaits_destination_of(self, mnemonic: str) -> bool:
        """Whether an instruction waits for what its destination held before, though nothing of it stays."""
        return any(fnmatchcase(mnemonic, name) for name in self.destination_awaited)

    def lanes_of(self, row: InstructionTiming) -> int:
        """The lanes of an instruction that are loads of one place, 0 of all others."""
        if not any(fnmatchcase(row.mnemonic, name) for name in self.lanes_as_loads):
            return 0
        return row.vector_bits // row.load_bits

    def load_share(self, load: LoadWidth) -> float:
        """The share of the pipes together that a load takes: where two pipes of three take wide ones, two wide ones
        leave no room for a third, and one leaves room for two others.
        """
        pipes = len(self.load_ports)
        wide = max((row.pipes for row in self.loads if row.pipes % 1), default=load.pipes)
        return load.pipes if load.pipes == wide or pipes == 1 else (pipes - wide) / (pipes - 1)

    def load(self, bits: int, general: bool = False) -> LoadWidth:
        """The cost of a load of `bits`."""
        return _of_width(self.loads, bits, general)

    def store(self, bits: int, general: bool = False) -> StoreWidth:
        """The cost of a store of `bits`."""
        return _of_width(self.stores, bits, general)


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
    set_cycles: float = 0.0  # from a new line of a set to the next one there; 0: not known to be slower than others
    ways: int = 0  # lines of a set; 0: which set a line goes to is not known (hashed), so lines spread evenly
    stores_apart: tuple[tuple[float, float], ...] = ()  # (bytes from a stored line to the next, share of the rate)
    keeps: tuple[tuple[float, float], ...] = ((1.0, 1.0),)  # (lines for a place, share that stays) of a cyclic walk
    own_ghz: float = 0.0  # the core's clock at which rates and latency are as told, of a level that does not go by it

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
    latency_ns: float
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
            f"Machine({self.name!r}: {self.title}; {self.cores} cores at {self.frequency.base_ghz} GHz, up to "
            f"{self.isa[-1]}; {caches}; {len(self.instructions):,} instruction forms; {self.path.name})"
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
