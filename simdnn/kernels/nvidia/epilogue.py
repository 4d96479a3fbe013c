"""The end of blocks of sums on an NVIDIA GPU: scales of the source and the weights, bias, post-operations, narrowing.

Intel's (`simdnn.kernels.intel_gpu.epilogue`) is another one: docs/architecture.md says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.common.epilogue import Epilogue, Parameters
from simdnn.kernels.common.postops import RELU
from simdnn.kernels.common.roles import PARAMETERS
from simdnn.kernels.gpu.cut import Cut
from simdnn.kernels.gpu.postop import BlockPostOps
from simdnn.kernels.gpu.words import NVIDIA
from simdnn.program.records import Affine, Memory, Register, Tensor

#: a step of the destination's type out of f32: instructions, by the types that they leave
_NARROW = {
    "f16": (("cvt.rn.f16.f32", "f16"),),
    "bf16": (("cvt.rn.bf16.f32", "bf16"),),
    "s32": (("cvt.rni.s32.f32", "s32"),),
    "s8": (("cvt.rni.s32.f32", "s32"), ("cvt.sat.s8.s32", "s8")),
    "u8": (("cvt.rni.s32.f32", "s32"), ("cvt.sat.u8.s32", "u8")),
}


@dataclass(frozen=True)
class GivenStep:
    """A parameter in f32, and what the sums have done with it; one number a column, or one in all."""

    name: str
    operation: str
    by_column: bool
    behind: bool = False  # the post-operations


_STEPS = (
    GivenStep("src_scale", "mul", by_column=False),
    GivenStep("wei_scale", "mul", by_column=True),
    GivenStep("bias", "add", by_column=True),
    GivenStep("dst_scale", "mul", by_column=False, behind=True),
    GivenStep("dst_zero_point", "add", by_column=False, behind=True),
)


@dataclass(frozen=True)
class SmEpilogue:
    """Blocks of sums on their way to memory: to f32, scales, bias, post-operations, the destination's scale and zero
    point.
    """

    epilogue: Epilogue
    cut: Cut

    @property
    def given(self) -> tuple[GivenStep, ...]:
        """The steps whose parameters the program reads, in the order of their use."""
        e = self.epilogue
        asked = {
            "src_scale": e.src_scale,
            "wei_scale": e.wei_scale is not None,
            "bias": e.bias,
            "dst_scale": e.dst_scale,
            "dst_zero_point": e.dst_zero_point,
        }
        return tuple(step for step in _STEPS if asked[step.name])

    def code(self, acc: Sequence[Sequence[Register]]) -> Code:
        code: Code = []
        if RELU in self.epilogue.post_ops:
            zero = self.zero(acc[0][0]).as_("u32")
            code.append(op("xor.b32", zero, zero, zero))
        for step in self.given:
            if not step.by_column:
                code.append(op("ld.global.f32.same", self.row(step.name), Memory(step.name, Affine(), "f32", 1)))
        code += self.post_ops.start()
        for j in self.cut.cols:
            for step in self.given:
                if step.by_column:
                    at = self.cut.col(j, "columns") * self.cut.block.n
                    code.append(
                        op("ld.global.f32", self.row(step.name), Memory(step.name, at, "f32", self.cut.block.n))
                    )
            code += self.post_ops.column(j, self.cut.col(j, "columns") * self.cut.block.n)
            for i in self.cut.rows:
                code += self.finish_block(acc[i][j], j, self.cut.place(i, j))
        return code

    def row(self, name: str) -> Register:
        """A parameter for each column of a block."""
        return Register(name, "f32", self.cut.block.n)

    def zero(self, like: Register) -> Register:
        return Register("zero", like.dtype, like.lanes)

    def finish_block(self, acc: Register, j: int, place: Affine) -> Code:
        """One accumulator on its way to the destination."""
        e, b, code = self.epilogue, self.cut.block, Code()
        x = acc
        if acc.dtype == "s32" and e.in_float:
            x = acc.as_("f32")
            code.append(op("cvt.rn.f32.s32", x, acc))
        for behind in (False, True):
            for step in self.given:
                if step.behind == behind:
                    code.append(op(f"{step.operation}.rn.f32.{b.m}x{b.n}.row", x, x, self.row(step.name)))
            for number, post_op in enumerate(e.post_ops if not behind else ()):
                if post_op == RELU:
                    code.append(op("ptx_max.s32" if x.dtype == "s32" else "ptx_max.f32", x, x, self.zero(x)))
                else:
                    column = self.cut.col(j, "columns") * self.cut.block.n
                    code += self.post_ops.code(number, x, j, column, place * acc.lanes)
        result = x
        for name, dtype in _NARROW[e.dst] if e.dst != x.dtype else ():
            source, result = result, Register(f"to_{dtype}", dtype, x.lanes)
            code.append(op(name, result, source))
        return [*code, op(f"st.global.{e.dst}", Memory("dst", place * x.lanes, e.dst, x.lanes), result)]

    def tensors(self) -> list[Tensor]:
        columns = self.cut.batch.products("columns") * self.cut.full_columns
        found = [
            Tensor(step.name, "f32", columns if step.by_column else 1, role=PARAMETERS.get(step.name, ""))
            for step in self.given
        ]
        found += self.post_ops.tensors(columns, self.cut.outputs)
        return [*found, Tensor("dst", self.epilogue.dst, self.cut.outputs, "output")]

    @cached_property
    def post_ops(self) -> BlockPostOps:
        """Post-operations behind the sums, but for relu."""
        e, block = self.epilogue, self.cut.block
        return BlockPostOps(e.post_ops, NVIDIA, block.m, block.n, e.dst)

    def arrays(self, src: Array, weights: Array, p: Parameters) -> dict[str, Array]:
        values = {
            "src_scale": np.array([p.src_scale], np.float32),
            "wei_scale": p.wei_scale,
            "bias": p.bias,
            "dst_scale": np.array([1], np.float32) / np.float32(p.dst_scale),
            "dst_zero_point": np.array([p.dst_zero_point], np.float32),
        }
        shape = self.cut.m, self.cut.n
        found = self.post_ops.arrays(p, self.cut.per_column, lambda v: self.cut.blocks_of(v.reshape(shape)))
        for step in self.given:
            value = values[step.name]
            if value is not None:
                found[step.name] = self.cut.per_column(value) if step.by_column else value
        return found
