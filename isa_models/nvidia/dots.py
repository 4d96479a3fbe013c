"""PTX dp4a and dp2a: products of bytes added to a 32-bit lane, wrapping (PTX ISA, "Integer Arithmetic: dp4a, dp2a").

The accumulator and result are u32 only where both factors are unsigned. No form saturates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from isa_models.algebra import Value
from isa_models.errors import InvalidArgument
from isa_models.formats import fmt, name_of
from isa_models.gpu.dots import dot
from isa_models.instruction import GPU_REGISTRY, Family, define, example
from isa_models.nvidia.platforms import PLATFORMS, WARP
from isa_models.readings.arrays import Array, held

_MANUAL = 'PTX ISA, "Integer Arithmetic Instructions: dp4a, dp2a"'
CAPS = {WARP * 32: ("sm_61", *PLATFORMS)}


def _define(kind: str, a_type: str, b_type: str) -> None:
    """`kind`: ptx_dp4a (four bytes by four), dp2a.lo or dp2a.hi (two words by the low or high two of four bytes)."""
    acc = "u32" if a_type[0] == b_type[0] == "u" else "s32"
    count = 4 if kind == "ptx_dp4a" else 2
    name = f"{kind}.{a_type[0]}32.{b_type[0]}32"
    picked = {"dp2a.lo": " (bytes 0 and 1 of b)", "dp2a.hi": " (bytes 2 and 3 of b)"}.get(kind, "")
    zeros = ", 0" * (count - 1)
    result = 7 if kind == "dp2a.hi" else 5
    doc = example(name, f"{count} products{picked}, the sum wraps.", f"[3], [2{zeros}], [1, 0, 2, 0]", f"[{result}]")

    @define(
        name,
        f"{acc} <- {acc}, {a_type}*{count}, {b_type}*4",
        CAPS,
        _MANUAL,
        GPU_REGISTRY,
        doc=doc,
        accumulates=True,
        native=False,
        rate="dot" if count == 4 else "f32",
        warp=WARP,
    )
    def dots(acc: Value, a: Value, b: Value) -> Value:
        if count == 4:
            return dot(acc, a, b)
        first = 0 if kind == "dp2a.lo" else 2
        x = [v.to("s32") for v in a.split(2)]
        y = [v.to("s32") for v in b.split(4)[first : first + 2]]
        return (acc.view("s32") + x[0] * y[0] + x[1] * y[1]).view(acc.dtype)


for _a in ("s", "u"):
    for _b in ("s", "u"):
        _define("ptx_dp4a", f"{_a}8", f"{_b}8")
        for _half in ("lo", "hi"):
            _define(f"dp2a.{_half}", f"{_a}16", f"{_b}8")


@dataclass(frozen=True)
class Dots(Family):
    """PTX dp4a ("ptx_dp4a": "dp4a" is Intel's) or dp2a; the arrays' types choose the form."""

    def __call__(self, *arrays: Any, lanes: int | None = None, **options: Any) -> Array:
        """(acc, a, b), for dp2a also `half`: "lo" (default) or "hi" bytes of b; elements in the last axis."""
        half = options.pop("half", "lo") if self.name == "dp2a" else ""
        if len(arrays) != 3 or options or half not in ("", "lo", "hi"):
            met = f"{len(arrays)} operands, {options or f'half={half!r}'}"
            raise InvalidArgument(
                f"{self.name} takes acc, a, b (dp2a: half='lo' or 'hi'), and never saturates; met {met}"
            )
        types = [name_of(np.asarray(held(f"{self.name}: an operand", array)).dtype) for array in arrays[1:]]
        if any(fmt(dtype).is_float or dtype == "b1" for dtype in types):
            raise InvalidArgument(f"{self.name}: a and b are integers, met {' and '.join(types)}")
        kind = f"{self.name}.{half}" if half else self.name
        return GPU_REGISTRY[f"{kind}.{types[0][0]}32.{types[1][0]}32"](*arrays)


def _dp4a() -> None:
    """PTX dp4a: four products of bytes, the form chosen by the arrays' types; wraps.

    >>> import numpy as np
    >>> from isa_models import instruction
    >>> instruction("ptx_dp4a")(np.array([1], np.int32), np.ones(4, np.int8), np.ones(4, np.uint8)).tolist()
    [5]
    """


def _dp2a() -> None:
    """PTX dp2a: two words by two of four bytes; wraps.

    >>> import numpy as np
    >>> from isa_models import instruction
    >>> words, octets = np.array([2, 1], np.int16), np.array([1, 2, 3, 4], np.int8)
    >>> instruction("dp2a")(np.array([0], np.int32), words, octets, half="hi").tolist()
    [10]
    """


for _name, _documented in (("ptx_dp4a", _dp4a), ("dp2a", _dp2a)):
    GPU_REGISTRY[_name] = Dots(_name, (), "s32", _documented, _MANUAL, CAPS, native=False, accumulates=True)
