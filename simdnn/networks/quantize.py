"""simdnn.quantize_onnx: post-training quantization of a float ONNX model.

Schemes: "static" puts QuantizeLinear and DequantizeLinear around Conv, MatMul and Gemm with constant weights, ranges
of the sources taken from calibration data; "dynamic" finds each source's range as it runs (DynamicQuantizeLinear);
"weights" leaves sources in f32 and stores the weights of products in 8 or 4 bits, grouped along K (MatMulNBits), those
of convolutions with a scale a channel (DequantizeLinear; in 4 bits where the model can be raised to opset 21). Narrow
floats (mxfp8, mxfp4, nvfp4 …) are of products alone: MatMulBlocks, an operator of this package's own domain.
Weights are symmetric, the largest magnitude becoming 127 (or 7). What the schemes are good for is told by R.
Krishnamoorthi, "Quantizing deep convolutional networks for efficient inference", arXiv:1806.08342.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isa_models import InvalidArgument
from isa_models.keywords import keywords
from isa_models.readings.arrays import Array
from simdnn.libraries import UNTIMED
from simdnn.networks.constant_weights import settled
from simdnn.networks.fold import folded
from simdnn.networks.load import DOMAINS, Loaded, graph_of, read
from simdnn.networks.model import Node
from simdnn.networks.narrow_weights import NARROW_MODES
from simdnn.networks.network import Network
from simdnn.networks.onnx_rewriting import (
    PRODUCTS,
    asked,
    bodies,
    expanded,
    inline_data,
    names_of,
    patterns_of,
    samples,
)
from simdnn.networks.opset import raised, version
from simdnn.networks.quantized_writer import INT4_OPSET, LEAST_GROUP, QuantizedWriter, Ranges
from simdnn.networks.tensors import array_of
from simdnn.primitives.checks import flag, integer, one_of
from simdnn.progress import working

if TYPE_CHECKING:
    import onnx

SCHEMES = ("static", "dynamic", "weights")
_OPSET = 13  # the first with scales for each channel
STORING = ("MatMulNBits", "MatMulBlocks", "ConvBlocks")  # products whose weights are stored small


@keywords
@working("quantize_onnx")
def quantize_onnx(
    model: str | PathLike[str] | onnx.ModelProto | Loaded,
    calibration: Iterable[Mapping[str, Array]] | Ranges | None = None,
    *,
    scheme: str = "static",
    per_channel: bool = True,
    sources: str = "u8",
    weights: str = "s8",
    group: int = 32,
    only: Sequence[str] = ("*",),
    machine: str = "zen4",
) -> onnx.ModelProto:
    """The quantized model. `calibration`: feeds to run for "static" on `machine`'s f32 kernels, or `ranges_of` them.

    `sources` "u8" (with a zero point) or "s8" (symmetric) for "static"; `weights` "s4" for "weights" alone, in groups
    of `group` along K (a power of two; less where that does not divide K; zeros fill a K that is not a multiple of 16),
    or floats: "mxfp8", "mxfp4" (also by rule, as "mxfp4-ceil"), "nvfp4", "f8-tensor", "f8-channel", with sources as
    they are or, in "mxfp8-mxfp4", "nvfp4-nvfp4", "f8-f8-channel" and the like, quantized as they come;
    `only`: patterns of node names. Nodes that do not fit (weights that are no constant matrix or filter) stay as they
    are. Raises `InvalidArgument`.

    >>> import workloads
    >>> from workloads.export import onnx_model
    >>> made = quantize_onnx(onnx_model(workloads.NETWORKS["digits"]()), {"images": (0, 1)}, only=["conv1"])
    >>> [node.op_type for node in made.graph.node][:5]
    ['DequantizeLinear', 'QuantizeLinear', 'DequantizeLinear', 'Conv', 'Relu']
    """
    one_of("scheme", scheme, SCHEMES)
    one_of("sources", sources, ("u8", "s8"))
    one_of("weights", weights, ("s8", "s4", *NARROW_MODES) if scheme == "weights" else ("s8",))
    group = integer("group", group, LEAST_GROUP)
    if group & (group - 1):
        raise InvalidArgument(f"group={group}; a power of two is needed, as 32")
    flag("per_channel", per_channel)
    proto, folder = read(model)
    names = names_of(proto.graph)
    proto = folded(proto, folder)
    graph = graph_of(proto, folder)
    made = _with_room(proto, folder, weights)
    ranges: Ranges = {}
    if scheme == "static":
        if isinstance(calibration, Mapping):
            ranges = _checked(calibration)
        else:
            ranges = _ranges(Network(graph), calibration, machine)
    known = {n: a for n, a in graph.constants.items() if a.dtype == np.float32}
    writer = QuantizedWriter(made, known, per_channel, sources, ranges)
    wanted = asked(patterns_of(only, [*names, *(node.name for node in made.graph.node)]))
    return writer.run(wanted, scheme, weights, group)


def requantized(
    model: onnx.ModelProto,
    ranges: Ranges,
    *,
    scheme: str = "static",
    per_channel: bool = True,
    sources: str = "u8",
    weights: str = "s8",
    group: int = 32,
    only: Sequence[str],
) -> onnx.ModelProto:
    """A model's quantized form, where it is sound: folded, its nodes named, its weights inside or on an open shelf."""
    made = _with_room(model, None, weights)
    known = {t.name: array_of(t, None) for t in made.graph.initializer if t.data_type == 1 and t.data_location}
    return QuantizedWriter(made, known, per_channel, sources, _checked(ranges)).run(asked(only), scheme, weights, group)


def _with_room(proto: onnx.ModelProto, folder: Path | None, weights: str) -> onnx.ModelProto:
    """The model with functions expanded and constants inside, in an operator set that has what `weights` need."""
    made = expanded(proto)
    settled(made, folder)
    made, stuck = raised(made, _OPSET)
    if stuck:
        raise InvalidArgument(f"opset {version(made)} has no scales for each channel, and it cannot be raised: {stuck}")
    if weights == "s4" and any(node.op_type == "Conv" for node in made.graph.node):
        made, _ = raised(made, INT4_OPSET)  # where it cannot be raised, convolutions keep f32 weights
    made.ir_version = max(made.ir_version, 4 if weights == "s8" else 10)
    inline_data(made.graph, folder)
    return made


def why_floats(model: str | PathLike[str] | onnx.ModelProto | Loaded, fitting: str = "") -> str:
    """Why `quantize_onnx` leaves a model in floats, in a few words: of the first product, or that there is none.

    `fitting`: what keeps a product as it is whose weights would do.
    """
    proto, folder = read(model)
    made = expanded(proto)
    settled(made, folder)
    inline_data(made.graph, folder)
    writer = QuantizedWriter(made, {}, True, "u8", {})
    products = [node for node in made.graph.node if node.op_type in PRODUCTS and node.domain in DOMAINS]
    if not products:
        inside = ", and bodies of control flow stay as they are" if any(map(bodies, made.graph.node)) else ""
        return f"there is no {', '.join(PRODUCTS[:-1])} or {PRODUCTS[-1]}{inside}"
    first = products[0]
    return f"{first.name!r:.60} has {writer.lack(first) or fitting}"


def ranges_of(
    model: str | PathLike[str] | onnx.ModelProto | Loaded, calibration: Iterable[Mapping[str, Array]]
) -> Ranges:
    """Ranges of a model over calibration data, by zen4's f32 kernels, to quantize it in several ways after one run."""
    proto, folder = read(model)
    return _ranges(Network(graph_of(folded(proto, folder), folder)), calibration, "zen4")


def _checked(ranges: Mapping[str, Any]) -> Ranges:
    """Ranges that a caller gives, 0 included."""
    for name, pair in ranges.items():
        numbers = isinstance(pair, (tuple, list)) and len(pair) == 2 and all(isinstance(end, Real) for end in pair)
        if not (numbers and np.isfinite(pair).all() and pair[0] <= pair[1]):
            raise InvalidArgument(
                f"calibration[{name!r}] is {type(pair).__name__}; ranges are finite (least, greatest), feeds come in a "
                "list: [{…}]"
            )
    return {name: (min(pair[0], 0.0), max(pair[1], 0.0)) for name, pair in ranges.items()}


def _ranges(network: Network, calibration: Iterable[Mapping[str, Array]] | None, machine: str) -> Ranges:
    """The least and greatest value of every f32 tensor over the calibration data, 0 included."""
    found: dict[str, tuple[float, float]] = {}

    def see(name: str, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.dtype == np.float32 and value.size:
            if not np.isfinite(value).all():
                raise InvalidArgument(f"calibration makes NaN or infinity in {name!r}; finite values are needed")
            low, high = found.get(name, (0.0, 0.0))
            found[name] = min(low, float(value.min())), max(high, float(value.max()))

    def watch(node: Node, given: Sequence[Any]) -> None:
        for name, value in zip(node.outputs, given, strict=False):
            see(name, value)

    count = 0
    for feeds in samples(() if calibration is None else calibration):
        for name, value in feeds.items():
            see(name, value)
        network.run(feeds, machine=machine, dispatch=UNTIMED, watch=watch)
        count += 1
    if not count:
        raise InvalidArgument("static quantization needs calibration data: a list of feeds, as network.run takes them")
    return found
