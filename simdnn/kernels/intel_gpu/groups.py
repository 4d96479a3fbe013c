"""GEMM of integers on Intel GPUs with zero points or scales that change along K.

for each period of K with its own scales:       (one, and no totals, where scales do not change along K)
    for each group of zero points:
        for each step of K:                     load, multiply
        what the group's end takes from the sums
    to f32, times the source's scale, times the weights'; added to the totals

Groups are filled up with zeros to whole steps. Every group of scales is scaled by both, the source's first, and groups
are added up in order, each step rounded to f32: the bits of `ref_int8` on CPUs.
"""

from __future__ import annotations

from dataclasses import replace

from isa_models import GpuMachine
from simdnn.kernels.gpu.problem import GpuMatmulProblem
from simdnn.kernels.gpu.tile import Budget
from simdnn.kernels.intel_gpu.gemm import BlockGemm, cut_of
from simdnn.kernels.intel_gpu.operands import Multiplied
from simdnn.kernels.intel_gpu.partition import BlockPartition
from simdnn.kernels.intel_gpu.products import BlockProducts
from simdnn.kernels.intel_gpu.sums import GroupedSums
from simdnn.kernels.intel_gpu.zero_parts import ZeroPart

_SCALES = 16  # GRFs that a period's scales take


def partition_of(
    problem: GpuMatmulProblem, machine: GpuMachine, budget: Budget, group: int, src: str, wei: str
) -> BlockPartition:
    """K in groups, for operands multiplied in these types, with the registers that scales along K need."""
    if problem.group_scales:
        more = problem.k // problem.scale_period > 1
        budget = replace(budget, registers=budget.registers + _SCALES, copies=budget.copies + more)
    return BlockPartition.of(cut_of(problem, machine, budget, src, wei), problem.k, group)


def GpuGroupedGemm(problem: GpuMatmulProblem, machine: GpuMachine) -> BlockGemm:
    """A matmul of integers with `group_scales`."""
    period = problem.scale_period
    partition = partition_of(problem, machine, Budget(), period, problem.src, problem.wei)
    source, weights = Multiplied(partition, "src"), Multiplied(partition, "wei")
    products = BlockProducts(machine, partition, source, weights)
    sums = GroupedSums(products, period, problem.group_scales, ZeroPart(products))
    return BlockGemm(problem, machine, partition.cut, source, weights, sums)
