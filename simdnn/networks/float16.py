"""simdnn.transpile_float16: an f32 model to one that computes in f16 (or bf16) and still takes and returns f32.

Casts stand after the f32 inputs, before the f32 outputs, and around operators that stay f32; every f32 parameter that a
converted operator reads gets a narrow copy, rounded to nearest even, and the old one goes when nobody reads it. What is
narrow already, integer, or inside of control flow stays as it is. Values keep their names; an f16 value whose name must
stay f32 (an output, or what a control-flow body reads) is called NAME_f16.

The idea of casting at the edges and converting parameters is that of Paddle's float16 inference transpiler (K. Zhao,
"Float16 Inference in PaddlePaddle Fluid", 2018).
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from isa_models import InvalidArgument
from isa_models.errors import shortly, what_is_known
from isa_models.keywords import keywords
from isa_models.readings.arrays import Array
from simdnn.libraries import UNTIMED
from simdnn.networks import schemas
from simdnn.networks.float16_writer import Float16Report, Float16Writer, narrowed
from simdnn.networks.fold import folded
from simdnn.networks.load import Loaded, graph_of, read
from simdnn.networks.model import Graph
from simdnn.networks.network import Network
from simdnn.networks.onnx_rewriting import expanded, inline_data, names_of, patterns_of, samples
from simdnn.networks.ops.registry import OPERATORS
from simdnn.networks.opset import raised
from simdnn.networks.tensors import FLOAT16
from simdnn.primitives.checks import one_of
from simdnn.progress import working

if TYPE_CHECKING:
    import onnx

_KEY = "simdnn.float16"
_BF16_OPSET = 22  # convolutions and pooling came last
_IR = 4  # the first version whose initializers need not be inputs as well
#: operators that stay f32 unless asked otherwise, and why
BLOCKED: Mapping[str, str] = {
    "CumSum": "running sums lose what is added to a large total",
    "Range": "f16 has no integers above 2048 apart from each other",
    "GridSample": "coordinates need more than 11 bits",
    "ReduceLogSumExp": "exponentials leave f16's range early",
    **dict.fromkeys(("RandomNormal", "RandomUniform"), "random numbers are drawn in f32"),
    **dict.fromkeys(("NonMaxSuppression", "RoiAlign"), "box coordinates need more than 11 bits"),
    **dict.fromkeys(("Resize", "Upsample"), "its scales and coordinates are f32"),
    **dict.fromkeys(
        ("ReduceSumSquare", "ReduceL2", "LpNormalization", "LRN", "MeanVarianceNormalization"),
        "squares leave f16's range early",
    ),
    **dict.fromkeys(
        ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul"),
        "scales of integers stay f32",
    ),
}


@keywords
def float16_report(model: str | PathLike[str] | onnx.ModelProto | Loaded) -> Float16Report:
    """The report that `transpile_float16` leaves in a model's metadata; `InvalidArgument` where it left none."""
    for entry in read(model)[0].metadata_props:
        if entry.key == _KEY:
            return Float16Report(**json.loads(entry.value))
    raise InvalidArgument("the model has no report: transpile_float16 did not make it")


@keywords
@working("transpile_float16")
def transpile_float16(
    model: str | PathLike[str] | onnx.ModelProto | Loaded,
    *,
    dtype: str = "f16",
    keep: Collection[str] | Mapping[str, str] = BLOCKED,
    only: Sequence[str] = ("*",),
    calibration: Iterable[Mapping[str, Array]] = (),
) -> onnx.ModelProto:
    """The model with its f32 arithmetic in `dtype`, "f16" or "bf16"; f32 in, f32 out. BatchNormalizations behind
    convolutions are folded into these first, in f32.

    `keep` are operators (or node names) that stay f32, a mapping with reasons or names alone; `only` patterns of node
    names (`fnmatch`) that say which part is converted: two calls with different types make a mixed model. All operators
    have bf16 from opset 22 on, to which older models are raised where onnx's converter can. The report stands in the
    result's metadata (`float16_report`); what overflows is a `RuntimeWarning` too: parameters, and of the feeds in
    `calibration`, which are run in f32, all tensors.

    >>> import workloads
    >>> from workloads.export import onnx_model
    >>> half = transpile_float16(onnx_model(workloads.NETWORKS["digits"]()), keep=["fc"])
    >>> report = float16_report(half)
    >>> report.kept, report.converted
    ({'fc': 'asked for'}, ['conv1', 'conv1.relu', 'conv2', 'conv2.relu', 'conv3', 'conv3.relu', 'fc.flat'])
    """
    one_of("dtype", dtype, FLOAT16)
    proto, folder = read(model)
    graph = graph_of(proto, folder)  # everything that makes a model unfit is found here
    made = expanded(folded(proto, folder))
    inline_data(made.graph, folder)
    names = names_of(made.graph)
    made, stuck = with_room(made, dtype)
    report = Float16Writer(made, dtype, _reasons(keep, graph), patterns_of(only, names), stuck).run()
    report.activations = _overflowing(Network(graph), calibration, dtype)
    _store_report(made, report)
    _warn(report)
    return made


def with_room(model: onnx.ModelProto, dtype: str) -> tuple[onnx.ModelProto, str]:
    """The model, brought to an operator set that has `dtype` where it can be; why it cannot, else ""."""
    model.ir_version = max(model.ir_version, _IR)
    return raised(model, _BF16_OPSET) if dtype == "bf16" else (model, "")


def convert(model: onnx.ModelProto, dtype: str, only: Sequence[str], stuck: str = "") -> None:
    """Put the nodes that `only` matches into `dtype`, in place, of a model that is sound and has room for it."""
    _warn(Float16Writer(model, dtype, BLOCKED, only, stuck).run())


def _warn(report: Float16Report) -> None:
    for kind, found in (("parameters", report.overflow), ("tensors of the calibration data", report.activations)):
        if found:
            worst = ", ".join(f"{name} ({count})" for name, count in list(found.items())[:5])
            warnings.warn(f"{report.dtype} overflow to infinity in {len(found)} {kind}: {worst}", RuntimeWarning, 3)


def _reasons(keep: object, graph: Graph) -> Mapping[str, str]:
    """Why nodes stay f32, by their names or operators; `InvalidArgument` for what is neither."""
    if isinstance(keep, (str, bytes)) or not isinstance(keep, Collection):
        raise InvalidArgument(f"keep={shortly(keep)}; a list of operators and nodes' names is needed, as ['Softmax']")
    known = {node.name for node in graph.nodes} | {node.op for node in graph.nodes} | {op for _, op in OPERATORS}
    every = schemas.names()  # other tools' lists have some that are not run here
    for name in keep:
        if name not in known and name not in every:
            raise InvalidArgument(
                f"keep {shortly(name)}: no node or operator has that name{what_is_known(name, known)}"
            )
    return dict(keep) if isinstance(keep, Mapping) else {name: "asked for" for name in keep}


def _overflowing(network: Network, calibration: Iterable[Mapping[str, Array]], dtype: str) -> dict[str, int]:
    """How many values of each f32 tensor of a network become infinite in `dtype`; tensors without one are left out."""
    found: dict[str, int] = {}

    def see(names: Sequence[str], values: Sequence[Any]) -> None:
        for name, value in zip(names, values, strict=False):
            if isinstance(value, np.ndarray) and value.dtype == np.float32 and (count := narrowed(value, dtype)[1]):
                found[name] = found.get(name, 0) + count

    for feeds in samples(calibration):
        see(list(feeds), list(feeds.values()))
        network.run(feeds, machine="zen4", dispatch=UNTIMED, watch=lambda node, given: see(node.outputs, given))
    return found


def _store_report(model: Any, report: Float16Report) -> None:
    entry = next((e for e in model.metadata_props if e.key == _KEY), None) or model.metadata_props.add()
    entry.key, entry.value = _KEY, json.dumps(asdict(report))
