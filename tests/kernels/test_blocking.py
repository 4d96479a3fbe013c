"""Tiles of vector registers and blocks of rows: which are chosen, and that no value depends on it."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

import simdnn
from isa_models.machines.loader import cpu_machine
from simdnn import numerics
from simdnn.kernels.common.epilogue import Epilogue, Parameters
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem
from simdnn.kernels.x86.blocking import NO_WAITS, Waits, choose, evenly_chunked, waits_of
from simdnn.kernels.x86.code import unit_of
from simdnn.kernels.x86.dots import FMA
from simdnn.kernels.x86.rows import KERNELS
from simdnn.program.records import Program, Register, walk
from tests.effort import one_in
from tests.kernels.test_engines import data
from tests.primitives.problems import exact_sums

KINDS = {kind.name: kind for kind in KERNELS}
ZMM = unit_of("avx512_core")


def tile_of(program: Program) -> tuple[int, int]:
    """Rows and vectors of the widest and highest tile of a program: its accumulators are named by both."""
    names = {op.dst.name for op, _ in walk(program.body) if isinstance(op.dst, Register) and op.definition.accumulates}
    places = [tuple(map(int, name[1:].split("_"))) for name in names]
    return max(row for row, _ in places) + 1, max(column for _, column in places) + 1


def test_weights_that_are_waited_for_meet_more_rows() -> None:
    waits = Waits(vector=0.2, most=14)
    near, far = (choose(ZMM, FMA, 28, 128, False, w) for w in (NO_WAITS, waits))
    assert (near.rows, near.vectors) == (4, 4) and (far.rows, far.vectors) == (14, 2)


def test_rows_that_share_a_set_are_fewer() -> None:
    caches = cpu_machine("gnr").caches
    apart, together = (waits_of(caches, 64, 4, row) for row in (4096 + 64, 4096))
    assert choose(ZMM, FMA, 2048, 2048, False, apart).rows > 12
    assert choose(ZMM, FMA, 2048, 2048, False, together).rows <= 8


def test_rows_that_share_a_set_fill_it_at_most() -> None:
    """Of eight ways seven rows are taken, and not two tiles of fewer, each of which all weights would pass."""
    caches = cpu_machine("clx").caches
    assert caches[0].ways == 8
    together = waits_of(caches, 64, 4, 8192)
    assert [choose(ZMM, FMA, rows, 2048, False, together).rows for rows in (7, 2048)] == [7, 8]


@pytest.mark.parametrize("k", [64, 192])
def test_a_panel_that_the_first_cache_keeps_is_not_waited_for(k: int) -> None:
    problem = MatmulProblem(28, 128, k, "f32", "f32", Epilogue("f32"))
    zen4, gnr = (KINDS["gemm:avx512_core"].build(problem, cpu_machine(name)) for name in ("zen4", "gnr"))
    assert (tile_of(zen4.program) == tile_of(gnr.program)) == (k == 64)


def test_values_do_not_depend_on_the_tile() -> None:
    rng = np.random.default_rng(0)
    problem = MatmulProblem(61, 100, 192, "f32", "f32", Epilogue("f32"))
    a, b = (rng.standard_normal(shape, dtype=np.float32) for shape in ((61, 192), (192, 100)))
    kernels = [KINDS["gemm:avx512_core"].build(problem, cpu_machine(name)) for name in ("zen4", "gnr")]
    assert tile_of(kernels[0].program) != tile_of(kernels[1].program)
    ours, others = (k.finish(numerics.run(k.program, k.prepare(a, b, Parameters()))) for k in kernels)
    assert (ours == others).all() and np.allclose(ours, a @ b, atol=1e-4)


@one_in(3, "name")
@pytest.mark.parametrize(
    ("name", "src", "zero"),
    [("f32", "f32", False), ("vnni", "u8", True)],
)
@pytest.mark.parametrize(
    "sizes",
    [(2, 64, 7, 7, 50, 3, 3), (1, 96, 5, 4, 20, 3, 2), (1, 130, 9, 9, 64, 2, 2, (2, 2))],
    ids=lambda sizes: "x".join(map(str, sizes)),
)
def test_tiles_of_several_lines(name: str, src: str, zero: bool, sizes: tuple[Any, ...]) -> None:
    """One program has them, the other has not; the sum in s64 says who is right of integers."""
    mb, ic, ih, iw, oc, kh, kw, *strides = sizes
    integer = src in ("u8", "s8")
    wei, e = ("s8", Epilogue("s32", zp_src=zero)) if integer else (src, Epilogue("f32"))
    apart = strides[0] if strides else (1, 1)
    c = ConvProblem(mb, ic, ih, iw, oc, kh, kw, src, wei, e, strides=apart, padding=(1, 0, 1, 2))
    kind = KINDS[{"f32": "conv:avx512_core"}.get(name, f"conv:avx512_core_{name}")]
    kernels = [kind.build(c, cpu_machine(machine)) for machine in ("zen4", "gnr")]
    rows = [tile_of(kernel.program)[0] for kernel in kernels]
    assert rows[1] % c.ow == 0 and rows[1] > c.ow >= rows[0]
    rng = np.random.default_rng(1)
    a, b = data(rng, (mb, ic, ih, iw), src), data(rng, (oc, ic, kh, kw), wei)
    point = 3 if zero else 0
    parameters = Parameters(zp_src=point)
    ours, others = (k.finish(numerics.run(k.program, k.prepare(a, b, parameters))) for k in kernels)
    assert ours.shape == (mb, oc, c.oh, c.ow) and ours.tobytes() == others.tobytes()
    if integer:
        assert (ours == exact_sums(c, a, b, point)).all()


@pytest.mark.parametrize(("height", "count"), [(13, 79), (14, 149), (2, 49), (5, 200)])
def test_row_blocks_that_share_a_pass_are_many(height: int, count: int) -> None:
    blocks = evenly_chunked(0, height, count, 4096, 1 << 18)
    assert sum(prod(block[1:]) for block in blocks) == height * count
    assert all(first == before[0] + prod(before[1:]) for before, (first, *_) in zip(blocks, blocks[1:], strict=False))
    assert len(blocks) == (1 if count == 200 else 2)


@pytest.mark.parametrize(("n", "k"), [(512, 1024), (64, 2048), (1024, 4096)])
def test_decompressed_panels_stay_in_a_small_second_cache(n: int, k: int) -> None:
    """One row would have seven vectors of weights, and two have four: the panel left Haswell's 256 KiB."""
    one, two = (simdnn.estimate("matmul", m=m, n=n, k=k, dt="f8_e4m3", machine="hsw") for m in (1, 2))
    held = 4 * max(tensor.size for tensor in one.kernel.program.tensors if tensor.name.startswith("wei"))
    assert held <= cpu_machine("hsw").caches[1].size_bytes // 2
    assert 0.9 < one.cycles / two.cycles < 1.01
