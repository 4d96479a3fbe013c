"""DP4A: four products of bytes added to a 32-bit lane.

Source: intel-graphics-compiler, documentation/visa/instructions/DP4A.md; for `.sat` also intel/pisa, dp4a .dsat: the
sum of the products cannot overflow, so only the addition of the accumulator saturates, once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from isa_models.algebra import Value
from isa_models.errors import InvalidArgument, counted
from isa_models.formats import fmt, name_of
from isa_models.gpu.dots import dot
from isa_models.instruction import GPU_REGISTRY, Family, define, example
from isa_models.intel_gpu.platforms import PLATFORMS
from isa_models.readings.arrays import Array, held

_MANUAL = "IGC documentation/visa/instructions/DP4A.md"
CAPS = {256: tuple(PLATFORMS), 512: tuple(PLATFORMS)}


def saturated(acc: Value, a: Value, b: Value) -> Value:
    """acc (s32 or u32) plus four neighbouring products, the exact sum clamped into the accumulator's type."""
    total = acc.to("s64")
    for x, y in zip(a.split(4), b.split(4), strict=True):
        total = total + (x.to("s32") * y.to("s32")).to("s64")
    return total.saturate(acc.dtype)


def _define(a_type: str, b_type: str, acc_type: str, saturating: bool) -> None:
    name = f"dp4a.{a_type}.{b_type}.{acc_type}" + (".sat" if saturating else "")
    text = f"{a_type} by {b_type} products; the {acc_type} sum {'saturates at the end' if saturating else 'wraps'}."
    top = fmt(acc_type).high
    result = f"[{top if saturating else fmt(acc_type).low}]"
    doc = example(name, text, f"[{top}], [1, 0, 0, 0], [1, 0, 0, 0]", result)

    @define(
        name,
        f"{acc_type} <- {acc_type}, {a_type}*4, {b_type}*4",
        CAPS,
        _MANUAL,
        GPU_REGISTRY,
        doc=doc,
        accumulates=True,
        saturates=saturating,
        native=False,
        rate="dot",
        family="dp4a",
    )
    def dp4a(acc: Value, a: Value, b: Value) -> Value:
        return saturated(acc, a, b) if saturating else dot(acc, a, b)


for _a in ("s8", "u8"):
    for _b in ("s8", "u8"):
        for _acc in ("s32", "u32"):
            _define(_a, _b, _acc, False)
            _define(_a, _b, _acc, True)


@dataclass(frozen=True, repr=False)
class Dp4a(Family):
    """DP4A in all its forms; the arrays' types choose."""

    def __call__(self, *arrays: Any, lanes: int | None = None, **options: Any) -> Array:
        """(acc, a, b, *, saturate=False) -> acc's type and shape.

        `acc` s32 or u32 (…, lanes); `a` and `b` s8 or u8, four bytes a lane: (…, 4 * lanes) or (…, lanes, 4).
        """
        if len(arrays) != 3:
            raise InvalidArgument(f"{self.name} takes acc, a and b; met {counted(len(arrays), 'operand')}")
        if unknown := set(options) - {"saturate"}:
            raise InvalidArgument(f"{self.name}: unknown option {sorted(unknown)[0]!r}; allowed: saturate")
        if any(array is None for array in arrays):
            raise InvalidArgument(f"{self.name}: None among the operands; the accumulator is never left out: zeros")
        acc, a, b = (np.asarray(held(f"{self.name}: an operand", array)) for array in arrays)
        suffix = ".sat" if options.get("saturate") else ""
        name = f"{self.name}.{_of(self, a, 'a', ('s8', 'u8'))}.{_of(self, b, 'b', ('s8', 'u8'))}"
        name += f".{_of(self, acc, 'acc', ('s32', 'u32'))}{suffix}"
        return GPU_REGISTRY[name](acc, _bytes(acc, a), _bytes(acc, b))


def _of(family: Family, array: Array, what: str, allowed: tuple[str, ...]) -> str:
    met = name_of(array.dtype)
    if met not in allowed:
        raise InvalidArgument(f"{family.name}: {what} of {met}; allowed: {', '.join(allowed)}")
    return met


def _bytes(acc: Array, array: Array) -> Array:
    """Four bytes a lane in one axis, where they came in an axis of their own."""
    return array.reshape(*acc.shape[:-1], -1) if array.shape == (*acc.shape, 4) else array


def _documented() -> None:
    """acc plus four products of bytes a lane, signs by the arrays' types; wraps, or saturates once.

    >>> import numpy as np
    >>> from isa_models import instruction
    >>> a, b = np.full(4, 255, np.uint8), np.full(4, -128, np.int8)
    >>> instruction("dp4a")(np.array([-(2**31)], np.int32), a, b, saturate=True).tolist()
    [-2147483648]
    """


GPU_REGISTRY["dp4a"] = Dp4a("dp4a", (), "s32", _documented, _MANUAL, CAPS, native=False, accumulates=True)
