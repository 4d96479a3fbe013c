"""A Program run in the reading that bounds errors: what stands beside each element of its outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array, ArrayValue
from isa_models.readings.bounds import BoundedValue
from isa_models.readings.shades import FIELDS, HELD, beside_exact, regrouped
from simdnn.numerics import reference
from simdnn.numerics.buffers import buffers_of
from simdnn.program.check import verify
from simdnn.program.records import Memory, Program


def bounded(program: Program, inputs: Mapping[str, Any], shades: Mapping[str, tuple[Array, str]]) -> dict[str, Array]:
    """For each output what stands beside its elements, (FIELDS, elements) as `isa_models.readings.bounds` names them.

    `shades`: the same of inputs that are not exactly what the user gave, with the type of the numbers in them.
    """
    verify(program)
    run = _Bounded(program, buffers_of(program, inputs), shades)
    with np.errstate(all="ignore"):
        run.whole("instructions, each with its error bound")
        return {t.name: run.output(t.name) for t in program.tensors if t.kind == "output"}


class _Bounded(reference.Interpreter):
    """The readable engine, with a shade beside each tensor that holds more than exact integers."""

    reading: type[ArrayValue] = BoundedValue

    def __init__(self, program: Program, buffers: dict[str, Array], shades: Mapping[str, tuple[Array, str]]) -> None:
        super().__init__(program, buffers)
        self.shades = {name: shade for name, (shade, _) in shades.items()}
        self.meant = {name: dtype for name, (_, dtype) in shades.items()}
        for tensor in program.tensors:  # bits of floats may be rounded by other means than arithmetic
            if tensor.kind == "input" and fmt(tensor.dtype).is_float and tensor.name not in shades:
                self.shades[tensor.name] = beside_exact(buffers[tensor.name])
                self.meant[tensor.name] = tensor.dtype

    def output(self, name: str) -> Array:
        """The bounds beside each element of a tensor."""
        tensor = self.program.tensor[name]
        shade = self.shades.get(name)
        value = BoundedValue(self.buffers[name], tensor.dtype, shade, self.meant.get(name, ""))
        return value.settled()[:, 0]

    def load(self, memory: Memory, lanes: int, variables: reference.Variables) -> ArrayValue:
        found = super().load(memory, lanes, variables)
        if memory.tensor not in self.shades:
            return found
        assert isinstance(found, BoundedValue)
        shade = self.shades[memory.tensor][:, self._places(memory, variables)]
        bits = fmt(self.program.tensor[memory.tensor].dtype).bits * self.buffers[memory.tensor].size
        wanted = found.lanes * 8 * self.shades[memory.tensor].shape[-1] // bits
        if wanted > shade.shape[-1]:
            rest = np.zeros((*shade.shape[:-1], wanted - shade.shape[-1]))
            rest[HELD] = np.nan
            shade = np.concatenate([shade, rest], axis=-1)
        return BoundedValue(found.array, found.dtype, shade, self.meant[memory.tensor])

    def store(self, memory: Memory, value: ArrayValue, variables: reference.Variables) -> None:
        super().store(memory, value, variables)
        assert isinstance(value, BoundedValue)
        name = memory.tensor
        if value.shade is None and name not in self.shades:
            return
        bits = fmt(self.program.tensor[name].dtype).bits
        if name not in self.shades:
            self.shades[name] = np.zeros((FIELDS, self.buffers[name].size))
            self.shades[name][HELD] = np.nan
        own = value.lanes * value.format.bits
        columns = own // bits if value.shade is None else value.shade.shape[-1]
        finest = max(columns * bits // own, self.shades[name].shape[-1] // self.buffers[name].size, 1)
        self.shades[name] = regrouped(self.shades[name], self.buffers[name].size * finest)
        shade = value.beside() if value.shade is None else value.shade
        places = self._places(memory, variables)
        shade = regrouped(np.broadcast_to(shade, (FIELDS, len(value.array), shade.shape[-1])), own // bits * finest)
        self.shades[name][:, places] = shade[..., : places.shape[-1]]
        if value.shade is not None:
            self.meant[name] = value.meant
        self.meant.setdefault(name, self.program.tensor[name].dtype)

    def _places(self, memory: Memory, variables: reference.Variables) -> Array:
        """Columns of the tensor's shade that the operand touches."""
        elements = self.elements(memory, variables)
        parts = self.shades[memory.tensor].shape[-1] // self.buffers[memory.tensor].size
        spread = elements[..., None] * parts + np.arange(parts)
        found: Array = spread.reshape(len(elements), -1)
        return found
