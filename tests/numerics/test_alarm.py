"""Optimistic code raises its alarm wherever a shortcut is wrong, and does not cry wolf over ordinary data."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from simdnn import numerics
from simdnn.numerics.compiled import compile_program
from simdnn.program.check import verify
from simdnn.program.records import Affine, Loop, Memory, Op, Program, Register, Statement, Tensor
from tests.work import at_most

Array = npt.NDArray[Any]
K = Affine.var("k")
ACC = Register("acc", "f32", 16)
ZERO = Op("vpxor", ACC.as_("u32"), (ACC.as_("u32"), ACC.as_("u32")))
STORE = Op("vmovups", Memory("out", Affine(), "f32", 16), (ACC,))


def load(register: Register, tensor: str, index: Affine = Affine()) -> Op:  # noqa: B008  # frozen
    words = register.as_("u32")
    return Op("vmovdqu", words, (Memory(tensor, index, "u32", 16),))


def run(program: Program, data: dict[str, Array]) -> tuple[bool, Array]:
    """Whether the optimistic code raised the alarm; the portable result, checked against the reference."""
    verify(program)
    code = compile_program(program, native=False)
    buffers = {
        t.name: np.ascontiguousarray(data[t.name]) if t.name in data else np.zeros(t.size, np.float32)
        for t in program.tensors
    }
    pointers = (ctypes.c_void_p * len(buffers))(*(b.ctypes.data for b in buffers.values()))
    alarm = any(function(pointers, 0, extent) for function, extent in code.stages)
    expected = numerics.run(program, data, engine="reference")["out"]
    met = numerics.run(program, data, engine="compiled", native=False)["out"]
    assert (met.view(np.uint32) == expected.view(np.uint32)).all()
    if not alarm:
        assert (buffers["out"].view(np.uint32) == expected.view(np.uint32)).all()
    return alarm, met


def dot(steps: int, initial: tuple[Op, ...] = (ZERO,), after: tuple[Statement, ...] = ()) -> Program:
    """`steps` vdpbf16ps into one accumulator."""
    a, b = Register("a", "bf16", 32), Register("b", "bf16", 32)
    loop = Loop("k", steps, (load(a, "a", 32 * K), load(b, "b", 32 * K), Op("vdpbf16ps", ACC, (ACC, a, b))))
    tensors = (
        Tensor("a", "bf16", 32 * steps),
        Tensor("b", "bf16", 32 * steps),
        Tensor("c", "f32", 16),
        Tensor("out", "f32", 16, "output"),
    )
    return Program("dot", "avx512_core_bf16", tensors, (Loop("s", 1, (*initial, loop, *after, STORE)),))


def bf16(values: Any) -> Array:
    return np.asarray(values).astype(ml_dtypes.bfloat16)


def ordinary(steps: int, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    data = {name: bf16(rng.standard_normal(32 * steps)) for name in "ab"}
    data["a"][::3] = 0  # as relu leaves them
    return {**data, "c": np.zeros(16, np.float32)}


def test_ordinary_data_raises_no_alarm() -> None:
    assert not run(dot(9), ordinary(9))[0]


@pytest.mark.parametrize("value", [1e-40, -1e-39, float("nan"), float("inf"), 2.0**-60, -(2.0**-126)])
@pytest.mark.parametrize("lane", [0, 7, 31])
def test_one_odd_factor(value: float, lane: int) -> None:
    data = ordinary(4)
    data["a"][64 + lane] = value
    data["b"][64 + lane] = 0 if value == float("inf") else 1
    assert run(dot(4), data)[0]


@pytest.mark.parametrize(
    "pattern", [0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x00800001, 0x0CFFFFFF, 0x7F800001, 0xFFC00123]
)
def test_an_odd_addend(pattern: int) -> None:
    data = ordinary(1)
    data["a"][:] = 0
    data["c"] = np.full(16, pattern, np.uint32).view(np.float32)
    assert run(dot(1, (load(ACC, "c"),)), data)[0]


def test_boundaries_of_the_shortcut() -> None:
    """The least factors and addends that raise no alarm give results that the shortcut gets right."""
    rng = np.random.default_rng(3)
    alarms = 0
    for _ in range(150):
        step = dot(1, (load(ACC, "c"),))
        low = int(rng.integers(-57, -53))
        a, b = (rng.choice([-1.0, 1.0], 32) * (1 + rng.integers(0, 128, 32) / 128) * 2.0**low for _ in "ab")
        c = (
            rng.choice([-1.0, 1.0], 16)
            * (1 + rng.integers(0, 1 << 23, 16) / (1 << 23))
            * 2.0 ** rng.integers(-102, -98)
        )
        if rng.random() < 0.3:  # the odd product cancels what is there
            c = -(bf16(a[1::2]).astype(float) * bf16(b[1::2]).astype(float))
        alarms += run(step, {"a": bf16(a), "b": bf16(b), "c": c.astype(np.float32)})[0]
    assert 20 < alarms < 130  # both sides of the boundary were met


@pytest.mark.parametrize("step", [0, 2, 4])
def test_a_nan_is_heard_even_where_the_accumulator_is_written_anew(step: int) -> None:
    """In each iteration the accumulator starts from zero: a NaN must not be forgotten with the one before."""
    x, y = Register("x", "f32", 16), Register("y", "f32", 16)
    body = (
        ZERO,
        load(x, "a", 16 * K),
        load(y, "b", 16 * K),
        Op("vfmadd231ps", ACC, (ACC, x, y)),
        Op("vmovups", Memory("out", 16 * K, "f32", 16), (ACC,)),
    )
    tensors = (Tensor("a", "f32", 80), Tensor("b", "f32", 80), Tensor("out", "f32", 80, "output"))
    program = Program("anew", "avx512_core", tensors, (Loop("s", 1, (ZERO, Loop("k", 5, body))),))
    a, b = (np.random.default_rng(i).standard_normal(80).astype(np.float32) for i in (1, 2))
    assert not run(program, {"a": a, "b": b})[0]
    a[16 * step + 3] = np.uint32(0xFF812345).view(np.float32)
    b[16 * step + 3] = np.uint32(0x7FC54321).view(np.float32)
    assert run(program, {"a": a, "b": b})[0]


@pytest.mark.parametrize("use", ["vminps", "vmaxps", "vpand"])
def test_a_nan_is_heard_though_its_last_use_hides_it(use: str) -> None:
    """min, max and logic may drop a NaN that the sums before them made."""
    other = Register("other", "f32", 16)
    dtype = "u32" if use == "vpand" else "f32"
    hide = Op(use, ACC.as_(dtype), (ACC.as_(dtype), other.as_(dtype)))
    program = dot(3, after=(load(other, "c"), hide))
    data = ordinary(3)
    assert not run(program, data)[0]
    data["b"][40] = float("nan")
    assert run(program, data)[0]


def test_alarms_reach_the_top_from_nested_and_parallel_loops() -> None:
    x = Register("x", "f32", 16)
    p, j = Affine.var("p"), Affine.var("j")
    inner = Loop("k", 3, (load(x, "a", 96 * p + 48 * j + 16 * K), Op("vaddps", ACC, (ACC, x))))
    nest = Loop("j", 2, (inner, Op("vmovups", Memory("out", 32 * p + 16 * j, "f32", 16), (ACC,))))
    program = Program(
        "nest",
        "avx512_core",
        (Tensor("a", "f32", 384), Tensor("out", "f32", 128, "output")),
        (Loop("p", 4, (ZERO, nest), parallel=True),),
    )
    a = np.random.default_rng(0).standard_normal(384).astype(np.float32)
    assert not run(program, {"a": a})[0]
    for at in (0, 100, 383):
        spoiled = a.copy()
        spoiled[at] = np.uint32(0x7FA00001).view(np.float32)
        assert run(program, {"a": spoiled})[0]
        one, two = (numerics.run(program, {"a": spoiled}, threads=t, native=False)["out"] for t in (1, 2))
        assert (one.view(np.uint32) == two.view(np.uint32)).all()


def test_the_careful_run_starts_from_the_start() -> None:
    """Sums in an output and in scratch are taken up from zero again, not from what the optimistic run left."""
    x = Register("x", "f32", 16)
    memory = {name: Memory(name, Affine(), "f32", 16) for name in ("out", "scratch")}
    body: list[Op] = [load(x, "a", 16 * K)]
    for place in memory.values():
        body += [Op("vaddps", x, (x, place)), Op("vmovups", place, (x,))]
    tensors = (Tensor("a", "f32", 64), Tensor("scratch", "f32", 16, "scratch"), Tensor("out", "f32", 16, "output"))
    program = Program("sums", "avx512_core", tensors, (Loop("k", 4, tuple(body)),))
    a = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    assert not run(program, {"a": a})[0]
    a[40] = np.uint32(0x7F800001).view(np.float32)
    assert run(program, {"a": a})[0]


def test_values_that_are_read_twice_are_gone_through_once() -> None:
    """Each square doubles the ways back to what is loaded, and a NaN that is heard on one of them is heard on all."""
    squares = [Op("vmulps", ACC, (ACC, ACC))] * 40
    tensors = Tensor("c", "f32", 16), Tensor("out", "f32", 16, "output")
    program = Program("squares", "avx512_core", tensors, (Loop("s", 1, (load(ACC, "c"), *squares, STORE)),))
    with at_most(calls=40_000):  # about 6000, and 15,000 more in a process where it comes first
        alarm, out = run(program, {"c": np.ones(16, np.float32)})
    assert not alarm and (out == 1).all()
    assert run(program, {"c": np.full(16, np.nan, np.float32)})[0]
