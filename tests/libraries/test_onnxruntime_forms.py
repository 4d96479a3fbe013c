"""Forms of onnxruntime's operators that stand apart: attention with a window beside a cap, or with more keys than
steps; layers of quantized weights whose rows end at different steps; weights of few bits beside f16; products whose
source lies the other way round; linear layers as PyTorch's quantizers write them; quantizers that are moved; filters
that vary; sums onto convolutions; pools whose channels the model leaves open. Its bits as recorded
(tests/vectors/onnxruntime/forms.npz).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simdnn
from simdnn import InvalidArgument, SimdnnError, Unimplemented
from tests.effort import one_in

onnx = pytest.importorskip("onnx")
STORED = np.load(Path(__file__).parents[1] / "vectors" / "onnxruntime" / "forms.npz")
NAMES = sorted({key.split("/")[0] for key in STORED})


@one_in(12)
@pytest.mark.parametrize("name", NAMES)
def test_recorded_forms_have_its_bits(name: str) -> None:
    feeds = {key.split("/")[2]: STORED[key] for key in STORED if key.startswith(f"{name}/feeds/")}
    wanted = {key.split("/", 2)[2]: STORED[key] for key in STORED if key.startswith(f"{name}/avx2/")}
    net = simdnn.load(onnx.load_from_string(STORED[f"{name}/model"].tobytes()))
    found = net.run(feeds, machine="hsw", dispatch="onnxruntime").outputs
    assert {key: (value.dtype, value.tobytes()) for key, value in found.items()} == {
        key: (value.dtype, value.tobytes()) for key, value in wanted.items()
    }


def run(op: str, inputs: dict[str, Any], outputs: int = 1, **attributes: Any) -> Any:
    """One of onnxruntime's own operators; numbers are constants, arrays are fed."""
    helper = onnx.helper
    fed = {name: value for name, value in inputs.items() if name[0] not in "-_"}
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in fed.items()
    ]
    held = [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in inputs.items() if name[0] == "_"]
    names = ["" if name[0] == "-" else name for name in inputs]
    made = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, made, domain="com.microsoft", **attributes)
    graph = helper.make_graph([node], "g", ports, [onnx.ValueInfoProto(name=name) for name in made], held)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return simdnn.load(model).run(fed, machine="hsw", dispatch="onnxruntime")


def zeros(*shape: int, dtype: Any = np.float32) -> Any:
    return np.zeros(shape, dtype)


def nbits(width: int, **more: Any) -> dict[str, Any]:
    held = {"_b": zeros(3, 2, 16 * width // 8, dtype=np.uint8), "_s": zeros(6)}
    return {"a": zeros(2, 32), **held, **({"-": None} if "_z" not in more else {}), **more}


GROUPS = {"_g": np.repeat([1, 0], 16).astype(np.int32)}
STEPS = {"q": zeros(2, 3, 32), "k": zeros(2, 3, 16), "v": zeros(2, 3, 16), "pk": zeros(2, 1, 4, 16)}
BEHIND = {**STEPS, "pv": zeros(2, 1, 4, 16), "s": np.full(2, 6, np.int32), "_t": np.array(7, np.int32)}


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "says"),
    [
        (
            "MatMulNBits",
            nbits(2, **GROUPS),
            {"K": 32, "N": 3, "bits": 2, "block_size": 16},
            "reads the codes as 4 bits",
        ),
        (
            "MatMulNBits",
            nbits(4, _z=zeros(3, dtype=np.uint8), **GROUPS),
            {"K": 32, "N": 3, "bits": 4, "block_size": 16},
            "leaves zero points of integers out",
        ),
        (
            "Attention",
            {
                "x": zeros(1, 2, 4),
                "_w": zeros(4, 12),
                "-": None,
                "-m": None,
                "p": zeros(2, 1, 1, 3, 4),
                "a": zeros(1, 1, 2, 5),
            },
            {"num_heads": 1},
            "beside a past",
        ),
        (
            "MultiHeadAttention",
            {"q": zeros(1, 2, 8), "k": zeros(1, 2, 3, 4), "v": zeros(1, 2, 3, 5)},
            {"num_heads": 2},
            "alike",
        ),
        ("GroupQueryAttention", BEHIND, {"num_heads": 2, "kv_num_heads": 1}, "one step, or one image"),
        ("MoE", {"x": zeros(2, 4)}, {}, "TopK"),
    ],
)
def test_what_it_refuses_or_gets_wrong(op: str, inputs: dict[str, Any], attributes: dict[str, Any], says: str) -> None:
    with pytest.raises(SimdnnError, match=says) as caught:
        run(op, inputs, **attributes)
    assert isinstance(caught.value, (Unimplemented, InvalidArgument))


def test_models_that_it_does_not_load() -> None:
    """A quantizer of s8 that it moves, from opset 21 on; padding by SAME beside dilations."""
    helper, from_array = onnx.helper, onnx.numpy_helper.from_array
    held = {"s": np.float32(0.5), "z": np.int8(3), "w": zeros(1, 1, 3, 3)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Transpose", ["d"], ["t"], "turned"),
        helper.make_node("Sigmoid", ["t"], ["y"]),
    ]
    padded = [helper.make_node("Conv", ["x", "w"], ["y"], auto_pad="SAME_UPPER", dilations=[2, 2])]
    for opset, made, says in ((21, nodes, "opset 21 and above"), (20, nodes, ""), (20, padded, "beside dilations")):
        ports = [helper.make_tensor_value_info("x", 1, (1, 1, 3, 3))]
        tensors = [from_array(np.asarray(values), name) for name, values in held.items()]
        graph = helper.make_graph(made, "g", ports, [onnx.ValueInfoProto(name="y")], tensors)
        net = simdnn.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10))
        if says:
            with pytest.raises(Unimplemented, match=says):
                net.run({"x": zeros(1, 1, 3, 3)}, machine="hsw", dispatch="onnxruntime")
        else:
            assert (
                net.run({"x": zeros(1, 1, 3, 3)}, machine="hsw", dispatch="onnxruntime").outputs["y"][0, 0, 0, 0] == 0.5
            )


@pytest.mark.parametrize("perm", [[0, 1], [1, 0]])
def test_a_product_is_turned_where_a_transpose_behind_it_turns(perm: list[int]) -> None:
    helper, weights = onnx.helper, np.arange(4, dtype=np.float32).reshape(2, 2)
    nodes = [helper.make_node("Gemm", ["x", "w"], ["g"]), helper.make_node("Transpose", ["g"], ["y"], perm=perm)]
    ports = [helper.make_tensor_value_info("x", 1, (2, 2))]
    tensors = [onnx.numpy_helper.from_array(weights, "w")]
    graph = helper.make_graph(nodes, "g", ports, [onnx.ValueInfoProto(name="y")], tensors)
    net = simdnn.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10))
    found = net.run({"x": np.eye(2, dtype=np.float32)}, machine="hsw", dispatch="onnxruntime").outputs["y"]
    assert found.tolist() == weights.transpose(perm).tolist()


def test_the_last_of_three_pairs_moves_before_they_are_one() -> None:
    """As onnxruntime 1.32.0 has it: its own numbers stand behind the Transpose, those of all three ahead of it."""
    helper, from_array = onnx.helper, onnx.numpy_helper.from_array
    pairs, nodes, behind = [(0.04, 1), (0.02, 1), (0.04, 0)], [], "x"
    for i in range(len(pairs)):
        nodes.append(helper.make_node("QuantizeLinear", [behind, f"s{i}", f"z{i}"], [f"q{i}"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"q{i}", f"s{i}", f"z{i}"], [behind := f"d{i}"]))
    nodes += [helper.make_node("Transpose", [behind], ["t"]), helper.make_node("Neg", ["t"], ["y"])]
    tensors = [from_array(np.array(scale, np.float32), f"s{i}") for i, (scale, _) in enumerate(pairs)]
    tensors += [from_array(np.array(zero, np.uint8), f"z{i}") for i, (_, zero) in enumerate(pairs)]
    ports = [helper.make_tensor_value_info("x", 1, (1, 5))]
    graph = helper.make_graph(nodes, "g", ports, [onnx.ValueInfoProto(name="y")], tensors)
    net = simdnn.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9))
    x = np.array([[0.03, 0.29, 1.01, 3.33, 5.2]], np.float32)
    found = net.run({"x": x}, machine="hsw", dispatch="onnxruntime").outputs["y"]
    assert found.reshape(-1) == pytest.approx([-0.04, -0.28, -1.0, -3.32, -5.08], rel=1e-6)
