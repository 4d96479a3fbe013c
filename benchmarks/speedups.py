"""Speed-ups over strict f32 that oneDNN 3.13.2 itself showed on a Zen 4, beside what the clock predicts.

    python -m benchmarks.speedups

The measured figures are recorded: one thread, medians of CPU time over four rounds on a shared machine (spread about
10 %, up to 26 % for 1x4096x4096), call overhead of 13 us included; decompression has scales in groups of 128.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

import simdnn
from simdnn import Quant

SHAPES = ((256, 256, 256), (1024, 1024, 1024), (1, 4096, 4096), (16, 4096, 4096), (128, 3072, 768))  # m, n, k
_SCALES = {"wei": Quant(None, groups=(128, 1), dtype="f32")}
_POINTS = {"wei": Quant(None, groups=(128, 1), dtype="s8")}


@dataclass(frozen=True)
class Variant:
    """One row: types, ISA cap, attributes, and the speed-up that was measured for each shape."""

    name: str
    dt: str
    measured: tuple[float, ...]
    isa: str | None = None
    attr: Mapping[str, Any] = field(default_factory=dict)


def _compressed(mode: str, **more: Any) -> dict[str, Any]:
    return {"fpmath": mode, "apply_to_int": True, "scales": _SCALES, **more}


VARIANTS = (
    Variant("bf16", "bf16:bf16:f32", (1.91, 1.95, 2.25, 2.12, 2.04)),
    Variant("u8s8, VNNI", "u8:s8:s32", (3.40, 3.92, 6.05, 4.49, 4.21)),
    Variant("u8s8, avx512_core", "u8:s8:s32", (1.94, 2.05, 6.96, 2.80, 2.11), "avx512_core"),
    Variant("u8s8, avx2", "u8:s8:s32", (1.59, 1.97, 1.02, 1.14, 1.90), "avx2"),
    Variant("f32 x s8", "f32:s8:f32", (0.92, 1.03, 1.09, 1.04, 1.00), None, _compressed("strict")),
    Variant("bf16 x s8", "bf16:s8:f32", (1.84, 1.88, 1.24, 1.58, 1.94), None, _compressed("bf16")),
    Variant("bf16 x s8, zero points", "bf16:s8:f32", (1.79, 1.93, 1.02, 1.40, 1.89), None,
            _compressed("bf16", zero_points=_POINTS)),
    Variant("bf16 x s4", "bf16:s4:f32", (1.80, 1.98, 1.04, 1.40, 1.93), None, _compressed("bf16")),
)  # fmt: skip


Attributes = Mapping[str, Any]


def cycles(shape: tuple[int, int, int], dt: str, isa: str | None = None, attr: Attributes | None = None) -> float:
    """Predicted, with the kernel that oneDNN takes."""
    m, n, k = shape
    attributes = simdnn.Attr(**(attr or {}))
    options: dict[str, Any] = {"machine": "zen4", "isa": isa, "attr": attributes, "dispatch": "onednn"}
    return simdnn.estimate("matmul", m=m, n=n, k=k, dt=dt, **options).cycles


def table() -> pd.DataFrame:
    """A row a variant: for each shape "predicted / measured"."""
    strict = {shape: cycles(shape, "f32") for shape in SHAPES}
    rows = []
    for variant in VARIANTS:
        row = {"variant": variant.name}
        for shape, measured in zip(SHAPES, variant.measured, strict=True):
            predicted = strict[shape] / cycles(shape, variant.dt, variant.isa, variant.attr)
            row["x".join(map(str, shape))] = f"{predicted:.2f} / {measured:.2f}"
        rows.append(row)
    return pd.DataFrame(rows)


if __name__ == "__main__":
    print("speed-up over f32 of m x n x k, predicted / measured")
    print(table().to_string(index=False))
