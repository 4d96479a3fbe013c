"""Sequences of tensors: Python lists between nodes, never changed once made. Only splitting and joining moves data."""

from __future__ import annotations

from typing import Any

import numpy as np

from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.registry import axis_of, need, operator
from simdnn.networks.ops.shape import concat

Array = np.ndarray[Any, Any]
Sequence = list[Array]
#: operators that may read sequences
READERS = ("SequenceInsert", "SequenceErase", "SequenceAt", "SequenceLength", "ConcatFromSequence", "Identity", "Loop")


def _place(sequence: Sequence, position: Array | None, most: int) -> int:
    """An index from -most to most - 1, or the end."""
    if position is None:
        return len(sequence)
    index = int(position.reshape(()))
    need(-most <= index < most, f"position {index} in a sequence of {len(sequence)}")
    return index % most if index < 0 else index


def _checked(sequence: Any) -> Sequence:
    need(isinstance(sequence, list), "the first input is no sequence")
    found: Sequence = sequence
    return found


@operator("SequenceConstruct")
def sequence_construct(k: Kernels, node: Node, *parts: Array) -> Sequence:
    need(bool(parts) and len({p.dtype for p in parts}) == 1, "tensors of one type are needed")
    return list(parts)


@operator("SequenceEmpty")
def sequence_empty(k: Kernels, node: Node) -> Sequence:
    return []


@operator("SequenceInsert")
def sequence_insert(k: Kernels, node: Node, sequence: Any, tensor: Array, position: Array | None = None) -> Sequence:
    whole = _checked(sequence)
    at = len(whole) if position is None else int(position.reshape(()))
    need(-len(whole) <= at <= len(whole), f"position {at} in a sequence of {len(whole)}")
    at = at + len(whole) if at < 0 else at
    return [*whole[:at], tensor, *whole[at:]]


@operator("SequenceErase")
def sequence_erase(k: Kernels, node: Node, sequence: Any, position: Array | None = None) -> Sequence:
    whole = _checked(sequence)
    at = _place(whole, np.array(-1) if position is None else position, len(whole))
    return whole[:at] + whole[at + 1 :]


@operator("SequenceAt")
def sequence_at(k: Kernels, node: Node, sequence: Any, position: Array) -> Array:
    whole = _checked(sequence)
    return whole[_place(whole, position, len(whole))]


@operator("SequenceLength")
def sequence_length(k: Kernels, node: Node, sequence: Any) -> Array:
    return np.array(len(_checked(sequence)), np.int64)


@operator("SplitToSequence")
def split_to_sequence(k: Kernels, node: Node, x: Array, lengths: Array | None = None) -> Sequence:
    axis = axis_of(node.integer("axis", 0), x.ndim)
    if lengths is None:
        sizes = [1] * x.shape[axis]
    elif lengths.ndim:
        sizes = [int(n) for n in lengths]
    else:
        each = int(lengths)
        need(each > 0, f"parts of {each}")
        sizes = [min(each, x.shape[axis] - start) for start in range(0, x.shape[axis], each)]
    need(sum(sizes) == x.shape[axis] and min(sizes, default=0) >= 0, f"split {sizes} of a dimension of {x.shape[axis]}")
    parts = np.split(x, np.cumsum(sizes)[:-1], axis) if sizes else []
    if lengths is None and not node.integer("keepdims", 1):
        parts = [part.squeeze(axis) for part in parts]
    return [k.moved(np.ascontiguousarray(part)) for part in parts]


@operator("ConcatFromSequence")
def concat_from_sequence(k: Kernels, node: Node, sequence: Any) -> Array:
    parts = _checked(sequence)
    need(bool(parts), "an empty sequence has nothing to join")
    axis = node.integer("axis")
    if node.integer("new_axis", 0):
        at = axis_of(axis, parts[0].ndim + 1)
        parts = [np.expand_dims(part, at) for part in parts]
    found: Array = concat(k, node, *parts)
    return found
