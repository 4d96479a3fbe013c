"""Remedies against saturation, and what they cost: each remedy run on the data given, in cycles and in accuracy."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np

from isa_models import InvalidArgument, Machine
from isa_models.readings.arrays import Array
from simdnn import quantize
from simdnn.exactness import measures
from simdnn.exactness.safety import ranges
from simdnn.explanations.departures import HALVED, SATURATED
from simdnn.late import frames, pd
from simdnn.primitives import Attr, arrays, convolution, matmul
from simdnn.primitives.checks import keywords, one_of

_SEVEN_BITS = 63  # magnitude of symmetric 7-bit weights
Variant = tuple[str, Array, Array, bool]  # name, s8 weights, scale of each channel, exact


@keywords
def remedies(
    primitive: str,
    *,
    weights: Array,
    src: Array,
    machine: str | PathLike[str] | Machine,
    isa: str | None = None,
    dispatch: str = "fastest",
    **shape: Any,
) -> pd.DataFrame:
    """The remedies that users know, each with its price, on a layer's `src` (u8 or s8, as stored).

    `weights` are s8, or f32 that are quantized here (symmetric). A row each: "fast" (as it is: f32 weights with one
    scale), "per-channel scales" (of f32 weights), "7-bit weights" (half the range), "7-bit where unsafe" (in the
    channels that `ranges` does not prove safe for the data's range), "exact path". Columns: remedy, implementation,
    cycles, price (cycles over those of "fast"), safe_share (of channels), saturated_share and halved_share (of
    outputs, with a saturated pair and with a halved weight: `Result.departures`), max_abs_error, relative_l2
    and sqnr_db against the same source with the weights as given. `shape`: strides, padding, dilation, groups of a
    convolution. Errors as in `ranges` and the primitive.

    >>> src, weights = np.full((4, 64), 255, np.uint8), np.full((64, 16), 127, np.int8)
    >>> remedies("matmul", weights=weights, src=src, machine="skx")[["remedy", "saturated_share"]].values.tolist()
    [['fast', 1.0], ['7-bit weights', 0.0], ['7-bit where unsafe', 0.0], ['exact path', 0.0]]
    """
    one_of("primitive", primitive, ("matmul", "convolution"))
    if arrays.type_of("src", src) not in ("u8", "s8"):
        raise InvalidArgument(f"src of {src.dtype}; a source as stored, uint8 or int8, is needed")
    if arrays.type_of("weights", weights) not in ("s8", "f32"):
        raise InvalidArgument(f"weights of {weights.dtype}; int8, or float32 to be quantized, is needed")
    where: dict[str, Any] = {"machine": machine, "isa": isa, "dispatch": dispatch, **shape}
    call, axis = (matmul, 1) if primitive == "matmul" else (convolution, 0)
    wanted = call(src.astype(np.float32), weights.astype(np.float32), **where, dst="f32").output

    def safe(stored: Array) -> Array:
        found: Array = ranges(primitive, weights=stored, calibration=src, **where)["safe"].to_numpy()
        return found

    rows = []
    for name, stored, scale, exact in _variants(weights, axis, safe):
        attr = Attr(exact_int8=exact, scales={"wei": scale.astype(np.float32)})
        result = call(src, stored, **where, dst="f32", attr=attr)
        size = result.output.size
        rows.append(
            {
                "remedy": name,
                "implementation": result.implementation,
                "cycles": result.cycles,
                "safe_share": 1.0 if exact else float(safe(stored).mean()),
                "saturated_share": result.departed.outputs(*SATURATED) / size,
                "halved_share": result.departed.outputs(HALVED) / size,
                **measures.errors(result.output, wanted),
            }
        )
    frame = pd.DataFrame(rows)
    frame.insert(3, "price", frame["cycles"] / frame["cycles"].iloc[0])
    return frames.shown(frame)


def _variants(weights: Array, axis: int, safe: Any) -> list[Variant]:
    """The weights of each remedy."""
    channels = weights.shape[axis]
    ones = np.ones(channels, np.float32)
    found: list[Variant] = []
    if arrays.type_of("weights", weights) == "s8":
        best, scale = weights, ones
        found.append(("fast", weights, ones, False))
    else:
        if arrays.type_of("weights", weights) != "f32":
            raise InvalidArgument(f"weights of {weights.dtype}; int8 or float32 are needed")
        common = ones * quantize.weight_scales(weights.reshape(1, -1), 0)
        found.append(("fast", quantize.quantize_weights(weights, common, axis), common, False))
        scale = quantize.weight_scales(weights, axis)
        best = quantize.quantize_weights(weights, scale, axis)
        found.append(("per-channel scales", best, scale, False))
    shape = [-1 if i == axis else 1 for i in range(weights.ndim)]
    ratio = np.float32(quantize.S8_MAX / _SEVEN_BITS)
    halves = np.clip(np.rint(best / ratio), -_SEVEN_BITS - 1, _SEVEN_BITS).astype(np.int8)
    fine = safe(best)
    found.append(("7-bit weights", halves, scale * ratio, False))
    mixed = np.where(fine.reshape(shape), best, halves)
    found.append(("7-bit where unsafe", mixed, np.where(fine, scale, scale * ratio), False))
    return [*found, ("exact path", best, scale, True)]
