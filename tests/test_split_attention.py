"""Attention whose keys are split among workgroups: its values, the number of parts, its cost, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import isa_models
import simdnn
from isa_models import Unimplemented, instruction
from simdnn.kernels.common.attention import AttentionProblem
from simdnn.kernels.nvidia.attention_tiles import flash_tile, parts_of
from simdnn.operators.fused_attention import FusedAttention
from simdnn.timing.gpu.engine import issue_of
from simdnn.timing.gpu.estimate import gpu_time
from tests.effort import one_in
from tests.test_attention import by_hand, drawn


@one_in(2)
@pytest.mark.parametrize(
    ("machine", "kernel", "queries", "causal", "parts"),
    [("a100", "flash:ampere_mma_split", 3, True, 6), ("h100", "flash:hopper_wgmma_split", 1, False, 5)],
)
def test_values_are_within_what_roundings_allow(
    machine: str, kernel: str, queries: int, causal: bool, parts: int
) -> None:
    """Keys that fill no block, and parts of which the last is shorter; heads of a token share the rows of a tile."""
    kv_heads = 1 if queries == 1 else 4
    q = drawn(4, queries, 120, dtype=np.float16)
    k, v = (drawn(kv_heads, 720, 120, dtype=np.float16, seed=n) for n in (1, 2))
    r = simdnn.attention(q, k, v, causal=causal, machine=machine, dispatch=kernel)
    seen = np.arange(720) <= np.arange(queries)[:, None] + 720 - queries if causal else np.True_
    exact, size = by_hand(q, k, v, seen), by_hand(q, k, np.abs(v), seen)
    assert (np.abs(r.output.astype(np.float64) - exact) <= 2.1 * 2.0**-11 * size).all()
    assert r.implementation == kernel and r.fused.kernel.parts == parts
    told = simdnn.estimate(
        "attention",
        heads=4,
        kv_heads=kv_heads,
        lq=queries,
        lk=720,
        d=120,
        dt="f16",
        causal=causal,
        machine=machine,
        dispatch=kernel,
    )
    assert told.cycles == r.cycles and told.implementation == kernel


def test_both_engines_give_the_same_bits_and_a_part_without_keys_changes_none() -> None:
    """With a causal mask the first of three queries sees none of the keys of the last block."""
    q, k, v = drawn(1, 3, 16, dtype=np.float16), *(drawn(1, 258, 16, dtype=np.float16, seed=n) for n in (1, 2))
    where: dict[str, Any] = {"machine": "l40s", "dispatch": "flash:ada_mma_split", "causal": True}
    one, other = (simdnn.attention(q, k, v, engine=engine, **where).output for engine in ("reference", "compiled"))
    assert one.tobytes() == other.tobytes() and np.unique(one).size > 40
    v[0, 256:] = 6e4  # not seen by the first query
    assert simdnn.attention(q, k, v, **where).output[0, 0].tobytes() == one[0, 0].tobytes()


def problem(heads: int, kv_heads: int, keys: int, d: int, batch: int = 1) -> AttentionProblem:
    return AttentionProblem(batch, heads, kv_heads, 1, keys, d, d, "f16", "f16", d**-0.5)


@pytest.mark.parametrize(
    ("machine", "unit", "of", "parts"),
    [
        # 32 of 216 places: 13 parts of 5 blocks fill two rounds to 96 %, 6 of 11 one to 89 %, which is enough
        ("a100", "mma", problem(32, 32, 8192, 128), 6),
        # 4 of 216, 64 blocks: 54 would fill all, and so would 52 nearly; 33 to 63 are as long as 32, which is the least
        # number of two blocks a part: 128 of 216 places; 64 parts: 256 of 432, 59 %
        ("a100", "mma", problem(32, 4, 8192, 128), 32),
        ("a100", "mma", problem(32, 32, 8192, 128, batch=8), 1),  # 256 are enough
        # of 132 places; any number is a choice: 4 * 29 is 88 %
        ("h100", "wgmma", problem(32, 4, 8192, 128), 29),
        ("h100", "wgmma", problem(32, 4, 704, 128), 1),  # four blocks of 176
    ],
)
def test_parts_are_as_many_as_flash_attentions(machine: str, unit: str, of: AttentionProblem, parts: int) -> None:
    gpu = isa_models.machine(machine)
    assert isinstance(gpu, isa_models.GpuMachine)
    assert parts_of(of.by_keys(), gpu, unit) == parts


def test_a_long_cache_takes_little_longer_than_its_bytes() -> None:
    """A token of 32 heads by 65,536 keys of 8: 268 MB at an A100's rate, not the time of 8 SMs."""
    sizes: dict[str, Any] = {
        "heads": 32,
        "kv_heads": 8,
        "lq": 1,
        "d": 128,
        "lk": 65536,
        "dt": "bf16",
        "machine": "a100",
    }
    times = {
        name: simdnn.estimate("attention", **sizes, dispatch=name).seconds for name in ("fastest", "flash:ampere_mma")
    }
    least = 2 * 65536 * 8 * 128 * 2 / 2039e9
    assert least < times["fastest"] < 1.5 * least and times["flash:ampere_mma"] > 8 * times["fastest"]


def test_parts_come_from_the_cache_of_all_sms_and_are_put_together_behind_a_launch() -> None:
    gpu = isa_models.machine("a100")
    assert isinstance(gpu, isa_models.GpuMachine)
    made = FusedAttention(problem(32, 8, 8192, 128), gpu, "mma", True).kernel
    time = gpu_time(made.timed, gpu)
    assert len(time.stages) == 2 and time.launch(gpu) == pytest.approx(2e3 * (gpu.launch_us + gpu.staged_us) * time.ghz)
    loads = [op for op, _ in made.timed.ops() if op.memory and op.memory.tensor == "parts" and op.memory is not op.dst]
    assert loads and all(issue_of(op, gpu).latency == gpu.latency.l2 for op in loads)


def test_rows_that_fill_up_a_tile_leave_the_clock_as_it_is() -> None:
    """A token has 1 of 128 rows: zeros take next to no energy."""
    gpu = isa_models.machine("h100")
    assert isinstance(gpu, isa_models.GpuMachine)
    one, many = (
        gpu_time(FusedAttention(of, gpu, "wgmma").kernel.timed, gpu).ghz
        for of in (problem(132, 132, 8192, 128), AttentionProblem(1, 132, 132, 8192, 8192, 128, 128, "f16", "f16", 0.1))
    )
    assert one == gpu.ghz > many


def test_what_is_refused() -> None:
    gpu = isa_models.machine("h100")
    assert isinstance(gpu, isa_models.GpuMachine)
    sizes: dict[str, Any] = {"heads": 8, "lk": 4096, "d": 128, "dt": "f16", "machine": "h100"}
    for lq, more, told in (
        (65, {"dispatch": "flash:hopper_mma_split"}, "up to 64 queries, not 65"),
        (1, {"dispatch": "flash:hopper_wgmma_split", "batch": 64}, "workgroups are few"),
        (2, {"dispatch": "flash:hopper_wgmma_split", "kv_heads": 2}, "heads share none"),
    ):
        with pytest.raises(Unimplemented, match=told):
            simdnn.estimate("attention", **sizes, lq=lq, **more)
    assert flash_tile(problem(8, 8, 4096, 128), gpu, "mma", 1).keys == 64


def test_the_logarithm_is_as_near_as_the_manual_says() -> None:
    lg2 = instruction("lg2.approx.ftz.f32")
    x = np.concatenate([np.linspace(0.4, 2.2, 20001), 2.0 ** np.linspace(-126, 127.9, 5001)]).astype(np.float32)
    found, exact = lg2(x).astype(np.float64), np.log2(x.astype(np.float64))
    assert (np.abs(found - exact) <= 2.0**-22 * np.where((x > 0.5) & (x < 2), 1, np.abs(exact))).all()
    assert lg2([0.0, 1e-40, np.inf, 1.0]).tolist() == [-np.inf, -np.inf, np.inf, 0.0] and np.isnan(lg2([-1.0])).all()
