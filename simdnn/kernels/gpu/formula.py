"""Formulas on a GPU's vector pipe: every operand, constant and result in a register of its own while it is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from isa_models.records.frozen import Frozen
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.common.expression import Expression
from simdnn.kernels.common.vocabulary import Load
from simdnn.kernels.gpu.grid import LANES
from simdnn.kernels.gpu.words import Words
from simdnn.program.records import Affine, Memory, Register, Tensor

NO_NAMES: Mapping[int, str] = Frozen({})


class GpuFormula:
    """Steps as instructions; a register is free again when the last step that reads it is done.

    Constants are loaded once a thread, where a GPU would have them as immediates: registers of `lanes` lanes, from the
    tensor `numbers`, after which they are named where it is not the only one.
    """

    def __init__(
        self, expression: Expression, fixed: Sequence[int], words: Words, lanes: int = LANES, numbers: str = "numbers"
    ) -> None:
        self.steps, self.words, self.lanes, self.numbers = expression.steps, words, lanes, numbers
        self.loaded = [i for i in range(len(expression.inputs)) if i not in fixed]
        own = "" if numbers == "numbers" else f"{numbers}_"
        self.number = {i: f"{own}k{i}" for i, step in enumerate(self.steps) if step.op == "constant"}
        last = len(self.steps) - 1
        self.last_use = {a: i for i, step in enumerate(self.steps) for a in step.args} | {last: last + 1}

    def start(self) -> Code:
        splat = self.words.splat_name.format("u32")
        return [
            op(splat, Register(name, "u32", self.lanes), Memory(self.numbers, Affine(n), "u32", 1))
            for n, name in enumerate(self.number.values())
        ]

    def tensors(self) -> list[Tensor]:
        bits = [_bits(self.steps[i].number, self.steps[i].dtype) for i in self.number]
        return [Tensor.constant(self.numbers, "u32", np.array(bits, np.uint32).tobytes())] if bits else []

    def code(self, load: Load, lanes: int, fixed: Mapping[int, str] = NO_NAMES) -> tuple[Code, Register]:
        """The steps for `lanes` lanes; operand i is in the register that `fixed` names, or in `x{i}`."""
        code: Code = [statement for i in self.loaded for statement in load(f"x{i}", i)]
        free, names = list[str](), dict[int, str]()
        kept = {i for i, step in enumerate(self.steps) if step.op in ("input", "constant")}
        for i, step in enumerate(self.steps):
            if step.op == "input":
                names[i] = fixed.get(int(step.number), f"x{int(step.number)}")
                continue
            if step.op == "constant":
                names[i] = self.number[i]
                continue
            sources = [Register(names[a], "f32", lanes) for a in step.args]
            names[i] = free.pop() if free else f"v{i}"
            immediate = {"imm": int(step.number)} if step.op in ("shl", "shr", "sar") else {}
            code += self.words.apply(step.op, Register(names[i], "f32", lanes), *sources, **immediate)
            dead = {a for a in step.args if self.last_use[a] == i and a not in kept}
            free += [names[a] for a in sorted(dead)]
        dtype = "f32" if self.steps[-1].dtype != "s32" else "s32"
        return code, Register(names[len(self.steps) - 1], dtype, lanes)


def _bits(number: float, dtype: str) -> int:
    return int(np.float32(number).view(np.uint32)) if dtype == "f32" else int(number) & 0xFFFFFFFF
