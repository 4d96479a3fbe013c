"""Weights in number formats that a user registers: what kernels make of their codes, and what they say of others."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

import simdnn
from isa_models import InvalidArgument, Unimplemented, formats
from isa_models.formats import Format
from isa_models.readings.arrays import Array
from simdnn.plot import plot_format

#: QLoRA's 4-bit NormalFloat (Dettmers et al., 2023, appendix E), in f32
_NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
_POWERS = tuple(sign * 2.0**i for sign in (1, -1) for i in range(-8, 8))  # whose code 0 is no zero


def _in_bytes(name: str, bits: int, *fields: int, values: tuple[float, ...] = (), nan: bool = False) -> Format:
    exponent, mantissa = fields or (0, 0)
    kept = {"storage": "uint8", "container": "u8", "infinity": False}
    return Format(name, bits, True, exponent, mantissa, **kept, nan=nan, values=values)  # type: ignore[arg-type]


MINE = {
    form.name: form
    for form in (
        _in_bytes("f6_e4m1", 6, 4, 1),
        _in_bytes("f7_e3m3", 7, 3, 3, nan=True),
        _in_bytes("f5_e2m2", 5, 2, 2),
        _in_bytes("f4_e3m0", 4, 3, 0),
        _in_bytes("f6_e5m0", 6, 5, 0),
        _in_bytes("f8_e6m1", 8, 6, 1),
        Format("f8_e3m4", 8, True, 3, 4, "float8_e3m4"),
        Format("f8_e4m3_ieee", 8, True, 4, 3, "float8_e4m3"),
        _in_bytes("nf4", 4, values=tuple(float(np.float32(v)) for v in _NF4)),
        _in_bytes("powers", 5, values=_POWERS),
        _in_bytes("bytes", 8, values=tuple(float(i) for i in range(256))),
        _in_bytes("thirds", 5, values=tuple(float(np.float32(i / 3)) for i in range(32))),
    )
}


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    formats.register(*MINE.values())
    yield
    for form in MINE.values():
        del formats.FORMATS[form.name], formats._BY_DTYPE[form.element]


def _value(form: Format, code: int) -> float:
    """What a code stands for, by IEEE's pattern."""
    if form.values:
        return form.values[code]
    e, m = form.exponent_bits, form.mantissa_bits
    sign, exponent, mantissa = code >> (e + m), code >> m & ((1 << e) - 1), code & ((1 << m) - 1)
    if form.infinity and exponent == (1 << e) - 1:
        return float("nan") if mantissa else (-1) ** sign * float("inf")
    if form.nan and not form.infinity and code & ((1 << e + m) - 1) == (1 << e + m) - 1:
        return float("nan")
    return float((-1) ** sign * 2.0 ** (max(exponent, 1) - form.bias) * (mantissa / (1 << m) + (exponent > 0)))


def _codes(name: str, codes: Array) -> Array:
    return codes.astype(np.uint8).view(MINE[name].element)


@pytest.mark.parametrize("engine", ["compiled", "reference"])
@pytest.mark.parametrize("name", [n for n in MINE if n not in ("f8_e6m1", "bytes", "thirds")])
def test_a_product_multiplies_what_every_code_stands_for(name: str, engine: str) -> None:
    form = MINE[name]
    codes = np.arange(1 << form.bits).reshape(1, -1)
    expected = np.array([[_value(form, code) for code in codes[0]]], np.float32)
    narrow = [] if form.values or name == "f6_e5m0" else [("hsw", 17)]
    for machine, rows in [("zen4", 1), ("zen4", 17), *narrow]:  # products fused with decoding, and by panels
        src = np.arange(1, rows + 1, dtype=np.float32).reshape(-1, 1)
        r = simdnn.matmul(src, _codes(name, codes), machine=machine, engine=engine)
        np.testing.assert_array_equal(r.output, src * expected)


def test_scales_of_groups_and_sources_of_16_bits() -> None:
    rng = np.random.default_rng(3)
    codes, src = rng.integers(0, 64, (64, 40)), rng.integers(-2, 3, (20, 64))
    scales = 2.0 ** rng.integers(-2, 3, (2, 40)).astype(np.float32)
    given = simdnn.Attr(scales={"wei": simdnn.Quant(scales, groups=(32, 1))})
    values = np.array([_value(MINE["f6_e4m1"], code) for code in range(64)])[codes] * np.repeat(scales, 32, 0)
    for dtype, compute in ((ml_dtypes.bfloat16, "bf16"), (np.float16, "f32")):
        r = simdnn.matmul(src.astype(dtype), _codes("f6_e4m1", codes), machine="spr", attr=given)
        assert r.compute_dtype == compute
        np.testing.assert_array_equal(r.output, (src @ values).astype(np.float32))


def test_values_that_a_source_type_has_not_are_multiplied_in_f32_unless_a_mode_allows_other() -> None:
    codes, src = np.full((64, 40), 1), np.ones((64, 64), ml_dtypes.bfloat16)
    r = simdnn.matmul(src, _codes("nf4", codes), machine="spr")
    assert r.compute_dtype == "f32"
    rounded = simdnn.matmul(src, _codes("nf4", codes), machine="spr", attr=simdnn.Attr(fpmath="bf16"))
    assert rounded.compute_dtype == "bf16"
    np.testing.assert_array_equal(rounded.output, 64 * np.float32(ml_dtypes.bfloat16(_NF4[1])))


@pytest.mark.parametrize("dtype", ["nf4", "s4"])
def test_the_same_weights_of_4_bits_in_each_layout_one_after_the_other(dtype: str) -> None:
    rng = np.random.default_rng(5)
    codes = rng.integers(0, 8, (64, 48))
    weights = _codes("nf4", codes) if dtype == "nf4" else codes.astype(ml_dtypes.int4)
    src, attr = np.ones((5, 64), np.float32), simdnn.Attr(apply_to_int=dtype == "s4")
    calls = [simdnn.matmul(src, weights, machine="zen4", wei_tag=tag, attr=attr) for tag in ("any", "ba", "ab") * 2]
    assert all((r.output == calls[0].output).all() for r in calls)


def test_cycles_are_of_the_format_itself_and_a_table_costs_what_decoding_it_takes() -> None:
    def cycles(wei: str) -> float:
        return simdnn.estimate("matmul", m=1, n=1024, k=1024, dt=f"f32:{wei}:f32", machine="zen4").cycles

    assert cycles("nf4") == cycles("f4_e2m1")  # a table of sixteen, whatever it holds
    assert cycles("f6_e4m1") < cycles("powers")  # which cuts off what it finds for a lower half


def test_an_explanation_has_the_values() -> None:
    r = simdnn.matmul(np.full((1, 2), 3, np.float32), _codes("f6_e4m1", np.array([[3], [5]])), machine="zen4")
    assert "src[0,0] * 0.0234375" in str(r.explain(0, 0))
    assert "true error 0;" in repr(r.error_bound)


@pytest.mark.parametrize(
    ("wei", "where", "told"),
    [
        ("bytes", {"machine": "zen4"}, "bytes, which has no fields of .* by a table of 64 codes: up to 6 bits, not 8"),
        ("f8_e6m1", {"machine": "zen4"}, "exponent of at most 5 bits"),
        ("thirds", {"machine": "zen4"}, "by a table of bf16, and 0.333333 is none"),
        ("powers", {"machine": "hsw"}, "wdec:avx512_core, wdec_fused:avx512_core: isa"),
        ("nf4", {"machine": "spr", "dispatch": "onednn"}, "oneDNN has no such type; dispatch='fastest' takes them"),
        ("nf4", {"machine": "a100"}, "f4_e2m1 weights, not f32:nf4"),
    ],
)
def test_what_is_refused(wei: str, where: dict[str, str], told: str) -> None:
    weights = _codes(wei, np.ones((8, 16)))
    with pytest.raises(Unimplemented, match=told):
        simdnn.matmul(np.ones((2, 8), np.float32), weights, **where)  # type: ignore[arg-type]


def test_sources_and_convolutions_take_none() -> None:
    codes = _codes("f6_e4m1", np.ones((8, 8)))
    with pytest.raises(InvalidArgument, match="src of .*f6_e4m1"):
        simdnn.matmul(codes, codes, machine="zen4")
    with pytest.raises(Unimplemented, match="f6_e4m1 source"):
        simdnn.estimate("matmul", m=8, n=8, k=8, dt="f6_e4m1", machine="zen4")
    with pytest.raises(Unimplemented, match="f32 source with f6_e4m1 weights"):
        simdnn.convolution(np.ones((1, 8, 5, 5), np.float32), codes.reshape(8, 8, 1, 1), machine="zen4")


def test_the_nearest_of_a_formats_values() -> None:
    given = np.array([-7, 0.04, 0.12, 0.9, 1e30, np.nan], np.float32)
    assert formats.encode(given, "nf4").tolist() == [0, 8, 8, 15, 15, 15]
    between = np.array([0.375, -0.75, 6.0], np.float32)  # of two values each
    assert formats.encode(between, "powers").tolist() == [6, 24, 10]
    with pytest.raises(InvalidArgument, match="takes the nearest: 'even'"):
        formats.encode(given, "nf4", rounding="up")
    with pytest.raises(InvalidArgument, match="no fields of bits"):
        plot_format("nf4")


def test_codes_with_more_bits_than_their_format() -> None:
    """Refused at each call, behind one that was right, too; another primitive calls the type by its name."""
    src, right = np.ones((2, 8), np.float32), np.full((8, 4), 3, np.uint8)
    element = MINE["f6_e4m1"].element
    assert (simdnn.matmul(src, right.view(element), machine="zen4").output == 0.1875).all()
    right[5, 2] = 64
    with pytest.raises(InvalidArgument, match="code 64; f6_e4m1 has 6 bits: 0 to 63"):
        simdnn.matmul(src, right.view(element), machine="zen4")
    with pytest.raises(InvalidArgument, match="array of f6_e4m1; allowed"):
        simdnn.quantize_mx(right.view(element), "f4_e2m1")


@pytest.mark.parametrize(
    ("form", "told"),
    [
        (_in_bytes("few", 4, values=(1.0, 2.0)), "few: 2 values of 4 bits"),
        (_in_bytes("fine", 1, values=(0.1, 2.0)), "fine: value 0.1 is no finite f32"),
        (_in_bytes("far", 1, values=(1e39, 2.0)), "far: value 1e\\+39 is no finite f32"),
    ],
)
def test_values_that_are_no_format(form: Format, told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        formats.register(form)
    assert form.name not in formats.FORMATS
