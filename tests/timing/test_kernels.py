"""The clock knows every instruction of every kernel on every machine that has its ISA cap, and comes to an end."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest

from isa_models.instruction import REGISTRY, define
from isa_models.machines.cpu_record import Machine
from isa_models.machines.loader import cpu_machine as machine
from isa_models.machines.shipped import machine_names
from simdnn.kernels.common.epilogue import Epilogue
from simdnn.kernels.common.kernel import KernelKind
from simdnn.kernels.common.postops import RELU
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem, Problem
from simdnn.kernels.x86.rows import KERNELS
from simdnn.program.records import Program
from simdnn.timing.cpu.stream import Stream
from simdnn.timing.estimate import estimate_program
from simdnn.timing.gaps import gaps_of
from tests.effort import one_in
from tests.params import BY_CHANNEL, COMMON
from tests.timing.programs import in_blocks, narrow, unusual

TYPES = (
    ("f32", "f32", ("f32", "f16")),
    ("bf16", "bf16", ("f32", "bf16")),
    ("f16", "f16", ("f32", "f16")),
    ("f32", "bf16", ("f32", "bf16")),
    ("f32", "f16", ("f32", "f16")),
    ("u8", "s8", ("s32", "f32", "bf16", "s8", "u8")),
    ("s8", "s8", ("s32", "f32", "u8")),
)
SIZES = ((1, 40, 64), (1, 33, 7), (9, 1, 65), (7, 17, 3), (13, 63, 127), (2, 16, 770))  # m, n, k
CHANNELS = ((1, 3, 17), (16, 16, 16), (19, 19, 19), (2, 6, 10))  # groups, ic, oc
TAPS = ((3, 1, 1, 1), (1, 1, 0, 1), (5, 2, 2, 1), (3, 1, 2, 2), (8, 2, 0, 1))  # kernel, stride, padding, dilation


def epilogues(dst: str, integer: bool) -> Iterator[Epilogue]:
    yield Epilogue(dst=dst)
    narrow = dst in ("s8", "u8")
    scale = BY_CHANNEL if integer else None
    yield Epilogue(dst, integer, False, integer, scale, True, (RELU,), narrow, narrow)
    if integer:
        yield Epilogue(dst, zp_src=True, zp_wei=True, wei_scale=COMMON)


def problems() -> Iterator[Problem]:
    yield from unusual()
    yield from narrow()
    yield from in_blocks()
    for src, wei, destinations in TYPES:
        for dst in destinations:
            for epilogue in epilogues(dst, wei == "s8"):
                for m, n, k in SIZES:
                    for tag in ("any", "ab", "ba"):
                        yield MatmulProblem(m, n, k, src, wei, epilogue, tag)
                for groups, ic, oc in CHANNELS:
                    for size, stride, pad, dilation in TAPS:
                        yield ConvProblem(
                            1,
                            ic,
                            8,
                            9,
                            oc,
                            size,
                            size,
                            src,
                            wei,
                            epilogue,
                            (stride, stride),
                            (pad,) * 4,
                            (dilation, dilation),
                            groups,
                        )


PROBLEMS = tuple(problems())


@functools.cache
def taken(kind: KernelKind) -> list[Problem]:
    return [problem for problem in PROBLEMS if not kind.accepts(problem)]


def able(kind: KernelKind) -> list[Machine]:
    return [machine(name) for name in machine_names() if machine(name).supports(kind.isa)]


def forms(program: Program) -> set[tuple[str, str]]:
    stream = Stream(program)
    steps = [stream.line(op, {}).step for op, _ in program.ops()]
    return {(step.mnemonic, step.form) for step in steps}


@one_in(2, "most")
@pytest.mark.parametrize("most", [5, pytest.param(25, marks=pytest.mark.sweep)])
@pytest.mark.parametrize("kind", KERNELS, ids=lambda kind: kind.name)
def test_every_instruction_has_a_row(kind: KernelKind, most: int) -> None:
    targets, mine = able(kind), taken(kind)
    assert targets and mine
    some = mine[:: max(1, len(mine) // most)]
    needed = set().union(*(forms(kind.build(problem, targets[0]).program) for problem in some))
    gaps = [f"{target.name}: {m} {f}" for target in targets for m, f in sorted(needed) if not target.has(m, f)]
    assert not gaps, "; ".join(gaps)


@one_in(2, "step")
@pytest.mark.parametrize("step", [len(machine_names()), pytest.param(3, marks=pytest.mark.sweep)])
@pytest.mark.parametrize("turn", range(len(KERNELS)), ids=lambda turn: KERNELS[turn].name)
def test_every_kernel_is_timed(turn: int, step: int) -> None:
    """Each on one of its machines (in a sweep on a third of them), the next kernel on the next, so that each machine
    times kernels of all kinds; every one has the rows for every kernel (above).
    """
    kind = KERNELS[turn]
    targets, mine = able(kind), taken(kind)
    for i, target in list(enumerate(targets))[turn % min(step, len(targets)) :: step]:
        problem = mine[(2 * i + 1) * len(mine) // (2 * len(targets))]
        program = kind.build(problem, target).program
        cost = estimate_program(program, target)
        assert cost.core_cycles > 0 and sum(cost.executed.values()) == sum(times for _, times in program.ops())


# -- beyond what the kernels use: every instruction of the package -----------------------------------------------------


@pytest.mark.parametrize("name", machine_names())
def test_every_instruction_of_the_package_has_rows(name: str) -> None:
    target = machine(name)
    gaps = [f"{mnemonic} {form}" for mnemonic, form in gaps_of(target)]
    assert not gaps, f"{name} lacks {len(gaps)} rows: {'; '.join(gaps)}"


@pytest.mark.parametrize(
    ("facts", "forms"),
    [
        ({}, {"zmm,zmm", "zmm,m512"}),
        ({"memory": "element", "registers": False}, {"zmm,m32"}),
        ({"memory": "store"}, {"zmm,zmm", "m512,zmm"}),
        ({"memory": "none"}, {"zmm,zmm"}),
    ],
)
def test_an_instruction_says_which_forms_it_has(facts: dict[str, Any], forms: set[str]) -> None:
    """Its name says nothing: those that are missing on a machine follow from what it is defined with."""
    partial = facts.get("memory") == "element"
    try:
        define("vpextra", "u32 <- u32", {512: ("avx512_core",)}, "ours", partial=partial, **facts)(lambda a: a)
        assert {form for mnemonic, form in gaps_of(machine("icx")) if mnemonic == "vpextra"} == forms
    finally:
        REGISTRY.pop("vpextra", None)
