"""A form's questions and answers: fields, and the texts that were written in them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isa_models import InvalidArgument
from isa_models.errors import unknown_name

MOST_TEXT = 4000  # characters of a field


@dataclass(frozen=True)
class Field:
    """A field of a form. With `least` and `most` a slider; `choices` are all there are, or suggestions if `free`."""

    name: str
    label: str
    value: str
    choices: Sequence[str] = ()
    free: bool = False
    least: float | None = None
    most: float | None = None
    step: float = 1
    note: str = ""
    lines: int = 1
    hidden: bool = False


@dataclass(frozen=True)
class FieldGroup:
    """Fields that stand together under a heading."""

    title: str
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Query:
    """Texts by the names of fields; what is empty was not written."""

    texts: Mapping[str, str]

    def text(self, name: str, default: str = "") -> str:
        """The text of a field. Raises `InvalidArgument` where it is too long."""
        text = self.texts.get(name, "").strip()
        if len(text) > MOST_TEXT:
            raise InvalidArgument(f"{name}: {len(text)} characters; at most {MOST_TEXT} are read")
        return text or default

    def one_of(self, name: str, allowed: Sequence[str], default: str) -> str:
        """One of the allowed texts; `UnknownName` for another."""
        text = self.text(name, default)
        if text not in allowed:
            raise unknown_name(name, text, allowed)
        return text

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        """An integer within limits. Raises `InvalidArgument` otherwise."""
        text = self.text(name, str(default))
        try:
            number = int(text, 0)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise InvalidArgument(f"{name} is {text[:40]!r}; an integer from {least} to {most} is needed")
        return number

    def number(self, name: str, default: float, least: float, most: float) -> float:
        """A number within limits, which a default may lie out of. Raises `InvalidArgument` otherwise."""
        text = self.text(name)
        try:
            number = float(text) if text else default
        except ValueError:
            number = math.nan
        if number != default and not least <= number <= most:
            raise InvalidArgument(f"{name} is {text[:40]!r}; a number from {least:g} to {most:g} is needed")
        return number

    def part(self, prefix: str) -> Query:
        """The fields whose names begin so, by the rest of their names."""
        return Query({name.removeprefix(prefix): text for name, text in self.texts.items() if name.startswith(prefix)})


@dataclass(frozen=True)
class Page:
    """A view's form, and its answer or the reason why there is none."""

    groups: tuple[FieldGroup, ...]
    answer: Any = None
    error: str = ""
