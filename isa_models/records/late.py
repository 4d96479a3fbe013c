"""Dataclasses whose methods are written when one of them is first called.

Python's own writes and compiles up to six functions for each class as it is defined. An estimate imports 190 classes
and makes objects of half of them: a quarter of what a process takes until it knows its first cycles.
"""

from __future__ import annotations

import dataclasses
import functools
import reprlib
import sys
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from typing import TYPE_CHECKING, Any

_Function = Callable[..., Any]
_Written = tuple[str, list[str], dict[str, object]]  # parameters, the lines of a body, and the objects that they name

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(kind: type | None = None, /, **asked: bool) -> Any:
        """`dataclasses.dataclass`, which makes those with slots or an order itself.

        >>> @dataclass(frozen=True)
        ... class Point:
        ...     x: int
        ...     y: int = 0
        >>> Point(1), Point(1) == Point(1, 0), len({Point(2), Point(x=2)})
        (Point(x=1, y=0), True, 1)
        """
        make = _made if asked.keys() <= {"frozen", "repr", "eq"} else dataclasses.dataclass
        return functools.partial(make, **asked) if kind is None else make(kind, **asked)


def written(kind: type) -> _Function:
    """The `__init__` of a class, which tells its parameters, be it to be written yet."""
    start: _Function = kind.__init__  # type: ignore[misc]
    write: Callable[[], _Function] | None = getattr(start, "write", None)
    return write() if write else start


def _made(kind: Any, frozen: bool = False, repr: bool = True, eq: bool = True) -> Any:
    own = set(vars(kind))
    kind.__doc__ = kind.__doc__ or kind.__name__  # or the signature would be looked for
    dataclasses.dataclass(init=False, repr=False, eq=False)(kind)  # its fields alone
    kind.__dataclass_params__.eq = eq
    methods: dict[str, Any] = {"__init__": _late(kind, "__init__", functools.partial(_init, frozen=frozen))}
    if repr:
        methods["__repr__"] = _repr
    if eq:
        methods |= {
            "__eq__": _late(kind, "__eq__", _eq),
            "__hash__": _late(kind, "__hash__", _hash) if frozen else None,
        }
    if "__hash__" in own and kind.__hash__ is None and "__eq__" in own:
        own.remove("__hash__")  # Python's, of a class that has an equality of its own
    for name in methods.keys() - own:
        setattr(kind, name, methods[name])
    if frozen:
        kind.__setattr__, kind.__delattr__ = _refusing(kind)
    kind.__signature__ = _Signature()
    return kind


def _late(kind: Any, name: str, tell: Callable[[Any], _Written]) -> _Function:
    """A method that is written when it is first called, and takes its own place then."""

    @functools.cache
    def write() -> _Function:
        parameters, lines, known = tell(kind)
        body = "\n  ".join(lines or ["pass"])
        text = f"def make({', '.join(known)}):\n def {name}({parameters}):\n  {body}\n return {name}"
        found: dict[str, _Function] = {}
        exec(text, vars(sys.modules[kind.__module__]), found)
        method: _Function = found["make"](*known.values())
        method.__qualname__ = f"{kind.__qualname__}.{name}"
        if name == "__init__":
            method.__annotations__ = {one.name: one.type for one in fields(kind) if one.init} | {"return": None}
        if vars(kind)[name] is late:
            setattr(kind, name, method)
        return method

    def late(self: Any, /, *given: Any, **named: Any) -> Any:
        return write()(self, *given, **named)

    late.write = write  # type: ignore[attr-defined]
    return late


class _Factory:
    """Stands for a field that is made where none is given."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _init(kind: Any, frozen: bool) -> _Written:
    by_place, by_name, lines = ["self"], list[str](), list[str]()
    known: dict[str, object] = {"_set": object.__setattr__, "_none": _FACTORY}
    for one in fields(kind):
        name, value, default = one.name, one.name, ""
        if one.default is not MISSING:
            known[f"_default_{name}"] = one.default
            value, default = (value if one.init else f"_default_{name}"), f"=_default_{name}"
        elif one.default_factory is not MISSING:
            known[f"_make_{name}"] = one.default_factory
            value, default = f"_make_{name}()" + f" if {name} is _none else {name}" * one.init, "=_none"
        elif not one.init:
            continue
        if one.init:
            (by_name if one.kw_only else by_place).append(name + default)
        lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(kind, "__post_init__"):
        lines.append("self.__post_init__()")
    return ", ".join([*by_place, *(["*", *by_name] if by_name else [])]), lines, known


def _eq(kind: Any) -> _Written:
    names = [one.name for one in fields(kind) if one.compare]
    alike = f"{_tuple('self', names)} == {_tuple('other', names)}"
    return "self, other", [f"return {alike} if other.__class__ is self.__class__ else NotImplemented"], {}


def _hash(kind: Any) -> _Written:
    counts = [one.name for one in fields(kind) if (one.compare if one.hash is None else one.hash)]
    return "self", [f"return hash({_tuple('self', counts)})"], {}


def _tuple(of: str, names: Iterable[str]) -> str:
    return f"({''.join([f'{of}.{name},' for name in names])})"


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    shown: list[Field[Any]] = [one for one in fields(self) if one.repr]
    return f"{type(self).__qualname__}({', '.join([f'{one.name}={getattr(self, one.name)!r}' for one in shown])})"


def _refusing(kind: Any) -> tuple[_Function, _Function]:
    """`__setattr__` and `__delattr__` of a frozen class."""

    def setting(self: Any, name: str, value: object) -> None:
        if type(self) is kind or name in kind.__dataclass_fields__:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(kind, self).__setattr__(name, value)

    def deleting(self: Any, name: str) -> None:
        if type(self) is kind or name in kind.__dataclass_fields__:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(kind, self).__delattr__(name)

    return setting, deleting


class _Signature:
    """The attribute of a class that `inspect.signature` asks for first, and then for its `__init__`, written by now."""

    def __get__(self, one: object, kind: type) -> None:
        written(kind)
