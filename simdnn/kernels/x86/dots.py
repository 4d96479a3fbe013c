"""How a dot product goes into an accumulator: the one table in which the GEMM kernels differ."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

from isa_models.formats import fmt
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.x86.code import Unit, load32, load_float
from simdnn.program.records import Affine, Memory, Op, Register

Emit = Callable[[Unit, str, str, str, str], list[Op]]  # unit, accumulator, a, b, temporary register names


@dataclass(frozen=True)
class Dot:
    """One step takes 4 bytes of the source (`depth` elements), in every lane, times `depth` x lanes weights."""

    name: str
    src: str  # what the unit reads of the source (after the copy stage, if it changes the type)
    wei: str  # packed weights in memory
    wide: str  # the weights in the register
    depth: int
    acc: str
    compute: str  # the type that r.compute_dtype tells
    emit: Emit
    temporaries: int = 0
    ones: bool = False  # wants a register of s16 ones
    scaled: bool = False  # wants a register of the source's scale
    scaled_weights: bool = False  # wants the weights' scales, a register for each vector of columns
    saturates: bool = False
    unsigned: bool = False  # the unit takes u8 sources: s8 ones are shifted by 128
    uops: int = 1  # multiply-pipe uops in `emit`
    load_uops: int = 0  # such uops of a load of weights
    rounds: str = ""  # f32 data is rounded so before it is multiplied: a kind of rounding.py
    chain: int = 0  # products after which a narrow accumulator joins a sum of 32 bits (`promote`)
    whole: int = 0  # channels of a tap are filled up to multiples of this, where more than `depth`
    beside: bool = False  # keeps a register of its own beside each accumulator (`beside`)

    def scaling(self, by_source: bool, by_weights: bool) -> Dot:
        """This dot, one that multiplies and adds apart, with scales on each product."""
        emit = _multiply_scale_add(by_source, by_weights)
        uops = 1 + by_source + by_weights
        return replace(self, emit=emit, scaled=by_source, scaled_weights=by_weights, uops=uops)

    @property
    def narrow_sums(self) -> bool:
        """Whether products are added up in fewer than 32 bits, from where sums join a wider one."""
        return bool(self.chain)

    @property
    def integer(self) -> bool:
        """Whether sums are of integers."""
        return not fmt(self.acc).is_float

    @property
    def joined(self) -> str:
        """The type in which sums of several chains are added up."""
        return "s32" if self.integer else "f32"

    def load_weights(self, unit: Unit, register: str, tensor: str, index: Affine, lanes: int) -> Code:
        """A register of weights: as stored, or widened on the way."""
        if self.wide == "f32":
            return load_float(unit, register, tensor, self.wei, index, lanes)
        if self.wei == self.wide:
            return [load32(unit, unit.reg(register), tensor, index, lanes)]
        return [op("vpmovsxbw", unit.reg(register, "s16"), Memory(tensor, index, self.wei, unit.width // 16))]

    def promote(self, unit: Unit, acc: str) -> Code:
        """A narrow accumulator as one of 32 bits: the sums in a lane's two halves, added up."""
        if not self.chain:
            return []
        if self.integer:
            return [op("vpmaddwd", unit.reg(acc, "s32"), unit.reg(acc, "s16"), unit.reg("ones", "s16"))]
        total, odd = unit.reg(acc, "f32"), unit.reg("t1", "f32")
        low, high = (Register(name, "u16", unit.lanes) for name in ("t0", "t1"))
        return [
            op("vpmovdw", low, total.as_("u32")),
            op("vpsrld", odd.as_("u32"), total.as_("u32"), imm=16),
            op("vpmovdw", high, odd.as_("u32")),
            op("vcvtph2ps", total, low.as_("f16")),
            op("vcvtph2ps", odd, high.as_("f16")),
            op("vaddps", total, total, odd),
        ]


@functools.lru_cache(maxsize=1 << 12)
def emitted(emit: Emit, unit: Unit, acc: str, a: str, b: str, temp: str) -> tuple[Op, ...]:
    """The instructions of one step, on registers that tiles of all shapes name alike."""
    return tuple(emit(unit, acc, a, b, temp))


def _fma(unit: Unit, acc: str, a: str, b: str, temp: str) -> list[Op]:
    total = unit.reg(acc, "f32")
    return [op("vfmadd231ps", total, total, unit.reg(a, "f32"), unit.reg(b, "f32"))]


def _bf16(unit: Unit, acc: str, a: str, b: str, temp: str) -> list[Op]:
    total = unit.reg(acc, "f32")
    return [op("vdpbf16ps", total, total, unit.reg(a, "bf16"), unit.reg(b, "bf16"))]


def _bf16_emulated(unit: Unit, acc: str, a: str, b: str, temp: str) -> list[Op]:
    """Each element widened in its register, the odd one first: as vdpbf16ps, but nothing is flushed to zero."""
    total, x, y = unit.reg(acc, "f32"), unit.reg("t0"), unit.reg("t1")
    code: list[Op] = []
    for halves in (("vpsrld", "vpslld"), ("vpslld",)):
        for wide, pairs in ((x, unit.reg(a)), (y, unit.reg(b))):
            code.append(op(halves[0], wide, pairs, imm=16))
            code += [op(shift, wide, wide, imm=16) for shift in halves[1:]]
        code.append(op("vfmadd231ps", total, total, x.as_("f32"), y.as_("f32")))
    return code


def _fp16(unit: Unit, acc: str, a: str, b: str, temp: str) -> list[Op]:
    total = unit.reg(acc, "f16")
    return [op("vfmadd231ph", total, total, unit.reg(a, "f16"), unit.reg(b, "f16"))]


def _vnni(unit: Unit, acc: str, a: str, b: str, temp: str) -> list[Op]:
    total = unit.reg(acc, "s32")
    return [op("vpdpbusd", total, total, unit.reg(a, "u8"), unit.reg(b, "s8"))]


def _maddubs(unit: Unit, acc: str, a: str, b: str, temp: str) -> list[Op]:
    total, words = unit.reg(acc, "s32"), unit.reg(temp, "s16")
    return [
        op("vpmaddubsw", words, unit.reg(a, "u8"), unit.reg(b, "s8")),
        op("vpmaddwd", words.as_("s32"), words, unit.reg("ones", "s16")),
        op("vpaddd", total, total, words.as_("s32")),
    ]


def _words(unit: Unit, acc: str, a: str, b: str, temp: str) -> list[Op]:
    total, words = unit.reg(acc, "s16"), unit.reg(temp, "s16")
    return [
        op("vpmaddubsw", words, unit.reg(a, "u8"), unit.reg(b, "s8")),
        op("vpaddsw", total, total, words),
    ]


def _maddwd(unit: Unit, acc: str, a: str, b: str, temp: str) -> list[Op]:
    total, sums = unit.reg(acc, "s32"), unit.reg(temp, "s32")
    return [
        op("vpmaddwd", sums, unit.reg(a, "s16"), unit.reg(b, "s16")),
        op("vpaddd", total, total, sums),
    ]


def _count(unit: Unit, acc: str, a: str, b: str, temp: str) -> list[Op]:
    """How many pairs saturate: those where the saturated sum is not the wrapped sum of the two products by themselves.

    A single product fits 16 bits (255 x 128 < 2**15), and a sum of two that leaves the range wraps to another value.
    """
    total, whole = unit.reg(acc, "s32"), unit.reg(b, "s8")
    even, odd = unit.reg("t0", "u16"), unit.reg("t1", "u16")
    return [
        op("vpsllw", even, unit.reg(a, "u16"), imm=8),
        op("vpsrlw", even, even, imm=8),
        op("vpmaddubsw", even.as_("s16"), even.as_("u8"), whole),
        op("vpsrlw", odd, unit.reg(a, "u16"), imm=8),
        op("vpsllw", odd, odd, imm=8),
        op("vpmaddubsw", odd.as_("s16"), odd.as_("u8"), whole),
        op("vpaddw", even.as_("s16"), even.as_("s16"), odd.as_("s16")),
        op("vpmaddubsw", odd.as_("s16"), unit.reg(a, "u8"), whole),
        op("vpsubw", even.as_("s16"), even.as_("s16"), odd.as_("s16")),
        op("vpminuw", even, even, unit.reg("ones", "u16")),
        op("vpmaddwd", even.as_("s32"), even.as_("s16"), unit.reg("ones", "s16")),
        op("vpaddd", total, total, even.as_("s32")),
    ]


def _count_sums(unit: Unit, acc: str, a: str, b: str, temp: str) -> list[Op]:
    """How many of `_words`' additions saturate: those whose saturated sum is not the wrapped one."""
    total, words, wrapped = unit.reg(acc, "s32"), unit.reg("t0", "s16"), unit.reg("t1", "s16")
    kept = beside(unit, acc)
    return [
        op("vpmaddubsw", words, unit.reg(a, "u8"), unit.reg(b, "s8")),
        op("vpaddw", wrapped, kept, words),
        op("vpaddsw", kept, kept, words),
        op("vpsubw", wrapped, wrapped, kept),
        op("vpminuw", wrapped.as_("u16"), wrapped.as_("u16"), unit.reg("ones", "u16")),
        op("vpmaddwd", wrapped.as_("s32"), wrapped, unit.reg("ones", "s16")),
        op("vpaddd", total, total, wrapped.as_("s32")),
    ]


def _multiply_add(unit: Unit, acc: str, a: str, b: str, temp: str) -> list[Op]:
    total, product = unit.reg(acc, "f32"), unit.reg(temp, "f32")
    return [
        op("vmulps", product, unit.reg(a, "f32"), unit.reg(b, "f32")),
        op("vaddps", total, total, product),
    ]


@functools.cache
def _multiply_scale_add(by_source: bool, by_weights: bool) -> Emit:
    """Each product times the source's scale, in register `scale`, and its column's, in `s0`, `s1` …"""

    def emit(unit: Unit, acc: str, a: str, b: str, temp: str) -> list[Op]:
        product, total = _multiply_add(unit, acc, a, b, temp)
        factors = ["scale"] * by_source + [f"s{b[1:]}"] * by_weights
        found = unit.reg(temp, "f32")
        return [product, *(op("vmulps", found, found, unit.reg(name, "f32")) for name in factors), total]

    return emit


FMA = Dot("fma", "f32", "f32", "f32", 1, "f32", "f32", _fma)
#: two roundings, as a plain loop in C has them
MULTIPLY_ADD = Dot("multiply_add", "f32", "f32", "f32", 1, "f32", "f32", _multiply_add, temporaries=2)
#: products of the f32 unit, with operands that hold no more than tf32 does: nearest even, or cut off
TF32 = replace(FMA, name="tf32", compute="tf32", rounds="tf32")
TF32_CUT = replace(TF32, name="tf32_cut", rounds="tf32_cut")
#: f16 weights widened by the load; the source is widened by the copy stage
F16 = replace(FMA, name="f16", wei="f16", load_uops=2)
#: both widened by their loads, for the clock alone: one element of the source is loaded here, where a library's
#: `vcvtph2psx` brings it to all lanes by as many uops (on a Golden Cove either takes 1.08 cycles)
F16_LOADED = replace(F16, name="f16_loaded", src="f16")
#: bf16 data where there is no bf16 arithmetic: weights widened by the load, the source by the copy stage
MULTIPLY_ADD_BF16 = replace(MULTIPLY_ADD, name="multiply_add_bf16", wei="bf16", load_uops=2)
MULTIPLY_ADD_F16 = replace(MULTIPLY_ADD, name="multiply_add_f16", wei="f16", load_uops=2)
#: dots that multiply and add apart, as oneDNN's reference
REFERENCES = (MULTIPLY_ADD, MULTIPLY_ADD_BF16, MULTIPLY_ADD_F16)
BF16_STORED = replace(FMA, name="bf16_stored", wei="bf16", load_uops=2)
F16_DOWN = replace(F16, name="f16_down", compute="f16", rounds="f16")
F16_CHAIN = 128
#: f16 arithmetic: two sums a lane, of the even and of the odd products, brought to f32 after F16_CHAIN products
FP16 = Dot("fp16", "f16", "f16", "f16", 2, "f16", "f16", _fp16, temporaries=2, chain=F16_CHAIN)
BF16 = Dot("bf16", "bf16", "bf16", "bf16", 2, "f32", "bf16", _bf16)
#: bf16 pairs without AVX512_BF16, as oneDNN emulates them
BF16_EMULATED = Dot("bf16_emulated", "bf16", "bf16", "bf16", 2, "f32", "f32", _bf16_emulated, temporaries=2, uops=8)
VNNI = Dot("vnni", "u8", "s8", "s8", 4, "s32", "s8", _vnni, unsigned=True)
MADDUBS = Dot(
    "maddubs",
    "u8",
    "s8",
    "s8",
    4,
    "s32",
    "s8",
    _maddubs,
    temporaries=2,
    ones=True,
    saturates=True,
    unsigned=True,
    uops=2,
)
#: not a product at all: the number of pairs that MADDUBS saturates, for people who want to see them
COUNT = Dot("pairs", "u8", "s8", "s8", 4, "s32", "s8", _count, temporaries=2, ones=True, unsigned=True, uops=4)
WORDS_CHAIN = 256
#: sums in s16, two a lane, of the pairs of products, brought to s32 after as many as FBGEMM's acc16 takes (KCB of
#: include/fbgemm/PackingTraits-inl.h), whose lanes hold one sum
WORDS = Dot(
    "words",
    "u8",
    "s8",
    "s8",
    4,
    "s16",
    "s8",
    _words,
    temporaries=2,
    ones=True,
    saturates=True,
    unsigned=True,
    uops=2,
    chain=WORDS_CHAIN,
)
#: the number of additions in s16 that WORDS saturates
COUNT_SUMS = replace(COUNT, name="sums", emit=_count_sums, beside=True)
COUNTERS = (COUNT, COUNT_SUMS)
MADDWD = Dot("maddwd", "s16", "s8", "s16", 2, "s32", "s16", _maddwd, temporaries=2)


def beside(unit: Unit, acc: str) -> Register:
    """The register that a dot keeps beside an accumulator, of s16."""
    return unit.reg(f"w{acc[1:]}", "s16")


def accumulators(unit: Unit, rows: int, columns: int, dot: Dot) -> tuple[tuple[Register, ...], ...]:
    """The registers that a tile's sums are kept in, by row and column of registers."""
    return _accumulators(unit, rows, columns, dot.acc)


@functools.lru_cache(maxsize=1 << 10)
def _accumulators(unit: Unit, rows: int, columns: int, dtype: str) -> tuple[tuple[Register, ...], ...]:
    return tuple([tuple([unit.reg(f"c{row}_{column}", dtype) for column in range(columns)]) for row in range(rows)])
