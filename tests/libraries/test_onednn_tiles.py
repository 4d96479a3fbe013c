"""Kernels on tiles as oneDNN goes through them, for the clock: their blocks, and that they multiply."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import simdnn
from simdnn import numerics
from simdnn.kernels.common.epilogue import Epilogue
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem
from simdnn.kernels.x86.amx import TILED_U8, tiled_gemm
from simdnn.kernels.x86.amx_blocks import NestInBlocks
from simdnn.kernels.x86.code import unit_of
from simdnn.libraries.onednn.tile_blocks import compressed_blocks, tile_blocks
from simdnn.libraries.onednn.tile_cuts import estimate_of
from simdnn.libraries.onednn.tile_lines import columns_of, lines_at_once
from simdnn.libraries.onednn.tiles import cut_for_tiles

_BLOCKS = [  # rows, columns, rows and columns of a block, K of a part: in code that the library made
    ((16, 512, 512), "u8", (16, 32, 16, 512, 512)),
    ((33, 129, 65), "bf16", (22, 32, 33, 65, 129)),
    ((64, 768, 768), "bf16", (32, 32, 64, 768, 384)),
    ((256, 2048, 2048), "bf16", (32, 32, 256, 2048, 416)),
    ((128, 128, 128), "bf16", (32, 32, 32, 128, 128)),
    ((512, 128, 512), "bf16", (32, 32, 32, 512, 128)),
    ((512, 512, 512), "bf16", (32, 32, 32, 512, 512)),
    ((768, 768, 768), "u8", (32, 32, 32, 768, 768)),
]


@pytest.mark.parametrize(("sizes", "src", "expected"), _BLOCKS)
def test_blocks_on_tiles_are_the_librarys(
    sizes: tuple[int, int, int], src: str, expected: tuple[int, int, int, int, int]
) -> None:
    m, k, n = sizes
    wei, dst = ("bf16", "f32") if src == "bf16" else ("s8", "s32")
    found = tile_blocks(MatmulProblem(m, n, k, src, wei, Epilogue(dst)))
    assert found and (found.rows, found.columns, found.block_rows, found.block_columns, found.k) == expected


@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(5, 100, 40), (33, 129, 65), (64, 1500, 70), (70, 60, 300), (100, 3000, 33), (40, 200, 20)]
    + [(97, 200, 90), (125, 200, 70), (62, 200, 150)],
)
def test_what_is_timed_on_tiles_multiplies(m: int, k: int, n: int) -> None:
    """Whole blocks and the rests of them, sums that lie in the destination between parts of K, tiles of a few rows."""
    assert multiplies(m, k, n)


@pytest.mark.parametrize(("n", "columns"), [(150, 64), (192, 64), (96, 64), (70, 32)])
def test_blocks_of_some_columns_multiply_all(n: int, columns: int) -> None:
    """As with thousands of columns: whole blocks, those of the panels left, and a narrower panel behind."""
    assert multiplies(70, 60, n, block_columns=columns)


def multiplies(m: int, k: int, n: int, **others: int) -> bool:
    """Whether a program in the library's blocks, some of their sizes `others`, multiplies rightly."""
    rng = np.random.default_rng(k)
    src, wei = rng.integers(0, 99, (m, k)).astype(np.uint8), rng.integers(-99, 99, (k, n)).astype(np.int8)
    problem = MatmulProblem(m, n, k, "u8", "s8", Epilogue("s32"), tiles="onednn")
    options = cut_for_tiles(TILED_U8, "avx512_core_amx", problem)
    assert options.blocks
    gemm = tiled_gemm("t", problem, unit_of("avx512_core_amx"), TILED_U8, "", options, compressed=False)
    program = NestInBlocks(gemm, replace(options.blocks, **others)).program()
    inputs = gemm.product.inputs(program, gemm.weights.arrays)
    found = numerics.run(program, inputs(src, wei, {}))["dst"]
    return bool((found.reshape(m, n) == src.astype(np.int32) @ wei.astype(np.int32)).all())


def test_rows_beside_few_columns_are_cut_as_evenly_as_can_be() -> None:
    """In as few blocks of up to two tiles of rows as there can be, none with a row more than it needs."""
    for m in range(1, 300):
        p = MatmulProblem(m, 20, 512, "bf16", "bf16", Epilogue("f32"))
        block, blocks = estimate_of(p, 0.0).block, -(-m // 32)
        assert block * blocks >= m > (block - 1) * blocks


@pytest.mark.parametrize(
    ("m", "k", "n", "low", "products"),
    [(97, 256, 178, 1, 1552), (605, 256, 438, 1, 6496), (345, 1787, 42, 5, 840), (97, 256, 174, 0, 0)]
    + [(200, 320, 960, 10, 12000), (48, 512, 2048, 16, 6144)],
)
def test_low_tiles_multiply_as_often_as_in_the_librarys_code(m: int, k: int, n: int, low: int, products: int) -> None:
    """Where rows or columns of a call are no whole tiles, two by two; counted in what it makes for bf16."""
    how = {"isa": "avx512_core_amx", "machine": "gnr", "dispatch": "onednn"}
    kernel = simdnn.estimate("matmul", m=m, k=k, n=n, dt="bf16:bf16:f32", **how).kernel
    assert kernel and kernel.timed
    counted = Counter[int]()
    for op, times in kernel.timed.ops():
        if op.instruction == "tdpbf16ps":
            counted[op.dst.lanes // 16] += times
    assert counted[low] == products


@pytest.mark.parametrize(
    ("m", "k", "rows", "apart"), [(8, 512, 8, ()), (32, 256, 32, ()), (128, 256, 16, ("src",)), (256, 640, 32, ())]
)
def test_blocks_over_compressed_weights(m: int, k: int, rows: int, apart: tuple[str, ...]) -> None:
    """As the library's code has them; what is timed stores all results once."""
    found = compressed_blocks(MatmulProblem(m, 544, k, "bf16", "s8", Epilogue("f32"), tiles="onednn"))
    assert (found.rows, found.columns, found.apart) == (rows, 64, apart)
    attr = simdnn.Attr(fpmath="bf16", apply_to_int=True)
    how: dict[str, Any] = {"isa": "avx512_core_amx", "machine": "gnr", "dispatch": "onednn", "attr": attr}
    kernel = simdnn.estimate("matmul", m=m, k=k, n=544, dt="bf16:s8:f32", **how).kernel
    assert kernel and kernel.timed
    stored = [times * op.rows for op, times in kernel.timed.ops() if op.instruction == "tilestored"]
    assert sum(stored) == m * 544 // 16


def test_compressed_weights_are_brought_into_order_anew_for_every_256_rows() -> None:
    attr = simdnn.Attr(fpmath="bf16", apply_to_int=True)
    how: dict[str, Any] = {"isa": "avx512_core_amx", "machine": "gnr", "dispatch": "onednn", "attr": attr}
    counts = []
    for m in (200, 256, 512, 600):
        kernel = simdnn.estimate("matmul", m=m, k=256, n=192, dt="bf16:s8:f32", **how).kernel
        assert kernel and kernel.timed
        stores = [(op, times) for op, times in kernel.timed.ops() if op.memory is not None and op.memory is op.dst]
        counts.append(sum(times for op, times in stores if not op.definition.tile and op.memory.tensor != "dst"))
    assert counts[0] > 0 and counts == [counts[0], counts[0], 2 * counts[0], 3 * counts[0]]


@pytest.mark.parametrize(
    ("ic", "size", "oc", "taps", "products"),
    [(64, 56, 64, 3, 7416), (192, 35, 192, 3, 26244), (96, 28, 96, 3, 6048), (128, 28, 128, 3, 8064)],
)
def test_lines_multiply_and_are_copied_as_often_as_in_the_librarys_code(
    ic: int, size: int, oc: int, taps: int, products: int
) -> None:
    """Counted while its code ran, for bytes; rows between two lines are computed, and left out of what is stored."""
    sizes = {"mb": 1, "ic": ic, "ih": size, "iw": size, "oc": oc, "kh": taps, "kw": taps, "padding": taps // 2}
    how = {"isa": "avx512_core_amx", "machine": "gnr", "dispatch": "onednn"}
    kernel = simdnn.estimate("convolution", **sizes, dt="s8:s8:s32", **how).kernel
    assert kernel and kernel.timed
    counted = Counter[str]()
    for op, times in kernel.timed.ops():
        stored = op.memory is not None and op.memory is op.dst
        counted[op.memory.tensor if op.memory and stored else op.instruction] += times
    assert counted["tdpbssd"] == products
    assert size * size * oc // 16 <= counted["dst"] < 1.15 * size * size * oc // 16


@pytest.mark.parametrize(
    ("mb", "ic", "size", "oc", "loads", "past"),
    [(1, 32, 56, 128, 1568, 0), (2, 192, 40, 512, 19200, 0), (1, 128, 56, 384, 9408, 0)]
    + [(1, 1024, 14, 256, 3584, 1792), (1, 512, 28, 128, 3920, 784)],
)
def test_one_tap_loads_tiles_as_often_as_in_the_librarys_code(
    mb: int, ic: int, size: int, oc: int, loads: int, past: int
) -> None:
    """Calls by the loads in the code that it makes for bytes; of 512 channels that has those of the last call alone
    past the first cache, and the clock here all of the source.
    """
    how: dict[str, Any] = {"isa": "avx512_core_amx", "machine": "gnr", "dispatch": "onednn"}
    image = {"mb": mb, "ic": ic, "ih": size, "iw": size, "oc": oc, "kh": 1, "kw": 1}
    kernel = simdnn.estimate("convolution", **image, dt="u8:s8:s32", **how).kernel
    assert kernel and kernel.timed
    counted = Counter[str]()
    for op, times in kernel.timed.ops():
        counted[op.instruction] += times
    assert counted["tileloadd"] + counted["tileloaddt1"] == loads
    assert counted["tileloaddt1"] == past


@pytest.mark.parametrize(("types", "row_bytes"), [("u8:s8:s32", 12), ("bf16:bf16:f32", 20)])
def test_a_first_layer_with_a_stride_has_tiles_of_its_lines_alone(types: str, row_bytes: int) -> None:
    """Read in the library's code and its configuration of tiles: five tiles of rows by one of columns, two of rows for
    a line of 31 outputs, whose rows have three taps of three channels and no more. It has 17 and 14 lines in its two
    calls for 16 columns.
    """
    image: dict[str, Any] = {"mb": 1, "ic": 3, "oc": 32, "ih": 63, "iw": 63, "kh": 3, "kw": 3, "strides": 2}
    how: dict[str, Any] = {"dt": types, "isa": "avx512_core_amx", "machine": "gnr", "dispatch": "onednn"}
    timed = simdnn.estimate("convolution", **image, **how).kernel.timed
    assert timed is not None
    ops = [(op, times) for op, times in timed.ops() if op.definition.tile and op.memory is not None]
    stores = sum(times for op, times in ops if op.memory is op.dst)
    assert stores == 31 * 2 * 2
    rows = {op.memory.bits // op.memory.rows // 8 for op, _ in ops if op.memory and op.memory.tensor == "lines"}
    assert rows == {row_bytes}
    loads = Counter[str]()
    for op, times in ops:
        if op.memory and op.memory is not op.dst:
            loads[op.memory.tensor] += times
    assert loads["lines"] == 3 * stores
    assert loads["wei"] == 78  # blocks of up to five tiles: seven of 17 lines, six of 14


@pytest.mark.parametrize(
    ("types", "sizes", "lines", "columns"),  # mb, ic, size, oc, taps, stride, padding, groups
    [
        (("u8", "s8", "s32"), (1, 128, 56, 128, 3, 1, 1, 4), 7, 16),
        (("bf16", "bf16", "f32"), (1, 128, 56, 128, 3, 1, 1, 4), 5, 16),
        (("bf16", "bf16", "f32"), (1, 128, 56, 128, 3, 2, 1, 1), 23, 32),
        (("u8", "s8", "s32"), (1, 80, 73, 192, 3, 1, 0, 1), 4, 16),
        (("u8", "s8", "s32"), (4, 32, 56, 384, 3, 1, 1, 1), 43, 64),
        (("bf16", "bf16", "f32"), (1, 175, 33, 101, 3, 1, 1, 1), 25, 32),
    ],
)
def test_calls_on_tiles_have_the_lines_and_columns_of_the_library_at_work(
    types: tuple[str, str, str], sizes: tuple[int, ...], lines: int, columns: int
) -> None:
    mb, ic, size, oc, taps, stride, padding, groups = sizes
    src, wei, dst = types
    how: dict[str, Any] = {"strides": (stride,) * 2, "padding": (padding,) * 4, "groups": groups}
    problem = ConvProblem(mb, ic, size, size, oc, taps, taps, src, wei, Epilogue(dst), tiles="onednn", **how)
    assert (lines_at_once(problem), columns_of(problem)) == (lines, columns)


@pytest.mark.parametrize(
    ("problem", "lines"),
    [
        (ConvProblem(1, 8, 9, 9, 32, 3, 3, "bf16", "bf16", Epilogue("f32"), padding=(1,) * 4, groups=2), 9),
        (ConvProblem(1, 3, 224, 224, 32, 3, 3, "u8", "s8", Epilogue("s32"), padding=(1,) * 4, strides=(2, 2)), 5),
        (ConvProblem(1, 3, 64, 64, 32, 3, 3, "bf16", "bf16", Epilogue("f32"), padding=(1,) * 4), 1),
    ],
)
def test_pixels_of_few_channels_are_copied_for_the_lines_of_a_call(problem: ConvProblem, lines: int) -> None:
    """Their room serves all calls, in what is timed; values come from windows of the whole image."""
    assert lines_at_once(problem) == lines
    types = {"bf16": "bf16:bf16:f32", "u8": "u8:s8:s32"}[problem.src]
    own = simdnn.estimate("convolution", dt=types, machine="gnr", dispatch="onednn", **_sizes(problem)).kernel
    assert own.timed
    room = next(tensor for tensor in own.timed.tensors if tensor.name == "lines").size
    wide, channels = problem.iw + 2, problem.ic // problem.groups
    rows = (lines - 1) * problem.strides[0] + problem.kh
    assert rows * wide * channels <= room <= (rows + 1) * wide * channels * 3 + 2048


def _sizes(p: ConvProblem) -> dict[str, int]:
    sizes = {name: getattr(p, name) for name in ("ic", "oc", "ih", "iw", "kh", "kw", "groups")}
    return {**sizes, "padding": p.padding[0], "strides": p.strides[0]}
