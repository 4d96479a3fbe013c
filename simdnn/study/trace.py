"""A run as a timeline for Perfetto (ui.perfetto.dev) or chrome://tracing: what cores, pipes and channels do when.

Cores and channels are those of the system model (`simdnn.timing.system`), so the rounds of tiles in the middle of a
long run are left out, as they are there. An engine's pipes are known by their share of a tile's time: their spans
begin with the core's and last for that share.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isa_models import GpuMachine
from simdnn import files
from simdnn.primitives.result import Estimate
from simdnn.timing.cpu.threads import share_out
from simdnn.timing.gpu.estimate import gpu_time
from simdnn.timing.memory import kind_of_code
from simdnn.timing.system import Span

Event = dict[str, Any]
_CORE = re.compile(r"core (\d{1,9})(?!\S)", re.ASCII)  # in files of others, too


def spans(estimate: Estimate) -> tuple[list[Span], float]:
    """Activities of cores, an engine's pipes and channels, in cycles, in no order of places; and the clock in GHz.

    Raises `UnknownTiming` where the machine lacks a figure.
    """
    machine, program = estimate.machine, estimate.kernel.timed or estimate.kernel.program
    if not isinstance(machine, GpuMachine):
        shared = share_out(program, machine, estimate.threads, spans=True)
        return list(shared.simulated.spans), machine.frequency.ghz(*kind_of_code(program))
    time = gpu_time(program, machine, spans=True)
    shares = {  # of a stage's time, by its name and the pipe
        s.stage.name: {p: busy / max(s.stage.cycles, 1e-9) for p, busy in s.engine.busy.items() if busy}
        for s in time.stages
    }
    return [*time.simulated.spans, *_pipes(time.simulated.spans, shares)], time.ghz


def events(estimate: Estimate, process: int = 0) -> list[Event]:
    """The trace events of one problem, times in microseconds; `process` is its number in the picture.

    Raises `UnknownTiming` where the machine lacks a figure.
    """
    drawn, ghz = spans(estimate)
    tracks = {place: number for number, place in enumerate(sorted({span.place for span in drawn}, key=order))}
    name = f"{estimate.implementation} on {estimate.machine.name}"
    found: list[Event] = [_named("process_name", name, process, 0)]
    found += [_named("thread_name", place, process, number) for place, number in tracks.items()]
    for span in drawn:
        start, end = (round(cycles / ghz / 1e3, 4) for cycles in (span.start, span.end))
        found.append(
            {
                "name": span.name,
                "ph": "X",
                "ts": start,
                "dur": round(end - start, 4),
                "pid": process,
                "tid": tracks[span.place],
                "args": {"cycles": round(span.end - span.start, 1)},
            }
        )
    return found


def write(path: Path, estimates: Sequence[Estimate]) -> None:
    """Write one file with a process for each problem. Raises `InvalidArgument` where another's file is there."""
    every = [event for number, estimate in enumerate(estimates) for event in events(estimate, number)]
    content = files.MARK | {"traceEvents": every, "displayTimeUnit": "ns"}
    files.write_text(path, json.dumps(content, separators=(",", ":")))


def _pipes(spans: Sequence[Span], shares: Mapping[str, Mapping[str, float]]) -> list[Span]:
    return [
        Span(f"{span.place} {pipe}", pipe, span.start, span.start + share * (span.end - span.start))
        for span in spans
        if span.place.startswith("core ")
        for pipe, share in shares.get(span.name, {}).items()
    ]


def order(place: str) -> tuple[bool, int, str]:
    """Cores by number, each followed by its pipes, then channels."""
    core = _CORE.match(place)
    return core is None, int(core[1]) if core else 0, place


def _named(kind: str, name: str, process: int, track: int) -> Event:
    return {"name": kind, "ph": "M", "pid": process, "tid": track, "args": {"name": name}}
