"""The core model against measured loops of a Zen 4, against bounds that no schedule can beat, and small known cases."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa_models.errors import InvalidArgument, SimdnnError, UnknownTiming
from isa_models.machines.instruction_row import InstructionTiming
from isa_models.machines.loader import cpu_machine as machine
from isa_models.machines.provenance import Provenance
from simdnn.timing.cpu import bounds, core_model
from simdnn.timing.cpu.chains import slowest_chain
from simdnn.timing.cpu.pipeline import MemRef, Step, loop_cycles
from simdnn.timing.cpu.steps import lower
from tests.effort import examples
from tests.loops import block

# Measured on a Zen 4 (family 25 model 17) at 3.69 GHz; "method" in the file says how.
VECTORS = Path(__file__).parents[1] / "vectors"
LOOPS: list[dict[str, Any]] = json.loads((VECTORS / "loops_zen4.json").read_text())["loops"]
OPEN = ("transpose_pack_perm_512",)  # 27 % too fast: docs/validation/cpu-loops.md
MIXES: list[dict[str, Any]] = json.loads((VECTORS / "mixes_zen4.json").read_text())["loops"]

BITS = {"byte": 8, "word": 16, "dword": 32, "qword": 64, "xmmword": 128, "ymmword": 256, "zmmword": 512}
ADDEND = re.compile(r"vf(n)?m(add|sub)231[ps]s|vpdp\w+|vdpbf16ps")
READS_DESTINATION = re.compile(
    r"vf(n)?m(add|sub)\d{3}[ps]s|vpdp\w+|vdpbf16ps|vpermt2\w|vpermi2\w|add|sub|inc|dec|and|or|xor"
)
NO_DESTINATION = re.compile(r"cmp|test|j\w+")


def parse(line: str) -> Step:
    """One line of these loops, in Intel syntax; a test's helper that knows no more than they use."""
    mnemonic, _, rest = line.partition(" ")
    if mnemonic.startswith("j"):
        return Step(mnemonic, "rel")
    forms, names, memory = [], [], None
    for position, operand in enumerate(part.strip() for part in rest.split(",")):
        if match := re.fullmatch(r"(?:(\w+) ptr )?\[(\w+)(?:\+(\d+))?\]", operand):
            wide = next((512 for x in rest.split() if x.startswith("zmm")), 256 if "ymm" in rest else 128)
            bits = BITS[match[1]] if match[1] else wide
            reference = MemRef(match[2], int(match[3] or 0), bits // 8)
            memory = (position, reference)
            forms.append(f"m{bits}")
            names.append("")
        elif match := re.fullmatch(r"([xyz]mm)(\d+)", operand):
            forms.append(match[1])
            names.append(f"v{match[2]}")
        elif re.fullmatch(r"\d+", operand):
            forms.append("i8")
            names.append("")
        else:
            forms.append("r64")
            names.append(operand)
    writes = tuple(name for name in names[:1] if name and not NO_DESTINATION.fullmatch(mnemonic))
    first = 0 if READS_DESTINATION.fullmatch(mnemonic) or not writes else 1
    return Step(
        mnemonic,
        ",".join(forms),
        tuple(name for name in names[first:] if name),
        writes,
        names[0] if ADDEND.fullmatch(mnemonic) else None,
        load=memory[1] if memory and memory[0] else None,
        store=memory[1] if memory and not memory[0] else None,
    )


def predicted(body: list[str]) -> float:
    """Cycles of an iteration on the zen4."""
    return loop_cycles(machine("zen4"), [parse(line) for line in body]).cycles


def table(loops: list[dict[str, Any]]) -> list[tuple[str, float, float, float]]:
    """Name, measured, predicted and relative error of every stable loop."""
    rows = []
    for loop in loops:
        if loop.get("stable", True):
            cycles, measured = predicted(loop["body"]), loop["cycles_per_iteration"]
            rows.append((loop["name"], measured, cycles, cycles / measured - 1))
    return rows


def shown(rows: list[tuple[str, float, float, float]]) -> str:
    return "\n".join(f"{n:28s} {m:8.3f} measured {p:8.3f} predicted {100 * e:+6.1f} %" for n, m, p, e in rows)


def test_measured_loops() -> None:
    rows = [row for row in table(LOOPS) if row[0] not in OPEN]
    mean = sum(abs(error) for *_, error in rows) / len(rows)
    assert len(rows) >= 20
    assert mean <= 0.016, f"mean error {100 * mean:.1f} %\n{shown(rows)}"


def test_measured_mixes() -> None:
    """Classes of instructions that compete for ports, where the choice of the port decides."""
    rows = table(MIXES)
    mean = sum(abs(error) for *_, error in rows) / len(rows)
    assert len(rows) >= 25
    assert mean <= 0.04, f"mean error {100 * mean:.1f} %\n{shown(rows)}"


def test_every_loop_is_at_least_its_bounds() -> None:
    for loop in LOOPS:
        timing = loop_cycles(machine("zen4"), [parse(line) for line in loop["body"]])
        assert timing.cycles >= max(timing.limits.values()) - 1e-9, loop["name"]
        assert timing.limits[timing.bound] == max(timing.limits.values()), loop["name"]


# -- known cases ---------------------------------------------------------------------------------------------------

COUNTDOWN = [Step("dec", "r64", ("rcx",), ("rcx",)), Step("jnz", "rel")]


def chains(mnemonic: str, width: str, count: int, accumulates: bool = True) -> list[Step]:
    """`count` independent chains, one step of each, and the loop's end."""
    form = ",".join([width] * 3)
    late = [f"c{i}" if accumulates else None for i in range(count)]
    return [Step(mnemonic, form, (f"c{i}", "a", "b"), (f"c{i}",), late[i]) for i in range(count)] + COUNTDOWN


@pytest.mark.parametrize(
    ("mnemonic", "count", "measured"),
    [
        *[("vfmadd231ps", n, t) for n, t in ((8, 4.28), (9, 4.84), (10, 5.25), (11, 5.63), (12, 6.0))],
        *[("vdpbf16ps", n, t) for n, t in ((12, 6.42), (13, 6.96), (14, 7.32))],
    ],
)
def test_addend_chains_of_256_bits_without_slack(mnemonic: str, count: int, measured: float) -> None:
    """Measured on a Zen 4: such chains don't reach the ports' full rate."""
    assert loop_cycles(machine("zen4"), chains(mnemonic, "ymm", count)).cycles == pytest.approx(measured, rel=0.01)


def test_other_chains_lose_nothing() -> None:
    zen4 = machine("zen4")
    assert loop_cycles(zen4, chains("vfmadd213ps", "ymm", 8, accumulates=False)).cycles == 4
    assert loop_cycles(zen4, chains("vfmadd231ps", "zmm", 8)).cycles == 8
    assert loop_cycles(machine("clx"), chains("vfmadd231ps", "ymm", 8)).cycles == 4


def test_a_chain_runs_at_its_latency() -> None:
    timing = loop_cycles(machine("zen4"), chains("vpdpbusd", "zmm", 1))
    assert (timing.cycles, timing.bound, timing.chain_cycles) == (4, "latency", 4)


def test_fused_branch_takes_an_alu() -> None:
    """Measured on a Zen 4: 12, 16, 20 lea (of 8 kinds) and dec/jnz take 3.25, 4.25, 5.25 cycles."""
    body = [Step("lea", "r64,agen", ("rsi",), (f"r{i}",)) for i in range(16)] + COUNTDOWN
    assert loop_cycles(machine("zen4"), body).cycles == 4.25


def test_moves_and_zero_idioms_cost_dispatch_only() -> None:
    """Measured on a Zen 4: 0.17 cycle each, groups running across the branch."""
    moves = [Step("vmovaps", "ymm,ymm", ("a",), (f"d{i}",)) for i in range(17)] + COUNTDOWN
    zeros = [Step("vpxord", "zmm,zmm,zmm", (f"d{i}", f"d{i}"), (f"d{i}",)) for i in range(17)] + COUNTDOWN
    for body in (moves, zeros):
        timing = loop_cycles(machine("zen4"), body)
        assert timing.cycles == pytest.approx(3.0)
        assert timing.bound == "front-end"


def test_a_nop_takes_a_slot_and_two_of_a_zen4_take_one() -> None:
    assert loop_cycles(machine("gnr"), [Step("nop", "r64")] * 24).cycles == 4
    assert loop_cycles(machine("zen4"), [Step("nop", "r64")] * 24).cycles == 2


def test_a_move_carries_the_chain_and_a_zero_idiom_breaks_it() -> None:
    add = Step("vaddps", "ymm,ymm,ymm", ("x", "k"), ("y",))
    back = Step("vmovaps", "ymm,ymm", ("y",), ("x",))
    zero = Step("vxorps", "ymm,ymm,ymm", ("x", "x"), ("x",))
    zen4 = machine("zen4")
    latency = zen4.timing("vaddps", "ymm,ymm,ymm").latency
    assert loop_cycles(zen4, [add, back, *COUNTDOWN]).cycles == latency
    assert loop_cycles(zen4, [zero, add, back, *COUNTDOWN]).cycles == 1  # one taken branch a cycle


@pytest.mark.parametrize(("width", "bits", "cycles"), [("xmm", 128, 9), ("ymm", 256, 10), ("zmm", 512, 12)])
def test_store_forwarding(width: str, bits: int, cycles: int) -> None:
    """A value that goes round through memory takes the measured forwarding time; a moving address carries nothing."""

    def body(step: int) -> list[Step]:
        place = MemRef("t", 0, bits // 8, step)
        store = Step("vmovups", f"m{bits},{width}", ("a",), store=place)
        return [Step("vmovups", f"{width},m{bits}", (), ("a",), load=place), store, *COUNTDOWN]

    assert loop_cycles(machine("zen4"), body(0)).cycles == cycles
    assert loop_cycles(machine("zen4"), body(bits // 8)).cycles < cycles / 2


def test_pointer_chase_waits_for_its_address() -> None:
    chase = Step("mov", "r64,m64", (), ("p",), load=MemRef("t", None, 8, 0, ("p",)))
    assert loop_cycles(machine("clx"), [chase, *COUNTDOWN]).cycles == machine("clx").core.load(64).latency


@pytest.mark.parametrize(("name", "cycles"), [("skx", 14), ("clx", 14), ("icx", 14), ("zen4", 28)])
def test_two_full_width_ports_on_intel_servers(name: str, cycles: int) -> None:
    assert loop_cycles(machine(name), chains("vfmadd231ps", "zmm", 28)).cycles == pytest.approx(cycles, rel=0.01)


def test_port_1_is_lost_to_512_bits_on_intel() -> None:
    adds = [Step("vpaddd", "ymm,ymm,ymm", ("a", "b"), (f"d{i}",)) for i in range(12)]
    wide = [Step("vpaddd", "zmm,zmm,zmm", ("a", "b"), ("e",))]
    assert loop_cycles(machine("icx"), [*adds, *COUNTDOWN]).cycles == pytest.approx(4, rel=0.02)
    assert loop_cycles(machine("icx"), [*adds, *wide, *COUNTDOWN]).cycles == pytest.approx(6.5, rel=0.02)


def test_micro_fusion_halves_the_slots() -> None:
    def body(operand: str) -> list[Step]:
        load = MemRef("t", None, 32) if operand == "m256" else None
        add = "vpand"
        return [Step(add, f"ymm,ymm,{operand}", ("a",), (f"d{i}",), load=load) for i in range(8)] + COUNTDOWN

    assert loop_cycles(machine("skx"), body("m256")).limits["front-end"] == 9 / 4
    assert loop_cycles(machine("skx"), body("m256")).cycles == pytest.approx(4, rel=0.02)  # two loads a cycle


# -- blocks --------------------------------------------------------------------------------------------------------


def test_a_long_block_approaches_the_loop() -> None:
    body = [parse(line) for line in next(x for x in LOOPS if x["name"] == "vnni_avx512_6x64")["body"]]
    run = block(machine("zen4"), body * 120)
    assert len(run.retired) == 120 * len(lower(machine("zen4"), body))
    assert run.retired == sorted(run.retired)
    assert run.cycles == pytest.approx(120 * 24, rel=0.02)


def test_empty_bodies() -> None:
    with pytest.raises(InvalidArgument, match="no steps"):
        loop_cycles(machine("zen4"), [])


def test_an_op_that_never_ends_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_model, "STALLED", 3)
    with pytest.raises(SimdnnError, match="no retirement in 3 simulated cycles.*'vfmadd231ps zmm,zmm,zmm'"):
        loop_cycles(machine("zen4"), chains("vfmadd231ps", "zmm", 1))


def test_an_unknown_step_is_an_error_not_a_guess() -> None:
    with pytest.raises(UnknownTiming, match="vpdpbusd zmm,zmm,zmm.*clx, gnr, icx, spr, zen4"):
        loop_cycles(machine("skx"), chains("vpdpbusd", "zmm", 4))


# -- conservation --------------------------------------------------------------------------------------------------

KINDS = (
    ("vfmadd231ps", "{w},{w},{w}", True),
    ("vpmaddubsw", "{w},{w},{w}", False),
    ("vpaddd", "{w},{w},{w}", False),
    ("vpaddd", "{w},{w},m{b}", False),
    ("vmovups", "{w},m{b}", False),
    ("vmovups", "m{b},{w}", False),
    ("vcvtdq2ps", "{w},{w}", False),
    ("vpshufb", "{w},{w},{w}", False),
    ("vmovups", "{w},{w}", False),
    ("vdivps", "{w},{w},{w}", False),
    ("vpslld", "{w},{w},i8", False),
    ("vpxord", "{w},{w},{w}", False),
)


@st.composite
def streams(draw: st.DrawFn) -> list[Step]:
    """Random steps over few registers, so that chains of all kinds occur."""
    found = []
    for _ in range(draw(st.integers(1, 14))):
        mnemonic, pattern, accumulates = draw(st.sampled_from(KINDS))
        width, bits = draw(st.sampled_from((("xmm", 128), ("ymm", 256), ("zmm", 512))))
        form = pattern.format(w=width, b=bits)
        names = [draw(st.sampled_from(("r0", "r1", "r2", "r3", "r4"))) for _ in range(3)]
        sources = sum(part == width for part in form.split(",")[1:])
        memory = MemRef(draw(st.sampled_from("ab")), draw(st.sampled_from((0, 16, 64))), bits // 8)
        reads, writes = tuple(names[1 : 1 + sources]), (names[0],)
        if form.startswith("m"):
            found.append(Step(mnemonic, form, (names[1],), (), store=memory))
        else:
            late = names[0] if accumulates else None
            reads = (names[0], *reads) if accumulates else reads
            found.append(Step(mnemonic, form, reads, writes, late, load=memory if ",m" in form else None))
    return found


@examples(80)
@given(streams(), st.sampled_from(("zen4", "icx", "skx")))
def test_no_schedule_beats_the_bounds(body: list[Step], name: str) -> None:
    target, turns = machine(name), 12
    ops = lower(target, body)
    cycles = block(target, body * turns).cycles
    assert cycles >= turns * bounds.port_load(ops) - 1e-6
    if not any(op.store for op in ops):  # whose addresses the core model does not place
        assert cycles >= turns * bounds.load_pipes(target, ops) - 1e-6
    assert cycles >= turns * bounds.dispatch(target, ops) - 1e-6
    assert cycles >= (turns - 1) * slowest_chain(ops)[0] - 1e-6
    timing = loop_cycles(target, body)
    assert timing.cycles >= max(timing.limits.values()) - 1e-6


@examples(80)
@given(streams(), st.sampled_from(("zen4", "icx", "skx")))
def test_every_uop_runs_once(body: list[Step], name: str) -> None:
    """The work on the ports is the uops' and the loads', no more and no less; each step retires, in order."""
    target = machine(name)
    ops = lower(target, body)
    run = block(target, body)
    work = sum(len(op.uops) * op.occupancy + op.load_pipes * (op.load is not None) for op in ops)
    assert sum(run.busy) == work
    assert len(run.retired) == len(ops)
    assert run.retired == sorted(run.retired)


@settings(max_examples=40, deadline=None, derandomize=True)  # tolerances, not a law
@given(streams())
def test_the_block_and_the_loop_agree(body: list[Step]) -> None:
    """Many turns executed once take what the steady state says, a startup apart."""
    target, turns = machine("zen4"), 60
    timing = loop_cycles(target, body)
    cycles = block(target, body * turns).cycles
    unseen = target.core.store_queue * 3  # stores still to commit when the block's last step retires
    startup = max(0.0, block(target, body).cycles - timing.cycles)
    assert cycles <= turns * timing.cycles * 1.1 + startup + 20
    assert cycles >= turns * timing.cycles * 0.9 - unseen - 20


@pytest.mark.parametrize(("rows", "vectors"), [(14, 2), (12, 2), (8, 3), (5, 4), (3, 4), (28, 1)])
def test_tiles_of_multiply_adds_fill_the_ports_of_a_zen4(rows: int, vectors: int) -> None:
    """Broadcasts take nothing from them, however the loop's length falls on dispatch groups."""
    lines = [f"vmovups zmm{rows * vectors + j}, zmmword ptr [rdx+{64 * j}]" for j in range(vectors)]
    for row in range(rows):
        lines.append(f"vbroadcastss zmm31, dword ptr [rsi+{4 * row}]")
        lines += [f"vfmadd231ps zmm{row * vectors + j}, zmm31, zmm{rows * vectors + j}" for j in range(vectors)]
    body = [parse(line) for line in (*lines, "add rsi, r8", "add rdx, r8", "dec rcx", "jnz .L")]
    assert loop_cycles(machine("zen4"), body).cycles == rows * vectors


def test_classes_of_two_ports_do_not_lock_into_a_bank() -> None:
    """Extensions on FP1 and FP2, products on FP0 and FP1: three ports share 16 cycles of work."""
    pairs = [
        (f"vpmovsxbw zmm{8 + i}, ymmword ptr [rsi+{32 * i}]", f"vpdpwssd zmm{i}, zmm{8 + i}, zmm{8 + i}")
        for i in range(4)
    ]
    assert predicted([*itertools.chain(*pairs), "add rsi, r8", "dec rcx", "jnz .L"]) <= 1.15 * 16 / 3


def in_turn(loads: list[str], stores: list[str]) -> list[str]:
    return list(itertools.chain(*zip(loads, stores, strict=True)))


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("copied", [False, True])
def test_wide_loads_do_not_keep_stores_from_the_cache(copied: bool, mixed: bool) -> None:
    """Four loads of 512 bits beside four stores, of what is loaded or of something else: measured 8.00 cycles."""
    loads = [f"vmovups zmm{i}, zmmword ptr [rsi+{64 * i}]" for i in range(4)]
    stores = [f"vmovups zmmword ptr [rdi+{64 * i}], zmm{i if copied else 8 + i}" for i in range(4)]
    body = in_turn(loads, stores) if mixed else [*loads, *stores]
    assert predicted([*body, "dec rcx", "jnz .L"]) == pytest.approx(8, rel=0.02)


@pytest.mark.parametrize(
    ("uops", "occupancy", "cycles"),
    [
        (1, 1, 9),
        (1, 3, 9),
        (2, 1, 9),
        (3, 1, 9),  # the later uops fit into the latency
        (2, 2, 10),
        (2, 3, 11),
        (3, 2, 11),
        (3, 3, 13),  # held up: the last one has the latency less those before it
    ],
)
def test_latency_of_several_uops(uops: int, occupancy: int, cycles: int) -> None:
    """A chain of one instruction with a latency of 9, its uops on one port that each of them holds."""
    base = machine("zen4")
    row = InstructionTiming(
        "vpaddd",
        "zmm,zmm,zmm",
        9,
        1,
        (("FP0",),) * uops,
        occupancy,
        0.0,
        9,
        False,
        Provenance("chosen for the test", "estimated"),
    )
    made = replace(base, instructions={**base.instructions, ("vpaddd", "zmm,zmm,zmm"): row})
    assert loop_cycles(made, [parse("vpaddd zmm0, zmm0, zmm1")]).cycles == cycles


@pytest.mark.parametrize("name", ["skx", "icx", "spr", "zen4"])
@pytest.mark.parametrize(
    "lines",
    [
        ["vmovdqu8 zmm0, [rsi]", "vmovdqu8 zmm1, [rsi+64]", "vpaddd zmm2, zmm0, [rsi+128]", "add rsi, 192"],
        [f"vpmaddubsw zmm{i}, zmm30, [rsi+{64 * i}]" for i in range(8)]
        + [f"vpaddw zmm{i + 8}, zmm{i + 8}, zmm{i}" for i in range(8)],
    ],
)
def test_ports_have_the_work_of_an_iteration(name: str, lines: list[str]) -> None:
    """All of its uops and loads, which are issued ahead, and no port longer than the iteration takes."""
    target, steps = machine(name), [parse(line) for line in lines]
    timing, ops = loop_cycles(target, steps), lower(target, steps)
    work = sum(len(op.uops) * op.occupancy + op.load_pipes * (op.load is not None) for op in ops)
    assert sum(timing.port_cycles.values()) == pytest.approx(work)
    assert max(timing.port_cycles.values()) <= timing.cycles + 1e-9
