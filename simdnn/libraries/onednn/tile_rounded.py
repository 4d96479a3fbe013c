"""How oneDNN 3.13 sums a convolution of f32 that it rounds to bf16 for AMX tiles (docs/numerics_products.md, rule 14).

A run of channels is cut in blocks (`select_ic_block` of jit_brgemm_conv_utils.cpp), and a block in steps of a tile: the
largest even divisor up to 32, else pairs (`brgemm_blocking_tmm` of brgemm_utils.cpp). Kernels of one tap take 32 at a
time where their channels fill no whole rows.
"""

from __future__ import annotations

from simdnn.kernels.common.problems import ConvProblem
from simdnn.kernels.common.sums import Options, Order
from simdnn.libraries.onednn.order import columns_on_tiles, order_on_tiles, pointwise
from simdnn.libraries.onednn.tile_lines import columns_of, lines_at_once

_ROW = 16  # elements of f32 in a register
_STEP = 32  # of bf16 in a row of a tile
_FEW = 8192  # bytes of all rows of a kernel in one pixel, up to which blocks have 16 channels


def rounded_options(p: ConvProblem) -> Options:
    """Where such sums are cut, and how they go through the taps."""
    together, blocks = _runs(p)
    (first, step), *others = blocks
    if all(_is_plain(elements, some) for elements, some in blocks):
        if not others:
            order = order_on_tiles(p) if together != 1 else Order()
            return Options(order=order, lines=lines_at_once(p), columns=columns_of(p))
        if first % _STEP == 0 and together == 1:
            return Options(cut=first)
    if together == 1 and first % step == 0 and all(block == (first, step) for block in others):
        return Options(cut=first // step * _STEP * bool(others), order=Order("filled", block=step))
    cut, *_, end = [count * _STEP for count in _counts(p, together, blocks)] + [0] * (not others)
    order = Order("steps", together, blocks=blocks)
    if end in (0, cut):
        return Options(cut=cut * bool(others), order=order)
    return Options(cut=cut, order=order, last=(cut // 2, end // 2))


def steps_of(p: ConvProblem) -> int:
    """The steps of a call, at most: those of its longest block, for all taps."""
    return max(_counts(p, *_runs(p)))


def _counts(p: ConvProblem, together: int, blocks: tuple[tuple[int, int], ...]) -> list[int]:
    """The steps of each block, for all runs of a window."""
    runs = p.tap_rows * p.kw // together if together else 1
    return [runs * -(-elements // step) for elements, step in blocks]


def _is_plain(elements: int, step: int) -> bool:
    """Whether steps are as a row of a tile has them: of 32, the rest last."""
    return step >= min(elements, _STEP)


def _runs(p: ConvProblem) -> tuple[int, tuple[tuple[int, int], ...]]:
    """The columns whose channels are a run (0: those of all taps), and its blocks with their steps."""
    ic, fold = p.ic // p.groups, order_on_tiles(p).fold
    if pointwise(p):
        dense = p.strides[0] == 1 and p.iw % p.strides[1] == 0 and (p.depth is None or p.depth.stride == 1)
        block = min(64, ic) if dense else ic  # of others a copy is made first
        extends = ic > _ROW and ic % _ROW > 0
        return 1, tuple((n, _step(n, extends)) for n in _cut(ic, block))
    strides = columns_on_tiles(p)
    if fold and strides == 1:
        together = p.kw if fold == "row" else 0
        elements = (together or p.kw * p.kh) * ic
        return together, ((elements, _step(elements)),)
    run = strides * ic
    return strides, tuple((n, _step(n)) for n in _cut(run, _block(p, run)))


def _block(p: ConvProblem, run: int) -> int:
    """Elements of a run that go through all taps before the next ones do."""
    rows = p.tap_rows
    if rows * run * 4 > _FEW:
        most = -(-1024 // (rows * 4))
        return next((n for n in range(most, 7, -1) if run % n == 0), run)
    return min(run, _ROW)


def _cut(elements: int, block: int) -> list[int]:
    return [min(block, elements - first) for first in range(0, elements, block)]


def _step(elements: int, extends: bool = False) -> int:
    """Elements of a step; `extends`: what divides by no whole row is filled up."""
    if extends and elements > _STEP and elements % _STEP:
        return _STEP
    return next((n for n in range(_STEP, 1, -2) if elements % n == 0), 2)
