"""A trained network with real data in each precision mode: how good its answers are, and how long they take.

What a network must bring along is told in `workloads.real`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

import isa_models
from isa_models import InvalidArgument, SimdnnError
from isa_models.machines.loader import AnyMachine
from simdnn.networks.judging import error_of, floats_of
from simdnn.networks.load import read
from simdnn.networks.modes import Calibrated, Seen, at_work, check_recipe, computes, kept, node_rows
from simdnn.networks.network import Network, load
from simdnn.networks.precision import ANY_ISA, GPUS, MODES, Mode
from simdnn.networks.quantized_writer import Ranges
from simdnn.networks.result import NetworkEstimate
from simdnn.networks.runner import ERRORS, Frames, InMode, Row, check_scoped, product_type, run_modes
from simdnn.progress import Progress, shows
from workloads import RealNetwork
from workloads.real import CostPhase, Data, Picture

if TYPE_CHECKING:
    import onnx


def modes_of(network: RealNetwork) -> dict[str, Mode]:
    """The modes that a network can be run in: those of every network, and its own variants."""
    own = {
        name: Mode(name, variant.title, "f32", "own", ANY_ISA, fpmath=variant.fpmath, default=False, gpus=GPUS)
        for name, variant in network.variants.items()
    }
    return {**MODES, **own}


Prepared = tuple[Network, Mapping[str, Any]]  # a program, and what else `Network.run` takes to run it in a mode
Quality = tuple[Row, Mapping[str, Row]]  # of the whole, and errors of nodes by name


@dataclass(frozen=True, eq=False)
class Lender:
    """A run on another machine, whose figures of quality stand for a mode that has the same types of products in all
    layers, saturating or not. Values are then the same but for the order of sums.
    """

    machine: str
    frames: Frames

    def lend(self, mode: Mode, rows: Sequence[Row], columns: Sequence[str]) -> Quality | None:
        """The figures of a mode in `columns`, as far as they are known, and whose they are; `rows` are its layers here.
        None where the mode was not run there, or products have other types.
        """
        layers, totals = (frame[frame["mode"] == mode.name] for frame in (self.frames.layers, self.frames.totals))
        known = layers.to_dict("records")
        alike = [_product(row) for row in known] == [_product(row) for row in rows]
        if totals.empty or (totals["refused"] != "").any() or not alike:
            return None
        figures = {name: totals[name].iloc[0] for name in (*columns, *ERRORS) if name in totals}
        told = [row for row in known if not np.isnan(row.get("sqnr_db", np.nan))]
        errors = {row["layer"]: {name: row[name] for name in ERRORS} for row in told}
        return figures | {"values_of": self.machine}, errors


def _product(row: Mapping[Any, Any]) -> tuple[Any, ...]:
    """A layer's name and the type of its products, by which values of two machines are told to be alike."""
    return row.get("phase"), row["layer"], product_type(row["implementation"], row["compute_dtype"])


@shows
def run_real(
    network: RealNetwork,
    modes: Mapping[Mode, str | None],
    *,
    machine: str | AnyMachine = "zen4",
    isa: str | None = None,
    count: int | None = None,
    seed: int = 0,
    values: bool = True,
    layers: bool = False,
    lender: Lender | None = None,
    ranges: Ranges | None = None,
    progress: Progress | None = None,
    **where: Any,
) -> Frames:
    """A row a node, mode and phase; totals with the network's metrics over `count` samples, and errors of the outputs
    of the first one against f32's. Costs are those of a sample that comes alone, or of the phase.

    `modes` maps each to the ISA cap that it runs under (as `modes.choose` finds them), `isa` caps the f32 that
    `speed_up` is over; `where` are other arguments of `Network.run`. `values=False`: the cost alone. `layers`: errors
    of each node's output for the first sample, too. `lender`: modes take their figures of quality from it where it has
    them, and `values_of` says so; the others are run. int8 modes take their ranges from calibration data that the
    samples are not part of. A mode may be a recipe of the network's layers, which takes `ranges` where they are known
    (those of its file). A mode that a node refuses has the reason in `refused`. Raises `SimdnnError` with the command
    that fetches the model where it is not there, `UnknownName` for a recipe with a layer that the network lacks.
    """
    model, _ = read(network.model())
    data = network.data(model, network.count if count is None else count, seed)
    if "fpmath_layers" in where:
        check_scoped([node.name for node in load(model).graph.nodes], where["fpmath_layers"])
    told = frozenset(modes)
    where |= {"machine": machine}
    base_isa = modes.get(MODES["f32"], isa)
    part = RealRun(network, model, data, where, told, values, layers, progress, lender, base_isa, ranges)
    for mode in modes:
        if mode.layers:
            check_recipe(part.calibrated_for(mode), mode)
    found = run_modes([part], modes, isa=isa)
    return replace(found, pictures=part.pictures)


def continued(
    network: RealNetwork,
    mode: Mode,
    text: str,
    count: int,
    *,
    machine: str | AnyMachine = "zen4",
    isa: str | None = None,
    ranges: Ranges | None = None,
    **where: Any,
) -> Iterator[str]:
    """At most `count` tokens that a language model writes after a text; `where` are arguments of `Network.run`.

    Modes that take ranges from calibration data have them from a `network`'s own; a recipe takes `ranges` where they
    are known. Raises `InvalidArgument` for a
    network that writes no text.
    """
    if network.continues is None:
        raise InvalidArgument(f"{network.name} writes no text")
    model, _ = read(network.model())
    where |= {"machine": machine}
    program, how = RealRun(network, model, network.data(model, 1, 0), where, ranges=ranges).prepared(mode, isa)
    yield from network.continues(lambda feeds: program.run(feeds, isa=isa, **how, **where).outputs, text, count)


@dataclass(eq=False)
class RealRun:
    """A fetched network with data as a `runner.Part`. Modes that are not `told` run the first sample alone, unless all
    answers are compared with f32's. `done` samples are behind it.
    """

    network: RealNetwork
    model: onnx.ModelProto
    data: Data
    where: dict[str, Any]
    told: frozenset[Mode] = frozenset()
    values: bool = True
    layers: bool = False
    progress: Progress | None = None
    lender: Lender | None = None
    base_isa: str | None = None  # under which f32 runs
    ranges: Ranges | None = None  # that a recipe's file tells
    done: int = 0
    base: Mode | None = MODES["f32"]
    hides: bool = False
    refusals: tuple[type[SimdnnError], ...] = (SimdnnError,)
    macs: int = 0

    def __post_init__(self) -> None:
        self.name = self.network.name
        self.pictures: dict[str, Picture] = dict(self.data.pictures)
        self.calibrated = Calibrated(self.model, self.data.calibration)
        self.phases = {  # those that have a program of their own
            phase.name: Calibrated(phase.model, phase.calibration) for phase in self.data.phases if phase.model
        }

    @cached_property
    def _with_told_ranges(self) -> Calibrated:
        return self.calibrated if self.ranges is None else replace(self.calibrated, known=self.ranges)

    def calibrated_for(self, mode: Mode) -> Calibrated:
        """The model that a mode is made of: a variant's own, for a recipe with the ranges that its file tells."""
        variant = self.network.variants.get(mode.name)
        if variant is not None:
            return Calibrated(variant.model(), ())
        return self._with_told_ranges if mode.layers else self.calibrated

    def prepared(self, mode: Mode, isa: str | None) -> Prepared:
        """The program of a mode, and how it runs."""
        return at_work(self.calibrated_for(mode), mode, self.where["machine"], isa)

    def reference(self) -> _Answers:
        """Empty: the first mode, f32, fills it."""
        return _Answers(Seen(self.layers))

    def in_mode(self, mode: Mode, isa: str | None, reference: _Answers) -> InMode:
        """A row a node and phase. Errors of nodes are told where a phase runs the program of the samples."""
        prepared = self.prepared(mode, isa)
        costs: list[tuple[CostPhase, NetworkEstimate]] = []
        for phase in self.data.phases or [CostPhase("", self.data.samples[0])]:
            own = self.phases.get(phase.name)
            network, how = at_work(own, mode, self.where["machine"], isa) if own else prepared
            costs.append((phase, network.estimate(phase.feeds, isa=isa, **how, **self.where)))
        whole, errors = self._quality(mode, isa, prepared, reference, costs) if self.values else ({}, {})
        wholes = []
        for phase, cost in costs:
            rate = {"tokens_per_s": phase.tokens / cost.seconds} if phase.tokens else {}
            wholes.append(_named(phase) | rate | whole | {"computes": computes(cost), "refused": ""})
        return InMode(self._rows(costs, errors), wholes, notes=kept(mode, prepared[0]))

    def _rows(self, costs: _Costs, errors: Mapping[str, Row]) -> list[Row]:
        """Nodes of all phases; their errors in those that run the program of the samples."""
        found = []
        for phase, cost in costs:
            found += [_named(phase) | row for row in node_rows(cost, errors if phase.name not in self.phases else {})]
        return found

    def _quality(self, mode: Mode, isa: str | None, prepared: Prepared, reference: _Answers, costs: _Costs) -> Quality:
        """How good a mode's answers are; lent, where that is asked for."""
        if self.lender:
            columns = (*(metric.name for metric in self.network.metrics), "samples")
            lent = self.lender.lend(mode, self._rows(costs, {}), columns)
            if lent is not None:
                return lent
            if mode == self.base and mode not in self.told:  # its time alone is asked for
                return {}, {}
            if mode != self.base and self.base and not reference.found:
                self._refer(reference, self._answers(self.base, self.base_isa, self.prepared(self.base, self.base_isa)))
        met = self._answers(mode, isa, prepared)
        if mode == self.base:
            self._refer(reference, met)
        whole: Row = {"values_of": isa_models.machine(self.where["machine"]).name} if self.lender else {}
        if mode in self.told:
            against = reference.found if self.network.against_f32 else []
            whole |= {**self.data.score(met.found, against), "samples": len(self.data.samples)}
        whole |= error_of(met.seen.outputs, reference.seen.outputs)
        return whole, met.seen.errors(reference.seen) or {}

    @staticmethod
    def _refer(reference: _Answers, met: _Answers) -> None:
        """Make what f32 gave the reference."""
        reference.found, reference.seen = met.found, met.seen

    def refused(self, mode: Mode, reason: str) -> InMode:
        return InMode([], [{"refused": reason}])

    def _answers(self, mode: Mode, isa: str | None, prepared: Prepared) -> _Answers:
        """The network's answer to each sample."""
        network, how = prepared
        found = _Answers(Seen(self.layers))
        whole = mode in self.told or self.network.against_f32
        samples = self.data.samples if whole else self.data.samples[:1]
        total = len(self.data.samples) * len(self.told)
        total += 0 if self.base in self.told else len(self.data.samples) if self.network.against_f32 else 1
        for number, sample in enumerate(samples):
            if self.progress:
                self.progress(self.done, total, f"{self.network.samples}, {mode.name}")
            watch = None if number else found.seen.watching(network)
            result = network.run(sample, isa=isa, watch=watch, **how, **self.where)
            if not number:
                found.seen.outputs = floats_of(result)
                if self.data.picture and whole:
                    self.pictures[mode.name] = self.data.picture(result.outputs)
            found.found.append(self.data.answer(result.outputs))
            self.done += 1
        return found


_Costs = Sequence[tuple[CostPhase, NetworkEstimate]]


def _named(phase: CostPhase) -> Row:
    return {"phase": phase.name} if phase.name else {}


@dataclass(eq=False)
class _Answers:
    """A mode's answer to each sample, and the values that the first one met."""

    seen: Seen
    found: list[Any] = field(default_factory=list)
