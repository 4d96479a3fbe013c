"""Moves of the first lanes of a register: all counts of lanes, in both engines, and what lies behind stays."""

import numpy as np
import pytest

from isa_models.isa import host_caps
from simdnn import numerics
from simdnn.numerics import compiled
from simdnn.numerics.masked import is_part
from simdnn.program.records import Affine, Loop, Memory, Op, Program, Register, Tensor

MOVES = [("vmovdqu8", "u8", 64), ("vmovdqu16", "u16", 32), ("vmovdqu", "u32", 16), ("vmovups", "f32", 16)]


def moves(name: str, dtype: str, lanes: int) -> Program:
    """Each count of lanes into a register, all of which goes to a line of `whole`, and the lanes to one of `some`."""
    body = []
    for count in range(1, lanes + 1):
        register, at = Register("r", dtype, lanes), Affine(count * lanes)
        body += [
            Op(name, register, (Memory("src", Affine(count), dtype, count),)),
            Op(name, Memory("whole", at, dtype, lanes), (register,)),
            Op(name, Memory("some", at, dtype, count), (register,)),
        ]
    size = lanes * (lanes + 1)
    made = [Tensor(tensor, dtype, size, "output") for tensor in ("whole", "some")]
    return Program(
        f"moves of {dtype}", "avx512_core", (Tensor("src", dtype, 2 * lanes), *made), (Loop("once", 1, tuple(body)),)
    )


@pytest.mark.parametrize(("name", "dtype", "lanes"), MOVES)
@pytest.mark.parametrize("native", [True, False])
def test_moves_of_some_lanes(name: str, dtype: str, lanes: int, native: bool) -> None:
    src = np.arange(1, 2 * lanes + 1).astype({"f32": np.float32}.get(dtype, f"u{64 // lanes}"))
    left = numerics.run(moves(name, dtype, lanes), {"src": src}, engine="compiled", native=native)
    expected = np.zeros((lanes + 1, lanes), src.dtype)
    for count in range(1, lanes + 1):
        expected[count, :count] = src[count : 2 * count]
    for tensor in ("whole", "some"):
        np.testing.assert_array_equal(left[tensor].reshape(expected.shape), expected)


@pytest.mark.skipif("avx512_core" not in host_caps(), reason="masks are AVX-512's")
def test_one_move_takes_the_place_of_three_and_more() -> None:
    def text(dtype: str, count: int, lanes: int) -> str:
        register, place = Register("r", dtype, lanes), Memory("src", Affine(), dtype, count)
        name = {"u16": "vmovdqu16", "f32": "vmovups"}[dtype]
        ops = Op(name, register, (place,)), Op(name, Memory("dst", Affine(), dtype, count), (register,))
        tensors = Tensor("src", dtype, lanes), Tensor("dst", dtype, lanes, "output")
        program = Program("moves", "avx512_core", tensors, ops)
        return "".join(compiled._Stage(program, host_caps(), "s", op, True).text for op in ops[:1])

    assert "llvm.masked.load.v32i16" in text("u16", 15, 32) and "llvm.masked.load.v16f32" in text("f32", 7, 16)
    assert "masked" not in text("u16", 3, 32) + text("f32", 12, 16) + text("f32", 8, 16)
    assert not is_part(Memory("src", Affine(), "f32", 16), 16)
