"""A Program's instructions as the steps that the core model reads, with the loop control that a compiler would emit.

Loop control is no part of a Program, so it is chosen here, as compilers emit it: every iteration of a loop that runs
more than once moves its pointers with one `add` each and ends with a fused `dec`/`jnz`. A pointer serves all accesses
to a tensor that differ by a constant (the displacement). It is moved in a loop whose variable it depends on, and in one
around such a loop, where the add also takes it back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

from isa_models.formats import fmt
from simdnn.program.records import Loop, Memory, Op, Place, Program, Register, Straight
from simdnn.timing.cpu.steps import MemRef, Step

LINE = 64  # bytes
_CONFIGURATION = "tilecfg"  # a register that all tile instructions read


AddressStream = tuple[str, tuple[tuple[str, int], ...]]  # a tensor, and what loops add to the address


class CountedAs(NamedTuple):
    """A key that executions are counted by: the mnemonic that engines count ("" for loop control), the timing row, how
    many different registers are read (one alone can make a zero idiom), and a tile's rows.
    """

    counted: str
    mnemonic: str
    form: str
    sources: int
    rows: int = 0  # of a tile instruction


@dataclass(frozen=True)
class CountedStep:
    """A step, under the mnemonic by which engines count it (empty for loop control)."""

    counted: str
    step: Step

    @cached_property
    def key(self) -> CountedAs:
        return CountedAs(self.counted, self.step.mnemonic, self.step.form, len(set(self.step.reads)), self.step.rows)


def mnemonic(op: Op) -> str:
    """The mnemonic of an op's timing row: a mask needs the EVEX one at any width.

    >>> from simdnn.program import Affine
    >>> word = Register("x", "u32", 4)
    >>> mnemonic(Op("vmovdqu", word, (Memory("a", Affine(), "u32", 3),)))
    'vmovdqu32'
    """
    evex = op.definition.evex
    if op.definition.timed_as:
        return op.definition.timed_as
    return evex if evex and op.masked else op.definition.mnemonic(op.width)


def form(op: Op) -> str:
    """Operand classes in Intel order, destination first.

    >>> from simdnn.program import Affine
    >>> wide, narrow = Register("x", "s32", 16), Memory("c", Affine(), "s8", 16)
    >>> form(Op("vpmovsdb", narrow, (wide,)))
    'm128,zmm'
    >>> form(Op("vmovups", Register("x", "f32", 16), (Memory("a", Affine(), "f32", 5),)))
    'zmm{k},m512'
    """
    definition = op.definition
    if definition.configures:
        return f"m{op.width}"
    if definition.ahead:
        return "m8"
    lanes = [op.lanes, *(definition.operand_lanes(o, op.lanes) for o in definition.operands)]
    if definition.partial:
        lanes = [place.lanes for place in (op.dst, *op.srcs)]
    classes = [_operand(place, count) for place, count in zip((op.dst, *op.srcs), lanes, strict=True)]
    if definition.tile:
        classes = [f"m{op.width}" if isinstance(place, Memory) else "tmm" for place in (op.dst, *op.srcs)]
    if definition.destructive:
        del classes[1]  # the destination itself
    if definition.flags:
        del classes[0]
    if definition.mask:  # a blend's table rows stand without it
        classes[:2] = [classes[0] if definition.selects else f"{classes[0]}{{k}}"]
    if definition.memory == "masked":  # the mask is an operand, after the destination
        classes.insert(1, next(c for c in classes if not c.startswith("m")))
    elif op.masked:
        classes[0] += "{k}"
    return ",".join([*classes, *("i8" for _ in op.immediates)])


def _operand(place: Place, lanes: int) -> str:
    if isinstance(place, Memory):
        return f"m{lanes * fmt(place.dtype).bits}"
    if fmt(place.dtype).is_truth:
        return "k"
    return "zmm" if place.bits > 256 else "ymm" if place.bits > 128 else "xmm"


class Stream:
    """The lines of one program; `masks_reach`: whether it matters where an access under a mask would cross lines."""

    def __init__(self, program: Program, masks_reach: bool = True) -> None:
        self.program, self.masks_reach = program, masks_reach
        stored, loaded = set[str](), set[str]()
        for ops, _ in program.straight:
            for memory, stores, op, *_ in ops.alike:
                if stores:
                    stored.add(memory.tensor)
                elif not op.definition.ahead:
                    loaded.add(memory.tensor)
        self.both = stored & loaded  # tensors through which a store may feed a load

    def line(self, op: Op, at: Mapping[str, int], moving: str = "") -> CountedStep:
        """The line of an op where the variables stand `at`; `moving` is the variable of the loop that repeats it."""
        placed = self.placed(op)
        address, strides = self.address(op)
        if address is None:
            return placed
        known, steps = placed.step, dict(strides)
        ref = known.load or known.store
        assert ref is not None  # it has an address
        address += sum(step * at.get(name, 0) for name, step in strides)
        ref = replace(ref, address=address, step=steps.get(moving, 0))
        load, store = (ref, None) if known.load else (None, ref)
        return CountedStep(placed.counted, replace(known, load=load, store=store))

    def placed(self, op: Op) -> CountedStep:
        """The line of an op without an address."""
        fixed = _line_of(op)
        if crossing := self.crossing(op):
            others = self._beside(op, crossing)
            fixed = CountedStep(fixed.counted, replace(fixed.step, crossing=crossing, others=others))
        if not (memory := self._shared(op)):
            return fixed
        ref = MemRef(memory.tensor, None, memory.bits // memory.rows // 8 + abs(self._reach(memory)))
        load, store = (ref, None) if fixed.step.load else (None, ref)
        return CountedStep(fixed.counted, replace(fixed.step, load=load, store=store))

    def keys(self, ops: Straight) -> tuple[object, ...]:
        """For each op a key that is equal for ops whose lines are equal: its form, and what its place adds to it."""
        key_of: dict[int, object] = {}
        for memory, _, op, _, places in ops.alike:
            shared = memory.tensor in self.both
            of_memory = (memory.tensor, self._reach(memory)) if shared else ("", 0)
            for place in places if shared or self._may_cross(op) else ():
                rows = self.crossing(ops[place])
                if shared or rows:
                    key_of[place] = ops.forms[place], *of_memory, rows, self._beside(op, rows)
        return tuple([key_of.get(place, number) for place, number in enumerate(ops.forms)]) if key_of else ops.forms

    def address(self, op: Op) -> tuple[int | None, tuple[tuple[str, int], ...]]:
        """The address in bytes where all variables are zero, and what a step of each adds; None where nothing else in
        the program touches the same bytes.
        """
        if not (memory := self._shared(op)):
            return None, ()
        first, unit, strides = self.placement(memory)
        return first + memory.index.const * unit, strides

    def placement(self, memory: Memory) -> tuple[int, int, tuple[tuple[str, int], ...]]:
        """The address in bytes of an operand whose index is zero, the bytes of an element, and what a step of each
        variable adds.
        """
        unit = self.program.tensor[memory.tensor].element_bytes
        strides = tuple([(name, coefficient * unit) for name, coefficient in memory.index.terms])
        return min(0, self._reach(memory)), unit, strides

    def _shared(self, op: Op) -> Memory | None:
        """The memory operand of an op whose tensor is both stored to and loaded from."""
        memory = op.memory
        return memory if memory is not None and memory.tensor in self.both else None

    @cached_property
    def others(self) -> float:
        """Loads of tiles whose rows lie in a line each, for each one with rows in two."""
        loads = [0, 0]  # without, with
        for ops, times in self.program.straight:
            for op in ops:
                if op.definition.tile and op.memory is not None and op.memory is not op.dst:
                    loads[self.crossing(op) > 0] += times
        return loads[0] / max(1, loads[1])

    def _beside(self, op: Op, crossing: int) -> float:
        """The other loads of tiles for a tile with rows in two lines."""
        return self.others if crossing and op.definition.tile else 0.0

    def _may_cross(self, op: Op) -> bool:
        return op.definition.tile or self.masks_reach and op.masked

    def crossing(self, op: Op) -> int:
        """About how many rows of a tile in memory lie in two lines each, wherever loops move it; of an access under a
        mask, whether most of those of the register do.
        """
        memory = op.memory
        if memory is None or not self._may_cross(op):
            return 0
        unit = self.program.tensor[memory.tensor].element_bytes
        moves = math.gcd(LINE, *[step * unit for _, step in memory.index.terms])
        apart, size = memory.stride * unit if memory.rows > 1 else 0, op.reach // memory.rows // 8
        return _crossing_rows(memory.index.const * unit % LINE, apart % LINE, memory.rows, size, moves)

    def _reach(self, memory: Memory) -> int:
        """Bytes from a tile's first row to its last."""
        return (memory.rows - 1) * memory.stride * self.program.tensor[memory.tensor].element_bytes

    def pointers(self, loop: Loop) -> int | None:
        """The address streams that the end of a loop has to move; None where it runs once, and so has no end."""
        return len(self._streams[id(loop)]) if loop.extent > 1 else None

    @cached_property
    def _streams(self) -> dict[int, set[AddressStream]]:
        """For each loop, by its identity, the address streams below it that move in it or in a loop inside."""
        streams: dict[int, set[AddressStream]] = {}
        _collect_streams(self.program.parts, streams, [], {})
        return streams

    def control(self, loop: Loop) -> tuple[CountedStep, ...]:
        """The steps that end each iteration of a loop."""
        pointers = self.pointers(loop)
        return () if pointers is None else _control(loop.var, pointers)


def _collect_streams(
    parts: Sequence[Straight | Loop],
    found: dict[int, set[AddressStream]],
    around: list[set[AddressStream]],
    depth_of: dict[str, int],
) -> None:
    """Add to `found` the streams of loops among parts; `around`: those of the loops around them, `depth_of`: the depths
    of those that run more than once.
    """
    for part in parts:
        if type(part) is Loop:
            around.append(set())
            if part.extent > 1:
                depth_of[part.var] = len(around) - 1
            _collect_streams(part.parts, found, around, depth_of)
            depth_of.pop(part.var, None)
            moved = found[id(part)] = around.pop()
            if around:
                around[-1] |= moved
            continue
        for memory, *_ in part.alike:  # type: ignore[union-attr]  # ops
            moving = [depth_of[name] for name, _ in memory.index.terms if name in depth_of]
            if moving:
                around[max(moving)].add((memory.tensor, memory.index.terms))


@lru_cache(maxsize=1024)
def _crossing_rows(start: int, apart: int, rows: int, size: int, moves: int) -> int:
    """Rows of `size` bytes that cross from a line to the next, where loops move the first by multiples of `moves`."""
    places = [(start + row * apart + move) % LINE for row in range(rows) for move in range(0, LINE, moves)]
    return round(sum([place + size > LINE for place in places]) * moves / LINE)


@lru_cache(maxsize=1024)
def _control(variable: str, pointers: int) -> tuple[CountedStep, ...]:
    names = [f"{variable}.{i}" for i in range(pointers)]
    adds = [Step("add", "r64,i32", (name,), (name,)) for name in names]
    counter = (f"{variable}.count",)
    steps = [*adds, Step("dec", "r64", counter, counter), Step("jnz", "rel")]
    return tuple(CountedStep("", step) for step in steps)


_KNOWN: dict[int, CountedStep] = {}  # by the form of the op
_MOST_KNOWN = 1 << 16


def _line_of(op: Op) -> CountedStep:
    key = op.form.number
    if key not in _KNOWN:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = _line(op)
    return _KNOWN[key]


def _line(op: Op) -> CountedStep:
    """A step whose memory operand has no address: never the same bytes as another."""
    clears = op.definition.tile and op.is_zero_idiom
    reads = tuple(p.name for p in op.srcs if isinstance(p, Register) and not clears)
    writes = (op.dst.name,) if isinstance(op.dst, Register) else ()
    if op.definition.ahead:
        writes = ()
    elif op.definition.configures:
        writes = (_CONFIGURATION,)
    elif op.definition.tile:
        reads = (*reads, _CONFIGURATION)
    accumulator = writes[0] if writes and op.definition.accumulates else None
    memory = op.memory
    ref = MemRef("", None, 0) if memory is not None else None  # how many bytes matters to those that meet others alone
    stores = memory is not None and memory is op.dst
    load, store = (None, ref) if stores else (ref, None)
    step = Step(mnemonic(op), form(op), reads, writes, accumulator, load, store, op.rows)
    return CountedStep(op.definition.mnemonic(op.width), step)
