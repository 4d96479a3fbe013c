"""Programs and problems for the tests of the clock. B of a GEMM is packed as [N / block][K / depth][block][depth]."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from isa_models.block_formats import block_format
from simdnn.kernels.common.epilogue import Decompression, Epilogue, GroupScales, ZeroPoints
from simdnn.kernels.common.params import Param
from simdnn.kernels.common.problems import MatmulProblem, Problem
from simdnn.kernels.x86.repacked_steps import TYPES
from simdnn.kernels.x86.rows_blocks import MULTIPLIED
from simdnn.kernels.x86.vec_dot_k import STEPS
from simdnn.primitives import Attr, Quant
from simdnn.primitives.estimate import estimate
from simdnn.program.check import verify
from simdnn.program.records import Affine, Loop, Memory, Op, Program, Register, Statement, Tensor
from tests.params import along_k

#: kind -> (instruction, source, weights, accumulator, depth of one dot)
KINDS = {
    "f32": ("vfmadd231ps", "f32", "f32", "f32", 1),
    "bf16": ("vdpbf16ps", "bf16", "bf16", "f32", 2),
    "vnni": ("vpdpbusd", "u8", "s8", "s32", 4),
    "maddubs": ("vpmaddubsw", "u8", "s8", "s32", 4),
}
BITS = {"f32": 32, "s32": 32, "u32": 32, "bf16": 16, "s16": 16, "u8": 8, "s8": 8}
ISA = {"f32": "avx512_core", "bf16": "avx512_core_bf16", "vnni": "avx512_core_vnni", "maddubs": "avx512_core"}


@functools.cache
def gemm(
    kind: str, m: int, n: int, k: int, rows: int, vectors: int, width: int = 512, last: int = 0, taps: int = 1
) -> Program:
    """A verified GEMM of `rows` x `vectors` accumulator tiles.

    `last`: live lanes of the last vector of every row of tiles (0: all). `taps`: a loop around that of k, over which
    K is divided, so that the tile holds a nest of two loops.
    """
    instruction, at, bt, ct, depth = KINDS[kind]
    lanes = width // 32
    block, steps = vectors * lanes, k // depth // taps
    move, stored = ("vmovups", "f32") if ct == "f32" else ("vmovdqu", "u32")

    def register(name: str, dtype: str) -> Register:
        return Register(name, dtype, width // BITS[dtype])

    def accumulator(i: int, j: int) -> Register:
        return register(f"c{i}_{j}", ct)

    at_k = Affine.var("t") * (steps * depth) + Affine.var("k") * depth if taps > 1 else Affine.var("k") * depth
    body: list[Statement] = []
    for j in range(vectors):
        where = Affine.var("n") * (block * k) + at_k * block + j * lanes * depth
        body.append(Op("vmovdqu", register(f"b{j}", "u32"), (Memory("B", where, "u32", lanes),)))
    for i in range(rows):
        where = Affine.var("m") * (rows * k) + i * k + at_k
        body.append(Op("vpbroadcastd", register("a", "u32"), (Memory("A", where, "u32", 1),)))
        for j in range(vectors):
            a, b, c = register("a", at), register(f"b{j}", bt), accumulator(i, j)
            if kind == "maddubs":
                body.append(Op(instruction, register("t", "s16"), (a, b)))
                body.append(Op("vpmaddwd", register("t", "s32"), (register("t", "s16"), register("ones", "s16"))))
                body.append(Op("vpaddd", c, (c, register("t", "s32"))))
            else:
                body.append(Op(instruction, c, (c, a, b)))
    clear: list[Statement] = []
    stores: list[Statement] = []
    row = n - (lanes - last) if last else n
    for i in range(rows):
        for j in range(vectors):
            bits = accumulator(i, j).as_("u32")
            clear.append(Op("vpxor", bits, (bits, bits)))
            live = last if last and j == vectors - 1 else lanes
            where = Affine.var("m") * (rows * row) + Affine.var("n") * block + (i * row + j * lanes)
            stores.append(Op(move, Memory("C", where, stored, live), (accumulator(i, j).as_(stored),)))
    tensors = [Tensor("A", at, m * k), Tensor("B", bt, n * k), Tensor("C", ct, m * row, "output")]
    if kind == "maddubs":
        tensors.append(Tensor.constant("one", "s16", np.ones(2, np.int16).tobytes()))
        clear.append(Op("vpbroadcastd", register("ones", "u32"), (Memory("one", Affine(), "u32", 1),)))
    inner: Statement = Loop("k", steps, tuple(body))
    if taps > 1:
        inner = Loop("t", taps, (inner,))
    tile = (*clear, inner, *stores)
    nest = Loop("n", n // block, (Loop("m", m // rows, tile, parallel=True),), parallel=not last)
    isa = ISA[kind] if width == 512 else "avx2_vnni" if kind == "vnni" else "avx2"
    return verify(Program(f"gemm {kind} {m}x{n}x{k}", isa, tuple(tensors), (nest,)))


def streamed(*body: Statement) -> Program:
    """Statements over 16 MiB of f32, `x`."""
    tensors = Tensor("x", "f32", 1 << 22), Tensor("y", "f32", 16, "output")
    clear = tuple(Op("vpxor", Register(n, "u32", 16), (Register(n, "u32", 16),) * 2) for n in ("s", "one"))
    return verify(Program("streams", "avx512_core", tensors, (Loop("once", 1, (*clear, *body)),)))


def adds(var: str, extent: int) -> Loop:
    """Additions into one register: a cycle each, and nothing of memory."""
    sums, one = Register("s", "s32", 16), Register("one", "s32", 16)
    return Loop(var, extent, (Op("vpaddd", sums, (sums, one)),))


def loads(var: str, extent: int, start: Affine) -> Loop:
    """A line each."""
    at = Memory("x", start + Affine.var(var) * 16, "f32", 16)
    return Loop(var, extent, (Op("vmovups", Register("v", "f32", 16), (at,)),))


def narrow() -> Iterator[Problem]:
    """Products of floats of at most a byte: weights of 4 and 6 bits in blocks, and what is left to a reference."""
    blocks = Attr(scales={"wei": Quant(None, groups=(32, 1), dtype="e8m0")})
    sizes: dict[str, Any] = {"m": 9, "n": 40, "k": 64}
    for src, wei in itertools.product(("bf16", "f32", "f16"), ("f4_e2m1", "f6_e2m3")):
        yield estimate("matmul", **sizes, dt=f"{src}:{wei}:f32", attr=blocks, machine="gnr").problem
    for dt, name in (("f8_e4m3:f8_e4m3:f32", "spr"), ("f32:f32:f8_e4m3", "hsw")):
        yield estimate("matmul", **sizes, dt=dt, machine=name, dispatch="onednn").problem
    image: dict[str, Any] = {"ic": 16, "ih": 4, "iw": 4, "oc": 16, "kh": 3, "kw": 3, "padding": 1}
    yield estimate("convolution", **image, dt="f8_e5m2:f8_e5m2:f32", machine="spr", dispatch="onednn").problem


def in_blocks() -> Iterator[MatmulProblem]:
    """Products with every type of ggml's blocks that is multiplied, as stored and by interleaved rows."""
    for name in MULTIPLIED:
        form = block_format(name)
        sizes = [(1, 7, 1), (2, 18, 2)]
        sizes += [(5, 8, 1)] if name in TYPES else []  # eight columns lie interleaved
        sizes += [(9, 3, 1)] if name in STEPS else []  # a prompt goes in tiles
        for m, n, blocks in sizes:
            yield MatmulProblem(m, n, blocks * form.elements, "f32", form.codes, Epilogue("f32"), blocks=name)


def unusual() -> Iterator[MatmulProblem]:
    """Matmuls over weights that are brought to floating point first, and with scales that change along K."""
    parameters = (
        (Param("wei", 0, 0, "f32"), None),
        (Param("wei", 0, 1, "f32"), Param("wei", 0, 0, "s32")),
        (Param("wei", 16, 1, "f16"), Param("wei", 16, 1, "u8")),
    )
    for src, weights, reference in itertools.product(("f32", "bf16", "f16"), ("s8", "u8", "s4", "u4"), (False, True)):
        for (m, n, k), (scale, zero_point) in itertools.product(((1, 40, 64), (9, 24, 32)), parameters):
            for dst in ("f32", "bf16"):
                how = Decompression((src, "f32"), scale, zero_point, reference)
                yield MatmulProblem(m, n, k, src, weights, Epilogue(dst, bias=True), "any", how)
    for src, dst in itertools.product(("u8", "s8"), ("f32", "bf16")):
        sides = (None, 16), (16, 32), (32, None)
        for m, (rows, columns) in itertools.product((1, 9), sides):
            scales = GroupScales(rows and along_k("src", rows), columns and along_k("wei", columns))
            yield MatmulProblem(m, 40, 64, src, "s8", Epilogue(dst), group_scales=scales)
    for src, both, (m, n, k) in itertools.product(("u8", "s8"), (False, True), ((1, 40, 64), (8, 24, 32))):
        points = ZeroPoints(16, along_k("wei", 16, "s8"), along_k("src", 16, "u8") if both else None)
        yield MatmulProblem(m, n, k, src, "s8", Epilogue("f32"), zero_points=points)
