"""Post-training quantization, and quantize-dequantize models on the integer kernels."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import simdnn
from simdnn import Attr, InvalidArgument

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import helper  # noqa: E402

from tests.effort import one_in  # noqa: E402
from tests.networks import peer  # noqa: E402
from tests.networks.models import model, small_cnn  # noqa: E402

X = np.random.default_rng(1).normal(size=(4, 3, 12, 12)).astype(np.float32)
FEEDS = [{"x": X}]
LOGITS = small_cnn(soft=False)


def near(got: Any, want: Any, share: float) -> None:
    """The error's norm is at most a share of the values'."""
    assert np.linalg.norm(got - want) <= share * np.linalg.norm(want)


def values(made: Any, machine: str = "zen4", **more: Any) -> Any:
    return simdnn.load(made).run({"x": X}, machine=machine, **more).outputs["y"]


def implementations(made: Any, machine: str = "zen4", **more: Any) -> dict[str, str]:
    frame = simdnn.load(made).run({"x": X}, machine=machine, **more).to_frame()
    return dict(zip(frame["node"], frame["implementation"], strict=True))


@one_in(2)
@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("sources", ["u8", "s8"])
def test_static_runs_on_integer_kernels_and_stays_close(per_channel: bool, sources: str) -> None:
    made = simdnn.quantize_onnx(LOGITS, FEEDS, per_channel=per_channel, sources=sources)
    onnx.checker.check_model(made, full_check=True)
    exact = values(LOGITS)
    near(values(made), exact, 0.03)
    near(values(made), peer.output(made, {"x": X}), 0.005)
    found = implementations(made)
    assert "vnni" in found["conv"] and "vnni" in found["fc"]


def test_one_file_runs_as_if_on_each_kind_of_cpu() -> None:
    made = simdnn.quantize_onnx(LOGITS, FEEDS, sources="s8")
    assert "int8" in implementations(made, "skx")["conv"]
    assert "avx2_int8" in implementations(made, "zen4", isa="avx2")["conv"]
    assert "vnni" in implementations(made, "icx")["conv"]
    wide = values(made, "zen4")
    np.testing.assert_array_equal(values(made, "icx"), wide)
    np.testing.assert_allclose(values(made, "skx", attr=Attr(exact_int8=True)), wide, atol=1e-6)


def test_signed_sources_without_vnni() -> None:
    """Halved weights lose their last bit, unless exactness is asked for; u8 sources saturate instead."""
    made = simdnn.quantize_onnx(LOGITS, FEEDS, sources="s8")
    exact, halved = (values(made, "skx", attr=Attr(exact_int8=flag)) for flag in (True, False))
    error = np.abs(halved - exact).max()
    assert 0 < error < 0.05 * np.abs(exact).max()


def test_a_run_tells_traffic_saturation_and_where_its_numbers_come_from() -> None:
    """Sources and weights at the ends of their ranges saturate where pairs are added in 16 bits."""
    rng = np.random.default_rng(4)
    w = np.sign(rng.normal(size=(64, 8))).astype(np.float32)
    source = model([helper.make_node("MatMul", ["x", "w"], ["y"], "mm")], {"x": [16, 64]}, ["y"], {"w": w})
    feeds = {"x": rng.random((16, 64)).astype(np.float32)}
    net = simdnn.load(simdnn.quantize_onnx(source, [feeds]))
    fast = net.run(feeds, machine="skx", attr=Attr(exact_int8=False))
    (row,) = fast.saturation.to_dict("records")
    assert row["node"] == "mm" and row["outputs"] == 128 and 0 < row["saturated_outputs"] <= 128
    assert net.run(feeds, machine="icx").saturation.empty
    levels = fast.traffic.set_index("level")
    assert levels.loc["L1", "read_bytes"] >= 16 * 64 + 64 * 8 and list(levels.index)[0] == "L1"
    one = simdnn.load(source).run(feeds, machine="skx")
    assert one.provenance == simdnn.load(source).estimate(feeds, machine="skx").provenance
    assert one.provenance["nodes_sha256"] != fast.provenance["nodes_sha256"] and one.provenance["machine"] == "skx"
    assert '"traffic"' in fast.to_json()


def test_a_chain_requantizes_in_the_kernel() -> None:
    rng = np.random.default_rng(2)
    constants = {n: (rng.normal(size=(8, c, 3, 3)) * 0.2).astype(np.float32) for n, c in (("v", 3), ("w", 8))}
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["a"], "one"),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Conv", ["b", "w"], ["y"], "two"),
    ]
    made = simdnn.quantize_onnx(model(nodes, {"x": [4, 3, 12, 12]}, ["y"], constants), FEEDS)
    net = simdnn.load(made)
    r = net.run({"x": X}, machine="zen4")
    frame = r.to_frame()
    assert list(frame["node"])[-2:] == ["one", "two"] and len(frame[frame["cycles"] > 0]) == 3
    assert list(frame["dtype"])[-2:] == ["u8", "f32"]
    near(net.run({"x": X}, **peer.ALIKE).outputs["y"], peer.output(made, {"x": X}), 0.01)
    assert net.estimate(machine="zen4").cycles == r.cycles


def test_dynamic() -> None:
    made = simdnn.quantize_onnx(LOGITS, scheme="dynamic")
    assert Counter(n.op_type for n in made.graph.node)["DynamicQuantizeLinear"] == 2
    onnx.checker.check_model(made, full_check=True)
    near(values(made), values(LOGITS), 0.03)
    near(values(made), peer.output(made, {"x": X}), 1e-5)
    assert "vnni" in implementations(made)["conv"]


@one_in(2)
@pytest.mark.parametrize(("weights", "error"), [("s8", 0.01), ("s4", 0.16)])
def test_weights_alone(weights: str, error: float) -> None:
    made = simdnn.quantize_onnx(LOGITS, scheme="weights", weights=weights, group=32)
    assert [n.op_type for n in made.graph.node if n.domain] == ["MatMulNBits"]
    near(values(made), values(LOGITS), error)
    assert implementations(made)["fc"].startswith("wdec")
    try:
        want = peer.output(made, {"x": X})
    except Exception as problem:  # releases differ in the widths that they know
        pytest.skip(f"the runtime refuses it: {problem}"[:90])
    near(values(made), want, 1e-3)


@one_in(2)
@pytest.mark.parametrize(("inner", "block"), [(20, 16), (96, 32), (50, 16), (8, 16), (256, 128)])
@pytest.mark.parametrize("weights", ["s8", "s4"])
def test_groups_become_smaller_where_k_asks_for_it(inner: int, block: int, weights: str) -> None:
    rng = np.random.default_rng(inner)
    w, x = rng.normal(size=(inner, 24)).astype(np.float32), rng.normal(size=(3, inner)).astype(np.float32)
    source = model([helper.make_node("MatMul", ["x", "w"], ["y"], "mm")], {"x": [3, inner]}, ["y"], {"w": w})
    made = simdnn.quantize_onnx(source, scheme="weights", weights=weights, group=128)
    (node,) = made.graph.node
    assert {a.name: a.i for a in node.attribute}["block_size"] == block
    got = simdnn.load(made).run({"x": x}, machine="zen4")
    near(got.outputs["y"], x @ w, 0.01 if weights == "s8" else 0.2)
    assert simdnn.load(made).estimate(machine="zen4").cycles == got.cycles > 0
    if weights == "s4":
        near(got.outputs["y"], peer.output(made, {"x": x}), 1e-5)


def test_only_a_part() -> None:
    made = simdnn.quantize_onnx(LOGITS, FEEDS, only=["fc"])
    found = implementations(made)
    assert "vnni" in found["fc"] and "vnni" not in found["conv"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs calibration data"),
        ({"scheme": "magic"}, "scheme"),
        ({"scheme": "weights", "weights": "s2"}, "weights"),
        ({"scheme": "weights", "group": 3}, "group"),
        ({"calibration": [{"x": np.full((1, 3, 12, 12), np.nan, np.float32)}]}, "NaN"),
        ({"calibration": [{"z": X}]}, "feed for 'z'"),
        ({"calibration": {"x": X}}, "feeds come in a list"),
        ({"calibration": [X]}, "a list of feeds, dicts of arrays"),
        ({"calibration": {"x": (2.0, 1.0)}}, "least, greatest"),
    ],
)
def test_wrong_arguments(options: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        simdnn.quantize_onnx(LOGITS, **options)


@pytest.mark.parametrize(("weights", "error"), [("s8", 0.01), ("s4", 0.2)])
def test_filters_alone(weights: str, error: float) -> None:
    """Convolutions read stored weights where integers may be computed in floats, else what these stand for."""
    made = simdnn.quantize_onnx(LOGITS, scheme="weights", weights=weights)
    stored = next(t for t in made.graph.initializer if t.name == f"n_w_{weights}")
    assert stored.data_type == (onnx.TensorProto.INT8 if weights == "s8" else onnx.TensorProto.INT4)
    plain, read = (simdnn.load(made).run({"x": X}, machine="zen4", attr=Attr(apply_to_int=i)) for i in (False, True))
    near(read.outputs["y"], values(LOGITS), error)
    near(plain.outputs["y"], read.outputs["y"], 1e-5)
    frames = [r.to_frame().set_index("node") for r in (plain, read)]
    assert frames[0].cycles["conv"] != frames[1].cycles["conv"]  # a kernel that decodes them, of another cost
    assert simdnn.load(made).estimate({"x": X}, machine="zen4", attr=Attr(apply_to_int=True)).cycles == read.cycles


def test_a_product_left_to_f32_says_why() -> None:
    """Integer weights with a zero point of their own: no convolution here has one."""
    constants = {
        "s": np.array(0.1, np.float32),
        "z": np.array(7, np.uint8),
        "ws": np.array(0.1, np.float32),
        "w": np.ones((2, 3, 1, 1), np.int8),
        "wz": np.array(3, np.int8),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["v"]),
        helper.make_node("Conv", ["d", "v"], ["y"], "conv"),
    ]
    net = simdnn.load(model(nodes, {"x": [1, 3, 4, 4]}, ["y"], constants))
    with pytest.warns(RuntimeWarning, match="node 'conv' .Conv. is computed in f32: no convolution kernel"):
        found = net.run({"x": np.ones((1, 3, 4, 4), np.float32)}, machine="zen4")
    assert np.allclose(found.outputs["y"], -0.6)


def test_filters_alone_mean_what_a_runtime_takes_them_for() -> None:
    w = np.random.default_rng(3).normal(size=(6, 3, 3, 3)).astype(np.float32)
    source = model([helper.make_node("Conv", ["x", "w"], ["y"], "conv")], {"x": [4, 3, 12, 12]}, ["y"], {"w": w})
    made = simdnn.quantize_onnx(source, scheme="weights", weights="s8")
    near(values(made, attr=Attr(apply_to_int=True)), peer.output(made, {"x": X}), 1e-5)
