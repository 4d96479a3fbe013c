"""Where MLAS cuts the sums of a kernel: pairs along one line, floats in parts of K."""

from __future__ import annotations

from isa_models.isa import implied
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem, Problem
from simdnn.kernels.common.sums import DotProduct, Options, Order

_PACKED = 256  # of K that are added up from zero, where weights are packed ahead of time
_STRIDE = 128  # and else, of K and of N, before the one grows as the other is not needed
_LEAST_COLUMNS = 16
_POINTWISE = 128  # channels that a convolution of one tap adds up from zero


def in_one_line(dot: DotProduct, isa: str, problem: Problem) -> Options:
    """Integers: K as one line, of a convolution over its windows; the sum is scaled by one number."""
    windows = isinstance(problem, ConvProblem) and not _flat(problem)
    return Options(merged_scales=True, order=Order("line") if windows else Order())


def _flat(p: ConvProblem) -> bool:
    """Whether a window is a pixel as it stands in memory."""
    return (p.kh, p.kw) == (1, 1) and not any(p.padding)


def cut_as_sgemm(dot: DotProduct, isa: str, problem: Problem) -> Options:
    """Floats: parts of K, each added up from zero, then in order; a bias stands before the first."""
    assert isinstance(problem, MatmulProblem)
    packed = problem.wei_tag == "any"
    return Options(cut=part_of_k(problem.n, problem.k, packed), bias_first=True)


def one_chain(dot: DotProduct, isa: str, problem: Problem) -> Options:
    """Floats: K as one chain, with the bias behind it."""
    return Options()


def part_of_k(n: int, k: int, packed: bool, turned: bool = False) -> int:
    """How much of K is added up at once, with weights packed ahead of time or as they come; of those for a narrow
    product more (unless the source is `turned`, stored (K, M)), for a short one less.

    >>> part_of_k(100, 300, False), part_of_k(16, 300, False), part_of_k(100, 50, False), part_of_k(100, 300, True)
    (128, 1024, 64, 256)
    """
    if packed:
        return _PACKED
    columns, part = _STRIDE, _STRIDE
    if n >= k:
        while part // 2 >= k:
            part //= 2
        return part
    while not turned and columns > _LEAST_COLUMNS and columns // 2 >= n:
        columns, part = columns // 2, 2 * part
    return part


def cut_in_blocks(dot: DotProduct, isa: str, problem: Problem) -> Options:
    """A convolution of floats: the sums of each block of channels over all taps, from zero, then in order; of fewer
    channels than a block each by itself. What it is added to comes first, the bias last.
    """
    assert isinstance(problem, ConvProblem)
    channels = problem.ic // problem.groups
    if channels < block_of(implied(isa)):
        return Options(cut=1, sum_first=True)
    cut = _POINTWISE if _flat(problem) else block_of(implied(isa))
    return Options(cut=cut, sum_first=True)


def cut_in_columns(dot: DotProduct, isa: str, problem: Problem) -> Options:
    """A convolution of floats as a product of filters by windows: K is (channels, rows, columns), N the pixels."""
    assert isinstance(problem, ConvProblem)
    k = problem.ic // problem.groups * problem.kh * problem.kw
    part = part_of_k(problem.oh * problem.ow, k, False)
    return Options(cut=part, order=Order("gemm", block=part))


def block_of(caps: frozenset[str]) -> int:
    """Channels that lie beside each other in the layout nChw16c, or nChw8c below AVX-512."""
    return 16 if "avx512_core" in caps else 8
