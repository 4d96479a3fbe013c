"""Values: engines that run a Program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isa_models import InvalidArgument
from isa_models.readings.arrays import Array
from simdnn.numerics import compiled, reference
from simdnn.numerics.bound import Inputs as Inputs
from simdnn.numerics.bound import unbound
from simdnn.numerics.buffers import buffers_of
from simdnn.numerics.calls import call_of as call_of
from simdnn.numerics.calls import filling_of as filling_of
from simdnn.numerics.covered import maker
from simdnn.numerics.native import Native
from simdnn.program.check import verify
from simdnn.program.records import Program

ENGINES = ("auto", "compiled", "reference")
MOST_THREADS = 1024


def run(
    program: Program, inputs: Mapping[str, Any], *, engine: str = "auto", threads: int = 1, native: Native = True
) -> dict[str, Array]:
    """Run a program: arrays for its inputs (any shape, the tensors' sizes) to flat new arrays of its outputs.

    A program not proved yet is proved first (`simdnn.program.check`). All tensors begin on a cache line: inputs that do
    not are copied, but where a short program reads them once. Raises `ProgramError` for a program that is unsound,
    `InvalidArgument` for an input that is missing, masked, or of another type or size than its tensor.
    """
    verify(program)
    if engine not in ENGINES:
        raise InvalidArgument(f"engine {engine!r}: one of {', '.join(ENGINES)}")
    if type(threads) is not int or not 1 <= threads <= MOST_THREADS:
        raise InvalidArgument(f"threads={threads!r}; an integer from 1 to {MOST_THREADS} is needed")
    if engine != "reference" and threads == 1 and native is True and (left := unbound(program).run(inputs)) is not None:
        return left
    buffers = buffers_of(program, inputs, maker)
    if engine == "reference":
        reference.execute(program, buffers)
    else:
        compiled.execute(program, buffers, threads, native)
    return {t.name: buffers[t.name] for t in program.tensors if t.kind == "output"}
