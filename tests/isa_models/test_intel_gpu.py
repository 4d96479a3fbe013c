"""DPAS and DP4A: recorded vectors, exact integer and rational oracles, layouts, refusals, and the compiled reading."""

from __future__ import annotations

import doctest
import itertools
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa_models import GPU_REGISTRY, Family, InvalidArgument, SimdnnError, Unimplemented, UnknownName, instruction
from isa_models.formats import fmt
from isa_models.intel_gpu import FLOAT_MODELS, PLATFORMS, join_a, pack_a, pack_b, split_a, unpack_a, unpack_b
from isa_models.intel_gpu.dpas import INTEGERS
from simdnn.calibration.hostcheck import adversarial, compare
from tests.effort import examples, one_in

VECTORS = Path(__file__).parents[1] / "vectors" / "gpu"
MANIFEST = json.loads((VECTORS / "manifest.json").read_text())
Array = np.ndarray[Any, np.dtype[Any]]


def same(met: Array, expected: Array) -> Array:
    """Where bits are equal, or both are NaN."""
    if met.dtype.kind in "iu":
        return met == expected
    word = f"u{met.itemsize}"
    return (met.view(word) == expected.view(word)) | ((met != met) & (expected != expected))


@pytest.fixture(scope="module")
def recorded() -> dict[str, Array]:
    with np.load(VECTORS / "dpas.npz") as dpas, np.load(VECTORS / "dp4a.npz") as dp4a:
        return {**dpas, **dp4a}


def operands(case: dict[str, Any], recorded: dict[str, Array]) -> tuple[Array | None, Array, Array, Array]:
    def get(part: str) -> Array:
        return recorded[f"{case['name']}__{part}"]

    def typed(raw: Array, name: str) -> Array:
        dtype = fmt(name).dtype
        return raw.view(dtype) if fmt(name).is_float else raw.astype(dtype)

    size, kind = (case["M"], case["N"]), fmt(case["acc_dst_type"]).dtype
    acc = None if case["src0"] == "null" else get("src0").view(kind).reshape(size)
    a, b = typed(get("A"), case["src2_A_precision"]), typed(get("B"), case["src1_B_precision"])
    return acc, a, b, get("dst").view(kind).reshape(size)


@pytest.mark.parametrize("case", MANIFEST["dpas"], ids=lambda c: c["name"])
def test_recorded_dpas(case: dict[str, Any], recorded: dict[str, Array]) -> None:
    acc, a, b, expected = operands(case, recorded)
    a_dtype, b_dtype = case["src2_A_precision"], case["src1_B_precision"]
    assert (pack_a(a, a_dtype) == recorded[case["name"] + "__src2"]).all()
    assert (pack_b(b, b_dtype) == recorded[case["name"] + "__src1"]).all()
    types = {"a_dtype": a_dtype, "b_dtype": b_dtype, "dst_dtype": case["acc_dst_type"]}
    met = instruction("dpas")(acc, a, b, **types)
    assert met.dtype == expected.dtype and same(met, expected).all()
    counts = case.get("differs_from_emulator_under_other_models", {})
    for model in ("stage_fused", "pair_first"):
        other = instruction("dpas")(acc, a, b, float_model=model, **types)
        if counts:
            assert int((~same(other, expected)).sum()) == counts[model]


@pytest.mark.parametrize("case", MANIFEST["dp4a"], ids=lambda c: c["name"])
def test_recorded_dp4a(case: dict[str, Any], recorded: dict[str, Array]) -> None:
    acc, a, b, expected = (recorded[f"{case['name']}__{part}"] for part in ("src0", "src1", "src2", "dst"))
    kind = fmt(case["acc_dst_type"]).dtype
    a, b = (x.view(fmt(case[t][:2]).dtype) for x, t in ((a, "src1_type"), (b, "src2_type")))
    met = instruction("dp4a")(acc.view(kind), a, b, saturate=bool(case["sat_flag"]))
    assert (met == expected.view(kind)).all()
    assert (
        instruction("dp4a")(acc.view(kind), a.reshape(-1, 4), b.reshape(-1, 4), saturate=bool(case["sat_flag"])) == met
    ).all()


@one_in(3)
@pytest.mark.parametrize("a_dtype,b_dtype", list(itertools.product(INTEGERS, INTEGERS)))
def test_every_integer_pair_wraps(a_dtype: str, b_dtype: str) -> None:
    rng = np.random.default_rng([fmt(a_dtype).bits, fmt(b_dtype).bits])
    k = 8 * min(8, 32 // max(fmt(a_dtype).bits, fmt(b_dtype).bits))
    for m, n in itertools.product((1, 3, 8), (8, 16)):
        a = rng.integers(fmt(a_dtype).low, fmt(a_dtype).high + 1, (2, m, k))
        b = rng.integers(fmt(b_dtype).low, fmt(b_dtype).high + 1, (2, k, n))
        acc = rng.integers(-(2**31), 2**31, (2, m, n)).astype(np.int32)
        expected = (acc + a @ b).astype(np.int32)
        met = instruction("dpas")(acc, a, b, a_dtype=a_dtype, b_dtype=b_dtype)
        assert (met == expected).all()
        unsigned = instruction("dpas")(acc, a, b, a_dtype=a_dtype, b_dtype=b_dtype, dst_dtype="u32")
        assert unsigned.dtype == np.uint32 and (unsigned.view(np.int32) == expected).all()
        null = instruction("dpas")(None, a.astype(fmt(a_dtype).dtype), b.astype(fmt(b_dtype).dtype))
        assert null.dtype == np.int32 and (null == (a @ b)).all()


def rounded(value: Fraction) -> float:
    """To f32, nearest even, through integers alone."""
    if value == 0:
        return 0.0
    exponent = -149
    while abs(value) >= Fraction(2) ** (exponent + 24):
        exponent += 1
    return float(round(value / Fraction(2) ** exponent) * Fraction(2) ** exponent)


@one_in(2)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_float_models_against_rational_arithmetic(dtype: str) -> None:
    rng = np.random.default_rng(3)
    kind = fmt(dtype).dtype
    scale = 2.0 ** rng.integers(-12, 13, (4, 16))
    a = (rng.standard_normal((4, 16)) * scale).astype(kind)
    b = (rng.standard_normal((16, 8)) * 2.0 ** rng.integers(-3, 4, (16, 8))).astype(kind)
    acc = (rng.standard_normal((4, 8)) * 2.0 ** rng.integers(-20, 20, (4, 8))).astype(np.float32)
    met = {model: instruction("dpas")(acc, a, b, float_model=model) for model in FLOAT_MODELS}
    differ = 0
    for i, j in itertools.product(range(4), range(8)):
        products = [Fraction(float(a[i, k])) * Fraction(float(b[k, j])) for k in range(16)]
        totals = dict.fromkeys(FLOAT_MODELS, Fraction(float(acc[i, j])))
        for p, q in zip(products[::2], products[1::2], strict=True):
            for term in (p, q):
                totals["sequential"] = Fraction(rounded(totals["sequential"] + Fraction(rounded(term))))
            totals["stage_fused"] = Fraction(rounded(totals["stage_fused"] + p + q))
            totals["pair_first"] = Fraction(rounded(totals["pair_first"] + Fraction(rounded(p + q))))
        for model, total in totals.items():
            assert float(met[model][i, j]) == float(total)
        differ += len(set(totals.values())) > 1
    assert differ > 5  # the models are told apart by this data


def test_narrow_results_are_rounded_once_at_the_end() -> None:
    a, b = np.full((1, 16), 2.0**-7, ml_dtypes.bfloat16), np.full((16, 16), 2.0**-5, ml_dtypes.bfloat16)
    acc = np.ones((1, 16), ml_dtypes.bfloat16)  # 1 + 16 * 2**-12 = 1 + 2**-8: a tie
    assert (instruction("dpas")(acc, a, b, dst_dtype="bf16").astype(float) == 1.0).all()
    assert (instruction("dpas")(acc, a, b, dst_dtype="f32") == 1 + 2.0**-8).all()
    tiny = np.zeros((1, 16), np.float32)
    tiny[:] = 1.75 * 2.0**-133  # a subnormal bf16 and three quarters of a step
    zeros = np.zeros((1, 16), ml_dtypes.bfloat16), np.zeros((16, 16), ml_dtypes.bfloat16)
    steps = {
        m: float(instruction("dpas")(tiny, *zeros, dst_dtype="bf16", float_model=m)[0, 0]) / 2.0**-133
        for m in FLOAT_MODELS
    }
    assert steps == {"sequential": 1.0, "stage_fused": 2.0, "pair_first": 2.0}


def test_tf32_ignores_what_lies_below_its_ten_digits() -> None:
    a = np.full((1, 8), 1 + 2.0**-10 + 2.0**-11, np.float32)
    b = np.ones((8, 16), np.float32)
    met = instruction("dpas")(None, a, b, a_dtype="tf32", b_dtype="tf32")
    assert (met == 8 * (1 + 2.0**-10)).all()


def test_nan_and_infinity() -> None:
    a = np.ones((3, 16), np.float16)
    a[0, 3], a[1, 5] = np.nan, np.inf
    met = instruction("dpas")(np.full((3, 8), -np.inf, np.float32), a, np.ones((16, 8), np.float16))
    assert np.isnan(met[:2]).all() and (met[2] == -np.inf).all()
    assert (met[:2].view(np.uint32) == 0x7FC00000).all()


@given(st.sampled_from([*INTEGERS, "bf16", "f16", "tf32"]), st.integers(1, 8), st.sampled_from([8, 16]), st.integers(0))
@examples(60)
def test_packing_there_and_back(dtype: str, m: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    k, form = 64, fmt(dtype)
    a, b = (
        rng.standard_normal(s) if form.is_float else rng.integers(form.low, form.high + 1, s)
        for s in ((2, m, k), (2, k, n))
    )
    a, b = a.astype(form.dtype), b.astype(form.dtype)
    assert (unpack_a(pack_a(a, dtype), dtype, m) == a).all() and (unpack_b(pack_b(b, dtype), dtype, n) == b).all()
    first, second = split_a(pack_a(a, dtype))
    assert first.shape[-1] >= second.shape[-1] and (join_a(first, second) == pack_a(a, dtype)).all()


def test_dpasw_is_dpas_where_it_exists() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.integers(-128, 128, (4, 32)).astype(np.int8), rng.integers(0, 256, (32, 8)).astype(np.uint8)
    assert (instruction("dpasw")(None, a, b, platform="xe_hpg") == instruction("dpas")(None, a, b)).all()
    with pytest.raises(Unimplemented, match="Xe-HPC"):
        instruction("dpasw")(None, a, np.tile(b, 2), platform="xe_hpc")
    with pytest.raises(Unimplemented, match="exec size 8"):
        instruction("dpasw")(None, a, np.tile(b, 2))


@pytest.mark.parametrize(
    "a,b,counts",
    [
        ("s8", "s8", range(1, 9)),
        ("s8", "u2", range(1, 9)),
        ("s4", "s4", range(1, 9)),
        ("u4", "s8", (4, 8)),
        ("s2", "s4", (4, 8)),
        ("s2", "u2", (4, 8)),
        ("s2", "s8", (8,)),
        ("bf16", "bf16", range(1, 9)),
    ],
)
def test_repeat_counts_of_dpasw(a: str, b: str, counts: Any) -> None:
    """intel/llvm, sycl/ext/intel/esimd/xmx/dpas.hpp."""
    k = 8 * min(8, 32 // max(fmt(a).bits, fmt(b).bits))
    for m in range(1, 9):
        operands = None, np.zeros((m, k), fmt(a).dtype), np.zeros((k, 8), fmt(b).dtype)
        if m in counts:
            assert instruction("dpasw")(*operands).shape == (m, 8)
        else:
            with pytest.raises(InvalidArgument, match=f"{m} of {a} with B of {b}; allowed: "):
                instruction("dpasw")(*operands)
        assert instruction("dpas")(*operands).shape == (m, 8)


def test_any_memory_layout_and_leading_axes() -> None:
    rng = np.random.default_rng(8)
    a, b = rng.integers(-128, 128, (5, 1, 8, 32)).astype("i1"), rng.integers(0, 256, (3, 32, 8)).astype("u1")
    acc = rng.integers(-(2**31), 2**31, (8, 8)).astype("i4")
    right = (a.astype(int) @ b.astype(int) + acc).astype(np.int32)
    shuffled = np.asfortranarray(a)[..., ::-1].copy("F")[..., ::-1]
    swapped = acc.astype(">i4")[::-1].copy()[::-1]
    for array in (shuffled, swapped):
        array.setflags(write=False)
    met = instruction("dpas")(swapped, shuffled, np.ascontiguousarray(b.swapaxes(1, 2)).swapaxes(1, 2))
    assert met.dtype == np.int32 and met.shape == (5, 3, 8, 8) and (met == right).all()
    assert instruction("dpas")(None, a[:0], b[0]).shape == (0, 1, 8, 8)


def dpas(a: str, b: str, n: int, dst: str | None = None, acc: str | None = None, platform: str | None = None) -> Array:
    k = 8 * min(8, 32 // max(fmt(a).bits, fmt(b).bits))
    start = None if acc is None else np.zeros((8, n), fmt(acc).dtype)
    return instruction("dpas")(
        start,
        np.zeros((8, k), fmt(a).dtype),
        np.zeros((k, n), fmt(b).dtype),
        a_dtype=a,
        b_dtype=b,
        dst_dtype=dst,
        platform=platform,
    )


@pytest.mark.parametrize(
    "platform,title,arguments",
    [
        ("xe_lp", "DG1", ("s8", "s8", 8)),
        ("xe_lpg", "Meteor Lake", ("s8", "s8", 8)),
        ("xe_hpg", "Xe-HPG", ("s8", "s8", 16)),
        ("xe_hpc", "Xe-HPC", ("s8", "s8", 8)),
        ("xe_hpg", "Xe-HPG", ("tf32", "tf32", 8)),
        ("xe_hpg", "Xe-HPG", ("bf16", "bf16", 8, "bf16")),
        ("xe_hpg", "Xe-HPG", ("f16", "f16", 8, "f32", "f16")),
        ("xe2", "Xe2", ("tf32", "tf32", 16)),
        ("xe3p", "Xe3P", ("s8", "s4", 16)),
        ("xe3p", "Xe3P", ("u2", "u2", 16)),
    ],
)
def test_a_platform_refuses_by_its_name(platform: str, title: str, arguments: tuple[Any, ...]) -> None:
    dpas(*arguments)  # it exists somewhere
    with pytest.raises(Unimplemented, match=title):
        dpas(*arguments, **{"platform": platform})


def test_what_a_platform_has() -> None:
    dpas("s8", "u4", 16, platform="xe3")
    dpas("bf16", "bf16", 16, "bf16", "f32", "xe2")
    dpas("f16", "f16", 16, "f32", "f16", "xe_hpc")
    dpas("tf32", "tf32", 16, platform="xe_hpc")
    dpas("s4", "u4", 16, platform="xe3p")


@pytest.mark.parametrize(
    "error,message,call",
    [
        (InvalidArgument, "repeat count", lambda d: d(None, np.zeros((9, 32), "i1"), np.zeros((32, 8), "i1"))),
        (InvalidArgument, "exec size", lambda d: d(None, np.zeros((8, 32), "i1"), np.zeros((32, 12), "i1"))),
        (InvalidArgument, "K = 32", lambda d: d(None, np.zeros((8, 16), "i1"), np.zeros((16, 8), "i1"))),
        (
            InvalidArgument,
            "s4 is -8 to 7",
            lambda d: d(None, np.full((8, 64), 9), np.zeros((64, 8)).astype(int), a_dtype="s4", b_dtype="s4"),
        ),
        (InvalidArgument, "same one of", lambda d: dpas("bf16", "f16", 8)),
        (InvalidArgument, "same one of", lambda d: d(None, np.zeros((8, 32), "i1"), np.zeros((32, 8), "f2"))),
        (InvalidArgument, "accumulator", lambda d: dpas("s8", "s8", 8, None, "f32")),
        (InvalidArgument, "dst_dtype", lambda d: dpas("bf16", "bf16", 8, "f16")),
        (
            InvalidArgument,
            "needs elements",
            lambda d: d(None, np.zeros((8, 16), "u2"), np.zeros((16, 8), "u2"), a_dtype="bf16", b_dtype="bf16"),
        ),
        (
            InvalidArgument,
            "acc of shape",
            lambda d: d(np.zeros((8, 16), "i4"), np.zeros((8, 32), "i1"), np.zeros((32, 8), "i1")),
        ),
        (InvalidArgument, "operands", lambda d: d(None, np.zeros((8, 32), "i1"))),
        (InvalidArgument, "repeat count", lambda d: d(None, np.zeros((0, 32), "i1"), np.zeros((32, 8), "i1"))),
        (
            InvalidArgument,
            "a_dtype, b_dtype",
            lambda d: d(None, np.zeros((8, 32), "i1"), np.zeros((32, 8), "i1"), a_type="s8"),
        ),
        (InvalidArgument, "don't broadcast", lambda d: d(None, np.zeros((2, 8, 32), "i1"), np.zeros((3, 32, 8), "i1"))),
        (
            InvalidArgument,
            "don't broadcast",
            lambda d: d(np.zeros((4, 8, 8), "i4"), np.zeros((2, 8, 32), "i1"), np.zeros((32, 8), "i1")),
        ),
        (Unimplemented, "wrap", lambda d: d(None, np.zeros((8, 32), "i1"), np.zeros((32, 8), "i1"), saturate=True)),
        (
            UnknownName,
            "stage_fused",
            lambda d: d(None, np.zeros((8, 32), "i1"), np.zeros((32, 8), "i1"), float_model="fused"),
        ),
        (UnknownName, "platform", lambda d: dpas("s8", "s8", 8, platform="xe9")),
    ],
)
def test_bad_calls_say_what_is_allowed(error: type[SimdnnError], message: str, call: Any) -> None:
    with pytest.raises(error, match=message) as caught:
        call(instruction("dpas"))
    assert "\n" not in str(caught.value)


@given(st.sampled_from(["i1", "u1"]), st.sampled_from(["i1", "u1"]), st.sampled_from(["i4", "u4"]), st.integers(0))
@examples(60)
def test_dp4a_wraps_or_saturates_once(a_type: str, b_type: str, acc_type: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ends = {"i1": (-128, 127), "u1": (0, 255), "i4": (-(2**31), 2**31 - 1), "u4": (0, 2**32 - 1)}

    def draw(dtype: str, count: int) -> Array:
        low, high = ends[dtype]
        mixed = np.where(rng.random(count) < 0.5, rng.integers(low, high + 1, count), rng.choice([low, high], count))
        return mixed.astype(dtype)

    acc, a, b = draw(acc_type, 16), draw(a_type, 64), draw(b_type, 64)
    exact = acc.astype(object) + (a.astype(object) * b.astype(object)).reshape(16, 4).sum(axis=1)
    low, high = ends[acc_type]
    assert instruction("dp4a")(acc, a, b).tolist() == [(int(v) - low) % 2**32 + low for v in exact]
    assert instruction("dp4a")(acc, a, b, saturate=True).tolist() == [min(max(int(v), low), high) for v in exact]


def test_ptx_accumulators_are_unsigned_for_unsigned_factors_only() -> None:
    a, b = np.full(4, 255, np.uint8), np.full(4, 255, np.uint8)
    top = np.array([2**32 - 1], np.uint32)
    assert instruction("ptx_dp4a")(top, a, b).tolist() == [4 * 255 * 255 - 1]
    with pytest.raises(InvalidArgument, match="s32"):
        instruction("ptx_dp4a")(top, a, b.view(np.int8))
    words = np.array([-300, 2], np.int16)
    for half, expected in (("lo", 255 * -300 + 2 * 255), ("hi", 255 * -300 + 2 * 255)):
        assert instruction("dp2a")(np.array([0], np.int32), words, b, half=half).tolist() == [expected]
    with pytest.raises(InvalidArgument, match="never saturates"):
        instruction("ptx_dp4a")(top, a, b, saturate=True)


@one_in(2)
@pytest.mark.parametrize("name", sorted(GPU_REGISTRY))
def test_documented_shown_and_compiled_alike(name: str) -> None:
    definition = instruction(name)
    assert definition.manual and definition.caps
    test = doctest.DocTestParser().get_doctest(definition.doc, {}, name, None, 0)
    assert any(name in example.source for example in test.examples)
    assert doctest.DocTestRunner().run(test).failed == 0
    for width, brings in definition.caps.items():
        if not isinstance(definition, Family) and set(brings) & set(PLATFORMS):
            found = compare(definition, width, False, 100, np.random.default_rng(width))
            assert found.mismatches == 0, found.first


@one_in(2)
@pytest.mark.parametrize(
    "name",
    [
        "dpas.s8.u8.8.8.x16.s32",
        "dpas.u2.s4.8.3.x8.u32",
        "dpas.s4.s8.8.1.x8.s32.null",
        "dpas.f16.f16.8.4.x16.f16.f32.stage_fused",
        "dpas.tf32.tf32.8.8.x16.f32.pair_first",
        "dpas.bf16.bf16.8.8.x16.bf16.sequential",
    ],
)
def test_forms_compile_to_the_same_bits(name: str) -> None:
    definition = instruction(name)
    found = compare(definition, next(iter(definition.caps)), False, 200, np.random.default_rng(1))
    assert found.mismatches == 0, found.first


def test_reference_and_logical_calls_agree_on_hostile_floats() -> None:
    rng = np.random.default_rng(2)
    a, b = adversarial("bf16", (50, 8, 16), rng), adversarial("bf16", (50, 16, 16), rng)
    acc = adversarial("f32", (50, 8, 16), rng)
    met = instruction("dpas")(acc, a, b)
    with np.errstate(all="ignore"):
        expected = acc.copy()
        for k in range(16):
            expected = expected + a.astype(np.float32)[:, :, k : k + 1] * b.astype(np.float32)[:, k : k + 1]
    assert same(met, expected).all()


def test_unknown_forms_are_named() -> None:
    for name in ("dpas.s8", "dpas.s8.s8.4.8.x16.s32", "dp4a.s8.s16.s32", "dp2a.mid", "mad.f64"):
        with pytest.raises(UnknownName):
            instruction(name)
