"""Networks on GPUs: random graphs beside onnxruntime, f16 on tensor cores, int8 on DPAS, errors before a run."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

import simdnn
import workloads
from isa_models import InvalidArgument, Unimplemented, UnknownTiming
from simdnn.networks.precision import choose
from simdnn.networks.tables import run_table

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper  # noqa: E402

from tests.effort import one_in  # noqa: E402
from tests.networks.models import model  # noqa: E402
from tests.networks.random_graphs import Builder, draw  # noqa: E402

GPUS = ("b580", "v100", "dg1", "a770", "max1550")


@one_in(2)
@pytest.mark.parametrize("seed", range(100, 115))
def test_random_graphs(seed: int) -> None:
    drawn, machine = draw(Builder(seed)), GPUS[seed % len(GPUS)]
    net = simdnn.load(drawn.model)
    result = net.run(drawn.feeds, machine=machine)
    drawn.check(result.outputs)
    assert net.estimate(machine=machine).cycles == result.cycles > 0


def classifier() -> tuple[Any, dict[str, Any]]:
    """Two convolutions, a pooling, a product, softmax; and a batch for it."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], "conv1", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["r"], "relu1"),
        helper.make_node("MaxPool", ["r"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p", "w2"], ["c"], "conv2", pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r2"], "relu2"),
        helper.make_node("GlobalAveragePool", ["r2"], ["g"], "mean"),
        helper.make_node("Flatten", ["g"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "w3"], ["o"], "fc"),
        helper.make_node("Softmax", ["o"], ["y"], "softmax"),
    ]
    shapes = {"w1": (32, 16, 3, 3), "b1": (32,), "w2": (64, 32, 3, 3), "w3": (64, 10)}
    weights = {n: (rng.standard_normal(s) / np.sqrt(np.prod(s[1:]))).astype(np.float32) for n, s in shapes.items()}
    made = model(nodes, {"x": (8, 16, 32, 32)}, ["y"], weights)
    return made, {"x": rng.standard_normal((8, 16, 32, 32)).astype(np.float32)}


@pytest.mark.parametrize("machine,kernel", [("b580", "xe2_dpas"), ("dg1", "xe_lp_mad"), ("v100", "volta_mma")])
def test_attention_in_f16_is_one_kernel_for_all_heads(machine: str, kernel: str) -> None:
    nodes = [
        helper.make_node("MatMul", ["q", "k"], ["s"], "scores"),
        helper.make_node("Softmax", ["s"], ["p"], "softmax"),
        helper.make_node("MatMul", ["p", "v"], ["y"], "mixed"),
    ]
    shapes = {"q": (2, 4, 10, 16), "k": (2, 1, 16, 10), "v": (2, 4, 10, 16)}  # keys that heads share
    rng = np.random.default_rng(0)
    feeds = {name: (rng.standard_normal(shape) / 4).astype(np.float32) for name, shape in shapes.items()}
    made = model(nodes, shapes, ["y"], {})
    half = simdnn.load(simdnn.transpile_float16(made))
    found, full = half.run(feeds, machine=machine), simdnn.load(made).run(feeds, machine="zen4")
    np.testing.assert_allclose(found.outputs["y"], full.outputs["y"], atol=5e-3)
    frame = found.to_frame().set_index("node")
    for node in ("scores", "mixed"):
        assert frame.implementation[node] == f"gemm:{kernel}" and frame.macs[node] == 2 * 4 * 10 * 10 * 16
    assert half.estimate(machine=machine).cycles == found.cycles


@one_in(2)
@pytest.mark.parametrize("machine,kernel", [("b580", "conv:xe2_dpas"), ("v100", "conv:volta_mma")])
def test_a_transpiled_model_runs_faster_where_there_are_matrix_units(machine: str, kernel: str) -> None:
    made, feeds = classifier()
    quick = simdnn.what_if(machine, {"launch.us": 0})  # of a network as small as this
    full = simdnn.load(made).run(feeds, machine=quick)
    half = simdnn.load(simdnn.transpile_float16(made)).run(feeds, machine=quick)
    assert half.seconds < full.seconds / 1.4
    frame = half.to_frame().set_index("node")
    assert frame.implementation["conv1"] == kernel and frame.implementation["relu1"].startswith("relu:")
    np.testing.assert_allclose(half.outputs["y"], full.outputs["y"], atol=2e-3)


@one_in(3)
@pytest.mark.parametrize("machine,kernel", [("b580", "xe2_dpas"), ("dg1", "xe_lp_dp4a"), ("v100", "volta_fma")])
def test_a_quantized_model_runs_on_integers_where_the_gpu_has_them(machine: str, kernel: str) -> None:
    made, feeds = classifier()
    net = simdnn.load(simdnn.quantize_onnx(made, [feeds]))
    lacks = pytest.warns(RuntimeWarning, match="computed in f32") if machine == "v100" else contextlib.nullcontext()
    with lacks:
        result = net.run(feeds, machine=machine)
    frame = result.to_frame().set_index("node")
    assert kernel in frame.implementation["conv1"]
    reference = net.run(feeds, machine="clx").outputs["y"]
    np.testing.assert_allclose(result.outputs["y"], reference, atol=2e-3)


def test_every_kernel_has_its_launch() -> None:
    made, feeds = classifier()
    frame = simdnn.load(made).estimate(feeds, machine="v100").to_frame()
    assert (frame.time_us[frame.op != "Flatten"] > 0.9).all() and frame.time_us[frame.op == "Flatten"].item() == 0


def test_what_has_no_kernel_is_named_before_anything_runs() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "first"),
        helper.make_node("Cast", ["a"], ["b"], "second", to=TensorProto.BFLOAT16),
        helper.make_node("Cast", ["b"], ["y"], "third", to=TensorProto.FLOAT),
    ]
    net, feeds = simdnn.load(model(nodes, {"x": (2, 3)}, ["y"], {})), {"x": np.ones((2, 3), np.float32)}
    seen: list[str] = []
    with pytest.raises(Unimplemented, match=r"'second'.*bf16"):
        net.run(feeds, machine="v100", watch=lambda node, outputs: seen.append(node.name))
    assert not seen
    assert net.run(feeds, machine="b580").outputs["y"].sum() == 6


def test_what_hangs_on_values_or_has_no_cost_runs() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "relu"),
        helper.make_node("NonZero", ["a"], ["i"], "where"),
        helper.make_node("Cast", ["i"], ["f"], "float", to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["f", "w"], ["y"], "product"),
        helper.make_node("Det", ["a"], ["d"], "determinant"),
    ]
    net = simdnn.load(model(nodes, {"x": (2, 2)}, ["y", "d"], {"w": np.ones((3, 2), np.float32)}))
    result = net.run({"x": np.array([[1, -1], [2, 3]], np.float32)}, machine="b580")
    assert (result.outputs["y"] == [[2, 2], [1, 1]]).all() and result.outputs["d"] == 3
    with pytest.raises(UnknownTiming, match="Det"):
        _ = result.cycles


def test_what_means_something_on_cpus_alone_is_refused() -> None:
    made, feeds = classifier()
    for options in ({"isa": "avx2"}, {"threads": 2}):
        with pytest.raises(InvalidArgument, match="b580"):
            simdnn.load(made).run(feeds, machine="b580", **options)
    with pytest.raises(Unimplemented, match="onednn"):
        simdnn.load(made).run(feeds, machine="b580", dispatch="onednn")


def test_modes_of_tensor_cores() -> None:
    named = ["bf16", "int8-vnni", "int8-s8-vnni"]
    run, lacking = choose(simdnn.machine("h100"), named)
    assert [mode.name for mode in run] == named and not lacking
    with pytest.raises(InvalidArgument, match="has no kernel on NVIDIA's volta; GPUs that have one: Intel, ampere"):
        choose(simdnn.machine("v100"), ["bf16"])
    totals = run_table(workloads.load("minilm"), "h100", ["f32", "bf16"], values=False).totals
    assert totals["speed_up"].tolist()[1] > 1.5
