"""Whether oneDNN 3.13's `brg_conv_fwd` may cut the sums of a convolution between channels (docs/numerics.md, rule 9).

It takes as many channels at a time as let their weights stay in the second cache, and the pixels that a row of its
kernel reads in the first. Which of several widths of blocks it prefers, it estimates; here a cut by any of them counts.
"""

from __future__ import annotations

from isa_models.formats import fmt
from simdnn.kernels.common.problems import ConvProblem
from simdnn.libraries.onednn.caches import FIRST, SECOND

#: bytes of the first and the second cache that it counts on, of CPUs that have 1 to 2 MiB a core
_CACHES = ((32 * 1024 * 7 // 8, 1024 * 1024 * 3 // 4), (FIRST, SECOND))
MOST_ROWS = {True: (28, 14, 9, 6), False: (14, 6, 4, 3)}  # pixels of a tile, of AVX-512 and AVX2, by its vectors
_MOST = 5  # blocks of channels that a register holds times this, at most


def may_cut_channels(p: ConvProblem, wide: bool) -> bool:
    """Whether sums of floats over a kernel of several taps may be cut between channels; `wide`: AVX-512."""
    if p.tap_rows * p.kw == 1:
        return False
    lanes = 16 if wide else 8
    most = min(4, -(-(p.oc // p.groups) // lanes))
    cuts = (_cuts(p, wide, count, lanes) for count in range(most, 0, -1) if considers(p, count, lanes))
    return next(cuts)  # narrower ones are slower, and not preferred to one that leaves sums whole


def _cuts(p: ConvProblem, wide: bool, count: int, lanes: int) -> bool:
    """Whether a tile of some height and `count` vectors leaves the sums cut, on some CPU."""
    lines = {-(-p.ow // parts) for parts in range(1, p.ow + 1)}
    heights = {min(line, MOST_ROWS[wide][count - 1]) for line in lines}
    blocks = (channels_of_block(p, wide, count * lanes, rows, *caches) for rows in heights for caches in _CACHES)
    return any(block < p.ic // p.groups for block in blocks)


def considers(p: ConvProblem, vectors: int, lanes: int) -> bool:
    """Whether tiles of this many vectors are among those estimated (`fast_check_oc_block`)."""
    size = -(-(p.oc // p.groups) // lanes) * lanes
    stored, whole = size * fmt(p.read or p.wei).bits // 8, size % (vectors * lanes) == 0
    if vectors * lanes == 64:
        return not fmt(p.src).is_float or whole and stored < 192 * 4
    if vectors * lanes == 48:
        return whole and stored <= 384 * 4 and p.ih * p.iw > 81 * p.strides[0] * p.strides[1]
    return True


def channels_of_block(
    p: ConvProblem, wide: bool, columns: int, rows: int, first: int, second: int, taps: int = 0
) -> int:
    """Channels of a block, for tiles of `rows` pixels by `columns`, and rows of `taps` (0: all)."""
    size = fmt(p.src).bits // 8
    lanes = (64 if wide else 32) // size
    whole = -(-(p.ic // p.groups) // lanes)  # registers of channels
    pixels = min(p.iw, (rows - 1) * p.strides[1] + (p.kw - 1) * p.dilation[1] + 1)
    each = (taps or p.tap_rows) * (p.kw * columns + pixels) * size  # bytes a channel
    most = min(_MOST * lanes, whole)
    if p.kw > 1:
        most = min(most, first // (pixels * size * lanes))
    most = max(1, min(most, (second - rows * columns * 4) // (each * lanes)))
    if not wide and whole <= 256 and each < 1400:
        most = whole
    fits = (n for n in range(most, 0, -1) if 2 * whole >= -(-whole // n) * n)  # at least half of them filled
    return next(fits, 1) * lanes
