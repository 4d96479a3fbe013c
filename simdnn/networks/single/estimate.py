"""simdnn.estimate: what a problem of any primitive costs, without data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Literal, overload

import numpy as np

from isa_models import InvalidArgument
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.networks.kernels import shadow
from simdnn.networks.model import Graph
from simdnn.networks.network import Network
from simdnn.networks.single import graphs
from simdnn.networks.single.graphs import TYPES
from simdnn.networks.single.primitives import OperatorEstimate, Where
from simdnn.primitives import Attr
from simdnn.primitives.checks import integer, keyword, keywords, one_of
from simdnn.primitives.estimate import estimate as estimate_product
from simdnn.primitives.result import Estimate

Product = Literal["matmul", "convolution", "inner_product"]
#: graphs by the primitives' names, their sources, and rows of f32 that may be left out
_GRAPHS: dict[str, tuple[Callable[..., Graph], tuple[str, ...], tuple[str, ...]]] = {
    "softmax": (graphs.softmax, ("src",), ()),
    "layer_normalization": (graphs.layer_normalization, ("src",), ("scale", "shift")),
    "eltwise": (graphs.eltwise, ("src",), ()),
    "binary": (graphs.binary, ("src0", "src1"), ()),
    "pooling": (graphs.pooling, ("src",), ()),
    "deconvolution": (graphs.deconvolution, ("src", "weights"), ("bias",)),
}
_NAMES = ("matmul", "convolution", "inner_product", *_GRAPHS)


@overload
def estimate(
    primitive: Product,
    *,
    dt: str = "f32",
    bias: bool = False,
    machine: Where,
    isa: str | None = None,
    attr: Attr | None = None,
    threads: int = 1,
    dispatch: str = "fastest",
    **shape: Any,
) -> Estimate: ...
@overload
def estimate(
    primitive: str,
    *,
    dt: str = "f32",
    bias: bool = False,
    machine: Where,
    isa: str | None = None,
    attr: Attr | None = None,
    threads: int = 1,
    dispatch: str = "fastest",
    **shape: Any,
) -> Any: ...
@keywords
def estimate(
    primitive: str,
    *,
    dt: str = "f32",
    bias: bool = False,
    machine: Where,
    isa: str | None = None,
    attr: Attr | None = None,
    threads: int = 1,
    dispatch: str = "fastest",
    **shape: Any,
) -> Any:
    """The cost of a problem; no operand is allocated. `dt` is src:weights:dst, or one type for all three.

    "matmul": m, n, k, src_batch=(), wei_batch=(): the sizes in front of the matrices, which broadcast.
    "convolution": ic, ih, iw, oc, kh, kw, mb=1, strides=1, padding=0, dilation=1, groups=1. Both: wei_tag="any", and
    src_tag and dst_tag, which are "any" or what kernels here read and write: "ab" or "nhwc". The answer's `src_desc`,
    `weights_desc` and `dst_desc` tell the layouts and types that the kernel wants. Parameters of `attr` may be
    `Quant(None, …)`. "inner_product": mb, ic, oc, spatial=(): the matmul of flattened channels.

    "softmax", "layer_normalization", "eltwise", "pooling": src=(sizes), "binary": src0 and src1, "deconvolution": src
    and weights, all as shapes, and the options of the function of that name; `dt` has the sources' types and dst's.
    Rows of f32 are asked for by True: bias, scale, shift. There is no `attr` and one `dispatch` for these.

    Raises `InvalidArgument` for sizes that do not fit, `Unimplemented` with what works for what no kernel computes.

    >>> import simdnn
    >>> sizes = {"m": 256, "n": 256, "k": 256, "machine": "icx"}
    >>> f32, int8 = (simdnn.estimate("matmul", dt=dt, **sizes) for dt in ("f32", "u8:s8:s32"))
    >>> int8.implementation, f"{f32.cycles / int8.cycles:.0f} times as fast"
    ('gemm:avx512_core_vnni', '4 times as fast')
    >>> row = simdnn.estimate("softmax", src=(64, 1000), dt="bf16:u8", scales={"dst": 1 / 255}, machine="zen4")
    >>> row.to_frame()["op"].tolist()
    ['Cast', 'Softmax', 'QuantizeLinear', 'Identity']
    """
    one_of("primitive", primitive, _NAMES)
    where: dict[str, Any] = {"machine": machine, "isa": isa, "threads": threads}
    if primitive not in _GRAPHS:
        sizes = _flattened(shape) if primitive == "inner_product" else shape
        product = "matmul" if primitive == "inner_product" else primitive
        return estimate_product(product, dt=dt, bias=bias, attr=attr, dispatch=dispatch, **where, **sizes)
    if attr is not None or dispatch != "fastest":
        raise InvalidArgument(f"{primitive} with attr or dispatch={dispatch!r}; it has scales=…, and one dispatch")
    build, names, rows = _GRAPHS[primitive]
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


def _flattened(shape: Mapping[str, Any]) -> dict[str, Any]:
    """An inner product's sizes as a matmul's."""
    given = {"spatial": (), "mb": 1, **shape}
    for name in given:
        keyword("inner_product", name, ("mb", "ic", "oc", "spatial"))
    if missing := [name for name in ("ic", "oc") if name not in given]:
        raise InvalidArgument(f"inner_product without {', '.join(missing)}; needed: ic, oc")
    sizes = given["spatial"]
    spatial = [integer("spatial", size) for size in (sizes if isinstance(sizes, (tuple, list)) else [sizes])]
    return {"m": given["mb"], "n": given["oc"], "k": integer("ic", given["ic"]) * prod(spatial)}


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
