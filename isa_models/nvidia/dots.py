"""PTX dp4a and dp2a: products of bytes added to a 32-bit lane, wrapping (PTX ISA, "Integer Arithmetic: dp4a, dp2a").

The accumulator and result are u32 only where both factors are unsigned. No form saturates.
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
from isa_models.nvidia.platforms import PLATFORMS, WARP
from isa_models.readings.arrays import Array, held

_MANUAL = 'PTX ISA, "Integer Arithmetic Instructions: dp4a, dp2a"'
#: (family, half of b that dp2a takes, whether a is signed, whether b is) -> a form's name
_NAMED: dict[tuple[str, str, bool, bool], str] = {}
CAPS = {WARP * 32: ("sm_61", *PLATFORMS)}


def _words(dtype: str) -> str:
    """The type of the register that bytes, or words, of a type are packed in."""
    return "s32" if fmt(dtype).signed else "u32"


def _define(family: str, half: str, a_type: str, b_type: str) -> None:
    """ptx_dp4a (four bytes by four), or dp2a (two words by the "lo" or "hi" two of four bytes)."""
    signed = fmt(a_type).signed or fmt(b_type).signed
    acc = "s32" if signed else "u32"
    count = 2 if half else 4
    name = f"{family}.{half}" if half else family
    name += f".{_words(a_type)}.{_words(b_type)}"
    _NAMED[family, half, fmt(a_type).signed, fmt(b_type).signed] = name
    picked = {"lo": " (bytes 0 and 1 of b)", "hi": " (bytes 2 and 3 of b)"}.get(half, "")
    zeros = ", 0" * (count - 1)
    result = 7 if half == "hi" else 5
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
        rate="f32" if half else "dot",
        warp=WARP,
        family=family,
    )
    def dots(acc: Value, a: Value, b: Value) -> Value:
        if not half:
            return dot(acc, a, b)
        first = 0 if half == "lo" else 2
        x = [v.to("s32") for v in a.split(2)]
        y = [v.to("s32") for v in b.split(4)[first : first + 2]]
        return (acc.view("s32") + x[0] * y[0] + x[1] * y[1]).view(acc.dtype)


for _b in ("s8", "u8"):
    for _a in ("s8", "u8"):
        _define("ptx_dp4a", "", _a, _b)
    for _a in ("s16", "u16"):
        for _half in ("lo", "hi"):
            _define("dp2a", _half, _a, _b)


@dataclass(frozen=True, repr=False)
class Dots(Family):
    """PTX dp4a ("ptx_dp4a": "dp4a" is Intel's) or dp2a; the arrays' types choose the form."""

    def __call__(self, *arrays: Any, lanes: int | None = None, **options: Any) -> Array:
        """(acc, a, b), for dp2a also `half`: "lo" (default) or "hi" bytes of b; elements in the last axis."""
        half = options.pop("half", "lo") if self.name == "dp2a" else ""
        if len(arrays) != 3 or options or half not in ("", "lo", "hi"):
            met = f"{counted(len(arrays), 'operand')}, {options or f'half={half!r}'}"
            raise InvalidArgument(
                f"{self.name} takes acc, a, b (dp2a: half='lo' or 'hi'), and never saturates; met {met}"
            )
        types = [name_of(np.asarray(held(f"{self.name}: an operand", array)).dtype) for array in arrays[1:]]
        if any(fmt(dtype).is_float or dtype == "b1" for dtype in types):
            raise InvalidArgument(f"{self.name}: a and b are integers, met {' and '.join(types)}")
        a_signed, b_signed = (fmt(dtype).signed for dtype in types)
        return GPU_REGISTRY[_NAMED[self.name, half, a_signed, b_signed]](*arrays)


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
