"""x86 packed single precision: arithmetic with the manuals' rules for NaN."""

from __future__ import annotations

from collections.abc import Callable

from isa_models.algebra import Value
from isa_models.instruction import define, example
from isa_models.rounding import MODES
from isa_models.x86.widths import AVX2, AVX512_BW

_QUIET = 0x00400000
_DEFAULT_NAN = 0xFFC00000
Binary = Callable[[Value, Value], Value]


def choose_nan(result: Value, *operands: Value) -> Value:
    """`result`, but where it is NaN: the first operand that is NaN, quieted, or the default NaN.

    Intel SDM Vol. 1, 4.8.3.5 and Table 4-7; the operands come in the order of priority.
    """

    def fixed() -> Value:
        bits = result.view("u32").literal(_DEFAULT_NAN)
        for operand in reversed(operands):
            bits = operand.is_nan().where(operand.view("u32") | _QUIET, bits)
        return bits.view("f32").step("the NaN that wins", lambda: operands)

    return result.is_nan().rarely(result, fixed)


def _arithmetic(name: str, function: Binary, text: str, call: str, result: str) -> None:
    doc = example(name, f"{text} Of two NaNs the first wins, quieted.", call, result)

    @define(name, "f32 <- f32, f32", AVX512_BW, f"Intel SDM Vol. 2, {name[1:].upper()}", doc=doc)
    def arithmetic(a: Value, b: Value) -> Value:
        return choose_nan(function(a, b), a, b)


_arithmetic("vaddps", lambda a, b: a + b, "Add floats.", "[1, 2], [0.5, 3]", "[1.5, 5.0]")
_arithmetic("vsubps", lambda a, b: a - b, "Subtract floats.", "[1, 2], [0.5, 3]", "[0.5, -1.0]")
_arithmetic("vmulps", lambda a, b: a * b, "Multiply floats.", "[1, 2], [0.5, 3]", "[0.5, 6.0]")
_arithmetic("vdivps", lambda a, b: a / b, "Divide floats.", "[1, 6], [0.5, 3]", "[2.0, 2.0]")


@define("vsqrtps", "f32 <- f32", AVX512_BW, "Intel SDM Vol. 2B, SQRTPS")
def vsqrtps(a: Value) -> Value:
    """Square root, correctly rounded.

    >>> from isa_models import instruction
    >>> instruction("vsqrtps")([9, 2.25]).tolist()
    [3.0, 1.5]
    """
    return choose_nan(a.sqrt(), a)


@define("vminps", "f32 <- f32, f32", AVX512_BW, "Intel SDM Vol. 2B, MINPS")
def vminps(a: Value, b: Value) -> Value:
    """The lesser float; the second, bit for bit, where either is NaN or both are zeros.

    >>> from isa_models import instruction
    >>> instruction("vminps")([1, float("nan"), 0.0], [2, 3, -0.0]).tolist()
    [1.0, 3.0, -0.0]
    """
    return (a < b).where(a, b)


@define("vmaxps", "f32 <- f32, f32", AVX512_BW, "Intel SDM Vol. 2B, MAXPS")
def vmaxps(a: Value, b: Value) -> Value:
    """The greater float; the second, bit for bit, where either is NaN or both are zeros.

    >>> from isa_models import instruction
    >>> instruction("vmaxps")([1, float("nan"), 0.0], [2, 3, -0.0]).tolist()
    [2.0, 3.0, -0.0]
    """
    return (a > b).where(a, b)


@define("vroundps", "f32 <- f32", AVX2, "Intel SDM Vol. 2B, ROUNDPS")
def vroundps(a: Value, imm: int) -> Value:
    """Floats to integral ones. Immediate bits 1:0: nearest even, down, up, towards zero; bit 2: MXCSR's mode, which
    here is nearest even. The sign stays, that of zero too.

    >>> from isa_models import instruction
    >>> instruction("vroundps")([2.5, -3.7, -0.4], imm=0).tolist(), instruction("vroundps")([2.5, -3.7], imm=3).tolist()
    ([2.0, -4.0, -0.0], [2.0, -3.0])
    """
    mode, nearest = "even" if imm & 4 else MODES[imm & 3], a.round_even()
    if mode == "even":
        return choose_nan(nearest, a)
    below, above = (nearest > a).where(nearest - 1.0, nearest), (nearest < a).where(nearest + 1.0, nearest)
    found = {"down": below, "up": above}.get(mode, (a < 0.0).where(above, below))
    signed = found.view("u32") | (a.view("u32") & 0x80000000)
    return choose_nan(signed.view("f32"), a)


@define("vhaddps", "f32 <- f32, f32", AVX2, "Intel SDM Vol. 2A, HADDPS", whole=True)
def vhaddps(a: Value, b: Value) -> Value:
    """Each 128-bit block: sums of neighbours of the first, then of the second.

    >>> from isa_models import instruction
    >>> instruction("vhaddps")([1, 2, 3, 4], [5, 6, 7, 8]).tolist()
    [3.0, 7.0, 11.0, 15.0]
    """
    n = a.lanes
    order = [k for s in range(0, n, 4) for base in (0, n) for k in (base + s, base + s + 2)]
    both = a.concat(b)
    even, odd = both.permute(order), both.permute([k + 1 for k in order])
    return choose_nan(even + odd, even, odd)


_FMA = "Intel SDM Vol. 2C, VFMADD132PS/VFMADD213PS/VFMADD231PS"


@define("vfmadd231ps", "f32 <- f32, f32, f32", AVX512_BW, _FMA, accumulates=True)
def vfmadd231ps(acc: Value, a: Value, b: Value) -> Value:
    """a * b + acc, rounded once. Of several NaNs a's wins, then b's, then the accumulator's (so on a Zen 4).

    >>> from isa_models import instruction
    >>> instruction("vfmadd231ps")([1], [2], [3]).tolist()
    [7.0]
    """
    return choose_nan(a.fma(b, acc), a, b, acc)


@define("vfmadd213ps", "f32 <- f32, f32, f32", AVX512_BW, _FMA, overwrites=True)
def vfmadd213ps(x: Value, a: Value, b: Value) -> Value:
    """a * x + b, rounded once, in x's place. Of several NaNs a's wins, then x's, then b's (so on a Zen 4).

    >>> from isa_models import instruction
    >>> instruction("vfmadd213ps")([1], [2], [3]).tolist()
    [5.0]
    """
    return choose_nan(a.fma(x, b), a, x, b)


def daz(x: Value) -> Value:
    """Denormal f32 to zero of the same sign."""
    bits = x.view("u32")
    return ((bits & 0x7F800000).eq(0)).where(bits & 0x80000000, bits).view("f32").step("denormal to zero", lambda: [x])
