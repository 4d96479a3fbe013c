"""Post-operations by name: what a caller may write, and how an `Epilogue` names them.

An epilogue's name is that of the operation, for one of two operands with how finely the second is given ("mul:per_oc").
Numbers (alpha, beta; scale, zero point) are run-time operands.
"""

from __future__ import annotations

#: one of a single operand: the numbers that it takes by default; None where they must be given
ELTWISE: dict[str, tuple[float | None, ...]] = {
    "relu": (0.0,),
    "abs": (),
    "square": (),
    "sqrt": (),
    "linear": (1.0, 0.0),
    "clip": (None, None),
    "clip_v2": (None, None),
    "hardsigmoid": (1 / 6, 0.5),
    "hardswish": (1 / 6, 0.5),
    "elu": (1.0,),
    "exp": (),
    "gelu_erf": (),
    "gelu_tanh": (),
    "log": (),
    "logistic": (),
    "mish": (),
    "pow": (1.0, None),
    "round": (),
    "soft_relu": (1.0,),
    "swish": (1.0,),
    "tanh": (),
}
#: of two operands that are compared, whose result is 1 or 0
COMPARISONS = ("ge", "gt", "le", "lt", "eq", "ne")
#: of two operands, the second one f32; `prelu` multiplies what is below zero
BINARY = ("add", "sub", "mul", "div", "max", "min", *COMPARISONS, "prelu")
GRAINS = ("common", "per_oc", "full")


def operand_size(name: str, channels: int, outputs: int) -> int:
    """How many f32 values a post-operation of an epilogue reads.

    >>> [operand_size(name, 16, 64) for name in ("relu", "relu:alpha", "clip", "sum", "sum:zero:u8", "mul:per_oc")]
    [0, 1, 2, 1, 2, 16]
    """
    kind, _, rest = name.partition(":")
    if kind in BINARY:
        return {"common": 1, "per_oc": channels, "full": outputs}[rest]
    if kind == "sum":
        return 2 if "zero" in rest else 1
    return 0 if name == "relu" else len(ELTWISE[kind])


def sums_late(names: tuple[str, ...]) -> bool:
    """Whether `sum` stands behind another post-operation."""
    return any(name.split(":")[0] == "sum" for name in names[1:])


def sums_first(names: tuple[str, ...]) -> bool:
    """Whether every sum is the first post-operation, and adds what the destination held as it is.

    >>> sums_first(("sum", "relu")), sums_first(("sum:scaled",)), sums_first(("relu", "sum")), sums_first(())
    (True, False, False, True)
    """
    sums = [name.split(":") for name in names if name.split(":")[0] == "sum"]
    return not sums_late(names) and all(len(one) == 1 or not one[1] for one in sums)


def as_large_as_outputs(names: tuple[str, ...]) -> bool:
    """Whether a second operand is as large as the output, but for a slope's."""
    return any(name.endswith(":full") and not name.startswith("prelu") for name in names)


def previous_type(names: tuple[str, ...], dst: str) -> str:
    """The type in which `sum` reads what the destination held; "" where nothing does.

    >>> previous_type(("relu", "sum:zero:u8"), "s8"), previous_type(("sum",), "f32"), previous_type(("relu",), "f32")
    ('u8', 'f32', '')
    """
    found = [name.split(":") for name in names if name.split(":")[0] == "sum"]
    return (found[0][2] if len(found[0]) > 2 else dst) if found else ""
