"""`python -m benchmarks.skylake_rates`: f32 on Skylake's server core, published beside predicted for `skx`.

The published rates, GFLOP/s, each with its source and the clock that the source gives, stand in
docs/validation/data/skylake-rates.csv: convolutions on one core, products on eighteen. A prediction is in cycles, and
takes the published clock; products have plain weights, which the libraries pack at each call.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

import simdnn

PUBLISHED = Path(__file__).resolve().parents[1] / "docs" / "validation" / "data" / "skylake-rates.csv"
MODEL = "skx"


def sizes(row: pd.Series) -> dict[str, int]:
    """The row's problem, in `simdnn.estimate`'s words."""
    if row["primitive"] == "matmul":
        return {name: int(row[name]) for name in "mnk"}
    found = {name: int(row[name]) for name in ("mb", "ic", "ih", "oc", "kh", "padding")}
    return {**found, "iw": found["ih"], "kw": found["kh"], "strides": int(row["stride"])}


def estimate(row: pd.Series) -> simdnn.Estimate:
    """The model's answer for a published row."""
    plain = {"wei_tag": "ab"} if row["primitive"] == "matmul" else {}
    where = {"machine": MODEL, "isa": row["isa"], "threads": int(row["threads"])}
    return simdnn.estimate(row["primitive"], dt="f32", **sizes(row), **plain, **where)


def table(published: pd.DataFrame) -> pd.DataFrame:
    """The published rates with the model's at the published clock, their ratio, and what bounds the model."""
    found = [estimate(row) for _, row in published.iterrows()]
    per_cycle = pd.Series([2 * one.problem.macs / one.cycles for one in found], published.index)
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
