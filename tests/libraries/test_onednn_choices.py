"""What oneDNN 3.13.2 takes, as it says itself (`impl_info_str`) on a Granite Rapids, one thread: with tiles or without,
and reorders that it has or lacks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import simdnn
from isa_models.isa import implied
from simdnn.kernels.common.epilogue import Epilogue
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem
from simdnn.libraries.model import OperatorCall
from simdnn.libraries.onednn.deconvolution import form
from simdnn.libraries.onednn.operators import form as operator_form
from simdnn.libraries.onednn.reorders import implementation
from simdnn.libraries.onednn.tile_blocks import tile_blocks
from simdnn.libraries.onednn.tile_room import has_room


@pytest.mark.parametrize(
    ("src", "ic", "oc", "groups", "image", "k", "padding", "tiles"),
    [
        ("u8", 12, 4, 2, (3, 7), 3, 0, True),
        ("u8", 5, 2, 1, (9, 4), 3, 1, True),
        ("u8", 21, 42, 3, (3, 2), 3, 1, True),
        ("u8", 15, 3, 1, (6, 4), 2, 0, True),
        ("bf16", 6, 28, 2, (1, 5), 3, 1, True),
        ("u8", 2, 2, 1, (4, 4), 2, 0, False),
        ("u8", 2, 1, 1, (3, 5), 2, 1, False),
    ],
)
def test_small_convolutions_have_room_for_tiles(
    src: str, ic: int, oc: int, groups: int, image: tuple[int, int], k: int, padding: int, tiles: bool
) -> None:
    wei = "s8" if src == "u8" else src
    p = ConvProblem(1, ic, *image, oc, k, k, src, wei, Epilogue(), padding=(padding,) * 4, groups=groups)
    assert has_room(p) == tiles


@pytest.mark.parametrize(("channels", "older"), [(3, True), (4, True), (5, False), (8, False)])
def test_an_older_kernel_on_tiles_takes_four_channels_at_most(channels: int, older: bool) -> None:
    """Of four outputs; "jit:avx10_1_512_amx" is not followed here."""
    how: dict[str, Any] = {"dt": "bf16:bf16:f32", "machine": "gnr", "isa": "avx512_core_amx", "dispatch": "onednn"}
    how |= {"mb": 1, "ic": channels, "oc": 16, "ih": 4, "iw": 4, "kh": 3, "kw": 3}
    if older:
        with pytest.raises(simdnn.Unimplemented, match="older kernel on tiles"):
            simdnn.estimate("convolution", **how)
    else:
        assert simdnn.estimate("convolution", **how).library == "brg_conv_fwd:avx512_core_bf16"


@pytest.mark.parametrize("src", ["u8", "s8"])
@pytest.mark.parametrize("isa", ["avx512_core_amx", "avx512_core_fp16"])
def test_transposed_convolutions_of_bytes_take_tiles_where_there_are(src: str, isa: str) -> None:
    options = {"strides": (2, 2), "padding": (0, 0, 0, 0), "dilation": (1, 1)} | {"groups": 1, "output_padding": (0, 0)}
    shapes, rows, caps = ((1, 64, 5, 5), (64, 64, 3, 3)), frozenset[str](), implied(isa)
    found = form(OperatorCall("deconvolution", (src, "s8"), "f32", shapes, options, {}, {}, (), rows, caps))
    name = "avx10_1_512_amx" if isa == "avx512_core_amx" else "avx512_core_vnni"
    assert found.name == f"brg_deconv:{name}+brgconv_strided:{name}"


def test_two_tiles_of_twelve_rows_stay_two_by_two() -> None:
    """Lower and wider ones are of more than 12 rows (`bd_block > 12` in `brgemm_blocking_tmm`)."""
    found = tile_blocks(MatmulProblem(34, 34, 256, "bf16", "bf16", Epilogue("f32")))
    assert found and (found.rows, found.columns) == (24, 32)


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("other", ["bf16", "f16"])
def test_reorders_between_s32_and_sixteen_bits_are_copies_alone(other: str, plain: bool) -> None:
    """With a scale it has none."""
    for src, dst in (("s32", other), (other, "s32")):
        assert implementation(src, dst, implied("avx512_core_fp16"), plain) == ("copy" if plain else "")
    for src, dst in (("s32", "f32"), (other, "s8"), ("s8", "s32")):
        assert implementation(src, dst, implied("avx512_core_fp16"), plain) == ("copy" if plain else "kernel")


WIDE = ("avx512_core", "avx512_core_bf16", "avx512_core_fp16", "avx512_core_amx")
#: (source, weights, destination): the caps under which it has such a matmul, by its reference
OF_TWO_FLOATS = {
    ("bf16", "f16", "f32"): WIDE,
    ("bf16", "f16", "bf16"): WIDE,
    ("bf16", "f16", "f16"): WIDE,
    ("f16", "bf16", "f32"): WIDE[2:],
    ("f16", "bf16", "f16"): WIDE[2:],
    ("f16", "bf16", "bf16"): (),
}


@pytest.mark.parametrize("types", OF_TWO_FLOATS)
@pytest.mark.parametrize("isa", ["avx2", *WIDE])
def test_matmuls_of_two_types_of_16_bits_are_its_references(types: tuple[str, str, str], isa: str) -> None:
    how: dict[str, Any] = {"dt": ":".join(types), "machine": "gnr", "isa": isa, "dispatch": "onednn"}
    if isa in OF_TWO_FLOATS[types]:
        assert simdnn.estimate("matmul", m=4, n=16, k=32, **how).library == "ref:any"
    else:
        with pytest.raises(simdnn.Unimplemented, match="oneDNN refuses a matmul"):
            simdnn.estimate("matmul", m=4, n=16, k=32, **how)


@pytest.mark.parametrize(("runtime", "columns"), [("n", "ref_int8:any"), ("mn", "ref_int8:any"), ("m", "gemm:jit")])
def test_both_operands_scales_want_a_known_n_where_one_is_by_column(runtime: str, columns: str) -> None:
    """Under avx512_core."""
    for count, name in ((0, "gemm:jit"), (1, "gemm:jit"), (16, columns)):
        scales = {"src": np.float32(2)} | ({"wei": np.ones(count, np.float32)} if count else {})
        how: dict[str, Any] = {"dt": "u8:s8:f32", "machine": "gnr", "isa": "avx512_core", "dispatch": "onednn"}
        how |= {"attr": simdnn.Attr(scales=scales), "runtime_dims": runtime}
        assert simdnn.estimate("matmul", m=4, n=16, k=32, **how).library == name


def test_scales_and_sums_that_no_implementation_takes() -> None:
    """Asked of the library on a Zen 3; sums in a deconvolution are read in the type that they name."""
    x, w, where = np.ones((2, 8), np.uint8), np.ones((8, 4), np.int8), {"machine": "hsw", "dispatch": "onednn"}
    half, sum_ = simdnn.Quant(np.float32(2), dtype="bf16"), simdnn.Attr(apply_to_int=True, post_ops=[("sum", 1, 3)])
    scaled, read = simdnn.Attr(scales={"wei": half}), simdnn.Attr("any", True, {"dst": half})
    image, kernel, held = x.reshape(2, 8, 1, 1), w.T.reshape(4, 8, 1, 1), np.full((2, 4), 200, np.uint8)
    calls: list[tuple[str, Any]] = [
        ("of a convolution stored in bf16", lambda: simdnn.convolution(image, kernel, attr=scaled, **where)),
        ("of an inner product stored in bf16", lambda: simdnn.inner_product(x, w.T, attr=scaled, **where)),
        ("reads a destination's scale of bf16", lambda: simdnn.matmul(x.astype(np.float32), w, attr=read, **where)),
        ("with a zero point", lambda: simdnn.matmul(x.astype(np.float32), w, dst="u8", attr=sum_, into=held, **where)),
    ]
    for said, call in calls:
        with pytest.raises(simdnn.Unimplemented, match=said):
            call()
    assert simdnn.matmul(x, w, dst="f32", attr=scaled, **where).output[0, 0] == 16
    ops: dict[str, Any] = {"post_ops": [("sum", 0.5, 0, "u8")], "dst": "s8", "into": held.reshape(2, 4, 1, 1)}
    source, turned = image.astype(np.float32), kernel.astype(np.float32)
    assert (simdnn.deconvolution(source, turned, **ops, **where).output == 108).all()
    with pytest.raises(simdnn.InvalidArgument, match="into of int8; u8 is needed"):
        simdnn.deconvolution(source, turned, **ops | {"into": ops["into"].view(np.int8)}, **where)


@pytest.mark.parametrize("dst", ["s8", "u8", "f32"])
def test_comparisons_behind_its_gemm_of_bytes(dst: str) -> None:
    """Dilated filters of three dimensions, one a channel; those with one number to bytes it answers otherwise."""
    how: dict[str, Any] = {"mb": 1, "ic": 16, "oc": 16, "groups": 16, "dilation": 2, "machine": "gnr"}
    how |= {"id": 4, "ih": 5, "iw": 5, "kd": 2, "kh": 2, "kw": 2, "dt": f"u8:s8:{dst}", "isa": "avx512_core"}
    for op in (("gt", np.arange(16, dtype=np.float32)), ("add", np.float32(3)), ("gt", np.float32(3))):
        attr = simdnn.Attr(scales={"src": 0.01}, post_ops=[op])
        if dst != "f32" and op[0] == "gt" and np.size(op[1]) == 1:
            with pytest.raises(simdnn.Unimplemented, match="GEMM answers post-operation 'gt' with one operand"):
                simdnn.estimate("convolution", attr=attr, dispatch="onednn", **how)
        else:
            found = simdnn.estimate("convolution", attr=attr, dispatch="onednn", **how)
            assert found.library == "x64:gemm_s8u8s32:jit"


def operator_call(primitive: str, types: str, shape: tuple[int, ...], last: bool, **options: Any) -> OperatorCall:
    """One of an image, under avx512_core."""
    (src, dst), post_ops = types.split(":"), options.pop("post_ops", ())
    rows, caps = frozenset[str](), implied("avx512_core")
    return OperatorCall(primitive, (src,), dst, (shape,), options, {}, {}, post_ops, rows, caps, not last, last)


@pytest.mark.parametrize("images", [1, 2, 3])
def test_resampling_of_an_image_to_a_pixel_with_an_operand_by_channel(images: int) -> None:
    """Of one image its kernel reads that at other places."""
    shape = (images, 5, 4, 6)
    call = operator_call("resampling", "f32:f32", shape, False, out=[1, 1], post_ops=(("add", (1, 5, 1, 1)),))
    if images == 1:
        with pytest.raises(simdnn.Unimplemented, match="reads second operands by channel at other places"):
            operator_form(call)
    else:
        assert operator_form(call).name == "jit"


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("types", ["f32:f32", "bf16:bf16", "f32:bf16", "bf16:f32", "u8:u8", "u8:s32", "u8:f32"])
def test_pooling_keeps_its_type_and_windows_without_gaps_in_kernels(types: str, dilation: int) -> None:
    windows = {"kernel": [3, 3], "strides": [1, 1], "dilation": [dilation] * 2, "padding": [0] * 4}
    out = [8 - 2 * dilation] * 2
    call = operator_call("pooling", types, (1, 32, 8, 8), True, out=out, algorithm="avg_include_padding", **windows)
    src, dst = types.split(":")
    name = "ref" if src != dst or dilation > 1 else "jit" if src in ("f32", "bf16") else "jit_int"
    assert operator_form(call).name == name


@pytest.mark.parametrize("outputs", [16, 32, 33, 48, 49, 64, 65, 128])
def test_groups_of_one_channel_whose_constants_lie_elsewhere(outputs: int) -> None:
    """Of 3x3 kernels, its groups but the first are wrong where 33 to 48 outputs are in each, or more than 64."""
    how: dict[str, Any] = {"mb": 1, "ih": 6, "iw": 5, "kh": 3, "kw": 3, "machine": "gnr", "dispatch": "onednn"}
    how |= {"isa": "avx512_core_vnni", "padding": 1, "ic": 2, "oc": 2 * outputs, "groups": 2, "dt": "s8:s8:s32"}
    point = simdnn.Attr(zero_points={"src": 3})
    wrong = 32 < outputs <= 48 or outputs > 64
    for change in ({}, {"dt": "u8:s8:s32", "attr": point}, {"padding": 0}, {"kh": 1, "kw": 2}):
        if wrong and not (change == {"padding": 0} and outputs == 128):
            with pytest.raises(simdnn.Unimplemented, match=f"one channel and {outputs} outputs each: up to 32"):
                simdnn.estimate("convolution", **how | change)
        else:
            assert simdnn.estimate("convolution", **how | change).library == "brg_conv_fwd:avx512_core_vnni"
    for change in ({"dt": "u8:s8:s32"}, {"kw": 1}, {"dilation": 2, "padding": 2}, {"ic": 4}):
        assert simdnn.estimate("convolution", **how | change).library == "brg_conv_fwd:avx512_core_vnni"
