"""Memory of large arrays, each from the beginning of a cache line, kept for the next array once nobody holds it.

A new page costs the system more than a kernel takes to fill it, and allocators give large arrays new pages each time.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

LINE = 64  # bytes of a cache line
_LEAST = 1 << 17  # bytes from which memory is kept: allocators keep what is smaller themselves
_MOST = 1 << 27  # bytes kept of each size, and when new memory is asked for of all
_BYTE = ctypes.c_char
_kept: dict[int, deque[_Home]] = {}  # by size; each operation on it is one that no other thread comes between


def zeros(size: int) -> Bytes:
    """A number of zero bytes.

    >>> bool(zeros(5).any()), zeros(1 << 20).ctypes.data % LINE
    (False, 0)
    """
    if (used := _used(size)) is not None:
        used.fill(0)
        return used
    if size < _LEAST:
        return _from_a_line(np.zeros(size + LINE, np.uint8))
    return _new(_from_a_line(np.zeros(_rounded(size) + LINE, np.uint8)), size)


def empty(size: int) -> Bytes:
    """A number of bytes that hold anything.

    >>> empty(1 << 20).ctypes.data % LINE
    0
    """
    if (used := _used(size)) is not None:
        return used
    if size < _LEAST:
        return _from_a_line(np.empty(size + LINE, np.uint8))
    return _new(_from_a_line(np.empty(_rounded(size) + LINE, np.uint8)), size)


class _Loan:
    """The owner of lent memory, which all arrays over it hold: it goes with the last, and the memory comes back."""

    __slots__ = ("__array_interface__", "__weakref__", "home")

    def __init__(self, memory: Bytes, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface
        several = _kept.get(memory.size)
        if several is None:
            several = _kept.setdefault(memory.size, deque(maxlen=_MOST // memory.size))
        self.home = _Home(self, several.append)
        self.home.memory, self.home.interface = memory, interface


class _Home(weakref.ref[_Loan]):
    """Holds a loan's memory, and lies among what is kept once the loan is gone.

    No line of Python runs then: an interrupt that comes while one does, in a destructor, is lost.
    """

    __slots__ = ("interface", "memory")
    memory: Bytes
    interface: dict[str, Any]  # NumPy's words for it, which take a microsecond to find


def _used(size: int) -> Bytes | None:
    """Memory that somebody else had before."""
    if size < _LEAST:
        return None
    try:
        home = _kept[_rounded(size)].pop()
    except (KeyError, IndexError):
        return None
    return _lent(home.memory, home.interface, size)


def _new(memory: Bytes, size: int) -> Bytes:
    _keep_few()
    return _lent(memory, memory.__array_interface__, size) if memory.size <= _MOST else memory[:size]


def _lent(memory: Bytes, interface: dict[str, Any], size: int) -> Bytes:
    return np.asarray(_Loan(memory, interface))[:size]


def _keep_few() -> None:
    """Give the system what is kept beyond `_MOST`, the sizes first that were asked for first."""
    while sum(size * len(several) for size, several in list(_kept.items())) > _MOST:
        with suppress(IndexError):  # another thread took it
            next((several for several in list(_kept.values()) if several), deque()).popleft()


def _rounded(size: int) -> int:
    """A size of few binary digits, at most a quarter more: what is nearly as large can have the same memory.

    >>> _rounded(1 << 20) == 1 << 20, _rounded((1 << 20) + 1) == 5 << 18
    (True, True)
    """
    step = 1 << max(0, size.bit_length() - 3)
    return -(-size // step) * step


def address(array: npt.NDArray[Any]) -> int:
    """Where an array begins: `array.ctypes.data`, in a third of its time where the array is ordinary and may change.

    >>> a = np.arange(3)
    >>> address(a) == address(a[:0]) == a.ctypes.data
    True
    """
    if array.flags.writeable and array.flags.c_contiguous and array.nbytes and array.dtype.isbuiltin == 1:
        return ctypes.addressof(_BYTE.from_buffer(array))  # type: ignore[arg-type]  # arrays are buffers
    return int(array.ctypes.data)


def _from_a_line(memory: Bytes) -> Bytes:
    """All but a line of a run of bytes, from the first beginning of a line on."""
    first = -address(memory) % LINE
    return memory[first : memory.size - LINE + first]
