"""Products on NVIDIA's tensor cores from Ampere to Hopper: chains of the generation's own instruction."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import simdnn
from isa_models import Unimplemented, instruction
from isa_models.formats import fmt
from isa_models.machines.loader import gpu_machine
from isa_models.nvidia.mma import MmaShape
from simdnn import Attr, Quant
from simdnn.kernels.table import kernels
from simdnn.program.records import Loop
from tests.effort import one_in

Array = np.ndarray[Any, Any]
#: machine, instruction, its generation, elements of K of 16 bits
MACHINES = (("a100", "mma", "ampere"), ("l40s", "mma", "ada"), ("h100", "wgmma", "hopper"))
PAIRS = (
    *(("f16", "f16"), ("bf16", "bf16"), ("s8", "s8"), ("u8", "s8")),
    *(("f8_e4m3", "f8_e4m3"), ("f8_e5m2", "f8_e5m2"), ("f8_e4m3", "f8_e5m2")),
)
LACKS = {("a100", "f8_e4m3"), ("a100", "f8_e5m2")}


def drawn(dtype: str, shape: tuple[int, int], seed: int) -> Array:
    values = np.random.default_rng(seed).standard_normal(shape)
    if dtype == "u8":
        values = np.abs(values)
    return np.asarray((values if fmt(dtype).is_float else np.rint(values * 40)).astype(fmt(dtype).dtype))


def chained(unit: str, arch: str, a: Array, b: Array, step: int) -> Array:
    """K in the order of the kernel, by whole instructions."""
    spare = -a.shape[1] % step
    a, b = np.pad(a, ((0, 0), (0, spare))), np.pad(b, ((0, spare), (0, 0)))
    total = None
    for k in range(0, a.shape[1], step):
        total = instruction(unit)(total, a[:, k : k + step], b[k : k + step], arch=arch)
    assert total is not None
    return np.asarray(total)


CASES = [(*m, *pair) for m in MACHINES for pair in PAIRS if (m[0], pair[0]) not in LACKS]


@one_in(3)
@pytest.mark.parametrize(("machine", "unit", "arch", "src", "wei"), CASES)
def test_a_product_is_a_chain_of_its_instruction(machine: str, unit: str, arch: str, src: str, wei: str) -> None:
    a, b = drawn(src, (17, 70), 1), drawn(wei, (70, 9), 2)
    name = f"gemm:{arch}_{unit}"
    found = simdnn.matmul(a, b, machine=machine, dispatch=name, engine="reference")
    step = 16 * 16 // fmt(src).bits
    assert found.implementation == name and found.cycles > 0
    assert found.output.tobytes() == chained(unit, arch, a, b, step).tobytes()
    exact = a.astype(np.float64) @ b.astype(np.float64)
    loss = 0 if found.output.dtype == np.int32 else 2.0 ** (-10 if fmt(src).bits == 8 else -18)
    assert np.abs(found.output - exact).max() <= loss * np.abs(exact).max()


@one_in(12)
@pytest.mark.parametrize(("machine", "unit", "arch", "src", "wei"), CASES)
def test_parts_of_k_are_chains_that_are_added_up_in_order(
    machine: str, unit: str, arch: str, src: str, wei: str
) -> None:
    a, b = drawn(src, (3, 768), 5), drawn(wei, (768, 40), 6)
    name = f"gemm:{arch}_{unit}_split"
    found, again = (
        simdnn.matmul(a, b, machine=machine, dispatch=name, engine=engine) for engine in ("reference", "compiled")
    )
    assert found.kernel is not None
    parts = found.kernel.program.body[0]
    assert isinstance(parts, Loop) and parts.var == "group_k" and parts.extent > 2
    total = None
    for left, right in zip(np.split(a, parts.extent, axis=1), np.split(b, parts.extent), strict=True):
        part = chained(unit, arch, left, right, 16 * 16 // fmt(src).bits)
        total = part if total is None else total + part
    assert found.output.tobytes() == again.output.tobytes() == np.asarray(total).tobytes()
    if unit == "mma":
        assert found.explain(1, 7).value == found.output[1, 7]


@pytest.mark.parametrize("wei", ["s8", "s4"])
@pytest.mark.parametrize(("machine", "gain"), [("a100", 1.5), ("l40s", 1.0), ("h100", 1.7)])
def test_rows_by_few_weights_take_less_time_than_by_many(machine: str, gain: float, wei: str) -> None:
    """A row by weights from memory: fewer bytes of them, and K in parts where SMs would be idle."""
    shape = {"m": 1, "n": 1024, "k": 14336}
    attr = Attr(fpmath="f16", apply_to_int=True, scales={"wei": Quant(None, mask=2)})
    with simdnn.cold_weights():
        whole = simdnn.estimate("matmul", **shape, dt="f16:f16:f16", machine=machine)
        few = simdnn.estimate("matmul", **shape, dt=f"f16:{wei}:f16", machine=machine, attr=attr)
    assert few.seconds < 0.9 * whole.seconds
    told = few.dispatch.set_index("implementation")["cycles"]
    assert few.cycles * gain <= told[few.implementation.removesuffix("_split")]


@pytest.mark.parametrize("machine", ["dg1", "a100", "h100-pcie", "rtx4090"])
def test_a_few_rows_more_take_hardly_less_time(machine: str) -> None:
    """Tiles of few threads are weighed by their engines' share of L1: M = 24 took thrice the time of 32."""
    dt, n, k = ("u8:s8:f32", 256, 1024) if machine == "dg1" else ("f32", 1024, 2048)
    rows = (1, 2, 4, 8, 24, 32, 64)
    times = [simdnn.estimate("matmul", m=m, n=n, k=k, dt=dt, machine=machine).seconds for m in rows]
    assert all(later >= 0.85 * earlier for earlier, later in itertools.pairwise(times))


def test_what_has_no_parts_of_k_is_refused_by_name() -> None:
    rng = np.random.default_rng(7)
    for shape, told in (((4, 300, 8), "parts of 256 or more, not 300"), ((2000, 512, 800), "not 1600000")):
        m, k, n = shape
        a, b = (rng.standard_normal(size).astype(np.float16) for size in ((m, k), (k, n)))
        with pytest.raises(Unimplemented, match=told):
            simdnn.matmul(a, b, machine="a100", dispatch="gemm:ampere_mma_split")
    assert not [kind.name for kind in kernels() if "volta" in kind.name and "split" in kind.name]


def test_f8_loses_digits_on_ada_and_hopper() -> None:
    """Products are cut off 13 digits behind the point of the greatest: small ones beside a large one vanish."""
    a = np.full((1, 32), 2.0**-7, ml_dtypes.float8_e4m3fn)
    a[0, 0] = 128
    b = np.ones((32, 8), ml_dtypes.float8_e4m3fn)
    for machine in ("rtx4090", "h100"):
        assert simdnn.matmul(a, b, machine=machine, engine="reference").output[0, 0] == 128
    wide = simdnn.matmul(a.astype(np.float16), b.astype(np.float16), machine="h100", engine="reference")
    assert wide.output[0, 0] == 128 + 31 * 2.0**-7


@one_in(3, "dtype")
@pytest.mark.parametrize(
    ("kernel", "dtype", "tag"),
    [
        ("a100:ampere_mma_bf16", "bf16", "any"),
        ("a100:ampere_mma_f16", "f16", "ab"),
        ("a100:ampere_mma_tf32", "tf32", "any"),
        ("h100:hopper_wgmma_bf16", "bf16", "any"),
        ("h100:hopper_mma_bf16", "bf16", "ab"),
        ("h100:hopper_wgmma_tf32", "tf32", "any"),
    ],
)
def test_f32_data_is_rounded_and_both_engines_agree(kernel: str, dtype: str, tag: str) -> None:
    machine, name = kernel.split(":")
    a, b = drawn("f32", (17, 40), 3), drawn("f32", (40, 66), 4)
    attr, dispatch = Attr(fpmath=dtype), f"gemm:{name}"
    found, again = (
        simdnn.matmul(a, b, machine=machine, attr=attr, wei_tag=tag, engine=engine, dispatch=dispatch).output
        for engine in ("compiled", "reference")
    )
    assert found.tobytes() == again.tobytes()
    if dtype == "tf32":  # the low bits are not read
        read = [(x.view(np.uint32) & 0xFFFFE000).view(np.float32) for x in (a, b)]
    else:
        read = [x.astype(fmt(dtype).dtype) for x in (a, b)]
    exact = np.matmul(*(x.astype(np.float64) for x in read))
    assert np.abs(found - exact).max() <= 1e-5 * np.abs(exact).max()


@one_in(3, "dst")
@pytest.mark.parametrize("machine", ["a100", "rtx4090", "h100"])
@pytest.mark.parametrize("dst", ["f32", "bf16", "f16", "s8", "u8"])
def test_integers_are_scaled_and_stored(machine: str, dst: str) -> None:
    a, b = drawn("s8", (20, 64), 5), drawn("s8", (64, 24), 6)
    bias, scales = drawn("f32", (1, 24), 7)[0], np.linspace(0.01, 0.02, 24, dtype=np.float32)
    attr = Attr(
        scales={"src": np.float32([0.25]), "wei": scales, "dst": np.float32([0.5])},
        zero_points={"dst": 3},
        post_ops=["relu"],
    )
    found = simdnn.matmul(a, b, bias, machine=machine, dst=dst, attr=attr)
    sums = (a.astype(np.int32) @ b.astype(np.int32)).astype(np.float32)
    wanted = np.maximum(sums * np.float32(0.25) * scales + bias, 0) * np.float32(2) + np.float32(3)
    if not fmt(dst).is_float:
        wanted = np.clip(np.rint(wanted), fmt(dst).low, fmt(dst).high)
    assert found.output.tobytes() == wanted.astype(fmt(dst).dtype).tobytes()


@one_in(2)
@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_convolution_and_stored_weights(machine: str) -> None:
    rng = np.random.default_rng(8)
    x = rng.standard_normal((1, 16, 6, 6)).astype(ml_dtypes.bfloat16)
    w = rng.standard_normal((24, 16, 3, 3)).astype(ml_dtypes.bfloat16)
    found = simdnn.convolution(x, w, padding=1, machine=machine)
    plain = simdnn.convolution(x.astype(np.float32), w.astype(np.float32), padding=1, machine="b580")
    assert found.implementation.startswith("conv:") and np.abs(found.output - plain.output).max() < 1e-4
    codes = rng.integers(-8, 8, (64, 24)).astype(ml_dtypes.int4)
    source = rng.standard_normal((9, 64)).astype(ml_dtypes.bfloat16)
    attr = Attr(fpmath="bf16", apply_to_int=True, scales={"wei": np.full((2, 24), 0.125, np.float32)})
    stored = simdnn.matmul(source, codes, machine=machine, attr=attr)
    exact = source.astype(np.float64) @ (codes.astype(np.float64) / 8)
    assert "_wdec" in stored.implementation and np.abs(stored.output - exact).max() < 1e-4


def test_what_a_generation_lacks_is_refused_by_name() -> None:
    codes = np.ones((4, 4), ml_dtypes.float8_e4m3fn)
    with pytest.raises(simdnn.SimdnnError, match="Ampere's tensor cores take f16, bf16, tf32, s8, u8 alone"):
        simdnn.matmul(codes, codes, machine="a100")
    with pytest.raises(simdnn.SimdnnError, match="operands of two types"):
        _ = MmaShape("mma", "ada", "f16", "f32", 16, 8, 16, "bf16").unit
    with pytest.raises(simdnn.SimdnnError, match=r"zero_points\['src'\] of u8:s8"):
        simdnn.matmul(
            np.ones((4, 4), np.uint8), np.ones((4, 4), np.int8), machine="a100", attr=Attr(zero_points={"src": 3})
        )


# -- time -------------------------------------------------------------------------------------------------------------
def tflops(machine: str, dt: str, m: int, n: int, k: int) -> float:
    return simdnn.estimate("matmul", m=m, n=n, k=k, dt=dt, machine=machine).gops / 1e3


@pytest.mark.parametrize(
    ("machine", "dt", "sizes", "published"),
    [
        ("a100", "f16:f16:f16", (128, 12288, 12288), 193.0),
        ("a100", "f16:f16:f16", (8192, 16384, 16384), 293.0),
        ("a100", "s8:s8:bf16", (1024, 8192, 21760), 507.6),
        ("rtx4090", "f16:f16:f16", (4096, 4096, 4096), 168.4),
        ("h100", "bf16:bf16:bf16", (8192, 8192, 8192), 795.0),
        ("h100", "f8_e4m3:f8_e4m3:bf16", (1024, 9216, 14336), 1402.6),
        ("h100-pcie", "bf16:bf16:bf16", (4096, 4096, 4096), 495.9),
    ],
)
def test_published_rates(machine: str, dt: str, sizes: tuple[int, int, int], published: float) -> None:
    assert tflops(machine, dt, *sizes) == pytest.approx(published, rel=0.1)


def test_f8_is_faster_than_f16_where_its_rate_is() -> None:
    rates = {dt: tflops("h100", f"{dt}:{dt}:f32", 4096, 4096, 4096) for dt in ("bf16", "f8_e4m3", "f8_e5m2", "s8")}
    assert 1.4 < rates["f8_e4m3"] / rates["bf16"] < 2 and rates["f8_e4m3"] == rates["f8_e5m2"]


def test_a_kernel_that_leaves_tensor_cores_idle_runs_at_the_higher_clock() -> None:
    h100 = gpu_machine("h100")
    full, little = (
        simdnn.estimate("matmul", m=m, n=8192, k=8192, dt="bf16:bf16:bf16", machine="h100") for m in (8192, 16)
    )
    assert full.cycles / full.seconds / 1e9 == pytest.approx(h100.full_load_ghz["bf16"], rel=0.1)
    assert little.cycles / little.seconds / 1e9 == pytest.approx(h100.ghz)
    ada = simdnn.estimate("matmul", m=8192, n=8192, k=8192, dt="bf16:bf16:bf16", machine="rtx4090")
    assert ada.cycles / ada.seconds / 1e9 == pytest.approx(gpu_machine("rtx4090").ghz)  # nothing known limits it
