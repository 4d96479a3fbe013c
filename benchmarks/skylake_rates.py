"""`python -m benchmarks.skylake_rates`: f32 on Skylake's server core, published beside predicted for `skx`.

The published rates, GFLOP/s, each with its source and the clock that the source gives, stand in
docs/validation/data/skylake-rates.csv: convolutions on one core, products on eighteen. A prediction is in cycles, and
takes the published clock. Convolutions have the library's tiles, which its source of that month names
(`init_conf` in jit_avx512_common_1x1_conv_kernel.cpp and jit_avx512_common_conv_kernel.cpp of oneDNN 2.3 and 2.4);
products have this package's, and plain weights, which the libraries pack at each call.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

import simdnn
from isa_models.machines.loader import cpu_machine
from simdnn.kernels.common.epilogue import Epilogue
from simdnn.kernels.common.problems import ConvProblem
from simdnn.kernels.common.sums import Options, RegisterTile
from simdnn.kernels.x86.code import unit_of
from simdnn.kernels.x86.dots import FMA
from simdnn.kernels.x86.gemm import gemm
from simdnn.primitives.costs import estimate_program

PUBLISHED = Path(__file__).resolve().parents[1] / "docs" / "validation" / "data" / "skylake-rates.csv"
MODEL = "skx"


@dataclass(frozen=True)
class Rate:
    """The model's answer for a published row: multiply-adds, cycles, and what bounds them."""

    macs: int
    cycles: float
    bound: str

    @classmethod
    def of(cls, row: pd.Series) -> Rate:
        """The answer for a product or for a convolution."""
        return cls.of_product(row) if row["primitive"] == "matmul" else cls.of_convolution(row)

    @classmethod
    def of_product(cls, row: pd.Series) -> Rate:
        """A product of plain matrices on some cores."""
        m, n, k, threads = (int(row[name]) for name in ("m", "n", "k", "threads"))
        where = {"machine": MODEL, "isa": row["isa"], "threads": threads}
        found = simdnn.estimate("matmul", m=m, n=n, k=k, dt="f32", wei_tag="ab", **where)
        return cls(found.problem.macs, found.cycles, found.bound)

    @classmethod
    def of_convolution(cls, row: pd.Series) -> Rate:
        """A convolution on one core, in the library's tiles: a panel of weights meets all rows."""
        names = ("mb", "ic", "ih", "oc", "kh", "stride", "padding", "tile_rows", "tile_vectors")
        mb, ic, size, oc, taps, stride, pad, rows, vectors = (int(row[name]) for name in names)
        sizes = mb, ic, size, size, oc, taps, taps
        problem = ConvProblem(*sizes, "f32", "f32", Epilogue("f32"), (stride, stride), (pad, pad, pad, pad))
        options = Options(tile=RegisterTile(rows, vectors))
        kernel = gemm("convolution", problem, unit_of(row["isa"]), FMA, options).kernel()
        found = estimate_program(kernel.program, cpu_machine(MODEL), ())
        return cls(problem.macs, found.cycles, found.bound)


def table(published: pd.DataFrame) -> pd.DataFrame:
    """The published rates with the model's at the published clock, their ratio, and what bounds the model."""
    found = [Rate.of(row) for _, row in published.iterrows()]
    per_cycle = pd.Series([2 * one.macs / one.cycles for one in found], published.index)
    model = per_cycle * published["ghz"]
    bound = [one.bound for one in found]
    return published.assign(model=model.round(), ratio=(model / published["published"]).round(2), bound=bound)


def main() -> None:
    """Print each published rate beside the model's, and the mean error by primitive."""
    found = table(pd.read_csv(PUBLISHED))
    shown = found[["library", "source", "isa", "threads", "published", "model", "ratio", "bound"]]
    print(shown.to_string(index=False))
    for name, rows in found.groupby("primitive"):
        print(f"{name}: mean error {100 * (rows['ratio'] - 1).abs().mean():.1f} % of {len(rows)}")


if __name__ == "__main__":
    main()
