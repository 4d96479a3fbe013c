"""x86 shuffles: unpacks, permutes, extracts, inserts, blends. Lanes move and nothing is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from isa_models.algebra import Value
from isa_models.formats import fmt
from isa_models.instruction import define, example
from isa_models.x86.widths import (
    AVX2,
    AVX512_BW,
    AVX512_ONLY,
    AVX512_VBMI,
    CROSSING,
    SSE_128,
    Widths,
)


def _blocks(lanes: int, n: int) -> range:
    """First lanes of the blocks of `n` lanes (128 bits)."""
    return range(0, lanes, n)


def _unpack(name: str, dtype: str, high: bool, manual: str = "", **facts: Any) -> None:
    n = 128 // fmt(dtype).bits
    half = [k + (n // 2 if high else 0) for k in range(n // 2)]
    a, b = list(range(n)), list(range(n, 2 * n))
    shown = [v for k in half for v in (a[k], b[k])]
    text = f"Each 128-bit block: lanes of the two {'high' if high else 'low'} halves in turn."
    yields = str([float(v) for v in shown] if fmt(dtype).is_float else shown)
    manual = manual or f"PUNPCK{'H' if high else 'L'}BW/WD/DQ/QDQ"

    @define(
        name,
        f"{dtype} <- {dtype}, {dtype}",
        AVX512_BW,
        f"Intel SDM Vol. 2, {manual}",
        whole=True,
        **facts,
        doc=example(name, text, f"{a}, {b}", yields),
    )
    def unpack(a: Value, b: Value) -> Value:
        order = [k for s in _blocks(a.lanes, n) for h in half for k in (s + h, a.lanes + s + h)]
        return a.concat(b).permute(order)


for _end, _type in (("bw", "u8"), ("wd", "u16"), ("dq", "u32"), ("qdq", "u64")):
    _unpack(f"vpunpckl{_end}", _type, False)
    _unpack(f"vpunpckh{_end}", _type, True)
_unpack("vunpcklps", "f32", False, "UNPCKLPS")
_unpack("vunpckhps", "f32", True, "UNPCKHPS")
_unpack("vunpcklpd", "f64", False, "UNPCKLPD", timed_as="vunpcklps")
_unpack("vunpckhpd", "f64", True, "UNPCKHPD", timed_as="vunpckhps")


def fields(order: int, count: int, bits: int) -> list[int]:
    """The `count` fields of an immediate, `bits` each, lowest first."""
    return [(order >> (bits * i)) & ((1 << bits) - 1) for i in range(count)]


def _by_immediate(name: str, dtype: str, caps: Widths, manual: str, text: str) -> None:
    """Each block of four lanes in the order of the immediate's four two-bit fields."""
    shown = [3.0, 2.0, 1.0, 0.0] if fmt(dtype).is_float else [3, 2, 1, 0]

    @define(
        name,
        f"{dtype} <- {dtype}",
        caps,
        f"Intel SDM Vol. 2, {manual}",
        whole=True,
        doc=example(name, text, "[0, 1, 2, 3], imm=27", str(shown)),
    )
    def shuffle(a: Value, imm: int) -> Value:
        return a.permute([s + f for s in _blocks(a.lanes, 4) for f in fields(imm, 4, 2)])


_by_immediate("vpermq", "u64", CROSSING, "VPERMQ", "Quadwords of each 256 bits in the order of four two-bit fields.")
_by_immediate("vpermpd", "f64", CROSSING, "VPERMPD", "Doubles of each 256 bits in the order of four two-bit fields.")
_by_immediate(
    "vpshufd", "u32", AVX512_BW, "PSHUFD", "Doublewords of each 128 bits in the order of four two-bit fields."
)
_by_immediate(
    "vpermilps", "f32", AVX512_BW, "VPERMILPS", "Floats of each 128 bits in the order of four two-bit fields."
)


def _words_by_immediate(name: str, first: int, which: str) -> None:
    shown = [k if not first <= k < first + 4 else 2 * first + 3 - k for k in range(8)]
    text = f"The {which} four words of each 128 bits in the order of four two-bit fields; the others stay."

    @define(
        name,
        "u16 <- u16",
        AVX512_BW,
        f"Intel SDM Vol. 2B, {name[1:].upper()}",
        whole=True,
        doc=example(name, text, "[0, 1, 2, 3, 4, 5, 6, 7], imm=27", str(shown)),
    )
    def shuffle(a: Value, imm: int) -> Value:
        half = [first + f for f in fields(imm, 4, 2)]
        block = [*half, 4, 5, 6, 7] if first == 0 else [0, 1, 2, 3, *half]
        return a.permute([s + k for s in _blocks(a.lanes, 8) for k in block])


_words_by_immediate("vpshuflw", 0, "low")
_words_by_immediate("vpshufhw", 4, "high")


def _doubles_by_immediate(name: str, of_two: bool, manual: str) -> None:
    """Each block of two lanes by one bit of the immediate for each."""
    call, shown = ("[0, 1], [2, 3], imm=1", "[1.0, 2.0]") if of_two else ("[0, 1], imm=1", "[1.0, 0.0]")
    text = "Each 128-bit block: a double of the " + ("first, then one of the second" if of_two else "source, and one")
    text += ", by a bit of the immediate for each lane."
    timed = "vshufps" if of_two else "vpermilps"  # which are as fast
    facts: dict[str, Any] = {"whole": True, "timed_as": timed, "doc": example(name, text, call, shown)}

    def of_both(a: Value, b: Value, imm: int) -> Value:
        picks = fields(imm, a.lanes, 1)
        return a.concat(b).permute([k // 2 * 2 + bit + (a.lanes if k % 2 else 0) for k, bit in enumerate(picks)])

    def of_one(a: Value, imm: int) -> Value:
        return a.permute([k // 2 * 2 + bit for k, bit in enumerate(fields(imm, a.lanes, 1))])

    signature = "f64 <- f64, f64" if of_two else "f64 <- f64"
    define(name, signature, AVX512_BW, f"Intel SDM Vol. 2, {manual}", **facts)(of_both if of_two else of_one)


_doubles_by_immediate("vshufpd", True, "SHUFPD")
_doubles_by_immediate("vpermilpd", False, "VPERMILPD")


@define("vshufps", "f32 <- f32, f32", AVX512_BW, "Intel SDM Vol. 2B, SHUFPS", whole=True)
def vshufps(a: Value, b: Value, imm: int) -> Value:
    """Each 128-bit block: two floats of the first, then two of the second, by four two-bit fields.

    >>> from isa_models import instruction
    >>> instruction("vshufps")([0, 1, 2, 3], [4, 5, 6, 7], imm=0b11_10_01_00).tolist()
    [0.0, 1.0, 6.0, 7.0]
    """
    picks = fields(imm, 4, 2)
    return a.concat(b).permute(
        [s + f + (a.lanes if i > 1 else 0) for s in _blocks(a.lanes, 4) for i, f in enumerate(picks)]
    )


@define("vmovhlps", "f32 <- f32, f32", SSE_128, "Intel SDM Vol. 2B, MOVHLPS", whole=True, memory="none")
def vmovhlps(a: Value, b: Value) -> Value:
    """The second's high two floats, then the first's high two.

    >>> from isa_models import instruction
    >>> instruction("vmovhlps")([0, 1, 2, 3], [4, 5, 6, 7]).tolist()
    [6.0, 7.0, 2.0, 3.0]
    """
    return a.concat(b).permute([a.lanes + 2, a.lanes + 3, 2, 3])


@define("vinsertps", "f32 <- f32, f32", SSE_128, "Intel SDM Vol. 2B, INSERTPS", whole=True, memory="none")
def vinsertps(a: Value, b: Value, imm: int) -> Value:
    """The first, its float 5:4 of the immediate replaced by the second's float 7:6; zeros where the low bits are set.

    >>> from isa_models import instruction
    >>> instruction("vinsertps")([0, 1, 2, 3], [4, 5, 6, 7], imm=0b01_10_0001).tolist()
    [0.0, 1.0, 5.0, 3.0]
    """
    into, zeroed = imm >> 4 & 3, fields(imm, 4, 1)
    order = [a.lanes + (imm >> 6) if k == into else k for k in range(4)]
    both = a.concat(b)
    return both.concat(both.literal(0)).permute([8 if zero else k for k, zero in zip(order, zeroed, strict=True)])


@define("vmovlhps", "f32 <- f32, f32", SSE_128, "Intel SDM Vol. 2B, MOVLHPS", whole=True, memory="none")
def vmovlhps(a: Value, b: Value) -> Value:
    """The first's low two floats, then the second's.

    >>> from isa_models import instruction
    >>> instruction("vmovlhps")([0, 1, 2, 3], [4, 5, 6, 7]).tolist()
    [0.0, 1.0, 4.0, 5.0]
    """
    return a.concat(b).permute([0, 1, a.lanes, a.lanes + 1])


def _duplicate(name: str, odd: int, which: str) -> None:
    @define(
        name,
        "f32 <- f32",
        AVX512_BW,
        f"Intel SDM Vol. 2B, {name[1:].upper()}",
        whole=True,
        doc=example(name, f"Each {which} float, twice.", "[0, 1, 2, 3]", str([0.0 + odd] * 2 + [2.0 + odd] * 2)),
    )
    def duplicate(a: Value) -> Value:
        return a.permute([k // 2 * 2 + odd for k in range(a.lanes)])


_duplicate("vmovshdup", 1, "odd")
_duplicate("vmovsldup", 0, "even")


def _permute(name: str, dtype: str, caps: Widths, manual: str, text: str, **facts: Any) -> None:
    index = f"u{fmt(dtype).bits}"
    lanes = min(caps) // fmt(dtype).bits
    index_shown, values = [1] + [0] * (lanes - 1), list(range(5, 5 + lanes))
    shown = [values[k] for k in index_shown]

    @define(
        name,
        f"{dtype} <- {index}, {dtype}",
        caps,
        f"Intel SDM Vol. 2C, {manual}",
        whole=True,
        **facts,
        doc=example(
            name, text, f"{index_shown}, {values}", str([float(v) for v in shown] if fmt(dtype).is_float else shown)
        ),
    )
    def permute(index: Value, a: Value) -> Value:
        return a.lookup(index & (a.lanes - 1))


_permute("vpermd", "u32", CROSSING, "VPERMD/VPERMW", "Doublewords of the second where the first's low bits say.")
_permute("vpermps", "f32", CROSSING, "VPERMPS", "Floats of the second where the first's low bits say.")
for _name, _type, _what in (("vpermq", "u64", "Quadwords"), ("vpermpd", "f64", "Doubles")):
    _permute(
        f"{_name}.v",
        _type,
        {512: ("avx512_core",)},
        "VPERMQ, VPERMPD",
        f"{_what} of the second where the first's low bits say: the form with indices in a register.",
        mnemonic_of_form=_name,
    )
_permute("vpermw", "u16", AVX512_ONLY, "VPERMD/VPERMW", "Words of the second where the first's low bits say.")
_permute("vpermb", "u8", AVX512_VBMI, "VPERMB", "Bytes of the second where the first's low bits say.")


def _of_two_tables(name: str, dtype: str, over_index: bool, caps: Widths, manual: str, timed_as: str) -> None:
    """Elements of two tables: written over the first one, or over the index."""
    bits = fmt(dtype).bits
    word = {8: "Bytes", 16: "Words", 32: "Doublewords", 64: "Quadwords"}[bits]
    lanes = 128 // bits
    first, second, index = [*range(1, 1 + lanes)], [20] * lanes, [lanes - 1, lanes + 1, *[0] * (lanes - 2)]
    found = [lanes, 20, *[1] * (lanes - 2)]
    call = f"{index}, {first}, {second}" if over_index else f"{first}, {index}, {second}"
    shown = str([float(v) for v in found] if fmt(dtype).is_float else found)

    def of_index(index: Value, table: Value, more: Value) -> Value:
        both = table.concat(more)
        return both.lookup(index & (both.lanes - 1))

    def of_table(table: Value, index: Value, more: Value) -> Value:
        both = table.concat(more)
        return both.lookup(index & (both.lanes - 1))

    text = f"{word} of two tables where the low bits of the {'destination' if over_index else 'second operand'} say."
    define(
        name,
        f"{dtype} <- u{bits}, {dtype}, {dtype}" if over_index else f"{dtype} <- {dtype}, u{bits}, {dtype}",
        caps,
        f"Intel SDM Vol. 2C, {manual}",
        overwrites=True,
        whole=True,
        timed_as=timed_as,
        doc=example(name, text, call, shown),
    )(of_index if over_index else of_table)


for _end, _type, _caps, _manual, _timed in (
    ("b", "u8", AVX512_VBMI, "B", ""),
    ("w", "u16", AVX512_ONLY, "W/D/Q/PS/PD", ""),
    ("d", "u32", AVX512_ONLY, "W/D/Q/PS/PD", ""),
    ("q", "u64", AVX512_ONLY, "W/D/Q/PS/PD", "vpermt2d"),
    ("ps", "f32", AVX512_ONLY, "W/D/Q/PS/PD", "vpermt2d"),
    ("pd", "f64", AVX512_ONLY, "W/D/Q/PS/PD", "vpermt2d"),
):
    _of_two_tables(f"vpermt2{_end}", _type, False, _caps, f"VPERMT2{_manual}", _timed)
    if not fmt(_type).is_float:  # a destination has one type here, and that of indices is no float
        _of_two_tables(f"vpermi2{_end}", _type, True, _caps, f"VPERMI2{_manual}", _timed)


@define("vpalignr", "u8 <- u8, u8", AVX512_BW, "Intel SDM Vol. 2B, PALIGNR", whole=True)
def vpalignr(a: Value, b: Value, imm: int) -> Value:
    """Each 128-bit block: the two side by side, the second below, moved down by the immediate's bytes.

    >>> from isa_models import instruction
    >>> instruction("vpalignr")([1] * 16, [*range(16)], imm=13).tolist()
    [13, 14, 15, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    """
    n = a.lanes
    both = b.concat(a)
    both = both.concat(both.literal(0))
    order = [
        2 * n if at > 31 else s + at if at < 16 else n + s + at - 16
        for s in _blocks(n, 16)
        for at in range(imm, imm + 16)
    ]
    return both.permute(order)


def _shift_bytes(name: str, up: bool) -> None:
    text = f"Each 128-bit block moved {'up' if up else 'down'} by the immediate's bytes, zeros behind it."
    shown = [*range(15, 16), *[0] * 15] if not up else [*[0] * 15, 0]

    @define(
        name,
        "u8 <- u8",
        AVX512_BW,
        f"Intel SDM Vol. 2B, {name[1:].upper()}",
        whole=True,
        memory="evex",
        doc=example(name, text, "[*range(16)], imm=15", str(shown)),
    )
    def shift_bytes(a: Value, imm: int) -> Value:
        by, zeros = min(imm, 16), a.lanes
        places = [k - by if up else k + by for k in range(16)]
        return a.concat(a.literal(0)).permute(
            [s + at if 0 <= at < 16 else zeros for s in _blocks(a.lanes, 16) for at in places]
        )


_shift_bytes("vpslldq", up=True)
_shift_bytes("vpsrldq", up=False)


@define(
    "vpermilps.v",
    "f32 <- f32, u32",
    AVX512_BW,
    "Intel SDM Vol. 2C, VPERMILPS",
    whole=True,
    mnemonic_of_form="vpermilps",
)
def vpermilps_by_register(a: Value, index: Value) -> Value:
    """Each 128-bit block: floats of the first where the low two bits of the second say.

    >>> from isa_models import instruction
    >>> instruction("vpermilps.v")([5, 6, 7, 8], [3, 4, 1, 1]).tolist()
    [8.0, 5.0, 6.0, 6.0]
    """
    lanes = index & 3
    blocks = [a.permute(range(s, s + 4)).lookup(lanes.permute(range(s, s + 4))) for s in _blocks(a.lanes, 4)]
    while len(blocks) > 1:
        blocks = [x.concat(y) for x, y in zip(blocks[::2], blocks[1::2], strict=True)]
    return blocks[0]


@define("vpshufb", "u8 <- u8, u8", AVX512_BW, "Intel SDM Vol. 2B, PSHUFB", whole=True)
def vpshufb(a: Value, index: Value) -> Value:
    """Each 128-bit block: bytes of the first where the index's low four bits say, zero where its top bit is set.

    >>> from isa_models import instruction
    >>> instruction("vpshufb")(list(range(10, 26)), [1, 128, 15, 31] + [0] * 12).tolist()[:4]
    [11, 0, 25, 25]
    """
    blocks = [a.permute(range(s, s + 16)).lookup(index.permute(range(s, s + 16)) & 15) for s in _blocks(a.lanes, 16)]
    while len(blocks) > 1:
        blocks = [x.concat(y) for x, y in zip(blocks[::2], blocks[1::2], strict=True)]
    return (index & 128).ne(0).where(a.literal(0), blocks[0])


def _blend(
    name: str, dtype: str, lanes_of_mask: Callable[[int, int], Sequence[int]], manual: str, **facts: Any
) -> None:
    yields = "[1.0, 0.0, 1.0, 0.0]" if fmt(dtype).is_float else "[1, 0, 1, 0]"

    @define(
        name,
        f"{dtype} <- {dtype}, {dtype}",
        AVX2,
        f"Intel SDM Vol. 2, {manual}",
        chooses=True,
        **facts,
        doc=example(
            name,
            "Lanes of the second where the immediate's bits are set, of the first elsewhere.",
            "[0, 0, 0, 0], [1, 1, 1, 1], imm=5",
            yields,
        ),
    )
    def blend(a: Value, b: Value, imm: int) -> Value:
        bits = lanes_of_mask(imm, a.lanes)
        return a.concat(b).permute([k + (a.lanes if bit else 0) for k, bit in enumerate(bits)])


_blend("vpblendd", "u32", lambda mask, n: fields(mask, n, 1), "VPBLENDD")
_blend("vblendps", "f32", lambda mask, n: fields(mask, n, 1), "BLENDPS")
_blend("vblendpd", "f64", lambda mask, n: fields(mask, n, 1), "BLENDPD", timed_as="vblendps")
_blend("vpblendw", "u16", lambda mask, n: [mask >> (k % 8) & 1 for k in range(n)], "PBLENDW")


def _blend_by_sign(name: str, dtype: str, manual: str, **facts: Any) -> None:
    word = f"u{fmt(dtype).bits}"
    text = "Lanes of the second where the mask's sign bit is set, of the first elsewhere."

    @define(
        name,
        f"{dtype} <- {dtype}, {dtype}, {dtype}",
        AVX2,
        f"Intel SDM Vol. 2, {manual}",
        memory="none",  # it may be an operand that is not the last
        chooses=True,
        **facts,
        doc=example(name, text, "[1, 2], [3, 4], [-0.0, 5]", "[3.0, 2.0]"),
    )
    def blend_by_sign(a: Value, b: Value, mask: Value) -> Value:
        return (mask.view(word) >> (fmt(dtype).bits - 1)).ne(0).where(b, a)


_blend_by_sign("vblendvps", "f32", "BLENDVPS")
_blend_by_sign("vblendvpd", "f64", "BLENDVPD", timed_as="vblendvps")


@define(
    "vpblendvb",
    "u8 <- u8, u8, u8",
    AVX2,
    "Intel SDM Vol. 2B, PBLENDVB",
    memory="none",  # it may be an operand that is not the last
    chooses=True,
)
def vpblendvb(a: Value, b: Value, mask: Value) -> Value:
    """Bytes of the second where the mask's top bit is set, of the first elsewhere.

    >>> from isa_models import instruction
    >>> instruction("vpblendvb")([1, 2], [3, 4], [128, 127]).tolist()
    [3, 2]
    """
    return (mask & 128).ne(0).where(b, a)
