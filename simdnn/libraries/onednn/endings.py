"""Post-operations behind oneDNN's primitives: whether its kernels take them, and whether their bits are known here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simdnn.kernels.common.postops import COMPARISONS, ELTWISE, written_sum
from simdnn.libraries.model import OperatorCall
from simdnn.libraries.onednn.refusals import sum_missing

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


class Refused(Exception):
    """Why a primitive is refused."""


def by_kernel(call: OperatorCall, shape: Sequence[int], shared: Sequence[str], whole: bool = True) -> bool:
    """Whether its kernels take the post-operations towards `shape`: second operands shared as one of `shared` says.

    A sum has no zero point there, and several of a deconvolution have one scale; slopes of prelu lie as the destination
    does, so that `whole` ones may be taken.
    """
    if call.primitive == "deconvolution" and _sums_differ(call):
        return False
    for name, *given in call.post_ops:
        if name == "sum" and any(given[1:2]):
            return False
        if name == "prelu" and whole and "none" in sharing(given[0], shape):
            continue
        operands = [part for part in given if isinstance(part, tuple)]
        if operands and not set(sharing(operands[0], shape)) & set(shared):
            return False
    return True


def _sums_differ(call: OperatorCall) -> bool:
    return len({float((*given, 1.0)[0]) for name, *given in call.post_ops if name == "sum"}) > 1


def sharing(operand: Sequence[int], shape: Sequence[int]) -> tuple[str, ...]:
    """How a second operand is shared: "scalar", by "channel", along the "last" dimension, "none"; several may be so.

    >>> [sharing(operand, (2, 8, 5, 5)) for operand in ((1, 1, 1, 1), (1, 8, 1, 1), (1, 1, 1, 5), (2, 8, 5, 5))]
    [('scalar',), ('channel',), ('last',), ('none',)]
    >>> sharing((1, 8), (1, 8))
    ('channel', 'last', 'none')
    """
    moves = tuple(i for i, size in enumerate(operand) if size > 1)
    if not moves:
        return ("scalar",)
    holds = {"channel": moves == (1,), "last": moves == (len(shape) - 1,), "none": tuple(operand) == tuple(shape)}
    return tuple(name for name, is_so in holds.items() if is_so)


def refuse_ending(call: OperatorCall, shape: Sequence[int], alike: bool = False) -> None:
    """Raises `Refused` where bits of post-operations are not known; `alike`: whose kernels and reference differ."""
    taken = (*COMPARISONS, "add", "sub", "mul", "div", "max", "min", "select", *_TAKEN[call.primitive])
    for name, *given in call.post_ops:
        if name not in taken:
            raise Refused(f"it takes no {name} behind it")
        if name == "select" and not _chooses(call, shape, given):
            raise Refused("it reads the condition of select at other places")
        if name == "sum":
            _refuse_sum(call, given)
        numbers = [number for number in given if not isinstance(number, tuple)]
        if alike and name not in _ALIKE and not (name == "sum" and _plain_sum(numbers)):
            raise Refused(f"which implementation takes it is not known, and {name} differs")


def _refuse_sum(call: OperatorCall, given: Sequence[Any]) -> None:
    """Raises `Refused` for a zero point or a type that a primitive's sum has not."""
    _, point, held = written_sum(given, call.dst)
    if call.primitive != "deconvolution":
        if point:
            raise Refused("its sum has no zero point")
        if held != call.dst:
            raise Refused(f"its sum is of {call.dst}, as its destination")
    if why := sum_missing(call.types[0], call.dst, held, bool(point)):
        raise Refused(f"it has no {why.removeprefix('a ')}")


def _chooses(call: OperatorCall, shape: Sequence[int], given: Sequence[Sequence[int]]) -> bool:
    """Whether select behind a primitive reads its condition where it lies: one as large as the output, behind most as
    large as the operand, too, and in rows.
    """
    whole = tuple((*call.shapes[0][:2], *call.options["out"]) if "out" in call.options else shape)
    operand, condition = map(tuple, given)
    if condition != whole:
        return False
    if call.primitive in ("eltwise", "reduction"):
        return True
    return call.primitive != "softmax" and operand == whole and call.in_rows


def _plain_sum(numbers: Sequence[float]) -> bool:
    return not numbers or (numbers[0] == 1 and not any(numbers[1:]))
