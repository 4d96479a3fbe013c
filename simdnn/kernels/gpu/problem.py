"""Problems of a GPU's kernels: a matmul, or a batch of them at once, and the convolution that is one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from simdnn.kernels.common.batch import Batch
from simdnn.kernels.common.epilogue import Decompression, ZeroPoints
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem


@dataclass(frozen=True)
class GpuMatmulProblem(MatmulProblem):
    """A matmul on a GPU.

    `src` and `wei` are the types multiplied (tf32: of f32 data), or, with `compute`, those that operands are stored in.
    `sums`: the type of the unit's accumulators, where it is narrower than 32 bits. `spare`: registers that a thread's
    tile leaves for formulas behind the sums.
    """

    float_model: str = ""
    compute: str = ""
    sums: str = ""
    spare: int = field(default=0, repr=False)


def product_of(p: ConvProblem, **more: Any) -> GpuMatmulProblem:
    """The matmul of one group's pixels, of all planes, by its output channels; `more` of its fields.

    >>> from simdnn.kernels.common.epilogue import Epilogue
    >>> p = product_of(ConvProblem(2, 8, 5, 5, 32, 3, 3, "f16", "f16", Epilogue("f32"), groups=4))
    >>> p.m, p.n, p.k, p.batch.count
    (18, 8, 18, 4)
    """
    m, n, k = p.mb * p.od * p.oh * p.ow, p.oc // p.groups, p.tap_rows * p.kw * p.ic // p.groups
    return GpuMatmulProblem(m, n, k, p.src, p.wei, p.epilogue, batch=Batch.groups(p.groups), **more)


@dataclass(frozen=True)
class GpuConvProblem(ConvProblem):
    """A convolution on a GPU. Its epilogue has the common zero points, which its product takes as `zero_points`."""

    float_model: str = ""
    zero_points: ZeroPoints | None = None
    decompression: Decompression | None = None

    @property
    def product(self) -> GpuMatmulProblem:
        """The matmul of a group's pixels by its output channels."""
        e = replace(self.epilogue, zp_src=False, zp_wei=False)
        return product_of(
            replace(self, epilogue=e),
            float_model=self.float_model,
            zero_points=self.zero_points,
            decompression=self.decompression,
            promote=self.promote,
        )
