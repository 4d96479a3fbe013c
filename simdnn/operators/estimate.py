"""simdnn.estimate: what a problem of any primitive costs, without data."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, Literal, overload

from isa_models import InvalidArgument
from simdnn.primitives import Attr
from simdnn.primitives.checks import integer, keyword, keywords, one_of
from simdnn.primitives.estimate import estimate as estimate_product
from simdnn.primitives.inner_product import layout, library_name, nested
from simdnn.primitives.result import Estimate
from simdnn.primitives.run import Target

if TYPE_CHECKING:
    from simdnn.operators.results import Where

Product = Literal["matmul", "convolution", "inner_product"]
_PRODUCTS = ("matmul", "convolution", "inner_product")


def _of_primitives(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which says first of all that there is no such primitive."""

    @functools.wraps(function)
    def known(*primitive: str, **given: Any) -> Any:
        asked = primitive[0] if primitive else given.get("primitive", "matmul")
        if not isinstance(asked, str) or asked not in _PRODUCTS:
            from simdnn.operators.table import GRAPHS  # brings networks, which products don't need

            one_of("primitive", asked, (*_PRODUCTS, "attention", *GRAPHS))
        return function(*primitive, **given)

    return known


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
@_of_primitives
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
    "convolution": ic, ih, iw, oc, kh, kw, mb=1, strides=1, padding=0, dilation=1, groups=1; id and kd of three spatial
    dimensions, no ih and kh of one. Both: wei_tag="any", and
    src_tag and dst_tag, which are "any" or what kernels here read and write: "ab" or "nhwc". The answer's `src_desc`,
    `weights_desc` and `dst_desc` tell the layouts and types that the kernel wants. Parameters of `attr` may be
    `Quant(None, …)`. "inner_product": mb, ic, oc, spatial=(): the matmul of flattened channels.

    "attention": heads, lq, lk, d (queries, keys, their size), kv_heads=heads, dv=d, batch=1, causal=False, window=None,
    mask=False.
    "softmax", "layer_normalization", "eltwise", "pooling", "conversion", …: src=(sizes), "binary": src0 and src1,
    "deconvolution" and "prelu": src and weights, "concat" and "weighted_sum": sources, all as shapes, and options of
    the function of that name; `dt` has the sources' types and dst's. Rows of f32 are asked for by True: bias, scale,
    shift, mean, variance. Arrays of post-operations are read for their shapes. There is no `attr`; `dispatch` is
    "fastest" or "onednn", whose kernels may differ where channels lie last in memory: tag="axb" ("abx": in rows).

    Raises `InvalidArgument` for sizes that do not fit, `Unimplemented` with what works for what no kernel computes.

    >>> import simdnn
    >>> sizes = {"m": 256, "n": 256, "k": 256, "machine": "icx"}
    >>> f32, int8 = (simdnn.estimate("matmul", dt=dt, **sizes) for dt in ("f32", "u8:s8:s32"))
    >>> int8.implementation, f"{f32.cycles / int8.cycles:.0f} times as fast"
    ('gemm:avx512_core_vnni', '4 times as fast')
    >>> row = simdnn.estimate("softmax", src=(64, 1000), dt="bf16:u8", scales={"dst": 1 / 255}, machine="zen4")
    >>> row.to_frame()["op"].tolist()
    ['Cast', 'Softmax', 'Div', 'Quantize', 'Identity']
    """
    where: dict[str, Any] = {"machine": machine, "isa": isa, "threads": threads}
    if primitive in _PRODUCTS:
        if primitive == "inner_product":
            return _inner_product(dt, bias, attr, {**where, "dispatch": dispatch}, shape)
        return estimate_product(primitive, dt=dt, bias=bias, attr=attr, dispatch=dispatch, **where, **shape)
    from simdnn.operators.cost import cost  # brings networks, which products don't need

    if primitive == "attention":
        from simdnn.operators.attention import price

        if attr is not None or bias:
            raise InvalidArgument("attention with attr or bias; it has causal=True and mask=True")
        return price(dt, shape, {**where, "dispatch": dispatch})
    if attr is not None:
        raise InvalidArgument(f"{primitive} with attr; it has scales=…, post_ops=…")
    return cost(primitive, dt, bias, shape, {**where, "dispatch": dispatch})


def _inner_product(
    dt: str, bias: bool, attr: Attr | None, where: Mapping[str, Any], shape: Mapping[str, Any]
) -> Estimate:
    """The cost of the matmul that an inner product is."""
    given = {"spatial": (), "mb": 1, **shape}
    for name in given:
        keyword("inner_product", name, ("mb", "ic", "oc", "spatial", "wei_tag"))
    if missing := [name for name in ("ic", "oc") if name not in given]:
        raise InvalidArgument(f"inner_product without {', '.join(missing)}; needed: ic, oc")
    spatial = given["spatial"] if isinstance(given["spatial"], (tuple, list)) else [given["spatial"]]
    channels, pixels = integer("ic", given["ic"]), prod(integer("spatial", size) for size in spatial)
    target = Target.of(**where, engine="auto")
    tag = given.get("wei_tag", layout(target, dt.split(":")[0], channels, pixels, attr)[0])
    sizes = {"m": given["mb"], "n": given["oc"], "k": channels * pixels, "wei_tag": tag}
    found = estimate_product("matmul", dt=dt, bias=bias, attr=attr, **where, **sizes)
    ending = found.problem.epilogue
    types = found.problem.src, dt.split(":")[min(1, dt.count(":"))], ending.dst, ending.bias_stored if bias else ""
    name = library_name(target, (types, found.library, given["oc"], pixels))
    return replace(found, library=name, find_cost=nested(found, target))
