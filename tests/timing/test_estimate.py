"""The clock of whole Programs: nothing lost, nothing faster than the machine, and the same figures as last time.

Golden totals: `python -m tests.timing.test_estimate` from the repository's root writes golden.json anew. Look at the
difference before committing it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa_models import UnknownTiming
from isa_models.block_formats import block_format
from isa_models.formats import fmt
from isa_models.machines.loader import cpu_machine as machine
from isa_models.machines.provenance import Provenance
from isa_models.readings.arrays import ArrayValue
from simdnn.kernels.common.epilogue import Epilogue
from simdnn.kernels.common.kernel import KernelKind
from simdnn.kernels.common.postops import RELU
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem, Problem
from simdnn.kernels.x86.rows import KERNELS as KERNEL_TABLE
from simdnn.numerics import reference
from simdnn.program.check import verify
from simdnn.program.records import Affine, Loop, Memory, Op, Program, Register, Statement, Tensor
from simdnn.timing.cpu import walk
from simdnn.timing.cpu.steps import Step, lower
from simdnn.timing.cpu.walk import core_time, lower_bounds
from simdnn.timing.estimate import estimate_program
from tests.effort import examples, one_in
from tests.params import BY_CHANNEL
from tests.timing.programs import gemm, narrow, unusual

GOLDEN = Path(__file__).with_name("golden.json")

KERNELS = {
    "f32 14x2": gemm("f32", 28, 64, 256, 14, 2),
    "f32 4x2 L3": gemm("f32", 64, 1024, 2048, 4, 2),
    "f32 1x1": gemm("f32", 4, 64, 300, 1, 1),
    "f32 ymm 4x2": gemm("f32", 16, 64, 128, 4, 2, width=256),
    "bf16 14x2": gemm("bf16", 28, 64, 256, 14, 2),
    "vnni 8x2": gemm("vnni", 64, 128, 256, 8, 2),
    "vnni 8x2 taps": gemm("vnni", 32, 64, 576, 8, 2, taps=9),
    "vnni 14x2 short": gemm("vnni", 56, 128, 16, 14, 2),
    "vnni 1x4": gemm("vnni", 1, 1024, 1024, 1, 4),
    "maddubs 8x2": gemm("maddubs", 32, 64, 256, 8, 2),
    "maddubs ymm 4x2": gemm("maddubs", 16, 64, 128, 4, 2, width=256),
    "f32 masked": gemm("f32", 56, 32, 64, 14, 2, last=5),
}
PAIRS = [
    (kernel, name)
    for kernel, program in KERNELS.items()
    for name in ("zen4", "icx", "skx")
    if machine(name).supports(program.isa)
]


def executed(program: Program) -> Counter[str]:
    buffers = {}
    for t in program.tensors:
        dtype = fmt(t.dtype).dtype
        buffers[t.name] = np.frombuffer(t.data, dtype) if t.kind == "constant" else np.zeros(t.size, dtype)
    return reference.execute(program, buffers)


def whole(program: Program, name: str) -> walk.CoreTime:
    """The time with every iteration simulated."""
    full = walk._Walk(program, machine(name))
    full.window = 1 << 40
    return full.run()


# -- the program's instructions, and only those ----------------------------------------------------------------------


@one_in(3)
@pytest.mark.parametrize("kind", KERNEL_TABLE, ids=lambda kind: kind.name)
def test_every_kernel_is_timed_whole(kind: KernelKind) -> None:
    target = next(found for found in map(machine, ("zen4", "spr", "gnr")) if found.supports(kind.isa))
    program = kind.build(next(p for p in problems() if not kind.accepts(p)), target).program
    counted = Counting(program, {})
    counted.whole("instructions counted")
    assert estimate_program(program, target).executed == counted.executed


class Counting(reference.Interpreter):
    """The readable engine's way through a program, on which instructions are counted and none is computed."""

    def op(self, op: Op, variables: reference.Variables, registers: reference.Registers, batch: int) -> ArrayValue:
        self.executed[op.definition.mnemonic(op.width)] += batch
        return NOTHING


NOTHING = ArrayValue(np.zeros((1, 1), np.uint8), "u8")


def problems() -> Iterator[Problem]:
    """Small problems, so that every kernel can do one of them."""
    yield from unusual()
    yield from narrow()
    yield MatmulProblem(2, 18, 64, "f32", "u8", Epilogue("f32"), blocks="q5_1")
    yield MatmulProblem(5, 8, 64, "f32", block_format("q4_0").codes, Epilogue("f32"), blocks="q4_0")
    yield MatmulProblem(9, 3, 256, "f32", block_format("q6_K").codes, Epilogue("f32"), blocks="q6_K")
    for src, wei in (("f32", "f32"), ("bf16", "bf16"), ("f16", "f16"), ("u8", "s8")):
        scales = BY_CHANNEL if wei == "s8" else None
        epilogue = Epilogue(dst="f32", wei_scale=scales, bias=True, post_ops=(RELU,))
        for m, tag in ((9, "any"), (1, "any"), (1, "ab")):
            yield MatmulProblem(m, 40, 64, src, wei, epilogue, tag)
        for groups in (1, 16):
            yield ConvProblem(1, 16, 4, 4, 16, 3, 3, src, wei, epilogue, padding=(1, 1, 1, 1), groups=groups)
        yield ConvProblem(1, 16, 3, 3, 16, 3, 3, src, wei, epilogue)  # a single pixel
    for wei in ("bf16", "f16"):
        yield MatmulProblem(9, 40, 64, "f32", wei, Epilogue(dst="f32"))
    yield MatmulProblem(1, 40, 64, "f32", "f32", Epilogue(dst="f32"), "ab")
    yield MatmulProblem(1, 40, 64, "f32", "f32", Epilogue(dst="f32"), "ba")


@pytest.mark.parametrize("kernel", ["f32 14x2", "vnni 8x2 taps", "maddubs ymm 4x2", "f32 masked", "f32 1x1"])
def test_the_timed_instructions_are_the_executed_ones(kernel: str) -> None:
    cost = estimate_program(KERNELS[kernel], machine("zen4"))
    assert cost.executed == executed(KERNELS[kernel])


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Loop nests of a few additions, loads and stores at any depth.

    A load meets an earlier store's bytes all or not at all: where it meets a part it waits for the store's commit, and
    a loop cut short does not see how that adds up over its iterations.
    """
    names = [f"r{i}" for i in range(4)]
    lanes = draw(st.sampled_from([4, 8, 16]))
    live = draw(st.integers(1, 16))
    count = 0

    def op(loops: dict[str, int]) -> Op:
        a, b, c = (Register(draw(st.sampled_from(names)), "s32", lanes) for _ in range(3))
        index = Affine(16 * draw(st.integers(0, 4)))
        for var in loops:
            index = index + draw(st.sampled_from([0, 16, 32, 112])) * Affine.var(var)
        memory = Memory(draw(st.sampled_from(["x", "y"])), index, "u32", lanes if lanes < 16 else live)
        kind = draw(st.sampled_from(["add", "load", "store", "zero"]))
        if kind == "add":
            return Op("vpaddd", a, (b, c))
        if kind == "zero":
            return Op("vpxor", a.as_("u32"), (a.as_("u32"), a.as_("u32")))
        if kind == "load":
            return Op("vmovdqu", a.as_("u32"), (memory,))
        return Op("vmovdqu", Memory("y", memory.index, "u32", memory.lanes), (a.as_("u32"),))

    def block(loops: dict[str, int], depth: int) -> tuple[Statement, ...]:
        nonlocal count
        found: list[Statement] = []
        for _ in range(draw(st.integers(1, 3))):
            if depth and draw(st.booleans()):
                count += 1
                var, extent = f"i{count}", draw(st.sampled_from([1, 2, 3, 7, 40 if depth == 2 else 4]))
                found.append(Loop(var, extent, block({**loops, var: extent}, depth - 1)))
            else:
                found.append(op(loops))
        return tuple(found)

    clear = tuple(Op("vpxor", Register(n, "u32", lanes), (Register(n, "u32", lanes),) * 2) for n in names)
    tensors = (Tensor("x", "s32", 1 << 14), Tensor("y", "s32", 1 << 14, "output"))
    return verify(Program("random", "avx512_core", tensors, (Loop("once", 1, (*clear, *block({}, 2))),)))


@examples(25)
@given(programs())
def test_random_programs(program: Program) -> None:
    cost = estimate_program(program, machine("zen4"))
    assert cost.executed == executed(program)
    assert cost.core_cycles == pytest.approx(sum(piece.cycles for piece in cost.pieces))
    if sum(cost.executed.values()) < 3000:
        full = whole(program, "zen4")
        assert full.executed == core_time(program, machine("zen4")).executed
        # In so short a program stores still queued at the end are part of one figure and not of the other.
        assert cost.core_cycles == pytest.approx(full.cycles, rel=0.1, abs=150)


# -- conservation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kernel", "name"), PAIRS)
def test_nothing_is_faster_than_its_bounds(kernel: str, name: str) -> None:
    """Ports, load pipes, store commits, dispatch; the chain of one accumulator; the bytes of every level."""
    target, program = machine(name), KERNELS[kernel]
    cost = estimate_program(program, target)
    total: Counter[str] = Counter()
    for key, count in core_time(program, target).executed.items():
        if key.mnemonic == "jnz":
            continue
        steps = [Step(key.mnemonic, key.form, tuple(f"r{i}" for i in range(key.sources)), ("w",))]
        steps += [Step("jnz", "rel")] if key.mnemonic == "dec" else []
        ops = lower(target, steps)
        for bound, cycles in lower_bounds(target, ops).items():
            if bound != "compute":
                total[bound] += cycles * count  # type: ignore[assignment]
        for op in ops:
            total["ports"] += len(op.uops) * op.occupancy * count / len(target.core.ports)  # type: ignore[assignment]
    assert all(cost.core_cycles >= cycles * (1 - 1e-9) for cycles in total.values())
    assert all(cost.cycles >= level.cycles for level in cost.levels)
    assert cost.traffic["share_of_peak"].max() <= 1
    assert cost.instructions["cycles_share"].sum() == pytest.approx(1)
    assert cost.seconds == pytest.approx(cost.cycles / target.frequency.ghz(walk_width(program)) / 1e9)


def walk_width(program: Program) -> int:
    return max(op.width for op, _ in program.ops())


def test_a_chain_takes_its_latency() -> None:
    """One accumulator: 1000 multiply-adds of 4 cycles each, one behind the other."""
    cost = estimate_program(gemm("f32", 1, 16, 1000, 1, 1), machine("zen4"))
    assert 4000 <= cost.core_cycles < 4100
    assert cost.bound == "latency"


def test_loads_and_stores_are_uops_with_ports() -> None:
    cost = estimate_program(KERNELS["f32 14x2"], machine("skx"))
    stores = cost.instructions[cost.instructions["form"].str.startswith("m512,")]
    assert len(stores) and (stores["uops"] == 2 * stores["count"]).all() and set(stores["ports"]) == {"p2/p3/p7 + p4"}
    loads = cost.instructions[cost.instructions["form"] == "zmm,m512"]
    assert len(loads) and (loads["uops"] == loads["count"]).all() and set(loads["ports"]) == {"p2/p3"}


def test_vnni_reaches_four_times_f32_on_zen4() -> None:
    """The compute-bound ratios that a Zen 4 is known for: 1 : 2 : 2 : 4."""
    cycles = {
        k: estimate_program(gemm(k, 64, 128, 256, 8, 2), machine("zen4")).core_cycles
        for k in ("f32", "bf16", "maddubs", "vnni")
    }
    ratios = [cycles["f32"] / cycles[k] for k in ("bf16", "maddubs", "vnni")]
    assert ratios == pytest.approx([2, 2, 4], rel=0.015)


def test_a_stream_from_memory_is_bound_by_it() -> None:
    program = gemm("vnni", 1, 1024, 1024, 1, 4)
    cost = estimate_program(program, machine("zen4"), cold=[tensor.name for tensor in program.tensors])
    share = cost.traffic.set_index("level")["share_of_peak"]["DRAM"]
    assert cost.bound == "DRAM" and 0.999 < share <= 1  # what stands around the loop of k is a phase by itself


# -- shortcuts against full simulation -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["zen4", "icx"])
@pytest.mark.parametrize(
    "program",
    [
        gemm("f32", 16, 64, 100, 8, 2),
        gemm("f32", 8, 64, 64, 2, 1),
        gemm("f32", 4, 64, 64, 1, 1),
        gemm("f32", 4, 64, 100, 1, 1),
        gemm("vnni", 16, 128, 72, 8, 2, taps=9),
        gemm("maddubs", 16, 64, 128, 4, 2, width=256),
    ],
    ids=lambda value: value.name if isinstance(value, Program) else value,
)
def test_loops_cut_short_keep_the_time(program: Program, name: str) -> None:
    full, short = whole(program, name), core_time(program, machine(name))
    assert full.executed == short.executed
    assert short.cycles == pytest.approx(full.cycles, rel=0.03)


@pytest.mark.parametrize(("kind", "rows", "vectors"), [("vnni", 8, 2), ("f32", 14, 2), ("f32", 2, 1), ("f32", 1, 1)])
def test_monotone_in_k(kind: str, rows: int, vectors: int) -> None:
    times = [
        estimate_program(gemm(kind, rows * 2, 64, 4 * k, rows, vectors), machine("zen4")).cycles
        for k in (1, 2, 5, 8, 11, 14, 20, 30, 50, 100, 1000)
    ]
    assert all(a < b for a, b in zip(times, times[1:], strict=False)), times


# -- standing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guessed", ["base_ghz", "avx2_ghz", "avx512_ghz"])
def test_the_clock_has_the_standing_of_its_width(guessed: str) -> None:
    skx, seen = machine("skx"), Provenance("as if all else were", "measured")
    known = {**dict.fromkeys(skx.provenance, seen), f"frequency.{guessed}": replace(seen, confidence="estimated")}
    rows = {key: replace(row, provenance=seen) for key, row in skx.instructions.items()}
    target = replace(skx, provenance=known, instructions=rows)
    found = {
        name: estimate_program(KERNELS[kernel], target).confidence
        for name, kernel in (("avx512_ghz", "f32 14x2"), ("avx2_ghz", "f32 ymm 4x2"))
    }
    assert found == {name: "estimated" if name == guessed else "measured" for name in found}


# -- errors and golden totals ----------------------------------------------------------------------------------------


def test_a_missing_row_is_an_error() -> None:
    with pytest.raises(UnknownTiming, match="'skx' has no timing for 'vpdpbusd zmm,zmm,zmm'.*zen4"):
        estimate_program(KERNELS["vnni 8x2"], machine("skx"))


def golden() -> dict[str, float]:
    return {f"{k} on {m}": round(estimate_program(KERNELS[k], machine(m)).cycles, 1) for k, m in PAIRS}


def test_golden_totals() -> None:
    expected, found = json.loads(GOLDEN.read_text()), golden()
    rows = [f"{'kernel and machine':28s} {'golden':>12s} {'now':>12s}"]
    for key in sorted(expected.keys() | found.keys()):
        old, new = expected.get(key, float("nan")), found.get(key, float("nan"))
        if not abs(new - old) <= 1e-3 * old:
            rows.append(f"{key:28s} {old:12.1f} {new:12.1f} {100 * (new / old - 1):+7.2f} %")
    assert len(rows) == 1, "\n".join(["totals differ (see this file's head)", *rows])


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(golden(), indent=1) + "\n")
