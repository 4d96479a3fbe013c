"""When things happen: instructions in a core's pipeline, tiles on cores and channels."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from isa_models import GpuMachine, InvalidArgument, Machine
from isa_models.errors import counted
from isa_models.keywords import keywords
from simdnn.assembly.analysis import Analysis
from simdnn.assembly.timeline import ITERATIONS, Timeline
from simdnn.plot.canvas import HATCHES, MOST_NAMED, color, ink, legend, new_axes
from simdnn.plot.costs import title
from simdnn.primitives.result import Estimate
from simdnn.study import trace
from simdnn.timing.cpu.inner import inner_loop
from simdnn.timing.cpu.pipeline import LoopTiming
from simdnn.timing.cpu.steps import Step
from simdnn.timing.system import Simulated, Span
from workloads import untrusted

MOST_ROWS = 60  # instructions that a timeline has where nobody says how many iterations
MOST_ITERATIONS = 200
TALLEST = 14.0  # inches
#: how each stage is drawn: its words, the number of its colour, how dark, hatch
_STAGES: dict[str, tuple[str, int | None, float, str]] = {
    "dispatch": ("waits for operands or a port", 7, 0.25, ""),
    "load": ("loads", 0, 0.55, "///"),
    "loaded": ("waits for operands or a port", 7, 0.25, ""),
    "execute": ("executes", 1, 0.95, ""),
    "done": ("waits to retire", 7, 0.1, "..."),
    "retire": ("retires", 2, 0.95, ""),
}


@dataclass(frozen=True)
class DrawnLoop:
    """A loop with its steps, whatever it comes from."""

    title: str
    machine: Machine
    steps: tuple[Step, ...]
    texts: tuple[str, ...]  # of the ops, fused ones counted once
    timing: LoopTiming


def loop_of(given: Analysis | Estimate) -> DrawnLoop:
    """The loop of an analysis, or the inner loop with most work of a kernel on a CPU."""
    if isinstance(given, Analysis):
        name = f"loop on {given.machine.name}: {given.cycles_per_iteration:.4g} cycles an iteration"
        return DrawnLoop(name, given.machine, given.steps, given.texts, given.timing)
    if not isinstance(given, Estimate):
        raise InvalidArgument(f"met {type(given).__name__}; what simdnn.analyze hands back, or a Result, is needed")
    if not isinstance(given.machine, Machine):
        raise InvalidArgument(
            f"{given.machine.name} is a GPU, whose engines run in order, thread beside thread; CPUs have a timeline of "
            "instructions: plot_spans draws what a GPU's cores and channels do, plot_ports its pipes"
        )
    loop = inner_loop(given.kernel.timed or given.kernel.program, given.machine)
    cycles = f"{loop.timing.cycles:.4g} cycles an iteration"
    name = f"{title(given)}\ninner loop over {loop.variable}: {cycles}" if loop.variable else title(given)
    return DrawnLoop(name, given.machine, loop.steps, loop.texts, loop.timing)


@keywords
def plot_timeline(analysis: Analysis | Estimate, iterations: int | None = None, ax: Axes | None = None) -> Axes:
    """The pipeline over the first iterations of a loop: when each instruction is dispatched, waits, executes, retires.

    Takes what `simdnn.analyze` hands back, or a Result or Estimate of a CPU, whose inner loop with most work is drawn.
    A row is an instruction, from an empty core. `iterations`: how many (up to three, fewer where the loop is long).
    Raises `InvalidArgument` for a kernel of a GPU.
    """
    loop = loop_of(analysis)
    if iterations is None:
        iterations = max(1, min(ITERATIONS, MOST_ROWS // len(loop.texts)))
    if isinstance(iterations, bool) or not isinstance(iterations, int) or not 1 <= iterations <= MOST_ITERATIONS:
        raise InvalidArgument(f"iterations={iterations!r}; an integer from 1 to {MOST_ITERATIONS} is needed")
    found = Timeline.of(loop.machine, loop.steps, loop.texts, iterations)
    events = found.events
    last = max(event.retired for event in events) + 1
    if ax is None:
        ax = new_axes((min(max(7.0, 0.11 * last + 4.5), 15.0), min(max(2.6, 0.2 * len(events) + 1.4), TALLEST)))
    met = dict[str, Patch]()
    for row, event in enumerate(events):
        for stage, start, end in event.stages():
            words, number, dark, hatch = _STAGES[stage]
            face = (color(number or 0), dark)
            bars = ax.broken_barh(
                [(start, end - start)], (row - 0.4, 0.8), facecolor=face, edgecolor="grey", linewidth=0.3
            )
            bars.set_hatch(hatch)
            met.setdefault(words, Patch(facecolor=face, edgecolor="grey", hatch=hatch, label=words))
        ax.plot([event.dispatched] * 2, [row - 0.4, row + 0.4], color=ink(), linewidth=1.6)
    for row in range(len(loop.texts), len(events), len(loop.texts)):
        ax.axhline(row - 0.5, color=ink(), linewidth=0.8, linestyle=":")
    every = -(-len(events) // (2 * MOST_ROWS))
    rows = range(0, len(events), every)
    size = 8 if len(events) <= MOST_ROWS else 5
    ax.set_yticks(rows, [_cut(events[row].text) for row in rows], fontsize=size, family="monospace", parse_math=False)
    ax.set_ylim(len(events) - 0.4, -0.6)
    ax.set_xlim(-0.5, last + 0.5)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("cycle")
    ax.set_title(f"{loop.title} ({counted(iterations, 'iteration')} drawn)", parse_math=False, fontsize="medium")
    ax.grid(axis="x", alpha=0.3)
    ax.set_axisbelow(True)
    line = ax.plot([], [], color=ink(), linewidth=1.6, marker="|", linestyle="none", markersize=9, label="dispatched")
    legend(ax, [*line, *(met[words] for words in dict.fromkeys(s[0] for s in _STAGES.values()) if words in met)])
    return ax


def _cut(text: str, letters: int = 40) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


@keywords
def plot_spans(given: Any, ax: Axes | None = None) -> Axes:
    """The simulated system's timeline: what cores, memory channels or the queues of a GPU do, and when.

    `given`: a Result or Estimate (on several threads, or on a GPU), the trace that `simdnn bench --trace` wrote (its
    path, or its content), or the spans of `simdnn.timing.system.simulate`, whose times are cycles. Of a long run the
    rounds of tiles in the middle are left out, as in the simulation.
    """
    spans, unit, name = _spans(given)
    if not spans:
        raise InvalidArgument("no spans; nothing to draw")
    places = list(dict.fromkeys(span.place for span in sorted(spans, key=lambda span: trace.order(span.place))))
    names = list(dict.fromkeys(span.name for span in spans))
    ax = ax if ax is not None else new_axes((10.0, min(max(2.4, 0.3 * len(places) + 1.4), 12.0)))
    looks = {name: (color(number), HATCHES[number % len(HATCHES)]) for number, name in enumerate(names)}
    row = {place: number for number, place in enumerate(places)}
    for what, (face, hatch) in looks.items():
        for place in places:
            own = [(s.start, s.end - s.start) for s in spans if s.place == place and s.name == what]
            if own:
                ax.broken_barh(
                    own, (row[place] - 0.4, 0.8), facecolor=face, hatch=hatch, edgecolor="white", linewidth=0.2
                )
    step = -(-len(places) // (4 * MOST_NAMED))
    size = "small" if len(places) <= 2 * MOST_NAMED else "xx-small"
    ax.set_yticks(range(0, len(places), step), places[::step], fontsize=size, parse_math=False)
    ax.set_ylim(len(places) - 0.4, -0.6)
    ax.set_xlim(0, 1.01 * max(span.end for span in spans))
    ax.set_xlabel(unit)
    if name:
        ax.set_title(name, parse_math=False, fontsize="medium")
    ax.grid(axis="x", alpha=0.3)
    ax.set_axisbelow(True)
    if len(looks) > 1:
        legend(ax, [Patch(facecolor=f, hatch=h, edgecolor="white", label=what) for what, (f, h) in looks.items()])
    return ax


def _spans(given: Any) -> tuple[list[Span], str, str]:
    """The spans, the unit of their times, and a title."""
    if isinstance(given, Estimate):
        spans, ghz = trace.spans(given)
        scaled = [Span(s.place, s.name, s.start / ghz / 1e3, s.end / ghz / 1e3) for s in spans]
        threads = "" if isinstance(given.machine, GpuMachine) else f", {counted(given.threads, 'thread')}"
        return scaled, "time (us)", title(given) + threads
    if isinstance(given, str | PathLike):
        try:
            given = json.loads(untrusted.plain(Path(given)).decode("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise InvalidArgument(f"{given!s:.80}: {error}; a file of `simdnn bench --trace` is needed") from None
    if isinstance(given, Simulated):
        given = given.spans
    if isinstance(given, Mapping):
        given = given.get("traceEvents")
    if isinstance(given, Sequence) and all(isinstance(one, Span) for one in given):
        return list(given), "cycles", ""
    return *_of_events(given), ""


def _of_events(events: Any) -> tuple[list[Span], str]:
    """The spans of trace events; several problems' tracks stand below each other."""
    wanted = "a Result, spans, or a trace of `simdnn bench --trace` is needed"
    if not isinstance(events, Sequence) or isinstance(events, str | bytes):
        raise InvalidArgument(f"met {type(events).__name__}; {wanted}")
    if others := [type(one).__name__ for one in events if not isinstance(one, Mapping)]:
        raise InvalidArgument(f"met a list of {others[0]}; {wanted}")
    try:
        names = {
            (one["name"], one["pid"], one["tid"]): str(one["args"]["name"]) for one in events if one.get("ph") == "M"
        }
        several = len({one["pid"] for one in events}) > 1
        found = []
        for one in events:
            if one.get("ph") == "X":
                place = names["thread_name", one["pid"], one["tid"]]
                place += f" of {names['process_name', one['pid'], 0]}" if several else ""
                start = float(one["ts"])
                found.append(Span(place, str(one["name"]), start, start + float(one["dur"])))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidArgument(f"no trace: {type(error).__name__} {error}; {wanted}") from None
    return found, "time (us)"
