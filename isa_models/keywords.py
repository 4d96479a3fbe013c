"""Calls that a function refuses: the answer names its keywords, its places, or the type of an argument."""

from __future__ import annotations

import builtins
import functools
import inspect
import operator
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, Literal, ParamSpec, TypeVar, Union

from isa_models.errors import InvalidArgument, SimdnnError, counted, shortly, what_is_allowed
from isa_models.host import denormals
from isa_models.host.denormals import LEAST, ONE

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)


_CALLS = (types.FunctionType, types.MethodType, functools.partial)


class WrongCall(InvalidArgument, TypeError):
    """A call that a function does not take: what Python itself raises `TypeError` for."""


def unknown_keyword(function: str, name: str, names: Iterable[str]) -> WrongCall:
    """The error for a keyword that a function does not have.

    >>> unknown_keyword("Attr", "fp_math", ["fpmath", "scales"])
    WrongCall("argument of Attr: 'fp_math': did you mean 'fpmath'? Allowed: fpmath, scales")
    """
    return WrongCall(f"argument of {function}: {name!r}{what_is_allowed(name, list(names))}")


class Callee:
    """The calls that a function takes, as its signature says."""

    def __init__(self, function: Callable[..., object], name: str = "") -> None:
        parameters = inspect.signature(function).parameters
        self.function, self.name = function, name or function.__name__
        self.own = "self" in parameters
        by_place = [one for one in parameters.values() if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
        kinds = {one.kind for one in parameters.values()}
        self.by_place = tuple(one.name for one in by_place)
        self.most = None if inspect.Parameter.VAR_POSITIONAL in kinds else len(by_place)
        open_ends = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        self.names = tuple(n for n, one in parameters.items() if n != "self" and one.kind not in open_ends)
        self.known = None if inspect.Parameter.VAR_KEYWORD in kinds else frozenset(self.names)
        self.needed = tuple(n for n in self.names if parameters[n].default is inspect.Parameter.empty)
        self.hints = {n: parameters[n].annotation for n in self.names}
        self.rest = next((one for one in parameters.values() if one.kind is one.VAR_POSITIONAL), None)
        if self.rest:
            self.hints[self.rest.name] = self.rest.annotation

    def refused(self, args: Sequence[object], named: Mapping[str, object]) -> Exception | None:
        """The error for a call that Python would refuse, or None."""
        if self.known is not None and not self.known.issuperset(named):
            return self.unknown(next(given for given in named if given not in self.known))
        if self.most is not None and len(args) > self.most:
            return self.too_many(len(args) - self.own)
        placed = self.by_place[: len(args)]
        if twice := [name for name in placed if name in named]:
            return WrongCall(f"{self.name} is given {twice[0]} twice, by its place and by its name")
        if missing := [name for name in self.needed if name not in named and name not in placed]:
            return self.without(missing)
        return None

    def unknown(self, name: str) -> Exception:
        return unknown_keyword(self.name, name, self.names)

    def without(self, missing: Sequence[str]) -> Exception:
        return WrongCall(f"{self.name} without {', '.join(missing)}; needed: {', '.join(self.needed)}")

    def too_many(self, given: int) -> Exception:
        places = self.by_place[self.own :]
        allowed = f"{len(places)} ({', '.join(places)})" if places else "none"
        named = [name for name in self.names if name not in places]
        by_name = f"; by their names: {', '.join(named)}" if named else ""
        return WrongCall(f"{self.name} met {counted(given, 'argument')} by place; allowed: {allowed}{by_name}")

    def misfit(self, args: Sequence[object], named: Mapping[str, object]) -> Exception | None:
        """The error for the first argument that is not of the type that the signature names, or None.

        It is asked where a call has failed: functions check what they take, and tell more of it than its type.
        """
        given = [*zip(self.by_place, args, strict=False), *named.items()]
        if self.rest:
            given += [(self.rest.name, value) for value in args[len(self.by_place) :]]
        for name, value in given:
            if type(value) not in self.exact.get(name, ()) and name in self.types and not fits(value, self.types[name]):
                return WrongCall(f"{self.name} met {name}={shortly(value)}; its type is {self.hints[name]}")
        return None

    @functools.cached_property
    def exact(self) -> dict[str, frozenset[type]]:
        """Classes of each argument whose values fit, whatever they hold."""
        found = {}
        for name, hint in self.types.items():
            kinds = typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else (hint,)
            calls = _CALLS if any(typing.get_origin(kind) is Callable for kind in kinds) else ()
            found[name] = frozenset(kind for kind in (*kinds, *calls) if type(kind) is type or kind in _CALLS)
        return found

    @functools.cached_property
    def types(self) -> dict[str, Any]:
        """The types that annotations in text stand for; nothing is imported to find them."""
        known = getattr(inspect.unwrap(self.function), "__globals__", {})
        late = {name for name, one in known.items() if isinstance(one, types.ModuleType) and one.__spec__ is None}
        scope = _Names(vars(builtins) | {name: one for name, one in known.items() if name not in late})
        return {name: _evaluated(hint, scope) for name, hint in self.hints.items() if isinstance(hint, str)}


def keywords(function: Callable[P, R], name: str = "") -> Callable[P, R]:
    """The function, which answers a call that it does not take with what it does; `name` where it has another.

    >>> @keywords
    ... def scaled(values: Sequence[float], by: float = 2.0) -> list[float]:
    ...     return [value * by for value in values]
    >>> scaled()
    Traceback (most recent call last):
    isa_models.keywords.WrongCall: scaled without values; needed: values
    >>> scaled(7)
    Traceback (most recent call last):
    isa_models.keywords.WrongCall: scaled met values=7; its type is Sequence[float]
    """
    return answering(Callee(function, name), function)


def answering(call: Callee, function: Callable[P, R]) -> Callable[P, R]:
    """The function, for which `call` answers what it does not take. It computes with denormals, whatever the caller's
    thread does with them.
    """

    @functools.wraps(function)
    def checked(*args: P.args, **named: P.kwargs) -> R:
        if not LEAST * ONE:
            with denormals.kept():
                return checked(*args, **named)
        if error := call.refused(args, named):
            raise error
        try:
            return function(*args, **named)
        except SimdnnError:
            raise
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as failed:
            if error := call.misfit(args, named):
                raise error from failed
            raise

    return checked


def keywords_of_class(made: C) -> C:
    """The class itself, which answers a call that it does not take with what it does."""
    start: Any = made.__init__  # type: ignore[misc]
    made.__init__ = keywords(start, made.__name__)  # type: ignore[misc]
    return made


def typed_parts(maker: str = "") -> Callable[[C], C]:
    """A decorator for a class: parts of other types than it names are refused. `maker`: the function that makes its
    objects, where nobody needs to make one by hand.

    >>> @typed_parts("simdnn.split")
    ... class Halves:
    ...     def __init__(self, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    ...         self.left, self.right = left, right
    >>> Halves((1, 2), (3, "4"))
    Traceback (most recent call last):
    isa_models.keywords.WrongCall: Halves met right=(3, '4'); its type is tuple[int, ...]; simdnn.split makes one
    """

    def checked_class(made: C) -> C:
        start: Any = made.__init__  # type: ignore[misc]
        call = Callee(start, made.__name__)

        @functools.wraps(start)
        def checked(self: Any, *args: Any, **named: Any) -> None:
            if error := call.refused((self, *args), named) or call.misfit((self, *args), named):
                raise WrongCall(f"{error}; {maker} makes one") if maker else error
            start(self, *args, **named)

        made.__init__ = checked  # type: ignore[misc]
        return made

    return checked_class


def keywords_of_methods(made: C) -> C:
    """The class itself, whose public methods answer calls that they do not take with what they do."""
    for name, method in list(vars(made).items()):
        if isinstance(method, types.FunctionType) and not name.startswith("_"):
            setattr(made, name, keywords(method, f"{made.__name__}.{name}"))
    return made


# -- values and the types that annotations name ------------------------------------------------------------------------
class _Names(dict[str, Any]):
    """Names for annotations; what is imported for type checkers alone may be anything."""

    def __missing__(self, name: str) -> Any:
        return Any


def _evaluated(hint: str, scope: Mapping[str, Any]) -> Any:
    try:
        return eval(hint, {}, scope)
    except Exception:  # a name with a part of its own that only type checkers know
        return Any


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type, and what it holds; True where that cannot be told.

    >>> fits("f32", Sequence[str] | None), fits(None, str | None), fits({"x": 1}, Mapping[str, str])
    (False, True, False)
    """
    kind, parts = typing.get_origin(hint) or hint, typing.get_args(hint)
    if hasattr(kind, "__value__"):  # an alias by Python 3.12's `type`, as NumPy 2.5 has them
        return fits(value, kind.__value__)
    if hint is None or kind is type(None):
        return value is None
    if kind in (Union, types.UnionType):
        return any(fits(value, part) for part in parts)
    if kind is Literal:
        return value in parts
    if kind is Callable:
        return callable(value)
    if not isinstance(kind, type) or kind in (Any, object) or getattr(kind, "_is_protocol", False):
        return True
    if kind is bool:
        return isinstance(value, bool)
    if kind in (int, float):
        number = _is_index(value) if kind is int else isinstance(value, Real)
        return number and not isinstance(value, bool)
    if getattr(value, "ndim", 1) == 0 and kind in (Sequence, Iterable, Collection, Mapping):
        return False
    if getattr(value, "ndim", 0) and kind in (Sequence, Iterable, Collection):
        value = list(value)
    if not isinstance(value, kind) or (isinstance(value, str | bytes) and kind is not type(value) and parts):
        return False
    if isinstance(value, Mapping) and len(parts) == 2:
        return all(fits(key, parts[0]) and fits(held, parts[1]) for key, held in value.items())
    if kind is tuple and parts and Ellipsis not in parts:
        return len(value) == len(parts) and all(map(fits, value, parts))
    if isinstance(value, Sequence) and parts:
        return all(fits(held, parts[0]) for held in value)
    return True


def _is_index(value: Any) -> bool:
    """Whether a value stands for an integer; an array has the method, and raises."""
    try:
        operator.index(value)
    except Exception:
        return False
    return True
