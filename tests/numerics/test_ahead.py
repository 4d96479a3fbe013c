"""Lines that the engine asks for ahead: of which operands, and in which code."""

from typing import Any

import pytest

import simdnn
from simdnn.numerics import compiled, fitted
from simdnn.numerics.ahead import CAP, lines_ahead
from simdnn.numerics.blocks import order_of_program
from simdnn.program.records import Program


def program_of(kernel: str, m: int, n: int, k: int, dt: str = "f32") -> Program:
    how: dict[str, Any] = {"m": m, "n": n, "k": k, "dt": dt, "machine": "zen4", "dispatch": kernel}
    program: Program = simdnn.estimate("matmul", **how).kernel.program
    return program


@pytest.mark.parametrize(
    ("kernel", "dt", "k", "columns"),
    [
        ("gemm:avx512_core", "f32", 256, 4),  # panels of 64 KB
        ("gemm:avx512_core", "f32", 128, 0),  # 32 KB
        ("gemm:avx512_core_vnni", "u8:s8:s32", 256, 0),
        ("gemm:avx512_core_vnni", "u8:s8:s32", 1024, 4),
    ],
)
def test_weights_that_the_first_cache_does_not_keep(kernel: str, dt: str, k: int, columns: int) -> None:
    program = program_of(kernel, 100, 256, k, dt)
    bodies = [order_of_program(one).body for one in program.body]
    found = [ahead for body in bodies for ahead in lines_ahead(program, body).values()]
    assert {len(ahead) for ahead in found} == ({columns} if columns else set())
    steps_of_four_lines = {("wei", 8 * 4 * 64)} if columns else set()
    assert {(place.tensor, further) for ahead in found for place, further in ahead} == steps_of_four_lines


def test_code_that_is_timed_or_for_other_cores_asks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitted, "host_registers", lambda: fitted.RegisterFile(32, 512))  # which such a core has
    program = program_of("gemm:avx512_core", 100, 256, 256)

    def asks(caps: set[str], timed: bool = False) -> bool:
        stages = [
            compiled._Stage(program, frozenset(caps), f"s{i}", one, True, () if timed else None)
            for i, one in enumerate(program.body)
        ]
        return any("llvm.prefetch" in stage.text for stage in stages)

    assert asks({"avx512_core", CAP})
    assert not asks({"avx512_core", CAP}, timed=True)
    assert not asks({"avx512_core"})
