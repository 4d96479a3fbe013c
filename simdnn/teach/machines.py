"""The machine of a view, and the figures of it that can be moved."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from isa_models import GpuMachine, Machine, gpu_machine_names, machine_names, what_if
from isa_models.machines.instruction_row import InstructionTiming
from simdnn.teach.forms import Field, FieldGroup, Query

AnyMachine = Machine | GpuMachine
MOVED = "move."  # begins the name of a figure's field
_OF = "moved_of"  # the field that says whose figures were moved


@dataclass(frozen=True)
class Slider:
    """A figure that can be moved: its key, its value, its limits, and what `what_if` is told of a number."""

    key: str
    label: str
    value: float
    least: float
    most: float
    step: float = 1
    written: Callable[[float], Any] = lambda number: int(number) if number == int(number) else number

    @property
    def field(self) -> str:
        """The name of its field."""
        return MOVED + self.key


def machine_field(query: Query, name: str = "machine", default: str = "zen4") -> Field:
    """The field of a machine's name: one that ships, a file, or "zen4 with cores = 4"."""
    known = [*machine_names(), *gpu_machine_names()]
    return Field(name, "machine", query.text(name, default), known, free=True)


def moved(query: Query, figures: Mapping[str, Slider], base: AnyMachine) -> AnyMachine:
    """The machine with the figures that were moved. Raises what `what_if` raises, `InvalidArgument` for no number."""
    if query.text(_OF, base.name) != base.name:  # moved on another machine
        return base
    changes = {}
    for figure in figures.values():
        number = query.number(figure.field, figure.value, figure.least, figure.most)
        if number != figure.value:
            changes[figure.key] = figure.written(number)
    return what_if(base, changes) if changes else base


def figures(base: AnyMachine, rows: Iterable[InstructionTiming] = ()) -> dict[str, Slider]:
    """The figures of a machine that can be moved, by their keys.

    `rows`: of a CPU, the rows that the loop that is shown uses: latency and ports of the slowest that computes, and the
    widest loads, are among the figures.
    """
    made = _of_cpu(base, list(rows)) if isinstance(base, Machine) else _of_gpu(base)
    return {figure.key: _reachable(figure) for figure in made}


def _reachable(figure: Slider) -> Slider:
    """The slider with limits and steps that the table's own value is among: a slider takes no other."""
    below = math.floor((figure.value - figure.least) / figure.step) * figure.step
    return replace(figure, least=min(figure.value, figure.value - below), most=max(figure.most, figure.value))


def field_group(query: Query, figures: Mapping[str, Slider], base: AnyMachine) -> FieldGroup:
    """The sliders of figures."""
    same = query.text(_OF, base.name) == base.name
    fields = [
        Field(
            figure.field,
            figure.label,
            same and query.text(figure.field) or f"{figure.value:g}",
            least=figure.least,
            most=figure.most,
            step=figure.step,
            note=f"{figure.value:g} in the table",
        )
        for figure in figures.values()
    ]
    fields.append(Field(_OF, "", base.name, hidden=True))
    return FieldGroup(f"Move figures of {base.name}", tuple(fields))


def _of_cpu(base: Machine, rows: Sequence[InstructionTiming]) -> Iterator[Slider]:
    core = base.core
    yield Slider("core.dispatch_slots", "dispatch slots a cycle", core.dispatch_slots, 1, 16)
    yield Slider("core.reorder_buffer", "reorder buffer", core.reorder_buffer, 16, 1024, 16)
    if loads := [row for row in rows if row.load_bits and row.vector_bits]:
        width = core.load(max(row.load_bits for row in loads))
        key = f"core.load.{'general.' if width.general else ''}{width.bits}"
        yield Slider(f"{key}.latency", f"latency of {width.bits}-bit loads", width.latency, 1, 40)
        if len(core.load_ports) > 1 and width.pipes % 1 == 0:
            label = f"load pipes that a {width.bits}-bit load takes"
            yield Slider(f"{key}.pipes", label, width.pipes, 1, len(core.load_ports))
    computing = (row for row in rows if row.uops and (row.vector_bits or row.tile))
    if work := [row for row in computing if not row.load_bits and not row.store_bits]:
        row = max(work, key=lambda row: row.latency)
        name = f"instructions.{row.mnemonic} {row.form}"
        yield Slider(f"{name}.latency", f"latency of {row.mnemonic}", row.latency, 1, 32)
        if len(row.uops) == 1:
            ports = _ports(base, row.uops[0])
            label = f"ports that take {row.mnemonic}"
            yield Slider(f"{name}.uops", label, len(row.uops[0]), 1, len(ports), 1, lambda n: [list(ports[: int(n)])])


def _ports(base: Machine, own: tuple[str, ...]) -> tuple[str, ...]:
    """The ports of an instruction, then the others of the schedulers before them."""
    more = (port for scheduler in base.core.schedulers if {*scheduler.ports} & {*own} for port in scheduler.ports)
    return tuple(dict.fromkeys((*own, *more)))


#: key, label, value, least, most, step; those that a machine's file has are shown
_OF_GPUS: tuple[tuple[str, str, Callable[[GpuMachine], float], float, float, float], ...] = (
    ("latency.dpas_8", "latency of DPAS", lambda m: m.latency.dpas[8], 1, 100, 1),
    ("latency.mma", "latency of mma", lambda m: m.latency.mma, 1, 100, 1),
    ("latency.vector", "latency of the vector pipe", lambda m: m.latency.vector, 1, 40, 1),
    ("latency.l1", "latency of L1", lambda m: m.latency.l1, 1, 200, 1),
    ("caches.L1.bytes_per_cycle", "bytes a cycle from L1", lambda m: m.l1.bytes_per_cycle, 16, 512, 16),
    ("caches.L2.bytes_per_cycle", "bytes a cycle from L2", lambda m: m.l2.bytes_per_cycle, 8, 256, 8),
)


def _of_gpu(base: GpuMachine) -> Iterator[Slider]:
    for key, label, value, least, most, step in _OF_GPUS:
        if key in base.provenance:
            yield Slider(key, label, value(base), least, most, step)
