"""A shelf of large arrays beside models: TensorProtos name them, and passes that rewrite a model copy names alone.

Recipes of one model share nearly all their weights. Within `with shelf:` a tensor that lies on it is read as the very
array, and what is made of an array (a narrow copy, stored integers) is made once. Names are digests of the content: a
model that names arrays holds what they hold.
"""

from __future__ import annotations

import hashlib
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.networks.types import number

Made = TypeVar("Made")
LEAST = 1 << 14  # bytes of an array that is worth a place
_MOST = 1 << 30  # bytes of what was made of arrays
_SCHEME = "shelf:"
_EXTERNAL = 1  # TensorProto.DataLocation

_open: ContextVar[Shelf | None] = ContextVar("shelf", default=None)


class Shelf:
    """Arrays by name. `least`: bytes of the smallest that is put here."""

    def __init__(self, least: int = LEAST) -> None:
        self.least = least
        self._arrays: weakref.WeakValueDictionary[str, Array] = weakref.WeakValueDictionary()
        self._names: dict[int, str] = {}  # by the array's id, as long as it lives
        self._own: list[Array] = []
        self._made: OrderedDict[Hashable, tuple[Any, list[Array]]] = OrderedDict()
        self._tokens: list[Any] = []

    def __enter__(self) -> Shelf:
        held = sum(array.nbytes for _, arrays in self._made.values() for array in arrays)
        while held > _MOST:
            _, (_, gone) = self._made.popitem(last=False)
            held -= sum(array.nbytes for array in gone)
        self._tokens.append(_open.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        _open.reset(self._tokens.pop())

    def take_from(self, graph: Any, read: Callable[[Any], Array]) -> None:
        """Put the large initializers of a graph here, and leave their names in it."""
        for tensor in graph.initializer:
            if len(tensor.dims) > 1 and len(tensor.raw_data) >= self.least:
                values = read(tensor)
                self._own.append(values)
                tensor.CopyFrom(self._tensor(type(tensor), tensor.name, self._place(values), values))

    def place(self, values: Array) -> str | None:
        """The name of an array that lies here."""
        found = self._names.get(id(values))
        return found if found is not None and self._arrays.get(found) is values else None

    def _place(self, values: Array) -> str:
        """The name of an array that lies here from now on, as long as it lives."""
        values.setflags(write=False)
        told = f"{values.dtype} {values.shape}".encode()
        content = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        name = _SCHEME + hashlib.blake2b(content.data, key=told[:64], digest_size=16).hexdigest()
        key = id(values)
        self._arrays[name], self._names[key] = values, name
        weakref.finalize(values, self._names.pop, key, None)
        return name

    @staticmethod
    def _tensor(kind: Any, name: str, place: str, values: Array) -> Any:
        made = kind(name=name, data_type=number(values.dtype), dims=values.shape, data_location=_EXTERNAL)
        made.external_data.add(key="location", value=place)
        return made


def lying(tensor: Any) -> Array | None:
    """The array that a tensor names, where it lies on the shelf that is open."""
    shelf = _open.get()
    if shelf is None or tensor.data_location != _EXTERNAL or not tensor.external_data:
        return None
    return shelf._arrays.get(tensor.external_data[0].value)


def named(kind: Any, name: str, values: Array) -> Any:
    """A TensorProto (`kind`) that names an array of the open shelf; None of one that does not lie there."""
    shelf = _open.get()
    place = shelf.place(values) if shelf else None
    return None if shelf is None or place is None else shelf._tensor(kind, name, place, values)


def once(values: Array, what: Hashable, make: Callable[[], Made]) -> Made:
    """The outcome of `make`, an array or a tuple with arrays, which hangs on `values` and `what` alone.

    It is made once for an array that lies on the open shelf, and then large arrays of it lie there, too.
    """
    shelf = _open.get()
    place = shelf.place(values) if shelf else None
    if shelf is None or place is None:
        return make()
    key = (place, what)
    if key not in shelf._made:
        made = make()
        parts = made if isinstance(made, tuple) else (made,)
        arrays = [part for part in parts if isinstance(part, np.ndarray)]
        for array in arrays:
            if array.nbytes >= shelf.least:
                shelf._place(array)
        shelf._made[key] = made, arrays
    shelf._made.move_to_end(key)
    found: Made = shelf._made[key][0]
    return found
