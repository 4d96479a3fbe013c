"""Words that a program broadcasts, gathered in one constant tensor while the program is written."""

from __future__ import annotations

import numpy as np

from simdnn.kernels.common.code import Code
from simdnn.kernels.x86.code import Unit, broadcast32
from simdnn.program.records import Affine, Tensor


class Constants:
    """32-bit constants by their bits; `tensors` are asked for when all statements are written."""

    def __init__(self, unit: Unit, name: str = "constants") -> None:
        self.unit, self.name = unit, name
        self.places: dict[int, int] = {}

    def word(self, register: str, bits: int) -> Code:
        """32 bits, in every lane of a register."""
        place = self.places.setdefault(bits & 0xFFFFFFFF, len(self.places))
        return [broadcast32(self.unit.reg(register), self.name, Affine(place))]

    def number(self, register: str, value: float) -> Code:
        """An f32 in every lane."""
        return self.word(register, int(np.float32(value).view(np.uint32)))

    def tensors(self) -> list[Tensor]:
        """The tensor that holds them; none where there is nothing to hold."""
        words = np.array(list(self.places), np.uint32)
        return [Tensor.constant(self.name, "u32", words.tobytes())] if len(words) else []
