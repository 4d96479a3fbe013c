"""x86 packed floats: arithmetic in single, double and half precision, with the manuals' rules for NaN."""

from __future__ import annotations

from collections.abc import Callable

from isa_models.algebra import Value
from isa_models.instruction import define, example
from isa_models.rounding import MODES
from isa_models.x86.widths import AVX2, AVX512_BW, AVX512_FP16, AVX512_ONLY

#: packed types by the end of the mnemonic
PACKED = {"ps": ("f32", AVX512_BW), "pd": ("f64", AVX512_BW), "ph": ("f16", AVX512_FP16)}
Binary = Callable[[Value, Value], Value]


def _is_nan(a: Value) -> Value:
    if a.dtype != "f16":
        return a.is_nan()
    return (a.view("u16") & 0x7FFF) > 0x7C00  # f16 has no operations of its own in the algebra


def choose_nan(result: Value, *operands: Value) -> Value:
    """`result`, but where it is NaN: the first operand that is NaN, quieted, or the default NaN.

    Intel SDM Vol. 1, 4.8.3.5 and Table 4-7; the operands come in the order of priority.
    """
    form = result.format
    quiet = 1 << (form.mantissa_bits - 1)
    exponent = ((1 << form.exponent_bits) - 1) << form.mantissa_bits

    def fixed() -> Value:
        bits = result.view(f"u{form.bits}").literal(1 << (form.bits - 1) | exponent | quiet)
        for operand in reversed(operands):
            bits = _is_nan(operand).where(operand.view(f"u{form.bits}") | quiet, bits)
        return bits.view(form.name).step("the NaN that wins", lambda: operands)

    return _is_nan(result).rarely(result, fixed)


def _roomy(a: Value) -> Value:
    """f16 in f32, where one operation on it, rounded to f16 again, is rounded as if once; other types as they are."""
    return a.to("f32") if a.dtype == "f16" else a


def _timed_as(verb: str, end: str) -> str:
    """f64 is as fast as f32, but for quotients and roots; f16 has rows of its own."""
    return f"v{verb}ps" if end == "pd" and verb not in ("div", "sqrt") else ""


def _arithmetic(verb: str, function: Binary, text: str, call: str, result: str) -> None:
    for end, (dtype, caps) in PACKED.items():
        name, timed_as = f"v{verb}{end}", _timed_as(verb, end)
        doc, manual = example(name, f"{text} Of two NaNs the first wins, quieted.", call, result), name[1:].upper()

        @define(name, f"{dtype} <- {dtype}, {dtype}", caps, f"Intel SDM Vol. 2, {manual}", timed_as=timed_as, doc=doc)
        def arithmetic(a: Value, b: Value) -> Value:
            return choose_nan(function(_roomy(a), _roomy(b)).to(a.dtype), a, b)


_arithmetic("add", lambda a, b: a + b, "Add floats.", "[1, 2], [0.5, 3]", "[1.5, 5.0]")
_arithmetic("sub", lambda a, b: a - b, "Subtract floats.", "[1, 2], [0.5, 3]", "[0.5, -1.0]")
_arithmetic("mul", lambda a, b: a * b, "Multiply floats.", "[1, 2], [0.5, 3]", "[0.5, 6.0]")
_arithmetic("div", lambda a, b: a / b, "Divide floats.", "[1, 6], [0.5, 3]", "[2.0, 2.0]")


def _extreme(verb: str, less: bool) -> None:
    which = "lesser" if less else "greater"
    text = f"The {which} float; the second, bit for bit, where either is NaN or both are zeros."
    shown = "[1.0, 3.0, -0.0]" if less else "[2.0, 3.0, -0.0]"
    for end, (dtype, caps) in PACKED.items():
        name, timed_as = f"v{verb}{end}", _timed_as(verb, end)
        doc, manual = example(name, text, '[1, float("nan"), 0.0], [2, 3, -0.0]', shown), name[1:].upper()

        @define(
            name,
            f"{dtype} <- {dtype}, {dtype}",
            caps,
            f"Intel SDM Vol. 2, {manual}",
            timed_as=timed_as,
            chooses=True,
            doc=doc,
        )
        def extreme(a: Value, b: Value) -> Value:
            x, y = _roomy(a), _roomy(b)
            return (x < y if less else x > y).where(a, b)


_extreme("min", less=True)
_extreme("max", less=False)


def _root(end: str) -> None:
    dtype, caps = PACKED[end]
    doc = example(f"vsqrt{end}", "Square root, correctly rounded.", "[9, 2.25]", "[3.0, 1.5]")

    @define(f"vsqrt{end}", f"{dtype} <- {dtype}", caps, f"Intel SDM Vol. 2B, SQRT{end.upper()}", doc=doc)
    def root(a: Value) -> Value:
        return choose_nan(_roomy(a).sqrt().to(dtype), a)


for _end in PACKED:
    _root(_end)


def integral(a: Value, mode: str) -> Value:
    """Floats rounded to integral ones; the sign stays, that of zero too, but for nearest even's own zeros."""
    nearest = a.round_even()
    if mode == "even":
        return nearest
    below, above = (nearest > a).where(nearest - 1.0, nearest), (nearest < a).where(nearest + 1.0, nearest)
    found = {"down": below, "up": above}.get(mode, (a < 0.0).where(above, below))
    bits = f"u{a.format.bits}"
    return (found.view(bits) | (a.view(bits) & (1 << (a.format.bits - 1)))).view(a.dtype)


def _mode(imm: int) -> str:
    return "even" if imm & 4 else MODES[imm & 3]


_ROUNDS = "Immediate bits 1:0: nearest even, down, up, towards zero; bit 2: MXCSR's mode, which here is nearest even."


def _rounds(end: str) -> None:
    dtype = PACKED[end][0]
    text = f"Floats to integral ones. {_ROUNDS} The sign stays, that of zero too."
    doc = example(f"vround{end}", text, "[2.5, -3.7, -0.4], imm=3", "[2.0, -3.0, -0.0]")

    manual, timed_as = f"Intel SDM Vol. 2B, ROUND{end.upper()}", "" if end == "ps" else "vroundps"

    @define(f"vround{end}", f"{dtype} <- {dtype}", AVX2, manual, timed_as=timed_as, doc=doc)
    def rounds(a: Value, imm: int) -> Value:
        return choose_nan(integral(a, _mode(imm)), a)


def _rounds_to_scale(end: str) -> None:
    dtype, caps = PACKED[end]
    name, caps = f"vrndscale{end}", AVX512_FP16 if end == "ph" else AVX512_ONLY
    text = f"Floats to multiples of 2**-m, m in the immediate's bits 7:4. {_ROUNDS} The sign stays, that of zero too."
    doc = example(name, text, "[2.5, -3.7, 0.3], imm=0x13", "[2.5, -3.5, 0.0]")

    timed_as = "vrndscaleps" if end == "pd" else ""

    @define(name, f"{dtype} <- {dtype}", caps, f"Intel SDM Vol. 2C, {name.upper()}", timed_as=timed_as, doc=doc)
    def rounds(a: Value, imm: int) -> Value:
        scale, x = 2.0 ** (imm >> 4), _roomy(a)
        many = x.format.mantissa_bits  # from 2 to this power on a number is whole
        fine = (x < 2.0**many) & (x > -(2.0**many))
        scaled = integral(fine.where(x, x.literal(0.0)) * scale, _mode(imm)) * (1 / scale)
        return choose_nan(fine.where(scaled, x).to(dtype), a)


for _end in ("ps", "pd"):
    _rounds(_end)
for _end in PACKED:
    _rounds_to_scale(_end)


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


def daz(x: Value) -> Value:
    """Denormal f32 to zero of the same sign."""
    bits = x.view("u32")
    return ((bits & 0x7F800000).eq(0)).where(bits & 0x80000000, bits).view("f32").step("denormal to zero", lambda: [x])
