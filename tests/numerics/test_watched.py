"""A watched loop leaves what a run of the whole program leaves there."""

from __future__ import annotations

import numpy as np
import pytest

import simdnn
from simdnn.numerics.watched import innermost, watch
from simdnn.program import Affine, Loop, Memory, Op, Program, Register, Tensor, verify

ROW = Register("x", "s32", 4)


def doubling(turns: int) -> Program:
    """A stage that stores what the loop of the next one reads, under a parallel loop and a plain one."""

    def moved(dst: Register | Memory, src: Register | Memory) -> Op:
        return Op("vmovdqu", dst, (src,))

    def place(tensor: str, var: str) -> Memory:
        return Memory(tensor, 4 * Affine.var(var), "u32", 4)

    bits = Register("x", "u32", 4)
    before = Loop("i", turns, (moved(bits, place("src", "i")), moved(place("mid", "i"), bits)))
    body = (moved(bits, place("mid", "k")), Op("vpaddd", ROW, (ROW, ROW)), moved(place("dst", "k"), bits))
    after = Loop("p", 1, (Loop("k", turns, body),), parallel=True)
    tensors = (Tensor("src", "s32", 4 * turns), Tensor("mid", "s32", 4 * turns, "scratch"))
    program = Program("doubling", "avx2", (*tensors, Tensor("dst", "s32", 4 * turns, "output")), (before, after))
    verify(program)
    return program


def test_stages_before_have_run() -> None:
    program = doubling(3)
    first, second = innermost(program.body)
    assert [[loop.var for loop in path] for path in (first, second)] == [["i"], ["p", "k"]]
    src = np.arange(12, dtype=np.int32)
    left = watch(program, {"src": src}, second, 2)
    assert [(one.turn, one.op.instruction) for one in left[:4]] == [
        (0, "vmovdqu"),
        (0, "vpaddd"),
        (0, "vmovdqu"),
        (1, "vmovdqu"),
    ]
    assert left[1].lanes.tolist() == [0, 2, 4, 6] and left[4].lanes.tolist() == [8, 10, 12, 14]
    assert len(watch(program, {"src": src}, second, 99)) == 9  # no more turns than there are


@pytest.mark.parametrize("name", ["zen4", "skx", "spr"])
def test_accumulators_end_as_the_outputs(name: str) -> None:
    rng = np.random.default_rng(0)
    src = rng.integers(0, 128, (1, 64)).astype(np.uint8)
    weights = rng.integers(-64, 64, (64, 16)).astype(np.int8)
    result = simdnn.matmul(src, weights, machine=name)
    program, run = result.kernel.program, result.departed
    path = max(innermost(program.body), key=lambda path: path[-1].extent)
    left = watch(program, run.kernel.prepare(run.src, run.weights, run.parameters), path, path[-1].extent)
    last = left[-1].lanes.tolist()  # of the last accumulator, whose lanes are the last outputs
    assert last == result.output[0, -len(last) :].tolist()
