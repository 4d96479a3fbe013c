"""Equality of records that hold arrays, frames and functions: where all that they were made of is equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cached_property, partial
from types import FunctionType, MethodType
from typing import Any

import numpy as np


class Alike:
    """Base of dataclasses (with `eq=False`) that are equal where their compared fields are, arrays bit by bit."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return alike(self, other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), *(value for value in _state(self).values() if isinstance(value, str | int))))


def alike(a: Any, b: Any, _met: dict[tuple[int, int], Any] | None = None) -> bool:
    """Whether two objects are of one type and content: arrays and frames by their elements, NaN equal to NaN.

    Records without an equality of their own, partial functions and bound methods are compared part by part.

    >>> alike({"x": np.array([1, np.nan])}, {"x": np.array([1, np.nan])}), alike([1, 2], [1, 3]), alike(1, 1.0)
    (True, False, False)
    """
    met = {} if _met is None else _met
    if a is b or (id(a), id(b)) in met:  # a pair on the way, or found equal
        return True
    if type(a) is not type(b):
        return False
    met[id(a), id(b)] = a, b  # kept, since another object may get the number of one that is gone
    if isinstance(a, np.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        return alike(a.tolist(), b.tolist(), met) if a.dtype.hasobject else a.tobytes() == b.tobytes()
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(alike(a[key], b[key], met) for key in a)
    if isinstance(a, Sequence) and not isinstance(a, str | bytes | range):
        return len(a) == len(b) and all(alike(x, y, met) for x, y in zip(a, b, strict=True))
    if hasattr(a, "equals"):  # a frame, a series, an index
        return bool(a.equals(b)) and alike(getattr(a, "attrs", None), getattr(b, "attrs", None), met)
    if isinstance(a, partial):
        return alike((a.func, a.args, a.keywords), (b.func, b.args, b.keywords), met)
    if isinstance(a, FunctionType | type):  # those of a module are one object, and were told apart above
        return False
    if isinstance(a, MethodType):
        return a.__func__ is b.__func__ and alike(a.__self__, b.__self__, met)
    if _by_parts(type(a)):
        return alike(_state(a), _state(b), met)
    return bool(a == b) or bool(a != a and b != b)


def _by_parts(kind: type) -> bool:
    """Whether objects of a kind have parts and no equality of their own making."""
    own: Any = kind.__eq__
    if is_dataclass(kind) and (kind.__dataclass_params__.eq or own is object.__eq__):  # type: ignore[attr-defined]
        return True
    return own is Alike.__eq__ or own is object.__eq__ and kind.__dictoffset__ != 0


def _state(record: Any) -> dict[str, Any]:
    """The parts of a record: its fields that count, or its attributes without properties kept once asked for."""
    if is_dataclass(record):
        return {field.name: getattr(record, field.name) for field in fields(record) if field.compare}
    kind = type(record)
    return {k: v for k, v in vars(record).items() if not isinstance(getattr(kind, k, None), cached_property)}
