"""Calls of oneDNN's kernels around an operator: there are as many as lines, or registers of lines."""

from __future__ import annotations

import pytest

import simdnn
from isa_models import machine
from simdnn.kernels.common.epilogue import Epilogue
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.libraries.onednn.calls import FETCHED, FETCHED_FROM_L3, OPERATORS, around
from simdnn.libraries.onednn.tile_blocks import tile_blocks


@pytest.mark.parametrize(
    ("shape", "axis", "calls"),
    [
        ((6, 5, 32), 2, 30),
        ((6, 5, 32), 1, 12),
        ((6, 5, 33), 1, 18),
        ((6, 5, 32), 0, 10),
        ((6, 32), 0, 2),
        ((6, 7), 1, 6),
    ],
)
def test_a_softmax_is_called_for_lines_or_registers_of_them(shape: tuple[int, ...], axis: int, calls: int) -> None:
    """Along the last dimension line by line, else 16 lines at a time."""
    execution, each = OPERATORS["softmax"]
    r = simdnn.estimate("softmax", src=shape, axis=axis, dt="f32", machine="zen4", dispatch="onednn")
    launched = r.causes.set_index("cause").cycles["launch"]
    assert each > 0 and launched == pytest.approx(execution + each * calls)


@pytest.mark.parametrize(("k", "cycles"), [(1000, FETCHED), (1600, FETCHED_FROM_L3)])
def test_weights_larger_than_the_second_cache_are_fetched_from_the_third(k: int, cycles: float) -> None:
    """Of bf16, whose 1600 x 1024 fill 3.1 MiB: a line of the last panels costs as much as there, in a cache of any size
    that is too small for them, and less in one that holds them.
    """
    spr = machine("spr")
    product = MatmulProblem(64, 1024, k, "bf16", "bf16", Epilogue("f32"), tiles="onednn")
    found = tile_blocks(product)
    assert found and found.fetches == "wei" and found.block_rows == 64
    large = simdnn.what_if(spr, {"caches.L2.size_bytes": 1 << 26, "caches.L2.ways": 16})
    lines = (1024 - found.columns) * k * 2 / 64
    here, there = (around(product, "gemm:avx512_core_amx", m) for m in (spr, large))
    assert here - there == pytest.approx(lines * (cycles - FETCHED))
