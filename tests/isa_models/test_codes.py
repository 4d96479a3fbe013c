"""Codes of narrow floats: every one, and roundings to them, against ml_dtypes, gfloat and exact arithmetic."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from isa_models import SimdnnError
from isa_models.errors import InvalidArgument
from isa_models.formats import FORMATS, Format, decode, encode, fmt, name_of, register
from isa_models.readings.arrays import ArrayValue
from isa_models.rounding import MODES, codes_of, round_to

Array = npt.NDArray[Any]
NARROW = [name for name, form in FORMATS.items() if form.is_float and form.bits <= 8]
SIGNED = [name for name in NARROW if fmt(name).signed]


def codes(name: str) -> Array:
    return np.arange(1 << fmt(name).bits, dtype=np.uint8)


def near(name: str) -> Array:
    """Values of the format, the middles between them, the f32 numbers around both, and what no format holds."""
    values = decode(codes(name), name)
    values = np.unique(values[np.isfinite(values)]).astype(np.float64)
    middles = (values[1:] + values[:-1]) / 2
    top = values[-1] + (values[-1] - values[-2]) / 2
    with np.errstate(over="ignore"):
        points = np.concatenate([values, middles, [top, -top, values[-1] * 2, 0.0, -0.0]]).astype(np.float32)
        around = [points, np.nextafter(points, np.float32(np.inf)), np.nextafter(points, np.float32(-np.inf))]
    return np.concatenate([*around, np.random.default_rng(3).standard_normal(5000, np.float32) * np.float32(top / 3)])


def same(met: Array, expected: Array) -> bool:
    """Equal bits, or NaN on both sides."""
    return bool(((met.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(met) & np.isnan(expected))).all())


@pytest.mark.parametrize("name", NARROW)
def test_every_code_is_the_value_that_ml_dtypes_has(name: str) -> None:
    expected = codes(name).view(fmt(name).dtype).astype(np.float32)
    assert same(decode(codes(name), name), expected)
    assert decode(codes(name).reshape(-1, 4), name).shape == (len(expected) // 4, 4)


@pytest.mark.parametrize("name", ["f8_e4m3", "f8_e5m2", "f6_e2m3", "f6_e3m2", "f4_e2m1", "e8m0"])
def test_codes_and_roundings_are_those_of_gfloat(name: str) -> None:
    gfloat = pytest.importorskip("gfloat")
    formats = pytest.importorskip("gfloat.formats")
    known = {
        "f8_e4m3": formats.format_info_ocp_e4m3,
        "f8_e5m2": formats.format_info_ocp_e5m2,
        "f6_e2m3": formats.format_info_ocp_e2m3,
        "f6_e3m2": formats.format_info_ocp_e3m2,
        "f4_e2m1": formats.format_info_ocp_e2m1,
        "e8m0": formats.format_info_ocp_e8m0,
    }[name]
    modes = {
        "even": gfloat.RoundMode.TiesToEven,
        "zero": gfloat.RoundMode.TowardZero,
        "up": gfloat.RoundMode.TowardPositive,
        "down": gfloat.RoundMode.TowardNegative,
        "away": gfloat.RoundMode.TiesToAway,
    }
    expected = np.array([gfloat.decode_float(known, int(i)).fval for i in codes(name)], np.float32)
    assert same(decode(codes(name), name), expected)
    values = near(name)
    values = values[np.isfinite(values) & (values > 0 if name == "e8m0" else True)]
    if name == "e8m0":
        modes = {mode: modes[mode] for mode in ("zero", "up")}
        values = values[(values >= 2.0**-127) & (values <= 2.0**127)]
    for mode, rounding in modes.items():
        wanted = gfloat.round_ndarray(known, values.astype(np.float64), rounding, sat=True).astype(np.float32)
        assert (decode(encode(values, name, rounding=mode), name) == wanted).all(), mode


@pytest.mark.parametrize("name", SIGNED)
def test_nearest_even_is_that_of_ml_dtypes(name: str) -> None:
    """Its overflow is IEEE's; formats without infinity and NaN saturate, and no zero of the fnuz types has a sign."""
    values = near(name)
    expected = values.astype(fmt(name).dtype).view(np.uint8)
    met = encode(values, name, overflow="ieee")
    nan = np.isnan(decode(met, name)) & np.isnan(decode(expected, name))
    assert ((met == expected) | nan).all()


@pytest.mark.parametrize("name", SIGNED)
@pytest.mark.parametrize("source", ["f16", "bf16"])
def test_all_numbers_of_16_bits(name: str, source: str) -> None:
    values = np.arange(1 << 16, dtype=np.uint16).view(fmt(source).dtype)
    values = values[np.isfinite(values.astype(np.float32))]
    with np.errstate(all="ignore"):
        expected = decode(values.astype(np.float32).astype(fmt(name).dtype).view(np.uint8), name)
    met = decode(encode(values, name, overflow="ieee"), name)
    assert same(met, expected)


@pytest.mark.parametrize("name", NARROW)
def test_beyond_the_greatest(name: str) -> None:
    form = fmt(name)
    big = np.array([form.greatest * 1.9, np.inf] if form.greatest < 1e30 else [3e38, np.inf], np.float32)
    assert decode(encode(big, name), name).tolist() == [form.greatest] * 2
    found = decode(encode(big, name, overflow="ieee"), name)
    if form.infinity:
        assert np.isinf(found).all()
    else:
        assert np.isnan(found).all() if form.nan else (found == form.greatest).all()
    nan = decode(encode(np.array([np.nan], np.float32), name), name)
    assert np.isnan(nan[0]) if form.nan else abs(nan[0]) == form.greatest


def test_powers_of_two() -> None:
    """Cut as oneDNN does, rounded as ml_dtypes does, and up to the least one that is no less."""
    tiny = np.array([0, 2.0**-149, 2.0**-127, 1.4 * 2.0**-127, 1.5 * 2.0**-127, 2.0**-126, 3 * 2.0**-127], np.float32)
    assert encode(tiny, "e8m0", rounding="zero").tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert encode(tiny, "e8m0", rounding="up").tolist() == [0, 0, 0, 1, 1, 1, 2]
    rng = np.random.default_rng(0)
    values = rng.integers(1 << 23, 0x7F000000, 20000, np.uint32).view(np.float32)
    assert (encode(values, "e8m0", rounding="zero") == values.view(np.uint32) >> 23).all()
    assert (encode(values, "e8m0", rounding="away") == values.astype(ml_dtypes.float8_e8m0fnu).view(np.uint8)).all()
    above = np.exp2(np.ceil(np.log2(values.astype(np.float64))))
    assert (decode(encode(values, "e8m0", rounding="up"), "e8m0") == above).all()
    assert encode(np.array([np.inf, np.nan], np.float32), "e8m0", overflow="ieee").tolist() == [255, 255]


def test_ties() -> None:
    halves = np.array([0.25, -0.75, 1.25, 1.75, 2.5, 5.0], np.float32)
    found = {mode: decode(encode(halves, "f4_e2m1", rounding=mode), "f4_e2m1").tolist() for mode in MODES}
    assert found == {
        "even": [0, -1, 1, 2, 2, 4],
        "away": [0.5, -1, 1.5, 2, 3, 6],
        "down": [0, -1, 1, 1.5, 2, 4],
        "up": [0.5, -0.5, 1.5, 2, 3, 6],
        "zero": [0, -0.5, 1, 1.5, 2, 4],
    }


def test_one_rounding_from_f64_and_lanes_of_half_a_byte() -> None:
    value = ArrayValue(np.array([1.25 + 2.0**-40, -6.5]), "f64")
    assert codes_of(value, fmt("f4_e2m1")).array.tolist() == [3, 15]  # type: ignore[attr-defined]
    lanes = round_to(value, "f4_e2m1")
    assert lanes.dtype == "f4_e2m1" and lanes.view("u8").array.tolist() == [0xF3]  # type: ignore[attr-defined]
    assert lanes.view("u8").view("f4_e2m1").array.astype(float).tolist() == [1.5, -6]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: encode(np.ones(2), "f8_e4m3"), "values of float64; f32, f16 or bf16"),
        (lambda: encode(np.ones(2, np.float32), "bf16"), "bf16 has no codes of at most a byte; allowed: f4_e2m1"),
        (lambda: encode(np.ones(2, np.float32), "f8_e4m4"), "f8_e4m3"),
        (lambda: encode(-np.ones(2, np.float32), "e8m0"), "-1 among the values; e8m0 has no negative ones"),
        (lambda: encode(np.ones(2, np.float32), "f8_e4m3", rounding="nearest"), "rounding mode 'nearest'"),
        (lambda: encode(np.ones(2, np.float32), "f8_e4m3", overflow="wrap"), "overflow 'wrap'"),
        (lambda: decode(np.array([16], np.uint8), "f4_e2m1"), "code 16; f4_e2m1 has 4 bits: 0 to 15"),
        (lambda: decode(np.array([1]), "f4_e2m1"), "codes of int64; uint8 is needed"),
        (lambda: decode(np.array([1], np.uint8), "s8"), "s8 has no codes"),
    ],
)
def test_what_is_refused(call: Any, told: str) -> None:
    with pytest.raises(SimdnnError) as error:
        call()
    assert told in str(error.value)


def test_a_format_without_a_type_that_stores_it_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"f6_e4m1: storage '' .*storage='uint8', container='u8'"):
        register(Format("f6_e4m1", 6, True, 4, 1))
    assert "f6_e4m1" not in FORMATS


@pytest.mark.parametrize(
    ("form", "told"),
    [
        (None, "a Format is needed"),
        (Format("f32", 8, True, 4, 3, "uint8", container="u8"), "simdnn has it itself"),
        (Format("a b", 8, True, 4, 3, "uint8", container="u8"), "letters, digits and _"),
        (Format("x", 1, True, storage="uint8", container="u8", values=np.ones(2)), "a tuple of numbers"),  # type: ignore[arg-type]
        (Format("x", 8, True, 4, 3, "object"), "holds no numbers"),
        (Format("x", -1, True, 4, 3, "uint8", container="u8"), "bits=-1, exponent_bits=4"),
        (Format("x", 8, True, 5, 3, "uint8", container="u8"), "exponent_bits=5, mantissa_bits=3"),
        (Format("x", 8, True, 0, 7, "uint8", container="u8"), "exponent_bits=0, mantissa_bits=7"),
        (Format("x", 16, True, 5, 10, "uint8", container="u8"), "16 bits; storage 'uint8' has 8"),
        (Format("x", 8, True, 4, 3, "uint8"), "container='u8' works"),
        (Format("x", 8, True, 4, 3, "uint8", container="f32"), "container='u8' works"),
        (Format("x", 8, True, 4, 3, "float8_e3m4", container="u8"), "container='' works"),
    ],
)
def test_a_format_that_cannot_be_is_refused(form: Any, told: str) -> None:
    """And it changes none that is there."""
    before, types = dict(FORMATS), [name_of(one.dtype) for one in FORMATS.values()]
    with pytest.raises(InvalidArgument) as error:
        register(form)
    assert told in str(error.value)
    assert dict(FORMATS) == before and [name_of(one.dtype) for one in FORMATS.values()] == types
