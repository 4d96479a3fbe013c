"""One line for each executed primitive, as a library's log has it (`simdnn.libraries.log_line`).

The time is the one predicted for the machine, `unknown` where none can be; behind the attributes stand the type that
products were formed in and the machine.
"""

from __future__ import annotations

from collections.abc import Sequence

from isa_models import UnknownTiming
from simdnn import verbose
from simdnn.libraries import log_line
from simdnn.primitives.result import Estimate


def line(result: Estimate, words: Sequence[str]) -> str:
    """The line of an executed primitive, whose attribute is told by `words`."""
    more = (f"compute:{result.compute_dtype}", f"machine:{result.machine.name}")
    return log_line(result.problem, result.implementation, [*words, *more], _milliseconds(result))


def _milliseconds(result: Estimate) -> str:
    try:
        return f"{result.seconds * 1e3:.6g}"
    except UnknownTiming:  # a machine without the figure
        return "unknown"


def note(result: Estimate, words: Sequence[str]) -> None:
    """Print the line of a primitive that was executed; `words` tell its attribute."""
    print(line(result, words), file=verbose.stream(), flush=True)
