"""One row of f32 times weights of 4 bits in blocks, as MLAS, onnxruntime's library, forms it with floats
(docs/numerics_onnxruntime.md).

for each four columns of weights, and each left:                                                      parallel
    for each block, 32 codes or 16 at a time:
        codes less zero point, as f32, times scale; acc = fma(those, source, acc), lanes along K
    lanes are added up, and the bias comes last
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, nest, op, pieces
from simdnn.kernels.common.nbits import FloatRow, nibbles
from simdnn.kernels.common.vocabulary import Spread, Vocabulary
from simdnn.kernels.x86 import folds
from simdnn.kernels.x86.code import Unit, load32, store32, typed, unit_of, zero
from simdnn.program.check import verify
from simdnn.program.records import SCALES, SOURCE, WEIGHTS, ZEROS, Affine, Memory, Program, Register, Tensor

_COLUMNS = 4
_XMM = Unit("avx2", 128)


def float_row(problem: FloatRow, words: Vocabulary) -> Spread:
    """Inputs src (k,), w (n, k of the blocks) of u8, w_scales and zeros (n, blocks), bias; output dst (n,)."""
    program = _program(problem, unit_of(words.isa))
    w = problem.weights

    def prepare(inputs: Mapping[str, Array]) -> dict[str, Array]:
        source = np.zeros(w.k, np.float32)
        source[: problem.k] = inputs["src"].reshape(-1)
        found = {name: np.ascontiguousarray(a).reshape(-1) for name, a in inputs.items()}
        return {**found, "src": source, "w": nibbles(inputs["w"], min(32, w.block) // 2).reshape(-1)}

    return Spread(program, prepare, lambda found: found["dst"])


@functools.lru_cache(maxsize=256)
def _program(p: FloatRow, unit: Unit) -> Program:
    w = p.weights
    code: Code = []
    for count, start, columns in pieces("j", w.n, _COLUMNS):
        loops = [("j", count)]
        if columns < _COLUMNS:
            loops, start, columns = [*loops, ("c", columns)], start + Affine.var("c"), 1
        code += nest(loops, _columns(p, unit, start, columns), parallel=True)
    tensors = [
        Tensor("src", "f32", w.k, role=SOURCE),
        Tensor("w", "u8", w.n * w.k // 2, role=WEIGHTS),
        Tensor("w_scales", "f32", w.n * w.count, role=SCALES),
        Tensor("zeros", "u8", w.n * w.count, role=ZEROS),
        *([Tensor("bias", "f32", w.n)] if p.bias else []),
        Tensor.constant("fifteen", "u8", bytes([15] * 16)),
        Tensor("dst", "f32", w.n, "output"),
    ]
    return verify(Program(f"nbits {p}", unit.isa, tuple(tensors), tuple(code)))


def _columns(p: FloatRow, unit: Unit, first: Affine, columns: int) -> Code:
    """`columns` outputs from `first`."""
    w, block = p.weights, Affine.var("g")
    accs = [unit.reg(f"c{c}", "f32") for c in range(columns)]
    code: Code = [zero(acc) for acc in accs]
    size = min(32, w.block)
    body: Code = []
    for c, acc in enumerate(accs):
        column, scale = first + c, unit.reg("s", "f32")
        at = block * w.block + Affine.var("h") * size
        body.append(op("vbroadcastss", scale, Memory("w_scales", column * w.count + block, "f32", 1)))
        body.append(op("vpbroadcastb", Register("z", "u8", 16), Memory("zeros", column * w.count + block, "u8", 1)))
        body += _codes(column * (w.k // 2) + block * (w.block // 2) + Affine.var("h") * (size // 2), size)
        for place in range(0, size, unit.lanes):
            name, value = f"x{place // 16}", unit.reg("v", "f32")
            if place % 16:  # the upper half of 16 bytes
                low = Register(name, "u32", 4)
                body.append(typed("vpunpckhqdq", low, low, low))
            body.append(op("vpmovsxbd", value.as_("s32"), Register(name, "s8", unit.lanes)))
            body += [op("vcvtdq2ps", value, value.as_("s32")), op("vmulps", value, value, scale)]
            body.append(op("vfmadd231ps", acc, acc, value, Memory("src", at + place, "f32", unit.lanes)))
    code += nest([("g", w.count), ("h", w.block // size)], body)
    if columns == _COLUMNS:
        code += folds.four([acc.name for acc in accs], unit.lanes, ("s", "v"))
    elif unit.width == 512:
        code += folds.by_halves("c0", unit.lanes, "s")
    else:
        code += folds.halves_then_neighbours("c0", "s")
    total, other = Register("c0", "f32", 4), Register("s", "f32", 4)
    if p.bias:
        code += [load32(_XMM, other, "bias", first, columns), op("vaddps", total, total, other)]
    return [*code, store32(_XMM, "dst", first, total, columns)]


def _codes(at: Affine, size: int) -> Code:
    """Codes of 4 bits less the zero point in z: 16 bytes each in x0 and x1, or in x0 alone."""
    low, high, mask = Register("x0", "u32", 4), Register("x1", "u32", 4), Memory("fifteen", Affine(), "u32", 4)
    if size == 16:
        code: Code = [op("vmovq", high.as_("u64"), Memory("w", at, "u64", 1))]
    else:
        code = [op("vmovdqu", high, Memory("w", at, "u32", 4))]
    code += [op("vpand", low, high, mask), typed("vpsrlw", high, high, imm=4), op("vpand", high, high, mask)]
    if size == 16:
        code.append(typed("vpunpcklqdq", low, low, high))
    zeros = Register("z", "u8", 16)
    return [*code, *(typed("vpsubb", x, x, zeros) for x in ((low,) if size == 16 else (low, high)))]
