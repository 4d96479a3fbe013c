"""Whether, and where to, primitives write a line of what they execute (`simdnn.primitives.verbose_line`).

`SIMDNN_VERBOSE=1` asks for it; where that is not set, `ONEDNN_VERBOSE` counts, with the values that make oneDNN print
executions. Lines go to standard output, as oneDNN's do, or with `SIMDNN_VERBOSE_STREAM=stderr` to standard
error, where commands with --json send them by themselves.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from isa_models.errors import InvalidArgument
from isa_models.host.environment import variables

_STREAM = "SIMDNN_VERBOSE_STREAM"  # "stderr": not to standard output
VARIABLES = ("SIMDNN_VERBOSE", "ONEDNN_VERBOSE")  # that ask for lines
_ON, _OFF = ("1", "2", "profile", "profile_exec", "all"), ("", "0", "none")


def wanted() -> bool:
    """Whether the environment asks for lines. Raises `InvalidArgument` for a value of SIMDNN_VERBOSE that says neither.

    Values of ONEDNN_VERBOSE that oneDNN has and that ask for something else are no errors.
    """
    own, theirs = variables(VARIABLES)
    if own is None:
        return theirs is not None and any(part in _ON for part in theirs.lower().split(","))
    if own.strip().lower() in _ON:
        return True
    if own.strip().lower() not in _OFF:
        raise InvalidArgument(f"environment variable SIMDNN_VERBOSE: {own[:40]!r}; allowed: 0, 1")
    return False


def stream() -> TextIO | None:
    """Where lines go: standard error where they are to be apart, else None, which is standard output for `print`."""
    return sys.stderr if os.environ.get(_STREAM) == "stderr" else None


@contextmanager
def apart(wanted: bool) -> Iterator[None]:
    """Within this, lines go to standard error, those of worker processes too: standard output must stay unbroken."""
    before = os.environ.get(_STREAM)
    if wanted:
        os.environ[_STREAM] = "stderr"
    try:
        yield
    finally:
        if wanted and before is None:
            del os.environ[_STREAM]
