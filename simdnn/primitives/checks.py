"""Small checks of scalar arguments that every primitive shares. Each error says what was met and what is allowed."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from os import PathLike
from typing import Any, ParamSpec, TypeVar

from isa_models import GpuMachine, InvalidArgument, Machine, cpu_machine
from isa_models import machine as any_machine
from isa_models.aliases import meant_by
from isa_models.errors import counted, shortly, unknown_name, what_is_allowed
from isa_models.isa import caps, implied
from isa_models.keywords import Callee, WrongCall, answering, unknown_keyword
from simdnn.progress import unseen, working

P = ParamSpec("P")
R = TypeVar("R")
ATTR_FIELDS = (
    "fpmath",
    "apply_to_int",
    "scales",
    "zero_points",
    "precomputed_reductions",
    "exact_int8",
    "post_ops",
    "float_model",
    "check",
    "zero_point_strategy",
    "acc_mode",
)
_OF_ESTIMATES = ("dt", "bias", "machine", "isa", "attr", "threads", "dispatch")  # whatever the primitive
_SAME = (
    "a size of i stays ceil(i / stride) with max(0, (ceil(i / stride) - 1) * stride + dilation * (k - 1) + 1 - i) "
    "in all"
)
_EVEN = "(top, left, bottom, right); with strides 1 and odd k that is padding=dilation * (k - 1) // 2"
#: words of other packages for paddings, and how to have the same here
_PADDINGS = {
    "valid": "padding=0",
    "same": f"{_SAME}, the larger half at the end, as {_EVEN}",
    "same_upper": f"{_SAME}, the larger half at the end, as {_EVEN}",
    "same_lower": f"{_SAME}, the larger half in front, as {_EVEN}",
}
_MAX_SIZE = 1 << 40  # far above any tensor that fits a memory; keeps products of sizes printable


def one_of(what: str, value: object, allowed: Iterable[str], like: Iterable[str] = ()) -> str:
    """`value` where it is one of the allowed words; `like`: more names that may be meant by another.

    >>> one_of("engine", "auto", ["auto", "compiled"])
    'auto'
    >>> one_of("engine", "compile", ["auto", "compiled"])
    Traceback (most recent call last):
    isa_models.errors.InvalidArgument: engine 'compile': did you mean 'compiled'? Allowed: auto, compiled
    """
    names = list(allowed)
    if isinstance(value, str) and value in names:
        return value
    raise InvalidArgument(f"{what} {shortly(value)}{what_is_allowed(value, names, like)}")


def integer(what: str, value: Any, least: int = 1, hint: str = "") -> int:
    """`value` as an int of at least `least`; bools, floats and absurd sizes are refused."""
    hint = f" ({hint})" if hint else ""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{what}={value!r}; an integer of at least {least} is needed{hint}") from None
    if isinstance(value, bool) or not least <= number <= _MAX_SIZE:
        shown = repr(value) if abs(number) <= 1 << 64 else "a number of more than 64 bits"
        limit = f"up to {_MAX_SIZE}" if number > _MAX_SIZE else f"of at least {least}"
        raise InvalidArgument(f"{what}={shown}; an integer {limit} is needed{hint}")
    return number


def flag(what: str, value: Any) -> bool:
    """`value` where it is True or False."""
    if not isinstance(value, bool):
        raise InvalidArgument(f"{what}={shortly(value)}; True or False is needed")
    return value


def keywords(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which answers a call that it does not take with what it does: a keyword with the one meant, or with
    the field of `Attr` that it is, and a call without a machine with what to name. Where it takes long, it tells that
    it is at work.
    """
    call = _PrimitiveCallee(function)

    @functools.wraps(function)
    def working_on(*args: P.args, **named: P.kwargs) -> R:
        if named.get("progress") is not None or unseen():
            return function(*args, **named)
        with working(function.__name__):
            return function(*args, **named)

    return answering(call, working_on)


class _PrimitiveCallee(Callee):
    def unknown(self, name: str) -> InvalidArgument:
        return unknown_argument(self.name, name, self.names)

    def without(self, missing: Sequence[str]) -> Exception:
        if "machine" in missing:
            return WrongCall(f"{self.name} needs a machine, e.g. machine='zen4'; `simdnn list machines` names all")
        return super().without(missing)


def unknown_argument(function: str, name: str, names: Iterable[str]) -> InvalidArgument:
    """The error for a keyword that a function does not have; where it takes an `Attr`, it tells what belongs there."""
    names = list(names)
    if "attr" in names:
        for field in (name, *meant_by(name)):
            if field in ATTR_FIELDS:
                return InvalidArgument(f"{function} has no argument {name!r}: write attr=simdnn.Attr({field}=…)")
    return unknown_keyword(function, name, names)


def keyword(function: str, name: str, names: Iterable[str]) -> str:
    """`name` where the estimate of a function has it; the error of `unknown_argument` where it has not."""
    names = list(names)
    if name not in names:
        raise unknown_argument(function, name, dict.fromkeys([*names, *_OF_ESTIMATES]))
    return name


def pair(what: str, value: Any, least: int = 1, hint: str = "") -> tuple[int, int]:
    """One integer for both axes, or two: (vertical, horizontal).

    >>> pair("strides", 2), pair("strides", (1, 2))
    ((2, 2), (1, 2))
    """
    if not isinstance(value, (tuple, list)):
        number = integer(what, value, least, hint)
        return number, number
    if len(value) != 2:
        raise InvalidArgument(
            f"{what}={value!r} has {counted(len(value), 'entry', 'entries')}; one integer or (vertical, horizontal)"
        )
    return integer(what, value[0], least, hint), integer(what, value[1], least, hint)


def single(what: str, value: Any, least: int = 1, hint: str = "") -> int:
    """One integer for the only axis, alone or as the only entry.

    >>> single("strides", 2), single("strides", (2,))
    (2, 2)
    """
    entries = value if isinstance(value, (tuple, list)) else (value,)
    if len(entries) != 1:
        raise InvalidArgument(
            f"{what}={value!r} has {counted(len(entries), 'entry', 'entries')}; one integer is needed for one dimension"
        )
    return integer(what, entries[0], least, hint)


def sides(value: Any) -> tuple[int, int]:
    """Padding on the left and on the right, from one integer or both.

    >>> sides(1), sides((1,)), sides((0, 1))
    ((1, 1), (1, 1), (0, 1))
    """
    if isinstance(value, (tuple, list)) and len(value) == 2:
        return integer("padding", value[0], 0), integer("padding", value[1], 0)
    both = single("padding", value, 0)
    return both, both


def three(what: str, value: Any, least: int = 1, hint: str = "") -> tuple[int, int, int]:
    """One integer for all three axes, or three: (depth, vertical, horizontal).

    >>> three("strides", 2), three("strides", (1, 2, 2))
    ((2, 2, 2), (1, 2, 2))
    """
    entries = value if isinstance(value, (tuple, list)) else (value,) * 3
    if len(entries) != 3:
        raise InvalidArgument(
            f"{what}={value!r} has {counted(len(entries), 'entry', 'entries')}; one integer or 3 of them"
        )
    depth, vertical, horizontal = (integer(what, v, least, hint) for v in entries)
    return depth, vertical, horizontal


def around(value: Any) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Padding ahead of three axes and behind them, from one integer, three of them, or six.

    >>> around(1), around((1, 0, 0, 2, 0, 0))
    (((1, 1, 1), (1, 1, 1)), ((1, 0, 0), (2, 0, 0)))
    """
    if isinstance(value, (tuple, list)) and len(value) == 6:
        return three("padding", value[:3], 0), three("padding", value[3:], 0)
    both = three("padding", value, 0)
    return both, both


def padding_of(value: Any) -> tuple[int, int, int, int]:
    """(top, left, bottom, right) from one integer, (vertical, horizontal), or all four.

    >>> padding_of(1), padding_of((1, 0)), padding_of((0, 0, 1, 1))
    ((1, 1, 1, 1), (1, 0, 1, 0), (0, 0, 1, 1))
    """
    if isinstance(value, str) and value.lower() in _PADDINGS:
        raise InvalidArgument(f"padding={value!r}; integers are needed: {_PADDINGS[value.lower()]}")
    if isinstance(value, (tuple, list)) and len(value) == 4:
        top, left, bottom, right = (integer("padding", v, 0) for v in value)
        return top, left, bottom, right
    if isinstance(value, (tuple, list)) and len(value) != 2:
        raise InvalidArgument(
            f"padding={value!r} has {counted(len(value), 'entry', 'entries')}; one integer, (vertical, horizontal) "
            "or (top, left, bottom, right)"
        )
    vertical, horizontal = pair("padding", value, 0)
    return vertical, horizontal, vertical, horizontal


def gpu_of(machine: object) -> GpuMachine | None:
    """The GPU that a machine, a name or a path stands for; None for a CPU, and for what cannot be a machine."""
    if isinstance(machine, (str, PathLike)):
        machine = any_machine(machine)  # type: ignore[arg-type]  # a path-like of text
    return machine if isinstance(machine, GpuMachine) else None


def vector_cap(caps: Collection[str]) -> str:
    """The cap of the widest registers among some caps that kernels without products are written for; "" below AVX2."""
    return next((cap for cap in ("avx512_core", "avx2") if cap in caps), "")


def target_of(name: object, isa: object) -> tuple[Machine, frozenset[str]]:
    """The machine, and the ISA caps that kernels may use on it: all of its own, or those that `isa` implies.

    Raises `UnknownName` for a machine or ISA that doesn't exist, `InvalidArgument` for an ISA that the machine lacks.
    """
    target = cpu_machine(name)  # type: ignore[arg-type]  # which refuses what is no machine
    if isa is None:
        return target, frozenset().union(*(implied(cap) for cap in target.isa))
    if not isinstance(isa, str) or isa not in caps():
        raise unknown_name("ISA", isa, caps())
    if not target.supports(isa):
        raise InvalidArgument(f"machine {target.name!r} lacks {isa}; it has {', '.join(target.isa)}")
    return target, implied(isa)
