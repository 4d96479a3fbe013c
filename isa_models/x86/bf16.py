"""x86 bf16: conversions from f32, and the dot product of pairs (AVX512_BF16)."""

from __future__ import annotations

from isa_models.algebra import Value
from isa_models.formats import fmt
from isa_models.instruction import define
from isa_models.rounding import round_to
from isa_models.x86.floats import choose_nan, daz
from isa_models.x86.widths import AVX512_BF16

_LEAST_NORMAL = 0x00800000


@define("vcvtneps2bf16", "bf16 <- f32", AVX512_BF16, "Intel SDM Vol. 2C, VCVTNEPS2BF16")
def vcvtneps2bf16(a: Value) -> Value:
    """Floats to bf16, nearest even; denormals become zeros, a NaN turns quiet. MXCSR is not consulted.

    >>> from isa_models import instruction
    >>> instruction("vcvtneps2bf16")([1.00390625, 1e-40]).tolist()
    [1.0, 0.0]
    """
    return round_to(daz(a), "bf16")


@define("vcvtne2ps2bf16", "bf16 <- f32*0.5, f32*0.5", AVX512_BF16, "Intel SDM Vol. 2C, VCVTNE2PS2BF16")
def vcvtne2ps2bf16(a: Value, b: Value) -> Value:
    """Floats rounded to bf16 as vcvtneps2bf16 does, the second operand's in the low half of the result.

    >>> from isa_models import instruction
    >>> instruction("vcvtne2ps2bf16")([1, 2], [3, 4]).tolist()
    [3.0, 4.0, 1.0, 2.0]
    """
    return round_to(daz(b.concat(a)), "bf16")


def fma_flushed(a: Value, b: Value, c: Value) -> Value:
    """fma(a, b, c) of operands without denormals, a tiny result flushed to zero of its sign.

    Tiny is judged after rounding as if the exponent had no bound. Scaling by 2**32 makes that rounding visible: where
    the plain result is tiny, neither the scaled operands nor their result leave the normal range.
    """
    result = a.fma(b, c)
    small = (result.view("u32") << 1) <= (_LEAST_NORMAL << 1)

    def flushed() -> Value:
        scaled = (a * 2.0**32).fma(b, c * 2.0**32).view("u32")
        tiny = (scaled << 1) < ((_LEAST_NORMAL + (32 << 23)) << 1)
        bits = result.view("u32")
        return tiny.where(bits & 0x80000000, bits).view("f32").step("tiny to zero", lambda: [result])

    nonzero = (result.view("u32") << 1).ne(0)
    return (small & nonzero).rarely(result, flushed)


@define(
    "vdpbf16ps",
    "f32 <- f32, bf16*2, bf16*2",
    AVX512_BF16,
    "Intel SDM Vol. 2C, VDPBF16PS",
    accumulates=True,
    steady=True,
)
def vdpbf16ps(acc: Value, a: Value, b: Value) -> Value:
    """Two products of bf16 added to an f32 accumulator, the odd elements first, each step a fused multiply-add.

    Denormal inputs count as zero and tiny results become zero; MXCSR is not consulted. Of several NaNs a's wins, then
    b's, then the accumulator's.

    >>> from isa_models import instruction
    >>> instruction("vdpbf16ps")([1], [2, 3], [4, 5]).tolist()
    [24.0]
    """
    pairs = list(zip(even_and_odd(a)[::-1], even_and_odd(b)[::-1], strict=True))

    def usual() -> tuple[Value, list[Value]]:
        total = acc
        for x, y in pairs:
            total = x.fma(y, total)
        factors = [x.view("u16").meets(fine, "bf16", -55) for x in (a, b)]
        addend = [] if acc.assured(_FINE_SUM) else [fine(acc.view("u32"), "f32", -101)]
        return total.assure(_FINE_SUM), [*factors, *addend, total.is_nan()]

    def careful() -> Value:
        total = daz(acc)
        for x, y in pairs:
            x, y = daz(x), daz(y)
            total = choose_nan(fma_flushed(x, y, total), x, y, total)
        return total

    return acc.shortcut(usual, careful)


_FINE_SUM = "zero, or a multiple of 2**-124"


def even_and_odd(pairs: Value) -> tuple[Value, Value]:
    """The even and the odd elements of pairs of bf16 as f32: a bf16 is the upper half of its f32."""
    words = pairs.view("u32")
    return (
        (words << 16).view("f32").step("widen to f32", lambda: [pairs.split(2)[0]]),
        (words & 0xFFFF0000).view("f32").step("widen to f32", lambda: [pairs.split(2)[1]]),
    )


def fine(bits: Value, name: str, exponent: int) -> Value:
    """Whether a float of format `name` is below 2**exponent and not zero.

    Without such factors (-55) and addends (-101) every product and sum is a multiple of 2**-124, as bf16 has 8 digits
    and f32 has 24. So is its rounding to f32, and then no result is tiny and none is flushed. A result is such an
    addend again: what is below 2**-101 and a multiple of 2**-124 needs no rounding.
    """
    form = fmt(name)
    return ((bits << 1) - 1) < ((exponent + form.bias) << (form.mantissa_bits + 1)) - 1
