"""The end of blocks of sums on an NVIDIA GPU: scales of the source and the weights, bias, relu, narrowing.

Intel's (`simdnn.kernels.intel_gpu.epilogue`) is another one: docs/architecture.md says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.common.spec import Epilogue, Parameters
from simdnn.kernels.gpu.cut import Cut
from simdnn.program.records import Affine, Memory, Register, Tensor


@dataclass(frozen=True)
class SmEpilogue:
    """Blocks of sums on their way to memory: scales, bias, relu, narrowing."""

    epilogue: Epilogue
    cut: Cut

    def code(self, acc: Sequence[Sequence[Register]]) -> Code:
        e, cut, b = self.epilogue, self.cut, self.cut.block
        code: Code = []
        zero = Register("zero", "f32", b.m * b.n)
        if "relu" in e.post_ops:
            code.append(op("xor.b32", *[zero.as_("u32")] * 3))
        common = Register("src_scale", "f32", b.n)
        if e.src_scale:
            code.append(op("ld.global.f32.same", common, Memory(common.name, Affine(), "f32", 1)))
        for j in cut.cols:
            scale, bias = (Register(name, "f32", b.n) for name in ("wei_scale", "bias"))
            for register in (*([scale] if e.wei_scale else []), *([bias] if e.bias else [])):
                place = Memory(register.name, cut.col(j, "columns") * b.n, "f32", b.n)
                code.append(op("ld.global.f32", register, place))
            for i in cut.rows:
                x = result = acc[i][j]
                if e.src_scale:
                    code.append(op(f"mul.rn.f32.{b.m}x{b.n}.row", x, x, common))
                if e.wei_scale:
                    code.append(op(f"mul.rn.f32.{b.m}x{b.n}.row", x, x, scale))
                if e.bias:
                    code.append(op(f"add.rn.f32.{b.m}x{b.n}.row", x, x, bias))
                if "relu" in e.post_ops:
                    code.append(op("ptx_max.f32", x, x, zero))
                if e.dst == "f16":
                    result = Register("narrow", "f16", x.lanes)
                    code.append(op("cvt.rn.f16.f32", result, x))
                at = cut.place(i, j) * x.lanes
                code.append(op(f"st.global.{e.dst}", Memory("dst", at, e.dst, x.lanes), result))
        return code

    def tensors(self) -> list[Tensor]:
        e, columns = self.epilogue, self.cut.batch.products("columns") * self.cut.full_columns
        given = [name for name, wanted in (("wei_scale", e.wei_scale), ("bias", e.bias)) if wanted]
        found = [Tensor("src_scale", "f32", 1)] if e.src_scale else []
        found += [Tensor(name, "f32", columns) for name in given]
        return [*found, Tensor("dst", e.dst, self.cut.outputs, "output")]

    def arrays(self, src: Array, weights: Array, p: Parameters) -> dict[str, Array]:
        e = self.epilogue
        given = ("wei_scale", p.wei_scale, e.wei_scale), ("bias", p.bias, e.bias)
        found = {name: self.cut.per_column(values) for name, values, wanted in given if wanted and values is not None}
        return found | ({"src_scale": np.array([p.src_scale], np.float32)} if e.src_scale else {})
