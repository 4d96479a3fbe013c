"""x86 packed floats: arithmetic with the manuals' rules for NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from isa_models.algebra import Value
from isa_models.instruction import define, example
from isa_models.rounding import MODES
from isa_models.x86.widths import AVX2, AVX512_BW

Binary = Callable[[Value, Value], Value]


def choose_nan(result: Value, *operands: Value) -> Value:
    """`result`, but where it is NaN: the first operand that is NaN, quieted, or the default NaN.

    Intel SDM Vol. 1, 4.8.3.5 and Table 4-7; the operands come in the order of priority.
    """

    def fixed() -> Value:
        form, word = result.format, f"u{result.format.bits}"
        quiet = 1 << (form.mantissa_bits - 1)
        default = (1 << form.bits) - quiet  # a sign, all ones in the exponent, the first bit of the fraction
        bits = result.view(word).literal(default)
        for operand in reversed(operands):
            bits = operand.is_nan().where(operand.view(word) | quiet, bits)
        return bits.view(result.dtype).step("the NaN that wins", lambda: operands)

    return result.is_nan().rarely(result, fixed)


def _arithmetic(name: str, dtype: str, function: Binary, text: str, call: str, result: str, **facts: Any) -> None:
    doc = example(name, f"{text} Of two NaNs the first wins, quieted.", call, result)

    @define(name, f"{dtype} <- {dtype}, {dtype}", AVX512_BW, f"Intel SDM Vol. 2, {name[1:].upper()}", doc=doc, **facts)
    def arithmetic(a: Value, b: Value) -> Value:
        return choose_nan(function(a, b), a, b)


def _extreme(name: str, dtype: str, better: Binary, which: str, result: str, **facts: Any) -> None:
    text = f"The {which} float; the second, bit for bit, where either is NaN or both are zeros."
    doc = example(name, text, '[1, float("nan"), 0.0], [2, 3, -0.0]', result)

    @define(name, f"{dtype} <- {dtype}, {dtype}", AVX512_BW, f"Intel SDM Vol. 2B, {name[1:].upper()}", doc=doc, **facts)
    def extreme(a: Value, b: Value) -> Value:
        return better(a, b).where(a, b)


def _root(name: str, dtype: str) -> None:
    doc = example(name, "Square root, correctly rounded.", "[9, 2.25]", "[3.0, 1.5]")

    @define(name, f"{dtype} <- {dtype}", AVX512_BW, f"Intel SDM Vol. 2B, {name[1:].upper()}", doc=doc)
    def root(a: Value) -> Value:
        return choose_nan(a.sqrt(), a)


def _of_type(end: str, dtype: str, what: str) -> None:
    """Arithmetic on one type; doubles are as fast as floats but for quotients and roots."""

    def timed(operation: str) -> str:
        return "" if end == "ps" else f"v{operation}ps"

    for operation, function, text, result in (
        ("add", lambda a, b: a + b, f"Add {what}.", "[1.5, 5.0]"),
        ("sub", lambda a, b: a - b, f"Subtract {what}.", "[0.5, -1.0]"),
        ("mul", lambda a, b: a * b, f"Multiply {what}.", "[0.5, 6.0]"),
    ):
        name = f"v{operation}{end}"
        _arithmetic(name, dtype, function, text, "[1, 2], [0.5, 3]", result, timed_as=timed(operation))
    _arithmetic(f"vdiv{end}", dtype, lambda a, b: a / b, f"Divide {what}.", "[1, 6], [0.5, 3]", "[2.0, 2.0]")
    _root(f"vsqrt{end}", dtype)
    least, most = "[1.0, 3.0, -0.0]", "[2.0, 3.0, -0.0]"
    _extreme(f"vmin{end}", dtype, lambda a, b: a < b, "lesser", least, timed_as=timed("min"))
    _extreme(f"vmax{end}", dtype, lambda a, b: a > b, "greater", most, timed_as=timed("max"))


_of_type("ps", "f32", "floats")
_of_type("pd", "f64", "doubles")


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


_SIGNS = {  # of the product, and of the addend in even and in odd lanes
    "fmadd": (1, 1, 1, "{0} plus {1}"),
    "fmsub": (1, -1, -1, "{0} minus {1}"),
    "fnmadd": (-1, 1, 1, "{1} minus {0}"),
    "fnmsub": (-1, -1, -1, "minus {0}, minus {1}"),
    "fmaddsub": (1, -1, 1, "{0} minus {1} in even lanes, plus {1} in odd ones"),
    "fmsubadd": (1, 1, -1, "{0} plus {1} in even lanes, minus {1} in odd ones"),
}
_ORDERS = {"132": (0, 2, 1), "213": (1, 0, 2), "231": (1, 2, 0)}  # the operands that are factors, and the addend


def _negated(value: Value, even: int, odd: int) -> Value:
    """The value with the sign of its even or odd lanes, or of both, turned."""
    if even == odd:
        return value if even > 0 else value * -1.0
    turned = value.concat(value * -1.0)
    return turned.permute([k + (value.lanes if (odd if k % 2 else even) < 0 else 0) for k in range(value.lanes)])


def _fused(kind: str, order: str) -> None:
    """A product and an addend, rounded once; digits say which operands are factors, and which is the addend."""
    name, (product, even, odd, says) = f"v{kind}{order}ps", _SIGNS[kind]
    one, two, three = _ORDERS[order]
    letters, numbers = ("acc" if order == "231" else "x", "a", "b"), (2.0, 3.0, 5.0)
    told = says.format(f"{letters[one]} * {letters[two]}", letters[three])
    text = f"{told}, rounded once, in {letters[0]}'s place. Of several NaNs the first factor's wins, then the other's, "
    text += "then the addend's (so on a Zen 4)."
    shown = [product * numbers[one] * numbers[two] + sign * numbers[three] for sign in (even, odd)]
    register = define(
        name,
        "f32 <- f32, f32, f32",
        AVX512_BW,
        f"Intel SDM Vol. 2C, V{kind.upper()}132PS/V{kind.upper()}213PS/V{kind.upper()}231PS",
        accumulates=order == "231",
        overwrites=order != "231",
        timed_as="" if name in ("vfmadd231ps", "vfmadd213ps") else "vfmadd231ps" if order == "231" else "vfmadd213ps",
        whole=even != odd,
        doc=example(name, text, ", ".join(str([int(n)] * 4) for n in numbers), str(shown * 2)),
    )

    def fused(*operands: Value) -> Value:
        factor, other, addend = (operands[k] for k in _ORDERS[order])
        found = _negated(factor, product, product).fma(other, _negated(addend, even, odd))
        return choose_nan(found, factor, other, addend)

    def added(acc: Value, a: Value, b: Value) -> Value:
        return fused(acc, a, b)

    def replaced(x: Value, a: Value, b: Value) -> Value:
        return fused(x, a, b)

    register(added if order == "231" else replaced)


for _kind in _SIGNS:
    for _order in _ORDERS:
        _fused(_kind, _order)


def daz(x: Value) -> Value:
    """Denormal f32 to zero of the same sign."""
    bits = x.view("u32")
    return ((bits & 0x7F800000).eq(0)).where(bits & 0x80000000, bits).view("f32").step("denormal to zero", lambda: [x])
