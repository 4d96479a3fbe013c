"""`python -m benchmarks.gpu_rates`: GEMM rates of GPUs, published beside predicted, as a table in Markdown.

Both matrices are plain (`wei_tag="ab"`), as the libraries were given them. docs/validation/gpu-rates.md says
which figures of the machines are estimates, and why rows are off.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

import simdnn
from simdnn import Attr

TORCH = "torch 2.7 (zzc0721/torch-performance-test-data #182)"
ALCF = "Klockwood, after ALCF (size not stated)"
NEAR = 0.15


@dataclass(frozen=True)
class Rate:
    """A published rate: TFLOP/s, or Tops of integers."""

    machine: str
    dtype: str
    m: int
    n: int
    k: int
    tflops: float
    source: str
    dst: str = ""

    def estimate(self) -> simdnn.Estimate:
        """The model's answer; tf32 is f32 data in that math mode."""
        tf32 = self.dtype == "tf32"
        src = "f32" if tf32 else self.dtype
        dst = self.dst or ("s32" if self.dtype == "s8" else "f32")
        attr = Attr(fpmath="tf32") if tf32 else None
        return simdnn.estimate(
            "matmul",
            m=self.m,
            n=self.n,
            k=self.k,
            dt=f"{src}:{src}:{dst}",
            machine=self.machine,
            attr=attr,
            wei_tag="ab",
        )


def _square(machine: str, dtype: str, size: int, tflops: float, source: str, dst: str = "") -> Rate:
    return Rate(machine, dtype, size, size, size, tflops, source, dst)


_SIZES = (1024, 2048, 4096, 8192, 10240)
_A770 = {
    "f16": (29.93, 78.23, 73.28, 80.36, 79.89),
    "bf16": (17.99, 81.39, 75.22, 85.09, 85.14),
    "f32": (13.93, 15.12, 15.09, 14.96, 14.97),
}
RATES = (
    *(_square("a770", t, n, r, TORCH, t) for t, rates in _A770.items() for n, r in zip(_SIZES, rates, strict=True)),
    Rate("a770", "bf16", 4096, 4096, 2048, 91.0, "torch 2.7, mamf-finder (stas00/ml-engineering PR 107)", "bf16"),
    _square("a770", "f16", 4096, 58.7, "oneMKL hgemm (ollama PR 2458)", "f16"),
    _square("a770", "f32", 4096, 16.46, "oneMKL sgemm (the same)"),
    _square("b580", "bf16", 4096, 89.7, "sycl-tla 00_bmg_gemm (intel/auto-round PR 1968)"),
    _square("b580", "bf16", 4096, 92.6, "the same, bf16 result", "bf16"),
    _square("max1550_stack", "bf16", 8192, 273.0, ALCF),
    _square("max1550_stack", "f16", 8192, 263.0, ALCF),
    _square("max1550_stack", "tf32", 8192, 110.0, ALCF),
    _square("max1550_stack", "s8", 8192, 577.0, ALCF),
    _square("max1550_stack", "f32", 8192, 23.0, ALCF),
    _square("max1100", "bf16", 2472, 136.4, "oneDNN NN, a mean (triton-xpu #3328); size from its 220.7 GB/s", "bf16"),
)


def table(rates: tuple[Rate, ...] = RATES) -> pd.DataFrame:
    """A row for each published rate: TFLOP/s of both, the error, and what bounds the model."""
    rows = []
    for rate in rates:
        found = rate.estimate()
        tflops = found.gops / 1e3
        size = str(rate.m) if rate.m == rate.n == rate.k else f"{rate.m}x{rate.n}x{rate.k}"
        rows.append(
            {
                "machine": rate.machine,
                "type": rate.dtype,
                "size": size,
                "source": rate.source,
                "published": rate.tflops,
                "model": tflops,
                "error": tflops / rate.tflops - 1,
                "bound": found.bound,
            }
        )
    return pd.DataFrame(rows)


def main() -> None:
    """Print the table and how many rows are near."""
    found = table()
    print("| machine | type | size | published by | TFLOP/s | model | error | bound |")
    print("|---|---|--:|---|--:|--:|--:|---|")
    for row in found.to_dict("records"):
        error = f"{row['error']:+.0%}".replace("%", " %")
        error = f"**{error}**" if abs(row["error"]) <= NEAR else error
        print(
            f"| {row['machine']} | {row['type']} | {row['size']} | {row['source']} | {row['published']:.1f} "
            f"| {row['model']:.1f} | {error} | {row['bound']} |"
        )
    print(f"\n{int((found['error'].abs() <= NEAR).sum())} of {len(found)} within 15 %")


if __name__ == "__main__":
    main()
