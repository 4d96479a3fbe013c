"""Operators of ai.onnx.ml beside onnxruntime's: labels and moved values exactly, the rest within roundings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples

onnx = pytest.importorskip("onnx")
from onnx import helper  # noqa: E402

import simdnn  # noqa: E402
from simdnn.networks.opset import without_weights  # noqa: E402
from tests.networks import peer  # noqa: E402

RNG = np.random.default_rng(3)
SAMPLES = np.round(RNG.standard_normal((7, 5)) * 2, 2).astype(np.float32)


def model(op: str, feeds: Mapping[str, Any], outputs: int, attributes: Mapping[str, Any]) -> Any:
    ports = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()
    ]
    names = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, list(feeds), names, "node", domain="ai.onnx.ml", **attributes)
    graph = helper.make_graph([node], "g", ports, [onnx.ValueInfoProto(name=name) for name in names])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def compare(op: str, *feeds: Any, outputs: int = 1, machine: str = "zen4", **attributes: Any) -> None:
    named = {f"x{i}": feed for i, feed in enumerate(feeds)}
    found = model(op, named, outputs, attributes)
    result = simdnn.load(found).run(named, machine=machine)
    assert result.cycles > 0
    for i, wanted in enumerate(peer.outputs(found, named)):
        got = result.outputs[f"y{i}"]
        assert got.dtype == wanted.dtype and got.shape == wanted.shape
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=1e-7)
        else:
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("machine", ["zen4", "hsw", "b580"])
def test_scaler(machine: str) -> None:
    each = {"offset": [0.5, -1.0, 0.0, 2.0, 0.25], "scale": [1.0, 0.5, 2.0, -1.0, 0.1]}
    compare("Scaler", SAMPLES, machine=machine, **each)
    compare("Scaler", SAMPLES, machine=machine, offset=[0.5], scale=[2.0])
    compare("Scaler", SAMPLES.astype(np.float64), machine=machine, **each)
    compare("Scaler", (SAMPLES * 10).astype(np.int64), machine=machine, **each)


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm: str) -> None:
    some = SAMPLES.copy()
    some[2] = 0
    some[3] = abs(some[3])
    compare("Normalizer", some, norm=norm)


def test_binarizer_and_imputer() -> None:
    compare("Binarizer", SAMPLES, threshold=0.5)
    holes = SAMPLES.copy()
    holes[::2, 1] = np.nan
    compare("Imputer", holes, imputed_value_floats=[1.0, 2.0, 3.0, 4.0, 5.0], replaced_value_float=float("nan"))
    compare("Imputer", np.arange(6).reshape(2, 3), imputed_value_int64s=[9], replaced_value_int64=4)


def test_features_by_place_and_side_by_side() -> None:
    compare("ArrayFeatureExtractor", SAMPLES, np.array([3, 0, 0], np.int64))
    compare("ArrayFeatureExtractor", np.array(["a", "b", "c"], object), np.array([2, 0], np.int64))
    compare("ArrayFeatureExtractor", SAMPLES[0], np.array([2], np.int64))
    compare("FeatureVectorizer", SAMPLES, SAMPLES[:, :2], inputdimensions=[5, 2])
    compare("OneHotEncoder", np.array([3, 1, 7, 3], np.int64), cats_int64s=[1, 3, 5], zeros=1)


def test_labels_by_a_table() -> None:
    x = np.array([0, 2, 1, 9], np.int64)
    compare("LabelEncoder", x, keys_int64s=[0, 1, 2], values_int64s=[10, 20, 30])
    compare("LabelEncoder", x, keys_int64s=[0, 1, 2], values_floats=[0.5, 1.5, 2.5], default_float=-7.0)
    compare("LabelEncoder", x, keys_int64s=[0, 1], values_strings=["cat", "dog"], default_string="?")


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("machine", ["zen4", "b580"])
def test_linear_models(transform: str, machine: str) -> None:
    weights, added = RNG.standard_normal(15).tolist(), RNG.standard_normal(3).tolist()
    model = {"coefficients": weights, "intercepts": added, "post_transform": transform}
    compare("LinearRegressor", SAMPLES, targets=3, machine=machine, **model)
    compare("LinearClassifier", SAMPLES, outputs=2, machine=machine, classlabels_ints=[2, 5, 7], **model)
    compare("LinearClassifier", SAMPLES, outputs=2, machine=machine, classlabels_strings=["a", "b", "c"], **model)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_one_score_for_two_classes(transform: str) -> None:
    one = {"coefficients": RNG.standard_normal(5).tolist(), "intercepts": [0.1], "post_transform": transform}
    compare("LinearClassifier", SAMPLES, outputs=2, classlabels_ints=[0, 1], **one)


def same_as_library(op: str, *feeds: Any, outputs: int = 1, domain: str = "ai.onnx.ml", **attributes: Any) -> None:
    named = {f"x{i}": feed for i, feed in enumerate(feeds)}
    made = model(op, named, outputs, attributes)
    made.graph.node[0].domain = domain
    made.opset_import.add(domain="com.microsoft", version=1)
    got = simdnn.load(made).run(named, **peer.ALIKE).outputs
    for mine, wanted in zip(got.values(), peer.outputs(made, named), strict=True):
        assert (mine.dtype, mine.shape, mine.tobytes()) == (wanted.dtype, wanted.shape, wanted.tobytes())


@examples(12)
@given(st.integers(0, 10**6), st.sampled_from([1, 3, 6, 20]), st.sampled_from(["NONE", "LOGISTIC", "SOFTMAX"]))
def test_linear_models_have_the_librarys_bits(seed: int, targets: int, transform: str) -> None:
    rng = np.random.default_rng(seed)
    k, scale = int(rng.choice([1, 9, 140])), float(rng.choice([1, 40]))  # scores whose powers are 0, too
    x = rng.standard_normal((int(rng.choice([1, 7])), k)).astype(np.float32)
    weights = (rng.standard_normal(targets * k) * scale / np.sqrt(k)).astype(np.float32).tolist()
    where = {"coefficients": weights, "intercepts": rng.standard_normal(targets).astype(np.float32).tolist()}
    same_as_library("LinearRegressor", x, targets=targets, post_transform=transform, **where)
    labels = list(range(max(2, targets)))
    same_as_library("LinearClassifier", x, outputs=2, classlabels_ints=labels, post_transform=transform, **where)


@examples(12)
@given(st.integers(0, 10**6), st.sampled_from(["MAX", "L1", "L2"]))
def test_norms_and_distances_have_the_librarys_bits(seed: int, norm: str) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40))
    a, b = (rng.standard_normal((rows, n)).astype(np.float32) for rows in (3, 5))
    a[1] = 0
    same_as_library("Normalizer", a, norm=norm)
    same_as_library("Normalizer", (a * 9).astype([np.float64, np.int64, np.int32][seed % 3]), norm=norm)
    same_as_library("CDist", a, b, domain="com.microsoft", metric=["euclidean", "sqeuclidean"][seed % 2])


def test_labels_behind_trees_do_not_end_the_process() -> None:
    """Of LabelEncoder without a known type onnx's inference reads an address that is none."""
    tree = helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["leaf"],
        domain="ai.onnx.ml",
        n_targets=1,
        **{f"nodes_{key}": [0] for key in ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")},
        nodes_values=[0.0],
        nodes_modes=["LEAF"],
        **{f"target_{key}": [0] for key in ("treeids", "nodeids", "ids")},
        target_weights=[2.0],
    )
    names = {"keys_floats": [2.0], "values_strings": ["two"]}
    label = helper.make_node("LabelEncoder", ["leaf"], ["y"], domain="ai.onnx.ml", **names)
    port = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [7, 5])
    graph = helper.make_graph([tree, label], "g", [port], [onnx.ValueInfoProto(name="y")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 2), helper.make_opsetid("", 5)])
    assert [n.op_type for n in without_weights(made).graph.node] == ["TreeEnsembleRegressor"]
    r = simdnn.load(made).run({"x": SAMPLES}, machine="zen4", dispatch="onnxruntime")
    assert r.outputs["y"].tolist() == [["two"]] * 7


def test_nodes_within_that_inference_does_not_survive_are_left_out() -> None:
    """In the branches of an If, and in a function of the model: as those beside them."""
    read = helper.make_node("RegexFullMatch", ["text"], ["y"], pattern="a")
    branch = helper.make_graph([read], "branch", [], [onnx.ValueInfoProto(name="y")])
    nodes = [
        helper.make_node("If", ["c"], ["one"], then_branch=branch, else_branch=branch),
        helper.make_node("Reads", ["text"], ["two"], domain="mine"),
    ]
    opsets = [helper.make_opsetid("", 20)]
    functions = [helper.make_function("mine", "Reads", ["text"], ["y"], [read], opsets)]
    bare = without_weights(helper.make_model(helper.make_graph(nodes, "g", [], []), functions=functions))
    assert [node.op_type for node in bare.graph.node] == ["Reads"] and not bare.functions


def test_dictionaries_come_as_an_array_that_says_so() -> None:
    found = model("ZipMap", {"x": SAMPLES}, 1, {"classlabels_int64s": [0, 1, 2, 3, 4]})
    with pytest.warns(RuntimeWarning, match="columns are 0, 1, 2, 3, 4"):
        result = simdnn.load(found).run({"x": SAMPLES}, machine="zen4")
    np.testing.assert_array_equal(result.outputs["y0"], SAMPLES)


def test_what_is_not_known_is_named() -> None:
    table = model("DictVectorizer", {"x": SAMPLES}, 1, {})
    with pytest.raises(simdnn.Unimplemented, match="ai.onnx.ml::DictVectorizer' here. Dictionaries are no tensors"):
        simdnn.load(table).run({"x": SAMPLES}, machine="zen4")
    probit = model("LinearRegressor", {"x": SAMPLES}, 1, {"coefficients": [1.0] * 5, "post_transform": "PROBIT"})
    with pytest.raises(simdnn.Unimplemented, match="PROBIT"):
        simdnn.load(probit).run({"x": SAMPLES}, machine="zen4")
