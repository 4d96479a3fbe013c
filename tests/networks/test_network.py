"""simdnn.load and what it gives: values beside onnxruntime, cost, frames, feeds that do not fit."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import simdnn
from simdnn import Attr, InvalidArgument, Unimplemented, UnknownTiming

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper  # noqa: E402

from simdnn.networks.between_products import READINGS  # noqa: E402
from simdnn.networks.inspect import inspect  # noqa: E402
from simdnn.networks.tables import run_layers  # noqa: E402
from simdnn.numerics import reference  # noqa: E402
from simdnn.primitives.run import Target  # noqa: E402
from tests.networks import peer  # noqa: E402
from tests.networks.models import model, small_cnn  # noqa: E402
from workloads import MatmulLayer, Workload  # noqa: E402

X = np.random.default_rng(1).normal(size=(2, 3, 12, 12)).astype(np.float32)


@pytest.mark.parametrize(("machine", "isa"), [("zen4", None), ("skx", None), ("zen4", "avx2")])
def test_values_are_those_of_a_runtime(machine: str, isa: str | None) -> None:
    r = simdnn.load(small_cnn()).run({"x": X}, machine=machine, isa=isa)
    np.testing.assert_allclose(r.outputs["y"], peer.output(small_cnn(), {"x": X}), rtol=1e-4, atol=1e-6)
    frame = r.to_frame()
    assert list(frame["node"]) == ["conv", "relu", "pool", "flat", "fc", "soft"]
    assert frame["cycles"].sum() == pytest.approx(r.cycles) and r.cycles > 0 and r.seconds > 0
    assert frame.set_index("node").loc["flat", "implementation"] == "view"
    assert json.loads(r.to_json())["nodes"][0]["op"] == "Conv"
    assert r.macs == 2 * 12 * 12 * 8 * 27 + 2 * 10 * 288


@pytest.mark.parametrize("values", [True, False])
def test_where_a_network_runs_is_checked_once(values: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products take the target that the network has; none makes it anew from names."""
    made = []
    of = Target.of
    monkeypatch.setattr(Target, "of", lambda *given: made.append(given) or of(*given))
    net = simdnn.load(small_cnn())
    if values:
        net.run({"x": X}, machine="zen4")
    else:
        assert net.estimate({"x": X.shape}, machine="zen4").cycles > 0
    assert len(made) == 1


def test_cost_alone_is_the_cost_of_the_run() -> None:
    net = simdnn.load(small_cnn())
    run = net.run({"x": X}, machine="zen4")
    for feeds in ({"x": X.shape}, {"x": X}):
        estimate = net.estimate(feeds, machine="zen4")
        assert estimate.cycles == run.cycles and estimate.macs == run.macs
    with pytest.raises(InvalidArgument, match="has no fixed shape"):
        net.estimate(machine="zen4")
    big = net.estimate({"x": (64, 3, 12, 12)}, machine="zen4")
    assert big.cycles > 10 * run.cycles


def test_engines_and_math_modes() -> None:
    net = simdnn.load(small_cnn())
    runs = [net.run({"x": X}, machine="zen4", engine=e).outputs["y"] for e in ("reference", "compiled")]
    assert runs[0].tobytes() == runs[1].tobytes()
    strict = net.run({"x": X}, machine="zen4")
    loose = net.run({"x": X}, machine="zen4", attr=Attr(fpmath="bf16"))
    assert strict.outputs["y"].tobytes() != loose.outputs["y"].tobytes()
    np.testing.assert_allclose(strict.outputs["y"], loose.outputs["y"], atol=0.05)
    with simdnn.fpmath_mode("bf16"):
        assert net.run({"x": X}, machine="zen4").outputs["y"].tobytes() == loose.outputs["y"].tobytes()
    two = net.run({"x": X}, machine="zen4", threads=2)
    assert two.outputs["y"].tobytes() == strict.outputs["y"].tobytes() and 0 < two.cycles < 1.2 * strict.cycles


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, "no feed for x Nx3x12x12 f32"),
        ({"z": X}, "feed for 'z'; the inputs are x"),
        ({"x": X.astype(np.float64)}, "is f64; f32 is needed"),
        ({"x": X[0]}, "has shape"),
        ({"x": X[:, :2]}, "has shape"),
        ({"x": [1, 2]}, "is a list"),
        ({"x": np.ma.masked_array(X)}, "is a MaskedArray, whose mask"),
    ],
)
def test_feeds_that_do_not_fit(feeds: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as caught:
        simdnn.load(small_cnn()).run(feeds, machine="zen4")
    assert "\n" not in str(caught.value)


def test_an_unknown_operator_is_named_before_anything_runs() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"], "first"), helper.make_node("Softmaxx", ["r"], ["y"], "second")]
    net = simdnn.load(model(nodes, {"x": [4]}, ["y"]))
    ran = []
    with pytest.raises(Unimplemented, match="node 'second' .*no operator 'Softmaxx'.*'Softmax'"):
        net.run({"x": np.zeros(4, np.float32)}, machine="zen4", watch=lambda node, _: ran.append(node))
    assert not ran
    found = inspect(net)
    assert found.unsupported == {"Softmaxx": 1} and "Softmaxx" in found.why_no_shapes


def test_a_cost_that_nobody_knows_is_an_error() -> None:
    made = model(
        [helper.make_node("MatMul", ["a", "a"], ["y"], "product")], {"a": [3, 3]}, ["y"], dtype=onnx.TensorProto.DOUBLE
    )
    r = simdnn.load(made).run({"a": np.eye(3)}, machine="zen4")
    np.testing.assert_array_equal(r.outputs["y"], np.eye(3))
    with pytest.raises(UnknownTiming, match="node 'product'.*f64"):
        _ = r.cycles


def test_inspection() -> None:
    found = inspect(simdnn.load(small_cnn()), {"x": (1, 3, 12, 12)})
    assert found.macs == 12 * 12 * 8 * 27 + 10 * 288 and not found.unsupported
    assert found.network.parameters == 8 * 27 + 8 + 2890
    assert list(found.to_frame()["output"])[0] == "1x8x12x12"
    assert json.loads(found.to_json())["operators"]["Conv"] == 1


def test_batch_normalization_is_folded_where_nobody_else_reads_the_convolution() -> None:
    made = small_cnn(soft=False)
    folded = simdnn.load(made).run({"x": X}, machine="zen4")
    made.graph.output.append(helper.make_tensor_value_info("c", 1, None))
    whole = simdnn.load(made).run({"x": X}, machine="zen4")
    assert "norm" in set(whole.to_frame()["node"]) and "norm" not in set(folded.to_frame()["node"])
    np.testing.assert_allclose(folded.outputs["y"], whole.outputs["y"], rtol=1e-3, atol=1e-4)
    assert folded.cycles < whole.cycles


def test_what_depends_on_no_feed_costs_nothing() -> None:
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"], "turn", perm=[1, 0]),
        helper.make_node("MatMul", ["x", "t"], ["y"], "product"),
    ]
    net = simdnn.load(model(nodes, {"x": [2, 8]}, ["y"], {"w": np.ones((4, 8), np.float32)}))
    r = net.run({"x": np.ones((2, 8), np.float32)}, machine="zen4")
    assert list(r.to_frame()["implementation"])[0] == "constant"
    np.testing.assert_array_equal(r.outputs["y"], np.full((2, 4), 8, np.float32))


def test_narrow_floats_run_in_kernels_of_their_own() -> None:
    import ml_dtypes

    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Gelu", ["m"], ["y"])]
    x, w = (np.random.default_rng(i).normal(size=(16, 16)) for i in (1, 2))
    results = {}
    for kind, number in (("float32", 1), ("float16", 10), ("bfloat16", 16)):
        dtype = np.dtype(getattr(ml_dtypes, kind, kind))
        made = model(nodes, {"x": [16, 16], "w": [16, 16]}, ["y"], opset=20, dtype=number)
        r = simdnn.load(made).run({"x": x.astype(dtype), "w": w.astype(dtype)}, machine="zen4")
        assert r.outputs["y"].dtype == dtype and r.cycles > 0
        results[kind] = r.outputs["y"].astype(np.float32)
    np.testing.assert_allclose(results["float16"], results["float32"], atol=0.02)
    np.testing.assert_allclose(results["bfloat16"], results["float32"], atol=0.15)


@pytest.mark.parametrize("machine", ["zen4", "a770"])
def test_weights_come_from_memory_where_all_together_exceed_the_last_cache(machine: str) -> None:
    """One matrix of 9 MiB fits in the 32 MiB of zen4 and the 16 MiB of a770, four do not."""

    def chain(count: int) -> float:
        nodes = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]) for i in range(count)]
        weights = {f"w{i}": np.zeros((1536, 1536), np.float32) for i in range(count)}
        made = model(nodes, {"x0": (1, 1536)}, [f"x{count}"], weights)
        return simdnn.load(made).estimate(machine=machine).cycles

    def alone() -> float:
        return simdnn.estimate("matmul", m=1, n=1536, k=1536, dt="f32", machine=machine).cycles

    warm = alone()
    with simdnn.cold_weights():
        cold = alone()
    assert warm < cold
    assert chain(1) == pytest.approx(warm)
    assert chain(4) == pytest.approx(4 * cold)


def test_outputs_fetches_what_is_named() -> None:
    """Values inside the network, its outputs, inputs and constants, at the cost of the whole."""
    net = simdnn.load(small_cnn())
    whole = net.run({"x": X}, machine="zen4")
    seen: dict[str, Any] = {}
    net.run({"x": X}, machine="zen4", watch=lambda node, given: seen.update(zip(node.outputs, given, strict=False)))
    inside = [name for name in seen if name not in whole.outputs][:2]
    constant = next(iter(net.graph.constants))
    r = net.run({"x": X}, machine="zen4", outputs=[*inside, "y", "x", constant])
    assert list(r.outputs) == [*inside, "y", "x", constant] and r.cycles == whole.cycles
    for name in (*inside, "y"):
        assert r.outputs[name].tobytes() == seen[name].tobytes()
    assert r.outputs["x"].tobytes() == X.tobytes()
    assert net.run({"x": X}, machine="zen4", outputs=[]).outputs == {}
    with pytest.raises(simdnn.UnknownName, match="unknown output 'yy'"):
        net.run({"x": X}, machine="zen4", outputs=["yy"])
    for wrong in ("y", [3]):
        with pytest.raises(InvalidArgument, match="a list of names is needed"):
            net.run({"x": X}, machine="zen4", outputs=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("isa", ["avx2", None])
def test_a_batch_of_products_is_one_kernel_on_a_cpu(isa: str | None) -> None:
    """As `simdnn.matmul` runs it; cores share out the products, and what departed is told of all of them."""
    shapes = {"q": (2, 4, 40, 64), "k": (2, 1, 64, 40)}
    made = model([helper.make_node("MatMulInteger", ["q", "k"], ["s"], "scores")], shapes, ["s"], {})
    for given, dtype in zip(made.graph.input, (onnx.TensorProto.UINT8, onnx.TensorProto.INT8), strict=True):
        given.type.tensor_type.elem_type = dtype
    rng = np.random.default_rng(0)
    feeds = {
        "q": rng.integers(0, 256, shapes["q"]).astype(np.uint8),
        "k": rng.integers(-128, 128, shapes["k"]).astype(np.int8),
    }
    net, where = simdnn.load(made), {"machine": "skx", "isa": isa}
    found, alone = net.run(feeds, **where), simdnn.matmul(feeds["q"], feeds["k"], wei_tag="ab", **where)
    assert (found.outputs["s"] == alone.output).all() and found.macs == 2 * 4 * 40 * 40 * 64
    assert found.cycles == alone.cycles == net.estimate(feeds, **where).cycles
    assert int(found.departures["outputs"].sum()) == int(alone.departures["outputs"].sum()) > 0
    eight = net.run(feeds, threads=8, **where)
    assert eight.cycles < found.cycles / 4 and (eight.outputs["s"] == alone.output).all()


def test_a_small_program_that_runs_often_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading it is quicker than compiling it only for the first few times."""
    x_port, y_port = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [5, 7]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", [x_port], [y_port])
    net = simdnn.load(helper.make_model(graph))
    read: list[int] = []
    was = reference.execute
    monkeypatch.setattr(reference, "execute", lambda *args: (read.append(1), was(*args))[1])
    x = {"x": np.linspace(-1, 1, 35, dtype=np.float32).reshape(5, 7)}
    bits = {net.run(x, machine="zen4").outputs["y"].tobytes() for _ in range(2 * READINGS)}
    assert len(bits) == 1 and len(read) <= READINGS
    net.run(x, machine="zen4", engine="reference")
    assert len(read) <= READINGS + 1


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(("machine", "dispatch"), [("spr", "fastest"), ("zen4", "fastest"), ("spr", "onednn")])
def test_only_constants_are_packed_ahead_of_time(machine: str, dispatch: str, constant: bool) -> None:
    """Another second operand comes as it lies: bringing it to the kernel's order is paid in the product."""
    values = np.random.default_rng(2).normal(size=(64, 48)).astype(np.float32)
    shapes = {"x": (32, 64)} | ({} if constant else {"w": values.shape})
    product = model([helper.make_node("MatMul", ["x", "w"], ["y"])], shapes, ["y"], {"w": values} if constant else {})
    attr = Attr(fpmath="bf16")
    asked = {"m": 32, "n": 48, "k": 64, "machine": machine, "attr": attr, "dispatch": dispatch}
    packed, plain = (simdnn.estimate("matmul", wei_tag=tag, **asked).cycles for tag in ("any", "ab"))
    assert packed < plain
    found = simdnn.load(product).estimate(shapes, machine=machine, attr=attr, dispatch=dispatch)
    assert found.cycles == (packed if constant else plain)
    layer = MatmulLayer("scores", m=32, n=48, k=64, kind="weight" if constant else "act")
    for values in (False, True):  # a table of layers tells the same
        rows = run_layers(Workload("one", "", "", (layer,)), machine, ["fpmath-bf16"], values=values, dispatch=dispatch)
        assert list(rows["cycles"]) == [found.cycles]


@pytest.mark.parametrize("constant", [True, False])
def test_of_quantized_operands_too_only_constants_are_packed_ahead_of_time(constant: bool) -> None:
    """Their scales are constants in any case."""
    numbers = {"s": np.float32(0.5), "z": np.uint8(3)}
    values = np.random.default_rng(2).integers(0, 255, (64, 48)).astype(np.uint8)
    shapes = {"x": (32, 64)} | ({} if constant else {"w": values.shape})
    node = helper.make_node("QLinearMatMul", ["x", "s", "z", "w", "s", "z", "s", "z"], ["y"])
    constants = numbers | ({"w": values} if constant else {})
    net = simdnn.load(model([node], shapes, ["y"], constants, dtype=TensorProto.UINT8))
    (product,) = (c for c in net.estimate(shapes, machine="spr").nodes[0].calls if c.macs)
    asked = {"m": 32, "n": 48, "k": 64, "dt": "u8:s8:s32", "machine": "spr"}
    attr = Attr(zero_points={"src": np.array([3], np.int32), "wei": np.array([-125], np.int32)})
    packed, plain = (simdnn.estimate("matmul", wei_tag=tag, attr=attr, **asked).cycles for tag in ("any", "ab"))
    assert packed < plain and product.find_cost().cycles == (packed if constant else plain)
