"""Which way onnxruntime takes a MatMulNBits on x86: MLAS's kernels of blocks, or floats.

Read in onnxruntime/contrib_ops/cpu/quantization/matmul_nbits.cc and onnxruntime/core/mlas/lib/qnbitgemm.cpp, and
compared with the library under four ISA caps (docs/numerics_onnxruntime.md).
"""

from __future__ import annotations

_LONGEST = 256  # block: longer ones are several of these
_INTEGERS = 4  # the accuracy level that allows sources of 8 bits


def way_of_blocks(bits: int, level: int, rows: int, constant: bool) -> str:
    """How a product of `rows` rows by blocks of weights is formed at an accuracy level.

    "integers": the source becomes s8 by blocks. "row": one row by weights that become floats on the way. "chain":
    weights become floats first, and K is one chain of multiply-adds. "floats": the same, then a product of floats as
    any other whose weights are no constants.

    >>> way_of_blocks(4, 4, 1, True), way_of_blocks(4, 0, 1, True), way_of_blocks(8, 0, 1, True)
    ('integers', 'row', 'floats')
    """
    if not constant:
        return "floats"
    if level == _INTEGERS:
        return "integers"
    if bits != 4:
        return "floats"
    return "row" if rows == 1 else "chain"


def block_as_formed(block: int) -> int:
    """The length of the blocks that a product is formed with, for weights stored in blocks of `block`."""
    return min(block, _LONGEST)


def zeros_ahead(bits: int, block: int, rows: int, caps: frozenset[str]) -> bool:
    """Whether zero points are taken off the codes before the products: of one row below AVX-512."""
    return bits == 4 and block >= 32 and rows == 1 and "avx512_core" not in caps
