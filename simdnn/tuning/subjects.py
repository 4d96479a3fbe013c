"""What is tuned: a network on a machine, run as any recipe; trained networks by their layers, ONNX models as graphs."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from isa_models import InvalidArgument
from isa_models.machines.loader import AnyMachine
from isa_models.readings.arrays import Array
from simdnn.networks import sequential
from simdnn.networks.mixed import placed, rewritten
from simdnn.networks.modes import Calibrated, in_recipe
from simdnn.networks.precision import MODES, Mode, recipe
from simdnn.primitives import Attr
from simdnn.quantize import Activation
from workloads import Classifier
from workloads.export import onnx_model

if TYPE_CHECKING:
    from simdnn.networks.modes import Model

Outputs = list[dict[str, Array]]  # of each feed, by name
_HELD = 256 << 20  # bytes of values between layers that are kept for recipes which begin alike


@dataclass(frozen=True)
class RecipeRun:
    """What a recipe gave: cycles and seconds of one feed, or of one sample of it, and the outputs of all feeds."""

    cycles: float
    seconds: float
    outputs: Outputs


class Subject(Protocol):
    """A network on a machine. `edges`: pairs of layers, the second reading the first; `enumerable`: how many recipes
    are few enough to be run all.
    """

    machine: AnyMachine

    @property
    def layers(self) -> tuple[str, ...]: ...
    @property
    def edges(self) -> list[tuple[int, int]]: ...
    @property
    def enumerable(self) -> int: ...

    def run(self, modes: Mapping[str, str]) -> RecipeRun:
        """A recipe with values; raises what kernels refuse."""

    def cycles(self, modes: Mapping[str, str]) -> float:
        """What a recipe costs."""

    def onnx(self, modes: Mapping[str, str]) -> Any:
        """The ONNX model that stores what a recipe stores."""

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """What calibration found out, of a model that a recipe's file must tell it of."""

    def content(self) -> Iterator[bytes]:
        """All that figures hang on, beside the machine and the recipe."""


@dataclass(eq=False)
class TrainedSubject:
    """A classifier over its held-out samples, as one batch. Costs are of one sample of the batch.

    A layer's values hang on its mode, on what reads them, and on the values before it, so that recipes which begin
    alike are computed once up to where they part.
    """

    net: Classifier
    machine: AnyMachine
    enumerable: int = 2048
    _held: OrderedDict[Any, tuple[str, Array]] = field(default_factory=OrderedDict)
    _costs: dict[Any, tuple[float, float]] = field(default_factory=dict)
    _steps: dict[Any, Any] = field(default_factory=dict)
    _stored: dict[str, list[Activation]] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_held": OrderedDict()}  # which may be large, and is found again

    @property
    def layers(self) -> tuple[str, ...]:
        return tuple(layer.name for layer in self.net.layers)

    @property
    def edges(self) -> list[tuple[int, int]]:
        return [(i, i + 1) for i in range(len(self.net.layers) - 1)]

    @cached_property
    def place(self) -> sequential.Place:
        return sequential.Place(self.machine, None)

    def run(self, modes: Mapping[str, str]) -> RecipeRun:
        steps = self._prepared(modes)
        mode = recipe(modes)
        x = sequential.source(self.net.test_images, steps[0], mode.at(steps[0].layer.name))
        met, cycles, seconds = _digest(x), 0.0, 0.0
        for step in steps:
            own = mode.at(step.layer.name)
            key = (step.layer.name, own.name, step.dst, step.dst_as, met)
            if key not in self._held:
                place = self.place.under(mode, step.layer.name)
                result = sequential.execute_one(step, x, own, place).result
                if key[:4] not in self._costs:
                    self._costs[key[:4]] = (result.cycles / len(x), result.seconds / len(x))
                self._hold(key, result.output)
            self._held.move_to_end(key)
            met, x = self._held[key]
            cycles, seconds = cycles + self._costs[key[:4]][0], seconds + self._costs[key[:4]][1]
        return RecipeRun(cycles, seconds, [{"logits": x}])

    def cycles(self, modes: Mapping[str, str]) -> float:
        return self.run(modes).cycles

    def onnx(self, modes: Mapping[str, str]) -> Any:
        feeds = [{"images": self.net.train_images[: sequential.CALIBRATION_IMAGES]}]
        return ModelSubject(onnx_model(self.net), self.machine, feeds, feeds).onnx(modes)

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        return {}

    def content(self) -> Iterator[bytes]:
        for layer in self.net.layers:
            yield repr((layer.name, layer.kind, layer.stride, layer.pad, layer.relu, layer.weights.shape)).encode()
            yield from (layer.weights.tobytes(), layer.bias.tobytes())
        yield self.net.test_images.tobytes()
        yield self.net.train_images[: sequential.CALIBRATION_IMAGES].tobytes()

    def _prepared(self, modes: Mapping[str, str]) -> list[sequential.PreparedLayer]:
        """Layers with their weights in their modes, each made once for each mode of its reader."""
        names = self.layers
        found = []
        for index, name in enumerate(names):
            key = (name, modes[name], modes[names[index + 1]] if index + 1 < len(names) else "")
            if key not in self._steps:
                self._steps[key] = sequential.prepare(self.net, recipe(modes), self._activations)[index]
            found.append(self._steps[key])
        return found

    def _activations(self, mode: Mode) -> Sequence[Activation]:
        scheme = sequential.scheme_of(mode)
        if scheme.activations not in self._stored:
            place = replace(self.place, isa=MODES["f32"].isa(self.machine))
            self._stored[scheme.activations] = sequential.activations(self.net, place, scheme)
        return self._stored[scheme.activations]

    def _hold(self, key: Any, values: Array) -> None:
        self._held[key] = (_digest(values), values)
        while len(self._held) > len(self.net.layers) and sum(v.nbytes for _, v in self._held.values()) > _HELD:
            self._held.popitem(last=False)


@dataclass(eq=False)
class ModelSubject:
    """An ONNX model over feeds; costs are of the first of them."""

    model: Model
    machine: AnyMachine
    feeds: Sequence[Mapping[str, Array]]
    calibration: Sequence[Mapping[str, Array]]
    enumerable: int = 128

    @cached_property
    def calibrated(self) -> Calibrated:
        return Calibrated(self.model, self.calibration)

    @property
    def layers(self) -> tuple[str, ...]:
        return self.calibrated.mixable.layers

    @property
    def edges(self) -> list[tuple[int, int]]:
        at = {name: place for place, name in enumerate(self.layers)}
        return [(at[a], at[b]) for a, b in self.calibrated.mixable.edges]

    def run(self, modes: Mapping[str, str]) -> RecipeRun:
        network, where = self._placed(modes)
        results = [network.run(feed, machine=self.machine, attr=Attr(), placed=where) for feed in self.feeds]
        return RecipeRun(results[0].cycles, results[0].seconds, [dict(result.outputs) for result in results])

    def cycles(self, modes: Mapping[str, str]) -> float:
        network, where = self._placed(modes)
        return float(network.estimate(self.feeds[0], machine=self.machine, attr=Attr(), placed=where).cycles)

    def onnx(self, modes: Mapping[str, str]) -> Any:
        return rewritten(self.calibrated.mixable, recipe(modes), self.calibrated.ranges)

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        return self.calibrated.ranges

    def content(self) -> Iterator[bytes]:
        yield self.calibrated.mixable.model.SerializeToString(deterministic=True)
        for feed in (*self.feeds, *self.calibration):
            for name, array in feed.items():
                yield f"{name} {array.dtype} {array.shape}".encode()
                yield array.tobytes()

    def _placed(self, modes: Mapping[str, str]) -> tuple[Any, Any]:
        mode = recipe(modes)
        network = in_recipe(self.calibrated, mode)
        return network, placed(network, mode, self.machine, None)


def trained(net: Classifier, machine: AnyMachine, images: Array | None, labels: Array | None) -> TrainedSubject:
    """A classifier over samples of the caller's, or its own."""
    if images is None:
        return TrainedSubject(net, machine)
    wanted = net.test_images.shape[1:]
    if not isinstance(images, np.ndarray) or images.shape[1:] != wanted or not len(images):
        raise InvalidArgument(f"feeds of {net.name}: {getattr(images, 'shape', type(images).__name__)}; (N, {wanted})")
    known = labels if labels is not None else np.zeros(len(images), np.uint8)
    return TrainedSubject(replace(net, test_images=images.astype(np.float32), test_labels=known), machine)


def _digest(values: Array) -> str:
    form = f"{values.dtype} {values.shape}".encode()
    return hashlib.blake2b(np.ascontiguousarray(values).tobytes(), key=form[:64], digest_size=16).hexdigest()
