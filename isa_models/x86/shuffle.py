"""x86 shuffles: unpacks, permutes, extracts, inserts, blends. Lanes move and nothing is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from isa_models.algebra import Value
from isa_models.formats import fmt
from isa_models.instruction import define, example
from isa_models.x86.widths import (
    AVX2,
    AVX2_256,
    AVX512_512,
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


def _unpack(name: str, dtype: str, high: bool, manual: str = "") -> None:
    n = 128 // fmt(dtype).bits
    half = [k + (n // 2 if high else 0) for k in range(n // 2)]
    a, b = list(range(n)), list(range(n, 2 * n))
    shown = [v for k in half for v in (a[k], b[k])]
    text = f"Each 128-bit block: lanes of the two {'high' if high else 'low'} halves in turn."
    yields = str([float(v) for v in shown] if dtype == "f32" else shown)
    manual = manual or f"PUNPCK{'H' if high else 'L'}BW/WD/DQ/QDQ"

    @define(
        name,
        f"{dtype} <- {dtype}, {dtype}",
        AVX512_BW,
        f"Intel SDM Vol. 2, {manual}",
        whole=True,
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


def _part(name: str, dtype: str, per: int, caps: Widths, manual: str) -> None:
    n = next(iter(caps)) // fmt(dtype).bits // per
    values = list(range(n * per))
    shown = [float(v) for v in values[n : 2 * n]] if dtype == "f32" else values[n : 2 * n]

    @define(
        name,
        f"{dtype} <- {dtype}*{per}",
        caps,
        f"Intel SDM Vol. 2C, {manual}",
        whole=True,
        memory="store",
        doc=example(name, f"The part of {n} lanes that the immediate names.", f"{values}, imm=1", str(shown)),
    )
    def take(a: Value, imm: int) -> Value:
        return a.permute(range(imm % per * n, imm % per * n + n))


_part("vextracti128", "u32", 2, AVX2_256, "VEXTRACTI128/VEXTRACTI32x4/VEXTRACTI64x4")
_part("vextractf128", "f32", 2, AVX2_256, "VEXTRACTF128/VEXTRACTF32x4/VEXTRACTF64x4")
_part("vextracti32x4", "u32", 4, AVX512_512, "VEXTRACTI128/VEXTRACTI32x4/VEXTRACTI64x4")
_part("vextractf32x4", "f32", 4, AVX512_512, "VEXTRACTF128/VEXTRACTF32x4/VEXTRACTF64x4")
_part("vextracti64x4", "u32", 2, AVX512_512, "VEXTRACTI128/VEXTRACTI32x4/VEXTRACTI64x4")
_part("vextractf64x4", "f32", 2, AVX512_512, "VEXTRACTF128/VEXTRACTF32x4/VEXTRACTF64x4")


def _insert(name: str, dtype: str, parts: int, caps: Widths, manual: str) -> None:
    n = next(iter(caps)) // fmt(dtype).bits // parts
    zeros, ones = [0] * (n * parts), [1] * n
    shown = zeros[:n] + ones + zeros[2 * n :]
    yields = str([float(v) for v in shown] if dtype == "f32" else shown)

    @define(
        name,
        f"{dtype} <- {dtype}, {dtype}*{1 / parts}",
        caps,
        f"Intel SDM Vol. 2C, {manual}",
        whole=True,
        doc=example(
            name,
            f"The first, with the {n} lanes that the immediate names taken from the second.",
            f"{zeros}, {ones}, imm=1",
            yields,
        ),
    )
    def insert(a: Value, b: Value, imm: int) -> Value:
        start = imm % parts * n
        order = [a.lanes + k - start if start <= k < start + n else k for k in range(a.lanes)]
        return a.concat(b.pad(a.lanes)).permute(order)


_insert("vinserti128", "u32", 2, AVX2_256, "VINSERTI128/VINSERTI32x4/VINSERTI64x4")
_insert("vinsertf128", "f32", 2, AVX2_256, "VINSERTF128/VINSERTF32x4/VINSERTF64x4")
_insert("vinserti32x4", "u32", 4, AVX512_512, "VINSERTI128/VINSERTI32x4/VINSERTI64x4")
_insert("vinserti64x4", "u32", 2, AVX512_512, "VINSERTI128/VINSERTI32x4/VINSERTI64x4")
_insert("vinsertf64x4", "f32", 2, AVX512_512, "VINSERTF128/VINSERTF32x4/VINSERTF64x4")


def _fields(order: int, count: int, bits: int) -> list[int]:
    """The `count` fields of an immediate, `bits` each, lowest first."""
    return [(order >> (bits * i)) & ((1 << bits) - 1) for i in range(count)]


def _by_immediate(name: str, dtype: str, caps: Widths, manual: str, text: str) -> None:
    """Each block of four lanes in the order of the immediate's four two-bit fields."""
    shown = [3.0, 2.0, 1.0, 0.0] if dtype == "f32" else [3, 2, 1, 0]

    @define(
        name,
        f"{dtype} <- {dtype}",
        caps,
        f"Intel SDM Vol. 2, {manual}",
        whole=True,
        doc=example(name, text, "[0, 1, 2, 3], imm=27", str(shown)),
    )
    def shuffle(a: Value, imm: int) -> Value:
        return a.permute([s + f for s in _blocks(a.lanes, 4) for f in _fields(imm, 4, 2)])


_by_immediate("vpermq", "u64", CROSSING, "VPERMQ", "Quadwords of each 256 bits in the order of four two-bit fields.")
_by_immediate(
    "vpshufd", "u32", AVX512_BW, "PSHUFD", "Doublewords of each 128 bits in the order of four two-bit fields."
)
_by_immediate(
    "vpermilps", "f32", AVX512_BW, "VPERMILPS", "Floats of each 128 bits in the order of four two-bit fields."
)


@define("vshufps", "f32 <- f32, f32", AVX512_BW, "Intel SDM Vol. 2B, SHUFPS", whole=True)
def vshufps(a: Value, b: Value, imm: int) -> Value:
    """Each 128-bit block: two floats of the first, then two of the second, by four two-bit fields.

    >>> from isa_models import instruction
    >>> instruction("vshufps")([0, 1, 2, 3], [4, 5, 6, 7], imm=0b11_10_01_00).tolist()
    [0.0, 1.0, 6.0, 7.0]
    """
    fields = _fields(imm, 4, 2)
    return a.concat(b).permute(
        [s + f + (a.lanes if i > 1 else 0) for s in _blocks(a.lanes, 4) for i, f in enumerate(fields)]
    )


@define("vmovhlps", "f32 <- f32, f32", SSE_128, "Intel SDM Vol. 2B, MOVHLPS", whole=True, memory="none")
def vmovhlps(a: Value, b: Value) -> Value:
    """The second's high two floats, then the first's high two.

    >>> from isa_models import instruction
    >>> instruction("vmovhlps")([0, 1, 2, 3], [4, 5, 6, 7]).tolist()
    [6.0, 7.0, 2.0, 3.0]
    """
    return a.concat(b).permute([a.lanes + 2, a.lanes + 3, 2, 3])


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


def _permute(name: str, dtype: str, caps: Widths, manual: str, text: str) -> None:
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
        doc=example(
            name, text, f"{index_shown}, {values}", str([float(v) for v in shown] if dtype == "f32" else shown)
        ),
    )
    def permute(index: Value, a: Value) -> Value:
        return a.lookup(index & (a.lanes - 1))


_permute("vpermd", "u32", CROSSING, "VPERMD/VPERMW", "Doublewords of the second where the first's low bits say.")
_permute("vpermps", "f32", CROSSING, "VPERMPS", "Floats of the second where the first's low bits say.")
_permute("vpermw", "u16", AVX512_ONLY, "VPERMD/VPERMW", "Words of the second where the first's low bits say.")
_permute("vpermb", "u8", AVX512_VBMI, "VPERMB", "Bytes of the second where the first's low bits say.")


def _of_two_tables(name: str, bits: int, caps: Widths, manual: str) -> None:
    """Elements of two tables: "t2" writes over the first one, "i2" over the index."""
    dtype, word = f"u{bits}", {8: "Bytes", 16: "Words"}[bits]
    lanes = 128 // bits
    first, second = [1, 2, 3, 4] * (lanes // 4), [20] * lanes
    index = [0, lanes + 1, *[0] * (lanes - 3), 3]
    found = [first[0], 20, *[first[0]] * (lanes - 3), first[3]]
    over_index = "i2" in name
    call = f"{index}, {first}, {second}" if over_index else f"{first}, {index}, {second}"

    def of_index(index: Value, table: Value, more: Value) -> Value:
        both = table.concat(more)
        return both.lookup(index & (both.lanes - 1))

    def of_table(table: Value, index: Value, more: Value) -> Value:
        both = table.concat(more)
        return both.lookup(index & (both.lanes - 1))

    text = f"{word} of two tables where the low bits of the {'destination' if over_index else 'second operand'} say."
    define(
        name,
        f"{dtype} <- {dtype}, {dtype}, {dtype}",
        caps,
        f"Intel SDM Vol. 2C, {manual}",
        overwrites=True,
        whole=True,
        doc=example(name, text, call, str(found)),
    )(of_index if over_index else of_table)


_of_two_tables("vpermt2w", 16, AVX512_ONLY, "VPERMT2W/D/Q/PS/PD")
_of_two_tables("vpermi2w", 16, AVX512_ONLY, "VPERMI2W/D/Q/PS/PD")
_of_two_tables("vpermt2b", 8, AVX512_VBMI, "VPERMT2B")
_of_two_tables("vpermi2b", 8, AVX512_VBMI, "VPERMI2B")


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


def _blend(name: str, dtype: str, lanes_of_mask: Callable[[int, int], Sequence[int]], manual: str) -> None:
    yields = "[1.0, 0.0, 1.0, 0.0]" if dtype == "f32" else "[1, 0, 1, 0]"

    @define(
        name,
        f"{dtype} <- {dtype}, {dtype}",
        AVX2,
        f"Intel SDM Vol. 2, {manual}",
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


_blend("vpblendd", "u32", lambda mask, n: _fields(mask, n, 1), "VPBLENDD")
_blend("vblendps", "f32", lambda mask, n: _fields(mask, n, 1), "BLENDPS")
_blend("vpblendw", "u16", lambda mask, n: [mask >> (k % 8) & 1 for k in range(n)], "PBLENDW")


@define(
    "vpblendvb",
    "u8 <- u8, u8, u8",
    AVX2,
    "Intel SDM Vol. 2B, PBLENDVB",
    memory="none",  # it may be an operand that is not the last
)
def vpblendvb(a: Value, b: Value, mask: Value) -> Value:
    """Bytes of the second where the mask's top bit is set, of the first elsewhere.

    >>> from isa_models import instruction
    >>> instruction("vpblendvb")([1, 2], [3, 4], [128, 127]).tolist()
    [3, 2]
    """
    return (mask & 128).ne(0).where(b, a)
