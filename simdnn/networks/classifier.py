"""A trained classifier over its held-out data in precision modes: its accuracy, and the cost of each layer.

Layers run as `simdnn.networks.sequential` describes them, with bias, relu and the next layer's scale in the epilogue of
the kernel. As an ONNX graph (`workloads.export`) the same network would pay for its relus as nodes of their own and
round between convolution and flattened product elsewhere: other bits and other cycles.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import isa_models
from isa_models import SimdnnError, Unimplemented, UnknownTiming
from isa_models.keywords import keywords
from isa_models.machines.loader import AnyMachine
from simdnn.exactness import measures
from simdnn.late import pd
from simdnn.networks import sequential as network
from simdnn.networks.narrow_weights import NarrowMode
from simdnn.networks.precision import MODES, Mode, check_groups, check_layers, choose
from simdnn.networks.runner import Frames, InMode, Row, check_scoped, run_modes
from simdnn.networks.sequential import LayerRun
from simdnn.progress import Progress
from simdnn.quantize import Activation
from workloads import Classifier, Layer


@dataclass(frozen=True, eq=False)
class ClassifierRun:
    """A classifier as a `runner.Part`. `place`: where f32 runs; other modes have their own ISA caps there."""

    net: Classifier
    place: network.Place
    percentile: float
    fpmath_layers: str
    base: Mode | None = MODES["f32"]
    hides: bool = False
    refusals: tuple[type[SimdnnError], ...] = (Unimplemented, UnknownTiming)

    @property
    def name(self) -> str:
        return self.net.name

    @property
    def macs(self) -> int:
        return sum(layer.macs for layer in self.shapes)

    @cached_property
    def shapes(self) -> Sequence[Layer]:
        return self.net.workload().layers

    @cached_property
    def _stored(self) -> dict[str, list[Activation]]:
        """How sources are stored, by kind of activations; filled as modes ask."""
        return {}

    def reference(self) -> list[LayerRun]:
        """Each layer in f32."""
        f32 = MODES["f32"]
        return network.execute(network.prepare(self.net, f32), self.net.test_images, f32, self.place)

    def in_mode(self, mode: Mode, isa: str | None, reference: list[LayerRun]) -> InMode:
        """A row a layer: costs for one image of the batch, and alone; errors against the f32 layer's output."""
        for name in check_layers(mode, [layer.name for layer in self.net.layers]):
            check_groups(mode.of_layer(name))
        images = self.net.test_images
        place, scheme = replace(self.place, isa=isa), network.scheme_of(mode, self.percentile)
        prepared = network.prepare(self.net, mode, self._activations, self.fpmath_layers, scheme)
        runs = reference if mode == self.base else network.execute(prepared, images, mode, place)
        accuracy = network.accuracy(runs[-1].values, self.net.test_labels)
        rows: list[Row] = []
        for run, wanted, step, shape in zip(runs, reference, prepared, self.shapes, strict=True):
            row: Row = {"layer": shape.name, "count": 1, "mode": mode.name}
            cap = str(place.under(mode, shape.name).isa)
            row |= measures.cost(run.result, cap, shape.macs, times=1 / len(images), ahead=run.ahead)
            row |= measures.values(run.result, run.values, wanted.values)
            row["cycles_mb1"] = network.cycles_alone(step, shape, mode, place)
            if notes := NarrowMode.kept(mode.of_layer(shape.name).narrow, step.layer.kind == "conv"):
                row["note"] = notes[0]
            rows.append(row | {"accuracy": accuracy, "images": len(images), "refused": ""})
        return InMode(rows)

    def refused(self, mode: Mode, reason: str) -> InMode:
        row = {"count": 1, "mode": mode.name, "implementation": "refused", "refused": reason}
        return InMode([{"layer": shape.name, **row} for shape in self.shapes])

    def _activations(self, mode: Mode) -> list[Activation]:
        scheme = network.scheme_of(mode, self.percentile)
        if scheme.activations not in self._stored:
            self._stored[scheme.activations] = network.activations(self.net, self.place, scheme)
        return self._stored[scheme.activations]


@keywords
def run_classifier(
    net: Classifier,
    machine: str | AnyMachine = "zen4",
    modes: Iterable[str | Mode] | None = None,
    *,
    isa: str | None = None,
    threads: int = 1,
    dispatch: str = "fastest",
    percentile: float = 100.0,
    fpmath_layers: str = "*",
    progress: Progress | None = None,
) -> Frames:
    """A trained network over its held-out images as one batch: each layer's cost for one image, and `accuracy`.

    `accuracy` is the network's in the row's mode. `cycles_mb1` is what the layer takes for an image that comes alone,
    without values. Errors are of the layer's output against the f32 mode's, so they include what earlier layers added.
    `fpmath_layers` as in `run_layers`; a recipe is given among the modes' names as it is.
    """
    model = isa_models.machine(machine)
    mixed = [mode for mode in modes or () if isinstance(mode, Mode)]
    names = None if modes is None else [mode for mode in modes if isinstance(mode, str)]
    chosen: dict[Mode, str | None] = {**choose(model, names, isa)[0], **dict.fromkeys(mixed, isa)}
    f32 = MODES["f32"]
    place = network.Place(machine, choose(model, ["f32"], isa)[0][f32], threads, dispatch)
    part = ClassifierRun(net, place, percentile, fpmath_layers)
    check_scoped([layer.name for layer in part.shapes], fpmath_layers)
    return run_modes([part], chosen, isa=place.isa, progress=progress)


@keywords
def run_network(
    net: Classifier, machine: str | AnyMachine = "zen4", modes: Iterable[str] | None = None, **options: Any
) -> pd.DataFrame:
    """The layers of `run_classifier`, which takes the same options; `totals` of the frame are its totals."""
    return run_classifier(net, machine, modes, **options).layers
