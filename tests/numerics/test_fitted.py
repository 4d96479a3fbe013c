"""Loops cut for hosts with fewer registers: which sums go together, and that each is formed once."""

from __future__ import annotations

import numpy as np
import pytest

import isa_models
from isa_models.formats import fmt
from simdnn import numerics
from simdnn.kernels import KERNELS, ConvProblem, Epilogue, MatmulProblem, Parameters, Problem
from simdnn.numerics import fitted as module
from simdnn.numerics.blocks import order_of
from simdnn.numerics.fitted import RegisterFile, fitted
from simdnn.program.records import Affine, Loop, Memory, Op, Program, Register, Statement
from tests.effort import one_in

AVX2, AVX512 = RegisterFile(16, 256), RegisterFile(32, 512)


def program_of(kernel: str, machine: str, m: int) -> Program:
    kind = next(kind for kind in KERNELS if kind.name == kernel)
    return kind.build(MatmulProblem(m, 64, 32, "f32", "f32", Epilogue("f32")), isa_models.machine(machine)).program


def loops_of(body: tuple[Statement, ...]) -> list[list[str]]:
    """The sums that each loop of instructions alone forms."""
    found: list[list[str]] = []
    for statement in body:
        if isinstance(statement, Loop):
            ops = [op for op in statement.body if isinstance(op, Op)]
            sums = [op.dst.name for op in ops if op.definition.accumulates and isinstance(op.dst, Register)]
            found += [sums] if sums else loops_of(statement.body)
    return found


@pytest.mark.parametrize(("machine", "m", "rows"), [("zen4", 4, [4] * 4), ("skx", 12, [6] * 4)])
def test_sums_that_share_weights_stay_together(machine: str, m: int, rows: list[int]) -> None:
    program = program_of("gemm:avx512_core", machine, m)
    body = tuple(order_of(program, program.body[-1]).body)
    whole, parts = loops_of(body), loops_of(fitted(body, AVX2))
    assert sorted(name for one in parts for name in one) == sorted(name for one in whole for name in one)
    assert [len(one) for one in parts] == rows
    assert all(len({name.split("_")[1] for name in one}) == 1 for one in parts)  # a column each
    assert fitted(body, AVX512) == body


def test_loops_of_256_bits_stay_whole() -> None:
    program = program_of("gemm:avx2", "hsw", 12)
    body = tuple(order_of(program, program.body[-1]).body)
    assert fitted(body, AVX2) == body


def test_what_one_sum_changes_and_another_reads_stays_in_one_loop() -> None:
    """`b` is added to `a` and grows itself; `c` knows neither."""
    a, b, c, x = (Register(name, "s32", 8) for name in "abcx")
    load = Op("vmovdqu", x, (Memory("src", 8 * Affine.var("k"), "s32", 8),))
    ops = [load, Op("vpaddd", a, (a, b)), Op("vpaddd", b, (b, x)), Op("vpaddd", c, (c, x))]
    stores = [Op("vmovdqu", Memory("dst", Affine(8 * i), "s32", 8), (r,)) for i, r in enumerate((a, b, c))]
    zeros = [Op("vpxor", r, (r, r)) for r in (a, b, c)]
    first, second, *_ = [s for s in fitted((*zeros, Loop("k", 4, tuple(ops)), *stores), RegisterFile(1, 256))[3:]]
    assert isinstance(first, Loop) and isinstance(second, Loop)
    assert [first.body, second.body] == [tuple(ops[:3]), (load, ops[3])]


def test_what_a_sum_needs_by_the_name_of_another_stays_with_that() -> None:
    """`b` is read behind the loop, as loaded last, and `c` needs what it held before."""
    a, b, c, old = (Register(name, "s32", 8) for name in ("a", "b", "c", "old"))
    loads = [Op("vmovdqu", b.as_("u32"), (Memory("src", 8 * Affine.var("k") + i, "u32", 8),)) for i in (0, 64)]
    doubled, sums = Op("vpaddd", old, (b, b)), [Op("vpaddd", a, (a, b)), Op("vpaddd", c, (c, old))]
    loop = Loop("k", 4, (loads[0], doubled, loads[1], *sums))
    stores = [Op("vmovdqu", Memory("dst", Affine(8 * i), "u32", 8), (r.as_("u32"),)) for i, r in enumerate((a, b, c))]
    found = [s for s in fitted((loop, *stores), RegisterFile(1, 256)) if isinstance(s, Loop)]
    assert found == [loop]


@one_in(3)
@pytest.mark.parametrize(
    ("name", "src", "weights", "dst"),
    [
        ("gemm:avx512_core", "f32", "f32", "f32"),
        ("gemm:avx512_core_ref", "f32", "f32", "f32"),
        ("gemm:avx512_core_bf16", "bf16", "bf16", "f32"),
        ("gemm:avx512_core_vnni", "u8", "s8", "s32"),
        ("gemm:avx2_int8_s16", "u8", "s8", "s32"),
        ("conv:avx512_core", "f32", "f32", "f32"),
    ],
)
def test_values_on_hosts_with_few_registers(
    monkeypatch: pytest.MonkeyPatch, name: str, src: str, weights: str, dst: str
) -> None:
    kind = next(kind for kind in KERNELS if kind.name == name)
    problem: Problem = MatmulProblem(9, 51, 39, src, weights, Epilogue(dst))
    shapes = [(9, 39), (39, 51)]
    if name.startswith("conv"):
        problem = ConvProblem(1, 19, 5, 7, 33, 3, 3, padding=(1, 1, 1, 1), src=src, wei=weights, epilogue=Epilogue(dst))
        shapes = [(1, 19, 5, 7), (33, 19, 3, 3)]
    kernel = kind.build(problem, isa_models.machine("spr"))
    rng = np.random.default_rng(3)
    values = [
        rng.integers(fmt(t).low, fmt(t).high + 1, shape).astype(fmt(t).dtype)
        if not fmt(t).is_float
        else rng.standard_normal(shape).astype(fmt(t).dtype)
        for t, shape in zip((src, weights), shapes, strict=True)
    ]
    inputs = kernel.prepare(values[0], values[1], Parameters())
    monkeypatch.setattr(module, "host_registers", lambda: RegisterFile(5, 256))
    met = numerics.run(kernel.program, inputs, engine="compiled", native=False)
    expected = numerics.run(kernel.program, inputs, engine="reference")
    assert all((met[out].view(np.uint8) == array.view(np.uint8)).all() for out, array in expected.items())
