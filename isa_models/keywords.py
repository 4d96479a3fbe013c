"""A keyword that a function or a class does not have, answered with the one that is meant."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

from isa_models.errors import InvalidArgument, what_is_allowed

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)


class UnknownKeyword(InvalidArgument, TypeError):
    """A keyword that a function does not have: what Python itself raises `TypeError` for."""


def unknown_keyword(function: str, name: str, names: Iterable[str]) -> UnknownKeyword:
    """The error for a keyword that a function does not have.

    >>> unknown_keyword("Attr", "fp_math", ["fpmath", "scales"])
    UnknownKeyword("argument of Attr: 'fp_math': did you mean 'fpmath'? Allowed: fpmath, scales")
    """
    return UnknownKeyword(f"argument of {function}: {name!r}{what_is_allowed(name, list(names))}")


def keywords(
    function: Callable[P, R], name: str = "", unknown: Callable[[str, str, Iterable[str]], Exception] = unknown_keyword
) -> Callable[P, R]:
    """The function, which answers a keyword that it does not have with the one meant; `name` where it has another.

    One that takes any keyword answers for itself.
    """
    refused = refused_by(function, name or function.__name__, unknown)

    @functools.wraps(function)
    def checked(*args: P.args, **named: P.kwargs) -> R:
        if error := refused(named):
            raise error
        return function(*args, **named)

    return checked


def refused_by(
    function: Callable[..., object], name: str, unknown: Callable[[str, str, Iterable[str]], Exception]
) -> Callable[[Mapping[str, object]], Exception | None]:
    """The error for keywords that a function is called with and does not have, or None: a function of them."""
    parameters = inspect.signature(function).parameters
    names = tuple(one for one in parameters if one != "self")
    known = frozenset(names)
    open_ended = any(one.kind is one.VAR_KEYWORD for one in parameters.values())

    def refused(named: Mapping[str, object]) -> Exception | None:
        if open_ended or known.issuperset(named):
            return None
        return unknown(name, next(given for given in named if given not in known), names)

    return refused


def keywords_of_class(made: C) -> C:
    """The class itself, which answers a keyword that it does not have with the one meant."""
    start: Any = made.__init__  # type: ignore[misc]
    made.__init__ = keywords(start, made.__name__)  # type: ignore[misc]
    return made
