"""Purposes of instructions: kernels of all targets show the purposes that their problems ask for, and no others."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

import simdnn
from simdnn import Attr, Quant
from simdnn.program.purposes import (
    CONVERSION,
    DECOMPRESSION,
    DOT,
    ELEMENTWISE,
    EPILOGUE,
    LOADS,
    PACKING,
    PURPOSES,
    ZERO_POINTS,
    purposes,
)
from simdnn.program.records import Loop, Memory, Place, Program, Statement
from tests.effort import one_in

GROUPS = Quant(None, groups=(32, 1), dtype="f32")
POINTS = Quant(None, groups=(32, 1), dtype="s8")
COMMON = Quant(None, dtype="s32")
COMPRESSED = {"fpmath": "bf16", "apply_to_int": True, "scales": {"wei": GROUPS}}
#: types, attributes, the purposes that must be there, and those that must not
PROBLEMS: dict[str, tuple[str, dict[str, Any], set[str], set[str]]] = {
    "floats": ("f32", {}, set(), {CONVERSION, DECOMPRESSION, ZERO_POINTS}),
    "integers": ("u8:s8:s32", {}, set(), {DECOMPRESSION, ZERO_POINTS}),
    "down": ("f32", {"fpmath": "bf16"}, set(), {DECOMPRESSION, ZERO_POINTS}),
    "points": ("u8:s8:f32", {"zero_points": {"src": COMMON}}, {ZERO_POINTS}, {DECOMPRESSION}),
    "both points": ("u8:s8:f32", {"zero_points": {"src": COMMON, "wei": COMMON}}, {ZERO_POINTS}, {DECOMPRESSION}),
    "scaled": (
        "u8:s8:u8",
        {"scales": {"src": Quant(None), "dst": Quant(None)}, "post_ops": ["relu"]},
        set(),
        {DECOMPRESSION, ZERO_POINTS},
    ),
    "stored": ("f32:s8:f32", COMPRESSED, {DECOMPRESSION}, {ZERO_POINTS}),
    "stored, points": (
        "f32:u4:f32",
        COMPRESSED | {"zero_points": {"wei": POINTS}},
        {DECOMPRESSION, ZERO_POINTS},
        set(),
    ),
}


def counted(result: simdnn.Estimate) -> Counter[str]:
    """Executions by purpose of what the clock sees."""
    program = result.kernel.timed or result.kernel.program
    found: Counter[str] = Counter()
    for _, times, purpose in purposes(program):
        found[purpose] += times
    assert found.total() == sum(times for _, times in program.ops()) and set(found) <= set(PURPOSES)
    return found


@one_in(3, "name")
@pytest.mark.parametrize("machine", ["hsw", "skx", "zen4", "spr", "adl-p", "dg1", "b580", "max1550"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_kernel_shows_what_its_problem_asks_for(machine: str, name: str) -> None:
    dt, attr, asked, others = PROBLEMS[name]
    try:
        result = simdnn.estimate("matmul", m=5, n=48, k=64, dt=dt, machine=machine, attr=Attr(**attr))
    except simdnn.Unimplemented as reason:
        pytest.skip(str(reason))
    found = set(counted(result))
    assert {DOT, LOADS, EPILOGUE} | asked <= found and not found & (others | {ELEMENTWISE})
    assert result.causes["cycles"].sum() == pytest.approx(result.cycles)


def test_every_product_is_a_dot_product() -> None:
    """Of instructions that accumulate: as many as the multiply-accumulates need."""
    result = simdnn.estimate("matmul", m=16, n=64, k=64, dt="u8:s8:s32", machine="icx")
    dots = [op for op, _, purpose in purposes(result.kernel.program) if purpose == DOT and not op.is_zero_idiom]
    assert {op.instruction for op in dots} == {"vpdpbusd"}
    assert sum(times for op, times, _ in purposes(result.kernel.program) if op in dots) == result.problem.macs / 64


def test_layouts_and_borders_are_packing() -> None:
    plain = simdnn.estimate("matmul", m=16, n=64, k=64, dt="u8:s8:s32", machine="icx", wei_tag="ab")
    assert PACKING in counted(plain) and CONVERSION not in counted(plain)
    border = simdnn.estimate(
        "convolution", ic=16, ih=6, iw=6, oc=16, kh=3, kw=3, padding=1, dt="u8:s8:s32", machine="skx"
    )
    assert PACKING in counted(border)


def renamed(program: Program) -> Program:
    """The program with names of tensors that say nothing."""
    names = {tensor.name: f"t{number}" for number, tensor in enumerate(program.tensors)}

    def place(one: Place) -> Place:
        return replace(one, tensor=names[one.tensor]) if isinstance(one, Memory) else one

    made: dict[int, Statement] = {}  # a generator may place one instruction several times

    def statement(one: Statement) -> Statement:
        if isinstance(one, Loop):
            return replace(one, body=tuple(map(statement, one.body)))
        return made.setdefault(id(one), replace(one, dst=place(one.dst), srcs=tuple(map(place, one.srcs))))

    tensors = tuple(replace(tensor, name=names[tensor.name]) for tensor in program.tensors)
    return replace(program, tensors=tensors, body=tuple(map(statement, program.body)))


@pytest.mark.parametrize("machine", ["skx", "dg1"])
@pytest.mark.parametrize("name", ["both points", "scaled", "stored, points"])
def test_purposes_are_not_read_out_of_names(machine: str, name: str) -> None:
    dt, attr, *_ = PROBLEMS[name]
    program = simdnn.estimate("matmul", m=5, n=48, k=64, dt=dt, machine=machine, attr=Attr(**attr)).kernel.program
    plain, others = ([purpose for *_, purpose in purposes(one)] for one in (program, renamed(program)))
    assert plain == others


def test_codes_of_a_source_are_converted() -> None:
    found = simdnn.estimate(
        "convolution", ic=16, ih=6, iw=6, oc=16, kh=3, kw=3, dt="f8_e4m3:f8_e4m3:f32", machine="skx"
    )
    loads = {
        purpose
        for one, _, purpose in purposes(found.kernel.program)
        for place in one.srcs
        if isinstance(place, Memory) and place.tensor == "codes"
    }
    assert loads == {CONVERSION}


def test_work_is_never_more_than_the_core_needs() -> None:
    for threads in (1, 2, 8):
        result = simdnn.estimate("matmul", m=64, n=128, k=64, dt="f32", machine="zen4", threads=threads)
        causes = result.causes.set_index("cause")["cycles"]
        waits = sum(causes.get(name, 0.0) for name in ("waiting for results", "waiting for memory"))
        assert 0 < result.cycles - waits <= result.cost.work.own_cycles * (1 + 1e-9) and (causes > 0).all()
