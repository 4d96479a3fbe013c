"""Calls of oneDNN's kernels around an operator: there are as many as lines, or registers of lines."""

from __future__ import annotations

import pytest

import simdnn
from simdnn.libraries.onednn.calls import OPERATORS


@pytest.mark.parametrize(
    ("shape", "axis", "calls"),
    [
        ((6, 5, 32), 2, 30),
        ((6, 5, 32), 1, 12),
        ((6, 5, 33), 1, 18),
        ((6, 5, 32), 0, 10),
        ((6, 32), 0, 2),
        ((6, 7), 1, 6),
    ],
)
def test_a_softmax_is_called_for_lines_or_registers_of_them(shape: tuple[int, ...], axis: int, calls: int) -> None:
    """Along the last dimension line by line, else 16 lines at a time."""
    execution, each = OPERATORS["softmax"]
    r = simdnn.estimate("softmax", src=shape, axis=axis, dt="f32", machine="zen4", dispatch="onednn")
    launched = r.causes.set_index("cause").cycles["launch"]
    assert each > 0 and launched == pytest.approx(execution + each * calls)
