"""Integer GEMM whose scales change along K: each group's s32 sum becomes an f32 term, and the terms are added in order.

Scales are kept for every group of the finer of the two (docs/numerics.md, rule 7).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.kernels.common import pack
from simdnn.kernels.common.code import Unit
from simdnn.kernels.common.spec import GroupScales, MatmulProblem, Parameters
from simdnn.kernels.x86.dots import Dot
from simdnn.kernels.x86.epilogue import Plan
from simdnn.kernels.x86.gemm import Gemm, Options
from simdnn.kernels.x86.tile import Chain, Group, Repeat, Taps
from simdnn.program.records import Tensor


class GroupedGemm(Gemm):
    """The generator for one matmul with `GroupScales`."""

    def __init__(self, name: str, problem: MatmulProblem, unit: Unit, dot: Dot, options: Options) -> None:
        super().__init__(name, problem, unit, dot, options)
        assert problem.group_scales is not None
        self.scales: GroupScales = problem.group_scales
        self.groups = problem.k // self.scales.group

    @cached_property
    def plan(self) -> Plan:
        return Plan(self.conv.epilogue, integer=False, reference=self.scales.reference)

    @cached_property
    def group(self) -> Group:
        order = ("wei", "src") if self.scales.weights_first else ("src", "wei")
        used = tuple(name for name in order if getattr(self.scales, name))
        return Group(self.layout.channels, self.groups, self.shifted, used)

    def sums(self, step: int) -> tuple[Repeat, ...]:
        """A chain for every group."""
        steps = self.scales.group // self.dot.depth
        chain = Chain((), steps)
        return (Repeat((chain,), Taps("part", self.groups, self.scales.group, steps * step)),)

    def tensors(self) -> list[Tensor]:
        by_channel = self.groups * self.layout.channels
        wanted = [
            ("group_comp", "s32", by_channel, self.shifted),
            ("wei_group_scale", "f32", by_channel, bool(self.scales.wei)),
            ("src_group_scale", "f32", self.rows * self.groups, bool(self.scales.src)),
        ]
        return [*super().tensors(), *(Tensor(name, dtype, size) for name, dtype, size, used in wanted if used)]

    def parameter_tensors(self, weights: Array, p: Parameters) -> dict[str, Array]:
        rest = replace(p, wei_scale=None) if self.scales.wei else p
        tensors = super().parameter_tensors(weights, rest)
        k, n = self.problem_k, self.oc

        def each_group(values: Array, length: int) -> Array:
            return np.repeat(values, length // self.scales.group, axis=0)

        if self.shifted:
            sums = weights.reshape(n, k).astype(np.int64).reshape(n, self.groups, -1).sum(axis=2).T
            tensors["group_comp"] = self.by_channel(pack.wrap32(-128 * sums))
        if self.scales.wei:
            assert p.wei_scale is not None
            values = np.asarray(p.wei_scale, np.float32).reshape(-1, n)
            tensors["wei_group_scale"] = self.by_channel(each_group(values, self.scales.wei))
        if self.scales.src:
            values = np.asarray(p.src_group_scale, np.float32)
            tensors["src_group_scale"] = np.ascontiguousarray(each_group(values.T, self.scales.src).T).reshape(-1)
        return tensors

    def by_channel(self, values: Array) -> Array:
        """(groups, N) with the padding of panels."""
        padded = np.zeros((self.groups, self.layout.channels), values.dtype)
        padded[:, : self.oc] = values
        return padded.reshape(-1)
