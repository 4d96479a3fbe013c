"""Pooling over windows of two dimensions: lanes run over channels, as in a channels-last layout.

The source is padded before (with what does not count), so that every window is whole; where its edges do not count into
an average, each position has its own divisor.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array, to_a_line
from simdnn.kernels.common.code import Code, Unit, broadcast32, loop, op
from simdnn.kernels.x86.elements import broadcast, load
from simdnn.kernels.x86.epilogue import store, store_constants
from simdnn.program.check import verify
from simdnn.program.records import Affine, Program, Tensor


@dataclass(frozen=True)
class PoolProblem:
    """dst (mb, c, oh, ow) = the greatest or the mean of kh x kw elements of a padded src (mb, c, ih, iw)."""

    kind: str  # max | mean
    mb: int
    c: int
    ih: int
    iw: int
    kh: int
    kw: int
    oh: int
    ow: int
    dtype: str  # f32 f16 bf16
    strides: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)

    @property
    def padding_value(self) -> float:
        return -inf if self.kind == "max" else 0.0


@functools.lru_cache(maxsize=512)
def pooling(problem: PoolProblem, unit: Unit) -> Program:
    """The program: inputs src (channels last) and, for means, `counts` (oh, ow); output dst (channels last)."""
    p = problem
    n, y, x, u, w = (Affine.var(v) for v in "nyxuw")
    pixel = (n * p.ih + y * p.strides[0] + u * p.dilation[0]) * p.iw + x * p.strides[1] + w * p.dilation[1]
    where = (n * p.oh + y) * p.ow + x
    acc, value = unit.reg("c", "f32"), unit.reg("x", "f32")

    def block(channel: Affine, lanes: int, single: bool = False) -> Code:
        at = pixel * p.c + channel
        parts = (unit, "x", "src", p.dtype, at)
        tap = broadcast(*parts) if single else load(*parts, lanes)
        tap = [*tap, op("vmaxps" if p.kind == "max" else "vaddps", acc, acc, value)]
        code: Code = [broadcast32(acc, "empty", Affine()), *loop("u", p.kh, loop("w", p.kw, tap))]
        if p.kind == "mean":
            code += [broadcast32(value, "counts", y * p.ow + x), op("vdivps", acc, acc, value)]
        return code + store(unit, p.dtype, acc, where * p.c + channel, lanes)

    turns, rest = divmod(p.c, unit.lanes)
    code = loop("j", turns, block(Affine.var("j") * unit.lanes, unit.lanes), parallel=True)
    tail = Affine(turns * unit.lanes)
    if rest and (unit.masks or p.dtype == "f32"):
        code += block(tail, rest)
    elif rest:
        code += loop("t", rest, block(tail + Affine.var("t"), 1, True), parallel=True)
    for var, extent in (("x", p.ow), ("y", p.oh), ("n", p.mb)):
        code = loop(var, extent, code, parallel=True)
    tensors = [
        Tensor("src", p.dtype, p.mb * p.ih * p.iw * p.c),
        Tensor.constant("empty", "f32", np.float32(p.padding_value).tobytes()),
        *store_constants(unit, p.dtype),
        Tensor("dst", p.dtype, p.mb * p.oh * p.ow * p.c, "output"),
    ]
    if p.kind == "mean":
        tensors.insert(1, Tensor("counts", "f32", p.oh * p.ow))
    return verify(Program(f"pool {p}", unit.isa, tuple(tensors), tuple(code)))


def pool_inputs(p: PoolProblem, src: Array, counts: Array | None) -> dict[str, Array]:
    """The program's inputs from a padded nchw source and, for means, the divisor (oh, ow) of each position."""
    inputs = {"src": to_a_line(src.transpose(0, 2, 3, 1)).astype(fmt(p.dtype).dtype, copy=False)}
    return inputs if counts is None else inputs | {"counts": counts.astype(np.float32)}


def pool_output(p: PoolProblem, outputs: Mapping[str, Array]) -> Array:
    """dst in nchw."""
    return np.ascontiguousarray(outputs["dst"].reshape(p.mb, p.oh, p.ow, p.c).transpose(0, 3, 1, 2))
