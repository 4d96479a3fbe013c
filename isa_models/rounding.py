"""Rounding to a narrower float format, once for every format and rounding mode, in integer operations alone."""

from __future__ import annotations

from isa_models.algebra import Value
from isa_models.errors import InvalidArgument, unknown_name
from isa_models.formats import FORMATS, Format, fmt
from isa_models.roundoff import roundoff

#: nearest with ties to even, towards minus or plus infinity, towards zero; nearest with ties away from zero
MODES = ("even", "down", "up", "zero", "away")
_NAMED = {"even": "nearest even", "down": "down", "up": "up", "zero": "towards zero", "away": "nearest, ties away"}


def round_to(value: Value, name: str, mode: str = "even") -> Value:
    """f32 or f64 lanes rounded once to format `name`, in lanes of that format (tf32: of f32).

    Subnormals are kept on both sides. What rounds beyond the greatest finite value becomes infinity (in a format
    without: NaN, or the greatest value), or that value where `mode` points inwards. A NaN keeps its sign and the high
    bits of its payload and turns quiet.

    >>> import numpy as np
    >>> from isa_models.readings.arrays import ArrayValue
    >>> x = ArrayValue(np.array([1.00390625, 65520.0, 448.0], "f4"), "f32")
    >>> round_to(x, "bf16").array.tolist(), round_to(x, "f16", "zero").array.tolist()
    ([1.0, 65536.0, 448.0], [1.00390625, 65504.0, 448.0])
    """
    target = fmt(name)
    if f"u{target.bits}" not in FORMATS:
        raise InvalidArgument(f"{name} has no lanes of its own; isa_models.formats.encode gives its codes, a byte each")
    rounded = value.converted(name) if mode == "even" else None
    if rounded is None:
        rounded = codes_of(value, target, mode).to(f"u{target.bits}").view(target.lanes)
    directed = mode not in ("even", "away")
    return rounded.step(f"round to {name} ({_NAMED[mode]})", lambda: [value], [roundoff(name, directed)])


def codes_of(value: Value, target: Format, mode: str = "even", *, saturate: bool = False) -> Value:
    """The codes of f32 or f64 lanes rounded once to a float format, as unsigned integers of the source's width.

    `saturate`: all beyond the greatest finite value, infinity too, becomes that value. A format without NaN has that
    value for NaN, too, and one without zero its least power of two for zero.
    """
    if mode not in MODES:
        raise unknown_name("rounding mode", mode, MODES)
    source = value.format
    cut = source.mantissa_bits - target.mantissa_bits
    bits = value.view(f"u{source.bits}")
    sign = bits >> (source.bits - 1)
    magnitude = bits & ((1 << (source.bits - 1)) - 1)
    if not target.zero:
        aligned = _aligned(magnitude, source, target)
        kept = _shift_rounded(aligned, magnitude.literal(cut), sign, mode)
    elif target.exponent_bits == source.exponent_bits and target.bias == source.bias:
        kept = _shift_rounded(magnitude, magnitude.literal(cut), sign, mode)
    else:
        kept = _rescaled(magnitude, sign, source, target, cut, mode)
    greatest = target.greatest_code
    finite = not (target.infinity or target.nan)  # neither: there is nothing beyond
    beyond = greatest if saturate or finite else greatest + 1
    limit = kept.literal(greatest if mode == "zero" else beyond)
    if mode in ("down", "up"):
        limit = sign.eq(int(mode == "up")).where(kept.literal(greatest), limit)
    kept = (kept > greatest).where(limit, kept)
    top = ((1 << source.exponent_bits) - 1) << source.mantissa_bits
    kept = magnitude.eq(top).where(kept.literal(beyond), kept)
    kept = (magnitude > top).where(_nan(magnitude, cut, target), kept)
    if not target.signed:
        return kept
    stored = target.exponent_bits + target.mantissa_bits + 1
    negative = sign << (stored - 1)
    if not target.negative_zero:
        negative = kept.eq(0).where(kept, negative)
    result = kept | negative
    return result << (target.bits - stored)


def _nan(magnitude: Value, cut: int, target: Format) -> Value:
    """The code of a NaN without its sign; the greatest value's where the format has none."""
    if not target.infinity:
        return magnitude.literal(target.greatest_code + int(target.nan))
    payload = (magnitude >> cut) & ((1 << target.mantissa_bits) - 1)
    return payload | (target.greatest_code + 1 | 1 << (target.mantissa_bits - 1))


def _aligned(magnitude: Value, source: Format, target: Format) -> Value:
    """Magnitudes as multiples of the target's exponent field, whose lowest is a power of two and no zero."""
    rebias = (source.bias - target.bias) << source.mantissa_bits
    if rebias:
        return magnitude.maximum(rebias) - rebias
    # the source's own subnormals, whose upper half lies between the two least powers
    half, one = 1 << (source.mantissa_bits - 1), 1 << source.mantissa_bits
    return (magnitude < one).where((magnitude.maximum(half) << 1) - one, magnitude)


def _rescaled(magnitude: Value, sign: Value, source: Format, target: Format, cut: int, mode: str) -> Value:
    """The target's exponent and mantissa fields for finite `magnitude`, the exponent running on beyond its field."""
    implicit = 1 << source.mantissa_bits
    exponent = (magnitude >> source.mantissa_bits).maximum(1)
    mantissa = magnitude & (implicit - 1)
    significand = (magnitude < implicit).where(mantissa, mantissa | implicit)
    rebias = source.bias - target.bias
    least = exponent.literal(rebias + 1)  # the source's exponent of the target's least normal number
    normal = exponent.maximum(rebias + 1)
    shift = (least.maximum(exponent) - exponent + cut).minimum(source.mantissa_bits + 2)
    kept = _shift_rounded(significand, shift, sign, mode)
    return kept + ((normal - least) << target.mantissa_bits)


def _shift_rounded(number: Value, shift: Value, sign: Value, mode: str) -> Value:
    """number >> shift, rounded by what falls off (`shift` at least 1)."""
    kept = number >> shift
    if mode == "zero":
        return kept
    one = number.literal(1)
    if mode == "even":
        return (number + ((one << (shift - 1)) - 1) + (kept & 1)) >> shift
    if mode == "away":
        return (number + (one << (shift - 1))) >> shift
    towards = sign.eq(int(mode == "down"))
    return towards.where((number + ((one << shift) - 1)) >> shift, kept)


def widen_f16(value: Value) -> Value:
    """f16 lanes as f32, exactly; a NaN keeps its payload (and stays signalling where it was).

    >>> import numpy as np
    >>> from isa_models.readings.arrays import ArrayValue
    >>> widen_f16(ArrayValue(np.array([-1.5, 2.0**-24], "f2"), "f16")).array.tolist()
    [-1.5, 5.960464477539063e-08]
    """
    wide = value.converted("f32")
    if wide is None:
        wide = widen_codes(value.view("u16").to("u32"), fmt("f16"))
    return wide.step("widen to f32", lambda: [value])


def widen_codes(codes: Value, form: Format) -> Value:
    """The f32 values of a float format's codes in u32 lanes, exactly. NaN keeps its payload; without one it is quiet.

    >>> import numpy as np
    >>> from isa_models.readings.arrays import ArrayValue
    >>> widen_codes(ArrayValue(np.array([0x3C, 0xFB], np.uint32), "u32"), fmt("f8_e5m2")).array.tolist()
    [1.0, -57344.0]
    """
    wide = fmt("f32")
    one, rebias = 1 << form.mantissa_bits, wide.bias - form.bias
    magnitude = codes & ((1 << form.exponent_bits + form.mantissa_bits) - 1)
    normal = (magnitude << (wide.mantissa_bits - form.mantissa_bits)) + (rebias << wide.mantissa_bits)
    if form.infinity:
        beyond = (1 << wide.exponent_bits) - (1 << form.exponent_bits) - rebias
        special = (magnitude > form.greatest_code).where(
            magnitude.literal(beyond << wide.mantissa_bits), magnitude.literal(0)
        )
        normal = normal + special
    elif form.nan and form.negative_zero:
        normal = (magnitude > form.greatest_code).where(magnitude.literal(0x7FC00000), normal)
    if not form.zero:  # the least power of two is a subnormal of f32
        return magnitude.eq(0).where(magnitude.literal(1 << (wide.mantissa_bits - 1)), normal).view("f32")
    subnormal = (magnitude.to("s32").to("f32") * 2.0 ** (1 - form.bias - form.mantissa_bits)).view("u32")
    sign = (codes >> (form.exponent_bits + form.mantissa_bits)) << 31
    found = (magnitude < one).where(subnormal, normal) | sign
    if not form.negative_zero:
        found = codes.eq(1 << (form.bits - 1)).where(codes.literal(0x7FC00000), found)
    return found.view("f32")
