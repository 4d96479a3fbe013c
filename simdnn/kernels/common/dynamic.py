"""Quantization on the fly as problems: a floating source to bytes, with a scale for each row and group along K.

CPUs and Intel GPUs have a generator each (`simdnn.kernels.x86.dynamic`, `simdnn.kernels.intel_gpu.dynamic`): the one
finds magnitudes in accumulators, divides, and packs bytes; the other has extremes in stages over threads that share a
group, reciprocals in place of division, and saturating moves. The formulas are one, stated here; the steps are not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_LEAST = 2.0**-126  # the least scale: its reciprocal is finite, and groups of zeros divide by no zero


@dataclass(frozen=True)
class Dynamic:
    """src (M, K) of f32, f16 or bf16 to dst (M, K) of s8 or u8, by groups of `group` along K.

    symmetric: scale = max(greatest |x|, levels * 2**-126) / levels, levels = 127 (s8) or 255 (u8, for x >= 0);
        q = rint(x * (1 / scale)).
    asymmetric: low = min(x, 0), high = max(x, 0); scale = max(high - low, 255 * 2**-126) / 255;
        n = rint(low * (1 / scale)); zero point = least of dst - n;
        q = min(rint(min(x * (1 / scale), n + 255)) + zero point, greatest of dst).
    reductions (M, K/R), s32: the sums of q over R = `reductions` k each, which divides `group`; 0: none.
    """

    m: int
    k: int
    group: int
    src: str
    dst: str
    symmetric: bool = True
    reductions: int = 0

    @property
    def levels(self) -> int:
        return 127 if self.symmetric and self.dst == "s8" else 255

    @property
    def parts(self) -> int:
        return self.k // self.group

    @property
    def least(self) -> np.float32:
        """The range below which it is taken for this, an f32."""
        return np.float32(self.levels * _LEAST)
