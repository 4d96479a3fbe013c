"""Weights that products met twice, and what kernels made of them: the next product with the same weights finds both.

What is kept is a copy that nobody changes. Whether a caller's array is the same is told by its bytes, since it may have
been changed since; one that was the same some times is watched, and its bytes are read again once it was written. One
that a model holds, or that lies in `bytes`, is known by itself, however it is turned.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np

from isa_models.host import watched_pages
from isa_models.host.forks import ForkLock
from isa_models.host.memory import address, owner
from isa_models.host.processors import processors
from isa_models.readings.arrays import Array, copied_to_a_line, memory_bytes
from simdnn.kernels.common.pack import Blocked, plain

_LEAST = 1 << 6  # bytes of weights that are kept: fewer are made again as fast
_MOST = 1 << 32  # bytes kept in all, or fewer: a process on each core keeps a quarter of the memory together
_FEW = 4096  # weights that are remembered as met, and that are kept
_WAYS = 16  # things that are kept of the same weights
_SAMPLES = 96  # elements of weights by which they are looked up
#: bytes of weights that are watched, and how often they are compared before: four comparisons of a page (0.3 us each in
#: cold caches of a Zen 4) take as long as its first write while it is watched (1.2 us)
_WATCHED, _COMPARED = 1 << 17, 4

Made = Mapping[str, Array]
_Look = tuple[tuple[int, ...], np.dtype[Any], Hashable]


@dataclass(eq=False)
class KnownWeights:
    """Weights that nobody changes, and tensors made of them by what they are made for."""

    tensors: ClassVar[Made] = {}  # beside those that a program is bound to

    values: Array
    look: _Look | None = field(default=None, compare=False)  # where they are found
    stays: bool = field(default=False, compare=False)  # whether further products will meet this very record
    borrowed: bool = field(default=False, compare=False)  # whether the values are a caller's, who may change them
    made: dict[Hashable, Made] = field(default_factory=dict, compare=False)
    _compared: int = field(default=0, compare=False)  # times that a caller's array was found the same
    _watch: watched_pages.WatchedPages | None = field(default=None, compare=False)  # over one of those
    _bytes: int | None = field(default=None, compare=False)
    counted: int = field(default=0, compare=False)  # bytes of it among those of all that are kept

    def __post_init__(self) -> None:
        self.values.setflags(write=False)
        self.address = address(self.values)
        _of_values[id(self.values)] = self

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, each counted once; found again where something was made since."""
        if self._bytes is None:
            arrays = {id(array): array for made in self.made.values() for array in made.values()}
            self._bytes = self.values.nbytes + sum(array.nbytes for array in arrays.values())
        return self._bytes

    def add(self, what: Hashable, made: Made) -> None:
        """Keep what was made of the weights; of too much the oldest goes."""
        for array in made.values():
            array.setflags(write=False)
        self.made[what] = made
        if len(self.made) > _WAYS:
            del self.made[next(iter(self.made))]
        self._bytes = None

    def own(self, blocked: Blocked | None) -> KnownWeights | InPanels:
        """The record; where the values are a caller's another: panels of the layout `blocked`, which holds them as they
        are, or a copy.
        """
        if not self.borrowed:
            return self
        if blocked and (panels := self.made.get(blocked)):
            if not any(np.may_share_memory(tensor, self.values) for tensor in panels.values()):
                return InPanels(panels, blocked, self.values.shape)
        return KnownWeights(copied_to_a_line(self.values))

    def __reduce__(self) -> tuple[type[KnownWeights], tuple[Array]]:
        """Weights alone: what was made of them can be made again."""
        return KnownWeights, (self.values,)

    def same(self, weights: Array) -> bool:
        """Whether an array in C order has the same shape, type and bytes."""
        ours, at = self.values, address(weights)
        if weights.shape != ours.shape or weights.dtype != ours.dtype or not weights.flags.c_contiguous:
            return False
        # another thread that finds something written takes the watch away before it renews it
        if (watch := self._watch) and watch.at == at and not watch.written() and self._watch is watch:
            return not watch.beside or all(self._alike(at, first, end) for first, end in watch.beside)
        if self.stays and ours.nbytes >= _WATCHED:
            return self._found_same(weights, at)
        return self._alike(at, at, at + ours.nbytes)

    def _found_same(self, weights: Array, at: int) -> bool:
        """`same` by all bytes of an array, which is watched from now on where that has been so often."""
        with _COMPARING:
            watch = self._watch
            self._compared += 1
            if watch is None or watch.at != at:
                if self._compared <= _COMPARED:
                    return self._alike(at, at, at + weights.nbytes)
                self.unwatch()
                watch = watched_pages.watch(weights)
            self._watch, self._compared = None, 0
            noted = watch is not None and watch.renew()
            same = self._alike(at, at, at + weights.nbytes)
            if noted and same:
                self._watch = watch
            elif watch:
                watched_pages.leave(watch)
            return same

    def unwatch(self) -> None:
        """Have all bytes of callers' arrays compared again."""
        watch, self._watch = self._watch, None
        if watch:
            watched_pages.leave(watch)

    def _alike(self, at: int, first: int, end: int) -> bool:
        """Whether the bytes from an address to another are those of the values, where these begin at `at`."""
        return not _compare()(self.address + first - at, first, end - first)


@dataclass(eq=False)
class InPanels:
    """Weights in a kernel's own layout, brought back to the user's when somebody asks for them."""

    tensors: Made
    blocked: Blocked
    shape: tuple[int, ...]

    @functools.cached_property
    def values(self) -> Array:
        """The weights in C order."""
        return plain(self.tensors, self.blocked, self.shape)


@dataclass(eq=False)
class BesidePanels:
    """Weights that nobody changes, beside panels that hold them in another type."""

    tensors: Made
    values: Array


_LOCK, _COMPARING = ForkLock(), ForkLock()
_known: OrderedDict[_Look, KnownWeights] = OrderedDict()  # the latest used at the end
_held = 0  # bytes of those
_met: OrderedDict[_Look, None] = OrderedDict()  # weights that products met, kept or not
_of_values: WeakValueDictionary[int, KnownWeights] = (
    WeakValueDictionary()
)  # by the numbers of arrays that nobody changes
_of_callers: dict[int, weakref.ref[KnownWeights]] = {}  # by the addresses of arrays that held the same bytes
_fixed: dict[int, int] = {}  # arrays of models, by their ids as long as they live: a number that no other one ever has
_serials = itertools.count()


def fix(array: Array) -> None:
    """Note an array that nobody will change, for as long as it lives; views of it are known by where they lie in it."""
    array.setflags(write=False)
    whole = owner(array)
    if id(whole) not in _fixed:
        _fixed[id(whole)] = next(_serials)
        weakref.finalize(whole, _fixed.pop, id(whole), None)


def kept(weights: Array) -> KnownWeights:
    """A copy in C order that nobody changes: the one of an earlier call where the content is the same. Where it is new
    the caller's own, which is to be asked for its `own` before the caller may change it.
    """
    return recalled(weights) or borrowed(weights)


def borrowed(weights: Array) -> KnownWeights:
    """A record of weights that no product met before: of those that lie in C order the caller's own."""
    own = _own(weights) is None and weights.nbytes >= _LEAST and weights.flags.c_contiguous
    return KnownWeights(weights.view(), borrowed=True) if own else KnownWeights(copied_to_a_line(weights))


def recalled(weights: Array) -> KnownWeights | None:
    """The record of weights that products met twice, or None; from now on they count as met."""
    at = address(weights)
    if (of_caller := _of_callers.get(at)) and (known := of_caller()) and known.same(weights):
        try:
            _known.move_to_end(known.look)  # type: ignore[arg-type]  # what callers have has been looked up
        except KeyError:  # forgotten since
            with _LOCK:
                _keep(known)
        return known
    own = None
    if not weights.flags.writeable:
        if met := known_of(weights):
            return met
        own = _own(weights)
    if weights.nbytes < _LEAST or own is None and not weights.flags.c_contiguous:
        return None
    look = _look(weights) if own is None else _place(weights, own)
    known = _known.get(look)
    if not _again(look) and known is None:
        return None
    if known is None or own is None and not known.same(weights):
        known = KnownWeights(copied_to_a_line(weights), look, stays=True)
    with _LOCK:
        _keep(known)
        if own is None:
            _of_callers[at] = weakref.ref(known)
            if len(_of_callers) > _FEW:
                del _of_callers[next(iter(_of_callers))]
    return known


def _own(weights: Array) -> int | None:
    """The number of the array that owns the memory; None where somebody may change it."""
    whole = owner(weights)
    if isinstance(whole.base, bytes) and not whole.flags.writeable:  # which nobody changes either
        fix(whole)
    return _fixed.get(id(whole))


def _again(look: _Look) -> bool:
    """Whether weights were met before; now they were."""
    if look in _met:
        with suppress(KeyError):  # another thread's look
            _met.move_to_end(look)
        return True
    _met[look] = None
    if len(_met) > _FEW:
        with suppress(KeyError):
            _met.popitem(last=False)
    return False


def known_of(weights: Array) -> KnownWeights | None:
    """The record of an array that nobody changes; None of any other array."""
    known = _of_values.get(id(weights))
    return known if known and known.values is weights else None


def made_of(weights: Array, what: Hashable, make: Callable[[], Made]) -> Made:
    """Tensors that `make` makes of weights, and of nothing else: once for each `what` where the weights are `kept`."""
    if (known := known_of(weights)) is None:
        return make()
    if (found := known.made.get(what)) is None:
        found = make()
        keep(known, what, found)
    return found


def keep(known: KnownWeights, what: Hashable, made: Made) -> None:
    """Keep what was made of weights; where that is too much, forget others."""
    with _LOCK:
        known.add(what, made)
        if _known.get(known.look) is known:  # type: ignore[arg-type]  # what has no look is nowhere
            _forget(known)


def _keep(known: KnownWeights) -> None:
    """Note weights as the latest. Under the lock."""
    assert known.look is not None
    before = _known.get(known.look)
    _known[known.look] = known
    _known.move_to_end(known.look)
    if before is not known:
        if before:
            _leave(before)
        _forget(known)


def _forget(latest: KnownWeights) -> None:
    """Count the bytes of the latest weights, and forget those used longest ago where there are too many. Under the
    lock.
    """
    global _held
    _held += latest.nbytes - latest.counted
    latest.counted = latest.nbytes
    most = min(_MOST, memory_bytes() // (4 * processors()))
    while _known and (_held > most or len(_known) > _FEW):
        _leave(_known.popitem(last=False)[1])


def _leave(known: KnownWeights) -> None:
    """Count weights no more, which are kept no more. Under the lock."""
    global _held
    known.unwatch()
    _held -= known.counted
    known.counted = 0


def _look(weights: Array) -> _Look:
    """Shape, type and some elements of an array: arrays of the same content have them in common, and few others."""
    flat = weights.reshape(-1)
    return weights.shape, weights.dtype, flat[:: max(1, flat.size // _SAMPLES)].tobytes()


def _place(weights: Array, own: int) -> _Look:
    """Shape, type, and where a view lies in an array of a model, which has the number `own`."""
    return weights.shape, weights.dtype, (own, address(weights), weights.strides)


@functools.cache
def _compare() -> Callable[[int, int, int], int]:
    """C's comparison of bytes, which reads as fast as memory delivers."""
    compare: Any = ctypes.CDLL("ucrtbase" if sys.platform == "win32" else None).memcmp
    compare.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    found: Callable[[int, int, int], int] = compare
    return found
