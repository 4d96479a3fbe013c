"""Broken and hostile models: one typed line each, before anything is allocated, and nothing written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from simdnn import InvalidArgument, SimdnnError, Unimplemented

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from simdnn.networks.opset import shapes_of  # noqa: E402
from tests.networks.models import model, small_cnn  # noqa: E402

AXES = "abcdefghijklmnopqrst"
WHOLE = small_cnn().SerializeToString()


def refused(source: Any, message: str, kind: type[SimdnnError] = InvalidArgument) -> None:
    with pytest.raises(kind, match=message) as caught:
        simdnn.load(source).run({}, machine="zen4")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_no_model(tmp_path: Path) -> None:
    refused(tmp_path / "none.onnx", "no model file")
    refused(tmp_path / "none.pt", "no model file .*: torch.onnx.export makes an ONNX file of such a model")
    (tmp_path / "there.tflite").write_bytes(b"\x1c\0\0\0TFL3" * 9)
    refused(tmp_path / "there.tflite", "is no ONNX model.*: tf2onnx makes an ONNX file of such a model")
    refused(tmp_path / "none.gguf", "no model file .*: workloads.gguf reads its tensors for simdnn.ggml_blocks")
    refused(tmp_path, "no model file .*: it is a folder; the path of a file is needed")
    (tmp_path / "resnet_17.onnx").touch()
    refused(tmp_path / "resnet-17.onnx", "no model file .*did you mean '.*resnet_17.onnx'")
    refused(3, "model of type int")
    (tmp_path / "text.onnx").write_text("hello, this is no protobuf at all")
    refused(tmp_path / "text.onnx", "no ONNX model|has no graph")
    (tmp_path / "empty.onnx").write_bytes(b"")
    refused(tmp_path / "empty.onnx", "has no graph")
    (tmp_path / "cut.onnx").write_bytes(WHOLE[: len(WHOLE) // 2])
    refused(tmp_path / "cut.onnx", "truncated|holds")


@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255))
def test_a_changed_byte_is_a_typed_error_or_another_model(at: int, value: int) -> None:
    data = bytearray(WHOLE)
    data[at] = value
    made = onnx.ModelProto()
    try:
        made.ParseFromString(bytes(data))
        simdnn.load(made).estimate({"x": (1, 3, 12, 12)}, machine="zen4")
    except SimdnnError as error:
        assert "\n" not in str(error)
    except Exception as error:
        assert "DecodeError" in type(error).__name__ or isinstance(error, UnicodeDecodeError)


def external(tmp_path: Path, location: str, **more: str) -> Path:
    """A model in a folder of its own whose weights lie elsewhere."""
    made = model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [4]}, ["y"], {"w": np.arange(4, dtype=np.float32)})
    tensor = made.graph.initializer[0]
    raw = tensor.raw_data
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, text in ({"location": location} | more).items():
        tensor.external_data.add(key=key, value=text)
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "weights.bin").write_bytes(b"\0" * 8 + raw)
    (tmp_path / "secret.bin").write_bytes(raw)
    (folder / "model.onnx").write_bytes(made.SerializeToString())
    return folder / "model.onnx"


def test_external_data_is_read_inside_the_folder(tmp_path: Path) -> None:
    net = simdnn.load(external(tmp_path, "weights.bin", offset="8", length="16"))
    y = net.run({"x": np.ones(4, np.float32)}, machine="zen4").outputs["y"]
    np.testing.assert_array_equal(y, [1, 2, 3, 4])


def test_models_made_of_one_with_external_data_hold_it_themselves(tmp_path: Path) -> None:
    path = external(tmp_path, "weights.bin", offset="8", length="16")
    for made in (simdnn.transpile_float16(path), simdnn.quantize_onnx(path, scheme="dynamic")):
        y = simdnn.load(made).run({"x": np.ones(4, np.float32)}, machine="zen4").outputs["y"]
        np.testing.assert_array_equal(y, [1, 2, 3, 4])


@pytest.mark.parametrize(
    "location", ["../secret.bin", "/etc/passwd", "sub/../../secret.bin", "", ".", "none.bin", "link", "\0"]
)
def test_external_data_elsewhere_is_refused(tmp_path: Path, location: str) -> None:
    path = external(tmp_path, location)
    (path.parent / "link").symlink_to(tmp_path / "secret.bin")
    refused(path, "only files inside the model's folder")


def test_a_model_without_its_file_of_weights(tmp_path: Path) -> None:
    """It was copied or downloaded alone, which is another thing than data outside of its folder."""
    refused(external(tmp_path, "model.onnx.data"), "lies in 'model.onnx.data', which is not there: keep .*together")


@pytest.mark.parametrize(
    "more", [{"offset": "-8"}, {"offset": "9999"}, {"length": "8"}, {"length": "99999999999"}, {"offset": "x"}]
)
def test_external_data_of_the_wrong_size_is_refused(tmp_path: Path, more: dict[str, str]) -> None:
    refused(external(tmp_path, "weights.bin", **more), "external data")


def test_external_data_of_a_model_in_memory_is_refused(tmp_path: Path) -> None:
    refused(onnx.load(external(tmp_path, "weights.bin"), load_external_data=False), "has no folder")


def edited(change: Any) -> Any:
    made = model(
        [helper.make_node("Relu", ["x"], ["a"], "one"), helper.make_node("Add", ["a", "w"], ["y"], "two")],
        {"x": [4]},
        ["y"],
        {"w": np.ones(4, np.float32)},
    )
    change(made)
    return made


def _cycle(m: Any) -> None:
    m.graph.node[0].input[0] = "y"


def _dangling(m: Any) -> None:
    m.graph.node[1].input[0] = "nowhere"


def _twice(m: Any) -> None:
    m.graph.node[1].output[0] = "a"


def _huge(m: Any) -> None:
    m.graph.initializer[0].dims[:] = [1 << 40, 1 << 40]


def _negative(m: Any) -> None:
    m.graph.initializer[0].dims[:] = [-4]


def _short(m: Any) -> None:
    m.graph.initializer[0].dims[:] = [400_000_000]


def _opset(m: Any) -> None:
    m.opset_import[0].version = 9999


def _type(m: Any) -> None:
    m.graph.initializer[0].data_type = 99


def _output(m: Any) -> None:
    m.graph.output[0].name = "nothing"


def _domain(m: Any) -> None:
    m.graph.node[0].domain = "my.own"


def _no_opset(m: Any) -> None:
    m.ClearField("opset_import")


def _input(m: Any) -> None:
    m.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1 << 50


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_cycle, "cycle"),
        (_dangling, "node 'two'.*'nowhere'"),
        (_twice, "exists already"),
        (_huge, "at most"),
        (_negative, "at most"),
        (_short, "holds 16 bytes"),
        (_opset, "opset 9999"),
        (_type, "element type 99"),
        (_output, "comes from nowhere"),
        (_domain, "operator set 'my.own'"),
        (_no_opset, "no operator set"),
        (_input, "at most"),
    ],
)
def test_broken_graphs(change: Any, message: str) -> None:
    refused(edited(change), message)


def test_nodes_in_another_order_still_run() -> None:
    made = edited(lambda m: m.graph.node.reverse())
    assert simdnn.load(made).run({"x": np.ones(4, np.float32)}, machine="zen4").outputs["y"].tolist() == [2] * 4


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        ([helper.make_node("ConstantOfShape", ["n"], ["y"])], {"n": np.array([1 << 20, 1 << 20])}),
        ([helper.make_node("Expand", ["x", "n"], ["y"])], {"n": np.array([1 << 20, 1 << 20, 4])}),
        ([helper.make_node("Tile", ["x", "n"], ["y"])], {"n": np.array([1 << 40])}),
        ([helper.make_node("Pad", ["x", "n"], ["y"])], {"n": np.array([1 << 40, 0])}),
        ([helper.make_node("Resize", ["x", "", "s"], ["y"])], {"s": np.array([1e12], np.float32)}),
        (
            [helper.make_node("Range", ["a", "n", "d"], ["y"])],
            {"a": np.array(0), "n": np.array(1 << 50), "d": np.array(1)},
        ),
        (
            [
                helper.make_node("Unsqueeze", ["x", "one"], ["a"]),
                helper.make_node("Expand", ["x", "n"], ["b"]),
                helper.make_node("Add", ["a", "b"], ["y"]),
            ],
            {"one": np.array([1]), "n": np.array([1 << 50])},
        ),
        (
            [
                helper.make_node("Concat", ["x"] * 4096, ["a"], axis=0),
                helper.make_node("Concat", ["a"] * 4096, ["b"], axis=0),
                helper.make_node("Concat", ["b"] * 4096, ["y"], axis=0),
            ],
            {},
        ),
        ([helper.make_node("Einsum", ["x"] * 20, ["y"], equation=f"{','.join(AXES)}->{AXES}")], {}),
    ],
)
def test_absurd_sizes_are_refused_before_allocation(nodes: Any, constants: Any) -> None:
    made = model(nodes, {"x": [4]}, ["y"], constants)
    made.graph.output[0].type.tensor_type.ClearField("shape")  # stated there it is refused as the model is loaded
    with pytest.raises(InvalidArgument, match="bytes|shape"):
        simdnn.load(made).run({"x": np.ones(4, np.float32)}, machine="zen4")


def test_what_is_still_read_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each output would fit; together they do not."""
    from simdnn.networks import between_products

    monkeypatch.setattr(between_products, "memory_bytes", lambda: 9 << 20)
    nodes = [helper.make_node("Expand", ["x", "n"], [f"a{i}"], f"fill{i}") for i in range(5)]
    sums = [helper.make_node("Sum", [f"a{i}" for i in range(5)], ["y"], "sum")]
    constants = {"n": np.array([1 << 16, 4])}
    net = simdnn.load(model([*nodes, *sums], {"x": [4]}, ["y"], constants))
    with pytest.raises(InvalidArgument, match="node 'fill4'.*bytes"):
        net.run({"x": np.ones(4, np.float32)}, machine="zen4")
    one = simdnn.load(model([nodes[0], helper.make_node("Neg", ["a0"], ["y"])], {"x": [4]}, ["y"], constants))
    assert one.run({"x": np.ones(4, np.float32)}, machine="zen4").outputs["y"].shape == (1 << 16, 4)


def test_attributes_of_the_wrong_kind_name_the_node() -> None:
    nodes = [helper.make_node("Softmax", ["x"], ["y"], "soft", axis="first")]
    with pytest.raises(InvalidArgument, match="node 'soft' has attribute axis='first'; int is needed"):
        simdnn.load(model(nodes, {"x": [4]}, ["y"]))
    nodes = [helper.make_node("ReduceMean", ["x"], ["y"], "mean", axes=[0])]
    with pytest.raises(InvalidArgument, match="node 'mean' has attribute 'axes', which ReduceMean has not in operator"):
        simdnn.load(model(nodes, {"x": [4]}, ["y"], opset=18))
    nodes = [helper.make_node("Concat", ["x"], ["y"], "whole")]
    with pytest.raises(InvalidArgument, match="node 'whole' leaves out attribute 'axis', which Concat needs"):
        simdnn.load(model(nodes, {"x": [4]}, ["y"]))


def test_sizes_are_known_of_nodes_out_of_order_and_beside_types_that_are_wrong() -> None:
    """Converters to f16 write casts at the end of a list of nodes, and leave types of values as they were."""
    nodes = [helper.make_node("Relu", ["t"], ["y"]), helper.make_node("Abs", ["x"], ["t"])]
    made = model(nodes, {"x": [4]}, ["y"])
    made.graph.value_info.append(helper.make_tensor_value_info("t", onnx.TensorProto.FLOAT16, [4]))
    assert shapes_of(made)["t"] == (4,)


def test_a_huge_count_of_outputs_is_refused_at_once() -> None:
    nodes = [helper.make_node("Split", ["x"], ["y", "z"], "cut", num_outputs=2)]
    made = model(nodes, {"x": [4]}, ["y"], opset=18)
    made.graph.node[0].attribute[0].i = 1 << 40
    with pytest.raises(InvalidArgument, match="node 'cut'.*num_outputs"):
        simdnn.load(made).run({"x": np.ones(4, np.float32)}, machine="zen4")


@pytest.mark.parametrize("op", ["Conv", "MatMul", "Gemm", "BatchNormalization", "Softmax", "LSTM", "QLinearConv"])
@pytest.mark.parametrize("count", [0, 1, 9])
def test_a_wrong_number_of_inputs_names_the_node(op: str, count: int) -> None:
    made = helper.make_model(
        helper.make_graph(
            [helper.make_node(op, ["x"] * count, ["y"], "bad")],
            "g",
            [helper.make_tensor_value_info("x", 1, [4])],
            [helper.make_tensor_value_info("y", 1, None)],
        )
    )
    if (op, count) != ("Softmax", 1):
        with pytest.raises(InvalidArgument, match="node 'bad'") as caught:
            simdnn.load(made).run({"x": np.ones(4, np.float32)}, machine="zen4")
        assert "\n" not in str(caught.value)


def test_domains_that_onnxruntime_adds_need_no_import() -> None:
    made = model([helper.make_node("Relu", ["x"], ["y"])], {"x": [4]}, ["y"])
    scaler = helper.make_node("Scaler", ["h"], ["y"], domain="ai.onnx.ml", offset=[1.0], scale=[2.0])
    del made.graph.node[:]
    made.graph.node.extend([helper.make_node("FastGelu", ["x"], ["h"], domain="com.microsoft"), scaler])
    found = simdnn.load(made).run({"x": np.ones(4, np.float32)}, machine="zen4").outputs["y"]
    assert found == pytest.approx((0.8412 - 1) * 2, abs=2e-3)
    made.graph.node[0].domain = "org.other"
    refused(made, "imports no operator set 'org.other'")


@pytest.mark.parametrize(
    ("op", "reads", "message"),
    [
        ("Identity", [], "has 0 inputs; Identity takes 1"),
        ("Clip", ["x"] * 4, "has 4 inputs; Clip takes 1 to 3"),
        ("Sum", [], "has 0 inputs; Sum takes 1 or more"),
        ("Mul", ["x", ""], "leaves out input 'B', which Mul needs"),
    ],
)
def test_inputs_are_those_that_the_operator_takes(op: str, reads: list[str], message: str) -> None:
    """As ONNX's schema has them, before anything looks at them."""
    made = model([helper.make_node("Relu", ["x"], ["y"], "bad")], {"x": [4]}, ["y"])
    made.graph.node[0].op_type = op
    made.graph.node[0].input[:] = reads
    with pytest.raises(InvalidArgument, match=f"node 'bad' {message}"):
        simdnn.load(made)


def test_sparse_initializers_are_refused() -> None:
    made = edited(lambda m: None)
    values = numpy_helper.from_array(np.ones(1, np.float32), "s")
    made.graph.sparse_initializer.append(
        helper.make_sparse_tensor(values, numpy_helper.from_array(np.zeros(1, np.int64), "i"), [4])
    )
    refused(made, "sparse initializers are not read, of s;", Unimplemented)


def test_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(WHOLE)
    before = sorted(p.name for p in tmp_path.iterdir())
    simdnn.load(tmp_path / "m.onnx").estimate({"x": (1, 3, 12, 12)}, machine="zen4")
    assert sorted(p.name for p in tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("last", "message"),
    [
        (("SequenceAt", ["s", "far"]), "position 7 in a sequence of 2"),
        (("SequenceErase", ["s", "far"]), "position 7"),
        (("SequenceAt", ["x", "far"]), "no sequence"),
        (("Relu", ["s"]), "an input is a sequence; a tensor is needed"),
        (("SplitToSequence", ["x", "none"]), "parts of 0"),
    ],
)
def test_sequences_that_do_not_fit(last: tuple[str, list[str]], message: str) -> None:
    nodes = [helper.make_node("SequenceConstruct", ["x", "x"], ["s"], "pair"), helper.make_node(*last, ["y"], "last")]
    ports = [helper.make_tensor_value_info("x", 1, [4])], [onnx.ValueInfoProto(name="y")]
    constants = [numpy_helper.from_array(np.array(n), name) for name, n in (("far", 7), ("none", 0))]
    made = helper.make_model(helper.make_graph(nodes, "g", *ports, constants), ir_version=9)
    with pytest.raises(InvalidArgument, match=f"node 'last'.*{message}"):
        simdnn.load(made).run({"x": np.ones(4, np.float32)}, machine="zen4")


def _loop(trips: int, condition: str) -> Any:
    """A loop that counts; `condition`: what its body hands on."""
    integer, truth = TensorProto.INT64, TensorProto.BOOL
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["still"]),
            helper.make_node("Greater", ["limit", "turn"], ["below"]),
            helper.make_node("Add", ["total", "total"], ["next"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", integer, []),
            helper.make_tensor_value_info("going", truth, []),
            helper.make_tensor_value_info("total", TensorProto.FLOAT, [1]),
        ],
        [
            helper.make_tensor_value_info(condition, truth, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, [1]),
        ],
        [numpy_helper.from_array(np.array(3, np.int64), "limit")],
    )
    constants = {"trips": np.array(trips, np.int64), "yes": np.array(True)}
    node = helper.make_node("Loop", ["trips", "yes", "x"], ["y"], "turns", body=body)
    return model([node], {"x": [1]}, ["y"], constants)


def test_a_loop_that_nobody_would_wait_for() -> None:
    feed = {"x": np.ones(1, np.float32)}
    with pytest.raises(InvalidArgument, match=f"node 'turns'.*Loop of {1 << 60} turns.*at most"):
        simdnn.load(_loop(1 << 60, "still")).run(feed, machine="zen4")
    ended = simdnn.load(_loop(1 << 60, "below")).run(feed, machine="zen4")
    assert ended.outputs["y"].tolist() == [2.0**4]


def test_windows_that_nobody_would_wait_for() -> None:
    nodes = [helper.make_node("MaxPool", ["x"], ["y"], "pool", kernel_shape=[2048, 2048])]
    net = simdnn.load(model(nodes, {"x": [1, 1, 4096, 4096]}, ["y"]))
    feed = {"x": np.broadcast_to(np.float32(1), (1, 1, 4096, 4096))}
    with pytest.raises(InvalidArgument, match="node 'pool'.*windows of 4194304 elements.*at most"):
        net.run(feed, machine="zen4")
