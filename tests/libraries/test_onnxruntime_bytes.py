"""Products to u8 and s8 as onnxruntime finishes them: one factor, and zero points added to rounded integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models.formats import name_of
from simdnn import Attr, Unimplemented

onnx = pytest.importorskip("onnx")
from tests.effort import one_in  # noqa: E402
from tests.libraries.test_onnxruntime import NAMES, PLACES, STORED, feeds, model  # noqa: E402

Pair = tuple[Any, Any]


def recorded(op: str) -> dict[str, tuple[Any, list[Any]]]:
    """Recorded models of one node (tests/vectors/onnxruntime/models.npz): the node, and its inputs in order."""
    found = {}
    for name in NAMES:
        graph = model(name).graph
        if len(graph.node) == 1 and graph.node[0].op_type == op:
            held = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer} | feeds(name)
            found[name] = graph.node[0], [held[key] for key in graph.node[0].input]
    return found


def attr(source: Pair, weights: Pair, target: Pair) -> Attr:
    """Scales and zero points, the latter where they are not 0."""
    pairs = {"src": source, "wei": weights, "dst": target}
    scales = {name: np.asarray(scale).reshape(-1) for name, (scale, _) in pairs.items()}
    zeros = {name: np.unique(zero).astype(np.int32) for name, (_, zero) in pairs.items() if zero.any()}
    return Attr(scales=scales, zero_points=zeros)


@one_in(3, "op")
@pytest.mark.parametrize("isa", PLACES)
@pytest.mark.parametrize("op", ["QLinearMatMul", "QGemm"])
def test_recorded_products(op: str, isa: str) -> None:
    models = recorded(op)
    assert len(models) == 12
    for name, (_, (a, a_scale, a_zero, b, b_scale, b_zero, *rest)) in models.items():
        bias = rest.pop(0) if op == "QGemm" else None
        how = attr((a_scale, a_zero), (b_scale, b_zero), (rest[0], rest[1]))
        where: dict[str, Any] = {"machine": PLACES[isa], "isa": isa, "dispatch": "onnxruntime"}
        r = simdnn.matmul(a, b, bias, dst=name_of(a.dtype), attr=how, **where)
        assert r.output.tobytes() == STORED[f"{name}/{isa}"].tobytes(), name


@one_in(2)
@pytest.mark.parametrize("isa", PLACES)
def test_recorded_convolutions(isa: str) -> None:
    """Convolutions whose weights are of s8 and have no zero points; others have no kernel here, but in a network."""
    models = {name: found for name, found in recorded("QLinearConv").items() if not found[1][5].any()}
    models = {name: found for name, found in models.items() if found[1][3].dtype == np.int8}
    assert len(models) == 14
    for name, (node, (x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias)) in models.items():
        said = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        taps = {"strides": said["strides"], "dilation": said["dilations"], "groups": said["group"]}
        taps["padding"] = tuple(said["pads"])
        how = attr((x_scale, x_zero), (w_scale, w_zero), (y_scale, y_zero))
        where: dict[str, Any] = {"machine": PLACES[isa], "isa": isa, "dispatch": "onnxruntime"}
        r = simdnn.convolution(x, w, bias, dst=name_of(x.dtype), attr=how, **where, **taps)
        assert r.output.tobytes() == STORED[f"{name}/{isa}"].tobytes(), name


@given(
    sizes=st.tuples(st.integers(1, 20), st.integers(1, 40), st.integers(1, 70)),
    types=st.sampled_from([("u8", "s8"), ("u8", "u8"), ("s8", "s8")]),
    seed=st.integers(0, 1 << 20),
    machine=st.sampled_from(["zen4", "hsw", "skx"]),
    engine=st.sampled_from(["reference", "compiled"]),
)
def test_random_products(
    sizes: tuple[int, int, int], types: tuple[str, str], seed: int, machine: str, engine: str
) -> None:
    """The definition in NumPy: scales that make ties, which a zero point added ahead of them would turn."""
    rng, (m, n, k) = np.random.default_rng(seed), sizes
    kinds = {"u8": np.iinfo(np.uint8), "s8": np.iinfo(np.int8)}
    src, wei = (kinds[name] for name in types)
    a = rng.integers(src.min, src.max + 1, (m, k)).astype(src.dtype)
    w = rng.integers(-60, 60, (k, n)).astype(np.int8)  # u8 by s8: as few as a pair of words holds
    a = a if types != ("u8", "s8") else a // 2
    w = w if types[1] == "s8" else (w.astype(np.int16) + 128).astype(np.uint8)
    bias = rng.integers(-3000, 3000, n).astype(np.int32)
    scales = np.float32(0.5), rng.choice([0.25, 0.5, 0.013], n).astype(np.float32), np.float32(rng.choice([8, 64, 90]))
    zeros = rng.integers(src.min, src.max + 1), rng.integers(wei.min, wei.max + 1), rng.integers(src.min, src.max + 1)
    source, weights, target = ((s, np.asarray(z)) for s, z in zip(scales, zeros, strict=True))
    how: dict[str, Any] = {"machine": machine, "dispatch": "onnxruntime", "dst": types[0], "engine": engine}
    r = simdnn.matmul(a, w, bias, attr=attr(source, weights, target), **how)
    sums = (a.astype(np.int64) - zeros[0]) @ (w.astype(np.int64) - zeros[1]) + bias
    factor = scales[0] * scales[1] / scales[2]
    wanted = np.clip(np.rint(sums.astype(np.float32) * factor) + zeros[2], src.min, src.max).astype(src.dtype)
    assert r.output.tobytes() == wanted.tobytes()


def test_its_steps_its_bound_and_its_cost() -> None:
    """A bias of s32 goes to the sums, and the zero point behind the rounding, in the program that is timed, too."""
    a, w = np.full((3, 24), 5, np.uint8), np.ones((24, 16), np.int8)
    how = Attr(scales={"src": np.float32([0.5]), "dst": np.float32([8])}, zero_points={"dst": np.int32([1])})
    r = simdnn.matmul(a, w, np.full(16, -80, np.int32), dst="u8", attr=how, machine="zen4", dispatch="onnxruntime")
    steps = [name for name in r.explain(0, 0).steps["instruction"] if name in ("vpaddd", "vcvtdq2ps", "vcvtps2dq")]
    assert steps == ["vpaddd", "vcvtdq2ps", "vcvtps2dq", "vpaddd"]
    assert int(r.output[0, 0]) == 3  # 40 / 16 = 2.5 is rounded to 2, and 3.5 would be rounded to 4
    assert r.error_bound.worst.max() >= 0.5
    sizes: dict[str, Any] = {"m": 3, "n": 16, "k": 24, "dt": "u8:s8:u8", "bias": True, "attr": how}
    assert simdnn.estimate("matmul", **sizes, machine="zen4", dispatch="onnxruntime").cycles == r.cycles


def test_a_bias_of_floats_is_refused_by_name() -> None:
    a, w = np.ones((2, 8), np.uint8), np.ones((8, 4), np.int8)
    with pytest.raises(Unimplemented, match="no bias of float32 to u8: one of s32 works"):
        simdnn.matmul(a, w, np.ones(4, np.float32), dst="u8", machine="zen4", dispatch="onnxruntime")


def test_sums_to_floats_take_a_bias_of_integers_first() -> None:
    """As QGemm without a destination's scale."""
    a, w, bias = np.full((2, 8), 3, np.uint8), np.full((8, 4), 5, np.int8), np.full(4, (1 << 24) + 1, np.int32)
    how: dict[str, Any] = {"machine": "zen4", "dst": "f32", "attr": Attr(scales={"src": np.float32([0.1])})}
    found = simdnn.matmul(a, w, bias, dispatch="onnxruntime", **how).output
    assert (found == np.float32((1 << 24) + 121) * np.float32(0.1)).all()
