"""Runs of vector instructions over a block of M rows by N lanes, written as one.

A register file's regions let an instruction read one row of N lanes, or one lane for all of them, so a block of M rows
takes M instructions whose operands differ by a row. A block form stands for them: `repeats` says for how many.

    add.f32.8x16.row      acc + a row of N lanes (bias)          M instructions
    mul.f32.8x16.col      acc * one lane for each row (tokens)   M instructions
    mad.s32.8x16.outer    acc + column * row                     M instructions
    madw.s32.8x16.row     acc + x * row (of 16 bits), x of M x N M instructions
    mad.f32.8x16x4          acc + A x B, k after k               M * K instructions
    dp4a.s8.u8.8.8.x16.s32  acc + A x B, packed as for DPAS      M * K / 4 instructions
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

from isa_models.algebra import Value
from isa_models.formats import fmt
from isa_models.instruction import FORMS, GPU_REGISTRY, Instruction, Operand
from isa_models.intel_gpu.dp4a import CAPS
from isa_models.intel_gpu.dpas import Shape, multiply


@dataclass(frozen=True)
class BlockForm(Instruction):
    """A run of instructions as one, over operands of fixed sizes."""

    counts: tuple[int, ...] = ()
    size: int = 0  # lanes of the result
    repeats: int = 1
    unit: str = ""  # the instruction that is repeated, by which the clock charges
    each: int = 0  # lanes of each of them

    def lanes(self, width: int) -> int:
        return self.size

    def operand_lanes(self, operand: Operand, lanes: int) -> int:
        return self.counts[self.operands.index(operand)]


_VECTOR = re.compile(r"(add|sub|mul|max|madw?)\.(f32|f16|s32|s16)\.(\d+)x(\d+)\.(row|col|outer)")
_PRODUCT = re.compile(r"mad\.f32\.(\d+)x(\d+)x(\d+)")
_DOT = re.compile(r"dp4a\.([su]8)\.([su]8)\.8\.(\d)\.x(\d+)\.s32")


def spread(value: Value, m: int, n: int, kind: str) -> Value:
    """N lanes in each of M rows, or each of M lanes along its row."""
    return value.permute(list(range(n)) * m if kind == "row" else [r for r in range(m) for _ in range(n)])


@functools.cache
def block_form(name: str) -> BlockForm | None:
    """The form of a full name, None where it is none."""
    if match := _DOT.fullmatch(name):
        a_type, b_type, m, n = match[2], match[1], int(match[3]), int(match[4])
        return _dots(name, Shape(b_type, a_type, "s32", "s32", m, n))
    if match := _PRODUCT.fullmatch(name):
        return _products(name, int(match[1]), int(match[2]), int(match[3]))
    match = _VECTOR.fullmatch(name)
    if match is None or f"{match[1]}.{match[2]}" not in GPU_REGISTRY:
        return None
    if (match[5] == "outer" and "mad" not in match[1]) or (match[5] == "col" and "mad" in match[1]):
        return None
    kind, dtype, m, n, way = match[1], match[2], int(match[3]), int(match[4]), match[5]
    basic = GPU_REGISTRY[f"{kind}.{dtype}"]

    def one(acc: Value, x: Value) -> Value:
        result: Value = basic.function(acc, spread(x, m, n, way))
        return result

    def scaled(acc: Value, x: Value, row: Value) -> Value:
        result: Value = basic.function(acc, x, spread(row, m, n, "row"))
        return result

    def two(acc: Value, column: Value, row: Value) -> Value:
        result: Value = basic.function(acc, spread(column, m, n, "col"), spread(row, m, n, "row"))
        return result

    column, row = (Operand("column", dtype, 1 / n), m), (Operand("row", "s16" if kind == "madw" else dtype, 1 / m), n)
    others = {"row": [row], "col": [column], "outer": [column, row]}[way]
    if "mad" in kind and way == "row":
        others = [(Operand("x", dtype), m * n), row]
    parts = [(Operand("acc", dtype), m * n), *others]
    function: Callable[..., Value] = two if way == "outer" else scaled if "mad" in kind else one
    operands, counts = tuple(operand for operand, _ in parts), tuple(count for _, count in parts)
    return BlockForm(
        name,
        operands,
        dtype,
        function,
        basic.manual,
        CAPS,
        accumulates="mad" in kind,
        native=False,
        counts=counts,
        size=m * n,
        repeats=m,
        unit=basic.name,
        each=n,
    )


def _products(name: str, m: int, n: int, k: int) -> BlockForm:
    """A (M, K) and B (K, N) by rows: an outer product for each k."""
    basic = GPU_REGISTRY["mad.f32"]

    def product(acc: Value, a: Value, b: Value) -> Value:
        for step in range(k):
            column = a.permute([r * k + step for r in range(m) for _ in range(n)])
            acc = basic.function(acc, column, b.permute([step * n + c for _ in range(m) for c in range(n)]))
        return acc

    operands = (Operand("acc", "f32"), Operand("a", "f32", k / n), Operand("b", "f32", k / m))
    return BlockForm(
        name,
        operands,
        "f32",
        product,
        basic.manual,
        CAPS,
        accumulates=True,
        native=False,
        counts=(m * n, m * k, k * n),
        size=m * n,
        repeats=m * k,
        unit=basic.name,
        each=n,
    )


def _dots(name: str, shape: Shape) -> BlockForm:
    lanes = shape.m * shape.n
    sizes = (shape.k * shape.n * fmt(shape.b).bits // 32, shape.m * shape.k * fmt(shape.a).bits // 32)

    def dots(acc: Value, b: Value, a: Value) -> Value:
        return multiply(shape, acc, b, a)

    operands = (Operand("acc", "s32"), Operand("b", "u32", sizes[0] / lanes), Operand("a", "u32", sizes[1] / lanes))
    unit = f"dp4a.{shape.a}.{shape.b}.s32"
    return BlockForm(
        name,
        operands,
        "s32",
        dots,
        GPU_REGISTRY[unit].manual,
        CAPS,
        accumulates=True,
        native=False,
        counts=(lanes, *sizes),
        size=lanes,
        repeats=shape.m * shape.k // 4,
        unit=unit,
        each=shape.n,
    )


FORMS.append(block_form)
