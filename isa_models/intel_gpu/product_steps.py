"""Whole steps of a product on Intel's vector pipe, written as one form each.

mad.f32.8x16x4          acc + A x B, k after k          M * K instructions
dp4a.s8.u8.8.8.x16.s32  acc + A x B, packed as for DPAS M * K / 4 instructions
"""

from __future__ import annotations

import functools

from isa_models.algebra import Value
from isa_models.gpu.block_forms import BlockForm, block_of
from isa_models.gpu.naming import Naming
from isa_models.instruction import FORMS, GPU_REGISTRY
from isa_models.intel_gpu.dpas import DEPTH, DpasShape, multiply, rows_of_piece

PRODUCT = Naming("mad.f32.{m}x{n}x{k}")
DOT = Naming(f"dp4a.{{b}}.{{a}}.{DEPTH}.{{m}}.x{{n}}.s32", a=("s8", "u8"), b=("s8", "u8"))


@functools.cache
def _product(name: str) -> BlockForm | None:
    """A (M, K) and B (K, N) by rows: an outer product for each k."""
    if (fields := PRODUCT.read(name)) is None:
        return None
    m, n, k = (fields[size] for size in "mnk")
    unit = GPU_REGISTRY["mad.f32"]

    def product(acc: Value, a: Value, b: Value) -> Value:
        for step in range(k):
            column = a.permute([r * k + step for r in range(m) for _ in range(n)])
            acc = unit.function(acc, column, b.permute([step * n + c for _ in range(m) for c in range(n)]))
        return acc

    operands = (("acc", "f32", m * n), ("a", "f32", m * k), ("b", "f32", k * n))
    return block_of(name, unit, product, m * n, operands, m * k, n, PRODUCT.of(**{**fields, "m": rows_of_piece(m, n)}))


@functools.cache
def _dot(name: str) -> BlockForm | None:
    """A and B of bytes packed as DPAS's are: a DP4A for each row and each four of K."""
    if (fields := DOT.read(name)) is None:
        return None
    shape = DpasShape(dst="s32", acc="s32", **fields)
    unit = GPU_REGISTRY[f"dp4a.{shape.a}.{shape.b}.s32"]

    def dots(acc: Value, b: Value, a: Value) -> Value:
        return multiply(shape, acc, b, a)

    size = shape.m * shape.n
    operands = (("acc", "s32", size), ("b", "u32", shape.b_words), ("a", "u32", shape.a_words))
    return block_of(name, unit, dots, size, operands, shape.m * shape.k // 4, shape.n, DOT.of(**{**fields, "m": 1}))


FORMS.append(_product)
FORMS.append(_dot)
