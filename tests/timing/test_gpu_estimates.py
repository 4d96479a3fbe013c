"""Products of any size and type on every GPU: within what the machine can do, dearer with size, as a run has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import simdnn
from isa_models.formats import fmt
from isa_models.machines.loader import gpu_machine
from isa_models.machines.shipped import gpu_machine_names
from simdnn import Attr, Quant, SimdnnError
from tests.effort import examples

MACHINES = st.sampled_from(sorted(gpu_machine_names()))
TYPES = st.sampled_from(
    [
        *("f32:f32:f32", "f16:f16:f16", "bf16:bf16:f32", "s8:s8:s32", "u8:s8:f16", "f8_e4m3:f8_e4m3:bf16"),
        *("f16:s8:f16", "f32:u8:f32", "f16:s4:f16", "f16:f4_e2m1:f16", "f16:f8_e4m3:f16"),
    ]
)
SIZES = st.one_of(
    st.integers(1, 4), st.integers(1, 300), st.integers(6, 13).map(lambda n: 1 << n), st.integers(1, 100000)
)


def mode(src: str, wei: str) -> Attr | None:
    """Weights that are decompressed have a scale a column, and a mode that allows the type multiplied."""
    if src == wei or not fmt(src).is_float:
        return None
    return Attr(fpmath="f16" if src == "f16" else "any", apply_to_int=True, scales={"wei": Quant(None, mask=2)})


def cost(machine: str, dt: str, sizes: dict[str, int], cold: bool) -> Any:
    """The estimate; examples without one are thrown away."""
    src, wei, _ = dt.split(":")
    try:
        with simdnn.cold_weights(cold):
            return simdnn.estimate("matmul", **sizes, dt=dt, machine=machine, attr=mode(src, wei))
    except SimdnnError:
        assume(False)


@given(MACHINES, TYPES, SIZES, SIZES, SIZES, st.booleans())
@examples(60)
def test_no_estimate_is_beyond_the_machine(machine: str, dt: str, m: int, n: int, k: int, cold: bool) -> None:
    assume(m * n * k < 10**14)
    found, gpu = cost(machine, dt, {"m": m, "n": n, "k": k}, cold), gpu_machine(machine)
    best = max(*gpu.vector_ops.values(), *gpu.systolic_ops.values(), 0) * max(1.0, gpu.f16_sums_share)
    assert 2 * m * n * k / found.seconds <= best * gpu.engines * gpu.ghz * 1e9
    assert found.traffic["share_of_peak"].max() <= 1 + 1e-9
    if cold:
        bits = [fmt(dtype).bits for dtype in dt.split(":")]
        least = (m * k * bits[0] + k * n * bits[1] + m * n * bits[2]) / 8
        assert least <= found.seconds * gpu.dram_gb_s * gpu.stacks * 1e9


@given(MACHINES, TYPES, SIZES, SIZES, SIZES, st.sampled_from("mnk"))
@examples(60)
def test_twice_the_work_takes_no_less_time(machine: str, dt: str, m: int, n: int, k: int, axis: str) -> None:
    """Tiles come in steps, so twice the size may take a little less; it never takes much less."""
    assume(m * n * k < 10**14)
    sizes = {"m": m, "n": n, "k": k}
    once, twice = (cost(machine, dt, sizes | {axis: sizes[axis] * times}, False) for times in (1, 2))
    assert twice.seconds >= 0.6 * once.seconds


@given(MACHINES, st.sampled_from(["f32", "f16", "s8"]), st.integers(1, 40), st.integers(1, 40), st.integers(1, 1200))
@examples(20)
def test_a_run_has_its_estimate_and_exact_sums(machine: str, dtype: str, m: int, n: int, k: int) -> None:
    """Small integers have exact sums in every order."""
    rng = np.random.default_rng(m * n * k)
    src, weights = (rng.integers(-4, 5, size).astype(fmt(dtype).dtype) for size in ((m, k), (k, n)))
    dst = "s32" if dtype == "s8" else "f32"
    expected = cost(machine, f"{dtype}:{dtype}:{dst}", {"m": m, "n": n, "k": k}, False)
    found = simdnn.matmul(src, weights, machine=machine, dst=dst)
    assert (found.implementation, found.cycles) == (expected.implementation, expected.cycles)
    assert (found.output == src.astype(np.int64) @ weights.astype(np.int64)).all()


def test_a_smaller_product_takes_no_longer() -> None:
    """A thread that has its engine to itself waits for L1 once a step; weights of rows that fit the cores come once."""

    def cycles(machine: str, **sizes: int) -> float:
        return float(cost(machine, "bf16:bf16:f32", sizes, cold=True).cycles)

    assert cycles("max1550", m=3136, n=16, k=576) <= cycles("max1550", m=3136, n=32, k=576)
    assert cycles("b580", m=160, n=4096, k=8192) <= cycles("b580", m=256, n=4096, k=8192)


@given(st.sampled_from(sorted(name for name in gpu_machine_names() if gpu_machine(name).launch_us)))
@examples(3)
def test_passes_of_a_primitive_are_launched_once(machine: str) -> None:
    def cycles(launch: float) -> float:
        changed = simdnn.what_if(machine, {"launch.us": launch})
        return float(simdnn.estimate("softmax", src=(64, 128), dt="f32", machine=changed).cycles)

    assert cycles(10) - cycles(0) == pytest.approx(10e3 * gpu_machine(machine).ghz)


@pytest.mark.parametrize("machine", sorted(gpu_machine_names()))
def test_products_of_f32_stay_below_the_vector_pipes(machine: str) -> None:
    """The bound of all types above is the matrix units'; a kernel without them has its own, and comes near."""
    unit = "mad" if gpu_machine(machine).vendor == "Intel" else "fma"
    name = f"gemm:{gpu_machine(machine).platform.name}_{unit}"
    found = simdnn.estimate("matmul", m=4096, n=4096, k=4096, dt="f32:f32:f32", machine=machine, dispatch=name)
    assert 0.5 < found.gops / (gpu_machine(machine).peak_ops("f32") / 1e9) <= 1


def test_an_instruction_takes_as_long_each_time() -> None:
    """Shares of the pipes' work are executions times what one takes, which is the same in a longer loop."""
    each = []
    for k in (256, 1024):
        found = simdnn.estimate("matmul", m=64, n=64, k=k, dt="f32", machine="b580").instructions
        assert found["cycles_share"].sum() == pytest.approx(1)
        once = dict(zip(found["instruction"], found["cycles_share"] / found["count"], strict=True))
        each.append({name: share / once["xor.u32"] for name, share in once.items()})
    assert len(each[0]) >= 4 and each[0] == pytest.approx(each[1])
