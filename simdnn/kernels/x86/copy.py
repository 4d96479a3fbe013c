"""Moving elements: a strided source into a contiguous destination, vectors at a time where both run together.

Everything is counted in bytes, so one program serves all types of a size. Elements that do not lie beside each other
are moved one at a time; a library that transposes blocks in registers is faster than this.
"""

from __future__ import annotations

import functools
from math import prod

from simdnn.kernels.common.code import Code, loop, nest, op
from simdnn.kernels.common.copy import CopyProblem
from simdnn.kernels.x86.code import Unit
from simdnn.program.check import verify
from simdnn.program.records import SOURCE, Affine, Memory, Program, Register, Tensor

_PIECES = (("vmovdqu", 32), ("vmovdqu", 16), ("vmovq", 8), ("vmovd", 4))


@functools.lru_cache(maxsize=512)
def copying(problem: CopyProblem, unit: Unit) -> Program:
    """The program: input src, output dst, both as bytes. Strides are not negative."""
    p = problem
    *outer, line = p.dims
    source = sum((Affine.var(f"i{k}") * s * p.size for k, s in enumerate(p.strides[:-1])), Affine())
    steps = [prod(p.dims[k + 1 :]) * p.size for k in range(len(outer))]
    dest = sum((Affine.var(f"i{k}") * s for k, s in enumerate(steps)), Affine())
    code = _run(unit, source, dest, line * p.size) if p.strides[-1] == 1 else _each(p, source, dest, line)
    code = nest([(f"i{k}", extent) for k, extent in enumerate(outer)], code, parallel=True)
    read = 1 + sum(s * (n - 1) for s, n in zip(p.strides, p.dims, strict=True))
    tensors = (Tensor("src", "u8", read * p.size, role=SOURCE), Tensor("dst", "u8", prod(p.dims) * p.size, "output"))
    return verify(Program(f"copy {p}", unit.isa, tensors, tuple(code)))


def _run(unit: Unit, source: Affine, dest: Affine, count: int) -> Code:
    """`count` neighbouring bytes."""
    step = unit.width // 8
    turns, rest = divmod(count, step)
    at = Affine.var("v") * step
    code = loop("v", turns, _move("vmovdqu", step, source + at, dest + at), parallel=True)
    done = turns * step
    tail: Code = []
    if rest and unit.masks:
        register = unit.reg("x", "u8")
        tail += [
            op("vmovdqu8", register, Memory("src", source + done, "u8", rest)),
            op("vmovdqu8", Memory("dst", dest + done, "u8", rest), register),
        ]
        rest = 0
    for name, size in _PIECES:
        while rest >= size:
            tail += _move(name, size, source + done, dest + done)
            done, rest = done + size, rest - size
    for i in range(rest):
        tail += _move("byte", 1, source + done + i, dest + done + i)
    return code + (loop("once", 1, tail) if tail else [])


def _each(p: CopyProblem, source: Affine, dest: Affine, count: int) -> Code:
    """Elements one at a time."""
    name = {1: "byte", 2: "word", 4: "vmovd", 8: "vmovq"}[p.size]
    i = Affine.var("e")
    return loop("e", count, _move(name, p.size, source + i * p.strides[-1] * p.size, dest + i * p.size), parallel=True)


def _move(name: str, size: int, source: Affine, dest: Affine) -> Code:
    """`size` bytes through a register."""
    if name in ("byte", "word"):
        dtype, letter = ("u8", "b") if name == "byte" else ("u16", "w")
        register = Register("x", dtype, 16 // size)
        return [
            op(f"vpbroadcast{letter}", register, Memory("src", source, dtype, 1)),
            op(f"vpextr{letter}", Memory("dst", dest, dtype, 1), register, imm=0),
        ]
    dtype = "u64" if name == "vmovq" else "u32"
    width = size // (8 if name == "vmovq" else 4)
    register = Register("x", dtype, max(16, size) // (8 if name == "vmovq" else 4))
    return [
        op(name, register, Memory("src", source, dtype, width)),
        op(name, Memory("dst", dest, dtype, width), register),
    ]
