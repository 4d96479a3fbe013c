"""Copies as problems: a strided source into a contiguous destination.

CPUs and GPUs have a generator each (`simdnn.kernels.x86.copy`, `simdnn.kernels.gpu.copy`): the one counts bytes and
puts a line together from moves of every size, the other spreads whole elements over threads. They share the problem and
no step.
"""

from __future__ import annotations

from dataclasses import dataclass

from simdnn.kernels.common.vocabulary import Spread, Vocabulary


@dataclass(frozen=True)
class CopyProblem:
    """dst[i, j, …] = src[i, j, …] for elements of `size` bytes; `strides` are the source's, in elements."""

    dims: tuple[int, ...]
    strides: tuple[int, ...]
    size: int  # 1, 2, 4 or 8 bytes


def copying(p: CopyProblem, words: Vocabulary) -> Spread:
    """Input src, output dst: by the target's own generator."""
    return words.copying(p)
