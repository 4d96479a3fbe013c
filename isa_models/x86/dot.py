"""x86 integer dot products: pairs and quads of neighbouring lanes, multiplied and summed."""

from __future__ import annotations

from isa_models.algebra import Value
from isa_models.instruction import define
from isa_models.x86.widths import AVX512_BW, AVX_VNNI

_VNNI = AVX_VNNI


@define(
    "vpmaddubsw", "s16 <- u8*2, s8*2", AVX512_BW, "Intel SDM Vol. 2B, PMADDUBSW", saturates=True
)
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


@define("vpdpbusd", "s32 <- s32, u8*4, s8*4", _VNNI, "Intel SDM Vol. 2C, VPDPBUSD", accumulates=True)
def vpdpbusd(acc: Value, a: Value, b: Value) -> Value:
    """Four products of unsigned by signed bytes, added to the accumulator, which wraps.

    >>> from isa_models import instruction
    >>> instruction("vpdpbusd")([2**31 - 1], [1, 0, 0, 0], [1, 0, 0, 0]).tolist()
    [-2147483648]
    """
    total = acc
    for x, y in zip(a.split(4), b.split(4), strict=True):
        total = total + x.to("s32") * y.to("s32")
    return total
