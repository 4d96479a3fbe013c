"""simdnn.inner_product: rows of flattened channels times weights (OC, IC, …)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from isa_models import GpuMachine, InvalidArgument, Machine, Unimplemented
from isa_models.formats import fmt, name_of
from isa_models.readings.arrays import Array
from simdnn.primitives import arrays
from simdnn.primitives.attr import Attr
from simdnn.primitives.checks import keywords
from simdnn.primitives.matmul import matmul
from simdnn.primitives.result import Estimate, Result
from simdnn.primitives.run import Target

if TYPE_CHECKING:
    from simdnn.timing.estimate import Cost


@keywords
def inner_product(
    src: Array,
    weights: Array,
    bias: Array | None = None,
    *,
    machine: str | PathLike[str] | Machine | GpuMachine,
    isa: str | None = None,
    dst: str | None = None,
    attr: Attr | None = None,
    threads: int = 1,
    engine: str = "auto",
    dispatch: str = "fastest",
    into: Array | None = None,
) -> Result:
    """Multiply `src` (N, IC, …) by `weights` (OC, IC, …), flattened: bits and cost of the matmul (N, IC…) x (IC…, OC).

    Types, attributes and the rest are those of `simdnn.matmul`; the output is (N, OC). Under dispatch="onednn" pixels
    come outside of channels in every sum, as the library lays its operands out. Raises `InvalidArgument` for shapes
    that do not fit, `Unimplemented` where that library takes kernels that are not modelled, and for other libraries.

    >>> import numpy as np
    >>> src, weights = np.ones((2, 8, 3, 3), np.float32), np.ones((4, 8, 3, 3), np.float32)
    >>> inner_product(src, weights, machine="zen4").output[0].tolist()
    [72.0, 72.0, 72.0, 72.0]
    """
    for name, array in (("src", src), ("weights", weights)):
        arrays.type_of(name, array)
    if src.ndim < 2 or src.ndim != weights.ndim or src.shape[1:] != weights.shape[1:]:
        raise InvalidArgument(f"src {src.shape} and weights {weights.shape}; (N, IC, …) and (OC, IC, …) are needed")
    where: dict[str, Any] = {"machine": machine, "isa": isa, "threads": threads, "engine": engine, "dispatch": dispatch}
    target = Target.of(**where)
    pixels = prod(src.shape[2:])
    tag, inside = layout(target, arrays.type_of("src", src), src.shape[1], pixels, attr)
    if inside:
        src, weights = (np.moveaxis(array, 1, -1) for array in (src, weights))
    channels = prod(src.shape[1:])
    rows, columns = src.reshape(len(src), channels), weights.reshape(len(weights), channels).T
    result = matmul(rows, columns, bias, dst=dst, attr=attr, wei_tag=tag, into=into, **where)
    operands = arrays.type_of("src", src), arrays.type_of("weights", weights)
    types = *operands, name_of(result.output.dtype), "" if bias is None else name_of(bias.dtype)
    name = library_name(target, (types, result.library, len(weights), pixels))
    return replace(result, library=name, find_cost=nested(result, target))


def nested(product: Estimate, target: Target) -> Callable[[], Cost]:
    """Finds the cost of a matmul that is run by an inner product of a library."""
    more = target.library.nested if target.library is not None else 0.0
    return partial(_nested, product.find_cost, more) if more else product.find_cost


def _nested(find_cost: Callable[[], Cost], more: float) -> Cost:
    return find_cost().launched(more, more)


def layout(target: Target, src: str, channels: int, pixels: int, attr: Attr | None) -> tuple[str, bool]:
    """The layout of the weights of the matmul that an inner product is, and whether channels lie inside of pixels; a
    library may have one of its own.

    Raises `Unimplemented` for libraries whose inner products are not modelled, and for attributes that they refuse.
    """
    library = target.library
    if library is None:
        return "any", False
    if library.inner_product is None:
        raise Unimplemented(
            f"dispatch={target.dispatch!r}: {library.title}'s kernels for inner products are not modelled; what works: "
            "'fastest', or its choice for the matmul"
        )
    if attr is not None and (attr.zero_points or (attr.scales and fmt(src).is_float)):
        raise Unimplemented(
            f"{library.title}'s inner products have no zero points, and scales of integers alone; what works: "
            "dispatch='fastest', or its choice for the matmul"
        )
    for argument, scale in ({} if attr is None else attr.scales).items():
        library.check_parameter_type("inner product", "scales", argument, scale.dtype or "f32")
    return library.inner_product(src, channels, pixels, target.caps)


def library_name(target: Target, facts: tuple[tuple[str, ...], str, int, int]) -> str:
    """A library's name of an inner product; "" without a library. `facts`: the types of source, weights,
    destination and bias ("" without), its name of the matmul's implementation, output channels, pixels. Raises
    `Unimplemented` where it does not leave inner products to that.
    """
    return target.library.name_inner_product(*facts, target.caps) if target.library is not None else ""
