"""Classes as machine code in this process: functions made at the first call, and room for a record's arrays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from isa_models.host.forks import ForkLock
from simdnn.timing.translate import compiled

MOST_KEPT = 1 << 23  # numbers that a thread keeps room for between two calls


class Translated:
    """Methods of a class as functions of a record's address: those that `entries` names, with their arguments' types.

    All threads share the code. Each has room of its own, to write on until it asks for room again.
    """

    def __init__(self, kind: type, entries: Mapping[str, Sequence[Any]]) -> None:
        self._kind, self._entries = kind, dict(entries)
        self._lock = ForkLock()
        self._made: dict[str, Callable[..., int]] = {}
        self._own = threading.local()

    def __getitem__(self, name: str) -> Callable[..., int]:
        if not self._made:
            with self._lock:
                if not self._made:
                    self._made = compiled(self._kind, self._entries)
        return self._made[name]

    def room(self, count: int) -> npt.NDArray[np.int64]:
        """At least `count` numbers, those of this thread's last call where they are enough."""
        found: npt.NDArray[np.int64] | None = getattr(self._own, "room", None)
        if found is None or len(found) < count:
            found = np.empty(count, np.int64)
            if count <= MOST_KEPT:
                self._own.room = found
        return found
