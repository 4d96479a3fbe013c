"""Operators of QOperator models beside onnxruntime: integers bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import helper, numpy_helper  # noqa: E402

import simdnn  # noqa: E402
from tests.networks import peer  # noqa: E402

RNG = np.random.default_rng(7)


def model(op: str, feeds: Mapping[str, Any], inputs: list[Any], attributes: Mapping[str, Any]) -> Any:
    """A node of onnxruntime's domain; `inputs` are names of feeds, or constants."""
    names = [value if isinstance(value, str) else f"c{i}" for i, value in enumerate(inputs)]
    known = {name: value for name, value in zip(names, inputs, strict=True) if name not in feeds}
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in known.items()]
    ports = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()
    ]
    node = helper.make_node(op, names, ["y"], "node", domain="com.microsoft", **attributes)
    graph = helper.make_graph([node], "g", ports, [onnx.ValueInfoProto(name="y")], constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def compare(op: str, feeds: Mapping[str, Any], inputs: list[Any], machine: str = "", **attributes: Any) -> None:
    """The bits of the library on this host: on `machine`, or on one like this host."""
    found = model(op, feeds, inputs, attributes)
    wanted = peer.output(found, dict(feeds), optimized=False)
    result = simdnn.load(found).run(feeds, **({"machine": machine} if machine else peer.ALIKE))
    assert result.outputs["y"].dtype == wanted.dtype
    np.testing.assert_array_equal(result.outputs["y"], wanted)
    assert result.cycles > 0


def scale(low: float = 0.005, high: float = 0.1) -> Any:
    return np.float32(RNG.uniform(low, high))


def drawn(dtype: Any, *shape: int) -> Any:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


@pytest.fixture(params=[np.uint8, np.int8], ids=["u8", "s8"])
def dtype(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize("machine", ["zen4", "b580"])
@pytest.mark.parametrize("spatial", [(1, 1), (7, 5), (13,), (3, 2, 4)])
def test_global_mean(dtype: Any, machine: str, spatial: tuple[int, ...]) -> None:
    x = drawn(dtype, 2, 9, *spatial)
    compare("QLinearGlobalAveragePool", {"x": x}, ["x", scale(), drawn(dtype), scale(), drawn(dtype)], machine)


def test_global_mean_of_many(dtype: Any) -> None:
    """The sum is past 2**24, where f32 no longer counts by ones."""
    x = np.full((1, 1, 300, 300), np.iinfo(dtype).max, dtype)
    x[0, 0, :3] -= 1
    low = np.array(np.iinfo(dtype).min, dtype)
    compare("QLinearGlobalAveragePool", {"x": x}, ["x", np.float32(0.1), low, np.float32(0.1), low])


@pytest.mark.parametrize(("opset", "axis"), [(17, -1), (17, 1), (12, 1), (11, 3)])
def test_softmax(dtype: Any, opset: int, axis: int) -> None:
    low = np.array(np.iinfo(dtype).min, dtype)
    for width in (1, 2, 10):
        x = drawn(dtype, 2, 5, 3, width)
        for step, point in ((1 / 256, low), (0.011, low), (0.0037, drawn(dtype))):
            compare(
                "QLinearSoftmax",
                {"x": x},
                ["x", scale(0.002, 0.4), drawn(dtype), np.float32(step), point],
                opset=opset,
                axis=axis,
            )


@pytest.mark.parametrize("op", ["QLinearLeakyRelu", "QLinearSigmoid"])
def test_unary(dtype: Any, op: str) -> None:
    x = np.arange(np.iinfo(dtype).min, np.iinfo(dtype).max + 1).astype(dtype)
    compare(op, {"x": x}, ["x", scale(), drawn(dtype), scale(0.003, 0.1), drawn(dtype)])


@pytest.mark.parametrize("inside", [0, 1])
def test_mean_pool(dtype: Any, inside: int) -> None:
    compare(
        "QLinearAveragePool",
        {"x": drawn(dtype, 2, 3, 9, 8)},
        ["x", scale(), drawn(dtype), scale(), drawn(dtype)],
        kernel_shape=[3, 3],
        pads=[1, 1, 0, 1],
        strides=[2, 1],
        count_include_pad=inside,
    )


def test_joined_and_chosen(dtype: Any) -> None:
    a, b = drawn(dtype, 2, 4, 5), drawn(dtype, 2, 4, 5)
    first, second = [scale(), drawn(dtype)], [scale(), drawn(dtype)]
    compare("QLinearConcat", {"a": a, "b": b}, [*first, "a", *first, "b", *second], axis=1)
    condition = RNG.integers(0, 2, a.shape).astype(bool)
    compare("QLinearWhere", {"if": condition, "a": a, "b": b}, ["if", "a", *first, "b", *second, *second])


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_binary(dtype: Any, op: str) -> None:
    feeds = {"a": drawn(dtype, 2, 4, 5), "b": drawn(dtype, 4, 1)}
    compare(op, feeds, ["a", scale(), drawn(dtype), "b", scale(), drawn(dtype), scale(), drawn(dtype)])


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("shapes", [((16, 16), (16, 16)), ((16, 1), (16, 16)), ((4, 16), (4, 1)), ((3, 1, 1), (16,))])
def test_binary_of_scales_that_make_ties(dtype: Any, op: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    """Scales such as 0.1, 0.3 and 0.2 bring many sums next to halves, where the order of roundings shows."""
    for steps in ((0.1, 0.3, 0.2), (0.5, 0.25, 2), (0.3, 0.05, 0.1)):
        a, b = (drawn(dtype, *shape) for shape in shapes)
        p, q, r = (np.float32(step) for step in steps)
        r *= np.float32(64 if op == "QLinearMul" else 1)
        compare(op, {"a": a, "b": b}, ["a", p, drawn(dtype), "b", q, drawn(dtype), r, drawn(dtype)])


def test_mean_pool_of_windows_beyond_the_padding(dtype: Any) -> None:
    """Where padding counts, all of a window does."""
    options: dict[str, Any] = {
        "kernel_shape": [3, 2],
        "pads": [1, 0, 1, 0],
        "strides": [2, 2],
        "ceil_mode": 1,
        "count_include_pad": 1,
    }
    one, zero = np.float32(1), np.zeros((), dtype)
    compare("QLinearAveragePool", {"x": drawn(dtype, 2, 3, 4, 5)}, ["x", one, zero, one, zero], **options)


def test_gemm(dtype: Any) -> None:
    a, b = drawn(dtype, 7, 33), drawn(np.int8, 12, 33)
    bias = RNG.integers(-5000, 5000, 12).astype(np.int32)
    scales, zeros = RNG.uniform(0.001, 0.01, 12).astype(np.float32), np.zeros(12, np.int8)
    own = [scale(), drawn(dtype)]
    compare("QGemm", {"a": a}, ["a", *own, b, scales, zeros, bias, scale(0.1, 1), drawn(dtype)], transB=1)
    compare("QGemm", {"a": a}, ["a", *own, b.T.copy(), np.float32(0.01), np.int8(3), bias], alpha=0.5)
    compare("QGemm", {"a": np.ascontiguousarray(a.T)}, ["a", *own, b.T.copy(), np.float32(0.01), np.int8(3)], transA=1)


def test_mean_pools_with_channels_last(dtype: Any) -> None:
    given = ["x", scale(), drawn(dtype), scale(), drawn(dtype)]
    compare("QLinearGlobalAveragePool", {"x": drawn(dtype, 2, 7, 5, 3)}, given, channels_last=1)
    options: dict[str, Any] = {"kernel_shape": [3, 2], "strides": [2, 1], "channels_last": 1}
    compare("QLinearAveragePool", {"x": drawn(dtype, 1, 9, 8, 6)}, given, **options)


@pytest.mark.parametrize(
    ("domain", "op", "message"),
    [
        ("ai.onnx.ml", "CastMap", r"no operator 'ai.onnx.ml::CastMap' here"),
        ("com.microsoft", "QLinearSoftMax", "QLinearSoftMax' here: did you mean 'com.microsoft::QLinearSoftmax'"),
    ],
)
def test_an_operator_of_a_domain_is_named_whole(domain: str, op: str, message: str) -> None:
    nodes = [helper.make_node(op, ["x"], ["y"], "n", domain=domain)]
    ports = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    with pytest.raises(simdnn.Unimplemented, match=message) as caught:
        simdnn.load(helper.make_model(graph, opset_imports=opsets, ir_version=8)).check_operators()
    assert ";:" not in str(caught.value) and "simdnn::" not in str(caught.value)


def test_padding_along_the_depth_stands_for_zero() -> None:
    """A volume of integers is padded with the source's zero point along every dimension."""
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 256, (1, 2, 3, 4, 4)).astype(np.uint8), rng.integers(-9, 9, (3, 2, 2, 1, 1)).astype(np.int8)
    held = [onnx.numpy_helper.from_array(value, name) for name, value in (("w", w), ("z", np.uint8(7)))]
    ports = [helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, x.shape)]
    out = [helper.make_tensor_value_info("y", onnx.TensorProto.INT32, None)]
    node = helper.make_node("ConvInteger", ["x", "w", "z"], ["y"], pads=[1, 0, 0, 1, 0, 0])
    made = helper.make_model(
        helper.make_graph([node], "g", ports, out, held), opset_imports=[helper.make_opsetid("", 17)]
    )
    centred = np.pad(x.astype(np.int32) - 7, [(0, 0), (0, 0), (1, 1), (0, 0), (0, 0)])
    wanted = sum(
        np.einsum("ncdhw,oc->nodhw", centred[:, :, d : d + 4], w[:, :, d, 0, 0].astype(np.int32)) for d in (0, 1)
    )
    assert np.array_equal(simdnn.load(made).run({"x": x}, machine="icx").outputs["y"], wanted)
