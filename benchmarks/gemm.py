"""GEMM kernels of the table on this host, compiled native (its own instructions) and portable, against NumPy."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks import onednn
from isa_models.isa import host_caps
from isa_models.machines.cpu_record import Machine
from simdnn import numerics
from simdnn.cli.output import table
from simdnn.kernels import KERNELS, Epilogue, Kernel, MatmulProblem, Parameters
from simdnn.numerics import compiled
from simdnn.program.check import verify

COMPILE_TARGET = 0.3  # seconds a kernel


@dataclass(frozen=True)
class Variant:
    """A row of the report: a kernel, its types, and the ratios to NumPy aimed at (None: no target)."""

    kernel: str
    src: str
    weights: str
    dst: str
    native: float | None = None
    portable: float | None = None

    @property
    def types(self) -> str:
        return f"{self.src}:{self.weights}:{self.dst}"


VARIANTS = (
    Variant("gemm:avx2", "f32", "f32", "f32"),
    Variant("gemm:avx2_int8", "u8", "s8", "s32"),
    Variant("gemm:avx512_core", "f32", "f32", "f32"),
    Variant("gemm:avx512_core_bf16", "bf16", "bf16", "f32", portable=0.4),
    Variant("gemm:avx512_core_vnni", "u8", "s8", "s32", native=2.5, portable=0.4),
    Variant("gemm:avx512_core_int8", "u8", "s8", "s32", native=1.5, portable=0.4),
    Variant("gemm:avx512_core_int8_exact", "u8", "s8", "s32"),
    Variant("gemm:avx512_core_amx", "bf16", "bf16", "f32"),
    Variant("gemm:avx512_core_amx_int8", "u8", "s8", "s32"),
)


def report(size: int, rounds: int, target: Machine) -> str:
    """Measure all variants, with a machine's blocking, and lay the result out as text."""
    frame = measure(size, rounds, target)
    text = _text(frame, size)
    if not onednn.LIBRARY.exists():
        return f"{text}\n\noneDNN is not here (package onednn, or its environment in $DNNLROOT): no comparison with it."
    beside = compare(frame, size, rounds)
    formats = {"ratio": "{:.2f}".format, "onednn_ratio": "{:.2f}".format}
    head = "oneDNN at the same ISA cap, each ratio to NumPy f32 in its own process"
    return f"{text}\n\n{head}\n\n{table(beside, formats)}"


def compare(frame: pd.DataFrame, size: int, rounds: int) -> pd.DataFrame:
    """The native ratios of `measure` beside oneDNN's for the same types under the kernel's ISA cap."""
    rows = []
    for variant in VARIANTS:
        isa = next(k.isa for k in KERNELS if k.name == variant.kernel)
        found = onednn.measure(size, rounds, variant.types, isa)
        mine = (frame["kernel"] == variant.kernel) & (frame["instructions"] != "portable")
        rows.append(
            {
                "kernel": variant.kernel,
                "types": variant.types,
                "isa": isa,
                "ratio": float(frame.loc[mine, "ratio"].iloc[0]),
                "onednn_ratio": found.get("ratio", float("nan")),
                "onednn": found.get("version", ""),
                "onednn_implementation": found.get("implementation") or found["error"],
            }
        )
    return pd.DataFrame(rows)


def _text(frame: pd.DataFrame, size: int) -> str:
    formats: dict[str, Callable[[Any], str]] = {"ms": "{:.2f}".format, "gmac_s": "{:.1f}".format}
    formats |= {"ratio": "{:.2f}".format, "target": "{:.2f}".format, "compile_s": "{:.3f}".format}
    head = f"GEMM {size}x{size}x{size}, one thread, {platform.processor() or platform.machine()}; "
    return f"{head}ratio: times as fast as NumPy f32\n\n{table(frame, formats)}"


def measure(size: int, rounds: int, target: Machine) -> pd.DataFrame:
    """Least time, ratio to NumPy and compile time of each variant, native and portable."""
    a = np.random.default_rng(0).standard_normal((size, size), dtype=np.float32)
    rows: list[dict[str, Any]] = [{"kernel": "numpy f32", "types": "f32:f32:f32", "instructions": "-"}]
    actions: list[Callable[[], object]] = [lambda: a @ a]
    for variant in VARIANTS:
        kernel, inputs = _prepared(variant, size, target)
        for native in (True, False):
            row, action = _case(variant, kernel, inputs, native)
            rows.append(row)
            actions.append(action)
    for row, seconds in zip(rows, _least(actions, rounds), strict=True):
        row |= {"ms": 1e3 * seconds, "gmac_s": size**3 / seconds / 1e9, "ratio": rows[0].get("ms", 1e3 * seconds)}
        row["ratio"] /= row["ms"]
    frame = pd.DataFrame(rows)
    frame["met"] = [_met(row) for row in rows]
    return frame[["kernel", "types", "instructions", "ms", "gmac_s", "ratio", "target", "compile_s", "met"]]


def _prepared(variant: Variant, size: int, target: Machine) -> tuple[Kernel, dict[str, Any]]:
    """The kernel, and the program's inputs for random data."""
    problem = MatmulProblem(size, size, size, variant.src, variant.weights, Epilogue(variant.dst))
    kind = next(k for k in KERNELS if k.name == variant.kernel and not k.accepts(problem))
    kernel = kind.build(problem, target)
    verify(kernel.program)
    rng = np.random.default_rng(1)
    src, weights = (_random(rng, size, dtype) for dtype in (variant.src, variant.weights))
    return kernel, kernel.prepare(src, weights, Parameters())


def _case(
    variant: Variant, kernel: Kernel, inputs: dict[str, Any], native: bool
) -> tuple[dict[str, Any], Callable[[], object]]:
    """Compile one way; a row with the compile time, and the call to time (buffers and run, without packing)."""
    start = time.thread_time()
    compiled.compile_program(kernel.program, native)
    row = {
        "kernel": variant.kernel,
        "types": variant.types,
        "instructions": ("host" if kernel.program.isa in host_caps() else "host lacks") if native else "portable",
        "target": variant.native if native else variant.portable,
        "compile_s": time.thread_time() - start,
    }
    return row, lambda: numerics.run(kernel.program, inputs, engine="compiled", native=native)


def _least(actions: list[Callable[[], object]], rounds: int) -> list[float]:
    """Least seconds of each action, timed in turn after a round that warms up.

    They are the thread's own, and the least, so that what else the host runs meanwhile counts little.
    """
    times: list[list[float]] = [[] for _ in actions]
    for number in range(rounds + 1):
        for action, found in zip(actions, times, strict=True):
            start = time.thread_time()
            action()
            if number:
                found.append(time.thread_time() - start)
    return [min(found) for found in times]


def _met(row: dict[str, Any]) -> str:
    """Whether ratio and compile time reach their targets."""
    target, seconds = row.get("target"), row.get("compile_s")
    if seconds is None:
        return ""
    faults = {"ratio": target and row["ratio"] < target, "compile": seconds > COMPILE_TARGET}
    missed = [name for name, fault in faults.items() if fault]
    return f"no: {', '.join(missed)}" if missed else "yes"


def _random(rng: np.random.Generator, size: int, dtype: str) -> NDArray[Any]:
    low, high = {"u8": (0, 256), "s8": (-128, 128)}.get(dtype, (0, 0))
    if high:
        return rng.integers(low, high, (size, size)).astype(np.uint8 if dtype == "u8" else np.int8)
    values: NDArray[Any] = rng.standard_normal((size, size), dtype=np.float32)
    return values.astype(ml_dtypes.bfloat16) if dtype == "bf16" else values
