"""Moving elements on a GPU: vectors where both sides run together.

Elements that do not lie beside each other are loaded one by one, a message each; a kernel that turns blocks in shared
memory is faster than this.
"""

from __future__ import annotations

import functools
from math import prod

import numpy as np

from isa_models import GpuMachine
from simdnn.kernels.common.code import Code, loop, op
from simdnn.kernels.common.copy import CopyProblem
from simdnn.kernels.common.vocabulary import Spread, steps_of
from simdnn.kernels.gpu.grid import LANES, spread
from simdnn.kernels.gpu.words import words_of
from simdnn.program.check import verify
from simdnn.program.records import SOURCE, Affine, Memory, Program, Register, Tensor

_TYPES = {1: "u8", 2: "u16", 4: "u32", 8: "u32"}
_APART = 8  # elements that a thread moves one by one


@functools.lru_cache(maxsize=512)
def copying(p: CopyProblem, machine: GpuMachine) -> Spread:
    """The program that moves elements on a GPU, for its cost alone: values are moved by NumPy."""
    words, dtype, double = words_of(machine), _TYPES[p.size], 2 if p.size == 8 else 1
    *outer, line = p.dims
    together = p.strides[-1] == 1
    line, step = (line * double, 1) if together else (line, p.strides[-1] * double)
    wide = 1 if together else double  # parts of an element that lie together
    length = min(line, LANES * 4 if together else _APART)
    grid = spread((*outer, -(-line // length)), machine)
    index = [grid.index(axis) for axis in range(len(p.dims))]
    source = sum((i * s * double for i, s in zip(index[:-1], p.strides[:-1], strict=True)), index[-1] * length * step)
    full = (*grid.full[:-1], grid.full[-1] * length * wide)
    dest = sum((i * s for i, s in zip(index[:-1], steps_of(full)[:-1], strict=True)), index[-1] * length * wide)

    def move(along: Affine, lanes: int) -> Code:
        register = Register("x", dtype, lanes)
        read, written = (
            Memory("src", source + along * step, dtype, lanes),
            Memory("dst", dest + along * wide, dtype, lanes),
        )
        load, store = (name.format(dtype) for name in (words.load_name, words.store_name))
        return [op(load, register, read), op(store, written, register)]

    width = LANES if together else 1
    turns, rest = divmod(length, width)
    code = loop("v", turns, move(Affine.var("v") * width, LANES if together else wide))
    code += move(Affine(turns * width), rest) if rest else []
    reach = [(n - 1) * s * double for n, s in zip(grid.full[:-1], p.strides[:-1], strict=True)]
    reads = sum(reach) + (grid.full[-1] * length - 1) * step + double
    tensors = (Tensor("src", dtype, reads, role=SOURCE), Tensor("dst", dtype, prod(full), "output"))
    program = verify(Program(f"copy {p}", machine.platform.name, tensors, tuple(grid.nest(code))))
    return Spread(program, dict, lambda outputs: np.asarray(outputs["dst"]))
