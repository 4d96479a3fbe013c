"""Post-operations behind oneDNN's primitives: whether its kernels take them, and whether their bits are known here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simdnn.kernels.common.activations import OWN_POWERS, by_c_library, power_of
from simdnn.kernels.common.postops import COMPARISONS, ELTWISE, PostOp
from simdnn.libraries.model import OperatorCall

BYTES = ("s8", "u8")
WHOLE = (*BYTES, "s32")
#: what its kernels and its reference compute alike; others differ in a zero's sign or a rounding
_ALIKE = ("add", "sub", "mul", "div", "max", "min", "ge", "gt", "le", "lt", "eq", "ne", "square", "sqrt", "clip_v2")
#: kinds that primitives take behind them, beside operations of two operands
_TAKEN: dict[str, tuple[str, ...]] = {
    "eltwise": (),
    **dict.fromkeys(("softmax", "layer_normalization", "group_normalization", "pooling"), tuple(ELTWISE)),
    **dict.fromkeys(("reduction", "resampling", "binary"), (*ELTWISE, "sum")),
    "deconvolution": (*ELTWISE, "sum", "prelu"),
}
_MAY_BE_NAN = ("div", "sqrt", "pow", "log")


class Refused(Exception):
    """Why a primitive is refused."""


def by_kernel(call: OperatorCall, shape: Sequence[int], shared: Sequence[str], whole: bool = True) -> bool:
    """Whether its kernels take the post-operations towards `shape`: second operands shared as one of `shared` says.

    A sum has no zero point there; slopes of prelu lie as the destination does, so that `whole` ones may be taken.
    """
    for name, *given in call.post_ops:
        if name == "sum" and any(given[1:2]):
            return False
        if name == "prelu" and whole and sharing(given[0], shape) == "none":
            continue
        operands = [part for part in given if isinstance(part, tuple)]
        if operands and sharing(operands[0], shape) not in shared:
            return False
    return True


def sharing(operand: Sequence[int], shape: Sequence[int]) -> str:
    """How a second operand is shared: "scalar", "none", by "channel", along the "last" dimension, or another way.

    >>> [sharing(operand, (2, 8, 5, 5)) for operand in ((1, 1, 1, 1), (1, 8, 1, 1), (1, 1, 1, 5), (2, 8, 5, 5))]
    ['scalar', 'channel', 'last', 'none']
    """
    moves = tuple(i for i, size in enumerate(operand) if size > 1)
    if not moves:
        return "scalar"
    if tuple(operand) == tuple(shape):
        return "none"
    return "channel" if moves == (1,) else "last" if moves == (len(shape) - 1,) else "other"


def refuse_ending(call: OperatorCall, shape: Sequence[int], by_reference: bool, alike: bool = False) -> None:
    """Raises `Refused` where bits of post-operations are not known; `alike`: whose kernels and reference differ."""
    taken = (*COMPARISONS, "add", "sub", "mul", "div", "max", "min", "select", *_TAKEN[call.primitive])
    for name, *given in call.post_ops:
        if name not in taken:
            raise Refused(f"it takes no {name} behind it")
        if name == "sum" and any(given[1:2]) and call.primitive != "deconvolution":
            raise Refused("its sum has no zero point")
        numbers = [number for number in given if not isinstance(number, tuple)]
        power = power_of((*numbers, 0.0, 0.0)[1]) if name == "pow" else ""
        if power in OWN_POWERS:
            raise Refused("powers other than -1, 0, 1/2, 1 and 2 call C's powf")
        if alike and name not in _ALIKE and not (name == "sum" and _plain_sum(numbers)):
            raise Refused(f"which implementation takes it is not known, and {name} differs")
        if name in _MAY_BE_NAN and call.dst in WHOLE:
            raise Refused(f"a NaN of {name} on its way through what follows is not followed")
        if by_reference:
            refuse_function(call, (name, *numbers))


def refuse_function(call: OperatorCall, asked: Sequence[Any]) -> None:
    """Raises `Refused` where its reference calls C's library for a function, and the destination may show how that
    rounds.
    """
    name, *numbers = asked
    power = power_of((*numbers, 0.0, 0.0)[1]) if name == "pow" else ""
    c = name in ELTWISE and (by_c_library(PostOp(name, power=power)) or name == "gelu_erf")
    if c and (name == "gelu_erf" or call.dst in ("f32", "s32")):
        raise Refused(f"its reference calls C's library for {name}, which does not round right")


def _plain_sum(numbers: Sequence[float]) -> bool:
    return not numbers or (numbers[0] == 1 and not any(numbers[1:]))
