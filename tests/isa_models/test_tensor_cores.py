"""PTX mma and wgmma: results recorded on eight GPUs, a scalar account in exact rational numbers, and what is refused.

The recorded results are of F. A. Khattak and M. Mikaitis, "Accurate Models of NVIDIA Tensor Cores", ACM TACO 23(3)
2026, doi:10.1145/3830409 (tests/vectors/tensor_cores: manifest.json, and LICENCE, BSD-2-Clause).
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from isa_models import InvalidArgument, Unimplemented, UnknownName, instruction
from isa_models.instruction import GPU_REGISTRY
from isa_models.nvidia.mma import UNITS, TensorUnit
from isa_models.readings.arrays import ArrayValue
from isa_models.readings.intervals import IntervalValue, Watch
from isa_models.readings.traced import operand
from simdnn.calibration.hostcheck import adversarial, compare
from tests.effort import one_in

VECTORS = Path(__file__).parents[1] / "vectors" / "tensor_cores"
RECORDED = [
    (recorded, result)
    for recorded in json.loads((VECTORS / "manifest.json").read_text())["files"]
    for result in recorded["results"]
]

TYPES = {
    "f16": np.float16,
    "f32": np.float32,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "f8_e4m3": ml_dtypes.float8_e4m3fn,
    "f8_e5m2": ml_dtypes.float8_e5m2,
}
LEAST = {"f16": -14, "bf16": -126, "tf32": -126, "f32": -126, "f8_e4m3": -6, "f8_e5m2": -14}
FORMS = [
    (name, arch, dtype, k, result)
    for name, archs in UNITS.items()
    for arch, units in archs.items()
    for dtype, unit in units.items()
    for k in unit.ks
    for result in unit.results
]


@one_in(2)
@pytest.mark.parametrize(
    ("recorded", "result"), RECORDED, ids=[f"{r['file'].removesuffix('.npz')}-{x['dst']}" for r, x in RECORDED]
)
def test_recorded(recorded: dict[str, Any], result: dict[str, Any]) -> None:
    """Each recorded bit, by the call with matrices and by the form of the full name."""
    with np.load(VECTORS / recorded["file"]) as arrays:
        count, k = recorded["samples"], result["k"]
        a, b = np.zeros((count, k), arrays["a"].dtype), np.zeros((count, k), arrays["b"].dtype)
        a[:, : recorded["recorded_k"]], b[:, : recorded["recorded_k"]] = arrays["a"], arrays["b"]
        d = arrays[result["d"]]
        acc = (arrays[result["c"]] if result["c"] else np.zeros_like(d)).view(TYPES[result["dst"]])
    kind = TYPES[recorded["operands"]]
    called = instruction(result["instruction"])(
        acc[:, None, None],
        a[:, None, :].view(kind),
        b[:, :, None].view(kind),
        arch=result["arch"],
        a_dtype=recorded["operands"],
    )
    np.testing.assert_array_equal(called.reshape(-1).view(d.dtype), d)
    form = instruction(result["form"])
    assert form.name == result["form"] and form.result == result["dst"]
    count, (acc_lanes, a_lanes, b_lanes) = 20, (form.operand_lanes(o, 0) for o in form.operands)
    sizes = ((acc_lanes, acc), (a_lanes, a), (b_lanes, b))
    whole = [np.zeros((count, lanes), given.dtype) for lanes, given in sizes]
    columns = b_lanes // k
    whole[0][:, 0], whole[1][:, :k], whole[2][:, ::columns] = acc[:count], a[:count], b[:count]
    found = form(whole[0], whole[1].view(kind), whole[2].view(kind))[:, 0]
    np.testing.assert_array_equal(found.view(d.dtype), d[:count])


def taken_apart(number: float, least: int) -> tuple[Fraction, int]:
    """(significand, exponent): 1 <= |significand| < 2, or less at the least exponent."""
    if number == 0:
        return Fraction(0), -126
    exponent = max(math.frexp(number)[1] - 1, least)
    return Fraction(number) / Fraction(2) ** exponent, exponent


def truncated(value: Fraction, digits: int) -> Fraction:
    return Fraction(math.trunc(value * 2**digits), 2**digits)


def one(acc: float, a: list[float], b: list[float], dtype: str, result: str, unit: TensorUnit) -> float:
    """One group of one output element."""
    wide = acc + sum(x * y for x, y in zip(a, b, strict=True))
    if not math.isfinite(wide):
        return wide
    terms = [taken_apart(acc, LEAST[result])]
    for x, y in zip(a, b, strict=True):
        (sx, ex), (sy, ey) = taken_apart(x, LEAST[dtype]), taken_apart(y, LEAST[dtype])
        terms.append((sx * sy, ex + ey if sx * sy else -126))
    top = max(exponent for _, exponent in terms)
    total = sum(truncated(s * Fraction(2) ** (e - top), unit.fraction_bits) for s, e in terms) * Fraction(2) ** top
    significand, exponent = taken_apart(float(total), LEAST[result])  # at most 33 digits: exact
    if result == "f16":
        rounded = Fraction(round(significand * 1024), 1024) * Fraction(2) ** exponent
        return float(rounded) if abs(rounded) < 65520 else math.copysign(math.inf, rounded)
    return float(truncated(significand, unit.kept_bits) * Fraction(2) ** exponent)


def expected(acc: np.ndarray, a: np.ndarray, b: np.ndarray, dtype: str, result: str, unit: TensorUnit) -> np.ndarray:
    (m, k), n = a.shape, b.shape[1]
    out = acc.astype(np.float64)
    step = min(unit.group or k, k)
    passes = [list(range(first, first + step)) for first in range(0, k, step)]
    if unit.late:
        passes = [[i for i in range(k) if i % 4 < 2], [i for i in range(k) if i % 4 >= 2]]
        out[:] = 0
    for i in range(m):
        for j in range(n):
            for part in passes:
                out[i, j] = one(out[i, j], a[i, part].tolist(), b[part, j].tolist(), dtype, result, unit)
    return out.astype(acc.dtype) + acc if unit.late else out


def operands(rng: np.random.Generator, shape: tuple[int, int], dtype: str, spread: float) -> np.ndarray:
    values = rng.standard_normal(shape) * 2.0 ** rng.uniform(-spread, spread, shape)
    values[rng.random(shape) < 0.1] = 0
    array = values.astype(np.float32).astype(TYPES[dtype])
    if dtype == "tf32":
        array = (array.view(np.uint32) & 0xFFFFE000).view(np.float32)
    return np.where(np.isfinite(array.astype(np.float32)), array, array.dtype.type(1))


@one_in(3, "dtype")
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


READ = [
    "mma.hopper.m2n1k32.f32.f8_e4m3",
    "mma.blackwell.m2n1k32.f16.f8_e5m2",
    "mma.ada.m2n1k32.f32.f8_e5m2",
    "wgmma.hopper.m1n2k32.f32.f8_e4m3",
    "mma.ampere.m2n2k8.f32.tf32",
    "mma.volta.m2n2k4.f16.f16",
]


@one_in(3)
@pytest.mark.parametrize("name", READ)
def test_all_readings_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM, traced values and intervals of one value each, on any bits: infinities and NaN are among them."""
    form, rng = instruction(name), np.random.default_rng(len(name))
    anywhere = replace(form, name=f"here_{name}", caps=dict.fromkeys(form.caps, ("xe2",)))  # whose registers may be any
    monkeypatch.setitem(GPU_REGISTRY, anywhere.name, anywhere)
    found = compare(anywhere, next(iter(form.caps)), False, 400, rng)
    assert found.mismatches == 0, found.first
    for _ in range(2):
        given = [adversarial(o.dtype, (form.operand_lanes(o, 0),), rng) for o in form.operands]
        pairs = list(zip(given, form.operands, strict=True))
        wanted = form.apply(*[ArrayValue(x, o.dtype) for x, o in pairs]).array
        assert form.apply(*[operand(x, o.dtype, o.name) for x, o in pairs]).inner.array.tobytes() == wanted.tobytes()
        finite = [np.where(np.isfinite(x.astype(np.float32)), x, x.dtype.type(1)) for x in given]
        wide = [x.astype(np.float64) for x in finite]
        ranges = [IntervalValue.between(o.dtype, x, x, Watch()) for x, o in zip(wide, form.operands, strict=True)]
        wanted = form.apply(*[ArrayValue(x, o.dtype) for x, o in zip(finite, form.operands, strict=True)]).array
        met = form.apply(*ranges)
        held = (met.low <= wanted) & (wanted <= met.high) | (np.isnan(wanted) & met.nan)
        assert held.all()


def test_zeros() -> None:
    """A zero counts with the exponent -126 whatever it is multiplied by; what is cut off to zero is +0."""
    a, b = np.zeros((1, 8), np.float32), np.zeros((8, 1), np.float32)
    a[0, :2], b[:2, 0] = [0, 2.0**-75], [2.0**100, 2.0**-74]
    acc = np.full((1, 1), 2.0**-149, np.float32)
    assert instruction("mma")(acc, a, b, arch="hopper")[0, 0] == 2.0**-148
    least = np.full((1, 1), -(2.0**-149), np.float32)
    none = np.zeros((1, 32), ml_dtypes.float8_e4m3fn), np.zeros((32, 1), ml_dtypes.float8_e4m3fn)
    assert instruction("mma")(least, *none, arch="ada").view(np.uint32)[0, 0] == 0


def test_f8_on_the_f16_unit() -> None:
    """The passes are rounded to the result's type, and the accumulator is added to nearest even."""
    a, b = np.zeros((1, 32), ml_dtypes.float8_e4m3fn), np.ones((32, 1), ml_dtypes.float8_e4m3fn)
    a[0, [0, 2]] = 256, 2.0**-4  # 2**-4 is a quarter of 256's last place in f16
    zero, one = np.zeros((1, 1), np.float16), np.full((1, 1), 2.0**-3, np.float16)
    for arch in ("hopper", "blackwell"):
        assert instruction("mma")(zero, a, b, arch=arch)[0, 0] == 256
        assert instruction("mma")(one, a, b, arch=arch)[0, 0] == 256
    assert instruction("mma")(one, a, b, arch="ada")[0, 0] == 256.25


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
    with pytest.raises(InvalidArgument, match="imm=4 asks 4 lanes for lane 7$"):
        instruction("shfl.bfly.f32")([1, 5, 4, 2], imm=4)
    with pytest.raises(InvalidArgument, match="not known: architecture"):
        mma(None, a, b, architecture="ampere")
    with pytest.raises(UnknownName, match=r"mma\.hopper"):
        instruction("mma.hopper")
