"""Code that is made in haste has the bits of better code, which takes its place where a program runs long or often."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import simdnn
from isa_models.formats import fmt
from isa_models.host import machine_code
from simdnn import numerics
from simdnn.numerics import compiled
from simdnn.program import Loop, Memory, Op, Program, Register, Tensor
from simdnn.program.records import Affine

HASTY_OPS = 1 << 22  # a thorough run has another
CASES = [("zen4", np.int8), ("zen4", ml_dtypes.bfloat16), ("hsw", np.float32), ("spr", np.float16), ("b580", np.int8)]


def product(machine: str, dtype: type, size: int) -> simdnn.Result:
    """A product of matrices of `size` by `size`, with special values where the type has them."""
    rng = np.random.default_rng(size)
    a, b = (rng.integers(-9, 9, (size, size)).astype(dtype) for _ in range(2))
    if not np.issubdtype(dtype, np.integer):
        a[0, :4] = [np.nan, np.inf, -0.0, 1e-7]
    return simdnn.matmul(a, b, machine=machine, engine="compiled")


def work(program: Program) -> int:
    return sum(times for _, times in program.ops())


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """How code is made from here on, each time that it is: whether in haste."""
    met: list[bool] = []
    compiling = compiled._compile

    def noted(program: Program, native: bool, optimistic: bool, hasty: bool, *rest: object) -> compiled.Compiled:
        met.append(hasty)
        return compiling(program, native, optimistic, hasty, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(compiled, "_compile", noted)
    monkeypatch.setattr(compiled, "_CACHE", {})
    monkeypatch.setattr(compiled, "_EXECUTED", compiled.Counter())
    monkeypatch.setattr(compiled, "HASTY_OPS", HASTY_OPS)
    return met


@pytest.mark.parametrize("machine, dtype", CASES)
def test_both_have_the_same_bits(machine: str, dtype: type, made: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    first = product(machine, dtype, 21)
    monkeypatch.setattr(compiled, "HASTY_OPS", 0)
    second = product(machine, dtype, 21)
    assert set(made[: len(made) // 2]) == {True} and set(made[len(made) // 2 :]) == {False}
    assert first.output.tobytes() == second.output.tobytes()


def test_an_instruction_is_compiled_once_for_all_programs(made: list[bool]) -> None:
    functions = []
    for size in (24, 40):
        product("zen4", np.float32, size)
        functions.append(len(machine_code._SHARED))
    assert made == [True, True] and functions[0] == functions[1] > 0


def test_what_runs_often_gets_better_code(made: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    once = work(product("zen4", np.int8, 5).kernel.program)
    monkeypatch.setattr(compiled, "HASTY_OPS", 3 * once)
    for run in range(2, 7):
        product("zen4", np.int8, 5)
        assert made == ([True] if run <= 3 else [True, False])


def test_what_runs_long_gets_better_code_at_once(made: list[bool]) -> None:
    assert work(product("hsw", np.float32, 500).kernel.program) > HASTY_OPS
    assert made == [False]


def both(isa: str, source: Tensor, target: Tensor, *code: Op) -> None:
    """The reference and code in haste agree on what a program stores. It forms sums: others have code of their own."""
    program = Program("haste", isa, (source, target), (Loop("i", 1, code),))
    given = {source.name: np.arange(-3, source.size - 3).astype(fmt(source.dtype).dtype)}
    wanted, met = (numerics.run(program, given, engine=engine)["y"] for engine in ("reference", "compiled"))
    assert wanted.any() and wanted.tobytes() == met.tobytes()


def test_a_result_may_lie_on_its_operand(made: list[bool]) -> None:
    """After code of that form with the two beside each other, which goes strip by strip; registers have any names."""
    words = Register("y", "s16", 64)
    for wide in (Register("größe", "s32", 64), Register("y", "s32", 64)):
        both(
            "xe2",
            Tensor("x", "s16", 64),
            Tensor("y", "s32", 64, "output"),
            Op("load.s16", words, (Memory("x", Affine(), "s16", 64),)),
            Op("mov.s32.s16", wide, (words,)),
            Op("mad.s32", wide, (wide, wide, wide)),
            Op("store.s32", Memory("y", Affine(), "s32", 64), (wide,)),
        )


def test_no_mask_is_read_behind_its_end(made: list[bool]) -> None:
    mask, lanes = Register("k", "b1", 64), Register("v", "u8", 64)
    both(
        "avx512_core_vnni",
        Tensor("x", "u8", 1),
        Tensor("y", "u8", 64, "output"),
        Op("kmovq", mask, (Memory("x", Affine(), "b1", 8),)),
        Op("vpmovm2b", lanes, (mask,)),
        Op("vpdpbusd", lanes.as_("s32"), (lanes.as_("s32"), lanes, lanes.as_("s8"))),
        Op("vmovdqu", Memory("y", Affine(), "u32", 16), (lanes.as_("u32"),)),
    )


def test_lanes_are_traded_across_strips(made: list[bool]) -> None:
    x = Register("x", "f32", 128)
    both(
        "ampere",
        Tensor("x", "f32", 128),
        Tensor("y", "f32", 128, "output"),
        Op("ld.global.f32", x, (Memory("x", Affine(), "f32", 128),)),
        Op("shfl.bfly.f32", x, (x,), (("imm", 16),)),
        Op("fma.rn.f32", x, (x, x, x)),
        Op("st.global.f32", Memory("y", Affine(), "f32", 128), (x,)),
    )


@pytest.mark.parametrize(
    ("name", "dtype", "number"), [("shl.b32", "u32", 0), ("ptx_shr.u32", "u32", 0), ("ptx_shr.s32", "s32", -1)]
)
def test_ptx_shifts_by_more_than_a_lane_has(name: str, dtype: str, number: int, made: list[bool]) -> None:
    """PTX: amounts above the width are clamped to it, for `shr.s32` signs are left."""
    x, y = Register("x", dtype, 32), Register("y", dtype, 32)
    assert (
        simdnn.instruction(name)(np.full(4, 0xFFFFFFFD, "u4").view(fmt(dtype).dtype), imm=40).tolist() == [number] * 4
    )
    both(
        "ampere",
        Tensor("x", dtype, 32),
        Tensor("y", dtype, 64, "output"),
        Op(f"ld.global.{dtype}", x, (Memory("x", Affine(), dtype, 32),)),
        Op(name, y, (x,), (("imm", 33),)),
        Op(f"st.global.{dtype}", Memory("y", Affine(), dtype, 32), (y,)),
        Op("fma.rn.f32", x.as_("f32"), (x.as_("f32"), x.as_("f32"), x.as_("f32"))),
        Op(f"st.global.{dtype}", Memory("y", Affine(32), dtype, 32), (x,)),
    )
