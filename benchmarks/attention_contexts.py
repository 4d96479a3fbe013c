"""`python -m benchmarks.attention_contexts`: attention of whole contexts, some in a sliding window, beside predicted.

github ai-dynamo/aiconfigurator 095f58a (context_attention_perf of a100_sxm with vLLM 0.14.0, of l40s, h100_sxm and
h200_sxm with 0.24.0, Apache License 2.0) holds some 5500 to 51 000 problems for each GPU, causal, as many queries as
keys. Of each 60 in bf16 of 256 queries and more were drawn by chance, and 60 with a window but for the A100, which has
none, and halved by chance before any was looked at; they stand in docs/validation/data/attention-contexts.csv, in
microseconds.

Keys lie in pages. For these vLLM's FlashAttention-2 has the kernel that may split keys, with 64 queries a block
(flash_api.cpp, `force_split_kernel`, of vllm-project/flash-attention 617264c), its FlashAttention-3 at most 128 keys in
one. A kernel that writes keys and values to the pages runs before, and is counted. FlashAttention-3 has heads that
share keys in one block there, which the kernel here has not.

The one that writes (`reshape_and_cache_flash`, csrc/cache_kernels.cu of vllm-project/vllm) has a workgroup for each
token, with a thread for each element of its keys, up to 512. A thread takes eight elements, so most have none. As nvcc
13.0 compiles it a thread has 56 registers (54 on sm_80 and sm_89, which take as many), and one that moves keys and
values 220 instructions, one after another: the place in the pages is read first, then keys, then values.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd

import isa_models
from benchmarks.attention_grid import in_pages_us
from benchmarks.gemm_grid import count, table
from benchmarks.gpu_rates import machine_of
from isa_models import GpuMachine
from simdnn.kernels.common.attention import AttentionProblem
from simdnn.kernels.nvidia.attention import FlashAttention
from simdnn.kernels.nvidia.attention_tiles import MOST_PARTS, flash_tile
from simdnn.primitives.costs import estimate_on_gpu

PUBLISHED = Path(__file__).resolve().parents[1] / "docs" / "validation" / "data" / "attention-contexts.csv"
PAGED_KEYS = {64: 128, 128: 128, 192: 96, 256: 80}  # size of heads -> keys of a block
# of the kernel that writes keys and values
MOST_THREADS = 512  # of a workgroup
RESIDENT = 65536 // (56 * 32) * 32  # threads that an SM has registers for
STEPS = 220  # instructions of a thread


def kernel_of(problem: AttentionProblem, machine: GpuMachine) -> FlashAttention:
    """The kernel that vLLM takes."""
    if machine.platform.name != "hopper":
        return FlashAttention(problem, machine, flash_tile(problem, machine, "mma", MOST_PARTS))
    tile = flash_tile(problem, machine, "wgmma")
    return FlashAttention(problem, machine, replace(tile, keys=min(tile.keys, PAGED_KEYS[problem.d])))


def writing_us(problem: AttentionProblem, machine: GpuMachine) -> float:
    """Microseconds of the kernel that writes keys and values to the pages: what it moves at memory's rate, or
    workgroups one after another, as many at a time as an SM has room for, where that is longer.
    """
    p = problem
    moved = 2 * 2 * p.batch * p.kv_heads * p.lk * p.d * 2
    resident = RESIDENT // min(MOST_THREADS, p.kv_heads * p.d)
    rounds = -(-p.batch * p.lk // (machine.xe_cores * resident))
    cycles = machine.latency.l2 + 2 * machine.latency.dram + STEPS * machine.latency.vector
    return machine.launch_us + max(moved / machine.sustained_gb_s, rounds * cycles / machine.ghz) / 1e3


def microseconds(row: pd.Series) -> float:
    """The model's time of the kernels that were measured."""
    named = machine_of(row)
    machine = isa_models.machine(named) if isinstance(named, str) else named
    assert isinstance(machine, GpuMachine)
    batch, heads, kv_heads, n, d, window = (
        int(row[name]) for name in ("batch", "heads", "kv_heads", "queries", "d", "window")
    )
    problem = AttentionProblem(batch, heads, kv_heads, n, n, d, d, "bf16", "bf16", d**-0.5, causal=True, window=window)
    kernel = kernel_of(problem, machine)
    found = estimate_on_gpu(kernel.timed, machine, ()).seconds * 1e6
    return found + writing_us(problem, machine) + in_pages_us(kernel)


def main() -> None:
    """Write the model's times beside the published ones, and count how near they are, with and without a window."""
    found = table(pd.read_csv(PUBLISHED, keep_default_na=False), microseconds)
    found.to_csv(PUBLISHED, index=False, lineterminator="\n")
    for windows, rows in found.groupby(found["window"] > 0):
        print(f"\n{'in a window' if windows else 'whole'}\n")
        count(rows)


if __name__ == "__main__":
    main()
