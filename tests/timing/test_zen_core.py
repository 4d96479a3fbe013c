"""Mechanisms of Zen 4's core, each by loops that were measured on one."""

from __future__ import annotations

import functools

import pytest

from isa_models.machines.loader import cpu_machine as machine
from simdnn.timing.cpu.pipeline import trace_loop
from tests.loops import block, cycles_of
from tests.timing.test_pipeline import parse

MOVE, WIDE_MOVE = "mov rax, rdx", "vmovaps zmm0, zmm1"
KINDS = {  # of accesses: width, then whether to or from memory
    "L": "vmovups zmm{0}, [rsi+{1}]",
    "S": "vmovups [rdi+{1}], zmm9",
    "y": "vmovups ymm{0}, [rsi+{1}]",
    "t": "vmovups [rdi+{1}], ymm9",
    "w": "mov qword ptr [rbx], rax",
    "b": "vpbroadcastd zmm{0}, dword ptr [rdx+{1}]",
    "m": "mov r8, [rdx+{1}]",
}


cycles = functools.partial(cycles_of, "zen4")


@pytest.mark.parametrize(
    ("moves", "wide", "measured"),
    [
        *[(8, 0, 1.5), (9, 0, 2), (10, 0, 2), (12, 0, 2.17), (14, 0, 2.5)],
        *[(0, 6, 1.17), (0, 7, 2), (0, 13, 2.33), (0, 14, 3), (0, 16, 3), (0, 20, 3.5), (0, 21, 4)],
        *[(7, 1, 1.5), (6, 2, 2), (5, 2, 1.33), (4, 4, 2), (3, 4, 1.33), (1, 5, 1.17), (2, 5, 2)],
    ],
)
def test_lines_of_the_uop_cache_have_less_room_for_evex(moves: int, wide: int, measured: float) -> None:
    assert cycles([WIDE_MOVE] * wide + [MOVE] * moves) == pytest.approx(measured, abs=0.01)


@pytest.mark.parametrize(
    ("accesses", "measured"),
    [
        *[("LLS", 2.5), ("SLL", 2.5), ("LS", 2), ("LLSLS", 4), ("LLS" * 4, 10), ("LLt" * 4, 8), ("yS", 2)],
        *[("LLLLSS", 5), ("yyt", 1), ("yyS", 2), ("L", 1), ("yy", 1), ("w", 1), ("wL", 1)],
        *[
            ("Lb", 2),
            ("Lb" * 4, 8),
            ("Ly" * 4, 8),
            ("LLb", 2.5),
            ("LLy", 2.5),
            ("LLLb", 4),
            ("Lbb", 2),
            ("LLbbLLbb", 6),
        ],
        *[("mmm", 1), ("m" * 6, 2), ("Lm" * 4, 4), ("mmmmmS", 7 / 3), ("LLt", 2), ("LLLt", 3), ("LSS", 4), ("LmS", 2)],
    ],
)
def test_wide_loads_take_two_units_for_addresses(accesses: str, measured: float) -> None:
    """Two 512-bit loads beside a store of 512 bits do not find them free; loads of 256 bits do. Narrow loads find no
    pipe between two wide ones, general ones take none.
    """
    lines = [KINDS[kind].format(i % 8, 64 * i) for i, kind in enumerate(accesses)]
    assert cycles(lines) == pytest.approx(measured, rel=0.01)


@pytest.mark.parametrize(
    ("loads", "stores", "measured"),
    [(5, 2, 3), (7, 3, 4), (10, 4, 6), (11, 2, 6), (12, 4, 7), (13, 6, 8), (14, 6, 8.5)],
)
def test_narrow_stores_take_units_for_addresses_in_turn(loads: int, stores: int, measured: float) -> None:
    """As loads do; measured on a Zen 3, (10, 4) on a Zen 4 as well."""
    lines = [KINDS["y"].format(i % 8, 32 * i) for i in range(loads)]
    lines += [KINDS["t"].format(0, 32 * i) for i in range(stores)]
    assert cycles_of("zen3", lines) == cycles(lines) == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize("spaced", ["i", "ii", "iii", "iiiiiiii", "i.i.i", "ii..ii..", "i..i..i.."])
def test_wide_sums_in_a_chain_do_not_meet_on_a_port(spaced: str) -> None:
    """Each holds its port for two cycles, and the next one follows a cycle later all the same (i: a sum)."""
    lines = ["vpaddd zmm0, zmm0, zmm9" if one == "i" else MOVE for one in spaced]
    assert cycles(lines) == pytest.approx(spaced.count("i"), rel=0.18 if len(spaced) == 1 else 0.01)


@pytest.mark.parametrize(("count", "division", "measured"), [(12, "vdivps", 7), (12, "vsqrtps", 7), (20, "vdivps", 11)])
def test_a_division_holds_a_multiplier_for_two_cycles(count: int, division: str, measured: float) -> None:
    sources = "ymm14, ymm15" if division == "vdivps" else "ymm14"
    lines = [f"{division} ymm13, {sources}", *[f"vmulps ymm{i % 12}, ymm14, ymm15" for i in range(count)]]
    assert cycles(lines) == pytest.approx(measured, rel=0.03)


@pytest.mark.parametrize(
    ("line", "measured"),
    [
        *[("vpcmpgtd ymm0, ymm0, ymm0", 1.5), ("vpandn ymm0, ymm0, ymm0", 1.5), ("vandnps ymm0, ymm0, ymm0", 1.5)],
        *[("vxorpd ymm0, ymm0, ymm0", 1.5), ("vpxord zmm0, zmm0, zmm0", 2), ("vpandnd zmm0, zmm0, zmm0", 2)],
        *[("vpcmpeqd ymm0, ymm0, ymm0", 2), ("vpcmpeqq xmm0, xmm0, xmm0", 4), ("vpsubusb ymm0, ymm0, ymm0", 4)],
        *[("vpternlogd zmm0, zmm0, zmm0, 255", 8), ("kxnorw k1, k1, k1", 8)],
    ],
)
def test_a_register_with_itself(line: str, measured: float) -> None:
    """Eight of them: zeros are made at rename, ones and differences that saturate wait for nothing, others do."""
    assert cycles([line] * 8) == pytest.approx(measured, abs=0.02)


UOPS = {
    "p": "vpmaddwd {w}{i}, {a}, {b}",  # FP0, FP1
    "m": "vmulps {w}{i}, {a}, {b}",  # FP0, FP1
    "n": "vmaxps {w}{i}, {a}, {b}",  # FP2, FP3
    "a": "vpaddd {w}{i}, {a}, {b}",  # FP0 to FP3
    ".": MOVE,
}


def drained(uops: str, width: str) -> int:
    """Cycles that uops take on the fullest port, where all wait for one operand."""
    gate = ["imul rax, rax"] * 20 + ["vmovq xmm15, rax"]
    lines = [UOPS[one].format(w=width, i=i % 14, a=width + "15", b=width + "14") for i, one in enumerate(uops)]
    steps = [parse(line) for line in [*gate, *lines]]
    first = len(gate) + 1
    return block(machine("zen4"), steps).cycles - block(machine("zen4"), steps[:first]).cycles


@pytest.mark.parametrize(
    ("uops", "measured"),
    [
        *[("p." * 6, 6), ("p." * 12, 12), ("p" * 12, 6), ("p.." * 12, 6), ("n." * 12, 12)],
        *[("p." * 20, 18), ("p." * 24, 20), ("p." * 28, 22), ("a." * 12, 6), ("a" * 24, 6), ("a." * 24, 12)],
        *[("p." * 3 + "a." * 6, 6), ("a." * 6 + "p." * 6, 9), ("n." * 6 + "p." * 12, 12)],
    ],
)
def test_places_and_what_waits_choose_the_port(uops: str, measured: int) -> None:
    """Cycles beyond the first uop's, measured behind an lfence."""
    assert drained(uops, "ymm") + 1 == pytest.approx(measured, abs=2)


def test_wide_uops_are_one_entry() -> None:
    """As many products of 512 bits as of 256 go to one multiplier before one goes to the other."""
    assert drained("p." * 12, "zmm") + 2 == pytest.approx(24, abs=1)


@pytest.mark.parametrize(
    ("width", "uops", "waiting", "measured"),
    [
        *[("zmm", "na" * 8, True, 10.6), ("zmm", "na" * 8, False, 8.0), ("zmm", "pa" * 8, True, 11.2)],
        *[("ymm", "na" * 8, True, 5.48), ("ymm", "mn" * 6, True, 3.77)],
        *[("zmm", "mn" * 8, False, 8.0), ("zmm", "paa" * 4, True, 7.13), ("ymm", "pa" * 5, True, 3.29)],
    ],
)
def test_uops_that_alternate(width: str, uops: str, waiting: bool, measured: float) -> None:
    """Loops of uops that wait for the one before each, or for none."""
    lines = []
    for i, one in enumerate(uops):
        before = f"{width}{i - 1}" if waiting and i else width + "30"
        lines.append(UOPS[one].format(w=width, i=i, a=before, b=width + "31"))
    assert cycles(lines) == pytest.approx(measured, rel=0.06)


@pytest.mark.parametrize("width", ["ymm", "zmm"])
@pytest.mark.parametrize("operation", ["vaddps", "vfmadd231ps"])
@pytest.mark.parametrize("chains", [2, 3, 4, 5, 6])
def test_chains_of_one_operation_lose_nothing(operation: str, width: str, chains: int) -> None:
    """Measured: none of these loops takes half a per cent more than its latency or its two ports ask for."""
    lines = [f"{operation} {width}{i}, {width}{i}, {width}31" for i in range(chains)]
    latency, of_ports = (3 if operation == "vaddps" else 4), chains * (2 if width == "zmm" else 1) / 2
    assert cycles(lines * 4) == pytest.approx(4 * max(latency, of_ports), rel=0.005)


KINDS_OF_TWO = {  # operations, each on two ports, of a loop
    "widened, multiplied (zmm)": (["vpmovsxbw zmm{0}, ymm15", "vpmaddwd zmm{0}, zmm{0}, zmm14"] * 8, 10.66),
    "widened, multiplied (ymm)": (["vpmovsxbw ymm{0}, xmm15", "vpmaddwd ymm{0}, ymm{0}, ymm14"] * 8, 5.35),
    "multiplied, extremes (zmm)": (["vmulps zmm{0}, zmm14, zmm15", "vmaxps zmm{1}, zmm{1}, zmm{0}"] * 8, 10.2),
}


@pytest.mark.parametrize("name", KINDS_OF_TWO)
def test_a_uop_leaves_its_turn_where_far_more_wait(name: str) -> None:
    """Loops that a queue would deal out to the wrong ports for ever, as one class always has the odd places."""
    lines, measured = KINDS_OF_TWO[name]
    written = [line.format(i // 2, 8 + i // 2 % 6) for i, line in enumerate(lines)]
    assert cycles(written) == pytest.approx(measured, rel=0.005)


@pytest.mark.parametrize(
    ("chain", "masks", "measured"),
    [
        *[(8, 10, 9.51), (12, 10, 12.14), (16, 10, 14.95), (20, 10, 17.52), (24, 10, 20.31), (28, 10, 23.03)],
        *[(12, 8, 10.41), (16, 8, 12.84), (20, 8, 15.06)],
        *[(8, 20, 16.99), (12, 20, 21.34), (16, 20, 25.63), (24, 20, 33.67), (32, 20, 42.43)],
    ],
)
def test_masks_wait_for_registers(chain: int, masks: int, measured: float) -> None:
    """They are free some cycles after what is older has its result: sums in a chain, and masks behind them."""
    sums = ["vaddps ymm0, ymm14, ymm15", *["vaddps ymm0, ymm0, ymm15"] * (chain - 1)]
    assert cycles([*sums, *[f"kandw k{i % 7 + 1}, k0, k0" for i in range(masks)]]) == pytest.approx(measured, rel=0.06)


@pytest.mark.parametrize(("masks", "moves", "measured"), [(5, 0, 3), (7, 0, 4), (9, 0, 5), (7, 1, 3.5), (7, 2, 4)])
def test_masks_do_not_change_the_scheduler(masks: int, moves: int, measured: float) -> None:
    """Too few find registers for one scheduler to fill far more than the other: an odd one more stays there."""
    lines = [f"vcmpps k{i % 7 + 1}, ymm14, ymm15, 1" for i in range(masks)]
    assert cycles([*lines, *[MOVE] * moves]) == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize(
    ("transfers", "sums", "measured"), [(1, 3, 1.86), (1, 4, 2.1), (1, 5, 2.34), (2, 2, 2.99), (2, 5, 3.5)]
)
def test_what_comes_from_vectors_takes_the_alus(transfers: int, sums: int, measured: float) -> None:
    """Of the four, one each; with fewer sums it takes longer than that explains."""
    lines = [f"kmovw {name}, k1" for name in ("eax", "ebx")[:transfers]]
    assert cycles([*lines, *[f"add r{8 + i}d, edx" for i in range(sums)]]) == pytest.approx(measured, rel=0.09)


@pytest.mark.parametrize(
    ("lines", "measured"),
    [
        (["kmovw eax, k1", "kmovw k1, eax"], 9),
        (["kmovq rax, k1", "kmovq k1, rax"], 10),
        (["vmovd eax, xmm1", "vmovd xmm1, eax"], 6),
        (["movsx rax, byte ptr [rsi+rax]"], 5),
        (["movzx eax, byte ptr [rsi+rax]"], 4),
    ],
)
def test_round_trips(lines: list[str], measured: float) -> None:
    assert cycles(lines) == pytest.approx(measured, abs=0.05)


@pytest.mark.parametrize(
    ("gather", "measured"),
    [
        ("vgatherdps ymm0, [rsi+ymm15*4], ymm1", 10.55),
        ("vgatherdpd ymm0, [rsi+xmm15*8], ymm1", 5.9),
        ("vgatherdps zmm0{k1}, [rsi+zmm31*4]", 21.5),
        ("vscatterdps [rdi+zmm31*4]{k1}, zmm0", 24.45),
        ("vscatterdps [rdi+ymm31*4]{k1}, ymm0", 12),
    ],
)
def test_gathers_do_not_wait_for_each_other(gather: str, measured: float) -> None:
    """What the destination held is needed late, and the mask is there for who writes it anew."""
    full = "vpcmpeqd ymm1, ymm1, ymm1" if gather.endswith("ymm1") else "kxnorw k1, k1, k1"
    assert cycles([full, gather, "add rsi, r8", "add rdi, r8"]) == pytest.approx(measured, rel=0.03)


@pytest.mark.parametrize(
    ("width", "chain", "beside", "measured"),
    [
        *[("ymm", "vpslld {0}, {0}, 3", "vaddps", 5.0), ("zmm", "vpslld {0}, {0}, 3", "vaddps", 8.18)],
        *[("zmm", "vpslld {0}, {0}, 3", "vmaxps", 7.47), ("zmm", "vandps {0}, {0}, {1}", "vmulps", 6.59)],
        *[("zmm", "vmaxps {0}, {0}, {1}", "vaddps", 9.44), ("zmm", "vpaddsb {0}, {0}, {1}", "vmulps", 9.43)],
        *[("ymm", "vmaxps {0}, {0}, {1}", "vmulps", 8.0), ("ymm", "vaddps {0}, {0}, {1}", "vmaxps", 12.0)],
    ],
)
def test_a_port_yields_one_result_a_cycle(width: str, chain: str, beside: str, measured: float) -> None:
    """Four in a chain, two of another latency beside them: results of one port that would come together do not."""
    step = chain.format(f"{width}0", f"{width}14")
    others = [f"{beside} {width}{i}, {width}14, {width}15" for i in (1, 2)]
    assert cycles([step, others[0], step, others[1], step, step]) == pytest.approx(measured, rel=0.07)


@pytest.mark.parametrize("operation", ["vhaddps ymm{0}, ymm14, ymm15", "vphaddd ymm{0}, ymm14, ymm15"])
@pytest.mark.parametrize(("moves", "measured"), [(1, 8), (5, 8), (6, 9), (7, 12), (11, 12), (12, 13)])
def test_microcode_has_groups_for_itself(operation: str, moves: int, measured: float) -> None:
    lines = [line for number in range(4) for line in [operation.format(number), *[MOVE] * moves]]
    assert cycles(lines) == pytest.approx(measured, abs=0.05)


@pytest.mark.parametrize(
    ("count", "moves", "measured"),
    [(2, 4, 2.2), (2, 6, 3), (2, 7, 3.25), (2, 9, 4), (4, 5, 5), (4, 6, 5.66), (4, 9, 8), (5, 6, 7), (5, 9, 10)],
)
def test_an_instruction_of_two_slots_is_in_one_group(count: int, moves: int, measured: float) -> None:
    lines = [line for number in range(count) for line in [f"vcvtps2ph [rdi+{32 * number}], xmm15, 4", *[MOVE] * moves]]
    assert cycles(lines) == pytest.approx(measured, abs=0.05)


FUSED, MERGED, ZEROED = "vfmadd231ps {0}, {1}, {2}", "vmulps {0}{{k1}}, {1}, {2}", "vmulps {0}{{k1}}{{z}}, {1}, {2}"


@pytest.mark.parametrize(
    ("operation", "width", "stores", "stored", "measured"),
    [
        *[(FUSED, "zmm", 6, "ymm", 27.4), (FUSED, "zmm", 12, "ymm", 32.7), (FUSED, "zmm", 6, "zmm", 33.4)],
        *[(FUSED, "ymm", 0, "ymm", 12), (FUSED, "ymm", 6, "ymm", 16.5), (FUSED, "ymm", 12, "ymm", 19.7)],
        *[(MERGED, "zmm", 12, "ymm", 32.8), (ZEROED, "zmm", 12, "ymm", 24)],
        *[(f"{name} {{0}}, {{1}}, {{2}}", "zmm", 12, "ymm", 24) for name in ("vmulps", "vaddps", "vpmaddubsw")],
    ],
)
def test_third_operands_and_stores_come_by_one_way(
    operation: str, width: str, stores: int, stored: str, measured: float
) -> None:
    """24 operations beside stores of a register that holds its value: those of two operands lose nothing."""
    lines = [operation.format(f"{width}{i}", f"{width}30", f"{width}31") for i in range(24)]
    lines += [f"vmovups [rdi+{64 * i}], {stored}29" for i in range(stores)]
    assert cycles(lines) == pytest.approx(measured, rel=0.11)


@pytest.mark.parametrize(("stores", "measured"), [(0, 108), (27, 139)])
def test_stores_hold_the_end_of_a_tile_back(stores: int, measured: float) -> None:
    """27 sums of four products and their stores, of 512 bits: the next tile's products wait for a way to be free."""
    lines = [f"vpxord zmm{i}, zmm{i}, zmm{i}" for i in range(27)]
    lines += [f"vpdpbusd zmm{i % 27}, zmm30, zmm31" for i in range(4 * 27)]
    lines += [f"vmovups [rdi+{64 * i}], zmm{i}" for i in range(stores)]
    assert cycles(lines) == pytest.approx(measured, rel=0.04)


@pytest.mark.parametrize(("stored", "room"), [("xmm", 64), ("ymm", 64), ("zmm", 32)])
def test_wide_stores_take_two_entries_of_the_store_queue(stored: str, room: int) -> None:
    """So many find room behind a chain of multiplications, which they must not pass."""
    lines = [*["imul rax, rax"] * 40, *[f"vmovups [rdi+{64 * i}], {stored}9" for i in range(80)]]
    found = trace_loop(machine("zen4"), [parse(line) for line in lines], 1)
    assert sum(op.dispatched < found[39].done for op in found[40:]) == room
