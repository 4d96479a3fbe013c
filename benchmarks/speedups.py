"""Speed-ups over strict f32 that oneDNN 3.13.2 itself showed on a Zen 4, beside what the clock predicts.

    python -m benchmarks.speedups

The measured figures are recorded: one thread, medians of CPU time over four rounds on a shared machine (spread about
10 %, up to 26 % for 1x4096x4096). A call took 13 us that are in every time, so they are added to the predicted ones.
Compressed weights have scales in groups of 128 along K, or one for each column. Where it matters whether weights are in
the last cache or in memory, both are predicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

import simdnn
from simdnn import Attr, Quant

CALL = 13e-6  # seconds; a 2x2x2 matmul, which is all call
MATMULS: Mapping[str, Mapping[str, int]] = {
    f"{m}x{n}x{k}": {"m": m, "n": n, "k": k}
    for m, n, k in ((256, 256, 256), (1024, 1024, 1024), (1, 4096, 4096), (16, 4096, 4096), (128, 3072, 768))
}
CONVOLUTIONS: Mapping[str, Mapping[str, int]] = {
    f"{kernel}x{kernel}{f' s{strides}' if strides > 1 else ''}, {ic} to {oc}, {size}x{size}": {
        "ic": ic,
        "ih": size,
        "iw": size,
        "oc": oc,
        "kh": kernel,
        "kw": kernel,
        "strides": strides,
        "padding": kernel // 2,
    }
    for kernel, strides, ic, oc, size in (
        (3, 1, 64, 64, 28),
        (3, 1, 256, 256, 14),
        (1, 1, 256, 256, 14),
        (1, 2, 256, 512, 28),
        (3, 2, 128, 128, 56),
        (7, 2, 3, 64, 224),
    )
}


@dataclass(frozen=True)
class Variant:
    """One row: types, the ISA cap, attributes, and the speed-up that was measured for each shape."""

    name: str
    dt: str
    measured: tuple[float, ...]
    isa: str | None = None
    attr: Mapping[str, Any] = field(default_factory=dict)


def _compressed(mode: str, group: int = 128, points: str = "") -> dict[str, Any]:
    """Attributes of weights with scales, and zero points of a type, in groups along K; 0: one for each column."""

    def along_k(dtype: str) -> Quant:
        return Quant(None, groups=(group, 1), dtype=dtype) if group else Quant(None, mask=2, dtype=dtype)

    zero_points = {"wei": along_k(points)} if points else {}
    return {"fpmath": mode, "apply_to_int": True, "scales": {"wei": along_k("f32")}, "zero_points": zero_points}


_SRC, _BOTH = ({"zero_points": dict.fromkeys(names, Quant(None))} for names in (("src",), ("src", "wei")))
MATMUL_VARIANTS = (
    Variant("f32, math mode bf16", "f32", (0.97, 1.01, 1.04, 1.07, 1.00), attr={"fpmath": "bf16"}),
    Variant("bf16", "bf16:bf16:f32", (1.91, 1.95, 2.25, 2.12, 2.04)),
    Variant("u8s8, VNNI", "u8:s8:s32", (3.40, 3.92, 6.05, 4.49, 4.21)),
    Variant("s8s8, VNNI", "s8:s8:s32", (3.17, 3.96, 6.00, 3.75, 4.10)),
    Variant("u8s8, VNNI, source zero point", "u8:s8:s32", (3.36, 3.96, 6.29, 4.04, 4.04), attr=_SRC),
    Variant("u8s8, VNNI, both zero points", "u8:s8:s32", (3.12, 3.93, 5.19, 4.12, 3.97), attr=_BOTH),
    Variant("u8s8, avx512_core", "u8:s8:s32", (1.94, 2.05, 6.96, 2.80, 2.11), "avx512_core"),
    Variant("s8s8, avx512_core", "s8:s8:s32", (1.88, 2.03, 6.67, 2.83, 2.10), "avx512_core"),
    Variant("s8s8, avx512_core, source z. p.", "s8:s8:s32", (1.87, 2.06, 6.75, 2.58, 2.13), "avx512_core", _SRC),
    Variant("u8s8, avx2", "u8:s8:s32", (1.59, 1.97, 1.02, 1.14, 1.90), "avx2"),
    Variant("s8s8, avx2", "s8:s8:s32", (1.34, 1.79, 0.06, 0.12, 1.23), "avx2"),
    Variant("bf16, avx512_core", "bf16:bf16:f32", (0.34, 0.36, 1.99, 0.39, 0.35), "avx512_core"),
    Variant("f32, avx2", "f32", (0.98, 0.95, 0.97, 0.64, 0.94), "avx2"),
    Variant("f32 x s8", "f32:s8:f32", (0.92, 1.03, 1.09, 1.04, 1.00), attr=_compressed("strict")),
    Variant("bf16 x s8", "bf16:s8:f32", (1.84, 1.88, 1.24, 1.58, 1.94), attr=_compressed("bf16")),
    Variant(
        "bf16 x s8, zero points", "bf16:s8:f32", (1.79, 1.93, 1.02, 1.40, 1.89), attr=_compressed("bf16", points="s8")
    ),
    Variant("bf16 x s8, scales by column", "bf16:s8:f32", (1.84, 1.98, 1.56, 1.77, 1.99), attr=_compressed("bf16", 0)),
    Variant("bf16 x s4", "bf16:s4:f32", (1.80, 1.98, 1.04, 1.40, 1.93), attr=_compressed("bf16")),
    Variant(
        "bf16 x s4, zero points", "bf16:s4:f32", (1.78, 1.82, 0.88, 1.21, 1.87), attr=_compressed("bf16", points="s4")
    ),
    Variant(
        "bf16 x u4, zero points", "bf16:u4:f32", (1.79, 1.93, 0.95, 1.34, 1.87), attr=_compressed("bf16", points="u4")
    ),
)
CONVOLUTION_VARIANTS = (
    Variant("bf16", "bf16:bf16:f32", (1.89, 1.98, 1.87, 1.90, 2.02, 1.46)),
    Variant("u8s8, VNNI", "u8:s8:s32", (3.60, 3.95, 3.32, 3.47, 3.79, 2.67)),
    Variant("s8s8, VNNI", "s8:s8:s32", (3.46, 3.64, 3.18, 3.37, 3.58, 2.55)),
    Variant("u8s8, avx512_core", "u8:s8:s32", (1.94, 1.89, 1.83, 1.88, 2.04, 1.38), "avx512_core"),
    Variant("s8s8, avx512_core", "s8:s8:s32", (1.84, 1.75, 1.74, 1.83, 1.91, 1.25), "avx512_core"),
    Variant("u8s8, avx2", "u8:s8:s32", (1.70, 1.96, 1.85, 1.73, 2.02, 1.42), "avx2"),
    Variant("s8s8, avx2", "s8:s8:s32", (1.59, 1.63, 1.75, 1.82, 1.80, 1.27), "avx2"),
)
TABLES = {
    "matmul": (MATMULS, MATMUL_VARIANTS),
    "convolution": (CONVOLUTIONS, CONVOLUTION_VARIANTS),
}
F32 = Variant("f32", "f32", ())
_CACHES = (False, True)  # weights: warm, cold


def seconds(primitive: str, shape: Mapping[str, int], variant: Variant, cold: bool = False) -> float:
    """Predicted for a call, with the kernel that oneDNN takes."""
    attr = Attr(**variant.attr)
    with simdnn.cold_weights(cold):
        found = simdnn.estimate(
            primitive, dt=variant.dt, machine="zen4", isa=variant.isa, attr=attr, dispatch="onednn", **shape
        )
        return CALL + found.seconds


def table(primitive: str) -> pd.DataFrame:
    """A row a cell: variant, shape, measured, predicted with warm weights and with cold ones; NaN where refused."""
    shapes, variants = TABLES[primitive]
    rows = []
    strict = {(name, cold): seconds(primitive, shape, F32, cold) for name, shape in shapes.items() for cold in _CACHES}
    for variant in variants:
        for (name, shape), measured in zip(shapes.items(), variant.measured, strict=True):
            row: dict[str, Any] = {"variant": variant.name, "shape": name, "measured": measured}
            for cold in _CACHES:
                try:
                    speed_up = strict[name, cold] / seconds(primitive, shape, variant, cold)
                except simdnn.Unimplemented:
                    speed_up = float("nan")
                row["cold" if cold else "predicted"] = speed_up
            rows.append(row)
    return pd.DataFrame(rows)


def _cell(row: Any) -> str:
    if row.predicted != row.predicted:
        return f"refused / {row.measured:.2f}"
    cold = f" ({row.cold:.2f})" if abs(row.cold / row.predicted - 1) > 0.05 else ""
    return f"{row.predicted:.2f}{cold} / {row.measured:.2f}"


def _print(primitive: str) -> None:
    found = table(primitive)
    found["cell"] = [_cell(row) for row in found.itertuples()]
    shapes, names = found["shape"].unique(), found["variant"].unique()
    print(f"{primitive}: speed-up over f32, predicted (with cold weights) / measured")
    print(found.pivot(index="variant", columns="shape", values="cell").loc[names, shapes].to_string())
    errors = 100 * (found["predicted"] / found["measured"] - 1).abs()
    print("\nabsolute error in %:")
    print(errors.groupby(found["shape"]).agg(["median", "max"]).loc[shapes].round(1).to_string(), "\n")


if __name__ == "__main__":
    for name in TABLES:
        _print(name)
