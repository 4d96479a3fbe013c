"""The GPU clock: engines, caches and memory conserve, no problem is faster than its roofline, and published rates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models import GpuMachine, ProgramError, Unimplemented, UnknownName, UnknownTiming, instruction, what_if
from isa_models.formats import fmt
from isa_models.gpu.block_forms import block_form
from isa_models.instruction import GPU_REGISTRY, define
from isa_models.machines.loader import gpu_machine
from isa_models.machines.shipped import gpu_machine_names
from isa_models.nvidia.vector import CAPS
from simdnn.kernels.common.dynamic import Dynamic
from simdnn.kernels.common.epilogue import Epilogue
from simdnn.kernels.gpu.problem import GpuMatmulProblem
from simdnn.kernels.intel_gpu.dynamic import GpuQuantization
from simdnn.kernels.intel_gpu.gemm import GpuGemm
from simdnn.kernels.nvidia.gemm import SmGemm
from simdnn.program.check import verify
from simdnn.program.records import Affine, Loop, Memory, Op, Place, Program, Register, Statement, Tensor
from simdnn.timing.gpu import engine
from simdnn.timing.gpu.engine import Issue, Issued, confidences, engine_time, issue_of, run
from simdnn.timing.gpu.estimate import estimate_gpu, gpu_time, nest_of
from simdnn.timing.system import floor
from tests.effort import examples
from tests.work import at_most

INTEL = [name for name in gpu_machine_names() if not gpu_machine(name).nvidia]
PRODUCTS = [*((name, "s8") for name in INTEL), ("v100", "f32"), ("v100", "f16"), ("a100", "bf16"), ("rtx4090", "s8")]
PRODUCTS += [("h100", "f16"), ("h200", "f8_e4m3"), ("l40s", "f8_e5m2")]


def gemm(name: str, dtype: str, m: int, n: int, k: int) -> GpuGemm | SmGemm:
    machine = gpu_machine(name)
    if machine.nvidia:
        unit = "wgmma" if dtype in dict(machine.platform.warp_groups) else ""
        return SmGemm(GpuMatmulProblem(m, n, k, dtype, dtype, Epilogue("f32")), machine, unit)
    dst, model = ("s32", "") if dtype[0] in "su" else ("f32", "sequential")
    return GpuGemm(GpuMatmulProblem(m, n, k, dtype, dtype, Epilogue(dst), float_model=model), machine)


def test_one_thread_waits_for_latency_and_several_hide_it() -> None:
    load = Issue("load", "send", 1, 45, (), "a")
    use = Issue("dpas", "systolic", 16, 32, ("a",), "c")
    one, four = run([[load, use] * 4], True), run([[load, use] * 4] * 4, True)
    assert one.cycles == pytest.approx(4 * (45 + 16), abs=50)
    assert four.busy["systolic"] == 16 * 16 and four.cycles < 2 * one.cycles


def test_a_trace_tells_what_was_issued_when() -> None:
    """In order within a thread, none before its operands and its pipe, and without a part in the time."""
    load = Issue("load", "send", 2, 45, (), "a")
    use = Issue("dpas", "systolic", 16, 32, ("a",), "c")
    streams = [[load, use] * 3] * 2
    trace: list[Issued] = []
    traced = run(streams, True, trace)
    assert traced == run(streams, True) and len(trace) == 12
    assert max(one.done for one in trace) == traced.cycles
    for thread in (0, 1):
        own = [one for one in trace if one.thread == thread]
        assert [one.number for one in own] == list(range(6))
        for before, after in zip(own, own[1:], strict=False):
            assert before.start < after.ready <= after.start
        assert all(use.start >= load.done for load, use in zip(own[::2], own[1::2], strict=True))
    pipe = sorted((one for one in trace if one.number % 2), key=lambda one: one.start)
    assert all(after.start >= before.free == before.start + 16 for before, after in zip(pipe, pipe[1:], strict=False))


def test_co_issue_is_the_machines_word() -> None:
    mixed = [Issue("dpas", "systolic", 16, 32, (), "c"), Issue("mad", "vector", 16, 10, (), "d")] * 8
    together, apart = run([mixed] * 4, True), run([mixed] * 4, False)
    assert together.cycles < 0.6 * apart.cycles and apart.cycles >= 2 * 16 * 8 * 4


def test_issue_times_follow_the_rates() -> None:
    pvc = 8 / gpu_machine("max1550").dpas_share
    rows = (("a770", 8, "s8", 16), ("max1550", 16, "s8", pvc), ("b580", 16, "s8", 16), ("b580", 16, "bf16", 16))
    for name, n, dtype, cycles in rows:
        model = "" if dtype == "s8" else ".sequential"
        acc = "s32" if dtype == "s8" else "f32"
        c = Register("c", acc, 8 * n)
        k = 32 if dtype == "s8" else 16
        bits = 8 if dtype == "s8" else 16
        b, a = Register("b", "u32", k * n * bits // 32), Register("a", "u32", 8 * k * bits // 32)
        issue = issue_of(Op(f"dpas.{dtype}.{dtype}.8.8.x{n}.{acc}{model}", c, (c, b, a)), gpu_machine(name))
        assert (issue.pipe, issue.occupancy) == ("systolic", cycles)
    add = Op("add.f32", Register("x", "f32", 16), (Register("x", "f32", 16), Register("y", "f32", 16)))
    assert issue_of(add, gpu_machine("a770")).occupancy == 2 and issue_of(add, gpu_machine("b580")).occupancy == 1
    with pytest.raises(UnknownTiming):
        issue_of(Op("dpas.s8.s8.8.8.x8.s32", c, (c, b, a)), gpu_machine("dg1"))


def test_long_loops_are_extrapolated() -> None:
    x, t = Register("x", "f32", 16), Memory("t", Affine(), "f32", 16)
    ops = (Op("load.f32", Register("y", "f32", 16), (t,)), Op("add.f32", x, (x, Register("y", "f32", 16))))
    b580 = gpu_machine("b580")
    short, long = (engine_time([Loop("k", n, ops)], b580, 4) for n in (12, 1012))
    rate = (long.cycles - short.cycles) / 1000
    assert 4 <= rate <= 4 * 60 and long.busy["vector"] == pytest.approx(4 * 1012)
    inner = Loop("g", 20, (Loop("k", 30, ops), Op("add.f32", x, (x, x))))
    nested = engine_time([inner], b580, 4)
    assert nested.busy["vector"] == pytest.approx(4 * (20 * 31)) and nested.cycles >= nested.busy["vector"]


@given(st.sampled_from(PRODUCTS), st.integers(1, 600), st.integers(1, 600), st.integers(1, 800), st.booleans())
@examples(40)
def test_conservation(product: tuple[str, str], m: int, n: int, k: int, cold: bool) -> None:
    (name, dtype), gpu = product, gpu_machine(product[0])
    kernel = gemm(name, dtype, m, n, k)
    found = estimate_gpu(kernel.program, gpu, cold=cold)
    peak = gpu.peak_ops("dp4a" if name == "dg1" else dtype)
    assert found.cycles >= 2 * m * n * k / peak * gpu.ghz * 1e9
    for level in found.levels:
        assert level.cycles <= found.cycles * (1 + 1e-9), level
    if cold:
        least = fmt(dtype).bits // 8 * (m * k + k * n) + 4 * m * n
        assert found.levels[2].bytes >= least and found.levels[0].bytes >= found.levels[1].read_bytes
        assert found.seconds >= least / (gpu.dram_gb_s * gpu.stacks * 1e9)
    parts = gpu_time(kernel.program, gpu, cold)
    assert parts.simulated.cycles >= sum(floor(parts.system, s.stage) for s in parts.stages) * (1 - 1e-9)
    assert parts.simulated.waited >= 0


def test_two_stacks_halve_a_large_problem() -> None:
    one, two = (
        simdnn.estimate("matmul", m=8192, n=8192, k=4096, dt="bf16:bf16:f32", machine=name).cycles
        for name in ("max1550_stack", "max1550")
    )
    assert 1.8 < one / two <= 2.1


def test_a_gemm_of_4096_cubed_is_simulated_in_part() -> None:
    kernel = gemm("max1550", "s8", 4096, 4096, 4096)
    with at_most(calls=1_000_000):  # it is some hundred times as many if every tile and step is simulated
        estimate_gpu(kernel.program, gpu_machine("max1550"))


def test_a_barrier_puts_threads_in_step() -> None:
    load, use = Issue("load", "send", 8, 28, (), "a"), Issue("dpas", "systolic", 16, 32, ("a",), "c")
    meet = Issue("barrier", "barrier", 0, 30, (), "")
    free, met = (run([body * 20] * 4, True) for body in ([load, use], [meet, load, use]))
    assert free.cycles == pytest.approx(20 * 4 * 16, rel=0.1)
    # the last of four products is issued 28 + 3 * 16 cycles after they met, and its thread is the last to come again
    assert met.cycles == pytest.approx(20 * (28 + 3 * 16 + 1 + 30), rel=0.03) and met.busy == free.busy
    alone = run([[use, meet, use]], True)  # nobody to wait for, and the second product waits for the first anyway
    assert alone.cycles == run([[use, use]], True).cycles


def test_loads_of_a_staged_loop_wait_for_shared_memory() -> None:
    dg1 = gpu_machine("dg1")
    load = Issue("load", engine.SEND, 1.0, dg1.latency.l1, (), "a")
    multiply = Issue("multiply", engine.VECTOR, 1.0, dg1.latency.vector, ("a",), "c")
    *_, read, used = engine._Staging(dg1, copied=64.0).iteration([load, multiply], every=2)
    assert read.latency == dg1.latency.slm != dg1.latency.l1 and used == multiply


def test_operands_are_staged_where_no_message_reads_blocks() -> None:
    def steps(name: str, m: int = 512) -> list[Loop]:
        body = nest_of(gemm(name, "s8", m, 512, 512).program.body[0]).body
        return [s for s in body if isinstance(s, Loop)]

    assert [loop.staged for loop in steps("a770")] == [2] and [loop.staged for loop in steps("dg1")] == [2]
    assert not any(loop.staged for name in ("b580", "max1100") for loop in steps(name))
    assert not any(loop.staged for loop in steps("a770", 8))  # one block of rows: nothing to share
    body, gpu = nest_of(gemm("a770", "s8", 512, 512, 512).program.body[0]).body, gpu_machine("a770")
    apart, little, much = (engine_time(body, gpu, 4, copied) for copied in (0.0, 64.0, 4096.0))
    assert apart.cycles <= little.cycles < much.cycles and little.busy["systolic"] == much.busy["systolic"]


def test_the_power_limit_lowers_the_clock_of_dpas_on_both_stacks_alone() -> None:
    def ghz(name: str, program: Program) -> float:
        found = estimate_gpu(program, gpu_machine(name))
        return found.cycles / found.seconds / 1e9

    both = gpu_machine("max1550")
    products = gemm("max1550", "s8", 4096, 4096, 4096).program
    sums = GpuQuantization(Dynamic(8, 64, 64, "f32", "s8"), both).program
    assert both.full_load_ghz["s8"] < ghz("max1550", products) < ghz("max1550", sums)
    assert ghz("max1550", sums) == pytest.approx(both.ghz) == ghz("max1550_stack", products)


def test_dpas_reach_a_share_of_their_rate() -> None:
    share = gpu_machine("max1550").dpas_share
    full = simdnn.what_if("max1550_stack", {"engine.dpas_share": 1.0})
    op = next(op for op, _ in gemm("max1550", "s8", 64, 64, 64).program.ops() if op.instruction.startswith("dpas"))
    slow, fast = (issue_of(op, gpu) for gpu in (gpu_machine("max1550_stack"), full))
    assert (slow.pipe, slow.latency) == (fast.pipe, fast.latency) and slow.occupancy == fast.occupancy / share


def test_long_loops_go_at_the_rate_that_threads_settle_to() -> None:
    """The destination's type changes what stands behind a loop of 512 steps, not the loop."""
    f32, f16 = (
        simdnn.estimate("matmul", m=8192, n=8192, k=8192, dt=f"f16:f16:{dst}", machine="max1550_stack").cycles
        for dst in ("f32", "f16")
    )
    assert f32 == pytest.approx(f16, rel=0.02)


def test_memory_that_is_read_alone_gives_more() -> None:
    """Weights of a row are read at the rate of reads; what a kernel writes slows it down to a triad's."""
    h100 = gpu_machine("h100")
    assert h100.sustained_gb_s < h100.read_gb_s and h100.stream_gb_s(0, 1) == h100.sustained_gb_s
    between = h100.stream_gb_s(10, 1)
    assert h100.sustained_gb_s < between < h100.read_gb_s and gpu_machine("b580").stream_gb_s(5, 0) == 447
    row = gemm("h100", "f16", 16, 43008, 5376).program
    found = estimate_gpu(row, h100, cold=True)
    assert 0.85 * h100.read_gb_s < found.levels[2].bytes / found.seconds / 1e9 < h100.read_gb_s
    slower = what_if("h100", {"dram.read_gb_s": 2970})
    assert isinstance(slower, GpuMachine)
    assert estimate_gpu(row, slower, cold=True).seconds > 1.04 * found.seconds


def test_a_kernel_that_stages_operands_begins_and_ends() -> None:
    """Its time is on top of the launch, once a kernel; one that adds two tensors has none."""
    without = what_if("a100", {"launch.staged_us": 0})
    for rows, columns in ((16, 64), (256, 4096)):
        kernel = gemm("a100", "bf16", rows, columns, 512).program
        assert isinstance(without, GpuMachine)
        more = estimate_gpu(kernel, gpu_machine("a100")).seconds - estimate_gpu(kernel, without).seconds
        assert more == pytest.approx(2.5e-6)
    added = [
        simdnn.estimate("binary", src0=(64, 64), src1=(64, 64), algorithm="add", machine=name).cycles
        for name in ("a100", without)
    ]
    assert added[0] == added[1]


def test_a_library_with_any_number_of_columns_leaves_few_cores_idle() -> None:
    """33 times 64 columns: 128 or 256 at a time leave some of 132 cores without work."""
    machine = gpu_machine("h100")
    time = gpu_time(gemm("h100", "bf16", 1024, 2112, 7168).program, machine)
    groups = time.stages[0].nest.group_count
    assert 120 <= groups <= 132
    powers = gpu_time(gemm("h100", "tf32", 1024, 2112, 7168).program, machine)
    assert not 120 <= powers.stages[0].nest.group_count <= 132


def test_memory_gives_what_it_sustains() -> None:
    a770 = gpu_machine("a770")
    found = simdnn.estimate("matmul", m=1, n=16384, k=16384, dt="s8:s8:s32", machine="a770")
    gb_s = found.traffic.set_index("level").loc["DRAM", "read_bytes"] / found.seconds / 1e9
    assert 0.8 * a770.sustained_gb_s < gb_s <= a770.sustained_gb_s < a770.dram_gb_s


@pytest.mark.parametrize(
    "base,figure,value,name,dst,srcs",
    [
        ("v100", "engine.dp4a_ops", 32, "ptx_dp4a.s32.s32", "s32", ("s32", "s8", "s8")),
        ("b580", "engine.dp4a_ops", 32, "dp4a.s8.s8.s32", "s32", ("s32", "s8", "s8")),
        ("v100", "engine.conversion_share", 0.125, "cvt.f32.f16", "f32", ("f16",)),
        ("h100", "engine.alu_share", 0.25, "ptx_max.f32", "f32", ("f32", "f32")),
        ("b580", "engine.conversion_share", {"value": 0.5}, "mov.f32.f16", "f32", ("f16",)),
        ("b580", "engine.s32_multiply_share", 0.0625, "mul.s32", "s32", ("s32", "s32")),
    ],
)
def test_an_instruction_says_by_which_figure_it_runs(
    base: str, figure: str, value: Any, name: str, dst: str, srcs: tuple[str, ...]
) -> None:
    """The figure changes its time, and its standing is the instruction's."""
    if isinstance(value, dict):
        value = {**value, "source": "a guess", "confidence": "estimated"}
    lanes = {"s8": 128}
    op = Op(name, Register("d", dst, 32), tuple(Register(f"r{i}", t, lanes.get(t, 32)) for i, t in enumerate(srcs)))
    machine, other = gpu_machine(base), what_if(base, {figure: value})
    assert isinstance(other, GpuMachine)
    assert issue_of(op, other).occupancy > issue_of(op, machine).occupancy
    assert "estimated" in confidences(op, other)


def test_comparisons_go_beside_arithmetic_as_fast_as_the_scheduler_feeds_both() -> None:
    """Each at 64 a cycle and SM, and f32 sums on an H100 at 128: there the scheduler's cycles count."""
    names = {"max": "ptx_max.f32", "add": "add.rn.f32"}
    for name, expected in (("h100", (2.0, 2.0, 3.0)), ("a100", (2.0, 2.0, 4.0))):
        op = {k: Op(n, Register(k, "f32", 32), (Register("a", "f32", 32),) * 2) for k, n in names.items()}
        one, other = (replace(issue_of(op[k], gpu_machine(name)), writes="") for k in names)
        assert (one.pipe, other.pipe) == (engine.ALU, engine.VECTOR)
        for stream, cycles in zip(([one], [one, other], [one, other, other]), expected, strict=True):
            assert run([stream * 50] * 8, True).cycles / 400 == pytest.approx(cycles, rel=0.02)


def test_an_instruction_of_ones_own_has_the_rate_that_it_names() -> None:
    """Names say nothing: a conversion may be called as it likes, and what is called like one may be none."""
    with registered(GPU_REGISTRY, "narrowed", "cvt.not"):
        for name, rate in (("narrowed", "conversion"), ("cvt.not", "f32")):
            define(name, "f16 <- f32", CAPS, "ours", GPU_REGISTRY, native=False, warp=32, rate=rate)(lambda a: a)
        op = [Op(name, Register("d", "f16", 32), (Register("a", "f32", 32),)) for name in ("narrowed", "cvt.not")]
        slow, fast = (issue_of(o, gpu_machine("v100")).occupancy for o in op)
        assert slow == 4 * fast


def test_blocks_are_of_instructions_that_declare_them() -> None:
    """A form's fields are written and read by one template; another's way is refused."""
    with registered(GPU_REGISTRY, "twice.f32"):
        define("twice.f32", "f32 <- f32, f32", CAPS, "ours", GPU_REGISTRY, native=False, warp=32, ways=("row",))(
            lambda acc, a: acc + a + a
        )
        block = instruction("twice.f32.2x16.row")
        assert block(np.ones(32, "f4"), np.arange(16, dtype="f4"))[:3].tolist() == [1, 3, 5]
        for name in ("twice.f32.2x16.col", "twice.f32.1x16.row", "xor.b32.2x16.row", "and.u32.8x16.row"):
            with pytest.raises(UnknownName):
                instruction(name)
        block_form.cache_clear()


@contextmanager
def registered(registry: dict[str, Any], *names: str) -> Iterator[None]:
    """Rows that are registered under these names go again."""
    try:
        yield
    finally:
        for name in names:
            registry.pop(name, None)


def test_every_nvidia_gpu_has_dp4a() -> None:
    """PTX has it from sm_61 on, so a program for any generation here may use it."""
    d, a, b = (
        Register(name, dtype, lanes) for name, dtype, lanes in (("d", "s32", 32), ("a", "s8", 128), ("b", "s8", 128))
    )
    body = (
        Op("xor.b32", d.as_("u32"), (d.as_("u32"), d.as_("u32"))),
        *(Op("ld.global.s8", register, (Memory("x", Affine(), "s8", 128),)) for register in (a, b)),
        Op("ptx_dp4a.s32.s32", d, (d, a, b)),
        Op("st.global.s32", Memory("y", Affine(), "s32", 32), (d,)),
    )
    tensors = (Tensor("x", "s8", 128), Tensor("y", "s32", 32, "output"))
    for machine in (gpu_machine(name) for name in gpu_machine_names() if name not in INTEL):
        program = Program("dots", machine.platform.name, tensors, (Loop("group_m", 1, body, parallel=True),))
        assert estimate_gpu(verify(program), machine).cycles > 0


def renamed(statement: Statement, names: Mapping[str, str]) -> Statement:
    """A statement whose loops have other variables."""
    if isinstance(statement, Loop):
        body = tuple(renamed(s, names) for s in statement.body)
        return replace(statement, var=names.get(statement.var, statement.var), body=body)

    def place(p: Place) -> Place:
        if not isinstance(p, Memory):
            return p
        terms = tuple(sorted((names.get(var, var), step) for var, step in p.index.terms))
        return replace(p, index=Affine(p.index.const, terms))

    return replace(statement, dst=place(statement.dst), srcs=tuple(map(place, statement.srcs)))


@pytest.mark.parametrize("name", ["a770", "v100"])
def test_a_loop_is_a_workgroup_or_a_thread_whatever_its_name(name: str) -> None:
    machine = gpu_machine(name)
    program = simdnn.estimate("matmul", m=70, n=90, k=64, dt="f16:f16:f32", machine=machine).kernel.program
    names = {f"{kind}_{axis}": f"{axis}{number}" for number, kind in enumerate(("group", "thread")) for axis in "mn"}
    other = verify(replace(program, body=tuple(renamed(s, names) for s in program.body)))
    assert estimate_gpu(other, machine).cycles == estimate_gpu(program, machine).cycles
    with pytest.raises(ProgramError, match="threads are a parallel loop's"):
        Loop("i", 4, program.body, threads=True)
    inside_out = replace(
        program, body=(Loop("i", 2, (Loop("j", 2, program.body, parallel=True),), True, threads=True),)
    )
    with pytest.raises(Unimplemented, match="threads within workgroups"):
        estimate_gpu(inside_out, machine)
