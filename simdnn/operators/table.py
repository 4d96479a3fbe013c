"""Primitives beside products by name, and their programs as a rule of dispatch has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from isa_models import InvalidArgument
from isa_models.formats import fmt
from isa_models.readings.arrays import is_masked
from simdnn.libraries import LIBRARIES, OperatorCall
from simdnn.networks.types import label
from simdnn.operators import graphs, moves, windows
from simdnn.operators.graph_builder import Ending, OperatorGraph
from simdnn.primitives.run import Target

#: graphs by the primitives' names, and their sources; "sources" are several
GRAPHS: dict[str, tuple[Callable[..., OperatorGraph], tuple[str, ...]]] = {
    "softmax": (graphs.softmax, ("src",)),
    "layer_normalization": (graphs.layer_normalization, ("src",)),
    "batch_normalization": (graphs.batch_normalization, ("src",)),
    "group_normalization": (graphs.group_normalization, ("src",)),
    "reduction": (graphs.reduction, ("src",)),
    "eltwise": (graphs.eltwise, ("src",)),
    "binary": (graphs.binary, ("src0", "src1")),
    "prelu": (graphs.prelu, ("src", "weights")),
    "concat": (moves.concat, ("sources",)),
    "weighted_sum": (moves.weighted_sum, ("sources",)),
    "shuffle": (moves.shuffle, ("src",)),
    "conversion": (moves.conversion, ("src",)),
    "pooling": (windows.pooling, ("src",)),
    "resampling": (windows.resampling, ("src",)),
    "lrn": (windows.lrn, ("src",)),
    "deconvolution": (windows.deconvolution, ("src", "weights")),
}


def gathered(primitive: str, sources: Mapping[str, Any]) -> dict[str, Any]:
    """The sources that are there or have to be, as plain arrays in this machine's order of bytes."""
    needed = GRAPHS[primitive][1]
    return {name: _plain(value) for name, value in sources.items() if value is not None or name in needed}


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if not isinstance(value, np.ndarray) or is_masked(value):
        return value
    return np.asarray(value).astype(value.dtype.newbyteorder("="), copy=False)


def graph_of(
    primitive: str, sources: Mapping[str, Any], options: Mapping[str, Any], end: Ending, target: Target
) -> OperatorGraph:
    """A primitive's program: a library's operations in its order where the target asks for its bits.

    Raises `InvalidArgument` for what does not fit, and for the name of a kernel as the rule of dispatch;
    `Unimplemented` where that library's bits are not known.
    """
    build = GRAPHS[primitive][0]
    library = target.library
    if library is None and target.dispatch != "fastest":
        rules = ", ".join(("fastest", *LIBRARIES))
        raise InvalidArgument(f"dispatch={target.dispatch!r} names a kernel of products; {primitive} has {rules}")
    if library is None:
        return build(**sources, **options, end=end)
    build(**sources, **options, end=end)  # checks the arguments
    call = call_of(primitive, sources, options, end, target)
    form = library.operator(call)
    made = build(**sources, **options, end=replace(end, form=form, caps=target.caps, last=call.channels_last))
    around, streamed = partial(library.around_operator, call, form), 0
    if form.streams:
        streamed = prod(call.shapes[0]) * fmt(call.dst).bits // 8
    return replace(made, around=around, lanes=form.lanes, streamed=streamed)


def shape_of(operand: np.ndarray[Any, Any], rank: int) -> tuple[int, ...]:
    """The sizes of an operand in as many dimensions as it broadcasts to: (C, 1, 1) of images as (1, C, 1, 1)."""
    return (*(1,) * (rank - operand.ndim), *operand.shape)


def call_of(
    primitive: str, sources: Mapping[str, Any], options: Mapping[str, Any], end: Ending, target: Target
) -> OperatorCall:
    """The facts of a primitive that a library is asked about; its arguments are checked."""
    several = sources["sources"] if "sources" in sources else [sources[name] for name in GRAPHS[primitive][1]]
    asked = [(op,) if isinstance(op, str) else tuple(op) for op in end.post_ops]
    rank = several[0].ndim
    post_ops = tuple(tuple(shape_of(x, rank) if isinstance(x, np.ndarray) else x for x in op) for op in asked)
    usual = label(several[0].dtype)
    if primitive == "deconvolution":
        options = {**options, **windows.taps_of(several[0], options)}
    if primitive == "pooling":
        options = {**options, **windows.pooled(several[0], options)}
    if primitive == "resampling":
        options = {**options, "out": windows.axes_of("size", options["size"], rank - 2)}
    return OperatorCall(
        primitive,
        tuple(label(array.dtype) for array in several),
        usual if end.dst is None else end.dst,
        tuple(array.shape for array in several),
        options,
        end.scales or {},
        end.zero_points or {},
        post_ops,
        frozenset(name for name in sources if name not in GRAPHS[primitive][1]),
        target.caps,
        *graphs.lies(several[0], end.last),
        label(sources["bias"].dtype) if "bias" in sources else "",
        tuple(label(x.dtype) for op in asked for x in op if isinstance(x, np.ndarray)),
    )
