"""Memory of arrays, each from the beginning of a cache line, kept for the next array once nobody holds it.

A new page costs the system more than a kernel takes to fill it, and allocators give large arrays new pages each time.
Arrays that fill pages of 2 MB begin one: NumPy asks Linux for such pages, whose addresses a core keeps more of.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

LINE = 64  # bytes of a cache line
_PAGE = 1 << 21  # bytes of a large page
_LEAST = 1 << 17  # bytes from which memory is kept: allocators keep what is smaller themselves
_LEAST_OFTEN = 1 << 12  # bytes from which it is kept for who asks again and again
_FEW = 16  # arrays kept of each size below `_LEAST`
_MOST = 1 << 27  # bytes kept of each larger size, and of all when large memory is asked for
_OCTETS = np.dtype(np.uint8)
_kept: dict[int, deque[_Home]] = {}  # by size; each operation on it is one that no other thread comes between


def zeros(size: int, dtype: np.dtype[Any] = _OCTETS, shape: tuple[int, ...] | None = None) -> Array:
    """A number of zero bytes, as an array of a type and of a shape that they fill; flat where none is given.

    >>> bool(zeros(5).any()), zeros(1 << 20).ctypes.data % LINE
    (False, 0)
    """
    if size >= _LEAST and (used := _used(size, dtype, shape)) is not None:
        used.fill(0)
        return used
    return _new(np.zeros, size, dtype, shape)


def empty(size: int, dtype: np.dtype[Any] = _OCTETS, shape: tuple[int, ...] | None = None) -> Array:
    """A number of bytes that hold anything, as an array of a type and of a shape that they fill.

    >>> empty(1 << 20, np.dtype("f4"), (512, 512)).ctypes.data % LINE, empty(1 << 21).ctypes.data % _PAGE
    (0, 0)
    """
    if size >= _LEAST and (used := _used(size, dtype, shape)) is not None:
        return used
    return _new(np.empty, size, dtype, shape)


class _Loan(np.ndarray[Any, np.dtype[np.uint8]]):
    """Lent memory, which all arrays over it hold: it goes with the last of them, and the memory comes back.

    It has a class of its own, and is a view of another one: NumPy takes the view of a view for one of the memory where
    that is an ordinary array, and forgets the loan.
    """

    __slots__ = ("end",)
    end: _End


class _End:
    """The end of a loan. What refers to it is told first, and what it holds goes then: arrays do it in another order,
    by NumPy's version.
    """

    __slots__ = ("__weakref__", "home")
    home: _Home


class _Home(weakref.ref[_End]):
    """Holds a loan's memory, and lies among what is kept once the loan is gone.

    No line of Python runs then: an interrupt that comes while one does, in a destructor, is lost.
    """

    __slots__ = ("memory",)
    memory: Array


def taker(size: int, dtype: np.dtype[Any] = _OCTETS, shape: tuple[int, ...] | None = None) -> Callable[[], Array]:
    """`empty` for who asks for arrays of one kind again and again: what that takes to know is found once.

    >>> take = taker(1 << 18, np.dtype("f4"), (256, 256))
    >>> take().shape, take().ctypes.data % LINE
    ((256, 256), 0)
    """
    whole = (size // dtype.itemsize,) if shape is None else shape
    if size < _LEAST_OFTEN:
        return partial(_new, np.empty, size, dtype, whole)
    several = _several(_rounded(size))

    def take() -> Array:
        try:
            home = several.pop()
        except IndexError:
            return _new(np.empty, size, dtype, whole, keep=True)
        return _lent(home.memory, several, dtype, whole)

    return take


def taker_of_two(one: Array, other: Array) -> Callable[[], tuple[Array, Array]]:
    """`taker` for pairs of arrays like two, that live as long as each other: small ones lie in one piece of memory.

    >>> first, second = taker_of_two(np.zeros((3, 5)), np.zeros(7, np.int8))()
    >>> first.shape, second.dtype.name, first.ctypes.data % LINE, second.ctypes.data - first.ctypes.data
    ((3, 5), 'int8', 0, 128)
    """
    behind = -(-one.nbytes // LINE) * LINE
    shape, dtype, other_shape, other_dtype = one.shape, one.dtype, other.shape, other.dtype
    if behind + other.nbytes >= _LEAST:
        take_one, take_other = taker(one.nbytes, dtype, shape), taker(other.nbytes, other_dtype, other_shape)
        return lambda: (take_one(), take_other())
    take, array = taker(behind + other.nbytes), np.ndarray

    def both() -> tuple[Array, Array]:
        memory = take()
        return array(shape, dtype, memory), array(other_shape, other_dtype, memory, behind)

    return both


def _used(size: int, dtype: np.dtype[Any], shape: tuple[int, ...] | None) -> Array | None:
    """Memory that somebody else had before."""
    several = _several(_rounded(size))
    try:
        home = several.pop()
    except IndexError:
        return None
    return _lent(home.memory, several, dtype, (size // dtype.itemsize,) if shape is None else shape)


def _new(
    make: Callable[..., Array], size: int, dtype: np.dtype[Any], shape: tuple[int, ...] | None, keep: bool = False
) -> Array:
    small = size < _LEAST and not keep
    whole = size if small else _rounded(size)
    step = _PAGE if whole >= _PAGE else LINE
    memory = make(whole + step, np.uint8)
    first = -address(memory) % step
    if small:
        return np.ndarray((size // dtype.itemsize,) if shape is None else shape, dtype, memory, first)
    if whole >= _LEAST:
        _keep_few()
    memory = memory[first : memory.size - step + first]
    return _lent(memory, _several(whole), dtype, (size // dtype.itemsize,) if shape is None else shape)


def _lent(memory: Array, several: deque[_Home], dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    loan = memory.view(_Loan).view()
    loan.end = end = _End()
    end.home = home = _Home(end, several.append)
    home.memory = memory
    return np.ndarray(shape, dtype, loan)


def _several(size: int) -> deque[_Home]:
    """The memory of a size that is kept."""
    found = _kept.get(size)
    most = _MOST // size if size >= _LEAST else _FEW
    return _kept.setdefault(size, deque(maxlen=most)) if found is None else found


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


def owner(array: Array) -> Array:
    """The array whose memory it is a view of; itself where it is none."""
    base = array.base
    return base if isinstance(base, np.ndarray) and not isinstance(base, _Loan) else array


def address(array: Array) -> int:
    """Where an array begins: `array.ctypes.data`, in a tenth of its time.

    It stands behind the head that all objects have (`PyArrayObject_fields` of NumPy's C API, which stays as it is).

    >>> a = np.arange(3)
    >>> address(a) == a.ctypes.data
    True
    """
    return ctypes.c_size_t.from_address(id(array) + object.__basicsize__).value
