"""Subjects of tuning: a network on a machine, run as any recipe; trained ones by layers, ONNX models as graphs."""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from isa_models import InvalidArgument
from isa_models.machines.loader import AnyMachine
from isa_models.readings.arrays import Array
from simdnn.networks import sequential
from simdnn.networks.memo import Memo
from simdnn.networks.mixed import placed, rewritten
from simdnn.networks.modes import Calibrated, in_recipe
from simdnn.networks.precision import MODES, Mode, recipe
from simdnn.networks.runner import product_type
from simdnn.networks.sequential import Place
from simdnn.primitives import Attr
from simdnn.quantize import Activation
from workloads import Classifier
from workloads.export import onnx_model

if TYPE_CHECKING:
    from simdnn.networks.modes import Model
    from simdnn.networks.result import NetworkEstimate, NodeRun

Outputs = list[dict[str, Array]]  # of each feed, by name
MOST_ALONE = 100  # layers; of more, those whose names differ in numbers alone are in one mode
_REMEMBERED = 1 << 30  # bytes of what nodes of an ONNX model gave
_HELD = 256 << 20  # bytes of values between layers that are kept for recipes which begin alike


@dataclass(frozen=True)
class RecipeRun:
    """The outcome of a recipe: cycles and seconds of one feed, or of one sample of it, and the outputs of the feeds.

    `kernels`: name, type of products and cycles, by layer.
    """

    cycles: float
    seconds: float
    outputs: Outputs
    kernels: tuple[tuple[str, str, float], ...]


class Subject(Protocol):
    """A network at a place: on a machine, up to an ISA cap, by kernels picked in some way. `groups`: layers that have
    one mode at first, each in one, which are halved `halvings` times; `convolutions`: layers that take no mode of
    products alone; `borders`: pairs of layers, the second reading the first. `enumerable`: how many recipes are few
    enough to be run all; else the search takes `rounds` of at most `a_round` recipes, and where it goes by few feeds,
    at most `shown` of its front are run over all.
    """

    place: Place

    @property
    def machine(self) -> AnyMachine: ...
    @property
    def layers(self) -> tuple[str, ...]: ...
    @property
    def convolutions(self) -> frozenset[str]: ...
    @property
    def borders(self) -> list[tuple[str, str]]: ...
    @property
    def groups(self) -> tuple[tuple[str, ...], ...]: ...
    @property
    def enumerable(self) -> int: ...
    @property
    def a_round(self) -> int: ...
    @property
    def rounds(self) -> int: ...
    @property
    def shown(self) -> int: ...
    @property
    def halvings(self) -> int: ...

    def count(self, few: bool) -> int:
        """How many feeds a recipe is run over."""

    def run(self, modes: Mapping[str, str], few: bool = False) -> RecipeRun:
        """A recipe with values, over few feeds where they are enough; raises what kernels refuse."""

    def priced(self, modes: Mapping[str, str]) -> RecipeRun:
        """A recipe's cost without outputs; raises what kernels refuse."""

    def on(self, machine: AnyMachine) -> Subject:
        """The network and its data on another machine; what does not hang on machines is found once."""

    def onnx(self, modes: Mapping[str, str]) -> Any:
        """The ONNX model that stores what a recipe stores."""

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Ranges that calibration found, of a model that a recipe's file must tell them of."""

    def content(self, few: bool) -> Iterator[bytes]:
        """All that figures over few feeds, or all, hang on, beside the machine and the recipe."""


@dataclass(eq=False)
class TrainedSubject:
    """A classifier over its held-out samples, as one batch. Costs are of one sample of the batch.

    A layer's values hang on its mode, on what reads them, and on the values before it, so that recipes which begin
    alike are computed once up to where they part.
    """

    net: Classifier
    place: Place
    enumerable: int = 2048
    a_round: int = 48
    rounds: int = 16
    shown: int = 12
    halvings: int = 0
    _held: OrderedDict[Any, tuple[str, Array]] = field(default_factory=OrderedDict)
    _costs: dict[Any, tuple[float, float, str, str]] = field(default_factory=dict)
    _steps: dict[Any, Any] = field(default_factory=dict)
    _stored: dict[str, list[Activation]] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_held": OrderedDict()}  # which may be large, and is found again

    @property
    def machine(self) -> AnyMachine:
        return self.place.target.machine

    @property
    def layers(self) -> tuple[str, ...]:
        return tuple(layer.name for layer in self.net.layers)

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        return tuple((layer,) for layer in self.layers)

    @property
    def convolutions(self) -> frozenset[str]:
        return frozenset(layer.name for layer in self.net.layers if layer.kind == "conv")

    @property
    def borders(self) -> list[tuple[str, str]]:
        return list(pairwise(self.layers))

    def count(self, few: bool) -> int:
        return 1

    def run(self, modes: Mapping[str, str], few: bool = False) -> RecipeRun:
        steps = self._prepared(modes)
        mode = recipe(modes)
        x = sequential.source(self.net.test_images, steps[0], mode.of_layer(steps[0].layer.name))
        met, cycles, seconds, kernels = _digest(x), 0.0, 0.0, []
        for step in steps:
            own = mode.of_layer(step.layer.name)
            key = (step.layer.name, own.name, step.dst, step.dst_as, met)
            if key not in self._held:
                place = self.place.under(mode, step.layer.name)
                run = sequential.execute_one(step, x, own, place)
                result = run.result
                if key[:4] not in self._costs:
                    cost, time = run.cycles / len(x), run.seconds / len(x)
                    dtype = product_type(result.implementation, result.compute_dtype)
                    self._costs[key[:4]] = cost, time, result.implementation, dtype
                self._hold(key, result.output)
            self._held.move_to_end(key)
            met, x = self._held[key]
            cost, time, name, dtype = self._costs[key[:4]]
            cycles, seconds = cycles + cost, seconds + time
            kernels.append((name, dtype, cost))
        return RecipeRun(cycles, seconds, [{"logits": x}], tuple(kernels))

    def priced(self, modes: Mapping[str, str]) -> RecipeRun:
        return replace(self.run(modes), outputs=[])

    def on(self, machine: AnyMachine) -> TrainedSubject:
        place = replace(self.place, machine=machine)
        return TrainedSubject(self.net, place, self.enumerable, self.a_round, self.rounds, self.shown)

    def onnx(self, modes: Mapping[str, str]) -> Any:
        feeds = [{"images": self.net.train_images[: sequential.CALIBRATION_IMAGES]}]
        return ModelSubject(onnx_model(self.net), self.place, feeds, feeds).onnx(modes)

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        return {}

    def content(self, few: bool) -> Iterator[bytes]:
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
            place = replace(self.place, isa=MODES["f32"].isa(self.machine, self.place.isa))
            self._stored[scheme.activations] = sequential.activations(self.net, place, scheme)
        return self._stored[scheme.activations]

    def _hold(self, key: Any, values: Array) -> None:
        self._held[key] = (_digest(values), values)
        while len(self._held) > len(self.net.layers) and sum(v.nbytes for _, v in self._held.values()) > _HELD:
            self._held.popitem(last=False)


@dataclass(eq=False)
class ModelSubject:
    """An ONNX model over feeds; costs are of the first of them. `few`: how many are enough for sensitivities (all)."""

    model: Model
    place: Place
    feeds: Sequence[Mapping[str, Array]]
    calibration: Sequence[Mapping[str, Array]]
    few: int | None = None
    enumerable: int = 128
    a_round: int = 48
    rounds: int = 16
    shown: int = 12
    halvings: int = 16

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name in self.__dataclass_fields__}

    @cached_property
    def calibrated(self) -> Calibrated:
        return Calibrated(self.model, self.calibration)

    @cached_property
    def memo(self) -> Memo:
        return Memo(_REMEMBERED)

    @property
    def machine(self) -> AnyMachine:
        return self.place.target.machine

    @property
    def layers(self) -> tuple[str, ...]:
        return self.calibrated.mixable.layers

    @cached_property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        if len(self.layers) <= MOST_ALONE:
            return tuple((layer,) for layer in self.layers)
        alike: dict[str, list[str]] = {}
        for layer in self.layers:
            alike.setdefault(re.sub(r"\d+", "#", layer), []).append(layer)
        return tuple(map(tuple, alike.values()))

    @cached_property
    def convolutions(self) -> frozenset[str]:
        return self.calibrated.mixable.convolutions

    @property
    def borders(self) -> list[tuple[str, str]]:
        return self.calibrated.mixable.edges

    def count(self, few: bool) -> int:
        return len(self.feeds[: self.few if few else None])

    def run(self, modes: Mapping[str, str], few: bool = False) -> RecipeRun:
        network, where = self._placed(modes)
        how: dict[str, Any] = {**vars(self.place), "attr": Attr(), "placed": where, "memo": self.memo}
        results = [network.run(feed, **how) for feed in self.feeds[: self.few if few else None]]
        return self._told(results[0], [dict(result.outputs) for result in results])

    def priced(self, modes: Mapping[str, str]) -> RecipeRun:
        network, where = self._placed(modes)
        return self._told(network.estimate(self.feeds[0], **vars(self.place), attr=Attr(), placed=where), [])

    def on(self, machine: AnyMachine) -> ModelSubject:
        other = replace(self, place=replace(self.place, machine=machine))
        vars(other).update(calibrated=self.calibrated, memo=self.memo)
        return other

    def _told(self, estimate: NetworkEstimate, outputs: Outputs) -> RecipeRun:
        ran = {run.node.name: run for run in estimate.nodes}
        kernels = tuple(_kernel(ran[layer]) if layer in ran else ("", "", 0.0) for layer in self.layers)
        return RecipeRun(estimate.cycles, estimate.seconds, outputs, kernels)

    def onnx(self, modes: Mapping[str, str]) -> Any:
        mixed = self.calibrated.mixable
        with mixed.shelf:
            return mixed.whole(rewritten(mixed, recipe(modes), self.calibrated.ranges))

    def ranges(self) -> Mapping[str, tuple[float, float]]:
        return self.calibrated.ranges

    def content(self, few: bool) -> Iterator[bytes]:
        yield self.calibrated.mixable.model.SerializeToString(deterministic=True)
        for feed in (*self.feeds[: self.few if few else None], *self.calibration):
            for name, array in feed.items():
                yield f"{name} {array.dtype} {array.shape}".encode()
                yield array.tobytes()

    def _placed(self, modes: Mapping[str, str]) -> tuple[Any, Any]:
        mode = recipe(modes)
        network = in_recipe(self.calibrated, mode)
        return network, placed(network, mode, self.machine, self.place.isa)


def _kernel(run: NodeRun) -> tuple[str, str, float]:
    """Name, type of products and cycles of a layer."""
    types = dict.fromkeys(call.compute_dtype for call in run.calls if call.macs)
    return run.implementation, product_type(run.implementation, ", ".join(types)), float(run.cost.cycles)


def trained(net: Classifier, place: Place, images: Array | None, labels: Array | None) -> TrainedSubject:
    """A classifier over samples of the caller's, or its own."""
    if images is None:
        return TrainedSubject(net, place)
    wanted = net.test_images.shape[1:]
    if not isinstance(images, np.ndarray) or images.shape[1:] != wanted or not len(images):
        raise InvalidArgument(f"feeds of {net.name}: {getattr(images, 'shape', type(images).__name__)}; (N, {wanted})")
    known = labels if labels is not None else np.zeros(len(images), np.uint8)
    return TrainedSubject(replace(net, test_images=images.astype(np.float32), test_labels=known), place)


def _digest(values: Array) -> str:
    form = f"{values.dtype} {values.shape}".encode()
    return hashlib.blake2b(np.ascontiguousarray(values).tobytes(), key=form[:64], digest_size=16).hexdigest()
