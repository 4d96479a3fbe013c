"""`python -m benchmarks.gemm_grid`: products drawn from a published grid of GEMM times, beside predicted ones.

github ai-dynamo/aiconfigurator 095f58a (gemm_perf of b60, a100_sxm, h100_sxm, h200_sxm, l40s) holds some 11 000 to
36 000 products of bf16 for each GPU, as vLLM (0.20.0 on B60, else 0.24.0) and SGLang (0.5.10, A100) run them. Of each
120 were drawn by chance, and halved by chance, before any was looked at; those of fewer than 40 000 columns and steps
of K stand in docs/validation/data/gemm-grid.csv, microseconds. `with` says what a machine differs in: the clock of the
card, and on NVIDIA's GPUs, which ran them in a CUDA graph, what a kernel takes there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

import isa_models
import simdnn
from benchmarks.gpu_rates import machine_of

PUBLISHED = Path(__file__).resolve().parents[1] / "docs" / "validation" / "data" / "gemm-grid.csv"
WEIGHTS = 6  # tensors that the collector multiplies by in turn
#: microseconds below which a call on the B60 shows the host alone, which takes 27 to 35 for one
HOST_US = {"b580": 45}


def microseconds(row: pd.Series) -> float:
    """The model's time; from memory where what the calls in turn touch does not fit L2."""
    named = machine_of(row)
    machine = isa_models.machine(named) if isinstance(named, str) else named
    assert isinstance(machine, isa_models.GpuMachine)
    m, n, k = (int(row[name]) for name in "mnk")
    touched = 2 * (WEIGHTS * n * k + m * n + m * k)
    with simdnn.cold_weights(touched > machine.l2.size_bytes * machine.stacks):
        found = simdnn.estimate("matmul", m=m, n=n, k=k, dt="bf16:bf16:bf16", machine=machine, wei_tag=row["weights"])
    return found.seconds * 1e6


def table(published: pd.DataFrame, predicted: Callable[[pd.Series], float]) -> pd.DataFrame:
    """The published times with the model's, and the error in per cent."""
    model = pd.Series([round(predicted(row), 2) for _, row in published.iterrows()], published.index)
    return published.assign(model=model, **{"error, %": (100 * (model / published["us"] - 1)).round().astype(int)})


def count(frame: pd.DataFrame) -> None:
    """Print how near the model's times are, by machine and half, as a table in Markdown."""
    print("| machine | half | rows | within 10 % | within 25 % | median error | median ratio |")
    print("|---|---|--:|--:|--:|--:|--:|")
    shown = frame[frame["us"] > frame["machine"].map(HOST_US).fillna(0)]
    for (machine, half), rows in shown.groupby(["machine", "half"]):
        error, ratio = rows["error, %"].abs(), (rows["model"] / rows["us"]).median()
        near = [int((error <= most).sum()) for most in (10, 25)]
        print(f"| {machine} | {half} | {len(rows)} | {near[0]} | {near[1]} | {error.median():.0f} % | {ratio:.2f} |")


def main(published: Path, predicted: Callable[[pd.Series], float]) -> None:
    """Write the model's times beside those of a file, and count how near they are."""
    found = table(pd.read_csv(published, keep_default_na=False), predicted)
    found.to_csv(published, index=False, lineterminator="\n")
    count(found)


if __name__ == "__main__":
    main(PUBLISHED, microseconds)
