"""The package's own exceptions: each message says the value met, what is allowed, and the nearest thing that works."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_FEW = 40  # names that still fit an error message


class SimdnnError(Exception):
    """Base of every error that simdnn and isa_models raise on purpose."""

    def __str__(self) -> str:  # KeyError below would print the repr of its message
        return str(self.args[0]) if self.args else ""


class InvalidArgument(SimdnnError, ValueError):
    """A value outside what is allowed: shape, type, attribute."""


class Unimplemented(SimdnnError, NotImplementedError):
    """A legal request that no kernel here can do."""


class UnknownTiming(SimdnnError, KeyError):
    """A cost that the machine's table does not hold. Never counted as zero."""


class UnknownName(SimdnnError, KeyError):
    """A machine, instruction, workload or ISA that does not exist."""


class MachineFileError(SimdnnError, ValueError):
    """A machine file that breaks its schema: which key, what was expected."""


class ProgramError(SimdnnError, ValueError):
    """A Program that fails verification; the message names the instruction."""


def unknown_name(kind: str, name: object, known: Iterable[str]) -> UnknownName:
    """An `UnknownName` that names the closest known one, and all of them where they are few.

    >>> print(unknown_name("machine", "zen", ["zen4", "skx"]))
    unknown machine 'zen': did you mean 'zen4'? Known: skx, zen4
    """
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=4, cutoff=0.4)
    hint = f": did you mean {near[0]!r}?" if near else "."
    if len(names) <= _FEW:
        return UnknownName(f"unknown {kind} {name!r}{hint} Known: {', '.join(names)}")
    others = f" Near: {', '.join(near[1:])};" if near[1:] else ""
    return UnknownName(f"unknown {kind} {name!r}{hint}{others} {len(names)} are known (`simdnn list`)")
