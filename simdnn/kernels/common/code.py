"""The statements of programs, as generators write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from simdnn.program.records import Affine, Loop, Op, Place, Register, Statement

Code = list[Statement]


def op(name: str, dst: Place, *srcs: Place, **immediates: int) -> Op:
    """One instruction of a program: `op("vaddps", total, a, b)`."""
    for place in srcs:
        if type(place) is not Register:
            break
    else:
        if type(dst) is Register:
            return _on_registers(name, dst, *srcs, **immediates)
    return Op(name, dst, srcs, tuple(sorted(immediates.items())))


@lru_cache(maxsize=1 << 14, typed=True)
def _on_registers(name: str, dst: Register, *srcs: Register, **immediates: int) -> Op:
    """One object for an instruction without an address, which programs of all shapes have alike."""
    return Op(name, dst, srcs, tuple(sorted(immediates.items())))


def loop(var: str, extent: int, body: Code, parallel: bool = False, staged: int = 0, threads: bool = False) -> Code:
    """`body` for each value of `var`; empty where the loop would be."""
    return [Loop(var, extent, tuple(body), parallel, staged, threads)] if extent > 0 and body else []


def nest(loops: Sequence[tuple[str, int]], body: Code, parallel: bool = False, threads: bool = False) -> Code:
    """`body` in loops, (variable, how often) from the outside in."""
    for var, extent in reversed(loops):
        body = loop(var, extent, body, parallel, threads=threads)
    return body


def pieces(var: str, length: int, size: int) -> list[tuple[int, Affine, int]]:
    """A run cut into pieces: (how many, where each begins, its length) of the whole ones, and of what is left.

    >>> [(count, str(first), live) for count, first, live in pieces("v", 35, 16)]
    [(2, '16*v', 16), (1, '32', 3)]
    """
    turns, rest = divmod(length, size)
    found = [(turns, Affine.var(var) * size, size), (1, Affine(turns * size), rest)]
    return [piece for piece in found if piece[0] and piece[2]]


def along(
    length: int,
    size: int,
    body: Callable[[Affine, int], Code],
    base: Affine | None = None,
    var: str = "v",
    parallel: bool = False,
    tail: str = "",
) -> Code:
    """`body(place, how many)` for the elements from `base` on, `size` at a time, then for those left.

    `tail`: the loop of one turn around the last ones where they are a statement of their own, as registers live in one.
    """
    turns, rest = divmod(length, size)
    first = base or Affine()
    code = loop(var, turns, body(first + Affine.var(var) * size, size), parallel)
    last = body(first + turns * size, rest) if rest else []
    return code + (loop(tail, 1, last) if tail else last)
