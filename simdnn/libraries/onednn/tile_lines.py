"""Lines of outputs that a convolution of oneDNN 3.13 on AMX tiles takes in a call, on one thread.

As `iterate_ker_block` of its jit_brgemm_conv_utils.cpp blocks them where the image is copied: what half of the second
cache holds, then fewer where the first one has room for a few.
"""

from __future__ import annotations

from isa_models.formats import fmt
from simdnn.kernels.common.problems import ConvProblem
from simdnn.libraries.onednn.caches import FIRST, SECOND
from simdnn.libraries.onednn.order import order_on_tiles

_LEAST = 128  # pixels of a block that is made smaller for the first cache
_ROWS = 16


def lines_at_once(p: ConvProblem) -> int:
    """The lines of outputs of a call: one where all taps are made channels of, and where nothing is copied."""
    order = order_on_tiles(p)
    size, out = fmt(p.src).bits // 8, fmt(p.epilogue.dst).bits // 8
    if order.fold == "window" or not copies(p):
        return 1
    ic, columns, wide = p.ic // p.groups, columns_of(p), p.iw + p.padding[1] + p.padding[3]
    line = 2 * size * ic * wide + out * p.ow * columns
    other = size * p.tap_rows * p.kw * ic * columns + 8 * _ROWS * columns
    room = min(SECOND // 2, max(0, SECOND - other))
    lines = p.oh
    if (p.ih + p.padding[0] + p.padding[2]) * line > room:
        lines = min(p.oh, max(1, room // line))
    short = size * ic * wide + out * p.ow * columns
    most = min(p.oh, max(1, FIRST // short)) if short < FIRST else lines
    fitting = (n for n in range(most, 0, -1) if p.oh > 0.9 * (-(-p.oh // n) * n) and n * wide > _LEAST)
    return next(fitting, lines)


def columns_of(p: ConvProblem) -> int:
    """Columns of outputs of a call."""
    oc = p.oc // p.groups
    work = p.mb * -(-p.od * p.oh * p.ow // 64) * p.groups * -(-oc // 64)
    return min(-(-oc // 16) * 16, 32 if work < 64 or oc < 256 else 64)


def copies(p: ConvProblem) -> bool:
    """Whether lines of the image are copied: all but wide ones that fill whole rows of tiles, without padding."""
    row, dword = 512 // fmt(p.src).bits, 32 // fmt(p.src).bits
    ic = p.ic // p.groups
    whole = ic % row == 0 if ic > row else ic % dword == 0
    return bool(p.padding[1] or p.padding[3]) or not whole or p.ow <= 50 or order_on_tiles(p).fold != ""
