"""`python -m benchmarks.engines`: products of the compiled engine beside oneDNN's, in one process for each ISA cap.

All are timed on one core, round by round: CPU time of the process, medians. A ratio is oneDNN's time, its
weights packed ahead, to ours: `run` of a program whose inputs are packed ahead as well, `call` of `simdnn.matmul` with
weights that it met before, `new` with others each time, which it packs. `portable` is NumPy's time for the f32 product
to that of the program without the host's instructions.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import ml_dtypes
import numpy as np
import pandas as pd
from numpy.typing import NDArray

import simdnn
from benchmarks import onednn
from isa_models import machine
from simdnn import numerics
from simdnn.cli.output import table
from simdnn.kernels import KERNELS, Epilogue, MatmulProblem, Parameters

MACHINE = "zen4"  # whose blocking the kernels take
SHAPES = (
    "1024x1024x1024 256x256x256 130x257x129 128x768x768 16x768x3072 1x1024x1024 "
    "4096x64x4096 2048x2048x2048 512x4096x4096"
)
_AT_LEAST = 2e8  # operations: of small products more rounds are timed
_MOST_ROUNDS = 400


@dataclass(frozen=True)
class Row:
    """A kernel, its types, and the ISA cap under which oneDNN runs."""

    kernel: str
    types: str
    isa: str


ROWS = (
    Row("gemm:avx512_core", "f32:f32:f32", "avx512_core"),
    Row("gemm:avx512_core_bf16", "bf16:bf16:f32", "avx512_core_bf16"),
    Row("gemm:avx512_core_vnni", "u8:s8:s32", "avx512_core_vnni"),
    Row("gemm:avx512_core_int8", "u8:s8:s32", "avx512_core"),
)


def main() -> None:
    """Measure and print, a process for each row."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines", description=__doc__)
    parser.add_argument("--shapes", default=SHAPES, help=f"MxKxN each ({SHAPES})")
    parser.add_argument("--rounds", type=int, default=9, help="of the largest products; small ones have more (9)")
    parser.add_argument("--kernel", help="of one row alone, timed in this very process: its JSON lines")
    args = parser.parse_args()
    if args.kernel:
        _one(next(row for row in ROWS if row.kernel == args.kernel), args.shapes.split(), args.rounds)
        return
    if not onednn.LIBRARY.exists():
        raise SystemExit("oneDNN is not here: install the package onednn, or name its environment in $DNNLROOT")
    frame = pd.DataFrame([cell for row in ROWS for cell in _apart(row, args.shapes, args.rounds)])
    ratios = dict.fromkeys(("run", "call", "new", "portable"), "{:.2f}".format)
    print(table(frame, {**ratios, "onednn_us": "{:.0f}".format}))


def _apart(row: Row, shapes: str, rounds: int) -> list[dict[str, Any]]:
    """The cells of a row, from a process under its cap."""
    one_thread = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    command = [sys.executable, "-m", "benchmarks.engines", "--kernel", row.kernel]
    command += ["--shapes", shapes, "--rounds", str(rounds)]
    environment = os.environ | onednn.environment(row.isa) | one_thread
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _one(row: Row, shapes: list[str], rounds: int) -> None:
    if hasattr(os, "sched_setaffinity"):  # the library's runtime takes as many threads as it sees cores
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for shape in shapes:
        m, k, n = map(int, shape.split("x"))
        theirs = onednn.Matmul(m, k, n, row.types)
        times = _medians(_actions(row, m, k, n) | {"onednn": theirs.run}, 2 * m * k * n, rounds)
        cell: dict[str, Any] = {"kernel": row.kernel, "types": row.types, "shape": shape}
        cell |= {name: times["onednn"] / times[name] for name in ("run", "call", "new")}
        cell |= {"portable": times["numpy"] / times["portable"], "onednn_us": 1e6 * times["onednn"]}
        print(json.dumps(cell | {"onednn": f"{theirs.version} {theirs.implementation}"}), flush=True)


def _actions(row: Row, m: int, k: int, n: int) -> dict[str, Callable[[], object]]:
    """Products that are timed beside those of oneDNN, by column."""
    src, wei, dst = row.types.split(":")
    rng = np.random.default_rng(0)
    a, b = _random(rng, (m, k), src), _random(rng, (k, n), wei)
    others = cycle([_random(rng, (k, n), wei) for _ in range(2)])
    fa, fb = (rng.standard_normal(shape, dtype=np.float32) for shape in ((m, k), (k, n)))
    problem = MatmulProblem(m, n, k, src, wei, Epilogue(dst))
    kind = next(kind for kind in KERNELS if kind.name == row.kernel and not kind.accepts(problem))
    kernel = kind.build(problem, machine(MACHINE))
    inputs = kernel.prepare(a, b, Parameters())

    def call(weights: NDArray[Any]) -> object:
        return simdnn.matmul(a, weights, machine=MACHINE, dst=dst, dispatch=row.kernel, engine="compiled")

    def new() -> object:
        weights = next(others)
        weights.reshape(-1)[:1] = rng.integers(0, 100, 1).astype(weights.dtype)
        weights.reshape(-1)[-1:] = rng.integers(0, 100, 1).astype(weights.dtype)
        return call(weights)

    return {
        "numpy": lambda: fa @ fb,
        "run": lambda: numerics.run(kernel.program, inputs, engine="compiled"),
        "call": lambda: call(b),
        "new": new,
        "portable": lambda: numerics.run(kernel.program, inputs, engine="compiled", native=False),
    }


def _medians(actions: dict[str, Callable[[], object]], operations: int, rounds: int) -> dict[str, float]:
    """Median seconds of each action after two rounds that warm up; each round has an order of its own."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    rng = np.random.default_rng(0)
    for number in range(max(rounds, min(_MOST_ROUNDS, int(rounds * _AT_LEAST / operations))) + 2):
        for name in rng.permutation(list(actions)).tolist():
            start = time.process_time()  # of all threads: oneDNN's runtime may have its own
            actions[name]()
            if number > 1:
                times[name].append(time.process_time() - start)
    return {name: statistics.median(found) for name, found in times.items()}


def _random(rng: np.random.Generator, shape: tuple[int, int], dtype: str) -> NDArray[Any]:
    if dtype in ("u8", "s8"):
        return rng.integers(0, 256, shape, np.uint8).view(np.uint8 if dtype == "u8" else np.int8)
    values: NDArray[Any] = rng.standard_normal(shape, dtype=np.float32)
    return values.astype(ml_dtypes.bfloat16) if dtype == "bf16" else values


if __name__ == "__main__":
    main()
