"""Post-operations: what a caller writes, its place in the epilogue, and the arrays that go with it.

"relu"                       max(x, 0)
"sum", ("sum", scale)        x + scale times what the destination held before: the primitive's argument `into`
("add", values)              x + values: one, one per output channel, or as many as outputs; f32
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from isa_models import InvalidArgument
from isa_models.readings.arrays import Array
from simdnn.kernels.common.spec import MatmulProblem, Parameters, Problem
from simdnn.primitives.arrays import native, type_of
from simdnn.primitives.attr import PostOp, Quant

_FULL = "full"


def names(post_ops: Sequence[PostOp], channels: int) -> tuple[str, ...]:
    """The post-operations as an `Epilogue` names them; `InvalidArgument` for values of no fitting shape."""
    found = []
    for op in post_ops:
        operand = None if isinstance(op, str) else op[1]
        found.append(_add(operand, channels) if isinstance(operand, Quant) else op if isinstance(op, str) else "sum")
    return tuple(found)


def _add(quant: Quant, channels: int) -> str:
    values = quant.values
    if values is None:
        return f"add:{'common' if quant.mask in (0, 'common') else 'per_oc' if quant.mask == 'per_oc' else _FULL}"
    if values.size == 1:
        return "add:common"
    if values.ndim == 1 and values.size != channels:
        raise InvalidArgument(f"post-operation add with {values.size} values; allowed: 1, {channels}, or the output's")
    return "add:per_oc" if values.ndim == 1 else f"add:{_FULL}"


def output_shape(problem: Problem) -> tuple[int, ...]:
    """(M, N), or (N, OC, OH, OW)."""
    p = problem
    return (p.m, p.n) if isinstance(p, MatmulProblem) else (p.mb, p.oc, p.oh, p.ow)


def with_operands(
    parameters: Parameters, post_ops: Sequence[PostOp], problem: Problem, into: object, shape: tuple[int, ...] = ()
) -> Parameters:
    """The parameters with each post-operation's numbers; what is as large as the output in the kernel's order of it.
    `shape` is the output's where it is no matrix.

    Raises `InvalidArgument` where `into` is missing, not needed, or of another shape or type than the output.
    """
    sums = "sum" in problem.epilogue.post_ops
    if sums != (into is not None):
        found = "missing: what the destination held before" if sums else "given, yet no post-operation 'sum' reads it"
        raise InvalidArgument(f"into is {found}")
    operands: list[Array] = []
    for name, op in zip(problem.epilogue.post_ops, post_ops, strict=True):
        operand = None if isinstance(op, str) else op[1]
        if not isinstance(operand, Quant):
            operands.append(np.array([] if operand is None else [operand], np.float32))
        elif operand.values is None:
            raise InvalidArgument("post-operation add has no values; only simdnn.estimate works without them")
        else:
            values = operand.values.astype(np.float32).reshape(-1) if name != f"add:{_FULL}" else operand.values
            full = name == f"add:{_FULL}"
            operands.append(_in_order("post-operation add", values, problem, shape) if full else values)
    previous = None
    if into is not None:
        dtype = type_of("into", into, ("s32",))
        assert isinstance(into, np.ndarray)
        if dtype != problem.epilogue.dst:
            raise InvalidArgument(f"into of {dtype}; the destination is {problem.epilogue.dst}")
        previous = _in_order("into", native(into), problem, shape)
    return replace(parameters, operands=tuple(operands), previous=previous)


def _in_order(what: str, values: Array, problem: Problem, shape: tuple[int, ...]) -> Array:
    wanted, matrix = shape or output_shape(problem), isinstance(problem, MatmulProblem)
    if values.shape != wanted:
        raise InvalidArgument(f"{what} of shape {values.shape}; the output's is needed: {wanted}")
    return np.ascontiguousarray(values if matrix else values.transpose(0, 2, 3, 1)).reshape(-1)
