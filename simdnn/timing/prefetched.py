"""Tensors by how well a core's prefetchers follow the loads that go through them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simdnn.program.records import Loop, Program, Straight
from simdnn.timing.footprint import units_of

_PART_OF_A_LINE = 128  # bits
_FOLLOWED = 2048  # bytes from load to load that a prefetcher still follows (Intel's optimization manual)
_WALK = 16  # rows at least: taps of a convolution are fewer
_PAGE = 4096  # bytes, within which a prefetcher follows lines (Intel's optimization manual)


def walked(program: Program) -> frozenset[str]:
    """Tensors whose loads take a part of a line, row after row, farther apart than any prefetcher follows."""
    found, units = set[str](), units_of(program)
    for ops, loops in _straight(program.parts, ()):
        if loops and len(loops[-1].parts) == 1 and loops[-1].extent >= _WALK:
            for memory, stores, *_ in ops.alike:
                if not stores and memory.bits <= _PART_OF_A_LINE:
                    step = dict(memory.index.terms).get(loops[-1].var, 0)
                    if abs(step) * units[memory.tensor] > _FOLLOWED:
                        found.add(memory.tensor)
    return frozenset(found)


def streamed(program: Program) -> frozenset[str]:
    """Tensors that code without stores alone touches, each time one line behind the other for more than a page."""
    found, others, units = set[str](), set[str](), units_of(program)
    for ops, loops in _straight(program.parts, ()):
        tensors = {memory.tensor for memory, *_ in ops.alike}
        if any([stores for _, stores, *_ in ops.alike]):
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
            (found if _run(of_tensor, steps) > _PAGE else others).add(tensor)
    return frozenset(found - others)


def _run(pieces: list[tuple[int, int]], steps: Sequence[tuple[int, int]]) -> int:
    """The bytes of the shortest run of pieces without a gap, as loops from the innermost on prolong it: each by a step
    a turn, until one leaves a gap.

    >>> _run([(0, 64), (64, 128)], [(128, 10), (0, 4), (1280, 3)]), _run([(0, 64), (256, 320)], [(64, 4)])
    (3840, 256)
    """
    ends, starts = list[int](), list[int]()
    for start, end in sorted(pieces):
        if not ends or start > ends[-1]:
            starts.append(start)
            ends.append(end)
        else:
            ends[-1] = max(ends[-1], end)
    run = min([end - start for start, end in zip(starts, ends, strict=True)])
    for step, extent in steps:
        if step > run and extent > 1:
            break
        run += step * (extent - 1)
    return run


def _straight(parts: Sequence[Straight | Loop], loops: tuple[Loop, ...]) -> Iterator[tuple[Straight, tuple[Loop, ...]]]:
    """Straight code, and the loops around it from the outermost on."""
    for part in parts:
        if type(part) is Loop:
            yield from _straight(part.parts, (*loops, part))
        else:
            yield part, loops  # type: ignore[misc]  # ops
