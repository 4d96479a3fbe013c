"""Ensembles of trees and support vectors: by hand, and beside onnxruntime on this host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from tests.effort import examples

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import helper  # noqa: E402

from tests.networks import peer  # noqa: E402
from tools.onnxruntime_draws import ML, Draws  # noqa: E402
from tools.record_onnxruntime_operators import trees  # noqa: E402

FLOAT = onnx.TensorProto.FLOAT


def model(op: str, x: Any, attributes: dict[str, Any]) -> Any:
    names = ["label", "scores"] if "Classifier" in op else ["y"]
    port = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    layer = helper.make_node(op, ["x"], names, "it", domain=ML, **attributes)
    graph = helper.make_graph([layer], "g", [port], [onnx.ValueInfoProto(name=name) for name in names])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(ML, 3)], ir_version=8)


def same_as_library(op: str, x: Any, attributes: dict[str, Any]) -> None:
    made = model(op, x, attributes)
    found = simdnn.load(made).run({"x": x}, **peer.ALIKE).outputs
    for got, wanted in zip(found.values(), peer.outputs(made, {"x": x}), strict=True):
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
        assert got.tobytes() == wanted.tobytes()


#: one tree: feature 0 up to 1.5 gives 2, else feature 1 up to 0 gives -1, else 5
ONE = {
    "nodes_treeids": [0] * 5,
    "nodes_nodeids": [0, 1, 2, 3, 4],
    "nodes_featureids": [0, 0, 1, 0, 0],
    "nodes_values": [1.5, 0.0, 0.0, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 3, 0, 0],
    "nodes_falsenodeids": [2, 0, 4, 0, 0],
    "target_treeids": [0] * 3,
    "target_nodeids": [1, 3, 4],
    "target_ids": [0] * 3,
    "target_weights": [2.0, -1.0, 5.0],
}


def test_a_tree_by_hand() -> None:
    x = np.array([[1.5, 9], [1.6, 0], [2, 0.1], [np.nan, 1]], np.float32)
    r = simdnn.load(model("TreeEnsembleRegressor", x, {**ONE, "n_targets": 1})).run({"x": x}, machine="zen4")
    assert r.outputs["y"].tolist() == [[2], [-1], [5], [5]]
    with pytest.raises(simdnn.UnknownTiming, match="not modelled"):
        _ = r.cycles


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"nodes_truenodeids": [7, 0, 3, 0, 0]}, "a branch to no node"),
        ({"nodes_modes": ["LEAF", "LEAF", "BRANCH_MEMBER", "LEAF", "LEAF"]}, "BRANCH_MEMBER"),
        ({"nodes_truenodeids": [0, 0, 3, 0, 0]}, "a tree without an end"),
        ({"nodes_featureids": [0, 0, 8, 0, 0]}, "feature 8 of 2"),
        ({"nodes_values": [1.5]}, "nodes_values"),
    ],
)
def test_what_is_no_tree(changes: dict[str, Any], why: str) -> None:
    x = np.zeros((2, 2), np.float32)
    with pytest.raises(simdnn.InvalidArgument, match=why):
        simdnn.load(model("TreeEnsembleRegressor", x, {**ONE, **changes})).run({"x": x}, machine="zen4")


@examples(8)
@given(st.integers(0, 10**6), st.sampled_from(["SUM", "AVERAGE", "MIN", "MAX"]), st.integers(1, 3), st.booleans())
def test_regressors_beside_the_library(seed: int, how: str, count: int, wide: bool) -> None:
    draws = Draws(f"regressors {seed}")
    x = np.round(draws.floats(6, 3), 1).astype(np.float64 if wide else np.float32)
    base = {"base_values": draws.floats(count).tolist()} if seed % 2 else {}
    where = {"n_targets": count, "aggregate_function": how, **base}
    same_as_library("TreeEnsembleRegressor", x, {**trees(draws, 3, range(count), "target"), **where})


@examples(10)
@given(
    st.integers(0, 10**6),
    st.sampled_from([[0], [1], [0, 1], [0, 1, 2]]),
    st.sampled_from(["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"]),
    st.integers(0, 2),
)
def test_classifiers_beside_the_library(seed: int, ids: list[int], kind: str, base: int) -> None:
    draws = Draws(f"classifiers {seed}")
    x, count = np.round(draws.floats(6, 3), 1), max(2, len(ids))
    bases = draws.floats(count).tolist()[: count if base == 2 or count > 2 else base]
    where = {"classlabels_int64s": [3 * i for i in range(count)], "post_transform": kind}
    where |= {"base_values": bases} if base else {}
    attributes = trees(draws, 3, ids, "class")
    if seed % 3 == 0:
        attributes["class_weights"] = [abs(w) for w in attributes["class_weights"]]
    same_as_library("TreeEnsembleClassifier", x, {**attributes, **where})


@examples(10)
@given(st.integers(0, 10**6), st.sampled_from(["RBF", "LINEAR", "POLY", "SIGMOID"]), st.integers(2, 4), st.booleans())
def test_support_vectors_beside_the_library(seed: int, kind: str, classes: int, likely: bool) -> None:
    draws = Draws(f"vectors {seed}")
    counts = [int(n) for n in draws.rng.integers(1, 6, classes)]
    pairs, total = classes * (classes - 1) // 2, sum(counts)
    where: dict[str, Any] = {"kernel_type": kind, "kernel_params": [0.3, float(seed % 2), 2.0 + seed % 2]}
    where |= {"vectors_per_class": counts, "support_vectors": draws.floats(total * 4).tolist()}
    where |= {"coefficients": draws.floats((classes - 1) * total).tolist(), "rho": draws.floats(pairs).tolist()}
    if likely:
        where |= {"prob_a": draws.floats(pairs).tolist(), "prob_b": draws.floats(pairs).tolist()}
    same_as_library("SVMClassifier", draws.floats(5, 4), {**where, "classlabels_ints": list(range(classes))})


def test_support_vectors_have_a_cost() -> None:
    x = np.zeros((3, 2), np.float32)
    where = {"kernel_type": "RBF", "kernel_params": [0.5, 0.0, 0.0], "support_vectors": [0.0, 0.0, 1.0, 0.0]}
    where |= {"coefficients": [2.0, 1.0], "rho": [0.25], "n_supports": 2}
    r = simdnn.load(model("SVMRegressor", x, where)).run({"x": x}, machine="hsw")
    np.testing.assert_allclose(r.outputs["y"], np.full((3, 1), 2.25 + np.exp(-0.5)), rtol=1e-6)
    assert r.cycles > 0 and r.confidence == "estimated"


def test_probit_is_refused_by_name() -> None:
    x = np.zeros((3, 2), np.float32)
    where: dict[str, Any] = {"kernel_type": "LINEAR", "coefficients": [1.0, 2.0], "rho": [0.0]}
    where |= {"classlabels_ints": [0], "post_transform": "PROBIT", "kernel_params": [0.0] * 3}
    with pytest.raises(simdnn.Unimplemented, match="PROBIT"):
        simdnn.load(model("SVMClassifier", x, where)).run({"x": x}, machine="zen4")


@pytest.mark.parametrize("degree", [0.5, 1.0, 2.5, 4.0, 5.0, 7.0, 9.0, -2.0, 40.0])
def test_degrees_are_those_of_whole_registers(degree: float) -> None:
    draws = Draws(f"degree {degree}")
    vectors, x = draws.floats(9), draws.floats(5, 3)
    if degree % 1:  # of negative numbers they are NaN, whose sign is nobody's
        vectors, x = np.abs(vectors), np.abs(x)
    where = {"kernel_type": "POLY", "kernel_params": [0.7, 0.5, degree], "support_vectors": vectors.tolist()}
    where |= {"coefficients": draws.floats(3).tolist(), "rho": [0.25], "n_supports": 3}
    same_as_library("SVMRegressor", x, where)


def arrays(values: dict[str, Any]) -> dict[str, Any]:
    """Attributes, those that are arrays as tensors."""
    return {
        key: onnx.numpy_helper.from_array(value, key) if isinstance(value, np.ndarray) else value
        for key, value in values.items()
    }


def grown(rng: Any, targets: int, big: bool) -> dict[str, Any]:
    """Attributes of a TreeEnsemble of three trees, whose branches are of all kinds."""
    found: dict[str, list[Any]] = {key: [] for key in ("featureids", "modes", "splits", "truenodeids", "falsenodeids")}
    found |= {"trueleafs": [], "falseleafs": [], "missing_value_tracks_true": []}
    weights, ids, sets = list[float](), list[int](), dict[int, list[float]]()

    def branch(depth: int) -> int:
        place, mode = len(found["modes"]), int(rng.integers(7))
        new = {"featureids": int(rng.integers(4)), "modes": mode, "splits": float(rng.integers(-1, 3))}
        for key in found:
            found[key].append(new.get(key, int(rng.integers(2)) if key == "missing_value_tracks_true" else 0))
        if mode == 6:
            sets[place] = sorted(rng.choice(60 if big else 6, 3, replace=False).astype(float).tolist())
        for way in ("true", "false"):
            leaf = depth == 0 or bool(rng.random() < 0.3)
            if leaf:
                weights.append(float(rng.standard_normal()))
                ids.append(int(rng.integers(targets)))
            found[f"{way}leafs"][place] = int(leaf)
            found[f"{way}nodeids"][place] = len(ids) - 1 if leaf else branch(depth - 1)
        return place

    roots = [branch(depth) for depth in (0, 2, 3)]
    members = [value for place in sorted(sets) for value in (*sets[place], np.nan)]
    nodes: dict[str, Any] = {f"nodes_{key}": value for key, value in found.items()}
    nodes |= {"nodes_modes": np.array(found["modes"], np.uint8), "nodes_splits": np.array(found["splits"], np.float32)}
    nodes |= {"membership_values": np.array(members, np.float32)} if members else {}
    return {**nodes, "tree_roots": roots, "leaf_targetids": ids, "leaf_weights": np.array(weights, np.float32)}


@examples(15)
@given(st.integers(0, 10**6), st.integers(1, 3), st.booleans(), st.integers(0, 3), st.integers(0, 3))
def test_trees_in_arrays_beside_the_library(seed: int, targets: int, big: bool, how: int, kind: int) -> None:
    rng = np.random.default_rng(seed)
    x = np.where(rng.random((9, 4)) < 0.5, rng.integers(-1, 5, (9, 4)), rng.standard_normal((9, 4)) * 20)
    x = np.where(rng.random(x.shape) < 0.1, np.nan, x).astype(np.float32)
    numbers = {"n_targets": targets, "aggregate_function": how, "post_transform": kind}
    made = model("TreeEnsemble", x, arrays({**grown(rng, targets, big), **numbers}))
    made.opset_import[0].version = 5
    mine = simdnn.load(made).run({"x": x}, **peer.ALIKE).outputs["y"]
    assert mine.tobytes() == peer.output(made, {"x": x}).tobytes()


def test_of_a_leafs_weights_for_one_target_the_first_counts() -> None:
    """As converters of decision leaves write them, each several times."""
    repeated = {key: [v for v in value for _ in range(2)] for key, value in ONE.items() if key.startswith("target")}
    x = np.array([[1.5, 9], [1.6, 0], [2, 0.1]], np.float32)
    same_as_library("TreeEnsembleRegressor", x, {**ONE, **repeated, "n_targets": 1})
