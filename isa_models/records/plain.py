"""Records of plain data: each field holds exactly the type that it is declared with, and nothing that can change.

A proof is worth nothing where what it looked at can turn into something else: a NumPy integer that wraps, a subclass
that compares as it likes, a list that somebody appends to. So a record refuses, as it is made, all but Python's own
int, str, bool, bytes and tuple, and other records, of exactly these classes.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any, Generic, Self, TypeVar, Union, get_args, get_origin, get_type_hints, overload

from isa_models.errors import ProgramError

MOST = (1 << 63) - 1  # what the engines' integers hold
_WORDS = {int: "a plain int", str: "a plain str", bool: "True or False", bytes: "bytes", tuple: "a tuple"}
Value = TypeVar("Value")
_Check = Callable[[Any], bool]
_Field = tuple[str, _Check, str]  # its name, whether a value will do, and what is allowed in words


class Record:
    """Base of frozen dataclasses of plain data. Raises `ProgramError` that names the field and what it met."""

    def __post_init__(self) -> None:
        kind: Any = type(self)
        if _all_checks(kind)(self):
            return
        for name, check, wanted in self._fields():
            value = getattr(self, name)
            if not check(value):
                raise ProgramError(f"{type(self).__name__}: {name}={_shown(value)}; {wanted} is needed")

    def _fields(self) -> tuple[_Field, ...]:
        kind: Any = type(self)
        return _checks(kind)

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone, without what was found from them since."""
        return {name: getattr(self, name) for name, _, _ in self._fields()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()


class Derived(Generic[Value]):
    """A property of a record that is found from its fields when it is first asked for, and kept.

    `functools.cached_property` would make a dictionary for every record, and ask a lock: programs consist of ten
    thousands of records.
    """

    def __init__(self, find: Callable[[Any], Value]) -> None:
        self.find, self.__doc__ = find, find.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, record: None, kind: type) -> Self: ...
    @overload
    def __get__(self, record: object, kind: type) -> Value: ...
    def __get__(self, record: object | None, kind: type) -> Self | Value:
        if record is None:
            return self
        value = self.find(record)
        object.__setattr__(record, self.name, value)
        return value


def integer(value: object) -> bool:
    """Whether the value is a plain int (no bool, no NumPy scalar) of at most 63 bits and a sign."""
    return type(value) is int and -MOST <= value <= MOST


@cache
def _checks(record: type[Any]) -> tuple[_Field, ...]:
    """The fields of a record that are given."""
    hints = get_type_hints(record)
    given = [field.name for field in fields(record) if field.init]
    return tuple((name, _check_of(hints[name]), _words(hints[name])) for name in given)


@cache
def _all_checks(record: type[Any]) -> Callable[[Any], bool]:
    """All checks of a record's fields as one function: programs consist of ten thousands of records."""
    known: dict[str, Any] = {"MOST": MOST}
    hints = get_type_hints(record)
    given = [field.name for field in fields(record) if field.init]
    text = " and ".join(_text_of(f"record.{name}", hints[name], known) for name in given)
    return eval(f"lambda record: {text or True}", known)  # type: ignore[no-any-return]  # of names of fields alone


def _text_of(value: str, hint: Any, known: dict[str, Any]) -> str:
    """`_check_of` as an expression; the classes that it names are `known`."""
    if hint is int:
        return f"type({value}) is int and -MOST <= {value} <= MOST"
    if get_origin(hint) is not tuple:
        kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        names = [f"kind{len(known) + i}" for i in range(len(kinds))]
        known.update(zip(names, kinds, strict=True))
        return "(" + " or ".join(f"type({value}) is {name}" for name in names) + ")"
    inner = get_args(hint)
    if inner[-1] is Ellipsis:
        one = f"one{len(known)}"
        known[one] = None
        return f"type({value}) is tuple and all([{_text_of(one, inner[0], known)} for {one} in {value}])"
    parts = [_text_of(f"{value}[{i}]", part, known) for i, part in enumerate(inner)]
    return " and ".join([f"type({value}) is tuple and len({value}) == {len(inner)}", *parts])


def _check_of(hint: Any) -> _Check:
    if hint is int:
        return integer
    if get_origin(hint) in (Union, types.UnionType):
        allowed = get_args(hint)
        return lambda value: type(value) in allowed
    if get_origin(hint) is not tuple:
        return lambda value: type(value) is hint
    inner = get_args(hint)
    if inner[-1] is Ellipsis:
        one = _check_of(inner[0])
        return lambda value: type(value) is tuple and all(map(one, value))
    parts = [_check_of(part) for part in inner]
    return lambda value: (
        type(value) is tuple
        and len(value) == len(parts)
        and all(check(part) for check, part in zip(parts, value, strict=True))
    )


def _words(hint: Any) -> str:
    if hint is int:
        return "a plain int of at most 64 bits"
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(map(_words, get_args(hint)))
    if get_origin(hint) is not tuple:
        return _WORDS.get(hint) or f"a {hint.__name__}"
    inner = get_args(hint)
    if inner[-1] is Ellipsis:
        return f"a tuple, each of it {_words(inner[0])},"
    return f"({', '.join(map(_words, inner))})"


def _shown(value: object) -> str:
    """A value for a message: its type too, as `np.int64(3)` prints like a plain 3 in some versions of NumPy."""
    if type(value) is int:
        return "an int of more than 64 bits"
    try:
        text = f"{value!r:.60}"
    except Exception:  # a class of a caller's may print as it likes
        text = "…"
    return f"{text} ({type(value).__name__})"
