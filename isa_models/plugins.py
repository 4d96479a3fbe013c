"""Additions of a user's own packages: modules named by entry points of the group "simdnn", imported once, when needed.

Importing such a module registers what it holds by the calls that this package's own modules use; every table of names
is a `Registry`. Nothing is imported until a name is met that is not here, or all of a kind are listed. A module that
fails leaves nothing behind, and errors for unknown names tell of it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from isa_models.errors import InvalidArgument, SimdnnError
from isa_models.host.forks import ForkLock

GROUP = "simdnn"
K = TypeVar("K")
V = TypeVar("V")
E = TypeVar("E", bound=SimdnnError)


@dataclass(frozen=True, order=True)
class Plugin:
    """A module that an installed package names in its metadata."""

    distribution: str  # name and version
    module: str

    def __str__(self) -> str:
        return f"module {self.module!r} of package {self.distribution!r}"


class Registry(dict[K, V]):
    """Things of one kind by name. To look one up imports users' packages if need be; before a listing call `load`.

    A name belongs to this package (and to what a program defines by itself, which may replace it), or to one plug-in.
    One that two plug-ins register belongs to none: the second one fails, and the error names both.
    """

    every: ClassVar[list[Registry[Any, Any]]] = []
    changes: ClassVar[int] = 0  # of any registry: what was looked up before may be another thing since

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.owners: dict[K, Plugin] = {}  # of what plug-ins registered
        self.every.append(self)

    def __setitem__(self, name: K, value: V) -> None:
        plugin, owner = _importing[-1], self.owners.get(name)
        if plugin and (owner and owner != plugin or not owner and name in self):
            if owner:
                self.pop(name, None)
            known = str(owner) if owner else "simdnn itself"
            raise InvalidArgument(f"{self.kind} {str(name)!r} is registered by {known} and by {plugin}: rename one")
        if plugin:
            self.owners[name] = plugin
        super().__setitem__(name, value)
        Registry.changes += 1

    def begin(self, own: Mapping[K, V]) -> None:
        """Add what this package has itself, at whatever time it is first needed: while a plug-in is imported, too."""
        self.update(own)

    def __missing__(self, name: K) -> V:
        load()
        if name in self:
            return super().__getitem__(name)
        raise KeyError(name)

    def find(self, name: K) -> V | None:
        """The object that a name stands for, or None."""
        try:
            return self[name]
        except (KeyError, TypeError):  # TypeError: what cannot be a key is no name
            return None

    def forget(self, plugin: Plugin) -> None:
        """Take away what a plug-in has registered."""
        for name in [name for name, owner in self.owners.items() if owner == plugin]:
            self.pop(name, None)
            del self.owners[name]
            Registry.changes += 1


_importing: list[Plugin | None] = [None]
_failed: dict[Plugin, str] = {}
_lock = ForkLock(reentrant=True)  # a module may look names up while it is imported
_begun = _done = False


def load() -> None:
    """Import the modules that installed packages name, the first time."""
    global _begun, _done
    if _done:
        return
    with _lock:
        if _begun:
            return
        _begun = True
        for plugin in _installed():
            _load(plugin)
        _done = True


def failures() -> list[str]:
    """The failures, a line for each module that could not be imported."""
    load()
    return [f"{plugin} failed: {why}" for plugin, why in _failed.items()]


def with_failures(error: E) -> E:
    """The error for an unknown name; where a plug-in failed, which may hold the name, it says so."""
    told = failures()
    return type(error)("; ".join((str(error), *told))) if told else error


def _installed() -> list[Plugin]:
    from importlib.metadata import entry_points  # takes longer than all else here

    found = entry_points(group=GROUP)
    named = ((one.dist, one.value.partition(":")[0].strip()) for one in found)
    return sorted({Plugin(f"{dist.name} {dist.version}" if dist else "?", module) for dist, module in named})


def _load(plugin: Plugin) -> None:
    """Import one; whatever stops it is kept to be told."""
    _importing.append(plugin)
    try:
        importlib.import_module(plugin.module)
    except (Exception, SystemExit) as error:
        for registry in Registry.every:
            registry.forget(plugin)
        _failed[plugin] = f"{type(error).__name__}: {error}"
    finally:
        _importing.pop()
