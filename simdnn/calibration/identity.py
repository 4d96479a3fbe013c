"""Which shipped machine this host is, by how its core behaves: a guest's CPUID may be masked."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache

from isa_models.errors import SimdnnError, counted
from isa_models.isa import caps, host_caps
from isa_models.machines.cpu_record import Machine
from isa_models.machines.instruction_row import InstructionTiming
from isa_models.machines.loader import cpu_machine
from isa_models.machines.shipped import HOST, machine_names
from isa_models.machines.variants import split
from simdnn.calibration.behaviour import SLOTS, Behaviour, behaviour, nine_slots_of, predicted
from simdnn.calibration.figures import Figure, instruction_figures
from simdnn.calibration.forms import COPIES, forms, repeated
from simdnn.progress import Progress
from simdnn.timing.cpu import bounds
from simdnn.timing.cpu.steps import Step, lower

FOREIGN = 0.02  # what an ISA cap that the host lacks counts against a machine, in mean logarithms of ratios
ALIKE = 0.1  # relative difference of two figures, or of the loop's cycles, up to which they are taken for one core's
MOST = 0.85  # of figures within that; a Granite Rapids agrees in 0.91 with `gnr`, `zen5` in 0.76 with `zen4`
SAMPLE = 100  # forms from all over the list, whose figures tell cores apart in some seconds
SECONDS = 30.0  # at most
PARTS = 10  # of the sample, one after the other: where others have the core, a few forms are told for certain
LEAST = 20  # stable figures, below which nothing is told
Figures = Mapping[tuple[str, str], Figure]


@dataclass(frozen=True)
class Identity:
    """The shipped machine nearest to this host; `within` of `compared` figures of instructions agree within `ALIKE`."""

    machine: Machine
    seen: Behaviour
    within: int
    compared: int
    apart: tuple[str, ...]  # in which ways this host is another core; empty where it behaves like the machine

    def __str__(self) -> str:
        name = f"{self.machine.name}, {self.machine.title}"
        said = f"this host is none of the machines that ship; nearest is {name}, but it {' and '.join(self.apart)}"
        figures = f"{self.within} of {counted(self.compared, 'figure')} of instructions agree within {ALIKE:.0%}"
        return f"{said if self.apart else f'this host behaves like {name}'}\n({figures}; {self.seen})"

    def beside(self, target: Machine) -> str:
        """A sentence on what a machine's predictions are to this host."""
        base, _ = split(target.name) or (target.name, {})
        if base in (self.machine.name, HOST):
            return str(self)
        return f"{self}\nratios compare it with another core, {target.name}"


def identify(progress: Progress) -> Identity:
    """This host's identity by a sample of its instructions: some seconds; up to 90 where others have the core, too.

    `simdnn calibrate` measures all of them.
    """
    progress(0, PARTS, "how this core behaves")
    seen, every = behaviour(), forms()
    sample = every[:: max(1, len(every) // SAMPLE)]
    found: dict[tuple[str, str], Figure] = {}
    for part in range(PARTS):
        found |= instruction_figures(sample[part::PARTS], SECONDS / PARTS, progress)
    if sum(figure.stable for figure in found.values()) < LEAST:
        raise SimdnnError(
            "other work shares this core all the time, so that nothing tells which machine it is; name one (--machine)"
        )
    return identity(found, seen)


def identity(measured: Figures, seen: Behaviour) -> Identity:
    """The identity that figures of this host and its behaviour tell."""
    isa = {*(cap for cap in caps() if cap in host_caps()), *seen.hidden}
    base = nearest(measured, isa, seen)
    ratios = _ratios(base, measured, explained)
    within = sum(ratio <= math.log(1 + ALIKE) for ratio in ratios)
    return Identity(base, seen, within, len(ratios), tuple(_apart(base, isa, seen, within / max(1, len(ratios)))))


def _apart(base: Machine, isa: Collection[str], seen: Behaviour, alike: float) -> list[str]:
    """The ways in which a host is another core than its nearest machine."""
    found = []
    slots = nine_slots_of(base)
    if lacking := sorted(set(base.isa) - set(isa)):
        found.append(f"lacks {' '.join(lacking)}")
    if slots and seen.nine_slots and abs(seen.nine_slots / slots - 1) > ALIKE:
        found.append(f"takes {seen.nine_slots:.2f} cycles for a loop of {SLOTS} slots instead of {slots:.2f}")
    if alike < MOST:
        found.append(f"agrees in {alike:.0%} of the figures")
    return found


def nearest(measured: Figures, isa: Collection[str], seen: Behaviour | None = None) -> Machine:
    """The shipped machine whose figures differ least, by the mean ratio of throughputs and latencies.

    Of those that have all of the host's `isa` that any machine has, if any do; each cap that the host lacks counts
    against one, and so does a loop of nine slots that takes another time there.
    """

    def distance(target: Machine) -> float:
        found = _ratios(target, measured, throughput_of)
        common = len(found) / max(1, len(measured))
        slots = nine_slots_of(target) if seen and seen.nine_slots else None
        apart = abs(math.log(seen.nine_slots / slots)) if seen and seen.nine_slots and slots else 0.0
        return (
            sum(found) / max(1, len(found))
            + (1.0 - min(1.0, common))
            + apart
            + FOREIGN * len(set(target.isa) - set(isa))
        )

    cpus = [m for name in machine_names() if isinstance(m := cpu_machine(name), Machine)]
    known = set(isa) & {cap for m in cpus for cap in m.isa}
    return min([m for m in cpus if known <= set(m.isa)] or cpus, key=distance)


def _ratios(target: Machine, measured: Figures, expected: Callable[[Machine, InstructionTiming], float]) -> list[float]:
    """Logarithms, without sign, of measured figures over a machine's: throughputs, as `expected` of its rows, and
    latencies, of stable forms.
    """
    found = []
    for key, figure in measured.items():
        row = target.instructions.get(key)
        if row is None or not figure.stable:
            continue
        found.append(abs(math.log(max(0.1, figure.throughput) / max(0.1, expected(target, row)))))
        if figure.latency and row.latency:
            found.append(abs(math.log(max(0.2, figure.latency) / row.latency)))
    return found


@lru_cache(4096)
def explained(target: Machine, row: InstructionTiming) -> float:
    """Cycles of one of a form's copies in the loop by which it is measured, as a machine's clock predicts that loop:
    flags and destinations that are read, and updates of memory, count there as they do on a host.
    """
    cycles = predicted(target, repeated(row.mnemonic, row.form))
    return throughput_of(target, row) if cycles is None else cycles / COPIES


def throughput_of(target: Machine, row: InstructionTiming) -> float:
    """Cycles between two of a form on a machine, by its table alone: at once, for many machines."""
    ops = lower(target, [Step(row.mnemonic, row.form, ("a", "b"), ("c",))])
    memory = max(bounds.load_pipes(target, ops), bounds.store_commit(ops))
    return max(bounds.port_load(ops), memory, bounds.dispatch(target, ops))
