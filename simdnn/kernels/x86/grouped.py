"""The sum of an integer GEMM whose scales change along K: each group's s32 sum becomes an f32 term, and the terms are
added in order.

Scales are kept for every group of the finer of the two (docs/numerics.md, rule 7).
"""

from __future__ import annotations

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.kernels.common import pack
from simdnn.kernels.common.epilogue import GroupScales, Parameters
from simdnn.kernels.common.params import Param
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.kernels.x86.product import Product
from simdnn.kernels.x86.tile import Chain, Group, Repeat, TapLoop
from simdnn.program.records import SCALES, ZEROS, Tensor


class GroupedChains:
    """A chain for every group of one matmul with `GroupScales`."""

    def __init__(self, product: Product, layout: pack.Layout) -> None:
        assert isinstance(product.problem, MatmulProblem) and product.problem.group_scales is not None
        self.product, self.layout = product, layout
        self.scales: GroupScales = product.problem.group_scales
        self.length = product.problem.scale_period
        self.groups = product.k // self.length
        self.chained = self.groups > 1
        order = ("wei", "src") if self.scales.weights_first else ("src", "wei")
        used = tuple(name for name in order if getattr(self.scales, name))
        self.group = Group(layout.channels, self.groups, product.shifted, used)

    def sums(self, step: int) -> tuple[Repeat, ...]:
        """A chain for every group; `step` in weights."""
        steps = -(-self.length // self.product.dot.depth)  # a single group's last one may be part of one
        chain = Chain((), steps)
        return (Repeat((chain,), TapLoop("part", self.groups, self.length, steps * step)),)

    def tensors(self) -> list[Tensor]:
        by_channel = self.groups * self.layout.channels
        wanted = [
            (Tensor("group_comp", "s32", by_channel, role=ZEROS), self.product.shifted),
            (Tensor("wei_group_scale", "f32", by_channel, role=SCALES), bool(self.scales.wei)),
            (Tensor("src_group_scale", "f32", self.product.rows * self.groups, role=SCALES), bool(self.scales.src)),
        ]
        return [tensor for tensor, used in wanted if used]

    def arrays(self, weights: Array, parameters: Parameters) -> dict[str, Array]:
        tensors = {}
        n = self.product.oc

        def each_group(values: Array, param: Param) -> Array:
            return np.repeat(values, param.length(self.product.k) // self.length, axis=0)

        if self.product.shifted:
            sums = weights.reshape(self.groups, -1, n).sum(axis=1, dtype=np.int64)
            tensors["group_comp"] = self.by_channel(pack.wrap32(-128 * sums))
        if self.scales.wei:
            assert parameters.wei_scale is not None
            values = np.asarray(parameters.wei_scale, np.float32).reshape(-1, n)
            tensors["wei_group_scale"] = self.by_channel(each_group(values, self.scales.wei))
        if self.scales.src:
            values = np.asarray(parameters.src_group_scale, np.float32)
            tensors["src_group_scale"] = np.ascontiguousarray(each_group(values.T, self.scales.src).T).reshape(-1)
        return tensors

    def by_channel(self, values: Array) -> Array:
        """(groups, N) with the padding of panels."""
        return pack.filled(values, self.layout.channels).reshape(-1)
