"""The cost of an operator as a primitive, found from the shapes of its sources."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from isa_models import InvalidArgument
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.networks.kernels import shadow
from simdnn.networks.model import Graph
from simdnn.networks.network import Network
from simdnn.operators import graphs
from simdnn.operators.graphs import TYPES
from simdnn.operators.primitives import OperatorEstimate
from simdnn.primitives.checks import integer, keyword, one_of

#: graphs by the primitives' names, their sources, and rows of f32 that may be left out
GRAPHS: dict[str, tuple[Callable[..., Graph], tuple[str, ...], tuple[str, ...]]] = {
    "softmax": (graphs.softmax, ("src",), ()),
    "layer_normalization": (graphs.layer_normalization, ("src",), ("scale", "shift")),
    "eltwise": (graphs.eltwise, ("src",), ()),
    "binary": (graphs.binary, ("src0", "src1"), ()),
    "pooling": (graphs.pooling, ("src",), ()),
    "deconvolution": (graphs.deconvolution, ("src", "weights"), ("bias",)),
}


def cost(primitive: str, dt: str, bias: bool, shape: dict[str, Any], where: Mapping[str, Any]) -> OperatorEstimate:
    """The cost of a primitive of `GRAPHS`; the arguments are those of `simdnn.estimate`, `where` its machine, isa and
    threads. Raises `InvalidArgument`.
    """
    build, names, rows = GRAPHS[primitive]
    sources, dst = _shadows(primitive, names, dt, shape)
    wanted = {"bias": bias} | {name: shape.pop(name) for name in ("scale", "shift") if name in shape}
    for name in (name for name, asked in wanted.items() if asked):
        one_of(f"row of {primitive}", name, rows)
        size = sources["weights"].shape[0] if name == "bias" else sources["src"].shape[-1]
        sources[name] = shadow((size,), np.dtype(np.float32))
    known = inspect.signature(build).parameters
    for name in shape:
        keyword(primitive, name, known)
    needed = [name for name, one in known.items() if one.default is one.empty and name not in (*names, *shape)]
    if needed:
        raise InvalidArgument(f"{primitive} without {', '.join(needed)}")
    found = Network(build(**sources, dst=dst, **shape)).estimate({n: a.shape for n, a in sources.items()}, **where)
    return OperatorEstimate(found.machine, found.isa, found.threads, found.nodes)


def _shadows(primitive: str, names: Sequence[str], dt: str, shape: dict[str, Any]) -> tuple[dict[str, Array], str]:
    """Sources without data, by their shapes, which are taken out of `shape`; and the destination's type."""
    types = dt.split(":") if isinstance(dt, str) else []
    types = types * (len(names) + 1) if len(types) == 1 else types
    if len(types) != len(names) + 1:
        raise InvalidArgument(f"dt={dt!r:.60}; {':'.join(names)}:dst is needed, or one type for all")
    if missing := [name for name in names if name not in shape]:
        raise InvalidArgument(f"{primitive} without the shape of {', '.join(missing)}, e.g. {missing[0]}=(64, 1000)")
    found = {}
    for name, dtype in zip(names, types, strict=False):
        sizes = shape.pop(name)
        if isinstance(sizes, (str, bytes)) or not isinstance(sizes, Sequence):
            raise InvalidArgument(f"{name}={sizes!r:.60}; a shape is needed, e.g. (64, 1000)")
        found[name] = shadow([integer(name, size) for size in sizes], fmt(one_of("dt", dtype, TYPES)).dtype)
    return found, types[-1]
