"""`simdnn analyze`: a loop in assembly or machine code, on one machine or beside another."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isa_models import InvalidArgument, UnknownTiming, machine
from isa_models.errors import counted
from isa_models.formats import FORMATS, fmt
from simdnn import files
from simdnn.assembly import TOOLS
from simdnn.cli import output
from simdnn.cli.options import comma_list, machine_with, standard_input

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from simdnn.assembly.analysis import Analysis

_BITS = re.compile(r"([xyz])mm\d+")
TIMELINES = ("text", "konata", "perfetto")


def add(subparsers: Any) -> None:
    """Describe the command to argparse."""
    parser = subparsers.add_parser(
        "analyze",
        description="Reads a loop in assembly (Intel or AT&T syntax, NASM and MASM too), as hexadecimal machine code, "
        "from an ELF object file, or from what objdump -d, gdb's disassemble or perf annotate --stdio prints, and says "
        "what an iteration costs on a machine, its data in the first cache. Of code that branches back the innermost "
        "loop is read, or what stands between marks (LLVM-MCA-BEGIN, OSACA-BEGIN, IACA's bytes); else all of it. Calls "
        "are read around. Exit status 1 where the machine's table lacks an instruction. For example: clang -O3 "
        "-march=znver4 -S -o - kernel.c | simdnn analyze - --function dot --machine znver4",
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        help="text, hexadecimal digits or an object file; - for standard input; or "
        "instructions themselves, as 'vpdpbusd zmm0, zmm1, zmm2; dec rcx' or '48 01 d8'",
    )
    parser.add_argument(
        "--machine",
        "--mcpu",
        "-mcpu",
        default="zen4",
        metavar="MACHINE",
        help="a machine's name or file, or several, as icx,zen4,spr, side by side; compilers' names will do (zen4)",
    )
    _add_choices(parser)
    _add_values(parser)
    output.add_options(parser, "text", "where the timeline or the table goes (standard output)")
    parser.set_defaults(function=main)


def _add_choices(parser: argparse.ArgumentParser) -> None:
    """Options for the choice of a loop, how it is read, and what is shown."""
    parser.add_argument("--syntax", choices=("intel", "att"), help="of the text (what it shows)")
    parser.add_argument("--function", dest="symbol", metavar="NAME", help="of a text or an object file")
    parser.add_argument(
        "--loop",
        type=int,
        metavar="N",
        help="the N-th innermost loop, by address (the deepest with most vector instructions)",
    )
    parser.add_argument("--compare-with", metavar="MACHINE", help="more machines beside --machine")
    parser.add_argument(
        "--assume-call",
        type=float,
        metavar="CYCLES",
        help="what each call of a function adds to an iteration (unknown: the cycles are at least those around it)",
    )
    parser.add_argument("--assume", action="store_true", help="go on where instructions are missing, and mark them")
    parser.add_argument(
        "--timeline",
        nargs="?",
        const="text",
        choices=TIMELINES,
        metavar="KIND",
        help=f"the first iterations, of each machine: {', '.join(TIMELINES)} (text)",
    )
    parser.add_argument(
        "--export",
        choices=TOOLS,
        metavar="TOOL",
        help=f"the table of --machine for another tool, as `simdnn machines export` gives it: {', '.join(TOOLS)}",
    )


def _add_values(parser: argparse.ArgumentParser) -> None:
    """Options that run the loop, and one that changes figures of the machine or what registers hold."""
    parser.add_argument(
        "--values",
        action="store_true",
        help="run the loop on random registers and memory: what the last iteration leaves, instruction by instruction",
    )
    parser.add_argument(
        "--set",
        action="append",
        metavar="KEY=VALUE",
        help="any number of times: another figure of the machines, by its dotted key (core.dispatch_slots=8); with "
        "--values, what a register holds at the start, zmm1=u8:1,2,3 (repeated to fill it) or rcx=5, or points "
        "to, rsi=f32:0.5,1",
    )
    parser.add_argument("--iterations", type=int, metavar="N", help="with --values: how many (1)")
    parser.add_argument("--seed", type=int, metavar="N", help="with --values: of the random numbers (0)")


def main(args: argparse.Namespace) -> int:
    """The command."""
    from simdnn.assembly.analysis import analyze
    from simdnn.assembly.files import read_stream

    machines = [*_machines(args.machine), *(_machines(args.compare_with) if args.compare_with else ())]
    output.check_path(args.output)
    _check_output(args, len(machines) > 1)
    told = [word for word in args.set or () if "." in word.partition("=")[0]]  # figures of the machines
    registers = [word for word in args.set or () if word not in told]
    if not args.values and not (args.iterations is None and args.seed is None and not registers):
        raise InvalidArgument(
            "--set REGISTER=VALUE, --iterations and --seed belong to --values; cycles are of endless iterations"
        )
    code = read_stream(standard_input(), "standard input") if args.file == "-" else _code(args.file)
    names = [machine_with(name, told) for name in machines]
    how = {"function": args.symbol, "loop": args.loop, "assume": args.assume, "assume_call": args.assume_call}
    found, left = _analyzed(names, lambda name: analyze(code, name, args.syntax, **how))
    values = None
    if args.values:
        given = dict(_register(word) for word in registers)
        values = found[0].values(given, iterations=_or(args.iterations, 1), seed=_or(args.seed, 0))
    drawn = _drawn(args, found, names[0])
    if args.output:
        files.write_text(args.output, drawn)
        drawn = ""
    _show(args, found, values, drawn, left)
    return 1 if left else 0


def _analyzed(names: Sequence[str], on: Callable[[str], Analysis]) -> tuple[list[Analysis], dict[str, str]]:
    """The loop on the machines that know its instructions, each once; why the others are left out, as long as one is
    there. `InvalidArgument` where two that differ have one name.
    """
    found: dict[str, Analysis] = {}
    left = {}
    for name in names:
        try:
            one = on(name)
        except UnknownTiming as error:
            if not found and name == names[-1]:
                raise
            left[name] = str(error)
        else:
            called = one.machine.name
            if found.setdefault(called, one).machine != one.machine:
                raise InvalidArgument(f"two machines are called {called!r}; side by side each has a `name` of its own")
    return list(found.values()), left


def _drawn(args: argparse.Namespace, found: list[Analysis], name: str) -> str:
    """The timeline or the machine's table that is asked for; empty without."""
    if args.export:
        from simdnn.assembly.export import machine_file

        return machine_file(machine(name), args.export)  # without the rows that a loop made
    return _timeline(found, args.timeline) if args.timeline else ""


def _show(args: argparse.Namespace, found: list[Analysis], values: Any, drawn: str, left: dict[str, str]) -> None:
    """Print what was found, which machines are left out, and what was drawn if no file has it."""
    if args.json:
        contents = [_content(one) for one in found]
        contents[0] |= {"values": [one.record() for one in values.written]} if values else {}  # of --machine
        contents += [{"machine": name, "left_out": why} for name, why in left.items()]
        output.print_json(contents if len(contents) > 1 else contents[0])
    elif not drawn or len(found) > 1:
        print(_beside(*found) if len(found) > 1 else _report(found[0]))
        if values:
            print(f"\n{values}")
        for name, why in left.items():
            print(f"{name}: left out: {why}")
    if drawn:
        print(f"\n{drawn}" if len(found) > 1 else drawn, end="\n" if args.timeline else "")


def _machines(text: str) -> list[str]:
    """Names between commas, or the one file whose name has some."""
    return [text] if os.path.isfile(text) else comma_list(text) or [text]  # of a name of any length


def _check_output(args: argparse.Namespace, compared: bool) -> None:
    """`InvalidArgument` where two options want standard output or -o FILE, or none the file."""
    drawn = "timeline" if args.timeline else "export"
    if args.timeline and args.export:
        raise InvalidArgument("--timeline and --export both want the output: one of them at a time")
    if args.output and not (args.timeline or args.export):
        raise InvalidArgument(
            "-o FILE takes the timeline: name its kind with --timeline; or the table of --export TOOL"
        )
    if (args.timeline or args.export) and not args.output:
        beside = compared and args.timeline != "text"
        several = "--compare-with" if args.compare_with else "several machines"
        for option, given in ((several, beside), ("--values", args.values), ("--json", args.json)):
            if given:
                raise InvalidArgument(f"--{drawn} and {option} both want standard output: -o FILE takes the first")


def _register(word: str) -> tuple[str, Any]:
    """A register and what `--set` gives it.

    >>> _register("rcx=5"), _register("xmm1=u8:1,2")[1].size
    (('rcx', 5), 16)
    """
    name, equals, value = word.partition("=")
    dtype, colon, listed = value.rpartition(":")
    known = [kind for kind in FORMATS if fmt(kind).bits >= 8]
    if not name or not equals or colon and dtype not in known:
        raise InvalidArgument(f"--set {word!r}: REGISTER=NUMBER or REGISTER=TYPE:NUMBERS, TYPE of {', '.join(known)}")
    try:
        if not colon:
            return name, int(value, 0)
        form = fmt(dtype)
        lanes = [float(one) if form.is_float else int(one, 0) for one in listed.split(",")]
    except ValueError:
        raise InvalidArgument(f"--set {word!r}: met {listed!r}, allowed are {dtype or 'whole'} numbers") from None
    if not form.is_float and not form.low <= min(lanes) <= max(lanes) <= form.high:
        raise InvalidArgument(f"--set {word!r}: {dtype} goes from {form.low} to {form.high}")
    import numpy as np

    numbers = np.array(lanes).astype(form.dtype)
    if exact := _BITS.fullmatch(name.lower()):
        numbers = np.resize(numbers, {"x": 128, "y": 256, "z": 512}[exact[1]] // (8 * numbers.itemsize))
    return name, numbers


def _or(given: int | None, default: int) -> int:
    return default if given is None else given


def _code(typed: str) -> str | bytes | Path:
    """Instructions as they were typed, by their names or in hexadecimal digits, or the file of that name."""
    from simdnn.assembly.decode import MNEMONICS, REGISTERS
    from simdnn.assembly.files import hexadecimal
    from simdnn.assembly.text import is_statement

    began = re.match(r"\s*(?:[.\w]+:\s+)?(\w+)([\s;]|$)", typed.lower())  # behind a label, if there is one
    words = re.findall(r"\w+", typed.lower())
    ours = began and (began[1] in MNEMONICS or not REGISTERS.isdisjoint(words[1:]) or is_statement(typed.lower()))
    is_code = ours or re.match(r"\w+\s+[^\s,]+,", typed)  # another CPU's, which the assembler refuses by name
    if not typed.strip():
        return typed  # Path("") is the folder that one stands in
    if os.path.exists(typed):
        return Path(typed)
    return typed if is_code else hexadecimal(typed) or Path(typed)


def _timeline(found: Sequence[Analysis], kind: str) -> str:
    from simdnn.assembly.timeline import together

    timeline = together({one.machine.name: one.timeline for one in found})
    return {"text": lambda: f"{timeline}\n", "konata": timeline.konata, "perfetto": timeline.perfetto}[kind]()


def _report(found: Analysis) -> str:
    """One machine: summary, instructions, ports."""
    from simdnn.assembly.rows import assumption

    lines = [str(found), *(f"note: {note}" for note in found.notes)]
    lines += [f"assumed: '{form}' counts as {assumption(form)}" for form in found.assumed]
    limits = sorted(((cycles, limit) for limit, cycles in found.timing.limits.items() if cycles), reverse=True)
    lines += [f"what helps: {found.remedy}"]
    lines += ["each limit alone: " + ", ".join(f"{limit} {cycles:.2f}" for cycles, limit in limits)]
    shown = "instruction", "slots", "latency", "ports", "confidence"
    instructions = [{name: row[name] for name in shown} for row in found.instruction_rows()]
    lines += ["", output.table(instructions, {"latency": "{:g}".format})]
    fused = [(text, op.slots) for text, op in zip(found.texts, found.ops, strict=True) if op.steps > 1]
    lines += [f"fused: {text} in {counted(slots, 'slot')}" for text, slots in fused]
    lines += ["", output.table(found.port_rows(), {"cycles": "{:.2f}".format, "share": "{:.0%}".format})]
    if found.chain:
        lines += ["", f"slowest chain through registers, {found.timing.chain_cycles:.2f} cycles an iteration:"]
        lines += [f"  {text}" for text in found.chain]
    return "\n".join(lines)


def _beside(*found: Analysis) -> str:
    """Several machines side by side."""
    rows: list[dict[str, Any]] = [{"": name} for name in ("cycles an iteration", "instructions a cycle", "bound")]
    for row, key in zip(rows, ("cycles_text", "ipc", "bound"), strict=True):
        for one in found:
            value = getattr(one, key)
            row[one.machine.name] = value if isinstance(value, str) else f"{value:.2f}"
    for limit in found[0].timing.limits:
        rows.append({"": f"  {limit} alone"} | {one.machine.name: f"{one.timing.limits[limit]:.2f}" for one in found})
    rows.append({"": "confidence"} | {one.machine.name: one.confidence for one in found})
    lines = [output.table(rows), ""]
    if len(found) == 2:  # of more the table would be wider than a page
        instructions: list[dict[str, Any]] = [{"instruction": one.text} for one in found[0].body]
        for one in found:
            for line, row in zip(instructions, one.instruction_rows(), strict=True):
                line |= {f"{one.machine.name}_{name}": row[name] for name in ("latency", "ports")}
        lines += [output.table(instructions), ""]
    lines += [f"note: {note}" for note in found[0].notes]
    lines += [f"{one.machine.name}: {one.sentence}" for one in found]
    lines += [f"{one.machine.name}: assumed '{form}'" for one in found for form in one.assumed]
    return "\n".join(lines)


def _content(found: Analysis) -> dict[str, Any]:
    """The record that --json prints."""
    return {
        "machine": found.machine.name,
        "cycles_per_iteration": found.cycles_per_iteration,
        "at_least": found.at_least,
        "ipc": found.ipc,
        "bound": found.bound,
        "limits": found.timing.limits,
        "confidence": found.confidence,
        "sentence": found.sentence,
        "remedy": found.remedy,
        "notes": list(found.notes),
        "assumed": list(found.assumed),
        "chain": list(found.chain),
        "chain_cycles": found.timing.chain_cycles,
        "ports": found.port_rows(),
        "instructions": found.instruction_rows(),
    }
