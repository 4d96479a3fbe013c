"""The statements of programs, as generators write them."""

from __future__ import annotations

from simdnn.program.records import Loop, Op, Place, Statement

Code = list[Statement]


def op(name: str, dst: Place, *srcs: Place, **immediates: int) -> Op:
    """One instruction of a program: `op("vaddps", total, a, b)`."""
    return Op(name, dst, srcs, tuple(sorted(immediates.items())))


def loop(var: str, extent: int, body: Code, parallel: bool = False, staged: int = 0, threads: bool = False) -> Code:
    """`body` for each value of `var`; empty where the loop would be."""
    return [Loop(var, extent, tuple(body), parallel, staged, threads)] if extent > 0 and body else []
