"""oneDNN's kernels on this host, timed from inside the library, beside the clock's prediction of the same ones.

    python -m benchmarks.cells measure -o FILE.csv      (minutes; needs the package onednn, see `benchmarks.onednn`)
    python -m benchmarks.cells [FILE.csv] --machine spr  (the table; without a file the recorded one)
    python -m benchmarks.cells measure --later -o FILE.csv  (shapes that came later than the rules)

A cell is a shape under a pair of types and an ISA cap: one thread, weights in the library's own layout, all data warm
(`benchmarks.inside`). Predicted are the cycles of the kernel that stands for the library's (`dispatch="onednn"`).
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

import simdnn
from simdnn import Attr, Quant
from simdnn.cli.output import table

RECORDED = Path(__file__).parent.parent / "docs" / "validation" / "data" / "cells-spr.csv"
#: M x K x N
MATMULS = (
    "64x64x64 128x128x128 256x256x256 512x512x512 768x768x768 1024x1024x1024 "
    "1x768x768 4x768x768 16x768x768 32x768x768 64x768x768 128x768x768 1x768x3072 4x768x3072 16x768x3072 128x768x3072 "
    "1x3072x768 16x3072x768 1x1024x4096 16x1024x4096 1x4096x1024 4x4096x1024 33x129x65 100x300x77 7x1000x1000 "
    "13x257x511 16x8192x256 64x4096x64 256x64x256 512x128x512 1000x27x64"
).split()
#: images, input channels, image size, output channels, taps, stride, padding, groups
CONVOLUTIONS = (
    "1x64x56x64x3x1x1x1 1x256x56x64x1x1x0x1 1x64x56x256x1x1x0x1 1x128x28x128x3x1x1x1 1x256x56x512x1x2x0x1 "
    "1x3x224x64x7x2x3x1 1x512x7x512x3x1x1x1 1x1024x14x256x1x1x0x1 1x256x14x256x3x1x1x1 1x96x56x96x3x1x1x96 "
    "1x144x56x144x3x2x1x144 1x128x28x128x3x1x1x32 1x256x14x256x3x1x1x8"
).split()

#: the same, measured when all rules of the kernels were made, and looked at by none of them
LATER_MATMULS = "8x1024x1024 2x2048x512 256x1024x512 48x512x2048 1x4096x512 12x640x1536".split()
LATER_CONVOLUTIONS = (
    "1x128x56x128x3x2x1x1 1x32x112x64x1x1x0x1 1x256x28x256x3x2x1x1 1x192x35x192x3x1x1x1 1x2048x7x512x1x1x0x1 "
    "1x512x14x512x3x1x1x1 1x3x224x32x3x2x1x1 1x64x28x96x5x1x2x1 1x32x112x32x3x1x1x32 1x384x14x384x3x1x1x384 "
    "1x960x7x960x3x1x1x960 1x192x28x192x5x2x2x192"
).split()


@dataclass(frozen=True)
class Column:
    """A pair of types and a cap; `group`: of compressed weights, how many along K share an f32 scale."""

    name: str
    types: str
    isa: str
    group: int = 0
    attr: dict[str, Any] = field(default_factory=dict)


COLUMNS = (
    Column("f32", "f32:f32:f32", "avx512_core"),
    Column("f32 avx2", "f32:f32:f32", "avx2"),
    Column("bf16", "bf16:bf16:f32", "avx512_core_bf16"),
    Column("f16", "f16:f16:f32", "avx512_core_fp16"),
    Column("u8s8 vnni", "u8:s8:s32", "avx512_core_vnni"),
    Column("s8s8 vnni", "s8:s8:s32", "avx512_core_vnni"),
    Column("u8s8 avx512", "u8:s8:s32", "avx512_core"),
    Column("u8s8 avx2_vnni", "u8:s8:s32", "avx2_vnni"),
    Column("u8s8 avx2", "u8:s8:s32", "avx2"),
    Column("bf16 x s8", "bf16:s8:f32", "avx512_core_bf16", 128, {"fpmath": "bf16", "apply_to_int": True}),
    Column("bf16 x s4", "bf16:s4:f32", "avx512_core_bf16", 128, {"fpmath": "bf16", "apply_to_int": True}),
)
_BY_NAME = {column.name: column for column in COLUMNS}


def shapes(column: Column, later: bool) -> list[str]:
    """The shapes of a column: compressed weights are of matmuls, K in whole groups."""
    matmuls, convolutions = (LATER_MATMULS, LATER_CONVOLUTIONS) if later else (MATMULS, CONVOLUTIONS)
    if not column.group:
        return [*matmuls, *convolutions]
    return [shape for shape in matmuls if int(shape.split("x")[1]) % column.group == 0]


def measure(names: list[str], out: Path, later: bool) -> None:
    """Time all cells, a process for each column, and write them as they come."""
    from benchmarks.onednn import environment

    with out.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["column", "shape", "implementation", "cycles", "median", "ghz", "samples"])
        for name in names:
            command = [sys.executable, "-m", "benchmarks.cells", "child", "--column", name, *["--later"] * later]
            child = subprocess.Popen(
                command, env=os.environ | environment(_BY_NAME[name].isa), stdout=subprocess.PIPE, text=True
            )
            assert child.stdout
            for line in child.stdout:
                cell = json.loads(line)
                writer.writerow([name, *cell])
                file.flush()
                print(name, *cell, file=sys.stderr)
            if child.wait():
                print(f"{name}: the process ended with status {child.returncode}", file=sys.stderr)


def _child(column: Column, later: bool) -> None:
    if hasattr(os, "sched_setaffinity"):  # the library's runtime takes as many threads as it sees cores
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    from benchmarks.inside import timed
    from benchmarks.onednn import Compressed, Convolution, Matmul

    for shape in shapes(column, later):
        sizes = tuple(map(int, shape.split("x")))
        try:
            kind = Convolution if len(sizes) > 3 else Matmul
            primitive = Compressed(column.types, column.group, *sizes) if column.group else kind(column.types, *sizes)
        except SystemExit as error:
            print(f"{column.name} {shape}: {error}", file=sys.stderr)
            continue
        for _ in range(3):
            primitive.run()
        t = timed(primitive)
        cell = [shape, primitive.implementation, round(t.cycles), round(t.median), round(t.ghz, 3), t.samples]
        print(json.dumps(cell), flush=True)


def predicted(column: Column, shape: str, machine: str) -> simdnn.Estimate:
    """The estimate of the kernel that stands for the library's."""
    sizes = tuple(map(int, shape.split("x")))
    scales = {"scales": {"wei": Quant(None, groups=(column.group, 1), dtype="f32")}} if column.group else {}
    how: dict[str, Any] = {"dt": column.types, "isa": column.isa, "machine": machine, "dispatch": "onednn"}
    how["attr"] = Attr(**column.attr, **scales)
    if len(sizes) == 3:
        return simdnn.estimate("matmul", m=sizes[0], k=sizes[1], n=sizes[2], **how)
    mb, ic, size, oc, taps, stride, padding, groups = sizes
    image = {"mb": mb, "ic": ic, "ih": size, "iw": size, "oc": oc, "kh": taps, "kw": taps}
    return simdnn.estimate("convolution", **image, strides=stride, padding=padding, groups=groups, **how)


def beside(recorded: pd.DataFrame, machine: str) -> Iterator[dict[str, Any]]:
    """A row a cell: measured, predicted, and predicted to measured; NaN where the package refuses."""
    for cell in recorded.to_dict("records"):
        try:
            found = predicted(_BY_NAME[cell["column"]], cell["shape"], machine)
            cycles, bound = found.cycles, found.bound
        except simdnn.SimdnnError as error:
            cycles, bound = float("nan"), str(error)[:60]
        yield cell | {"predicted": cycles, "ratio": cycles / cell["cycles"], "bound": bound}


def main() -> None:
    """Measure, or print the errors by column and all cells."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cells", description=__doc__)
    parser.add_argument("what", nargs="?", default=str(RECORDED), help="measure, or a file of cells")
    parser.add_argument("--column", action="append", choices=list(_BY_NAME), help="of these alone (all)")
    parser.add_argument("--machine", default="spr", help="whose prediction is asked for (spr)")
    parser.add_argument("-o", "--output", type=Path, default=Path("cells.csv"), help="where cells go (cells.csv)")
    parser.add_argument("--later", action="store_true", help="measure the shapes that no rule was made by")
    args = parser.parse_args()
    names = args.column or list(_BY_NAME)
    if args.what == "measure":
        measure(names, args.output, args.later)
    elif args.what == "child":
        _child(_BY_NAME[names[0]], args.later)
    else:
        _report(pd.read_csv(args.what).query("column in @names"), args.machine)


def _report(recorded: pd.DataFrame, machine: str) -> None:
    cells = pd.DataFrame(beside(recorded, machine))
    cells["family"] = ["matmul" if shape.count("x") == 2 else "convolution" for shape in cells["shape"]]
    grid = cells.pivot(index="shape", columns="column", values="ratio")
    print("predicted / measured")
    print(grid.loc[cells["shape"].unique(), cells["column"].unique()].round(2).to_string(na_rep=""))
    cells["error"] = 100 * (cells["ratio"] - 1)
    cells["absolute"] = cells["error"].abs()
    by = cells.groupby(["family", "column"], sort=False)
    summary = by.agg(
        cells=("error", "count"), mean=("error", "mean"), absolute=("absolute", "mean"), median=("absolute", "median")
    )
    print(table(summary.round(1).reset_index()))


if __name__ == "__main__":
    main()
