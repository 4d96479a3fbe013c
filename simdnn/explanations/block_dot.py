"""A dot product of blocks that share scales, explained: codes, what they stand for, scales, sums, and roundings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, runtime_checkable

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.explanations.steps import ExplainedStep, Explanation, text_of

_FRACTION = 64  # an mxint8 stands for 64ths


@runtime_checkable
class Dotted(Protocol):
    """Blocks of a source, which have a dot product with blocks of weights."""

    def explain_dot(self, weights: Any, at: tuple[int, ...] = ()) -> Explanation: ...


@dataclass(frozen=True)
class DotSide:
    """One operand: K codes of a type, the scale of each, f32, how many share one, and the tensor's scale, if any."""

    dtype: str
    codes: Array
    scales: Array
    group: int
    tensor_scale: np.float32 | None = None

    @property
    def values(self) -> Array:
        """The f32 numbers that are multiplied: code times scale, rounded once."""
        plain = self.codes.astype(np.float32) / np.float32(1 if fmt(self.dtype).is_float else _FRACTION)
        with np.errstate(all="ignore"):
            return np.asarray(plain * self.scales, np.float32)

    def text(self, k: int) -> str:
        """Element k: its code, its number, its scale."""
        form, code = fmt(self.dtype), self.codes[k]
        bits = int(code.view(np.uint8)) & (1 << form.bits) - 1
        number = float(code) if form.is_float else float(code) / _FRACTION
        return f"{bits:#04x} ({number:g}) * {self.scales[k]:g}"


def explain_dot(title: str, source: DotSide, weights: DotSide) -> Explanation:
    """One element of a product: a chain of multiply-adds in f32, each rounded once, k ascending, as kernels here have
    it that multiply in f32; the scales of whole tensors multiply the sum at the end.

    `exact` is the sum of the very codes and scales, without a rounding.
    """
    rows = list(_steps(source, weights))
    notes = [row.note for row in rows]
    remark = f"of {len(source.codes)} products {notes.count('rounds')} sums are rounded"
    left = next((row for row in rows if row.note), None)
    about = ("f32 sums of element * scale by element * scale, k ascending, one rounding each",)
    return Explanation(title, about, np.float32(rows[-1].value), rows[-1].exact, tuple(rows), left, (remark,))


def _steps(source: DotSide, weights: DotSide) -> Iterator[ExplainedStep]:
    total, exact, block = np.float32(0), Fraction(0), min(source.group, weights.group)
    a, w = source.values, weights.values
    for k in range(len(a)):
        if not np.isfinite([a[k], w[k], total]).all():
            total, text = _special(total, a[k], w[k]), f"{source.text(k)} x {weights.text(k)}"
            yield ExplainedStep(f"k={k}", "fma", f"{text}; sum {_text(total)}", float(total), None)
            continue
        asked = Fraction(float(total)) + Fraction(float(a[k])) * Fraction(float(w[k]))
        exact += _exact(source, k) * _exact(weights, k)
        total = _rounded(asked)
        lost = "" if not np.isfinite(total) or Fraction(float(total)) == asked else "rounds"
        lost = lost if np.isfinite(total) else "overflows"
        text = f"{source.text(k)} x {weights.text(k)} = {float(a[k]) * float(w[k]):.9g}; sum {_text(total)}"
        yield ExplainedStep(f"k={k}", "fma", text, float(total), float(exact), lost)
        if (k + 1) % block == 0:
            text = f"sum of k = 0 to {k} = {_text(total)}"
            yield ExplainedStep("", "block", text, float(total), float(exact))
    for name, side in (("src", source), ("wei", weights)):
        if side.tensor_scale is not None:
            with np.errstate(all="ignore"):
                asked_sum, total = float(total) * float(side.tensor_scale), np.float32(total * side.tensor_scale)
            exact *= Fraction(float(side.tensor_scale))
            text = f"times the tensor scale {_text(side.tensor_scale)} of {name} = {_text(total)}"
            yield ExplainedStep("", "scale", text, float(total), float(exact), "" if asked_sum == total else "rounds")


def _exact(side: DotSide, k: int) -> Fraction:
    """Element k times its scale, without a rounding."""
    whole = 1 if fmt(side.dtype).is_float else _FRACTION
    return Fraction(float(side.codes[k])) / whole * Fraction(float(side.scales[k]))


def _rounded(number: Fraction) -> np.float32:
    """A number to f32, nearest even, in one step."""
    with np.errstate(all="ignore"):
        near = np.float32(float(number))  # two steps, at most one unit off
        candidates = [near, np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))]
    if not np.isfinite(near):
        return near
    finite = [c for c in candidates if np.isfinite(c)]
    return min(finite, key=lambda c: (abs(Fraction(float(c)) - number), int(c.view(np.uint32)) & 1))


def _special(total: np.float32, a: np.float32, w: np.float32) -> np.float32:
    with np.errstate(all="ignore"):
        return np.float32(total + a * w)


def _text(number: np.float32) -> str:
    return text_of(float(number), "f32")
