"""Zero points of integer matmuls that change along K or by column, and reductions of the source that the user gives.

The rules for reductions are oneDNN's (`dnnl_primitive_attr_set_precomputed_reductions`, since 3.10): of the source
alone, s32, for the whole (M, K/G) matrix, with weights zero points, and groups no longer than any other group along K.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from isa_models import InvalidArgument, Unimplemented
from isa_models.readings.arrays import Array
from simdnn.kernels.common.spec import NO_REDUCTIONS, Parameters, ZeroPoints
from simdnn.libraries import Library
from simdnn.primitives.attr import Attr, Quant
from simdnn.primitives.resolve import Resolved, Shape, refuse_reductions

ADDED = "its kernels add the zero point's part to the sums"


def zero_points(given: Resolved, every: bool = False) -> ZeroPoints | None:
    """The zero points of an integer matmul where they are more than common ones, or (`every`) any at all.

    Raises `InvalidArgument` for groups that don't fit each other.
    """
    shape = given.shape
    if shape.primitive != "matmul" or not shape.integer:
        return None
    found = {name: given.zero_points[name].param for name in ("src", "wei") if name in given.zero_points}
    summed = _reductions(given.attr, shape)
    if not summed and not (every and found) and all(p.common for p in found.values()):
        return None
    lengths = {f"zero_points[{name!r}]": p.length(shape.k) for name, p in found.items()}
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
    return ZeroPoints(group, found.get("wei"), found.get("src"), bool(summed))


def on_cpu(given: Resolved, library: Library | None) -> ZeroPoints | None:
    """The zero points of an integer matmul on a CPU, by the strategy asked for; None where every kernel takes them.

    "auto" is what oneDNN's reference does, direct or by the reductions given. Common zero points belong to every
    kernel, unless a strategy is asked for or scales change along K.
    """
    attr, shape = given.attr, given.shape
    if not shape.integer:
        refuse_strategy(attr, f"{shape.src} x {shape.wei}", "weights less their zero point are multiplied")
    asked, by_row = attr.zero_point_strategy, "src" in attr.zero_points and attr.zero_points["src"].mask == 1
    zeros = zero_points(given, every=asked != "auto" or bool(given.along_k))
    if library and zeros:
        library.check_zero_points(asked, by_row and not attr.zero_points["src"].groups)
    if zeros is None or asked == "auto":
        return zeros
    if asked == "precomputed" and zeros.wei and not zeros.reductions:
        raise Unimplemented(f"zero_point_strategy={asked!r}: {NO_REDUCTIONS}")
    return replace(zeros, strategy=asked)


def refuse_strategy(attr: Attr, what: str, instead: str) -> None:
    """`Unimplemented` for a strategy where kernels have one way of their own."""
    if (asked := attr.zero_point_strategy) != "auto":
        raise Unimplemented(f"zero_point_strategy={asked!r} of {what}: {instead}; what works: 'auto'")


def with_tables(parameters: Parameters, given: Resolved, zeros: ZeroPoints) -> Parameters:
    """Zero points (K/G, N) of the weights and (M, K/G) of the source, s32; zeros where only the cost is asked for."""
    return replace(
        parameters,
        wei_zero_points=_table(given, "wei") if zeros.wei else None,
        src_zero_points=_table(given, "src") if zeros.src else None,
        reductions=given.attr.precomputed_reductions["src"].values if zeros.reductions else None,
    )


def check_reductions(attr: Attr, src: Array) -> None:
    """`InvalidArgument` naming the first entry of the given reductions that is no sum of the source."""
    if "src" not in attr.precomputed_reductions or not attr.check:
        return
    given = attr.precomputed_reductions["src"].values
    right = src.astype(np.int64).reshape(*given.shape, -1).sum(axis=-1)
    wrong = np.argwhere(given != right)
    if len(wrong):
        row, group = (int(i) for i in wrong[0])
        raise InvalidArgument(
            f"precomputed_reductions['src'][{row}, {group}] is {given[row, group]}; the source's sum there is "
            f"{right[row, group]} ({len(wrong)} of {given.size} entries are wrong)"
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


def _reductions(attr: Attr, shape: Shape) -> int:
    """How many k each of the given reductions sums; 0 where none are given."""
    if not attr.precomputed_reductions:
        return 0
    refuse_reductions(attr)
    quant: Quant = attr.precomputed_reductions["src"]
    if quant.mask not in (None, 3):
        raise InvalidArgument(f"precomputed_reductions['src']: mask {quant.mask!r}; 3, the whole (M, K/G), is needed")
    if quant.groups is not None:
        rows, length = quant.groups
        if rows != 1 or shape.k % length:
            raise InvalidArgument(
                f"precomputed_reductions['src']: groups={quant.groups}; (1, G) with G dividing K={shape.k} is needed"
            )
    elif quant.values is None:
        raise InvalidArgument("precomputed_reductions['src'] without values; say how long a group is: groups=(1, 128)")
    else:
        parts = quant.values.shape[-1] if quant.values.ndim == 2 else 0
        length = shape.k // parts if parts and shape.k % parts == 0 else 0
    size = (shape.m, shape.k // length) if length else None
    if quant.values is not None and quant.values.shape != size:
        wanted = f"{size}" if quant.groups is not None else f"(M, K/G), M={shape.m}, G dividing K={shape.k},"
        raise InvalidArgument(f"precomputed_reductions['src'] of shape {quant.values.shape}; {wanted} is needed")
    return length
