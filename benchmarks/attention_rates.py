"""`python -m benchmarks.attention_rates`: attention in one kernel on NVIDIA's GPUs, published rates beside predicted.

The published ones, TFLOP/s of both products (a causal problem counts half), stand in
docs/validation/data/attention-rates.csv, each with its source; most are read from bars of pictures. Series of a GPU, a
kernel, a size of heads and a mask were halved by chance before any was looked at (those that attention had been
compared with before are `seen`). `with` says what a machine differs in; an A800 stands as an A100. The model's rates
are written there, and counted by machine as tables in Markdown.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

import isa_models
from benchmarks import nvidia_rates
from benchmarks.gpu_rates import machine_of
from isa_models import GpuMachine
from simdnn.kernels.common.attention import AttentionProblem
from simdnn.operators.fused_attention import FusedAttention

PUBLISHED = Path(__file__).resolve().parents[1] / "docs" / "validation" / "data" / "attention-rates.csv"


def seconds(row: pd.Series) -> float:
    """The model's time of the kernel that was measured."""
    named = machine_of(row)
    machine = isa_models.machine(named) if isinstance(named, str) else named
    assert isinstance(machine, GpuMachine)
    batch, heads, n, d = (int(row[name]) for name in ("batch", "heads", "n", "d"))
    problem = AttentionProblem(
        batch, heads, heads, n, n, d, d, row["type"], row["type"], d**-0.5, causal=bool(row["causal"])
    )
    return FusedAttention(problem, machine, row["kernel"]).seconds


def rate(row: pd.Series) -> float:
    """The model's rate, TFLOP/s of both products."""
    operations = 4 * row["batch"] * row["heads"] * row["n"] ** 2 * row["d"] / (2 if row["causal"] else 1)
    return float(operations / seconds(row) / 1e12)


def table(published: pd.DataFrame) -> pd.DataFrame:
    """The published rates with the model's, and the error in per cent."""
    model = pd.Series([round(rate(row), 1) for _, row in published.iterrows()], published.index)
    error = (100 * (model / published["published"] - 1)).round().astype(int)
    return published.assign(model=model, **{"error, %": error})


def main() -> None:
    """Write the model's rates beside the published ones, and count how near they are."""
    found = table(pd.read_csv(PUBLISHED, keep_default_na=False))
    found.to_csv(PUBLISHED, index=False, lineterminator="\n")
    for half, rows in found.groupby("half", sort=False):
        print(f"\n{half}\n")
        nvidia_rates.count(rows.assign(kernel=rows["machine"] + " " + rows["kernel"]), "kernel")


if __name__ == "__main__":
    main()
