"""The fast engine: the program becomes LLVM code, from the same instruction functions.

`native=True` lets the host's own instruction stand in for an instruction's function where the CPU has it (the tests
hold the two equal) and LLVM has more than one operation for it; with "always" it does so wherever it can, and with
`native=False` every instruction is compiled from its function alone.

A program is first compiled optimistically: code that takes the instructions' shortcuts and says at the end whether one
may have been wrong (a NaN, a denormal). Then, and only then, it is run once more from the start, carefully.

Most programs are small and run once, so their code is first made in haste (`hasty`): a call for each instruction. What
runs long, or often, gets better code.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from isa_models.host.forks import ForkLock
from isa_models.host.machine_code import LinkedCode, LinkedFunction, linked
from isa_models.host.memory import address
from isa_models.isa import host_caps
from isa_models.readings.arrays import Array, on_a_line
from isa_models.readings.llvm import ZERO, Carried, Condition, Emitter, LlvmValue, vector_type
from simdnn.numerics import tiles
from simdnn.numerics.ahead import CAP, lines_ahead
from simdnn.numerics.blocks import EngineOrder, order_of, order_of_program
from simdnn.numerics.checked import CheckStage, checks, read_often, tile_sources
from simdnn.numerics.fitted import fitted
from simdnn.numerics.hasty import HastyStage
from simdnn.numerics.masked import is_part, masked_load, masked_store
from simdnn.numerics.matrices import Matrices, by_strips, is_product
from simdnn.numerics.native import Native, stands_in
from simdnn.numerics.operand_addresses import OperandAddresses
from simdnn.numerics.statements import as_wide, cut, spread, tiles_written, turns, writers
from simdnn.numerics.turns import FIRST_OPS, SLICE_S, host_threads, in_turns, shared
from simdnn.program.records import Loop, Memory, Op, Program, Register, Statement, walk
from simdnn.progress import Late

HASTY_OPS = 1 << 22  # instructions that hasty code runs in the time that LLVM takes longer for better code, or less
SHORT_TURNS, SHORT_OPS = 4, 128  # of a loop that is written out, and instructions in all of them
PARTS = 8  # of a stage for each thread: one whose core others use as well takes fewer of them
SHARED_OPS = 1 << 23  # instructions that one core runs in several milliseconds: worth a team

_LOCK = ForkLock()
_CACHE: dict[tuple[str, Native, bool, bool], Compiled] = {}
_EXECUTED: Counter[str] = Counter()  # instructions of all runs of a program, by its signature


@dataclass
class Compiled:
    """Machine code of a program: one function for each top-level statement, over a range of its iterations."""

    stages: list[tuple[Any, int]]  # C function (pointers, from, to), iterations
    counts: list[int]  # for each stage, how many iterations to run in the first call
    library: LinkedCode  # it owns the code
    hasty: bool = False  # whether better code takes its place once the program has run for long
    brief: bool = False  # whether a run is so short that each stage may be a call

    def __post_init__(self) -> None:
        self.brief = all(extent <= count for (_, extent), count in zip(self.stages, self.counts, strict=True))


def execute(program: Program, buffers: dict[str, Array], threads: int = 1, native: Native = True) -> None:
    """Run a verified program over `buffers` (a flat array for each tensor); long ones on all cores of this process."""
    hasty = _in_haste(program)
    if program.executed >= SHARED_OPS:
        threads = max(threads, host_threads())
    if not _run(compile_program(program, native, hasty=hasty), program, buffers, threads):
        for tensor in program.tensors:
            if tensor.kind in ("output", "scratch"):
                buffers[tensor.name].view(np.uint8)[:] = 0
        _run(compile_program(program, native, optimistic=False, hasty=hasty), program, buffers, threads)


def at_once(program: Program, runs: int = 1) -> Compiled | None:
    """Machine code for some runs whose stages are a call each, on one core; None where the program's are not."""
    if program.executed >= SHARED_OPS and host_threads() > 1:
        return None
    code = compile_program(program, hasty=_EXECUTED[program.signature] + runs * program.executed <= HASTY_OPS)
    if not code.brief:
        return None
    if code.hasty:
        _in_haste(program, runs)  # which counts them
    return code


def _in_haste(program: Program, runs: int = 1) -> bool:
    """Whether runs that begin now make do with hasty code: all of the program until then are short together."""
    with _LOCK:
        if (before := _EXECUTED[program.signature]) <= HASTY_OPS:
            _EXECUTED[program.signature] = before = before + runs * program.executed
        return before <= HASTY_OPS


def _run(code: Compiled, program: Program, buffers: dict[str, Array], threads: int) -> bool:
    """Run all stages in turn; False, and at once, where a stage raises the alarm."""
    pointers = _pointers(program, buffers)
    if threads == 1 and code.brief:
        return not any(function(pointers, 0, extent) for function, extent in code.stages)
    began = time.perf_counter()
    total = sum(extent for _, extent in code.stages)
    ran: list[int] = []  # iterations of each call, from whatever thread
    with Late("parts of the kernel's work") as told:

        def heard(work: Any, start: int, stop: int) -> int:
            alarm: int = work(start, stop)
            ran.append(stop - start)
            told(sum(ran), total)
            return alarm

        for (function, extent), count in zip(code.stages, code.counts, strict=True):
            if threads == 1 or extent == 1:
                alarm = in_turns(functools.partial(heard, functools.partial(function, pointers)), 0, extent, count)
            else:
                own = [own_buffers(program, buffers) for _ in range(min(threads, extent))]
                works = [functools.partial(_over, function, _pointers(program, mine), mine) for mine in own]
                alarm = shared([functools.partial(heard, work) for work in works], cuts(extent, PARTS * threads), count)
            if alarm:
                return False
        code.brief |= threads == 1 and time.perf_counter() - began < SLICE_S
        return True


def _over(function: Any, pointers: Any, buffers: object, start: int, stop: int) -> int:
    """A native call that keeps the memory it works on, whoever else has given it up."""
    alarm: int = function(pointers, start, stop)
    return alarm


def _pointers(program: Program, buffers: dict[str, Array]) -> Any:
    return addresses(len(program.tensors))(*(address(buffers[t.name]) for t in program.tensors))


@functools.cache
def addresses(count: int) -> Any:
    """The type of an array of pointers; ctypes forgets it at the next collection of garbage."""
    return ctypes.c_void_p * count


def cuts(extent: int, parts: int) -> list[tuple[int, int]]:
    """The iterations of a stage in parts, from and to; fewer parts where there is less to do.

    >>> cuts(5, 2)
    [(0, 2), (2, 5)]
    """
    parts = min(parts, extent)
    return [(extent * i // parts, extent * (i + 1) // parts) for i in range(parts)]


def own_buffers(program: Program, buffers: dict[str, Array]) -> dict[str, Array]:
    """The buffers as one thread sees them, its private ones beside the shared."""
    return buffers | {t.name: on_a_line(t.size, buffers[t.name].dtype) for t in program.tensors if t.kind == "private"}


def compile_program(program: Program, native: Native = True, optimistic: bool = True, hasty: bool = False) -> Compiled:
    """Machine code for the program, compiled once in a process for each signature (and way)."""
    key = (program.signature, native, optimistic, hasty)
    with _LOCK:
        if key not in _CACHE:
            _CACHE[key] = _compile(program, native, optimistic, hasty)
        return _CACHE[key]


def compile_timed(program: Program, stamped: Collection[int] = ()) -> Compiled:
    """Native code for being timed: it runs a nest's iterations in the program's own order.

    Each iteration of the loops whose `id` is in `stamped` notes the time-stamp counter. The stages then take one more
    pointer behind those to the tensors: to the address of the next note, which they move.
    """
    with _LOCK:
        return _compile(program, "always", True, False, stamped)


def _compile(
    program: Program, native: Native, optimistic: bool, hasty: bool, stamped: Collection[int] | None = None
) -> Compiled:
    """Machine code of a program; `stamped` is None where nobody times it."""
    caps = host_caps() if native else frozenset()
    # What forms no sums, as a copy of weights, is moves: LLVM is soon through with them, and a call of each takes long.
    sums = any(op.definition.accumulates for op, _ in program.ops())
    fast = hasty and sums and not tiles.is_native(program.body, caps)
    sources = read_often(program) if optimistic and stamped is None and not fast else {}
    parts: list[_Stage | HastyStage]
    if fast:
        parts = [HastyStage(program, caps, native, f"stage{i}", s, optimistic) for i, s in enumerate(program.body)]
    else:
        how = optimistic, stamped, native == "always", sources
        parts = [_Stage(program, caps, f"stage{i}", s, *how) for i, s in enumerate(program.body)]
    functions = {name: function for part in parts for name, function in part.functions.items()}
    stages, known = list[_Stage | HastyStage | CheckStage](), set[Condition]()
    for part in parts:
        stages += [*checks(program, part.emitter.asked, known, f"{part.name}_asks"), part]
    declarations = dict.fromkeys(line for stage in stages for line in stage.emitter.declarations)
    declarations |= dict.fromkeys(function.declaration for function in functions.values())
    own = "\n".join(stage.text for stage in stages)
    text = "\n".join([*declarations, *([tiles.COPY] if "@tile.copy" in own else []), own])
    name = f"{program.signature}{native}{optimistic}"
    library = linked(name, text, [stage.name for stage in stages], list(functions.values()), hasty)
    signature = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    entries = [(signature(library[s.name]), s.extent) for s in stages]
    return Compiled(entries, [s.count for s in stages], library, hasty)


class _Stage:
    """LLVM text of one top-level statement: `i32 stageN(ptr pointers, i64 from, i64 to)`, nonzero for an alarm.

    A nest of parallel loops is run over one flat range, so that threads can share it however it is shaped.
    """

    def __init__(
        self,
        program: Program,
        caps: frozenset[str],
        name: str,
        statement: Statement,
        optimistic: bool,
        stamped: Collection[int] | None = None,
        always: bool = False,
        sources: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.program = program
        self.caps, self.always = caps, always
        self.stamped, self.timed = stamped or (), stamped is not None
        self.name = name
        self.emitter = emit = Emitter(optimistic)
        emit.sources = sources
        self.tile_sources = tile_sources((statement,))
        self.places = OperandAddresses(emit, program)
        self.functions: dict[str, LinkedFunction] = {}  # that are called
        self.matrices = Matrices(emit, (statement,))
        self.native_tiles = tiles.is_native((statement,), caps)
        if self.native_tiles:
            emit.line(tiles.configure(self.places.pointers[tiles.shapes(program, statement)]))
        else:
            for tile in tiles_written((statement,)):
                emit.line(f"%{tile} = alloca <{tiles.BITS // 8} x i8>, align 64")
        as_written = self.timed or self.native_tiles
        order = order_of_program(statement) if as_written else order_of(program, statement)
        if not self.timed:
            order = replace(order, body=fitted(order.body))
        self.ahead = lines_ahead(program, order.body) if CAP in caps and not self.timed else {}
        self.extent = turns(order.nest)
        self.count = max(1, FIRST_OPS // sum(times for _, times in walk(order.body)))
        self.flat(order)
        if self.native_tiles:
            emit.line(tiles.RELEASE)
        alarm = emit.alarms.finish() if emit.alarms else "false"
        emit.line(f"ret i32 {emit.value(f'zext i1 {alarm} to i32')}")
        self.functions |= self.matrices.functions
        lines = "\n".join([*self.matrices.allocations, *emit.lines])
        # alignstack: a spilled register that straddles two cache lines costs twice, and how the stack lies is chance.
        head = f"define i32 @{name}(ptr noalias %pointers, i64 %from, i64 %to) nounwind alignstack(64)"
        self.text = f"{head} {{\nentry:\n{lines}\n}}"

    def flat(self, order: EngineOrder) -> None:
        emit, nest, blocks = self.emitter, order.nest, order.blocks

        def inside(counter: str) -> Carried:
            if blocks:
                ahead, behind = nest[: blocks.depth], nest[blocks.depth :]
                outer, inner = cut(emit, counter, turns(ahead), turns(behind), blocks.width)
                variables = spread(emit, outer, ahead) | spread(emit, inner, behind)
            else:
                variables = spread(emit, counter, nest)
            if nest:
                self.stamp(nest[-1])
            self.statements(order.body, variables, {})
            return []

        emit.loop("%from", "%to", inside)

    def statements(self, body: Sequence[Statement], variables: dict[str, str], registers: dict[str, LlvmValue]) -> None:
        for statement in body:
            if isinstance(statement, Loop):
                self.loop(statement, variables, registers)
            else:
                self.op(statement, variables, registers)

    def loop(self, loop: Loop, variables: dict[str, str], registers: dict[str, LlvmValue]) -> None:
        """A loop whose carried registers (defined before, written inside) become phis; a short one as its turns."""
        if self.is_short(loop):
            for turn in range(loop.extent):
                self.stamp(loop)
                self.statements(loop.body, {**variables, loop.var: str(turn)}, registers)
            return
        written = writers(loop.body)
        before = {name: as_wide(registers[name], ops) for name, ops in written.items() if name in registers}
        phis = {n: LlvmValue(self.emitter, self.emitter.name("r"), v.dtype, v.lanes) for n, v in before.items()}
        after: dict[str, LlvmValue] = {}
        for name, phi in phis.items():
            if all(op.is_zero_idiom or (op.definition.steady and op.dst == op.srcs[0]) for op in written[name]):
                for fact in before[name].facts():
                    phi.assure(fact)

        def inside(counter: str) -> Carried:
            self.stamp(loop)
            for place, further in self.ahead.get(id(loop), ()):
                here = self.places.address(place, {**variables, loop.var: counter})
                self.ask(self.emitter.value(f"getelementptr i8, ptr {here}, i64 {further}"), False)
            local = {**registers, **phis}
            self.statements(loop.body, {**variables, loop.var: counter}, local)
            after.update((name, local[name].view(phi.dtype).pad(phi.lanes)) for name, phi in phis.items())
            return [(before[name], phi, after[name]) for name, phi in phis.items()]

        self.emitter.loop("0", str(loop.extent), inside)
        registers.update(after)

    def is_short(self, loop: Loop) -> bool:
        """Whether a loop is written out, where nobody times it: its end, which comes after so few instructions, is hard
        to foretell, and a core that takes the wrong way there loses some twenty cycles.
        """
        straight = all(isinstance(statement, Op) and not statement.definition.tile for statement in loop.body)
        few = loop.extent == 1 or straight and loop.extent * len(loop.body) <= SHORT_OPS
        return not self.timed and few and loop.extent <= SHORT_TURNS

    def stamp(self, loop: Loop) -> None:
        """Note the time at the end of a loop that is `stamped`."""
        if id(loop) not in self.stamped:
            return
        self.emitter.declarations["declare i64 @llvm.readcyclecounter()"] = None
        emit, (slot, place, now, behind) = self.emitter, (self.emitter.name() for _ in range(4))
        emit.line(f"{slot} = getelementptr ptr, ptr %pointers, i64 {len(self.program.tensors)}")
        emit.line(f"{place} = load ptr, ptr {slot}")
        emit.line(f"{now} = call i64 @llvm.readcyclecounter()")
        emit.line(f"store i64 {now}, ptr {place}")
        emit.line(f"{behind} = getelementptr i64, ptr {place}, i64 1")
        emit.line(f"store ptr {behind}, ptr {slot}")

    def op(self, op: Op, variables: dict[str, str], registers: dict[str, LlvmValue]) -> None:
        definition = op.definition
        if definition.configures:
            return
        if definition.tile:
            self.tile(op, variables)
            return
        if is_product(op):
            self.product(op, variables, registers)
            return
        if strips := self.matrices.strips(op):
            by_strips(self.emitter, op, strips, [self.place(place, variables) for place in (op.dst, *op.srcs)])
            return
        values = []
        for operand, place in zip(definition.operands, op.srcs, strict=True):
            lanes = definition.operand_lanes(operand, op.lanes)
            if op.is_zero_idiom:
                continue
            if isinstance(place, Register) and place in self.matrices:
                values.append(self.matrices.read(place, operand.dtype, lanes))
            elif isinstance(place, Register):
                whole = registers[place.name].view(operand.dtype)
                values.append(whole if whole.lanes == lanes else whole.permute(range(lanes)))
            else:
                if definition.ahead:
                    self.ask(self.places.address(place, variables), definition.ahead == "store")
                values.append(self.load(place, lanes, variables))
        result = None
        if op.is_zero_idiom:
            result = LlvmValue(self.emitter, ZERO, definition.result, op.lanes)
        elif definition.native and self.caps:
            immediates = dict(op.immediates)
            result = stands_in(self.emitter, definition, op.width, op.lanes, values, immediates, self.caps, self.always)
        if result is None:
            result = definition.apply(*values, lanes=op.lanes, **op.parameters)
        self.write(op.dst, result, variables, registers)

    def write(
        self, place: Register | Memory, value: LlvmValue, variables: dict[str, str], registers: dict[str, LlvmValue]
    ) -> None:
        """Put a result where it belongs; in a register zeros above it."""
        if isinstance(place, Memory):
            self.store(place, value, variables)
            return
        whole = value.pad(place.bits // value.format.bits)
        if place in self.matrices:
            self.matrices.write(place, whole)
        else:
            registers[place.name] = whole

    def ask(self, where: str, stores: bool) -> None:
        """Ask for a line ahead."""
        self.emitter.declarations["declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"] = None
        self.emitter.line(f"call void @llvm.prefetch.p0(ptr {where}, i32 {int(stores)}, i32 3, i32 1)")

    def product(self, op: Op, variables: dict[str, str], registers: dict[str, LlvmValue]) -> None:
        """A matrix instruction as a call, its operands in memory."""
        places = []
        for operand, place in zip(op.definition.operands, op.srcs, strict=True):
            lanes = op.definition.operand_lanes(operand, op.lanes)
            if isinstance(place, Register) or place.lanes == lanes:
                places.append(self.place(place, variables))
            else:
                places.append(self.matrices.stored(operand.name, self.load(place, lanes, variables)))
        result = self.matrices.call(op, places)
        if result is not None:
            self.write(op.dst, result, variables, registers)

    def place(self, place: Register | Memory, variables: dict[str, str]) -> str:
        """A pointer to a matrix."""
        return self.matrices.place(place) if isinstance(place, Register) else self.places.address(place, variables)

    def tile(self, op: Op, variables: dict[str, str]) -> None:
        if not self.native_tiles:
            self.portable_tile(op, variables)
        elif op.memory is None:
            self.emitter.line(tiles.native(op))
        else:
            base, offset = self.places.base(op.memory, variables)
            if abs(offset) >= 1 << 31:  # else in the instruction, so that the operands of a loop share a pointer
                base, offset = self.places.address(op.memory, variables), 0
            self.emitter.line(tiles.native(op, base, offset, self.places.stride(op.memory)))

    def portable_tile(self, op: Op, variables: dict[str, str]) -> None:
        """Tiles are in memory on the stack."""
        emit = self.emitter
        optimistic = emit.alarms is not None
        alarm = tiles.portable(emit, op, self.places, variables, self.functions, optimistic, self.tile_sources)
        if alarm and emit.alarms:
            lane = emit.value(f"insertelement <1 x i1> poison, i1 {alarm}, i32 0")
            emit.alarms.watch(LlvmValue(emit, lane, "b1", 1))

    def load(self, memory: Memory, lanes: int, variables: dict[str, str]) -> LlvmValue:
        address = self.places.address(memory, variables)
        name = self.emitter.name()
        if is_part(memory, lanes):
            self.emitter.line(f"{name} = {masked_load(self.emitter, memory.dtype, lanes, memory.lanes, address)}")
            return LlvmValue(self.emitter, name, memory.dtype, lanes)
        self.emitter.line(f"{name} = load {vector_type(memory.dtype, memory.lanes)}, ptr {address}, align 1")
        found = LlvmValue(self.emitter, name, memory.dtype, memory.lanes)
        found.source, found.address = memory.tensor, address
        return found.pad(lanes)

    def store(self, memory: Memory, value: LlvmValue, variables: dict[str, str]) -> None:
        address = self.places.address(memory, variables)
        if is_part(memory, value.lanes):
            self.emitter.line(masked_store(self.emitter, value, memory.lanes, address))
            return
        if value.lanes != memory.lanes:
            value = value.permute(range(memory.lanes))
        self.emitter.line(f"store {value.type} {value.name}, ptr {address}, align 1")
