"""Integer GEMM with zero points on Intel GPUs, by four strategies with the same bits (`upconvert` has the fifth).

    sum over k of (a - za)(w - zw) = sum a w - sum over groups zw R - correction of za,   R: the group's sum of a

in_kernel    R by the matrix instruction itself, against ones; `mad C -= zw R` after each group of K
precomputed  R is read: the user's, or another kernel's by-product; the same mads
bias         the whole term as an M x N matrix (for each period of scales), made before and added once at its end
direct       w - zw in the loop: it has nine bits, so it goes in as two products, its half and its last bit; weights of
             four bits less their zero points fit in bytes, one product

The source's zero point needs the weights alone: -za sum(w - zw), a value for each column (or each group of it). It is
applied at the end of a period, or of each group where it changes more often.
"""

from __future__ import annotations

from isa_models import GpuMachine
from isa_models.formats import fmt
from simdnn.kernels.gpu.problem import GpuMatmulProblem
from simdnn.kernels.gpu.tile import Budget
from simdnn.kernels.intel_gpu.block import block_of
from simdnn.kernels.intel_gpu.gemm import BlockGemm
from simdnn.kernels.intel_gpu.groups import partition_of
from simdnn.kernels.intel_gpu.operands import Multiplied
from simdnn.kernels.intel_gpu.products import BlockProducts
from simdnn.kernels.intel_gpu.sums import GroupedSums
from simdnn.kernels.intel_gpu.zero_parts import Bias, Differences, InKernel, Precomputed, SourceZeros, Split, ZeroPart

EXACT = ("direct", "in_kernel", "precomputed", "bias")


def GpuZeroGemm(problem: GpuMatmulProblem, machine: GpuMachine) -> BlockGemm:
    """A matmul with `zero_points`, whose `strategy` is one of `EXACT`."""
    p, zeros = problem, problem.zero_points
    assert zeros is not None
    direct = zeros.wei is not None and zeros.strategy == "direct"
    splits = direct and fmt(p.wei).bits == 8  # into two products
    wei = "s8" if direct else p.wei
    block = block_of(machine, p.m, p.src, wei, "")
    grfs = -(-4 * block.m * block.n // machine.platform.grf_bytes)
    spare = {"in_kernel": 10 * grfs, "direct": 6 * grfs}.get(zeros.strategy, 12)
    partition = partition_of(p, machine, Budget(spare, 2 if splits else 1), zeros.group, p.src, wei)
    source = Multiplied(partition, "src")
    weights = Differences(partition, p.wei) if direct else Multiplied(partition, "wei")
    products = BlockProducts(machine, partition, source, weights)
    period = p.scale_period
    part: ZeroPart = ZeroPart(products)
    if isinstance(weights, Differences):
        part = Split(products, weights) if splits else part
    elif zeros.wei:
        made = {"in_kernel": InKernel, "precomputed": Precomputed}.get(zeros.strategy)
        part = made(products) if made else Bias(products, p.k // period)
    source_zeros = SourceZeros(partition, period, zeros.src.length(p.k)) if zeros.src else None
    sums = GroupedSums(products, period, p.group_scales, part, source_zeros)
    return BlockGemm(p, machine, partition.cut, source, weights, sums, f"_{zeros.strategy}")
