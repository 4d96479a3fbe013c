"""The rules of the proof, each at its boundary: a program just inside runs alike in both engines, one just outside is
refused.

A row: the rule; the program inside; the one outside, which differs by the one number that the rule is about; a part of
the message.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from isa_models import ProgramError
from isa_models.formats import fmt
from isa_models.gpu.platforms import MOST_GRFS, RESERVED_GRFS
from simdnn import numerics
from simdnn.program.check import verify
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
    inner = Loop("i", 2, (load(0, "c", bits), store(i * 16, "c", 256)), parallel)
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
    """Two parallel iterations that each store a tile of `rows` rows, 32 elements apart, the second `width` further."""
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


def gpu(registers: int) -> Program:
    """Loads of 64 bytes into so many registers of Ponte Vecchio."""
    register = [Register(f"r{i}", "u32", 16) for i in range(registers)]
    loads = [Op("load.u32", r, (Memory("a", Affine(), "u32", 16),)) for r in register]
    stores = [Op("store.u32", Memory("o", Affine(16 * i), "u32", 16), (r,)) for i, r in enumerate(register)]
    tensors = Tensor("a", "u32", 16), Tensor("o", "u32", 16 * registers, "output")
    return Program("p", "xe_hpc", tensors, (once(*loads, *stores),))


V, W = reg("v"), reg("w")
RULES: dict[str, tuple[Program, Program, str]] = {
    # -- addresses
    "the last address of a load": (
        copies(16, 4),
        program(Loop("i", 4, (load(i * 16 + 1), store(i * 16)))),
        "addresses 1 .. 64 of a",
    ),
    "the first address of a load": (
        copies(-16, 4, 48),
        program(Loop("i", 4, (load(i * -16 + 47), store(i * 16)))),
        "addresses -1 .. 62",
    ),
    "the last address of a store": (
        copies(16, 3, 16),
        program(Loop("i", 3, (load(), store(i * 16 + 17)))),
        "addresses 17 .. 64 of o",
    ),
    "the last address of a masked store": (
        program(once(load(), store(57, lanes=7))),
        program(once(load(), store(57, lanes=8))),
        "addresses 57 .. 64",
    ),
    "the last iteration": (copies(16, 4), copies(16, 5), "addresses 0 .. 79"),
    "one element": (
        program(once(load(lanes=1), store(lanes=1)), a=1, o=1),
        program(once(load(lanes=2), store(lanes=1)), a=1, o=1),
        "addresses 0 .. 1",
    ),
    "two variables": (
        program(Loop("i", 2, (Loop("j", 3, (load(i * 32 + j * 8), store())),))),
        program(Loop("i", 2, (Loop("j", 3, (load(i * 33 + j * 8), store())),))),
        "addresses 0 .. 64",
    ),
    "a step that no address has": (
        program(Loop("i", 1, (load(i * HUGE), store()))),
        program(Loop("i", 1, (load(i * (HUGE + 1)), store()))),
        "steps of more than",
    ),
    "a step back that no address has": (
        program(Loop("i", 1, (load(i * -HUGE), store()))),
        program(Loop("i", 1, (load(i * (-HUGE - 1)), store()))),
        "steps of more than",
    ),
    "whole elements": (
        program(once(Op("vpbroadcastd", reg("v", 512, "u32"), (Memory("a", Affine(), "u32", 1),)), store())),
        program(once(Op("vpbroadcastb", reg("v", 512, "u8"), (Memory("a", Affine(), "u8", 1),)), store())),
        "no whole number of f32",
    ),
    "a known variable": (copies(16, 4), program(Loop("i", 4, (load(j * 16), store()))), "index variables ['j']"),
    "a known tensor": (copies(16, 4), program(once(load(tensor="b"), store())), "no tensor 'b'"),
    "outputs alone are stored to": (
        program(once(load(), store())),
        program(once(load(), store(tensor="a"))),
        "a is read only",
    ),
    "constants are not stored to": (
        with_constant(16, 16),
        replace(with_constant(16, 16), body=(once(load(), store(tensor="c")),)),
        "c is read only",
    ),
    # -- tensors
    "a constant's size": (with_constant(16, 16), with_constant(17, 16), "holds 64 of 68 bytes"),
    "a constant's data": (with_constant(16, 16), with_constant(16, 17), "holds 68 of 64 bytes"),
    "data of a constant alone": (with_constant(16, 16), with_constant(16, 16, "input"), "input c holds data"),
    "a tensor is not empty": (
        program(once(load(), store()), more=(Tensor("b", "f32", 1),)),
        program(once(load(), store()), more=(Tensor("b", "f32", 0),)),
        "has 0 elements",
    ),
    "a name once": (
        program(once(load(), store()), more=(Tensor("b", "f32", 1),)),
        program(once(load(), store()), more=(Tensor("a", "f32", 1),)),
        "two tensors of one name",
    ),
    "a kind": (
        program(once(load(), store()), more=(Tensor("b", "f32", 1, "scratch"),)),
        program(once(load(), store()), more=(Tensor("b", "f32", 1, "other"),)),
        "has kind 'other'",
    ),
    "whole bytes": (
        program(once(load(), store()), more=(Tensor("b", "u8", 1),)),
        program(once(load(), store()), more=(Tensor("b", "u4", 2),)),
        "store nibbles as u8",
    ),
    # -- loops
    "a loop runs": (copies(16, 1), copies(16, 0), "a loop runs at least once"),
    "a body": (program(once(load(), store())), program(once(load(), store()), Loop("i", 2, ())), "an empty body"),
    "a variable once": (nested(2), program(Loop("s", 2, (once(load(), store()),))), "is a loop around it already"),
    "a variable's name": (copies(16, 4), program(Loop("row of a tile", 1, (load(), store()))), "variable name"),
    # -- registers
    "as wide as written": (changed_bits(256, 256), changed_bits(256, 512), "holds 256 bits, not 512"),
    "as wide as written, and the low part": (changed_bits(512, 256), changed_bits(128, 256), "holds 128 bits, not 256"),
    "written before it is read": (
        program(once(load(), store())),
        program(once(store(), load())),
        "read before it is written",
    ),
    "a zero idiom of one register": (
        program(once(Op("vpxor", V.as_("u32"), (W.as_("u32"), W.as_("u32"))), store())),
        program(once(load(), Op("vpxor", V.as_("u32"), (V.as_("u32"), W.as_("u32"))), store())),
        "w is read before",
    ),
    "not of another statement": (
        program(once(load(), store())),
        program(once(load(), store()), once(store(16))),
        "read before it is written",
    ),
    "not of a loop that is over": (
        program(once(load(), Loop("i", 2, (load(i * 16),)), store())),
        program(once(Loop("i", 2, (load(i * 16),)), store())),
        "read before it is written",
    ),
    "32 registers of AVX-512": (sums(32, "avx512_core", 512), sums(33, "avx512_core", 512), "more than the 32"),
    "16 registers of AVX2": (sums(16, "avx2", 256), sums(17, "avx2", 256), "more than the 16"),
    "a register's name": (
        program(once(load(name="v1"), store(name="v1"))),
        program(once(load(name="1v"), store(name="1v"))),
        "register name '1v'",
    ),
    "tiles are no vectors": (
        program(once(load(name="tmm8"), store(name="tmm8"))),
        program(once(load(name="tmm7"), store(name="tmm7"))),
        "are tiles",
    ),
    "carried with its width": (carried(256), carried(512), "is carried with 256 bits and comes back with 512"),
    "nothing is carried in parallel": (
        carried(256, True, False),
        carried(256, True, True),
        "cannot carry registers ['c']",
    ),
    # -- instructions
    "the number of operands": (
        program(once(load(), Op("vaddps", V, (V, V)), store())),
        program(once(load(), Op("vaddps", V, (V,)), store())),
        "takes 2 operands",
    ),
    "one memory operand": (
        program(once(load(), Op("vaddps", V, (V, Memory("a", Affine(), "f32", 16))), store())),
        program(once(Op("vaddps", V, (Memory("a", Affine(), "f32", 16),) * 2), store())),
        "at most one memory operand",
    ),
    "a width of the ISA": (
        program(once(load(bits=256), store(bits=256)), isa="avx2"),
        program(once(load(bits=512), store(bits=512)), isa="avx2"),
        "not in avx2 at 512 bits",
    ),
    "an instruction of the ISA": (dot("u8", "s8"), dot("u8", "s8", isa="avx512_core"), "not in avx512_core at 512"),
    "types": (dot("u8", "s8"), dot("s8", "s8"), "should be u8"),
    "the accumulator is the destination": (
        dot("u8", "s8"),
        program(once(load(), load(0, "w"), Op("vfmadd231ps", W, (V, V, W)), store())),
        "the destination is the accumulator",
    ),
    "as many lanes": (
        program(once(load(), Op("vaddps", V, (V, V)), store())),
        program(once(load(), Op("vaddps", V, (V, reg("v", 256))), store())),
        "should have 16 lanes",
    ),
    "some lanes": (
        program(once(load(lanes=1), store())),
        program(once(Op("vmovups", V, (Memory("a", Affine(), "f32", 0),)), store())),
        "should have 1 to 16 lanes",
    ),
    "no more lanes than the register": (
        program(once(load(lanes=16), store())),
        program(once(load(lanes=17), store())),
        "should have 1 to 16 lanes",
    ),
    "only tiles have rows": (
        program(once(load(), store())),
        program(once(Op("vmovups", V, (Memory("a", Affine(), "f32", 16, 2, 8),)), store())),
        "only tiles have rows",
    ),
    "masks of AVX-512": (masked("avx512_core", 7), masked("avx2", 7), "avx2 has no masks"),
    "masks of AVX2": (masked("avx2", 7, "vmaskmovps"), masked("avx2", 7), "avx2 has no masks"),
    "masks where there are some": (masked("avx2", 8), masked("avx2", 7), "avx2 has no masks"),
    "masks of a store": (
        program(once(load(bits=256), store(bits=256)), isa="avx2"),
        program(once(load(bits=256), store(bits=256, lanes=7)), isa="avx2"),
        "avx2 has no masks",
    ),
    "masks of a factor": (multiplied(32), multiplied(28), "avx2_vnni has no masks"),
    "an immediate's range": (shuffled(255), shuffled(256), "an immediate is a byte"),
    "an immediate's sign": (shuffled(0), shuffled(-1), "an immediate is a byte"),
    "an immediate's name": (shuffled(1), shuffled(1, "count"), "takes the immediates"),
    "an immediate once": (shuffled(1), shuffled(1, of=2), "takes the immediates"),
    # -- races
    "a stride of a vector": (parallel(load(), store(p * 16)), parallel(load(), store(p * 15)), "keep apart in o"),
    "two stores of an iteration": (
        parallel(load(), store(p * 20), store(p * 20 + 4)),
        parallel(load(), store(p * 19), store(p * 19 + 4)),
        "keep apart in o",
    ),
    "a load of what another stores": (
        parallel(load(p * 16, tensor="o"), store(p * 16)),
        parallel(load(p * 16 + 1, tensor="o"), store(p * 16), o=80),
        "keep apart in o",
    ),
    "iterations that interleave": (  # 0 .. 15 and 32 .. 47 of one, 16 .. 31 and 48 .. 63 of the other
        parallel(load(), Loop("i", 2, (store(p * 16 + i * 32),)), extent=2),
        parallel(load(), Loop("i", 2, (store(p * 16 + i * 31),)), extent=2),
        "keep apart in o",
    ),
    "an iteration that never comes": (  # the third would meet the first one's second store
        parallel(load(), Loop("i", 2, (store(p * 16 + i * 32),)), extent=2),
        parallel(load(), Loop("i", 2, (store(p * 16 + i * 32),)), extent=3, o=80),
        "keep apart in o",
    ),
    "another stride": (
        parallel(load(p * 16, tensor="o"), store(p * 16)),
        parallel(load(p * 8, tensor="o"), store(p * 16)),
        "keep apart in o",
    ),
    "a step to where another was": (  # spans of 32 and a stride of 64, but for the load, which strides by 32
        parallel(load(p * 64, tensor="o"), store(p * 64 + 16), extent=2, o=128),
        parallel(load(p * 32, tensor="o"), store(p * 64 + 16), extent=2, o=128),
        "keep apart in o",
    ),
    "a place that another loop moves": (
        program(Loop("i", 3, (Loop("p", 2, (load(i * 32 + p * 16, tensor="o"), store(i * 32 + p * 16)), True),)), o=96),
        program(Loop("i", 3, (Loop("p", 2, (load(i * 32 + p * 16, tensor="o"), store(p * 16)), True),)), o=96),
        "keep apart in o",
    ),
    "element after element": (
        parallel(load(), Loop("i", 2, (store(p + i * 3, lanes=1),))),
        parallel(load(), Loop("i", 2, (store(p + i * 2, lanes=1),))),
        "keep apart in o",
    ),
    "what iterations only read": (  # 48 .. 63 of one is 64 .. 79 of the one before
        parallel(load(p * 16 + 48, tensor="o"), load(p * 16 + 64, "w", tensor="o"), store(p * 16), o=112),
        parallel(load(p * 16 + 48, tensor="o"), load(p * 16 + 64, "w", tensor="o"), store(p * 16 + 16), o=112),
        "keep apart in o",
    ),
    "one iteration": (parallel(load(), store(), extent=1), parallel(load(), store(), extent=2), "keep apart in o"),
    "one place for all around": (
        program(Loop("i", 2, (Loop("p", 2, (load(), store(i * 32 + p * 16)), True),))),
        program(Loop("i", 2, (Loop("p", 2, (load(i * 16, tensor="o"), store(i * 32 + p * 16)), True),))),
        "keep apart in o",
    ),
    "reads alone meet": (parallel(load(), store(p * 16)), parallel(load(tensor="o"), store(p * 16)), "keep apart in o"),
    # -- private tensors
    "stored before it is read": (
        private(load(p * 16), store(0, tensor="own"), load(tensor="own"), store(p * 16)),
        private(load(p * 16), store(1, tensor="own"), load(tensor="own"), store(p * 16)),
        "stored before",
    ),
    "all of it stored": (
        private(load(), Loop("k", 2, (store(k * 16, tensor="own"),)), load(16, tensor="own"), store(p * 16)),
        private(load(), Loop("k", 2, (store(k * 16, tensor="own"),)), load(17, tensor="own"), store(p * 16)),
        "stored before",
    ),
    "stored in each iteration around": (
        private(load(), Loop("k", 2, (store(k * 16, tensor="own"), load(k * 16, tensor="own"))), store(p * 16)),
        private(load(), Loop("k", 2, (store(k * 8, tensor="own"), load(k * 16, tensor="own"))), store(p * 16)),
        "stored before",
    ),
    "stored ahead of a loop": (
        private(load(), store(0, tensor="own"), Loop("k", 2, (load(0, tensor="own"),)), store(p * 16)),
        private(load(), store(0, tensor="own"), Loop("k", 2, (load(k * 16, tensor="own"),)), store(p * 16)),
        "stored before",
    ),
    # -- tiles
    "rows as configured": (tiles(5), tiles(4), "should have the 5 rows"),
    "a tile's last row": (tiles(5), tiles(5, at=1), "addresses 1 .. 80"),
    "a tile's stride": (tiles(5), tiles(5, stride=17), "addresses 0 .. 83"),
    "a tile's stride back": (tiles(5), tiles(5, stride=-1), "addresses -4"),
    "configured first": (tiles(5), tiles(5, first=False), "no ldtilecfg before it"),
    "16 rows": (tiles(5), tiles(5, config=configuration([17])), "no tiles of palette 1"),
    "64 bytes": (tiles(5), tiles(5, config=configuration([5])[:40]), "no tiles of palette 1|addresses"),
    "palette 1": (tiles(5), tiles(5, config=b"\2" + configuration([5])[1:]), "no tiles of palette 1"),
    "16 rows of the second factor": (tile_dot(16), tile_dot(15), "should have 256 lanes|should have 1024 lanes"),
    "rows of a tile and of its neighbour's": (  # 3 rows of 16 each: one below the other, or row by row in turn
        side_by_side(16),
        side_by_side(15),
        "keep apart in o",
    ),
    "two rows of a tile and of its neighbour's": (side_by_side(16, 2), side_by_side(32, 2), "keep apart in o"),
    "three tiles": (tile_dot(16), tile_dot(16, ("tmm0", "tmm1", "tmm1")), "should have|a tile twice"),
    "no tile twice": (tile_dot(16), tile_dot(16, ("tmm0", "tmm0", "tmm2")), "a tile twice"),
    "a tile's memory has its rows": (tiles(5), tiles(5, loaded=(64, 4)), "should have 5 rows of 64 bytes"),
    "a tile's memory has whole rows": (tiles(5), tiles(5, loaded=(75, 5)), "should have 5 rows of 64 bytes"),
    "tiles from a constant": (tiles(5), tiles(5, kind="input"), "outside all loops, from a constant"),
    "tiles outside all loops": (tiles(5), tiles(5, inside=True), "outside all loops, from a constant"),
    "tiles by their names": (tiles(5), tiles(5, name="tmm8"), "tmm8 is none of tmm0"),
    "an order of sums once": (chosen(1), chosen(2), "takes the choices"),
    "tiles from memory": (
        configured_by(Memory("t", Affine(), "u8", 64)),
        configured_by(Register("r", "u8", 64)),
        "outside all loops, from a constant",
    ),
    "all of the configuration": (
        configured_by(Memory("t", Affine(), "u8", 64)),
        configured_by(Memory("t", Affine(1), "u8", 64)),
        "addresses 1 .. 64 of t",
    ),
    # -- GPUs
    "registers of a GPU's thread": (gpu(MOST_GRFS - RESERVED_GRFS), gpu(MOST_GRFS - RESERVED_GRFS + 1), "a thread has"),
}


def bits(outputs: dict[str, Any]) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in outputs.items()}


@pytest.mark.parametrize("rule", RULES)
def test_just_inside(rule: str) -> None:
    inside = verify(RULES[rule][0])
    rng = np.random.default_rng(0)
    inputs = {
        t.name: rng.integers(0, 99, t.size).astype(fmt(t.dtype).dtype) for t in inside.tensors if t.kind == "input"
    }
    expected = numerics.run(inside, inputs, engine="reference")
    for native in (False, True):
        for threads in (1, 2):
            found = numerics.run(inside, inputs, engine="compiled", threads=threads, native=native)
            assert bits(found) == bits(expected)


@pytest.mark.parametrize("rule", RULES)
def test_just_outside(rule: str) -> None:
    _, outside, message = RULES[rule]
    parts = "|".join(re.escape(part) for part in message.split("|"))
    with pytest.raises(ProgramError, match=parts):
        verify(outside)
    with pytest.raises(ProgramError, match=parts):
        numerics.run(outside, {"a": np.zeros(64, np.float32)})


@pytest.mark.parametrize("rule", ["iterations that interleave", "all of it stored"])
def test_too_many_elements_to_look_at(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both programs are sound; where more elements than the limit would have to be looked at, the answer is no."""
    inside, _, message = RULES[rule]
    monkeypatch.setattr("simdnn.program.check._MAX_ENUMERATED", 32)
    verify(replace(inside, name="at the limit"))
    monkeypatch.setattr("simdnn.program.check._MAX_ENUMERATED", 31)
    with pytest.raises(ProgramError, match=message):
        verify(replace(inside, name="beyond"))


@pytest.mark.parametrize(("size", "fits"), [(HUGE, True), (HUGE + 1, False)])
def test_the_largest_tensor(size: int, fits: bool) -> None:
    made = program(once(load(), store()), more=(Tensor("b", "u8", size, "scratch"),))
    if fits:
        verify(made)
    else:
        with pytest.raises(ProgramError, match=f"has {size} elements; 1 to {HUGE} bytes"):
            verify(made)


def test_tiles_are_no_vector_registers() -> None:
    """All 32 vectors beside a tile."""
    configure, body = tiles(5).body
    assert isinstance(body, Loop)
    vectors = sums(32, "avx512_core", 512)
    wide = tuple(replace(t, size=512) if t.name == "o" else t for t in tiles(5).tensors)
    verify(Program("p", "avx512_core_amx", wide, (configure, Loop("t", 1, (*body.body, *vectors.body)))))
