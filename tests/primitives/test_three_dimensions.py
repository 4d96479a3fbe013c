"""Convolutions in three spatial dimensions: values on every kernel of a cap, cost, what is refused."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import simdnn
from isa_models.readings.arrays import Array
from simdnn import Attr, InvalidArgument, Unimplemented
from tests.effort import one_in
from tests.recorded import typed

TYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "u8": np.uint8, "s8": np.int8}
#: groups, channels of a group in and out, kernel, strides, padding (front, top, left, back, bottom, right), dilation
SHAPES: list[dict[str, Any]] = [
    {"g": 1, "ic": 3, "oc": 17, "k": (3, 3, 3), "strides": 1, "padding": 1, "dilation": 1},
    {"g": 1, "ic": 8, "oc": 5, "k": (1, 1, 1), "strides": 1, "padding": 0, "dilation": 1},
    {
        "g": 2,
        "ic": 4,
        "oc": 3,
        "k": (2, 1, 3),
        "strides": (2, 1, 2),
        "padding": (1, 0, 0, 0, 0, 1),
        "dilation": (2, 1, 1),
    },
    {"g": 5, "ic": 1, "oc": 1, "k": (3, 2, 2), "strides": (1, 2, 1), "padding": (0, 1, 2), "dilation": (1, 1, 2)},
]


def expected(src: Array, weights: Array, shape: dict[str, Any]) -> Array:
    """In float64, tap by tap."""
    three = [(v,) * 3 if isinstance(v, int) else v for v in (shape["strides"], shape["padding"], shape["dilation"])]
    strides, padding, dilation = three
    around = [(padding[i], padding[i + 3] if len(padding) == 6 else padding[i]) for i in range(3)]
    padded = np.pad(src.astype(np.float64), [(0, 0), (0, 0), *around])
    kernel = weights.shape[2:]
    out = [(padded.shape[2 + i] - (kernel[i] - 1) * dilation[i] - 1) // strides[i] + 1 for i in range(3)]
    total = np.zeros((src.shape[0], shape["g"] * shape["oc"], *out))
    for tap in itertools.product(*map(range, kernel)):
        places = zip(tap, out, strides, dilation, strict=True)
        window = tuple(slice(t * d, t * d + (o - 1) * s + 1, s) for t, o, s, d in places)
        seen = padded[(..., *window)].reshape(src.shape[0], shape["g"], shape["ic"], -1)
        taps = weights.astype(np.float64)[(..., *tap)].reshape(shape["g"], shape["oc"], shape["ic"])
        total += np.einsum("ngip,goi->ngop", seen, taps).reshape(total.shape)
    return total


def operands(shape: dict[str, Any], dtype: str) -> tuple[Array, Array]:
    rng = np.random.default_rng(2)
    channels, low = shape["g"] * shape["ic"], 0 if dtype == "u8" else -3
    src = rng.integers(low, 4, (2, channels, 4, 5, 6)).astype(np.float32).astype(TYPES[dtype])
    wei = "s8" if dtype in ("u8", "s8") else dtype
    weights = rng.integers(-3, 4, (shape["g"] * shape["oc"], shape["ic"], *shape["k"])).astype(np.float32)
    return src, weights.astype(TYPES[wei])


@one_in(4)
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize(
    ("dtype", "machine", "kernel"),
    [
        ("f32", "zen4", "avx2"),
        ("f32", "zen4", "avx512_core"),
        ("u8", "hsw", "avx2_int8_exact"),
        ("s8", "zen4", "avx512_core_vnni"),
        ("bf16", "zen4", "avx512_core_bf16"),
        ("bf16", "spr", "avx512_core_amx"),
        ("s8", "spr", "avx512_core_amx_int8"),
        ("f16", "spr", "avx512_core_f16"),
    ],
)
def test_values(number: int, dtype: str, machine: str, kernel: str) -> None:
    shape = SHAPES[number]
    src, weights = operands(shape, dtype)
    named = {name: shape[name] for name in ("strides", "padding", "dilation")}
    for engine, images in (("compiled", src), ("reference", src[:1]))[: 1 if number % 2 else 2]:
        r = simdnn.convolution(
            images,
            weights,
            groups=shape["g"],
            machine=machine,
            dispatch=f"conv:{kernel}",
            dst="f32",
            engine=engine,
            **named,
        )
        assert r.output.shape[2:] and (r.output == expected(images, weights, shape)).all()


@one_in(4)
@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize(
    ("dtype", "machine", "kernel"),
    [
        ("u8", "hsw", "avx2_int8_exact"),
        ("s8", "zen4", "avx512_core_vnni"),
        ("u8", "adl-p", "avx2_vnni"),
        ("s8", "spr", "avx512_core_amx_int8"),
    ],
)
def test_zero_points_around_the_planes(number: int, dtype: str, machine: str, kernel: str) -> None:
    """Taps beside the image stand for the zero point, so it adds nothing."""
    shape = SHAPES[number]
    src, weights = operands(shape, dtype)
    named = {name: shape[name] for name in ("strides", "padding", "dilation")}
    how: dict[str, Any] = {"machine": machine, "dispatch": f"conv:{kernel}", "attr": Attr(zero_points={"src": 2})}
    for engine, images in (("compiled", src), ("reference", src[:1])):
        r = simdnn.convolution(images, weights, groups=shape["g"], engine=engine, **how, **named)
        assert (r.output == expected(images.astype(np.int64) - 2, weights, shape)).all()


def test_what_follows_the_sums() -> None:
    """Bias, scales, operations of two operands and sum; weights given by group."""
    shape = SHAPES[2]
    src, weights = operands(shape, "u8")
    sums = expected(src, weights, shape)
    rng = np.random.default_rng(3)
    bias, column, full, into = (rng.integers(-9, 9, n).astype(np.float32) for n in ((6,), (6,), sums.shape, sums.shape))
    post_ops = ["relu", ("add", column), ("mul", full), ("sum", 2.0)]
    r = simdnn.convolution(
        src,
        weights.reshape(2, 3, *weights.shape[1:]),
        bias,
        strides=shape["strides"],
        padding=shape["padding"],
        dilation=shape["dilation"],
        groups=2,
        machine="zen4",
        dst="f32",
        attr=Attr(scales={"src": 0.5}, post_ops=post_ops),
        into=into,
    )
    by_channel = (slice(None), None, None, None)
    wanted = (np.maximum(sums / 2 + bias[by_channel], 0) + column[by_channel]) * full + 2 * into
    assert (r.output == wanted).all()
    priced = simdnn.estimate(
        "convolution",
        **{"mb": 2, "ic": 8, "id": 4, "ih": 5, "iw": 6, "oc": 6, "kd": 2, "kh": 1, "kw": 3, "groups": 2},
        strides=shape["strides"],
        padding=shape["padding"],
        dilation=shape["dilation"],
        dt="u8:s8:f32",
        bias=True,
        machine="zen4",
        attr=Attr(scales={"src": 0.5}, post_ops=post_ops),
    )
    assert priced.cycles == r.cycles and str(priced.dst_desc) == f"f32 ndhwc 2x6x{'x'.join(map(str, sums.shape[2:]))}"


@one_in(3)
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize(
    ("dtype", "machine"),
    [("f32", "b580"), ("f16", "a770"), ("s8", "dg1"), ("bf16", "max1550"), ("f16", "v100"), ("u8", "h100")],
)
def test_on_gpus(number: int, dtype: str, machine: str) -> None:
    """The product of pixels of all planes by taps, or depthwise on the vector pipe: equal to the sums, at a cost."""
    shape = SHAPES[number]
    src, weights = operands(shape, dtype)
    named: dict[str, Any] = {name: shape[name] for name in ("strides", "padding", "dilation")}
    named |= {"groups": shape["g"], "machine": machine, "dst": "f32"}
    r = simdnn.convolution(src, weights, engine=("compiled", "reference")[number % 2], **named)
    assert r.implementation.endswith("depthwise") == (shape["ic"] == shape["oc"])
    np.testing.assert_array_equal(r.output, expected(src, weights, shape))
    assert r.cycles > 0 and r.problem.macs == r.output.size * shape["ic"] * np.prod(shape["k"])


@pytest.mark.parametrize("machine", ["b580", "dg1"])
def test_zero_points_around_planes_on_gpus(machine: str) -> None:
    src, weights = operands(SHAPES[0], "u8")
    attr = Attr(zero_points={"src": 2})
    r = simdnn.convolution(src, weights, padding=1, machine=machine, attr=attr)
    np.testing.assert_array_equal(r.output, expected(src.astype(np.int32) - 2, weights, SHAPES[0]))


def test_scales_by_groups_of_channels_in_planes() -> None:
    rng = np.random.default_rng(4)
    src = rng.integers(-3, 4, (1, 8, 3, 4, 5)).astype(np.float16)
    weights, scale = rng.integers(-7, 8, (6, 8, 2, 3, 1)).astype(np.int8), 2.0 ** rng.integers(-2, 3, (6, 2, 2, 3, 1))
    attr = Attr(apply_to_int=True, fpmath="f16", scales={"wei": scale.astype(np.float32)})
    r = simdnn.convolution(src, weights, machine="b580", attr=attr)
    shape = {"g": 1, "ic": 8, "oc": 6, "strides": 1, "padding": 0, "dilation": 1}
    np.testing.assert_array_equal(r.output, expected(src, weights * scale.repeat(4, 1), shape))
    blocks = simdnn.quantize_mx(np.ones((6, 32, 2, 3, 1), np.float32), "f8_e4m3", axis=1)
    wide = rng.integers(-3, 4, (1, 32, 3, 4, 5)).astype(np.float16)
    r = simdnn.convolution(wide, blocks.output, machine="h100", attr=blocks.attr("wei"))
    np.testing.assert_array_equal(r.output, expected(wide, np.ones((6, 32, 2, 3, 1)), {**shape, "ic": 32}))


def test_planes_cost_their_share() -> None:
    """A kernel of three planes is about three times the work of a flat one over as many outputs."""
    sizes: dict[str, Any] = {"ic": 32, "ih": 14, "iw": 14, "oc": 32, "kh": 3, "kw": 3, "id": 6, "machine": "zen4"}
    one, three = (
        simdnn.estimate("convolution", kd=kd, padding=(kd // 2, 1, 1), dt="bf16", **sizes).cycles for kd in (1, 3)
    )
    assert 2.5 < three / one < 3.5


def test_what_is_refused() -> None:
    src, weights = operands(SHAPES[0], "s8")
    with pytest.raises(Unimplemented, match="leaves weights of this 3x3x3 kernel out on tiles, as the image has one"):
        simdnn.convolution(src[:, :, :1], weights, padding=1, machine="spr", dispatch="onednn")
    with pytest.raises(Unimplemented, match="reads other rows of the source here on tiles"):
        simdnn.convolution(src[..., :5], weights, strides=(1, 1, 3), machine="spr", dispatch="onednn")
    with pytest.raises(InvalidArgument, match="one integer or 3 of them"):
        simdnn.convolution(src, weights, strides=(1, 2), machine="zen4")
    with pytest.raises(InvalidArgument, match="too deep"):
        simdnn.convolution(src, weights, dilation=(2, 1, 1), machine="zen4")


#: cap, groups, channels of a group in and out, kernel, strides -> oneDNN 3.13.2's implementation, read from the library
PICKS: list[tuple[str, int, int, int, tuple[int, ...], tuple[int, ...], str]] = [
    ("avx512_core_vnni", 1, 3, 17, (3, 3, 3), (1, 1, 1), "brg_conv_fwd:avx512_core_vnni"),
    ("avx512_core_vnni", 1, 8, 5, (1, 1, 1), (2, 1, 1), "brgconv_1x1:avx512_core_vnni"),
    ("avx512_core_vnni", 2, 8, 8, (1, 1, 1), (1, 1, 1), "jit_int8_1x1:avx512_core_vnni"),
    ("avx512_core_vnni", 2, 8, 8, (2, 1, 1), (1, 1, 1), "jit_int8:avx512_core_vnni"),
    ("avx512_core_vnni", 16, 1, 1, (2, 2, 1), (1, 1, 1), "brdgmm_dw:avx512_core_vnni"),
    ("avx2", 1, 8, 5, (1, 1, 1), (1, 1, 1), "jit_uni_int8_1x1:avx2"),
    ("avx2", 1, 8, 5, (2, 1, 1), (1, 1, 1), "jit_uni_int8:avx2"),
    ("avx2", 2, 3, 5, (2, 1, 2), (1, 2, 1), "ref:any"),
    ("avx2", 16, 1, 1, (2, 2, 1), (1, 1, 1), "ref:any"),
]


@pytest.mark.parametrize("pick", PICKS, ids=str)
def test_integers_as_onednn_has_them(pick: Any) -> None:
    """Bits and names were compared with the library on 360 random problems, saturated pairs under avx2 among them."""
    isa, groups, ic, oc, kernel, strides, name = pick
    shape = {"g": groups, "ic": ic, "oc": oc, "k": kernel, "strides": strides, "padding": 0, "dilation": 1}
    src, weights = operands(shape, "u8")
    where: dict[str, Any] = {"machine": "zen4", "isa": isa, "dispatch": "onednn", "groups": groups}
    r = simdnn.convolution(src, weights, strides=strides, **where)
    assert r.library == name
    np.testing.assert_array_equal(r.output, expected(src, weights, shape))


#: three convolutions of oneDNN 3.13.2 (PyPI onednn 2026.1.0; Apache License 2.0, Intel Corporation) on a Zen 5, one
#: thread: "NAME@CAP@IMPLEMENTATION@WHAT", whose how are groups, strides and padding; bf16 as its bits
RECORDED = np.load(Path(__file__).parents[1] / "vectors" / "onednn_depth.npz")


@pytest.mark.parametrize("case", [name.removesuffix("@out") for name in RECORDED.files if name.endswith("@out")])
def test_floats_as_onednn_has_them(case: str) -> None:
    """In one chain: planes of the kernel, rows, columns, channels."""
    name, isa, library = case.split("@")
    groups, *how = RECORDED[f"{case}@how"].tolist()
    src, weights = (typed(RECORDED[f"{case}@{what}"], name.split("_")[0]) for what in ("src", "wei"))
    where: dict[str, Any] = {"machine": "zen5", "isa": isa, "dispatch": "onednn", "groups": groups, "dst": "f32"}
    r = simdnn.convolution(src, weights, RECORDED[f"{case}@bias"], strides=how[:3], padding=how[3:], **where)
    assert r.library == library and r.output.tobytes() == RECORDED[f"{case}@out"].tobytes()


def test_what_onednn_picks_is_refused_where_it_is_not_known() -> None:
    """Pairs of taps of a flat image with one channel a group."""
    flat = np.zeros((1, 1, 1, 3, 3))
    for src, wei, isa in (("bf16", "bf16", "avx512_core_bf16"), ("u8", "s8", "avx512_core")):
        weights = np.zeros((4, 1, 1, 2, 2)).astype(TYPES[wei])
        with pytest.raises(Unimplemented, match="of one channel a group on a flat image"):
            simdnn.convolution(flat.astype(TYPES[src]), weights, machine="zen4", isa=isa, dispatch="onednn")
