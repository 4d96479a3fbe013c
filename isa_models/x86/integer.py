"""x86 packed integer arithmetic, logic and shifts: one function a family, one row a lane type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from isa_models.algebra import Value
from isa_models.formats import fmt
from isa_models.instruction import define, example
from isa_models.x86.widths import AVX2, AVX512_BW, AVX512_ONLY, Widths

Binary = Callable[[Value, Value], Value]


def _binary(
    name: str,
    dtype: str,
    function: Binary,
    manual: str,
    text: str,
    call: str,
    result: str,
    caps: Widths = AVX512_BW,
    **facts: Any,
) -> None:
    def fresh(a: Value, b: Value) -> Value:  # every instruction has a function, and so a docstring, of its own
        return function(a, b)

    doc = example(name, text, call, result)
    define(name, f"{dtype} <- {dtype}, {dtype}", caps, f"Intel SDM Vol. 2B, {manual}", doc=doc, **facts)(fresh)


_WORD = {8: "bytes", 16: "words", 32: "doublewords", 64: "quadwords"}
_LETTER = {8: "b", 16: "w", 32: "d", 64: "q"}

for _bits in (8, 16, 32, 64):
    _type = f"s{_bits}"
    _binary(
        f"vpadd{_LETTER[_bits]}",
        _type,
        lambda a, b: a + b,
        "PADDB/PADDW/PADDD/PADDQ",
        f"Add {_WORD[_bits]}; the sum wraps.",
        f"[{fmt(_type).high}, 2], [1, 3]",
        f"[{fmt(_type).low}, 5]",
    )
    _binary(
        f"vpsub{_LETTER[_bits]}",
        _type,
        lambda a, b: a - b,
        "PSUBB/PSUBW/PSUBD, PSUBQ",
        f"Subtract {_WORD[_bits]}; the difference wraps.",
        f"[{fmt(_type).low}, 2], [1, 3]",
        f"[{fmt(_type).high}, -1]",
    )


def _saturated(operation: Binary, dtype: str) -> Binary:
    return lambda a, b: operation(a.to("s32"), b.to("s32")).saturate(dtype)


for _type in ("s8", "s16", "u8", "u16"):
    _form, _end = fmt(_type), ("s" if fmt(_type).signed else "us") + _LETTER[fmt(_type).bits]
    _binary(
        f"vpadd{_end}",
        _type,
        _saturated(lambda a, b: a + b, _type),
        "PADDSB/PADDSW, PADDUSB/PADDUSW",
        f"Add {_type} {_WORD[_form.bits]}; the sum saturates.",
        f"[{_form.high}, 2], [1, 3]",
        f"[{_form.high}, 5]",
        saturates=True,
    )
    _binary(
        f"vpsub{_end}",
        _type,
        _saturated(lambda a, b: a - b, _type),
        "PSUBSB/PSUBSW, PSUBUSB/PSUBUSW",
        f"Subtract {_type} {_WORD[_form.bits]}; the difference saturates.",
        f"[{_form.low}, 5], [1, 3]",
        f"[{_form.low}, 2]",
        saturates=True,
    )

for _type in ("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"):
    _form, _end = fmt(_type), ("s" if fmt(_type).signed else "u") + _LETTER[fmt(_type).bits]
    _binary(
        f"vpmin{_end}",
        _type,
        lambda a, b: a.minimum(b),
        f"PMIN{_type[0].upper()}*",
        f"The lesser of two {_type} {_WORD[_form.bits]}.",
        f"[{_form.low}, 3], [1, 2]",
        f"[{_form.low}, 2]",
        AVX512_ONLY if _form.bits == 64 else AVX512_BW,
        chooses=True,
    )
    _binary(
        f"vpmax{_end}",
        _type,
        lambda a, b: a.maximum(b),
        f"PMAX{_type[0].upper()}*",
        f"The greater of two {_type} {_WORD[_form.bits]}.",
        f"[{_form.low}, 3], [1, 2]",
        "[1, 3]",
        AVX512_ONLY if _form.bits == 64 else AVX512_BW,
        chooses=True,
    )

_binary(
    "vpmulld",
    "s32",
    lambda a, b: a * b,
    "PMULLD/PMULLQ",
    "Multiply doublewords; the low half is kept.",
    "[65536, 3], [65537, -5]",
    "[65536, -15]",
)
_binary(
    "vpmullw",
    "s16",
    lambda a, b: a * b,
    "PMULLW",
    "Multiply words; the low half is kept.",
    "[256, 3], [257, -5]",
    "[256, -15]",
)
_binary(
    "vpmullq",
    "s64",
    lambda a, b: a * b,
    "PMULLD/PMULLQ",
    "Multiply quadwords; the low half is kept.",
    "[3], [-5]",
    "[-15]",
    AVX512_ONLY,
)
_binary(
    "vpmulhw",
    "s16",
    lambda a, b: ((a.to("s32") * b.to("s32")) >> 16).to("s16"),
    "PMULHW",
    "Multiply signed words; the high half is kept.",
    "[256, -1], [257, 1]",
    "[1, -1]",
)
_binary(
    "vpmulhuw",
    "u16",
    lambda a, b: ((a.to("u32") * b.to("u32")) >> 16).to("u16"),
    "PMULHUW",
    "Multiply unsigned words; the high half is kept.",
    "[65535], [65535]",
    "[65534]",
)
_binary(
    "vpavgb",
    "u8",
    lambda a, b: ((a.to("u16") + b.to("u16") + 1) >> 1).to("u8"),
    "PAVGB/PAVGW",
    "Average of unsigned bytes, halves rounded up.",
    "[1, 255], [2, 255]",
    "[2, 255]",
)

_binary("vpand", "u32", lambda a, b: a & b, "PAND", "And.", "[12], [10]", "[8]", evex="vpandd")
_binary(
    "vpandn", "u32", lambda a, b: ~a & b, "PANDN", "Not the first, and the second.", "[12], [10]", "[2]", evex="vpandnd"
)
_binary("vpor", "u32", lambda a, b: a | b, "POR", "Or.", "[12], [10]", "[14]", evex="vpord")
_binary("vpxor", "u32", lambda a, b: a ^ b, "PXOR", "Exclusive or.", "[12], [10]", "[6]", evex="vpxord", clears=True)


def _absolute(bits: int) -> None:
    name, dtype = f"vpabs{_LETTER[bits]}", f"s{bits}"
    doc = example(
        name,
        f"Absolute value of {_WORD[bits]}; the least one stays, which is its magnitude unsigned.",
        f"[-3, {fmt(dtype).low}]",
        f"[3, {1 << (bits - 1)}]",
    )

    @define(name, f"u{bits} <- {dtype}", AVX512_BW, "Intel SDM Vol. 2B, PABSB/PABSW/PABSD/PABSQ", doc=doc)
    def absolute(a: Value) -> Value:
        return (a < 0).where(a.literal(0) - a, a).to(f"u{bits}")


for _bits in (8, 16, 32):
    _absolute(_bits)


def _signed_as(a: Value, b: Value) -> Value:
    return (b > 0).where(a, (b < 0).where(a.literal(0) - a, a.literal(0)))


for _bits in (8, 16, 32):
    _binary(
        f"vpsign{_LETTER[_bits]}",
        f"s{_bits}",
        _signed_as,
        "PSIGNB/PSIGNW/PSIGND",
        f"The first {_WORD[_bits]}, times the signs of the second; the least one stays where it is negated.",
        f"[7, 7, {fmt(f's{_bits}').low}], [-3, 0, -1]",
        f"[-7, 0, {fmt(f's{_bits}').low}]",
        AVX2,
    )


def _neighbours(bits: int) -> None:
    name, dtype, block = f"vphadd{_LETTER[bits]}", f"s{bits}", 128 // bits
    first, second = list(range(block)), [10] * block
    sums = [2 * i + 2 * i + 1 for i in range(block // 2)]
    text = f"Each 128-bit block: sums of neighbouring {_WORD[bits]} of the first, then of the second; they wrap."
    doc = example(name, text, f"{first}, {second}", str(sums + [20] * (block // 2)))

    @define(name, f"{dtype} <- {dtype}, {dtype}", AVX2, "Intel SDM Vol. 2B, PHADDW/PHADDD", whole=True, doc=doc)
    def add(a: Value, b: Value) -> Value:
        n = a.lanes
        order = [k for s in range(0, n, block) for base in (0, n) for k in range(base + s, base + s + block, 2)]
        both = a.concat(b)
        return both.permute(order) + both.permute([k + 1 for k in order])


for _bits in (16, 32):
    _neighbours(_bits)


def _shift(kind: str, bits: int, dtype: str, text: str, result: str, function: Callable[[Value, int], Value]) -> None:
    name = f"vp{kind}{_LETTER[bits]}"
    caps = AVX512_ONLY if name == "vpsraq" else AVX512_BW
    manual = f"Intel SDM Vol. 2B, {name[1:-1].upper()}W/D/Q"

    @define(name, f"{dtype} <- {dtype}", caps, manual, doc=example(name, text, "[13], imm=2", result), memory="evex")
    def shift(a: Value, imm: int) -> Value:
        return function(a, imm)


for _bits in (16, 32, 64):
    _what = _WORD[_bits]
    _more = f"{_bits} or more leave zero."
    _shift("sll", _bits, f"u{_bits}", f"Shift {_what} left; {_more}", "[52]", Value.moved_left)
    _shift("srl", _bits, f"u{_bits}", f"Shift {_what} right, zeros in; {_more}", "[3]", Value.moved_right)
    _shift("sra", _bits, f"s{_bits}", f"Shift {_what} right, signs in.", "[3]", Value.moved_right)


def _shift_by_lanes(kind: str, bits: int, text: str, result: str, function: Binary) -> None:
    name = f"vp{kind}v{_LETTER[bits]}"
    in_avx2 = bits > 16 and name != "vpsravq"
    _binary(
        name,
        f"u{bits}",
        function,
        f"{name[1:-1].upper()}W/D/Q",
        f"Each lane shifted by its own count: {text}",
        f"[13, 13], [2, {bits}]",
        result,
        AVX512_BW if in_avx2 else AVX512_ONLY,
        timed_as={"vpsravd": "vpsllvd", "vpsravq": "vpsllvq"}.get(name, ""),
    )


def _counted(shifted: Binary) -> Binary:
    """A shift that leaves zero from a lane's bits on."""

    def shift(a: Value, count: Value) -> Value:
        some = count < a.format.bits
        return some.where(shifted(a, some.where(count, count.literal(0))), a.literal(0))

    return shift


def _signs_in(a: Value, count: Value) -> Value:
    signed = f"s{a.format.bits}"
    return (a.view(signed) >> count.minimum(a.format.bits - 1).view(signed)).view(a.dtype)


for _bits in (16, 32, 64):
    _shift_by_lanes("sll", _bits, f"left; {_bits} or more leave zero.", "[52, 0]", _counted(lambda a, n: a << n))
    _shift_by_lanes(
        "srl", _bits, f"right, zeros in; {_bits} or more leave zero.", "[3, 0]", _counted(lambda a, n: a >> n)
    )
    _shift_by_lanes("sra", _bits, "right, signs in.", "[3, 0]", _signs_in)


def _wide_product(name: str, narrow: str, wide: str) -> None:
    text = "The product of each quadword's low doublewords, whole."
    least = fmt(narrow).low - 1 & fmt(narrow).high  # all ones of u32, and the greatest of s32

    @define(
        name,
        f"{wide} <- {narrow}*2, {narrow}*2",
        AVX512_BW,
        f"Intel SDM Vol. 2B, {name[1:].upper()}",
        timed_as="vpmuludq",
        doc=example(name, text, f"[{least}, 7], [2, 9]", f"[{2 * least}]"),
    )
    def wide_product(a: Value, b: Value) -> Value:
        return a.split(2)[0].to(wide) * b.split(2)[0].to(wide)


_wide_product("vpmuludq", "u32", "u64")
_wide_product("vpmuldq", "s32", "s64")


def _minterm(a: Value, b: Value, c: Value, number: int) -> Value:
    """Ones where the bits of three values, the first one's highest, are those of a number below 8."""
    first, second, third = (v if number >> bit & 1 else ~v for v, bit in ((a, 2), (b, 1), (c, 0)))
    return first & second & third


@define("vpternlogd", "u32 <- u32, u32, u32", AVX512_ONLY, "Intel SDM Vol. 2C, VPTERNLOGD/VPTERNLOGQ", overwrites=True)
def vpternlogd(a: Value, b: Value, c: Value, imm: int) -> Value:
    """Any function of three bits: that of the immediate which their number says, the destination's bit highest.

    >>> from isa_models import instruction
    >>> instruction("vpternlogd")([12], [10], [6], imm=0xF8).tolist()  # 12 | 10 & 6
    [14]
    """
    found = a ^ a
    for number in range(8):
        if imm >> number & 1:
            found = found | _minterm(a, b, c, number)
    return found
