"""Networks whose weights are stored as floats of 8 and 4 bits: values as of decoded weights, cost without data."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import ml_dtypes
import numpy as np
import pytest

import simdnn
import workloads
from simdnn.cli import main
from simdnn.networks.modes import Calibrated, in_mode
from simdnn.networks.narrow_weights import NARROW_MODES
from simdnn.networks.precision import MODES, Mode, choose
from simdnn.networks.tables import run_table
from tests.effort import one_in
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


@one_in(4)
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
    with pytest.raises(
        simdnn.Unimplemented, match="weights that a convolution keeps .*; what stores those of convolutions: f8-channel"
    ):
        in_mode(Calibrated(onnx_model(convolutions), []), mode)


def with_convolutions() -> onnx.ModelProto:
    """Two convolutions, one depthwise with strides, and a product of what is left."""
    rng = np.random.default_rng(3)
    held = {
        "filters": rng.standard_normal((8, 3, 3, 3), np.float32),
        "bias": rng.standard_normal(8, np.float32),
        "deep": rng.standard_normal((8, 1, 3, 3), np.float32),
        "w": rng.standard_normal((8, 5), np.float32),
    }
    nodes = [
        onnx.helper.make_node("Conv", ["x", "filters", "bias"], ["c"], "conv", pads=[1] * 4),
        onnx.helper.make_node("Conv", ["c", "deep"], ["d"], "depthwise", group=8, strides=[2, 2]),
        onnx.helper.make_node("GlobalAveragePool", ["d"], ["p"], "pool"),
        onnx.helper.make_node("Flatten", ["p"], ["f"], "flat"),
        onnx.helper.make_node("MatMul", ["f", "w"], ["y"], "fc"),
    ]
    ports = [onnx.helper.make_tensor_value_info(n, 1, dims) for n, dims in (("x", [2, 3, 7, 7]), ("y", [2, 5]))]
    constants = [onnx.numpy_helper.from_array(values, name) for name, values in held.items()]
    graph = onnx.helper.make_graph(nodes, "g", ports[:1], ports[1:], constants)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)


@one_in(2)
@pytest.mark.parametrize(
    ("name", "machine"),
    [*product(("f8-tensor", "f8-channel"), ("zen4", "v100")), ("f8-f8-tensor", "zen4"), ("f8-f8-channel", "spr")],
)
def test_convolutions_have_the_modes_without_blocks(name: str, machine: str) -> None:
    """Values are those of weights, and sources, that were brought to f8 and back; costs hang on no data."""
    plain = with_convolutions()
    stored = simdnn.load(simdnn.quantize_onnx(plain, scheme="weights", weights=name))
    x = RNG.standard_normal((2, 3, 7, 7), np.float32)
    found = stored.run({"x": x}, machine=machine, attr=simdnn.Attr(fpmath="strict"))
    for tensor in plain.graph.initializer:
        if tensor.name != "bias":
            w = onnx.numpy_helper.to_array(tensor)
            rows = w.T if tensor.name == "w" else w.reshape(len(w), -1)
            largest = np.abs(rows).max(axis=1, keepdims=True) if name.endswith("channel") else np.abs(rows).max()
            scale = np.float32(largest / np.float32(448))
            codes = (rows / scale).astype(np.float32).astype(ml_dtypes.float8_e4m3fn).astype(np.float32) * scale
            tensor.CopyFrom(
                onnx.numpy_helper.from_array((codes.T if tensor.name == "w" else codes).reshape(w.shape), tensor.name)
            )
    values = {"x": x}
    for node in simdnn.load(plain).graph.nodes:
        if node.op in ("Conv", "MatMul") and NARROW_MODES[name].source:
            values[node.inputs[0]] = read(values[node.inputs[0]], name)
        one = onnx.helper.make_graph(
            [next(n for n in plain.graph.node if n.name == node.name)],
            "g",
            [onnx.helper.make_tensor_value_info(node.inputs[0], 1, values[node.inputs[0]].shape)],
            [onnx.helper.make_tensor_value_info(node.outputs[0], 1, None)],
            list(plain.graph.initializer),
        )
        alone = onnx.helper.make_model(one, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
        values |= simdnn.load(alone).run({node.inputs[0]: values[node.inputs[0]]}, machine="zen4").outputs
    np.testing.assert_allclose(found.outputs["y"], values["y"], rtol=2e-3, atol=2e-3 * np.abs(values["y"]).max())
    assert found.cycles == stored.estimate({"x": x.shape}, machine=machine, attr=simdnn.Attr(fpmath="strict")).cycles


def test_blocks_are_of_products_and_nobody_says_otherwise() -> None:
    """A network says what its convolutions keep; a recipe that names one is refused, and none is tuned."""
    from simdnn.networks.modes import run_model
    from simdnn.networks.precision import recipe

    feeds = {"x": RNG.standard_normal((2, 3, 7, 7), np.float32)}
    modes, _ = choose(simdnn.machine("zen4"), ["f32", "mxfp8", "f8-channel"])
    totals = run_model(with_convolutions(), feeds, modes, machine="zen4").totals.set_index("mode")
    assert "convolutions keep" in totals.loc["mxfp8", "note"] and not totals.loc["f8-channel", "note"]
    mixed: dict[Mode, str | None] = {recipe({"conv": "mxfp8", "fc": "mxfp8"}): None}
    with pytest.raises(simdnn.Unimplemented, match="'conv' in 'mxfp8'.*what works: fpmath-bf16, f8-tensor"):
        run_model(with_convolutions(), feeds, mixed, machine="zen4")
    fitting: dict[Mode, str | None] = {recipe({"conv": "f8-channel", "depthwise": "f32", "fc": "mxfp8"}): None}
    assert run_model(with_convolutions(), feeds, fitting, machine="zen4").totals["refused"].iloc[-1] == ""
    found = simdnn.tune(with_convolutions(), feeds=[feeds], machine="zen4", modes=["f32", "mxfp8", "f8-channel"])
    rows = [found.recipe(row) for row in range(len(found.front))]
    assert rows and all("mxfp8" not in (row["conv"], row["depthwise"]) for row in rows)


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


@one_in(3)
@pytest.mark.parametrize("mode", READING)
def test_what_is_no_number_stays_none(mode: str) -> None:
    """In its own row of a product alone; and a source of zeros gives zeros."""
    x = RNG.standard_normal((3, 64), np.float32)
    x[0, 5], x[1, 7] = np.nan, np.inf
    stored = simdnn.load(simdnn.quantize_onnx(model(), scheme="weights", weights=mode))
    found = stored.run({"x": x}, machine="zen4").outputs["y"]
    assert np.isnan(found[:2]).all() and np.isfinite(found[2]).all()
    assert (stored.run({"x": 0 * x[[2, 2, 2]]}, machine="zen4").outputs["y"] == BIAS).all()


@one_in(2)
@pytest.mark.parametrize("workload", ["digits", "cancer"])
def test_named_on_the_command_line(workload: str, capsys: pytest.CaptureFixture[str]) -> None:
    for values in ([], ["--no-values"]):
        words = ["run", workload, "--machine", "zen4", "--modes", "f32,mxfp8-mxfp8-even,f8-f8-channel", *values]
        assert main(words) == 0
        told = capsys.readouterr().out
        assert "mxfp8-mxfp8-even" in told and "f8-f8-channel" in told
