"""onnxruntime on this host's CPU: the executor that networks are compared with."""

from __future__ import annotations

import subprocess
from typing import Any

import numpy as np
import pytest

import isa_models
import simdnn
from isa_models.isa import host_caps

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import helper, numpy_helper  # noqa: E402

Arrays = dict[str, Any]

#: Where onnxruntime takes the kernels that it takes on this host: without VNNI pairs of int8 products saturate.
_PLACES = {"avx512_core_vnni": "icx", "avx2_vnni": "adl-p", "avx512_core": "skx", "avx2": "hsw"}
_CAP = next((cap for cap in _PLACES if cap in host_caps()), "avx512_core_vnni")
_BY_CACHE = ("zen4", "zen3", "spr", "icx", "adl-p", "skx", "hsw")  # machines of different second caches
ALIKE = {"machine": _PLACES[_CAP], "isa": _CAP, "dispatch": "onnxruntime"}


def of_its_second_cache() -> dict[str, Any]:
    """`ALIKE`, on a machine whose second cache is as large as this host's: tiles of attention are cut by it."""
    told = subprocess.run(["getconf", "LEVEL2_CACHE_SIZE"], capture_output=True, text=True, check=False).stdout
    size = int(told) if told.strip().isdigit() else 0
    able = (m for m in map(isa_models.cpu_machine, _BY_CACHE) if m.supports(_CAP))
    found = next((m.name for m in able if m.caches[1].size_bytes == size), None)
    if found is None:
        pytest.skip(f"no machine with {_CAP} has a second cache of {size:,} bytes")
    return {**ALIKE, "machine": found}


def session(content: bytes, optimized: bool = True, threads: int = 0) -> Any:
    """A session of a serialized model, `optimized` or node by node as the model says; it keeps its warnings."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    if not optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def output(model: Any, feeds: dict[str, Any], optimized: bool = True) -> Any:
    """The first output of a model."""
    return session(model.SerializeToString(), optimized).run(None, feeds)[0]


def outputs(model: Any, feeds: dict[str, Any]) -> list[Any]:
    """All outputs of a model."""
    return list(session(model.SerializeToString()).run(None, feeds))


def model(nodes: list[Any], feeds: Arrays, constants: Arrays, opset: int = 19, open_sizes: bool = False) -> Any:
    """A model of these nodes, whose output is y; with `open_sizes` it leaves the first size of its inputs open."""
    kinds = {name: helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in feeds.items()}
    sizes = {name: ["N", *value.shape[1:]] if open_sizes else value.shape for name, value in feeds.items()}
    ports = [helper.make_tensor_value_info(name, kinds[name], sizes[name]) for name in feeds]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", ports, [onnx.ValueInfoProto(name="y")], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def differs(made: Any, feeds: Arrays) -> str:
    """The difference between onnxruntime and the package; "" where both have the same bits."""
    wanted = output(made, feeds)
    found = simdnn.load(made).run(feeds, **ALIKE).outputs["y"]
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return f"{found.dtype} {found.shape} for {wanted.dtype} {wanted.shape}"
    return "" if found.tobytes() == wanted.tobytes() else f"{(found != wanted).mean():.2f} of the values"
