"""Dataclasses whose methods are written late are Python's own in all that can be asked of them."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, fields, replace
from typing import Any

import pytest

from isa_models.records import late

Made = Callable[..., Any]


def classes(dataclass: Made) -> dict[str, Any]:
    """Classes of each kind that there is here, made by one of the two decorators."""

    @dataclass(frozen=True)
    class Base:
        """Fields of all kinds."""

        x: int
        y: tuple[int, ...] = (1,)
        made: list[int] = field(default_factory=list, compare=False)
        named: str = field(default="n", kw_only=True, repr=False)
        found: int = field(default=3, init=False)
        later: int = field(init=False, repr=False, compare=False, hash=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "later", self.x + 1)

    @dataclass(frozen=True)
    class Derived(Base):
        z: float = 0.5

    @dataclass
    class Open:
        x: int
        y: dict[str, int] = field(default_factory=dict)

    @dataclass(eq=False, repr=False)
    class Bare:
        x: int = 0

        def __repr__(self) -> str:
            return "bare"

    @dataclass(frozen=True)
    class Own:
        x: int

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

    class Plain(Base):  # no dataclass
        pass

    return {"Base": Base, "Derived": Derived, "Open": Open, "Bare": Bare, "Own": Own, "Plain": Plain}


def told(call: Callable[[], object]) -> object:
    """What a call gives, or the error that it raises."""
    try:
        return call()
    except (TypeError, FrozenInstanceError) as error:
        return type(error), str(error)


def facts(kinds: dict[str, Any]) -> list[object]:
    """All that can be asked of the classes, in an order that meets each method first at another place."""
    found: list[object] = []
    for name, kind in kinds.items():
        one, two = kind(2), kind(x=2)
        found += [repr(one), one == two, one != kind(3), one == 2, told(lambda one=one: hash(one) == hash(one))]  # type: ignore[misc]
        found += [told(lambda one=one, n=n: setattr(one, n, 1)) for n in ("x", "new")]  # type: ignore[misc]
        found += [told(lambda one=one, n=n: delattr(one, n)) for n in ("x", "new")]  # type: ignore[misc]
        found += [told(lambda kind=kind, how=how: repr(kind(*how[0], **how[1]))) for how in CALLS]  # type: ignore[misc]
        found += [str(inspect.signature(kind)), str(inspect.signature(kind.__init__)), kind.__init__.__qualname__]
        found += [kind.__match_args__, [f.name for f in fields(kind)], repr(replace(kind(5), x=6))]
        found += [kind.__doc__ if name == "Base" else "", repr(copy.copy(kind(5))), kind.__init__.__annotations__]
    return found


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    *[((), {}), ((1, (2, 3)), {}), ((1, 2, 3, 4, 5), {}), ((1,), {"x": 1}), ((1,), {"named": "k"})],
    *[((1,), {"z": 2.0}), ((1,), {"wrong": 1}), ((1,), {"made": [1]}), ((1,), {"found": 1})],
]


def test_they_are_pythons_own() -> None:
    assert facts(classes(late.dataclass)) == facts(classes(dataclasses.dataclass))


@late.dataclass(frozen=True)
class Kept:
    x: int
    within: Kept | None = None


def test_signatures_are_told_before_anything_is_made() -> None:
    first, second = (classes(how)["Base"] for how in (late.dataclass, dataclasses.dataclass))
    assert str(inspect.signature(first)) == str(inspect.signature(second))
    start = late.written(classes(late.dataclass)["Base"])
    assert str(inspect.signature(start)) == str(inspect.signature(second.__init__))


def test_they_pickle_and_refer_to_themselves() -> None:
    assert pickle.loads(pickle.dumps(Kept(1, Kept(2)))) == Kept(1, Kept(2))
    around = Kept(1)
    object.__setattr__(around, "within", around)
    assert repr(around) == "Kept(x=1, within=...)"
    with pytest.raises(FrozenInstanceError):
        around.x = 2  # type: ignore[misc]
