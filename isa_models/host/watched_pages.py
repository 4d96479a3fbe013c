"""Whether memory has been written since it was looked at last, as Linux from 6.7 on knows it: nobody reads it for that.

Whoever writes to a page that is write-protected goes on after a fault, which the system notes; a system call that
writes, too. It is not told of devices that write to memory which was pinned for them before. Sources: Linux,
Documentation/admin-guide/mm/pagemap.rst (`PAGEMAP_SCAN`), userfaultfd(2) (`UFFD_FEATURE_WP_ASYNC`), and
include/uapi/linux/fs.h and userfaultfd.h for the numbers.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from struct import Struct
from weakref import WeakSet

from isa_models.host.forks import ForkLock, at_fork
from isa_models.host.memory import Array, address, owner

_USERFAULTFD = {"x86_64": 323, "aarch64": 282}  # the system call's number
_USER_MODE_ONLY, _API, _ASYNC, _UNPOPULATED, _WRITE_PROTECT = 1, 0xAA, 1 << 15, 1 << 13, 1 << 1
_HANDSHAKE, _REGISTER, _UNREGISTER, _SCAN = 0xC018AA3F, 0xC020AA00, 0x8010AA01, 0xC0606610
_PROTECT, _CHECK, _WRITTEN = 1, 2, 2  # PM_SCAN_WP_MATCHING, PM_SCAN_CHECK_WPASYNC, PAGE_IS_WRITTEN
#: the fewest bytes that glibc gives pages of their own, and the head ahead of them; elsewhere neighbours write, too
_MAPPED, _HEAD = 1 << 17, 16
_LOCK = ForkLock()


class WatchedPages:
    """The pages from the address `first` to `end`, for an array that begins at `at`. Nobody is told of bytes in the
    ranges of addresses `beside`.

    It asks about memory, not about an object: what was freed, and is another's now, counts as written.
    """

    def __init__(self, system: _System, at: int, first: int, end: int, beside: tuple[tuple[int, int], ...]) -> None:
        self.ended = False
        self._told, self.at, self.first, self.end, self.beside = system.told, at, first, end, beside
        self._found = (ctypes.c_uint64 * 3)()  # where the first of those that were written are
        self._ask = self._scan(_CHECK, ctypes.addressof(self._found))
        self._renew = self._scan(_CHECK | _PROTECT, 0)

    def _scan(self, flags: int, found: int) -> bytearray:
        """A `struct pm_scan_arg`."""
        return _words(96, flags, self.first, self.end, 0, found, found > 0, 0, 0, _WRITTEN, 0, _WRITTEN)

    def written(self) -> bool:
        """Whether a page may have been written since `renew`."""
        return self._told(self._ask) != 0 or self.ended

    def renew(self) -> bool:
        """Have notes taken of what is written from now on; whether they are."""
        return self._told(self._renew) >= 0 and not self.ended


class _System:
    """Notes of one process: a fork's child has none of its parent's."""

    def __init__(self) -> None:
        """Raises `OSError` where the system takes none."""
        self._ioctl = _ioctl()
        self._faults = _userfaultfd()
        try:
            self._ioctl(self._faults, _HANDSHAKE, _words(_API, _ASYNC | _UNPOPULATED, 0))
            self._pages = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            os.close(self._faults)
            raise
        self.watches = WeakSet[WatchedPages]()

    def told(self, scan: bytearray) -> int:
        """The ranges of pages that a scan finds, or -1."""
        try:
            return self._ioctl(self._pages, _SCAN, scan)
        except OSError:
            return -1

    def enter(self, at: int, first: int, end: int, beside: tuple[tuple[int, int], ...]) -> WatchedPages | None:
        """A watch, with which others over a part of it end: renewing it would hide from them what was written."""
        for other in [other for other in self.watches if other.first < end and first < other.end]:
            self.leave(other)
        try:
            self._ioctl(self._faults, _REGISTER, _words(first, end - first, _WRITE_PROTECT, 0))
        except OSError:
            return None
        watch = WatchedPages(self, at, first, end, beside)
        self.watches.add(watch)
        return watch

    def leave(self, watch: WatchedPages) -> None:
        """Take no more notes for one."""
        watch.ended = True
        self.watches.discard(watch)
        with suppress(OSError):
            self._ioctl(self._faults, _UNREGISTER, _words(watch.first, watch.end - watch.first))

    def close(self) -> None:
        """End all watches: what a descriptor of a parent's tells is of its memory."""
        for watch in self.watches:
            watch.ended = True
        os.close(self._faults)
        os.close(self._pages)


def watch(array: Array) -> WatchedPages | None:
    """A watch over a contiguous array, to be renewed before it is asked. None where there is none: the memory is not
    NumPy's own, and others may see it elsewhere; no page is the array's alone; the system has none.
    """
    at, page = address(array), mmap.PAGESIZE
    end = at + array.nbytes
    first, last = -(-at // page) * page, end // page * page
    if at % page == _HEAD and array.nbytes >= _MAPPED:
        first, last = at - _HEAD, -(-end // page) * page
    beside = tuple((begin, until) for begin, until in ((at, first), (last, end)) if begin < until)
    if (system := _system()) is None or first >= last or not owner(array).flags.owndata:
        return None
    with _LOCK:
        return system.enter(at, first, last, beside)


def leave(watch: WatchedPages) -> None:
    """Have no more notes taken for a watch, so that nobody's writes cost a fault."""
    if system := _system():
        with _LOCK:
            system.leave(watch)


@functools.cache
def _system() -> _System | None:
    if sys.platform != "linux":
        return None
    try:
        return _System()
    except (OSError, ImportError):
        return None


def _userfaultfd() -> int:
    """A descriptor of userfaultfd(2)."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    found: int = call(_USERFAULTFD.get(platform.machine(), -1), os.O_CLOEXEC | os.O_NONBLOCK | _USER_MODE_ONLY)
    if found < 0:
        raise OSError(ctypes.get_errno(), "userfaultfd")
    return found


def _words(*words: int) -> bytearray:
    """A structure of 64-bit words, which the system may write to."""
    return bytearray(Struct(f"{len(words)}Q").pack(*words))


def _ioctl() -> Callable[[int, int, bytearray], int]:
    import fcntl  # Unix alone has it

    return fcntl.ioctl


def _in_child() -> None:
    if _system.cache_info().currsize and (system := _system()):
        system.close()
    _system.cache_clear()


at_fork(after_in_child=_in_child)
