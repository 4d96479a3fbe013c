"""Convolutions whose buffers oneDNN 3.13 finds too large for tiles (`init_scratchpad`, jit_brgemm_conv_utils.cpp).

It copies all images but those of wide lines and whole channels, and refuses where its buffers together are more than 64
times the tensors: of small tensors, as each buffer has whole pages.
"""

from __future__ import annotations

from isa_models import Unimplemented
from isa_models.formats import fmt
from simdnn.kernels.common.problems import ConvProblem
from simdnn.libraries.onednn.order import order_on_tiles
from simdnn.libraries.onednn.rounded_up import over, up
from simdnn.libraries.onednn.tile_lines import copies
from simdnn.libraries.onednn.tile_rounded import steps_of

_PAGE = 4096
_ROWS = 16
_TILE = 1024


def has_room(p: ConvProblem) -> bool:
    """Whether tiles take a convolution of several taps, by the size of its buffers on one thread.

    How many tiles they have depends on blocks that are not modelled: raises where that decides, by bounds that held for
    1500 small problems of f32 rounded to bf16.
    """
    fold, size, oc = order_on_tiles(p).fold, fmt(p.src).bits // 8, p.oc // p.groups
    if not copies(p):
        return True
    planes, taps = p.depth.i if p.depth else 1, p.tap_rows * p.kw
    columns, lines = p.iw + p.padding[1] + p.padding[3], planes * (p.ih + p.padding[0] + p.padding[2])
    weights = p.groups * up(oc, _ROWS) * up(p.ic // p.groups, 4 // size) * taps
    outputs = p.mb * p.od * p.oh * p.ow * p.oc
    tensors = size * (p.mb * planes * p.ih * p.iw * p.ic + weights) + fmt(p.epilogue.dst).bits // 8 * outputs
    copied = size * up(lines * columns * p.ic * (p.kh if fold == "window" else 1), _PAGE)
    turned = size * up(weights, 1024) + _PAGE if fold else 0
    fixed = copied + turned + 6 * _PAGE  # and where they begin; addresses of batches, what is copied already
    high = min(5, 2 - (-((p.oh - 1) * columns + p.ow) // _ROWS))  # tiles of outputs, with those between lines, at most
    wide, steps = over(min(oc, 64), _ROWS), steps_of(p) if p.src == "f32" else 0
    least, most = (up(_TILE * (steps * (tiles + wide) + tiles) + 1, _PAGE) for tiles in (1, high))
    most += 2 * _PAGE
    small = p.src in ("bf16", "f16") and fixed + least > 64 * tensors  # an older kernel on tiles takes it, or another
    if small or fixed + least <= 64 * tensors < fixed + most:
        raise Unimplemented(
            "whether oneDNN takes tiles for a convolution this small, of buffers some 64 times its tensors, is not "
            "known: larger images or more channels work, isa='avx512_core_fp16', and dispatch='fastest'"
        )
    return 64 * tensors >= fixed + most
