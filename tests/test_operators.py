"""Primitives of one operator beside their definitions: exact where they are, within roundings elsewhere."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simdnn
from isa_models import InvalidArgument
from isa_models.isa import implied
from simdnn.benchdnn import definitions
from tests.effort import one_in

RNG = np.random.default_rng(5)
FLOATS = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
INTEGERS = {"s8": np.int8, "u8": np.uint8}
TYPES = FLOATS | INTEGERS
MACHINES = ["zen4", "hsw", "b580"]


def drawn(dtype: str, *shape: int) -> Any:
    if dtype in INTEGERS:
        info = np.iinfo(INTEGERS[dtype])
        return RNG.integers(info.min, info.max, shape, endpoint=True).astype(INTEGERS[dtype])
    return RNG.standard_normal(shape).astype(np.float32).astype(FLOATS[dtype])


def rounded(values: Any, dtype: str, scale: float = 1.0) -> Any:
    """f32 values over a scale, rounded once into a type; integers saturate."""
    wide = np.asarray(values, np.float32) / np.float32(scale)
    if dtype in FLOATS:
        return wide.astype(FLOATS[dtype])
    info = np.iinfo(INTEGERS[dtype])
    return np.clip(np.rint(wide), info.min, info.max).astype(INTEGERS[dtype])


def near(found: Any, wanted: Any, dtype: str) -> None:
    """Within some roundings of f32 and one of the type; integers by one where a value lies between two."""
    assert found.dtype == TYPES[dtype] and found.shape == wanted.shape
    if dtype in INTEGERS:
        assert abs(found.astype(int) - wanted.astype(int)).max() <= 1
        assert (found != wanted).mean() < 0.02
    else:
        ulp = {"f32": 2e-6, "bf16": 2**-7, "f16": 2**-10}[dtype]
        wide = wanted.astype(np.float64)
        np.testing.assert_allclose(found.astype(np.float64), wide, rtol=ulp, atol=ulp * 0.2 * abs(wide).max())


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("src", "dst"), [("f32", "f32"), ("bf16", "bf16"), ("f32", "u8"), ("bf16", "s8"), ("s8", "u8")]
)
def test_softmax(src: str, dst: str, machine: str) -> None:
    x = drawn(src, 5, 3, 17)
    scales = {"src": 0.05, "dst": 1 / 127} if dst in INTEGERS else {"src": 0.05}
    r = simdnn.softmax(x, 1, machine=machine, dst=dst, scales=scales)
    wide = x.astype(np.float64) * np.float32(0.05)
    powers = np.exp(wide - wide.max(1, keepdims=True))
    near(r.output, rounded(powers / powers.sum(1, keepdims=True), dst, scales.get("dst", 1.0)), dst)
    assert r.cycles > 0 and "reduce" in r.implementation


@pytest.mark.parametrize(("src", "dst"), [("f32", "f32"), ("bf16", "bf16"), ("f32", "s8"), ("u8", "s8")])
def test_layer_normalization(src: str, dst: str) -> None:
    x, scale, shift = drawn(src, 6, 40), drawn("f32", 40), drawn("f32", 40)
    r = simdnn.layer_normalization(x, scale, shift, machine="zen4", dst=dst, scales={"dst": 0.02})
    wide = x.astype(np.float64)
    centred = wide - wide.mean(-1, keepdims=True)
    exact = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + shift
    near(r.output, rounded(exact, dst, 0.02), dst)
    bare = simdnn.layer_normalization(x, machine="zen4", dst="f32").output
    np.testing.assert_allclose(bare.mean(-1), 0, atol=1e-5)


def test_every_function_of_elements_has_a_definition_here() -> None:
    from simdnn.operators.graphs import BINARY, ELTWISE

    assert set(ELTWISE) == set(definitions.ELTWISE) and set(BINARY) == set(definitions.BINARY)


@pytest.mark.parametrize("name", definitions.ELTWISE)
def test_eltwise(name: str) -> None:
    x = drawn("f32", 4, 33)
    x = abs(x) if name in ("sqrt", "log", "pow") else x
    alpha, beta = {"clip": (-0.5, 0.75), "pow": (2.0, 3.0)}.get(name, (0.25, 0.5))
    exact = definitions.ELTWISE[name](x.astype(np.float64), alpha, beta)
    for dst, machine in (("f32", "zen4"), ("f32", "b580"), ("bf16", "hsw")):
        found = simdnn.eltwise(x, name, alpha, beta, machine=machine, dst=dst).output.astype(np.float64)
        unit = 2**-8 if dst == "bf16" else 2**-21
        assert abs(found - exact).max() <= unit * max(1.0, abs(exact).max()), name


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(["add", "sub", "mul", "div", "max", "min", "eq", "ne", "gt", "ge", "lt", "le"]),
    st.sampled_from(list(TYPES)),
    st.sampled_from(list(TYPES)),
    st.sampled_from(list(TYPES)),
    st.integers(1, 40),
    st.integers(1, 4),
)
def test_binary(name: str, left: str, right: str, dst: str, columns: int, rows: int) -> None:
    a, b = drawn(left, rows, columns), drawn(right, 1, columns)
    found = simdnn.binary(a, b, name, machine="zen4", dst=dst, scales={"dst": 0.5}).output
    with np.errstate(all="ignore"):
        exact = definitions.BINARY[name](a.astype(np.float32), b.astype(np.float32)).astype(np.float32)
        wanted = rounded(exact, dst, 0.5) if dst in FLOATS else None
        if wanted is None:
            ok = np.isfinite(exact)
            wanted = rounded(np.where(ok, exact, 0), dst, 0.5)
            found = np.where(ok, found, wanted)
    np.testing.assert_array_equal(found.astype(np.float32), wanted.astype(np.float32))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("algorithm", ["max", "avg_include_padding", "avg_exclude_padding"])
def test_pooling(dtype: str, algorithm: str) -> None:
    x = drawn(dtype, 2, 5, 7, 6)
    r = simdnn.pooling(x, (3, 2), algorithm, strides=2, padding=(1, 0), machine="zen4")
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (0, 0)), constant_values=np.nan)
    wanted = np.empty((2, 5, 4, 3))
    for i in range(4):
        for j in range(3):
            window = wide[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 2]
            total, count = np.nansum(window, (2, 3)), np.sum(~np.isnan(window[0, 0]))
            wanted[:, :, i, j] = {
                "max": np.nanmax(window, (2, 3)),
                "avg_include_padding": total / 6,
                "avg_exclude_padding": total / count,
            }[algorithm]
    if dtype in INTEGERS or algorithm == "max":
        np.testing.assert_array_equal(r.output, rounded(wanted, dtype))
    else:
        near(r.output, rounded(wanted, dtype), dtype)
    assert r.output.dtype == x.dtype


@pytest.mark.parametrize(("src", "wei"), [("f32", "f32"), ("bf16", "bf16"), ("u8", "s8"), ("s8", "s8")])
@pytest.mark.parametrize("groups", [1, 2])
def test_deconvolution(src: str, wei: str, groups: int) -> None:
    x, w, bias = drawn(src, 2, 8, 4, 3), drawn(wei, 6, 8 // groups, 3, 2), drawn("f32", 6)
    options: dict[str, Any] = {"strides": (2, 1), "padding": (1, 0), "groups": groups}
    r = simdnn.deconvolution(x, w, bias, **options, dst="f32", machine="zen4")
    full = np.zeros((2, 6, 9, 4))
    for i, j, kh, kw in np.ndindex(4, 3, 3, 2):
        for g in range(groups):
            mine = slice(g * 8 // groups, (g + 1) * 8 // groups), slice(g * 6 // groups, (g + 1) * 6 // groups)
            part = x[:, mine[0], i, j].astype(np.float64) @ w[mine[1], :, kh, kw].T.astype(np.float64)
            full[:, mine[1], 2 * i + kh, j + kw] += part
    wanted = full[:, :, 1:-1] + bias.reshape(6, 1, 1)
    np.testing.assert_allclose(
        r.output, wanted, rtol=1e-5 if src != "bf16" else 2**-6, atol=1e-4 if src != "bf16" else 0.1
    )
    if src in INTEGERS:
        np.testing.assert_array_equal(r.output, (full[:, :, 1:-1].astype(np.float32) + bias.reshape(6, 1, 1)))


def test_inner_product_is_the_matmul_of_flattened_channels() -> None:
    x, w = drawn("u8", 3, 8, 2, 2), drawn("s8", 5, 8, 2, 2)
    r = simdnn.inner_product(x, w, machine="zen4")
    np.testing.assert_array_equal(r.output, x.reshape(3, -1).astype(int) @ w.reshape(5, -1).T.astype(int))
    sizes = {"mb": 3, "ic": 8, "oc": 5, "spatial": (2, 2), "dt": "u8:s8:s32", "machine": "zen4"}
    assert simdnn.estimate("inner_product", **sizes).cycles == r.cycles
    theirs = simdnn.inner_product(x, w, machine="zen4", dispatch="onednn")
    np.testing.assert_array_equal(theirs.output, r.output)
    assert simdnn.estimate("inner_product", dispatch="onednn", **sizes).cycles == theirs.cycles
    with pytest.raises(simdnn.Unimplemented, match="weights of others"):
        simdnn.inner_product(x, w, machine="hsw", dispatch="onednn")
    with pytest.raises(simdnn.Unimplemented, match="no zero points"):
        simdnn.inner_product(x, w, machine="zen4", dispatch="onednn", attr=simdnn.Attr(zero_points={"src": 3}))
    with pytest.raises(simdnn.Unimplemented, match="onnxruntime's kernels for inner products"):
        simdnn.estimate("inner_product", dispatch="onnxruntime", **sizes)


@pytest.mark.parametrize(("stored", "least"), [("bf16", "avx512_core"), ("f16", "avx512_core_fp16")])
def test_the_librarys_int8_inner_products_have_types_of_16_bits_from_a_cap(stored: str, least: str) -> None:
    """Of a bias and of the destination: bf16 and f16 below it are refused by oneDNN 3.13.2, asked under eight caps."""
    src, weights = np.ones((2, 8), np.uint8), np.ones((4, 8), np.int8)
    bias = np.ones(4, FLOATS[stored])
    where: dict[str, Any] = {"machine": "gnr", "dispatch": "onednn"}
    for isa in ("avx2", "avx2_vnni", "avx512_core", "avx512_core_bf16", "avx512_core_fp16", "avx512_core_amx"):
        if least in implied(isa):
            assert simdnn.inner_product(src, weights, bias, isa=isa, dst="f32", **where).output[0, 0] == 9
            assert simdnn.inner_product(src, weights, bias, isa=isa, dst=stored, **where).output[0, 0] == 9
            continue
        with pytest.raises(simdnn.Unimplemented, match=f"bias of {stored} below {least}: f32, s32, s8 and u8 work"):
            simdnn.inner_product(src, weights, bias, isa=isa, dst="f32", **where)
        with pytest.raises(simdnn.Unimplemented, match="oneDNN"):
            simdnn.inner_product(src, weights, isa=isa, dst=stored, **where)


@pytest.mark.parametrize(
    ("name", "call", "shape"),
    [
        ("softmax", lambda x: simdnn.softmax(x, machine="icx", dst="u8"), {"dt": "f32:u8"}),
        ("layer_normalization", lambda x: simdnn.layer_normalization(x, machine="icx"), {}),
        ("eltwise", lambda x: simdnn.eltwise(x, "gelu_erf", machine="icx"), {"algorithm": "gelu_erf"}),
        ("pooling", lambda x: simdnn.pooling(x, 2, machine="icx"), {"kernel": 2}),
    ],
)
def test_a_cost_without_data_is_that_of_the_run(name: str, call: Any, shape: dict[str, Any]) -> None:
    x = drawn("f32", 2, 3, 8, 10)
    told = simdnn.estimate(name, src=x.shape, machine="icx", **shape)
    ran = call(x)
    assert told.cycles == ran.cycles and told.implementation == ran.implementation


@pytest.mark.parametrize(("src", "dst"), [("f32", "f32"), ("s8", "f32"), ("bf16", "s8"), ("s32", "u8"), ("f32", "s32")])
def test_a_conversion_has_the_bits_of_onednns_reorder(src: str, dst: str) -> None:
    """Its rule, compared with oneDNN 3.13's on 171 reorders: scales one after the other, the destination's inverted."""
    kinds = {**TYPES, "s32": np.int32}
    x = (RNG.standard_normal((3, 40)) * 90).astype(np.float32).astype(kinds[src])
    scales = {"src": 0.3, "dst": 0.7}
    point = 0 if dst == "f32" else 3
    points = {"zero_points": {"dst": point}} if point else {}
    wide = x.astype(np.float32) * np.float32(0.3) * (np.float32(1) / np.float32(0.7)) + np.float32(point)
    wanted = wide
    if dst != "f32":
        info = np.iinfo(kinds[dst])
        wanted = np.clip(np.rint(wide.astype(np.float64)), info.min, info.max)
    for engine in ("reference", "compiled"):
        r = simdnn.conversion(x, machine="zen4", dst=dst, scales=scales, **points, engine=engine)
        np.testing.assert_array_equal(r.output, wanted.astype(kinds[dst]))
    told = simdnn.estimate("conversion", src=x.shape, dt=f"{src}:{dst}", machine="zen4", scales=scales, **points)
    assert told.cycles == r.cycles > 0


def test_what_is_beyond_s32_is_the_greatest_f32_below() -> None:
    x = np.array([3e9, -3e9, 2147483520, 1.5], np.float32)
    found = simdnn.conversion(x, machine="zen4", dst="s32").output
    assert found.tolist() == [2147483520, -2147483648, 2147483520, 2]


@one_in(3, "machine")
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize(("algorithm", "size"), [("across_channels", 5), ("within_channel", 4), ("within_channel", 7)])
def test_lrn_divides_by_what_lies_around(algorithm: str, size: int, dtype: str, machine: str) -> None:
    x = drawn(dtype, 2, 9, 4, 5)
    for beta in (0.75, 1.0, 0.6):
        options = {"algorithm": algorithm, "size": size, "alpha": 0.5, "beta": beta, "k": 2.0}
        found = [simdnn.lrn(x, **options, machine=machine, engine=engine) for engine in ("reference", "compiled")]
        wanted = definitions.exact("lrn", [x.astype(np.float64)], {}, options)
        near(found[0].output, rounded(wanted, dtype), dtype)
        assert found[0].output.tobytes() == found[1].output.tobytes()
        told = simdnn.estimate("lrn", src=x.shape, dt=dtype, machine=machine, **options)
        assert told.cycles == found[0].cycles > 0


def test_lrn_is_of_floats() -> None:
    with pytest.raises(simdnn.InvalidArgument, match="type of src 's8'"):
        simdnn.lrn(drawn("s8", 1, 8, 2, 2), 5, machine="zen4")


def test_shuffle_takes_rows_of_a_group() -> None:
    x = np.arange(12, dtype=np.int8).reshape(1, 12, 1)
    found = simdnn.shuffle(x, 4, machine="hsw").output.reshape(-1)
    assert found.tolist() == [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]


@pytest.mark.parametrize("post_op", ["hardswish", "hardsigmoid", "linear", "elu", "swish", ("linear", 2.0)])
def test_post_operations_have_the_numbers_by_default_that_a_products_have(post_op: Any) -> None:
    x = np.array([[-1, 1, 4]], np.float32)
    found = simdnn.binary(x, np.zeros_like(x), "add", machine="zen4", post_ops=[post_op])
    product = simdnn.matmul(x, np.eye(3, dtype=np.float32), machine="zen4", attr=simdnn.Attr(post_ops=[post_op]))
    np.testing.assert_allclose(found.output, product.output, rtol=1e-6)
    with pytest.raises(simdnn.InvalidArgument, match="clip takes 2 numbers"):
        simdnn.binary(x, x, "add", machine="zen4", post_ops=["clip"])


@pytest.mark.parametrize("machine", MACHINES)
def test_post_operations_stand_ahead_of_the_destinations_scale(machine: str) -> None:
    x, other, held = drawn("f32", 2, 3, 4), drawn("bf16", 1, 3, 1), drawn("s8", 2, 3, 4)
    ops = [("add", other), ("sum", 0.5, 2), ("relu", 0.25)]
    r = simdnn.eltwise(x, "abs", machine=machine, dst="s8", scales={"dst": 0.5}, post_ops=ops, into=held)
    wide = abs(x) + other.astype(np.float32) + np.float32(0.5) * (held.astype(np.float32) - 2)
    np.testing.assert_array_equal(r.output, rounded(np.where(wide > 0, wide, wide * np.float32(0.25)), "s8", 0.5))
    with pytest.raises(simdnn.InvalidArgument, match="into is missing"):
        simdnn.eltwise(x, "abs", machine=machine, post_ops=["sum"])
    with pytest.raises(simdnn.InvalidArgument, match="did you mean 'relu'"):
        simdnn.eltwise(x, "abs", machine=machine, post_ops=["rleu"])


WRONG = [
    (lambda: simdnn.softmax(drawn("f32", 2, 3), 2, machine="zen4"), "axis=2 of an array with 2"),
    (lambda: simdnn.softmax(np.zeros((2, 3)), machine="zen4"), "f64|float64"),
    (lambda: simdnn.softmax(drawn("f32", 2, 3), machine="zen4", dst="s4"), "dst 's4'"),
    (lambda: simdnn.softmax(drawn("f32", 2), machine="zen4", scales={"wei": 1.0}), "scales of 'wei'"),
    (lambda: simdnn.softmax(drawn("f32", 2), machine="zen4", scales={"dst": 0}), "other than 0"),
    (lambda: simdnn.eltwise(drawn("f32", 2), "gelu", machine="zen4"), "gelu_erf"),
    (lambda: simdnn.binary(drawn("f32", 2), drawn("f32", 3), "add", machine="zen4"), "broadcast"),
    (lambda: simdnn.pooling(drawn("f32", 2, 3), 2, machine="zen4"), "N, C, IH, IW"),
    (lambda: simdnn.pooling(drawn("f32", 1, 1, 2, 2), 3, machine="zen4"), "window of 3"),
    (lambda: simdnn.deconvolution(drawn("u8", 1, 4, 2, 2), drawn("u8", 1, 4, 2, 2), machine="zen4"), "s8 x s8"),
    (lambda: simdnn.estimate("softmax", machine="zen4"), "without the shape of src"),
    (lambda: simdnn.estimate("softmax", src=(2, 3), axis=5, machine="zen4"), "axis=5"),
    (lambda: simdnn.estimate("binary", src0=(2, 3), src1=(2, 3), machine="zen4"), "binary without algorithm"),
    (lambda: simdnn.estimate("pooling", src=(1, 2, 3, 3), machine="zen4"), "pooling without kernel"),
    (lambda: simdnn.softmax(drawn("f32", 2), machine="zen4", scales=3), "scales=3"),
    (lambda: simdnn.eltwise(drawn("f32", 2), "clip", "a", machine="zen4"), "alpha='a'"),
    (lambda: simdnn.layer_normalization(drawn("f32", 2, 3), 3, machine="zen4"), "scale"),
    (lambda: simdnn.deconvolution(drawn("f32", 1, 2, 4, 4), 3, machine="zen4"), "weights"),
    (
        lambda: simdnn.deconvolution(drawn("f32", 1, 2, 4, 4), drawn("f32", 3, 2, 2, 2), padding=9, machine="zen4"),
        "-13 rows",
    ),
    (
        lambda: simdnn.softmax(drawn("f32", 2, 3), machine="zen4", post_ops=3),
        r"post_ops=3; a list is needed, as \['relu'",
    ),
    (lambda: simdnn.concat(drawn("f32", 2, 3), machine="zen4"), "a list of arrays is needed"),
    (lambda: simdnn.weighted_sum([], [], machine="zen4"), r"sources=\[\]"),
    (lambda: simdnn.weighted_sum([drawn("f32", 2)], 3, machine="zen4"), "factors=3; a list of numbers"),
    (lambda: simdnn.weighted_sum([drawn("f32", 2)], machine="zen4", scales={"dst": 2.0}), "a sum has none"),
    (lambda: simdnn.concat([drawn("f32", 1, 2)], machine="zen4", into=drawn("f32", 1, 2)), "into"),
    (lambda: simdnn.reduction(drawn("f32", 2, 3), [], machine="zen4"), r"axes=\[\]; a list is needed"),
    (lambda: simdnn.reduction(drawn("f32", 2, 3), [1, -1], machine="zen4"), "each axis once"),
    (lambda: simdnn.reduction(drawn("f32", 2, 3), [1], p="two", machine="zen4"), "p='two'"),
    (lambda: simdnn.layer_normalization(drawn("f32", 2, 3), epsilon=-1.0, machine="zen4"), "epsilon=-1.0; 0 or"),
    (lambda: simdnn.softmax(drawn("f32", 2, 3), logarithm="no", machine="zen4"), "logarithm='no'; True or False"),
    (lambda: simdnn.softmax(drawn("f32", 2, 3), dispatch="gemm:avx2", machine="zen4"), "softmax has fastest, onednn"),
    (lambda: simdnn.softmax(None, machine="zen4"), "src is a NoneType; a NumPy array"),
    (lambda: simdnn.reduction(drawn("f32", 2, 3), 1, machine="zen4"), r"axes=1; a list is needed, as \[1\]"),
    (lambda: simdnn.layer_normalization(drawn("f32", 2, 3), variance=1.0, machine="zen4"), "variance is a float"),
    (lambda: simdnn.estimate("softmaxx", src=(2, 3), machine="zen4"), "did you mean 'softmax'"),
    (lambda: simdnn.estimate("softmax", src=(2, 3), kernel=5, machine="zen4"), "kernel"),
]


@pytest.mark.parametrize(("call", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_does_not_fit_is_named(call: Any, message: str) -> None:
    with pytest.raises(simdnn.SimdnnError, match=message):
        call()


@pytest.mark.parametrize("isa", ["avx2", "avx512_core"])
@settings(max_examples=8, deadline=None)
@given(st.integers(1, 90), st.booleans(), st.booleans())
def test_a_librarys_order_of_sums_is_that_of_its_accumulators(isa: str, size: int, logarithm: bool, rms: bool) -> None:
    """Softmax and layer normalization under "onednn", beside plain loops over registers in f32."""
    lanes = 8 if isa == "avx2" else 16
    x = drawn("f32", 2, size)
    where: dict[str, Any] = {"machine": "spr", "isa": isa, "dispatch": "onednn"}

    def folded(register: Any) -> Any:
        while register.shape[1] > 1:
            half = register.shape[1] // 2
            register = register[:, :half] + register[:, half:]
        return register

    def registers(values: Any) -> list[Any]:
        padded = np.pad(values, ((0, 0), (0, -size % lanes)))
        return [padded[:, i : i + lanes] for i in range(0, padded.shape[1], lanes)]

    def in_turns(values: Any) -> Any:
        sums = [np.zeros((2, lanes), np.float32) for _ in range(4)]
        for i, register in enumerate(registers(values)):
            turn = i % 4 if (i + 1) * lanes <= size else 0
            sums[turn] = sums[turn] + register
        return folded((sums[0] + sums[1]) + (sums[2] + sums[3]))

    def in_rounds(values: Any, squares: bool) -> Any:
        sums, every = [np.zeros((2, lanes), np.float32) for _ in range(4)], registers(values)
        whole = size // lanes // 4 * 4

        def onto(acc: Any, register: Any) -> Any:
            if not squares:
                return acc + register
            return (acc.astype(np.float64) + register.astype(np.float64) ** 2).astype(np.float32)

        for i in range(whole):
            sums[i % 4] = onto(sums[i % 4], every[i])
        total = (sums[0] + sums[2]) + (sums[1] + sums[3])
        for register in every[whole:]:
            total = onto(total, register)
        return folded(total) / np.float32(size)

    top = x.max(1, keepdims=True)
    powers = simdnn.eltwise(x - top, "exp", machine="spr", isa=isa).output
    total = in_turns(powers)
    wanted = powers * (np.float32(1) / total)
    if logarithm:
        wanted = (x - top) - simdnn.eltwise(total, "log", **where).output
    np.testing.assert_array_equal(simdnn.softmax(x, logarithm=logarithm, **where).output, wanted)

    centred = x if rms else x - in_rounds(x, False)
    inverse = np.float32(1) / np.sqrt(in_rounds(centred, True) + np.float32(1e-5))
    np.testing.assert_array_equal(simdnn.layer_normalization(x, rms=rms, **where).output, centred * inverse)


@pytest.mark.parametrize(("channels", "last"), [(16, True), (24, True), (12, True), (16, False), (5, True)])
def test_a_librarys_batch_normalization_by_given_statistics(channels: int, last: bool) -> None:
    """Its vector kernel where channels lie last and fill registers, (x - mean) * (1 / sd); else scale / sd first."""
    x = drawn("f32", 2, 3, 4, channels).transpose(0, 3, 1, 2)
    x = x if last else np.ascontiguousarray(x)
    scale, shift, mean, variance = (drawn("f32", channels) for _ in range(4))
    rows = {"scale": scale, "shift": shift, "mean": mean, "variance": abs(variance) + np.float32(0.1)}
    found = simdnn.batch_normalization(x, **rows, machine="icx", dispatch="onednn").output
    scale, shift, mean, variance = (row.reshape(-1, 1, 1) for row in rows.values())
    spread = np.sqrt(variance + np.float32(1e-5))
    if not last or channels % 4:
        wanted = (x - mean) * (scale / spread) + shift
    else:
        unit = (x - mean) * (np.float32(1) / spread)
        wanted = (unit.astype(np.float64) * scale + shift).astype(np.float32)
    np.testing.assert_array_equal(found, wanted)


def test_a_librarys_primitive_costs_the_same_without_data() -> None:
    x = drawn("f32", 3, 70)
    ran = simdnn.softmax(x, machine="icx", dispatch="onednn")
    told = simdnn.estimate("softmax", src=x.shape, machine="icx", dispatch="onednn")
    assert (told.cycles, told.implementation) == (ran.cycles, ran.implementation)
    image, weights = drawn("u8", 1, 8, 5, 6), drawn("s8", 16, 8, 3, 2)
    for strides in (1, 2):
        deep = simdnn.deconvolution(image, weights, strides=strides, machine="icx", dispatch="onednn")
        shapes: dict[str, Any] = {"src": image.shape, "weights": weights.shape, "strides": strides, "dt": "u8:s8:f32"}
        told = simdnn.estimate("deconvolution", machine="icx", dispatch="onednn", **shapes)
        assert told.cycles == deep.cycles > 0
        np.testing.assert_array_equal(
            deep.output, simdnn.deconvolution(image, weights, strides=strides, machine="icx").output
        )


def test_both_scales_of_a_librarys_softmax_multiply_what_comes_of_it() -> None:
    x, scales = drawn("s8", 4, 20), {"src": 64.0, "dst": 0.5}
    found = simdnn.softmax(x, machine="icx", dst="u8", scales=scales, dispatch="onednn").output
    plain = simdnn.softmax(x, machine="icx", dst="f32", dispatch="onednn").output
    np.testing.assert_array_equal(found, np.clip(np.rint(plain * 128), 0, 255))


@pytest.mark.parametrize("machine", ["zen4", "b580", "h100"])
def test_pooling_of_three_dimensions_is_a_kernel(machine: str) -> None:
    x = drawn("f32", 1, 5, 4, 6, 5)
    for algorithm in ("max", "avg_exclude_padding"):
        r = simdnn.pooling(x, (2, 3, 2), algorithm, strides=(1, 2, 1), padding=(1, 1, 0), machine=machine)
        taps = {"kernel": (2, 3, 2), "strides": (1, 2, 1), "dilation": (1, 1, 1), "padding": (1, 1, 0) * 2}
        wanted = definitions.exact("pooling", [x.astype(np.float64)], {}, {"algorithm": algorithm, **taps})
        near(r.output, wanted.astype(np.float32), "f32")
        assert "estimate" not in r.implementation
        told = simdnn.estimate("pooling", src=x.shape, algorithm=algorithm, machine=machine, **{**taps})
        assert told.cycles == r.cycles


REFUSALS = [
    (lambda x: simdnn.eltwise(x, "relu", post_ops=["abs"], **ONEDNN), "takes no abs behind it"),
    (lambda x: simdnn.softmax(x.astype(np.float16), isa="avx512_core", **ONEDNN), "needs avx512_core_fp16"),
    (lambda x: simdnn.deconvolution(x[..., None], x[..., None], dst="s8", **ONEDNN), "f32 with other types"),
    (lambda x: simdnn.softmax(x, machine="b580", dispatch="onednn"), "on GPUs is not modelled"),
    (lambda x: simdnn.softmax(x, machine="spr", dispatch="ggml"), "library's softmax is not modelled"),
]
ONEDNN: dict[str, Any] = {"machine": "spr", "dispatch": "onednn"}


@pytest.mark.parametrize(("call", "message"), REFUSALS, ids=[message for _, message in REFUSALS])
def test_what_of_a_library_is_not_followed_is_named(call: Any, message: str) -> None:
    with pytest.raises(simdnn.Unimplemented, match=message):
        call(drawn("f32", 4, 4))


def test_messages_are_short_whatever_was_met() -> None:
    """Arguments in another order, or large: what is allowed stands behind the value all the same."""
    a, large = np.ones((40, 40), np.float32), list(range(5000))
    for call, said in (
        (lambda: simdnn.binary("add", a, a, machine="zen4"), "Allowed: add, sub"),
        (lambda: simdnn.eltwise("relu", a, machine="zen4"), "Allowed: abs, clip"),
        (lambda: simdnn.softmax(a, machine=a), "machine"),
        (lambda: simdnn.softmax(a, machine="zen4", threads=large), "an integer of at least 1"),
        (lambda: simdnn.reduction(a, large, machine="zen4"), "2 dimensions"),
    ):
        with pytest.raises(simdnn.SimdnnError, match=said) as caught:
            call()
        assert len(str(caught.value)) < 500


@pytest.mark.parametrize(("isa", "kept"), [("avx512_core", False), ("avx512_core_fp16", True)])
def test_a_reorder_by_loops_loses_the_sign_of_a_zero(isa: str, kept: bool) -> None:
    """Recorded of oneDNN 3.13.2: loops over elements add 0, also where nothing else is asked for."""
    zeros = np.array([-0.0, 0.0, -2.0], np.float16)
    for dst in ("f32", "f16"):
        found = simdnn.conversion(zeros, dst=dst, machine="spr", isa=isa, dispatch="onednn").output
        assert np.signbit(found).tolist() == [kept, False, True]


def test_errors_tell_of_the_primitive_and_not_of_its_graph() -> None:
    src, other = np.ones((4, 8), np.float32), np.ones((8, 16), np.float32)
    said = r"^binary: shapes \(4, 8\), \(8, 16\) do not broadcast$"
    with pytest.raises(InvalidArgument, match=said):
        simdnn.binary(src, other, "add", machine="zen4")
