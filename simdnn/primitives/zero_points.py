"""Zero points of integer matmuls that change along K or by column, and reductions of the source that the user gives.

Reductions have oneDNN's rule beside those of `resolve`: groups no longer than any other group along K.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from isa_models import InvalidArgument, Unimplemented
from isa_models.readings.arrays import Array
from simdnn.kernels.common.epilogue import NO_REDUCTIONS, Parameters, ZeroPoints
from simdnn.libraries import Library
from simdnn.primitives.resolve import Resolved

ADDED = "its kernels add the zero point's part to the sums"
DECOMPRESSED = "weights less their zero point are multiplied"


def zero_points(given: Resolved, every: bool = False) -> ZeroPoints | None:
    """The zero points of an integer matmul where they are more than common ones, or (`every`) any at all.

    Raises `InvalidArgument` for groups that don't fit each other.
    """
    shape = given.shape
    if shape.primitive != "matmul" or not shape.integer:
        return None
    params = {name: given.zero_points[name].param for name in ("src", "wei") if name in given.zero_points}
    summed = given.reductions.param.group if given.reductions else 0
    if not summed and not (every and params) and all(p.common for p in params.values()):
        return None
    lengths = {f"zero_points[{name!r}]": p.length(shape.k) for name, p in params.items()}
    lengths |= {f"scales[{name!r}]": one.param.length(shape.k) for name, one in given.along_k.items()}
    group = summed or min(lengths.values())
    for what, length in lengths.items():
        if summed and (length < summed or length % summed):
            raise InvalidArgument(
                f"precomputed_reductions['src'] in groups of {summed} along K beside {what} in groups of {length}; "
                "groups no longer than every other one, which they divide, are needed"
            )
        if length % group:
            raise InvalidArgument(f"{what} in groups of {length} along K beside groups of {group}; they must nest")
    wei, src = (params[name].of_groups(shape.k) if name in params else None for name in ("wei", "src"))
    return ZeroPoints(group, wei, src, bool(summed))


def on_cpu(given: Resolved, library: Library | None, wei_tag: object = "any") -> ZeroPoints | None:
    """The zero points of an integer matmul on a CPU, by the strategy asked for; None where every kernel takes them.

    "auto" is what oneDNN's reference does, direct or by the reductions given. Common zero points belong to every
    kernel, unless a strategy is asked for, scales change along K, or a library leaves plain u8 weights to
    its reference.
    """
    if not given.shape.integer:
        refuse_strategy(given, DECOMPRESSED)
    asked, source = given.strategy, given.zero_points.get("src")
    plain = library is not None and given.shape.wei == "u8" and wei_tag != "any"
    zeros = zero_points(given, every=asked != "auto" or bool(given.along_k) or plain)
    if library and zeros:
        library.check_zero_points(asked, source is not None and source.mask == 1 and not source.param.group)
    if zeros is None or asked == "auto":
        return zeros
    if asked == "precomputed" and zeros.wei and not zeros.reductions:
        raise Unimplemented(f"zero_point_strategy={asked!r}: {NO_REDUCTIONS}")
    return replace(zeros, strategy=asked)


def refuse_strategy(given: Resolved, instead: str, what: str = "") -> None:
    """`Unimplemented` for a strategy where kernels have one way of their own, which `instead` tells."""
    if given.strategy != "auto":
        of = what or f"{given.shape.src} x {given.shape.wei}"
        raise Unimplemented(f"zero_point_strategy={given.strategy!r} of {of}: {instead}; what works: 'auto'")


def with_tables(parameters: Parameters, given: Resolved, zeros: ZeroPoints) -> Parameters:
    """Zero points (K/G, N) of the weights and (M, K/G) of the source, s32; zeros where only the cost is asked for."""
    return replace(
        parameters,
        wei_zero_points=_table(given, "wei") if zeros.wei else None,
        src_zero_points=_table(given, "src") if zeros.src else None,
        reductions=given.reductions.values if given.reductions else None,
    )


def check_reductions(given: Resolved, src: Array) -> None:
    """`InvalidArgument` naming the first entry of the given reductions that is no sum of the source."""
    sums = given.reductions.values if given.reductions and given.check else None
    if sums is None:
        return
    right = src.astype(np.int64).reshape(*sums.shape, -1).sum(axis=-1)
    wrong = np.argwhere(sums != right)
    if len(wrong):
        row, group = (int(i) for i in wrong[0])
        raise InvalidArgument(
            f"precomputed_reductions['src'][{row}, {group}] is {sums[row, group]}; the source's sum there is "
            f"{right[row, group]} ({len(wrong)} of {sums.size} entries are wrong)"
        )


def _table(given: Resolved, name: str) -> Array:
    shape, values = given.shape, given.zero_points[name].values
    values = np.zeros(1, np.int32) if values is None else np.asarray(values).astype(np.int32)
    if values.ndim == 2:
        size = (values.shape[0], shape.n) if name == "wei" else (shape.m, values.shape[1])
    else:
        size = (1, shape.n) if name == "wei" else (shape.m, 1)
        values = values.reshape((1, -1) if name == "wei" else (-1, 1))
    return np.broadcast_to(values, size)
