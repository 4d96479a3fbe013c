"""Values: engines that run a Program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from isa_models import InvalidArgument
from isa_models.formats import fmt
from isa_models.memory import Bytes, empty, zeros
from isa_models.readings.arrays import Array, to_a_line, unmasked
from simdnn.numerics import compiled, reference
from simdnn.numerics.covered import written_whole
from simdnn.program.check import verify
from simdnn.program.records import Program, Tensor

ENGINES = ("auto", "compiled", "reference")
MOST_THREADS = 1024


def run(
    program: Program, inputs: Mapping[str, Any], *, engine: str = "auto", threads: int = 1, native: bool = True
) -> dict[str, Array]:
    """Run a program: arrays for its inputs (any shape, the tensors' sizes) to flat new arrays of its outputs.

    A program not proved yet is proved first (`simdnn.program.check`). All tensors begin on a cache line; inputs that
    do not are copied. Raises `ProgramError` for a program that is unsound, `InvalidArgument` for an input that is
    missing, masked, or of another type or size than its tensor.
    """
    verify(program)
    if engine not in ENGINES:
        raise InvalidArgument(f"engine {engine!r}: one of {', '.join(ENGINES)}")
    if type(threads) is not int or not 1 <= threads <= MOST_THREADS:
        raise InvalidArgument(f"threads={threads!r}; an integer from 1 to {MOST_THREADS} is needed")
    buffers = buffers_of(program, inputs, written_whole)
    if engine == "reference":
        reference.execute(program, buffers)
    else:
        compiled.execute(program, buffers, threads, native)
    return {t.name: buffers[t.name] for t in program.tensors if t.kind == "output"}


def _never(program: Program, tensor: Tensor) -> bool:
    return False


def buffers_of(
    program: Program, inputs: Mapping[str, Any], written: Callable[[Program, Tensor], bool] = _never
) -> dict[str, Array]:
    """A flat array for each tensor as a run finds it: inputs, constants, zeros; each begins on a cache line.

    `written`: whether a tensor may hold anything before the run, which writes all of it.
    """
    buffers: dict[str, Array] = {}
    for tensor in program.tensors:
        dtype = fmt(tensor.dtype).dtype
        if tensor.kind == "constant":
            buffers[tensor.name] = to_a_line(np.frombuffer(tensor.data, dtype))
        elif tensor.kind == "input":
            buffers[tensor.name] = _input(program, tensor, inputs, dtype)
        else:
            buffers[tensor.name] = _room(program, tensor, dtype, empty if written(program, tensor) else zeros)
    return buffers


def _input(program: Program, tensor: Tensor, inputs: Mapping[str, Any], dtype: np.dtype[Any]) -> Array:
    """The array that was given for a tensor, as a plain flat one."""
    name = tensor.name
    if name not in inputs:
        raise InvalidArgument(f"{program.name}: no input {name}; given: {', '.join(map(str, inputs)) or 'none'}")
    array = np.asarray(unmasked(name, inputs[name]))
    if array.dtype != dtype or array.size != tensor.size:
        met, wanted = f"{array.size} of {array.dtype}", f"{tensor.size} of {dtype}"
        raise InvalidArgument(f"{program.name}: input {name} is {met}, not {wanted}")
    return to_a_line(array).reshape(-1)


def _room(program: Program, tensor: Tensor, dtype: np.dtype[Any], make: Callable[[int], Bytes]) -> Array:
    try:
        return make(tensor.size * dtype.itemsize).view(dtype)
    except MemoryError:
        what = f"{program.name}: {tensor.kind} {tensor.name}"
        raise InvalidArgument(f"{what}: no memory for {tensor.nbytes} bytes") from None
