"""Every tensor that the compiled engine reads or writes begins on a cache line, wherever the user's arrays begin."""

from typing import Any

import numpy as np
import pytest

import simdnn
from isa_models.readings.arrays import Array, on_a_line
from simdnn.numerics import compiled
from simdnn.program.records import Program
from tests.effort import one_in

LINE = 64


def off_a_line(array: Array) -> Array:
    """The same values, one element behind the beginning of a line."""
    memory = on_a_line(array.size + 1, array.dtype)[1:].reshape(array.shape)
    memory[...] = array
    return memory


@one_in(3)
@pytest.mark.parametrize("tag", ["any", "ab", "ba"])
@pytest.mark.parametrize("threads", [1, 2])
def test_tensors_begin_on_a_line(monkeypatch: pytest.MonkeyPatch, tag: str, threads: int) -> None:
    seen: list[int] = []
    pointers = compiled._pointers

    def noted(program: Program, buffers: dict[str, Array]) -> object:
        seen.extend(buffers[t.name].ctypes.data % LINE for t in program.tensors)
        return pointers(program, buffers)

    monkeypatch.setattr(compiled, "_pointers", noted)
    monkeypatch.setattr(compiled, "at_once", lambda program: None)  # short programs may read elsewhere, once
    rng = np.random.default_rng(0)
    src, weights = (off_a_line(rng.integers(-128, 128, shape).astype(np.int8)) for shape in ((30, 70), (70, 50)))

    def outcome(src: Array, weights: Array, **how: Any) -> Array:
        return simdnn.matmul(src, weights, machine="skx", wei_tag=tag, dispatch="gemm:avx512_core_int8", **how).output

    output = outcome(src, weights, threads=threads)
    assert len(seen) >= 3 and not any(seen)
    np.testing.assert_array_equal(output, outcome(src.copy(), weights.copy(), engine="reference"))
