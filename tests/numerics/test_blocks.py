"""The engine's own order of independent iterations: what it cuts, and that no value depends on it."""

from typing import Any

import numpy as np
import pytest

import simdnn
from isa_models.readings.arrays import Array
from simdnn.numerics import blocks, compiled
from simdnn.numerics.blocks import EngineOrder, InBlocks, order_of, order_of_program
from simdnn.program.records import Program, Statement
from tests.effort import one_in


def nests(program: Program) -> list[InBlocks | None]:
    """How the engine cuts each stage."""
    return [order_of(program, statement).blocks for statement in program.body]


def test_weights_that_no_cache_holds_are_cut() -> None:
    def cut(m: int, n: int, k: int) -> list[InBlocks | None]:
        return nests(
            simdnn.estimate("matmul", m=m, n=n, k=k, machine="zen4", dispatch="gemm:avx512_core").kernel.program
        )

    assert cut(2048, 2048, 2048)[0] == InBlocks(1, 4)  # panels of 64 columns, half a MB each, of 16 MB
    assert cut(1024, 1024, 1024) == [None, None]  # 4 MB
    assert cut(8, 4096, 4096) == [None]  # read once


def some(rng: np.random.Generator, shape: tuple[int, ...], dtype: type) -> Array:
    return rng.integers(-9, 9, shape).astype(dtype) if dtype is np.int8 else rng.standard_normal(shape).astype(dtype)


@one_in(2)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_values_do_not_depend_on_the_order(monkeypatch: pytest.MonkeyPatch, dtype: type, threads: int) -> None:
    rng = np.random.default_rng(1)
    product = some(rng, (300, 1000), dtype), some(rng, (1000, 401), dtype)
    images = some(rng, (3, 8, 5, 6), dtype), some(rng, (140, 4, 3, 3), dtype)

    def outcomes() -> list[bytes]:
        how: dict[str, Any] = {"machine": "zen4", "isa": "avx512_core_vnni", "threads": threads, "engine": "compiled"}
        a = simdnn.matmul(*product, **how)
        b = simdnn.convolution(*images, groups=2, padding=1, **how)
        cut.extend(block for r in (a, b) for block in nests(r.kernel.program))
        return [a.output.tobytes(), b.output.tobytes()]

    cut: list[InBlocks | None] = []
    wanted = outcomes()
    assert not any(cut)
    monkeypatch.setattr(blocks, "LARGE", 1 << 12)
    for width in (1, 1 << 15, 1 << 19):
        monkeypatch.setattr(blocks, "BLOCK", width)
        monkeypatch.setattr(compiled, "_CACHE", {})
        assert outcomes() == wanted
    assert len({block for block in cut if block}) > 2


def test_what_is_timed_keeps_the_order_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    program = simdnn.estimate("matmul", m=60, n=130, k=64, machine="zen4", dispatch="gemm:avx512_core").kernel.program
    asked: list[Program] = []

    def noted(program: Program, statement: Statement) -> EngineOrder:
        asked.append(program)
        return order_of(program, statement)

    monkeypatch.setattr(compiled, "order_of", noted)
    monkeypatch.setattr(compiled, "_CACHE", {})
    compiled.compile_timed(program)
    assert not asked
    compiled.compile_program(program)
    assert asked


def test_products_on_tiles_go_along_the_lines_of_their_destination() -> None:
    how: dict[str, Any] = {"machine": "spr", "dt": "u8:s8:s32", "dispatch": "gemm:avx512_core_amx_int8"}
    program = simdnn.estimate("matmul", m=2048, n=2080, k=2048, **how).kernel.program
    nest = order_of_program(program.body[1]).nest  # whole panels of 32 columns, 64 KB each, behind the configuration
    assert [(loop.var, loop.extent) for loop in nest if loop.extent > 1] == [("js", 5), ("r", 64), ("j", 13)]
