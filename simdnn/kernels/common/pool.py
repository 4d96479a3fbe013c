"""Pooling over windows of two dimensions: lanes run over channels, as in a channels-last layout.

The source is padded before (with what does not count), so that every window is whole; where its edges do not count into
an average, each position has its own divisor.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, prod

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from isa_models.readings.transposed_copy import in_order
from simdnn.kernels.common.code import Code, loop
from simdnn.kernels.common.expression import Expression
from simdnn.kernels.common.vocabulary import Spread, Vocabulary, filled, inside, steps_of
from simdnn.program.check import verify
from simdnn.program.records import SOURCE, Affine, Program, Tensor


@dataclass(frozen=True)
class PoolProblem:
    """dst (mb, c, oh, ow) = the greatest, the sum or the mean of kh x kw elements of a padded src (mb, c, ih, iw).

    `first`: of two zeros the one that comes first is the greater, on x86. `after`: a formula of that, and of operands
    that are one number or, among `by_position`, one for each position; its result is of type `dst` in memory.
    """

    kind: str  # max | mean | sum
    mb: int
    c: int
    ih: int
    iw: int
    kh: int
    kw: int
    oh: int
    ow: int
    dtype: str  # f32 f16 bf16; of sums u8 and s8, too
    strides: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    first: bool = False
    after: Expression | None = None
    by_position: tuple[int, ...] = ()
    dst: str = ""

    @property
    def stored(self) -> str:
        """The destination's type."""
        return self.dst or self.dtype

    @property
    def padding_value(self) -> float:
        return -inf if self.kind == "max" else 0.0

    def reach(self, oh: int, ow: int) -> tuple[int, int]:
        """Rows and columns of the source up to the last that a number of positions reads."""
        sides = zip((oh, ow), self.strides, (self.kh, self.kw), self.dilation, strict=True)
        rows, columns = ((n - 1) * step + (k - 1) * d + 1 for n, step, k, d in sides)
        return max(rows, self.ih), max(columns, self.iw)


@functools.lru_cache(maxsize=512)
def pooling(p: PoolProblem, words: Vocabulary) -> Spread:
    """Inputs src (channels last) and, for means, `counts` (oh, ow); output dst (channels last)."""
    of = _Pooling(p, words)
    code = of.lines.nest(of.formula.start() if of.formula else [], of.vector, [p.dtype])
    program = verify(Program(f"pool {p}", words.isa, tuple(of.tensors()), tuple(code)))
    return Spread(program, of.prepare, lambda found: inside(found["dst"], of.dest, (p.mb, p.oh, p.ow, p.c)))


class _Pooling:
    """The generator for one problem."""

    def __init__(self, p: PoolProblem, words: Vocabulary) -> None:
        self.p, self.words = p, words
        self.lines = words.lines((p.mb, p.oh, p.ow), p.c, single=True)
        self.dest = images, self.oh, self.ow, channels = self.lines.full
        self.source = (images, *p.reach(self.oh, self.ow), channels)
        self.whole, after = not fmt(p.dtype).is_float, p.after
        self.formula = words.formula(after, p.stored, range(len(after.inputs))) if after else None
        self.beside = {i: dtype for i, dtype in enumerate(after.inputs if after else ()) if i}

    def vector(self, channel: Affine, lanes: int, same: bool) -> Code:
        """The outputs of a pixel in some channels."""
        p, words = self.p, self.words
        n, y, x = (self.lines.index(axis) for axis in range(3))
        u, w = Affine.var("u"), Affine.var("w")
        window = (n, y * p.strides[0] + u * p.dilation[0], x * p.strides[1] + w * p.dilation[1])
        acc, value = words.register("x0", lanes), words.register("x", lanes)
        tap = words.load("x", "src", p.dtype, _place(window, self.source) + channel, lanes, same)
        pair = (value, acc) if p.first else (acc, value)  # of equal ones vmaxps takes the second operand
        tap += words.apply("max" if p.kind == "max" else "iadd" if self.whole else "add", acc, *pair)
        code = words.load("x0", "empty", "f32", Affine(), lanes, same=True)
        code += loop("u", p.kh, loop("w", p.kw, tap))
        code += words.apply("float", acc, acc) if self.whole else []
        position = y * self.ow + x
        if p.kind == "mean":
            code += words.load("x", "counts", "f32", position, lanes, same=True)
            code += words.apply("div", acc, acc, value)
        at = _place((n, y, x), self.dest) + channel
        if self.formula is None:
            return code + words.store(p.stored, at, acc, lanes)
        for i, dtype in self.beside.items():
            place = position if i in p.by_position else Affine()
            code += words.load(f"x{i}", f"beside{i}", dtype, place, lanes, same=True)
        more, result = self.formula.code(_nothing, lanes)
        return code + more + words.store(p.stored, at, result, lanes)

    def tensors(self) -> list[Tensor]:
        p, positions = self.p, self.oh * self.ow
        return [
            Tensor("src", p.dtype, prod(self.source), role=SOURCE),
            *([Tensor("counts", "f32", positions)] if p.kind == "mean" else []),
            *(Tensor(f"beside{i}", t, positions if i in p.by_position else 1) for i, t in self.beside.items()),
            Tensor.constant("empty", "f32", np.float32(p.padding_value).tobytes()),
            *(self.formula.tensors() if self.formula else []),
            *self.words.constants(p.stored),
            Tensor("dst", p.stored, prod(self.dest), "output"),
        ]

    def prepare(self, given: Mapping[str, Array]) -> dict[str, Array]:
        """The program's inputs, filled up to what whole vectors and workgroups read."""
        p = self.p
        found = {"src": filled(given["src"].reshape(p.mb, p.ih, p.iw, p.c), self.source)}
        for name in given.keys() - found.keys():
            values = given[name]
            by_position = values.size > 1
            found[name] = (
                filled(values.reshape(p.oh, p.ow), (self.oh, self.ow), 1) if by_position else values.reshape(1)
            )
        return found


def _nothing(register: str, operand: int) -> Code:
    raise AssertionError(f"operand {operand} of what is behind a window stands in a register")


def _place(index: tuple[Affine, ...], shape: tuple[int, ...]) -> Affine:
    """The first channel of a pixel."""
    return sum((i * step for i, step in zip(index, steps_of(shape), strict=False)), Affine())


def pool_inputs(p: PoolProblem, src: Array, counts: Array | None) -> dict[str, Array]:
    """The kernel's inputs from a padded nchw source and, for means, the divisor (oh, ow) of each position."""
    inputs = {"src": in_order(src.transpose(0, 2, 3, 1)).astype(fmt(p.dtype).dtype, copy=False)}
    return inputs if counts is None else inputs | {"counts": counts.astype(np.float32)}


def pool_output(p: PoolProblem, flat: Array) -> Array:
    """A flat destination as nchw."""
    return in_order(flat.reshape(p.mb, p.oh, p.ow, p.c).transpose(0, 3, 1, 2))
