"""Variables of the environment that calls ask for each time, mostly to find that nobody has set them."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any


def variable(name: str) -> str | None:
    """The variable's value, or None: `os.environ.get`, in a tenth of its time where the variable is not set.

    >>> os.environ["SIMDNN_EXAMPLE"] = "1"
    >>> variable("SIMDNN_EXAMPLE"), os.environ.pop("SIMDNN_EXAMPLE"), variable("SIMDNN_EXAMPLE")
    ('1', '1', None)
    """
    known = getattr(os.environ, "_data", None)  # CPython's, by encoded names; any other mapping is asked itself
    if known is not None and _key(name) not in known:
        return None
    return os.environ.get(name)


def variables(names: tuple[str, ...]) -> tuple[str | None, ...]:
    """The values of several: one look where none is set, and no decoding of what was met before.

    >>> variables(("SIMDNN_EXAMPLE", "SIMDNN_OTHER"))
    (None, None)
    """
    known = getattr(os.environ, "_data", None)
    if known is None:
        return tuple(map(os.environ.get, names))
    if known.keys().isdisjoint(keys := _keys(names)):
        return (None,) * len(names)
    return _decoded(tuple(map(known.get, keys)))


def reader_of(names: tuple[str, ...]) -> Callable[[], tuple[object, ...]]:
    """A function that tells the values of several as the environment has them: others where one of them has changed.

    >>> read = reader_of(("SIMDNN_EXAMPLE",))
    >>> read() == read()
    True
    """
    keys = _keys(names)

    def read() -> tuple[object, ...]:
        known = getattr(os.environ, "_data", None)
        return tuple(map(os.environ.get, names) if known is None else map(known.get, keys))

    return read


@functools.lru_cache(maxsize=64)
def _decoded(values: tuple[Any, ...]) -> tuple[str | None, ...]:
    """Values as the environment's own dictionary has them, decoded."""
    return tuple([None if value is None else os.environ.decodevalue(value) for value in values])


@functools.cache
def _keys(names: tuple[str, ...]) -> tuple[object, ...]:
    return tuple(map(_key, names))


@functools.cache
def _key(name: str) -> object:
    """The name as the environment's own dictionary has it."""
    return os.environ.encodekey(name)
