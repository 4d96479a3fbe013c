"""Arrays with turned axes copied into C order, block by block in registers.

NumPy turns axes element by element, about a nanosecond each: as long as a convolution of them takes.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

from isa_models.host.memory import LINE, address, empty
from isa_models.readings.arrays import Array
from isa_models.readings.llvm import Carried, Emitter

_LEAST = 1 << 10  # elements that are worth a call
_SOON = 1 << 22  # bytes that NumPy turns in about the time that compiling takes
_SIDES = {1: 16, 2: 8, 4: 16, 8: 8}  # rows and columns of a block, by the bytes of an element
_CHUNK, _NEAR = 32, 1 << 19  # blocks of columns that all rows go along before others, and the most bytes of those
_FEW = 16  # columns that NumPy takes longer over than over as many copies
_SIZES = ("rows", "columns", "row", "column", "times", "to_next", "from_next", "chunk")
_waited: dict[_Block, int] = {}  # bytes that NumPy turned where compiled code moves such blocks


class _Axis(NamedTuple):
    """Elements, and the bytes from one to the next in the copy and in the original."""

    length: int
    to: int
    start: int


class _Block(NamedTuple):
    """A block that compiled code moves: elements of a size, the rows and the columns of them. Where one side is short
    its elements are all there are, and lie side by side with those of the next: in the copy where columns are few.
    """

    size: int
    rows: int
    columns: int


class _Turn(NamedTuple):
    """Calls of compiled code: where each begins in the copy and in the original, and the sizes that all have."""

    block: _Block
    starts: list[tuple[int, int]]
    sizes: ctypes.Array[ctypes.c_int64]


class AxisTurn(NamedTuple):
    """Compiled code that copies arrays with turned axes into C order: its address, and the sizes that it is given."""

    function: int
    sizes: ctypes.Array[ctypes.c_int64]


def turning_of(array: Array, times: int) -> AxisTurn | None:
    """A call of compiled code that copies arrays like one; `times` of them count as turned. None where there is none,
    or none yet.
    """
    turn = _turn(array.shape, array.strides, array.itemsize)
    if turn is None or len(turn.starts) > 1 or not _worth(turn.block, times * array.nbytes):
        return None
    function: Any = _function(turn.block)
    return AxisTurn(ctypes.cast(function, ctypes.c_void_p).value or 0, turn.sizes)


def in_order(array: Array) -> Array:
    """An array in C order from the beginning of a cache line on, copied unless it is so already.

    >>> import numpy as np
    >>> in_order(np.arange(6).reshape(2, 3).T).tolist()
    [[0, 3], [1, 4], [2, 5]]
    """
    return array if array.flags.c_contiguous and address(array) % LINE == 0 else copied_in_order(array)


def copied_in_order(array: Array) -> Array:
    """A copy in C order that begins a cache line."""
    copy = empty(array.nbytes, array.dtype, array.shape)
    if array.size < _LEAST or array.flags.c_contiguous or array.dtype.hasobject:
        copy[...] = array
    elif (turn := _turn(array.shape, array.strides, array.itemsize)) and _worth(turn.block, array.nbytes):
        function, to, start = _function(turn.block), address(copy), address(array)
        for ahead, behind in turn.starts:
            function(to + ahead, start + behind, turn.sizes)
    elif array.shape[-1] < _FEW:  # else the innermost of NumPy's loops would be as short
        for number in range(array.shape[-1]):
            copy[..., number] = array[..., number]
    else:
        copy[...] = array
    return copy


def _worth(block: _Block, size: int) -> bool:
    """Whether compiled code is there, or has become worth its making."""
    waited = _waited.get(block, 0)
    _waited[block] = min(waited + size, _SOON)
    return waited >= _SOON


@functools.lru_cache(1024)
def _turn(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> _Turn | None:
    """How blocks move an array into C order; None where neighbours stay neighbours or have none.

    Rows are along the axis of the original's neighbours, columns along that of the copy's.
    """
    into = [size * math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    axes = _merged(_Axis(*axis) for axis in zip(shape, into, strides, strict=True) if axis[0] > 1)
    rows = next((axis for axis in axes if axis.start == size), None)
    if rows is None or rows is axes[-1] or size not in _SIDES:
        return None
    columns, others = axes[-1], sorted((axis for axis in axes[:-1] if axis is not rows), key=lambda axis: axis.length)
    times = others.pop() if others else _Axis(1, 0, 0)
    side = _SIDES[size]
    block = _Block(size, min(rows.length, side), min(columns.length, side))
    beside = rows.to == columns.length * size if block.columns < side else columns.start == rows.length * size
    if block.rows * block.columns < side * side and not (beside and side in block[1:]):
        return None
    starts = [
        (
            sum(n * axis.to for n, axis in zip(at, others, strict=True)),
            sum(n * axis.start for n, axis in zip(at, others, strict=True)),
        )
        for at in product(*(range(axis.length) for axis in others))
    ]
    near = _CHUNK * side * rows.length * size <= _NEAR  # each line is brought near once, then, and in order
    sizes = rows.length, columns.length, rows.to, columns.start, *times, _CHUNK if near else columns.length
    return _Turn(block, starts, (ctypes.c_int64 * len(_SIZES))(*sizes))


def _merged(axes: Iterator[_Axis]) -> list[_Axis]:
    """The axes, those made one that are one in both arrays."""
    found: list[_Axis] = []
    for axis in axes:
        if found and (found[-1].to, found[-1].start) == (axis.length * axis.to, axis.length * axis.start):
            axis = axis._replace(length=found.pop().length * axis.length)
        found.append(axis)
    return found


@functools.cache
def _function(block: _Block) -> Callable[..., None]:
    """Compiled code: to[row * r + size * c] = from[size * r + column * c], `times` times, some blocks of columns at a
    time.

    Both dimensions hold a block. The last ones reach back over what others have moved already.
    """
    emit = Emitter()
    for number, sized in enumerate(_SIZES):
        emit.line(f"%{sized} = load i64, ptr {_at(emit, '%sizes', (str(number), '8'))}")

    def each_time(number: str) -> Carried:
        to, start = _at(emit, "%to", (number, "%to_next")), _at(emit, "%from", (number, "%from_next"))

        def each_chunk(number: str) -> Carried:
            first = emit.value(f"mul i64 {number}, %chunk")
            behind = emit.value(f"add i64 {first}, %chunk")
            last = emit.call("i64", "llvm.umin.i64", ("i64", behind), ("i64", blocks))

            def each_row(number: str) -> Carried:
                row = _first(emit, number, block.rows, "%rows")

                def each_column(number: str) -> Carried:
                    column = _first(emit, number, block.columns, "%columns")
                    from_here = _at(emit, start, (row, str(block.size)), (column, "%column"))
                    _move(emit, block, from_here, _at(emit, to, (row, "%row"), (column, str(block.size))))
                    return []

                emit.loop(first, last, each_column)
                return []

            emit.loop("0", _count(emit, block.rows, "%rows"), each_row)
            return []

        blocks = _count(emit, block.columns, "%columns")
        rounded = emit.value(f"add i64 {emit.value('sub i64 %chunk, 1')}, {blocks}")
        emit.loop("0", emit.value(f"udiv i64 {rounded}, %chunk"), each_chunk)
        return []

    emit.loop("0", "%times", each_time)
    return _linked("turn" + "_".join(map(str, block)), emit)


def _linked(name: str, emit: Emitter) -> Callable[..., None]:
    """The lines of a function of arrays to and from, and of sizes, as code of this process."""
    from isa_models.host.machine_code import linked  # brings LLVM

    head = "ptr noalias %to, ptr noalias %from, ptr noalias %sizes"
    body = "\n".join(["entry:", *emit.lines, "  ret void"])
    library = linked(
        name, "\n".join([*emit.declarations, f"define void @{name}({head}) nounwind {{\n{body}\n}}"]), [name]
    )
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    function: Any = kind(library[name])
    function.keep = library  # which owns the code
    found: Callable[..., None] = function
    return found


def _count(emit: Emitter, side: int, length: str) -> str:
    """How many blocks cover a length."""
    return emit.value(f"udiv i64 {emit.value(f'add i64 {length}, {side - 1}')}, {side}")


def _first(emit: Emitter, number: str, side: int, length: str) -> str:
    """Where a block begins: the last one so that it ends with the length."""
    last = emit.value(f"sub i64 {length}, {side}")
    return emit.call("i64", "llvm.umin.i64", ("i64", emit.value(f"mul i64 {number}, {side}")), ("i64", last))


def _at(emit: Emitter, base: str, *steps: tuple[str, str]) -> str:
    """A pointer some steps behind another: how many, and of how many bytes."""
    for count, step in steps:
        base = emit.value(f"getelementptr i8, ptr {base}, i64 {emit.value(f'mul i64 {count}, {step}')}")
    return base


def _move(emit: Emitter, block: _Block, start: str, to: str) -> None:
    """Move a block: load its columns and store its rows, or vectors in which few of either lie side by side."""
    size, rows, columns = block
    few, side = sorted((rows, columns))
    kind, beside = f"<{side} x i{8 * size}>", str(side * size)
    vectors = []
    for number in range(few):
        vectors.append(emit.name())
        place = _at(emit, start, (str(number), beside if rows < columns else "%column"))
        emit.line(f"{vectors[-1]} = load {kind}, ptr {place}, align 1")
    vectors = (_dealt if rows < columns else _riffled)(emit, kind, side, vectors)
    for number, vector in enumerate(vectors):
        place = _at(emit, to, (str(number), beside if columns < rows else "%row"))
        emit.line(f"store {kind} {vector}, ptr {place}, align 1")


def _riffled(emit: Emitter, kind: str, side: int, vectors: list[str]) -> list[str]:
    """The first elements of all vectors, then the second ones, and so on: for each prime factor of their number the
    parts of as many vectors are made one.
    """
    if len(vectors) == 1:
        return vectors
    factor = _factor(len(vectors))
    each = len(vectors) // factor
    parts = [_riffled(emit, kind, side, vectors[part::factor]) for part in range(factor)]
    lanes = [[(at % factor, at // factor) for at in range(k * side, (k + 1) * side)] for k in range(factor)]
    return [
        _gathered(emit, kind, side, [part[number] for part in parts], lanes[k])
        for number in range(each)
        for k in range(factor)
    ]


def _dealt(emit: Emitter, kind: str, side: int, vectors: list[str]) -> list[str]:
    """The way back: of as many elements as there are vectors the first ones, then the second ones, and so on."""
    if len(vectors) == 1:
        return vectors
    factor = _factor(len(vectors))
    groups = [vectors[first : first + factor] for first in range(0, len(vectors), factor)]
    found = [""] * len(vectors)
    for part in range(factor):
        lanes = [divmod(part + factor * lane, side) for lane in range(side)]
        own = [_gathered(emit, kind, side, group, lanes) for group in groups]
        found[part::factor] = _dealt(emit, kind, side, own)
    return found


def _factor(number: int) -> int:
    """The least prime factor."""
    return next(factor for factor in range(2, number + 1) if number % factor == 0)


def _gathered(emit: Emitter, kind: str, side: int, vectors: list[str], lanes: list[tuple[int, int]]) -> str:
    """A vector of lanes of others, each told by the number of its vector and its own."""
    found = vectors[0]
    for number, vector in enumerate(vectors[1:], 1):
        kept = [lane if number == 1 else at for at, (_, lane) in enumerate(lanes)]
        chosen = [
            f"i32 {side + lane if of == number else kept[at] if of < number else 'poison'}"
            for at, (of, lane) in enumerate(lanes)
        ]
        mask = f"<{side} x i32> <{', '.join(chosen)}>"
        found = emit.value(f"shufflevector {kind} {found}, {kind} {vector}, {mask}")
    return found
