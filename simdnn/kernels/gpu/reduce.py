"""Reductions on a GPU's vector pipe.

A thread makes one output of a line, or a vector of neighbouring ones. Lines are filled up to whole vectors with what
changes nothing, where a kernel would switch lanes off.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from math import prod

import numpy as np

from isa_models import GpuMachine, Unimplemented
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, nest, op
from simdnn.kernels.common.reduce import ReduceProblem
from simdnn.kernels.common.vocabulary import Spread, filled, inside, steps_of
from simdnn.kernels.gpu.grid import LANES, Grid, lanes_for, spread
from simdnn.kernels.gpu.words import words_of
from simdnn.program.check import verify
from simdnn.program.records import SOURCE, Affine, Memory, Program, Register, Tensor

_LONG = 4096  # elements of a line that are worth two kernels where there are fewer lines than engines
_PART = 8 * LANES  # elements of such a line that a thread takes at least


@functools.lru_cache(maxsize=512)
def reduction(p: ReduceProblem, machine: GpuMachine) -> Spread:
    """Input src, output dst. Few long lines are cut in parts, which a second kernel puts together."""
    *most, line = p.dims
    if not (p.reduced[-1] and line >= _LONG and p.size < machine.engines):
        only = _Reduction(p, machine, "src", "dst")
        return Spread(_program(p, machine, [only]), only.prepare, only.finish)
    parts = min(-(-line // _PART), 4 * machine.engines)
    chunk = -(-line // (parts * LANES)) * LANES
    cut = ReduceProblem(p.kind, (*most, parts, chunk), (*p.reduced[:-1], False, True), p.src, "f32")
    first = _Reduction(cut, machine, "src", "partial")
    kept = tuple(n for n, r in zip(cut.dims, cut.reduced, strict=True) if not r)
    kind = "sum" if p.joint == "add" else p.kind
    rest = ReduceProblem(kind, kept, (*[False] * (len(kept) - 1), True), "f32", p.dst, p.divisor)
    second = _Reduction(rest, machine, "partial", "dst", first.grid.full)

    def prepare(given: Mapping[str, Array]) -> dict[str, Array]:
        lines = filled(given["src"].reshape(-1, line), (prod(most), parts * chunk), p.empty)
        return first.prepare({"src": lines})

    return Spread(_program(p, machine, [first, second]), prepare, second.finish)


def _program(p: ReduceProblem, machine: GpuMachine, kernels: list[_Reduction]) -> Program:
    tensors = [Tensor("src", p.src, prod(kernels[0].source), role=SOURCE), *kernels[-1].numbers()]
    tensors += [Tensor("partial", "f32", prod(kernels[0].grid.full), "scratch")] if len(kernels) > 1 else []
    tensors.append(Tensor("dst", p.dst, prod(kernels[-1].dest), "output"))
    code = [statement for kernel in kernels for statement in kernel.code()]
    return verify(Program(f"reduce {p.kind} {p.dims}", machine.platform.name, tuple(tensors), tuple(code)))


class _Reduction:
    """One kernel. `stored`: the shape of a source that is not filled up for it, and has a line of scalars."""

    def __init__(
        self, p: ReduceProblem, machine: GpuMachine, src: str, dst: str, stored: tuple[int, ...] | None = None
    ) -> None:
        if not (fmt(p.src).is_float and fmt(p.dst).is_float):
            raise Unimplemented(f"reduction of {p.src} to {p.dst}; floats work: f32, bf16, f16")
        self.p, self.words, self.src, self.dst = p, words_of(machine), src, dst
        self.lanes = 1 if stored else lanes_for(p.dims[-1])
        pieces = -(-p.dims[-1] // self.lanes)
        kept = [n for n, r in zip(p.dims[:-1], p.reduced[:-1], strict=True) if not r]
        kept += [] if p.reduced[-1] else [pieces]
        self.grid = Grid(tuple(kept or [1]), (1,) * len(kept or [1])) if stored else spread(tuple(kept or [1]), machine)
        self.dest = (*self.grid.full[:-1], self.grid.full[-1] * (1 if p.reduced[-1] else self.lanes))
        full = iter(self.grid.full)
        shape = [n if r else next(full) for n, r in zip((*p.dims[:-1], pieces), p.reduced, strict=True)]
        self.source = stored or (*shape[:-1], shape[-1] * self.lanes)
        if sum(p.reduced) > 2:
            raise Unimplemented(f"a reduction of {sum(p.reduced)} dimensions that are no neighbours; up to two work")

    def numbers(self) -> list[Tensor]:
        """Constants in memory: the result of no element, the divisor, and the mask of a magnitude."""
        empty = np.float32(self.p.empty)
        bits = np.array([empty, np.float32(self.p.divisor)], np.float32).view(np.uint32)
        return [Tensor.constant("numbers", "u32", np.append(bits, np.uint32(0x7FFFFFFF)).tobytes())]

    def number(self, register: str, index: int, lanes: int) -> Code:
        name = self.words.splat_name.format("u32")
        return [op(name, Register(register, "u32", lanes), Memory("numbers", Affine(index), "u32", 1))]

    def code(self) -> Code:
        p, lanes = self.p, self.lanes
        acc, x = Register("acc", "f32", lanes), Register("x", "f32", lanes)
        axes, at, loops = iter(range(len(self.grid.extents))), Affine(), []
        for axis, (n, reduced) in enumerate(zip((*p.dims[:-1], self.source[-1] // lanes), p.reduced, strict=True)):
            step = steps_of(self.source)[axis] * (lanes if axis == len(p.dims) - 1 else 1)
            if reduced:
                extent = n if axis < len(p.dims) - 1 else -(-p.dims[-1] // lanes)
                loops.append((f"r{axis}", extent))
            at = at + (Affine.var(f"r{axis}") if reduced else self.grid.index(next(axes))) * step
        body = self.words.load("x", self.src, p.src, at, lanes)
        if p.kind == "sum_abs":
            body += self.words.apply("and", x, x, Register("m", "f32", lanes))
        sources = (x, x, acc) if p.kind == "sum_square" else (x, acc)  # of two extremes a NaN of the first goes
        sources = (acc, x) if p.kind in ("max", "min") else sources
        body += self.words.apply(p.step, acc, *sources)
        body = nest(loops, body)
        start = self.number("acc", 0, lanes) + (self.number("m", 2, lanes) if p.kind == "sum_abs" else [])
        return self.grid.nest([*start, *body, *self.closing(acc)])

    def closing(self, acc: Register) -> Code:
        p, code = self.p, Code()
        if p.reduced[-1]:
            code += self.words.fold(p.joint, acc)
            acc = Register("acc", "f32", 1)
        if p.divisor != 1:
            code += self.number("d", 1, acc.lanes)
            code += self.words.apply("div", acc, acc, Register("d", "f32", acc.lanes))
        place = sum((self.grid.index(i) * s for i, s in enumerate(steps_of(self.grid.full))), Affine())
        return code + self.words.store(self.dst, p.dst, place * acc.lanes, acc)

    # -- arrays ---------------------------------------------------------------------------------------------------
    def prepare(self, given: Mapping[str, Array]) -> dict[str, Array]:
        return {"src": filled(given["src"].reshape(self.p.dims), self.source, self.p.empty)}

    def finish(self, outputs: Mapping[str, Array]) -> Array:
        kept = tuple(n for n, r in zip(self.p.dims, self.p.reduced, strict=True) if not r) or (1,)
        return inside(outputs["dst"], self.dest, kept)
