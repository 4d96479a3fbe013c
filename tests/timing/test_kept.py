"""Things that estimates keep for later ones: this changes no answer, and a second product of a kind costs less work."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models import cpu_machine
from isa_models.machines.loader import gpu_machine
from simdnn.kernels.x86.code import fetch
from simdnn.program import Affine, Loop, Program, Tensor
from simdnn.timing.cpu import lines, walk
from simdnn.timing.cpu.core_run import CoreRun
from simdnn.timing.estimate import Cost, estimate_program
from simdnn.timing.gpu import engine
from simdnn.timing.gpu.estimate import estimate_gpu
from tests.effort import examples
from tests.timing.programs import gemm

MACHINES = ("hsw", "icx", "zen4", "spr")
TYPES = ("f32", "u8:s8:s32", "s8:s8:s32", "bf16:bf16:f32")


def said(cost: Cost) -> dict[str, Any]:
    """All that a cost tells, the order of its forms included."""
    told = {field.name: getattr(cost, field.name) for field in fields(cost) if field.name not in ("work", "find_forms")}
    shown = {"forms": cost.forms, "causes": cost.work.causes(cost.cycles)}
    return told | shown | {"executed": list(cost.executed.items())}


@contextmanager
def nothing_kept() -> Iterator[None]:
    """A process that has estimated nothing yet."""
    with patch.object(lines, "_known", lines._KnownLines):
        yield


@examples(12)
@given(
    st.sampled_from(MACHINES),
    st.sampled_from(TYPES),
    st.lists(st.tuples(*[st.integers(1, 70)] * 3), min_size=2, max_size=3),
    st.integers(1, 2),
)
def test_what_is_kept_from_others_changes_nothing(
    name: str, dt: str, sizes: list[tuple[int, int, int]], threads: int
) -> None:
    machine = cpu_machine(name)
    for m, n, k in sizes:
        program = simdnn.estimate("matmul", m=m, n=n, k=k, dt=dt, machine=name).kernel.program
        kept = estimate_program(program, machine, threads=threads)
        with nothing_kept():
            assert said(estimate_program(program, machine, threads=threads)) == said(kept)


@examples(8)
@given(
    st.sampled_from(("a770", "b580", "v100", "a100", "h100")),
    st.sampled_from(("f16:f16:f32", "s8:s8:s32")),
    st.lists(st.tuples(*[st.integers(1, 300)] * 3), min_size=2, max_size=3),
)
def test_what_engines_ran_for_others_changes_nothing(name: str, dt: str, sizes: list[tuple[int, int, int]]) -> None:
    machine = gpu_machine(name)
    for m, n, k in sizes:
        try:
            program = simdnn.estimate("matmul", m=m, n=n, k=k, dt=dt, machine=name).kernel.program
        except simdnn.Unimplemented:
            continue
        kept = estimate_gpu(program, machine)
        with patch.dict(engine._CUTS, clear=True):
            assert said(estimate_gpu(program, machine)) == said(kept)


def test_engines_run_code_that_differs_in_addresses_once() -> None:
    assert simdnn.estimate("matmul", m=1000, n=1000, k=1000, dt="f16", machine="a770").cycles
    with patch.object(engine, "run") as ran:
        assert simdnn.estimate("matmul", m=1003, n=990, k=1100, dt="f16", machine="a770").cycles
    assert not ran.called


@pytest.mark.parametrize("first", ["prefetcht0", "prefetchw"])
def test_instructions_that_are_timed_alike_are_counted_apart(first: str) -> None:
    for name in dict.fromkeys((first, "prefetcht0", "prefetchw")):
        asked = fetch(name, "c", Affine(), "f32")
        program = Program("asks", "avx512_core", (Tensor("c", "f32", 16, "output"),), (Loop("i", 4, (asked,)),))
        assert estimate_program(program, cpu_machine("spr")).executed[name] == 4


def test_lines_met_before_are_not_lowered_again() -> None:
    """Other sizes have the same lines but for addresses, so no row is added, and no tile simulated."""
    machine = cpu_machine("icx")
    estimate_program(gemm("vnni", 16, 128, 72, 8, 2), machine)
    with patch.object(lines, "core_op") as lowered, patch.object(walk, "Turning") as simulated:
        estimate_program(gemm("vnni", 24, 256, 80, 8, 2), machine)
    assert not lowered.called and not simulated.called


def test_lines_that_meet_alike_elsewhere_are_not_simulated_again() -> None:
    """A row of widened weights begins at another place of a line; none of them lies in two lines."""
    name, shape = "gemm:avx512_core_bf16_stored", {"m": 24, "n": 64, "dt": "bf16:bf16:f32"}
    first, other = (simdnn.estimate("matmul", k=k, machine="icx", dispatch=name, **shape) for k in (300, 332))
    estimate_program(first.kernel.program, cpu_machine("icx"))
    with patch.object(walk, "Turning", wraps=walk.Turning) as prepared, patch.object(CoreRun, "settle") as simulated:
        estimate_program(other.kernel.program, cpu_machine("icx"))
    assert prepared.called and not simulated.called


@pytest.mark.parametrize("machine", ["icx", "b580"])
def test_estimates_keep_no_programs_and_leave_no_garbage(machine: str) -> None:
    """A study of thousands of shapes keeps figures alone, and gives Python's collection of garbage nothing to find."""
    shapes = [(m, 50 + 7 * m, 30 + 5 * m) for m in range(3, 30, 4)]
    for m, n, k in shapes[:2]:  # what the first ones import and read
        assert len(simdnn.estimate("matmul", m=m, n=n, k=k, machine=machine).dispatch)
    gc.collect()
    before = _programs()
    with _collected_by_nobody():
        found = [simdnn.estimate("matmul", m=m, n=n, k=k, machine=machine) for m, n, k in shapes[2:]]
        assert all(len(one.dispatch) and one.cycles for one in found)
        assert _programs() - before <= 2  # the last ones
    assert found[0].kernel.program.signature and not found[0].causes.empty  # made again for who asks


def _programs() -> int:
    return sum(type(one) is Program for one in gc.get_objects())


@contextmanager
def _collected_by_nobody() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
