"""Elements of DPAS's packed dwords as the numbers that products are formed of, in few steps of a CPU."""

from __future__ import annotations

from isa_models.algebra import Value
from isa_models.formats import fmt


def elements(words: Value, dtype: str) -> Value:
    """Packed dwords as elements that products are formed of: s32 lanes of integers, f32 lanes of floats."""
    form = fmt(dtype)
    if form.bits >= 8:
        return numbers(words.view(form.lanes), dtype)
    wide = _fields(words.view("u8"), form.bits).to("s32")
    sign = 1 << (form.bits - 1)
    wide = (wide ^ sign) - sign if form.signed else wide
    return wide.step(f"widen {dtype}", lambda: [words.view(dtype)])


def numbers(lanes: Value, dtype: str) -> Value:
    """Lanes of a type as elements that products are formed of."""
    form = fmt(dtype)
    if form.container:  # digits that are not its own are not read (tf32: 19 bits; DPAS.md, E8M10)
        unused = (1 << (fmt(form.container).mantissa_bits - form.mantissa_bits)) - 1
        cut = (lanes.view("u32") & (0xFFFFFFFF ^ unused)).view(form.container)
        return cut.step(f"cut to {dtype}", lambda: [lanes])
    return widened(lanes) if form.is_float else lanes.to("s32")


def _fields(fields: Value, bits: int) -> Value:
    """Bytes as fields of 4 or 2 bits, one a byte."""
    for width in (4, 2)[: 2 if bits == 2 else 1]:
        fields = (fields & ((1 << width) - 1)).interleave(fields >> width)
    return fields


def widened(value: Value) -> Value:
    """Lanes of 16-bit floats as f32, whichever NaN: where they have f32's exponents they are the upper half of its
    bits.
    """
    if value.format.exponent_bits != fmt("f32").exponent_bits:
        return value.to("f32").step("widen to f32", lambda: [value])
    return (value.view("u16").to("u32") << 16).view("f32").step("widen to f32", lambda: [value])


def quarters(words: Value, dtype: str, lanes: list[int]) -> list[Value]:
    """The bytes of some dwords in turn as s32, from words that hold every other one."""
    words_of = [half.permute(lanes).view("s16").split(2) for half in _words(words, dtype)]

    def byte(i: int) -> Value:
        found = words_of[i % 2][i // 2].to("s32")
        return found.step(f"widen {dtype}", lambda: [words.view(dtype).split(4)[i].permute(lanes)])

    return [byte(i) for i in range(4)]


def _words(words: Value, dtype: str) -> tuple[Value, Value]:
    """Bytes 0 and 2 of dwords, and bytes 1 and 3, in two words of each."""
    if not fmt(dtype).signed:
        return words & 0x00FF00FF, words >> 8 & 0x00FF00FF
    pairs = words.view("s16")
    return ((pairs << 8) >> 8).view("u32"), (pairs >> 8).view("u32")


def halves(words: Value) -> list[Value]:
    """The bf16 in the low and in the high halves of dwords as f32, whose upper half they are."""

    def named(wide: Value, i: int) -> Value:
        return wide.view("f32").step("widen to f32", lambda: [words.view("bf16").split(2)[i]])

    return [named(words << 16, 0), named(words & 0xFFFF0000, 1)]
