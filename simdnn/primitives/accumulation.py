"""Accumulation modes: the type that products are added up in, and after how many a partial sum joins a wider one."""

from __future__ import annotations

import re

from isa_models import InvalidArgument
from isa_models.errors import what_is_allowed

TYPES = ("f32", "s32", "f16", "bf16", "s16")  # of sums, asked for by name
ACC_MODES = ("strict", "relaxed", "any", *TYPES)  # as oneDNN has them, but for bf16 and s16
_EXACT = "s32"  # sums of it are exact: where they are cut makes no difference
_INTERVAL = re.compile(r"([a-z0-9]+):([0-9]{1,9})")


def check_acc_mode(value: object) -> str:
    """An accumulation mode, "f16", or with the products of a partial sum behind it, "f16:64"; else `InvalidArgument`.

    >>> check_acc_mode("f16:64")
    'f16:64'
    """
    if isinstance(value, str) and value in ACC_MODES:
        return value
    match = _INTERVAL.fullmatch(value) if isinstance(value, str) else None
    taken = ", ".join(dtype for dtype in TYPES if dtype != _EXACT)
    if match and match[1] in TYPES and int(match[2]):
        if match[1] != _EXACT:
            return str(value)
        raise InvalidArgument(f"acc_mode {value!r}: sums in s32 are exact, however they are cut; 's32' works")
    if match and match[1] in ACC_MODES:
        raise InvalidArgument(
            f"acc_mode {value!r}: a partial sum has a type, {taken}, and one product or more: 'f16:64'"
        )
    said = what_is_allowed(value, list(ACC_MODES))
    raise InvalidArgument(f"acc_mode {value!r:.60}{said}; or a type and the products of a partial sum, 'f16:64'")


def parted(mode: str) -> tuple[str, int]:
    """The mode or the type of sums, and the products of a partial sum: 0 where the kernel decides.

    >>> parted("f16:64"), parted("any")
    (('f16', 64), ('any', 0))
    """
    name, _, every = mode.partition(":")
    return name, int(every or 0)
