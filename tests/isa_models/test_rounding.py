"""Rounding against NumPy and ml_dtypes, exhaustively where the input has 16 bits, and against exact arithmetic."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from isa_models import SimdnnError, formats, instruction
from isa_models.formats import Format, fmt
from isa_models.readings.arrays import ArrayValue
from isa_models.rounding import MODES, round_to, widen_f16

Array = npt.NDArray[Any]
FORMATS = ("f16", "bf16", "f8_e4m3", "f8_e5m2")
ALL16 = np.arange(1 << 16, dtype=np.uint16)


def exact(values: Array) -> Array:
    with np.errstate(invalid="ignore"):  # NaN
        return values.astype(np.float64)


def rounded(values: Array, name: str, mode: str = "even") -> Array:
    source = "f64" if values.dtype == np.float64 else "f32"
    return round_to(ArrayValue(values, source), name, mode).array


def halfway(name: str) -> Array:
    """Every value of a narrow format, the points halfway to the next one, and the f32 numbers around those."""
    form = fmt(name)
    word = np.dtype(f"u{form.bits // 8}")
    values = np.arange(1 << form.bits, dtype=np.uint64).astype(word).view(form.dtype).astype(np.float32)
    values = np.unique(values[np.isfinite(values)])
    middles = (values[1:].astype(np.float64) + values[:-1].astype(np.float64)) / 2
    top = values[-1] + (values[-1] - values[-2]) / 2  # the tie between the greatest value and the overflow
    points = np.concatenate([values, middles.astype(np.float32), np.float32([top, -top])])
    both = [points, np.nextafter(points, np.float32(np.inf)), np.nextafter(points, np.float32(-np.inf))]
    return np.concatenate(both).astype(np.float32)


def random_floats(count: int) -> Array:
    return np.random.default_rng(7).integers(0, 1 << 32, count, np.uint64).astype(np.uint32).view(np.float32)


def same(met: Array, expected: Array) -> Any:
    """Equal bits, or NaN on both sides (which NaN is another test's matter)."""
    word = f"u{met.itemsize}"
    return (met.view(word) == expected.view(word)) | (
        np.isnan(met.astype(np.float32)) & np.isnan(expected.astype(np.float32))
    )


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kind", ["halfway", "random"])
def test_nearest_even_against_ml_dtypes(name: str, kind: str) -> None:
    values = halfway(name) if kind == "halfway" else random_floats(1 << 20)
    with np.errstate(all="ignore"):
        expected = values.astype(fmt(name).dtype)
    assert same(rounded(values, name), expected).all()


@pytest.mark.parametrize("name", FORMATS)
def test_round_trip_of_every_value(name: str) -> None:
    """Each of the format's values, widened, comes back, in every mode."""
    form = fmt(name)
    word = np.dtype(f"u{form.bits // 8}")
    values = np.arange(1 << form.bits, dtype=np.uint64).astype(word).view(form.dtype)
    wide = values.astype(np.float32)
    for mode in MODES:
        assert same(rounded(wide, name, mode), values).all()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("mode", MODES)
def test_directed_modes_against_exact_comparison(name: str, mode: str) -> None:
    """The result is the neighbour on the right side: nothing representable lies between it and the value."""
    form = fmt(name)
    word = np.dtype(f"u{form.bits // 8}")
    grid = exact(np.arange(1 << form.bits, dtype=np.uint64).astype(word).view(form.dtype))
    grid = np.unique(grid[np.isfinite(grid)])
    values = np.concatenate([halfway(name), random_floats(1 << 16)])
    values = exact(values)
    values = values[np.abs(values) <= grid[-1]]
    met = rounded(values.astype(np.float32), name, mode).astype(np.float64)
    below = grid[np.searchsorted(grid, values, "right") - 1]
    above = grid[np.searchsorted(grid, values, "left")]
    if mode in ("even", "away"):
        assert (np.abs(met - values) == np.minimum(values - below, above - values)).all()
    else:
        towards_zero = np.where(values > 0, below, above)
        assert (met == {"down": below, "up": above, "zero": towards_zero}[mode]).all()
    assert (np.signbit(met) == np.signbit(values)).all()


def test_beyond_the_greatest_value() -> None:
    big = np.array([1e38, -1e38, np.inf, -np.inf], np.float32)
    top = 65504.0
    assert rounded(big, "f16", "even").tolist() == [np.inf, -np.inf, np.inf, -np.inf]
    assert rounded(big, "f16", "zero").tolist() == [top, -top, np.inf, -np.inf]
    assert rounded(big, "f16", "down").tolist() == [top, -np.inf, np.inf, -np.inf]
    assert rounded(big, "f16", "up").tolist() == [np.inf, -top, np.inf, -np.inf]
    assert np.isnan(rounded(big, "f8_e4m3").astype(np.float32)).all()
    assert rounded(big[:2], "f8_e4m3", "zero").astype(np.float32).tolist() == [448.0, -448.0]


def test_tf32_keeps_ten_digits() -> None:
    values = random_floats(1 << 18)
    values = values[np.isfinite(values)]
    met = rounded(values, "tf32")
    assert (met.view(np.uint32) & 0x1FFF == 0).all()
    normal = np.abs(values) >= 2.0**-126
    scaled, exponent = np.frexp(values[normal].astype(np.float64))
    with np.errstate(over="ignore"):
        expected = np.ldexp(np.rint(scaled * 2**11), exponent - 11).astype(np.float32)
    assert (met[normal] == expected).all()


def test_nan_payload_and_sign() -> None:
    patterns = np.array([0x7F800001, 0xFF800001, 0x7FC12345, 0xFFBFFFFF], np.uint32).view(np.float32)
    assert [hex(v) for v in rounded(patterns, "bf16").view(np.uint16)] == ["0x7fc0", "0xffc0", "0x7fc1", "0xffff"]
    assert [hex(v) for v in rounded(patterns, "f16").view(np.uint16)] == ["0x7e00", "0xfe00", "0x7e09", "0xffff"]


def test_from_f64_is_rounded_once() -> None:
    """Just above a tie of f16: by way of f32 it would fall on the tie, and to even."""
    value = np.array([1 + 2.0**-11 + 2.0**-40])
    assert rounded(value, "f16").tolist() == [1 + 2.0**-10]
    assert rounded(value.astype(np.float32), "f16").tolist() == [1.0]


def test_widening_f16_exhaustively() -> None:
    halves = ALL16.view(np.float16)
    met = widen_f16(ArrayValue(halves, "f16")).array
    expected = halves.astype(np.float32)
    finite = ~np.isnan(expected)
    assert (met.view(np.uint32)[finite] == expected.view(np.uint32)[finite]).all()
    assert (met.view(np.uint32)[~finite] & 0x7FFFFF == (ALL16[~finite].astype(np.uint32) & 0x3FF) << 13).all()
    quiet = instruction("vcvtph2ps")(halves)
    assert (quiet.view(np.uint32)[~finite] == (met.view(np.uint32)[~finite] | 0x400000)).all()


def test_f16_there_and_back_exhaustively() -> None:
    halves = ALL16.view(np.float16)
    wide = instruction("vcvtph2ps")(halves)
    for imm in range(8):
        back = instruction("vcvtps2ph")(wide, imm=imm).view(np.uint16)
        quiet = np.where(np.isnan(halves), ALL16 | 0x200, ALL16)
        assert (back == quiet).all()


def test_bf16_there_and_back_exhaustively() -> None:
    """Denormals come back as zeros, as vcvtneps2bf16 has it."""
    wide = (ALL16.astype(np.uint32) << 16).view(np.float32)
    back = instruction("vcvtneps2bf16")(wide).view(np.uint16)
    denormal = (ALL16 & 0x7F80) == 0
    expected = np.where(np.isnan(wide), ALL16 | 0x40, np.where(denormal, ALL16 & 0x8000, ALL16))
    assert (back == expected).all()
    assert (wide == ALL16.view(ml_dtypes.bfloat16).astype(np.float32))[~np.isnan(wide)].all()


def test_f16_fma_against_fractions() -> None:
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 1 << 16, (3, 4000), np.uint16)
    bits[:, ::2] = (bits[:, ::2] & 0x83FF) | (rng.integers(0, 31, (3, 2000), np.uint16) << 10)
    bits[:, 1::4] &= 0x87FF  # denormal and nearly
    acc, a, b = bits.view(np.float16)
    met = instruction("vfmadd231ph")(acc, a, b)
    for i in range(bits.shape[1]):
        if not all(np.isfinite([acc[i], a[i], b[i]])):
            continue
        exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(acc[i]))
        if exact:
            assert float(met[i]) == _nearest_f16(exact), (i, acc[i], a[i], b[i])


@pytest.mark.parametrize("signs", ["fmadd", "fmsub", "fnmadd", "fnmsub", "fmaddsub", "fmsubadd"])
def test_f16_products_in_all_orders(signs: str) -> None:
    rng = np.random.default_rng(6)
    x, y, z = (rng.integers(0, 1 << 16, (3, 400), np.uint16) & 0xBFFF).view(np.float16)
    for order, operands in (("132", (x, z, y)), ("213", (y, x, z)), ("231", (z, x, y))):
        met = instruction(f"v{signs}{order}ph")(*operands)
        for i in range(400):
            product = Fraction(float(x[i])) * Fraction(float(y[i])) * (-1 if "fn" in signs else 1)
            minus = {"fmaddsub": i % 2 == 0, "fmsubadd": i % 2 == 1}.get(signs, signs.endswith("sub"))
            exact = product - Fraction(float(z[i])) if minus else product + Fraction(float(z[i]))
            if exact:
                assert float(met[i]) == _nearest_f16(exact), (order, i)


@pytest.mark.parametrize("name", ["vaddph", "vsubph", "vmulph", "vdivph", "vsqrtph"])
def test_f16_arithmetic_is_numpys(name: str) -> None:
    numpys = {"vaddph": np.add, "vsubph": np.subtract, "vmulph": np.multiply, "vdivph": np.divide, "vsqrtph": np.sqrt}
    rng = np.random.default_rng(8)
    a = ALL16.view(np.float16)
    operands = (a,) if name == "vsqrtph" else (a, rng.permutation(ALL16).view(np.float16))
    with np.errstate(all="ignore"):
        expected = numpys[name](*operands)
    met = instruction(name)(*operands)
    assert (np.isnan(met) == np.isnan(expected)).all()
    assert (met.view(np.uint16) == expected.view(np.uint16))[~np.isnan(expected)].all()


def _nearest_f16(exact: Fraction) -> float:
    """Correct rounding of an exact number to f16, ties to even, from the definition."""
    size = abs(exact)
    exponent = max(size.numerator.bit_length() - size.denominator.bit_length(), -15)
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while size < Fraction(2) ** exponent and exponent > -14:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, -14) - 10)
    value = round(size / unit) * unit  # Fraction rounds ties to even
    result = float("inf") if value >= 65520 else float(value)
    return result if exact > 0 else -result


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(SimdnnError, match="rounding mode 'nearest'"):
        rounded(np.ones(1, np.float32), "bf16", "nearest")
    with pytest.raises(SimdnnError, match="f6_e2m3 has no lanes of its own"):
        rounded(np.ones(1, np.float32), "f6_e2m3", "even")


@pytest.mark.parametrize(
    "form", [form for form in formats.FORMATS.values() if form.is_float], ids=lambda form: form.name
)
def test_a_formats_properties_are_its_array_types(form: Format) -> None:
    """The record says of infinities and of where values lie as NumPy and ml_dtypes do."""
    assert bool(np.isinf(np.float32(np.inf).astype(form.dtype).astype(np.float32))) == form.infinity
    assert formats.FORMATS[form.lanes].dtype == form.dtype and formats.FORMATS[form.lanes].bits == form.bits
    assert form.container or form.bits == form.signed + form.exponent_bits + form.mantissa_bits
    if form.bits <= 16:
        words = exact(np.arange(1 << form.bits).astype(f"u{form.dtype.itemsize}").view(form.dtype))
        zeros = words == 0
        assert form.greatest == words[np.isfinite(words)].max() and np.isnan(words).any() == form.nan
        assert form.zero == zeros.any() and form.signed == (words < 0).any()
        assert not zeros.any() or form.negative_zero == (np.signbit(words) & zeros).any()


def test_rounding_asks_the_record_and_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A format of other properties rounds by them: f8_e5m2 without infinities has three more finite values."""
    finite = replace(formats.FORMATS["f8_e5m2"], infinity=False)
    monkeypatch.setitem(formats.FORMATS, "f8_e5m2", finite)
    wide = np.array([57344.0, 65536.0, 81920.0, 98304.0, 1e6], np.float32)
    found = round_to(ArrayValue(wide, "f32"), "f8_e5m2", "zero").view("u8").array  # type: ignore[attr-defined]
    assert found.tolist() == [0x7B, 0x7C, 0x7D, 0x7E, 0x7E]
