"""Bound programs as one call each, from a source to its copy and the output, and for arrays that are always alike: what
a run asks of them is known ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from isa_models.host.memory import empty, taker, taker_of_two
from isa_models.readings.arrays import Array
from isa_models.readings.transposed_copy import AxisTurn
from simdnn.numerics import compiled
from simdnn.numerics.bound import Bound, unbound
from simdnn.numerics.runner import Turns, runner
from simdnn.program.records import Program

#: (a source or its copy, what the program leaves) by a source and other inputs; None where only a run that is watched
#: can answer, or where a new call is to be made
Call = Callable[..., tuple[Array, Array] | None]
#: what a program leaves of its only input, by names; None as above
Filling = Callable[[Array], dict[str, Array] | None]
_OVER = -1  # as an alarm
_PARTS = 16  # of the instructions that hasty code runs: a call's are counted ahead


def call_of(
    bound: Bound,
    source: Array,
    left: Array,
    *names: str,
    copies: bool = True,
    turns: tuple[AxisTurn, AxisTurn] | None = None,
) -> Call | Literal[False] | None:
    """The call for sources like one in C order, and for inputs with `names` that begin on a line; `left` is an output.
    It `copies` the source, or else reads the very array, which begins on a line, too. `turns`: how axes are turned as a
    source is copied to one like `source`, and those of what the program leaves to one like `left`.

    None where the program is not ready yet; False where it has other arrays, or wants memory that is cleared ahead.
    """
    rooms = sorted(bound.rooms, key=lambda room: not room.comes_back)
    given = {one.tensor.name: one.place for one in bound.given}
    if bound.large or len(given) != 1 + len(names) or sum(room.comes_back for room in rooms) != 1:
        return False
    if not all(room.stays for room in rooms):
        return False
    first = next(name for name in given if name not in names)
    places = [*(given[name] for name in (first, *names)), *(room.place for room in rooms)]
    run = _runner(bound, places, copies * source.nbytes, turns and Turns(*turns, rooms[0].place))
    if run is None:
        return None
    output = taker(left.nbytes, left.dtype, left.shape)
    both = taker_of_two(source, left)
    others = rooms if turns else rooms[1:]
    free: deque[tuple[Array, ...]] = deque()  # sets of other arrays that no run works on

    def call(src: Array, *inputs: Array) -> tuple[Array, Array] | None:
        copied, outcome = both() if copies else (src, output())
        try:
            beside = free.pop()
        except IndexError:
            beside = tuple([empty(r.size) if r.private else r.make(r.size, r.dtype) for r in others])
        alarm = run(src, copied, *inputs, *beside, outcome) if turns else run(src, copied, *inputs, outcome, *beside)
        free.append(beside)
        return None if alarm else (copied, outcome)

    return call


def filling_of(program: Program) -> Filling | Literal[False] | None:
    """The call for arrays in C order of a program that reads one input, once. None where the program is not ready yet;
    False where it is another kind of program.
    """
    bound = unbound(program)
    if bound.large or [one.line for one in bound.given] != [1]:
        return False
    run = _runner(bound, [bound.given[0].place, *(room.place for room in bound.rooms)])
    if run is None:
        return None
    makers = [
        (room.name, taker(room.size, room.dtype) if room.make is empty else partial(room.make, room.size, room.dtype))
        for room in bound.rooms
    ]
    between = [room.name for room in bound.rooms if not room.comes_back]

    def fill(array: Array) -> dict[str, Array] | None:
        made = {name: make() for name, make in makers}
        alarm = run(array, array, *made.values())
        for name in between:
            del made[name]
        return None if alarm else made

    return fill


def _runner(bound: Bound, places: list[int], size: int = 0, turns: Turns | None = None) -> Callable[..., int] | None:
    """A function that copies some bytes of an array to the next and runs a program on that and those behind, which are
    the tensors at `places`; with `turns` as `runner` does it. It answers 0, an alarm, or `_OVER` where a new one is to
    be made. None as in `call_of`.
    """
    code, left = bound.code, None
    if code is None:
        runs = max(1, compiled.HASTY_OPS // (_PARTS * bound.program.executed))
        if (code := compiled.at_once(bound.program, runs)) is None:
            return None
        left = iter(range(runs)) if code.hasty else None
    whole = runner(code.stages, bound.addresses, places, size, turns)

    def run(*arrays: Array) -> int:
        return _OVER if left is not None and next(left, None) is None else whole(*arrays)

    keeping: Any = run if left is not None else whole
    keeping.kept = bound, code  # whose memory the addresses are of
    made: Callable[..., int] = keeping
    return made
