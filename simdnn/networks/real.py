"""A trained network with real data in each precision mode: how good its answers are, and how long they take.

What a network must bring along is told in `workloads.real`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd

from isa_models import InvalidArgument, SimdnnError
from simdnn.networks.load import read
from simdnn.networks.modes import Calibrated, Progress, in_mode
from simdnn.networks.network import Network
from simdnn.networks.precision import ANY_ISA, MODES, Mode
from simdnn.primitives import Attr
from workloads import RealNetwork
from workloads.real import CostPhase, Data, Picture

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True, eq=False)
class RealRun:
    """`rows`: one a mode and phase. `pictures`: what each mode made of the first sample, after what to compare with;
    empty where outputs are no pictures.
    """

    rows: pd.DataFrame
    pictures: Mapping[str, Picture]


def modes_of(network: RealNetwork) -> dict[str, Mode]:
    """The modes that a network can be run in: those of every network, and its own variants."""
    own = {
        name: Mode(name, variant.title, "f32", "own", ANY_ISA, fpmath=variant.fpmath, default=False)
        for name, variant in network.variants.items()
    }
    return {**MODES, **own}


def run_real(
    network: RealNetwork,
    modes: Mapping[Mode, str],
    *,
    machine: str = "zen4",
    isa: str | None = None,
    count: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **where: Any,
) -> RealRun:
    """A row a mode, or a mode and `phase`: the network's metrics over `samples` of them, and columns as of
    `study.totals`; costs are those of a sample that comes alone, or of the phase.

    `modes` maps each to the ISA cap that it runs under (as `modes.choose` finds them), `isa` caps the f32 that
    `speed_up` is over; `where` are other arguments of `Network.run`. int8 modes take their ranges from calibration
    data that the samples are not part of. A mode that a node refuses has the reason in `refused`. Raises `SimdnnError`
    with the command that fetches the model where it is not there.
    """
    model, _ = read(network.model())
    data = network.data(model, network.count if count is None else count, seed)
    runner = _Runner(network, model, data, {**where, "machine": machine}, progress, len(modes) * len(data.samples))
    f32 = MODES["f32"]
    exact, cap = runner.prepared(f32), modes.get(f32, isa)
    base = runner.costs(f32, cap, exact)
    reference: list[Any] = []
    if network.against_f32:
        runner.total += 0 if f32 in modes else len(data.samples)
        reference = runner.answers(f32, cap, exact)
    rows: list[dict[str, Any]] = []
    for mode, cap in modes.items():
        row: dict[str, Any] = {"mode": mode.name}
        try:
            prepared = runner.prepared(mode)
            answers = reference if reference and mode == f32 else runner.answers(mode, cap, prepared)
            row |= {**data.score(answers, reference), "samples": len(data.samples)}
            for cost, f32_cost in zip(runner.costs(mode, cap, prepared), base, strict=True):
                rows.append(row | {"speed_up": f32_cost["time_us"] / cost["time_us"]} | cost | {"refused": ""})
        except SimdnnError as error:
            rows.append(row | {"refused": str(error)})
    frame = pd.DataFrame(rows)
    if (frame["refused"] != "").all():
        raise SimdnnError(f"no mode could be run: {frame['refused'].iloc[0]}")
    return RealRun(frame, runner.pictures)


def continued(network: RealNetwork, mode: Mode, text: str, count: int, **where: Any) -> Iterator[str]:
    """At most `count` tokens that a language model writes after a text; `where` are arguments of `Network.run`.

    Modes that take ranges from calibration data have them from a `network`'s own. Raises `InvalidArgument` for a
    network that writes no text.
    """
    if network.continues is None:
        raise InvalidArgument(f"{network.name} writes no text")
    model, _ = read(network.model())
    runner = _Runner(network, model, network.data(model, 1, 0), where, None, 0)
    program, attr = runner.prepared(mode)
    yield from network.continues(lambda feeds: program.run(feeds, attr=attr, **where).outputs, text, count)


@dataclass
class _Runner:
    """Runs one network; `done` of `total` samples are behind it."""

    network: RealNetwork
    model: onnx.ModelProto
    data: Data
    where: dict[str, Any]
    progress: Progress | None
    total: int
    done: int = 0
    pictures: dict[str, Picture] = field(init=False)
    calibrated: Calibrated = field(init=False)
    phases: dict[str, Calibrated] = field(init=False)  # those that have a program of their own

    def __post_init__(self) -> None:
        self.pictures = dict(self.data.pictures)
        self.calibrated = Calibrated(self.model, self.data.calibration)
        self.phases = {
            phase.name: Calibrated(phase.model, phase.calibration) for phase in self.data.phases if phase.model
        }

    def prepared(self, mode: Mode) -> tuple[Network, Attr]:
        """The program of a mode."""
        variant = self.network.variants.get(mode.name)
        return in_mode(self.calibrated if variant is None else Calibrated(variant.model(), ()), mode)

    def answers(self, mode: Mode, isa: str | None, prepared: tuple[Network, Attr]) -> list[Any]:
        """What the network says to each sample."""
        network, attr = prepared
        found: list[Any] = []
        for sample in self.data.samples:
            if self.progress:
                self.progress(self.done, self.total, f"{self.network.samples}, {mode.name}")
            outputs = network.run(sample, isa=isa, attr=attr, **self.where).outputs
            if self.data.picture and not found:
                self.pictures[mode.name] = self.data.picture(outputs)
            found.append(self.data.answer(outputs))
            self.done += 1
        return found

    def costs(self, mode: Mode, isa: str | None, prepared: tuple[Network, Attr]) -> list[dict[str, Any]]:
        """The columns of cost, a row a phase."""
        rows = []
        for phase in self.data.phases or [CostPhase("", self.data.samples[0])]:
            network, attr = prepared if phase.name not in self.phases else in_mode(self.phases[phase.name], mode)
            cost = network.estimate(phase.feeds, isa=isa, attr=attr, **self.where)
            time_us = cost.seconds * 1e6
            row: dict[str, Any] = {"phase": phase.name} if phase.name else {}
            row |= {"tokens_per_s": phase.tokens / cost.seconds} if phase.tokens else {}
            rows.append(
                row
                | {
                    "cycles": cost.cycles,
                    "time_us": time_us,
                    "macs": cost.macs,
                    "gops": 2e-3 * cost.macs / time_us,
                    "confidence": cost.confidence,
                }
            )
        return rows
