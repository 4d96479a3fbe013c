"""A GPU's blocks of sums on their way to memory: to f32, scales, bias, post-operations, narrowing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.common.postops import RELU, PostOp, previous_type
from simdnn.kernels.common.roles import PARAMETERS
from simdnn.kernels.common.spec import Epilogue, Parameters
from simdnn.kernels.gpu.cut import Cut
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
        rows = [("bias", "bias"), ("scale", "wei_scale")]
        splats = ["src_scale", "dst_scale", "dst_zero_point", "zero"]
        for i, post_op in enumerate(self.epilogue.post_ops):
            if post_op.per_channel:
                rows.append((f"post{i}", f"post{i}"))
            elif not post_op.per_output:  # one value, if any
                splats.append(f"post{i}")
        for name, tensor in rows:
            if tensor in self.parameters:
                for j in self.cut.cols:
                    at = self.cut.col(j, "columns") * self.cut.block.n
                    code.append(op("load.f32", self.vector(f"{name}_{j}"), Memory(tensor, at, "f32", self.cut.block.n)))
        for tensor in splats:
            if tensor in self.parameters:
                register = self.splat(tensor)
                code.append(op(f"load_splat.{register.dtype}", register, Memory(tensor, Affine(), register.dtype, 1)))
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
            code += self.post_op(post_op, f"post{number}", x if floating else acc, j, place)
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

    def post_op(self, post_op: PostOp, tensor: str, x: Register, j: int, place: Affine) -> Code:
        """One post-operation of a block: relu, an addition, or sum (x + scale * what the destination held, fused)."""
        if post_op == RELU:
            return [op(f"max.{x.dtype}.{self.size}.row", x, x, self.splat("zero"))]
        summed = post_op.kind == "sum"
        if not summed and not post_op.per_output:
            other = self.vector(f"{tensor}_{j}") if post_op.per_channel else self.splat(tensor)
            return [op(f"add.f32.{self.size}.row", x, x, other)]
        dst, source = (self.epilogue.dst, "previous") if summed else ("f32", tensor)
        other, wide = Register("other", dst, x.lanes), Register("wide_other", "f32", x.lanes)
        code: Code = [op(f"load.{dst}", other, Memory(source, place * x.lanes, dst, x.lanes))]
        if dst in ("s8", "u8"):
            code.append(op(f"mov.s32.{dst}", wide.as_("s32"), other))
            other = wide.as_("s32")
        if other.dtype != "f32":
            code.append(op(f"mov.f32.{other.dtype}", wide, other))
            other = wide
        return [
            *code,
            op(f"mad.f32.{self.size}.row", x, x, other, self.splat(tensor)) if summed else op("add.f32", x, x, other),
        ]

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
            "previous": cut.outputs if previous_type(e.post_ops, e.dst) else 0,
        }
        sizes |= {f"post{i}": post_op.size(columns, cut.outputs) for i, post_op in enumerate(e.post_ops)}
        floating = self.sums.result(0, 0).dtype == "f32" or e.in_float
        types = {"previous": e.dst, "zero": "f32" if floating else "s32"}
        return {
            name: Tensor(name, types.get(name, "f32"), size, role=PARAMETERS.get(name, ""))
            for name, size in sizes.items()
            if size
        }

    def tensors(self) -> list[Tensor]:
        return [*self.parameters.values(), Tensor("dst", self.epilogue.dst, self.cut.outputs, "output")]

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
            "previous": lambda: cut.blocks_of(_given(p.previous).reshape(shape)),
        }
        found = {}
        for i, (post_op, operand) in enumerate(zip(self.epilogue.post_ops, p.operands, strict=False)):
            if post_op.per_output:
                found[f"post{i}"] = cut.blocks_of(operand.reshape(shape))
            elif post_op != RELU:
                found[f"post{i}"] = cut.per_column(operand) if post_op.per_channel else operand
        return found | {name: values[name]() for name in self.parameters if name not in found}


def _given(values: Array | None) -> Array:
    assert values is not None
    return values
