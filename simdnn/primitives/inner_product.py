"""simdnn.inner_product: rows of flattened channels times weights (OC, IC, …)."""

from __future__ import annotations

from os import PathLike
from typing import Any

from isa_models import GpuMachine, InvalidArgument, Machine, Unimplemented
from isa_models.readings.arrays import Array
from simdnn.libraries import LIBRARIES
from simdnn.primitives import arrays
from simdnn.primitives.attr import Attr
from simdnn.primitives.checks import keywords
from simdnn.primitives.matmul import matmul
from simdnn.primitives.result import Result


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
) -> Result:
    """Multiply `src` (N, IC, …) by `weights` (OC, IC, …), flattened: bits and cost of the matmul (N, IC…) x (IC…, OC).

    Types, attributes and the rest are those of `simdnn.matmul`; the output is (N, OC). Raises `InvalidArgument` for
    shapes that do not fit, and `Unimplemented` for dispatch="onednn", whose own kernels for inner products are not
    modelled.

    >>> import numpy as np
    >>> src, weights = np.ones((2, 8, 3, 3), np.float32), np.ones((4, 8, 3, 3), np.float32)
    >>> inner_product(src, weights, machine="zen4").output[0].tolist()
    [72.0, 72.0, 72.0, 72.0]
    """
    for name, array in (("src", src), ("weights", weights)):
        arrays.type_of(name, array)
    if src.ndim < 2 or src.ndim != weights.ndim or src.shape[1:] != weights.shape[1:]:
        raise InvalidArgument(f"src {src.shape} and weights {weights.shape}; (N, IC, …) and (OC, IC, …) are needed")
    refuse_library(dispatch)
    where: dict[str, Any] = {"machine": machine, "isa": isa, "threads": threads, "engine": engine, "dispatch": dispatch}
    return matmul(src.reshape(len(src), -1), weights.reshape(len(weights), -1).T, bias, dst=dst, attr=attr, **where)


def refuse_library(dispatch: object) -> None:
    """Raises `Unimplemented` for an inner product as a library would compute it."""
    if isinstance(dispatch, str) and dispatch in LIBRARIES:
        raise Unimplemented(
            f"dispatch={dispatch!r}: {LIBRARIES[dispatch].title}'s kernels for inner products are not modelled; what "
            "works: 'fastest', or its choice for the matmul"
        )
