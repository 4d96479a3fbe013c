"""The float16 transpiler: structure, exactness, what it reports, and the same outputs in a runtime."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import simdnn
import workloads
from isa_models import instruction

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from simdnn.networks.float16 import transpile_float16  # noqa: E402
from simdnn.networks.float16_writer import narrowed  # noqa: E402
from simdnn.networks.fold import folded  # noqa: E402
from simdnn.networks.opset import without_weights  # noqa: E402
from tests.networks import peer  # noqa: E402
from tests.networks.models import model, small_cnn  # noqa: E402
from tests.networks.random_graphs import Builder, draw  # noqa: E402
from workloads.export import onnx_model  # noqa: E402

X = np.random.default_rng(1).normal(size=(2, 3, 12, 12)).astype(np.float32)


def ops(made: Any) -> Counter[str]:
    return Counter(node.op_type for node in made.graph.node)


def kinds(made: Any) -> dict[str, int]:
    return {t.name: t.data_type for t in made.graph.initializer}


def transpiled(source: Any, x: np.ndarray[Any, Any]) -> Any:
    """The model in f16, sound, and on `x`, whose values f16 holds, equal to the source."""
    made = simdnn.transpile_float16(source)
    onnx.checker.check_model(made, full_check=True)
    np.testing.assert_array_equal(peer.output(made, {"x": x}), peer.output(source, {"x": x}))
    return made


def test_a_network_keeps_its_interface_and_every_parameter_is_converted(tmp_path: Path) -> None:
    made = simdnn.transpile_float16(small_cnn())
    assert [n.op_type for n in made.graph.node][0] == [n.op_type for n in made.graph.node][-1] == "Cast"
    assert ops(made)["Cast"] == 2
    for ports in (made.graph.input, made.graph.output):
        assert [v.type.tensor_type.elem_type for v in ports] == [TensorProto.FLOAT]
    assert [v.name for v in made.graph.input] == ["x"] and [v.name for v in made.graph.output] == ["y"]
    assert set(kinds(made).values()) == {TensorProto.FLOAT16} and "fc_f16" in kinds(made) and "fc" not in kinds(made)
    before = {t.name: numpy_helper.to_array(t) for t in folded(small_cnn(), None).graph.initializer}
    for tensor in made.graph.initializer:
        want = before[tensor.name.removesuffix("_f16")].astype(np.float16)
        assert numpy_helper.to_array(tensor).tobytes() == want.tobytes()
    onnx.checker.check_model(made, full_check=True)
    f32 = simdnn.load(small_cnn()).run({"x": X}, machine="zen4").outputs["y"]
    mine = simdnn.load(made).run({"x": X}, machine="zen4")
    np.testing.assert_allclose(mine.outputs["y"], f32, atol=5e-3)
    np.testing.assert_allclose(peer.output(made, {"x": X}), f32, atol=5e-3)
    assert mine.outputs["y"].dtype == np.float32 and mine.cycles > 0
    onnx.save(made, tmp_path / "half.onnx")
    again = simdnn.load(tmp_path / "half.onnx").run({"x": X}, machine="zen4")
    assert again.outputs["y"].tobytes() == mine.outputs["y"].tobytes()


def test_the_source_model_is_untouched() -> None:
    source = small_cnn()
    before = source.SerializeToString()
    simdnn.transpile_float16(source)
    assert source.SerializeToString() == before


def test_bf16_and_a_mixed_model() -> None:
    wide = simdnn.load(small_cnn()).run({"x": X}, machine="zen4").outputs["y"]
    made = simdnn.transpile_float16(small_cnn(opset=22), dtype="bf16")
    assert set(kinds(made).values()) == {TensorProto.BFLOAT16}
    np.testing.assert_allclose(simdnn.load(made).run({"x": X}, machine="zen4").outputs["y"], wide, atol=5e-2)
    first = simdnn.transpile_float16(small_cnn(), only=["conv", "norm", "relu", "pool"])
    assert set(simdnn.float16_report(first).kept) == {"flat", "fc", "soft"}
    both = simdnn.transpile_float16(first, dtype="bf16", only=["fc"])
    assert kinds(both)["n_w_f16"] == TensorProto.FLOAT16 and kinds(both)["fc_bf16"] == TensorProto.BFLOAT16
    onnx.checker.check_model(both, full_check=True)
    np.testing.assert_allclose(simdnn.load(both).run({"x": X}, machine="zen4").outputs["y"], wide, atol=5e-2)


def test_an_old_opset_is_raised_for_bf16() -> None:
    """Convolutions have bf16 from opset 22 on, Softmax over an axis another meaning from 13 on."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        helper.make_node("Softmax", ["c"], ["s"], "soft", axis=1),
        helper.make_node("Neg", ["s"], ["y"], "last"),
    ]
    source = model(nodes, {"x": [2, 3, 5, 5]}, ["y"], {"w": X[:, :, :2, :2].copy()}, opset=11)
    made = simdnn.transpile_float16(source, dtype="bf16")
    assert made.opset_import[0].version == 22 and simdnn.float16_report(made).kept == {}
    assert set(kinds(made).values()) == {TensorProto.BFLOAT16}
    old = onnx.ModelProto()
    old.CopyFrom(source)
    old.ir_version = 3  # in which initializers were inputs, too, unless the writer left them out
    assert simdnn.transpile_float16(old, dtype="bf16").opset_import[0].version == 22
    feeds = {"x": X[:, :, :5, :5]}
    got = simdnn.load(made).run(feeds, machine="zen4").outputs["y"]
    np.testing.assert_allclose(got, peer.output(source, feeds), atol=1e-2)
    source.graph.node.add(op_type="Crop", name="old", input=["c"], output=["z"])  # nobody can raise that one
    stuck = simdnn.float16_report(simdnn.transpile_float16(source, dtype="bf16"))
    assert stuck.kept["conv"].startswith("opset 11 defines it without bf16, and it cannot be raised: ")


def test_normalization_behind_a_convolution_is_folded_first() -> None:
    """A factor in f32, so that f16 has one rounding of each weight, and no kernel apart."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["y"], "norm"),
    ]
    parts = {name: np.full(2, value, np.float32) for name, value in zip("sbmv", (3.0, 1.0, 0.5, 4.0), strict=True)}
    source = model(nodes, {"x": [2, 3, 5, 5]}, ["y"], {"w": X[:2, :, :2, :2].copy(), **parts})
    made = simdnn.transpile_float16(source)
    assert [node.op_type for node in made.graph.node] == ["Cast", "Conv", "Cast"]
    feeds = {"x": X[:, :, :5, :5]}
    got = simdnn.load(made).run(feeds, machine="a100").outputs["y"]
    np.testing.assert_allclose(got, peer.output(source, feeds), atol=1e-2)


def test_blocked_operators_stand_between_casts_with_a_reason() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "first"),
        helper.make_node("ReduceL2", ["a"], ["b"], "norm", axes=[1], keepdims=1),
        helper.make_node("Div", ["a", "b"], ["y"], "last"),
    ]
    made = simdnn.transpile_float16(model(nodes, {"x": [2, 8]}, ["y"]))
    assert [n.op_type for n in made.graph.node] == ["Cast", "Relu", "Cast", "ReduceL2", "Cast", "Div", "Cast"]
    report = simdnn.float16_report(made)
    assert report.kept == {"norm": "squares leave f16's range early"} and report.converted == ["first", "last"]
    free = simdnn.transpile_float16(model(nodes, {"x": [2, 8]}, ["y"]), keep=())
    assert ops(free)["Cast"] == 2
    named = simdnn.transpile_float16(
        model(nodes, {"x": [2, 8]}, ["y"]), keep={"last": "I say so", "ReduceL2": "too", "CastMap": ""}
    )
    assert simdnn.float16_report(named).kept == {"norm": "too", "last": "I say so"}


def test_overflow_is_counted_for_each_tensor_and_warned_of() -> None:
    w = np.array([1e5, -7e4, 65504, 65519.9, 65520, 1e-9, np.inf, 1], np.float32)
    source = model([helper.make_node("Mul", ["x", "w"], ["y"], "m")], {"x": [8]}, ["y"], {"w": w})
    with pytest.warns(RuntimeWarning, match=r"w \(3\)"):
        made = simdnn.transpile_float16(source)
    report = simdnn.float16_report(made)
    assert report.overflow == {"w": 3} and report.underflow == {"w": 1} and report.parameters == 1
    with pytest.raises(simdnn.InvalidArgument, match="no report"):
        simdnn.float16_report(source)


def test_overflow_of_activations_is_counted_on_calibration_data() -> None:
    w = np.array([[300, 1]], np.float32)
    nodes = [helper.make_node("Mul", ["x", "w"], ["a"], "m"), helper.make_node("Tanh", ["a"], ["y"], "t")]
    source = model(nodes, {"x": [3, 1]}, ["y"], {"w": w})
    feeds = [{"x": np.array([[1], [300], [-400]], np.float32)}]
    with pytest.warns(RuntimeWarning, match=r"1 tensors of the calibration data: a \(2\)"):
        made = simdnn.transpile_float16(source, calibration=feeds)
    assert simdnn.float16_report(made).activations == {"a": 2}
    assert simdnn.float16_report(simdnn.transpile_float16(source, dtype="bf16", calibration=feeds)).activations == {}


def test_what_decides_a_shape_stays_f32() -> None:
    """4900 is no number of f16."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], "shape"),
        helper.make_node("Cast", ["s"], ["f"], "float", to=1),
        helper.make_node("ReduceProd", ["f"], ["p"], "size", keepdims=1),
        helper.make_node("Cast", ["p"], ["i"], "integer", to=7),
        helper.make_node("Reshape", ["x", "i"], ["r"], "flat"),
        helper.make_node("Mul", ["r", "p"], ["y"], "times"),
    ]
    source = model(nodes, {"x": [70, 70]}, ["y"])
    made = simdnn.transpile_float16(source)
    report = simdnn.float16_report(made)
    assert report.kept == dict.fromkeys(["float", "size"], "it decides a shape") and "times" in report.converted
    x = np.random.default_rng(0).normal(size=(70, 70)).astype(np.float32)
    for got in (peer.output(made, {"x": x}), simdnn.load(made).run({"x": x}, machine="zen4").outputs["y"]):
        np.testing.assert_allclose(got, peer.output(source, {"x": x}), rtol=2e-3)


@pytest.mark.parametrize("attributes", [{}, {"value": numpy_helper.from_array(np.array([1.5], np.float32))}])
def test_a_type_that_is_only_a_default_is_converted(attributes: dict[str, Any]) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], "shape"),
        helper.make_node("ConstantOfShape", ["s"], ["k"], "fill", **attributes),
        helper.make_node("Add", ["x", "k"], ["y"], "add"),
    ]
    source = model(nodes, {"x": [3]}, ["y"])
    transpiled(source, np.array([1, 2, 3], np.float32))


def test_a_parameter_that_both_worlds_read_exists_in_both() -> None:
    nodes = [
        helper.make_node("Add", ["x", "w"], ["a"], "one"),
        helper.make_node("CumSum", ["w", "axis"], ["b"], "two"),
        helper.make_node("Add", ["a", "b"], ["y"], "three"),
    ]
    constants = {"w": np.ones(4, np.float32), "axis": np.array(0)}
    made = simdnn.transpile_float16(model(nodes, {"x": [4]}, ["y"], constants))
    assert kinds(made) == {"w": 1, "axis": 7, "w_f16": 10}
    np.testing.assert_array_equal(peer.output(made, {"x": np.zeros(4, np.float32)}), [2, 3, 4, 5])


def test_constants_casts_and_integers() -> None:
    nodes = [
        helper.make_node("Constant", [], ["c"], "const", value=numpy_helper.from_array(np.full(3, 1.5, np.float32))),
        helper.make_node("Constant", [], ["d"], "number", value_float=0.25),
        helper.make_node("Shape", ["x"], ["s"], "shape"),
        helper.make_node("Cast", ["s"], ["t"], "cast", to=1),
        helper.make_node("Mul", ["x", "c"], ["m"], "mul"),
        helper.make_node("Add", ["m", "t"], ["a"], "add"),
        helper.make_node("Mul", ["a", "d"], ["y"], "scale"),
    ]
    source = model(nodes, {"x": [3]}, ["y"])
    made = transpiled(source, np.array([1, 2, 3], np.float32))
    assert ops(made)["Cast"] == 3


def test_bodies_of_control_flow_and_outputs_read_inside_stay_f32() -> None:
    branch = [
        helper.make_graph(
            [helper.make_node(op, ["a", "k"], ["o"])], op, [], [helper.make_tensor_value_info("o", 1, [4])]
        )
        for op in ("Add", "Mul")
    ]
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "one"),
        helper.make_node("ReduceMax", ["a"], ["top"], "top", keepdims=0),
        helper.make_node("Greater", ["top", "zero"], ["flag"], "test"),
        helper.make_node("If", ["flag"], ["b"], "if", then_branch=branch[0], else_branch=branch[1]),
        helper.make_node("Neg", ["b"], ["y"], "last"),
    ]
    constants = {"k": np.full(4, 3, np.float32), "zero": np.array(0, np.float32)}
    source = model(nodes, {"x": [4]}, ["y", "a"], constants)
    x = np.array([1, -2, 3, 4], np.float32)
    made = transpiled(source, x)
    assert kinds(made)["k"] == 1
    r = simdnn.load(made).run({"x": x}, machine="zen4")
    np.testing.assert_array_equal(r.outputs["y"], [-4, -3, -6, -7])


def test_parts_that_are_f16_already_are_untouched() -> None:
    once = simdnn.transpile_float16(small_cnn())
    twice = simdnn.transpile_float16(once)
    assert [(n.op_type, list(n.input), list(n.output)) for n in once.graph.node] == [
        (n.op_type, list(n.input), list(n.output)) for n in twice.graph.node
    ]
    assert kinds(once) == kinds(twice)


def test_value_info_follows() -> None:
    source = onnx.shape_inference.infer_shapes(small_cnn())
    made = simdnn.transpile_float16(source)
    types = {v.name: v.type.tensor_type.elem_type for v in made.graph.value_info}
    assert types["n"] == types["r"] == TensorProto.FLOAT16 and "c" not in types  # which went into n


def test_every_conversion_to_f16_is_nearest_even() -> None:
    """All f16 values, all midpoints between neighbours, and the f32 values on both sides of each: the only places
    where rounding can change. NumPy, the instruction and the arithmetic of the definition agree.
    """
    half = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = np.sort(half[np.isfinite(half)].astype(np.float64))
    finite = np.concatenate([[-65536.0], finite, [65536.0]])
    middle = (finite[1:] + finite[:-1]) / 2
    points = np.concatenate([finite, middle]).astype(np.float32)
    near = np.concatenate([points, np.nextafter(points, np.float32(np.inf)), np.nextafter(points, np.float32(-np.inf))])
    got, _, _ = narrowed(near, "f16")
    # by definition: of the neighbours the nearer, at a tie the one with an even last bit
    table = np.unique(finite)
    place = np.clip(np.searchsorted(table, near.astype(np.float64), side="right") - 1, 0, len(table) - 2)
    low, high = table[place], table[place + 1]
    below, above = near - low, high - near
    with np.errstate(over="ignore"):
        even = (low.astype(np.float16).view(np.uint16) & 1) == 0
        want = np.where(below < above, low, np.where(below > above, high, np.where(even, low, high))).astype(np.float16)
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))
    by_instruction = instruction("vcvtps2ph")(near, imm=0)
    assert by_instruction.view(np.uint16).tobytes() == got.view(np.uint16).tobytes()


def test_bf16_is_nearest_even_too() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16).astype(np.float32)
    every = every[np.isfinite(every)]
    bits = every.view(np.uint32)
    for extra, up in ((0x7FFF, False), (0x8001, True)):
        got, _, _ = narrowed((bits + np.uint32(extra)).view(np.float32), "bf16")
        want = (bits + np.uint32(0x10000 if up else 0)).view(np.float32)
        np.testing.assert_array_equal(got.astype(np.float32), want)
    tie, _, _ = narrowed((bits + np.uint32(0x8000)).view(np.float32), "bf16")
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    np.testing.assert_array_equal(tie.astype(np.float32), (bits + odd * np.uint32(0x10000)).view(np.float32))


def test_a_file_tells_its_report(tmp_path: Path) -> None:
    path = tmp_path / "half.onnx"
    onnx.save(simdnn.transpile_float16(small_cnn()), path)
    assert simdnn.float16_report(path).converted
    onnx.save(small_cnn(), path)
    with pytest.raises(simdnn.InvalidArgument, match="transpile_float16 did not make it"):
        simdnn.float16_report(str(path))


@pytest.mark.parametrize("bad", [{"dtype": "f8"}, {"dtype": 3}])
def test_wrong_arguments(bad: Any) -> None:
    with pytest.raises(simdnn.InvalidArgument, match="dtype"):
        simdnn.transpile_float16(small_cnn(), **bad)


@pytest.mark.parametrize("name", ["resnet50", "shufflenet"])
def test_networks_of_the_onnx_package(name: str) -> None:
    """Networks whose activations stay in f16's range, as their weights are no real ones."""
    path = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"
    if not path.is_file():
        pytest.skip("this release of onnx ships no networks")
    made = simdnn.transpile_float16(path)
    x = {made.graph.input[0].name: np.random.default_rng(0).random((1, 3, 224, 224)).astype(np.float32)}
    half, full = peer.output(made, x), peer.output(onnx.load(path), x)
    np.testing.assert_allclose(half, full, rtol=2e-2, atol=1e-4)
    assert all(v.type.tensor_type.elem_type == 1 for v in (made.graph.input[0], *made.graph.output))


class Smooth(Builder):
    """Without steps, which would turn small errors into large ones."""

    def add_unary(self) -> None:
        self.put(str(self.rng.choice(["Relu", "Sigmoid", "Tanh", "Abs", "Neg", "HardSwish", "Erf", "Identity"])))


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs_stay_close(seed: int) -> None:
    """f16 in the runtime and here; bf16, which raises the opset, here."""
    drawn = draw(Smooth(1000 + seed), 7, opset=(13, 17)[seed % 2])
    source, feeds = drawn.model, drawn.feeds
    want = peer.output(source, feeds)
    size = float(np.linalg.norm(want)) or 1.0
    for dtype, error in (("f16", 0.02), ("bf16", 0.15)):
        made = simdnn.transpile_float16(source, dtype=dtype)
        if dtype == "f16":
            assert np.linalg.norm(peer.output(made, feeds) - want) <= error * size
        if seed % 4 == 0:
            got = simdnn.load(made).run(feeds, machine="zen4", dispatch="onednn").outputs[drawn.output]
            assert got.dtype == np.float32 and np.linalg.norm(got - want) <= error * size


def test_types_are_inferred_without_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inference writes a model out and reads it back: of a large one that took most of a recipe's time."""
    model, met = onnx_model(workloads.NETWORKS["digits"]()), []
    whole = onnx.shape_inference.infer_shapes(model).graph
    assert {
        v.SerializeToString() for v in onnx.shape_inference.infer_shapes(without_weights(model)).graph.value_info
    } == {v.SerializeToString() for v in whole.value_info}
    was = onnx.shape_inference.infer_shapes
    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", lambda m: (met.append(m.ByteSize()), was(m))[1])
    transpile_float16(model, dtype="bf16")
    assert met and max(met) < model.ByteSize() / 4
