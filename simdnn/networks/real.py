"""A trained network with real data in each precision mode: how good its answers are, and how long they take.

What a network must bring along is told in `workloads.real`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from isa_models import InvalidArgument, SimdnnError
from isa_models.machines.loader import AnyMachine
from simdnn.networks.load import read
from simdnn.networks.modes import Calibrated, Seen, computes, error_of, floats_of, in_mode, node_rows
from simdnn.networks.network import Network, load
from simdnn.networks.precision import ANY_ISA, MODES, Mode
from simdnn.networks.runner import Frames, InMode, Row, check_scoped, run_modes
from simdnn.primitives import Attr
from simdnn.progress import Progress, shows
from workloads import RealNetwork
from workloads.real import CostPhase, Data, Picture

if TYPE_CHECKING:
    import onnx


def modes_of(network: RealNetwork) -> dict[str, Mode]:
    """The modes that a network can be run in: those of every network, and its own variants."""
    own = {
        name: Mode(name, variant.title, "f32", "own", ANY_ISA, fpmath=variant.fpmath, default=False)
        for name, variant in network.variants.items()
    }
    return {**MODES, **own}


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
    progress: Progress | None = None,
    **where: Any,
) -> Frames:
    """A row a node, mode and phase; totals with the network's metrics over `count` samples, and errors of the outputs
    of the first one against f32's. Costs are those of a sample that comes alone, or of the phase.

    `modes` maps each to the ISA cap that it runs under (as `modes.choose` finds them), `isa` caps the f32 that
    `speed_up` is over; `where` are other arguments of `Network.run`. `values=False`: the cost alone. `layers`: errors
    of each node's output for the first sample, too. int8 modes take their ranges from calibration data that the samples
    are not part of. A mode that a node refuses has the reason in `refused`. Raises `SimdnnError` with the command that
    fetches the model where it is not there.
    """
    model, _ = read(network.model())
    data = network.data(model, network.count if count is None else count, seed)
    if "fpmath_layers" in where:
        check_scoped([node.name for node in load(model).graph.nodes], where["fpmath_layers"])
    told = frozenset(modes)
    part = RealRun(network, model, data, {**where, "machine": machine}, told, values, layers, progress)
    found = run_modes([part], modes, isa=isa)
    return replace(found, pictures=part.pictures)


def continued(network: RealNetwork, mode: Mode, text: str, count: int, **where: Any) -> Iterator[str]:
    """At most `count` tokens that a language model writes after a text; `where` are arguments of `Network.run`.

    Modes that take ranges from calibration data have them from a `network`'s own. Raises `InvalidArgument` for a
    network that writes no text.
    """
    if network.continues is None:
        raise InvalidArgument(f"{network.name} writes no text")
    model, _ = read(network.model())
    program, attr = RealRun(network, model, network.data(model, 1, 0), where).prepared(mode)
    yield from network.continues(lambda feeds: program.run(feeds, attr=attr, **where).outputs, text, count)


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

    def prepared(self, mode: Mode) -> tuple[Network, Attr]:
        """The program of a mode."""
        variant = self.network.variants.get(mode.name)
        return in_mode(self.calibrated if variant is None else Calibrated(variant.model(), ()), mode)

    def reference(self) -> _Answers:
        """Empty: the first mode, f32, fills it."""
        return _Answers(Seen(self.layers))

    def in_mode(self, mode: Mode, isa: str | None, reference: _Answers) -> InMode:
        """A row a node and phase. Errors of nodes are told where a phase runs the program of the samples."""
        prepared = self.prepared(mode)
        whole: Row = {"refused": ""}
        errors: Mapping[str, Row] | None = None
        if self.values:
            met = self._answers(mode, isa, prepared)
            if mode == self.base:
                reference.found, reference.seen = met.found, met.seen
            if mode in self.told:
                against = reference.found if self.network.against_f32 else []
                whole |= {**self.data.score(met.found, against), "samples": len(self.data.samples)}
            whole |= error_of(met.seen.outputs, reference.seen.outputs)
            errors = met.seen.errors(reference.seen)
        rows, wholes = [], []
        for phase in self.data.phases or [CostPhase("", self.data.samples[0])]:
            network, attr = prepared if phase.name not in self.phases else in_mode(self.phases[phase.name], mode)
            cost = network.estimate(phase.feeds, isa=isa, attr=attr, **self.where)
            named = {"phase": phase.name} if phase.name else {}
            told = node_rows(cost, errors if phase.name not in self.phases else None)
            rows += [named | row for row in told]
            rate = {"tokens_per_s": phase.tokens / cost.seconds} if phase.tokens else {}
            wholes.append(named | rate | whole | {"computes": computes(cost)})
        return InMode(rows, wholes)

    def refused(self, mode: Mode, reason: str) -> InMode:
        return InMode([], [{"refused": reason}])

    def _answers(self, mode: Mode, isa: str | None, prepared: tuple[Network, Attr]) -> _Answers:
        """The network's answer to each sample."""
        network, attr = prepared
        found = _Answers(Seen(self.layers))
        whole = mode in self.told or self.network.against_f32
        samples = self.data.samples if whole else self.data.samples[:1]
        total = len(self.data.samples) * len(self.told)
        total += 0 if self.base in self.told else len(self.data.samples) if self.network.against_f32 else 1
        for number, sample in enumerate(samples):
            if self.progress:
                self.progress(self.done, total, f"{self.network.samples}, {mode.name}")
            watch = None if number else found.seen.watching(network)
            result = network.run(sample, isa=isa, attr=attr, watch=watch, **self.where)
            if not number:
                found.seen.outputs = floats_of(result)
                if self.data.picture and whole:
                    self.pictures[mode.name] = self.data.picture(result.outputs)
            found.found.append(self.data.answer(result.outputs))
            self.done += 1
        return found


@dataclass(eq=False)
class _Answers:
    """A mode's answer to each sample, and the values that the first one met."""

    seen: Seen
    found: list[Any] = field(default_factory=list)
