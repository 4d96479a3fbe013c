"""The array of each tensor as a run of a program finds it; all begin on a cache line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from isa_models import InvalidArgument
from isa_models.formats import fmt
from isa_models.host.memory import zeros
from isa_models.readings.arrays import Array, to_a_line, unmasked
from simdnn.program.records import Program, Tensor

Make = Callable[[int, np.dtype[Any]], Array]  # a number of bytes, as an array of a type


def _zeros(program: Program, tensor: Tensor) -> Make:
    return zeros


def buffers_of(
    program: Program, inputs: Mapping[str, Any], maker: Callable[[Program, Tensor], Make] = _zeros
) -> dict[str, Array]:
    """A flat array for each tensor as a run finds it: inputs, constants, zeros; each begins on a cache line.

    `maker`: the function that makes the array of a tensor that the run writes.
    """
    buffers: dict[str, Array] = {}
    for tensor in program.tensors:
        if tensor.kind == "constant":
            buffers[tensor.name] = constant_of(tensor)
        elif tensor.kind == "input":
            buffers[tensor.name] = input_of(program, tensor, inputs)
        else:
            dtype = fmt(tensor.dtype).dtype
            buffers[tensor.name] = _room(program, tensor, dtype, maker(program, tensor))
    return buffers


def constant_of(tensor: Tensor) -> Array:
    """The numbers of a tensor that is part of its program."""
    return to_a_line(np.frombuffer(tensor.data, fmt(tensor.dtype).dtype))


def input_of(program: Program, tensor: Tensor, inputs: Mapping[str, Any]) -> Array:
    """The array that was given for a tensor, as a plain flat one."""
    name, dtype = tensor.name, fmt(tensor.dtype).dtype
    if name not in inputs:
        raise InvalidArgument(f"{program.name}: no input {name}; given: {', '.join(map(str, inputs)) or 'none'}")
    array = np.asarray(unmasked(name, inputs[name]))
    if array.dtype != dtype or array.size != tensor.size:
        met, wanted = f"{array.size} of {array.dtype}", f"{tensor.size} of {dtype}"
        raise InvalidArgument(f"{program.name}: input {name} is {met}, not {wanted}")
    return to_a_line(array).reshape(-1)


def _room(program: Program, tensor: Tensor, dtype: np.dtype[Any], make: Make) -> Array:
    try:
        return make(tensor.size * dtype.itemsize, dtype)
    except MemoryError:
        what = f"{program.name}: {tensor.kind} {tensor.name}"
        raise InvalidArgument(f"{what}: no memory for {tensor.nbytes} bytes") from None
