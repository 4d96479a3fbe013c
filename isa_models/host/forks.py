"""Locks that a forked child finds free, whatever other threads of its parent were at.

A fork copies one thread, and every lock as it stands: one that another thread holds stays held in the child for ever.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from functools import cached_property
from types import ModuleType

PATIENCE_S = 3.0  # in which a thread should have done what it holds a lock for; then the fork goes ahead
_OWN = ("isa_models", "simdnn", "workloads", "llvmlite")


def at_fork(**functions: Callable[[], None]) -> None:
    """Have functions called around a fork; nothing where there is no fork (Windows)."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**functions)


class ForkLock:
    """A lock, for a module's lifetime. A fork waits until it is free, so that what it guards is whole in the child.

    Where it is not free in time, the child gets a new lock, and what was guarded as the other thread left it: what
    uses the lock should publish with a single assignment. `reentrant`: the thread that holds it may enter again.
    """

    def __init__(self, reentrant: bool = False) -> None:
        self._made = threading.RLock if reentrant else threading.Lock
        self._lock = self._made()
        self._held = threading.local()  # by the thread that forks
        at_fork(before=self._before, after_in_parent=self._after, after_in_child=self._renew)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _before(self) -> None:
        self._held.now = self._lock.acquire(timeout=PATIENCE_S)

    def _after(self) -> None:
        if getattr(self._held, "now", False):  # not of a lock that was made while this thread forked
            self._lock.release()

    def _renew(self) -> None:
        self._lock = self._made()


def _own_modules() -> list[ModuleType]:
    return [module for name, module in list(sys.modules.items()) if name.split(".")[0] in _OWN]


def _wait_for_imports() -> None:
    """Until no other thread is about to import one of our modules: a child would find it half made, and locked."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and any(getattr(m.__spec__, "_initializing", False) for m in _own_modules()):
        time.sleep(0.005)


def _renew_cached_properties() -> None:
    """Python 3.11 holds a lock for all objects of a class while it finds a cached property of one."""
    for module in _own_modules():
        for kind in list(vars(module).values()):
            for member in list(vars(kind).values()) if isinstance(kind, type) else ():
                if isinstance(member, cached_property):
                    member.lock = threading.RLock()  # type: ignore[attr-defined]


at_fork(before=_wait_for_imports)
if sys.version_info < (3, 12):
    at_fork(after_in_child=_renew_cached_properties)
