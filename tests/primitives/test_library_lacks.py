"""A problem that oneDNN 3.13 has no primitive for is refused where its choice is asked for, and "fastest" takes it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import simdnn
from isa_models.formats import fmt
from simdnn import Attr, Quant, Unimplemented
from tests.effort import one_in

U8, S8 = np.ones((4, 192), np.uint8), np.ones((192, 8), np.int8)


def matmul(attr: Attr | None = None, **options: Any) -> simdnn.Result:
    return simdnn.matmul(U8, S8, attr=attr, **options)


def in_groups(group: int, dtype: str, argument: str = "wei") -> Quant:
    shape, groups = {"wei": ((192 // group, 8), (group, 1)), "src": ((4, 192 // group), (1, group))}[argument]
    return Quant(np.ones(shape, np.float32 if dtype == "f32" else np.int32), groups=groups, dtype=dtype)


@one_in(3)
@pytest.mark.parametrize("machine", ["hsw", "skx", "zen5", "spr"])
@pytest.mark.parametrize("src", [np.uint8, np.int8, np.float32])
@pytest.mark.parametrize("groups", [1, 2, 8])
def test_convolutions_to_f16(machine: str, src: type, groups: int) -> None:
    a, b = np.ones((1, 8, 3, 3), src), np.ones((8, 8 // groups, 3, 3), np.float32 if src is np.float32 else np.int8)
    with pytest.raises(Unimplemented, match="oneDNN has no convolution .*:f16; it has convolutions to f16 from f16"):
        simdnn.convolution(a, b, groups=groups, dst="f16", machine=machine, dispatch="onednn")
    sizes = {"mb": 1, "ic": 8, "ih": 3, "iw": 3, "oc": 8, "kh": 3, "kw": 3, "groups": groups}
    dt = f"{'f32:f32' if src is np.float32 else 'u8:s8' if src is np.uint8 else 's8:s8'}:f16"
    assert simdnn.estimate("convolution", **sizes, dt=dt, machine=machine).cycles > 0


@one_in(3)
@pytest.mark.parametrize("machine", ["skx", "spr"])
@pytest.mark.parametrize(
    "kind, dtype, argument, least",
    [
        ("scales", "f32", "wei", 16),
        ("scales", "f32", "src", 16),
        ("zero_points", "s32", "wei", 16),
        ("zero_points", "s32", "src", 32),
    ],
)
def test_groups_along_k(machine: str, kind: str, dtype: str, argument: str, least: int) -> None:
    for group in (1, 4, 8, 16, 24, 32, 48, 192):
        attr = Attr(**{kind: {argument: in_groups(group, dtype, argument)}})  # type: ignore[arg-type]
        if group % least and group not in (1, 192):
            with pytest.raises(Unimplemented, match=f"oneDNN has no primitive with {kind}.*groups of {group} along K"):
                matmul(attr, machine=machine, dispatch="onednn")
        elif group == 1 and kind == "scales" and machine == "skx":  # whose pairs saturate across groups
            with pytest.raises(Unimplemented, match="saturated pairs in groups of 1 along K"):
                matmul(attr, machine=machine, dispatch="onednn")
        else:
            matmul(attr, machine=machine, dispatch="onednn")
    attr = Attr(**{kind: {argument: in_groups(4, dtype, argument)}})  # type: ignore[arg-type]
    assert matmul(attr, machine=machine).cycles > 0


def test_grouped_points_beside_columns_of_f16() -> None:
    scale = Quant(np.ones(8, np.float16), dtype="f16")
    attr = Attr(scales={"wei": scale}, zero_points={"wei": in_groups(16, "s32")})
    with pytest.raises(Unimplemented, match="oneDNN has no primitive with zero points of s32 in groups"):
        matmul(attr, dst="f16", machine="spr", dispatch="onednn")
    assert matmul(attr, dst="f16", machine="spr").output[0, 0] == 0
    matmul(attr, dst="f16", machine="zen5", dispatch="onednn")  # which a Zen 5 was seen to take


@pytest.mark.parametrize("dst", ["s8", "u8"])
def test_f16_to_bytes(dst: str) -> None:
    a, b = U8.astype(np.float16), S8.astype(np.float16)
    with pytest.raises(Unimplemented, match=f"oneDNN has no matmul f16:f16:{dst}; it has f16 matmuls to f16 and f32"):
        simdnn.matmul(a, b, dst=dst, machine="spr", dispatch="onednn")
    assert simdnn.matmul(a, b, dst=dst, machine="spr").output[0, 0] == {"s8": 127, "u8": 192}[dst]


def test_scales_of_a_destination_by_column_are_unimplemented() -> None:
    """The library takes them, and gets them wrong."""
    src, weights = np.ones((2, 8), np.int8), np.ones((8, 4), np.int8)
    attr = simdnn.Attr(scales={"dst": simdnn.Quant(np.ones(4, np.float32), mask=2)})
    with pytest.raises(simdnn.Unimplemented, match="scales\\['dst'\\]: mask 2"):
        simdnn.matmul(src, weights, machine="zen4", dst="s8", attr=attr)


def test_types_of_bias_that_lead_elsewhere_are_refused() -> None:
    src, weights = np.ones((1, 4, 3, 3), np.int8), np.full((8, 4, 1, 1), 2, np.int8)
    for dtype, isa, what in (("f16", "avx2", "bias of f16"), ("bf16", "avx512_core", "adds what is not the bias")):
        bias = np.ones(8, fmt(dtype).dtype)
        with pytest.raises(simdnn.Unimplemented, match=what):
            simdnn.convolution(src, weights, bias, machine="zen4", isa=isa, dispatch="onednn")
        assert simdnn.convolution(src, weights, bias, machine="zen4", isa=isa).output[0, 0, 0, 0] == 9


@pytest.mark.parametrize(
    ("src", "wei", "dtype", "takes"),
    [("f32", "f32", "bf16", "f32"), ("bf16", "bf16", "s8", "f32 and bf16"), ("f32", "f16", "bf16", "f32 and f16")],
)
def test_products_of_floats_take_few_types_of_bias(src: str, wei: str, dtype: str, takes: str) -> None:
    a, b, bias = U8.astype(fmt(src).dtype), S8.astype(fmt(wei).dtype), np.ones(8, fmt(dtype).dtype)
    with pytest.raises(Unimplemented, match=f"oneDNN has no matmul .* with a bias of {dtype}: {takes} work"):
        simdnn.matmul(a, b, bias, machine="zen4", dispatch="onednn")
    assert simdnn.matmul(a, b, bias, machine="zen4").cycles > 0


def test_scales_of_each_k_beside_plain_weights_are_refused() -> None:
    attr = Attr(scales={"wei": in_groups(1, "f32")})
    with pytest.raises(Unimplemented, match="in groups of 1 along K"):
        matmul(attr, machine="zen4", dispatch="onednn", wei_tag="ab")


@pytest.mark.parametrize(("src", "isa"), [(np.uint8, "avx512_core_vnni"), (np.int8, "avx512_core_amx")])
def test_a_zero_point_that_a_library_leaves_out(src: type, isa: str) -> None:
    """Its 1x1 kernel has nothing behind sums of s32 but a zero point; other sums and kernels have more."""
    a: Any = np.ones((1, 64, 4, 4), src)
    point = {"dst": Quant(np.array([3], np.int32))}
    wide: dict[str, Any] = {"machine": "gnr", "isa": isa, "dispatch": "onednn", "dst": "s32"}
    one = np.ones((32, 64, 1, 1), np.int8)
    with pytest.raises(Unimplemented, match="leaves out the zero point of an s32 destination"):
        simdnn.convolution(a, one, attr=Attr(zero_points=point), **wide)
    for weights, attr in (
        (one, Attr(zero_points=point, post_ops=["relu"])),
        (np.ones((32, 64, 3, 3), np.int8), Attr(zero_points=point)),
    ):
        assert simdnn.convolution(a, weights, attr=attr, **wide).output.flat[0] == weights[0].size + 3


@one_in(3)
@pytest.mark.parametrize(
    ("isa", "tag", "k", "group", "wrong"),
    [
        ("avx512_core_amx", "ba", 96, 48, True),
        ("avx512_core_amx", "ba", 240, 80, True),
        ("avx512_core_amx", "ba", 96, 32, False),
        ("avx512_core_amx", "ba", 240, 16, False),
        ("avx512_core_amx", "ab", 144, 48, True),
        ("avx512_core_amx", "ab", 96, 48, False),
        ("avx512_core_bf16", "ba", 96, 48, True),
        ("avx512_core_bf16", "ba", 144, 48, False),
        ("avx512_core_bf16", "ab", 144, 48, False),
        ("avx512_core_bf16", "ab", 48, 48, False),
    ],
)
def test_groups_that_end_within_a_block_of_k(isa: str, tag: str, k: int, group: int, wrong: bool) -> None:
    """A copy of weights in pairs takes 32 k at a time; the sums are then wrong there."""
    rng = np.random.default_rng(k)
    src = rng.standard_normal((33, k)).astype(ml_dtypes.bfloat16)
    scales = simdnn.Quant(rng.uniform(0.5, 1, (k // group, 32)).astype(np.float32), groups=(group, 1))
    attr = simdnn.Attr(fpmath="bf16", apply_to_int=True, scales={"wei": scales})
    weights = rng.integers(-9, 9, (k, 32)).astype(np.int8)
    where: dict[str, Any] = {"machine": "spr", "isa": isa, "wei_tag": tag, "attr": attr}
    assert np.isfinite(simdnn.matmul(src, weights, **where).output).all()
    if wrong:
        with pytest.raises(simdnn.Unimplemented, match=f"in groups of {group} of K={k} are wrong"):
            simdnn.matmul(src, weights, **where, dispatch="onednn")
    else:
        assert simdnn.matmul(src, weights, **where, dispatch="onednn").library.startswith("brg_matmul")


@pytest.mark.parametrize(
    ("tag", "k", "kind", "grouped", "wrong"),
    [
        ("ba", 25, "bf16", True, True),
        ("ba", 8, "bf16", True, True),
        ("ba", 33, "bf16", True, False),
        ("ba", 32, "bf16", True, False),
        ("ba", 25, "f32", True, False),
        ("ba", 25, "bf16", False, False),
        ("ab", 25, "bf16", True, False),
    ],
)
def test_scales_of_bf16_beside_a_rest_of_k(tag: str, k: int, kind: str, grouped: bool, wrong: bool) -> None:
    values = np.ones((1, 6) if grouped else 6, np.float32)
    shared: dict[str, Any] = {"groups": (k, 1)} if grouped else {"mask": "per_oc"}
    attr = simdnn.Attr(fpmath="bf16", apply_to_int=True, scales={"wei": simdnn.Quant(values, dtype=kind, **shared)})
    where: dict[str, Any] = {"machine": "spr", "wei_tag": tag, "attr": attr, "dispatch": "onednn"}
    src, weights = np.ones((2, k), ml_dtypes.bfloat16), np.ones((k, 6), np.uint8)
    if wrong:
        with pytest.raises(simdnn.Unimplemented, match=f"wrong with scales of bf16 in a group of K={k}"):
            simdnn.matmul(src, weights, **where)
    else:
        assert (simdnn.matmul(src, weights, **where).output == k).all()


def test_a_bias_that_sends_compressed_weights_to_the_reference() -> None:
    src, weights = np.ones((2, 32), np.float16), np.ones((32, 16), np.int8)
    where: dict[str, Any] = {"machine": "spr", "attr": simdnn.Attr(fpmath="f16", apply_to_int=True)}
    assert simdnn.matmul(src, weights, np.ones(16, np.float16), **where, dispatch="onednn").output[0, 0] == 33
    bias = np.ones(16, ml_dtypes.bfloat16)
    assert simdnn.matmul(src, weights, bias, **where).output[0, 0] == 33
    with pytest.raises(
        simdnn.Unimplemented, match=r"a bias of bf16, which is not modelled: biases of f32 and f16 work"
    ):
        simdnn.matmul(src, weights, bias, **where, dispatch="onednn")


@pytest.mark.parametrize("dtype", ["s8", "u8"])
@pytest.mark.parametrize(("primitive", "argument"), [("matmul", "dst"), ("convolution", "src"), ("convolution", "dst")])
def test_zero_points_in_bytes(primitive: str, argument: str, dtype: str) -> None:
    """3.13.2 has them, under six caps, for a matmul's source and weights alone."""
    image, taps = np.ones((1, 4, 3, 3), np.uint8), np.ones((8, 4, 1, 1), np.int8)
    operands = {"matmul": (U8, S8), "convolution": (image, taps)}[primitive]

    def call(stored: str, argument: str = argument, **options: Any) -> simdnn.Result:
        attr = Attr(zero_points={argument: Quant(3, dtype=stored)})
        return getattr(simdnn, primitive)(*operands, attr=attr, dst="f32", machine="spr", **options)  # type: ignore[no-any-return]

    with pytest.raises(Unimplemented, match=f"refuses zero_points.*'{argument}'.* of a {primitive} .* in {dtype}: s32"):
        call(dtype, dispatch="onednn")
    assert (call("s32", dispatch="onednn").output == call(dtype).output).all()
    if primitive == "matmul":
        assert call(dtype, "wei", dispatch="onednn").output[0, 0] == -384
