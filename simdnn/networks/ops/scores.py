"""Scores of classifiers and regressors as onnxruntime's operators of ai.onnx.ml finish them, one sample a row.

Read in onnxruntime/core/providers/cpu/ml/ml_common.h. Functions are f32's, step by step; e**x is the library's where
one is followed, else NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from isa_models import InvalidArgument, Unimplemented
from isa_models.readings.arrays import Array
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.reduction import softmax_kernel
from simdnn.networks.ops.registry import need
from simdnn.networks.types import F32

Exponential = Callable[[Array], Array]
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")


def exponential_of(k: Kernels) -> Exponential:
    """The library's e**x, or NumPy's."""
    library = k.target.library
    lines = library.lines if library is not None and k.runs_models else None
    return np.exp if lines is None else lines.exponential


def transform_of(node: Node) -> str:
    """A node's `post_transform`."""
    kind = node.text("post_transform", "NONE")
    if kind == "PROBIT":
        raise Unimplemented(f"post_transform={kind!r}; {', '.join(TRANSFORMS)} work")
    if kind not in TRANSFORMS:
        raise InvalidArgument(f"post_transform={kind!r}; ONNX defines {', '.join(TRANSFORMS)}, PROBIT")
    return kind


def logistic(x: Array, exp: Exponential) -> Array:
    """1 / (1 + e**-x), of negative x 1 minus that of -x."""
    share = np.float32(1) / (np.float32(1) + exp(-np.abs(x)))
    return np.asarray(np.where(x < 0, np.float32(1) - share, share), F32)


def softmax(x: Array, exp: Exponential, skips_zeros: bool = False) -> Array:
    """Powers of rows by their sums, added up in turn; with `skips_zeros` what is next to zero stays there."""
    top = x.max(1, keepdims=True)
    zero = np.abs(x) <= np.float32(1e-7) if skips_zeros else np.zeros(x.shape, bool)
    powers = np.where(zero, x * exp(-top) if skips_zeros else x, exp(x - top))
    total = np.zeros((len(x), 1), x.dtype)
    for i in range(x.shape[1]):
        total = total + np.where(zero[:, i : i + 1], np.float32(0), powers[:, i : i + 1])
    return np.asarray(powers / total, x.dtype)


def transformed(x: Array, kind: str, exp: Exponential) -> Array:
    """Two scores a row or more after a transform."""
    if kind == "NONE":
        return x
    return logistic(x, exp) if kind == "LOGISTIC" else softmax(x, exp, kind == "SOFTMAX_ZERO")


def finished(k: Kernels, scores: Array, kind: str) -> Array:
    """Scores of two classes and more after a transform, of linear models and support vectors."""
    if kind == "NONE":
        return scores
    library = k.target.library
    if kind == "LOGISTIC" and library is not None and k.runs_models:
        return k.map(library.functions["Sigmoid"], scores, name="sigmoid")
    if kind == "SOFTMAX" and scores.shape[1] > 4 and library is not None and k.runs_models:
        return softmax_kernel(k, scores, 1)
    return k.plain(transformed(scores, kind, exponential_of(k)), scores, steps=12)


def both_of_one(score: Array, kind: str, exp: Exponential, shares: bool) -> Array:
    """Two scores from one (rows,): both through a sigmoid, or 1 minus it beside a share, else its negative."""
    if kind == "LOGISTIC":
        score = score.astype(F32)
        return np.stack([logistic(-score, exp), logistic(score, exp)], 1)
    return np.stack([score.dtype.type(1) - score if shares else -score, score], 1)


def labels_of(node: Node) -> Array:
    """The labels of a classifier's classes."""
    numbers, names = node.get("classlabels_int64s") or node.get("classlabels_ints"), node.get("classlabels_strings")
    need(bool(numbers or names), "no class labels")
    return np.array(numbers, np.int64) if numbers else np.array(names, object)
