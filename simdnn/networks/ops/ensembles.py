"""Ensembles of decision trees: ai.onnx.ml's TreeEnsembleClassifier and TreeEnsembleRegressor.

Each sample walks down each tree; weights of the leaves are added up in the order of trees, in f32, or in f64 of samples
in f64. As onnxruntime has it on one thread (onnxruntime/core/providers/cpu/ml/tree_ensemble_common.h and
tree_ensemble_aggregator.h). A walk branches by its data, which no program here does: its cost is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from isa_models import Unimplemented
from isa_models.readings.arrays import Array
from simdnn.networks.kernels import Kernels, shadow
from simdnn.networks.model import Node
from simdnn.networks.ops import scores as s
from simdnn.networks.ops.classical import ML, picked
from simdnn.networks.ops.registry import need, operator

_BRANCHES: Mapping[str, Callable[[Array, Array], Any]] = {
    "BRANCH_LEQ": np.less_equal,
    "BRANCH_LT": np.less,
    "BRANCH_GTE": np.greater_equal,
    "BRANCH_GT": np.greater,
    "BRANCH_EQ": np.equal,
    "BRANCH_NEQ": np.not_equal,
}
_MODES = (*_BRANCHES, "LEAF")
_COST = "trees branch by their data, which no program here does: what a walk costs is not modelled"


class Ensemble:
    """Trees as a node has them; leaves add weights `what` ("class" or "target") to scores by their ids."""

    def __init__(self, node: Node, what: str) -> None:
        def listed(name: str, dtype: Any = np.int64) -> Array:
            tensor = node.get(f"{name}_as_tensor")
            given = node.get(name) if tensor is None else np.asarray(tensor)
            return np.asarray([] if given is None else given, dtype if tensor is None else None).reshape(-1)

        self.trees, places = listed("nodes_treeids"), listed("nodes_nodeids")
        count = len(self.trees)
        self.values = listed("nodes_values", np.float32)
        self.features = listed("nodes_featureids")
        modes = list(node.get("nodes_modes") or [])
        lengths = {"nodeids": len(places), "values": len(self.values), "featureids": len(self.features)}
        others = [f"nodes_{name}" for name, n in (lengths | {"modes": len(modes)}).items() if n != count]
        need(count > 0 and not others, f"{count} nodes, and others in {', '.join(others) or 'no attribute'}")
        need(set(modes) <= set(_MODES), f"nodes_modes: {set(modes) - set(_MODES)}; allowed: {', '.join(_MODES)}")
        self.modes = np.array([_MODES.index(mode) for mode in modes])
        at = {key: i for i, key in enumerate(zip(self.trees.tolist(), places.tolist(), strict=True))}
        self.yes, self.no = (self._children(listed(f"nodes_{w}nodeids"), at) for w in ("true", "false"))
        tracks = listed("nodes_missing_value_tracks_true")
        self.tracks = tracks.astype(bool) if len(tracks) == count else np.zeros(count, bool)
        self.roots = np.flatnonzero(np.append(True, self.trees[1:] != self.trees[:-1]))
        self.ids, weights = listed(f"{what}_ids"), listed(f"{what}_weights", np.float32)
        owners = list(zip(listed(f"{what}_treeids").tolist(), listed(f"{what}_nodeids").tolist(), strict=True))
        need(len(owners) == len(self.ids) == len(weights), f"{what}_* of different lengths")
        need(all(owner in at for owner in owners), f"{what}_nodeids that are no nodes")
        self.weights = weights
        self.leaves: dict[int, list[int]] = {}
        for i, owner in enumerate(owners):
            self.leaves.setdefault(at[owner], []).append(i)
        self.base = listed("base_values", np.float32)

    def _children(self, places: Array, at: Mapping[tuple[int, int], int]) -> Array:
        need(len(places) == len(self.trees), "nodes_truenodeids and nodes_falsenodeids of other lengths")
        inner = self.modes != _MODES.index("LEAF")
        keys = zip(self.trees.tolist(), places.tolist(), inner, strict=True)
        found = [at.get((tree, place), -1) if branches else 0 for tree, place, branches in keys]
        need(min(found) >= 0, "a branch to no node")
        return np.array(found)

    def leaf_of(self, x: Array, root: int) -> Array:
        """The leaf of a tree that each sample comes to."""
        at, rows = np.full(len(x), root), np.arange(len(x))
        for _ in range(len(self.trees)):
            if (self.modes[at] == _MODES.index("LEAF")).all():
                return at
            value, bound = x[rows, self.features[at]], self.values[at]
            kinds, answers = range(len(_BRANCHES)), [compare(value, bound) for compare in _BRANCHES.values()]
            taken = np.select([self.modes[at] == kind for kind in kinds], answers, False)
            taken = taken | self.tracks[at] & np.isnan(value)
            following = np.where(taken, self.yes[at], self.no[at])
            at = np.where(self.modes[at] == _MODES.index("LEAF"), at, following)
        need(False, "a tree without an end")
        return at

    def gathered(self, x: Array, count: int, how: str = "SUM") -> tuple[Array, Array]:
        """Scores (samples, count) over all trees, and which of them any leaf gave something to."""
        need(int(self.features.max()) < x.shape[1], f"feature {self.features.max()} of {x.shape[1]}")
        need(not len(self.ids) or 0 <= self.ids.min() and self.ids.max() < count, f"ids beyond {count} scores")
        total, given = np.zeros((len(x), count), x.dtype), np.zeros((len(x), count), bool)
        for root in self.roots:
            for leaf, rows in _by_value(self.leaf_of(x, int(root))):
                for i in self.leaves.get(leaf, []):
                    to, weight = int(self.ids[i]), x.dtype.type(self.weights[i])
                    now = total[rows, to]
                    if how in ("MIN", "MAX"):
                        better = np.minimum(now, weight) if how == "MIN" else np.maximum(now, weight)
                        total[rows, to] = np.where(given[rows, to], better, weight)
                    else:
                        total[rows, to] = now + weight
                    given[rows, to] = True
        return total, given


def _by_value(leaves: Array) -> list[tuple[int, Array]]:
    """Each leaf with the samples that are there."""
    return [(int(leaf), np.flatnonzero(leaves == leaf)) for leaf in np.unique(leaves)]


def _samples(k: Kernels, x: Array) -> Array:
    """Samples by features, in f64 or f32."""
    need(x.ndim in (1, 2) and x.dtype.kind in "fiu", f"an input of {x.dtype}, {x.shape}; (samples, features) is needed")
    k.unknown(_COST)
    rows = x if x.ndim == 2 else x.reshape(1, -1)
    return rows if x.dtype == np.float64 else rows.astype(s.F32)


@operator("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(k: Kernels, node: Node, x: Array) -> Array:
    """Sums, means, least or greatest weights of the leaves, onto the base values."""
    trees, count = Ensemble(node, "target"), node.integer("n_targets", 1)
    rows = _samples(k, x)
    if k.shadows(x):
        return shadow((len(rows), count), s.F32)
    how, kind = node.text("aggregate_function", "SUM"), s.transform_of(node)
    need(how in ("SUM", "AVERAGE", "MIN", "MAX"), f"aggregate_function={how!r}")
    total, given = trees.gathered(rows, count, how)
    if how == "AVERAGE":
        total = total / total.dtype.type(len(trees.roots))
    if trees.base.size == count:
        total = total + trees.base.astype(total.dtype)
    if count == 1:
        return np.asarray(total, s.F32)
    return s.transformed(np.asarray(np.where(given, total, 0), s.F32), kind, s.exponential_of(k))


@operator("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(k: Kernels, node: Node, x: Array) -> tuple[Array, Array]:
    """The label of the greatest score, and the scores, of two classes as onnxruntime tells them from one score."""
    trees, labels = Ensemble(node, "class"), s.labels_of(node)
    rows, count, kind = _samples(k, x), len(labels), s.transform_of(node)
    if k.shadows(x):
        return picked(k, labels, np.zeros(len(rows), np.int64)), shadow((len(rows), count), s.F32)
    exp, base = s.exponential_of(k), trees.base.astype(rows.dtype)
    total, given = trees.gathered(rows, count)
    if count > 2:
        need(base.size in (0, count), f"{base.size} base values for {count} classes")
        if base.size:
            total, given = total + base, np.ones(given.shape, bool)
        chosen = np.argmax(np.where(given, total, -np.inf), 1)
        return picked(k, labels, chosen), s.transformed(np.asarray(np.where(given, total, 0), s.F32), kind, exp)
    need(count == 2, "one class; two and more work")
    return _of_two(k, trees, labels, _with_base(total, given, base), given, kind, exp, alone=base.size < 2)


def _with_base(total: Array, given: Array, base: Array) -> Array:
    """Scores of two classes onto base values: the second's, where leaves gave one, is taken from the first's sum."""
    if base.size == 2:
        second = base[1] + total[:, 0]
        both = np.stack([-second, second], 1)
        return np.asarray(np.where(given[:, 1:], both, total + base))
    return total if not base.size else np.stack([total[:, 0] + base[0], total[:, 1]], 1)


def _of_two(
    k: Kernels, trees: Ensemble, labels: Array, total: Array, given: Array, kind: str, exp: s.Exponential, alone: bool
) -> tuple[Array, Array]:
    """Labels and scores of two classes. Where leaves of one class alone are in the trees, the first label is one of
    the node's, else 0 or 1 in place of numbers. `alone`: a first score without a second tells both.
    """
    one_class, positive = np.unique(trees.ids).size == 1, bool((trees.weights >= 0).all())
    weight = np.where(given[:, 1], total[:, 1], np.where(given[:, 0], total[:, 0], 0))
    chosen = (weight > (0.5 if one_class and positive else 0)).astype(np.int64)
    if not one_class and labels.dtype.kind != "O":
        labels = np.array([0, 1], np.int64)
    found = s.transformed(np.asarray(np.where(given, total, 0), s.F32), kind, exp)
    single = ~given[:, 1] & alone
    if single.any():
        if not one_class and trees.base.size:
            raise Unimplemented(
                "samples whose leaves give a score to the first class alone, beside a base value, while others give "
                "one to the second: onnxruntime leaves the second score undefined; two base values work"
            )
        pair = s.both_of_one(total[:, 0], kind, exp, one_class and positive)
        found = np.where(single[:, None], pair, found)
    return picked(k, labels, chosen), np.asarray(found, s.F32)
