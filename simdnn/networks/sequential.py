"""Runs a trained sequential network layer by layer through the primitives, in one precision mode.

Between layers, activations stay in the mode's own type: f32, bf16, or 8-bit integers that the kernel itself requantizes
to (bias, relu and the next layer's scale in its epilogue). The last layer gives f32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import isa_models
from isa_models import InvalidArgument, Unimplemented
from isa_models.formats import fmt
from isa_models.machines.loader import AnyMachine
from simdnn import quantize
from simdnn.networks.calls import quantization
from simdnn.networks.narrow_weights import NarrowMode
from simdnn.networks.plain_weights import layout_of
from simdnn.networks.precision import MODES, Mode, check_filters
from simdnn.primitives import Attr, convolution, estimate, matmul
from simdnn.primitives.result import Estimate, Result
from simdnn.primitives.run import Target
from simdnn.quantize import F32, Activation, Scheme
from workloads import Classifier, Layer, MatmulLayer, NetworkLayer

if TYPE_CHECKING:
    from simdnn.timing.estimate import Cost

Stored = Callable[[Mode], Sequence[Activation]]  # how each layer's source is stored, in an integer mode
_SCHEME = Scheme()
CALIBRATION_IMAGES = 360  # the first training images: those that activation scales are taken from


@dataclass(frozen=True, eq=False)
class PreparedLayer:
    """A layer with its weights in a mode's type. Scales are None where the mode stores floating-point numbers."""

    layer: NetworkLayer
    weights: NDArray[Any]
    dst: str
    src_as: Activation | None = None  # how source and destination are stored
    wei_scale: F32 | None = None
    dst_as: Activation | None = None
    fpmath: str | None = None  # the math mode of this layer
    narrow: Mapping[str, Any] = field(default_factory=dict)  # scales of weights stored as narrow floats

    def attr(self, mode: Mode) -> Attr:
        """The attribute that makes the kernel scale, clip at zero and requantize."""
        stored = {name: found for name, found in (("src", self.src_as), ("dst", self.dst_as)) if found}
        scales: dict[str, Any] = {name: found.scale for name, found in stored.items()}
        return Attr(
            scales=scales | dict(self.narrow) if self.wei_scale is None else scales | {"wei": self.wei_scale},
            apply_to_int=mode.stores and not mode.narrow,
            zero_points={name: found.zero_point for name, found in stored.items() if found.zero_point},
            exact_int8=mode.exact_int8,
            fpmath=self.fpmath,
            post_ops=["relu"] if self.layer.relu else [],
        )


@dataclass(frozen=True, eq=False)
class LayerRun:
    """The outcome of one layer: the primitive's result, and its output as real numbers in f32."""

    layer: NetworkLayer
    result: Result
    values: F32
    ahead: Cost | None = None  # of the kernel that quantizes the source as it comes

    @property
    def cycles(self) -> float:
        return self.result.cycles + (self.ahead.cycles if self.ahead else 0)

    @property
    def seconds(self) -> float:
        return self.result.seconds + (self.ahead.seconds if self.ahead else 0)


@dataclass(frozen=True)
class Place:
    """Where layers run: the keyword arguments that every primitive takes."""

    machine: str | AnyMachine
    isa: str | None = None
    threads: int = 1
    dispatch: str = "fastest"

    @property
    def options(self) -> dict[str, Any]:
        """The ISA cap, the threads and the dispatch."""
        return {"isa": self.isa, "threads": self.threads, "dispatch": self.dispatch}

    @property
    def target(self) -> Target:
        """The place, checked."""
        return Target.of(self.machine, self.isa, self.threads, "auto", self.dispatch)

    def under(self, mode: Mode, layer: str) -> Place:
        """The place of one layer: of a recipe it is under the ISA cap of the layer's own mode."""
        if not mode.layers:
            return self
        return replace(self, isa=mode.isa_at(layer, isa_models.machine(self.machine), self.isa))


def scheme_of(mode: Mode, percentile: float = 100.0) -> Scheme:
    """How an integer mode quantizes a network."""
    weights = "per_tensor" if mode.per_tensor else "per_channel"
    return Scheme(weights, "s8" if mode.src == "s8" else "asymmetric", percentile)


def activations(network: Classifier, target: Place, scheme: Scheme = _SCHEME) -> list[Activation]:
    """How each layer's source is stored, from the f32 network over the first `CALIBRATION_IMAGES` training images.

    Raises `InvalidArgument` naming a layer whose source is no finite number.
    """
    images = network.train_images[:CALIBRATION_IMAGES]
    f32 = MODES["f32"]
    runs = execute(prepare(network, f32), images, f32, target)
    scales = []
    for layer, values in zip(network.layers, [images, *(r.values for r in runs)], strict=False):
        try:
            scales.append(quantize.activation(values, scheme))
        except InvalidArgument as error:
            raise InvalidArgument(f"source of layer {layer.name!r}: {error}") from None
    return scales


def prepare(
    network: Classifier,
    mode: Mode,
    stored: Sequence[Activation] | Stored = (),
    fpmath_layers: str = "*",
    scheme: Scheme = _SCHEME,
) -> list[PreparedLayer]:
    """Weights in the mode's type; for integers `stored` says how each layer's source is (`activations`).

    Each layer gives what the next one reads, so that of a recipe, whose layers have modes of their own, values change
    their type in the epilogue of the kernel that makes them; `stored` then answers for each integer mode. Of a mode
    that is a math mode, layers whose names `fpmath_layers` does not match stay strict (`Mode.fpmath_of`).
    """
    ask = stored if callable(stored) else lambda _: stored
    if mode.layers:
        check_filters(mode, (layer.name for layer in network.layers if layer.kind == "conv"))
    modes = [mode.of_layer(layer.name) for layer in network.layers]
    sources = [ask(own)[index] if own.is_integer else None for index, own in enumerate(modes)]
    prepared = []
    for index, (layer, own, src_as) in enumerate(zip(network.layers, modes, sources, strict=True)):
        last = index == len(modes) - 1
        dst_as = None if last else sources[index + 1]
        dst = "f32" if last else dst_as.dtype if dst_as else modes[index + 1].src
        prepared.append(
            prepare_layer(layer, own, src_as, dst, dst_as, own.fpmath_of(layer.name, fpmath_layers), scheme)
        )
    return prepared


def prepare_layer(
    layer: NetworkLayer,
    mode: Mode,
    src_as: Activation | None,
    dst: str,
    dst_as: Activation | None,
    fpmath: str | None = None,
    scheme: Scheme = _SCHEME,
) -> PreparedLayer:
    """A layer in a mode that reads its source as `src_as` tells and gives `dst`, stored as `dst_as` tells."""
    narrow = NarrowMode.of(mode.narrow, layer.kind == "conv")
    if narrow:
        conv, held = layer.kind == "conv", layer.weights
        codes, scales = narrow.weights.filters(held, len(held)) if conv else narrow.weights.store(held)
        return PreparedLayer(layer, codes, dst, dst_as=dst_as, fpmath=fpmath, narrow=scales)
    if mode.narrow:
        return PreparedLayer(layer, layer.weights, dst, dst_as=dst_as, fpmath=fpmath)
    if not mode.is_integer:
        weights, scale, _ = compressed(layer.weights, mode) if mode.weight_group else (None, None, None)
        weights = _stored(layer.weights, mode.weights) if weights is None else weights
        return PreparedLayer(layer, weights, dst, wei_scale=scale, dst_as=dst_as, fpmath=fpmath)
    axis = 0 if layer.kind == "conv" else 1
    wei_scale = quantize.weight_scales(layer.weights, axis)
    if scheme.weights == "per_tensor" or mode.per_tensor:
        wei_scale = np.full_like(wei_scale, quantize.weight_scales(layer.weights.reshape(1, -1), 0)[0])
    weights = quantize.quantize_weights(layer.weights, wei_scale, axis)
    return PreparedLayer(layer, weights, dst, src_as=src_as, wei_scale=wei_scale, dst_as=dst_as)


def execute(prepared: list[PreparedLayer], images: F32, mode: Mode, target: Place) -> list[LayerRun]:
    """Feed `images` through prepared layers, each reading what the one before it wrote."""
    first = prepared[0]
    x = source(images, first, mode.of_layer(first.layer.name))
    runs = []
    for step in prepared:
        run = execute_one(step, x, mode.of_layer(step.layer.name), target.under(mode, step.layer.name))
        x = run.result.output
        runs.append(run)
    return runs


def source(images: F32, first: PreparedLayer, mode: Mode) -> NDArray[Any]:
    """Images as the first layer reads them."""
    return _stored(images, mode.src) if first.src_as is None else first.src_as.stored(images)


def execute_one(step: PreparedLayer, x: NDArray[Any], mode: Mode, target: Place) -> LayerRun:
    """One prepared layer over the stored values that it reads."""
    layer, conv = step.layer, step.layer.kind == "conv"
    where: dict[str, Any] = {**vars(target), "dst": step.dst, "attr": step.attr(mode)}
    x = x if conv else x.reshape(len(x), -1)
    more = ahead(mode, conv, x.shape, target.target)
    if narrow := NarrowMode.of(mode.narrow, conv):
        x, found = narrow.read(x, step.narrow)
        where["attr"] = replace(where["attr"], scales={**where["attr"].scales, **found})
    if conv:
        result = convolution(x, step.weights, layer.bias, strides=layer.stride, padding=layer.pad, **where)
    else:
        result = matmul(x, step.weights, layer.bias, **where)
    out = result.output
    values: F32 = out.astype(np.float32) if step.dst_as is None else step.dst_as.real(out)
    return LayerRun(layer, result, values, more)


def ahead(mode: Mode, conv: bool, shape: Sequence[int], target: Target) -> Cost | None:
    """The cost of quantizing an f32 source as it comes, (M, K) or an image; None in modes that read it as it is."""
    narrow = NarrowMode.of(mode.narrow, conv)
    form = narrow.source if narrow else None
    lines, line = (prod(shape[:2]), prod(shape[2:])) if conv else shape
    return quantization(form, lines, line, "f32", target).find_cost() if form else None


def compressed(weights: F32, mode: Mode) -> tuple[NDArray[Any], F32, NDArray[Any] | None]:
    """Integer weights of a mode, their scales and zero points: of matrices by group along K, else by output channel.

    Signed weights are symmetric and have no zero points. `Unimplemented` for unsigned ones of a convolution.
    """
    if weights.ndim == 2:
        found = quantize.compress_weights(weights, mode.weights, group_of(mode, len(weights)))
        return found.values, found.scales, found.zero_points
    check_zero_points(mode)
    channels = weights.shape[0] * (weights.shape[1] if weights.ndim == 5 else 1)
    columns = np.ascontiguousarray(weights.reshape(channels, -1).T)
    stored, scales = quantize.compress_weights(columns, mode.weights, len(columns))
    return np.ascontiguousarray(stored.T).reshape(weights.shape), scales[0], None


def check_zero_points(mode: Mode) -> None:
    """`Unimplemented` for a convolution in a mode whose weights have zero points."""
    if not fmt(mode.weights).signed:
        raise Unimplemented(f"{mode.name}: zero points of weights are of products, no convolution here has them")


def group_of(mode: Mode, k: int) -> int:
    """How many k share a scale: as many as the mode says where they divide K, else all."""
    return mode.weight_group if k % mode.weight_group == 0 else k


def cycles_alone(prepared: PreparedLayer, shape: Layer, mode: Mode, target: Place) -> float:
    """Cycles of a prepared layer for an image that comes alone, with what quantizes its source as it comes."""
    own = mode.of_layer(prepared.layer.name)
    src, attr = prepared.src_as.dtype if prepared.src_as else own.src, prepared.attr(own)
    conv = prepared.layer.kind == "conv"
    narrow = NarrowMode.of(own.narrow, conv)
    if narrow and (form := narrow.source):
        k = shape.k if isinstance(shape, MatmulLayer) else 0
        src, attr = form.dtype, replace(attr, scales={**attr.scales, "src": form.quant("src", k)})
    weights = own.src if own.narrow and narrow is None else own.weights
    types = f"{src}:{weights}:{prepared.dst}"
    place = target.under(mode, prepared.layer.name)
    found = estimate_layer(shape, types, bias=True, attr=attr, **vars(place)).cycles
    more = ahead(own, conv, shape.src_shape, place.target)
    return found + (more.cycles if more else 0)


def estimate_layer(shape: Layer, types: str, **where: Any) -> Estimate:
    """The cost of a layer of a table, of a batch all products: `simdnn.estimate` with its sizes; `types` is
    src:weights:dst.
    """
    if isinstance(shape, MatmulLayer):
        batch = (shape.batch,)
        where |= {"m": shape.m, "n": shape.n, "k": shape.k, "wei_tag": layout(shape, where["machine"])}
        return estimate("matmul", src_batch=batch, wei_batch=batch, dt=types, **where)
    sizes = {name: getattr(shape, name) for name in ("ic", "ih", "iw", "oc", "kh", "kw", "groups")}
    return estimate("convolution", **sizes, strides=shape.stride, padding=shape.pad, dt=types, **where)


def layout(shape: MatmulLayer, machine: str | AnyMachine) -> str:
    """The `wei_tag` of a product of a table, whose weights may be what a layer before has made."""
    return layout_of(shape.kind == "weight", isinstance(isa_models.machine(machine), isa_models.GpuMachine))


def accuracy(logits: F32, labels: NDArray[Any]) -> float:
    """Share of images whose largest logit is the label's.

    >>> accuracy(np.array([[0, 1], [2, 1]], np.float32), np.array([1, 1]))
    0.5
    """
    return float((logits.argmax(axis=1) == labels).mean())


def _stored(values: F32, dtype: str) -> NDArray[Any]:
    """f32 values in a floating-point storage type, rounded to nearest even once."""
    stored: NDArray[Any] = values.astype(fmt(dtype).dtype)
    return stored
