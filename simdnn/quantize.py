"""Post-training quantization: scales from weights and from activations seen on calibration data.

Weights are symmetric s8 with a scale for each output channel, or one for all; activations have one scale. Real value =
(stored value - zero point) x scale. (The schemes of R. Krishnamoorthi, "Quantizing deep convolutional networks for
efficient inference", arXiv:1806.08342, sections 2 and 3.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isa_models import InvalidArgument
from isa_models.formats import Format, fmt, name_of
from isa_models.keywords import keywords
from isa_models.readings.arrays import Array
from isa_models.records.alike import Alike
from isa_models.records.display import InNotebooks, shape_and_type
from simdnn.primitives import Attr, Quant, arrays
from simdnn.primitives.attr import MASK_NAMES
from simdnn.primitives.checks import integer, one_of

F32 = NDArray[np.float32]
S8_MAX = 127  # -128 is left out, so that a weight and its negative both fit
U8_MAX = 255
WEIGHTS = ("per_channel", "per_tensor")
ACTIVATIONS = ("asymmetric", "symmetric", "s8")
WEIGHT_TYPES = ("s8", "u8", "s4", "u4")
_TINY = np.finfo(np.float32).tiny  # 2**-126
_SHARED = (1, 3)  # axes of weights that share a scale: rows and columns of a block


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
    """How to store activations like the `values` that were seen; `InvalidArgument` for NaN and infinities."""
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
    """Scales that make `largest` `top`, no less than the least normal number; 1 where all is zero."""
    scales: F32 = np.maximum(largest / np.float32(top), _TINY).astype(np.float32)
    return np.where(largest > 0, scales, np.float32(1))


@dataclass(frozen=True, eq=False)
class CompressedWeights(Alike, InNotebooks):
    """Weights stored as integers: real value = (value - zero point) * scale. What `compress_weights` returns.

    `values` (K, N) s8, u8, s4 or u4 (ml_dtypes.int4, uint4). `scales` f32: (1,) common, (N,) one for each column,
    (K / group, N) by group along K. `zero_points`: as many, of the values' type; None where symmetric. It unpacks:
    `values, scales = …` where symmetric, else `values, scales, zero_points = …`.
    """

    values: Array
    scales: F32
    zero_points: Array | None = None

    def __iter__(self) -> Iterator[Array]:
        return (part for part in (self.values, self.scales, self.zero_points) if part is not None)

    @property
    def real(self) -> F32:
        """The f32 weights (K, N) that the integers stand for: the difference is exact, its product rounded once."""
        zero = np.zeros(1) if self.zero_points is None else self.zero_points.astype(np.float32)
        found: F32 = (self.values.astype(np.float32) - self._spread(zero)) * self._spread(self.scales)
        return found.astype(np.float32)

    def _spread(self, parameters: Array) -> Array:
        """One for each weight, or what broadcasts to that."""
        return np.repeat(parameters, len(self.values) // len(parameters), 0) if parameters.ndim == 2 else parameters

    @property
    def fields(self) -> dict[str, dict[str, Quant]]:
        """The scales and zero points as fields of an attribute, which a source's join: `source.attr(**weights.fields)`.

        >>> import simdnn
        >>> w = compress_weights(np.ones((128, 16), np.float32), "u4", group=64)
        >>> q = simdnn.quantize_dynamic(np.ones((4, 128), np.float32), "s8", reductions=64, machine="b580")
        >>> r = simdnn.matmul(q.output, w.values, machine="b580", attr=q.attr(**w.fields), dst="f32")
        >>> r.implementation, float(r.output[0, 0].round(3))
        ('gemm:xe2_dpas_precomputed', 128.0)
        """
        found = {}
        for name, values in (("scales", self.scales), ("zero_points", self.zero_points)):
            if values is not None:
                groups = (len(self.values) // len(values), 1) if values.ndim == 2 else None
                found[name] = {"wei": Quant(values, groups=groups)}
        return found

    def attr(self, **fields: Any) -> Attr:
        """The attribute of a product of these weights: `simdnn.Attr(**fields)` with their scales and zero points.

        >>> import simdnn
        >>> w = compress_weights(np.array([[-1], [0], [0.5]], np.float32), "u8")
        >>> attr = w.attr(fpmath="bf16", apply_to_int=True)
        >>> simdnn.matmul(np.eye(3, dtype=np.float32), w.values, machine="zen4", attr=attr).output.round(1).tolist()
        [[-1.0], [0.0], [0.5]]
        """
        for name, own in self.fields.items():
            fields[name] = {**fields.get(name, {}), **own}
        return Attr(**fields)

    def _summary(self) -> dict[str, Any]:
        points = "none" if self.zero_points is None else shape_and_type(self.zero_points)
        held = {name: shape_and_type(getattr(self, name)) for name in ("values", "scales")}
        return {**held, "zero_points": points}

    def __repr__(self) -> str:
        rows, columns = self.values.shape
        kind = "symmetric" if self.zero_points is None else "with zero points"
        return f"CompressedWeights({name_of(self.values.dtype)} {rows}x{columns}, scales {self.scales.shape}, {kind})"


@keywords
def compress_weights(
    weights: Array, dtype: str, group: int | str = "per_oc", *, symmetric: bool | None = None
) -> CompressedWeights:
    """Floating weights (K, N) as s8, u8, s4 or u4, with scales and, where not symmetric, zero points.

    `group`: how many k of a column share a scale, a divisor of K; "per_oc" is a scale for each column, "common" one in
    all. `symmetric=None`: signed types are, unsigned ones are not. With H the greatest value of the type (L the least)
    and x the weights that share a scale:

    - symmetric: scale = largest magnitude of x / H; value = rint(x / scale) from -H to H. Unsigned types have no values
      below 0.
    - otherwise: low = min(x, 0), high = max(x, 0), scale = (high - low) / (H - L); zero point = L - rint(low / scale);
      value = rint(x / scale) + zero point. Zero is exact.

    So each weight is met within half a scale. The scale of zeros is 1, and none is below 2**-126. Raises
    `InvalidArgument` for types, shapes and groups that do not fit, for NaN and infinity, and for negative weights where
    symmetric unsigned ones are asked for.

    >>> stored, scales = compress_weights(np.array([[0.5], [-0.7]], np.float32), "s4", group=2)
    >>> stored.astype(int).ravel().tolist(), scales.round(2).tolist()
    ([5, -7], [[0.10000000149011612]])
    >>> stored, scales, zero_points = compress_weights(np.array([[0.5], [-1]], np.float32), "u4")
    >>> stored.astype(int).ravel().tolist(), scales.round(2).tolist(), zero_points.astype(int).tolist()
    ([15, 0], [0.10000000149011612], [10])
    """
    form = fmt(one_of("dtype", dtype, WEIGHT_TYPES))
    if not (symmetric is None or isinstance(symmetric, bool)):
        raise InvalidArgument(f"symmetric={symmetric!r:.60}; True, False or None is needed")
    weights = _checked(weights)
    k, n = weights.shape
    rows, columns, shape = _sharing(group, k, n)
    shared = weights.reshape(k // rows, rows, n // columns, columns)
    if form.signed if symmetric is None else symmetric:
        values, scales, zero_points = *_symmetric(shared, form), None
    else:
        values, scales, zero_points = _asymmetric(shared, form)
        zero_points = zero_points.reshape(shape).astype(form.dtype)
    return CompressedWeights(values.reshape(k, n).astype(form.dtype), scales.reshape(shape), zero_points)


def _checked(weights: Array) -> F32:
    """A matrix of finite f32."""
    found = arrays.type_of("weights", weights, ("f64",))
    if not fmt(found).is_float:
        raise InvalidArgument(f"weights of {found}; floats are compressed: f32, f16, bf16, f64")
    arrays.check_shape("weights", weights, ("K", "N"))
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(weights, np.float32)
    if len(bad := np.argwhere(~np.isfinite(values))):
        i, j = map(int, bad[0])
        raise InvalidArgument(f"weights[{i}, {j}] is {weights[i, j]}; finite f32 values are needed to find a scale")
    return values


def _sharing(group: int | str, k: int, n: int) -> tuple[int, int, tuple[int, ...]]:
    """How many rows and columns share a scale, and the shape of the scales."""
    if isinstance(group, str):
        common = one_of("group", group, MASK_NAMES) == "common"
        return k, n if common else 1, (1,) if common else (n,)
    rows = integer("group", group)
    if k % rows:
        nearest = max(divisor for divisor in range(1, min(rows, k) + 1) if k % divisor == 0)
        raise InvalidArgument(f"group={rows} does not divide K = {k}; {nearest} does")
    return rows, 1, (k // rows, n)


def _symmetric(x: F32, form: Format) -> tuple[Array, F32]:
    """Values and scales of weights (…, rows, …, columns) that share one."""
    if not form.signed and x.min() < 0:
        raise InvalidArgument(
            f"weights down to {x.min():g}, and symmetric {form.name} has no negative values: "
            f"dtype='s{form.bits}', or symmetric=False"
        )
    scales: F32 = _scales(np.abs(x).max(axis=_SHARED, keepdims=True), form.high)
    values: Array = np.clip(np.rint(x / scales), -form.high, form.high).astype(np.int16)
    return values, scales


def _asymmetric(x: F32, form: Format) -> tuple[Array, F32, Array]:
    """Values, scales and zero points; in f64, where the width of f32's range fits."""
    wide = x.astype(np.float64)
    low = np.minimum(wide.min(axis=_SHARED, keepdims=True), 0)
    high = np.maximum(wide.max(axis=_SHARED, keepdims=True), 0)
    steps = (high - low) / (form.high - form.low)
    scales = np.where(steps > 0, np.maximum(steps, _TINY), 1).astype(np.float32)
    scales = np.where(scales < steps, np.nextafter(scales, np.float32(np.inf)), scales)  # so that both ends fit
    zero_points = form.low - np.rint(low / scales).astype(np.int16)
    values = np.clip(np.rint(wide / scales).astype(np.int16) + zero_points, form.low, form.high)
    return values, scales, zero_points


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
