"""Kernels as oneDNN goes through them, for the clock: what they execute, and that no bit depends on it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models import Machine, machine
from simdnn import Attr, numerics
from simdnn.kernels.common.epilogue import Epilogue
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem
from simdnn.kernels.common.sums import Options
from simdnn.kernels.x86.code import unit_of
from simdnn.kernels.x86.direct import direct
from simdnn.kernels.x86.dots import BF16, F16_LOADED, FMA, MADDUBS, VNNI, Dot
from simdnn.libraries.onednn.blocking import depthwise_tile
from simdnn.libraries.onednn.calls import (
    COLLIDING,
    EXECUTION,
    LINE,
    OLDER,
    SOURCE_COPIED,
    SUMMED,
    SUMMED_FROM_L2,
    SUMMED_THERE,
    around,
)
from simdnn.libraries.onednn.convolution_blocks import convolution_tile
from simdnn.program.records import Program
from tests.effort import examples

OF_BYTES = OLDER["u8"] + SOURCE_COPIED["u8"] * 768  # of the older GEMM of a row of u8 by s8, K = 768
SPR, ZEN4 = map(machine, ("spr", "zen4"))
_DOTS = (
    (FMA, "avx512_core", "f32", "f32", "vfmadd231ps"),
    (FMA, "avx2", "f32", "f32", "vfmadd231ps"),
    (BF16, "avx512_core_bf16", "bf16", "f32", "vdpbf16ps"),
    (F16_LOADED, "avx512_core", "f16", "f32", "vfmadd231ps"),
    (VNNI, "avx512_core_vnni", "u8", "s32", "vpdpbusd"),
    (VNNI, "avx2_vnni", "u8", "s32", "vpdpbusd"),
    (MADDUBS, "avx512_core", "u8", "s32", "vpmaddubsw"),
)


def executed(program: Program) -> Counter[str]:
    """How often each instruction runs."""
    found = Counter[str]()
    for op, times in program.ops():
        found[op.instruction] += times
    return found


def on_image(p: ConvProblem) -> int:
    """Taps of all outputs that lie on the image."""
    found = 1
    for axis in p.axes:
        places = [o * axis.stride - axis.before + t * axis.dilation for o in range(axis.o) for t in range(axis.k)]
        found *= sum(0 <= place < axis.i for place in places)
    return p.mb * found


@st.composite
def convolutions(draw: Any) -> dict[str, Any]:
    k, stride = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    padding = tuple(draw(st.integers(0, 2)) for _ in range(4))
    size = {"mb": draw(st.integers(1, 2)), "ih": draw(st.integers(4, 9)), "iw": draw(st.integers(4, 15))}
    more = {"kh": k, "kw": draw(st.integers(1, 4)), "strides": (stride, draw(st.integers(1, 2))), "padding": padding}
    return {**size, **more, "oc": draw(st.sampled_from([8, 17, 40, 64, 70])), "dilation": (draw(st.integers(1, 2)), 1)}


@examples(40)
@given(convolutions(), st.sampled_from([3, 8, 20]), st.sampled_from(_DOTS), st.booleans())
def test_a_convolution_computes_the_taps_on_the_image_alone(
    sizes: dict[str, Any], ic: int, form: tuple[Dot, str, str, str, str], tiled: bool
) -> None:
    dot, isa, src, dst, name = form
    problem = ConvProblem(ic=ic, src=src, wei="s8" if dot.integer else src, epilogue=Epilogue(dst), **sizes)
    if (problem.kh - 1) * problem.dilation[0] + 1 > problem.ih or problem.oh < 1 or problem.ow < 1:
        return
    unit = unit_of(isa)
    tile = convolution_tile(replace(problem, caches=_INTEL), dot, unit.masks) if tiled else None
    program = direct("x", problem, unit, dot, Options(tile=tile))
    lines_of_zero = min(run(problem, axis) for axis in (0, 1)) == 0  # a line or a column that sees padding alone
    expected = on_image(problem) * ceil(ic / dot.depth) * ceil(problem.oc / unit.lanes)
    assert lines_of_zero or executed(program)[name] == expected


_INTEL, _ZEN3 = (48 * 1024, 2048 * 1024), (32 * 1024, 512 * 1024)  # bytes of a core's caches
_CONVOLUTIONS = [  # channels, image, outputs, taps, stride, padding; AVX-512 or not; weights; the code that was made
    ((64, 56, 64, 3, 1, 1), True, "f32", (6, 4)),
    ((256, 14, 256, 3, 1, 1), True, "f32", (14, 2)),
    ((256, 14, 256, 3, 1, 1), True, "bf16", (5, 4)),
    ((192, 35, 192, 3, 1, 1), True, "f32", (9, 3)),
    ((64, 28, 96, 5, 1, 2), True, "f32", (14, 2)),  # a block of three vectors, cut for the padding's sake
    ((2048, 7, 512, 1, 1, 0), True, "f32", (9, 3)),
    ((128, 28, 128, 3, 1, 1), False, "f32", (4, 3)),
    ((64, 28, 96, 5, 1, 2), False, "f32", (4, 3)),  # of four
    ((512, 14, 512, 3, 1, 1), False, "f32", (5, 2)),
    ((512, 28, 128, 1, 1, 0), False, "f16", (6, 2)),
]
_SMALL_CACHES = [  # f32 without AVX-512: the code that was made on a Zen 3, and what larger caches would have
    ((512, 7, 512, 3, 1, 1), (4, 2), (4, 3)),
    ((384, 28, 256, 3, 1, 1), (6, 2), (4, 3)),
    ((1024, 14, 256, 1, 1, 0), (3, 4), (4, 3)),
    ((1024, 10, 512, 1, 1, 0), (3, 4), (4, 3)),
    ((32, 112, 64, 1, 1, 0), (3, 4), (6, 2)),
]


@pytest.mark.parametrize(("sizes", "wide", "read", "expected"), _CONVOLUTIONS)
def test_tiles_of_convolutions_are_the_librarys(
    sizes: tuple[int, ...], wide: bool, read: str, expected: tuple[int, int]
) -> None:
    assert _tile(sizes, wide, read, _INTEL) == expected


@pytest.mark.parametrize(("sizes", "expected", "beside_larger"), _SMALL_CACHES)
def test_they_go_by_the_machines_caches(
    sizes: tuple[int, ...], expected: tuple[int, int], beside_larger: tuple[int, int]
) -> None:
    assert (_tile(sizes, False, "f32", _ZEN3), _tile(sizes, False, "f32", _INTEL)) == (expected, beside_larger)


def _tile(sizes: tuple[int, ...], wide: bool, read: str, caches: tuple[int, int]) -> tuple[int, int]:
    ic, size, oc, taps, stride, padding = sizes
    problem = ConvProblem(1, ic, size, size, oc, taps, taps, "f32", "f32", Epilogue("f32"), read=read, caches=caches)
    tile = convolution_tile(replace(problem, padding=(padding,) * 4, strides=(stride, stride)), FMA, wide)
    return tile.rows, tile.vectors


@pytest.mark.parametrize(("wei", "name"), [("bf16", "vpmovzxwd"), ("f16", "vcvtph2ps")])
def test_a_convolution_of_f32_widens_its_weights_as_it_loads_them(wei: str, name: str) -> None:
    image = {"mb": 1, "ic": 32, "oc": 64, "ih": 12, "iw": 12, "kh": 3, "kw": 3, "padding": 1}
    how: dict[str, Any] = {"machine": "spr", "isa": "avx512_core", "dispatch": "onednn"}
    kernel = simdnn.estimate("convolution", **image, dt=f"f32:{wei}:f32", **how).kernel
    assert kernel.timed is not None
    steps = executed(kernel.timed)
    assert steps[name] and steps["vfmadd231ps"] <= 6 * steps[name]  # a vector for at most six pixels


def run(p: ConvProblem, axis: int) -> int:
    """The fewest taps on the image of an output along an axis."""
    a = p.axes[axis]
    on = [sum(0 <= o * a.stride - a.before + t * a.dilation < a.i for t in range(a.k)) for o in range(a.o)]
    return min(on)


@pytest.mark.parametrize(("machine", "isa"), [("spr", "avx512_core"), ("hsw", "avx2"), ("spr", "avx512_core_vnni")])
@pytest.mark.parametrize(("size", "taps", "stride"), [(9, 3, 1), (12, 3, 2), (7, 5, 1), (6, 3, 1)])
def test_a_depthwise_convolution_computes_the_taps_on_the_image_alone(
    machine: str, isa: str, size: int, taps: int, stride: int
) -> None:
    dt, name = ("u8:s8:s32", "vpdpbusd") if isa.endswith("vnni") else ("f32:f32:f32", "vfmadd231ps")
    image = {"mb": 2, "ic": 80, "oc": 80, "groups": 80, "ih": size, "iw": size, "kh": taps, "kw": taps}
    how: dict[str, Any] = {"dt": dt, "machine": machine, "isa": isa, "strides": stride, "padding": taps // 2}
    kernel = simdnn.estimate("convolution", **image, **how, dispatch="onednn").kernel
    assert kernel.timed is not None
    lanes = unit_of(isa).lanes
    problem = ConvProblem(
        2, 80, size, size, 80, taps, taps, "f32", "f32", Epilogue("f32"), (stride, stride), (taps // 2,) * 4
    )
    assert executed(kernel.timed)[name] == on_image(problem) * 80 // lanes


def test_a_depthwise_tap_of_s8_at_an_edge_of_the_image_loads_its_weights_anew() -> None:
    """Read in the library's code: once for the pixels on the image, once for those beside each of its two edges. A line
    of 7 is 5 and 2 pixels, whose first and last tap reach over an edge; 19 rows of taps lie on the image, 2 beside it.
    """
    image = {"mb": 1, "ic": 64, "oc": 64, "groups": 64, "ih": 7, "iw": 7, "kh": 3, "kw": 3, "padding": 1}
    how: dict[str, Any] = {"dt": "s8:s8:s32", "machine": "spr", "isa": "avx512_core_vnni", "dispatch": "onednn"}
    kernel = simdnn.estimate("convolution", **image, **how).kernel
    assert kernel.timed is not None
    blocks, vectors = 2, 64 // 16
    loads = blocks * vectors * (19 * (3 + 2) + 2 * 3)
    assert executed(kernel.timed)["vpand"] == loads


def test_sums_of_weights_that_lie_on_the_image_are_made_in_every_run() -> None:
    """A source of s8 on an unsigned unit: what is added to it counts on the image alone. Of 3 x 3 taps, kinds of lines
    have 2, 3 and 2 rows.
    """
    image = {"mb": 1, "ic": 64, "oc": 64, "ih": 5, "iw": 5, "kh": 3, "kw": 3, "padding": 1}
    how: dict[str, Any] = {"machine": "spr", "isa": "avx512_core_vnni", "dispatch": "onednn"}
    ours, theirs = (
        executed(simdnn.estimate("convolution", dt=f"{src}:s8:s32", **image, **how).kernel.timed)["vpdpbusd"]
        for src in ("u8", "s8")
    )
    assert theirs - ours == (2 + 3 + 2) * 3 * 16 * 4


def test_pixels_by_channels_in_registers_are_the_librarys() -> None:
    """Read in the code that it makes."""

    def tile(src: str, wei: str, stride: int, wide: bool, ic: int = 96, taps: int = 3) -> tuple[int, int]:
        p = ConvProblem(1, ic, 56, 56, ic, taps, taps, src, wei, Epilogue(), (stride, stride), (1,) * 4, groups=ic)
        found = depthwise_tile(p, wide)
        return found.rows, found.vectors

    assert [tile(t, t, s, True) for t in ("f32", "f16", "bf16") for s in (1, 2)] == [(6, 2), (7, 4)] + [
        (6, 2),
        (6, 4),
    ] * 2
    assert [tile(t, "s8", s, True) for t in ("u8", "s8") for s in (1, 2)] == [(5, 2), (6, 4)] * 2
    assert tile("f32", "f32", 1, False) == tile("u8", "s8", 2, False) == (2, 4)
    few = [tile("f32", "f32", stride, True, ic) for stride, ic in ((2, 32), (1, 48))]
    few += [tile(src, "s8", stride, True, ic) for src, stride, ic in (("u8", 1, 32), ("s8", 1, 32), ("u8", 2, 48))]
    assert few == [(15, 2), (13, 1), (6, 2), (6, 2), (9, 3)]
    assert tile("u8", "s8", 1, True, 16, 5) == (13, 1)
    assert tile("f32", "f32", 1, True, 64, 15) == (7, 4)


@pytest.mark.parametrize(
    ("src", "isa"), [("f32", "avx512_core"), ("bf16", "avx512_core_bf16"), ("u8", "avx512_core_vnni")]
)
@pytest.mark.parametrize(("channels", "lanes"), [(4, 4), (8, 8), (16, 16), (12, 4)])
def test_small_groups_are_in_registers_as_narrow_as_they(src: str, isa: str, channels: int, lanes: int) -> None:
    image = {"mb": 1, "ic": 4 * channels, "oc": 4 * channels, "groups": 4, "ih": 6, "iw": 8, "kh": 3, "kw": 3}
    dt = "u8:s8:s32" if src == "u8" else f"{src}:{src}:f32"
    kernel = simdnn.estimate("convolution", **image, dt=dt, machine="zen4", isa=isa, dispatch="onednn").kernel
    assert kernel.timed is not None
    products = [op.dst for op, _ in kernel.timed.ops() if op.instruction in ("vfmadd231ps", "vdpbf16ps", "vpdpbusd")]
    assert {place.lanes for place in products} == {lanes}


@pytest.mark.parametrize("ic", [16, 48])
def test_a_convolution_of_bf16_that_is_emulated_leaves_taps_out(ic: int) -> None:
    image = {"mb": 1, "ic": ic, "oc": 32, "ih": 7, "iw": 7, "kh": 3, "kw": 3, "padding": 1}
    how: dict[str, Any] = {"dt": "bf16:bf16:f32", "machine": "zen4", "isa": "avx512_core", "dispatch": "onednn"}
    problem = ConvProblem(1, ic, 7, 7, 32, 3, 3, "bf16", "bf16", Epilogue("f32"), padding=(1,) * 4)
    found = executed(simdnn.estimate("convolution", **image, **how).kernel.timed)
    assert found["vfmadd231ps"] == on_image(problem) * ic * 32 // 16


def test_a_depthwise_convolution_of_bf16_is_emulated_product_by_product() -> None:
    image = {"mb": 1, "ic": 64, "oc": 64, "groups": 64, "ih": 9, "iw": 9, "kh": 3, "kw": 3, "padding": 1}
    how: dict[str, Any] = {"dt": "bf16:bf16:f32", "machine": "zen4", "isa": "avx512_core", "dispatch": "onednn"}
    problem = ConvProblem(1, 64, 9, 9, 64, 3, 3, "bf16", "bf16", Epilogue("f32"), padding=(1,) * 4)
    found = executed(simdnn.estimate("convolution", **image, **how).kernel.timed)
    assert found["vfmadd231ps"] == 2 * on_image(problem) * 64 // 16


@pytest.mark.parametrize(
    ("dt", "isa", "k", "rows"),
    [("u8:s8:s32", "avx2", k, rows) for k, rows in ((64, 64), (257, 132), (512, 256), (900, 384))]
    + [("bf16:bf16:f32", "avx512_core", k, rows) for k, rows in ((64, 64), (512, 256), (900, 450), (2000, 768))],
)
def test_the_older_gemm_packs_its_weights_in_every_call(dt: str, isa: str, k: int, rows: int) -> None:
    """A panel at a time, as many rows as the library cuts K into, which stay in a cache for all rows."""
    kernel = simdnn.estimate("matmul", m=5, k=k, n=80, dt=dt, machine="zen4", isa=isa, dispatch="onednn").kernel
    tensors = {tensor.name: tensor for tensor in (kernel.timed or kernel.program).tensors}
    assert tensors["wei"].kind == "private" and "plain" in tensors
    assert tensors["wei"].size in [rows * width for width in (16, 32, 48, 64)]


@pytest.mark.parametrize(("m", "k", "n"), [(5, 900, 80), (3, 257, 33), (1, 64, 24)])
def test_what_is_timed_of_the_older_gemm_multiplies(m: int, k: int, n: int) -> None:
    rng = np.random.default_rng(k)
    src, wei = rng.integers(0, 99, (m, k)).astype(np.uint8), rng.integers(-99, 99, (k, n)).astype(np.int8)
    how: dict[str, Any] = {"dt": "u8:s8:s32", "machine": "spr", "isa": "avx2", "dispatch": "onednn"}
    program = simdnn.estimate("matmul", m=m, k=k, n=n, **how).kernel.timed
    found = numerics.run(program, {"plain": wei.reshape(-1), "src": src.reshape(-1)})["dst"]
    assert (found.reshape(m, n) == src.astype(np.int32) @ wei.astype(np.int32)).all()


def test_lines_of_weights_are_packed_four_times_from_the_first_cache() -> None:
    """Of 384 rows it holds the lines of the next panels of 16 columns."""
    found = simdnn.estimate("matmul", m=4, k=1152, n=1000, dt="u8:s8:s32", isa="avx2", machine="spr", dispatch="onednn")
    assert found.traffic.set_index("level").loc["L2", "read_bytes"] < 1.2 * 1152 * 1000


def test_a_call_for_a_line_and_sums_of_weights_cost_what_was_measured() -> None:
    """Older kernels take small groups, whose lines are not counted; sums are made for sources of s8 alone."""

    def lines(groups: int) -> float:
        p = ConvProblem(
            2, 64, 7, 7, 96, 3, 3, "f32", "f32", Epilogue(), padding=(1,) * 4, groups=groups, tiles="onednn"
        )
        return around(p, "conv:avx512_core", ZEN4) - EXECUTION

    assert [lines(groups) for groups in (1, 2, 4)] == [2 * 7 * 2 * LINE, 2 * 2 * 7 * LINE, 0]

    def sums(k: int, n: int, target: Machine = ZEN4) -> float:
        theirs, ours = (MatmulProblem(1, n, k, src, "s8", Epilogue(), tiles="onednn") for src in ("s8", "u8"))
        row = "gemm:avx2_int8"
        more = around(theirs, row, target) - around(ours, row, target) - (OLDER["s8"] - OLDER["u8"])
        return more / (k * n)

    line = 64 / ZEN4.caches[1].load_bytes_per_cycle
    expected = [SUMMED, line, ZEN4.caches[0].set_cycles / 2]
    assert [sums(k, n) for k, n in ((64, 77), (1500, 77), (768, 2048))] == pytest.approx(expected)
    assert sums(64, 77, SPR) == pytest.approx(SUMMED_THERE)
    spread, met = sums(1500, 77, SPR), sums(1500, 512, SPR)  # in all sets of the first cache, and in eight of them
    assert [spread, met] == pytest.approx([64 / SPR.caches[1].load_bytes_per_cycle, SUMMED_FROM_L2])


def test_one_tap_with_a_stride_is_called_line_by_line() -> None:
    def lines(stride: int) -> float:
        epilogue = Epilogue()
        p = ConvProblem(2, 64, 14, 14, 96, 1, 1, "f32", "f32", epilogue, strides=(stride, stride), tiles="onednn")
        return around(p, "conv:avx512_core", SPR) - EXECUTION

    assert [lines(stride) for stride in (1, 2)] == [0, 2 * 7 * 2 * LINE]


@pytest.mark.parametrize(("isa", "spread"), [("avx512_core_vnni", 1), ("avx2_vnni", 2)])
def test_sums_of_a_shifted_source_go_through_f32_and_the_shift_is_brought_every_four_steps(
    isa: str, spread: int
) -> None:
    """18 steps of K, of which the last two are a turn of their own, for each tile of 12 rows by 32 columns."""
    how: dict[str, Any] = {"m": 12, "k": 72, "n": 32, "isa": isa, "machine": "gnr", "dispatch": "onednn"}
    kernels = [simdnn.estimate("matmul", dt=f"{src}:s8:s32", **how).kernel for src in ("s8", "u8")]
    signed, unsigned = (executed(kernel.timed or kernel.program) for kernel in kernels)
    tiles, vectors = signed["vpermd"] // (5 * spread), signed["vcvtdq2ps"]
    assert tiles * 5 * spread == signed["vpermd"] and vectors * (512 if spread == 1 else 256) == 12 * 32 * 32
    assert signed["vcvtps2dq"] == signed["vminps"] == vectors and not unsigned["vcvtdq2ps"] and not unsigned["vpermd"]
    older = simdnn.estimate("matmul", dt="s8:s8:s32", **how | {"isa": "avx2"}).kernel  # which shifts as it packs
    assert not executed(older.timed or older.program)["vpermd"]


@pytest.mark.parametrize("isa", ["avx512_core_vnni", "avx2_vnni"])
@pytest.mark.parametrize("convolves", [False, True])
def test_a_long_sum_of_a_shifted_source_is_rounded_to_f32(isa: str, convolves: bool) -> None:
    """Of s8 sources alone: the library has 66080512 for 4097 products of 127 by 127, 1 less than there is of u8."""
    how: dict[str, Any] = {"dst": "s32", "machine": "gnr", "isa": isa, "dispatch": "onednn"}
    for dtype, expected in ((np.int8, 66080512), (np.uint8, 66080513)):
        src, weights = np.full((1, 4097), 127, dtype), np.full((4097, 32), 127, np.int8)
        if convolves:
            found = simdnn.convolution(src.reshape(1, -1, 1, 1), weights.T.reshape(32, -1, 1, 1), **how)
        else:
            found = simdnn.matmul(src, weights, **how)
        assert (found.output == expected).all()


@pytest.mark.parametrize(
    ("dt", "isa"), [("bf16:bf16:f32", "avx512_core"), ("u8:s8:s32", "avx512_core"), ("f32:f32:f32", "avx2")]
)
def test_channels_that_fill_no_vectors_go_the_librarys_way(dt: str, isa: str) -> None:
    """A mask leaves some of the last vector out: it takes the time of a whole one."""

    def cycles(channels: int) -> float:
        image = {"mb": 1, "ic": channels, "oc": channels, "ih": 14, "iw": 14, "kh": 3, "kw": 3, "padding": 1}
        how: dict[str, Any] = {"dt": dt, "isa": isa, "machine": "gnr", "dispatch": "onednn", "groups": channels}
        return simdnn.estimate("convolution", **image, **how).cycles

    assert cycles(76) == cycles(80)


def test_columns_of_bytes_meet_in_sets_and_in_banks() -> None:
    """Cycles a byte of 384 rows, read down each column on a Zen 3, by the bytes between rows."""
    measured = {768: 2.25, 1280: 2.11, 512: 4.33, 1536: 4.38, 2048: 4.75, 3584: 4.37, 4096: 9.18}
    zen3 = machine("zen3")
    for stride, cycles in measured.items():
        more = [
            around(MatmulProblem(1, stride, 384, src, "s8", Epilogue(), tiles="onednn"), "gemm:avx2_int8", zen3)
            for src in ("s8", "u8")
        ]
        sums = (more[0] - more[1] - (OLDER["s8"] - OLDER["u8"])) / (384 * stride)
        assert sums == pytest.approx(cycles, rel=0.12), stride


def test_lines_that_collide_are_copied_at_a_higher_cost() -> None:
    """Rows of 768 bytes meet in 16 sets of the first cache, rows of 832 in all of them."""
    few, all_ = (MatmulProblem(1, n, 768, "u8", "s8", Epilogue(), tiles="onednn") for n in (768, 832))
    copied = [around(p, "gemm:avx2_int8", SPR) - around(p, "gemm:avx512_core_int8", SPR) for p in (few, all_)]
    assert [one - OF_BYTES for one in copied] == pytest.approx([COLLIDING * 768 * 768, 0])


def test_a_set_of_the_first_cache_takes_its_lines_one_after_the_other() -> None:
    """On a core whose file says how long each takes: rows of 2048 bytes are in two of 64 sets, of 768 in sixteen."""
    (first, second), columns = ZEN4.caches[:2], (768, 2048, 4096)
    problems = [MatmulProblem(1, n, 768, "u8", "s8", Epilogue(), tiles="onednn") for n in columns]
    each = [around(p, "gemm:avx2_int8", ZEN4) - around(p, "gemm:avx512_core_int8", ZEN4) for p in problems]
    line = first.line_bytes / second.load_bytes_per_cycle
    expected = [0.0, (first.set_cycles / 2 - line) / 16, (first.set_cycles - line) / 16]
    assert [(one - OF_BYTES) / (768 * n) for one, n in zip(each, columns, strict=True)] == pytest.approx(expected)


@pytest.mark.parametrize("groups", [1, 48])
@pytest.mark.parametrize(
    ("machine", "isa", "src", "dst"),
    [
        ("spr", "avx512_core", "f32", "f32"),
        ("hsw", "avx2", "f32", "f32"),
        ("spr", "avx512_core_fp16", "f16", "f32"),
        ("spr", "avx512_core_vnni", "s8", "s32"),
        ("spr", "avx2_vnni", "u8", "f32"),
    ],
)
def test_no_bit_of_a_convolution_depends_on_what_the_clock_sees(
    machine: str, isa: str, src: str, dst: str, groups: int
) -> None:
    rng = np.random.default_rng(groups)
    image, weights = rng.integers(0, 99, (1, 48, 6, 9)), rng.integers(-99, 99, (48, 48 // groups, 3, 3))
    if src[0] == "f":
        given = [(one / 7).astype(np.float32 if src == "f32" else np.float16) for one in (image, weights)]
    else:
        given = [image.astype(src.replace("u", "uint").replace("s", "int")), weights.astype(np.int8)]
    convolve = partial(simdnn.convolution, *given, padding=1, groups=groups, dst=dst, machine=machine, isa=isa)
    theirs = convolve(dispatch="onednn")
    ours = convolve(dispatch=theirs.implementation)
    assert (theirs.output == ours.output).all()
    assert src == "s8" or theirs.kernel.program.body == ours.kernel.program.body  # through f32, to s32 as well
    assert theirs.kernel.timed and theirs.kernel.timed != theirs.kernel.program


def test_formulas_find_their_registers_behind_the_librarys_tiles() -> None:
    for isa in ("avx2", "avx512_core_vnni"):
        for shape in ({"ic": 32, "oc": 24, "groups": 1}, {"ic": 32, "oc": 32, "groups": 32}):
            how: dict[str, Any] = {
                "mb": 1,
                "ih": 9,
                "iw": 25,
                "kh": 3,
                "kw": 3,
                "padding": 1,
                "machine": "spr",
                "isa": isa,
            }
            attr = Attr(post_ops=["gelu_tanh"])
            for dt in ("f32:f32:f32", "s8:s8:f32"):
                found = simdnn.estimate("convolution", dt=dt, attr=attr, dispatch="onednn", **shape, **how)
                assert found.cycles > 0


@pytest.mark.parametrize(
    "post_op", [("clip", 0.0, 6.0), ("linear", 2.0, 1.0), ("relu", 0.5), ("hardswish", 1 / 6, 0.5)]
)
def test_post_operations_find_registers_behind_a_depthwise_tile(post_op: tuple[Any, ...]) -> None:
    """Four vectors of channels by seven pixels leave four registers, which weights hold before."""
    asked = {"mb": 1, "ic": 64, "oc": 64, "groups": 64, "ih": 3, "iw": 15, "kh": 3, "kw": 2, "strides": (1, 2)}
    attr = Attr(post_ops=[post_op])
    found = simdnn.estimate("convolution", attr=attr, machine="zen4", dispatch="onednn", **asked)
    assert found.library == "brdgmm_dw:avx512_core" and found.cycles > 0


@pytest.mark.parametrize("dt", ["f32:f32:f32", "s8:s8:s32"])
def test_the_table_of_kernels_has_depthwise_ones_whose_end_wants_more_registers(dt: str) -> None:
    asked = {"ic": 8, "oc": 8, "groups": 8, "ih": 19, "iw": 24, "kh": 3, "kw": 3, "padding": 0, "machine": "adl-p"}
    found = simdnn.estimate("convolution", dt=dt, attr=Attr(post_ops=["tanh"]), dispatch="onednn", **asked).dispatch
    assert (found[found.implementation.str.startswith("dw:avx2")].dropna().cycles > 0).any()


@pytest.mark.parametrize(("shape", "measured"), [((128, 128), 3579), ((192, 192), 6974), ((320, 320), 16992)])
def test_one_row_of_floats_fetches_each_line_ahead(shape: tuple[int, int], measured: int) -> None:
    """On a Granite Rapids; without the library's fetches 0.66 to 0.79 of measured."""
    k, n = shape
    how: dict[str, Any] = {"dt": "f32", "isa": "avx512_core", "machine": "gnr", "dispatch": "onednn"}
    found = simdnn.estimate("matmul", m=1, k=k, n=n, **how)
    assert found.cycles == pytest.approx(measured, rel=0.13)
    assert found.cost.executed["prefetcht0"] == found.cost.executed["vmovups"] - n // 8 * 2
