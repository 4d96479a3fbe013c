"""Networks whose weights are stored as floats of 8 and 4 bits: values as of decoded weights, cost without data."""

from __future__ import annotations

import math
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import simdnn
import workloads
from simdnn.cli import main
from simdnn.networks.modes import Calibrated, in_mode
from simdnn.networks.narrow import NARROW_MODES
from simdnn.networks.precision import MODES, choose
from simdnn.networks.tables import run_table
from workloads import MatmulLayer

onnx = pytest.importorskip("onnx")
RNG = np.random.default_rng(0)
FIRST, SECOND = (RNG.standard_normal(shape, np.float32) * np.float32(0.1) for shape in ((64, 40), (24, 40)))
BIAS = RNG.standard_normal(24, np.float32)


def model() -> onnx.ModelProto:
    """A MatMul and a Gemm that reads its weights transposed."""
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "first"], ["h"], "one"),
        onnx.helper.make_node("Relu", ["h"], ["r"], "relu"),
        onnx.helper.make_node("Gemm", ["r", "second", "bias"], ["y"], "two", transB=1),
    ]
    ports = [onnx.helper.make_tensor_value_info(name, 1, [3, size]) for name, size in (("x", 64), ("y", 24))]
    held = {"first": FIRST, "second": SECOND, "bias": BIAS}
    constants = [onnx.numpy_helper.from_array(values, name) for name, values in held.items()]
    graph = onnx.helper.make_graph(nodes, "g", ports[:1], ports[1:], constants)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)


def decoded(weights: np.ndarray, name: str) -> np.ndarray:  # type: ignore[type-arg]
    codes, scales = NARROW_MODES[name].weights.store(weights)
    values = np.asarray(getattr(scales["wei"], "values", scales["wei"])).astype(np.float32)
    whole = np.repeat(values, len(weights) // len(values), 0) if values.ndim == 2 else values
    common = np.asarray(getattr(scales.get("src", 1), "values", scales.get("src", 1)), np.float32)
    return codes.astype(np.float32) * whole * common


def read(x: np.ndarray, name: str) -> np.ndarray:  # type: ignore[type-arg]
    """A source as a mode multiplies it: as the public quantizers store it, or as it is."""
    form = NARROW_MODES[name].source
    if form is None:
        return x
    if form.scale == "tensor":
        t = np.float32(np.abs(x).max() / np.float32(448))
        return (x / t).astype(np.float32).astype(ml_dtypes.float8_e4m3fn).astype(np.float32) * t
    if form.scale == "nvfp4" and x.shape[1] % 16 == 0:
        return simdnn.quantize_nvfp4(x).dequantize()
    group, rule = math.gcd(x.shape[1], form.group), "rceil" if form.scale == "nvfp4" else form.scale
    return simdnn.quantize_mx(x, form.dtype, group=group, rule=rule).dequantize()


@pytest.mark.parametrize("name", NARROW_MODES)
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

    names = ["mxfp8", "nvfp4", "mxfp4", "f8-channel", "mxfp8-mxfp8", "mxfp8-mxfp4", "nvfp4-nvfp4", "mxfp4-mxfp4"]
    modes, _ = choose(simdnn.machine("spr"), ["f32", *names, "f8-f8-tensor", "f8-f8-channel"])
    feeds = [{"x": np.random.default_rng(seed).standard_normal((3, 64), np.float32)} for seed in range(2)]
    totals = run_model(model(), feeds, modes, machine="spr").totals
    noise = totals.set_index("mode")["sqnr_db"]
    assert noise["f8-channel"] > noise["mxfp8"] > noise["nvfp4"] > noise["mxfp4"] > 15
    assert noise["mxfp8"] > noise["mxfp8-mxfp8"] > noise["mxfp8-mxfp4"] > 15
    assert noise["f8-channel"] > noise["f8-f8-channel"] > noise["f8-f8-tensor"] - 1 > 25
    assert noise["nvfp4"] > noise["nvfp4-nvfp4"] > noise["mxfp4-mxfp4"] > 10
    assert all(MODES[name].narrow == name and not MODES[name].default for name in NARROW_MODES)


READING = [name for name, mode in NARROW_MODES.items() if mode.source and not name.endswith(("ceil", "even"))]


@pytest.mark.parametrize("mode", READING)
def test_sources_that_are_quantized_cost_what_does_so(mode: str) -> None:
    """On a CPU; a GPU of these multiplies none, and says so."""
    quantized = simdnn.quantize_onnx(model(), scheme="weights", weights=mode)
    found = simdnn.load(quantized).estimate({"x": (3, 64)}, machine="spr")
    calls = [call.implementation for node in found.nodes for call in node.calls]
    assert (
        sum(name.startswith("quantize:avx512") for name in calls) == 2
        and sum(name.startswith("wdec") for name in calls) == 2
    )
    with pytest.raises(simdnn.SimdnnError, match="what works: a CPU"):
        simdnn.load(quantized).estimate({"x": (3, 64)}, machine="b580")
    with pytest.raises(simdnn.SimdnnError, match=mode):
        choose(simdnn.machine("v100"), [mode])
    assert choose(simdnn.machine("v100"), ["mxfp8"])[0]


@pytest.mark.parametrize("values", [True, False])
def test_tables_count_what_quantizes_sources(values: bool) -> None:
    """A layer's cycles are those of the product and of the kernel ahead of it, with values and without."""
    table = workloads.Workload("t", "t", "", (MatmulLayer("fc", 8, 64, 64),))
    found = run_table(table, "zen4", ["f32", *READING], values=values).layers.set_index("mode")
    for mode in READING:
        assert found.loc[mode, "cycles"] == pytest.approx(alone(mode), rel=1e-6), mode


def alone(mode: str) -> float:
    """Cycles of a model of one product as a table's layer has it."""
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"], "fc")
    ports = [onnx.helper.make_tensor_value_info(name, 1, [8, 64]) for name in "xy"]
    held = [onnx.numpy_helper.from_array(RNG.standard_normal((64, 64), np.float32), "w")]
    graph = onnx.helper.make_graph([node], "g", ports[:1], ports[1:], held)
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    stored = simdnn.load(simdnn.quantize_onnx(made, scheme="weights", weights=mode))
    return stored.estimate({"x": (8, 64)}, machine="zen4", attr=simdnn.Attr(fpmath="bf16")).cycles


@pytest.mark.parametrize("mode", READING)
def test_what_is_no_number_stays_none(mode: str) -> None:
    """In its own row of a product alone; and a source of zeros gives zeros."""
    x = RNG.standard_normal((3, 64), np.float32)
    x[0, 5], x[1, 7] = np.nan, np.inf
    stored = simdnn.load(simdnn.quantize_onnx(model(), scheme="weights", weights=mode))
    found = stored.run({"x": x}, machine="zen4").outputs["y"]
    assert np.isnan(found[:2]).all() and np.isfinite(found[2]).all()
    assert (stored.run({"x": 0 * x[[2, 2, 2]]}, machine="zen4").outputs["y"] == BIAS).all()


@pytest.mark.parametrize("workload", ["digits", "cancer"])
def test_named_on_the_command_line(workload: str, capsys: pytest.CaptureFixture[str]) -> None:
    for values in ([], ["--no-values"]):
        words = ["run", workload, "--machine", "zen4", "--modes", "f32,mxfp8-mxfp8-even,f8-f8-channel", *values]
        assert main(words) == 0
        told = capsys.readouterr().out
        assert "mxfp8-mxfp8-even" in told and "f8-f8-channel" in told
