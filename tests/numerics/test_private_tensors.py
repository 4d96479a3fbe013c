"""Private tensors: every thread has its own, and none is read before the same iteration has stored it."""

from __future__ import annotations

import numpy as np
import pytest

from isa_models import ProgramError
from simdnn import numerics
from simdnn.program.check import verify
from simdnn.program.records import Affine, Loop, Memory, Op, Program, Register, Statement, Tensor

ROWS, WIDTH = 6, 16
VALUE = Register("v", "f32", WIDTH)


def load(tensor: str, index: Affine) -> Op:
    return Op("vmovups", VALUE, (Memory(tensor, index, "f32", WIDTH),))


def store(tensor: str, index: Affine) -> Op:
    return Op("vmovups", Memory(tensor, index, "f32", WIDTH), (VALUE,))


def program(*body: Statement, parallel: bool = True) -> Program:
    """Each of `ROWS` iterations of loop i runs `body`."""
    tensors = (
        Tensor("a", "f32", ROWS * 4 * WIDTH),
        Tensor("own", "f32", 4 * WIDTH, "private"),
        Tensor("out", "f32", ROWS * 4 * WIDTH, "output"),
    )
    return Program("rows", "avx512_core", tensors, (Loop("i", ROWS, body, parallel),))


K, ROW = Affine.var("k") * WIDTH, Affine.var("i") * (4 * WIDTH)
FILL = Loop("k", 4, (load("a", ROW + K), store("own", K)))
EMPTY = Loop("k", 4, (load("own", Affine.var("k") * -WIDTH + 3 * WIDTH), store("out", ROW + K)))


@pytest.mark.parametrize("engine", ["reference", "compiled"])
@pytest.mark.parametrize("threads", [1, 3])
def test_iterations_do_not_see_each_other(engine: str, threads: int) -> None:
    """The four vectors of each row come out in reverse order."""
    a = np.arange(ROWS * 4 * WIDTH, dtype=np.float32)
    out = numerics.run(verify(program(FILL, EMPTY)), {"a": a}, engine=engine, threads=threads)["out"]
    np.testing.assert_array_equal(out, a.reshape(ROWS, 4, WIDTH)[:, ::-1].reshape(-1))


@pytest.mark.parametrize(
    "body",
    [
        (EMPTY, FILL),  # read first
        (Loop("k", 3, FILL.body), EMPTY),  # a part is never stored
        (Loop("k", 4, (load("own", K), store("out", ROW + K), load("a", ROW + K), store("own", K))),),
        # stored in an earlier iteration of the same loop, or not at all: the first one reads what is undefined
        (Loop("k", 4, (load("a", ROW + K), store("own", K), load("own", Affine(3 * WIDTH)), store("out", ROW + K))),),
    ],
)
def test_what_is_undefined_is_not_read(body: tuple[Statement, ...]) -> None:
    with pytest.raises(ProgramError, match="cannot show that it reads what was stored before"):
        verify(program(*body))


def test_shared_scratch_is_still_refused() -> None:
    shared = program(FILL, EMPTY)
    tensors = tuple(Tensor(t.name, t.dtype, t.size, "scratch") if t.kind == "private" else t for t in shared.tensors)
    with pytest.raises(ProgramError, match="keep apart in own"):
        verify(Program("rows", "avx512_core", tensors, shared.body))


def test_an_inner_parallel_loop_shares_what_is_private_outside() -> None:
    """Threads share out the nest of loops at the top; what is parallel below it runs on one of them."""
    clash = Loop("k", 4, (load("a", ROW + K), store("own", Affine())), parallel=True)
    with pytest.raises(ProgramError, match="keep apart in own"):
        verify(program(clash, FILL, EMPTY))
