"""A mapping that can't be changed, and that pickles and copies, which `types.MappingProxyType` does not."""

from __future__ import annotations

from collections.abc import Iterable
from reprlib import Repr
from typing import Any, NoReturn, TypeVar

K = TypeVar("K")
V = TypeVar("V")


_SHOWN = Repr()
_SHOWN.maxdict, _SHOWN.maxother = 8, 120


class Frozen(dict[K, V]):
    """A dict whose items are set once, where it is made.

    >>> ports = Frozen({"FP0": 1})
    >>> ports["FP0"], {**ports, "FP1": 2}
    (1, {'FP0': 1, 'FP1': 2})
    >>> ports["FP0"] = 2
    Traceback (most recent call last):
    TypeError: a Frozen mapping can't be changed: make another, as {**mapping, key: value}
    """

    def __repr__(self) -> str:
        return _SHOWN.repr(dict(self))

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a Frozen mapping can't be changed: make another, as {**mapping, key: value}")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type[Frozen[K, V]], tuple[dict[K, V]]]:
        return Frozen, (dict(self),)

    def copy(self) -> Frozen[K, V]:
        """This mapping itself, which nothing can change."""
        return self

    @classmethod
    def fromkeys(cls, keys: Iterable[Any], value: Any = None) -> Frozen[Any, Any]:
        """A frozen mapping of every key to one value."""
        return cls(dict.fromkeys(keys, value))
