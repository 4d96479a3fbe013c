"""x86 fused multiply-add: two factors and an addend in three orders of operands, with six pairs of signs."""

from __future__ import annotations

from isa_models.algebra import Value
from isa_models.instruction import define, example
from isa_models.roundoff import roundoff
from isa_models.x86.floats import PACKED, choose_nan

#: which of the destination, the second and the third operand are the factors and the addend; of several NaNs the first
#: in this order wins (so on a Zen 4 and a Zen 5)
_ORDERS = {"132": (0, 2, 1), "213": (1, 0, 2), "231": (1, 2, 0)}
#: the signs of the product, and of the addend in even and in odd lanes
_SIGNS = {
    "vfmadd": (1, 1, 1),
    "vfmsub": (1, -1, -1),
    "vfnmadd": (-1, 1, 1),
    "vfnmsub": (-1, -1, -1),
    "vfmaddsub": (1, -1, 1),
    "vfmsubadd": (1, 1, -1),
}


def _negated(a: Value) -> Value:
    """The sign turned, that of zero too."""
    bits = a.view(f"u{a.format.bits}")
    return (bits ^ (1 << (a.format.bits - 1))).view(a.dtype)


def _signed(addend: Value, even: int, odd: int) -> Value:
    if even == odd:
        return addend if even > 0 else _negated(addend)
    turned = [(even, odd)[k % 2] < 0 for k in range(addend.lanes)]
    both = addend.concat(_negated(addend))
    return both.permute([k + addend.lanes * turn for k, turn in enumerate(turned)])


def _fused(x: Value, y: Value, z: Value) -> Value:
    """x * y + z, rounded once; denormals are kept (MXCSR's DAZ and FTZ never apply to f16).

    f16 is computed in f32: the product is exact there, and the sum is rounded to odd, so that the rounding to f16 is
    the only one that shows (see `arrays._fma32`).
    """
    if x.dtype != "f16":
        return x.fma(y, z)
    return _sum_to_odd(x.to("f32") * y.to("f32"), z.to("f32")).to("f16")


def _sum_to_odd(a: Value, b: Value) -> Value:
    """a + b of f32: where inexact, the neighbour whose last bit is one; the error is found by Knuth's TwoSum."""
    total = a + b
    part = total - a
    error = (a - (total - part)) + (b - part)
    bits = total.view("s32")
    beyond = (bits ^ error.view("s32")) >> 31  # -1 where the total lies farther from zero than the sum
    inexact = error.eq(error) & error.ne(0)  # of infinities it is NaN
    odd = inexact.where((bits + beyond) | 1, bits).view("f32")
    return odd.step("add, rounded to odd", lambda: [a, b], [roundoff("f32", directed=True)])


def _text(name: str, order: str) -> str:
    sign, even, odd = _SIGNS[name]
    first, second, third = (("acc" if order == "231" else "x", "a", "b")[k] for k in _ORDERS[order])
    product = f"{'-' if sign < 0 else ''}({first} * {second})"
    of_even, of_odd = ("+" if sign > 0 else "-" for sign in (even, odd))
    lanes = "" if even == odd else f" in even lanes, {of_odd} in odd ones"
    return f"{product} {of_even} {third}{lanes}, rounded once."


def _timed_as(name: str, order: str, end: str) -> str:
    """The mnemonic whose timing rows a fused product has: all kinds and types of a machine are as fast."""
    stands = f"vfmadd{'231' if order == '231' or end == 'ph' else '213'}{'ph' if end == 'ph' else 'ps'}"
    return "" if name == stands else stands


def _define(family: str, order: str, end: str) -> None:
    name, (dtype, caps), (sign, even, odd) = f"{family}{order}{end}", PACKED[end], _SIGNS[family]
    places = _ORDERS[order]
    numbers = (2.0, 3.0, 5.0)
    x, y, z = (numbers[k] for k in places)
    shown = [sign * x * y + even * z, sign * x * y + odd * z]

    register = define(
        name,
        f"{dtype} <- {dtype}, {dtype}, {dtype}",
        caps,
        f"Intel SDM Vol. 2C, {family.upper()}132{end.upper()}/213/231",
        accumulates=order == "231",
        overwrites=order != "231",
        timed_as=_timed_as(name, order, end),
        doc=example(name, _text(family, order), "[2, 2], [3, 3], [5, 5]", str(shown)),
    )

    def fused(*operands: Value) -> Value:
        x, y, z = (operands[k] for k in places)
        return choose_nan(_fused(x if sign > 0 else _negated(x), y, _signed(z, even, odd)), x, y, z)

    def added(acc: Value, a: Value, b: Value) -> Value:
        return fused(acc, a, b)

    def replaced(x: Value, a: Value, b: Value) -> Value:
        return fused(x, a, b)

    register(added if order == "231" else replaced)


for _family in _SIGNS:
    for _order in _ORDERS:
        for _end in PACKED:
            _define(_family, _order, _end)
