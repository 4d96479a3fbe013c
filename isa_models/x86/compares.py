"""x86 comparisons and tests of lanes: into mask registers (AVX-512), and into lanes of all ones or zeros (AVX2).

Where one mnemonic has both results, the form into a mask is called MNEMONIC.k here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from isa_models.algebra import Value
from isa_models.formats import Format, fmt
from isa_models.instruction import define, example
from isa_models.x86.masks import SIZES
from isa_models.x86.widths import AVX2, AVX512_FP16, AVX512_ONLY, AVX512_VBMI, Widths

Compare = Callable[[Value, Value], Value]
_LEAST = {end: fmt(f"s{bits}").low for end, bits in SIZES.items()}


def _into_mask(
    name: str, dtype: str, compare: Compare, manual: str, text: str, call: str, result: str, **facts: Any
) -> None:
    @define(
        name,
        f"b1 <- {dtype}, {dtype}",
        AVX512_ONLY,
        f"Intel SDM Vol. 2, {manual}",
        chooses=True,
        **facts,
        doc=example(name, text, call, result),
    )
    def into_mask(a: Value, b: Value) -> Value:
        return compare(a, b)


def _into_lanes(name: str, dtype: str, compare: Compare, manual: str, text: str, call: str) -> None:
    @define(
        name,
        f"{dtype} <- {dtype}, {dtype}",
        AVX2,
        f"Intel SDM Vol. 2, {manual}",
        chooses=True,
        doc=example(name, text, call, "[-1, 0]"),
    )
    def into_lanes(a: Value, b: Value) -> Value:
        return compare(a, b).where(a.literal(-1), a.literal(0))


_EQUAL, _GREATER = "PCMPEQB/PCMPEQW/PCMPEQD, PCMPEQQ", "PCMPGTB/PCMPGTW/PCMPGTD, PCMPGTQ"
for _end, _bits in SIZES.items():
    _type = f"s{_bits}"
    _into_lanes(
        f"vpcmpeq{_end}",
        _type,
        lambda a, b: a.eq(b),
        _EQUAL,
        "All bits of lanes that are equal, none of others.",
        "[7, 7], [7, -7]",
    )
    _into_lanes(
        f"vpcmpgt{_end}",
        _type,
        lambda a, b: a > b,
        _GREATER,
        "All bits where the first lane is greater, none elsewhere; lanes are signed.",
        f"[1, {_LEAST[_end]}], [-1, 1]",
    )
    _into_mask(
        f"vpcmpeq{_end}.k",
        _type,
        lambda a, b: a.eq(b),
        _EQUAL,
        "Whether lanes are equal.",
        "[7, 7], [7, -7]",
        "[True, False]",
        mnemonic_of_form=f"vpcmpeq{_end}",
    )
    _into_mask(
        f"vpcmpgt{_end}.k",
        _type,
        lambda a, b: a > b,
        _GREATER,
        "Whether the first is greater; lanes are signed.",
        f"[1, {_LEAST[_end]}], [-1, 1]",
        "[True, False]",
        mnemonic_of_form=f"vpcmpgt{_end}",
    )
    _into_mask(
        f"vptestm{_end}",
        _type,
        lambda a, b: (a & b).ne(0),
        "VPTESTMB/VPTESTMW/VPTESTMD/VPTESTMQ",
        "Whether two lanes have a bit in common.",
        "[6, 6], [3, 8]",
        "[True, False]",
        timed_as="vptestmd",
    )
    _into_mask(
        f"vptestnm{_end}",
        _type,
        lambda a, b: (a & b).eq(0),
        "VPTESTNMB/W/D/Q",
        "Whether two lanes have no bit in common.",
        "[6, 6], [3, 8]",
        "[False, True]",
        timed_as="vptestmd",
    )

# -- by a predicate --------------------------------------------------------------------------------------------------
#: the low three bits of the immediate
_OF_INTEGERS: tuple[Compare, ...] = (
    lambda a, b: a.eq(b),
    lambda a, b: a < b,
    lambda a, b: a <= b,
    lambda a, b: a.ne(a),
    lambda a, b: a.ne(b),
    lambda a, b: a >= b,
    lambda a, b: a > b,
    lambda a, b: a.eq(a),
)


def _unordered(a: Value, b: Value) -> Value:
    return a.is_nan() | b.is_nan()


#: the low four bits; the fifth says which NaN raise an exception, and nothing about the result
_OF_FLOATS: tuple[Compare, ...] = (
    lambda a, b: a.eq(b),
    lambda a, b: a < b,
    lambda a, b: a <= b,
    _unordered,
    lambda a, b: ~a.eq(b),
    lambda a, b: ~(a < b),
    lambda a, b: ~(a <= b),
    lambda a, b: ~_unordered(a, b),
    lambda a, b: a.eq(b) | _unordered(a, b),
    lambda a, b: ~(a >= b),
    lambda a, b: ~(a > b),
    lambda a, b: a.is_nan() & ~a.is_nan(),
    lambda a, b: ~(a.eq(b) | _unordered(a, b)),
    lambda a, b: a >= b,
    lambda a, b: a > b,
    lambda a, b: a.is_nan() | ~a.is_nan(),
)


def _of_integers(end: str, bits: int, sign: str) -> None:
    name = f"vpcmp{sign}{end}"
    lesser = "[True, False]" if sign else "[False, True]"
    kind = "Unsigned" if sign else "Signed"
    text = f"{kind} lanes compared: equal, less, at most, never, unequal, at least, greater, always, by the immediate."
    first = f"[1, {fmt(f'u{bits}').high}], [2, 1], imm=1" if sign else "[1, -1], [1, 1], imm=1"

    @define(
        name,
        f"b1 <- {sign or 's'}{bits}, {sign or 's'}{bits}",
        AVX512_ONLY,
        "Intel SDM Vol. 2C, VPCMPB/VPCMPUB, VPCMPD/VPCMPUD, VPCMPQ/VPCMPUQ, VPCMPW/VPCMPUW",
        timed_as="vpcmpd",
        chooses=True,
        doc=example(name, text, first, lesser),
    )
    def compare(a: Value, b: Value, imm: int) -> Value:
        return _OF_INTEGERS[imm % 8](a, b)


def _of_floats(name: str, dtype: str, caps: Widths, manual: str, **facts: Any) -> None:
    text = "Lanes compared by the immediate: 0 equal, 1 less, 2 at most, 3 unordered; 4 to 7 not so; 8 to 15 with NaN."
    doc = example(name, text, "[1, float('nan')], [2, 1], imm=1", "[True, False]")

    @define(name, f"b1 <- {dtype}, {dtype}", caps, f"Intel SDM Vol. 2, {manual}", chooses=True, **facts, doc=doc)
    def compare(a: Value, b: Value, imm: int) -> Value:
        if dtype == "f16":
            a, b = a.to("f32"), b.to("f32")
        return _OF_FLOATS[imm % 16](a, b)


for _end, _bits in SIZES.items():
    _of_integers(_end, _bits, "")
    _of_integers(_end, _bits, "u")


def _of_floats_into_lanes(name: str, dtype: str, manual: str, **facts: Any) -> None:
    text = "All bits of lanes that compare as the immediate says (vcmpps.k), none of others."
    bits = fmt(dtype).bits
    doc = example(name, text, "[1, float('nan')], [2, 1], imm=1", f"[{(1 << bits) - 1}, 0]")
    word = f"u{bits}"

    @define(name, f"{word} <- {dtype}, {dtype}", AVX2, f"Intel SDM Vol. 2, {manual}", chooses=True, **facts, doc=doc)
    def compare(a: Value, b: Value, imm: int) -> Value:
        lanes = a.view(word)
        return _OF_FLOATS[imm % 16](a, b).where(~lanes.literal(0), lanes.literal(0))


_of_floats_into_lanes("vcmpps", "f32", "CMPPS")
_of_floats_into_lanes("vcmppd", "f64", "CMPPD", timed_as="vcmpps")
_of_floats("vcmpps.k", "f32", AVX512_ONLY, "CMPPS", mnemonic_of_form="vcmpps")
_of_floats("vcmppd.k", "f64", AVX512_ONLY, "CMPPD", mnemonic_of_form="vcmppd", timed_as="vcmpps")
_of_floats("vcmpph", "f16", AVX512_FP16, "VCMPPH")


# -- kinds of floats -------------------------------------------------------------------------------------------------
def _kinds(a: Value, form: Format) -> tuple[Value, ...]:
    """Whether a float is each of the kinds that the bits of the immediate ask for."""
    word = a.view(f"u{form.bits}")
    magnitude, negative = word & ((1 << (form.bits - 1)) - 1), (word >> (form.bits - 1)).ne(0)
    infinity = ((1 << form.exponent_bits) - 1) << form.mantissa_bits
    infinite, nan = magnitude.eq(infinity), magnitude > infinity
    zero, quiet = magnitude.eq(0), (word >> (form.mantissa_bits - 1) & 1).ne(0)
    denormal = (magnitude >> form.mantissa_bits).eq(0) & ~zero
    return (
        *(nan & quiet, zero & ~negative, zero & negative, infinite & ~negative, infinite & negative, denormal),
        *(negative & ~zero & ~infinite & ~nan, nan & ~quiet),
    )


def _classes(name: str, dtype: str, caps: Widths, **facts: Any) -> None:
    text = (
        "Whether a float is of a kind that a bit asks for: quiet NaN, 0, -0, inf, -inf, denormal, below 0, other NaN."
    )
    doc = example(name, text, "[0.0, -0.0, float('-inf'), -1.5], imm=0b1010100", "[False, True, True, True]")

    @define(name, f"b1 <- {dtype}", caps, "Intel SDM Vol. 2C, VFPCLASSPD, VFPCLASSPH, VFPCLASSPS", **facts, doc=doc)
    def classes(a: Value, imm: int) -> Value:
        word = a.view(f"u{fmt(dtype).bits}")
        found = word.ne(word)
        for bit, kind in enumerate(_kinds(a, fmt(dtype))):
            found = found | kind if imm >> bit & 1 else found
        return found


_classes("vfpclassps", "f32", AVX512_ONLY)
_classes("vfpclasspd", "f64", AVX512_ONLY, timed_as="vfpclassps")
_classes("vfpclassph", "f16", AVX512_FP16)


# -- lanes by a mask -------------------------------------------------------------------------------------------------
def _moved(value: Value, by: int) -> Value:
    """Lanes moved down, or up by a negative number; zeros come in."""
    both, first = (value.concat(value.literal(0)), by) if by > 0 else (value.literal(0).concat(value), value.lanes + by)
    return both.permute(range(first, first + value.lanes))


def _set_below(mask: Value, dtype: str) -> Value:
    """For each lane how many lanes below it have their bit set."""
    total = _moved(mask.to(dtype), -1)
    step = 1
    while step < mask.lanes:
        total = total + _moved(total, -step)
        step *= 2
    return total


def _by_mask(kind: str, end: str, bits: int, function: Compare, text: str, shown: list[int], memory: str) -> None:
    name = f"v{'p' if end in SIZES else ''}{kind}{end}"
    rest = [0] * (128 // bits - 4)

    @define(
        name,
        f"u{bits} <- b1, u{bits}",
        AVX512_ONLY if bits > 16 else AVX512_VBMI,
        f"Intel SDM Vol. 2C, {name.upper()}",
        whole=True,
        mask=True,
        memory=memory,
        doc=example(name, text, f"{[0, 1, 0, 1] + rest}, {[5, 6, 7, 8] + rest}", str(shown + rest)),
    )
    def by_mask(mask: Value, a: Value) -> Value:
        return function(mask, a)


def _expanded(mask: Value, a: Value) -> Value:
    return mask.where(a.lookup(_set_below(mask, a.dtype)), a.literal(0))


def _compressed(mask: Value, a: Value) -> Value:
    """Each kept lane goes down by the number of lanes below it that are left out, bit by bit of that number."""
    zeros = a.literal(0)
    left = _set_below(~mask, a.dtype)
    value, left, there = mask.where(a, zeros), mask.where(left, zeros), mask.where(zeros + 1, zeros)
    step = 1
    while step < a.lanes:
        going = (left & step).ne(0)
        coming = _moved(going.where(there, zeros), step).ne(0)
        value, left, there = (
            coming.where(_moved(going.where(x, zeros), step), going.where(zeros, x)) for x in (value, left, there)
        )
        step *= 2
    return value


def _blend_by_mask(end: str, dtype: str, **facts: Any) -> None:
    name = f"v{'p' if end in SIZES else ''}blendm{end}"
    text = "Lanes of the second where the mask has a bit, of the first elsewhere (zeroing: zeros)."
    shown = "[5.0, 12.0]" if fmt(dtype).is_float else "[5, 12]"

    @define(
        name,
        f"{dtype} <- b1, {dtype}, {dtype}",
        AVX512_ONLY,
        "Intel SDM Vol. 2C, VPBLENDMB/VPBLENDMW, VPBLENDMD/VPBLENDMQ, VBLENDMPD/VBLENDMPS",
        mask=True,
        selects=True,
        chooses=True,
        **facts,
        doc=example(name, text, "[0, 1], [5, 6], [11, 12]", shown),
    )
    def blend_by_mask(mask: Value, a: Value, b: Value) -> Value:
        return mask.where(b, a)


for _end, _type in (("d", "u32"), ("ps", "f32")):
    _blend_by_mask(_end, _type)
for _end, _type in (("b", "u8"), ("w", "u16"), ("q", "u64"), ("pd", "f64")):  # which are as fast
    _blend_by_mask(_end, _type, timed_as="vblendmps" if _end == "pd" else "vpblendmd")
for _end, _bits in (("b", 8), ("w", 16), ("d", 32), ("q", 64), ("ps", 32), ("pd", 64)):
    _expand = "The first lanes, in order, where the mask has a bit; zeros elsewhere (merging: what was there)."
    _by_mask("expand", _end, _bits, _expanded, _expand, [0, 5, 0, 6], "load")
    _compress = "Lanes whose bit the mask has, side by side; zeros behind them (merging: what was there)."
    _by_mask("compress", _end, _bits, _compressed, _compress, [6, 8, 0, 0], "store")
