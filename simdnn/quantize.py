"""Post-training quantization: scales from weights and from activations seen on calibration data.

Weights are symmetric s8 with a scale for each output channel; activations that are never negative are u8 with one
scale. Real value = stored value x scale; there are no zero points. (The scheme that R. Krishnamoorthi, "Quantizing
deep convolutional networks for efficient inference", arXiv:1806.08342, sections 2 and 3, calls symmetric per-channel.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from isa_models import InvalidArgument
from isa_models.formats import fmt

F32 = NDArray[np.float32]
S8_MAX = 127  # -128 is left out, so that a weight and its negative both fit
U8_MAX = 255


def weight_scales(weights: F32, axis: int) -> F32:
    """The scale of each channel along `axis`: its largest magnitude becomes 127 (1 for a channel of zeros).

    >>> weight_scales(np.array([[0.5, -2.54], [0, 0]], np.float32), axis=0)
    array([0.02, 1.  ], dtype=float32)
    """
    others = tuple(i for i in range(weights.ndim) if i != axis)
    largest = np.abs(weights).max(axis=others)
    if not np.isfinite(largest).all():
        raise InvalidArgument("weights hold NaN or infinity; finite values are needed to quantize them")
    scales: F32 = np.where(largest > 0, largest / np.float32(S8_MAX), 1).astype(np.float32)
    return scales


def quantize_weights(weights: F32, scales: F32, axis: int) -> NDArray[np.int8]:
    """s8 weights: each value over its channel's scale, rounded to nearest even."""
    shape = [1] * weights.ndim
    shape[axis] = scales.size
    quantized: NDArray[np.int8] = np.clip(np.rint(weights / scales.reshape(shape)), -S8_MAX, S8_MAX).astype(np.int8)
    return quantized


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
    scales: F32 = np.where(largest > 0, largest / np.float32(form.high), 1).astype(np.float32)
    stored = np.clip(np.rint(groups / scales[:, None]), -form.high, form.high)
    return stored.reshape(k, n).astype(np.int8).astype(form.dtype), scales


def activation_scale(values: NDArray[Any], percentile: float = 100.0) -> np.float32:
    """The scale of u8 activations: the given percentile of `values` becomes 255; what is larger will be clipped.

    100 is the largest value seen. Raises `InvalidArgument` for negative or non-finite values: those have no u8 form.

    >>> float(activation_scale(np.array([0, 1.5, 5.1])))
    0.019999999552965164
    """
    if not 0 < percentile <= 100:
        raise InvalidArgument(f"percentile={percentile!r}; more than 0 and at most 100 is needed")
    if values.size == 0 or not np.isfinite(values).all() or values.min() < 0:
        raise InvalidArgument("u8 activations need calibration values that are finite and not negative")
    top = values.max() if percentile == 100 else np.percentile(values, percentile)
    return np.float32(top / U8_MAX) if top > 0 else np.float32(1)


def quantize_activations(values: NDArray[Any], scale: np.float32) -> NDArray[np.uint8]:
    """u8 activations: values over the scale, rounded to nearest even, clipped to 0..255.

    >>> quantize_activations(np.array([0, 0.25, 1.0]), np.float32(1 / 255)).tolist()
    [0, 64, 255]
    """
    quantized: NDArray[np.uint8] = np.clip(np.rint(values / scale), 0, U8_MAX).astype(np.uint8)
    return quantized
