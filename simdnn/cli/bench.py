"""`simdnn bench`: benchdnn's command line on modelled machines, and oneDNN's verbose log priced."""

from __future__ import annotations

import argparse
import codecs
import collections
import gzip
import io
import sys
import textwrap
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

from isa_models import InvalidArgument, Machine, SimdnnError, machine
from isa_models.host.environment import variable
from isa_models.isa import caps, implied, strongest
from simdnn import verbose
from simdnn.benchdnn import SUBSET, Answer, Case, Unread, answer, read
from simdnn.benchdnn.answer import cost
from simdnn.benchdnn.asked import task
from simdnn.benchdnn.log import MARKER, Executed, executed
from simdnn.benchdnn.options import Line
from simdnn.benchdnn.subset import IGNORED, NEUTRAL, OPERATORS
from simdnn.cli import output, words
from simdnn.cli.folding import terminal_width
from simdnn.cli.options import machine_with, standard_input
from simdnn.kernels.table import kind_of
from simdnn.late import pd
from simdnn.libraries import LIBRARIES
from simdnn.primitives.mathmode import EXACT_INT8, FPMATH
from simdnn.progress import each, print_beside, shown
from simdnn.reporting.provenance import provenance

USAGE = """\
simdnn bench --matmul|--conv|--ip|--softmax|… [OPTIONS] PROBLEM …
                    [--set KEY=VALUE …] [--json] [-o FILE]
                    [--trace FILE.json] [--force]
       simdnn bench --from-verbose LOG|- [--machine M] [--set KEY=VALUE …]
                    [--isa ISA] [--json] [-o FILE]"""
DESCRIPTION = "Answers problems in benchdnn's syntax, one line each: cost on a modelled machine, and values."
EXAMPLES = """\
examples
  simdnn bench --matmul --dt=f32,u8:s8:s32 64x512:512x64
  simdnn bench --matmul --machine=icx --isa=avx512_core,avx512_core_vnni --dt=u8:s8:s32 64x512:512x256
  simdnn bench --conv --machine=clx,icx mb1ic64ih56oc64oh56kh3ph1
  simdnn bench --from-verbose onednn.log --machine icx"""
NOTES = (
    f"{SUBSET}. Options hold for the problems after them; comma lists make the cross product, for --machine, --isa, "
    "--dispatch and --zero-point-strategy (Attr's), too. Problems: 64x512:512x64 (dimensions in front are a batch, in "
    'one kernel), mb1ic64ih56oc64oh56kh3ph1n"name", and of --ip, which is the '
    "matmul of flattened channels, mb1ic256ih6oc10. Drivers of one operator take 128x1000, 8x64:1x64 (--binary, "
    "--prelu, --concat, --reduction), mb1ic64ih112kh3sh2ph1 (--pool), mb2ic64ih14_eps0.001 (--bnorm, --gnorm), and "
    "--deconv a convolution's; their values are compared with the definition in float64.",
    "Every problem has an answer, and every line of a batch file that makes no sense: it is UNIMPLEMENTED with the "
    "reason, the options on it that make sense hold, and problems after an option whose value could not be read are "
    "answered with that until it is given again. What makes no sense on the command line is wrong usage: nothing is "
    "answered.",
    "Modes: C (the default) computes values with the compiled engine on small seeded integers, so that nothing "
    "saturates on the way, and compares them with a float64 reference; beyond 2e10 multiply-accumulates or 1 GB the "
    "cost alone is given, with a note. P, F and S give the cost alone; nothing is compared. Kernels that are lossy by "
    "design (s8 convolutions without VNNI halve their weights) are compared with a reference that does the same, so "
    "they pass; behind 'lossy' stands how far they are from exact arithmetic.",
    f"Known, and a reason where they ask for something: {' '.join(f'--{name}' for name in NEUTRAL)}.",
    f"Accepted without effect: -vN, {' '.join(f'--{name}' for name in sorted(IGNORED))}.",
    "--from-verbose reads a log of ONEDNN_VERBOSE=1, or what benchdnn prints with --mode=P (-: standard input, for "
    "lines that you paste), and sets the predicted time of each matmul, convolution and inner product, of benchdnn's "
    "lines of every driver, on one core and with warm caches, beside the logged one; ratio is the logged time over the "
    "predicted.",
    "--attr-exact-int8, --attr-float-model and --zero-point-strategy are fields of simdnn.Attr; lines of "
    "SIMDNN_VERBOSE=1 have them beside oneDNN's own, and are read back as the problems that they tell of.",
    "--trace writes what cores, pipes and channels do when, for Perfetto (ui.perfetto.dev). -o and --trace replace "
    "files that simdnn wrote, and others with --force.",
    "Kernels here read and write rows of channels: other layouts of source and destination (--stag, --dtag, "
    "--strides) are copied, which is part of the time; weights in blocks come in the kernel's own. Behind the problem "
    "stands what differs from what was asked, as for --alg=wino, which is computed direct, and for runtime dimensions, "
    "which are known here.",
    "Columns: gops with 1 MAC = 2; gb_s: inputs and outputs once each over the time.",
    "Exit status: 0; 1 where a problem failed or is unimplemented, or a line makes no sense; 2 for wrong usage.",
)
EPILOG = "\n\n".join([EXAMPLES, *NOTES])

HEADINGS = ("status", "implementation", "compute", "cycles", "time_us", "gops", "gb_s", "bound", "max_error", "problem")
LOG_HEADINGS = ("status", "implementation", "predicted_us", "logged_us", "ratio", "bound", "logged_as", "problem")
WIDTHS = {
    "status": 6,
    "machine": 8,
    "implementation": 28,
    "compute": 7,
    "bound": 9,
    "logged_as": 30,
}  # to the left; others 10, right
#: what is put away, first to last, in a terminal that is narrower than these; problems then stand below
LEAST = ("gb_s", "compute", "logged_as", "max_error", "gops")


@dataclass
class _Words:
    """The command line, benchdnn's words apart from the command's own."""

    words: list[str] = field(default_factory=list)
    json: bool = False
    help: bool = False
    output: Path | None = None
    log: Path | None = None
    trace: Path | None = None
    figures: list[str] = field(default_factory=list)  # of --set

    def cases(self, lines: Sequence[Line | Unread]) -> Iterator[Case | Unread]:
        """The problems of lines, each on its machine with the figures of --set."""
        for case in (case for line in lines for case in line.cases()):
            if self.figures and not isinstance(case, Unread):
                name = machine_with(case.options["machine"], self.figures)
                case = replace(case, options={**case.options, "machine": name})
            yield case


def add(subparsers: Any) -> None:
    """Describe the command to argparse, which leaves all words to benchdnn's own syntax."""
    words.add(subparsers, "bench", main, usage=USAGE, description=DESCRIPTION, epilog=EPILOG)


def main(parser: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    """The command: reads all problems first, then answers them one by one."""
    given = _split(args.words)
    if given.help:
        parser.print_help()
        return 0
    output.check_path(given.output, output.FILE_FORMATS)
    output.check_path(given.trace)
    for check in (FPMATH.effective, EXACT_INT8.effective, lambda _: verbose.wanted()):
        check(None)  # a word of the environment that makes no sense is told once, not with each problem
    if pasted := next((word for word in given.words if MARKER.match(word)), ""):
        raise InvalidArgument(
            f"{pasted[:40]!r} is a line of oneDNN's verbose log: --from-verbose FILE reads such lines, "
            "--from-verbose - those of standard input"
        )
    lines = read(given.words)
    for name in _machines(lines):
        machine(machine_with(name, given.figures))  # a figure that it can't have is told once, too
    if given.log:
        if lines:
            first = lines[0].text if isinstance(lines[0], Unread) else lines[0].problem
            raise InvalidArgument(f"--from-verbose takes its problems from the log, not {first[:60]!r}, too")
        mode = next((word for word in given.words if word.startswith("--mode=")), "")
        if word := "--trace" if given.trace else mode:
            raise InvalidArgument(f"{word[:40]} is for problems; it says nothing about --from-verbose")
        return _log(given)
    if not lines:
        raise InvalidArgument("no problem given, e.g. --matmul 64x512:512x64, or --matmul --batch=FILE")
    status = _problems(given, given.cases(lines), len(_machines(lines)) > 1)
    if given.trace:
        _trace(given.trace, given.cases(lines))
    return status


def _trace(path: Path, cases: Iterable[Case | Unread]) -> None:
    """A timeline of every product and convolution that has a cost, as processes of one file."""
    from simdnn.study import trace

    found, others = [], set()
    for case in cases:
        if isinstance(case, Unread):
            continue
        if case.driver in OPERATORS:
            others.add(case.driver)
            continue
        try:
            found.append(cost(task(case)))
        except SimdnnError:
            continue  # the problem's own line says why
    if others:
        left_out = ", ".join(f"--{driver}" for driver in sorted(others))
        print(f"--trace: products and convolutions alone are drawn, not {left_out}", file=sys.stderr)
    trace.write(path, found)


def _split(words: Sequence[str]) -> _Words:
    found, rest = _Words(), iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if word == "--json":
            found.json = True
        elif word == "--force":
            continue  # `simdnn.cli.main` reads it
        elif word in ("-h", "--help"):
            found.help = True
        elif name == "--set":
            found.figures.append(value if equals else next(rest, ""))
        elif name in ("-o", "--output", "--from-verbose", "--trace"):
            path = value if equals else next(rest, "")
            if not path:
                raise InvalidArgument(f"{name} without a file")
            if name == "--from-verbose":
                found.log = Path(path)
            elif name == "--trace":
                found.trace = Path(path)
            else:
                found.output = Path(path)
        else:
            found.words.append(word)
    return found


def _machines(lines: Iterable[Line | Unread]) -> set[str]:
    """The machines that problems name."""
    return {name for line in lines if isinstance(line, Line) for name in line.values["machine"]}


def _headings(names: Sequence[str], several: bool) -> dict[str, int]:
    """The columns of a table and their widths; that of the machine where `several` are compared."""
    found = {name: WIDTHS.get(name, 10) for name in (names[0], *["machine"] * several, *names[1:-1])}
    if most := terminal_width():
        for name in LEAST:
            if sum(found.values()) + 2 * (len(found) - 1) <= most:
                break
            found.pop(name, None)
    return found


def _problems(given: _Words, cases: Iterable[Case | Unread], several: bool) -> int:
    headings = _headings(HEADINGS, several)
    if not given.json:
        print(_heading(headings))
    answers, cases = [], list(cases)
    with shown() as told:
        for case in each(cases, lambda case: case.text, told):
            found = answer(case)
            answers.append(found)
            if not given.json:
                print_beside(told, _line(found, headings))
    summary = _summary(answers)
    _finish(given, [asdict(found) for found in answers], summary)
    if not given.json and (said := _uncapped(cases)):
        print(said)
    return 1 if summary["failed"] or summary["unimplemented"] else 0


def _uncapped(cases: Iterable[Case | Unread]) -> str:
    """A line about a cap in oneDNN's variable of the environment that problems do not heed; empty where all do."""
    kept = [case.options for case in cases if isinstance(case, Case) and not case.options["isa"]]
    name = next((name for name in LIBRARIES["onednn"].variables if variable(name)), "")
    if not name or all(options["dispatch"] == "onednn" for options in kept):
        return ""
    return f"{name} caps --dispatch=onednn alone; --isa=avx2 and the like caps others"


def _line(found: Answer, headings: Mapping[str, int]) -> str:
    """One line: the columns of `headings`, or the reason; then the problem."""
    if found.status == "UNIMPLEMENTED":
        return f"UNIMPLEMENTED:{found.reason}  {found.problem}"
    cells = {
        "status": found.status,
        "machine": found.machine,
        "implementation": found.implementation,
        "compute": found.compute_dtype,
        "cycles": _number(found.cycles),
        "time_us": _number(found.time_us),
        "gops": _number(found.gops),
        "gb_s": _number(found.gb_s),
        "bound": found.bound,
        "max_error": "-" if found.max_error is None else f"{found.max_error:.3g}",
    }
    remarks = [text for text in (found.reason, found.note) if text]
    return _aligned(headings, cells, found.problem + "".join(f"  # {text}" for text in remarks))


def _heading(headings: Mapping[str, int]) -> str:
    return _aligned(headings, {name: name for name in headings}, "problem")


def _aligned(headings: Mapping[str, int], cells: Mapping[str, str], problem: str) -> str:
    """Cells in columns that are as wide as most of theirs are, as lines are printed as they come; then the problem."""
    padded = [
        cells[name].ljust(width) if name in WIDTHS else cells[name].rjust(width) for name, width in headings.items()
    ]
    most = terminal_width()
    line = "  ".join([*padded, problem])
    if not most or len(line) <= most:
        return line
    folded = textwrap.wrap(problem, most - 4, break_on_hyphens=False)
    return "\n    ".join(["  ".join(padded).rstrip(), *folded])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def _summary(answers: Sequence[Answer]) -> dict[str, int]:
    counts = collections.Counter(found.status for found in answers)
    return {"tests": len(answers)} | {name.lower(): counts[name] for name in ("PASSED", "FAILED", "UNIMPLEMENTED")}


def _finish(given: _Words, rows: list[dict[str, Any]], summary: dict[str, int]) -> None:
    content = {"answers": rows, "summary": summary}
    if given.output:
        made = {"provenance": provenance(row["machine"] for row in rows if row.get("machine"))}
        output.write(given.output, pd.DataFrame(rows), content | made)
    if given.json:
        output.print_json(content)
    else:
        met = {row["machine"] for row in rows if row["machine"]}
        untold = [f"machine:{name}" for name in met if not any("--machine" in row["problem"] for row in rows)]
        print(" ".join([*(f"{name}:{count}" for name, count in summary.items()), *untold]))


def _log(given: _Words) -> int:
    """Each executed matmul and convolution of a log: the predicted time beside the logged one."""
    assert given.log
    rows: list[dict[str, Any]] = []
    skipped: collections.Counter[str] = collections.Counter()
    known: dict[tuple[str, ...], list[Answer]] = {}
    headings = _headings(LOG_HEADINGS, len(_machines(read([*given.words, "--matmul", "1x1:1x1"]))) > 1)
    with _opened(given.log) as lines:
        if not given.json:
            print(_heading(headings))
        with shown() as told:
            for item in each(executed(lines), _logged, told):
                if isinstance(item, str):
                    skipped[item] += 1
                    continue
                if item.words not in known:
                    known[item.words] = _predicted(given, item)
                for found in known[item.words]:
                    rows.append(asdict(found) | {"logged_us": _microseconds(item), "logged_as": item.implementation})
                    if not given.json:
                        print_beside(told, _log_line(found, item, headings))
    counts = collections.Counter(row["status"] for row in rows)
    summary = {
        "lines": len(rows),
        "predicted": counts["PASSED"],
        "unimplemented": counts["UNIMPLEMENTED"],
        "skipped": skipped.total(),
    }
    _finish(given, rows, summary)
    if skipped and not given.json:
        print("skipped: " + ", ".join(f"{count} {kind[:40]}" for kind, count in sorted(skipped.items())))
    if (ran := _elsewhere(rows)) and not given.json:
        print(f"logged kernels use {ran}: another CPU than the one that predicts (--machine)")
    elif (most := _below(rows)) and not given.json:
        print(f"logged kernels use {most[0]} at most, those that predict {most[1]}: --isa {most[0]} leaves it out")
    if not (rows or skipped or given.json):
        name = "standard input" if str(given.log) == "-" else given.log
        print(f"{name} holds no line of a primitive that ran; ONEDNN_VERBOSE=1 makes oneDNN print them")
    return 1 if counts["UNIMPLEMENTED"] else 0


def _logged_caps(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    """The ISA caps that end the names of logged kernels."""
    return {cap for row in rows for cap in caps() if row["logged_as"].endswith(f":{cap}")}


def _elsewhere(rows: Iterable[Mapping[str, Any]]) -> str:
    """ISA caps of logged kernels that no predicting CPU has, and these CPUs' names; empty where there are none."""
    met = [machine(name) for name in sorted({row["machine"] for row in rows if row["machine"]})]
    cpus = [target for target in met if isinstance(target, Machine)]
    lacking = sorted(cap for cap in _logged_caps(rows) if not any(cap in target.isa for target in cpus))
    names = " and ".join(target.name for target in cpus)
    return f"{', '.join(lacking)}, which {names} lack{'s' * (len(cpus) == 1)}" if lacking and cpus else ""


def _below(rows: Iterable[Mapping[str, Any]]) -> tuple[str, str] | None:
    """The strongest ISA cap of logged kernels and that of kernels that predict on CPUs, where it is a stronger one."""
    rows = [row for row in rows if row["status"] == "PASSED"]
    logged = _logged_caps(rows)
    kinds = [kind for row in rows if (kind := kind_of(row["implementation"])) and kind.target == "x86"]
    predicting = {kind.isa for kind in kinds}
    if not logged or not predicting:
        return None
    most = strongest(logged)
    beyond = {cap for cap in predicting if cap not in implied(most)}
    return (most, strongest(beyond)) if beyond else None


def _logged(item: Executed | str) -> str:
    """A line of a log in short."""
    return item if isinstance(item, str) else " ".join(item.words)


def _predicted(given: _Words, item: Executed) -> list[Answer]:
    """The answers for one logged primitive; several where several machines are named."""
    if item.reason:
        return [Answer("UNIMPLEMENTED", " ".join(item.words), item.reason)]
    try:
        lines = read([*given.words, "--mode=P", *item.words])
    except SimdnnError as error:
        return [Answer("UNIMPLEMENTED", " ".join(item.words), str(error))]
    return [answer(case) for case in given.cases(lines)]


def _opened(log: Path) -> AbstractContextManager[TextIO]:
    if str(log) == "-":
        return io.TextIOWrapper(standard_input(), "utf-8", errors="replace")
    if log.is_char_device():
        raise InvalidArgument(f"--from-verbose {str(log)!r}: a device, which has no lines that end; a file is needed")
    try:
        with log.open("rb") as file:
            beginning = file.read(2)
        if beginning == b"\x1f\x8b":
            return io.StringIO(gzip.decompress(log.read_bytes()).decode("utf-8", "replace"))
        wide = beginning in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # as PowerShell's > writes
        return log.open(encoding="utf-16" if wide else "utf-8", errors="replace")
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidArgument(f"--from-verbose {str(log)!r}: {getattr(error, 'strerror', None) or error}") from None


def _log_line(found: Answer, item: Executed, headings: Mapping[str, int]) -> str:
    logged = _microseconds(item)
    if found.time_us is None:
        return f"UNIMPLEMENTED:{found.reason}  {_number(logged)}  {item.implementation}  {found.problem}"
    cells = {
        "status": found.status,
        "machine": found.machine,
        "implementation": found.implementation,
        "predicted_us": _number(found.time_us),
        "logged_us": _number(logged),
        "ratio": "-" if logged is None else f"{logged / found.time_us:.3g}",
        "bound": found.bound,
        "logged_as": item.implementation,
    }
    return _aligned(headings, cells, found.problem)


def _microseconds(item: Executed) -> float | None:
    return None if item.ms is None else item.ms * 1e3
