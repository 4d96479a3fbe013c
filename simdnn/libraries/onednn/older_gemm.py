"""oneDNN 3.13's older GEMM of f32 (`gemm_driver.cpp`, one thread): which of its kernels takes a matmul, and where K is
cut. Its matrices lie column by column: its m is N here, its n M, its first operand the weights.
"""

from __future__ import annotations

from simdnn.kernels.common.problems import MatmulProblem
from simdnn.kernels.common.sums import RegisterTile

_FEW_ROWS = 16  # under which AVX-512 has a kernel for weights along K
_LARGE = 378  # sizes from which copies pay
TILE_OF_BYTES = RegisterTile(4, 2)  # of AVX2 (`un`, `um` in gemm_info.cpp)
#: of bytes without VNNI, K that is not cut, and what is packed at once; under two of these, halves
_BYTES = {True: (384, 768), False: (256, 384)}
#: K that is not cut by the kernels that copy, and what they add up at once; under two of these, halves
_COPIED = {True: (384, 384), False: (256, 192)}


def in_dots(p: MatmulProblem) -> bool:
    """Whether each output is the dot product of two vectors that lie along K."""
    return p.wei_tag == "ba" if p.m == 1 else p.n == 1 and not is_turned(p)


def in_chains(p: MatmulProblem) -> bool:
    """Whether outputs of a vector are chains side by side: plain weights with M = 1, a turned source with N = 1."""
    return 1 in (p.m, p.n) and not in_dots(p)


def is_turned(p: MatmulProblem) -> bool:
    """Whether the source lies column by column."""
    return p.layouts.src in ("ba", "apart ba")


def in_rows(p: MatmulProblem, wide: bool) -> bool:
    """Whether the kernel for a few rows takes it, under AVX-512 (`wide`)."""
    return wide and 1 < p.m < _FEW_ROWS and p.wei_tag == "ba" and not is_turned(p)


def copies(p: MatmulProblem, wide: bool) -> bool:
    """Whether it copies both operands first (`nocopy_checker`)."""
    if 1 in (p.m, p.n):
        return False
    return _copies_for_avx512(p) if wide else _copies_for_avx2(p)


def halves(p: MatmulProblem, wide: bool) -> bool:
    """Whether its products of bytes without VNNI go through K in two halves (`bk_traditional`, `bk` in gemm_info.cpp):
    below AVX-512 all of integers are its.
    """
    return in_halves(p.k, wide) and not (wide and (p.left_to != "gemm" or in_dots(p)))


def in_halves(k: int, wide: bool) -> bool:
    """Whether such products over this K do."""
    least, part = _BYTES[wide]
    return least < k < 2 * part


def packed_rows(k: int, wide: bool, depth: int) -> int:
    """Rows of weights of bytes that are packed at a time (`get_k_padd`), whole steps of `depth` rows.

    >>> [packed_rows(k, False, 4) for k in (200, 766, 3072)]
    [200, 384, 384]
    """
    least, part = _BYTES[wide]
    rows = k if k <= least else -(-k // 2) if in_halves(k, wide) else part
    return -(-rows // depth) * depth


def starts_from_sum(p: MatmulProblem) -> bool:
    """Whether a GEMM of floats adds its products to what the destination held (its beta), where that comes first:
    beside a bias or a scale by column it has sums of its own.
    """
    e = p.epilogue
    return e.dst == "f32" and not e.bias and not (e.wei_scale and e.wei_scale.by_channel)


def parts(p: MatmulProblem, wide: bool) -> tuple[int, tuple[int, int] | None]:
    """How many products a chain adds up before a sum restarts, 0 for all, and the lengths of the last two chains where
    they halve what is left.

    >>> from simdnn.kernels.common.epilogue import Epilogue
    >>> parts(MatmulProblem(30, 20, 1000, "f32", "f32", Epilogue()), True)
    (384, (308, 308))
    """
    if 1 in (p.m, p.n):
        return 0, None
    if copies(p, wide):
        whole, most = _COPIED[wide]
        return (0, None) if p.k <= whole else (-(-p.k // 2), None) if p.k < 2 * most else (most, None)
    left = p.k if p.k < 768 else p.k % 384 + 384
    if left in (384, 768) or p.k <= 384:
        return (384 if p.k > 384 else 0), None
    return 384, (-(-left // 2), left // 2)


def _copies_for_avx2(p: MatmulProblem) -> bool:
    # its rules for smaller M and N are left out: the first one decides on all below 264
    return 1 / p.n + 1 / p.m < 0.0038 and p.k > 2


def _copies_for_avx512(p: MatmulProblem) -> bool:
    # its rules for smaller M and N are left out: where the last line is reached, both are 511 and more
    along_k, turned = p.wei_tag == "ba", is_turned(p)
    weights, source, output = p.k if along_k else p.n, p.m if turned else p.k, p.n  # the distance of lines
    alike, far = weights % 256 == 0 == source % 256, not along_k and weights % 1024 == 0
    if turned and far:
        return p.m > 16 or p.k >= _LARGE or p.m == 16 and p.n == 4096
    if not turned and along_k and p.n > 100 and (p.n < 1200 and p.m < 200 and p.k < 1200 or alike):
        return True
    if not turned and far and p.k > 500 and p.m > 100:
        return True
    return 1 / p.n + 1 / p.m < 0.00196 and (p.k > 1 or 0 in (weights % 256, source % 256, output % 256))
