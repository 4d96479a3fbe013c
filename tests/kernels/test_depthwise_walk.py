"""Depthwise convolutions as oneDNN's kernels go through them, for the clock: every tap once, every output stored."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import simdnn
from isa_models import machine
from isa_models.formats import fmt
from simdnn import numerics
from simdnn.kernels import ConvProblem, Epilogue, kernels
from simdnn.libraries.onednn.blocking import depthwise_tile, words_tile
from simdnn.program.records import Memory, Program
from tests.effort import one_in

KINDS = {kind.name: kind for kind in kernels()}
ROWS = {  # by the product that a tap is, and lanes
    "dw:avx2_int8": ("vpmaddwd", 8),
    "dw:avx512_core_int8": ("vpmaddwd", 16),
    "dw:avx512_core_vnni_int8": ("vpdpbusd", 16),
    "dw:avx512_core": ("vfmadd231ps", 16),
}


def problem(row: str, src: str, size: int, taps: int, stride: int, padding: int, channels: int) -> ConvProblem:
    integer = "int8" in row
    types = (src if integer else "f32", "s8" if integer else "f32", Epilogue("s32" if integer else "f32"))
    around = (padding,) * 4
    return ConvProblem(
        1, channels, size, size, channels, taps, taps, *types, (stride,) * 2, around, groups=channels, tiles="onednn"
    )


def counted(program: Program, name: str) -> int:
    return sum(times for op, times in program.ops() if op.instruction == name)


@one_in(3, "row")
@pytest.mark.parametrize(
    ("row", "src"), [(row, src) for row in ROWS for src in (("u8", "s8") if "int8" in row else ("f32",))]
)
@pytest.mark.parametrize(
    ("size", "taps", "stride"), [(14, 3, 1), (14, 3, 2), (13, 5, 1), (12, 5, 2), (4, 7, 1), (26, 25, 1)]
)
def test_every_tap_once(row: str, src: str, size: int, taps: int, stride: int) -> None:
    """Taps that lie on the image; with a source that is shifted, those beside it, too."""
    name, lanes = ROWS[row]
    p = problem(row, src, size, taps, stride, taps // 2, 96)
    program = KINDS[row].build(p, machine("zen4")).timed
    assert program is not None
    per_vector = counted(program, name) * lanes // 96
    places = [o * stride + w - taps // 2 for o, w in product(range(p.oh), range(taps))]
    along = sum(0 <= place < size for place in places)
    every = src == "s8" and "int8" in row
    assert per_vector == (p.oh * p.ow * taps**2 if every else along**2)
    stored = sum(
        times * op.dst.lanes for op, times in program.ops() if isinstance(op.dst, Memory) and op.dst.tensor == "dst"
    )
    assert stored == p.oh * p.ow * p.oc


@one_in(3)
@pytest.mark.parametrize("row", ["dw:avx2_int8", "dw:avx512_core_int8", "dw:avx512_core"])
@pytest.mark.parametrize(("size", "taps", "stride"), [(6, 3, 1), (7, 3, 2), (4, 5, 1)])
def test_what_is_timed_convolves(row: str, size: int, taps: int, stride: int) -> None:
    """Each tap meets its own pixels and weights. VNNI's, and those of shifted sources, have constants for the clock."""
    rng, p = np.random.default_rng(size), problem(row, "u8", size, taps, stride, taps // 2, 96)
    x = rng.integers(0, 20, (size, size, 96)).astype(fmt(p.src).dtype)
    weights = rng.integers(-20, 20, (taps, taps, 96)).astype(fmt(p.wei).dtype)
    padded = np.pad(x.astype(np.int64), [(taps // 2, taps // 2)] * 2 + [(0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (taps, taps), (0, 1))[::stride, ::stride]
    program = KINDS[row].build(p, machine("zen4")).timed
    assert program is not None
    found = numerics.run(program, {"src": x.reshape(-1), "wei": weights.reshape(-1)})["dst"]
    exact = np.einsum("yxchw,hwc->yxc", windows, weights.astype(np.int64))
    assert (found.reshape(exact.shape) == exact).all()


@one_in(2)
@pytest.mark.parametrize("types", ["f32", "bf16:bf16:f32", "u8:s8:s32", "s8:s8:f32"])
@pytest.mark.parametrize("columns", [12, 13, 14, 24, 64])
def test_kernels_of_many_columns_have_a_cost(types: str, columns: int) -> None:
    """Where registers do not hold the pixels of all columns, these are not shared."""
    shape = {"ic": 64, "oc": 64, "groups": 64, "ih": 1, "iw": 100, "kh": 1, "kw": columns}
    found = simdnn.estimate("convolution", **shape, dt=types, machine="zen4", dispatch="onednn")
    assert found.cycles > 64 * columns * (101 - columns) / 32  # products of two vectors a cycle


def test_tiles_as_its_kernels_have_them() -> None:
    """Pixels by vectors of channels, read in the code that oneDNN 3.13 writes for these."""
    for row, src, found in (("dw:avx2_int8", "s8", (2, 4)), ("dw:avx512_core_int8", "s8", (6, 3))):
        tile = words_tile(problem(row, src, 56, 3, 1, 1, 96), "512" in row)
        assert (tile.rows, tile.vectors) == found
    tile = depthwise_tile(problem("dw:avx512_core", "f32", 28, 5, 2, 2, 192), True)
    assert (tile.rows, tile.vectors) == (7, 4)
