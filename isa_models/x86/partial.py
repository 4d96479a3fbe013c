"""x86 moves between memory and a part of an xmm register."""

from __future__ import annotations

from typing import Any

from isa_models.algebra import Value
from isa_models.instruction import define, example
from isa_models.x86.widths import Widths

_XMM: Widths = {128: ("avx2",)}
_ELEMENT: dict[str, Any] = {"moves": True, "native": False, "partial": True, "memory": "element", "registers": False}


@define("vmovd", "u32 <- u32", _XMM, "Intel SDM Vol. 2B, MOVD/MOVQ", **_ELEMENT)
def vmovd(a: Value) -> Value:
    """Move a doubleword: loads clear the lanes above it, stores take the lowest lane.

    >>> from isa_models import instruction
    >>> instruction("vmovd")([1, 0, 0, 0]).tolist()
    [1, 0, 0, 0]
    """
    return a


@define("vmovq", "u64 <- u64", _XMM, "Intel SDM Vol. 2B, MOVQ", **_ELEMENT)
def vmovq(a: Value) -> Value:
    """Move a quadword: loads clear the lane above it, stores take the lowest lane.

    >>> from isa_models import instruction
    >>> instruction("vmovq")([1, 0]).tolist()
    [1, 0]
    """
    return a


@define("vmovss", "f32 <- f32", _XMM, "Intel SDM Vol. 2B, MOVSS", **_ELEMENT)
def vmovss(a: Value) -> Value:
    """Move a float: loads clear the lanes above it, stores take the lowest lane.

    >>> from isa_models import instruction
    >>> instruction("vmovss")([1, 0, 0, 0]).tolist()
    [1.0, 0.0, 0.0, 0.0]
    """
    return a


def _insert(name: str, dtype: str, lanes: int) -> None:
    @define(
        name,
        f"{dtype} <- {dtype}, {dtype}*0",
        _XMM,
        "Intel SDM Vol. 2B, PINSRB/PINSRD/PINSRQ and PINSRW",
        native=False,
        whole=True,
        memory="element",
        registers=False,
        doc=example(
            name,
            "Replace one lane.",
            f"{list(range(lanes))}, [99], imm={lanes - 1}",
            str([*range(lanes - 1), 99]),
        ),
    )
    def insert(a: Value, b: Value, imm: int) -> Value:
        lane = imm % a.lanes
        extended = a.concat(b.permute([0] * a.lanes))
        return extended.permute([a.lanes if i == lane else i for i in range(a.lanes)])


for _name, _dtype, _lanes in (
    ("vpinsrb", "u8", 16),
    ("vpinsrw", "u16", 8),
    ("vpinsrd", "u32", 4),
    ("vpinsrq", "u64", 2),
):
    _insert(_name, _dtype, _lanes)
