"""Post-operations: the kinds that there are, and one of them as an `Epilogue` has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from simdnn.kernels.common.params import Param

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
#: bits as integers in the order of floats end in NaN of either sign, this number of words at each end: moved by it,
#: those of one end wrap to the other, and all lie above infinity's word, or beneath minus infinity's; bounds are one
#: beside it
NAN_WORDS = 0x7FFFFF
ABOVE, BENEATH = 0x7F800001 - NAN_WORDS, -0x7F800002 + NAN_WORDS
#: of two operands, the second one f32; `prelu` multiplies what is below zero
BINARY = ("add", "sub", "mul", "div", "max", "min", *COMPARISONS, "prelu")


@dataclass(frozen=True)
class PostOp:
    """One operation behind a product's sums, as far as it shapes a program; its values are `Parameters.operands`.

    `numbers` counts those that it reads: alpha and beta, of `sum` the scale and the zero point. `second` says where the
    second operand of one of two changes, in rows and columns of the destination. Of `sum`, `scaled` means that what the
    destination held is multiplied by another number than 1, and `stored` is the type in which it is read, "" the
    destination's; of a second operand it is the user's, "" f32. `power` says what is computed for a pow
    (`simdnn.kernels.common.activations`). `along` says of a second operand that is read as one as large as the output
    in which dimensions it changes; empty where in all. `other` is a sum whose scale or zero point is another one than
    the first sum's.

    >>> by_channel = PostOp("mul", second=Param("dst", 0, 1, "f32"))
    >>> [op.size(16, 64) for op in (RELU, PostOp("relu", 1), PostOp("sum", 2, zero_point=True), by_channel)]
    [0, 1, 2, 16]
    """

    kind: str
    numbers: int = 0
    second: Param | None = None
    scaled: bool = False
    zero_point: bool = False
    stored: str = ""
    power: str = ""
    along: tuple[bool, ...] = ()
    other: bool = False

    @property
    def per_channel(self) -> bool:
        """Whether the second operand has a value for each output channel."""
        return self.second is not None and not self.second.rows and self.second.columns == 1

    @property
    def per_output(self) -> bool:
        """Whether the second operand is as large as the output."""
        return self.second is not None and self.second.rows == 1

    def size(self, channels: int, outputs: int) -> int:
        """How many f32 values it reads."""
        if self.second is None:
            return self.numbers
        return outputs if self.per_output else channels if self.per_channel else 1


RELU = PostOp("relu")


def written_sum(given: Sequence[Any], dst: str) -> tuple[Any, Any, str]:
    """Scale, zero point and type of a sum that is written with some of these: 1, 0 and the destination's elsewhere.

    >>> written_sum((), "u8"), written_sum((0.5, 3), "u8"), written_sum((0.5, 3, "s8"), "u8")
    ((1.0, 0, 'u8'), (0.5, 3, 'u8'), (0.5, 3, 's8'))
    """
    usual: Sequence[Any] = (1.0, 0, "")
    said = [*given, *usual[len(given) :]]
    return said[0], said[1], said[2] or dst


def sums_late(ops: Sequence[PostOp]) -> bool:
    """Whether `sum` stands behind another post-operation."""
    return any(op.kind == "sum" for op in ops[1:])


def sums_differ(ops: Sequence[PostOp]) -> bool:
    """Whether what the destination held is added more than once, times several scales or with several zero points."""
    return any(op.other for op in ops)


def sums_first(ops: Sequence[PostOp]) -> bool:
    """Whether every sum is the first post-operation, and adds what the destination held as it is.

    >>> add, scaled = PostOp("sum", 1), PostOp("sum", 1, scaled=True)
    >>> sums_first([add, RELU]), sums_first([scaled]), sums_first([RELU, add]), sums_first([])
    (True, False, False, True)
    """
    return not sums_late(ops) and not any(op.scaled or op.zero_point for op in ops)


def previous_type(ops: Sequence[PostOp], dst: str) -> str:
    """The type in which `sum` reads what the destination held; "" where nothing does.

    >>> previous_type([RELU, PostOp("sum", 1, stored="u8")], "s8"), previous_type([PostOp("sum", 1)], "f32")
    ('u8', 'f32')
    >>> previous_type([RELU], "f32")
    ''
    """
    return next((op.stored or dst for op in ops if op.kind == "sum"), "")
