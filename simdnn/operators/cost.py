"""The cost of an operator as a primitive, found from the shapes of its sources."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from isa_models import InvalidArgument
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.networks.network import Network
from simdnn.networks.shadows import shadow
from simdnn.operators import deconvolution_as_convolution
from simdnn.operators.fusing import fused
from simdnn.operators.graph_builder import STORED, TYPES, Ending
from simdnn.operators.recorded_passes import RecordingKernels
from simdnn.operators.results import OperatorEstimate, errors_of
from simdnn.operators.table import GRAPHS, graph_of
from simdnn.primitives import Attr
from simdnn.primitives.checks import integer, keyword, one_of
from simdnn.primitives.result import Estimate
from simdnn.primitives.run import Target

_ROWS = ("scale", "shift", "mean", "variance", "bias")  # of f32, that may be left out; asked for by True
_ENDING = ("scales", "post_ops", "into", "zero_points")


def cost(
    primitive: str, dt: str, bias: bool, shape: dict[str, Any], where: Mapping[str, Any]
) -> OperatorEstimate | Estimate:
    """The cost of a primitive of `GRAPHS`; the arguments are those of `simdnn.estimate`, `where` its machine, isa,
    threads and dispatch. Raises `InvalidArgument`.
    """
    build, names = GRAPHS[primitive]
    known = inspect.signature(build).parameters
    sources, dst = _shadows(primitive, names, dt, shape)
    wanted = {"bias": bias} | {name: shape.pop(name) for name in _ROWS if name in shape}
    for name in (name for name, asked in wanted.items() if asked):
        one_of(f"row of {primitive}", name, [row for row in _ROWS if row in known])
        sources[name] = shadow((_row_size(primitive, name, sources, shape),), np.dtype(np.float32))
    if shape.pop("condition", False):
        sources["condition"] = shadow(np.broadcast_shapes(*(a.shape for a in sources.values())), np.dtype(np.int8))
    last = one_of("tag", shape.pop("tag", "abx"), ("abx", "axb")) == "axb"
    end = Ending(dst, **{name: shape.pop(name) for name in _ENDING if shape.get(name) is not None}, last=last)
    for name in shape:
        keyword(primitive, name, [*known, *_ENDING])
    needed = [n for n, one in known.items() if one.default is one.empty and n not in (*names, *shape, "end")]
    if needed:
        raise InvalidArgument(f"{primitive} without {', '.join(needed)}")
    target = Target.of(**where, engine="auto")
    if primitive == "deconvolution" and deconvolution_as_convolution.taken(sources, shape, end, target):
        return deconvolution_as_convolution.price(sources, shape, end, target)
    made = graph_of(primitive, sources, shape, end, target)
    kernels = RecordingKernels(replace(target, dispatch="fastest"), Attr(), values=False, lanes=made.lanes)
    with errors_of(primitive):
        found = Network(made.graph).estimate_by(kernels, {n: a.shape for n, a in made.feeds.items()})
    nodes = fused(found.nodes, kernels, primitive, made.around(found.threads), made.streamed)
    return OperatorEstimate(found.machine, where["isa"], found.threads, nodes)


def _row_size(primitive: str, name: str, sources: Mapping[str, Any], options: Mapping[str, Any]) -> int:
    """How many values of f32 a row has."""
    if name == "bias":
        return int(sources["weights"].shape[0])
    shape = sources["src"].shape
    if primitive == "group_normalization" and name in ("mean", "variance"):
        return int(shape[0]) * integer("groups", options.get("groups"))
    if primitive != "layer_normalization":
        return int(shape[min(1, len(shape) - 1)])
    return int(shape[-1]) if name in ("scale", "shift") else prod(shape[:-1])


def _shadows(primitive: str, names: Sequence[str], dt: str, shape: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Sources without data, by their shapes, which are taken out of `shape`; and the destination's type."""
    types = dt.split(":") if isinstance(dt, str) else []
    if missing := [name for name in names if name not in shape]:
        raise InvalidArgument(f"{primitive} without the shape of {', '.join(missing)}, e.g. {missing[0]}=(64, 1000)")
    several = names == ("sources",)
    given = list(shape.pop("sources")) if several else [shape.pop(name) for name in names]
    types = types * (len(given) + 1) if len(types) == 1 else types
    if len(types) != len(given) + 1:
        raise InvalidArgument(f"dt={dt!r:.60}; {':'.join(names)}:dst is needed, or one type for all")
    known = STORED if primitive == "conversion" else TYPES
    each = zip([*names] * len(given), given, types, strict=False)
    found = [_shadow(name, sizes, one_of("dt", dtype, known)) for name, sizes, dtype in each]
    return ({"sources": found} if several else dict(zip(names, found, strict=True))), types[-1]


def _shadow(name: str, sizes: Any, dtype: str) -> Array:
    if isinstance(sizes, (str, bytes)) or not isinstance(sizes, Sequence):
        raise InvalidArgument(f"{name}={sizes!r:.60}; a shape is needed, e.g. (64, 1000)")
    return shadow([integer(name, size) for size in sizes], fmt(dtype).dtype)
