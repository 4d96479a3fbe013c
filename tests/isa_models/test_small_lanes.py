"""Lanes of 4 and 2 bits in registers: every reading of an instruction that has them, and both engines, agree."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import simdnn
from isa_models import REGISTRY, InvalidArgument, ProgramError
from isa_models.algebra import Value
from isa_models.formats import fmt
from isa_models.instruction import Instruction, make
from isa_models.readings.arrays import ArrayValue
from isa_models.readings.intervals import IntervalValue, Watch
from isa_models.readings.traced import Exact, copied, history, operand
from isa_models.x86 import dot as dots
from simdnn import numerics
from simdnn.calibration.hostcheck import compare
from simdnn.program.check import verify
from simdnn.program.records import Affine, Loop, Memory, Op, Program, Register, Tensor
from tests.effort import one_in

WIDTHS = {128: ("avx2",), 256: ("avx2",), 512: ("avx512_core",)}


def dot(acc: Value, a: Value, b: Value) -> Value:
    total = acc
    for x, y in zip(a.split(8), b.split(8), strict=True):
        total = total + x.to("s32") * y.to("s32")
    return total


def wrapped(a: Value, b: Value) -> Value:
    """Everything that wraps, compares and moves in lanes of their own."""
    moved = ((a + b) * a - (b >> 1) + (a << 1)) ^ (a & b)
    return (moved > b).where(moved.maximum(b), moved | a)


def round_trip(a: Value) -> Value:
    """Taken apart and put together again: the neighbour's bits are there."""
    return (a.view("u32") >> 4).view(a.dtype).minimum(a)


DEFINED = {
    "eight_s4": make("eight_s4", "s32 <- s32, s4*8, s4*8", WIDTHS, "made up", dot, accumulates=True),
    "eight_u4_s4": make("eight_u4_s4", "s32 <- s32, u4*8, s4*8", WIDTHS, "made up", dot, accumulates=True),
    "wrapped_s4": make("wrapped_s4", "s4 <- s4, s4", WIDTHS, "made up", wrapped),
    "wrapped_u4": make("wrapped_u4", "u4 <- u4, u4", WIDTHS, "made up", wrapped),
    "wrapped_s2": make("wrapped_s2", "s2 <- s2, s2", WIDTHS, "made up", wrapped),
    "trip_s4": make("trip_s4", "s4 <- s4", WIDTHS, "made up", round_trip, whole=True),
    "trip_u2": make("trip_u2", "u2 <- u2", WIDTHS, "made up", round_trip, whole=True),
    "narrowed": make("narrowed", "s4 <- s8", WIDTHS, "made up", lambda a: a.saturate("s4")),
    "plus_one": make("plus_one", "s32 <- s32", WIDTHS, "made up", lambda a: a + 1),  # lanes as CPUs have, and no CPU's
    "widened": make("widened", "s8 <- u4", WIDTHS, "made up", lambda a: a.to("s8") + 1),
}


@pytest.fixture(autouse=True)
def defined(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, definition in DEFINED.items():
        monkeypatch.setitem(REGISTRY, name, definition)
    yield


def random(rng: np.random.Generator, dtype: str, count: int) -> np.ndarray:
    form = fmt(dtype)
    return rng.integers(form.low, form.high, count, endpoint=True).astype(form.dtype)


def operands(definition: Instruction, lanes: int, rng: np.random.Generator) -> list[np.ndarray]:
    return [random(rng, o.dtype, definition.operand_lanes(o, lanes)) for o in definition.operands]


@one_in(2)
@pytest.mark.parametrize("name", DEFINED)
def test_readings_agree(name: str) -> None:
    definition, rng = DEFINED[name], np.random.default_rng(len(name))
    for width in WIDTHS:
        found = compare(definition, width, False, 300, rng)
        assert found.mismatches == 0, found.first
        lanes = definition.lanes(width)
        given = operands(definition, lanes, rng)
        pairs = list(zip(given, definition.operands, strict=True))
        wanted = definition.apply(*[ArrayValue(x, o.dtype) for x, o in pairs]).array
        traced = definition.apply(*[operand(x, o.dtype, o.name) for x, o in pairs])
        assert traced.inner.array.tobytes() == wanted.tobytes()
        Exact().follow(history([(traced, lane) for lane in range(lanes)]))
        points = [IntervalValue.between(o.dtype, x.astype(int), x.astype(int), Watch()) for x, o in pairs]
        met = definition.apply(*points)
        assert (met.low == wanted.astype(int)).all() and (met.high == wanted.astype(int)).all()
        whole = [
            IntervalValue.between(o.dtype, x.astype(int) * 0 + fmt(o.dtype).low, fmt(o.dtype).high, Watch())
            for x, o in pairs
        ]
        held = definition.apply(*whole)
        assert (held.low <= wanted.astype(int)).all() and (wanted.astype(int) <= held.high).all()


def test_numbers_of_a_dot() -> None:
    a, b = [-8, 7, 1, 2, 3, -1, 0, 5], [7, 7, -8, 1, 1, 1, 3, -5]
    found = simdnn.explain("eight_s4", acc=[100], a=a, b=b)
    assert int(found.value[0]) == found.exact[0] == 100 + sum(x * y for x, y in zip(a, b, strict=True))
    assert "a[0] * b[0] = -8 * 7 = -56" in str(found)


@pytest.mark.parametrize("dtype", ["s4", "u4", "s2", "u2", "b1"])
def test_views_are_little_endian(dtype: str) -> None:
    octets = np.arange(256, dtype=np.uint8)
    lanes = ArrayValue(octets, "u8").view(dtype)
    bits = fmt(dtype).bits
    for at, octet in ((3, 0x03), (0x5A, 0x5A), (255, 255)):
        fields = [(octet >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
        met = lanes.array[at * 8 // bits : (at + 1) * 8 // bits].astype(int) & ((1 << bits) - 1)
        assert met.tolist() == fields
    assert (lanes.view("u8").array == octets).all() and lanes.view("u32").lanes == 64
    with pytest.raises(InvalidArgument, match="whole number of bytes"):
        ArrayValue(lanes.array[:3], dtype).view("u8")


def test_origins_are_nibbles() -> None:
    words = operand(np.array([0x21, 0x43], np.uint8), "u8", "a")
    nibbles = words.view("u4")
    assert copied(nibbles, 2) is None and int(nibbles.inner.array[2]) == 3
    back = nibbles.permute([1, 0, 3, 2]).view("u8")
    assert back.inner.array.tolist() == [0x12, 0x34] and copied(back.view("u4").permute([0]).view("u4"), 0) is None


def product(lanes: int) -> Program:
    a, b = Register("a", "s4", lanes * 8), Register("b", "u4", lanes * 8)
    acc, i = Register("acc", "s32", lanes), Affine.var("i")
    load = [
        Op("vmovdqu", r.as_("u32"), (Memory(name, i * lanes * 4, "u32", lanes),)) for r, name in ((a, "x"), (b, "y"))
    ]
    body = (
        Op("vpxor", acc.as_("u32"), (acc.as_("u32"), acc.as_("u32"))),
        *load,
        Op("eight_u4_s4", acc, (acc, b, a)),
        Op("eight_s4", acc, (acc, a, Memory("y", i * lanes * 4, "s4", lanes * 8))),
        Op("eight_s4", acc, (acc, a, Memory("y", i * lanes * 4, "s4", lanes * 4))),  # the other half is zeros
        Op("vmovdqu", Memory("out", i * lanes, "u32", lanes), (acc.as_("u32"),)),
    )
    tensors = (
        Tensor("x", "u8", 30 * lanes * 4),
        Tensor("y", "u8", 30 * lanes * 4),
        Tensor("out", "s32", 30 * lanes, "output"),
    )
    return Program("nibbles", "avx512_core", tensors, (Loop("i", 30, body, True),))


@pytest.mark.parametrize("lanes", [8, 16])
def test_engines_agree_on_a_program(lanes: int) -> None:
    program, rng = verify(product(lanes)), np.random.default_rng(lanes)
    inputs = {name: rng.integers(0, 256, 30 * lanes * 4).astype(np.uint8) for name in "xy"}
    met = [numerics.run(program, inputs, engine=engine)["out"] for engine in ("reference", "compiled")]
    assert (met[0] == met[1]).all()
    x, signed = (ArrayValue(inputs[n], "u8").view("s4").array.astype(int).reshape(-1, 8) for n in "xy")
    plain = ArrayValue(inputs["y"], "u8").view("u4").array.astype(int).reshape(-1, 8)
    masked = signed.reshape(30, lanes, 8) * (np.arange(lanes) < lanes // 2)[:, None]
    assert (met[0] == (x * (signed + plain + masked.reshape(-1, 8))).sum(axis=1)).all()


def test_a_register_is_whole_bytes() -> None:
    out = Op("narrowed", Register("r", "s4", 3), (Memory("x", Affine(), "s8", 3),))
    program = Program("odd", "avx512_core", (Tensor("x", "s8", 64),), (out,))
    with pytest.raises(ProgramError, match="whole number of bytes"):
        verify(program)


def test_an_instruction_of_no_cpu_runs_by_its_function() -> None:
    """Its lanes are such as CPUs have, but the host's assembler, which would end the process, is not asked for it."""
    made = Register("r", "s32", 16)
    body = (
        Op("plus_one", made, (Memory("x", Affine(), "s32", 16),)),
        Op("vmovdqu", Memory("y", Affine(), "u32", 16), (Register("r", "u32", 16),)),
    )
    program = Program(
        "made up", "avx512_core", (Tensor("x", "s32", 16), Tensor("y", "s32", 16, "output")), (Loop("i", 1, body),)
    )
    x = np.arange(16, dtype=np.int32)
    assert numerics.run(program, {"x": x}, engine="compiled")["y"].tolist() == (x + 1).tolist()


def test_dots_take_a_doubleword(monkeypatch: pytest.MonkeyPatch) -> None:
    """The generator of dot products gives a lane as many products as the operands have in 32 bits."""
    made: dict[str, Instruction] = {}

    def define(name: str, *signature: object, **facts: object):  # type: ignore[no-untyped-def]
        def register(function: object) -> object:
            made[name] = make(name, *signature, function, **facts)  # type: ignore[arg-type]
            return function

        return register

    monkeypatch.setattr(dots, "define", define)
    for name, a, b, count in (("vpdpnssd", "s4", "s4", 8), ("vpdpnsud", "s4", "u4", 8), ("again", "u8", "s8", 4)):
        dots._dot(name, a, b, False, WIDTHS, "made up")
        assert [int(o.per) for o in made[name].operands] == [1, count, count]
        met = made[name]([10], [1, -2, 3, 4, 5, 6, 7, -8][:count] if a == "s4" else [1, 2, 3, 4], [2] * count)
        assert met.tolist() == [10 + 2 * (16 if count == 8 else 10)]
