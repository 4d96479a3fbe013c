"""Outputs that need not be zeros before a run: those that it writes whole."""

from dataclasses import replace

import numpy as np
import pytest

import simdnn
from simdnn.numerics import covered
from simdnn.numerics.covered import written_whole
from simdnn.program.records import Loop, Program


@pytest.mark.parametrize(
    ("m", "n", "machine"), [(64, 64, "zen4"), (37, 45, "zen4"), (37, 45, "skx"), (5, 5, "hsw"), (1, 33, "zen4")]
)
def test_products_write_all_of_their_output(m: int, n: int, machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covered, "_LEAST", 1)
    for dt in ("f32", "u8:s8:s32", "u8:s8:u8", "bf16:bf16:bf16"):
        try:
            kernel = simdnn.estimate("matmul", m=m, n=n, k=24, dt=dt, machine=machine).kernel
        except simdnn.Unimplemented:
            continue
        assert written_whole(kernel.program, kernel.program.tensor["dst"])


def test_what_is_written_in_part_or_read_starts_as_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covered, "_LEAST", 1)
    program = simdnn.estimate("matmul", m=32, n=64, k=24, dt="f32", machine="zen4").kernel.program
    assert written_whole(program, program.tensor["dst"])
    larger = replace(program.tensor["dst"], size=program.tensor["dst"].size + 1)
    tensors = tuple(larger if t.name == "dst" else t for t in program.tensors)
    assert not written_whole(replace(program, tensors=tensors), larger)
    assert not written_whole(_shortened(program), program.tensor["dst"])
    assert not written_whole(program, program.tensor["src"])


def _shortened(program: Program) -> Program:
    """The program without the last iteration of its outermost loop."""
    *first, last = program.body
    assert isinstance(last, Loop)
    inner = last
    chain = [last]
    while inner.extent == 1:
        (inner,) = inner.body  # type: ignore[assignment]
        chain.append(inner)
    made: Loop = replace(inner, extent=inner.extent - 1)
    for loop in reversed(chain[:-1]):
        made = replace(loop, body=(made,))
    return replace(program, body=(*first, made))


def test_a_run_leaves_nothing_of_what_the_memory_held() -> None:
    """Large outputs lie where others were."""
    src, weights = np.full((256, 8), 2, np.float32), np.ones((8, 256), np.float32)
    for number in range(4):
        output = simdnn.matmul(src * number, weights, machine="zen4", engine="compiled").output
        assert (output == 16 * number).all()
        output[:] = np.nan
        del output
