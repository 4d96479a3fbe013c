"""oneDNN's kernels on this host, timed from inside the library, beside the clock's prediction of the same ones.

    python -m benchmarks.cells measure -o FILE.csv       (minutes; needs the package onednn, see `benchmarks.onednn`)
    python -m benchmarks.cells measure --set sweep -o FILE.csv          (of these shapes alone)
    python -m benchmarks.cells agree ROUND.csv … -o FILE.csv            (the mean of two rounds that agree)
    python -m benchmarks.cells [FILE.csv] --machine spr  (the table; without a file the recorded one)

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import pandas as pd

import simdnn
from simdnn import Attr, Quant
from simdnn.cli.output import table

RECORDED = Path(__file__).parent.parent / "docs" / "validation" / "data"
#: M x K x N; of inner products images, input channels, image size, output channels
_MATMULS = (
    "64x64x64 128x128x128 256x256x256 512x512x512 768x768x768 1024x1024x1024 "
    "1x768x768 4x768x768 16x768x768 32x768x768 64x768x768 128x768x768 1x768x3072 4x768x3072 16x768x3072 128x768x3072 "
    "1x3072x768 16x3072x768 1x1024x4096 16x1024x4096 1x4096x1024 4x4096x1024 33x129x65 100x300x77 7x1000x1000 "
    "13x257x511 16x8192x256 64x4096x64 256x64x256 512x128x512 1000x27x64"
).split()
#: images, input channels, image size, output channels, taps, stride, padding, groups
_CONVOLUTIONS = (
    "1x64x56x64x3x1x1x1 1x256x56x64x1x1x0x1 1x64x56x256x1x1x0x1 1x128x28x128x3x1x1x1 1x256x56x512x1x2x0x1 "
    "1x3x224x64x7x2x3x1 1x512x7x512x3x1x1x1 1x1024x14x256x1x1x0x1 1x256x14x256x3x1x1x1 1x96x56x96x3x1x1x96 "
    "1x144x56x144x3x2x1x144 1x128x28x128x3x1x1x32 1x256x14x256x3x1x1x8"
).split()

#: the same, measured when all rules of the kernels were made, and looked at by none of them
_LATER_MATMULS = "8x1024x1024 2x2048x512 256x1024x512 48x512x2048 1x4096x512 12x640x1536".split()
_LATER_CONVOLUTIONS = (
    "1x128x56x128x3x2x1x1 1x32x112x64x1x1x0x1 1x256x28x256x3x2x1x1 1x192x35x192x3x1x1x1 1x2048x7x512x1x1x0x1 "
    "1x512x14x512x3x1x1x1 1x3x224x32x3x2x1x1 1x64x28x96x5x1x2x1 1x32x112x32x3x1x1x32 1x384x14x384x3x1x1x384 "
    "1x960x7x960x3x1x1x960 1x192x28x192x5x2x2x192"
).split()

#: rows from 1 to 1024 by weights that L1, L2, L3 and memory hold, and layers of other networks
_SWEEP_MATMULS = (
    "1x128x128 8x64x64 16x96x96 24x160x96 1x512x512 2x512x512 4x512x512 8x512x512 16x512x512 32x512x512 64x512x512 "
    "128x512x512 256x512x512 1024x512x512 1x2048x2048 2x2048x2048 8x2048x2048 16x2048x2048 64x2048x2048 256x2048x2048 "
    "1x4096x4096 4x4096x4096 16x4096x4096 64x4096x4096 128x4096x1024 48x1152x320 200x320x960 512x64x1024 "
    "1024x256x128 6x1500x700 40x200x1000 96x2304x192"
).split()
_SWEEP_CONVOLUTIONS = (
    "1x16x112x96x1x1x0x1 1x24x56x144x1x1x0x1 1x320x7x1280x1x1x0x1 1x512x28x128x1x1x0x1 1x128x28x512x1x1x0x1 "
    "1x1024x14x2048x1x2x0x1 1x64x112x64x3x1x1x64 1x512x14x512x3x1x1x512 1x256x28x256x3x2x1x256 1x240x28x240x5x2x2x240 "
    "1x672x14x672x5x1x2x672 1x3x299x32x3x2x0x1 1x3x227x96x11x4x0x1 1x1x28x32x5x1x2x1 1x3x32x16x3x1x1x1 "
    "1x3x224x64x3x1x1x1 1x192x17x192x7x1x3x1 1x96x27x256x5x1x2x2 1x256x28x256x3x1x1x32 1x1024x7x1024x3x1x1x32 "
    "1x256x28x256x1x1x0x4 4x64x28x128x3x1x1x1 2x256x14x64x1x1x0x1 1x256x56x256x3x2x1x1 1x512x28x512x3x1x1x1 "
    "1x80x73x192x3x1x0x1 1x48x35x64x5x1x2x1 8x16x16x16x3x1x1x1"
).split()
#: drawn by chance when the rules of a Granite Rapids' kernels were made: odd sizes, layers of transformers, of ResNet
_FRESH_MATMULS = (
    "177x284x225 1x1360x836 90x787x1153 64x1280x5120 10x1536x384 1x768x2304 96x896x896 4x2304x768 10x1280x1280"
).split()
_FRESH_CONVOLUTIONS = (
    "1x256x28x128x3x1x1x1 1x64x56x64x3x2x1x1 1x256x14x256x3x2x1x1 1x512x28x128x1x2x0x1 1x512x14x512x3x2x1x1 "
    "1x15x22x74x1x1x0x1 1x19x59x40x5x1x1x1 1x48x56x48x3x1x1x48"
).split()
#: drawn by chance a day later (`random.Random(20261129)`), from the same kinds, and not looked at before the last rule
_DRAWN_MATMULS = (
    "44x384x4096 2x512x2048 2x256x512 1x3072x2048 1x512x1536 96x2304x896 256x4096x1280 268x1141x612 25x462x1214 "
    "2x904x466 1x1050x341 14x1183x1365 64x825x1513"
).split()
_DRAWN_CONVOLUTIONS = (
    "1x256x56x256x1x2x0x1 1x64x56x64x1x2x0x1 1x512x28x128x1x1x0x1 1x2048x7x256x1x1x0x1 1x256x14x512x1x1x0x1 "
    "1x72x14x72x3x1x1x72 1x144x28x144x3x1x1x144 1x64x28x64x5x1x2x64 1x320x14x16x1x1x0x1 1x160x56x192x1x1x0x1 "
    "1x148x58x162x5x1x2x1 1x52x25x101x1x1x0x1 1x137x32x89x5x1x2x1 1x3x192x32x7x2x1x1"
).split()
#: drawn by chance (`random.Random(20261130)`) when rules for tiles were made, and looked at by none of them
_BESIDE_MATMULS = (
    "952x72x273 605x230x438 2x512x256 803x256x2560 2x3840x1024 9x395x1595 250x1664x2432 97x316x178 124x896x3520 "
    "560x1024x64 11x2816x320 1422x2176x768 5x262x631 1570x73x40 1191x384x896 1167x384x128 42x384x3712 345x1787x42 "
    "2x179x44 1485x3968x64 3805x384x1856 247x128x1408 5x2560x128 18x128x2496 "
    "175x768x1x256 125x512x3x256 16x256x1x1000 3x256x1x3072 259x768x1x3072 14x1024x7x1024 11x512x3x10 30x256x1x1000"
).split()
_BESIDE_CONVOLUTIONS = (
    "1x32x56x128x1x1x0x1 1x512x10x96x5x1x2x1 1x96x28x96x3x1x1x1 1x175x33x101x3x1x1x1 1x512x7x512x3x1x1x16 "
    "1x128x7x192x3x1x1x1 1x128x56x384x1x1x0x1 1x128x56x128x3x1x1x4 1x384x28x64x1x2x0x1 1x384x28x256x3x1x1x1 "
    "1x96x7x128x1x1x0x1 2x192x40x512x1x1x0x1 4x128x7x1024x3x1x1x1 1x3x96x32x7x1x3x1 1x192x7x1024x3x2x1x1 "
    "1x3x96x24x3x2x1x1 1x197x26x77x3x1x1x1 1x1024x10x512x1x1x0x1 4x32x56x384x3x1x1x1 2x128x10x96x3x2x1x1"
).split()
#: drawn by chance once more (`random.Random(20261201)`), and measured before the rules for tiles made since then
_ANEW_MATMULS = (
    "1320x2816x64 227x1139x1055 181x128x1664 4x1702x437 15x484x1165 176x256x512 1539x303x54 131x768x640 "
    "3x3712x128 8x3072x832 5x3968x64 1x1664x256 15x896x2112 6x65x485 2266x256x256 8x256x7x1024 36x128x7x64 "
    "5x128x3x64 2x128x1x1024"
).split()
_ANEW_CONVOLUTIONS = (
    "1x3x160x32x3x2x1x1 1x69x41x127x3x1x1x1 1x64x40x64x1x1x0x1 1x96x14x128x1x1x0x1 1x128x10x384x5x1x2x1 "
    "2x384x7x128x3x1x1x1 1x512x28x512x1x1x0x1 1x256x40x256x3x1x1x8 4x192x56x32x3x1x1x1 1x96x28x256x3x2x1x1 "
    "2x128x20x384x3x2x1x1 1x192x10x64x3x1x1x1"
).split()
#: drawn by chance (`random.Random(20261202)`) for a CPU without AVX-512, before it was measured
_MILAN_MATMULS = (
    "8x64x256 4x198x17 12x256x256 1x896x768 51x159x45 128x256x1152 16x384x640 64x1239x115 6x640x1280 256x1536x640 "
    "48x32x137 8x320x1152 1x192x128 2x3072x3072 384x1536x512 24x896x128 35x302x36 24x1280x1152 1x768x640 "
    "1x1280x96 2x64x192 12x1280x320 8x1152x2304 67x225x54 256x640x64 24x1152x1280 24x1024x896 692x46x1510 "
    "1x896x192 2x1280x3072 37x200x33 1x96x384 1x1276x146 16x512x2048 100x96x1280 435x106x650 1x1024x384 "
    "512x640x320 384x772x914 12x90x27 512x192x640 71x17x68 100x128x1x256 32x1024x7x10 8x256x1x100 100x128x1x512 "
    "16x512x1x100 4x1024x1x512"
).split()
_MILAN_CONVOLUTIONS = (
    "1x576x40x576x3x1x1x576 1x3x160x24x3x1x1x1 4x3x28x96x3x2x1x1 4x64x14x384x3x1x1x1 1x64x56x32x1x2x0x1 "
    "2x256x7x256x3x1x1x2 1x143x40x128x1x1x0x1 1x96x7x96x7x2x3x96 1x256x56x256x3x1x1x8 2x145x7x195x1x1x0x1 "
    "1x1x96x48x5x2x2x1 2x74x28x36x3x1x1x1 1x192x14x192x7x1x3x192 2x32x28x384x1x1x0x1 1x96x28x64x3x1x1x1 "
    "1x55x7x46x3x1x1x1 1x173x28x17x1x1x0x1 2x384x40x96x1x1x0x1 1x256x28x64x5x1x2x1 1x64x10x64x3x1x1x8 "
    "1x256x7x256x3x1x1x4 4x512x10x384x3x2x1x1 1x128x28x128x1x1x0x1 1x256x14x192x3x2x1x1 4x512x28x512x3x2x1x16 "
    "1x32x56x192x1x2x0x1 1x192x56x128x1x1x0x1 2x133x28x46x5x1x2x1 1x192x10x256x1x1x0x1 1x128x7x384x5x1x2x1 "
    "1x192x14x192x3x1x1x192 1x128x56x128x1x1x0x1 1x240x7x240x3x1x1x240 4x172x7x182x5x1x2x1 2x32x20x32x1x1x0x1 "
    "1x128x56x64x3x2x1x1 1x128x7x96x1x1x0x1 1x256x10x128x1x1x0x1 2x1x28x32x3x2x1x1 1x3x96x16x3x2x1x1"
).split()
#: sets of products and convolutions
SETS = {
    "first": (_MATMULS, _CONVOLUTIONS),
    "later": (_LATER_MATMULS, _LATER_CONVOLUTIONS),
    "sweep": (_SWEEP_MATMULS, _SWEEP_CONVOLUTIONS),
    "fresh": (_FRESH_MATMULS, _FRESH_CONVOLUTIONS),
    "drawn": (_DRAWN_MATMULS, _DRAWN_CONVOLUTIONS),
    "beside": (_BESIDE_MATMULS, _BESIDE_CONVOLUTIONS),
    "anew": (_ANEW_MATMULS, _ANEW_CONVOLUTIONS),
    "milan": (_MILAN_MATMULS, _MILAN_CONVOLUTIONS),
}


@dataclass(frozen=True)
class Column:
    """A pair of types and a cap; `group`: of compressed weights, how many along K share an f32 scale."""

    name: str
    types: str
    isa: str
    group: int = 0
    attr: dict[str, Any] = field(default_factory=dict)


_INTO_BF16, _INTO_F32 = ({"fpmath": mode, "apply_to_int": True} for mode in ("bf16", "strict"))
_INNER = 4  # sizes of an inner product
_AGREE = 0.03  # by how much two rounds may differ
COLUMNS = (
    Column("f32", "f32:f32:f32", "avx512_core"),
    Column("f32 avx2", "f32:f32:f32", "avx2"),
    Column("bf16", "bf16:bf16:f32", "avx512_core_bf16"),
    Column("bf16 avx512", "bf16:bf16:f32", "avx512_core"),
    Column("f16", "f16:f16:f32", "avx512_core_fp16"),
    Column("u8s8 vnni", "u8:s8:s32", "avx512_core_vnni"),
    Column("s8s8 vnni", "s8:s8:s32", "avx512_core_vnni"),
    Column("u8s8 avx512", "u8:s8:s32", "avx512_core"),
    Column("s8s8 avx512", "s8:s8:s32", "avx512_core"),
    Column("u8s8 avx2_vnni", "u8:s8:s32", "avx2_vnni"),
    Column("u8s8 avx2", "u8:s8:s32", "avx2"),
    Column("s8s8 avx2", "s8:s8:s32", "avx2"),
    Column("f32 x bf16", "f32:bf16:f32", "avx512_core"),
    Column("f32 x f16", "f32:f16:f32", "avx512_core"),
    Column("f32 x f16 avx2", "f32:f16:f32", "avx2"),
    Column("f32 x bf16 avx2", "f32:bf16:f32", "avx2"),
    Column("bf16 x s8", "bf16:s8:f32", "avx512_core_bf16", 128, _INTO_BF16),
    Column("bf16 x s4", "bf16:s4:f32", "avx512_core_bf16", 128, _INTO_BF16),
    Column("f32 x s8", "f32:s8:f32", "avx512_core", 128, _INTO_F32),
    Column("f32 x s4", "f32:s4:f32", "avx512_core", 128, _INTO_F32),
    Column("f32 x s8 avx2", "f32:s8:f32", "avx2", 128, _INTO_F32),
    Column("f32 x s4 avx2", "f32:s4:f32", "avx2", 128, _INTO_F32),
    Column("bf16 amx", "bf16:bf16:f32", "avx512_core_amx"),
    Column("u8s8 amx", "u8:s8:s32", "avx512_core_amx"),
    Column("s8s8 amx", "s8:s8:s32", "avx512_core_amx"),
    Column("bf16 x s8 amx", "bf16:s8:f32", "avx512_core_amx", 128, _INTO_BF16),
    Column("bf16 x s4 amx", "bf16:s4:f32", "avx512_core_amx", 128, _INTO_BF16),
)
_BY_NAME = {column.name: column for column in COLUMNS}


def shapes(column: Column, names: Sequence[str]) -> list[str]:
    """The shapes of a column in some sets: compressed weights are of matmuls, K in whole groups."""
    matmuls, convolutions = ([shape for name in names for shape in SETS[name][kind]] for kind in (0, 1))
    if not column.group:
        return [*matmuls, *convolutions]
    return [shape for shape in matmuls if shape.count("x") == 2 and int(shape.split("x")[1]) % column.group == 0]


def kind_of(shape: str) -> str:
    """The kind of a shape, in a word or two."""
    sizes = tuple(map(int, shape.split("x")))
    if len(sizes) == 3:
        m = sizes[0]
        return "matmul, M = 1" if m == 1 else "matmul, M = 2 to 16" if m <= 16 else "matmul, larger M"
    if len(sizes) == _INNER:
        return "inner product"
    _, channels, _, _, taps, _, _, groups = sizes
    if groups > 1:
        return "depthwise" if groups == channels else "groups"
    return "first layers" if channels <= 3 else "convolution, 1 x 1" if taps == 1 else "convolution, larger"


def kept_out(shape: str) -> bool:
    """Whether no rule may be made by a shape: half of them, drawn by chance."""
    return bool(crc32(shape.encode()) & 1)


def measure(names: list[str], out: Path, sets: list[str]) -> None:
    """Time all cells, a process for each column, and write them as they come."""
    from benchmarks.onednn import environment

    with out.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["column", "shape", "implementation", "cycles", "median", "ghz", "samples"])
        for name in names:
            command = [sys.executable, "-m", "benchmarks.cells", "child", "--column", name]
            command += [word for one in sets for word in ("--set", one)]
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


def _child(column: Column, sets: list[str]) -> None:
    if hasattr(os, "sched_setaffinity"):  # the library's runtime takes as many threads as it sees cores
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    from benchmarks.inside import timed
    from benchmarks.onednn import Compressed, Convolution, InnerProduct, Matmul

    for shape in shapes(column, sets):
        sizes = tuple(map(int, shape.split("x")))
        try:
            kind = InnerProduct if len(sizes) == _INNER else Convolution if len(sizes) > _INNER else Matmul
            primitive = Compressed(column.types, column.group, *sizes) if column.group else kind(column.types, *sizes)
        except SystemExit as error:
            print(f"{column.name} {shape}: {error}", file=sys.stderr)
            continue
        if primitive.implementation.startswith("ref"):
            print(f"{column.name} {shape}: left to {primitive.implementation}, in C++", file=sys.stderr)
            continue
        for _ in range(3):
            primitive.run()
        t = timed(primitive)
        cell = [shape, primitive.implementation, round(t.cycles), round(t.median), round(t.ghz, 3), t.samples]
        print(json.dumps(cell), flush=True)


def agreeing(rounds: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The cells whose two fastest rounds are within `_AGREE` of each other, with the mean of those two: others slow
    down what shares a cache or the memory with them, and nothing makes it faster.
    """
    cell = ["column", "shape", "implementation"]
    together = pd.concat(rounds).sort_values("cycles", kind="stable")
    fastest = together.groupby(cell, sort=False).head(2)
    found = fastest.groupby(cell, sort=False)["cycles"]
    near = (found.max() <= (1 + _AGREE) * found.min()) & (found.count() == 2)
    print(f"{len(near)} cells, {int(near.sum())} whose two fastest rounds are within {_AGREE:.0%}", file=sys.stderr)
    kept = rounds[0].set_index(cell)
    kept["cycles"] = found.mean().round()
    kept = kept[kept.index.isin(near[near].index)].reset_index()
    return kept[rounds[0].columns].astype({"cycles": int})


def predicted(column: Column, shape: str, machine: str) -> simdnn.Estimate:
    """The estimate of the kernel that stands for the library's."""
    sizes = tuple(map(int, shape.split("x")))
    scales = {"scales": {"wei": Quant(None, groups=(column.group, 1), dtype="f32")}} if column.group else {}
    how: dict[str, Any] = {"dt": column.types, "isa": column.isa, "machine": machine, "dispatch": "onednn"}
    how["attr"] = Attr(**column.attr, **scales)
    if len(sizes) == 3:
        return simdnn.estimate("matmul", m=sizes[0], k=sizes[1], n=sizes[2], **how)
    if len(sizes) == _INNER:
        mb, ic, size, oc = sizes
        return simdnn.estimate("inner_product", mb=mb, ic=ic, oc=oc, spatial=(size, size), **how)
    mb, ic, size, oc, taps, stride, padding, groups = sizes
    image = {"mb": mb, "ic": ic, "ih": size, "iw": size, "oc": oc, "kh": taps, "kw": taps}
    return simdnn.estimate("convolution", **image, strides=stride, padding=padding, groups=groups, **how)


def beside(recorded: pd.DataFrame, machine: str) -> Iterator[dict[str, Any]]:
    """A row a cell: measured, predicted, and predicted to measured; NaN where the package refuses."""
    for cell in recorded.to_dict("records"):
        try:
            found = predicted(_BY_NAME[cell["column"]], cell["shape"], machine)
            cycles, bound, chosen = found.cycles, found.bound, found.library
        except simdnn.SimdnnError as error:
            cycles, bound, chosen = float("nan"), str(error)[:60], ""
        yield cell | {"predicted": cycles, "ratio": cycles / cell["cycles"], "bound": bound, "chosen": chosen}


def main() -> None:
    """Measure, or print the errors by column and all cells."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cells", description=__doc__)
    parser.add_argument("what", nargs="*", help="measure, agree with two files, or files of cells (the recorded one)")
    parser.add_argument("--column", action="append", choices=list(_BY_NAME), help="of these alone (all)")
    parser.add_argument("--machine", help="whose prediction is asked for; to be named for files (recorded: spr)")
    parser.add_argument("-o", "--output", type=Path, default=Path("cells.csv"), help="where cells go (cells.csv)")
    parser.add_argument("--set", action="append", choices=list(SETS), help="measure shapes of these sets (all)")
    args = parser.parse_args()
    names, sets = args.column or list(_BY_NAME), args.set or list(SETS)
    what, *files = args.what or [str(RECORDED / f"cells-{args.machine or 'spr'}.csv")]
    if what == "measure":
        measure(names, args.output, sets)
    elif what == "child":
        _child(_BY_NAME[names[0]], sets)
    elif what == "agree":
        agreeing([*map(pd.read_csv, files)]).to_csv(args.output, index=False, lineterminator="\n")
    else:
        if args.what and not args.machine:
            parser.error(f"{what} was measured on some core: --machine says whose prediction stands beside it")
        _report(pd.concat(map(pd.read_csv, [what, *files])).query("column in @names"), args.machine or "spr")


def _report(recorded: pd.DataFrame, machine: str) -> None:
    cells = pd.DataFrame(beside(recorded, machine))
    grid = cells.pivot(index="shape", columns="column", values="ratio")
    print("predicted / measured")
    print(grid.loc[cells["shape"].unique(), cells["column"].unique()].round(2).to_string(na_rep=""))
    cells["kind"], cells["kept out"] = cells["shape"].map(kind_of), cells["shape"].map(kept_out)
    cells["family"] = ["convolution" if shape.count("x") > _INNER else "matmul" for shape in cells["shape"]]
    base = "f32" if "f32" in set(cells["column"]) else "f32 avx2"
    f32 = cells[cells["column"] == base].set_index("shape")["ratio"]
    cells["error"], cells["absolute"] = 100 * (cells["ratio"] - 1), 100 * (cells["ratio"] - 1).abs()
    faster = 100 * (cells["shape"].map(f32) / cells["ratio"] - 1).abs()
    cells["speed-up"] = faster.where(cells["column"] != base)
    for by in (["family", "column"], ["kind"], ["family", "kept out"], ["kept out"]):
        summary = cells.groupby(by, sort=False).agg(
            cells=("error", "count"),
            mean=("error", "mean"),
            absolute=("absolute", "mean"),
            median=("absolute", "median"),
            **{"speed-up over f32": ("speed-up", "mean")},
        )
        print(table(summary.round(1).reset_index()))
    named = cells["chosen"].ne("") & cells["chosen"].ne(cells["implementation"])
    for cell in cells[named].to_dict("records"):
        print(f"{cell['column']} {cell['shape']}: {cell['implementation']}, not {cell['chosen']}")


if __name__ == "__main__":
    main()
