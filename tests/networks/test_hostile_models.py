"""Models that would grow without end when they are loaded, and large ones that must load in linear time."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simdnn
from simdnn import InvalidArgument
from tests.work import at_most

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

OPSETS = [helper.make_opsetid("", 21), helper.make_opsetid("f", 1)]


def model(nodes: list[Any], constants: list[Any] = [], functions: list[Any] = []) -> Any:  # noqa: B006
    x, y = helper.make_tensor_value_info("x", 1, [4]), helper.make_tensor_value_info("y", 1, None)
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    return helper.make_model(graph, functions=functions, opset_imports=OPSETS)


def function(name: str, called: list[str], domain: str = "f") -> Any:
    """A function that calls others (or plain operators), one after the other."""
    last = len(called) - 1
    nodes = [
        helper.make_node(
            op,
            ["a" if i == 0 else f"t{i}"],
            ["b" if i == last else f"t{i + 1}"],
            domain="f" if op.startswith("f") else "",
        )
        for i, op in enumerate(called)
    ]
    return helper.make_function(domain, name, ["a"], ["b"], nodes, OPSETS)


def calling(name: str, functions: list[Any]) -> Any:
    return model([helper.make_node(name, ["x"], ["y"], domain="f")], functions=functions)


def towers(height: int, calls: int) -> Any:
    own = [function("f0", ["Relu"]), *(function(f"f{i}", [f"f{i - 1}"] * calls) for i in range(1, height + 1))]
    return calling(f"f{height}", own)


def large_constant() -> Any:
    made = towers(12, 2)
    values = numpy_helper.from_array(np.zeros(1 << 18, np.float32))
    made.functions[0].node.insert(0, helper.make_node("Constant", [], ["k"], value=values))
    return made


def nested(depth: int) -> Any:
    inner = [helper.make_node("Identity", ["x"], ["o"])]
    for _ in range(depth):
        graph = helper.make_graph(inner, "g", [], [helper.make_tensor_value_info("o", 1, None)])
        plain = helper.make_graph([helper.make_node("Identity", ["x"], ["o"])], "e", [], [graph.output[0]])
        inner = [helper.make_node("If", ["c"], ["o"], then_branch=graph, else_branch=plain)]
    inner[0].output[0] = "y"
    return model(inner, [numpy_helper.from_array(np.array(True), "c")])


def chain(length: int) -> Any:
    names = ["x", *(f"t{i}" for i in range(1, length)), "y"]
    return model([helper.make_node("Relu", [a], [b]) for a, b in zip(names, names[1:], strict=False)])


def branches(count: int) -> Any:
    nodes = []
    for i in range(count):
        relus = [(helper.make_node("Relu", ["x"], [name]), name) for name in (f"then{i}", f"else{i}")]
        bodies = [
            helper.make_graph([node], "g", [], [helper.make_tensor_value_info(name, 1, None)]) for node, name in relus
        ]
        name = "y" if i == count - 1 else f"z{i}"
        nodes.append(helper.make_node("If", ["c"], [name], then_branch=bodies[0], else_branch=bodies[1]))
    return model(nodes, [numpy_helper.from_array(np.array(True), "c")])


def empty_and_huge() -> Any:
    tensor = TensorProto(name="w", data_type=1, dims=[1 << 62, 1 << 62, 0])
    return model([helper.make_node("Identity", ["w"], ["y"])], [tensor])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: towers(26, 2), "a model of 67108864 nodes"),
        (lambda: towers(60, 30), "a model of about 2"),
        (lambda: towers(300, 1), "more than 64 deep"),
        (lambda: towers(5000, 1), "more than 64 deep"),
        (lambda: calling("f0", [function("f0", ["f0"])]), "function 'f0'.*calls itself"),
        (lambda: calling("f0", [function("f0", ["f1", "f1"]), function("f1", ["Relu", "f0"])]), "calls itself"),
        (large_constant, "bytes where they are expanded"),
        (lambda: nested(20), "nested more than 16 deep"),
        (empty_and_huge, "at most"),
    ],
)
def test_what_would_grow_without_end_is_refused(make: Any, said: str) -> None:
    made = make()
    with at_most(calls=100_000), pytest.raises(InvalidArgument, match=said):
        simdnn.load(made)


def test_functions_and_bodies_within_bounds_load() -> None:
    x = {"x": np.array([-1, 0, 1, 2], np.float32)}
    for made in (towers(10, 2), towers(50, 1), nested(12)):
        assert simdnn.load(made).run(x, machine="zen4").outputs["y"][3] == 2


@pytest.mark.parametrize("make", [chain, branches])
def test_loading_takes_work_in_proportion(make: Any) -> None:
    done = []
    for nodes in (50, 100, 800):  # once for what is imported and cached
        made = make(nodes)
        with at_most() as work:
            simdnn.load(made)
        done.append(work.calls)
    assert done[2] < 8.1 * done[1]


def test_external_data_that_is_read_many_times_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load, tensors = (sys.modules[f"simdnn.networks.{name}"] for name in ("load", "tensors"))

    with (tmp_path / "zeros.bin").open("wb") as file:
        os.truncate(file.fileno(), 1 << 40)  # a file of holes takes no disk

    def outside(name: str, count: int) -> Any:
        tensor = TensorProto(name=name, data_type=1, dims=[count], data_location="EXTERNAL")
        tensor.external_data.add(key="location", value="zeros.bin")
        return tensor

    path = tmp_path / "m.onnx"
    path.write_bytes(model([helper.make_node("Identity", ["w"], ["y"])], [outside("w", 1 << 32)]).SerializeToString())
    monkeypatch.setattr(tensors, "memory_bytes", lambda: 1 << 34)
    with pytest.raises(InvalidArgument, match="'w' takes 1.72e.10 bytes"):
        simdnn.load(path)
    many = [outside(f"w{i}", 1 << 16) for i in range(100)]
    path.write_bytes(model([helper.make_node("Identity", ["w0"], ["y"])], many).SerializeToString())
    monkeypatch.setattr(load, "memory_bytes", lambda: 1 << 22)
    with pytest.raises(InvalidArgument, match="tensors take .* bytes, up to 'w8'"):
        simdnn.load(path)


def test_a_file_that_protobuf_would_refuse_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    with path.open("wb") as file:
        os.truncate(file.fileno(), 1 << 31)  # a file of holes takes no disk
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("it was read"))
    with pytest.raises(InvalidArgument, match="no ONNX file has 2 GiB"):
        simdnn.load(path)


def in_a_tensor(made: Any) -> Any:
    return made.graph.initializer.add(name="w", data_type=1, dims=[1], data_location="EXTERNAL").external_data.add(
        key="location", value="TEXT"
    )


@pytest.mark.parametrize(
    "put",
    [
        in_a_tensor,
        lambda made: made.graph.input[0].type.tensor_type.shape.dim.add(dim_param="TEXT"),
        lambda made: made.graph.node.add(op_type="TEXT"),
    ],
)
def test_what_is_no_text_is_told(put: Any, tmp_path: Path) -> None:
    made = model([helper.make_node("Relu", ["x"], ["y"])])
    put(made)
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString().replace(b"TEXT", b"\xff\xfe\xfd\xfc"))
    with pytest.raises(InvalidArgument, match="no UTF-8 text"):
        simdnn.load(path)


def test_an_operator_with_a_domain_is_named_whole() -> None:
    made = model([helper.make_node("CastMap", ["x"], ["y"], "s", domain="ai.onnx.ml")])
    made.opset_import.add(domain="ai.onnx.ml", version=3)
    with pytest.raises(simdnn.Unimplemented, match=r"no operator 'ai.onnx.ml::CastMap' here(: did you mean '|\.)"):
        simdnn.load(made).run({"x": np.ones(4, np.float32)}, machine="zen4")


def test_loops_within_loops_share_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    from simdnn.networks.ops import control

    monkeypatch.setattr(control, "_MOST_TURNS", 50)
    port = helper.make_tensor_value_info

    def body(nodes: list[Any]) -> Any:
        inputs = [port("i", TensorProto.INT64, []), port("go", TensorProto.BOOL, []), port("v", 1, [4])]
        outputs = [port("on", TensorProto.BOOL, []), port("w", 1, [4])]
        return helper.make_graph([*nodes, helper.make_node("Identity", ["go"], ["on"])], "body", inputs, outputs)

    inner = body([helper.make_node("Relu", ["v"], ["w"])])
    outer = body([helper.make_node("Loop", ["n", "yes", "v"], ["w"], body=inner)])
    constants = [numpy_helper.from_array(np.array(10), "n"), numpy_helper.from_array(np.array(True), "yes")]
    net = simdnn.load(model([helper.make_node("Loop", ["n", "yes", "x"], ["y"], "outer", body=outer)], constants))
    with pytest.raises(InvalidArgument, match="has not ended after 50 turns"):
        net.run({"x": np.ones(4, np.float32)}, machine="zen4")
