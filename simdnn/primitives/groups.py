"""Scales of an integer matmul that change along K or from row to row: their place in the problem, their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from isa_models import InvalidArgument
from isa_models.readings.arrays import Array
from simdnn.kernels.common.params import Param, Params
from simdnn.kernels.common.spec import Epilogue, GroupScales, Parameters
from simdnn.primitives.resolve import Placed, Resolved, floats


def params_of(given: Resolved) -> Params:
    """The parameters of an integer matmul, as a library judges them."""

    def found(placed: Mapping[str, Placed]) -> dict[str, Param]:
        return {name: one.param for name, one in placed.items()}

    return Params(found(given.scales), found(given.zero_points), bool(given.attr.precomputed_reductions))


def group_scales(given: Resolved, exact: bool = False, merged: bool = False, finest: int = 0) -> GroupScales | None:
    """How scales change along K; None where they do not. Raises `InvalidArgument` where groups do not nest.

    A group's sum is scaled by what is grouped and the total by the rest; kernels that are `exact` scale each group's by
    both, down to the `finest` of zero points where there is one. `merged`: the weights' scales come multiplied by the
    source's common one.
    """
    by_points = 0 < finest < given.shape.k
    found = given.integer_scales if by_points else given.along_k
    if not found:
        return None
    kept = found if exact else {name: p for name, p in found.items() if p.along_k}
    length = {name: p.length for name, p in kept.items()}
    if by_points:
        length = {name: min(g, finest) for name, g in length.items()}
    src, wei = length.get("src", 0), length.get("wei", 0)
    if src and wei and max(src, wei) % min(src, wei):
        raise InvalidArgument(f"scales in groups of {src} (src) and {wei} (wei) along K; one must divide the other")
    one_group = min(g for g in (src, wei) if g) == given.shape.k
    return GroupScales(src, wei, not (one_group or exact), exact, merged=merged and not src)


def with_groups(
    epilogue: Epilogue, parameters: Parameters, given: Resolved, groups: GroupScales | None
) -> tuple[Epilogue, Parameters]:
    """Scales by group as tables, source (M, K / group), weights (K / group, N); the others in the epilogue."""
    if groups is None:
        return epilogue, parameters
    rest = {name: p for name, p in given.integer_scales.items() if not getattr(groups, name)}
    wei = rest.get("wei")
    epilogue = replace(epilogue, src_scale="src" in rest, wei_scale=wei.granularity if wei else "")
    parameters = replace(
        parameters,
        src_scale=float(floats(rest.get("src"))[0]),
        wei_scale=floats(wei) if wei else _table(given, "wei", groups.wei),
        src_group_scale=_table(given, "src", groups.src),
    )
    if not groups.merged:
        return epilogue, parameters
    scales = parameters.wei_scale
    merged = None if scales is None else np.asarray(scales, np.float32) * np.float32(parameters.src_scale)
    return replace(epilogue, src_scale=False), replace(parameters, wei_scale=merged, src_scale=1.0)


def _table(given: Resolved, argument: str, group: int) -> Array | None:
    """A scale's values by group, repeated where it has fewer; None where there is none or only the cost is asked."""
    if not group or given.scales[argument].quant.values is None:
        return None
    shape, values = given.shape, np.asarray(given.scales[argument].quant.values, np.float32)
    parts, axis = shape.k // group, 1 if argument == "src" else 0
    if values.ndim != 2:
        values = values.reshape((-1, 1) if argument == "src" else (1, -1))
    if 1 < values.shape[axis] < parts:
        values = np.repeat(values, parts // values.shape[axis], axis)
    return np.broadcast_to(values, (shape.m, parts) if argument == "src" else (parts, shape.n))
