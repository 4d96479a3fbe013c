"""Small programs for tests of the proof: copies, sums, tiles, each with the number that a rule is about."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from isa_models.formats import fmt
from simdnn.program.records import Affine, Loop, Memory, Op, Program, Register, Statement, Tensor
from simdnn.program.tiles import configuration

i, j, k, p = (Affine.var(name) for name in "ijkp")
HUGE = 1 << 36  # bytes of the largest tensor


def reg(name: str, bits: int = 512, dtype: str = "f32") -> Register:
    return Register(name, dtype, bits // fmt(dtype).bits)


def load(
    index: Affine | int = 0, name: str = "v", bits: int = 512, tensor: str = "a", lanes: int = 0, by: str = "vmovups"
) -> Op:
    register = reg(name, bits)
    return Op(by, register, (Memory(tensor, Affine() + index, "f32", lanes or register.lanes),))


def store(index: Affine | int = 0, name: str = "v", bits: int = 512, tensor: str = "o", lanes: int = 0) -> Op:
    register = reg(name, bits)
    return Op("vmovups", Memory(tensor, Affine() + index, "f32", lanes or register.lanes), (register,))


def program(
    *body: Statement, a: int = 64, o: int = 64, isa: str = "avx512_core", more: tuple[Tensor, ...] = ()
) -> Program:
    return Program("p", isa, (Tensor("a", "f32", a), Tensor("o", "f32", o, "output"), *more), body)


def once(*body: Statement) -> Loop:
    return Loop("s", 1, body)


def copies(coefficient: int, extent: int, const: int = 0, parallel: bool = False, size: int = 64) -> Program:
    """Vector after vector from `a` to `o`."""
    at = i * coefficient + const
    return program(Loop("i", extent, (load(at), store(at)), parallel), a=size, o=size)


def parallel(*body: Statement, extent: int = 3, o: int = 64) -> Program:
    return program(Loop("p", extent, body, True), o=o)


def sums(count: int, isa: str, bits: int) -> Program:
    """Loads into so many registers, all stored."""
    lanes = bits // 32
    code = [load(0, f"r{i}", bits) for i in range(count)] + [store(lanes * i, f"r{i}", bits) for i in range(count)]
    return program(once(*code), isa=isa, o=lanes * count)


def nested(depth: int, extent: int = 1) -> Program:
    body: Statement = once(load(), store())
    for number in range(depth - 1):
        body = Loop(f"n{number}", extent if number == 0 else 1, (body,))
    return program(body)


def dot(a: str, b: str, bits: int = 512, isa: str = "avx512_core_vnni") -> Program:
    """A vpdpbusd over registers of these bits for the two factors."""
    acc = reg("acc", bits, "s32")
    words = acc.as_("u32")
    clear = Op("vpxor", words, (words, words))
    loads = [Op("vmovdqu", reg(n, bits, "u32"), (Memory("a", Affine(), "u32", bits // 32),)) for n in "xy"]
    step = Op("vpdpbusd", acc, (acc, reg("x", bits, a), reg("y", bits, b)))
    out = Op("vmovdqu", Memory("o", Affine(), "u32", bits // 32), (words,))
    return program(once(clear, *loads, step, out), isa=isa)


def changed_bits(written: int, read: int) -> Program:
    return program(once(load(0, "v", written), store(0, "v", read)))


def private(*body: Statement) -> Program:
    return program(Loop("p", 3, body, True), more=(Tensor("own", "f32", 64, "private"),))


def with_constant(size: int, data: int, kind: str = "constant") -> Program:
    constant = Tensor("c", "f32", size, kind, np.arange(data, dtype=np.float32).tobytes())
    return program(once(load(tensor="c"), store()), more=(constant,))


def shuffled(imm: int, name: str = "imm", lanes: int = 16, of: int = 1) -> Program:
    register = Register("v", "u32", lanes)
    step = Op("vpslld", register, (register,), ((name, imm),) * of)
    return program(once(load(), step, store()))


def masked(isa: str, lanes: int, by: str = "vmovups") -> Program:
    whole = Op("vmovups", Memory("o", Affine(), "f32", 8), (reg("v", 256),))
    return program(once(load(0, "v", 256, lanes=lanes, by=by), whole), isa=isa)


def multiplied(lanes: int) -> Program:
    """A vpdpbusd of AVX2 that reads so many weights from memory."""
    acc, x = reg("acc", 256, "s32"), reg("x", 256, "u8")
    clear = Op("vpxor", acc.as_("u32"), (acc.as_("u32"),) * 2)
    first = Op("vmovdqu", x.as_("u32"), (Memory("a", Affine(), "u32", 8),))
    step = Op("vpdpbusd", acc, (acc, x, Memory("a", Affine(), "s8", lanes)))
    out = Op("vmovdqu", Memory("o", Affine(), "u32", 8), (acc.as_("u32"),))
    return program(once(clear, first, step, out), isa="avx2_vnni")


def chosen(times: int) -> Program:
    """Products of tiles that say so often in which order they add up."""
    acc, x, y = (Register(f"tmm{i}", d, 16 * n) for i, (d, n) in enumerate((("f32", 16), ("bf16", 32), ("bf16", 32))))
    configure = Op("ldtilecfg", Register("cfg", "u8", 64), (Memory("t", Affine(), "u8", 64),))
    loads = [Op("tileloadd", r.as_("u32"), (Memory("a", Affine(), "u32", 256, 16, 16),)) for r in (x, y)]
    step = Op("tdpbf16ps", acc, (acc, x, y), (), (("accumulation", "sequential"),) * times)
    out = Op("tilestored", Memory("o", Affine(), "u32", 256, 16, 16), (acc.as_("u32"),))
    zero = Op("tilezero", acc.as_("u32"), (acc.as_("u32"),))
    constant = Tensor.constant("t", "u8", configuration([16, 16, 16]))
    tensors = (Tensor("a", "f32", 256), Tensor("o", "f32", 256, "output"), constant)
    return Program("p", "avx512_core_amx", tensors, (configure, once(zero, *loads, step, out)))


def configured_by(source: Register | Memory) -> Program:
    made = tiles(5)
    return replace(made, body=(Op("ldtilecfg", Register("cfg", "u8", 64), (source,)), made.body[1]))


def carried(bits: int, parallel: bool = False, before: bool = True) -> Program:
    """A register that is defined ahead of a loop and written in it."""
    first = [load(0, "c", 256)] if before else []
    inner = Loop("i", 2, (load(0, "c", bits), store(i * 16, "c", min(bits, 256))), parallel)
    return program(once(*first, inner))


def tiles(
    rows: int,
    configured: int = 5,
    config: bytes = b"",
    at: int = 0,
    stride: int = 16,
    first: bool = True,
    loaded: tuple[int, int] | None = None,
    kind: str = "constant",
    inside: bool = False,
    name: str = "tmm0",
) -> Program:
    """A tile's load and store of `rows` rows; `loaded`: lanes and rows of the load, where other."""
    tile = Register(name, "u32", rows * 16)
    data = config or configuration([configured])
    memory = Memory("a", Affine(at), "u32", rows * 16, rows, stride)
    source = memory if loaded is None else replace(memory, lanes=loaded[0], rows=loaded[1])
    body = once(
        Op("tileloadd", tile, (source,)), Op("tilestored", replace(memory, tensor="o", index=Affine()), (tile,))
    )
    configure: Statement = Op("ldtilecfg", Register("cfg", "u8", 64), (Memory("t", Affine(), "u8", 64),))
    constant = Tensor.constant("t", "u8", data) if kind == "constant" else Tensor("t", "u8", 64, kind)
    tensors = (Tensor("a", "f32", 80), Tensor("o", "f32", 80, "output"), constant)
    configure = Loop("s", 1, (configure,)) if inside else configure
    statements: tuple[Statement, ...] = (configure, body) if first else (body, configure)
    return Program("p", "avx512_core_amx", tensors, statements)


def tile_dot(b: int, registers: tuple[str, str, str] = ("tmm0", "tmm1", "tmm2")) -> Program:
    """A product of tiles; `b`: rows of the second factor, of which there are 16."""
    acc, x, y = (
        Register(n, d, r * 64 // (4 if d == "s32" else 1))
        for n, d, r in zip(registers, ("s32", "u8", "s8"), (3, 3, b), strict=True)
    )
    zero = Op("tilezero", acc.as_("u32"), (acc.as_("u32"),))
    loads = [
        Op("tileloadd", r.as_("u32"), (Memory("a", Affine(), "u32", r.bits // 32, r.bits // 512, 16),)) for r in (x, y)
    ]
    out = Op("tilestored", Memory("o", Affine(), "u32", 48, 3, 16), (acc.as_("u32"),))
    configure = Op("ldtilecfg", Register("cfg", "u8", 64), (Memory("t", Affine(), "u8", 64),))
    tensors = (
        Tensor("a", "u32", 256),
        Tensor("o", "f32", 48, "output"),
        Tensor.constant("t", "u8", configuration([3, 3, b])),
    )
    return Program(
        "p", "avx512_core_amx", tensors, (configure, once(zero, *loads, Op("tdpbusd", acc, (acc, x, y)), out))
    )


def side_by_side(width: int, rows: int = 3) -> Program:
    """Two iterations in parallel that each store a tile, its rows 32 elements apart, the second `width` further."""
    tile = Register("tmm0", "u32", 16 * rows)
    configure = Op("ldtilecfg", Register("cfg", "u8", 64), (Memory("t", Affine(), "u8", 64),))
    body = (
        Op("tileloadd", tile, (Memory("a", Affine(), "u32", 16 * rows, rows, 16),)),
        Op("tilestored", Memory("o", p * width, "u32", 16 * rows, rows, 32), (tile,)),
    )
    tensors = (
        Tensor("a", "f32", 48),
        Tensor("o", "f32", 96, "output"),
        Tensor.constant("t", "u8", configuration([rows])),
    )
    return Program("p", "avx512_core_amx", tensors, (configure, Loop("p", 2, body, True)))


def packed(bits: int, lanes: int) -> Program:
    """A vpackssdw of registers of these bits to so many lanes of s16."""
    v, w = reg("v", bits, "u32"), reg("w", bits, "u32")
    loads = [Op("vmovdqu", r, (Memory("a", Affine(), "u32", bits // 32),)) for r in (v, w)]
    half = Register("v", "s32", lanes // 2)
    step = Op("vpackssdw", Register("x", "s16", lanes), (half, replace(half, name="w")))
    out = Op("vmovdqu", Memory("o", Affine(), "u32", lanes // 2), (Register("x", "u32", lanes // 2),))
    return program(once(*loads, step, out))


def gpu(registers: int) -> Program:
    """Loads of 64 bytes into so many registers of Ponte Vecchio."""
    register = [Register(f"r{i}", "u32", 16) for i in range(registers)]
    loads = [Op("load.u32", r, (Memory("a", Affine(), "u32", 16),)) for r in register]
    stores = [Op("store.u32", Memory("o", Affine(16 * i), "u32", 16), (r,)) for i, r in enumerate(register)]
    tensors = Tensor("a", "u32", 16), Tensor("o", "u32", 16 * registers, "output")
    return Program("p", "xe_hpc", tensors, (once(*loads, *stores),))
