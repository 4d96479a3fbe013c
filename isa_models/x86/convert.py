"""x86 integer conversions: widening, truncating and saturating moves, packs, and between s32 and f32."""

from __future__ import annotations

from isa_models.algebra import Value
from isa_models.formats import fmt
from isa_models.instruction import define, example
from isa_models.x86.widths import AVX512_BW, AVX512_ONLY

_LETTER = {8: "b", 16: "w", 32: "d", 64: "q"}


def _widen(source: str, bits: int) -> None:
    sign = "sx" if fmt(source).signed else "zx"
    name = f"vpmov{sign}{_LETTER[fmt(source).bits]}{_LETTER[bits]}"
    result = source[0] + str(bits)

    @define(
        name,
        f"{result} <- {source}",
        AVX512_BW,
        f"Intel SDM Vol. 2B, PMOV{sign.upper()}",
        doc=example(name, f"Widen {source} to {result}.", f"[{fmt(source).low}, 1]", f"[{fmt(source).low}, 1]"),
    )
    def widen(a: Value) -> Value:
        return a.to(result)


for _source, _bits in (("s8", 16), ("s8", 32), ("s16", 32), ("s32", 64)):
    _widen(_source, _bits)
    _widen(_source.replace("s", "u"), _bits)


def _narrow(kind: str, bits: int, target: int) -> None:
    name = f"vpmov{kind}{_LETTER[bits]}{_LETTER[target]}"
    sign = "s" if kind == "s" else "u"
    source, result = f"{sign}{bits}", f"{sign}{target}"
    text = f"Narrow {source} to {result}: " + ("the low bits." if not kind else "saturating.")
    yields = [fmt(result).high if kind else 1, 2]
    manual = {8: "VPMOVDB/VPMOVSDB/VPMOVUSDB", 16: "VPMOVDW/VPMOVSDW/VPMOVUSDW"}[target]
    if bits == 16:
        manual = "VPMOVWB/VPMOVSWB/VPMOVUSWB"

    @define(
        name,
        f"{result} <- {source}",
        AVX512_ONLY,
        f"Intel SDM Vol. 2C, {manual}",
        saturates=bool(kind),
        memory="store",
        doc=example(name, text, f"[{(1 << target) + 1}, 2]", str(yields)),
    )
    def narrow(a: Value) -> Value:
        return a.saturate(result) if kind else a.to(result)


for _kind in ("", "s", "us"):
    for _bits, _target in ((32, 8), (32, 16), (16, 8)):
        _narrow(_kind, _bits, _target)


def _pack(name: str, source: str, result: str) -> None:
    block = 128 // fmt(source).bits  # lanes of each source in a 128-bit block
    high = fmt(source).high
    ones, top = ([v] * block for v in (1, high))
    doc = example(
        name,
        f"Each 128-bit block: {block} lanes of the first, then of the second, {source} saturated to {result}.",
        f"{ones}, {top}",
        str([1] * block + [fmt(result).high] * block),
    )

    @define(
        name,
        f"{result} <- {source}*0.5, {source}*0.5",
        AVX512_BW,
        "Intel SDM Vol. 2B, PACKSSWB/PACKSSDW, PACKUSDW, PACKUSWB",
        saturates=True,
        whole=True,
        doc=doc,
    )
    def pack(a: Value, b: Value) -> Value:
        n = min(block, a.lanes)
        order = [
            k for start in range(0, a.lanes, n) for base in (start, a.lanes + start) for k in range(base, base + n)
        ]
        return a.concat(b).permute(order).saturate(result)


_pack("vpackssdw", "s32", "s16")
_pack("vpackusdw", "s32", "u16")
_pack("vpacksswb", "s16", "s8")
_pack("vpackuswb", "s16", "u8")


@define("vcvtdq2ps", "f32 <- s32", AVX512_BW, "Intel SDM Vol. 2A, CVTDQ2PS")
def vcvtdq2ps(a: Value) -> Value:
    """Signed doublewords to floats, rounded to nearest even.

    >>> from isa_models import instruction
    >>> instruction("vcvtdq2ps")([16777217, -3]).tolist()
    [16777216.0, -3.0]
    """
    return a.to("f32")


@define("vcvtps2dq", "s32 <- f32", AVX512_BW, "Intel SDM Vol. 2A, CVTPS2DQ")
def vcvtps2dq(a: Value) -> Value:
    """Floats to signed doublewords, rounded to nearest even; out of range and NaN give 80000000H.

    >>> from isa_models import instruction
    >>> instruction("vcvtps2dq")([2.5, -3.5, 3e9]).tolist()
    [2, -4, -2147483648]
    """
    rounded = a.round_even()
    inside = (rounded >= -(2.0**31)) & (rounded < 2.0**31)
    return inside.where(inside.where(rounded, a.literal(0.0)).to("s32"), rounded.view("s32").literal(-(2**31)))
