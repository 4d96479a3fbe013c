"""Weights that products met twice, and what kernels made of them: the next product with the same weights finds both.

What is kept is a copy that nobody changes. Whether a caller's array is the same is told by its bytes, since it may have
been changed since.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from isa_models.forks import ForkLock
from isa_models.readings.arrays import Array, copied_to_a_line, memory_bytes

_LEAST = 1 << 16  # bytes of weights that are kept: fewer are made again as fast
_MOST = 1 << 31  # bytes kept in all, or fewer: a process on each core keeps a quarter of the memory together
_FEW = 1024  # weights that are remembered as met
_PIECE = 1 << 18  # bytes that are compared at a time
_ENDS, _BETWEEN = 256, 64  # bytes of weights by which they are looked up

Made = Mapping[str, Array]
_Look = tuple[tuple[int, ...], np.dtype[Any], bytes]


@dataclass
class _Known:
    """Weights, and tensors made of them by what they are made for."""

    values: Array
    made: dict[Hashable, Made] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + sum(array.nbytes for made in self.made.values() for array in made.values())


_LOCK = ForkLock()
_known: OrderedDict[_Look, _Known] = OrderedDict()  # the latest used at the end
_met: OrderedDict[_Look, None] = OrderedDict()  # weights that products met, kept or not


def kept(weights: Array) -> Array:
    """A copy in C order that nobody changes: the one of an earlier call where the content is the same."""
    if weights.nbytes < _LEAST or not weights.flags.c_contiguous:
        return copied_to_a_line(weights)
    look = _look(weights)
    with _LOCK:
        known, again = _known.get(look), look in _met
        _met[look] = None
        _met.move_to_end(look)
        if len(_met) > _FEW:
            _met.popitem(last=False)
    if known and _same(known.values, weights):
        with _LOCK:
            if look in _known:
                _known.move_to_end(look)
        return known.values
    copy = copied_to_a_line(weights)
    if again:
        copy.setflags(write=False)
        with _LOCK:
            _keep(look, _Known(copy))
    return copy


def made_of(weights: Array, what: Hashable, make: Callable[[], Made]) -> Made:
    """Tensors that `make` makes of weights, and of nothing else: once for each `what` where the weights are `kept`."""
    if weights.flags.writeable:
        return make()
    look = _look(weights)
    with _LOCK:
        known = _known.get(look)
    if known is None or known.values is not weights:
        return make()
    if (found := known.made.get(what)) is None:
        found = make()
        for array in found.values():
            array.setflags(write=False)
        with _LOCK:
            known.made[what] = found
            _keep(look, known)
    return found


def _keep(look: _Look, known: _Known) -> None:
    """Note weights as the latest, and forget those used longest ago where there are too many. Under the lock."""
    _known[look] = known
    _known.move_to_end(look)
    most = min(_MOST, memory_bytes() // (4 * (os.cpu_count() or 1)))
    while _known and sum(known.nbytes for known in _known.values()) > most:
        _known.popitem(last=False)


def _look(weights: Array) -> _Look:
    """Shape, type and some bytes of an array: arrays of the same content have them in common, and few others."""
    raw = weights.reshape(-1).view(np.uint8)
    some = raw[:_ENDS], raw[_ENDS :: max(1, raw.size // _BETWEEN)], raw[-_ENDS:]
    return weights.shape, weights.dtype, b"".join(part.tobytes() for part in some)


def _same(a: Array, b: Array) -> bool:
    """Whether two arrays of one type and shape, both in C order, hold the same bytes."""
    ours, theirs = (array.reshape(-1).view(np.uint8) for array in (a, b))
    whole = ours.size // 8 * 8
    words, others = (array[:whole].view(np.uint64) for array in (ours, theirs))
    edges = (*range(0, words.size, _PIECE // 8), words.size)
    alike = all((words[i:j] == others[i:j]).all() for i, j in pairwise(edges))
    return alike and bool((ours[whole:] == theirs[whole:]).all())
