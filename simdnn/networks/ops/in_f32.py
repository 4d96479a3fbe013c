"""Operators that onnxruntime computes in f32 where their operands are f16, and whose outputs it rounds once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from isa_models.readings.arrays import Array
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.elementwise import by_numpy
from simdnn.networks.passes.element_types import formal_types
from simdnn.networks.types import F16, F32

HALVES = "of f16"  # the attribute of a node that is run so


def in_f32(run: Callable[..., Any]) -> Callable[..., Any]:
    """The operator `run` with operands of f16 widened, and the outputs of their type rounded; in other libraries as it
    is.
    """

    @functools.wraps(run)
    def widened(k: Kernels, node: Node, *operands: Array | None) -> Any:
        if not k.runs_models or not any(a is not None and a.dtype == F16 for a in operands):
            return run(k, node, *operands)
        inner = replace(node, attributes={**node.attributes, HALVES: 1})
        found = run(k, inner, *[a if a is None else as_type(k, a, F16, F32) for a in operands])
        takes, gives = formal_types(node.op, node.version, node.domain)
        made = found if isinstance(found, tuple) else (found,)
        stay = [at < len(gives) and gives[at] not in takes for at in range(len(made))]  # statistics, in f32
        return tuple(a if a is None or s else as_type(k, a, F32, F16) for a, s in zip(made, stay, strict=True))

    return widened


def as_type(k: Kernels, a: Array, before: Any, after: Any) -> Array:
    """An array of one type in another; others as they are."""
    return by_numpy(k, lambda v: v, a, dst=after) if a.dtype == before else a


def rounded(k: Kernels, a: Array) -> Array:
    """f32 values rounded to f16."""
    return as_type(k, as_type(k, a, F32, F16), F16, F32)
