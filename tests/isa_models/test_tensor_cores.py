"""PTX mma and wgmma against a scalar account of the fused sum in exact rational numbers, and what is refused."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from isa_models import InvalidArgument, Unimplemented, UnknownName, instruction
from isa_models.nvidia.mma import UNITS, Unit

TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "f8_e4m3": ml_dtypes.float8_e4m3fn,
         "f8_e5m2": ml_dtypes.float8_e5m2}  # fmt: skip
LEAST = {"f16": -14, "bf16": -126, "tf32": -126, "f32": -126, "f8_e4m3": -6, "f8_e5m2": -14}
FORMS = [
    (name, arch, dtype, k, result)
    for name, archs in UNITS.items()
    for arch, units in archs.items()
    for dtype, unit in units.items()
    for k in unit.ks
    for result in unit.results
]


def taken_apart(number: float, least: int) -> tuple[Fraction, int]:
    """(significand, exponent): 1 <= |significand| < 2, or less at the least exponent."""
    if number == 0:
        return Fraction(0), -126
    exponent = max(math.frexp(number)[1] - 1, least)
    return Fraction(number) / Fraction(2) ** exponent, exponent


def truncated(value: Fraction, digits: int) -> Fraction:
    return Fraction(math.trunc(value * 2**digits), 2**digits)


def one(acc: float, a: list[float], b: list[float], dtype: str, result: str, unit: Unit) -> float:
    """One group of one output element."""
    wide = acc + sum(x * y for x, y in zip(a, b, strict=True))
    if not math.isfinite(wide):
        return wide
    terms = [taken_apart(acc, LEAST[result])]
    for x, y in zip(a, b, strict=True):
        (sx, ex), (sy, ey) = taken_apart(x, LEAST[dtype]), taken_apart(y, LEAST[dtype])
        terms.append((sx * sy, ex + ey))
    top = max(exponent for _, exponent in terms)
    total = sum(truncated(s * Fraction(2) ** (e - top), unit.fraction_bits) for s, e in terms) * Fraction(2) ** top
    significand, exponent = taken_apart(float(total), LEAST[result])  # at most 33 digits: exact
    if result == "f16":
        rounded = Fraction(round(significand * 1024), 1024) * Fraction(2) ** exponent
        return float(rounded) if abs(rounded) < 65520 else math.copysign(math.inf, rounded)
    return float(truncated(significand, unit.kept_bits) * Fraction(2) ** exponent)


def expected(acc: np.ndarray, a: np.ndarray, b: np.ndarray, dtype: str, result: str, unit: Unit) -> np.ndarray:
    (m, k), n = a.shape, b.shape[1]
    out = acc.astype(np.float64)
    step = min(unit.group or k, k)
    for i in range(m):
        for j in range(n):
            for first in range(0, k, step):
                part = slice(first, first + step)
                out[i, j] = one(out[i, j], a[i, part].tolist(), b[part, j].tolist(), dtype, result, unit)
    return out


def operands(rng: np.random.Generator, shape: tuple[int, int], dtype: str, spread: float) -> np.ndarray:
    values = rng.standard_normal(shape) * 2.0 ** rng.uniform(-spread, spread, shape)
    values[rng.random(shape) < 0.1] = 0
    array = values.astype(np.float32).astype(TYPES[dtype])
    if dtype == "tf32":
        array = (array.view(np.uint32) & 0xFFFFE000).view(np.float32)
    return np.where(np.isfinite(array.astype(np.float32)), array, array.dtype.type(1))


@pytest.mark.parametrize(("name", "arch", "dtype", "k", "result"), FORMS)
def test_against_exact_numbers(name: str, arch: str, dtype: str, k: int, result: str) -> None:
    rng = np.random.default_rng(k)
    unit = UNITS[name][arch][dtype]
    for spread in (1, 6, 12):
        a, b = operands(rng, (4, k), dtype, spread), operands(rng, (k, 3), dtype, spread)
        acc = (rng.standard_normal((4, 3)) * 2.0 ** rng.uniform(-spread, spread, (4, 3))).astype(np.float32)
        acc = acc.astype(np.float16 if result == "f16" else np.float32)
        got = instruction(name)(acc, a, b, arch=arch, a_dtype=dtype)
        wanted = expected(acc, a.astype(np.float64), b.astype(np.float64), dtype, result, unit).astype(got.dtype)
        np.testing.assert_array_equal(got, wanted)


def test_subnormals_count() -> None:
    least = np.float16(2.0**-24)
    a, b = np.full((1, 4), least), np.full((4, 1), least)
    assert instruction("mma")(None, a, b, arch="volta")[0, 0] == 4 * 2.0**-48


def test_the_fraction_bits_are_seen() -> None:
    """One and three addends of half a unit in f32's last place: each is cut off by itself on Volta, kept on Hopper."""
    acc = np.ones((1, 1), np.float32)
    tiny = 2.0**-12
    a4, b4 = np.full((1, 4), tiny, np.float16), np.full((4, 1), tiny, np.float16)
    assert instruction("mma")(acc, a4, b4, arch="volta")[0, 0] == 1
    a8, b8 = np.zeros((1, 8), np.float16), np.zeros((8, 1), np.float16)
    a8[0, :4], b8[:4, 0] = tiny, tiny
    assert instruction("mma")(acc, a8, b8, arch="hopper")[0, 0] == 1 + 2.0**-22


def test_nan_and_infinity() -> None:
    a, b = np.ones((1, 8), np.float16), np.ones((8, 3), np.float16)
    b[0] = [np.nan, np.inf, -np.inf]
    wide = instruction("mma")(None, a, b, arch="turing")
    assert wide.view(np.uint32)[0, 0] == 0x7FFFFFFF and wide[0, 1:].tolist() == [np.inf, -np.inf]
    narrow = instruction("mma")(None, a, b, arch="turing", dst_dtype="f16")
    assert narrow.view(np.uint16)[0, 0] == 0x7FFF and narrow[0, 1:].tolist() == [np.inf, -np.inf]
    b[1] = [0, -np.inf, np.inf]
    assert np.isnan(instruction("mma")(None, a, b, arch="turing")).all()


def test_leading_axes() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((5, 2, 8)).astype(np.float16), rng.standard_normal((5, 8, 3)).astype(np.float16)
    whole = instruction("mma")(None, a, b, arch="ampere")
    for i in range(5):
        np.testing.assert_array_equal(whole[i], instruction("mma")(None, a[i], b[i], arch="ampere"))


def test_refusals() -> None:
    mma, a, b = instruction("mma"), np.ones((1, 8), np.float16), np.ones((8, 1), np.float16)
    with pytest.raises(UnknownName, match="ampere"):
        mma(None, a, b, arch="amper")
    with pytest.raises(InvalidArgument, match="K = 8 of f16; allowed: 4"):
        mma(None, a, b, arch="volta")
    with pytest.raises(Unimplemented, match="mma on volta: bf16 operands; it has f16"):
        mma(None, a.astype(ml_dtypes.bfloat16), b.astype(ml_dtypes.bfloat16), arch="volta")
    with pytest.raises(Unimplemented, match="accumulator of f16 with bf16"):
        mma(np.ones((1, 1), np.float16), a.astype(ml_dtypes.bfloat16), b.astype(ml_dtypes.bfloat16), arch="ampere")
    with pytest.raises(InvalidArgument, match="operands of f16 and f32"):
        mma(None, a, b.astype(np.float32), arch="ampere")
    with pytest.raises(InvalidArgument, match="do not fit"):
        mma(None, a, a, arch="ampere")
    with pytest.raises(InvalidArgument, match="not known: architecture"):
        mma(None, a, b, architecture="ampere")
    with pytest.raises(UnknownName, match=r"mma\.hopper"):
        instruction("mma.hopper")
