"""A CPU's core as its machine file tells it: dispatch, ports, schedulers, loads, stores, and what was measured beyond.

Each mechanism that some cores have is a record of its own with its figures, and a default that does nothing; which core
has which, and by what measurement, is in docs/core_model.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from math import inf
from typing import TypeVar

from isa_models.machines.instruction_row import InstructionTiming

#: "banks": two banks behind a queue by turns and by what waits (docs/validation/cpu-loops.md), other ports by the
#: fewest that wait. "halves": as banks, but until half of their entries are taken by places alone, and from then on in
#: turn (docs/validation/zen3.md). "pairs": uops at even places of the dispatch group go to that port, those at odd
#: ones to the next, unless that has three more. "order": places take the ports of a uop in turn so, of more than two
#: all but the one with the most
BINDINGS = ("banks", "halves", "pairs", "order")


@lru_cache(maxsize=1 << 14)
def is_among(mnemonic: str, patterns: tuple[str, ...]) -> bool:
    """Whether a mnemonic is one of some patterns, as in a shell."""
    return any(fnmatchcase(mnemonic, pattern) for pattern in patterns)


@dataclass(frozen=True, slots=True)
class Scheduler:
    """A pool of waiting uops in front of some ports.

    `queue` uops can wait in order before it. `banks`, where given, are its two halves of `size` entries each. `dealt`:
    each port has `size` entries, and takes one operation of a dispatch group; those of `beside` take one more, of
    operations that run on these alone.
    """

    name: str
    ports: tuple[str, ...]
    size: int
    queue: int
    banks: tuple[tuple[str, ...], ...]
    dealt: bool = False
    beside: tuple[str, ...] = ()

    @property
    def is_split(self) -> bool:
        """Whether it has two banks behind a queue."""
        return self.queue > 0 and len(self.banks) > 1


@dataclass(frozen=True, slots=True)
class LoadWidth:
    """Loads of up to `bits`; `general`: into general registers, where a machine tells them from vector loads."""

    bits: int
    pipes: float  # load pipes that one takes; 0.5: two take one; 1.5: it takes one, but only two of three pipes can
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
    entries: int = 1  # of the store queue, and times in which its data are read


@dataclass(frozen=True, slots=True)
class Crowding:
    """Shares of a cycle that loads, stores and operations of `bits` take, all together, of what the core moves at once.

    So a core may do less than its ports could. Operations by latency: `simple` ones of a cycle, and shuffles of up to
    three on one port; `add` three, or the mnemonics `adds` (patterns as in a shell), `multiply` four, `product` more.
    `beside`: what a simple operation gives back for which there is a multiplication. `vain`: a load that comes again
    (`load_replay`), each time. `narrower`: all that is narrower counts as well, general registers too. `half`: the
    first uop of the mnemonics `halves`, which is that of the unit for f16.
    """

    bits: int
    load: float
    store: float
    simple: float
    add: float
    multiply: float
    product: float
    beside: float
    vain: float = 0.0
    adds: tuple[str, ...] = ()
    narrower: bool = False
    half: float = 0.0
    halves: tuple[str, ...] = ()

    def counts(self, bits: int) -> bool:
        """Whether an access or a register of `bits` takes these shares."""
        return bits == self.bits or self.narrower and bits < self.bits

    def kind(self, row: InstructionTiming, one_port: bool, first: bool) -> str:
        """Which of the shares is that of a uop of an operation, the first one or another."""
        if first and is_among(row.mnemonic, self.halves):
            return "half"
        if row.latency <= 1 or one_port and row.latency <= 3:
            return "simple"
        if is_among(row.mnemonic, self.adds) if self.adds else row.latency <= 3:
            return "add"
        return "multiply" if row.latency <= 4 else "product"


@dataclass(frozen=True, slots=True)
class TileRests:
    """How many cycles a store of a tile takes more that comes later than `after` cycles behind the last one, and a
    product of tiles behind the last one. The mnemonics `awake` (patterns as in a shell) count as stores of tiles do.
    """

    after: float = inf
    store: float = 0.0
    product: float = 0.0
    awake: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Translation:
    """How many pages a core has the addresses of, and the cycles of one more where it goes through as many."""

    pages: float = inf
    cycles: float = 0.0


@dataclass(frozen=True, slots=True)
class TileCrossing:
    """How much longer a load of a tile takes for rows that cross from a line to the next.

    That is `each` cycles a row, or `cycles` a row less `spared` for the load and for each other one that comes with it,
    whichever is more; past the first cache `past` a row, less `hidden` for each other load.
    """

    each: float = 0.0
    cycles: float = 0.0
    spared: float = 0.0
    past: float = 0.0
    hidden: float = 0.0

    def longer(self, rows: int, past: bool, others: float) -> float:
        """The cycles of a number of such rows; `past`: of a load past the first cache; `others`: loads of tiles without
        such rows for each one with some.
        """
        cycles, spared = (self.past, self.hidden * others) if past else (self.cycles, self.spared * (1 + others))
        return max(self.each * rows, cycles * rows - spared)


@dataclass(frozen=True, slots=True)
class OtherUnit:
    """How much later operations of 512 bits on the second of two units for them have an operand of the first one.

    Those of one cycle, those into masks, and those whose mnemonics `spares` matches (patterns as in a shell) lose
    nothing.
    """

    cycles: float = 0.0
    spares: tuple[str, ...] = ()
    half_cycles: float = 0.0  # that those lose whose mnemonics `halves` matches
    halves: tuple[str, ...] = ()
    slow_on_first: tuple[str, ...] = ()  # those take the cycles longer on the first unit, whatever their operands
    slow_on_second: tuple[str, ...] = ()

    def cycles_on(self, row: InstructionTiming) -> float:
        """The cycles that an instruction takes longer on the second unit, below 0: on the first."""
        slow = [is_among(row.mnemonic, of) for of in (self.slow_on_second, self.slow_on_first)]
        return self.cycles * (slow[0] - slow[1]) if row.vector_bits == 512 else 0.0

    def cycles_to(self, row: InstructionTiming) -> float:
        """The cycles that an instruction loses so."""
        if row.vector_bits < 512 or row.latency <= 1 or row.form[0] == "k":
            return 0.0
        if is_among(row.mnemonic, self.halves):
            return self.half_cycles
        spared = is_among(row.mnemonic, self.spares)
        return 0.0 if spared or self.cycles_on(row) else self.cycles


OF_INTEGERS, OF_PRODUCTS, OF_HALVES, NEUTRAL = 1, 2, 4, 8  # kinds of results, as bits
SHORT = 3  # cycles of shuffles and sums, and of operations on integers but products
_MASKED = re.compile(r"[xyz]mm\{k\}")


@dataclass(frozen=True, slots=True)
class NarrowMasks:
    """Cycles that a mask adds to operations on elements of less than 32 bits, whether it merges or zeroes.

    `cycles` of the mnemonics `of` (patterns as in a shell); `half_cycles` of `halves`, up to 256 bits; `product_cycles`
    of `products`, in Galois fields and of complex numbers.
    """

    cycles: float = 0.0
    of: tuple[str, ...] = ()
    half_cycles: float = 0.0
    halves: tuple[str, ...] = ()
    product_cycles: float = 0.0
    products: tuple[str, ...] = ()

    def cycles_of(self, mnemonic: str, form: str) -> float:
        """Cycles by which a form takes longer than that without a mask; 0 of one that has none.

        >>> from isa_models import machine
        >>> masks = machine("gnr").core.narrow_masks
        >>> masks.cycles_of("vpaddb", "zmm{k},zmm,zmm"), masks.cycles_of("vpaddd", "zmm{k},zmm,zmm")
        (2, 0.0)
        """
        if not _MASKED.match(form):
            return 0.0
        if is_among(mnemonic, self.products):
            return self.product_cycles
        if is_among(mnemonic, self.of):
            return self.cycles
        halves = not form.startswith("zmm") and is_among(mnemonic, self.halves)
        return self.half_cycles if halves else 0.0


@dataclass(frozen=True, slots=True)
class LateResults:
    """Cycles that results of up to `bits` of the mnemonics `of` (patterns as in a shell) come later to all others."""

    cycles: float = 0.0
    of: tuple[str, ...] = ()
    bits: int = 256

    def cycles_of(self, row: InstructionTiming) -> float:
        """Cycles by which the result of an instruction is late; 0 of one that such a result reaches in its latency."""
        late = 0 < row.vector_bits <= self.bits and is_among(row.mnemonic, self.of)
        return self.cycles if late else 0.0


@dataclass(frozen=True, slots=True)
class Bypass:
    """Cycles that operations take longer whose operand comes from another kind of unit, whichever operand that is.

    Patterns as in a shell name the operations by the kind of their results. `floats` take longer behind `integers`,
    behind `neutral` ones on `ports`, and behind `halves`; `integers` and `neutral` ones behind `floats` and `products`
    where they run on `ports` themselves, and behind `halves`; f16 arithmetic, among `halves`, behind `floats` and
    `products`; others of up to `SHORT` cycles behind `halves`.
    Where 512 bits are at work that is so from one of the two wide units to the other, `back_cycles` to the first, and
    others, too, take longer behind `floats` and `products`. `own_results`: those and `halves` have ways of their own to
    where results go (`Core.result_ports`).
    """

    cycles: int = 0
    back_cycles: int = 0
    ports: tuple[str, ...] = ()
    integers: tuple[str, ...] = ()
    neutral: tuple[str, ...] = ()
    floats: tuple[str, ...] = ()
    products: tuple[str, ...] = ()
    halves: tuple[str, ...] = ()
    own_results: bool = False
    by_operand: bool = False  # what waits for such an operand is that operand alone

    def yields(self, row: InstructionTiming) -> int:
        """The kinds of an instruction's result, as bits; a mask or a general register has none."""
        if row.form[0] not in "xyz":
            return 0
        kinds = (
            (OF_INTEGERS, self.integers),
            (OF_PRODUCTS, self.floats + self.products),
            (OF_HALVES, self.halves),
            (NEUTRAL, self.neutral),
        )
        return sum(kind for kind, patterns in kinds if is_among(row.mnemonic, patterns))

    def hinders(self, row: InstructionTiming, wide: bool) -> int:
        """The kinds of operands behind which an instruction takes longer, as bits; `wide`: beside 512 bits."""
        if not self.cycles or not row.vector_bits:
            return 0
        if is_among(row.mnemonic, self.floats) and row.form[0] != "k":  # comparisons into masks have a shuffle's port
            return OF_INTEGERS + OF_HALVES + NEUTRAL
        if is_among(row.mnemonic, self.halves):
            return OF_PRODUCTS
        if row.latency > SHORT:
            return 0
        if wide or is_among(row.mnemonic, self.integers) or is_among(row.mnemonic, self.neutral):
            return OF_PRODUCTS + OF_HALVES
        return OF_HALVES * (row.form[0] != "r")


@dataclass(frozen=True, slots=True)
class ThirdOperands:
    """Operations that read a third operand by the way by which their bank reads what is stored.

    Those are the mnemonics `of` (patterns as in a shell), and all that merge behind a mask, but `spared` ones. Where
    `fresh_is_free`, a store does not need the way for what a unit yields in the same cycle; where `addend_is_free`, an
    operation that adds to that does not.
    """

    of: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()
    fresh_is_free: bool = False
    addend_is_free: bool = False

    def has(self, mnemonic: str, merges: bool) -> bool:
        """Whether an operation is one of them.

        >>> from isa_models import machine
        >>> third = machine("zen4").core.third_operands
        >>> third.has("vpdpbusd", False), third.has("vmulps", True), third.has("vmulps", False)
        (True, True, False)
        """
        if not self.of:
            return False
        return is_among(mnemonic, self.of) or merges and not is_among(mnemonic, self.spared)


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
    masks_reach: bool = False  # an access under a mask crosses lines as far as its register reaches
    exposes_work: bool = False  # where a transfer takes longer than the work beside it, that share of the work shows
    narrow_as_512: bool = False  # beside 512-bit instructions narrow ones run on the ports of their own 512-bit form
    ports_lost_to_tiles: tuple[str, ...] = ()  # beside tiles, to 512-bit uops whose 256-bit form doesn't run there
    ones_idioms: frozenset[str] = frozenset()  # with one source register twice: no dependence
    uop_cache_line: int = 0  # slots of a loop that come from the uop cache in a cycle, none across its end; 0: any
    uop_cache_evex: int = 0  # EVEX instructions behind a line's first that take a further place of it together; 0: none
    address_units: int = 0  # that loads and stores take in turn, wide loads two at once; 0: each pipe has its own
    commit_bytes: int = 0  # stores commit together, and as two, by aligned pieces of these; 0: by lines
    composed_address: int = 0  # cycles that one of a scaled index, or of three parts, takes longer
    memory_slots: tuple[str, ...] = ()  # patterns: take a second slot with any memory operand (`second_slot`)
    loads_of_a_place: int = 0  # loads a cycle that read one byte of their lines; 0: any
    load_replay: int = 0  # cycles until one more comes again; 0: it waits
    binding: str = "banks"  # how a uop gets its port: one of `BINDINGS`
    crowding: tuple[Crowding, ...] = ()  # of the widths that crowd each other
    other_unit: OtherUnit = OtherUnit()
    tile_rests: TileRests = TileRests()
    tile_crossing: TileCrossing = TileCrossing()
    translation: Translation = Translation()
    late_results: LateResults = LateResults()
    bypass: Bypass = Bypass()
    narrow_masks: NarrowMasks = NarrowMasks()
    third_operands: ThirdOperands = ThirdOperands()
    destination_awaited: tuple[str, ...] = ()  # mnemonics (patterns) that wait for what they overwrite
    split_updates: tuple[str, ...] = ()  # mnemonics (patterns) whose store and load are apart: no `update_latency`
    late_flags: tuple[str, ...] = ()  # mnemonics (patterns) behind whose flags what reads them in their group is longer
    lanes_as_loads: tuple[str, ...] = ()  # mnemonics (patterns) whose lanes are loads of one place
    lane_crossers: tuple[str, ...] = ()  # mnemonics (patterns) of 256 bits whose intervals are those of one unit
    microcode_slots: int = 0  # from which one has dispatch groups for itself, and below which it is in one; 0: neither
    mask_registers: int = 0  # that masks and results in flight share; 0: never too few
    vector_registers: int = 0  # for results of vectors in flight; 0: never too few
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

    def awaits_destination_of(self, mnemonic: str) -> bool:
        """Whether an instruction waits for what its destination held before, though nothing of it stays."""
        return is_among(mnemonic, self.destination_awaited)

    def is_split_update(self, mnemonic: str) -> bool:
        """Whether an operation on memory loads and stores as a load and a store of their own do."""
        return is_among(mnemonic, self.split_updates)

    def shares_result(self, row: InstructionTiming) -> bool:
        """Whether a result waits for a cycle in which its port yields no other (`result_ports`).

        Those of general registers and of sums (`late_results`) have ways of their own, and some of `bypass`.
        """
        of_products = self.bypass.own_results and self.bypass.yields(row) & (OF_PRODUCTS | OF_HALVES)
        apart = self.late_results.cycles_of(row) > 0 or of_products
        return not apart and (row.vector_bits > 0 or "k" in row.form.split(","))

    def late_to_stores(self, row: InstructionTiming) -> float:
        """Cycles by which a store has what an instruction yields later than others of its kind: of sums as
        `late_results` says, of products of 512 bits as long as the way to another kind of unit (`bypass`).
        """
        wide = row.vector_bits == 512 and self.bypass.yields(row) & OF_PRODUCTS
        return self.late_results.cycles_of(row) + (self.bypass.cycles if wide else 0)

    def second_slot(self, row: InstructionTiming, indexed: bool) -> bool:
        """Whether an instruction of general registers takes a second slot for its memory operand; `indexed`: that is at
        two registers. Where `memory_slots` names mnemonics those do, and so do all that load and store, that work on
        what they load at two registers, or store there.

        >>> from isa_models import machine
        >>> zen3 = machine("zen3")
        >>> add = zen3.timing("add", "r64,m64")
        >>> zen3.core.second_slot(add, True), zen3.core.second_slot(add, False)
        (True, False)
        """
        if not self.memory_slots or row.vector_bits or row.slots != 1 or not (row.load_bits or row.store_bits):
            return False
        updates, named = row.load_bits and row.store_bits, is_among(row.mnemonic, self.memory_slots)
        return bool(updates or named or indexed and (row.store_bits or row.uops))

    def unit_of(self, row: InstructionTiming) -> str:
        """The unit that a row's interval keeps busy: what crosses from lane to lane has one, others go by their row.

        Those of microcode have theirs from there: two cycles from one to the next.
        """
        crosses = max(row.vector_bits, row.load_bits) == 256 and row.slots < self.microcode_slots
        return "crossing of lanes" if crosses and is_among(row.mnemonic, self.lane_crossers) else row.unit

    def lanes_of(self, row: InstructionTiming) -> int:
        """The lanes of an instruction that are loads of one place, 0 of all others."""
        if not is_among(row.mnemonic, self.lanes_as_loads):
            return 0
        return row.vector_bits // row.load_bits

    def load_share(self, load: LoadWidth) -> float:
        """The share of the pipes together that a load takes: where two pipes of three take wide ones, two wide ones
        leave no room for a third, and one leaves room for two others.
        """
        pipes = len(self.load_ports)
        wide = max((row.pipes for row in self.loads if row.pipes > 1 and row.pipes % 1), default=load.pipes)
        return load.pipes if load.pipes == wide or pipes == 1 else (pipes - wide) / (pipes - 1)

    def load(self, bits: int, general: bool = False) -> LoadWidth:
        """The cost of a load of `bits`."""
        return _of_width(self.loads, bits, general)

    def store(self, bits: int, general: bool = False) -> StoreWidth:
        """The cost of a store of `bits`."""
        return _of_width(self.stores, bits, general)
