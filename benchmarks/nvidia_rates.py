"""`python -m benchmarks.nvidia_rates`: GEMM rates of NVIDIA's GPUs, published beside predicted.

The published ones, each with its source, stand in docs/validation/data/nvidia-rates.csv; the model's are written there,
and counted by machine as a table in Markdown. Results have the operands' type, those of bytes and f8 are bf16.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

import simdnn
from simdnn import Attr

PUBLISHED = Path(__file__).resolve().parents[1] / "docs" / "validation" / "data" / "nvidia-rates.csv"
#: libraries whose own benchmark, which gave the rate, overwrites 8 GB ahead of every run, so that nothing is cached
#: (bench_kineto, deep_gemm/utils.py in deepseek-ai/DeepGEMM adf5de0: `flush_l2` is true)
FLUSHED = ("DeepGEMM",)
#: by the rates' source, microseconds between two kernels where they are others than the machine's: DeepGEMM reports the
#: kernel's own time (bench_kineto takes it from a profile), LLMCompass waits for each call (25: its 8192 x 64 x 64)
LAUNCH_US = {"deepseek-ai/DeepGEMM": 0, "PrincetonUniversity/LLMCompass": 25}


def estimate(row: pd.Series) -> simdnn.Estimate:
    """The model's answer; tf32 is f32 data in that math mode."""
    tf32, kind = row["type"] == "tf32", "f32" if row["type"] == "tf32" else row["type"]
    narrow = kind in ("s8", "f8_e4m3", "f8_e5m2")
    sizes = {name: int(row[name]) for name in "mnk"}
    attr = Attr(fpmath="tf32") if tf32 else None
    dt = f"{kind}:{kind}:{'bf16' if narrow else kind}"
    launch = [us for source, us in LAUNCH_US.items() if source in row["source"]]
    machine = simdnn.what_if(row["machine"], {"launch.us": launch[0]}) if launch else row["machine"]
    with simdnn.cold_weights(row["library"] in FLUSHED):
        return simdnn.estimate("matmul", **sizes, dt=dt, machine=machine, attr=attr)


def table(published: pd.DataFrame, estimate: Callable[[pd.Series], simdnn.Estimate] = estimate) -> pd.DataFrame:
    """The published rates, TFLOP/s, with the model's, the error in per cent, and what bounds the model."""
    found = [estimate(row) for _, row in published.iterrows()]
    model = pd.Series([round(one.gops / 1e3, 1) for one in found], published.index)
    error = (100 * (model / published["published"] - 1)).round().astype(int)
    return published.assign(model=model, **{"error, %": error}, bound=[one.bound for one in found])


def count(frame: pd.DataFrame, column: str = "machine") -> None:
    """Print how near the model's rates are, as a table in Markdown."""
    print(f"| {column} | rows | within 10 % | within 15 % | median error |")
    print("|---|--:|--:|--:|--:|")
    for name, rows in (*frame.groupby(column), ("all", frame)):
        error = rows["error, %"].abs()
        near = [int((error <= most).sum()) for most in (10, 15)]
        print(f"| {name} | {len(rows)} | {near[0]} | {near[1]} | {error.median():.0f} % |")


def main() -> None:
    """Write the model's rates beside the published ones, and print how near they are."""
    found = table(pd.read_csv(PUBLISHED))
    found.to_csv(PUBLISHED, index=False, lineterminator="\n")
    count(found)


if __name__ == "__main__":
    main()
