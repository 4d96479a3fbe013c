"""A kernel of one product made one of a batch: loops over products around its program, and the way of their arrays.

Each statement of the program takes all products before the next one begins, as threads do, which meet between them.
What does not change along a loop is done once for all of its turns: weights that products share are packed once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.kernels.common.batch import SIDES, Batch, joined
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.kernel import HELD, Finish, Kernel
from simdnn.kernels.common.postops import PostOp
from simdnn.program.check import verify
from simdnn.program.records import Loop, Program, Statement, Tensor, walk

Moves = tuple[bool, ...]  # with which of a batch's loops something changes


def repeated(kernel: Kernel, batch: Batch, post_ops: Sequence[PostOp]) -> Kernel:
    """The kernel of one product with a program that takes all of a batch.

    `prepare` and `finish` stay those of one product: `as_batched` gives them the whole arrays.
    """
    blocked = kernel.blocked and kernel.blocked.of_batch(batch.products("wei"))
    timed = kernel.timed and _Repeated(replace(kernel, program=kernel.timed), batch, post_ops).program()
    found = replace(kernel, program=_Repeated(kernel, batch, post_ops).program(), timed=timed, blocked=blocked)
    return found.with_others(partial(repeated, batch=batch, post_ops=post_ops))


class _Repeated:
    """A kernel's program and what of it changes from product to product."""

    def __init__(self, kernel: Kernel, batch: Batch, post_ops: Sequence[PostOp]) -> None:
        self.whole, self.batch = kernel.program, batch
        sides, full = _sides(kernel), {f"post{i}" for i, one in enumerate(post_ops) if one.per_output}
        still = (False,) * len(batch.extents)
        self.moves: dict[str, Moves] = {}
        for t in self.whole.tensors:
            given = sides.get(t.name, "dst" if t.kind == "output" or t.name in {"previous", HELD} | full else "")
            self.moves[t.name] = batch.moves(given) if given and t.kind in ("input", "output") else still
        self.touched = [_touched(statement) for statement in self.whole.body]
        while self._spread():
            pass
        self.steps = {t.name: batch.place(self.moves[t.name]) * t.size for t in self.whole.tensors}

    def _spread(self) -> bool:
        """Lets tensors that a statement stores change with all that it touches; whether that was news."""
        before = dict(self.moves)
        for number, (_, stored) in enumerate(self.touched):
            moves = self.of(number)
            self.moves |= {t: moves for t in stored if self._kept(t)}
        return self.moves != before

    def _kept(self, name: str) -> bool:
        """Whether what one statement leaves in a tensor is there for the next."""
        return self.whole.tensor[name].kind != "private"

    def of(self, number: int) -> Moves:
        """The loops with which a statement's work changes."""
        every = [self.moves[t] for t in self.touched[number][0]]
        return tuple(map(any, zip(*every, strict=True))) if every else (False,) * len(self.batch.extents)

    def program(self) -> Program:
        p, body = self.whole, []
        for number, statement in enumerate(p.body):
            around = zip(self.batch.loops, self.batch.extents, self.of(number), strict=True)
            made = self._moved(statement)
            for var, extent, moves in reversed(list(around)):
                made = Loop(var, extent, (made,), parallel=True) if moves else made
            body.append(made)
        name = f"{p.name}, {self.batch}"
        return verify(Program(name, p.isa, tuple(self._tensor(t) for t in p.tensors), tuple(body)))

    def _tensor(self, tensor: Tensor) -> Tensor:
        return replace(tensor, size=tensor.size * self.batch.turns(self.moves[tensor.name]))

    def _moved(self, statement: Statement) -> Statement:
        """A statement whose addresses are those of a turn's product."""
        if isinstance(statement, Loop):
            return replace(statement, body=tuple(map(self._moved, statement.body)))
        memory = statement.memory
        step = self.steps[memory.tensor] if memory else None
        return statement.at(memory.index + step) if memory and step and step.terms else statement


def _touched(statement: Statement) -> tuple[set[str], set[str]]:
    """The tensors that a statement touches, and those among them that it stores to."""
    operands = [(op.memory.tensor, op.memory is op.dst) for op, _ in walk((statement,)) if op.memory]
    return {tensor for tensor, _ in operands}, {tensor for tensor, stored in operands if stored}


def _sides(kernel: Kernel) -> dict[str, str]:
    """Which operand's products a tensor of a kernel follows."""
    return SIDES | dict.fromkeys(kernel.weights, "wei")


def as_batched(kernel: Kernel, batch: Batch, post_ops: Sequence[PostOp], shape: tuple[int, ...]) -> Kernel:
    """The kernel of a problem with this batch, fed with the arrays of all its products; the output has `shape`."""
    if batch.count == 1:
        return replace(kernel, finish=partial(_shaped, kernel.finish, shape))
    prepare = partial(_prepared, kernel, batch, tuple(post_ops))
    found = replace(kernel, prepare=prepare, finish=partial(_finished, kernel.finish, batch, shape))
    return found.with_others(partial(as_batched, batch=batch, post_ops=post_ops, shape=shape))


def _shaped(finish: Finish, shape: tuple[int, ...], outputs: Mapping[str, Array]) -> Array:
    return finish(outputs).reshape(shape)


def _prepared(
    kernel: Kernel, batch: Batch, post_ops: Sequence[PostOp], src: Array, weights: Array, given: Parameters
) -> dict[str, Array]:
    """Inputs of all products of a batch."""
    sides = src.reshape(-1, *src.shape[-2:]), weights.reshape(-1, *weights.shape[-2:])
    turns = zip(batch.parts("src"), batch.parts("wei"), strict=True)
    own = (_of_product(given, post_ops, number, batch) for number in range(batch.count))
    parts = [kernel.prepare(sides[0][a], sides[1][b], next(own)) for a, b in turns]
    return joined(parts, batch, kernel.program, _sides(kernel))


def _finished(finish: Finish, batch: Batch, shape: tuple[int, ...], outputs: Mapping[str, Array]) -> Array:
    """The output of all products of a batch."""
    parts = {name: values.reshape(batch.count, -1) for name, values in outputs.items()}
    products = ({name: rows[number] for name, rows in parts.items()} for number in range(batch.count))
    return np.stack([finish(one) for one in products]).reshape(shape)


def _of_product(given: Parameters, post_ops: Sequence[PostOp], number: int, batch: Batch) -> Parameters:
    """The parameters of one product: its part of what is as large as the output, all of the rest."""

    def part(values: Array) -> Array:
        found: Array = values.reshape(batch.count, -1)[number]
        return found

    pairs = zip(post_ops, given.operands, strict=False)
    operands = tuple(part(values) if one.per_output else values for one, values in pairs)
    return replace(given, operands=operands, previous=None if given.previous is None else part(given.previous))
