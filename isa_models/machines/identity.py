"""Machines stay who they are when they are copied or pickled: one table is one object, which caches go by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Self
from weakref import WeakSet

from isa_models.errors import InvalidArgument, shortly
from isa_models.keywords import keywords
from isa_models.records.display import InNotebooks
from isa_models.records.frozen import Frozen

_ALIVE: dict[tuple[type[Any], str], WeakSet[Any]] = {}  # by name: files and what-ifs may share one


class Identical(InNotebooks):
    """Base of frozen dataclasses that are equal to themselves alone. A copy is the object itself.

    One that was pickled is, where this process has one of its name and content, that one
    (`isa_models.machines.pickled`).
    """

    __slots__ = ("__weakref__", "differs")
    name: str
    differs: Mapping[str, object]  # figures that `what_if` replaced, by dotted key: how it was made, not what it is

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            kind = type(self).__name__
            raise InvalidArgument(
                f"{kind} met name={shortly(self.name)}; its type is str; isa_models.machine makes one"
            )
        _ALIVE.setdefault((type(self), self.name), WeakSet()).add(self)
        object.__setattr__(self, "differs", Frozen())

    @keywords
    def made_of(self, differs: Mapping[str, object]) -> Self:
        """The object itself, or one that is there already with equal content, with the figures that it is made of."""
        values = content(self)
        made = (known for known in alive(type(self), self.name) if known.differs and content(known) == values)
        one: Self = next(made, self)
        object.__setattr__(one, "differs", Frozen(differs))
        return one

    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: dict[int, Any]) -> Self:
        return self


def content(made: Any) -> tuple[Any, ...]:
    """The values of a machine's fields, by which two are told to be alike."""
    return tuple(getattr(made, field.name) for field in fields(made))


def alive(kind: type[Any], name: str) -> list[Any]:
    """The machines named `name` that somebody holds; those made by what-ifs come first."""
    return sorted(_ALIVE.get((kind, name), ()), key=lambda one: not one.differs)
