"""Kernels that compute every element by itself: a formula over operands that broadcast, in loops over vectors.

The innermost dimension runs in lanes: an operand with stride 1 there is loaded, one with stride 0 is loaded into every
lane, once for each line. Arithmetic is in f32, whatever the storage type; f16 and bf16 are widened at the load and
rounded at the store, as libraries do on CPUs without arithmetic of their own for them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code
from simdnn.kernels.common.expression import Expression
from simdnn.kernels.common.vocabulary import Spread, Vocabulary, filled, inside, steps_of
from simdnn.program.check import verify
from simdnn.program.records import SOURCE, Affine, Program, Tensor


@dataclass(frozen=True)
class MapProblem:
    """dst[i, j, …] = expression(operand 0 [i, j, …], …); dst is contiguous.

    `strides` holds for each operand its element stride in each dimension, 0 where it broadcasts; in the last dimension
    0 or 1.
    """

    expression: Expression
    dims: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    dst: str

    @property
    def size(self) -> int:
        return prod(self.dims)


def collapse(shape: tuple[int, ...], strides: list[tuple[int, ...]]) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """The fewest dimensions with the same addresses: neighbours that step alike in every operand become one.

    >>> collapse((2, 3, 4), [(12, 4, 1), (0, 0, 1)])
    ((6, 4), [(4, 1), (0, 1)])
    """
    dims: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        here = [s[axis] for s in strides]
        if dims and all(step[-1] == h * size for step, h in zip(steps, here, strict=True)):
            dims[-1] *= size
            for step, h in zip(steps, here, strict=True):
                step[-1] = h
        else:
            dims.append(size)
            for step, h in zip(steps, here, strict=True):
                step.append(h)
    if not dims:
        return (1,), [(0,) for _ in strides]
    return tuple(dims), [tuple(step) for step in steps]


@functools.lru_cache(maxsize=1024)
def elementwise(p: MapProblem, words: Vocabulary) -> Spread:
    """Inputs src0, src1, …, output dst. Raises `Unimplemented` for types that the target has no words for."""
    *outer, line = p.dims
    types = p.expression.inputs
    fixed = [i for i, stride in enumerate(p.strides) if stride[-1] == 0]
    formula = words.formula(p.expression, p.dst, fixed)
    lines = words.lines(tuple(outer), line)
    index = [lines.index(axis) for axis in range(len(outer))]
    own, shapes = ([_shape(dims, s) for s in p.strides] for dims in (p.dims, lines.full))

    def at(shape: tuple[int, ...], along: Affine) -> Affine:
        moving = zip((*index, along), steps_of(shape), shape, strict=True)
        return sum((i * step for i, step, n in moving if n > 1), Affine())

    def vector(along: Affine, lanes: int, same: bool) -> Code:
        def load(register: str, operand: int) -> Code:
            return words.load(register, f"src{operand}", types[operand], at(shapes[operand], along), lanes, same)

        code, result = formula.code(load, lanes)
        return code + words.store(p.dst, at(lines.full, along), result, lanes)

    start = formula.start()
    for i in fixed:
        start += words.load(f"x{i}", f"src{i}", types[i], at(shapes[i], Affine()), words.lanes, same=True)
    code = lines.nest(start, vector, [dtype for i, dtype in enumerate(types) if i not in fixed])
    tensors = [
        *(
            Tensor(f"src{i}", dtype, prod(shape), role=SOURCE)
            for i, (dtype, shape) in enumerate(zip(types, shapes, strict=True))
        ),
        *formula.tensors(),
        *words.constants(p.dst),
        Tensor("dst", p.dst, prod(lines.full), "output"),
    ]
    program = verify(Program(f"elementwise {p.dims}", words.isa, tuple(tensors), tuple(code)))

    def prepare(given: Mapping[str, Array]) -> dict[str, Array]:
        return {f"src{i}": filled(given[f"src{i}"].reshape(own[i]), shapes[i]) for i in range(len(shapes))}

    return Spread(program, prepare, lambda found: inside(found["dst"], lines.full, p.dims))


def _shape(dims: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an operand with these strides: 1 where it broadcasts."""
    return tuple(n if stride else 1 for n, stride in zip(dims, strides, strict=True))
