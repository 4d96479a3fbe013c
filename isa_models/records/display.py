"""Forms of an object for prompts and notebooks: a line with long fields cut short, a table, or its text."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import wraps
from reprlib import Repr
from typing import Any

from isa_models.records.alike import alike


class InNotebooks:
    """Base of what people look at in notebooks; names and texts may be anybody's, so all of it is escaped.

    A repr that a class writes itself never raises, as debuggers and loggers call it: one made by hand of wrong parts
    says so.
    """

    __slots__ = ()

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        if own := vars(cls).get("__repr__"):
            setattr(cls, "__repr__", _never_raising(own))  # noqa: B010  # mypy refuses the assignment to a method

    def _summary(self) -> Mapping[str, object]:
        """Rows of a table by their names; none where `str()` tells it better."""
        return {}

    def _repr_html_(self) -> str:
        if facts := self._summary():
            rows = (f"<tr><th>{html.escape(key)}</th><td>{_cell(value)}</td></tr>" for key, value in facts.items())
            return f"<table>{''.join(rows)}</table>"
        text = str(self)
        return f"<pre>{html.escape(text)}</pre>" if "\n" in text else f"<code>{html.escape(text)}</code>"


def _never_raising(own: Callable[[Any], str]) -> Callable[[Any], str]:
    """A repr that tells its own error."""

    @wraps(own)
    def shown(self: Any) -> str:
        try:
            return own(self)
        except Exception as error:  # whatever its parts are made of
            return f"<{type(self).__name__} of parts that cannot be shown: {type(error).__name__}: {str(error):.80}>"

    return shown


class Brief:
    """Base of dataclasses (with `repr=False`) that hold arrays, functions or many parts: these are cut short, and what
    is as by default is left out."""

    __slots__ = ()

    def __repr__(self) -> str:
        told = [(f, getattr(self, f.name)) for f in fields(self) if f.repr]  # type: ignore[arg-type]  # a dataclass
        kept = ", ".join(f"{f.name}={_BRIEF.repr(value)}" for f, value in told if not alike(value, f.default))
        return f"{type(self).__name__}({kept})"


class _Parts(Repr):
    """Parts in short: an array's shape and type, a function's name, the first few of many."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = self.maxtuple = self.maxlist = self.maxdict = 3
        self.maxstring, self.maxother = 60, 100

    def repr_instance(self, x: Any, level: int) -> str:
        if hasattr(x, "dtype") and hasattr(x, "shape"):
            return shape_and_type(x)
        return getattr(x, "__qualname__", None) or super().repr_instance(x, level)

    repr_ndarray = repr_function = repr_method = repr_partial = repr_instance


_BRIEF = _Parts()


def shape_and_type(array: Any) -> str:
    """An array in short.

    >>> import numpy as np
    >>> shape_and_type(np.zeros((2, 3), np.int8)), shape_and_type(np.float32(1))
    ('2x3 int8', 'one float32')
    """
    return f"{'x'.join(map(str, array.shape)) or 'one'} {array.dtype}"


def _cell(value: object) -> str:
    return html.escape(f"{value:,.6g}" if isinstance(value, float) else str(value))
