"""What oneDNN 3.13.2 takes, as it says itself (`impl_info_str`) on a Granite Rapids, one thread: with tiles or without,
and reorders that it has or lacks.
"""

from __future__ import annotations

from typing import Any

import pytest

import simdnn
from isa_models.isa import implied
from simdnn.kernels.common.epilogue import Epilogue
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem
from simdnn.libraries.model import OperatorCall
from simdnn.libraries.onednn.deconvolution import form
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
