"""`python -m benchmarks.attention_grid`: attention of one query by many keys from a published grid, beside predicted.

github ai-dynamo/aiconfigurator 095f58a (generation_attention_perf of a100_sxm with vLLM 0.14.0, of l40s, h100_sxm and
h200_sxm with 0.24.0, Apache License 2.0) holds some 5400 to 62 000 problems for each GPU in bf16, as vLLM runs them:
FlashAttention-2, and FlashAttention-3 on Hopper. Of each 60 of 256 keys and more without a window were drawn by chance,
and halved by chance, before any was looked at; they stand in docs/validation/data/attention-grid.csv, microseconds.

What vLLM does beside is counted, too: a kernel that writes the new key and value; on FlashAttention-2 two that copy
queries and results where several heads of keys have several heads of queries each; on FlashAttention-3 one that sets
the counter of its blocks to zero, which the kernel that puts parts together does beside. Each takes what an empty
kernel takes. vLLM's FlashAttention-2 splits no keys where each head has keys of its own. Its FlashAttention-3
(vllm-project/flash-attention 617264c, hopper: tile_size.h, heuristics.h, flash_prepare_scheduler.cu, flash_api.cpp) has
blocks of its own for keys in pages, and as many parts of keys as the SMs have use for, up to what one row of the batch
would have alone. Ahead of a first key it finds its block, lengths and the page: as nvcc 13.0 compiles it,
four loads and 300 instructions one after another.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from pathlib import Path

import pandas as pd

import isa_models
from benchmarks.gemm_grid import main
from benchmarks.gpu_rates import machine_of
from isa_models import GpuMachine
from simdnn.kernels.common.attention import AttentionProblem
from simdnn.kernels.nvidia.attention import FlashAttention
from simdnn.kernels.nvidia.attention_tiles import FlashTile, flash_tile, parts_of
from simdnn.primitives.costs import estimate_on_gpu

PUBLISHED = Path(__file__).resolve().parents[1] / "docs" / "validation" / "data" / "attention-grid.csv"
#: size of heads -> queries and keys of a block, of one query by keys in pages
PAGED = {64: (64, 192), 128: (64, 128), 192: (128, 96), 256: (128, 80)}
FINDING = 4, 300  # loads and instructions ahead of a first key in pages


def kernel_of(problem: AttentionProblem, machine: GpuMachine) -> FlashAttention:
    """The kernel that vLLM takes."""
    p = problem.by_keys()
    if machine.platform.name != "hopper":
        parts = parts_of(p, machine, "mma") if problem.shared > 1 else 1
        return FlashAttention(p, machine, flash_tile(p, machine, "mma", parts), parts)
    tile = paged_tile(flash_tile(p, machine, "wgmma"), *PAGED[p.d])
    blocks = -(-p.lk // tile.keys)
    each = ceil(1.1 * p.batch * p.heads * -(-p.lq // tile.rows) * blocks / machine.xe_cores)
    parts = min(-(-blocks // each), parts_of(replace(p, batch=1), machine, "wgmma", tile))
    return FlashAttention(p, machine, tile, parts if parts > 1 else 0)


def paged_tile(tile: FlashTile, rows: int, keys: int) -> FlashTile:
    """A tile of as many queries and keys."""
    return replace(tile, rows=rows, keys=keys, warps=rows // 16)


def microseconds(row: pd.Series) -> float:
    """The model's time of the kernels that were measured."""
    named = machine_of(row)
    machine = isa_models.machine(named) if isinstance(named, str) else named
    assert isinstance(machine, GpuMachine)
    batch, heads, kv_heads, lk, d = (int(row[name]) for name in ("batch", "heads", "kv_heads", "keys", "d"))
    problem = AttentionProblem(batch, heads, kv_heads, 1, lk, d, d, "bf16", "bf16", d**-0.5)
    kernel = kernel_of(problem, machine)
    beside = 1 + 2 * (kernel.tile.unit == "mma" and 1 < kv_heads < heads)
    return estimate_on_gpu(kernel.timed, machine, ()).seconds * 1e6 + beside * empty_us(machine) + in_pages_us(kernel)


def empty_us(machine: GpuMachine) -> float:
    """Microseconds of a kernel that has next to nothing to do."""
    return machine.launch_us + machine.staged_us


def in_pages_us(kernel: FlashAttention) -> float:
    """Microseconds that FlashAttention-3 takes for keys in pages beside: to find the first of them, and for the kernel
    that sets its counter of blocks to zero.
    """
    if kernel.tile.unit != "wgmma":
        return 0.0
    machine, (loads, steps) = kernel.machine, FINDING
    finding = loads * machine.latency.l2 + steps * machine.latency.vector
    return finding / machine.ghz / 1e3 + (empty_us(machine) if kernel.splits == 1 else 0.0)


if __name__ == "__main__":
    main(PUBLISHED, microseconds)
