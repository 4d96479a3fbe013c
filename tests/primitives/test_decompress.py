"""Compressed weights: what is accepted, in which type it is computed, and that the values are right."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from simdnn import Attr, InvalidArgument, Quant, SimdnnError, Unimplemented
from simdnn.kernels.common.epilogue import Decompression, Epilogue
from simdnn.kernels.common.params import Param
from simdnn.libraries import LIBRARIES
from simdnn.primitives.decompress import decompression
from simdnn.primitives.mathmode_types import allowed
from simdnn.primitives.placed import Shape
from simdnn.primitives.problems import matmul_problem
from simdnn.primitives.resolve import Resolved, resolve
from tests.effort import examples

SOURCES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
WEIGHTS = {"s8": np.int8, "u8": np.uint8, "s4": ml_dtypes.int4, "u4": ml_dtypes.uint4}
MODES = ("strict", "tf32", "bf16", "f16", "any")
F, B, REF = "brg f32", "brg bf16", "ref"
M, K, N = 3, 32, 8


def test_the_partial_order() -> None:
    table = {mode: [dtype for dtype in ("f32", "tf32", "bf16", "f16") if allowed(mode, dtype)] for mode in MODES}
    assert table == {
        "strict": ["f32"],
        "tf32": ["f32", "tf32"],
        "bf16": ["f32", "tf32", "bf16"],
        "f16": ["f32", "tf32", "f16"],
        "any": ["f32", "tf32", "bf16", "f16"],
    }
    assert not allowed("any", "s8")


def call(src: str, wei: str, attr: Attr | None, **options: Any) -> simdnn.Result:
    a, w = np.ones((M, K), SOURCES[src]), np.ones((K, N)).astype(WEIGHTS[wei])
    return simdnn.matmul(a, w, attr=attr, **{"machine": "zen4", **options})


# Acceptance ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("wei", WEIGHTS)
@pytest.mark.parametrize("src", SOURCES)
@pytest.mark.parametrize("dispatch", ["fastest", "onednn"])
def test_ambiguous_without_apply_to_int(src: str, wei: str, dispatch: str) -> None:
    for attr in (None, Attr(), *(Attr(fpmath=mode) for mode in MODES)):
        with pytest.raises(Unimplemented, match=r"ambiguous: quantize the source.*apply_to_int=True"):
            call(src, wei, attr, dispatch=dispatch)
    with simdnn.fpmath_mode("bf16"), pytest.raises(Unimplemented, match="ambiguous"):
        call(src, wei, None, dispatch=dispatch)


#: source, modes, scales' type, destination -> what oneDNN 3.13 was seen to do under four ISA caps ("": it refuses)
CAPS = ("avx2", "avx512_core", "avx512_core_vnni", "avx512_core_bf16")
LIBRARY: list[tuple[str, str, str, str, tuple[str, str, str, str]]] = [
    ("f32", "strict any", "f32", "f32", (F, F, F, F)),
    ("f32", "strict any", "", "f32", (F, F, F, F)),
    ("f32", "strict any", "bf16", "f32", (REF, REF, REF, REF)),
    ("f32", "strict any", "f16", "f32", (REF, REF, REF, REF)),
    ("f32", "strict any", "f32", "bf16", (REF, REF, REF, REF)),
    ("f32", "tf32 bf16 f16", "f32", "f32", (REF, REF, REF, REF)),
    ("bf16", "bf16 any", "f32", "f32", ("", REF, REF, B)),
    ("bf16", "bf16 any", "f32", "bf16", ("", REF, REF, B)),
    ("bf16", "bf16 any", "", "f32", ("", REF, REF, B)),
    ("bf16", "bf16 any", "bf16", "f32", ("", REF, REF, B)),
    ("bf16", "bf16 any", "f16", "f32", ("", REF, REF, REF)),
    ("bf16", "strict tf32 f16", "f32", "f32", ("", "", "", "")),
    ("f16", "strict tf32 bf16 f16 any", "f32", "f32", ("", "", "", "")),
]
SHAPES = {wei: Shape("matmul", M, K, N, "f32", wei) for wei in WEIGHTS}


def asked(src: str, wei: str, mode: str, scale: str, dst: str, caps: set[str]) -> Decompression | None:
    scales = {"wei": Quant(None, groups=(16, 1), dtype=scale)} if scale else {}
    attr = Attr(fpmath=mode, apply_to_int=True, scales=scales)
    shape = Shape("matmul", M, K, N, src, wei)
    return decompression(
        Resolved.of(attr, shape), matmul_problem(shape, Epilogue(dst), "any"), LIBRARIES["onednn"], frozenset(caps)
    )


@pytest.mark.parametrize(("src", "modes", "scale", "dst", "answers"), LIBRARY)
def test_the_library_s_table(src: str, modes: str, scale: str, dst: str, answers: tuple[str, ...]) -> None:
    for mode in modes.split():
        for wei in WEIGHTS:
            for i, answer in enumerate(answers):
                caps = set(CAPS[: i + 1])
                if not answer:
                    with pytest.raises(Unimplemented, match="oneDNN refuses"):
                        asked(src, wei, mode, scale, dst, caps)
                    continue
                found = asked(src, wei, mode, scale, dst, caps)
                assert found is not None
                computes = ("bf16",) if answer == B else ("f32",)
                assert (found.computes, found.reference) == (computes, answer == REF), (mode, wei, CAPS[i])


@pytest.mark.parametrize(
    ("src", "isa", "mode", "implementation"),
    [
        ("f32", "avx2", "strict", "wdec:avx2"),
        ("f32", "avx2", "bf16", "wdec:avx2_ref"),
        ("f32", "avx512_core", "any", "wdec:avx512_core"),
        ("f32", None, "bf16", "wdec:avx512_core_ref"),
        ("bf16", "avx512_core", "bf16", "wdec:avx512_core_ref"),
        ("bf16", None, "any", "wdec:avx512_core_bf16"),
    ],
)
def test_the_library_s_kernels(src: str, isa: str | None, mode: str, implementation: str) -> None:
    result = call(src, "s8", Attr(fpmath=mode, apply_to_int=True), isa=isa, dispatch="onednn")
    assert result.implementation == implementation and (result.output == K).all()
    reason = result.dispatch.set_index("implementation").loc[implementation, "reason"]
    library = "ref:any" if implementation.endswith("_ref") else implementation.replace("wdec", "brg_matmul")
    assert reason == f"oneDNN's choice: {library}"


@pytest.mark.parametrize(
    ("n", "wei", "arguments", "error", "message"),
    [
        (8, "s8", {"scales": {"wei": np.ones((4, 8))}}, Unimplemented, "groups of 8; allowed: multiples of 16, 1,"),
        (8, "s8", {"zero_points": {"wei": np.ones((4, 8), np.int8)}}, Unimplemented, "groups of 8"),
        (8, "s8", {"zero_points": {"wei": Quant(1, dtype="s4")}}, Unimplemented, "common zero point of s4"),
        (7, "s4", {}, Unimplemented, "N=7"),
        (7, "s8", {"zero_points": {"wei": Quant(np.ones(7, int), dtype="u4")}}, Unimplemented, "N=7"),
    ],
)
def test_what_the_library_refuses_beside(
    n: int, wei: str, arguments: dict[str, Any], error: type[SimdnnError], message: str
) -> None:
    src, weights = np.ones((M, K), np.float32), np.ones((K, n)).astype(WEIGHTS[wei])
    attr = Attr(fpmath="strict", apply_to_int=True, **arguments)
    with pytest.raises(error, match=message):
        simdnn.matmul(src, weights, machine="zen4", attr=attr, dispatch="onednn")
    assert simdnn.matmul(src, weights, machine="zen4", attr=attr).output.shape == (M, n)


#: what "fastest" may compute in: source, mode -> types on a machine with bf16 units, and on one without
FASTEST = [
    ("f32", "strict", "f32", "f32"),
    ("f32", "tf32", "f32", "f32"),
    ("f32", "bf16", "bf16", "f32"),
    ("f32", "f16", "f32", "f32"),
    ("f32", "any", "f32 bf16", "f32"),
    ("bf16", "strict", "f32", "f32"),
    ("bf16", "tf32", "f32", "f32"),
    ("bf16", "bf16", "f32 bf16", "f32"),
    ("bf16", "any", "f32 bf16", "f32"),
    *(("f16", mode, "f32", "f32") for mode in MODES if mode != "bf16"),
]


@pytest.mark.parametrize(("src", "mode"), [("f16", "bf16"), ("bf16", "f16")])
@pytest.mark.parametrize("dispatch", ["fastest", "onednn"])
def test_no_conversion_between_types_of_one_size(src: str, mode: str, dispatch: str) -> None:
    with pytest.raises(Unimplemented):
        call(src, "s8", Attr(fpmath=mode, apply_to_int=True), dispatch=dispatch)
    assert call(src, "s8", Attr(fpmath="any", apply_to_int=True)).compute_dtype in ("f32", src)


@pytest.mark.parametrize(("src", "mode", "zen4", "icx"), FASTEST)
def test_fastest(src: str, mode: str, zen4: str, icx: str) -> None:
    attr = Attr(fpmath=mode, apply_to_int=True)
    for machine, computes in (("zen4", zen4), ("icx", icx)):
        result = call(src, "s8", attr, machine=machine)
        assert result.compute_dtype in computes.split() and (result.output == K).all()
        frame = result.dispatch
        able = frame[frame["reason"].isin(["fewest cycles", "more cycles"])]["implementation"]
        found = {"bf16" if "bf16" in name else "f32" for name in able}
        assert found == set(computes.split()) and not any(name.endswith("_ref") for name in able)
        assert result.cycles == frame["cycles"].min()


def test_the_mode_in_force_counts() -> None:
    attr = Attr(apply_to_int=True)
    assert call("f32", "s8", attr).compute_dtype == "f32"
    with simdnn.fpmath_mode("bf16"):
        result = call("f32", "s8", attr)
    assert (result.compute_dtype, result.fpmath) == ("bf16", "bf16")


def test_a_convolution_of_floats_and_integer_weights_is_ambiguous() -> None:
    src, weights = np.ones((1, 4, 5, 5), np.float32), np.ones((6, 4, 3, 3), np.int8)
    with pytest.raises(Unimplemented, match="is ambiguous"):
        simdnn.convolution(src, weights, machine="zen4")
    given = simdnn.convolution(src, weights, machine="zen4", attr=Attr(fpmath="bf16", apply_to_int=True))
    assert (given.output == 36).all()


# Parameters ----------------------------------------------------------------------------------------------------------
SHAPE = SHAPES["s8"]


@pytest.mark.parametrize(
    ("quant", "param", "values"),
    [
        (0.5, Param("wei", 0, 0, "f32"), (1,)),
        (Quant(0.5, dtype="bf16"), Param("wei", 0, 0, "bf16"), (1,)),
        (np.ones(N, np.float16), Param("wei", 0, 1, "f16"), (N,)),
        (np.ones((4, N)), Param("wei", 8, 1, "f32"), (4, N)),
        (np.ones((1, N)), Param("wei", K, 1, "f32"), (1, N)),
        (Quant(np.ones((2, N)), groups=(16, 1), dtype="bf16"), Param("wei", 16, 1, "bf16"), (2, N)),
        (Quant(None, groups=(16, 1), dtype="f16"), Param("wei", 16, 1, "f16"), None),
        (Quant(None, mask="per_oc"), Param("wei", 0, 1, "f32"), None),
    ],
)
def test_scales(quant: Any, param: Param, values: tuple[int, ...] | None) -> None:
    attr = Attr(scales={"wei": quant}, apply_to_int=True, fpmath="strict")
    found = decompression(Resolved.of(attr, SHAPE), matmul_problem(SHAPE, Epilogue("f32"), "any"), None, frozenset())
    assert found == Decompression(("f32",), scale=param)
    epilogue, parameters = resolve(Resolved.of(attr, SHAPE), "f32", None)
    assert epilogue.wei_scale is None and parameters.wei_scale is not None and parameters.wei_scale.dtype == np.float32
    assert values is None or parameters.wei_scale.shape == values


@pytest.mark.parametrize(
    ("quant", "param", "shape"),
    [
        (3, Param("wei", 0, 0, "s32"), (1,)),
        (Quant(3, dtype="u4"), Param("wei", 0, 0, "u4"), (1,)),
        (np.ones(N, np.int8), Param("wei", 0, 1, "s8"), (N,)),
        (np.ones((4, N)).astype(ml_dtypes.int4), Param("wei", 8, 1, "s4"), (4, N)),
        (Quant(np.ones((2, N), np.uint8), groups=(16, 1)), Param("wei", 16, 1, "u8"), (2, N)),
    ],
)
def test_zero_points(quant: Any, param: Param, shape: tuple[int, ...]) -> None:
    attr = Attr(zero_points={"wei": quant}, apply_to_int=True, fpmath="strict")
    found = decompression(Resolved.of(attr, SHAPE), matmul_problem(SHAPE, Epilogue("f32"), "any"), None, frozenset())
    assert found == Decompression(("f32",), zero_point=param)
    epilogue, parameters = resolve(Resolved.of(attr, SHAPE), "f32", None)
    assert not epilogue.zp_wei and parameters.zp_wei == 0
    assert parameters.wei_zero_points is not None and parameters.wei_zero_points.dtype == np.int32
    assert parameters.wei_zero_points.shape == shape


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"scales": {"wei": np.ones(N - 1)}}, InvalidArgument, rf"\({N},\) per_oc"),
        ({"scales": {"wei": np.ones((3, N))}}, InvalidArgument, r"\(3, 8\)"),
        ({"scales": {"wei": np.ones((4, N - 1))}}, InvalidArgument, r"\(4, 7\)"),
        ({"scales": {"wei": Quant(np.ones((4, N)), groups=(5, 1))}}, InvalidArgument, "5 does not divide K=32"),
        ({"scales": {"wei": Quant(np.ones((2, N)), groups=(8, 1))}}, InvalidArgument, r"allowed: \(4, 8\) grouped"),
        ({"scales": {"wei": Quant(np.ones((4, 4)), groups=(8, 2))}}, Unimplemented, r"groups=\(8, 1\)"),
        ({"scales": {"wei": np.ones(N, int)}}, InvalidArgument, "scales are floats"),
        ({"zero_points": {"wei": np.ones((3, N), int)}}, InvalidArgument, r"\(3, 8\)"),
        ({"zero_points": {"wei": np.ones(N)}}, InvalidArgument, "integers are needed"),
        ({"zero_points": {"src": 1}}, InvalidArgument, "integers alone have them"),
        ({"scales": {"src": np.ones((M, 1))}}, Unimplemented, "per_token"),
        ({"precomputed_reductions": {"src": 1}, "zero_points": {"wei": 1}}, InvalidArgument, "an integer matmul"),
    ],
)
def test_parameters_that_do_not_fit(arguments: dict[str, Any], error: type[SimdnnError], message: str) -> None:
    with pytest.raises(error, match=message) as raised:
        call("f32", "s8", Attr(fpmath="any", apply_to_int=True, **arguments))
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 400


def test_an_estimate_needs_no_values() -> None:
    known = Attr(fpmath="bf16", apply_to_int=True, scales={"wei": Quant(np.ones((2, N)), groups=(16, 1), dtype="bf16")})
    unknown = Attr(fpmath="bf16", apply_to_int=True, scales={"wei": Quant(None, groups=(16, 1), dtype="bf16")})
    ran = call("bf16", "s4", known)
    found = simdnn.estimate("matmul", m=M, n=N, k=K, dt="bf16:s4:f32", attr=unknown, machine="zen4")
    assert found.problem == ran.problem and found.cycles == ran.cycles
    row = ran.to_frame().loc[0]
    assert (row["wei"], row["wei_scale"], row["wei_zero_point"]) == ("s4", "grouped 16 bf16", "")
    assert '"wei_scale": "grouped 16 bf16"' in ran.to_json()
    with pytest.raises(InvalidArgument, match="say which"):
        attr = Attr(fpmath="bf16", apply_to_int=True, scales={"wei": Quant(None, mask=3)})
        simdnn.estimate("matmul", m=M, n=N, k=K, dt="bf16:s4:f32", attr=attr, machine="zen4")
    with pytest.raises(Unimplemented, match="ambiguous"):
        simdnn.estimate("matmul", m=M, n=N, k=K, dt="f32:u4:f32", machine="zen4")


# Any mixture: the right answer or a refusal. Numbers are such that every type here holds every sum. ------------------
@st.composite
def parameter(draw: st.DrawFn, k: int, n: int, values: st.SearchStrategy[Any], dtypes: list[str]) -> Quant:
    """Scales or zero points, now and then of a shape that does not fit."""
    group = draw(st.sampled_from([g for g in (1, 2, 3, 4, 8, 16, 32) if k % g == 0] + [k]))
    wrong = draw(st.integers(1, 25)) == 7
    placing = draw(st.sampled_from(["common", "per_oc", "grouped"]))
    shape = {"common": (1,), "per_oc": (n + wrong,), "grouped": (k // group + wrong, n)}[placing]
    filled = np.array([draw(values) for _ in range(4)])
    array = np.resize(filled, shape)
    groups = (group, 1) if placing == "grouped" and (draw(st.booleans()) or shape == (1, 1)) else None
    mask = None if groups else {"common": 0, "per_oc": 2, "grouped": None}[placing]
    return Quant(array, groups=groups, mask=mask, dtype=draw(st.sampled_from(dtypes)))


def whole(quant: Quant | None, k: int, n: int, default: float) -> Any:
    """A parameter as (K, N)."""
    if quant is None:
        return np.full((k, n), default)
    values = quant.values.astype(np.float64)
    return np.repeat(values, k // len(values), axis=0) if values.ndim == 2 else np.broadcast_to(values, (k, n))


@examples(300)
@given(st.data())
def test_any_attribute(data: st.DataObject) -> None:
    draw = data.draw
    src, wei = draw(st.sampled_from(list(SOURCES))), draw(st.sampled_from(list(WEIGHTS)))
    m, n, k = draw(st.integers(1, 9)), draw(st.integers(1, 20)), draw(st.sampled_from([1, 5, 8, 16, 30, 32, 48]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    a = rng.integers(-4, 4, (m, k), endpoint=True).astype(SOURCES[src])
    low, high = {"s8": (-100, 100), "u8": (0, 200), "s4": (-8, 7), "u4": (0, 15)}[wei]
    w = rng.integers(low, high, (k, n), endpoint=True).astype(WEIGHTS[wei])
    scales, points = {}, {}
    if draw(st.booleans()):
        scale = st.sampled_from([0.25, 0.5, 1.0, 2.0])
        scales["wei"] = draw(parameter(k, n, scale, ["f32", "bf16", "f16"]))
    if draw(st.booleans()):
        points["wei"] = draw(parameter(k, n, st.integers(0, 7), ["s32", "s8", "u8", "s4", "u4"]))
    bias = rng.integers(-8, 8, n).astype(np.float32) if draw(st.booleans()) else None
    dst = draw(st.sampled_from(["f32"] * 6 + ["bf16"] * 3 + ["f16", "s32"]))
    options = {
        "machine": draw(st.sampled_from(["zen4"] * 4 + ["icx", "clx"])),
        "isa": draw(st.sampled_from([None] * 4 + ["avx512_core", "avx2"])),
        "dispatch": draw(st.sampled_from(["fastest", "fastest", "onednn"])),
        "wei_tag": draw(st.sampled_from(["any"] * 6 + ["ab", "ba"])),
        "dst": dst,
    }
    try:
        attr = Attr(
            fpmath=draw(st.sampled_from([*MODES, "any", "bf16", None])),
            apply_to_int=draw(st.integers(1, 20)) != 7,
            scales=scales,
            zero_points=points,
            post_ops=["relu"] if draw(st.booleans()) else [],
        )
        result = simdnn.matmul(a, w, bias, attr=attr, **options)
    except (InvalidArgument, Unimplemented) as error:
        assert str(error) and "\n" not in str(error)
        return
    real = (w.astype(np.float64) - whole(points.get("wei"), k, n, 0)) * whole(scales.get("wei"), k, n, 1)
    sums = a.astype(np.float64) @ real + (0 if bias is None else bias)
    sums = np.maximum(sums, 0) if attr.post_ops else sums
    expected = sums.astype(np.float32).astype(SOURCES[dst])
    np.testing.assert_array_equal(result.output.astype(np.float64), expected.astype(np.float64))


# Registers -----------------------------------------------------------------------------------------------------------
@given(
    st.sampled_from(["s8", "u4", "f8_e4m3", "f6_e2m3", "f4_e2m1"]),
    st.sampled_from(["f32", "bf16", "f16"]),
    st.integers(1, 18),
    st.sampled_from([8, 16, 48, 128]),
    st.sampled_from(["", "column", "group"]),
    st.lists(st.sampled_from(["relu", "gelu_erf", "gelu_tanh", "exp", "log", "tanh", "hardswish"]), max_size=2),
)
@examples(40)
def test_sixteen_registers_do_for_any_ending(
    wei: str, dst: str, m: int, n: int, scales: str, post_ops: list[str]
) -> None:
    """Registers that a destination and post-operations take beside the sums, decoded weights and their scales."""
    given_scales = {"column": np.ones(n, np.float32), "group": np.ones((2, n), np.float32)}
    attr = Attr(
        fpmath="any",
        apply_to_int=True,
        scales={"wei": given_scales[scales]} if scales else {},
        post_ops=tuple(post_ops),
    )
    cost = simdnn.estimate("matmul", m=m, n=n, k=64, dt=f"f32:{wei}:{dst}", machine="hsw", attr=attr)
    assert cost.dispatch.reason.str.contains("cycles").any()  # every kernel that takes it has been written


def test_few_registers_yield_the_same_values() -> None:
    rng = np.random.default_rng(5)
    src, weights = rng.normal(size=(7, 64)).astype(np.float32), rng.integers(-8, 8, (64, 24)).astype(np.int8)
    attr = Attr(fpmath="any", apply_to_int=True, scales={"wei": np.full((2, 24), 0.125, np.float32)}, post_ops=["tanh"])
    few = simdnn.matmul(src, weights, machine="hsw", attr=attr, dispatch="wdec_fused:avx2", dst="bf16")
    exact = np.tanh(src.astype(np.float64) @ (weights * 0.125))
    assert np.abs(few.output.astype(np.float64) - exact).max() < 2.0**-8
