"""Operators of the domain ai.onnx.ml, which exporters of scikit-learn write: scaling, linear models, labels.

What they compute is stated by ONNX (docs/Operators-ml.md); where that leaves a choice, they follow onnxruntime's CPU
kernels, which the tests run beside these. Ensembles of trees and support vectors are `ensembles`, `support_vectors`.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from isa_models import InvalidArgument
from isa_models.errors import counted
from isa_models.readings.arrays import Array
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.linear import converted, in_parts, products
from simdnn.networks.ops.registry import ML, need, operator
from simdnn.networks.ops.scores import both_of_one, exponential_of, finished, transform_of
from simdnn.networks.ops.shape import concat, ints, view
from simdnn.networks.types import F32, label

_KERNEL_TYPES = ("f32", "f16", "bf16", "s32", "u8", "s8")


def _floats(k: Kernels, x: Array) -> Array:
    """Any numbers as f32, the type that these operators give."""
    if label(x.dtype) in _KERNEL_TYPES:
        return converted(k, x, F32)
    need(x.dtype.kind in "fiub", f"an input of {label(x.dtype)}; numbers are needed")
    return k.plain(x.astype(F32), x)


def _row(node: Node, name: str, count: int, default: float) -> Array:
    """An attribute's numbers, one for all `count` features or one for each."""
    values = np.array(node.get(name, [default]), F32)
    need(values.size in (1, count), f"{name} has {values.size} numbers for {count} features")
    return values


def matrix(k: Kernels, x: Array) -> Array:
    """Samples by features; one sample may come as a vector."""
    need(x.ndim in (1, 2), f"an input of shape {x.shape}; (samples, features) is needed")
    return _floats(k, x if x.ndim == 2 else view(k, x, (1, x.size)))


# -- features ---------------------------------------------------------------------------------------------------------
@operator("Scaler", domain=ML)
def scaler(k: Kernels, node: Node, x: Array) -> Array:
    """(x - offset) * scale, each one number or one a feature."""
    offset, scale = (_row(node, name, x.shape[-1] if x.ndim else 1, v) for name, v in (("offset", 0), ("scale", 1)))
    return k.map(lambda v, o, f: (v - o) * f, _floats(k, x), offset, scale, name="scaler")


@operator("Normalizer", domain=ML)
def normalizer(k: Kernels, node: Node, x: Array) -> Array:
    """Each sample divided by its norm; a sample of norm 0 stays. "MAX" is the greatest value, not the greatest size."""
    norm = node.text("norm", "MAX")
    kinds = {"MAX": "max", "L1": "sum_abs", "L2": "sum_square"}
    need(norm in kinds, f"norm={norm!r}; allowed: {', '.join(kinds)}")
    rows = matrix(k, x)
    size = k.reduce(kinds[norm], rows, [1])
    size = k.map(lambda v: v.sqrt(), size, name="sqrt") if norm == "L2" else size
    divisor = k.plain(np.where(size == 0, np.float32(1), size), size)
    of_library = (lambda: _shares(x.reshape(rows.shape), norm)) if k.runs_models else None
    found = k.map(lambda v, d: v / d, rows, divisor, name="div", values=of_library)
    return view(k, found, x.shape)


def _shares(x: Array, norm: str) -> Array:
    """Samples by their norm as onnxruntime's loops have it (ml/normalizer.cc): sums in f32, one feature after the
    other; "L2" is the root of each square's share, with the feature's sign.
    """
    size = np.asarray({"MAX": x, "L1": np.abs(x), "L2": x * x}[norm], F32)
    total = size.max(1, keepdims=True) if norm == "MAX" else np.add.accumulate(size, 1)[:, -1:]
    with np.errstate(all="ignore"):
        root = np.sqrt(size / total)
        found = np.where(x < 0, -root, root) if norm == "L2" else x.astype(F32) / total
    return np.asarray(np.where(total == 0, x, found), F32)


@operator("Binarizer", domain=ML)
def binarizer(k: Kernels, node: Node, x: Array) -> Array:
    """1 above the threshold, else 0."""
    return k.plain((x > node.number("threshold", 0.0)).astype(x.dtype), x)


@operator("Imputer", domain=ML)
def imputer(k: Kernels, node: Node, x: Array) -> Array:
    """Values that stand for a missing one replaced, by one number or one a feature."""
    whole = x.dtype.kind in "iu"
    kind = "int64" if whole else "float"
    values, missing = np.array(node.get(f"imputed_value_{kind}s", []), x.dtype), node.get(f"replaced_value_{kind}", 0)
    need(values.size in (1, x.shape[-1]), f"{values.size} imputed values for {x.shape[-1]} features")
    where = np.isnan(x) if not whole and np.isnan(missing) else x == missing
    return k.plain(np.where(where, values, x), x)


@operator("FeatureVectorizer", domain=ML)
def feature_vectorizer(k: Kernels, node: Node, *parts: Array) -> Array:
    """The features of several inputs side by side, as f32."""
    rows = [_floats(k, view(k, p, (len(p), p.size // max(1, len(p))) if p.ndim > 1 else (1, p.size))) for p in parts]
    wanted = node.get("inputdimensions")
    if wanted is not None:
        need(list(wanted) == [r.shape[1] for r in rows], f"inputdimensions {wanted} for {[r.shape[1] for r in rows]}")
    return concat(k, Node(node.name, "Concat", "", 13, (), (), {"axis": 1}), *rows)


@operator("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(k: Kernels, node: Node, x: Array, places: Array) -> Array:
    """Features by their indices, along the last axis; a vector counts as one row."""
    need(x.ndim > 0, "a scalar has no features")
    at = np.array(ints(places.reshape(-1), "indices"))
    need(bool(at.size) and 0 <= at.min() and at.max() < x.shape[-1], f"indices for {x.shape[-1]} features: {at[:8]}")
    return picked(k, x if x.ndim > 1 else x[None, :], at)


@operator("OneHotEncoder", domain=ML)
def one_hot_encoder(k: Kernels, node: Node, x: Array) -> Array:
    """For each value a row with 1 at its category; a value outside gives zeros where `zeros` allows it."""
    cats = node.get("cats_strings" if x.dtype.kind == "O" else "cats_int64s")
    need(bool(cats), "no categories of the input's type")
    hot = x[..., None] == np.array(cats, object if x.dtype.kind == "O" else np.int64)
    need(bool(node.integer("zeros", 1)) or bool(hot.any(-1).all()), "a value is in no category, and zeros=0")
    return k.plain(hot.astype(F32), x, steps=1)


def picked(k: Kernels, x: Array, at: Array) -> Array:
    """Entries along the last axis by their indices; of text, only its addresses of 8 bytes are moved."""
    found = np.ascontiguousarray(x[..., at])
    k.moved(np.zeros(found.shape, np.int64) if x.dtype.kind == "O" else found, 1)
    return found


# -- labels -----------------------------------------------------------------------------------------------------------
_LABELS = {  # type, default of values, and who says another
    "strings": (object, "_Unused", "default_string"),
    "int64s": (np.int64, -1, "default_int64"),
    "floats": (np.float32, -0.0, "default_float"),
}


@operator("LabelEncoder", domain=ML)
def label_encoder(k: Kernels, node: Node, x: Array) -> Array:
    """One value for another by a table; what the table lacks becomes the default."""
    keys, _, _ = _table(node, "keys")
    values, dtype, default = _table(node, "values")
    need(len(keys) == len(values), f"{counted(len(keys), 'key')} and {counted(len(values), 'value')}")
    known = dict(zip(keys, values, strict=True))
    of_nan = next((value for key, value in known.items() if key != key), default)  # NaN equals no key, itself included
    found = [of_nan if v != v else known.get(v, default) for v in x.reshape(-1).tolist()]
    k.plain(np.zeros(x.shape, np.int64), *([] if x.dtype.kind == "O" else [x]))
    return np.array(found, dtype).reshape(x.shape)


def _table(node: Node, what: str) -> tuple[list[Any], Any, Any]:
    """The entries of a table, their NumPy type, and the default of values of that type."""
    if (tensor := node.get(f"{what}_tensor")) is not None:
        entries = np.asarray(tensor).reshape(-1)
        default = node.get("default_tensor")
        of_type = 0 if entries.dtype.kind in "iuf" else "_Unused"
        return entries.tolist(), entries.dtype, of_type if default is None else np.asarray(default).reshape(-1)[0]
    for kind, (dtype, default, named) in _LABELS.items():
        if (found := node.get(f"{what}_{kind}")) is not None:
            listed = [np.float32(v).item() for v in found] if kind == "floats" else list(found)
            return listed, dtype, node.get(named, default)
    raise InvalidArgument(
        f"{what}: no table; {', '.join(f'{what}_{kind}' for kind in _LABELS)} or {what}_tensor has it"
    )


@operator("ZipMap", domain=ML)
def zip_map(k: Kernels, node: Node, x: Array) -> Array:
    """The probabilities as they come in, one column a class, where onnxruntime gives a list of dictionaries."""
    names = node.get("classlabels_int64s") or node.get("classlabels_strings") or []
    shown = ", ".join(map(str, names[:5])) + (", …" if len(names) > 5 else "")
    warnings.warn(f"{node} gives one array instead of dictionaries; its columns are {shown}", RuntimeWarning, 2)
    return x


# -- linear models ----------------------------------------------------------------------------------------------------
def _scores(k: Kernels, node: Node, x: Array, count: int) -> Array:
    """x times the coefficients of `count` targets, plus the intercepts, in f32."""
    rows = matrix(k, x)
    weights = np.array(node.get("coefficients", []), F32)
    need(
        weights.size == count * rows.shape[1], f"{weights.size} coefficients, {count} targets, {rows.shape[1]} features"
    )
    intercepts = np.array(node.get("intercepts") or np.zeros(count), F32)
    need(intercepts.size == count, f"{intercepts.size} intercepts for {count} targets")
    by_target = weights.reshape(count, -1).T
    if k.runs_models:
        given = replace(k, constant_weights=False, transposed=("wei",), followed="")
        return in_parts(given, rows, by_target, 1.0, np.broadcast_to(intercepts, (len(rows), count)).copy())
    return products(k, rows, np.ascontiguousarray(by_target), intercepts)


@operator("LinearRegressor", domain=ML)
def linear_regressor(k: Kernels, node: Node, x: Array) -> Array:
    """Scores of targets; one alone has no transform, as onnxruntime has it."""
    kind, scores = transform_of(node), _scores(k, node, x, node.integer("targets", 1))
    return finished(k, scores, kind) if scores.shape[1] > 1 else scores


@operator("LinearClassifier", domain=ML)
def linear_classifier(k: Kernels, node: Node, x: Array) -> tuple[Array, Array]:
    """The label of the greatest score, and the scores. One score for two classes is the second's."""
    names = node.get("classlabels_ints") or node.get("classlabels_strings")
    need(bool(names), "no class labels")
    count = len(node.get("intercepts") or ()) or len(names)
    scores = _scores(k, node, x, count)
    if count == 1 and len(names) == 2:
        chosen = (scores[:, 0] > 0).astype(np.int64)
        scores = k.plain(both_of_one(scores[:, 0], transform_of(node), exponential_of(k), True), scores)
    else:
        need(count == len(names), f"{count} scores and {len(names)} labels")
        chosen = np.argmax(scores, 1)
        scores = finished(k, scores, transform_of(node))
    table = np.array(names, np.int64 if node.get("classlabels_ints") else object)
    k.plain(chosen, scores)  # the search for the greatest
    return picked(k, table, chosen), scores
