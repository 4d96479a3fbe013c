"""Each wrong call gives a typed error of one line that says what was met and what works, and never another one."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import isa_models
import simdnn
from isa_models.formats import fmt
from simdnn import Attr, InvalidArgument, Quant, SimdnnError, Unimplemented, UnknownName
from tests.effort import examples
from tests.primitives.problems import convolve

F = np.ones((4, 8), np.float32)
W = np.ones((8, 5), np.float32)
U = np.ones((4, 8), np.uint8)
S = np.ones((8, 5), np.int8)
IMAGE = np.ones((1, 4, 5, 5), np.uint8)
TAPS = np.ones((6, 4, 3, 3), np.int8)
BF16 = ml_dtypes.bfloat16
HUGE = np.broadcast_to(np.float32(1), (1 << 17, 1 << 17))

Case = tuple[Any, Any, dict[str, Any], type[SimdnnError], str]
#: said alike on every target
MATMUL: list[Case] = [
    ([[1.0]], W, {}, InvalidArgument, "src is a list.*np.asarray"),
    (3.0, W, {}, InvalidArgument, "src is a float"),
    (F, None, {}, InvalidArgument, "weights is a NoneType"),
    (np.ma.masked_array(F, F > 0), W, {}, InvalidArgument, "src is a MaskedArray"),
    (F.astype(np.float64), W, {}, InvalidArgument, r"float64; allowed: f32.*astype\(np.float32\)"),
    (U.astype(np.int64), S, {}, InvalidArgument, r"int64.*astype\(np.int8\)"),
    (U, S.astype(bool), {}, InvalidArgument, "bool"),
    (F.astype(complex), W, {}, InvalidArgument, "complex128"),
    (F.astype(object), W, {}, InvalidArgument, "object"),
    (F.astype("U3"), W, {}, InvalidArgument, "<U3"),
    (np.zeros((4, 8), [("a", "f4")]), W, {}, InvalidArgument, "'a'"),
    (F[:, :7], W, {}, InvalidArgument, "K 7 != 8"),
    (F, np.ones((5, 8), np.float32), {}, InvalidArgument, r"K 8 != 5; weights.T would fit"),
    (F[0], W, {}, InvalidArgument, r"src\[None, :\]"),
    (F, W[:, 0], {}, InvalidArgument, r"weights\[:, None\]"),
    (np.float32(1), W, {}, InvalidArgument, "src is a float32"),
    (np.array(1, np.float32), W, {}, InvalidArgument, "2 dimensions"),
    (np.stack([F, F]), np.stack([W, W, W]), {}, InvalidArgument, "does not broadcast"),
    (F[:0], W, {}, InvalidArgument, "empty; M"),
    (F[:, :0], W[:0], {}, InvalidArgument, "empty; K"),
    (F, W[:, :0], {}, InvalidArgument, "empty; N"),
    (HUGE, HUGE, {}, InvalidArgument, "bytes"),
    (np.broadcast_to(U[0, 0], (1 << 18, 1)), np.broadcast_to(S[0, 0], (1, 1 << 18)), {}, InvalidArgument, "dst.*bytes"),
    (F, S, {}, Unimplemented, "ambiguous: quantize.*apply_to_int=True"),
    (F.astype(BF16), S.astype(ml_dtypes.int4), {}, Unimplemented, "ambiguous"),
    (F.astype(np.float16), W, {}, Unimplemented, "f16 source with f32 weights"),
    (F, W, {"dispatch": "gemm:avx512_core_tf31"}, InvalidArgument, "did you mean 'gemm:avx512_core_tf32'"),
    (F, W, {"dispatch": "gemm:avx512_core_fp16_down"}, Unimplemented, "isa: needs avx512_core_fp16"),
    (F, W, {"machine": "zen"}, UnknownName, "did you mean 'zen[345]'"),
    (F, W, {"machine": ""}, UnknownName, "machine ''"),
    (F, W, {"machine": 4}, InvalidArgument, "machine=4"),
    (F, W, {"machine": None}, InvalidArgument, "machine=None"),
    (F, W, {"machine": Path("no/such.toml")}, SimdnnError, "no/such.toml"),
    (F, W, {"threads": 0}, InvalidArgument, "threads=0"),
    (F, W, {"threads": -1}, InvalidArgument, "threads=-1"),
    (F, W, {"threads": 1.0}, InvalidArgument, "threads=1.0"),
    (F, W, {"threads": True}, InvalidArgument, "threads=True"),
    (F, W, {"engine": "compile"}, InvalidArgument, "did you mean 'compiled'"),
    (F, W, {"engine": None}, InvalidArgument, "engine None"),
    (F, W, {"wei_tag": "ca"}, InvalidArgument, "Allowed: any, ab, ba"),
    (F, W, {"dst": "f23"}, InvalidArgument, "did you mean 'f32'"),
    (F, W, {"dst": np.float32}, InvalidArgument, "Allowed: f32, bf16, f16, s8, u8"),
    (F, W, {"dst": "s32"}, InvalidArgument, "with a source of f32.*Allowed: f32"),
    (F, W, {"dst": "f17"}, InvalidArgument, "did you mean 'bf16'|did you mean 'f16'"),
    (F, W, {"attr": {"fpmath": "bf16"}}, InvalidArgument, "simdnn.Attr"),
    (F, W, {"attr": Attr(zero_points={"src": 1})}, InvalidArgument, "zero_points"),
    (F, W, {"bias": [0.0] * 5}, InvalidArgument, "bias is a list"),
    (F, W, {"bias": np.ones(5)}, InvalidArgument, r"bias.astype\(np.float32\)"),
    (F, W, {"bias": np.ones(4, np.float32)}, InvalidArgument, r"needed: \(5,\)"),
    (F, W, {"bias": np.ones((1, 5), np.float32)}, InvalidArgument, r"\(1, 5\)"),
    (U, S, {"attr": Attr(scales={"wei": np.ones(4)})}, InvalidArgument, r"\(5,\) per_oc"),
    (U, S, {"attr": Attr(scales={"src": Quant(None)})}, InvalidArgument, "no values"),
    (U, S, {"attr": Attr(fpmath="bf16")}, InvalidArgument, "allowed for integers"),
]
CONVOLUTION: list[Case] = [
    (IMAGE[0], TAPS, {}, InvalidArgument, r"src\[None\]"),
    (IMAGE, TAPS[0], {}, InvalidArgument, "OC, IC/G, KH, KW"),
    (IMAGE[:, :0], TAPS, {}, InvalidArgument, "empty; IC"),
    (IMAGE, TAPS[:, :, :0], {}, InvalidArgument, "empty; KH"),
    (IMAGE, TAPS[:, :3], {}, InvalidArgument, "src has 4 channels.*3 x 1 = 3"),
    (IMAGE, TAPS[:, :2], {"groups": 4}, InvalidArgument, "2 x 4 = 8"),
    (IMAGE, TAPS[:, :1], {"groups": 4}, InvalidArgument, "groups=4 does not divide oc=6"),
    (IMAGE, TAPS[:, :2].reshape(2, 3, 2, 3, 3), {}, InvalidArgument, "pass groups=2"),
    (IMAGE, TAPS, {"groups": 0}, InvalidArgument, "groups=0"),
    (IMAGE, TAPS, {"strides": 0}, InvalidArgument, "strides=0"),
    (IMAGE, TAPS, {"strides": (1, 2, 3)}, InvalidArgument, "3 entries"),
    (IMAGE, TAPS, {"strides": "2"}, InvalidArgument, "strides='2'"),
    (IMAGE, TAPS, {"dilation": 0}, InvalidArgument, "1 means dense taps"),
    (IMAGE, TAPS, {"dilation": 3}, InvalidArgument, "kernel of 7x7 pixels.*5x5"),
    (IMAGE, np.ones((6, 4, 6, 6), np.int8), {}, InvalidArgument, "kernel of 6x6"),
    (IMAGE, TAPS, {"padding": -1}, InvalidArgument, "padding=-1"),
    (IMAGE, TAPS, {"padding": (1,)}, InvalidArgument, "1 entry;"),
    (IMAGE, TAPS, {"padding": True}, InvalidArgument, "padding=True"),
    (IMAGE, TAPS, {"padding": 0.5}, InvalidArgument, "padding=0.5"),
    (IMAGE, TAPS, {"padding": 10**9, "strides": 10**9}, InvalidArgument, "padded source.*bytes"),
    (IMAGE, TAPS, {"padding": 10**40}, InvalidArgument, "more than 64 bits"),
    (IMAGE, TAPS, {"bias": np.ones(4, np.float32)}, InvalidArgument, r"\(6,\)"),
    (IMAGE.astype(np.float32), TAPS, {}, Unimplemented, "ambiguous"),
]
#: a CPU's, here a Zen 4's
CPU_MATMUL: list[Case] = [
    (U.view(np.int8), W.astype(BF16), {}, Unimplemented, "s8 source with bf16 weights.*u8:s8.*u8 or s8 with any"),
    (F.astype(ml_dtypes.int4), S, {}, Unimplemented, "s4 source with s8 weights"),
    (F.astype(np.float16), W.astype(np.float16), {"dispatch": "onednn"}, Unimplemented, "refuses f16.*'fastest'"),
    (F, W, {"dispatch": "gemm:avx512_core_tf32"}, Unimplemented, "fpmath strict computes in f32.*'fastest'"),
    (F, W, {"dispatch": "conv:avx512_core"}, Unimplemented, "computes convolution only"),
    (F, W, {"isa": "avx512_core_vnn"}, UnknownName, "did you mean 'avx512_core_vnni'"),
    (F, W, {"isa": ["avx2"]}, UnknownName, "ISA"),
    (F, W, {"isa": "avx512_core_amx"}, InvalidArgument, "'zen4' lacks avx512_core_amx; it has"),
    (F, W, {"isa": "sse41"}, Unimplemented, "up to sse41.*needs avx2"),
    (F, W, {"threads": 97}, InvalidArgument, "96 cores"),
    (F, W, {"dispatch": "oneDNN"}, InvalidArgument, "did you mean 'onednn'"),
]
CPU_CONVOLUTION: list[Case] = [
    (IMAGE, TAPS, {"padding": 10**9}, InvalidArgument, "padded source.*bytes"),
    (IMAGE, TAPS, {"attr": Attr(zero_points={"wei": 1})}, Unimplemented, "weights zero point"),
]


def of(src: str, weights: str, convolution: bool = False) -> tuple[Any, Any]:
    """Ones of two types, 4 x 8 by 8 x 6, or an image of 4 channels by taps of 3 x 3."""
    shapes = ((1, 4, 5, 5), (4, 4, 3, 3)) if convolution else ((4, 8), (8, 6))
    src_array, wei_array = (
        np.ones(shape, np.int8).astype(fmt(t).dtype) for shape, t in zip(shapes, (src, weights), strict=True)
    )
    return src_array, wei_array


ALONG_N = {"wei": Quant(np.ones((1, 2), "f4"), groups=(8, 3))}
UNEVEN = {"src": np.ones((4, 4), "f4"), "wei": Quant(np.ones((1, 6), "f4"), groups=(3, 1))}
STORED = {"apply_to_int": True}
INTEL, ANY_GPU = ("b580", "dg1"), ("b580", "dg1", "v100")
#: a GPU's: machines
GPU_MATMUL: list[tuple[tuple[str, ...], Case]] = [
    (ANY_GPU, (*of("f32", "f32"), {"isa": "avx2"}, InvalidArgument, "is a GPU of platform .*: leave isa out")),
    (ANY_GPU, (*of("f16", "f16"), {"threads": 2}, InvalidArgument, "leave it at 1")),
    (ANY_GPU, (*of("f16", "f16"), {"dispatch": "onednn"}, Unimplemented, "onednn")),
    (ANY_GPU, (*of("f32", "f32"), {"wei_tag": "oihw"}, InvalidArgument, "any, ab, ba|'any'")),
    (INTEL, (*of("s8", "s8"), {"attr": Attr(post_ops=["sum"])}, InvalidArgument, "into is missing")),
    (INTEL, (*of("s8", "s8"), {"into": np.zeros((4, 6), np.int32)}, InvalidArgument, "no post-operation 'sum'")),
    (INTEL, (*of("s8", "s8"), {"attr": Attr(scales=UNEVEN)}, InvalidArgument, "does not divide K=8")),
    (INTEL, (*of("f16", "f16"), {"dst": "s32"}, InvalidArgument, "dst 's32'")),
    (("dg1",), (*of("s4", "s8"), {}, Unimplemented, "no DPAS")),
    (INTEL, (*of("f32", "bf16"), {}, Unimplemented, "f32 source with bf16 weights")),
    (INTEL, (*of("f16", "bf16"), {}, Unimplemented, "that work")),
    (INTEL, (*of("bf16", "s8"), {"attr": Attr(fpmath="bf16")}, Unimplemented, "ambiguous")),
    (ANY_GPU, (*of("f16", "s8"), {}, Unimplemented, "is ambiguous")),
    (ANY_GPU, (*of("f32", "u4"), {"attr": Attr(fpmath="bf16")}, Unimplemented, "is ambiguous")),
    (ANY_GPU, (*of("f16", "s8"), {"attr": Attr(fpmath="bf16", **STORED)}, Unimplemented, "types of one size")),
    (INTEL, (*of("s8", "s8"), {"attr": Attr(fpmath="bf16", **STORED)}, Unimplemented, "apply_to_int for s8")),
    (ANY_GPU, (*of("f16", "s8"), {"attr": Attr(zero_points={"wei": 3000}, **STORED)}, Unimplemented, "what works: -")),
    (ANY_GPU, (*of("f16", "s8"), {"attr": Attr(scales=ALONG_N, **STORED)}, Unimplemented, "along N")),
    (
        ANY_GPU,
        (
            *of("f16", "s8"),
            {"attr": Attr(zero_points={"wei": 3}, zero_point_strategy="bias", **STORED)},
            Unimplemented,
            "less their zero point",
        ),
    ),
    (
        ANY_GPU,
        (*of("f16", "s8"), {"attr": Attr(zero_points={"src": 1}, **STORED)}, InvalidArgument, "integers alone"),
    ),
    (("v100",), (*of("s8", "s8"), {}, Unimplemented, "'v100': Volta's tensor cores take f16 alone")),
    (("v100",), (*of("bf16", "bf16"), {}, Unimplemented, "tensor cores take f16 alone")),
    (("v100",), (*of("f16", "f32"), {}, Unimplemented, "tensor cores take f16 alone")),
    (("v100",), (*of("f16", "f16"), {"dst": "bf16"}, SimdnnError, "dst 'bf16'")),
    (("v100",), (*of("f16", "f16"), {"attr": Attr(scales={"src": 0.5})}, SimdnnError, "scales or zero points")),
    (("titan_xp",), (*of("bf16", "bf16"), {}, Unimplemented, "Pascal has no tensor cores; what works: f16:f16")),
]
GPU_CONVOLUTION: list[tuple[tuple[str, ...], Case]] = [
    (INTEL, (*of("s8", "s8", True), {"wei_tag": "oihw"}, Unimplemented, "any")),
    (INTEL, (*of("s8", "s8", True), {"wei_tag": "ab"}, InvalidArgument, "any")),
    (("v100",), (*of("f16", "f16", True), {"wei_tag": "oihw"}, SimdnnError, "'any'")),
    (ANY_GPU, (*of("f16", "f16", True), {"threads": 2}, InvalidArgument, "leave it at 1")),
    (ANY_GPU, (*of("f16", "f16", True), {"isa": "avx2"}, InvalidArgument, "is a GPU of platform")),
    (ANY_GPU, (*of("f16", "f16", True), {"dispatch": "onednn"}, Unimplemented, "onednn")),
    (INTEL, (*of("f16", "s8", True), {"attr": Attr(fpmath="f16")}, Unimplemented, "is ambiguous")),
    (("v100",), (*of("f32", "s8", True), {}, Unimplemented, "is ambiguous")),
    (INTEL, (*of("f16", "f16", True), {"attr": Attr(post_ops=["sum"])}, InvalidArgument, "into is missing")),
    (("v100",), (*of("s8", "s8", True), {}, SimdnnError, "tensor cores take f16 alone")),
    (("v100",), (*of("f16", "f16", True), {"attr": Attr(scales={"src": 0.5})}, SimdnnError, "scales or zero points")),
]


def over(common: list[Case], cpu: list[Case], gpu: list[tuple[tuple[str, ...], Case]]) -> Any:
    """Each case on the machines that it is of."""
    cases = [(machine, case) for case in common for machine in ("zen4", "b580")]
    cases += [("zen4", case) for case in cpu] + [(machine, case) for machines, case in gpu for machine in machines]
    return pytest.mark.parametrize(
        ("machine", "src", "weights", "options", "error", "message"),
        [(case[2].get("machine", machine), *case) for machine, case in cases],
        ids=[f"{machine}-{case[-1]}" for machine, case in cases],
    )


def refused(primitive: Any, machine: Any, case: Case) -> None:
    src, weights, options, error, message = case
    with pytest.raises(error, match=message) as raised:
        primitive(src, weights, **{"machine": machine, **options})
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 400


@over(MATMUL, CPU_MATMUL, GPU_MATMUL)
def test_matmul(machine: Any, src: Any, weights: Any, options: dict[str, Any], error: Any, message: str) -> None:
    refused(simdnn.matmul, machine, (src, weights, options, error, message))


@over(CONVOLUTION, CPU_CONVOLUTION, GPU_CONVOLUTION)
def test_convolution(machine: Any, src: Any, weights: Any, options: dict[str, Any], error: Any, message: str) -> None:
    refused(simdnn.convolution, machine, (src, weights, options, error, message))


@pytest.mark.parametrize(
    ("primitive", "arguments", "error", "message"),
    [
        ("matmull", {}, InvalidArgument, "did you mean 'matmul'"),
        ("matmul", {"m": 4}, InvalidArgument, "without n, k; needed: m, n, k"),
        ("matmul", {"m": 4, "n": 5, "kk": 6}, InvalidArgument, "did you mean 'k'"),
        ("matmul", {"m": 4, "n": 5, "k": 0}, InvalidArgument, "k=0"),
        ("matmul", {"m": 4, "n": 5, "k": 6, "dt": "u8:s8"}, InvalidArgument, "src:weights:dst"),
        ("matmul", {"m": 4, "n": 5, "k": 6, "dt": "u8:s8:s31"}, UnknownName, "did you mean 's32'"),
        ("matmul", {"m": 4, "n": 5, "k": 6, "dt": 8}, InvalidArgument, "dt=8"),
        ("matmul", {"m": 4, "n": 5, "k": 6, "dt": "f32:s8:f32"}, Unimplemented, "ambiguous"),
        ("matmul", {"m": 1 << 30, "n": 1 << 30, "k": 6}, InvalidArgument, "bytes"),
        ("matmul", {"m": 4, "n": 5, "k": 6, "bias": np.ones(5)}, InvalidArgument, "bias is a ndarray"),
        ("convolution", {"ic": 4}, InvalidArgument, "without ih, iw, oc, kh, kw"),
        ("convolution", {"m": 4}, InvalidArgument, "Allowed: mb, ic"),
        (
            "convolution",
            {"ic": 4, "ih": 5, "iw": 5, "oc": 6, "kh": 3, "kw": 3, "groups": 3},
            InvalidArgument,
            "groups=3 does not divide ic=4",
        ),
    ],
)
@pytest.mark.parametrize("machine", ["zen4", "b580", "v100"])
def test_estimate(
    machine: str, primitive: str, arguments: dict[str, Any], error: type[SimdnnError], message: str
) -> None:
    with pytest.raises(error, match=message):
        simdnn.estimate(primitive, machine=machine, **arguments)


def test_an_absurd_size_is_refused_before_memory_is_taken() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InvalidArgument, match="bytes"):
        simdnn.matmul(HUGE, HUGE, machine="zen4")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 16  # KiB: 64 MiB


# Any mixture of right and wrong arguments: a right answer or a SimdnnError. ------------------------------------------
def mostly(right: list[Any], wrong: list[Any]) -> st.SearchStrategy[Any]:
    """Wrong values so rarely that many calls are right in all."""
    return st.integers(1, 20).flatmap(lambda pick: st.sampled_from(wrong if pick == 13 else right))


ATTRIBUTES = [
    None,
    Attr(),
    Attr(exact_int8=True),
    Attr(zero_points={"src": 0, "wei": 0}),
    Attr(scales={"wei": [[1.0], [1.0]]}),
    Attr(scales={"src": np.ones(3)}),
    Attr(scales={"src": Quant(1.0, groups=(1, 2))}),
    Attr(zero_points={"dst": Quant(None)}),
    Attr(fpmath="any"),
    Attr(apply_to_int=True),
    Attr(precomputed_reductions={"src": 1}, zero_points={"wei": 1}),
]
SHARED: dict[str, st.SearchStrategy[Any]] = {
    "machine": mostly(["zen4"], ["skx", "icx", "zen5", None, 1]),
    "isa": mostly([None, "avx2"], ["avx512_core_vnni", "avx10", 2, "sse41"]),
    "dst": mostly([None, "f32", "f16"], ["s32", "s8", "f31", 0]),
    "attr": mostly([None], ATTRIBUTES),
    "threads": mostly([1], [0, 2, "1", 10**6]),
    "engine": mostly(["auto", "reference"], ["fast", None]),
    "dispatch": mostly(["onednn"], ["fastest", "best", 1]),
}
DTYPES = mostly(
    [("f4", "f4"), ("u1", "i1"), ("i1", "i1"), (BF16, BF16), (">f4", "f4")],
    [
        ("f8", "f4"),
        ("i4", "i1"),
        ("?", "i1"),
        ("O", "f4"),
        ("c8", "c8"),
        ("f2", "f2"),
        ("U1", "i1"),
        ("f4", "i1"),
        ("u1", "u1"),
        (BF16, "f4"),
        ("f4", ml_dtypes.int4),
    ],
)
SIZES = mostly([1, 2, 3], [0, 5])


def filled(shape: tuple[int, ...], dtype: Any) -> Any:
    return (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 3).astype(dtype)


def holds(output: Any, sums: Any) -> None:
    """No scale but 1, no zero point but 0, no sum above 127: the same numbers in every destination."""
    np.testing.assert_array_equal(output.astype(np.int64), sums)


@examples(200)
@given(st.data())
def test_any_matmul(data: st.DataObject) -> None:
    m, k, n = (data.draw(SIZES) for _ in range(3))
    k_of_weights = data.draw(mostly([k], [1, 2]))
    src_type, wei_type = data.draw(DTYPES)
    src, weights = filled((m, k), src_type), filled((k_of_weights, n), wei_type)
    bias = data.draw(mostly([None, np.zeros(n, np.float32)], [np.zeros(n + 1, np.float32), np.zeros(n), [0.0]]))
    options = {name: data.draw(strategy) for name, strategy in SHARED.items()}
    options["wei_tag"] = data.draw(mostly(["any", "ab", "ba"], ["abc", None]))
    try:
        result = simdnn.matmul(src, weights, bias, **options)
    except SimdnnError as error:
        assert str(error) and "\n" not in str(error)
        return
    holds(result.output, src.astype(np.int64) @ weights.astype(np.int64))


@examples(120)
@given(st.data())
def test_any_convolution(data: st.DataObject) -> None:
    groups = data.draw(mostly([1, 2], [0, 3, "2"]))
    count = groups if isinstance(groups, int) else 1
    mb, ic, oc = (data.draw(SIZES) for _ in range(3))
    ih, iw = (data.draw(mostly([4, 5, 9], [0, 1])) for _ in range(2))
    kh, kw = (data.draw(mostly([1, 2, 3], [0, 6])) for _ in range(2))
    src_type, wei_type = data.draw(DTYPES)
    src = filled((mb, ic * data.draw(mostly([count], [1, 3])), ih, iw), src_type)
    weights = filled((oc * count, ic, kh, kw), wei_type)
    if weights.dtype == np.int8:
        weights = weights & -2  # even: halving them loses nothing
    strides = data.draw(mostly([1, 2, (1, 3)], [0, -1, 1.5, (1, 2, 3), None]))
    padding = data.draw(mostly([0, 1, (1, 2), (0, 1, 2, 1)], [-1, (1,), 10**12, "1", None]))
    dilation = data.draw(mostly([1, 1, 2], [0, (1, 1, 1), 10**9]))
    options = {name: data.draw(strategy) for name, strategy in SHARED.items()}
    shape = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
    try:
        result = simdnn.convolution(src, weights, **shape, **options)
    except SimdnnError as error:
        assert str(error) and "\n" not in str(error)
        return
    pads = {int: lambda p: (p,) * 4, tuple: lambda p: p if len(p) == 4 else p * 2}[type(padding)](padding)
    pair = [v if isinstance(v, tuple) else (v, v) for v in (strides, dilation)]
    holds(result.output, convolve(src.astype(np.int64), weights.astype(np.int64), pair[0], pads, pair[1], groups))


MASKED = np.ma.masked_array(np.ones(4, np.float32), [True, False, False, False])
TILE = np.ma.masked_array(np.ones((16, 16), np.float16), False)
HALF = np.ones((16, 16), np.float16)


@pytest.mark.parametrize(
    "call",
    [
        lambda: simdnn.matmul(F, W, np.ma.masked_array(np.ones(5, np.float32)), machine="zen4"),
        lambda: simdnn.matmul(F, W, machine="zen4", attr=Attr(post_ops=["sum"]), into=np.ma.masked_array(F[:, :5])),
        lambda: Attr(scales={"src": MASKED}),
        lambda: Attr(post_ops=[("add", MASKED)]),
        lambda: Quant(MASKED),
        lambda: simdnn.quantize_dynamic(MASKED[None], machine="zen4"),
        lambda: simdnn.pack_nibbles(np.ma.masked_array(np.ones(4, ml_dtypes.int4))),
        lambda: simdnn.ranges("matmul", weights=np.ma.masked_array(S), machine="skx"),
        lambda: simdnn.explain("vaddps", MASKED, np.ones(4, np.float32)),
        lambda: isa_models.instruction("vaddps")(MASKED, np.ones(4, np.float32)),
        lambda: isa_models.instruction("dpas")(None, TILE[:8], HALF),
        lambda: isa_models.instruction("dp4a")(np.ma.masked_array(np.zeros(1, np.int32)), S[0, :4], S[0, :4]),
        lambda: isa_models.instruction("ptx_dp4a")(np.zeros(1, np.int32), np.ma.masked_array(S[0, :4]), S[0, :4]),
        lambda: isa_models.instruction("mma")(None, TILE, HALF[:, :8], arch="ampere"),
    ],
)
def test_masks_are_not_lost_silently(call: Callable[[], Any]) -> None:
    with pytest.raises(InvalidArgument, match="is a MaskedArray, whose mask would be lost"):
        call()
