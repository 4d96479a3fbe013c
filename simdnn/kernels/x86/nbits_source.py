"""A source of f32 to s8 by blocks along K, as MLAS, onnxruntime's library, does it ahead of `simdnn.kernels.x86.nbits`.

scale = amax / 127, codes = x * (127 / amax) to the nearest, halves to even, and scale * sum of codes beside them. The
scale of a block of zeros is zero.
"""

from __future__ import annotations

import functools

from simdnn.kernels.common.code import Code, along, loop, op
from simdnn.kernels.common.nbits import SourceBlocks
from simdnn.kernels.common.vocabulary import Spread, Vocabulary
from simdnn.kernels.x86.code import Unit, load32, store32, typed, unit_of, zero
from simdnn.kernels.x86.constants import Constants
from simdnn.kernels.x86.line_sums import horizontal
from simdnn.kernels.x86.narrow import MAGNITUDE, store
from simdnn.program.check import verify
from simdnn.program.records import SOURCE, Affine, Program, Register, Tensor


def source_blocks(problem: SourceBlocks, words: Vocabulary) -> Spread:
    """Input src (m, k); outputs codes (m, blocks * block) of s8 as bytes, scales and sums (m, blocks)."""
    return Spread(_program(problem, unit_of(words.isa)), dict, dict)


@functools.lru_cache(maxsize=256)
def _program(p: SourceBlocks, unit: Unit) -> Program:
    constants = Constants(unit)
    whole, rest = divmod(p.k, p.block)
    row = Affine.var("r")
    code = loop("b", whole, _block(p, unit, constants, row, Affine.var("b"), p.block), parallel=True)
    code += loop("e", 1 if rest else 0, _block(p, unit, constants, row, Affine(whole), rest), parallel=True)
    tensors = [
        Tensor("src", "f32", p.m * p.k, role=SOURCE),
        *constants.tensors(),
        Tensor("codes", "u8", p.m * p.count * p.block, "output"),
        Tensor("scales", "f32", p.m * p.count, "output"),
        Tensor("sums", "f32", p.m * p.count, "output"),
    ]
    body = tuple(loop("r", p.m, code, parallel=True))
    return verify(Program(f"source blocks {p}", unit.isa, tuple(tensors), body))


def _block(p: SourceBlocks, unit: Unit, c: Constants, row: Affine, block: Affine, live: int) -> Code:
    """One block of `live` elements."""
    x, amax, total = unit.reg("x", "f32"), unit.reg("c0", "f32"), unit.reg("t0", "s32")
    scale, inverse, keep = unit.reg("d", "f32"), unit.reg("i", "f32"), unit.reg("k", "s32")
    source, target = row * p.k + block * p.block, row * (p.count * p.block) + block * p.block

    def magnitudes(at: Affine, lanes: int) -> Code:
        find = [typed("vpand", x, x, unit.reg("m")), op("vmaxps", amax, amax, x)]
        return [load32(unit, x, "src", source + at, lanes), *find]

    def coded(at: Affine, lanes: int) -> Code:
        whole = unit.reg("x", "s32")
        find = [op("vmulps", x, x, inverse), op("vcvtps2dq", whole, x), op("vpaddd", total, total, whole)]
        return [
            load32(unit, x, "src", source + at, lanes),
            *find,
            *store(c, "codes", unit.reg("x"), target + at, min(lanes, unit.lanes)),
        ]

    code: Code = [*c.word("m", MAGNITUDE), zero(amax), *along(live, unit.lanes, magnitudes, var="v")]
    code += horizontal(unit, "c0", lambda acc, other: [op("vmaxps", acc, acc, other)])
    code += [*c.number("n", 127.0), op("vdivps", scale, amax, unit.reg("n", "f32"))]
    code += [op("vdivps", inverse, unit.reg("n", "f32"), amax)]
    code += [zero(keep), typed("vpsubd", keep, keep, amax), typed("vpsrad", keep, keep, imm=31)]
    code += [typed("vpand", inverse, inverse, keep), zero(total), *along(live, unit.lanes, coded, var="w")]
    filled = p.block - live
    if filled:
        nothing = unit.reg("x")
        code += along(
            filled,
            unit.lanes,
            lambda at, lanes: [zero(nothing), *store(c, "codes", nothing, target + live + at, lanes)],
            var="z",
        )
    code += horizontal(unit, "t0", lambda acc, other: [typed("vpaddd", acc, acc, other)])
    sums = unit.reg("t0", "f32")
    code += [op("vcvtdq2ps", sums, total), op("vmulps", sums, sums, scale)]
    one = Unit("avx2", 128)
    for name, tensor in (("d", "scales"), ("t0", "sums")):
        code.append(store32(one, tensor, row * p.count + block, Register(name, "f32", 4), 1))
    return code
