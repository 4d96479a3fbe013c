"""Post-operations: what a caller writes, its place in the epilogue, and the arrays that go with it.

"relu", ("relu", slope), …       of x alone, with their numbers (`simdnn.kernels.common.postops`)
"sum", ("sum", scale, zero, type)  x + scale (what the destination held before - zero): the primitive's argument `into`
("add", values), ("mul", …), …   x and values of f32: one, one per output channel, or what broadcasts to the output
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from isa_models import InvalidArgument
from isa_models.readings.arrays import Array
from simdnn.kernels.common.activations import power_name
from simdnn.kernels.common.postops import BINARY, previous_type
from simdnn.kernels.common.spec import MatmulProblem, Parameters, Problem
from simdnn.primitives.arrays import native, type_of
from simdnn.primitives.attr import PostOp, Quant

_FULL = "full"


def names(post_ops: Sequence[PostOp], channels: int, axis: int) -> tuple[str, ...]:
    """The post-operations as an `Epilogue` names them; `InvalidArgument` for values of no fitting shape.

    `axis`: the output's dimension of channels.
    """
    return tuple(_name(op, channels, axis) for op in post_ops)


def _name(op: PostOp, channels: int, axis: int) -> str:
    if isinstance(op, str):
        return op
    kind, *rest = op
    if kind == "sum":
        scale, zero, dtype = (*rest, 0, None)[:3]
        how = "zero" if zero else "scaled" if scale != 1 else ""
        return ":".join(["sum", *([how] if how or dtype else []), *([dtype] if dtype else [])])
    if kind in BINARY:
        return f"{kind}:{_grain(kind, rest[0], channels, axis)}"
    if kind == "pow":
        return power_name(rest[1])
    return "relu:alpha" if kind == "relu" else kind


def _grain(kind: str, quant: Quant, channels: int, axis: int) -> str:
    values = quant.values
    if values is None:
        return "common" if quant.mask in (0, "common") else "per_oc" if quant.mask == "per_oc" else _FULL
    if values.size == 1:
        return "common"
    if values.ndim == 1 and values.size != channels:
        raise InvalidArgument(
            f"post-operation {kind} with {values.size} values; allowed: 1, {channels}, or the output's"
        )
    along = values.shape[axis] if values.ndim > 1 else values.size
    return "per_oc" if values.size == along == channels else _FULL


def output_shape(problem: Problem) -> tuple[int, ...]:
    """(M, N), or (N, OC, OH, OW), with OD ahead of OH where there is a depth."""
    p = problem
    if isinstance(p, MatmulProblem):
        return p.m, p.n
    return (p.mb, p.oc, *((p.od,) if p.depth else ()), p.oh, p.ow)


def with_operands(
    parameters: Parameters, post_ops: Sequence[PostOp], problem: Problem, into: object, shape: tuple[int, ...] = ()
) -> Parameters:
    """The parameters with each post-operation's numbers; what is as large as the output in the kernel's order of it.
    `shape` is the output's where it is no matrix.

    Raises `InvalidArgument` where `into` is missing, not needed, or of another shape or type than the output.
    """
    held = previous_type(problem.epilogue.post_ops, problem.epilogue.dst)
    if bool(held) != (into is not None):
        found = "missing: what the destination held before" if held else "given, yet no post-operation 'sum' reads it"
        raise InvalidArgument(f"into is {found}")
    operands: list[Array] = []
    for name, op in zip(problem.epilogue.post_ops, post_ops, strict=True):
        quant = None if isinstance(op, str) else op[1]
        if not isinstance(quant, Quant):
            numbers = () if isinstance(op, str) else [x for x in op[1:] if isinstance(x, (int, float))]
            operands.append(np.array(numbers[:1] if "sum" in name and "zero" not in name else numbers, np.float32))
        elif quant.values is None:
            raise InvalidArgument(f"post-operation {op[0]} has no values; only simdnn.estimate works without them")
        else:
            full, values = name.endswith(_FULL), quant.values.astype(np.float32)
            what = f"post-operation {op[0]}"
            operands.append(_in_order(what, values, problem, shape) if full else values.reshape(-1))
    previous = None
    if into is not None:
        dtype = type_of("into", into, ("s32",))
        assert isinstance(into, np.ndarray)
        if dtype != held:
            raise InvalidArgument(f"into of {dtype}; the destination is {held}")
        previous = _in_order("into", native(into), problem, shape)
    return replace(parameters, operands=tuple(operands), previous=previous)


def _in_order(what: str, values: Array, problem: Problem, shape: tuple[int, ...]) -> Array:
    wanted, matrix = shape or output_shape(problem), isinstance(problem, MatmulProblem)
    if what != "into" and values.ndim == len(wanted):
        values = np.broadcast_to(values, [b if a == 1 else a for a, b in zip(values.shape, wanted, strict=True)])
    if values.shape != wanted:
        raise InvalidArgument(f"{what} of shape {values.shape}; the output's is needed: {wanted}")
    return np.ascontiguousarray(values if matrix else np.moveaxis(values, 1, -1)).reshape(-1)
