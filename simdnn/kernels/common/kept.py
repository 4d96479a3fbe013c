"""Weights of recent products, and what kernels made of them: a product by weights that are known finds both.

What is kept is a copy that nobody changes. Whether a caller's array is the same is told by its bytes, since it may have
been changed since.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from isa_models.forks import ForkLock
from isa_models.readings.arrays import Array, copied_to_a_line, memory_bytes

_LEAST = 1 << 13  # bytes of weights that are kept: fewer are made again as fast
_MOST = 1 << 28  # bytes kept in all, on hosts that have 32 times as much
_FEW = 256  # weights, among which those of a call are looked for
_PIECE = 1 << 18  # bytes that are compared at a time

Made = Mapping[str, Array]


@dataclass
class _Known:
    """Weights, and tensors made of them by what they are made for."""

    values: Array
    made: dict[Hashable, Made] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + sum(array.nbytes for made in self.made.values() for array in made.values())


_LOCK = ForkLock()
_known: OrderedDict[int, _Known] = OrderedDict()  # by the identity of the copy, the latest at the end


def kept(weights: Array) -> Array:
    """A copy in C order that nobody changes: the one of an earlier call where the content is the same."""
    if weights.nbytes < _LEAST or not weights.flags.c_contiguous:
        return copied_to_a_line(weights)
    with _LOCK:
        like = [k.values for k in reversed(_known.values()) if _alike(k.values, weights)]
    found = next((values for values in like if _same(values, weights)), None)
    if found is None:
        found = copied_to_a_line(weights)
        found.setflags(write=False)
    with _LOCK:
        _known.setdefault(id(found), _Known(found))
        _known.move_to_end(id(found))
        _shrink()
    return found


def made_of(weights: Array, what: Hashable, make: Callable[[], Made]) -> Made:
    """Tensors that `make` makes of weights, and of nothing else: once for each `what` where the weights are `kept`."""
    with _LOCK:
        known = _known.get(id(weights))
    if known is None or known.values is not weights:
        return make()
    if (found := known.made.get(what)) is None:
        found = make()
        for array in found.values():
            array.setflags(write=False)
        with _LOCK:
            known.made[what] = found
            _shrink()
    return found


def _shrink() -> None:
    """Forget the weights that were used longest ago where there are too many. The caller holds the lock."""
    most = min(_MOST, memory_bytes() // 32)
    while len(_known) > _FEW or (_known and sum(known.nbytes for known in _known.values()) > most):
        _known.popitem(last=False)


def _alike(a: Array, b: Array) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype


def _same(a: Array, b: Array) -> bool:
    """Whether two arrays of one type and shape, both in C order, hold the same bytes."""
    ours, theirs = (array.reshape(-1).view(np.uint8) for array in (a, b))
    whole = ours.size // 8 * 8
    words, others = (array[:whole].view(np.uint64) for array in (ours, theirs))
    edges = (0, _LEAST // 8, *range(_PIECE // 8, words.size, _PIECE // 8), words.size)  # a short look first
    alike = all((words[i:j] == others[i:j]).all() for i, j in pairwise(edges))
    return alike and bool((ours[whole:] == theirs[whole:]).all())
