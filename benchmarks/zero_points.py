"""`python -m benchmarks.zero_points`: what weights zero points cost over the layers of language models, per GPU.

Each strategy's extra cycles in per cent of the same GEMM without zero points (s8 source, u8 weights, f32 out, common
source scale, one weights scale a column), weights from memory, by the length of a group along K. Where they go, in per
cent of that GEMM's cycles as well: what the systolic pipes, the vector pipes, and the busiest of L2 and memory are
occupied longer, on average over the cores. These overlap: extra work that hides adds nothing to the time. (With
conversion to f16 the systolic pipe's work doubles.) `quantize` is
what forming the reductions adds to the kernel that quantizes the source by these groups, and is in no other column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas as pd

import simdnn
import workloads
from isa_models import GpuMachine
from isa_models.machines.loader import gpu_machine
from simdnn import Attr, Quant
from simdnn.kernels.common.dynamic import Dynamic
from simdnn.kernels.intel_gpu.dynamic import GpuQuantization
from simdnn.timing.gpu.engine import SYSTOLIC, VECTOR
from simdnn.timing.gpu.estimate import estimate_gpu, gpu_time
from workloads.layer import MatmulLayer

GPUS = ("a770", "max1550", "b580", "lnl", "dg1")
LAYERS = (("llama3-8b-decode-ctx128", ("q_proj", "gate_proj", "down_proj")),)
PIPES = (SYSTOLIC, VECTOR)
ROWS = (1, 16, 128, 1024, 4096)
GROUPS = (32, 128, 512, 0)  # 0: all of K
STRATEGIES = ("in_kernel", "precomputed", "bias", "upconvert")  # "direct" costs two to six times the GEMM: `square`
SQUARE = (32, 64, 128, 512, 4096)  # groups of `square`, whose N and K are the last


@dataclass(frozen=True)
class Work:
    """A GEMM's cycles, and for how many of them each resource is taken."""

    cycles: float
    systolic: float
    vector: float
    bytes: float


def shapes() -> Iterator[tuple[str, int, int]]:
    """(layer, N, K) of the studied layers of the tables."""
    for table, names in LAYERS:
        for layer in workloads.load(table).layers:
            if isinstance(layer, MatmulLayer) and layer.name in names:
                yield layer.name, layer.n, layer.k


def attribute(strategy: str, group: int) -> Attr:
    """Scales and, with a strategy, weights zero points by `group` k."""
    scales = {"src": Quant(None), "wei": Quant(None, mask=2)}
    if not strategy:
        return Attr(scales=scales)
    sums = {"src": Quant(None, groups=(1, group))} if strategy == "precomputed" else {}
    points = {"wei": Quant(None, groups=(group, 1), dtype="u8")}
    return Attr(scales=scales, zero_points=points, zero_point_strategy=strategy, precomputed_reductions=sums)


def estimated(machine: str, m: int, n: int, k: int, strategy: str = "", group: int = 0) -> simdnn.Estimate:
    """One GEMM; `strategy` "" has no zero points, else they stand for `group` k each."""
    return simdnn.estimate("matmul", m=m, n=n, k=k, dt="s8:u8:f32", machine=machine, attr=attribute(strategy, group))


@cache
def work(machine: str, m: int, n: int, k: int, strategy: str = "", group: int = 0) -> Work:
    """One GEMM's cycles with weights from memory, and those of its pipes and its bytes alone."""
    with simdnn.cold_weights():
        found = estimated(machine, m, n, k, strategy, group)
    on = gpu_machine(machine)
    cores = on.xe_cores * on.stacks
    time = gpu_time(found.kernel.program, on, cold=True)
    pipes = {pipe: sum(s.engine.busy.get(pipe, 0.0) * s.nest.group_count for s in time.stages) for pipe in PIPES}
    bytes_ = max(level.cycles for level in found.cost.levels[1:])
    return Work(found.cycles, pipes[SYSTOLIC] / cores, pipes[VECTOR] / cores, bytes_)


@cache
def quantize(on: GpuMachine, m: int, k: int, group: int) -> float:
    """Cycles, at the GEMM's clock, that reductions add to the quantization of an f16 source."""
    plain, summed = (
        estimate_gpu(GpuQuantization(Dynamic(m, k, group, "f16", "s8", reductions=sums), on).program, on).seconds
        for sums in (0, group)
    )
    return (summed - plain) * on.ghz * 1e9


def table(gpus: tuple[str, ...] = GPUS, rows: tuple[int, ...] = ROWS) -> pd.DataFrame:
    """A row for each GPU, layer, M, strategy and group; all figures but `cycles` in per cent of the plain GEMM's."""
    found = []
    for machine in gpus:
        for layer, n, k in shapes():
            for m in rows:
                plain = work(machine, m, n, k)
                for strategy in strategies(machine)[:-1]:
                    for group in (k,) if strategy == "bias" else (g or k for g in GROUPS):
                        w = work(machine, m, n, k, strategy, group)
                        parts = {"extra": w.cycles - plain.cycles}
                        parts |= {name: getattr(w, name) - getattr(plain, name) for name in ("systolic", "vector")}
                        parts["bytes"] = w.bytes - plain.bytes
                        if strategy == "precomputed":
                            parts["quantize"] = quantize(gpu_machine(machine), m, k, group)
                        row = {"gpu": machine, "layer": layer, "m": m, "n": n, "k": k, "strategy": strategy}
                        row |= {"group": "any" if strategy == "bias" else group, "cycles": round(w.cycles)}
                        found.append(row | {name: round(100 * x / plain.cycles, 1) for name, x in parts.items()})
    return pd.DataFrame(found)


def strategies(machine: str) -> tuple[str, ...]:
    """The strategies of a machine: conversion to f16 is of no use without DPAS, where `mad` multiplies it in f32."""
    has = tuple(s for s in STRATEGIES if s != "upconvert" or gpu_machine(machine).platform.exec_size)
    return (*has, "direct")


def square(gpus: tuple[str, ...] = GPUS, rows: tuple[int, ...] = (2048,)) -> pd.DataFrame:
    """Extra cycles in per cent of every strategy by group at N = K = 4096, what stays in L2 left there."""
    found = []
    for machine in gpus:
        for m in rows:
            plain = estimated(machine, m, 4096, 4096).cycles
            for strategy in strategies(machine):
                row: dict[str, Any] = {"gpu": machine, "m": m, "strategy": strategy}
                for group in SQUARE:
                    extra = estimated(machine, m, 4096, 4096, strategy, group).cycles / plain - 1
                    row[str(group)] = f"{100 * extra:+.1f}"
                found.append(row)
    return pd.DataFrame(found)


def published() -> pd.DataFrame:
    """oneDNN's RFC 20250819, 2172 x 4096 x 14336 to f16: milliseconds published, and predicted beside them."""
    sizes, f16 = {"m": 2172, "k": 4096, "n": 14336}, {"dt": "f16:f16:f16"}
    kinds: dict[str, tuple[float, str]] = {
        "f16": (2.45, ""),
        "reductions given": (1.44, "precomputed"),
        "sums in the kernel": (7.32, "in_kernel"),
        "converted to f16": (7.32, "upconvert"),
    }
    found = []
    for name, (ms, strategy) in kinds.items():
        row: dict[str, Any] = {"kernel": name, "published": ms}
        for machine in ("b580", "a770"):
            options = {"dt": "s8:u8:f16", "attr": attribute(strategy, 128)} if strategy else f16
            seconds = simdnn.estimate("matmul", **sizes, **options, machine=machine).seconds  # type: ignore[arg-type]
            row[machine] = round(1e3 * seconds, 2)
        found.append(row)
    return pd.DataFrame(found)


def holds(frame: pd.DataFrame) -> pd.DataFrame:
    """How many shapes keep within the proposal's figures: 5 % for given reductions, 15 % for the term as a matrix."""
    kept = []
    for strategy, limit in (("precomputed", 5), ("bias", 15)):
        part = frame[frame["strategy"] == strategy].copy()
        part["within"] = part["extra"] <= limit
        part["group"] = ["K" if g == k else str(g) for g, k in zip(part["group"], part["k"], strict=True)]
        columns = {"shapes": ("within", "size"), "within": ("within", "sum")}
        columns |= {"median": ("extra", "median"), "worst": ("extra", "max")}
        counts = part.groupby(["gpu", "group"], sort=False).agg(**columns).reset_index()
        kept.append(counts.assign(strategy=strategy, limit=limit))
    return pd.concat(kept, ignore_index=True)


def main() -> None:
    """Print all tables."""
    print("extra cycles at N = K = 4096, per cent of the GEMM without zero points, by group (predicted)")
    print(square().to_string(index=False))
    print(square(("b580",), (1, 16, 128, 4096)).to_string(index=False))
    print("\nmilliseconds, 2172 x 4096 x 14336, groups of 128")
    print(published().to_string(index=False))
    print()
    found = table()
    print("extra cycles and where they go, per cent of the GEMM without zero points (predicted)")
    print(found.to_string(index=False, na_rep="-"))
    print("\nshapes within the proposal's figures: 5 % for given reductions, 15 % for the term as a matrix")
    print(holds(found).to_string(index=False))


if __name__ == "__main__":
    main()
