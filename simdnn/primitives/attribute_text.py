"""An attribute in the words of benchdnn and of oneDNN's verbose log: `attr-scales:src:0:f32+wei:3:f16:32x1`.

`simdnn.benchdnn` reads them as the same attribute, but for the values of parameters, which no log holds, and for
`check`, which changes no answer.
"""

from __future__ import annotations

from isa_models.formats import fmt
from simdnn.kernels.common.problems import MatmulProblem, Problem
from simdnn.primitives.attr import ARGUMENTS, Attr
from simdnn.primitives.placed import Shape, Valued
from simdnn.primitives.postops import AppliedPostOp
from simdnn.primitives.resolve import Resolved


def written(given: Resolved, problem: Problem) -> list[str]:
    """The words of the attribute that a problem which is executed was made of, as far as they are not the default's.

    Modes are those in force. `exact_int8` is told where the call, its scope or the environment says it.
    """
    shape, front, mode = given.shape, _front(problem), given.fpmath
    blocks = isinstance(problem, MatmulProblem) and problem.blocks
    compressed = shape.compressed and not (blocks or fmt(shape.wei).is_float)  # integers in floats, as asked for
    words = [f"attr-fpmath:{mode}" + ":true" * compressed] if mode != "strict" or compressed else []
    reductions = {"src": given.reductions} if given.reductions else {}
    kinds = {"scales": given.scales, "zero-points": given.zero_points, "precomputed-reductions": reductions}
    for name, valued in kinds.items():
        entries = [_entry(shape, valued[key], front) for key in ARGUMENTS if key in valued]
        words += [f"attr-{name}:{'+'.join(entries)}"] if entries else []
    ops = [_post_op(post_op, 1 + front) for post_op in given.post_ops]
    words += [f"attr-post-ops:{'+'.join(ops)}"] if ops else []
    if given.exact_int8 is not None:
        words.append(f"attr-exact-int8:{str(given.exact_int8).lower()}")
    words += [f"attr-float-model:{given.float_model}"] if given.float_model != Attr.float_model else []
    words += [f"attr-acc-mode:{given.acc_mode}"] if given.acc_mode else []
    strategy = given.strategy
    return [*words, f"attr-zero-point-strategy:{strategy}"] if strategy != Attr.zero_point_strategy else words


def _front(problem: Problem) -> int:
    """How many dimensions of a matmul stand in front of rows and columns."""
    return len(problem.batch.extents) if isinstance(problem, MatmulProblem) else 0


#: benchdnn's masks for scales of a destination that a product finds
_FOUND = {"dynamic_mx": "mx", "dynamic_fp": "dynamic_fp"}


def _entry(shape: Shape, valued: Valued, front: int) -> str:
    """`wei:3:f16:32x1`: argument, mask, type, groups."""
    param = valued.param
    if valued.mode in _FOUND:
        return f"{param.argument}:{_FOUND[valued.mode]}:{param.dtype}:{param.rows}x{param.columns}"
    where = f"{param.argument}:{{}}:{param.dtype}"
    if shape.primitive == "convolution":
        return where.format(0 if param.common else 1 if shape.groups == 1 else 3)
    if not param.group:
        return where.format(bool(param.rows) << front | bool(param.columns) << front + 1)
    rows, columns = (shape.k, shape.n) if param.argument == "wei" else (shape.m, shape.k)
    return where.format(3 << front) + f":{param.rows or rows}x{param.columns or columns}"


def _post_op(given: AppliedPostOp, channels: int) -> str:
    """A post-operation as the log names it; a mask says the dimensions along which second operands run."""
    op, numbers = given.op, [f"{x!r}".replace("+", "") for x in given.numbers]  # a plus would begin another one
    if op.second is not None:
        own = sum(moves << axis for axis, moves in enumerate(op.along)) or "per_tensor"
        mask = own if op.per_output else 1 << channels if op.per_channel else 0
        return f"prelu:{mask}" if op.kind == "prelu" else f"binary_{op.kind}:f32:{mask}"
    if op.kind != "sum":
        return ":".join([f"eltwise_{op.kind}", *numbers])
    if op.stored:
        numbers = [*numbers, "0"][:2] + [op.stored]
    return ":".join(["sum", *numbers]) if op.scaled or numbers[1:] else "sum"
