"""Which layers other tools quantize: onnxruntime's error analysis, NNCF's quantization with accuracy control.

Both calibrate on the feeds that `simdnn.tune` takes its ranges from. NNCF is asked for where it is installed
(`pip install nncf openvino-telemetry`), a package of developers alone.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from simdnn.networks.onnx_rewriting import PRODUCTS
from simdnn.networks.opset import raised
from simdnn.tuning.judge import Judge
from simdnn.tuning.subjects import ModelSubject

_EXACT_DB = 200.0  # in place of infinity where nothing is lost
QDQ_OPSET = 13  # the first in which weights have a scale for each channel


class _Reader:
    """Feeds as onnxruntime's calibration takes them."""

    def __init__(self, feeds: Sequence[Mapping[str, Any]]) -> None:
        self.feeds = iter(feeds)

    def get_next(self) -> Any:
        return next(self.feeds, None)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return self.feeds


def onnxruntime_order(subject: ModelSubject) -> tuple[str, list[str]]:
    """The tool, and layers by onnxruntime's signal to error of their outputs in its int8 model, the worst first."""
    import onnx
    from onnxruntime import quantization
    from onnxruntime.quantization import qdq_loss_debug as debug

    mixed = subject.calibrated.mixable
    model, _ = raised(mixed.whole(mixed.model), QDQ_OPSET)
    with tempfile.TemporaryDirectory() as folder:
        plain, narrow, *augmented = (str(Path(folder) / name) for name in ("f.onnx", "q.onnx", "fa.onnx", "qa.onnx"))
        onnx.save(model, plain)
        quantization.quantize_static(
            plain,
            narrow,
            _Reader(subject.calibration),
            op_types_to_quantize=list(PRODUCTS),
            per_channel=True,
            extra_options={"ActivationSymmetric": False},
        )
        for source, target in zip((plain, narrow), augmented, strict=True):
            debug.modify_model_output_intermediate_tensors(source, target)
        found = [debug.collect_activations(name, _Reader(subject.calibration[:1])) for name in augmented]
        errors = debug.compute_activation_error(debug.create_activation_matching(found[1], found[0]))
    gives = {node.name: node.output[0] for node in subject.calibrated.mixable.model.graph.node}
    known = {layer: errors[gives[layer]]["qdq_err"] for layer in subject.layers if gives[layer] in errors}
    worst = sorted(known, key=lambda layer: float(np.min(known[layer])))
    order = [*worst, *(layer for layer in subject.layers if layer not in known)]
    return f"onnxruntime {version('onnxruntime')}, its error ranking", order


def nncf_layers(subject: ModelSubject, judge: Judge, max_loss: float) -> tuple[str, set[str]] | None:
    """The tool, and the layers that NNCF's quantization with accuracy control leaves in int8; None without NNCF.

    It drops layers back to f32 by their effect on the metric over the very feeds, until the loss is within `max_loss`.
    """
    if find_spec("nncf") is None:
        return None
    import nncf
    import onnxruntime
    from nncf.quantization.advanced_parameters import AdvancedAccuracyRestorerParameters

    mixed = subject.calibrated.mixable
    model, _ = raised(mixed.whole(mixed.model), QDQ_OPSET)

    @functools.lru_cache(maxsize=1)  # of many calls in a row for one sample each
    def session_of(stored: bytes) -> Any:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        # else QuantizeLinear moves through reshapes and gets an output_dtype that is not its zero point's
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        return onnxruntime.InferenceSession(stored, options, providers=["CPUExecutionProvider"])

    def outputs(proto: Any, feeds: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        session = session_of(proto.SerializeToString())
        names = [port.name for port in session.get_outputs()]
        return [dict(zip(names, session.run(names, dict(feed)), strict=True)) for feed in feeds]

    reference = outputs(model, subject.feeds)

    numbers = {_bytes(feed): number for number, feed in enumerate(subject.feeds)}

    def validate(proto: Any, items: Any) -> tuple[float, None]:
        """The metric over all feeds; of some, by which layers are ranked, the signal to error."""
        feeds = list(items)
        found, wanted = outputs(proto, feeds), [reference[numbers[_bytes(feed)]] for feed in feeds]
        sqnr_db = min(judge.sqnr_db(found, wanted), _EXACT_DB)
        return judge.quality(found, wanted, sqnr_db) if len(feeds) == len(reference) else sqnr_db, None

    narrow = nncf.quantize_with_accuracy_control(
        model,
        nncf.Dataset([dict(feed) for feed in subject.calibration]),
        nncf.Dataset([dict(feed) for feed in subject.feeds]),
        validate,
        max_drop=max_loss,
        advanced_accuracy_restorer_parameters=AdvancedAccuracyRestorerParameters(ranking_subset_size=2),
    )
    own = outputs(narrow, subject.feeds)
    said = f"NNCF {version('nncf')} (its own model by onnxruntime: {judge.quality(own, reference, 0):.4f})"
    return said, quantized(narrow, subject.layers)


def _bytes(feed: Mapping[str, Any]) -> bytes:
    return b"".join(np.asarray(feed[name]).tobytes() for name in sorted(feed))


def quantized(model: Any, layers: Sequence[str]) -> set[str]:
    """The layers whose source and weights come from DequantizeLinear."""
    maker = {name: node.op_type for node in model.graph.node for name in node.output}
    return {
        node.name
        for node in model.graph.node
        if node.name in layers and all(maker.get(name) == "DequantizeLinear" for name in node.input[:2])
    }
