"""Scales of an integer matmul that change along K or from row to row: their place in the problem, their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from isa_models import InvalidArgument
from isa_models.readings.arrays import Array
from simdnn.kernels.common.epilogue import Epilogue, GroupScales, Parameters
from simdnn.kernels.common.params import Param, Params
from simdnn.primitives.placed import Valued
from simdnn.primitives.resolve import Resolved, floats


def params_of(given: Resolved) -> Params:
    """The parameters of an integer matmul, as a library judges them."""

    def found(valued: Mapping[str, Valued]) -> dict[str, Param]:
        return {name: one.param for name, one in valued.items()}

    return Params(found(given.scales), found(given.zero_points), given.reductions is not None)


def group_scales(given: Resolved, exact: bool = False, merged: bool = False, finest: int = 0) -> GroupScales | None:
    """How scales change along K; None where they do not. Raises `InvalidArgument` where groups do not nest.

    A group's sum is scaled by what is grouped and the total by the rest; kernels that are `exact` scale each group's by
    both, down to the `finest` of zero points where there is one. `merged`: the weights' scales come multiplied by the
    source's common one.
    """
    k = given.shape.k
    by_points = 0 < finest < k
    scales = given.integer_scales if by_points else given.along_k
    if not scales:
        return None
    kept = {name: one.param.of_groups(k) for name, one in scales.items() if exact or one.param.along_k}
    if by_points:
        kept = {name: param.in_groups(min(param.length(k), finest)) for name, param in kept.items()}
    lengths = {name: param.length(k) for name, param in kept.items()}
    if max(lengths.values()) % min(lengths.values()):
        said = " and ".join(f"{length} ({name})" for name, length in lengths.items())
        raise InvalidArgument(f"scales in groups of {said} along K; one must divide the other")
    one_group = min(lengths.values()) == k
    src, wei = kept.get("src"), kept.get("wei")
    return GroupScales(src, wei, not (one_group or exact), exact, merged=merged and src is None)


def with_groups(
    epilogue: Epilogue, parameters: Parameters, given: Resolved, groups: GroupScales | None
) -> tuple[Epilogue, Parameters]:
    """Scales by group as tables, source (M, K / group), weights (K / group, N); the others in the epilogue."""
    if groups is None:
        return epilogue, parameters
    rest = {name: p for name, p in given.integer_scales.items() if not getattr(groups, name)}
    wei = rest.get("wei")
    epilogue = replace(epilogue, src_scale="src" in rest, wei_scale=wei.param if wei else None)
    parameters = replace(
        parameters,
        src_scale=float(floats(rest.get("src"))[0]),
        wei_scale=floats(wei) if wei else _table(given, groups.wei),
        src_group_scale=_table(given, groups.src),
    )
    return with_one_scale(epilogue, parameters) if groups.merged else (epilogue, parameters)


def with_one_scale(epilogue: Epilogue, parameters: Parameters) -> tuple[Epilogue, Parameters]:
    """The weights' scales multiplied by the source's common one, ahead of time."""
    scales = parameters.wei_scale
    merged = None if scales is None else np.asarray(scales, np.float32) * np.float32(parameters.src_scale)
    return replace(epilogue, src_scale=False), replace(parameters, wei_scale=merged, src_scale=1.0)


def _table(given: Resolved, param: Param | None) -> Array | None:
    """A scale's values by group, repeated where it has fewer; None where there is none or only the cost is asked."""
    if param is None or given.scales[param.argument].values is None:
        return None
    shape, values, source = (
        given.shape,
        np.asarray(given.scales[param.argument].values, np.float32),
        param.argument == "src",
    )
    parts, axis = shape.k // param.length(shape.k), 1 if source else 0
    if values.ndim != 2:
        values = values.reshape((-1, 1) if source else (1, -1))
    if 1 < values.shape[axis] < parts:
        values = np.repeat(values, parts // values.shape[axis], axis)
    return np.broadcast_to(values, (shape.m, parts) if source else (parts, shape.n))
