"""Machine code that runs a program's stages on arrays, told by where their objects lie: one call of Python's.

Where other work has driven Python's code and tables out of near caches, each function that a run goes through takes
longer than it does in a loop. So the addresses of arrays are found by machine code, too.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, NamedTuple

from isa_models.host.machine_code import linked
from isa_models.readings.arrays import Array
from isa_models.readings.transposed_copy import AxisTurn


class Turns(NamedTuple):
    """How a source's axes are turned as it is copied, and those of the tensor at `place` into one array more."""

    ahead: AxisTurn
    behind: AxisTurn
    place: int


def runner(
    stages: Sequence[tuple[Any, int]],
    addresses: Sequence[int],
    places: Sequence[int],
    size: int = 0,
    turns: Turns | None = None,
) -> Callable[..., int]:
    """A function that copies `size` bytes of an array to the next, and runs the stages on that and those behind; it
    answers 0, or an alarm. With `turns` it turns axes as it copies, and those of an output into the last array.

    `places` says which tensors those arrays are; `addresses` are those of the other tensors, whose memory stays.
    """
    functions = [part for function, extent in stages for part in (_address_of(function), extent)]
    turning = (0, 0, 0, 0, 0)
    if turns:
        sizes = [ctypes.addressof(turn.sizes) for turn in turns[:2]]
        turning = (turns.ahead.function, sizes[0], turns.behind.function, sizes[1], turns.place)
    counts = len(addresses), len(places), len(stages), size
    plan = _words(*counts, *turning, *addresses, *places, *functions)
    pack, function = Struct(f"{1 + len(places) + bool(turns)}P").pack, _function()

    def run(*arrays: Array) -> int:
        return function(plan, pack(*map(id, arrays)))

    kept: Any = run
    kept.turns = turns  # whose sizes the plan points to
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
    the second; a function that copies instead, and its sizes, or 0; one that copies a tensor to the last array, its
    sizes, and which tensor; the addresses of tensors that stay; which tensors the arrays are; of each stage its
    function and its iterations. An array's object has the address of its elements behind its head
    (`isa_models.host.memory.address`).
    """
    name = "simdnn_call"
    facts = {"head": object.__basicsize__, "words": _words_of_plan(), "after": len(_WORDS)}
    library = linked(name, _TEXT.format(name=name, **facts), [name])
    made: Any = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p, ctypes.c_char_p)(library[name])
    made.keep = library  # which owns the code
    found: Callable[[bytes, bytes], int] = made
    return found


#: what a plan begins with, a word each, and as what it is read
_WORDS = {
    "tensors": "i64",
    "count": "i64",
    "stages": "i64",
    "size": "i64",
    "ahead": "ptr",
    "ahead_sizes": "ptr",
    "behind": "ptr",
    "behind_sizes": "ptr",
    "left": "i64",
}


def _words_of_plan() -> str:
    """The lines that read these words."""
    lines = []
    for number, (word, kind) in enumerate(_WORDS.items()):
        lines.append(f"  %to_{word} = getelementptr i64, ptr %plan, i64 {number}")
        lines.append(f"  %{word} = load {kind}, ptr %to_{word}")
    return "\n".join(lines)


_TEXT = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define i32 @{name}(ptr %plan, ptr %arrays) nounwind {{
entry:
{words}
  %addresses = getelementptr i64, ptr %plan, i64 {after}
  %places = getelementptr i64, ptr %addresses, i64 %tensors
  %functions = getelementptr i64, ptr %places, i64 %count
  %pointers = alloca ptr, i64 %tensors
  %bytes = mul i64 %tensors, 8
  %one_more = add i64 %count, 1
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
  %turned = icmp ne ptr %ahead, null
  br i1 %turned, label %turn, label %alike
turn:
  call void %ahead(ptr %target, ptr %source, ptr %ahead_sizes)
  br label %copied
alike:
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %source, i64 %size, i1 false)
  br label %copied
copied:
  %any = icmp ne i64 %stages, 0
  br i1 %any, label %stage, label %through
stage:
  %s = phi i64 [ 0, %copied ], [ %later, %went ]
  %twice = mul i64 %s, 2
  %to_function = getelementptr ptr, ptr %functions, i64 %twice
  %function = load ptr, ptr %to_function
  %to_turns = getelementptr i64, ptr %to_function, i64 1
  %turns = load i64, ptr %to_turns
  %alarm = call i32 %function(ptr %pointers, i64 0, i64 %turns)
  %well = icmp eq i32 %alarm, 0
  br i1 %well, label %went, label %stop
went:
  %later = add i64 %s, 1
  %again = icmp ult i64 %later, %stages
  br i1 %again, label %stage, label %through
through:
  %back = icmp ne ptr %behind, null
  br i1 %back, label %turn_back, label %stop
turn_back:
  %to_last = getelementptr ptr, ptr %arrays, i64 %one_more
  %last = load ptr, ptr %to_last
  %of_last = getelementptr i8, ptr %last, i64 {head}
  %outcome = load ptr, ptr %of_last
  %to_tensor = getelementptr ptr, ptr %pointers, i64 %left
  %tensor = load ptr, ptr %to_tensor
  call void %behind(ptr %outcome, ptr %tensor, ptr %behind_sizes)
  br label %stop
stop:
  %answer = phi i32 [ %alarm, %stage ], [ 0, %through ], [ 0, %turn_back ]
  ret i32 %answer
}}
"""
