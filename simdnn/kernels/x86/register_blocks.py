"""Tiles of registers of a product: how many rows and vectors each has, and which panels they meet."""

from __future__ import annotations

from collections.abc import Sequence

from isa_models.formats import fmt
from isa_models.machines.cpu_record import CacheLevel
from simdnn.kernels.common.activations import is_formula
from simdnn.kernels.x86.blocking import (
    ALL,
    FIRST_LEVEL,
    NO_WAITS,
    SECOND_LEVEL,
    WIDEST,
    Waits,
    choose,
    evenly_chunked,
    fitting,
    row_blocks,
    waits_of,
)
from simdnn.kernels.x86.product import PanelBlocks, Product, panels_of

_HIGHEST, _USUAL = 14, 4  # rows of a tile of registers, at most; vectors of a panel where nothing waits for weights


def evenly(product: Product) -> bool:
    """Whether tiles are of about one height, as here, or as high as can be but for the last, as in a library: that one
    may have fewer registers than a formula behind it wants.
    """
    return product.options.tile is None or any(map(is_formula, product.conv.epilogue.post_ops))


def in_registers(product: Product, columns: int, most: int = WIDEST) -> PanelBlocks:
    """Blocks for tiles of up to `most` vector registers a row, of a matrix with a number of columns."""
    unit, dot, given, shifted = product.unit, product.dot, product.options.tile, product.shifted
    if given:
        blocking = fitting(given, unit, dot, shifted)
    else:
        waits = waits_in(product, product.options.caches, _USUAL * unit.lanes)
        if not product.flat and waits.vector and (found := over_lines(product, columns, waits)):
            return found
        blocking = choose(unit, dot, product.rows, columns, shifted, waits, most)
    together = given.together if given else 0
    blocks = row_blocks(product.rows, blocking.rows, evenly(product))
    layout = panels_of(product, together or blocking.vectors)
    if given or product.options.packs or product.options.widens:
        return PanelBlocks(blocks, layout, ALL)
    if product.flat:
        row = product.source_steps.column * fmt(product.source_steps.source.read).bits // 8
        blocks = [part for block in blocks for part in evenly_chunked(*block, row, SECOND_LEVEL)]
    return PanelBlocks(blocks, layout, SECOND_LEVEL)


def over_lines(product: Product, columns: int, waits: Waits) -> PanelBlocks | None:
    """Tiles of several output lines, which share one wait for each vector of weights; None where registers hold fewer
    than two lines.
    """
    c = product.conv
    for lines in range(min(c.oh, _HIGHEST // c.ow), 1, -1):
        blocking = choose(product.unit, product.dot, lines * c.ow, columns, product.shifted, waits)
        if blocking.rows == lines * c.ow:
            count, rest = divmod(c.oh, lines)
            cut = [(0, blocking.rows, count), *([(count * lines, rest * c.ow, 1)] if rest else [])]
            layout = panels_of(product, blocking.vectors)
            return PanelBlocks(cut, layout, SECOND_LEVEL, lines, panel_first=True)
    return None


def waits_in(product: Product, caches: Sequence[CacheLevel], columns: int) -> Waits:
    """The waits of a product's steps for caches: none where the first keeps a panel of that many columns."""
    r = product.source_steps
    if not caches or product.panel_bytes(columns) <= FIRST_LEVEL:
        return NO_WAITS
    row = fmt(r.source.read).bits // 8
    vector = product.unit.lanes * product.dot.depth * fmt(product.dot.wei).bits // 8
    return waits_of(caches, vector, product.dot.depth * row, r.column * row)
