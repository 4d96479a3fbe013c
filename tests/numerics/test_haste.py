"""Code that is made in haste has the bits of better code, which takes its place where a program runs long or often."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import simdnn
from isa_models.host import machine_code
from simdnn.numerics import compiled
from simdnn.program import Program

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
