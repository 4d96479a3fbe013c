"""Post-training quantization: scales from weights and from activations seen on calibration data.

Weights are symmetric s8 with a scale for each output channel, or one for all; activations have one scale. Real value =
(stored value - zero point) x scale. (The schemes of R. Krishnamoorthi, "Quantizing deep convolutional networks for
efficient inference", arXiv:1806.08342, sections 2 and 3.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isa_models import InvalidArgument
from isa_models.formats import fmt

F32 = NDArray[np.float32]
S8_MAX = 127  # -128 is left out, so that a weight and its negative both fit
U8_MAX = 255
WEIGHTS = ("per_channel", "per_tensor")
ACTIVATIONS = ("asymmetric", "symmetric", "s8")


@dataclass(frozen=True)
class Scheme:
    """How a network is quantized.

    `weights`: a scale per_channel or per_tensor. `activations`: asymmetric, u8 with a zero point (which is 0 for those
    that are never negative), or symmetric, u8 without one and s8 for those that can be negative, or s8 for all.
    `percentile` of the values seen in calibration becomes the greatest stored one (100: min/max).

    >>> str(Scheme(percentile=99.9))
    'per_channel, asymmetric, percentile 99.9'
    """

    weights: str = "per_channel"
    activations: str = "asymmetric"
    percentile: float = 100.0

    def __post_init__(self) -> None:
        for value, allowed in ((self.weights, WEIGHTS), (self.activations, ACTIVATIONS)):
            if value not in allowed:
                raise InvalidArgument(f"scheme {value!r}; allowed: {', '.join(allowed)}")
        _check_percentile(self.percentile)

    def __str__(self) -> str:
        calibrated = "min/max" if self.percentile == 100 else f"percentile {self.percentile:g}"
        return f"{self.weights}, {self.activations}, {calibrated}"


@dataclass(frozen=True)
class Activation:
    """How activations are stored: real value = (stored - zero_point) * scale.

    >>> Activation(np.float32(0.5), 10).stored(np.array([-1.0, 2.0])).tolist()
    [8, 14]
    """

    scale: np.float32
    zero_point: int = 0
    dtype: str = "u8"

    def stored(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values over the scale, rounded to nearest even, plus the zero point, clipped."""
        form = fmt(self.dtype)
        found: NDArray[Any] = np.clip(np.rint(values / self.scale) + self.zero_point, form.low, form.high)
        return found.astype(form.dtype)

    def real(self, stored: NDArray[Any]) -> F32:
        """The numbers that stored values stand for."""
        values: F32 = (stored.astype(np.float32) - np.float32(self.zero_point)) * self.scale
        return values


def activation(values: NDArray[Any], scheme: Scheme) -> Activation:
    """How to store activations of which `values` were seen; `InvalidArgument` for NaN and infinities."""
    if scheme.activations != "s8" and values.size and np.isfinite(values).all() and values.min() >= 0:
        return Activation(activation_scale(values, scheme.percentile))
    if not values.size or not np.isfinite(values).all():
        raise InvalidArgument("activations need calibration values that are finite")
    if scheme.activations != "asymmetric":
        magnitude = np.percentile(np.abs(values), scheme.percentile)
        return Activation(np.float32(magnitude / S8_MAX or 1), dtype="s8")
    low = min(0.0, float(np.percentile(values, 100 - scheme.percentile)))
    high = max(0.0, float(np.percentile(values, scheme.percentile)))
    scale = np.float32((high - low) / U8_MAX)
    return Activation(scale, int(np.clip(np.rint(-low / scale), 0, U8_MAX)))


def weight_scales(weights: F32, axis: int) -> F32:
    """The scale of each channel along `axis`: its largest magnitude becomes 127 (1 for a channel of zeros).

    >>> weight_scales(np.array([[0.5, -2.54], [0, 0]], np.float32), axis=0)
    array([0.02, 1.  ], dtype=float32)
    """
    others = tuple(i for i in range(weights.ndim) if i != axis)
    largest = np.abs(weights).max(axis=others)
    if not np.isfinite(largest).all():
        raise InvalidArgument("weights hold NaN or infinity; finite values are needed to quantize them")
    scales: F32 = _scales(largest, S8_MAX)
    return scales


def quantize_weights(weights: F32, scales: F32, axis: int) -> NDArray[np.int8]:
    """s8 weights: each value over its channel's scale, rounded to nearest even."""
    shape = [1] * weights.ndim
    shape[axis] = scales.size
    quantized: NDArray[np.int8] = np.clip(np.rint(weights / scales.reshape(shape)), -S8_MAX, S8_MAX).astype(np.int8)
    return quantized


def _scales(largest: NDArray[Any], top: int) -> F32:
    """What makes `largest` `top`; 1 where all is zero, or so small that the scale itself would be."""
    scales: F32 = (largest / np.float32(top)).astype(np.float32)
    return np.where(scales > 0, scales, np.float32(1))


def compress_weights(weights: F32, dtype: str, group: int) -> tuple[NDArray[Any], F32]:
    """Weights (K, N) as s8 or s4, and their scales (K / group, N): the largest of a group becomes 127 or 7.

    >>> stored, scales = compress_weights(np.array([[0.5], [-0.7]], np.float32), "s4", group=2)
    >>> stored.astype(int).ravel().tolist(), scales.round(2).tolist()
    ([5, -7], [[0.10000000149011612]])
    """
    k, n = weights.shape
    if k % group:
        raise InvalidArgument(f"group={group} does not divide K = {k}")
    groups = weights.reshape(k // group, group, n)
    form = fmt(dtype)
    largest = np.abs(groups).max(axis=1)
    scales: F32 = _scales(largest, form.high)
    stored = np.clip(np.rint(groups / scales[:, None]), -form.high, form.high)
    return stored.reshape(k, n).astype(np.int8).astype(form.dtype), scales


def activation_scale(values: NDArray[Any], percentile: float = 100.0) -> np.float32:
    """The scale of u8 activations: the given percentile of `values` becomes 255; what is larger will be clipped.

    100 is the largest value seen. Raises `InvalidArgument` for negative or non-finite values: those have no u8 form.

    >>> float(activation_scale(np.array([0, 1.5, 5.1])))
    0.019999999552965164
    """
    _check_percentile(percentile)
    if values.size == 0 or not np.isfinite(values).all() or values.min() < 0:
        raise InvalidArgument("u8 activations need calibration values that are finite and not negative")
    top = values.max() if percentile == 100 else np.percentile(values, percentile)
    return np.float32(top / U8_MAX) if top > 0 else np.float32(1)


def _check_percentile(percentile: float) -> None:
    if not 0 < percentile <= 100:
        raise InvalidArgument(f"percentile={percentile!r}; more than 0 and at most 100 is needed")
