"""`python -m benchmarks.attention_grid`: attention of one query by many keys from a published grid, beside predicted.

github ai-dynamo/aiconfigurator 095f58a (generation_attention_perf of a100_sxm with vLLM 0.14.0, of l40s, h100_sxm and
h200_sxm with 0.24.0, Apache License 2.0) holds some 5400 to 62 000 problems for each GPU in bf16, as vLLM runs them:
FlashAttention-2, and FlashAttention-3 on Hopper. Of each 60 of 256 keys and more without a window were drawn by chance,
and halved by chance, before any was looked at; they stand in docs/validation/data/attention-grid.csv, microseconds.

What vLLM does beside is counted, too: a kernel that writes the new key and value; on FlashAttention-2 two that copy
queries and results where several heads of keys have several heads of queries each; on FlashAttention-3 one that sets
the counter of its blocks to zero, which the kernel that puts parts together does beside (flash_api.cpp of
vllm-project/flash-attention 617264c). Each takes what an empty kernel takes. vLLM's FlashAttention-2 splits no keys where each head has keys of its own, its FlashAttention-3 has
128 keys in a block, since it finds them in pages.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd

import isa_models
from benchmarks.gemm_grid import main
from benchmarks.gpu_rates import machine_of
from isa_models import GpuMachine
from simdnn.kernels.common.attention import AttentionProblem
from simdnn.kernels.nvidia.attention import FlashAttention
from simdnn.kernels.nvidia.attention_tiles import flash_tile, parts_of
from simdnn.primitives.costs import estimate_on_gpu

PUBLISHED = Path(__file__).resolve().parents[1] / "docs" / "validation" / "data" / "attention-grid.csv"
PAGED_KEYS = 128  # of a block


def kernel_of(problem: AttentionProblem, machine: GpuMachine) -> FlashAttention:
    """The kernel that vLLM takes."""
    p = problem.by_keys()
    if machine.platform.name != "hopper":
        parts = parts_of(p, machine, "mma") if problem.shared > 1 else 1
        return FlashAttention(p, machine, flash_tile(p, machine, "mma", parts), parts)
    parts = parts_of(p, machine, "wgmma")
    tile = flash_tile(p, machine, "wgmma")
    return FlashAttention(p, machine, replace(tile, keys=min(tile.keys, PAGED_KEYS)), parts if parts > 1 else 0)


def microseconds(row: pd.Series) -> float:
    """The model's time of the kernels that were measured."""
    named = machine_of(row)
    machine = isa_models.machine(named) if isinstance(named, str) else named
    assert isinstance(machine, GpuMachine)
    batch, heads, kv_heads, lk, d = (int(row[name]) for name in ("batch", "heads", "kv_heads", "keys", "d"))
    problem = AttentionProblem(batch, heads, kv_heads, 1, lk, d, d, "bf16", "bf16", d**-0.5)
    kernel = kernel_of(problem, machine)
    copies = 2 * (kernel.tile.unit == "mma" and 1 < kv_heads < heads)
    return estimate_on_gpu(kernel.timed, machine, ()).seconds * 1e6 + (1 + copies) * empty_us(machine) + counter_us(kernel)


def empty_us(machine: GpuMachine) -> float:
    """Microseconds of a kernel that has next to nothing to do."""
    return machine.launch_us + machine.staged_us


def counter_us(kernel: FlashAttention) -> float:
    """Microseconds of the kernel that sets FlashAttention-3's counter of blocks to zero."""
    return empty_us(kernel.machine) if kernel.tile.unit == "wgmma" and kernel.splits == 1 else 0.0


if __name__ == "__main__":
    main(PUBLISHED, microseconds)
