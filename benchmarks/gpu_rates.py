"""`python -m benchmarks.gpu_rates`: GEMM rates of Intel's GPUs, published beside predicted.

The published ones, each with its source, stand in docs/validation/data/gpu-rates.csv, beside what the card's machine
differs in (`with`) and how its weights were stored; the model's are written there, and counted as a table in Markdown.
docs/validation/gpu-rates.md says which figures of the machines are estimates, and why rows are off.
"""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

import simdnn
from benchmarks import nvidia_rates
from isa_models import GpuMachine
from simdnn import Attr

PUBLISHED = Path(__file__).resolve().parents[1] / "docs" / "validation" / "data" / "gpu-rates.csv"


def machine_of(row: pd.Series) -> str | GpuMachine:
    """The machine of a row, by name or with the figures that differ."""
    changes = {key: json.loads(value) for key, value in (change.split("=") for change in row["with"].split())}
    return simdnn.what_if(row["machine"], changes) if changes else str(row["machine"])


def estimate(row: pd.Series) -> simdnn.Estimate:
    """The model's answer; tf32 is f32 data in that math mode."""
    kind = "f32" if row["type"] == "tf32" else row["type"]
    return simdnn.estimate(
        "matmul",
        **{name: int(row[name]) for name in "mnk"},
        dt=f"{kind}:{kind}:{row['result']}",
        machine=machine_of(row),
        attr=Attr(fpmath="tf32") if row["type"] == "tf32" else None,
        wei_tag=row["weights"],
    )


def table(published: pd.DataFrame) -> pd.DataFrame:
    """The published rates, TFLOP/s, with the model's, the error in per cent, and what bounds the model."""
    return nvidia_rates.table(published, estimate)


def main() -> None:
    """Write the model's rates beside the published ones, and print how near they are."""
    found = table(pd.read_csv(PUBLISHED, keep_default_na=False))
    found.to_csv(PUBLISHED, index=False, lineterminator="\n")
    nvidia_rates.count(found, "rows")


if __name__ == "__main__":
    main()
