"""Attributes as values, and where they meet a problem's shape."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import simdnn
from isa_models import InvalidArgument, SimdnnError, Unimplemented
from simdnn.kernels.common.params import Param
from simdnn.primitives import Attr, Quant
from simdnn.primitives.placed import Shape, placed
from simdnn.primitives.resolve import Resolved, resolve

MATMUL = Shape("matmul", m=6, k=64, n=10, src="u8", wei="s8")
CONV = Shape("convolution", m=1, k=18, n=8, src="u8", wei="s8", groups=4)


def test_values() -> None:
    attr = Attr(scales={"wei": [0.5, 2.0]}, zero_points={"src": 3}, post_ops=["relu"])
    assert attr == Attr(scales={"wei": np.array([0.5, 2.0])}, zero_points={"src": np.int32(3)}, post_ops=("relu",))
    assert attr != Attr(scales={"wei": [0.5, 2.5]}, zero_points={"src": 3}, post_ops=["relu"])
    assert hash(attr) == hash(pickle.loads(pickle.dumps(attr))) and copy.deepcopy(attr) == attr
    with pytest.raises(AttributeError):
        attr.fpmath = "bf16"  # type: ignore[misc]


def test_values_are_copied_and_read_only() -> None:
    scales = np.ones(4, ">f4")
    attr = Attr(scales={"wei": scales})
    scales[:] = 7
    found = attr.scales["wei"].values
    assert (found == 1).all() and found.dtype == np.float32 and found.dtype.isnative
    with pytest.raises(ValueError):
        found[0] = 2


def test_storage_types() -> None:
    attr = Attr(
        scales={"src": Quant(1 / 3, dtype="bf16"), "wei": np.float16(1 / 3), "dst": 1 / 3},
        zero_points={"wei": np.array([-3], ml_dtypes.int4), "src": Quant(200, dtype="u8"), "dst": 5},
    )
    assert [q.dtype for q in attr.scales.values()] == ["bf16", "f16", "f32"]
    assert float(attr.scales["src"].values) == float(ml_dtypes.bfloat16(1 / 3))
    assert [q.dtype for q in attr.zero_points.values()] == ["s4", "u8", "s32"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scales": {"weights": 1.0}}, "did you mean 'wei'"),
        ({"scales": {"dest": 1.0}}, "did you mean 'dst'"),
        ({"scales": {0: 1.0}}, "Allowed: src, wei, dst"),
        ({"scales": [1.0]}, "a dict"),
        ({"scales": {"src": None}}, "None is no scale"),
        ({"scales": {"src": []}}, "holds no scale"),
        ({"scales": {"src": 2}}, "scales are floats"),
        ({"scales": {"src": True}}, "scales are floats"),
        ({"scales": {"src": "1.0"}}, "floats are needed"),
        ({"scales": {"src": [[1.0], [1.0, 2.0]]}}, "no array of numbers"),
        ({"scales": {"src": 1j}}, "floats are needed"),
        ({"scales": {"src": float("nan")}}, "NaN"),
        ({"scales": {"wei": [1.0, float("inf")]}}, "Inf"),
        ({"scales": {"src": 1e300}}, "beyond f32"),
        ({"scales": {"src": Quant(1e6, dtype="f16")}}, "beyond f16"),
        ({"scales": {"src": 1e-300}}, "as 0"),
        ({"scales": {"src": Quant(1.0, dtype="s8")}}, "Allowed: f32, bf16, f16"),
        ({"zero_points": {"src": 1.0}}, "integers are needed"),
        ({"zero_points": {"src": True}}, "integers are needed"),
        ({"zero_points": {"src": 2**31}}, "2147483648"),
        ({"zero_points": {"src": -(2**31) - 1}}, "-2147483649"),
        ({"zero_points": {"src": np.uint64(2**63)}}, "9223372036854775808"),
        ({"zero_points": {"src": 10**30}}, "integers from"),
        ({"zero_points": {"wei": Quant([0, 256], dtype="u8")}}, "u8 holds 0 to 255"),
        ({"zero_points": {"wei": Quant(1, dtype="f32")}}, "Allowed: s32"),
        ({"precomputed_reductions": {"src": 0.5}}, "integers are needed"),
        ({"fpmath": "bf17"}, "did you mean 'bf16'"),
        ({"fpmath": 16}, "Allowed: strict"),
        ({"apply_to_int": 1}, "True or False"),
        ({"exact_int8": "yes"}, "True, False or None"),
        ({"post_ops": "relu"}, "a list is needed"),
        ({"post_ops": ["reul"]}, "did you mean 'relu'"),
        ({"post_ops": [None]}, "Allowed: relu"),
        ({"post_ops": 3}, "a list is needed"),
    ],
)
def test_refused_when_made(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as error:
        Attr(**arguments)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("post_ops", [["select"], ["relu", "dw"], ["sum", ("sum", 1.0, 0, "s8")]])
def test_post_operations_that_no_kernel_has(post_ops: list[str]) -> None:
    with pytest.raises(Unimplemented, match="what works: relu|one type for all sums"):
        Attr(post_ops=post_ops)


@pytest.mark.parametrize(
    "arguments", [{"mask": -1}, {"mask": "per_row"}, {"mask": 1.5}, {"groups": 32}, {"groups": (0, 1)}, {"dtype": "f8"}]
)
def test_bad_quant(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Quant(1.0, **arguments)


@pytest.mark.parametrize(
    ("argument", "quant", "granularity"),
    [
        ("src", Quant(1.0), "common"),
        ("src", Quant([[1.0]]), "common"),
        ("src", Quant(np.ones((6, 1))), "per_token"),
        ("src", Quant(np.ones(6), mask=1), "per_token"),
        ("src", Quant(np.ones((6, 4))), "grouped"),
        ("src", Quant(np.ones((6, 4)), groups=(1, 16)), "grouped"),
        ("wei", Quant(np.ones(1)), "common"),
        ("wei", Quant(np.ones(10)), "per_oc"),
        ("wei", Quant(np.ones(10), mask=2), "per_oc"),
        ("wei", Quant(None, mask="per_oc"), "per_oc"),
        ("wei", Quant(np.ones((2, 10))), "grouped"),
        ("wei", Quant(np.ones((2, 10)), mask=3, groups=(32, 1)), "grouped"),
        ("wei", Quant(None, groups=(32, 1)), "grouped"),
        ("dst", Quant(1.0, mask=0), "common"),
        ("dst", Quant(None), "common"),
    ],
)
def test_granularity_of_matmul(argument: str, quant: Quant, granularity: str) -> None:
    assert placed("scales", argument, quant, MATMUL).param.granularity == granularity


@pytest.mark.parametrize(
    ("argument", "quant", "message"),
    [
        ("src", Quant(np.ones(6)), r"\(6,\); allowed: \(1,\) common"),
        ("src", Quant(np.ones((6, 5))), r"\(6, 5\)"),
        ("wei", Quant(np.ones(9)), r"\(9,\).*\(10,\) per_oc"),
        ("wei", Quant(np.ones((3, 10))), r"\(3, 10\)"),
        ("wei", Quant(np.ones((2, 9))), r"\(2, 9\)"),
        ("wei", Quant(np.ones(10), mask=0), r"allowed: \(1,\) common"),
        ("wei", Quant(np.ones(1), mask=2), r"allowed: \(10,\) per_oc"),
        ("wei", Quant(np.ones(10), mask=4), r"mask 4.*2 \(per_oc\)"),
        ("wei", Quant(np.ones((2, 10)), groups=(24, 1)), "24 does not divide K=64"),
        ("wei", Quant(np.ones((4, 10)), groups=(32, 1)), r"allowed: \(2, 10\) grouped"),
        ("dst", Quant(np.ones(10)), r"allowed: \(1,\) common"),
        ("dst", Quant(1.0, groups=(1, 1)), "only a matmul's src and wei"),
        ("dst", Quant(1.0, mask=2), "mask 2"),
    ],
)
def test_shapes_that_do_not_fit_a_matmul(argument: str, quant: Quant, message: str) -> None:
    with pytest.raises((InvalidArgument, Unimplemented), match=message):
        placed("scales", argument, quant, MATMUL)


def test_shapes_of_a_grouped_convolution() -> None:
    for values, mask in ((np.ones(8), None), (np.ones((4, 2)), None), (np.ones((4, 2)), 3), (np.ones(8), "per_oc")):
        assert placed("scales", "wei", Quant(values, mask=mask), CONV).param.granularity == "per_oc"
    for quant in (Quant(np.ones((2, 4))), Quant(np.ones(4)), Quant(np.ones((9, 8))), Quant(1.0, groups=(1, 1))):
        with pytest.raises(InvalidArgument):
            placed("scales", "wei", quant, CONV)


def test_resolved() -> None:
    attr = Attr(
        scales={"src": 0.5, "wei": np.arange(1.0, 11.0), "dst": 4.0},
        zero_points={"src": 1, "wei": -2, "dst": 3},
        post_ops=["relu"],
    )
    bias = np.arange(10, dtype=np.float32)
    epilogue, parameters = resolve(Resolved.of(attr, MATMUL), "u8", bias)
    assert (epilogue.dst, epilogue.wei_scale) == ("u8", Param("wei", 0, 1, "f32"))
    flags = ("zp_src", "zp_wei", "src_scale", "bias", "post_ops", "dst_scale", "dst_zero_point")
    assert all(getattr(epilogue, flag) for flag in flags)
    assert (parameters.src_scale, parameters.dst_scale) == (0.5, 4.0)
    assert (parameters.zp_src, parameters.zp_wei, parameters.dst_zero_point) == (1, -2, 3)
    assert parameters.wei_scale is not None and parameters.wei_scale.tolist() == list(range(1, 11))
    assert parameters.bias is not None and (parameters.bias == bias).all()


@pytest.mark.parametrize(
    ("attr", "src", "dst"),
    [
        (Attr(), "u8", "s32"),
        (Attr(zero_points={"src": 3, "wei": 1}), "s8", "s32"),
        (Attr(scales={"wei": 0.5}), "u8", "f32"),
        (Attr(zero_points={"dst": 3}), "u8", "f32"),
        (Attr(), "f32", "f32"),
        (Attr(), "bf16", "f32"),
    ],
)
def test_default_destination(attr: Attr, src: str, dst: str) -> None:
    wei = "s8" if src in ("u8", "s8") else src
    assert resolve(Resolved.of(attr, Shape("matmul", 2, 4, 3, src, wei)), None, None)[0].dst == dst


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"zero_points": {"wei": np.ones((2, 10), int)}}, Unimplemented, "grouped.*common"),
        ({"zero_points": {"src": np.ones((6, 1), int)}}, Unimplemented, "per_token.*common"),
        ({"zero_points": {"wei": np.ones(10, int)}}, Unimplemented, "per_oc.*common"),
        ({"apply_to_int": True}, Unimplemented, "apply_to_int"),
        ({"fpmath": "bf16"}, InvalidArgument, "'strict'"),
        ({"precomputed_reductions": {"src": np.ones((6, 2), np.int32)}}, InvalidArgument, "zero_points"),
        ({"precomputed_reductions": {"wei": 1}}, InvalidArgument, "allowed: src"),
        ({"precomputed_reductions": {"src": 1}, "zero_points": {"wei": 1}}, InvalidArgument, "precomputed"),
    ],
)
def test_refused_for_a_problem(arguments: dict[str, Any], error: type[SimdnnError], message: str) -> None:
    with pytest.raises(error, match=message):
        resolve(Resolved.of(Attr(**arguments), MATMUL), None, None)


def test_a_parameter_is_placed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the attribute to the problem, whatever its parts are: scales and zero points by group, both arguments."""
    from simdnn.primitives import resolve as door

    seen: list[tuple[str, str]] = []
    find = door.placed
    monkeypatch.setattr(door, "placed", lambda kind, name, *rest: seen.append((kind, name)) or find(kind, name, *rest))
    grouped, rows = np.ones((4, 16), np.float32), np.ones((8, 4), np.float32)
    integers = Attr(scales={"src": rows, "wei": grouped}, zero_points={"wei": grouped.astype(np.int8), "src": 1})
    compressed = Attr(apply_to_int=True, scales={"wei": grouped}, zero_points={"wei": grouped.astype(np.int8)})
    for dt, attr in (("u8:s8:f32", integers), ("s8:u4:f32", integers), ("f32:s8:f32", compressed)):
        for dispatch in ("fastest", "onednn"):
            seen.clear()
            simdnn.estimate("matmul", m=8, k=128, n=16, dt=dt, attr=attr, machine="zen4", dispatch=dispatch)
            assert len(seen) == len(set(seen)) == len(attr.scales) + len(attr.zero_points)
