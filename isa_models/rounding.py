"""Rounding to a narrower float format, once for every format and rounding mode, in integer operations alone."""

from __future__ import annotations

from isa_models.algebra import Value
from isa_models.errors import unknown_name
from isa_models.formats import Format, fmt

#: nearest with ties to even, towards minus or plus infinity, towards zero
MODES = ("even", "down", "up", "zero")
_NAMED = {"even": "nearest even", "down": "down", "up": "up", "zero": "towards zero"}


def round_to(value: Value, name: str, mode: str = "even") -> Value:
    """f32 or f64 lanes rounded once to format `name`, in lanes of that format (tf32: of f32).

    Subnormals are kept on both sides. What rounds beyond the greatest finite value becomes infinity (f8_e4m3: NaN),
    or that value where `mode` points inwards. A NaN keeps its sign and the high bits of its payload and turns quiet.

    >>> import numpy as np
    >>> from isa_models.readings.arrays import ArrayValue
    >>> x = ArrayValue(np.array([1.00390625, 65520.0, 448.0], "f4"), "f32")
    >>> round_to(x, "bf16").array.tolist(), round_to(x, "f16", "zero").array.tolist()
    ([1.0, 65536.0, 448.0], [1.00390625, 65504.0, 448.0])
    """
    if mode not in MODES:
        raise unknown_name("rounding mode", mode, MODES)
    source, target = value.format, fmt(name)
    word = f"u{source.bits}"
    cut = source.mantissa_bits - target.mantissa_bits
    bits = value.view(word)
    sign = bits >> (source.bits - 1)
    magnitude = bits & ((1 << (source.bits - 1)) - 1)
    if target.exponent_bits == source.exponent_bits:
        kept = _shift_rounded(magnitude, magnitude.literal(cut), sign, mode)
    else:
        kept = _rescaled(magnitude, sign, source, target, cut, mode)
    infinity = ((1 << target.exponent_bits) - 1) << target.mantissa_bits
    if target.infinity:
        greatest, beyond, quiet = infinity - 1, infinity, 1 << (target.mantissa_bits - 1)
    else:
        greatest = infinity + (1 << target.mantissa_bits) - 2
        beyond, quiet = greatest + 1, (1 << target.mantissa_bits) - 1
    limit = kept.literal(beyond)
    if mode == "zero":
        limit = kept.literal(greatest)
    elif mode in ("down", "up"):
        limit = sign.eq(int(mode == "up")).where(kept.literal(greatest), limit)
    kept = (kept > greatest).where(limit, kept)
    top = ((1 << source.exponent_bits) - 1) << source.mantissa_bits
    kept = magnitude.eq(top).where(kept.literal(beyond), kept)
    payload = (magnitude >> cut) & ((1 << target.mantissa_bits) - 1)
    kept = (magnitude > top).where(payload | (infinity | quiet), kept)
    stored = target.exponent_bits + target.mantissa_bits + 1
    result = kept | (sign << (stored - 1))
    rounded = (result << (target.bits - stored)).to(f"u{target.bits}").view(target.lanes)
    return rounded.step(f"round to {name} ({_NAMED[mode]})", lambda: [value])


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
    towards = sign.eq(int(mode == "down"))
    return towards.where((number + ((one << shift) - 1)) >> shift, kept)


def widen_f16(value: Value) -> Value:
    """f16 lanes as f32, exactly; a NaN keeps its payload (and stays signalling where it was).

    >>> import numpy as np
    >>> from isa_models.readings.arrays import ArrayValue
    >>> widen_f16(ArrayValue(np.array([-1.5, 2.0**-24], "f2"), "f16")).array.tolist()
    [-1.5, 5.960464477539063e-08]
    """
    bits = value.view("u16").to("u32")
    magnitude = bits & 0x7FFF
    subnormal = (magnitude.to("s32").to("f32") * 2.0**-24).view("u32")
    special = (magnitude >= 0x7C00).where(magnitude.literal(112 << 23), magnitude.literal(0))
    normal = (magnitude << 13) + (112 << 23) + special
    wide = ((magnitude < 0x0400).where(subnormal, normal) | ((bits >> 15) << 31)).view("f32")
    return wide.step("widen to f32", lambda: [value])
