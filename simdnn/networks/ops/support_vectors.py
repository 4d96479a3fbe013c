"""Support vector machines: ai.onnx.ml's SVMClassifier and SVMRegressor, as onnxruntime has them
(onnxruntime/core/providers/cpu/ml/svmclassifier.cc, svmclassifier.h and svmregressor.cc).

Products with support vectors are kernels of the machine; distances, powers and votes have an estimated cost.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.kernels.common import functions as f
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.classical import matrix, picked
from simdnn.networks.ops.elementwise import computed, formula_of, lines_of, raised
from simdnn.networks.ops.linear import in_parts, products
from simdnn.networks.ops.registry import ML, need, operator
from simdnn.networks.ops.scores import (
    Exponential,
    both_of_one,
    exponential_of,
    finished,
    labels_of,
    logistic,
    transform_of,
)
from simdnn.networks.shadows import shadow
from simdnn.networks.types import F32

_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
_MOST_TURNS = 100  # of the search for probabilities of several classes


def _floats(node: Node, name: str) -> Array:
    return np.array(node.get(name) or [], F32)


def _kernel_values(k: Kernels, node: Node, x: Array, vectors: Array, kind: str, rho: float = 0.0) -> Array:
    """The kernel of each sample (M, K) with each vector (N, K)."""
    parameters = _floats(node, "kernel_params")
    need(kind in _KERNELS, f"kernel_type={kind!r}; allowed: {', '.join(_KERNELS)}")
    need(vectors.shape[1] == x.shape[1], f"vectors of {vectors.shape[1]} features for {x.shape[1]}")
    gamma, offset, degree = (*parameters[:3], *np.zeros(3, F32))[:3]
    if kind == "RBF":
        return _radial(k, x, vectors, gamma)
    alpha, first = (1.0, rho) if kind == "LINEAR" else (float(gamma), float(offset))
    shape = (len(x), len(vectors))
    if k.runs_models:
        given = replace(k, constant_weights=False, transposed=("wei",), followed="")
        found = in_parts(given, x, vectors.T, alpha, np.full(shape, first, F32) if first else None)
    else:
        scaled = products(k, x, np.ascontiguousarray(vectors.T))
        found = k.map(lambda v: v * alpha + first, scaled, name="add")
    if kind == "POLY":
        if degree not in (2, 3):
            if (lines := lines_of(k, found)) is None:
                return raised(k, found, np.asarray(degree, F32))
            return k.plain(lines.of_elements("degree", found, degree) if k.values else found, found, steps=30)
        return k.map(lambda v: v * v if degree == 2 else v * v * v, found, name="power")
    if kind == "SIGMOID":
        return computed(k, "tanh", formula_of(k, "Tanh", f.tanh), found, steps=12)
    return found


def _radial(k: Kernels, x: Array, vectors: Array, gamma: np.float32) -> Array:
    """e**(-gamma * |x - v|**2), squares added up in turn."""
    shape = (len(x), len(vectors))
    if not k.values:
        return k.plain(shadow(shape, F32), x, vectors, steps=2 * x.shape[1] + 8)
    total = np.zeros(shape, F32)
    for i in range(x.shape[1]):
        apart = x[:, None, i] - vectors[None, :, i]
        total = total + apart * apart
    return k.plain(np.asarray(exponential_of(k)(-gamma * total), F32), x, vectors, steps=2 * x.shape[1] + 8)


@operator("SVMRegressor", domain=ML)
def svm_regressor(k: Kernels, node: Node, x: Array) -> Array:
    """Kernels with support vectors times coefficients, or a linear model without any; of one class its sign."""
    rows, count = matrix(k, x), node.integer("n_supports", 0)
    coefficients, rho = _floats(node, "coefficients"), _floats(node, "rho")
    need(coefficients.size > 0 and rho.size > 0, "no coefficients or rho")
    if count:
        vectors = _floats(node, "support_vectors").reshape(count, -1)
        values = _kernel_values(k, node, rows, vectors, node.text("kernel_type", "LINEAR"))
        found = _kernel_values(k, node, values, coefficients.reshape(1, -1), "LINEAR", float(rho[0]))
    else:
        found = _kernel_values(k, node, rows, coefficients.reshape(1, -1), "LINEAR", float(rho[0]))
    if not node.integer("one_class", 0):
        return found
    return k.plain(np.where(found > 0, np.float32(1), np.float32(-1)), found)


@operator("SVMClassifier", domain=ML)
def svm_classifier(k: Kernels, node: Node, x: Array) -> tuple[Array, Array]:
    """The class with most votes of pairs of classes, and scores of pairs, or probabilities of classes where the node
    has them. Without support vectors a linear model: the class of the greatest score.
    """
    labels, kind = labels_of(node), transform_of(node)
    rows, counts = matrix(k, x), [int(n) for n in node.get("vectors_per_class") or []]
    coefficients, rho = _floats(node, "coefficients"), _floats(node, "rho")
    classes = len(labels)
    pairs = classes * (classes - 1) // 2
    likely = _floats(node, "prob_a"), _floats(node, "prob_b")
    if not sum(counts):
        scores = _kernel_values(k, node, rows, coefficients.reshape(classes, -1), "LINEAR", float(rho[0]))
        chosen = np.argmax(scores, 1)
        if classes == 2:
            weight = scores.max(1)
            above = weight >= 0.5 if (coefficients >= 0).all() else weight > 0
            chosen = np.where(above, 1, chosen)
        return picked(k, labels, chosen), finished(k, scores, kind)
    need(len(counts) == classes and rho.size >= pairs, f"{len(counts)} classes with vectors, {rho.size} rho")
    vectors = _floats(node, "support_vectors").reshape(sum(counts), -1)
    values = _kernel_values(k, node, rows, vectors, node.text("kernel_type", "LINEAR"))
    if k.shadows(x):
        width = classes if likely[0].size else max(pairs, 2)
        return picked(k, labels, np.zeros(len(rows), np.int64)), shadow((len(rows), width), F32)
    scores, votes = _pairs(values, coefficients.reshape(classes - 1, -1), rho, counts)
    k.plain(scores, values, steps=2 * sum(counts))
    chosen = np.argmax(votes, 1)
    if likely[0].size:
        scores = _probabilities(scores, *likely, classes, exponential_of(k))
    elif classes == 2:
        found = both_of_one(scores[:, 0], "NONE", exponential_of(k), kind != "NONE")
        return picked(k, labels, chosen), k.plain(found, scores)
    return picked(k, labels, chosen), finished(k, scores, kind)


def _pairs(values: Array, coefficients: Array, rho: Array, counts: list[int]) -> tuple[Array, Array]:
    """Scores of all pairs of classes, sums in f64 of products in f32, and votes for each class."""
    starts = np.concatenate([[0], np.cumsum(counts)])
    votes = np.zeros((len(values), len(counts)), np.int64)
    scores: list[Array] = []
    for i, j in combinations(range(len(counts)), 2):
        total = np.zeros(len(values))
        for row, of in ((j - 1, i), (i, j)):
            for at in range(starts[of], starts[of + 1]):
                total = total + coefficients[row, at] * values[:, at]
        total = total + rho[len(scores)]
        scores.append(total.astype(F32))
        votes[:, i] += total > 0
        votes[:, j] += total <= 0
    return np.stack(scores, 1), votes


def _probabilities(scores: Array, a: Array, b: Array, classes: int, exp: Exponential) -> Array:
    """Probabilities of classes from those of their pairs (Wu, Lin and Weng, 2004), as libsvm finds them, in f32."""
    one = np.float32(1)
    share = one - logistic(scores * a + b, exp)
    share = np.minimum(np.maximum(share, np.float32(1e-7)), one - np.float32(1e-7))
    r = np.zeros((len(scores), classes, classes), F32)
    for index, (i, j) in enumerate(combinations(range(classes), 2)):
        r[:, i, j], r[:, j, i] = share[:, index], one - share[:, index]
    q = np.zeros_like(r)
    for i in range(classes):
        for j in (n for n in range(classes) if n != i):
            q[:, i, i] = q[:, i, i] + r[:, j, i] * r[:, j, i]
            q[:, i, j] = q[:, j, i] if j < i else -r[:, j, i] * r[:, i, j]
    p, epsilon = np.full((len(scores), classes), one / np.float32(classes)), np.float32(0.005) / np.float32(classes)
    open_ = np.ones(len(scores), bool)
    for _ in range(_MOST_TURNS):
        products_, whole = _weighted(q, p)
        open_ = open_ & (np.abs(products_ - whole[:, None]).max(1) >= epsilon)
        if not open_.any():
            break
        p = np.where(open_[:, None], _turned(q, p, products_, whole), p)
    return p


def _weighted(q: Array, p: Array) -> tuple[Array, Array]:
    """q times p, and p times that, in turn."""
    found, whole = np.zeros_like(p), np.zeros(len(p), F32)
    for i in range(p.shape[1]):
        for j in range(p.shape[1]):
            found[:, i] = found[:, i] + q[:, i, j] * p[:, j]
        whole = whole + p[:, i] * found[:, i]
    return found, whole


def _turned(q: Array, p: Array, products_: Array, whole: Array) -> Array:
    """One turn of the search."""
    p, products_, one = p.copy(), products_.copy(), np.float32(1)
    for i in range(p.shape[1]):
        step = (-products_[:, i] + whole) / q[:, i, i]
        p[:, i] = p[:, i] + step
        whole = (whole + step * (step * q[:, i, i] + np.float32(2) * products_[:, i])) / (one + step) / (one + step)
        products_ = (products_ + step[:, None] * q[:, i]) / (one + step)[:, None]
        p = p / (one + step)[:, None]
    return p
