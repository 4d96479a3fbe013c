"""A Program's instructions as the steps that the core model reads, with the loop control that a compiler would emit.

Loop control is no part of a Program, so it is chosen here, as compilers emit it: every iteration of a loop that runs
more than once moves its pointers with one `add` each and ends with a fused `dec`/`jnz`. A pointer serves all accesses
to a tensor that differ by a constant (the displacement). It is moved in a loop whose variable it depends on, and in one
around such a loop, where the add also takes it back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from isa_models.formats import fmt
from simdnn.program.records import Loop, Memory, Op, Place, Program, Register, Statement
from simdnn.timing.cpu.steps import MemRef, Step

_CONFIGURATION = "tilecfg"  # a register that all tile instructions read


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
    lanes = [op.lanes, *(definition.operand_lanes(o, op.lanes) for o in definition.operands)]
    if definition.partial:
        lanes = [place.lanes for place in (op.dst, *op.srcs)]
    classes = [_operand(place, count) for place, count in zip((op.dst, *op.srcs), lanes, strict=True)]
    if definition.tile:
        classes = [f"m{op.width}" if isinstance(place, Memory) else "tmm" for place in (op.dst, *op.srcs)]
    if definition.destructive:
        del classes[1]  # the destination itself
    if definition.memory == "masked":  # the mask is an operand, after the destination
        classes.insert(1, next(c for c in classes if not c.startswith("m")))
    elif op.masked:
        classes[0] += "{k}"
    return ",".join([*classes, *("i8" for _ in op.immediates)])


def _operand(place: Place, lanes: int) -> str:
    if isinstance(place, Memory):
        return f"m{lanes * fmt(place.dtype).bits}"
    return "zmm" if place.bits > 256 else "ymm" if place.bits > 128 else "xmm"


class Stream:
    """The lines of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        stored = {op.dst.tensor for op, _ in program.ops() if isinstance(op.dst, Memory)}
        loaded = {p.tensor for op, _ in program.ops() for p in op.srcs if isinstance(p, Memory)}
        self._both = stored & loaded  # tensors through which a store may feed a load
        self._placed: dict[int, tuple[CountedStep, int | None, tuple[tuple[str, int], ...]]] = {}
        self._controls: dict[int, tuple[CountedStep, ...]] = {}

    def line(self, op: Op, at: Mapping[str, int], moving: str = "") -> CountedStep:
        """The line of an op where the variables stand `at`; `moving` is the variable of the loop that repeats it."""
        placed, address, strides = self.placed(op)
        if address is None:
            return placed
        known, steps = placed.step, dict(strides)
        ref = known.load or known.store
        assert ref is not None  # it has an address
        address += sum(step * at.get(name, 0) for name, step in strides)
        ref = replace(ref, address=address, step=steps.get(moving, 0))
        load, store = (ref, None) if known.load else (None, ref)
        return CountedStep(placed.counted, replace(known, load=load, store=store))

    def placed(self, op: Op) -> tuple[CountedStep, int | None, tuple[tuple[str, int], ...]]:
        """The line of an op without an address; apart from it the address in bytes where all variables are zero, and
        what a step of each adds. None where nothing else in the program touches the same bytes.
        """
        found = self._placed.get(id(op))
        if found is None:
            found = self._placed[id(op)] = self._place(op)
        return found

    def _place(self, op: Op) -> tuple[CountedStep, int | None, tuple[tuple[str, int], ...]]:
        fixed, memory = _line_of(op), op.memory
        if memory is None or memory.tensor not in self._both:
            return fixed, None, ()
        unit = fmt(self.program.tensor[memory.tensor].dtype).bits // 8
        reach = memory.stride * (memory.rows - 1) * unit  # a tile's rows, and what is between them
        ref = MemRef(memory.tensor, None, memory.bits // memory.rows // 8 + abs(reach))
        load, store = (ref, None) if fixed.step.load else (None, ref)
        line = CountedStep(fixed.counted, replace(fixed.step, load=load, store=store))
        strides = tuple((name, coefficient * unit) for name, coefficient in memory.index.terms)
        return line, memory.index.const * unit + min(0, reach), strides

    def control(self, loop: Loop) -> tuple[CountedStep, ...]:
        """The steps that end each iteration of a loop."""
        if loop.extent == 1:
            return ()
        if id(loop) not in self._controls:
            names = [f"{loop.var}.{i}" for i in range(len(_pointers(loop)))]
            adds = [Step("add", "r64,i32", (name,), (name,)) for name in names]
            counter = (f"{loop.var}.count",)
            steps = [*adds, Step("dec", "r64", counter, counter), Step("jnz", "rel")]
            self._controls[id(loop)] = tuple(CountedStep("", step) for step in steps)
        return self._controls[id(loop)]


def _pointers(loop: Loop) -> set[tuple[str, tuple[tuple[str, int], ...]]]:
    """The address streams below a loop that its end has to move."""

    def accesses(body: Sequence[Statement], inside: frozenset[str]) -> Iterator[tuple[Memory, frozenset[str]]]:
        for statement in body:
            if isinstance(statement, Loop):
                yield from accesses(statement.body, inside | {statement.var} if statement.extent > 1 else inside)
            elif statement.memory is not None:
                yield statement.memory, inside

    return {
        (memory.tensor, memory.index.terms)
        for memory, inside in accesses(loop.body, frozenset({loop.var}))
        if any(name in inside for name, _ in memory.index.terms)
    }


_KNOWN: dict[tuple[object, ...], CountedStep] = {}  # kernels of many shapes have the same lines, but for addresses
_MOST_KNOWN = 1 << 16


def _line_of(op: Op) -> CountedStep:
    places = tuple(
        (p.dtype, p.lanes, p.rows) if isinstance(p, Memory) else (p.name, p.dtype, p.lanes) for p in (op.dst, *op.srcs)
    )
    kinds = isinstance(op.dst, Memory), op.memory is None
    key = op.instruction, places, kinds, op.immediates, op.choices
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
    if op.definition.configures:
        writes = (_CONFIGURATION,)
    elif op.definition.tile:
        reads = (*reads, _CONFIGURATION)
    accumulator = writes[0] if writes and op.definition.accumulates else None
    memory = op.memory
    ref = MemRef("", None, memory.bits // 8) if memory is not None else None
    stores = memory is not None and memory is op.dst
    load, store = (None, ref) if stores else (ref, None)
    step = Step(mnemonic(op), form(op), reads, writes, accumulator, load, store, op.rows)
    return CountedStep(op.definition.mnemonic(op.width), step)
