"""x86 integer dot products: pairs and quads of neighbouring lanes, multiplied and summed."""

from __future__ import annotations

from isa_models.algebra import Value
from isa_models.formats import fmt
from isa_models.instruction import define, example
from isa_models.x86.widths import AVX512_BW, AVX_VNNI, AVX_VNNI_INT8, AVX_VNNI_INT16, Widths


@define("vpmaddubsw", "s16 <- u8*2, s8*2", AVX512_BW, "Intel SDM Vol. 2B, PMADDUBSW", saturates=True)
def vpmaddubsw(a: Value, b: Value) -> Value:
    """Products of unsigned by signed bytes; each pair's sum saturates to a signed word.

    >>> from isa_models import instruction
    >>> instruction("vpmaddubsw")([255, 255], [127, 127]).tolist()
    [32767]
    """
    a0, a1 = (x.to("s32") for x in a.split(2))
    b0, b1 = (x.to("s32") for x in b.split(2))
    return (a0 * b0 + a1 * b1).saturate("s16")


@define("vpmaddwd", "s32 <- s16*2, s16*2", AVX512_BW, "Intel SDM Vol. 2B, PMADDWD")
def vpmaddwd(a: Value, b: Value) -> Value:
    """Products of signed words, summed in pairs to doublewords.

    Four times 8000H wraps to 80000000H, as the manual notes.

    >>> from isa_models import instruction
    >>> instruction("vpmaddwd")([-32768, -32768], [-32768, -32768]).tolist()
    [-2147483648]
    """
    a0, a1 = (x.to("s32") for x in a.split(2))
    b0, b1 = (x.to("s32") for x in b.split(2))
    return a0 * b0 + a1 * b1


@define("vpsadbw", "u64 <- u8*8, u8*8", AVX512_BW, "Intel SDM Vol. 2B, PSADBW")
def vpsadbw(a: Value, b: Value) -> Value:
    """Absolute differences of eight unsigned bytes, summed.

    >>> from isa_models import instruction
    >>> instruction("vpsadbw")([1, 2, 3, 4, 5, 6, 7, 8], [0, 3, 3, 3, 3, 3, 3, 3]).tolist()
    [17]
    """
    differences = (a.maximum(b) - a.minimum(b)).split(8)
    total = differences[0].to("u64")
    for difference in differences[1:]:
        total = total + difference.to("u64")
    return total


def _dot(name: str, a_type: str, b_type: str, saturating: bool, caps: Widths, manual: str) -> None:
    """acc + the products of neighbouring lanes, wrapping, or saturating once at the end.

    The result is signed, but unsigned for two unsigned operands that saturate.
    """
    count = 32 // fmt(a_type).bits
    both_unsigned = not (fmt(a_type).signed or fmt(b_type).signed)
    result = "u32" if both_unsigned and saturating else "s32"
    text = f"{count} products of {a_type} by {b_type}, added to the accumulator, which " + (
        f"saturates to {result} after the exact sum." if saturating else "wraps."
    )
    top = 2**32 - 1 if result == "u32" else 2**31 - 1
    rest = ", 0" * (count - 1)
    shown = f"[{top}]" if saturating else f"[{-(2**31)}]"
    doc = example(name, text, f"[{top}], [1{rest}], [1{rest}]", shown)

    @define(
        name,
        f"{result} <- {result}, {a_type}*{count}, {b_type}*{count}",
        caps,
        manual,
        doc=doc,
        accumulates=True,
        saturates=saturating,
    )
    def dot(acc: Value, a: Value, b: Value) -> Value:
        if saturating:
            total = acc.to("s64")
            for x, y in zip(a.split(count), b.split(count), strict=True):
                total = total + x.to("s64") * y.to("s64")
            return total.saturate(result)
        total = acc
        for x, y in zip(a.split(count), b.split(count), strict=True):
            total = total + x.to("s32") * y.to("s32")
        return total


for _end in ("", "s"):
    _dot(f"vpdpbusd{_end}", "u8", "s8", bool(_end), AVX_VNNI, f"Intel SDM Vol. 2C, VPDPBUSD{_end.upper()}")
    _dot(f"vpdpwssd{_end}", "s16", "s16", bool(_end), AVX_VNNI, f"Intel SDM Vol. 2C, VPDPWSSD{_end.upper()}")
    for _a, _b in ("ss", "su", "uu"):
        _dot(
            f"vpdpb{_a}{_b}d{_end}",
            f"{_a}8",
            f"{_b}8",
            bool(_end),
            AVX_VNNI_INT8,
            "Intel SDM Vol. 2C, VPDPB[SU,UU,SS]D[,S]",
        )
    for _a, _b in ("su", "us", "uu"):
        _dot(
            f"vpdpw{_a}{_b}d{_end}",
            f"{_a}16",
            f"{_b}16",
            bool(_end),
            AVX_VNNI_INT16,
            "Intel SDM Vol. 2C, VPDPW[SU,US,UU]D[,S]",
        )
