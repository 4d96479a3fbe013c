"""Ensembles of decision trees: ai.onnx.ml's TreeEnsembleClassifier and TreeEnsembleRegressor, and TreeEnsemble.

Each sample walks down each tree; weights of the leaves are added up in the order of trees, in f32, or in f64 of samples
in f64. As onnxruntime has it on one thread (onnxruntime/core/providers/cpu/ml/tree_ensemble_common.h and
tree_ensemble_aggregator.h). A walk branches by its data, which no program here does: its cost is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from isa_models import Unimplemented
from isa_models.readings.arrays import Array
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.classical import picked
from simdnn.networks.ops.registry import ML, need, operator
from simdnn.networks.ops.scores import (
    TRANSFORMS,
    Exponential,
    both_of_one,
    exponential_of,
    labels_of,
    transform_of,
    transformed,
)
from simdnn.networks.shadows import shadow
from simdnn.networks.types import F32

_BRANCHES: Mapping[str, Callable[[Array, Array], Any]] = {
    "BRANCH_LEQ": np.less_equal,
    "BRANCH_LT": np.less,
    "BRANCH_GTE": np.greater_equal,
    "BRANCH_GT": np.greater,
    "BRANCH_EQ": np.equal,
    "BRANCH_NEQ": np.not_equal,
}
_MEMBER = len(_BRANCHES)  # "BRANCH_MEMBER", of TreeEnsemble alone
_MODES = (*_BRANCHES, "BRANCH_MEMBER", "LEAF")
_LEAF = len(_BRANCHES) + 1
#: TreeEnsemble's numbers
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_COST = "trees branch by their data, which no program here does: what a walk costs is not modelled"


@dataclass(frozen=True)
class Ensemble:
    """Trees: an entry a node, a leaf's with mode "LEAF", and where each tree starts. Leaves give `weights` to the
    scores `ids`; `leaves` has the places of those by node, `members` sets by node.
    """

    modes: Array
    values: Array
    features: Array
    yes: Array  # the node behind a branch that is taken
    no: Array
    tracks: Array  # whether NaN takes a branch
    roots: Array
    ids: Array
    weights: Array
    leaves: Mapping[int, Sequence[int]]
    base: Array
    members: Mapping[int, Array] = field(default_factory=dict)
    truncates: bool = False  # whether big sets are asked for the whole part of a value, as onnxruntime asks

    @classmethod
    def stated(cls, node: Node, what: str) -> Ensemble:
        """The trees of an operator ahead of TreeEnsemble; leaves add weights `what`, "class" or "target"."""

        def listed(name: str, dtype: Any = np.int64) -> Array:
            tensor = node.get(f"{name}_as_tensor")
            given = node.get(name) if tensor is None else np.asarray(tensor)
            return np.asarray([] if given is None else given, dtype if tensor is None else None).reshape(-1)

        trees, places = listed("nodes_treeids"), listed("nodes_nodeids")
        count = len(trees)
        values, features = listed("nodes_values", np.float32), listed("nodes_featureids")
        modes = list(node.get("nodes_modes") or [])
        lengths = {"nodeids": len(places), "values": len(values), "featureids": len(features)}
        others = [f"nodes_{name}" for name, n in (lengths | {"modes": len(modes)}).items() if n != count]
        need(count > 0 and not others, f"{count} nodes, and others in {', '.join(others) or 'no attribute'}")
        others = sorted(set(modes) - {*_BRANCHES, "LEAF"})
        need(not others, f"nodes_modes: {others}; allowed: {', '.join(_BRANCHES)}, LEAF")
        kinds = np.array([_MODES.index(mode) for mode in modes])
        at = {key: i for i, key in enumerate(zip(trees.tolist(), places.tolist(), strict=True))}
        yes, no = (_children(trees, kinds, listed(f"nodes_{w}nodeids"), at) for w in ("true", "false"))
        tracks = listed("nodes_missing_value_tracks_true")
        roots = np.flatnonzero(np.append(True, trees[1:] != trees[:-1]))
        ids, weights = listed(f"{what}_ids"), listed(f"{what}_weights", np.float32)
        owners = list(zip(listed(f"{what}_treeids").tolist(), listed(f"{what}_nodeids").tolist(), strict=True))
        need(len(owners) == len(ids) == len(weights), f"{what}_* of different lengths")
        need(all(owner in at for owner in owners), f"{what}_nodeids that are no nodes")
        leaves: dict[int, list[int]] = {}
        for i, owner in enumerate(owners):
            leaves.setdefault(at[owner], []).append(i)
        tracks = tracks.astype(bool) if len(tracks) == count else np.zeros(count, bool)
        base = listed("base_values", np.float32)
        return cls(kinds, values, features, yes, no, tracks, roots, ids, weights, leaves, base)

    @classmethod
    def of_arrays(cls, node: Node, truncates: bool) -> Ensemble:
        """The trees of a TreeEnsemble, whose leaves have arrays of their own: they follow the entries of branches."""
        kinds = np.asarray(node.get("nodes_modes")).reshape(-1).astype(np.int64)
        splits, weights = (np.asarray(node.get(name)).reshape(-1) for name in ("nodes_splits", "leaf_weights"))
        features, ids = (np.array(node.integers(name)) for name in ("nodes_featureids", "leaf_targetids"))
        count = len(kinds)
        need(bool((kinds <= _MEMBER).all()), f"nodes_modes up to {kinds.max()}; 0 to {_MEMBER} are modes")
        need(len(splits) == len(features) == count and len(ids) == len(weights), "nodes_* or leaf_* of other lengths")

        def children(way: str) -> Array:
            to, leaf = (np.array(node.integers(f"nodes_{way}{name}")) for name in ("nodeids", "leafs"))
            need(len(to) == len(leaf) == count, f"nodes_{way}nodeids and nodes_{way}leafs of other lengths")
            most = np.where(leaf == 0, count, len(ids))
            need(bool(((to >= 0) & (to < most)).all()), f"nodes_{way}nodeids to no node")
            return np.where(leaf == 0, to, count + to)

        yes, no = children("true"), children("false")
        roots = np.array(node.integers("tree_roots"))
        need(bool(((roots >= 0) & (roots < count)).all()), "tree_roots that are no nodes")
        alone = (yes[roots] == no[roots]) & (yes[roots] >= count)  # a tree of one leaf
        tracks = np.array(node.get("nodes_missing_value_tracks_true") or [0] * count, bool)
        nothing, sets = np.zeros(len(ids), np.int64), np.asarray(node.get("membership_values", [])).reshape(-1)
        return cls(
            np.append(kinds, np.full(len(ids), _LEAF)),
            np.append(splits, nothing.astype(splits.dtype)),
            np.append(features, nothing),
            np.append(yes, nothing),
            np.append(no, nothing),
            np.append(tracks, nothing.astype(bool)),
            np.where(alone, yes[roots], roots),
            ids,
            weights,
            {count + i: [i] for i in range(len(ids))},
            np.zeros(0, np.float32),
            dict(zip(np.flatnonzero(kinds == _MEMBER).tolist(), _sets(sets), strict=False)),
            truncates,
        )

    def leaf_of(self, x: Array, root: int) -> Array:
        """The leaf of a tree that each sample comes to."""
        at, rows = np.full(len(x), root), np.arange(len(x))
        for _ in range(len(self.modes)):
            if (self.modes[at] == _LEAF).all():
                return at
            value, bound = x[rows, self.features[at]], self.values[at]
            kinds, answers = range(len(_BRANCHES)), [compare(value, bound) for compare in _BRANCHES.values()]
            taken = np.select([self.modes[at] == kind for kind in kinds], answers, False)
            taken = taken | self.tracks[at] & np.isnan(value)
            for place, members in self.members.items():
                asked = np.trunc(value) if self.truncates and _is_big(members) else value
                taken = np.where(at == place, np.isin(asked, members) | taken, taken)
            following = np.where(taken, self.yes[at], self.no[at])
            at = np.where(self.modes[at] == _LEAF, at, following)
        need(False, "a tree without an end")
        return at

    def gathered(self, x: Array, count: int, how: str = "SUM", alone: bool = False) -> tuple[Array, Array]:
        """Scores (samples, count) over all trees, and which of them any leaf gave something to. `alone`: of the weights
        that a leaf states the first alone counts, as onnxruntime has it where a regressor has one target.
        """
        need(int(self.features.max()) < x.shape[1], f"feature {self.features.max()} of {x.shape[1]}")
        need(not len(self.ids) or 0 <= self.ids.min() and self.ids.max() < count, f"ids beyond {count} scores")
        total, given = np.zeros((len(x), count), x.dtype), np.zeros((len(x), count), bool)
        for root in self.roots:
            for leaf, rows in _by_value(self.leaf_of(x, int(root))):
                for i in self.leaves.get(leaf, [])[: 1 if alone else None]:
                    to, weight = int(self.ids[i]), x.dtype.type(self.weights[i])
                    now = total[rows, to]
                    if how in ("MIN", "MAX"):
                        better = np.minimum(now, weight) if how == "MIN" else np.maximum(now, weight)
                        total[rows, to] = np.where(given[rows, to], better, weight)
                    else:
                        total[rows, to] = now + weight
                    given[rows, to] = True
        return total, given


def _children(trees: Array, kinds: Array, places: Array, at: Mapping[tuple[int, int], int]) -> Array:
    need(len(places) == len(trees), "nodes_truenodeids and nodes_falsenodeids of other lengths")
    keys = zip(trees.tolist(), places.tolist(), kinds != _LEAF, strict=True)
    found = [at.get((tree, place), -1) if branches else 0 for tree, place, branches in keys]
    need(min(found) >= 0, "a branch to no node")
    return np.array(found)


def _sets(values: Array) -> list[Array]:
    """Values between which NaN stands.

    >>> [found.tolist() for found in _sets(np.array([1, 2, np.nan, 5, np.nan]))]
    [[1.0, 2.0], [5.0]]
    """
    ends = np.flatnonzero(np.isnan(values))
    return [values[start:end] for start, end in zip([0, *(ends + 1)], ends, strict=False)]


def _is_big(members: Array) -> bool:
    """Whether onnxruntime keeps a set as such, which it else makes a chain of equalities."""
    return len(members) > 30 or bool(((members < 0) | (members > 30)).any())


def _by_value(leaves: Array) -> list[tuple[int, Array]]:
    """Each leaf with the samples that are there."""
    return [(int(leaf), np.flatnonzero(leaves == leaf)) for leaf in np.unique(leaves)]


def _samples(k: Kernels, x: Array) -> Array:
    """Samples by features, in f64 or f32."""
    need(x.ndim in (1, 2) and x.dtype.kind in "fiu", f"an input of {x.dtype}, {x.shape}; (samples, features) is needed")
    k.unknown(_COST)
    rows = x if x.ndim == 2 else x.reshape(1, -1)
    return rows if x.dtype == np.float64 else rows.astype(F32)


@operator("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(k: Kernels, node: Node, x: Array) -> Array:
    """Sums, means, least or greatest weights of the leaves, onto the base values."""
    trees, count = Ensemble.stated(node, "target"), node.integer("n_targets", 1)
    rows = _samples(k, x)
    if k.shadows(x):
        return shadow((len(rows), count), F32)
    how, kind = node.text("aggregate_function", "SUM"), transform_of(node)
    need(how in _AGGREGATES, f"aggregate_function={how!r}")
    return np.asarray(_targets(k, trees, rows, count, how, kind), F32)


@operator("TreeEnsemble", domain=ML)
def tree_ensemble(k: Kernels, node: Node, x: Array) -> Array:
    """Scores in the samples' type; numbers say how weights of leaves are joined, and how scores end."""
    trees, count = Ensemble.of_arrays(node, k.runs_models), node.integer("n_targets", 1)
    rows = _samples(k, x)
    if k.shadows(x):
        return shadow((len(rows), count), rows.dtype)
    how, kind = node.integer("aggregate_function", 1), node.integer("post_transform", 0)
    need(0 <= how < len(_AGGREGATES), f"aggregate_function={how}; 0 to {len(_AGGREGATES) - 1} are known")
    if not 0 <= kind < len(TRANSFORMS):
        raise Unimplemented(f"post_transform={kind}; 0 to {len(TRANSFORMS) - 1} work")
    return _targets(k, trees, rows, count, _AGGREGATES[how], TRANSFORMS[kind])


def _targets(k: Kernels, trees: Ensemble, rows: Array, count: int, how: str, kind: str) -> Array:
    """Scores (samples, count); one alone has no transform."""
    total, given = trees.gathered(rows, count, how, alone=count == 1)
    if how == "AVERAGE":
        total = total / total.dtype.type(len(trees.roots))
    if trees.base.size == count:
        total = total + trees.base.astype(total.dtype)
    if count == 1:
        return total
    found = np.where(given, total, 0)
    if kind == "SOFTMAX" and found.dtype == np.float64:
        return transformed(found, kind, np.exp)
    return found if kind == "NONE" else transformed(found.astype(F32), kind, exponential_of(k)).astype(rows.dtype)


@operator("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(k: Kernels, node: Node, x: Array) -> tuple[Array, Array]:
    """The label of the greatest score, and the scores, of two classes as onnxruntime tells them from one score."""
    trees, labels = Ensemble.stated(node, "class"), labels_of(node)
    rows, count, kind = _samples(k, x), len(labels), transform_of(node)
    if k.shadows(x):
        return picked(k, labels, np.zeros(len(rows), np.int64)), shadow((len(rows), count), F32)
    exp, base = exponential_of(k), trees.base.astype(rows.dtype)
    total, given = trees.gathered(rows, count)
    if count > 2:
        need(base.size in (0, count), f"{base.size} base values for {count} classes")
        if base.size:
            total, given = total + base, np.ones(given.shape, bool)
        chosen = np.argmax(np.where(given, total, -np.inf), 1)
        return picked(k, labels, chosen), transformed(np.asarray(np.where(given, total, 0), F32), kind, exp)
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
    k: Kernels,
    trees: Ensemble,
    labels: Array,
    total: Array,
    given: Array,
    kind: str,
    exp: Exponential,
    alone: bool,
) -> tuple[Array, Array]:
    """Labels and scores of two classes. Where leaves of one class alone are in the trees, the first label is one of
    the node's, else 0 or 1 in place of numbers. `alone`: a first score without a second tells both.
    """
    one_class, positive = np.unique(trees.ids).size == 1, bool((trees.weights >= 0).all())
    weight = np.where(given[:, 1], total[:, 1], np.where(given[:, 0], total[:, 0], 0))
    chosen = (weight > (0.5 if one_class and positive else 0)).astype(np.int64)
    if not one_class and labels.dtype.kind != "O":
        labels = np.array([0, 1], np.int64)
    found = transformed(np.asarray(np.where(given, total, 0), F32), kind, exp)
    single = ~given[:, 1] & alone
    if single.any():
        if not one_class and trees.base.size:
            raise Unimplemented(
                "samples whose leaves give a score to the first class alone, beside a base value, while others give "
                "one to the second: onnxruntime leaves the second score undefined; two base values work"
            )
        pair = both_of_one(total[:, 0], kind, exp, one_class and positive)
        found = np.where(single[:, None], pair, found)
    return picked(k, labels, chosen), np.asarray(found, F32)
