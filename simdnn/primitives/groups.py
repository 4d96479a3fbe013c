"""Scales of an integer matmul that change along K or from row to row: their place in the problem, their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from isa_models import InvalidArgument, Unimplemented
from isa_models.readings.arrays import Array
from simdnn.kernels.common.params import ALONG_K, Param, Params
from simdnn.kernels.common.spec import Epilogue, GroupScales, Parameters
from simdnn.primitives.attr import Attr, Quant
from simdnn.primitives.resolve import Placed, Shape, floats, group_of, placed


def params_of(attr: Attr, shape: Shape) -> Params:
    """The parameters of an integer matmul, as a library judges them."""

    def found(kind: str, quants: Mapping[str, Quant]) -> dict[str, Param]:
        answer = {}
        for name, quant in quants.items():
            where = placed(kind, name, quant, shape)
            length = length_of(name, where, shape) if name != "dst" else 0
            answer[name] = Param(where.granularity, str(quant.dtype), length)
        return answer

    scales, points = found("scales", attr.scales), found("zero_points", attr.zero_points)
    return Params(scales, points, bool(attr.precomputed_reductions))


def along_k(attr: Attr, shape: Shape) -> dict[str, Placed]:
    """The source's and weights' scales by argument, where one of them is more than the epilogue can hold."""
    found = _scales(attr, shape)
    return found if any(p.granularity in ALONG_K for p in found.values()) else {}


def _scales(attr: Attr, shape: Shape) -> dict[str, Placed]:
    if shape.primitive != "matmul" or not shape.integer:
        return {}
    return {name: placed("scales", name, attr.scales[name], shape) for name in ("src", "wei") if name in attr.scales}


def group_scales(
    attr: Attr, shape: Shape, exact: bool = False, merged: bool = False, finest: int = 0
) -> GroupScales | None:
    """How scales change along K; None where they do not. Raises `InvalidArgument` where groups do not nest.

    A group's sum is scaled by what is grouped and the total by the rest; kernels that are `exact` scale each group's by
    both, down to the `finest` of zero points where there is one. `merged`: the weights' scales come multiplied by the
    source's common one.
    """
    by_points = 0 < finest < shape.k
    found = _scales(attr, shape) if by_points else along_k(attr, shape)
    if not found:
        return None
    kept = found if exact else {name: p for name, p in found.items() if p.granularity in ALONG_K}
    length = {name: length_of(name, p, shape) for name, p in kept.items()}
    if by_points:
        length = {name: min(g, finest) for name, g in length.items()}
    src, wei = length.get("src", 0), length.get("wei", 0)
    if src and wei and max(src, wei) % min(src, wei):
        raise InvalidArgument(f"scales in groups of {src} (src) and {wei} (wei) along K; one must divide the other")
    one_group = min(g for g in (src, wei) if g) == shape.k
    return GroupScales(src, wei, not (one_group or exact), exact, merged=merged and not src)


def with_groups(
    epilogue: Epilogue, parameters: Parameters, attr: Attr, shape: Shape, groups: GroupScales | None
) -> tuple[Epilogue, Parameters]:
    """Scales by group as tables, source (M, K / group), weights (K / group, N); the others in the epilogue."""
    if groups is None:
        return epilogue, parameters
    rest = {name: p for name, p in _scales(attr, shape).items() if not getattr(groups, name)}
    wei = rest.get("wei")
    epilogue = replace(epilogue, src_scale="src" in rest, wei_scale=wei.granularity if wei else "")
    parameters = replace(
        parameters,
        src_scale=float(floats(rest.get("src"))[0]),
        wei_scale=floats(wei) if wei else _table(attr, "wei", shape, groups.wei),
        src_group_scale=_table(attr, "src", shape, groups.src),
    )
    if not groups.merged:
        return epilogue, parameters
    scales = parameters.wei_scale
    merged = None if scales is None else np.asarray(scales, np.float32) * np.float32(parameters.src_scale)
    return replace(epilogue, src_scale=False), replace(parameters, wei_scale=merged, src_scale=1.0)


def _table(attr: Attr, argument: str, shape: Shape, group: int) -> Array | None:
    """A scale's values by group, repeated where it has fewer; None where there is none or only the cost is asked."""
    if not group or attr.scales[argument].values is None:
        return None
    values = np.asarray(attr.scales[argument].values, np.float32)
    parts, axis = shape.k // group, 1 if argument == "src" else 0
    if values.ndim != 2:
        values = values.reshape((-1, 1) if argument == "src" else (1, -1))
    if 1 < values.shape[axis] < parts:
        values = np.repeat(values, parts // values.shape[axis], axis)
    return np.broadcast_to(values, (shape.m, parts) if argument == "src" else (parts, shape.n))


def length_of(argument: str, found: Placed, shape: Shape) -> int:
    """How many k share a scale or zero point: K itself, but for one grouped along it."""
    if found.granularity != "grouped":
        return shape.k
    quant = found.quant
    if quant.groups is None:
        if quant.values is None:
            raise InvalidArgument(f"{argument}: mask {quant.mask!r} has groups; say which: groups=(32, 1)")
        return shape.k // int(quant.values.shape[0 if argument == "wei" else 1])
    first, second = group_of(argument, quant, shape)
    length, across, whole = (first, second, shape.n) if argument == "wei" else (second, first, shape.m)
    if across not in (1, whole):
        raise Unimplemented(f"{argument}: groups={quant.groups}; shared along K, or in all {whole}")
    return length
