"""Blocks that share a scale: the rules against exact arithmetic and gfloat, programs against the formulas, edges."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import simdnn
from isa_models.formats import fmt
from simdnn import numerics
from simdnn.kernels.common.scaled import ELEMENTS, RULES, Scaled, scaled
from simdnn.kernels.x86.code import unit_of
from simdnn.kernels.x86.scaled import scaled_quantization
from simdnn.primitives.attr import TwoLevelQuant
from tests.effort import one_in

Array = npt.NDArray[Any]
FLOATS = [name for name in ELEMENTS if name != "s8"]


def blocks(shape: tuple[int, ...], seed: int = 0) -> Array:
    """Values over many powers of two; among the rows zeros of both signs, ends of f32, NaN, infinity."""
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(shape) * np.exp2(rng.integers(-12, 12, shape))).astype(np.float32)
    rows = x.reshape(-1, shape[-1])
    with np.errstate(all="ignore"):
        for i, factor in enumerate((0, 2.0**-125, 2.0**110, -0.0, 2.0**-140)):
            rows[i] *= np.float32(factor)
    rows[5] = np.float32(2.0**-149) * rng.integers(0, 5, shape[-1])
    rows[6] = np.float32(2.0**-127) * rng.choice([1, 0.5, 0.75, 1.5], shape[-1])
    rows[7, 3], rows[8, 5] = np.nan, np.inf
    return x


def codes(q: simdnn.Blocks) -> tuple[list[int], list[int]]:
    return q.output.view(np.uint8).ravel().tolist(), q.scales.view(np.uint8).ravel().tolist()


def exponent(amax: float, dtype: str, rule: str) -> int:
    """A rule by its words, with exact numbers."""
    form = fmt(dtype)
    greatest = Fraction(form.greatest) if form.is_float else Fraction(127, 64)
    top, mantissa = int(np.floor(np.log2(float(greatest)))), form.mantissa_bits if form.is_float else 6
    if amax == 0:
        return -127

    def floor(value: Fraction) -> int:
        power = value.numerator.bit_length() - value.denominator.bit_length() - 1
        while Fraction(2) ** (power + 1) <= value:
            power += 1
        return power

    value = Fraction(amax)
    if rule == "floor":
        found = floor(value) - top
    elif rule == "ceil":
        found = floor(value) + (value != Fraction(2) ** floor(value)) - top
    elif rule == "even":  # rounded to so many bits behind the leading one, halves up
        unit = Fraction(2) ** (max(floor(value), -126) - mantissa)
        found = floor(((value / unit + Fraction(1, 2)) // 1 or Fraction(1, 2**60)) * unit) - top
    else:
        value = Fraction(float(np.float32(amax) / np.float32(float(greatest))))
        found = floor(value) + (value != Fraction(2) ** floor(value)) if value else -127
    return max(-127, min(127, found))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", ELEMENTS)
def test_rules_by_exact_numbers(dtype: str, rule: str) -> None:
    form = fmt(dtype)
    rng = np.random.default_rng(1)
    x = blocks((40, 32))[:, :].copy()
    x[9:, 0] = np.float32(form.greatest) * np.exp2(rng.integers(-3, 3, 31)).astype(np.float32)
    x[20:, 0] = np.nextafter(x[20:, 0], np.float32(0))
    q = simdnn.quantize_mx(x, dtype, rule=rule)
    stored = q.scales.view(np.uint8)
    for row, scale in zip(x, stored[:, 0].tolist(), strict=True):
        amax = np.abs(row).max()
        assert scale == (exponent(float(amax), dtype, rule) + 127 if np.isfinite(amax) else 255), (amax, rule)
    finite = stored[:, 0] < 255
    wide = x[finite].astype(np.float64) * np.exp2(127.0 - stored[finite].astype(np.float64))
    if form.is_float:
        wanted = np.clip(wide, -form.greatest, form.greatest).astype(form.dtype)
    else:
        wanted = np.clip(np.rint(wide * 64), -127, 127).astype(np.int8)
    assert (q.output[finite].view(np.uint8) == wanted.view(np.uint8)).all()
    assert not q.output[~finite].view(np.uint8).any() and np.isnan(q.dequantize()[~finite]).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_floor_is_that_of_gfloat(dtype: str) -> None:
    gfloat, known = pytest.importorskip("gfloat"), pytest.importorskip("gfloat.formats")
    info = getattr(known, f"format_info_ocp_{dtype.partition('_')[2]}")
    x = (np.random.default_rng(0).standard_normal((20, 32)) * 3).astype(np.float32)
    q = simdnn.quantize_mx(x, dtype)
    for row, scale, values in zip(x, q.scales.astype(float)[:, 0], q.output.astype(float), strict=True):
        wanted = gfloat.compute_scale_amax(info.emax, row.astype(np.float64))
        assert scale == wanted
        assert values.tolist() == [gfloat.round_float(info, float(v) / wanted, sat=True) for v in row]


@one_in(3, "rule")
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", ELEMENTS)
def test_programs_yield_what_the_formulas_say(dtype: str, rule: str) -> None:
    """Each rule and type on registers of both widths, along the last axis and along another."""
    for isa, shape, axis, group in (
        ("avx512_core", (12, 64), -1, 32),
        ("avx2", (12, 24), 1, 12),
        ("avx512_core", (3, 8, 17), 1, 4),
        ("avx2", (64, 20), 0, 32),
    ):
        x = blocks(shape)
        plain = simdnn.quantize_mx(x, dtype, rule=rule, axis=axis, group=group)
        found = simdnn.quantize_mx(x, dtype, rule=rule, axis=axis, group=group, machine="spr", isa=isa)
        assert codes(plain) == codes(found), (shape, axis)


@one_in(3, "dtype")
@pytest.mark.parametrize("isa", ["avx512_core", "avx2"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("tensor_scale", [None, 1.0, 0.01])
def test_programs_of_nvfp4(tensor_scale: float | None, dtype: Any, isa: str) -> None:
    for shape, axis in (((12, 64), -1), ((64, 20), 0), ((3, 32, 17), 1)):
        x = np.nan_to_num(blocks(shape) * np.float32(1e-5), posinf=1, neginf=1).clip(-1e4, 1e4).astype(dtype)
        plain = simdnn.quantize_nvfp4(x, tensor_scale=tensor_scale, axis=axis)
        found = simdnn.quantize_nvfp4(x, tensor_scale=tensor_scale, axis=axis, machine="zen4", isa=isa)
        assert codes(plain) == codes(found) and plain.tensor_scale == found.tensor_scale
        assert found.cycles > 0 and found.isa == isa


@pytest.mark.parametrize("value", [0, 1e-42, 1e-37, 3e38])
def test_ends_of_nvfp4(value: float) -> None:
    x = np.full((2, 32), value, np.float32)
    x[0, 3] *= -1
    plain, found = simdnn.quantize_nvfp4(x), simdnn.quantize_nvfp4(x, machine="spr")
    assert codes(plain) == codes(found) and plain.tensor_scale == found.tensor_scale
    assert np.abs(plain.dequantize() - x).max() <= value * 1e-6 or value < 1e-30  # a subnormal tensor scale, or 0


def test_nvfp4_by_its_definition() -> None:
    x = np.random.default_rng(2).standard_normal((4, 64)).astype(np.float32)
    q = simdnn.quantize_nvfp4(x)
    t = np.float32(np.abs(x).max() / np.float32(2688))
    amax = np.abs(x).reshape(4, 4, 16).max(axis=2)
    scales = ((amax / np.float32(6)).astype(np.float32) / t).astype(ml_dtypes.float8_e4m3fn)
    step = np.repeat((scales.astype(np.float32) * t).astype(np.float32), 16, 1)
    wanted = np.clip(x / step, -6, 6).astype(ml_dtypes.float4_e2m1fn)
    assert q.tensor_scale == t and (q.scales == scales).all() and (q.output == wanted).all()
    assert (q.dequantize() == wanted.astype(np.float32) * step).all()


def test_shapes_and_attributes() -> None:
    w = simdnn.quantize_mx(np.ones((64, 6), np.float32), "f4_e2m1", axis=0)
    assert (w.output.dtype, w.scales.dtype) == (ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e8m0fnu)
    assert w.output.shape == (64, 6) and w.scales.shape == (2, 6) and w.tensor_scale is None
    scale = w.attr("wei", fpmath="bf16").scales["wei"]
    assert (scale.mask, scale.groups, scale.dtype) == (3, (32, 1), "e8m0") and w.attr("wei", fpmath="bf16").fpmath
    s = simdnn.quantize_nvfp4(np.ones((6, 64), np.float32))
    attr = s.attr("src", scales={"wei": 2.0})
    assert attr.scales["src"].groups == (1, 16) and attr.scales["src"].dtype == "f8_e4m3"
    assert attr.scales["wei"].values == np.float32(2) * s.tensor_scale
    i = simdnn.quantize_mx(np.full((2, 32), -1.5, np.float32), "s8")
    assert i.output.dtype == np.int8 and i.output[0, 0] == -96 and (i.dequantize() == -1.5).all()
    assert repr(i) == "Blocks(s8 2x32, 32 along axis 1)"


@one_in(2)
@pytest.mark.parametrize("machine", ["zen4", "spr", "hsw"])
@pytest.mark.parametrize("first", ["src", "wei"])
def test_blocks_of_both_sides_keep_both_tensor_scales(machine: str, first: str) -> None:
    """Whichever side's attribute is made first; mxint8's 2**-6 goes the same way."""
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((5, 96), np.float32), rng.standard_normal((96, 7), np.float32) * np.float32(100)
    for sides in (
        (simdnn.quantize_nvfp4(x), simdnn.quantize_nvfp4(w, axis=0)),
        (simdnn.quantize_mx(x, "f8_e4m3"), simdnn.quantize_nvfp4(w, axis=0)),
        (simdnn.quantize_mx(x, "s8"), simdnn.quantize_mx(w, "s8", axis=0)),
        (simdnn.quantize_mx(x, "f8_e5m2"), simdnn.quantize_mx(w, "s8", axis=0)),
    ):
        named = dict(zip(("src", "wei"), sides, strict=True))
        other = "wei" if first == "src" else "src"
        floats = any(fmt(side.dtype).is_float for side in sides)
        attr = named[other].attr(
            other, scales=named[first].attr(first).scales, apply_to_int=floats, exact_int8=None if floats else True
        )
        r = simdnn.matmul(sides[0].output, sides[1].output, machine=machine, attr=attr)
        wanted = sides[0].dequantize().astype(float) @ sides[1].dequantize()
        assert np.abs(r.output - wanted).max() < 1e-5 * np.abs(wanted).max(), (sides, r.implementation)


def test_two_levels_wherever_scales_go() -> None:
    """A tensor's scale is part of the scales where no kernel multiplies sums by it: integers, GPUs, a library."""
    x, w = np.eye(4, 32, dtype=np.float32), np.arange(64).reshape(32, 2).astype(np.int8)
    scale = TwoLevelQuant(np.full((2, 2), 3, np.float32), groups=(16, 1), tensor=0.5)
    for machine, dispatch in (("zen4", "fastest"), ("spr", "onednn"), ("b580", "fastest"), ("v100", "fastest")):
        attr = simdnn.Attr(scales={"wei": scale}, fpmath="bf16" if machine != "v100" else "f16", apply_to_int=True)
        r = simdnn.matmul(x, w, machine=machine, attr=attr, dispatch=dispatch)
        assert (r.output == w[:4] * 1.5).all(), machine
    for value in (-1, np.inf, "two"):
        with pytest.raises(simdnn.InvalidArgument, match="tensor="):
            TwoLevelQuant.of(scale, value)
    with pytest.raises(simdnn.InvalidArgument, match="of a source or of weights"):
        simdnn.Attr(scales={"dst": TwoLevelQuant(1.0, tensor=2.0)})


def test_a_tensor_with_one_scale() -> None:
    """The program against the formula: greatest magnitude / greatest value, elements rounded once, saturating."""
    rng = np.random.default_rng(6)
    for isa, src, dst in product(("avx2", "avx512_core"), ("f32", "bf16"), ("f8_e4m3", "f8_e5m2", "f4_e2m1")):
        for shape, factor in (((3, 37), 1), ((1, 7), 1e-30), ((5, 64), 1e30), ((2, 20), 0), ((2, 20), 1e-44)):
            x = (rng.standard_normal(shape) * factor).astype(fmt(src).dtype)
            p = Scaled(shape[0], 1, shape[1], 1, src, dst, "tensor", find=True)
            made, _, t = scaled(p, x.astype(np.float32))
            found = numerics.run(scaled_quantization(p, unit_of(isa)), {"src": x.reshape(-1)})
            assert found["tensor_scale"][0] == t == np.float32(np.abs(x.astype(np.float32)).max()) / np.float32(p.most)
            assert (found["codes"].reshape(shape) == made).all()


def test_what_rules_trade() -> None:
    """Floor clips, ceil wastes a bit: a block whose greatest is just below a power of two, and one just above."""
    x = np.array([[7.9] * 32, [4.1] * 32], np.float32)
    values = {rule: simdnn.quantize_mx(x, "f4_e2m1", rule=rule).dequantize()[:, 0].tolist() for rule in RULES}
    assert values == {"floor": [6, 4], "ceil": [8, 4], "even": [8, 4], "rceil": [8, 4]}


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda x: simdnn.quantize_mx(x, "f8_e4m3"), "blocks of 32 do not divide the 40 elements of axis 1; group=20"),
        (lambda x: simdnn.quantize_mx(x, "f8_e4m3", axis=2), "axis=2"),
        (lambda x: simdnn.quantize_mx(x, "f8_e4m3", group=0), "group=0"),
        (lambda x: simdnn.quantize_mx(x, "bf16"), "Allowed: f8_e4m3"),
        (lambda x: simdnn.quantize_mx(x, "s8", rule="round"), "rule 'round'"),
        (lambda x: simdnn.quantize_mx(x.astype(float), "s8"), "float64"),
        (lambda x: simdnn.quantize_mx(x, "s8", group=8, machine="b580"), "no kernel here for GPUs"),
        (lambda x: simdnn.quantize_mx(x, "s8", group=8, isa="avx2"), "without a machine"),
        (lambda x: simdnn.quantize_mx(x, "s8", group=8).cycles, "no machine was named"),
        (lambda x: simdnn.quantize_mx(x, "s8", group=8).attr("wei"), "axis=0"),
        (lambda x: simdnn.quantize_nvfp4(x), "NVFP4 has no other, or fill it up with zeros to 48"),
        (lambda x: simdnn.quantize_nvfp4(x[:, :32] * np.float32(np.inf)), "NaN or infinity"),
        (lambda x: simdnn.quantize_nvfp4(x[:, :32], tensor_scale=0), "tensor_scale=0"),
    ],
)
def test_refused(call: Any, told: str) -> None:
    with pytest.raises(simdnn.SimdnnError) as error:
        call(np.ones((3, 40), np.float32))
    assert told in str(error.value)


@pytest.mark.parametrize("rule", [*RULES, "nvfp4"])
def test_a_block_is_explained(rule: str) -> None:
    """Its scale and elements are those stored; losses are those that exact numbers have."""
    x = np.random.default_rng(4).standard_normal((64, 3), np.float32)
    q = simdnn.quantize_nvfp4(x, axis=0) if rule == "nvfp4" else simdnn.quantize_mx(x, "f4_e2m1", rule=rule, axis=0)
    for at in np.ndindex(*q.scales.shape):
        found = q.explain(*at)
        first = at[0] * q.group
        source, kept = x[first : first + q.group, at[1]], q.dequantize()[first : first + q.group, at[1]]
        assert found.value.tolist() == kept.tolist() and found.exact.tolist() == source.tolist()
        rows = found.steps.set_index("instruction")
        scale = np.float32(q.scales[at])
        assert rows.loc["scale" if rule == "nvfp4" else rule, "value"] == scale
        assert rows.loc["amax", "value"] == np.abs(source).max()
        step = Fraction(float(scale if q.tensor_scale is None else np.float32(scale * q.tensor_scale)))
        elements = rows.loc["f4_e2m1"]
        for value, stored, note in zip(source, kept, elements["note"], strict=True):
            beyond = abs(Fraction(float(value))) > 6 * step
            assert note == ("saturates" if beyond else "" if value == stored else "rounds")
        assert simdnn.quantize_mx(x, "s8", axis=0).explain(0, at[1]).value.size == 32


def test_blocks_without_a_finite_scale_are_explained() -> None:
    """Zeros, NaN, ends of the range; what is no block is refused."""
    x = np.zeros((4, 32), np.float32)
    x[1, 3], x[2, 4], x[3, 5] = np.nan, 1e-44, 3e38
    q = simdnn.quantize_mx(x, "f4_e2m1", rule="rceil")
    texts = [str(q.explain(i, 0)) for i in range(4)]
    assert "a block of zeros has 2**-127" in texts[0] and "NaN or infinity" in texts[1]
    assert "2**-127" in texts[2] and "the end of e8m0" in texts[2] and "3e+38" in texts[3]
    assert [str(simdnn.quantize_nvfp4(x[[0]]).explain(0, 1)).count("0 -> 0")] == [16]
    for at in ((0,), (4, 0), (0, 1), (-1, 0), (0, 0.5)):
        with pytest.raises(simdnn.SimdnnError):
            q.explain(*at)  # type: ignore[arg-type]
