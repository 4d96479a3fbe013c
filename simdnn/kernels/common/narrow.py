"""Products with narrow floats (f8, f6, f4): what a problem tells of them beside its types."""

from __future__ import annotations

from dataclasses import dataclass

from simdnn.kernels.common.params import Param

#: floats of at most a byte that elements of a product may be
NARROW = ("f8_e4m3", "f8_e5m2", "f6_e2m3", "f6_e3m2", "f4_e2m1")
#: how scales of a destination are found: a power of two for 32 columns, or a float for 16
DYNAMIC = ("dynamic_mx", "dynamic_fp")


@dataclass(frozen=True)
class Narrow:
    """Scales of a product in which the source, the weights or the destination are floats of at most a byte.

    Parameters.src_group_scale is (M or 1, parts of K), Parameters.wei_scale (parts of K, N or 1). `dynamic` finds
    scales of the destination, one for each row and `columns`; they come out beside it.
    """

    src: Param | None = None
    wei: Param | None = None
    dynamic: str = ""
    columns: int = 0
    reference: bool = False  # as oneDNN's reference does: through f16, scales of each product, no saturation

    def __str__(self) -> str:
        given = [str(param) for param in (self.src, self.wei) if param]
        return ", ".join([*given, *([f"{self.dynamic} {self.columns}"] if self.dynamic else [])])
