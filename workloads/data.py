"""Seeded tensors for a layer: what trained networks roughly hold, in the data type asked for.

Sources are activations behind a relu: half of them zero, the others half-normal with deviation 1. Weights are normal
with He's deviation sqrt(2 / fan-in) (K. He et al., ICCV 2015), so results stay near the size of the sources.
One (layer, seed) gives one set of f32 numbers; other types are rounded or quantized from it, so results compare.
Numbers come from NumPy's PCG64 stream: the same on every machine for one NumPy version.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any
from zlib import crc32

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from isa_models.errors import InvalidArgument, unknown_name
from workloads.layer import ConvLayer, Layer, MatmulLayer

MAX_BYTES = 4 << 30  # of one layer's tensors; the largest layer of the shipped tables in f32 takes half of it
_CHUNK = 1 << 22  # weights drawn at once: bounds the f32 copy beside the quantized tensor to 16 MiB

_FLOATS: dict[str, Any] = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
_INTEGERS: dict[str, tuple[Any, int]] = {"s8": (np.int8, 127), "u8": (np.uint8, 255)}  # type, quantized maximum
SRC_TYPES = (*_FLOATS, *_INTEGERS)
WEI_TYPES = (*_FLOATS, "s8")


@dataclass(frozen=True, eq=False)
class LayerData:
    """The tensors of one layer; real value = stored value x scale (zero points are 0).

    src: NCHW or (M, K). weights: OIHW, goihw where there are groups, or (K, N).
    src_scale: f32, one for the tensor. wei_scale: f32 (outputs,), one for each output channel in order. Both are 1
    for floating-point types.
    """

    src: NDArray[Any]
    weights: NDArray[Any]
    src_scale: np.float32
    wei_scale: NDArray[np.float32]


def conv_tensors(layer: ConvLayer, dt: str, seed: int = 0) -> LayerData:
    """Source (1, ic, ih, iw) and weights of a convolution in the types of `dt`, as "u8:s8:s32" or "f32".

    Integer sources take the range 0 to their maximum (u8: 255, s8: 127); s8 weights are symmetric, with a scale for
    each output channel. Raises `InvalidArgument` for a negative seed and above `MAX_BYTES`, `UnknownName` for a type.
    """
    return _tensors(layer, dt, seed, outputs=layer.oc)


def matmul_tensors(layer: MatmulLayer, dt: str, seed: int = 0) -> LayerData:
    """Source (M, K) and weights (K, N) of one product of the layer's batch; types, scales, errors as `conv_tensors`.

    >>> matmul_tensors(MatmulLayer("fc", m=2, n=3, k=8), "u8:s8:s32").src.max()
    np.uint8(255)
    """
    return _tensors(layer, dt, seed, outputs=layer.n)


def tensors(layer: Layer, dt: str, seed: int = 0) -> LayerData:
    """`conv_tensors` or `matmul_tensors`, by the kind of layer."""
    return conv_tensors(layer, dt, seed) if isinstance(layer, ConvLayer) else matmul_tensors(layer, dt, seed)


def _tensors(layer: Layer, dt: str, seed: int, outputs: int) -> LayerData:
    src_dt, wei_dt = _types(dt)
    if not isinstance(seed, int) or seed < 0:
        raise InvalidArgument(f"seed={seed!r}; an integer of at least 0 is needed")
    needed = 4 * prod(layer.src_shape) + _numpy_type(wei_dt).itemsize * prod(layer.weights_shape)
    if needed > MAX_BYTES:
        raise InvalidArgument(
            f"layer {layer.name!r} needs {needed} bytes for source {layer.src_shape} and weights "
            f"{layer.weights_shape}; at most {MAX_BYTES} are allowed"
        )
    src, src_scale = _source(_Normal(layer, seed, 0, prod(layer.src_shape)), layer.src_shape, src_dt)
    weights, wei_scale = _weights(_Normal(layer, seed, 1, prod(layer.weights_shape)), layer, outputs, wei_dt)
    return LayerData(src, weights, src_scale, wei_scale)


def _types(dt: str) -> tuple[str, str]:
    """Source and weights type of "src:weights:dst", "src:weights" or one type for both."""
    parts = dt.split(":")
    if len(parts) > 3:
        raise InvalidArgument(f"dt={dt!r}; a triplet such as 'u8:s8:s32' or one type such as 'f32' is needed")
    src_dt, wei_dt = (parts[0], parts[0]) if len(parts) == 1 else (parts[0], parts[1])
    for name, known, what in ((src_dt, SRC_TYPES, "source type"), (wei_dt, WEI_TYPES, "weights type")):
        if name not in known:
            raise unknown_name(what, name, known)
    return src_dt, wei_dt


def _numpy_type(name: str) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(_FLOATS[name] if name in _FLOATS else _INTEGERS[name][0])
    return dtype


class _Normal:
    """Standard normal f32 numbers, one after the other: an own stream for each tensor of each layer."""

    def __init__(self, layer: Layer, seed: int, tensor: int, count: int) -> None:
        self.stream = seed, crc32(layer.name.encode()), tensor
        self.kept = _numbers(*self.stream, count) if count <= _CHUNK else None
        self.generator = _generator(*self.stream)
        self.drawn = 0

    def draw(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """The next ones, as a new array."""
        if self.kept is None:
            return self.generator.standard_normal(shape, dtype=np.float32)
        self.drawn += prod(shape)
        return self.kept[self.drawn - prod(shape) : self.drawn].reshape(shape).copy()


def _generator(*stream: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(list(stream)))


@functools.lru_cache(2)  # source and weights of a layer, which modes ask for one after the other
def _numbers(seed: int, layer: int, tensor: int, count: int) -> NDArray[np.float32]:
    return _generator(seed, layer, tensor).standard_normal(count, dtype=np.float32)


def _source(numbers: _Normal, shape: tuple[int, ...], dt: str) -> tuple[NDArray[Any], np.float32]:
    values = np.maximum(numbers.draw(shape), np.float32(0))
    if dt in _FLOATS:
        return values.astype(_FLOATS[dt], copy=False), np.float32(1)
    dtype, largest = _INTEGERS[dt]
    scale = np.float32(values.max() / largest or 1)  # all values zero: any scale holds
    return np.rint(values / scale).astype(dtype), scale


def _weights(numbers: _Normal, layer: Layer, outputs: int, dt: str) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Weights in the layer's shape, and the scale of each output."""
    weights = np.empty(layer.weights_shape, _numpy_type(dt))
    by_output = weights.T if isinstance(layer, MatmulLayer) else weights.reshape(outputs, -1)  # views
    fan_in = by_output.shape[1]
    scales = np.ones(outputs, np.float32)
    for rows in _chunks(outputs, fan_in):
        values = numbers.draw((rows.stop - rows.start, fan_in))
        values *= np.float32((2 / fan_in) ** 0.5)
        if dt not in _FLOATS:
            scales[rows] = np.abs(values).max(axis=1) / np.float32(_INTEGERS[dt][1])
            values = np.rint(values / scales[rows, None])
        by_output[rows] = values
    return weights, scales


def _chunks(outputs: int, fan_in: int) -> Iterator[slice]:
    """Whole outputs at a time, at most `_CHUNK` values (or one output)."""
    step = max(1, _CHUNK // fan_in)
    for start in range(0, outputs, step):
        yield slice(start, min(start + step, outputs))
