"""Values step by step beside the cycles: each instruction of a loop's first turns, what it left and when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from isa_models import GpuMachine, Machine
from isa_models.intel_gpu.dpas import DpasForm
from isa_models.machines.instruction_row import InstructionTiming
from isa_models.readings.arrays import ArrayValue
from simdnn.assembly.timeline import InFlight, Timeline
from simdnn.numerics.watched import Left, Path
from simdnn.program.records import Op, Place, Program, Register
from simdnn.teach.numbers import short
from simdnn.timing.cpu.pipeline import loop_cycles
from simdnn.timing.cpu.steps import Step, lower
from simdnn.timing.cpu.stream import Stream
from simdnn.timing.gpu import engine


@dataclass(frozen=True)
class InStage:
    """A stage of an instruction's way through the pipeline: cycles from `start` to before `end`."""

    stage: str
    start: float
    end: float


@dataclass(frozen=True)
class Executing:
    """An executed instruction: what it left ("" for loop control), and its stages."""

    turn: int
    text: str
    place: str
    lanes: str
    spans: tuple[InStage, ...]

    @property
    def told(self) -> str:
        """The stages in words, for who cannot see the picture."""
        return ", ".join(f"{span.stage} {span.start:g} to {span.end:g}" for span in self.spans)


#: what a stage is called: of an out-of-order core, of a GPU's engine
_OF_CORE = {
    "dispatch": "dispatch",
    "waits": "waits",
    "load": "load",
    "execute": "execute",
    "done": "done, not yet retired",
    "retire": "retire",
}
_OF_ENGINE = {
    "waits": "waits for operands and its pipe",
    "load": "takes the memory pipe",
    "execute": "takes its pipe",
    "done": "until its result can be used",
}


@dataclass(frozen=True)
class Steady:
    """A loop's steady state: cycles an iteration, what bounds it, lower bounds by name, busy cycles by port."""

    cycles: float
    bound: str
    limits: dict[str, float]
    ports: dict[str, float]


@dataclass(frozen=True)
class Pipeline:
    """The first turns of a loop on a machine, and the steady state that they run into (of a CPU)."""

    rows: tuple[Executing, ...]
    last: float  # the cycle behind the last
    steady: Steady | None
    stages: Mapping[str, str]  # what they are called
    note: str


def of_program(
    program: Program, path: Path, left: Sequence[Left], machine: Machine | GpuMachine, most: int
) -> Pipeline:
    """The loop at the end of `path`, whose watched instructions left `left`; `most` lanes of each value are shown."""
    ops = [op for op in path[-1].body if isinstance(op, Op)]
    texts = [_words(op, path[-1].var) for op in ops]
    values = [(_named(one.op.dst, path[-1].var), _lanes(one, ops, most)) for one in left]
    turns = left[-1].turn + 1
    if isinstance(machine, GpuMachine):
        return _on_engine(ops, texts, machine, values, turns)
    steps = steps_of(program, path)
    return of_steps(machine, steps, texts, values, turns)


def steps_of(program: Program, path: Path) -> list[Step]:
    """The steps that a core executes in an iteration of the loop: its instructions, and the loop's control."""
    stream, loop = Stream(program), path[-1]
    at = {one.var: 0 for one in path}
    lines = [stream.line(op, at, loop.var) for op in loop.body if isinstance(op, Op)]
    return [line.step for line in (*lines, *stream.control(loop))]


def of_steps(
    machine: Machine, steps: Sequence[Step], texts: Sequence[str], values: Sequence[tuple[str, str]], turns: int
) -> Pipeline:
    """`texts` of the first ops, `values` (place, lanes) of these in each turn; behind them stands loop control."""
    ops = lower(machine, steps)
    count = len(texts)
    words = [*texts, *(op.row.mnemonic for op in ops[count:])]
    events = Timeline.of(machine, steps, words, turns).events
    rows = []
    for event in events:
        place, lanes = values[event.iteration * count + event.index] if event.index < count else ("", "")
        spans = tuple(_spans(event))
        rows.append(Executing(event.iteration, event.text, place, lanes, spans))
    timing = loop_cycles(machine, steps)
    busy = {port: cycles for port, cycles in timing.port_cycles.items() if cycles > 1e-9}
    steady = Steady(timing.cycles, timing.bound, timing.limits, busy)
    return Pipeline(
        tuple(rows), max(event.retired for event in events) + 1, steady, _OF_CORE, "The core is empty before."
    )


def _spans(event: InFlight) -> Iterator[InStage]:
    """The stages, those in which an instruction waits under that name."""
    for stage, start, end in event.stages():
        if stage == "dispatch":
            yield InStage(stage, start, start + 1)
            start, stage = start + 1, "waits"
        if end > start:
            yield InStage("waits" if stage == "loaded" else stage, start, end)


def rows_of(program: Program, path: Path, machine: Machine) -> list[InstructionTiming]:
    """The rows of a machine's table that an iteration of a loop uses."""
    return [op.row for op in lower(machine, steps_of(program, path))]


def _on_engine(
    ops: Sequence[Op], texts: Sequence[str], machine: GpuMachine, values: Sequence[tuple[str, str]], turns: int
) -> Pipeline:
    """One thread alone on an engine, which issues in order."""
    stream = [engine.issue_of(op, machine) for op in ops] * turns
    trace: list[engine.Issued] = []
    time = engine.run([stream], machine.co_issue, trace)
    rows = []
    for issued, (place, lanes) in zip(trace, values, strict=True):
        marks = (
            ("waits", issued.ready, issued.start),
            ("load" if stream[issued.number].pipe == engine.SEND else "execute", issued.start, issued.free),
            ("done", issued.free, issued.done),
        )
        spans = tuple(InStage(*mark) for mark in marks if mark[2] > mark[1])
        turn, at = divmod(issued.number, len(ops))
        rows.append(Executing(turn, texts[at], place, lanes, spans))
    others = f"an engine of {machine.name} switches between {machine.threads}, which fill each other's waits"
    note = f"One thread alone; {others}."
    return Pipeline(tuple(rows), max(time.cycles, *(issued.done for issued in trace)), None, _OF_ENGINE, note)


def _lanes(one: Left, ops: Sequence[Op], most: int) -> str:
    """The lanes that were left; of bits that were only moved, as the type in which the loop reads them."""
    dtype, dst = one.op.dst.dtype, one.op.dst
    value = ArrayValue(one.lanes, dtype)
    if one.op.definition.moves and isinstance(dst, Register):
        at = next(i for i, op in enumerate(ops) if op is one.op)
        read = next(_readings(dst, (*ops[at + 1 :], *ops[:at])), dtype)
        value, dtype = value.view(read), read
    return f"{dtype} {short(value.array, dtype, most)}"


def _readings(register: Register, ops: Sequence[Op]) -> Iterator[str]:
    """The types in which instructions read a register; DPAS takes words, in which elements are packed."""
    for op in ops:
        for operand, src in zip(op.definition.operands, op.srcs, strict=True):
            if not isinstance(src, Register) or src.name != register.name:
                continue
            form = op.definition
            if isinstance(form, DpasForm) and operand.name in ("a", "b"):
                yield getattr(form.shape, operand.name)
            else:
                yield src.dtype


def _named(place: Place, var: str) -> str:
    """A register's name, or a place in memory by the loop's variable alone: the loops around it stand at 0."""
    if isinstance(place, Register):
        return place.name
    moving = tuple(term for term in place.index.terms if term[0] == var)
    return f"{place.tensor}[{replace(place.index, terms=moving)}]"


def _words(op: Op, var: str) -> str:
    """The instruction with the names of what it works on."""
    places = [_named(place, var) for place in (op.dst, *op.srcs)]
    if op.definition.destructive:
        del places[1]
    name = op.definition.mnemonic(op.width)
    return f"{name} {', '.join([*places, *(str(number) for _, number in op.immediates)])}"
