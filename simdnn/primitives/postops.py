"""Post-operations: what a caller writes, its place in the epilogue, and the arrays that go with it.

"relu", ("relu", slope), …       of x alone, with their numbers (`simdnn.kernels.common.postops`)
"sum", ("sum", scale, zero, type)  x + scale (what the destination held before - zero): the primitive's argument `into`
("add", values), ("mul", …), …   x and values of f32: one, one per output channel, or what broadcasts to the output
("max", values, "select"), ("min", …)  the two that a choice becomes: bounds that leave x, or are the other value
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isa_models import InvalidArgument, Unimplemented
from isa_models.errors import counted
from isa_models.readings.arrays import Array
from simdnn.kernels.common.activations import power_of
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.params import Param
from simdnn.kernels.common.postops import BINARY, PostOp, previous_type
from simdnn.kernels.common.problems import MatmulProblem, Problem
from simdnn.primitives.arrays import native, type_of
from simdnn.primitives.attr import PostOpEntry, Quant


@dataclass(frozen=True, eq=False)
class AppliedPostOp:
    """A post-operation on a problem's shape: what shapes a program, its numbers, and the second operands.

    `values` are None for one of a single operand, and where only the cost is asked for.
    """

    op: PostOp
    numbers: tuple[float, ...] = ()  # alpha, beta; of `sum` the scale, and the zero point where there is one
    values: Array | None = None
    chosen: bool = False  # one of the two that a choice becomes


def resolved(entries: Sequence[PostOpEntry], channels: int, axis: int, dims: int) -> tuple[AppliedPostOp, ...]:
    """The post-operations of an `Attr` on an output of `dims` dimensions, with `channels` in that of `axis`.

    Raises `InvalidArgument` for values of no fitting shape.
    """
    written = ((entry,) if isinstance(entry, str) else entry for entry in entries)
    ops = [_resolved(entry, channels, axis, dims) for entry in written]
    sums = [one.numbers for one in ops if one.op.kind == "sum"]
    return tuple(
        replace(one, op=replace(one.op, other=True)) if one.op.kind == "sum" and one.numbers != sums[0] else one
        for one in ops
    )


def _resolved(entry: tuple[Any, ...], channels: int, axis: int, dims: int) -> AppliedPostOp:
    kind, *rest = entry
    if kind in BINARY:
        second = Param("dst", *_shared(kind, rest[0], channels, axis), "f32")
        dtype = rest[0].dtype
        op = PostOp(kind, second=second, stored="" if dtype == "f32" else dtype)
        if op.per_output:
            op = replace(op, along=_along(rest[0], dims))
        return AppliedPostOp(op, values=rest[0].values, chosen=len(rest) > 1)
    if kind == "sum":
        scale, zero, dtype = (*rest, 0, None)[:3]
        numbers = (scale, zero) if zero else (scale,)
        op = PostOp(kind, len(numbers), scaled=scale != 1, zero_point=bool(zero), stored=dtype or "")
        return AppliedPostOp(op, numbers)
    return AppliedPostOp(PostOp(kind, len(rest), power=power_of(rest[1]) if kind == "pow" else ""), tuple(rest))


#: rows and columns of the output that share a value
_SHARED = {"common": (0, 0), "per_oc": (0, 1)}
_OWN = (1, 1)


def _shared(kind: str, quant: Quant, channels: int, axis: int) -> tuple[int, int]:
    """How many rows and columns of the output share a second operand; 0 for all."""
    values = quant.values
    if values is None:
        return _SHARED.get("common" if quant.mask == 0 else str(quant.mask), _OWN)
    if values.size == 1:
        return _SHARED["common"]
    if values.ndim == 1 and values.size != channels:
        raise InvalidArgument(
            f"post-operation {kind} with {counted(values.size, 'value')}; allowed: 1, {channels}, or the output's"
        )
    along = values.shape[axis] if values.ndim > 1 else values.size
    return _SHARED["per_oc"] if values.size == along == channels else _OWN


def _along(quant: Quant, dims: int) -> tuple[bool, ...]:
    """Dimensions of the output in which a second operand changes, a flag each; empty where it changes in all."""
    if quant.values is not None:
        along = tuple(size > 1 for size in quant.values.shape)
    else:
        along = tuple(bool(quant.mask >> axis & 1) for axis in range(dims)) if isinstance(quant.mask, int) else ()
    return () if all(along) else along


def refuse_choices(post_ops: Sequence[AppliedPostOp], dispatch: str) -> None:
    """Raises for a choice between outputs and other values, which oneDNN makes otherwise."""
    if any(op.chosen for op in post_ops):
        raise Unimplemented(
            f"dispatch={dispatch!r} with post-operation 'select': oneDNN reads conditions of convolutions, and "
            "those that broadcast, at other places, and takes another GEMM for f32: 'fastest' takes it"
        )


def output_shape(problem: Problem) -> tuple[int, ...]:
    """(M, N), or (N, OC, OH, OW), with OD ahead of OH where there is a depth."""
    p = problem
    if isinstance(p, MatmulProblem):
        return p.m, p.n
    return (p.mb, p.oc, *((p.od,) if p.depth else ()), p.oh, p.ow)


def with_operands(
    parameters: Parameters,
    post_ops: Sequence[AppliedPostOp],
    problem: Problem,
    into: object,
    shape: tuple[int, ...] = (),
) -> Parameters:
    """The parameters with each post-operation's numbers; what is as large as the output in the kernel's order of it.
    `shape` is the output's where it is no matrix.

    Raises `InvalidArgument` where `into` is missing, not needed, or of another shape or type than the output.
    """
    held = previous_type(problem.epilogue.post_ops, problem.epilogue.dst)
    if bool(held) != (into is not None):
        state = "missing: what the destination held before" if held else "given, yet no post-operation 'sum' reads it"
        raise InvalidArgument(f"into is {state}")
    operands = tuple(_operand(post_op, problem, shape) for post_op in post_ops)
    previous = None
    if into is not None:
        dtype = type_of("into", into, ("s32",))
        assert isinstance(into, np.ndarray)
        if dtype != held:
            raise InvalidArgument(f"into of {dtype}; the destination is {held}")
        previous = _in_order("into", native(into), problem, shape)
    return replace(parameters, operands=operands, previous=previous)


def _operand(post_op: AppliedPostOp, problem: Problem, shape: tuple[int, ...]) -> Array:
    """The f32 values that a post-operation reads."""
    if post_op.op.second is None:
        return np.array(post_op.numbers, np.float32)
    what = f"post-operation {post_op.op.kind}"
    if post_op.values is None:
        raise InvalidArgument(f"{what} has no values; only simdnn.estimate works without them")
    values = post_op.values.astype(np.float32)
    return _in_order(what, values, problem, shape) if post_op.op.per_output else values.reshape(-1)


def _in_order(what: str, values: Array, problem: Problem, shape: tuple[int, ...]) -> Array:
    wanted, matrix = shape or output_shape(problem), isinstance(problem, MatmulProblem)
    if what != "into" and values.ndim == len(wanted):
        values = np.broadcast_to(values, [b if a == 1 else a for a, b in zip(values.shape, wanted, strict=True)])
    if values.shape != wanted:
        raise InvalidArgument(f"{what} of shape {values.shape}; the output's is needed: {wanted}")
    return np.ascontiguousarray(values if matrix else np.moveaxis(values, 1, -1)).reshape(-1)
