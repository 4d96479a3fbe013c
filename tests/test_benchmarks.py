"""`python -m benchmarks` runs; its figures are the host's own and are not judged here."""

from __future__ import annotations

from benchmarks import gemm


def test_a_small_run() -> None:
    frame = gemm.measure(size=64, rounds=1)
    assert len(frame) == 1 + 2 * len(gemm.VARIANTS)
    assert frame["ratio"].iloc[0] == 1 and (frame["ms"] > 0).all()
    assert set(frame["met"].iloc[1:]) <= {"yes", "no: ratio", "no: compile", "no: ratio, compile"}
