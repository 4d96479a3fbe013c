"""Bound programs as one call of machine code each: from a source to its copy and the output.

Where other work has driven Python's code and tables out of near caches, each function of a run takes longer than its
work. So one function of machine code copies the source, finds where all arrays lie, and runs the stages.
"""

from __future__ import annotations

import ctypes
import functools
from collections import deque
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any, Literal

from isa_models.machine_code import linked
from isa_models.memory import empty, taker
from isa_models.readings.arrays import Array
from simdnn.numerics import compiled
from simdnn.numerics.bound import Bound, unbound
from simdnn.program.records import Program

#: (the copy of a source, what the program leaves) by a source and other inputs; None where only a run that is watched
#: can answer, or where a new call is to be made
Call = Callable[..., tuple[Array, Array] | None]
#: what a program leaves of its only input, by names; None as above
Filling = Callable[[Array], dict[str, Array] | None]
_OVER = -1  # as an alarm
_PARTS = 16  # of the instructions that hasty code runs: a call's are counted ahead


def call_of(bound: Bound, source: Array, left: Array, *names: str) -> Call | Literal[False] | None:
    """The call for sources like one in C order, and for inputs with `names` that begin on a line; `left` is an output.

    None where the program is not ready yet; False where it has other arrays, or wants memory that is cleared ahead.
    """
    rooms = sorted(bound.rooms, key=lambda room: not room.comes_back)
    given = {one.tensor.name: one.place for one in bound.given}
    if bound.large or len(given) != 1 + len(names) or sum(room.comes_back for room in rooms) != 1:
        return False
    if any(room.make is not empty and not room.private for room in rooms):
        return False
    first = next(name for name in given if name not in names)
    run = _runner(bound, [*(given[name] for name in (first, *names)), *(room.place for room in rooms)], source.nbytes)
    if run is None:
        return None
    copy, output = (taker(array.nbytes, array.dtype, array.shape) for array in (source, left))
    others = [room.size for room in rooms[1:]]
    free: deque[tuple[Array, ...]] = deque()  # sets of other arrays that no run works on

    def call(src: Array, *inputs: Array) -> tuple[Array, Array] | None:
        copied, outcome = copy(), output()
        try:
            beside = free.pop()
        except IndexError:
            beside = tuple(map(empty, others))
        alarm = run(src, copied, *inputs, outcome, *beside)
        free.append(beside)
        return None if alarm else (copied, outcome)

    return call


def filling_of(program: Program) -> Filling | Literal[False] | None:
    """The call for arrays in C order of a program that reads one input, once, and leaves all that it writes. None where
    the program is not ready yet; False where it is another kind of program.
    """
    bound = unbound(program)
    if bound.large or [one.line for one in bound.given] != [1] or not all(room.comes_back for room in bound.rooms):
        return False
    run = _runner(bound, [bound.given[0].place, *(room.place for room in bound.rooms)], 0)
    if run is None:
        return None
    makers = [
        (room.name, taker(room.size, room.dtype) if room.make is empty else partial(room.make, room.size, room.dtype))
        for room in bound.rooms
    ]

    def fill(array: Array) -> dict[str, Array] | None:
        made = {name: make() for name, make in makers}
        return None if run(array, array, *made.values()) else made

    return fill


def _runner(bound: Bound, places: list[int], size: int) -> Callable[..., int] | None:
    """A function that copies some bytes of an array to the next and runs a program on that and those behind, which are
    the tensors at `places`. It answers 0, an alarm, or `_OVER` where a new one is to be made. None as in `call_of`.
    """
    code, left = bound.code, None
    if code is None:
        runs = max(1, compiled.HASTY_OPS // (_PARTS * bound.program.executed))
        if (code := compiled.at_once(bound.program, runs)) is None:
            return None
        left = iter(range(runs)) if code.hasty else None
    stages = [part for function, extent in code.stages for part in (_address_of(function), extent)]
    plan = _words(len(bound.addresses), len(places), len(code.stages), size, *bound.addresses, *places, *stages)
    pack, function = Struct(f"{1 + len(places)}P").pack, _function()

    def run(*arrays: Array) -> int:
        if left is not None and next(left, None) is None:
            return _OVER
        return function(plan, pack(*map(id, arrays)))

    keeping: Any = run
    keeping.kept = bound, code  # whose memory the plan's addresses are of
    return run


def _address_of(function: Any) -> int:
    address: int = ctypes.cast(function, ctypes.c_void_p).value or 0
    return address


def _words(*words: int) -> bytes:
    return Struct(f"{len(words)}Q").pack(*words)


@functools.cache
def _function() -> Callable[[bytes, bytes], int]:
    """Machine code that runs a plan on arrays, told by where their objects lie; nonzero for an alarm.

    The plan: how many tensors, arrays but the first, and stages there are; the bytes to copy from the first array to
    the second; the addresses of tensors that stay; which tensors the arrays are; of each stage its function and its
    iterations. An array's object has the address of its elements behind its head (`isa_models.memory.address`).
    """
    name = "simdnn_call"
    library = linked(name, _TEXT.format(name=name, head=object.__basicsize__), [name])
    made: Any = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p, ctypes.c_char_p)(library[name])
    made.keep = library  # which owns the code
    found: Callable[[bytes, bytes], int] = made
    return found


_TEXT = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define i32 @{name}(ptr %plan, ptr %arrays) nounwind {{
entry:
  %tensors = load i64, ptr %plan
  %to_count = getelementptr i64, ptr %plan, i64 1
  %count = load i64, ptr %to_count
  %to_stages = getelementptr i64, ptr %plan, i64 2
  %stages = load i64, ptr %to_stages
  %to_size = getelementptr i64, ptr %plan, i64 3
  %size = load i64, ptr %to_size
  %addresses = getelementptr i64, ptr %plan, i64 4
  %places = getelementptr i64, ptr %addresses, i64 %tensors
  %functions = getelementptr i64, ptr %places, i64 %count
  %pointers = alloca ptr, i64 %tensors
  %bytes = mul i64 %tensors, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %pointers, ptr %addresses, i64 %bytes, i1 false)
  %first = load ptr, ptr %arrays
  %of_first = getelementptr i8, ptr %first, i64 {head}
  %source = load ptr, ptr %of_first
  br label %place
place:
  %i = phi i64 [ 0, %entry ], [ %next, %place ]
  %next = add i64 %i, 1
  %to_array = getelementptr ptr, ptr %arrays, i64 %next
  %array = load ptr, ptr %to_array
  %of_array = getelementptr i8, ptr %array, i64 {head}
  %elements = load ptr, ptr %of_array
  %to_place = getelementptr i64, ptr %places, i64 %i
  %at = load i64, ptr %to_place
  %slot = getelementptr ptr, ptr %pointers, i64 %at
  store ptr %elements, ptr %slot
  %more = icmp ult i64 %next, %count
  br i1 %more, label %place, label %copy
copy:
  %first_place = load i64, ptr %places
  %to_copy = getelementptr ptr, ptr %pointers, i64 %first_place
  %target = load ptr, ptr %to_copy
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %source, i64 %size, i1 false)
  br label %stage
stage:
  %s = phi i64 [ 0, %copy ], [ %behind, %went ]
  %twice = mul i64 %s, 2
  %to_function = getelementptr ptr, ptr %functions, i64 %twice
  %function = load ptr, ptr %to_function
  %to_turns = getelementptr i64, ptr %to_function, i64 1
  %turns = load i64, ptr %to_turns
  %alarm = call i32 %function(ptr %pointers, i64 0, i64 %turns)
  %well = icmp eq i32 %alarm, 0
  br i1 %well, label %went, label %stop
went:
  %behind = add i64 %s, 1
  %again = icmp ult i64 %behind, %stages
  br i1 %again, label %stage, label %stop
stop:
  ret i32 %alarm
}}
"""
