"""Who takes the second operands of a oneDNN 3.13 matmul, by the dimensions in which they change.

Its rules are those of `get_rhs_arg_broadcasting_strategy` (common/broadcast_strategy.cpp), its names those of
`broadcasting_strategy_t`; which of them a kernel takes was asked of the library for every sharing of two to four
dimensions, seven triplets of types under three ISA caps.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from isa_models import Unimplemented
from isa_models.formats import fmt
from simdnn.kernels.common.params import Params
from simdnn.kernels.common.postops import PostOp, sums_differ, sums_late
from simdnn.kernels.common.problems import MatmulProblem

_ANY_DIMS = frozenset({"scalar", "none"})
#: what brg_matmul takes of a number of dimensions, and what its GEMMs do
_BRGEMM = {
    2: _ANY_DIMS | {"per_oc"},
    3: _ANY_DIMS | {"per_oc", "per_mb_w", "per_mb", "batch"},
    4: _ANY_DIMS | {"per_w", "per_mb_w", "per_mb", "per_mb_spatial", "batch", "per_oc_d", "per_hw"},
}
_GEMM = {
    2: _ANY_DIMS | {"per_oc"},
    3: _ANY_DIMS | {"per_oc", "per_w", "per_mb_w"},
    4: _ANY_DIMS | {"per_oc", "per_w", "per_mb_w", "per_mb_spatial"},
}


def left_to(p: MatmulProblem, params: Params, dims: int, shape: Sequence[int], runtime: str = "") -> str:
    """Who takes the second operands of a matmul of `dims` dimensions to an output of `shape`: "" where brg_matmul and
    its GEMMs both do, "brgemm" or "gemm" where one does, else "reference". Sizes of `runtime` ("m", "n", "k", and "b"
    of a batch) the library learns at run time: without tiles brg_matmul takes none of those.

    Raises `Unimplemented` for groups along a K that is such a size, which the library asks to be powers of two, and for
    a common scale of 8 bits.
    """
    if runtime:
        _refuse_along_k(params, runtime)
    _refuse_common_bytes(params)
    if dims == 2:
        shape = prod(shape[:-1]), shape[-1]
    known = [-1 if one in runtime else size for one, size in zip(("b" * (dims - 2)) + "mn", shape, strict=True)]
    found = [_sharing_of(op, dims, tuple(shape), known) for op in p.epilogue.post_ops if op.second]
    brgemm, gemm = (all(one in taken.get(dims, _ANY_DIMS) for one in found) for taken in (_BRGEMM, _GEMM))
    if -1 in known:
        columns = any(op.kind == "prelu" for op in p.epilogue.post_ops) or _two_scales(params)
        gemm = gemm and not (dims == 2 and "per_oc" in found) and not ("n" in runtime and columns)
    ops = p.epilogue.post_ops
    brgemm, gemm = brgemm and not runtime and not sums_differ(ops), gemm and not sums_late(ops)
    if _halved_scales(p, params):
        return "reference"
    return ("" if brgemm else "gemm") if gemm else "brgemm" if brgemm else "reference"


def _halved_scales(p: MatmulProblem, params: Params) -> bool:
    """Whether floats are scaled by numbers of 16 bits, which kernels take beside integers alone (`check_attr_scales` in
    brgemm_matmul.cpp).
    """
    halved = any(scale.dtype != "f32" for scale in params.scales.values())
    return halved and fmt(p.src).is_float and fmt(p.wei).is_float


def _two_scales(params: Params) -> bool:
    """Whether the weights' scales by column meet one of the source: the product of both wants a place of known size."""
    return "src" in params.scales and "wei" in params.scales and not params.scales["wei"].common


def _refuse_common_bytes(params: Params) -> None:
    for argument, scale in params.scales.items():
        if scale.common and scale.dtype in ("e8m0", "f8_e4m3"):
            raise Unimplemented(
                f"oneDNN refuses one {scale.dtype} scale of all of {argument}: f32, bf16, f16 and groups work"
            )


def _refuse_along_k(params: Params, runtime: str) -> None:
    every = (one for kind in (params.scales, params.zero_points) for one in kind.values())
    odd = [one.group for one in every if one.group & (one.group - 1)]  # no divisors of 2^63, its mark of such a size
    if odd and "k" in runtime:
        raise Unimplemented(
            f"oneDNN refuses groups of {odd[0]} along a K that it learns at run time: powers of two work, or a known K"
        )


def left_to_reference(p: MatmulProblem, brgemm: bool = True) -> bool:
    """Whether second operands leave a matmul to the reference, where there is a kernel of brg_matmul or none."""
    return p.left_to == "reference" or not brgemm and p.left_to == "brgemm"


def _sharing_of(op: PostOp, dims: int, shape: tuple[int, ...], known: Sequence[int]) -> str:
    if not op.per_output:
        along = (*(False,) * (dims - 1), op.per_channel)
    elif dims == 2:
        along = (all(op.along[:-1]), op.along[-1]) if op.along else (True, True)
        if op.along and any(op.along[:-1]) != along[0]:
            return "shared_axes"
    else:
        along = op.along or (True,) * dims
    operand = tuple(size if moves else 1 for moves, size in zip(along, shape, strict=True))
    if any(one > 1 and size < 0 for one, size in zip(operand, known, strict=True)):
        return "unsupported"
    found = strategy_of(operand, known)
    apart = op.kind == "prelu" and dims > 2 and prod(operand[1:]) > 1  # slopes lie otherwise there
    return "shared_axes" if found == "none" and apart else found


def strategy_of(operand: Sequence[int], shape: Sequence[int]) -> str:
    """How a second operand is shared by the elements of an output in rows, by the library's names of its strategies.

    >>> [strategy_of(operand, (3, 4, 5)) for operand in ((1, 1, 5), (1, 4, 1), (3, 1, 5), (1, 4, 5), (3, 4, 1))]
    ['per_w', 'per_oc', 'per_mb_w', 'batch', 'shared_axes']
    >>> strategy_of((1, 4, 1), (1, 4, 1)), strategy_of((1, 1, 1), (1, 1, 1))
    ('none', 'scalar')
    >>> strategy_of((1, 5), (4, 5)), strategy_of((4, 1), (4, 5)), strategy_of((3, 1, 1), (3, 4, 1))
    ('per_oc', 'per_mb_spatial', 'per_mb')
    """
    if prod(operand) == 1:
        return "scalar"
    if tuple(operand) == tuple(shape):
        return "none"
    dims = len(shape)
    shared = [one != size or size == 1 for one, size in zip(operand, shape, strict=True)]
    first, last, middle = shared[0], shared[-1], shared[1:-1]
    apart = [not one or size == 1 for one, size in zip(shared, shape, strict=True)]  # changes, as far as it can
    rules = {
        "per_mb_w": not first and not last and all(middle),
        "per_oc": not shared[1] and prod(operand) == operand[1],
        "per_w": not last and first and all(middle),
        "per_mb_spatial": dims != 3 and shared[1] and apart[0] and all(apart[2:]),  # which is asked of none in three
        "per_mb": not first and last and all(middle),
        "batch": first and all(apart[1:]),
        "per_oc_d": dims == 4 and first and last and tuple(operand[1:3]) == tuple(shape[1:3]),
        "per_hw": dims == 4 and shared == [True, True, False, False],
    }
    return next((name for name, holds in rules.items() if holds), "shared_axes")
