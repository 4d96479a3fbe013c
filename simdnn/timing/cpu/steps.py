"""The clock's input: a stream of instruction steps, and the steps lowered to what a core sees of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from isa_models.instruction import TILE_ROWS, instruction
from isa_models.machines.core_record import Core, LoadWidth, StoreWidth, is_among
from isa_models.machines.cpu_record import Machine
from isa_models.machines.instruction_row import InstructionTiming
from isa_models.records.display import Brief

_NARROW = re.compile(r"\br(8|16|32)\b")
_FUSED = [
    f"f{sign}m{operation}{order}" for sign in ("", "n") for operation in ("add", "sub") for order in (132, 213, 231)
]
_OF_ALL_NUMBERS = {  # sums and products of one number, and of all
    f"v{operation}s{kind}": f"v{operation}p{kind}"
    for operation in ("add", "sub", "mul", "max", "min", *_FUSED)
    for kind in "sdh"
}
_NOT_OF_VEX = frozenset(f"{kind}mm{number}" for kind in "xyz" for number in range(16, 32))  # that take an EVEX prefix
FLAG = "%"  # begins the name of a group of flags among registers
OWN_WAY, THIRD, STORED = range(3)  # what an operation reads by the way that third operands and stores' data share


@dataclass(frozen=True, slots=True)
class MemRef:
    """A memory operand.

    `address` is a byte offset into `tensor`; None: never the same bytes as another reference. `step` is what a loop
    adds to it each iteration. `registers` form the address (empty: known early, as with pointers that only count up).
    """

    tensor: str
    address: int | None
    bytes: int
    step: int = 0
    registers: tuple[str, ...] = ()
    indexed: bool = False  # formed of two registers
    composed: bool = False  # of an index times more than one, or of three parts


@dataclass(frozen=True, slots=True)
class Step:
    """One executed instruction: its timing row's key, the registers read and written, and its memory operand.

    `accumulator` is a register among `reads` that is needed late: the addend of a fused multiply-add or dot product.

    >>> Step("vfmadd231ps", "zmm,zmm,zmm", ("acc", "a", "b"), ("acc",), "acc").accumulator
    'acc'
    """

    mnemonic: str
    form: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    accumulator: str | None = None
    load: MemRef | None = None
    store: MemRef | None = None
    rows: int = 0  # of a tile instruction's destination (stores: source): what its time goes by
    crossing: int = 0  # rows in memory that lie in two lines each, those of an access under a mask among them
    others: float = 0.0  # loads of tiles without such rows for each one with some


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CoreOp(Brief):
    """A step as one core handles it: fused, renamed, its ports numbered. Equal steps have one, which is kept."""

    row: InstructionTiming
    steps: int  # 2 where two were fused
    slots: int
    uops: tuple[tuple[int, ...], ...]  # ports by number
    occupancy: int
    latency: float
    accumulator_gain: float  # cycles by which the accumulator may come later than the other operands
    interval: float
    unit: str  # that the interval keeps busy
    reads: tuple[str, ...]  # registers needed early
    accumulator: str | None
    writes: tuple[str, ...]
    moves: str | None  # an eliminated move: the writes become other names of this register
    load: MemRef | None
    load_pipes: float
    load_share: float  # of what the load pipes move together in a cycle, in pipes
    crossing_pipes: float  # of a load that crosses from a line to the next
    crossing_latency: float  # cycles that it takes longer
    load_latency: float
    forward_latency: float  # of a store to what loads it, or of a load from what stored it: the longer counts
    blocked_latency: float
    store: MemRef | None
    store_addresses: int  # units that form addresses which its store takes
    store_entries: int  # of the store queue
    way: int  # what it reads by the way of its bank: `OWN_WAY` (nothing), `THIRD` or `STORED`
    commit_cycles: float
    other_line_cycles: float  # of the commit, where it isn't joined by one to the same line
    crossing_cycles: float  # of the commit of a store that crosses from a line to the next
    from_other_unit: float  # cycles that an operand takes longer from the first to the second unit for wide operations
    on_other_unit: float  # cycles that it takes longer on the second one, below 0: on the first
    late_result: float  # cycles that its result comes later to operations without such results
    late_stored: float  # and to stores
    shares_result: bool  # whether its port yields it in a cycle without another (`Core.shares_result`)
    flags: int  # that it reads, the last of `reads`
    late_flags: bool  # whether those that it sets are read late in its dispatch group
    yields: int  # kinds of its result, as bits
    hindered: int  # kinds of operands behind which it takes longer, as bits
    bypass_wide: bool  # where that goes by the units for 512 bits
    masks: int  # mask registers that it takes until it retires
    vectors: int  # and those of vectors
    split: int  # of one fused that goes into the core as two: its group has fewer ops before it; 0: it is one

    only_loads: bool = field(init=False, repr=False)  # nothing is done with what is loaded
    evex: bool = field(init=False, repr=False)  # whether it is encoded so

    def __post_init__(self) -> None:
        waits = self.uops or self.store or self.latency or self.reads or self.accumulator is not None
        object.__setattr__(self, "only_loads", self.load is not None and not waits)
        object.__setattr__(self, "evex", self.row.evex or not _NOT_OF_VEX.isdisjoint((*self.reads, *self.writes)))


def lower(machine: Machine, steps: Sequence[Step]) -> list[CoreOp]:
    """The ops of a stream on a machine: branches and nops fused, moves and zero idioms gone, closed ports left out.

    Raises `UnknownTiming` for a step whose row the machine lacks.
    """
    rows = [machine.timing(*key) for key in {(step.mnemonic, step.form) for step in steps}]
    wide, tiles = any(row.vector_bits == 512 for row in rows), any(row.tile for row in rows)
    met: dict[tuple[int, str], CoreOp] = {}  # by identity, which costs less than to compare
    found: list[CoreOp] = []
    index = 0
    while index < len(steps):
        step, jump = steps[index], ""
        if index + 1 < len(steps):
            jump = fused_with(machine, step, steps[index + 1])
        key = id(step), jump
        found.append(met.get(key) or met.setdefault(key, core_op(machine, step, jump, wide, tiles)))
        index += 2 if jump else 1
    return found


def fused_with(machine: Machine, step: Step, behind: Step) -> str:
    """The part that a branch or nop adds to the mnemonic of the step before it; "" where they are not fused."""
    if behind.form != "rel" and behind.mnemonic != "nop":
        return ""
    jump = "+" + behind.mnemonic
    return jump if machine.has(step.mnemonic + jump, _fused_form(step.form)) else ""


def _fused_form(form: str) -> str:
    """The form under which a table lists an integer operation fused with a jump: registers of any width are one."""
    return _NARROW.sub("r64", form)


def _as_wide(machine: Machine, row: InstructionTiming, wide: bool) -> InstructionTiming:
    """The row whose ports and latency a row has: a narrow one beside 512-bit registers may run on their units."""
    if not wide or not 0 < row.vector_bits < 512 or not machine.core.narrow_as_512:
        return row
    twin = machine.instructions.get(_twin(row.mnemonic, row.form))
    return twin if twin is not None and len(twin.uops) == len(row.uops) else row


def _open_ports(machine: Machine, row: InstructionTiming, wide: bool, tiles: bool) -> Iterator[tuple[str, ...]]:
    """For each uop of a row the ports that 512-bit instructions and tiles beside it leave open."""
    core = machine.core
    lost: tuple[str, ...] = core.ports_lost_to_512 if wide and row.vector_bits else ()
    if tiles and row.vector_bits == 512 and core.ports_lost_to_tiles:
        narrow = machine.instructions.get((row.mnemonic, _at_width(row.form, 256)))
        own = {port for uop in narrow.uops for port in uop} if narrow else set(core.ports)
        lost += tuple(port for port in core.ports_lost_to_tiles if port not in own)
    for uop in _as_wide(machine, row, wide).uops:
        yield tuple(port for port in uop if port not in lost) or uop


def _twin(mnemonic: str, form: str) -> tuple[str, str]:
    """An instruction at 512 bits, of one number the one that works on all; memory changes no port.

    >>> _twin("vaddps", "ymm,ymm,m256"), _twin("vfmadd231ss", "xmm,xmm,m32")
    (('vaddps', 'zmm,zmm,m512'), ('vfmadd231ps', 'zmm,zmm,zmm'))
    """
    if mnemonic in _OF_ALL_NUMBERS:
        return _OF_ALL_NUMBERS[mnemonic], "zmm,zmm,zmm"
    return mnemonic, _at_width(form, 512)


def _at_width(form: str, bits: int) -> str:
    """A form with all its vector registers, of one width, at another; "" where they are of several.

    >>> _at_width("ymm,ymm,m256", 512), _at_width("zmm,ymm", 256)
    ('zmm,zmm,m512', '')
    """
    if len(set(re.findall(r"[xyz]mm", form))) != 1:
        return ""
    register = {256: "ymm", 512: "zmm"}[bits]
    return re.sub(r"\bm(128|256|512)\b", f"m{bits}", re.sub(r"[xyz]mm", register, form))


def _has_three_sources(step: Step) -> bool:
    """Whether a load and operation is more than one entry can name: an address at two registers, and not the
    destination for the other source (as in ``add r64,m64`` and the legacy ``addps xmm,m128``).
    """
    joined = step.form.count(",") == 1 and set(step.writes) <= set(step.reads)
    return step.load is not None and step.load.indexed and not joined


#: what a move or a zero idiom lacks that is gone before it reaches a unit
_NO_WORK: Mapping[str, Any] = {
    **{"uops": (), "latency": 0, "interval": 0, "from_other_unit": 0.0, "on_other_unit": 0.0},
    **{"late_result": 0.0, "late_stored": 0.0, "yields": 0, "hindered": 0, "vectors": 0},
}


@lru_cache(maxsize=1 << 16)  # kernels are lowered over and over from the same steps
def core_op(machine: Machine, step: Step, jump: str, wide: bool, tiles: bool) -> CoreOp:
    """One step with its row, fused with the `jump` behind it; `wide`, `tiles`: beside 512-bit registers, and tiles."""
    core = machine.core
    kind = _kind(machine, step.mnemonic, step.form, jump, wide, tiles)
    row, load, store = kind.row, kind.load, kind.store
    idiom = "" if row.load_bits else _idiom(core, step)
    moves = step.reads[0] if row.eliminated and len(step.reads) == 1 else None
    rows = step.rows or kind.full  # a tile's memory operand is one of 512 bits for each row
    occupancy, latency = _busy(core, kind, step, rows)
    crossing = step.crossing if row.tile or core.masks_reach else 0
    split = core.splits_indexed if kind.choices and row.slots == 1 and _has_three_sources(step) else 0
    indexed = any(ref is not None and ref.indexed for ref in (step.load, step.store))
    op = CoreOp(
        row=row,
        steps=2 if jump else 1,
        slots=max(1, row.slots) + bool(split) + core.second_slot(row, indexed),
        uops=kind.choices,
        occupancy=store.entries if kind.way == STORED else occupancy,
        latency=latency,
        accumulator_gain=latency - kind.timed.accumulator_latency,
        interval=row.interval * rows / kind.full,
        unit=core.unit_of(row),
        reads=() if idiom else _awaited(kind, step),
        accumulator=step.accumulator,
        writes=step.writes,
        moves=moves,
        load=(step.load or MemRef("?", None, row.load_bits // 8)) if row.load_bits else None,
        load_pipes=_pipes(load, rows) * (1 + (crossing and not row.tile)),
        load_share=kind.load_share * rows,
        crossing_pipes=load.crossing_pipes,
        crossing_latency=load.crossing_latency,
        load_latency=load.latency + (core.composed_address if step.load and step.load.composed else 0),
        forward_latency=max(_forwarded(core, kind, step), kind.stored.forward_latency),
        blocked_latency=load.blocked_latency,
        store=(step.store or MemRef("?", None, row.store_bits // 8)) if row.store_bits else None,
        store_addresses=store.addresses if row.store_bits else 0,
        store_entries=store.entries if row.store_bits else 0,
        way=kind.way_merging if step.writes and step.writes[0] in step.reads else kind.way,
        commit_cycles=store.commit_cycles * (rows + crossing),
        other_line_cycles=store.other_line_cycles * rows,
        crossing_cycles=store.crossing_cycles,
        from_other_unit=kind.from_other_unit,
        on_other_unit=kind.on_other_unit,
        late_result=kind.late_result,
        late_stored=kind.late_stored,
        shares_result=kind.shares_result,
        flags=sum(register[0] == FLAG for register in step.reads) if core.late_flags else 0,
        late_flags=kind.late_flags,
        yields=kind.yields,
        hindered=kind.hindered,
        bypass_wide=wide and core.narrow_as_512,
        masks=int(row.mask),
        vectors=sum(register[1:3] == "mm" for register in step.writes),
        split=split,
    )
    return replace(op, **_NO_WORK) if idiom == "zero" or moves is not None else op


def _pipes(load: LoadWidth, rows: int) -> float:
    """The load pipes that a load of some rows takes."""
    return math.floor(load.pipes) if load.pipes % 1 and rows == 1 else load.pipes * rows


def _idiom(core: Core, step: Step) -> str:
    """Whether a step makes its result "zero" or "ones" whatever its operand holds; "" where it does neither."""
    constant = step.form.rpartition(",")[2].startswith("i")  # sub rax, 8 is no zero idiom
    results = [register for register in step.writes if register[0] != FLAG]
    if len(set(step.reads)) != 1 or len(results) != 1 or constant:
        return ""
    return "zero" if step.mnemonic in core.zero_idioms else "ones" if step.mnemonic in core.ones_idioms else ""


def _busy(core: Core, kind: _Kind, step: Step, rows: int) -> tuple[int, float]:
    """The cycles that a step keeps its ports for, and its latency, with a number of rows of a tile."""
    row = kind.row
    occupancy = -(-row.occupancy * rows // kind.full)
    if step.crossing and row.tile and row.load_bits:
        occupancy += round(core.tile_crossing.longer(step.crossing, kind.past, step.others))
    sooner = row.occupancy - occupancy  # a tile with fewer rows is through the unit by so much earlier
    if row.tile and not (row.load_bits or row.store_bits):
        occupancy = row.occupancy  # which a product keeps busy with all rows of its second operand
    return occupancy, kind.timed.latency - sooner


def _awaited(kind: _Kind, step: Step) -> tuple[str, ...]:
    """The registers that a step waits for, each once, but for its accumulator."""
    every = step.reads + (step.writes[:1] if kind.awaits_destination else ())
    return tuple([r for r in dict.fromkeys(every) if r != step.accumulator])


def _forwarded(core: Core, kind: _Kind, step: Step) -> float:
    """The latency of a load from a store before it, which is another where a step updates a place in one."""
    row, load = kind.row, kind.load
    updates = row.load_bits and row.store_bits and step.reads and not core.is_split_update(step.mnemonic)
    return load.update_latency if updates and load.update_latency is not None else load.forward_latency


@dataclass(frozen=True, slots=True, eq=False)
class _Kind:
    """An instruction form on a machine: all that does not depend on the registers it names."""

    row: InstructionTiming
    timed: InstructionTiming  # whose latency it has
    choices: tuple[tuple[int, ...], ...]  # ports of each uop by number
    full: int  # rows of a whole operand
    load: LoadWidth
    store: StoreWidth
    stored: LoadWidth  # of what it stores
    load_share: float
    awaits_destination: bool
    past: bool  # whether its lines pass the first cache by
    way: int
    way_merging: int  # where it keeps what a mask leaves out
    from_other_unit: float
    on_other_unit: float
    late_result: float
    late_stored: float
    shares_result: bool
    late_flags: bool
    yields: int
    hindered: int


@lru_cache(maxsize=1 << 14)
def _kind(machine: Machine, mnemonic: str, form: str, jump: str, wide: bool, tiles: bool) -> _Kind:
    core = machine.core
    row = machine.timing(mnemonic + jump, _fused_form(form) if jump else form)
    number = {port: i for i, port in enumerate(core.ports)}
    choices = tuple([tuple([number[p] for p in uop]) for uop in _open_ports(machine, row, wide, tiles)])
    full = TILE_ROWS if row.tile else 1
    general = not row.vector_bits and not row.tile
    load, store = core.load(row.load_bits // full, general), core.store(row.store_bits // full, general)
    timed = _as_wide(machine, row, wide)
    third = core.third_operands
    way, merging = [THIRD if choices and third.has(mnemonic, merges) else OWN_WAY for merges in (False, row.masked)]
    if third.of and row.vector_bits and row.store_bits and not choices:
        choices, way, merging = (tuple([number[port] for port in core.store_data_ports]),), STORED, STORED
    return _Kind(
        row,
        timed,
        choices,
        full,
        load,
        store,
        core.load(row.store_bits // full, general) if row.store_bits else load,
        core.load_share(load),
        core.awaits_destination_of(mnemonic),
        row.tile and row.load_bits > 0 and instruction(mnemonic).apart,
        way,
        merging,
        core.other_unit.cycles_to(timed) if choices else 0.0,
        core.other_unit.cycles_on(timed) if choices else 0.0,
        core.late_results.cycles_of(timed) if choices else 0.0,
        core.late_to_stores(timed) if choices else 0.0,
        core.shares_result(timed),
        is_among(mnemonic + jump, core.late_flags),
        core.bypass.yields(row) if choices else 0,
        core.bypass.hinders(timed, wide and core.narrow_as_512) if choices else 0,
    )
