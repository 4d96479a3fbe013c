"""`python -m benchmarks.engines`: products and convolutions of the compiled engine beside oneDNN's, in one process for
each ISA cap.

All are timed on one core, round by round: CPU time of the process, medians. A ratio is oneDNN's time to ours. `run`: of
a program whose inputs are packed ahead, weights of both in the kernels' own layouts. `call`: of `simdnn.matmul` or
`convolution` with weights that `simdnn.reorder` made ahead, as oneDNN's are; a convolution brings its nchw source and
destination into oneDNN's layouts and back, as oneDNN does then. `known`: with weights as NumPy has them, that products
met before, beside an execution whose weights no other one reads either. `new`: with others each time, which are packed,
by oneDNN too; that they change is not timed. `portable` is NumPy's time for the f32 product to that of the program
without the host's instructions.
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
from functools import partial
from itertools import cycle
from math import prod
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import simdnn
from benchmarks import onednn
from benchmarks.whose import clock
from isa_models.formats import fmt
from isa_models.isa import host_caps
from isa_models.machines.cpu_record import Machine
from simdnn import numerics
from simdnn.cli.output import table
from simdnn.kernels import KERNELS, Epilogue, Kernel, MatmulProblem, Parameters
from simdnn.primitives.reorder import Reordered

SHAPES = (
    "1024x1024x1024 256x256x256 130x257x129 128x768x768 16x768x3072 1x1024x1024 "
    "4096x64x4096 2048x2048x2048 512x4096x4096"
)
#: images, input channels, image size, output channels, taps, stride, padding, groups
CONVOLUTIONS = (
    "1x64x56x64x3x1x1x1 1x256x56x64x1x1x0x1 1x128x28x128x3x1x1x1 1x128x56x128x3x2x1x1 1x512x7x512x3x1x1x1 "
    "1x3x224x64x7x2x3x1 1x256x14x256x3x1x1x256"
)
_AT_LEAST = 2e8  # operations: of small products more rounds are timed
_MOST_ROUNDS = 400
_CHANGED = 96  # elements of weights that are made others each time, by which weights met before are looked up
_OTHERS = np.random.default_rng(0)  # of one process: no product of any shape meets the same twice
_WARM = 8  # rounds ahead: known weights are compared some times before they are watched


@dataclass(frozen=True)
class Row:
    """A kernel, its types, and the ISA cap under which oneDNN runs."""

    kernel: str
    types: str
    isa: str


ROWS = (
    Row("gemm:avx2", "f32:f32:f32", "avx2"),
    Row("gemm:avx2_int8", "u8:s8:s32", "avx2"),
    Row("gemm:avx512_core", "f32:f32:f32", "avx512_core"),
    Row("gemm:avx512_core_bf16", "bf16:bf16:f32", "avx512_core_bf16"),
    Row("gemm:avx512_core_f16", "f16:f16:f32", "avx512_core_fp16"),
    Row("gemm:avx512_core_vnni", "u8:s8:s32", "avx512_core_vnni"),
    Row("gemm:avx512_core_int8", "u8:s8:s32", "avx512_core"),
    Row("gemm:avx512_core_amx", "bf16:bf16:f32", "avx512_core_amx"),
    Row("gemm:avx512_core_amx_int8", "u8:s8:s32", "avx512_core_amx"),
)


def main() -> None:
    """Measure and print, a process for each row."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines", description=__doc__)
    parser.add_argument("--shapes", default=SHAPES, help=f"MxKxN each ({SHAPES})")
    parser.add_argument(
        "--convolutions", default=CONVOLUTIONS, help=f"MBxICxSIZExOCxTAPSxSTRIDExPADDINGxGROUPS each ({CONVOLUTIONS})"
    )
    parser.add_argument("--rounds", type=int, default=9, help="of the largest products; small ones have more (9)")
    parser.add_argument("--machine", help="whose tiles the kernels have (the machine that this host behaves like)")
    parser.add_argument("--kernel", help="of one row alone, timed in this very process: its JSON lines")
    args = parser.parse_args()
    if args.kernel:
        row = next(row for row in ROWS if row.kernel == args.kernel)
        _one(row, clock(args.machine), [*args.shapes.split(), *args.convolutions.split()], args.rounds)
        return
    if not onednn.LIBRARY.exists():
        raise SystemExit("oneDNN is not here: install the package onednn, or name its environment in $DNNLROOT")
    args.machine = clock(args.machine).name
    frame = pd.DataFrame([cell for row in ROWS if row.isa in host_caps() for cell in _apart(row, args)])
    ratios = dict.fromkeys(("run", "call", "known", "new", "portable"), "{:.2f}".format)
    print(table(frame, {**ratios, "onednn_us": "{:.0f}".format}))


def _apart(row: Row, args: argparse.Namespace) -> list[dict[str, Any]]:
    """The cells of a row, from a process under its cap."""
    one_thread = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    command = [sys.executable, "-m", "benchmarks.engines", "--kernel", row.kernel, "--machine", args.machine]
    command += ["--shapes", args.shapes, "--convolutions", args.convolutions, "--rounds", str(args.rounds)]
    environment = os.environ | onednn.environment(row.isa) | one_thread
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _one(row: Row, target: Machine, shapes: list[str], rounds: int) -> None:
    if hasattr(os, "sched_setaffinity"):  # the library's runtime takes as many threads as it sees cores
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for shape in shapes:
        sizes = tuple(map(int, shape.split("x")))
        theirs, apart = ((onednn.Matmul if len(sizes) == 3 else onednn.Convolution)(row.types, *sizes) for _ in "ab")
        actions = (_matmuls if len(sizes) == 3 else _convolutions)(row, target, *sizes)
        beside = {"onednn": theirs.run, "their call": theirs.call, "their new": theirs.packing}
        beside["their known"] = apart.call
        mb, *others = sizes
        if len(sizes) > 3:
            ic, size, oc, taps, stride, _, groups = others
            operations = 2 * mb * ic * oc * (taps * size // stride) ** 2 // groups
        else:
            operations = 2 * prod(sizes)
        times = _medians(actions | beside, operations, rounds)
        cell: dict[str, Any] = {"kernel": row.kernel, "types": row.types, "shape": shape}
        pairs = {"run": "onednn", "call": "their call", "known": "their known", "new": "their new"}
        cell |= {name: times[pair] / times[name] for name, pair in pairs.items()}
        cell |= {"portable": times["numpy"] / times["portable"]} if "numpy" in times else {}
        cell |= {"onednn_us": 1e6 * times["onednn"], "call_us": 1e6 * times["call"]}
        print(json.dumps(cell | {"onednn": f"{theirs.version} {theirs.implementation}"}), flush=True)


def _matmuls(row: Row, target: Machine, m: int, k: int, n: int) -> dict[str, Callable[[], object]]:
    """Products that are timed beside those of oneDNN, by column."""
    src, wei, dst = row.types.split(":")
    rng = np.random.default_rng(0)
    a, b = _random(rng, (m, k), src), _random(rng, (k, n), wei)
    fa, fb = (rng.standard_normal(shape, dtype=np.float32) for shape in ((m, k), (k, n)))
    kernel = _kernel(row, target, MatmulProblem(m, n, k, src, wei, Epilogue(dst)))
    call = partial(simdnn.matmul, a, machine=target, dst=dst, dispatch=row.kernel, engine="compiled")
    ahead = _ahead(target, call, b)
    inputs = kernel.prepare(a, _plain(ahead), Parameters())
    run = partial(numerics.run, kernel.program, inputs, engine="compiled")
    ours: dict[str, Callable[[], object]] = {
        "numpy": lambda: fa @ fb,
        "run": run,
        "portable": partial(run, native=False),
    }
    return _calls(call, b, ahead, [_random(rng, (k, n), wei) for _ in range(2)]) | ours


def _convolutions(row: Row, target: Machine, *sizes: int) -> dict[str, Callable[[], object]]:
    """Convolutions that are timed beside those of oneDNN, by column."""
    mb, ic, size, oc, taps, stride, padding, groups = sizes
    src, wei, dst = row.types.split(":")
    rng = np.random.default_rng(0)
    shape = oc, ic // groups, taps, taps
    a, b = _random(rng, (mb, ic, size, size), src), _random(rng, shape, wei)
    how: dict[str, Any] = {"strides": stride, "padding": padding, "groups": groups}
    call: Any = partial(simdnn.convolution, a, machine=target, dst=dst, isa=row.isa, engine="compiled", **how)
    kernel, ahead = call(b).kernel, _ahead(target, call, b)
    inputs = kernel.prepare(a, _plain(ahead), Parameters())
    return _calls(call, b, ahead, [_random(rng, shape, wei) for _ in range(2)]) | {
        "run": lambda: numerics.run(kernel.program, inputs, engine="compiled"),
    }


def _kernel(row: Row, target: Machine, problem: MatmulProblem) -> Kernel:
    kind = next(kind for kind in KERNELS if kind.name == row.kernel and not kind.accepts(problem))
    return kind.build(problem, target)


def _ahead(target: Machine, call: Callable[..., simdnn.Result], b: NDArray[Any]) -> Any:
    """Weights that are reordered ahead, and met: `run` and `call` read the same panels, as oneDNN's do."""
    try:
        ahead: Any = simdnn.reorder(b, call(b).weights_desc, machine=target)
    except simdnn.SimdnnError:  # of this kernel's layout there is no reorder
        ahead = b
    call(ahead)
    return ahead


def _plain(ahead: Any) -> NDArray[Any]:
    """Weights as kernels are given them, whose panels are known where they were reordered."""
    return ahead.values if isinstance(ahead, Reordered) else ahead


def _calls(
    call: Callable[..., simdnn.Result], b: NDArray[Any], ahead: Any, others: list[NDArray[Any]]
) -> dict[str, Callable[[], object]]:
    """Whole calls with weights as they are reordered ahead, known and new."""
    return {"call": lambda: call(ahead), "known": lambda: call(b), "new": _Changing(call, others)}


class _Changing:
    """Calls with weights that are others each time: `change` is called ahead of each."""

    def __init__(self, call: Callable[[Any], object], weights: list[NDArray[Any]]) -> None:
        self.call, self.turns = call, cycle(weights)
        self.weights = weights[0]

    def change(self) -> None:
        """Take the next weights, with low bytes of elements changed all over."""
        self.weights = next(self.turns)
        octets = self.weights.reshape(-1).view(np.uint8)
        octets = octets[:: max(1, self.weights.size // _CHANGED) * self.weights.itemsize]
        octets[:] = _OTHERS.integers(0, 256, octets.size, np.uint8)

    def __call__(self) -> object:
        return self.call(self.weights)


def _medians(actions: dict[str, Callable[[], object]], operations: int, rounds: int) -> dict[str, float]:
    """Median seconds of each action after rounds that warm up; each round has an order of its own."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    rng = np.random.default_rng(0)
    for number in range(max(rounds, min(_MOST_ROUNDS, int(rounds * _AT_LEAST / operations))) + _WARM):
        for name in rng.permutation(list(actions)).tolist():
            action = actions[name]
            if isinstance(action, _Changing):
                action.change()
            start = time.process_time()  # of all threads: oneDNN's runtime may have its own
            action()
            if number >= _WARM:
                times[name].append(time.process_time() - start)
    return {name: statistics.median(found) for name, found in times.items()}


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    if dtype in ("u8", "s8"):
        return rng.integers(0, 256, shape, np.uint8).view(np.uint8 if dtype == "u8" else np.int8)
    values: NDArray[Any] = rng.standard_normal(shape, dtype=np.float32)
    return values.astype(fmt(dtype).dtype)


if __name__ == "__main__":
    main()
