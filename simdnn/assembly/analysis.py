"""`simdnn.analyze`: what a loop in assembly costs on a machine, and why."""

from __future__ import annotations

import functools
import math
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isa_models.errors import InvalidArgument, counted, no_attribute, shortly, some, unknown_name
from isa_models.keywords import keywords, keywords_of_methods, typed_parts
from isa_models.machines.core_record import Core
from isa_models.machines.cpu_record import Machine
from isa_models.machines.instruction_row import InstructionTiming
from isa_models.machines.loader import cpu_machine as machine_of
from isa_models.machines.provenance import Confidence
from isa_models.records.alike import Alike
from isa_models.records.display import InNotebooks
from simdnn.assembly import elf
from simdnn.assembly.assembler import assemble
from simdnn.assembly.decode import Decoded
from simdnn.assembly.dialects import as_gnu
from simdnn.assembly.disassembly import Disassembly, is_disassembly
from simdnn.assembly.files import hexadecimal, read_file
from simdnn.assembly.limits import LIMITED_BY, REMEDIES, handed_over, on_busiest_ports
from simdnn.assembly.listings import is_listing, of_listing, without_addresses
from simdnn.assembly.loops import MARKS, Body, find_loop, marked, missing_rows, refuse, steps_of
from simdnn.assembly.profiles import without_shares
from simdnn.assembly.rows import Rows, rows
from simdnn.assembly.text import SYNTAX_LINE, Syntax, read_text, syntax_of
from simdnn.assembly.timeline import Timeline
from simdnn.assembly.values import Values, run
from simdnn.late import frames, pd
from simdnn.progress import working
from simdnn.timing.cpu.chains import slowest_chain
from simdnn.timing.cpu.pipeline import LoopTiming, loop_cycles
from simdnn.timing.cpu.steps import CoreOp, Step, lower

_FILE_NAME = re.compile(r"[^\s;]+\.(s|S|asm|o|so|a|obj|hex|txt|bin)")


@keywords_of_methods
@typed_parts("simdnn.analyze")
@dataclass(frozen=True, eq=False)
class Analysis(Alike, InNotebooks):
    """A loop on a machine. Cycles are core cycles, data in the first cache."""

    machine: Machine
    body: tuple[Decoded, ...]
    notes: tuple[str, ...]  # what was chosen or assumed
    assumed: tuple[str, ...]  # forms that the machine's table lacks
    timing: LoopTiming = field(repr=False)
    steps: tuple[Step, ...] = field(repr=False)
    ops: tuple[CoreOp, ...] = field(repr=False, compare=False)  # equal where the instructions and the machine are
    parts: tuple[int, ...] = field(repr=False)  # steps of each instruction: 1, or the lanes of an assumed gather
    call_cycles: float | None = None  # that each call is assumed to add; None: unknown

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise no_attribute(self, name)

    def __repr__(self) -> str:
        cost = f"{self.cycles_text} cycles an iteration, {self.ipc:.2f} instructions a cycle, {self.bound}"
        return f"Analysis({counted(len(self.body), 'instruction')} on {self.machine.name}: {cost}; print() shows why)"

    @property
    def cycles_per_iteration(self) -> float:
        """Cycles of an iteration; where a call's cost is unknown, those of the loop around it (`at_least`)."""
        return self.timing.cycles + self.calls * (self.call_cycles or 0)

    @property
    def calls(self) -> int:
        """Calls in an iteration."""
        return sum(one.is_call for one in self.body)

    @property
    def at_least(self) -> bool:
        """Whether something is left out of the cycles: what is called, or all but an assumed gather's loads."""
        return bool(self.calls) and self.call_cycles is None or any(count > 1 for count in self.parts)

    @property
    def cycles_text(self) -> str:
        """The cycles of an iteration as they are shown: "4.00", or "at least 4.00"."""
        return f"{'at least ' if self.at_least else ''}{self.cycles_per_iteration:.2f}"

    @property
    def ipc(self) -> float:
        """Instructions a cycle, those of called functions not counted."""
        return len(self.body) / self.cycles_per_iteration

    @functools.cached_property
    def bound(self) -> str:
        """The largest limit, calls apart: compute, load, store, crowding, front-end, latency; or memory, window.

        The last two where the schedule takes over a tenth longer than any limit: values that go round through stored
        bytes, or the choice of ports and the core's windows.
        """
        if self.timing.cycles <= 1.1 * max(self.timing.limits.values()):
            return self.timing.bound
        return "memory" if handed_over(self) else "window"

    @property
    def confidence(self) -> Confidence:
        """The weakest standing among the figures used."""
        return self.timing.confidence

    @functools.cached_property
    def ports(self) -> pd.DataFrame:
        """Frame: port, cycles of work an iteration, share of the iteration's cycles."""
        return frames.shown(pd.DataFrame(self.port_rows(), columns=["port", "cycles", "share"]))

    def port_rows(self) -> list[dict[str, Any]]:
        """The rows of `ports`, for who wants no frame."""
        work, cycles = self.timing.port_cycles, self.cycles_per_iteration
        return [{"port": port, "cycles": busy, "share": busy / cycles} for port, busy in work.items() if busy > 1e-9]

    @functools.cached_property
    def chain(self) -> tuple[str, ...]:
        """The instructions of the slowest chain that an iteration hands to the next; empty where none is."""
        texts = self.texts
        return tuple(texts[index] for index in slowest_chain(self.ops)[1])

    @functools.cached_property
    def instructions(self) -> pd.DataFrame:
        """Frame: instruction, its row's slots, latency, ports, standing and source ("assumed: …" for none).

        Latencies are from the last register operand to the result, of what only loads those of a hit in the first
        cache. Ports are those of each uop, a load's first, a store's last ("4*FP4/FP5" of four alike). What stores do
        to their ports is not among `ports`: their limit is the one called store.
        """
        return frames.shown(pd.DataFrame(self.instruction_rows()))

    def instruction_rows(self) -> list[dict[str, Any]]:
        """The rows of `instructions`, for who wants no frame."""
        known, core = self.machine.instructions, self.machine.core
        found = []
        for one, count in zip(self.body, self.parts, strict=True):
            row = known[one.mnemonic, one.form]
            uops = ["/".join(core.load_ports)] * (count if row.load_bits else 0) + ["/".join(uop) for uop in row.uops]
            uops += ["/".join(ports) for ports in _ports_of_store(core, row)]
            only_loads = row.load_bits and one.writes and not row.uops and not row.latency
            load = core.load(row.load_bits, general=not row.vector_bits and not row.tile)
            found.append(
                {
                    "instruction": one.text,
                    "slots": row.slots * count,
                    "latency": load.latency if only_loads else row.latency,
                    "ports": _by_count(uops) or "-",
                    "loads_bits": row.load_bits,
                    "stores_bits": row.store_bits,
                    "confidence": row.confidence,
                    "source": row.source,
                }
            )
        return found

    @functools.cached_property
    def timeline(self) -> Timeline:
        """The first iterations, instruction by instruction."""
        return Timeline.of(self.machine, self.steps, self.texts)

    def values(self, given: Mapping[str, Any] | None = None, *, iterations: int = 1, seed: int = 0) -> Values:
        """The numbers that the loop computes, iteration by iteration; what the last one wrote.

        `given`: NumPy arrays for vector registers ("zmm1"), whole numbers for general ones, or the array that one
        points to; the rest is drawn from `seed`. Branches and comparisons are not looked at. Raises `Unimplemented`
        that names the instructions without semantics here.

        >>> import numpy as np
        >>> dot = analyze("vpdpbusd xmm0, xmm1, xmm2")
        >>> acc, a, b = np.zeros(4, np.int32), np.full(16, 255, np.uint8), np.full(16, 127, np.int8)
        >>> dot.values({"xmm0": acc, "xmm1": a, "xmm2": b}, iterations=2).written[0].lanes.tolist()
        [259080, 259080, 259080, 259080]
        """
        return run(self.body, given, iterations, seed)

    @property
    def sentence(self) -> str:
        """The limit of the loop, in one sentence."""
        said = LIMITED_BY[self.bound](self)
        if self.calls:
            count = counted(self.calls, "call")
            cost = self.call_cycles
            said += f"; {count} not counted" if cost is None else f"; {count} of {cost:g} cycles added by assumption"
        many = len(self.assumed)
        return f"{said} ({counted(many, 'instruction')} assumed)." if many else f"{said}."

    @property
    def remedy(self) -> str:
        """The kind of change that makes a loop of this bound faster."""
        users = on_busiest_ports(self) if self.bound == "compute" else []
        stored = users and all(op.store is not None for op in users)  # an AMD core's ports
        return REMEDIES["store" if stored else self.bound]

    def __str__(self) -> str:
        return (
            f"{self.machine.name}: {self.cycles_text} cycles an iteration, {self.ipc:.2f} instructions a "
            f"cycle, bound: {self.bound} ({self.confidence})\n{self.sentence[0].upper()}{self.sentence[1:]}"
        )

    @functools.cached_property
    def texts(self) -> tuple[str, ...]:
        """The text of each op; fused ones share theirs."""
        of_steps = [one.text for one, count in zip(self.body, self.parts, strict=True) for _ in range(count)]
        found, at = [], 0
        for op in self.ops:
            found.append("; ".join(of_steps[at : at + op.steps]))
            at += op.steps
        return tuple(found)


def _ports_of_store(core: Core, row: InstructionTiming) -> list[tuple[str, ...]]:
    """Ports of a store's address and data, where its row does not have them."""
    address, data = core.store_address_ports, core.store_data_ports
    own = any(set(uop) <= set(data) for uop in row.uops)
    elsewhere = not address and not row.vector_bits  # numbers of general registers go by no vector port
    if not row.store_bits or own or elsewhere:
        return []
    return [ports for ports in (address, data) if ports]


def _by_count(words: Sequence[str]) -> str:
    """Words with those that follow each other alike told once.

    >>> _by_count(["p0", "p1", "p1"])
    'p0 2*p1'
    """
    runs = [(word, len(list(run))) for word, run in groupby(words)]
    return " ".join(word if count == 1 else f"{count}*{word}" for word, count in runs)


@keywords
@working("analyze")
def analyze(
    code: str | bytes | Path,
    machine: str | Path | Machine = "zen4",
    syntax: Syntax | None = None,
    *,
    function: str | None = None,
    loop: int | None = None,
    assume: bool = False,
    assume_call: float | None = None,
) -> Analysis:
    """The loop in `code` on a machine, its data in the first cache.

    `code` is assembly text, what `objdump -d`, gdb or `perf annotate` prints, the machine code itself (bytes; or text
    of hexadecimal digits alone), or an object file (its bytes or its path); `function` names a function of one of
    these. The `syntax` of a text is "intel" or "att", by default what its directives and registers show. Of code that
    branches back an innermost loop is read (the `loop`-th by address, from 1 on; by default the deepest with most
    vector instructions); else all of it is a loop's body. Different pointers count as different arrays.

    Calls of functions are read around: what is called costs `assume_call` cycles a call, which are added to the
    loop's; where that is not given, the cycles are those of the loop alone, and `at_least` is true.

    Raises `UnknownTiming` that names the instructions which the machine's table lacks; with `assume` they count as one
    uop each, and `assumed` lists them. Raises `InvalidArgument` for what is no code.

    >>> round(analyze("vpdpbusd zmm0, zmm1, zmm2", machine="zen4").cycles_per_iteration, 2)
    4.0
    """
    body, target = read_body(code, syntax, function, loop), rows(machine_of(machine))
    return analyze_body(body, target, assume, assume_call)


def analyze_body(
    body: Body, target: Rows, assume: bool = False, assume_call: float | None = None, **memory: Any
) -> Analysis:
    """`analyze` of a loop that is already found; `memory` as `addresses.references` takes it."""
    if assume_call is not None and not (isinstance(assume_call, (int, float)) and 0 <= assume_call < math.inf):
        raise InvalidArgument(f"assume_call: met {shortly(assume_call)}, allowed are cycles from 0 on")
    missing = missing_rows(body.instructions, target)
    if missing and not assume:
        raise refuse(missing, target)
    target = target.assuming(missing) if missing else target
    parts = tuple(one.elements if (one.mnemonic, one.form) in missing else 1 for one in body.instructions)
    whole = zip(steps_of(body.instructions, **memory), parts, strict=True)
    steps = [part for step, count in whole for part in (step, *[replace(step, writes=())] * (count - 1))]
    assumed = tuple(mnemonic if form == "-" else f"{mnemonic} {form}" for mnemonic, form in missing)
    timing = loop_cycles(target.machine, steps)
    ops = tuple(lower(target.machine, steps))
    return Analysis(
        target.machine, body.instructions, body.notes, assumed, timing, tuple(steps), ops, parts, assume_call
    )


def read_body(
    code: str | bytes | Path, syntax: Syntax | None = None, function: str | None = None, loop: int | None = None
) -> Body:
    """The loop of assembly text, of machine code, or of a function in an object file."""
    for name, word in (("syntax", syntax), ("function", function)):
        if word is not None and not isinstance(word, str):
            raise InvalidArgument(f"{name}: met {shortly(word)}; a name is needed")
    if loop is not None and (isinstance(loop, bool) or not isinstance(loop, int)):
        raise InvalidArgument(f"loop: met {shortly(loop)}; the number of a loop is needed, from 1 on")
    if isinstance(code, Path):
        code = read_file(code)
    if not isinstance(code, str | bytes):
        raise InvalidArgument(f"code: met {type(code).__name__}; str, bytes and pathlib.Path are read")
    if isinstance(code, str):
        if _FILE_NAME.fullmatch(code):
            raise InvalidArgument(f"{code!r} is the name of a file, no assembly; pathlib.Path({code!r}) is read")
        if (digits := hexadecimal(code)) is None:
            return _of_text(code, syntax, function, loop)
        code = digits
    if syntax is not None and syntax not in SYNTAX_LINE:
        raise unknown_name("syntax", syntax, SYNTAX_LINE)
    if elf.is_elf(code):
        return find_loop(_chosen(elf.ObjectFile(code), "the object file", function), syntax or "intel", number=loop)
    if function is not None:
        raise InvalidArgument(f"function {function!r}: text and object files have functions, machine code has none")
    return find_loop(marked(elf.Code(code, 0)), syntax or "intel", number=loop)


def _of_text(text: str, syntax: Syntax | None, function: str | None, loop: int | None) -> Body:
    """The loop of assembly text, or of what objdump or gdb prints."""
    text = without_addresses(without_shares(text.removeprefix("\ufeff")))
    if is_disassembly(text):
        listed = Disassembly(text)
        places = {address: f"line {number}" for address, number in listed.lines.items()}
        return find_loop(_chosen(listed, "the text", function), syntax or syntax_of(text.splitlines()), places, loop)
    source = read_text(of_listing(text) if is_listing(text) else as_gnu(text), syntax, function)
    found = elf.ObjectFile(assemble(source))
    starts = {int(s.name.removeprefix(elf.LINE)): s.offset for s in found.symbols if s.name.startswith(elf.LINE)}
    code = marked(found.all_code())
    lines = sorted(starts)
    behind = ((bisect_left(lines, line), label) for line, label in source.labels)
    local = {starts[lines[i]]: label for i, label in behind if i < len(lines)}  # those that the assembler drops, too
    places = {offset: source.place(line) for line, offset in starts.items()}
    return find_loop(replace(code, names={**local, **code.names}), source.syntax, places, loop)


def _chosen(file: elf.ObjectFile | Disassembly, what: str, function: str | None) -> elf.Code:
    """The code of a function of an object file or a listing, or of the only one; or between marks."""
    if function is not None:
        if function not in file.functions:
            raise unknown_name("function", function, file.functions)
        return marked(file.function(function))
    if between := [code for code in file.parts() if any(mark in code.data for mark in MARKS)]:
        return marked(between[0])
    if len(file.functions) > 1:
        names = sorted(file.functions, key=lambda name: (name.startswith("_"), name))
        raise InvalidArgument(
            f"{what} has {len(names)} functions; name one of {some(names, 12)} (--function, function=)"
        )
    return file.function(next(iter(file.functions))) if file.functions else file.all_code()
