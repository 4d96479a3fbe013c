"""Attention in one kernel: values within what its roundings allow, its order, its cost, and when it is not taken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import isa_models
import simdnn
from isa_models import Unimplemented, UnknownTiming
from simdnn.kernels.common.attention import AttentionProblem
from simdnn.kernels.common.code import op
from simdnn.kernels.nvidia.attention import FlashAttention, done
from simdnn.kernels.nvidia.attention_code import log2_factor
from simdnn.kernels.nvidia.attention_tiles import TILES, flash_tile
from simdnn.operators.fused_attention import FusedAttention
from simdnn.program.records import Loop, Program, Register, Statement
from simdnn.timing.gpu.engine import SPECIAL, issue_of
from simdnn.timing.gpu.estimate import gpu_time
from tests.effort import one_in
from tests.test_attention import by_hand, drawn

Array = np.ndarray[Any, Any]
SIZES: dict[str, Any] = {"heads": 16, "d": 64, "dt": "f16", "machine": "a100"}


def kernel(name: str, d: int, lq: int = 300, lk: int = 200, causal: bool = False, **more: Any) -> FlashAttention:
    """The kernel of a GPU, or of its unit: "a100", "h100 wgmma"."""
    machine, unit = isa_models.machine(name.split()[0]), name.partition(" ")[2] or "mma"
    sizes = {"batch": 1, "heads": 2, "kv_heads": 2, "dtype": "f16", "dst": "f16", "scale": 0.125, **more}
    problem = AttentionProblem(lq=lq, lk=lk, d=d, dv=d, causal=causal, **sizes)
    return FlashAttention(problem, machine, flash_tile(problem, machine, unit))


def test_values_are_within_what_roundings_allow() -> None:
    """Heads share keys; a size, queries and keys that no block has: beside float64, and beside three kernels."""
    q, k, v = drawn(2, 4, 5, 20, dtype=np.float16), *(drawn(2, 2, 50, 20, dtype=np.float16, seed=n) for n in (1, 2))
    r = simdnn.attention(q, k, v, machine="a100", dispatch="flash:ampere_mma")
    three = simdnn.attention(q, k, v, machine="a100", dispatch="three kernels")
    assert [name for name, _ in r.steps] == ["fused"] and len(three.steps) == 3
    exact, size = by_hand(q, k, v, np.True_), by_hand(q, k, np.abs(v), np.True_)
    unit = 2.0**-11  # of f16: shares are rounded once, and what is found
    for found, roundings in ((r.output, 2), (three.output, 3)):  # three kernels: the scores' own, too
        assert (np.abs(found.astype(np.float64) - exact) <= (roundings + 0.1) * unit * size).all()
    told = simdnn.estimate(
        "attention",
        heads=4,
        kv_heads=2,
        batch=2,
        lq=5,
        lk=50,
        d=20,
        dt="f16",
        machine="a100",
        dispatch="flash:ampere_mma",
    )
    assert told.cycles == r.cycles and told.implementation == r.implementation == "flash:ampere_mma"
    ways = r.dispatch.set_index("implementation")["cycles"]
    assert set(ways.index) == {"flash:ampere_mma", "flash:ampere_mma_split", "three kernels"}
    assert ways["flash:ampere_mma"] == r.cycles and ways["three kernels"] == three.cycles
    assert r.fused.bound and r.fused.traffic["read_bytes"].sum() > 0 and r.fused.causes["cycles"].sum() > 0


def test_both_engines_give_the_same_bits() -> None:
    q, k, v = (drawn(1, rows, 16, dtype=np.float16, seed=n) for n, rows in enumerate((3, 9, 9)))
    sizes: dict[str, Any] = {"machine": "a100", "dispatch": "flash:ampere_mma", "causal": True}
    one, other = (simdnn.attention(q, k, v, engine=engine, **sizes).output for engine in ("reference", "compiled"))
    assert one.tobytes() == other.tobytes() and np.unique(one).size > 40


def test_the_exponent_is_one_fused_step() -> None:
    """FlashAttention-2: 2**(score * c - maximum * c), c = scale * log2(e) in f32."""
    assert np.uint32(log2_factor(0.125)).view(np.float32) == np.float32(0.125) * np.float32(1.4426950408889634)
    fused, ex2 = (isa_models.instruction(name) for name in ("fma.rn.f32.imm.thread", "ex2.approx.ftz.f32"))
    scores, top = np.array([3.3, -7.1, 1 / 3, 2.5], np.float32), np.array([3.3, 2.5], np.float32)
    c = np.float32(0.3)
    found = fused(scores, top * c, imm=int(c.view(np.uint32)))
    exact = scores.astype(np.float64) * float(c) - np.repeat(top * c, 2).astype(np.float64)
    assert found.tolist() == exact.astype(np.float32).tolist()
    assert (np.abs(ex2(found) / 2.0 ** found.astype(np.float64) - 1) < 2.0**-22).all()
    assert ex2([-np.inf, 0, np.inf, -126.5]).tolist() == [0, 1, np.inf, 0] and np.isnan(ex2([np.nan])).all()


@one_in(3)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["a100", "l40s", "h100", "h100 wgmma"])
def test_every_size_of_head_has_a_kernel(name: str, causal: bool) -> None:
    """It fits the registers (which the proof of its program counts) and its SM."""
    for d in (20, 64, 80, 128, 256):
        made = kernel(name, d, causal=causal)
        assert made.tile.size >= d and made.program.executed > 0 and made.timed.executed > 0
        assert made.resident * made.tile.shared_bytes <= made.machine.l1.size_bytes
        assert made.resident == 1 or made.resident * made.tile.warps <= 2 * made.machine.engines_per_core


def test_later_keys_are_hidden_and_left_out() -> None:
    """Blocks of which all keys are hidden change no bit, so what the clock sees leaves them out."""
    q, k, v = drawn(2, 150, 20, dtype=np.float16), *(drawn(1, 200, 20, dtype=np.float16, seed=n) for n in (1, 2))
    r = simdnn.attention(q, k, v, causal=True, machine="h100", dispatch="flash:hopper_wgmma")
    seen = np.arange(200) <= np.arange(150)[:, None] + 50
    exact, size = by_hand(q, k, v, seen), by_hand(q, k, np.abs(v), seen)
    assert (np.abs(r.output.astype(np.float64) - exact) <= 2.1 * 2.0**-11 * size).all()
    assert r.dispatch["implementation"].tolist()[:3] == ["flash:hopper_wgmma", "flash:hopper_mma", "three kernels"]
    sizes = {**SIZES, "machine": "h100", "heads": 128, "lq": 4096, "lk": 4096, "dispatch": "flash:hopper_mma"}
    half, whole = (simdnn.estimate("attention", **sizes, causal=causal) for causal in (True, False))
    assert 0.5 * whole.seconds < half.seconds < 0.62 * whole.seconds


@pytest.mark.parametrize(("lq", "lk"), [(100, 100), (256, 256), (384, 500), (130, 1000), (1024, 1024)])
@pytest.mark.parametrize("d", [64, 128])
def test_the_clock_sees_as_many_blocks_as_are_worked_on(lq: int, lk: int, d: int) -> None:
    made = kernel("a100", d, lq, lk, causal=True, heads=1, kv_heads=1)
    rows, keys = made.tile.rows, made.tile.keys
    for block in range(made.groups):
        last, first = (min(row, lq - 1) + lk - lq for row in (block * rows + rows - 1, block * rows))
        turns, hidden = made.seen(block)
        assert turns == last // keys + 1 or turns == -(-lk // keys)
        assert turns - hidden == (first + 1) // keys
    loads = [times for one, times in made.timed.ops() if one.memory and one.memory.tensor == "k"]
    each = made.tile.warps * made.tile.size // 16 * made.tile.keys // 8  # of a block of queries and one of keys
    assert sum(loads) / each == pytest.approx(sum(made.seen(m)[0] for m in range(made.groups)), abs=0.5 * made.groups)


def test_blocks_of_keys_go_from_the_last_to_the_first() -> None:
    """The filled-up one stands before the loop over the others."""
    (group,) = kernel("a100", 64, lk=300).program.body
    body: Any = group
    while isinstance(body, Loop) and body.parallel:
        body = body.body if len(body.body) > 1 else body.body[0]
    loops = [s for s in body if isinstance(s, Loop)]
    assert [(s.var, s.extent, s.staged) for s in loops] == [("j", 1, 1), ("j", 2, 1)]
    steps = [dict(one.memory.index.terms)["j"] for one in loops[1].body if one.memory and one.memory.tensor == "k"]
    assert max(steps) < 0


def test_a_token_splits_keys_and_many_do_not() -> None:
    one, many = (simdnn.estimate("attention", **SIZES, lq=lq, lk=2048) for lq in (1, 2048))
    assert one.implementation == "flash:ampere_mma_split" and many.implementation == "flash:ampere_mma"
    assert many.dispatch["chosen"].tolist() == [True, False, False] and "times as long" in many.dispatch["reason"][1]
    assert many.dispatch["reason"][2] == "splits keys of up to 64 queries, not 2048"
    assert simdnn.estimate("attention", **SIZES, lq=4096, lk=4096).seconds > 3 * many.seconds


def test_two_workgroups_of_an_sm_take_less_than_twice_the_time_of_one() -> None:
    """What one leaves idle the other one takes; an SM that has one left works on that alone."""
    times = []
    for heads in (108, 216, 217):
        made = kernel("a100", 64, 128, 2048, heads=heads, kv_heads=heads)
        (stage,) = gpu_time(made.program, made.machine).stages
        times.append(sum(part.cycles for part in stage.rounds))
    assert times[0] < times[1] < 1.9 * times[0] and times[2] == pytest.approx(times[0] + times[1])


def test_products_of_a_block_are_among_the_exponentials_of_the_next() -> None:
    """With warp groups (FlashAttention-3); with mma one block is done before the next begins."""
    for name, mixed in (("h100", False), ("h100 wgmma", True)):
        body: Any = kernel(name, 128, lk=2000).program.body[0]
        while body.parallel:
            body = body.body[0] if len(body.body) == 1 else next(s for s in reversed(body.body) if isinstance(s, Loop))
        names = [one.instruction.split(".")[0] for one in body.body]
        exponentials = [n for n, one in enumerate(names) if one == "ex2"]
        among = names[exponentials[1] : exponentials[-1]]
        assert (any("mma" in one for one in among)) == mixed
    fast, slow = (
        simdnn.estimate("attention", **{**SIZES, "machine": "h100", "d": 128}, lq=4096, lk=4096, dispatch=d)
        for d in ("fastest", "flash:hopper_mma")
    )
    assert fast.implementation == "flash:hopper_wgmma" and fast.seconds < slow.seconds


def test_the_longest_workgroups_are_late_where_they_are_handed_out_last() -> None:
    """Of 1, 2, 3 and 4 blocks of keys on three places: 4 behind 1 in order, none alone where the longest goes first."""
    assert done([1, 2, 3, 4], 3) == 5 and done([4, 3, 2, 1], 3) == 4
    sizes: dict[str, Any] = {"lq": 1024, "lk": 1024, "heads": 32, "kv_heads": 32, "causal": True}
    second, third = kernel("h100", 128, **sizes), kernel("h100 wgmma", 128, **sizes)
    late = [late_of(made) for made in (second, third, replace(second, problem=replace(second.problem, causal=False)))]
    assert late[0] > 0.4 and late[1] < 0.2 and late[2] == 0
    time = gpu_time(second.timed, second.machine)
    alike = gpu_time(changed(second.timed, late=0.0), second.machine)
    (stage,) = time.stages
    assert time.simulated.cycles == pytest.approx(alike.simulated.cycles + late[0] * stage.engine.cycles)


def late_of(made: FlashAttention) -> float:
    """What the loop of workgroups of the program that the clock sees says."""
    (loop,) = made.timed.body
    assert isinstance(loop, Loop)
    return loop.late


def test_workgroups_wait_for_their_first_data_and_last_stores() -> None:
    """Once a round of two on an SM, or twice where one stands for two blocks of queries: bytes counted by hand."""
    gpu, rounds = isa_models.machine("a100"), 2
    made = kernel("a100", 64, lq=128 * 108, lk=256, heads=4, kv_heads=4)
    cycles = [gpu_time(program, gpu).simulated.cycles for program in (made.timed, changed(made.timed, bare=()))]
    moved = 2 * (128 * 64 + 128 * 64 + 128 * 64) * 2  # of two workgroups: queries, keys and results of two bytes
    assert cycles[0] - cycles[1] == pytest.approx(rounds * (550 + moved / 35), rel=0.02)
    causal = replace(made.problem, lq=128 * 108, lk=128 * 108, causal=True)
    (loop,) = replace(made, problem=causal).timed.body
    assert isinstance(loop, Loop) and loop.bare == (made.bare,) * 2 and made.bare == moved // 2


def changed(program: Program, **fields: Any) -> Program:
    """A program whose loops of workgroups and threads have other fields."""

    def of(statement: Statement) -> Statement:
        if not (isinstance(statement, Loop) and statement.parallel):
            return statement
        return replace(statement, **fields, body=tuple(map(of, statement.body)))

    return replace(program, body=tuple(map(of, program.body)))


def test_what_cuda_cores_do_beside_products_lowers_the_clock() -> None:
    """By the energy of a lane's instruction: with none products alone count, with twice as much the clock is lower."""
    ghz = []
    for lane_ops in (0, 29, 58):
        machine = simdnn.what_if("h100", {"frequency.lane_ops": lane_ops})
        found = FusedAttention(kernel("h100 wgmma", 128, 8192, 8192, heads=32, kv_heads=32).problem, machine, "wgmma")
        ghz.append(found.cycles / found.seconds / 1e9)
    assert ghz[0] > 1.1 * ghz[1] > 1.2 * ghz[2]
    assert [isa_models.machine(name).lane_ops for name in ("h200", "a100", "v100")] == [37, 29, 0]


def test_why_there_is_no_such_kernel() -> None:
    q = drawn(2, 3, 8, dtype=np.float16)
    for machine, given, told in (
        ("v100", {}, "16 x 8 x 16"),
        ("zen4", {}, "CPUs"),
        ("a100", {"mask": np.ones((3, 3), bool)}, "no masks"),
        ("a100", {"scale": -1.0}, "scale above zero"),
    ):
        r = simdnn.attention(q, q, q, machine=machine, **given)
        assert len(r.steps) == 3 and told in r.dispatch["reason"][1]
    with pytest.raises(Unimplemented, match=r"flash:ampere_mma.*not f32; what works: dispatch='fastest'"):
        simdnn.estimate("attention", **{**SIZES, "dt": "f32"}, lq=8, lk=8, dispatch="flash:ampere_mma")
    with pytest.raises(simdnn.InvalidArgument, match="dispatch of attention 'flash:ampere_mma'"):
        simdnn.estimate("attention", **{**SIZES, "machine": "h100"}, lq=8, lk=8, dispatch="flash:ampere_mma")


def test_special_functions_have_a_rate_of_their_own() -> None:
    slow = simdnn.what_if("a100", {"engine.special_share": 0.05})
    a100, other = (simdnn.estimate("attention", **{**SIZES, "machine": m}, lq=1024, lk=1024) for m in ("a100", slow))
    assert other.seconds > 1.3 * a100.seconds
    x = Register("x", "f32", 128)
    assert issue_of(op("ex2.approx.ftz.f32", x, x), isa_models.machine("a100")).occupancy == 128 / 4  # 16 an SM
    assert issue_of(op("ex2.approx.ftz.f32", x, x), isa_models.machine("h100")).pipe == SPECIAL
    with pytest.raises(UnknownTiming, match=r"v100.*special_share"):
        issue_of(op("ex2.approx.ftz.f32", x, x), isa_models.machine("v100"))


def test_bf16_and_its_destination() -> None:
    made = kernel("h100", 8, 3, 9, dtype="bf16", dst="f32")
    assert made.name == "flash:hopper_mma" and {platform for platform, _ in TILES} == {"ampere", "ada", "hopper"}
    packed = {one.instruction for one, _ in made.program.ops() if one.instruction.startswith("cvt")}
    assert packed == {"cvt.rn.bf16x2.f32"} and made.program.tensor["q"].dtype == "bf16"
