"""Records of a program hold plain data: what a caller's class, array or list could turn into later is refused."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa_models import InvalidArgument, ProgramError
from isa_models.records.plain import MOST
from simdnn import numerics
from simdnn.numerics import buffers
from simdnn.program.check import verify
from simdnn.program.records import MOST_LOOPS, Affine, Loop, Memory, Op, Program, Register, Tensor
from tests.program.programs import copies, load, nested, once, program, store

HUGE = 10**30


class Int(int):
    """An integer that a proof sees as small."""

    def __lt__(self, other: object) -> bool:
        return True

    def __gt__(self, other: object) -> bool:
        return False

    def __mul__(self, other: Any) -> int:
        return 0

    def __index__(self) -> int:
        return 1 << 50


class Str(str):
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash("a")


class Tuple(tuple):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        return iter(())


class Bytes(bytes):
    def __len__(self) -> int:
        return 64


class Index:
    def __index__(self) -> int:
        return 16

    def __repr__(self) -> str:
        raise RuntimeError("no text")


class Lying(Memory):
    @property
    def bits(self) -> int:
        return 32


class Unchecked(Affine):
    def __post_init__(self) -> None:
        pass


NUMBERS = [np.int64(4), np.uint8(4), np.array(4), 4.0, float("nan"), True, Int(4), Index(), "4", None, HUGE, -HUGE,
           MOST + 1, -MOST - 1, ml_dtypes.bfloat16(4)]  # fmt: skip
TEXTS = [Str("a"), np.str_("a"), b"a", 7, None, ["a"]]
AT = Affine(0, (("i", 16),))
V = Register("v", "f32", 16)
A = Memory("a", AT, "f32", 16)
MOVE = Op("vmovups", V, (A,))
LOOP = Loop("i", 4, (MOVE,))
TENSOR = Tensor("a", "f32", 64)
CONSTANT = Tensor.constant("c", "u8", bytes(64))
PROGRAM = Program("p", "avx512_core", (TENSOR,), (LOOP,))
#: record, its field, and what else the field may not hold beside numbers or texts
FIELDS: list[tuple[Any, str, list[Any]]] = [
    *((record, field, NUMBERS) for record, field in [
        (TENSOR, "size"), (AT, "const"), (V, "lanes"), (A, "lanes"), (A, "rows"), (A, "stride"), (LOOP, "extent"),
        (LOOP, "staged")]),
    *((record, field, TEXTS) for record, field in [
        (TENSOR, "name"), (TENSOR, "dtype"), (TENSOR, "kind"), (V, "name"), (V, "dtype"), (A, "tensor"), (A, "dtype"),
        (MOVE, "instruction"), (LOOP, "var"), (PROGRAM, "name"), (PROGRAM, "isa")]),
    (CONSTANT, "data", [bytearray(64), np.zeros(64, np.uint8), memoryview(bytes(64)), Bytes(b"1"), "a" * 64, None,
                        [0] * 64]),
    (AT, "terms", [[("i", 1)], (["i", 1],), (("i", np.int64(1)),), (("i", True),), (("i", 1.0),), (("i", Int(1)),),
                   ((Str("i"), 1),), (("i",),), (("i", 1, 1),), (("i", 1), ("i", 1)), Tuple([("i", 1)]), {"i": 1}, None,
                   (("i", HUGE),)]),
    (A, "index", [0, "i", None, (0, ()), Unchecked(np.int64(0)), np.int64(0)]),
    (MOVE, "dst", [None, "v", ("v", "f32", 16), Lying("a", AT, "f32", 16), AT]),
    (MOVE, "srcs", [[A], A, (Lying("a", AT, "f32", 16),), Tuple([A]), (None,)]),
    (MOVE, "immediates", [[("imm", 1)], (("imm", np.uint8(1)),), (("imm", True),), ((1, 1),), {"imm": 1}]),
    (MOVE, "choices", [[("a", "b")], (("a", 1),), ((Str("a"), "b"),)]),
    (LOOP, "body", [[MOVE], MOVE, (None,), Tuple([MOVE]), (V,), (x for x in (MOVE,))]),
    (LOOP, "parallel", [1, 0, None, np.True_, "yes"]),
    (PROGRAM, "tensors", [[TENSOR], (None,), Tuple([TENSOR]), {"a": TENSOR}]),
    (PROGRAM, "body", [[LOOP], LOOP, (TENSOR,), None]),
]  # fmt: skip
CASES = [(record, field, value) for record, field, values in FIELDS for value in values]


@pytest.mark.parametrize(("record", "field", "value"), CASES, ids=[
    f"{type(r).__name__}.{f}-{type(v).__name__}-{i}" for i, (r, f, v) in enumerate(CASES)])  # fmt: skip
def test_all_but_plain_data_is_refused(record: Any, field: str, value: Any) -> None:
    with pytest.raises(ProgramError, match=f"{type(record).__name__}: {field}="):
        dataclasses.replace(record, **{field: value})


@pytest.mark.parametrize("number", [MOST, -MOST, 0])
def test_integers_of_63_bits_and_a_sign_are_taken(number: int) -> None:
    assert Affine(number).const == number


@pytest.mark.parametrize("make", [
    lambda: Affine.var("i") + np.int64(1), lambda: np.int64(1) + Affine.var("i"), lambda: Affine.var("i") * np.int8(3),
    lambda: np.float32(2) * Affine.var("i"), lambda: Affine.var("i") * 2.0, lambda: Affine.var("i") + True,
    lambda: Affine.var("i") * Affine.var("j"), lambda: Affine(MOST) + 1, lambda: Affine.var("i") * HUGE,
    lambda: 2 * (Affine.var("i") * MOST), lambda: Affine.var("i") + None,
])  # fmt: skip
def test_indices_are_made_of_plain_integers(make: Callable[[], Affine]) -> None:
    with pytest.raises(ProgramError):
        make()


def test_an_index_names_what_moves_it() -> None:
    assert Affine.var("i") + Affine.var("i") * -1 == Affine.var("i") * 0 == Affine()
    assert Affine.var("j") + Affine.var("i") + 1 == 1 + Affine.var("i") + Affine.var("j")


def test_a_subclass_is_no_program() -> None:
    class Other(Program):
        pass

    with pytest.raises(ProgramError, match=r"a Other; a simdnn.program.Program is needed"):
        verify(Other("p", "avx512_core", (TENSOR,), (LOOP,)))


def test_loops_in_one_another_are_bounded() -> None:
    deepest = nested(MOST_LOOPS)
    assert (numerics.run(deepest, {"a": np.ones(64, np.float32)})["o"][:16] == 1).all()
    pickle.loads(pickle.dumps(deepest)), copy.deepcopy(deepest), repr(deepest)  # by recursion
    with pytest.raises(ProgramError, match=f"{MOST_LOOPS + 1} loops in one another"):
        nested(MOST_LOOPS + 1)
    with pytest.raises(ProgramError, match=f"{MOST_LOOPS + 1} loops in one another"):
        Loop("all", 1, (once(load()), deepest.body[0], load()))


def test_iterations_fit_64_bits() -> None:
    inner = once(load(), store())
    assert verify(program(Loop("i", MOST, (inner,))))
    assert verify(program(Loop("i", MOST // 7, (Loop("j", 7, (inner,)),)))) and MOST % 7 == 0
    with pytest.raises(ProgramError, match="iterations with the loops around it"):
        verify(program(Loop("i", MOST, (Loop("j", 2, (inner,)),))))


def test_tables_of_a_program_do_not_change() -> None:
    found = verify(copies(16, 4))
    with pytest.raises(TypeError):
        found.tensor["o"] = Tensor("o", "f32", 1 << 20, "output")  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.body[0].extent = 5  # type: ignore[misc,union-attr]


def test_constants_of_one_size_tell_programs_apart() -> None:
    """Nobody but the data says what a constant's digest is."""
    one, other = (Tensor.constant("c", "u8", bytes([n] * 64)) for n in (1, 2))
    assert one.digest != other.digest and dataclasses.replace(one, data=other.data).digest == other.digest
    with pytest.raises((TypeError, ValueError)):
        Tensor("c", "u8", 64, "constant", bytes(64), "digest")  # type: ignore[call-arg]


@pytest.mark.parametrize("way", [copy.deepcopy, copy.copy, lambda found: pickle.loads(pickle.dumps(found))])
def test_a_copy_is_proved_again(way: Callable[[Program], Program]) -> None:
    found = verify(copies(16, 4))
    other = way(found)
    assert other == found and other.signature == found.signature
    broken = dataclasses.replace(found, body=copies(16, 5).body)
    for unsound in (broken, way(broken)):
        with pytest.raises(ProgramError, match="addresses 0 .. 79"):
            numerics.run(unsound, {"a": np.zeros(64, np.float32)})


def test_what_was_pickled_is_checked() -> None:
    data = pickle.dumps(Loop("i", 77, (MOVE,)), protocol=2)  # without frames, whose lengths would change
    with pytest.raises(ProgramError, match="extent=True"):
        pickle.loads(data.replace(b"K\x4d", b"\x88", 1))  # 77 becomes True


# -- arrays that a run is given ---------------------------------------------------------------------------------------
ENGINES = pytest.mark.parametrize("engine", ["reference", "compiled"])
NUMBERS_OF_A = np.arange(64, dtype=np.float32)


class Sub(np.ndarray):  # type: ignore[type-arg]
    """An array whose shape and memory a subclass lies about."""

    def reshape(self, *_: Any, **__: Any) -> Any:
        return np.zeros(1, np.float32)

    @property
    def ctypes(self) -> Any:
        raise RuntimeError("no memory")


def _matrix() -> Any:
    with warnings.catch_warnings(action="ignore"):  # NumPy discourages it, and users have it
        return np.matrix(NUMBERS_OF_A)


def _misaligned() -> Any:
    raw = np.zeros(64 * 4 + 1, np.uint8)[1:]
    raw[:] = NUMBERS_OF_A.view(np.uint8)
    return raw.view(np.float32)


def _read_only() -> Any:
    array = NUMBERS_OF_A.copy()
    array.flags.writeable = False
    return array


@ENGINES
@pytest.mark.parametrize("array", [
    NUMBERS_OF_A.reshape(8, 8), _matrix(), NUMBERS_OF_A.copy().view(Sub), _misaligned(), _read_only(),
    np.repeat(NUMBERS_OF_A, 3)[::3], NUMBERS_OF_A[::-1].copy()[::-1], np.asfortranarray(NUMBERS_OF_A.reshape(64, 1)),
])  # fmt: skip
def test_arrays_however_they_lie(array: Any, engine: str) -> None:
    found = numerics.run(copies(16, 4, parallel=True), {"a": array}, engine=engine)["o"]
    assert type(found) is np.ndarray and (found == NUMBERS_OF_A).all() and found.flags.writeable
    assert not np.shares_memory(found, array)


@ENGINES
@pytest.mark.parametrize(("inputs", "message"), [
    ({}, "no input a; given: none"), ({"b": NUMBERS_OF_A}, "no input a; given: b"),
    ({"a": NUMBERS_OF_A[:-1]}, "is 63 of float32, not 64"), ({"a": np.arange(65, dtype=np.float32)}, "is 65 of"),
    ({"a": NUMBERS_OF_A.astype(np.float64)}, "64 of float64"), ({"a": NUMBERS_OF_A.astype(object)}, "64 of object"),
    ({"a": NUMBERS_OF_A.astype(">f4")}, "64 of >f4"), ({"a": NUMBERS_OF_A.view(np.int32)}, "64 of int32"),
    ({"a": [1.0] * 64}, "64 of float64"), ({"a": None}, "1 of object"), ({"a": "a"}, "of <U1"),
    ({"a": np.ma.masked_array(NUMBERS_OF_A)}, "a MaskedArray"),
])  # fmt: skip
def test_arrays_that_do_not_fit(inputs: dict[str, Any], message: str, engine: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        numerics.run(copies(16, 4), inputs, engine=engine)


@ENGINES
@pytest.mark.parametrize("threads", [0, -1, 1.0, True, "2", None, 1025, np.int64(2)])
def test_threads(threads: Any, engine: str) -> None:
    with pytest.raises(InvalidArgument, match="threads="):
        numerics.run(copies(16, 4, parallel=True), {"a": NUMBERS_OF_A}, engine=engine, threads=threads)


def test_more_threads_than_iterations() -> None:
    found = numerics.run(copies(16, 4, parallel=True), {"a": NUMBERS_OF_A}, engine="compiled", threads=1024)["o"]
    assert (found == NUMBERS_OF_A).all()


def test_an_output_that_no_memory_holds() -> None:
    """Named, where the system says so at once; none is touched either way."""
    tensors = tuple(Tensor(f"o{n}", "f32", 1 << 34, "output") for n in range(3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buffers, "zeros", _full)
        with pytest.raises(InvalidArgument, match="output o0: no memory for 68719476736 bytes"):
            numerics.run(Program("p", "avx512_core", tensors, ()), {})


def _full(*_: Any) -> Any:
    raise MemoryError


@pytest.mark.parametrize("spoiled", [0, 63])
def test_an_alarm_of_one_thread_alone(spoiled: int) -> None:
    """One NaN, in the part of the first thread or of the second: its bits are those of the careful run."""
    x = Register("x", "f32", 16)
    add = Op("vaddps", V, (V, x))
    at = 16 * Affine.var("p")
    code = program(Loop("p", 4, (load(at), load(at, "x"), add, store(at)), True))
    data = NUMBERS_OF_A.copy()
    data.view(np.uint32)[spoiled] = 0xFF812345
    expected = numerics.run(code, {"a": data}, engine="reference")["o"]
    for threads in (1, 2, 4):
        found = numerics.run(code, {"a": data}, engine="compiled", native=False, threads=threads)["o"]
        assert found.tobytes() == expected.tobytes()


@given(st.integers(-99, 99), st.integers(-99, 99), st.integers(0, 9), st.integers(-9, 9))
def test_indices_of_rows_are_those_added_one_by_one(const: int, step: int, count: int, coefficient: int) -> None:
    first, more = Affine(const, (("k", 3),)), Affine.var("r") * coefficient + 5
    rows = first.steps(step, count) + more
    added = [first + step * i + more for i in range(count)]
    assert [*rows] == added == [rows[i] for i in range(count)] == rows[:] and len(rows) == count
    with pytest.raises(IndexError):
        rows[count]


@given(st.integers(-99, 99), st.integers(1, 16))
def test_a_moved_op_is_the_one_made_there(place: int, lanes: int) -> None:
    """All that is known of an op by then goes along, and nothing of its old place."""
    x, index = Register("x", "f32", 16), Affine.var("i") * 16 + place

    def loads(at: Affine) -> Op:
        return Op("vaddps", x, (x, Memory("a", at, "f32", lanes)))

    def stores(at: Affine) -> Op:
        return Op("vmovups", Memory("a", at, "f32", lanes), (x,))

    for make in (loads, stores):
        first, made = make(Affine()), make(index)
        assert first.form.number and first.memory and first.lanes and first.definition
        moved = first.at(index)
        assert moved == made and moved.memory == made.memory and moved.form is made.form and str(moved) == str(made)
    with pytest.raises(ProgramError, match="an Affine"):
        loads(index).at(place)  # type: ignore[arg-type]


def test_straight_code_is_what_stands_between_loops() -> None:
    a, b, c = (load(name=register) for register in ("x", "y", "z"))
    loop = Loop("i", 3, (a, b, Loop("j", 2, (c,)), c))
    first, inner, last = loop.parts
    assert (first, inner, last) == ((a, b), loop.body[2], (c,)) and loop.parts is loop.parts
    assert [memory for memory, *_ in first.accesses] == [a.memory, b.memory]  # type: ignore[union-attr]
    assert [(len(ops), times) for ops, times in program(loop).straight] == [(2, 3), (1, 6), (1, 3)]
