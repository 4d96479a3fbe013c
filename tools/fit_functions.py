"""Least-squares coefficients of `simdnn/kernels/common/functions.py`, printed with their largest relative error.

    python tools/fit_functions.py

Fits are weighted so that the relative error is level: a few rounds in which each point's weight follows its error
(Lawson's method). A quotient P / Q is fitted as P - f Q, weighted by the Q of the round before.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erf, log1p
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def points(low: float, high: float, count: int = 4000) -> Floats:
    """Chebyshev points."""
    middle, half = (low + high) / 2, (high - low) / 2
    found: Floats = middle + half * np.cos(np.pi * (np.arange(count) + 0.5) / count)
    return found


def fit(f: Floats, x: Floats, p: int, q: int = 0, scale: Floats | None = None) -> tuple[Floats, Floats, float]:
    """Coefficients of P (degree p) and Q (degree q, Q(0) = 1), highest power first, and the largest relative error."""
    scale = np.abs(f) if scale is None else scale
    weight, denominator = np.ones_like(x), np.ones_like(x)
    best: tuple[Any, Any, float] = (np.zeros(0), np.zeros(0), np.inf)
    for _ in range(60):
        columns = [x**k for k in range(p + 1)] + [-f * x**k for k in range(1, q + 1)]
        row = np.sqrt(weight) / (denominator * scale)
        solution = np.linalg.lstsq(np.stack(columns, 1) * row[:, None], f * row, rcond=None)[0]
        above, below = solution[: p + 1][::-1], np.concatenate([[1.0], solution[p + 1 :]])[::-1]
        denominator = np.polyval(below, x)
        error = np.abs(np.polyval(above, x) / denominator - f) / scale
        if error.max() < best[2]:
            best = (above, below, float(error.max()))
        weight *= error / error.mean()
        weight /= weight.mean()
    return best


def exact(function: Callable[[float], float], x: Floats) -> Floats:
    return np.array([function(v) for v in x])


def show(name: str, coefficients: Floats) -> None:
    print(f"{name} = ({', '.join(f'{float(np.float32(c)):.9g}' for c in coefficients)})")


def main() -> None:
    t = points(2**-0.5 - 1, 2**0.5 - 1)
    t = t[np.abs(t) > 1e-3]
    tail = (exact(log1p, t) - t + t * t / 2) / t**3
    above, _, _ = fit(tail, t, 8, scale=np.abs(exact(log1p, t) / t**3))
    show("_LOG1P", above)
    u = points(1e-4, 3.92**2)
    root = np.sqrt(u)
    above, below, error = fit(exact(erf, root) / root, u, 6, 5)
    show("_ERF_P", above)
    show("_ERF_Q", below)
    print("erf:", error)


if __name__ == "__main__":
    main()
