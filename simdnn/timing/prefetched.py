"""Tensors whose lines are touched in order, which a core's prefetchers follow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import prod

from simdnn.program.records import Loop, Program, Straight
from simdnn.timing.footprint import units_of

FOLLOWED = 2048  # bytes from load to load that a prefetcher still follows (Intel's optimization manual)
WALK = 16  # rows at least: taps of a convolution are fewer
_TURNS = 64  # of a loop between whose steps others lie, which are gone through one by one
PAGE = 4096  # bytes, within which a prefetcher follows lines (Intel's optimization manual)


def streamed(program: Program, near: float = 0) -> frozenset[str]:
    """Tensors whose lines are touched in order for more than a page, most of them: by code without stores, or with
    stores that are at most `near` instructions apart.
    """
    in_runs, others, units = defaultdict[str, int](int), set[str](), units_of(program)
    for ops, loops in straight(program.parts, ()):
        tensors = {memory.tensor for memory, *_ in ops.alike}
        stores = any([stores for _, stores, *_ in ops.alike])
        if stores and not (loops and _length(loops[-1]) <= near):
            others |= tensors
        if tensors <= others:
            continue
        pieces: dict[tuple[str, tuple[tuple[str, int], ...]], list[tuple[int, int]]] = {}
        for memory, _, _, constants, _ in ops.alike:
            unit, size = units[memory.tensor], memory.bits // 8
            of_tensor = pieces.setdefault((memory.tensor, memory.index.terms), [])
            of_tensor += [(constant * unit, constant * unit + size) for constant in constants]
        for (tensor, terms), of_tensor in pieces.items():
            moves = dict(terms)
            steps = [(abs(moves.get(loop.var, 0)) * units[tensor], loop.extent) for loop in reversed(loops)]
            moved = sum([end - start for start, end in of_tensor]) * prod([loop.extent for loop in loops])
            in_runs[tensor] += moved if _run(of_tensor, steps) > PAGE else -moved
    return frozenset([tensor for tensor, more in in_runs.items() if more > 0 and tensor not in others])


def _length(loop: Loop) -> int:
    """The instructions of an iteration."""
    return sum(_length(part) * part.extent if isinstance(part, Loop) else len(part) for part in loop.parts)


def _run(pieces: list[tuple[int, int]], steps: Sequence[tuple[int, int]]) -> int:
    """The bytes of the shortest run of pieces without a gap, as loops from the innermost on prolong it: each by a step
    a turn, until one leaves a gap.

    >>> _run([(0, 64), (64, 128)], [(128, 10), (0, 4), (1280, 3)]), _run([(0, 64), (256, 320)], [(64, 4)])
    (3840, 512)
    >>> _run([(0, 128), (256, 384)], [(128, 2), (512, 10)])  # one piece of two at a time
    5120
    >>> [_run([(0, 64)], [(8192, rows), (64, 100)]) for rows in (3, 16)]  # few rows beside each other, as taps are
    [6400, 64]
    """
    runs = _joined(pieces)
    for step, extent in steps:
        if not step or extent == 1:
            continue
        twice = _joined([*runs, *[(start + step, end + step) for start, end in runs]])
        if len(twice) > len(runs):
            if extent >= WALK:
                break
            continue
        if len(twice) == len(runs) == 1:
            runs = [(runs[0][0], runs[0][1] + step * (extent - 1))]
        else:
            turns = range(min(extent, _TURNS))
            runs = _joined([(start + step * turn, end + step * turn) for turn in turns for start, end in runs])
    return min([end - start for start, end in runs])


def _joined(pieces: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Pieces in order, those that touch as one."""
    found = list[tuple[int, int]]()
    for start, end in sorted(pieces):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def straight(parts: Sequence[Straight | Loop], loops: tuple[Loop, ...]) -> Iterator[tuple[Straight, tuple[Loop, ...]]]:
    """Straight code, and the loops around it from the outermost on."""
    for part in parts:
        if type(part) is Loop:
            yield from straight(part.parts, (*loops, part))
        else:
            yield part, loops  # type: ignore[misc]  # ops
