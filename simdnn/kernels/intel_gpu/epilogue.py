"""A GPU's blocks of sums on their way to memory: to f32, scales, bias, post-operations, narrowing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.common.epilogue import Epilogue, Parameters
from simdnn.kernels.common.postops import RELU
from simdnn.kernels.common.roles import PARAMETERS
from simdnn.kernels.gpu.cut import Cut
from simdnn.kernels.gpu.postop import BlockPostOps
from simdnn.kernels.gpu.words import INTEL
from simdnn.kernels.intel_gpu.sums import BlockSums
from simdnn.program.records import Affine, Memory, Register, Tensor

#: a step of the destination's type out of f32: instruction, and whether the value is rounded to an integer before
_NARROW = {
    "bf16": ("mov.bf16.f32", False),
    "f16": ("mov.f16.f32", False),
    "s8": ("mov.s8.f32.sat", True),
    "u8": ("mov.u8.f32.sat", True),
    "s32": ("mov.s32.f32.sat", True),
}


@dataclass(frozen=True)
class BlockEpilogue:
    """The end of every block; `sums` says where its sum stands."""

    epilogue: Epilogue
    cut: Cut
    sums: BlockSums

    def code(self) -> Code:
        code: Code = []
        columns = {j: self.cut.col(j, "columns") * self.cut.block.n for j in self.cut.cols}
        for name, tensor in (("bias", "bias"), ("scale", "wei_scale")):
            if tensor in self.parameters:
                for j, at in columns.items():
                    code.append(op("load.f32", self.vector(f"{name}_{j}"), Memory(tensor, at, "f32", self.cut.block.n)))
        code += [load for j, at in columns.items() for load in self.post_ops.column(j, at)]
        for tensor in ("src_scale", "dst_scale", "dst_zero_point", "zero"):
            if tensor in self.parameters:
                register = self.splat(tensor)
                code.append(op(f"load_splat.{register.dtype}", register, Memory(tensor, Affine(), register.dtype, 1)))
        code += self.post_ops.start()
        for i, j in self.cut.pairs:
            code += self.finish_block(i, j)
        return code

    def splat(self, tensor: str) -> Register:
        """One parameter in all lanes of a row, which instructions read for every row of a block."""
        return Register(tensor, self.parameters[tensor].dtype, self.cut.block.n)

    def vector(self, name: str) -> Register:
        return Register(name, "f32", self.cut.block.n)

    @property
    def size(self) -> str:
        return f"{self.cut.block.m}x{self.cut.block.n}"

    def finish_block(self, i: int, j: int) -> Code:
        """One accumulator on its way to the destination."""
        e, dst, acc = self.epilogue, self.epilogue.dst, self.sums.result(i, j)
        x, code = acc.as_("f32"), Code()
        floating = acc.dtype == "f32" or e.in_float
        if acc.dtype == "s32" and floating:
            code.append(op("mov.f32.s32", x, acc))
        if "src_scale" in self.parameters:
            code.append(op(f"mul.f32.{self.size}.row", x, x, self.splat("src_scale")))
        if "wei_scale" in self.parameters:
            code.append(op(f"mul.f32.{self.size}.row", x, x, self.vector(f"scale_{j}")))
        if "bias" in self.parameters:
            code.append(op(f"add.f32.{self.size}.row", x, x, self.vector(f"bias_{j}")))
        place = self.cut.place(i, j)
        for number, post_op in enumerate(e.post_ops):
            if post_op == RELU:
                result = x if floating else acc
                code.append(op(f"max.{result.dtype}.{self.size}.row", result, result, self.splat("zero")))
            else:
                column = self.cut.col(j, "columns") * self.cut.block.n
                code += self.post_ops.code(number, x, j, column, place * acc.lanes)
        if "dst_scale" in self.parameters:
            code.append(op(f"mul.f32.{self.size}.row", x, x, self.splat("dst_scale")))
        if "dst_zero_point" in self.parameters:
            code.append(op(f"add.f32.{self.size}.row", x, x, self.splat("dst_zero_point")))
        result = x if floating else acc
        if dst != result.dtype:
            name, whole = _NARROW[dst]
            if whole:
                code.append(op("rnde.f32", x, x))
            result = Register("narrow", dst, x.lanes)
            code.append(op(name, result, x))
        return [*code, op(f"store.{dst}", Memory("dst", place * result.lanes, dst, result.lanes), result)]

    @cached_property
    def parameters(self) -> dict[str, Tensor]:
        """The run-time arguments that the program reads: f32, but for what an s32 or the destination's type needs."""
        e, cut = self.epilogue, self.cut
        columns = cut.batch.products("columns") * cut.full_columns
        sizes = {
            "bias": columns if e.bias else 0,
            "wei_scale": columns if e.wei_scale else 0,
            "src_scale": int(e.src_scale),
            "dst_scale": int(e.dst_scale),
            "dst_zero_point": int(e.dst_zero_point),
            "zero": int(RELU in e.post_ops),
        }
        floating = self.sums.result(0, 0).dtype == "f32" or e.in_float
        types = {"zero": "f32" if floating else "s32"}
        return {
            name: Tensor(name, types.get(name, "f32"), size, role=PARAMETERS.get(name, ""))
            for name, size in sizes.items()
            if size
        }

    @cached_property
    def post_ops(self) -> BlockPostOps:
        """Post-operations behind the sums, but for relu."""
        e, block = self.epilogue, self.cut.block
        return BlockPostOps(e.post_ops, INTEL, block.m, block.n, e.dst)

    def tensors(self) -> list[Tensor]:
        columns = self.cut.batch.products("columns") * self.cut.full_columns
        post_ops = self.post_ops.tensors(columns, self.cut.outputs)
        return [*self.parameters.values(), *post_ops, Tensor("dst", self.epilogue.dst, self.cut.outputs, "output")]

    def arrays(self, src: Array, weights: Array, p: Parameters) -> dict[str, Array]:
        """The parameters as blocks and columns of the program."""
        cut, shape = self.cut, (self.cut.m, self.cut.n)
        values: dict[str, Callable[[], Array]] = {
            "bias": lambda: cut.per_column(_given(p.bias)),
            "wei_scale": lambda: cut.per_column(_given(p.wei_scale)),
            "src_scale": lambda: np.array([p.src_scale], np.float32),
            "dst_scale": lambda: np.array([1], np.float32) / np.float32(p.dst_scale),
            "dst_zero_point": lambda: np.array([p.dst_zero_point], np.float32),
            "zero": lambda: np.zeros(1, fmt(self.parameters["zero"].dtype).dtype),
        }
        post_ops = self.post_ops.arrays(p, cut.per_column, lambda values: cut.blocks_of(values.reshape(shape)))
        return post_ops | {name: values[name]() for name in self.parameters}


def _given(values: Array | None) -> Array:
    assert values is not None
    return values
