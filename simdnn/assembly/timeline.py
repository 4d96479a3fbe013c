"""When each instruction of a loop's first iterations does what: as text, for Konata, for Perfetto."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from isa_models.machines.cpu_record import Machine
from isa_models.records.display import InNotebooks
from simdnn.files import LEGEND, MARK
from simdnn.timing.cpu.pipeline import trace_loop
from simdnn.timing.cpu.steps import Step

ITERATIONS = 3
WIDEST = 160  # columns of cycles in the text


@dataclass(frozen=True)
class InFlight:
    """An instruction in flight: the cycles of its stages. A stage that an instruction does not go through is None."""

    iteration: int
    index: int
    text: str
    dispatched: int
    load_issued: int | None
    loaded: int | None
    issued: int | None
    done: int
    retired: int

    def stages(self) -> list[tuple[str, int, int]]:
        """(stage, first cycle, cycle behind the last), without gaps."""
        marks = [("dispatch", self.dispatched)]
        if self.load_issued is not None:
            marks += [("load", self.load_issued), ("loaded", self.loaded or self.load_issued)]
        if self.issued is not None:
            marks.append(("execute", self.issued))
        marks += [("done", self.done), ("retire", self.retired)]
        ends = [at for _, at in marks[1:]] + [self.retired + 1]
        return [(name, at, end) for (name, at), end in zip(marks, ends, strict=True) if end > at]


@dataclass(frozen=True)
class Timeline(InNotebooks):
    """The first iterations of a loop, from an empty core."""

    events: tuple[InFlight, ...]

    @classmethod
    def of(
        cls, machine: Machine, steps: Sequence[Step], texts: Sequence[str], iterations: int = ITERATIONS
    ) -> Timeline:
        """The first iterations of these steps; `texts` of their ops, fused ones counted once."""
        events = []
        for number, entry in enumerate(trace_loop(machine, steps, iterations)):
            events.append(
                InFlight(
                    entry.iteration,
                    number % len(texts),
                    texts[number % len(texts)],
                    entry.dispatched,
                    _whole(entry.load_issued),
                    _whole(entry.loaded),
                    _whole(entry.issued),
                    int(entry.done),
                    entry.retired,
                )
            )
        return cls(tuple(events))

    def __str__(self) -> str:
        """A line for each instruction: D dispatched, = waits, L loads, E executes, - done, R retires."""
        last = min(WIDEST, max(event.retired for event in self.events) + 1)
        wide = max(len(event.text) for event in self.events) + 2
        lines = [
            LEGEND,
            "".ljust(wide + 7) + "".join(str(cycle // 10 % 10) if cycle % 10 == 0 else "." for cycle in range(last)),
        ]
        for event in self.events:
            name = f"[{event.iteration},{event.index}]"
            lines.append(f"{name:<7}{event.text.ljust(wide)}{_drawn(event)[:last].rstrip()}")
        return "\n".join(lines)

    def konata(self) -> str:
        """The log format of Konata (Kanata 0004): https://github.com/shioyadan/Konata."""
        at: dict[int, list[str]] = {}
        for number, event in enumerate(self.events):
            first = at.setdefault(event.dispatched, [])
            first += [f"I\t{number}\t{number}\t0", f"L\t{number}\t0\t[{event.iteration}] {event.text}"]
            for stage, start, end in event.stages():
                at.setdefault(start, []).append(f"S\t{number}\t0\t{_KONATA[stage]}")
                at.setdefault(end, []).append(f"E\t{number}\t0\t{_KONATA[stage]}")
            at.setdefault(event.retired + 1, []).append(f"R\t{number}\t{number}\t0")
        lines, now = ["Kanata\t0004", "C=\t0"], 0
        for cycle in sorted(at):
            if cycle > now:
                lines.append(f"C\t{cycle - now}")
            lines += sorted(at[cycle], key=lambda line: "EILSR".index(line[0]))
            now = cycle
        return "\n".join(lines) + "\n"

    def perfetto(self) -> str:
        """Chrome's trace-event JSON, which ui.perfetto.dev opens; a microsecond there is a cycle."""
        return json.dumps(MARK | {"traceEvents": list(self._trace_events()), "displayTimeUnit": "ns"}, indent=0)

    def _trace_events(self) -> Iterator[dict[str, object]]:
        for number, event in enumerate(self.events):
            name = f"[{event.iteration}] {event.text}"
            yield {"ph": "M", "name": "thread_name", "pid": 1, "tid": number, "args": {"name": name}}
            for stage, start, end in event.stages():
                yield {
                    "ph": "X",
                    "name": stage,
                    "cat": event.text,
                    "pid": 1,
                    "tid": number,
                    "ts": start,
                    "dur": end - start,
                    "args": {"iteration": event.iteration},
                }


def together(timelines: Mapping[str, Timeline]) -> Timeline:
    """One timeline of several machines', by their names, which stand before the instructions where they are several."""
    if len(timelines) == 1:
        return next(iter(timelines.values()))
    named = (replace(one, text=f"{name}: {one.text}") for name, line in timelines.items() for one in line.events)
    return Timeline(tuple(named))


#: names of stages there; the one with an X is where Konata's arrows would start
_KONATA = {"dispatch": "Ds", "load": "Ld", "loaded": "Wt", "execute": "X", "done": "Dn", "retire": "Rt"}
_SIGNS = {"dispatch": "=", "load": "L", "loaded": "=", "execute": "E", "done": "-", "retire": "R"}


def _drawn(event: InFlight) -> str:
    drawn = [" "] * (event.retired + 1)
    for stage, start, end in event.stages():
        drawn[start:end] = _SIGNS[stage] * (end - start)
    drawn[event.dispatched] = "D"
    drawn[event.retired] = "R"
    return "".join(drawn)


def _whole(cycle: float | None) -> int | None:
    return None if cycle is None else int(cycle)
