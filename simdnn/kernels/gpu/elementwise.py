"""Element-by-element kernels of a GPU's vector pipe, for the problems of `simdnn.kernels.x86.elementwise`.

Constants are loaded once a thread, where a GPU would have them as immediates.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from math import prod

import numpy as np

from isa_models import GpuMachine
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, loop, op
from simdnn.kernels.common.expression import Expression
from simdnn.kernels.gpu.grid import LANES, Spread, filled, spread, steps_of
from simdnn.kernels.gpu.words import Words, words_of
from simdnn.kernels.x86.elementwise import MapProblem
from simdnn.program.check import verify
from simdnn.program.records import Affine, Memory, Program, Register, Tensor

_VECTORS = 8  # of a line that a thread takes at most


def _cut(line: int, lines: int, machine: GpuMachine) -> tuple[int, int]:
    """(pieces of a line, elements of each): long lines are cut where there are too few for all threads."""
    vectors = -(-line // LANES)
    wanted = max(1, min(_VECTORS, vectors * lines // (machine.engines * machine.threads)))
    pieces = -(-vectors // wanted)
    return (1, line) if pieces == 1 else (pieces, wanted * LANES)


@functools.lru_cache(maxsize=1024)
def elementwise(p: MapProblem, machine: GpuMachine) -> Spread:
    """Inputs src0, src1, …, output dst, as on a CPU. Raises `Unimplemented` for types that the GPU has no word for."""
    words = words_of(machine)
    *outer, line = p.dims
    pieces, length = _cut(line, prod(outer), machine)
    grid = spread((*outer, pieces), machine)
    full = (*grid.full[:-1], grid.full[-1] * length)
    shapes = [tuple(n if stride else 1 for n, stride in zip(full, s, strict=True)) for s in p.strides]
    own = [tuple(n if stride else 1 for n, stride in zip(p.dims, s, strict=True)) for s in p.strides]

    def at(shape: tuple[int, ...], along: Affine) -> Affine:
        index = [grid.index(i) for i in range(len(outer))] + [grid.index(len(outer)) * length + along]
        moving = zip(index, steps_of(shape), shape, strict=True)
        return sum((i * step for i, step, n in moving if n > 1), Affine())

    formula = _Formula(p.expression, words)
    fixed = [i for i, shape in enumerate(shapes) if shape[-1] == 1]

    def body(along: Affine, lanes: int) -> Code:
        code: Code = []
        for i, dtype in enumerate(p.expression.inputs):
            if i not in fixed:
                code += words.load(f"x{i}", f"src{i}", dtype, at(shapes[i], along), lanes)
        steps, result = formula.code(lanes)
        return [*code, *steps, *words.store("dst", p.dst, at(full, along), result)]

    turns, rest = divmod(length, LANES)
    start: Code = formula.constants()
    for i in fixed:
        start += words.load(f"x{i}", f"src{i}", p.expression.inputs[i], at(shapes[i], Affine()), LANES, same=True)
    code = [*start, *loop("v", turns, body(Affine.var("v") * LANES, LANES))]
    code += body(Affine(turns * LANES), rest) if rest else []
    tensors = [
        Tensor(f"src{i}", d, prod(shape)) for i, (d, shape) in enumerate(zip(p.expression.inputs, shapes, strict=True))
    ]
    tensors += [*formula.tensors(), Tensor("dst", p.dst, prod(full), "output")]
    program = verify(Program(f"elementwise {p.dims}", machine.platform.name, tuple(tensors), tuple(grid.nest(code))))

    def prepare(given: Mapping[str, Array]) -> dict[str, Array]:
        return {f"src{i}": filled(given[f"src{i}"].reshape(own[i]), shapes[i]) for i in range(len(shapes))}

    return Spread(program, prepare, lambda found: _inside(found["dst"], full, p.dims))


def _inside(array: Array, full: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    return np.ascontiguousarray(array.reshape(full)[tuple(slice(n) for n in shape)]).reshape(-1)


class _Formula:
    """Steps as instructions; a register is free again when the last step that reads it is done."""

    def __init__(self, expression: Expression, words: Words) -> None:
        self.steps, self.words = expression.steps, words
        self.number = {i: f"k{i}" for i, step in enumerate(self.steps) if step.op == "constant"}
        last = len(self.steps) - 1
        self.last_use = {a: i for i, step in enumerate(self.steps) for a in step.args} | {last: last + 1}

    def constants(self) -> Code:
        splat = self.words.splat_name.format("u32")
        return [
            op(splat, Register(name, "u32", LANES), Memory("numbers", Affine(n), "u32", 1))
            for n, name in enumerate(self.number.values())
        ]

    def tensors(self) -> list[Tensor]:
        bits = [_bits(self.steps[i].number, self.steps[i].dtype) for i in self.number]
        return [Tensor.constant("numbers", "u32", np.array(bits, np.uint32).tobytes())] if bits else []

    def code(self, lanes: int) -> tuple[Code, Register]:
        """The formula for `lanes` lanes, operands in x0, x1, …"""
        code, free, names = Code(), list[str](), dict[int, str]()
        for i, step in enumerate(self.steps):
            if step.op == "input":
                names[i] = f"x{int(step.number)}"
                continue
            if step.op == "constant":
                names[i] = self.number[i]
                continue
            sources = [Register(names[a], "f32", lanes) for a in step.args]
            names[i] = free.pop() if free else f"v{i}"
            immediate = {"imm": int(step.number)} if step.op in ("shl", "shr", "sar") else {}
            code += self.words.apply(step.op, Register(names[i], "f32", lanes), *sources, **immediate)
            dead = {a for a in step.args if self.last_use[a] == i and names[a][0] == "v"}
            free += [names[a] for a in sorted(dead)]
        dtype = "f32" if self.steps[-1].dtype != "s32" else "s32"
        return code, Register(names[len(self.steps) - 1], dtype, lanes)


def _bits(number: float, dtype: str) -> int:
    return int(np.float32(number).view(np.uint32)) if dtype == "f32" else int(number) & 0xFFFFFFFF
