"""Values: engines that run a Program."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from isa_models import InvalidArgument
from isa_models.arrays import Array, on_a_line, to_a_line
from isa_models.formats import fmt
from simdnn.numerics import compiled, reference
from simdnn.program import Program

ENGINES = ("auto", "compiled", "reference")


def run(
    program: Program, inputs: Mapping[str, Array], *, engine: str = "auto", threads: int = 1, native: bool = True
) -> dict[str, Array]:
    """Run a verified program: arrays for its inputs (any shape, the tensors' sizes) to flat arrays of its outputs.

    All tensors begin on a cache line; inputs that do not are copied.
    """
    if engine not in ENGINES:
        raise InvalidArgument(f"engine {engine!r}: one of {', '.join(ENGINES)}")
    buffers: dict[str, Array] = {}
    for tensor in program.tensors:
        dtype = fmt(tensor.dtype).dtype
        if tensor.kind == "constant":
            buffers[tensor.name] = to_a_line(np.frombuffer(tensor.data, dtype))
        elif tensor.kind == "input":
            array = to_a_line(inputs[tensor.name]).reshape(-1)
            if array.dtype != dtype or array.size != tensor.size:
                met, wanted = f"{array.size} of {array.dtype}", f"{tensor.size} of {dtype}"
                raise InvalidArgument(f"{program.name}: input {tensor.name} is {met}, not {wanted}")
            buffers[tensor.name] = array
        else:
            buffers[tensor.name] = on_a_line(tensor.size, dtype)
    if engine == "reference":
        reference.execute(program, buffers)
    else:
        compiled.execute(program, buffers, threads, native)
    return {t.name: buffers[t.name] for t in program.tensors if t.kind == "output"}
