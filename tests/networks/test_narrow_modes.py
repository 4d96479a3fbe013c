"""Networks whose weights are stored as floats of 8 and 4 bits: values as of decoded weights, cost without data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import simdnn
import workloads
from simdnn.cli import main
from simdnn.networks.modes import Calibrated, in_mode
from simdnn.networks.narrow import NARROW_WEIGHTS
from simdnn.networks.precision import MODES, choose
from simdnn.networks.tables import run_table
from workloads import MatmulLayer

onnx = pytest.importorskip("onnx")
RNG = np.random.default_rng(0)
FIRST, SECOND = (RNG.standard_normal(shape, np.float32) * np.float32(0.1) for shape in ((64, 48), (40, 48)))
BIAS = RNG.standard_normal(40, np.float32)


def model() -> onnx.ModelProto:
    """A MatMul and a Gemm that reads its weights transposed."""
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "first"], ["h"], "one"),
        onnx.helper.make_node("Relu", ["h"], ["r"], "relu"),
        onnx.helper.make_node("Gemm", ["r", "second", "bias"], ["y"], "two", transB=1),
    ]
    ports = [onnx.helper.make_tensor_value_info(name, 1, [3, size]) for name, size in (("x", 64), ("y", 40))]
    held = {"first": FIRST, "second": SECOND, "bias": BIAS}
    constants = [onnx.numpy_helper.from_array(values, name) for name, values in held.items()]
    graph = onnx.helper.make_graph(nodes, "g", ports[:1], ports[1:], constants)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)


def decoded(weights: np.ndarray, name: str) -> np.ndarray:  # type: ignore[type-arg]
    codes, scales = NARROW_WEIGHTS[name].store(weights)
    values = np.asarray(getattr(scales["wei"], "values", scales["wei"])).astype(np.float32)
    whole = np.repeat(values, len(weights) // len(values), 0) if values.ndim == 2 else values
    common = np.asarray(getattr(scales.get("src", 1), "values", scales.get("src", 1)), np.float32)
    return codes.astype(np.float32) * whole * common


def read(x: np.ndarray, name: str) -> np.ndarray:  # type: ignore[type-arg]
    """A source as a mode multiplies it: quantized by blocks as simdnn.quantize_mx does it, or as it is."""
    form = NARROW_WEIGHTS[name]
    group = form.shared(x.shape[1])
    return simdnn.quantize_mx(x, form.source, group=group).dequantize() if form.source else x


@pytest.mark.parametrize("name", NARROW_WEIGHTS)
def test_products_are_those_of_decoded_weights(name: str) -> None:
    made = simdnn.quantize_onnx(model(), scheme="weights", weights=name)
    assert [node.op_type for node in made.graph.node] == ["MatMulBlocks", "Relu", "MatMulBlocks"]
    x = RNG.standard_normal((3, 64), np.float32)
    found = simdnn.load(made).run({"x": x}, machine="zen4")
    first = np.maximum(read(x, name) @ decoded(FIRST, name), 0)
    wanted = read(first, name) @ decoded(SECOND.T, name) + BIAS
    np.testing.assert_allclose(found.outputs["y"], wanted, rtol=1e-4, atol=1e-4)
    assert found.cycles == simdnn.load(made).estimate({"x": (3, 64)}, machine="zen4").cycles


@pytest.mark.parametrize("values", [True, False])
def test_products_of_activations_keep_f32_in_a_layer_table(values: bool) -> None:
    """Attention's two products of a batch, which no file stores."""
    table = workloads.Workload("t", "t", "", (MatmulLayer("fc", 8, 64, 64), MatmulLayer("qk", 8, 64, 64, batch=2)))
    frames = run_table(table, "zen4", ["fpmath-bf16", "mxfp4", "mxfp6", "nvfp4"], values=values)
    cycles = frames.layers.set_index(["layer", "mode"])["cycles"]
    assert (frames.totals["refused"].fillna("") == "").all()
    assert cycles["qk", "mxfp4"] == cycles["qk", "nvfp4"] == cycles["qk", "fpmath-bf16"]
    assert cycles["fc", "mxfp4"] != cycles["fc", "fpmath-bf16"]


def test_a_network_of_convolutions_says_why_it_has_no_narrow_floats() -> None:
    from workloads.export import onnx_model

    digits = workloads.digits()
    convolutions = replace(digits, layers=digits.layers[:3])
    mode = MODES["mxfp6"]
    with pytest.raises(simdnn.Unimplemented, match="no product here has .*; convolutions keep theirs, and s8-weights"):
        in_mode(Calibrated(onnx_model(convolutions), []), mode)


def test_modes_run_as_any() -> None:
    from simdnn.networks.modes import run_model

    modes, _ = choose(simdnn.machine("spr"), ["f32", *NARROW_WEIGHTS])
    feeds = [{"x": np.random.default_rng(seed).standard_normal((3, 64), np.float32)} for seed in range(2)]
    totals = run_model(model(), feeds, modes, machine="spr").totals
    noise = totals.set_index("mode")["sqnr_db"]
    assert noise["f8-channel"] > noise["mxfp8"] > noise["nvfp4"] > noise["mxfp4"] > 15
    assert noise["mxfp8"] > noise["mxfp8-mxfp8"] > noise["mxfp8-mxfp4"] > 15
    assert all(MODES[name].narrow == name and not MODES[name].default for name in NARROW_WEIGHTS)


def test_sources_in_blocks_cost_what_quantizes_them(capsys: pytest.CaptureFixture[str]) -> None:
    """On a CPU; a GPU of these multiplies no f8, and says so. Tables and classifiers have the modes, too."""
    quantized = simdnn.quantize_onnx(model(), scheme="weights", weights="mxfp8-mxfp4")
    found = simdnn.load(quantized).estimate({"x": (3, 64)}, machine="spr")
    calls = [call.implementation for node in found.nodes for call in node.calls]
    assert (
        sum(name.startswith("quantize:avx512") for name in calls) == 2
        and sum(name.startswith("wdec") for name in calls) == 2
    )
    with pytest.raises(simdnn.SimdnnError, match="what works: a CPU"):
        simdnn.load(quantized).estimate({"x": (3, 64)}, machine="b580")
    with pytest.raises(simdnn.SimdnnError, match="mxfp8-mxfp4"):
        choose(simdnn.machine("v100"), ["mxfp8-mxfp4"])
    assert choose(simdnn.machine("v100"), ["mxfp8"])[0]
    for workload in ("digits", "cancer"):
        for values in ([], ["--no-values"]):
            words = ["run", workload, "--machine", "zen4", "--modes", "f32,mxfp8-mxfp8", *values]
            assert main(words) == 0 and "mxfp8-mxfp8" in capsys.readouterr().out
