"""GEMM on GPUs: floats as the instruction gives them, integers behind a bias, plain weights, tiles, blocks."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models import instruction, machine
from isa_models.machines.loader import gpu_machine
from isa_models.machines.shipped import gpu_machine_names
from simdnn import Attr
from simdnn.kernels.common.epilogue import Epilogue
from simdnn.kernels.gpu.problem import GpuMatmulProblem
from simdnn.kernels.intel_gpu.copy import is_copied
from simdnn.kernels.intel_gpu.gemm import GpuGemm
from tests.draws import drawn
from tests.effort import examples, one_in

INTEL = [name for name in gpu_machine_names() if not gpu_machine(name).nvidia]

Array = np.ndarray[Any, np.dtype[Any]]


_OF_TYPE = {"tf32": "gemm:xe_hpc_dpas_tf32"}  # which a lower clock keeps from being the fastest


@one_in(3, "model")
@pytest.mark.parametrize("model", ["sequential", "stage_fused", "pair_first"])
@pytest.mark.parametrize("dtype", ["bf16", "f16", "tf32"])
def test_floats_are_chains_of_the_instruction(dtype: str, model: str) -> None:
    rng = np.random.default_rng(4)
    m, n, k = 13, 37, 70
    a, b = drawn(dtype, (m, k), rng), drawn(dtype, (k, n), rng)
    attr = Attr(fpmath="tf32" if dtype == "tf32" else None, float_model=model)
    options: dict[str, Any] = {"machine": "max1550", "attr": attr, "dispatch": _OF_TYPE.get(dtype, "gemm:xe_hpc_dpas")}
    outputs = [simdnn.matmul(a, b, **options, engine=e) for e in ("compiled", "reference")]
    step = 8 if dtype == "tf32" else 16
    full_a, full_b = np.zeros((16, 80), a.dtype), np.zeros((80, 48), b.dtype)
    full_a[:m, :k], full_b[:k, :n] = a, b
    expected = np.zeros((16, 48), np.float32)
    for i in range(0, 16, 8):
        for j in range(0, 48, 16):
            acc = expected[i : i + 8, j : j + 16]
            for s in range(0, 80, step):
                parts = full_a[i : i + 8, s : s + step], full_b[s : s + step, j : j + 16]
                acc = instruction("dpas")(acc, *parts, a_dtype=dtype, b_dtype=dtype, float_model=model)
            expected[i : i + 8, j : j + 16] = acc
    for result in outputs:
        assert (result.output == expected[:m, :n]).all() and result.output.dtype == np.float32
        assert result.float_model == model and result.confidence == "estimated"


@pytest.mark.parametrize("name,dtype", [("dg1", "f32"), ("dg1", "f16"), ("dg1", "bf16"), ("b580", "f32")])
@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_the_vector_pipe_adds_up_k_after_k(name: str, dtype: str, engine: str) -> None:
    rng = np.random.default_rng(6)
    m, n, k = 11, 35, 29
    a, b = drawn(dtype, (m, k), rng), drawn(dtype, (k, n), rng)
    bias = rng.standard_normal(n).astype(np.float32)
    found = simdnn.matmul(a, b, bias, machine=name, engine=engine, attr=Attr(post_ops=["relu"]))
    total = np.zeros((m, n), np.float32)
    for step in range(k):
        column, row = np.broadcast_arrays(a[:, step, None].astype(np.float32), b[None, step].astype(np.float32))
        total = instruction("mad.f32")(total, np.ascontiguousarray(column), np.ascontiguousarray(row))
    assert (found.output == np.maximum(total + bias, 0)).all()
    assert found.implementation.endswith("_mad") and found.compute_dtype == "f32" and found.float_model is None


@given(
    st.sampled_from(INTEL),
    st.sampled_from(["f32", "f16", "bf16"]),
    st.sampled_from(["f32", "f16", "bf16", "u8"]),
    st.integers(1, 3000),
    st.integers(1, 3000),
    st.integers(1, 100),
)
@examples(40)
def test_float_tiles_leave_room_for_what_follows(name: str, dtype: str, dst: str, m: int, n: int, k: int) -> None:
    attr = Attr(post_ops=["relu"], scales={"dst": np.float32(2)})
    found = simdnn.estimate("matmul", m=m, n=n, k=k, dt=f"{dtype}:{dtype}:{dst}", bias=True, attr=attr, machine=name)
    assert found.kernel.program.signature  # verified, its registers too


@pytest.mark.parametrize("name", INTEL)
def test_f32_stays_below_the_peak_and_a_math_mode_is_a_hint(name: str) -> None:
    sizes = {"m": 2048, "n": 2048, "k": 2048, "machine": name}
    plain = simdnn.estimate("matmul", dt="f32", **sizes)
    peak = gpu_machine(name).peak_ops("f32")
    assert 0.75 * peak < 2 * 2048**3 / plain.seconds < peak
    allowed = simdnn.estimate("matmul", dt="f32", attr=Attr(fpmath="tf32"), **sizes)
    has_tf32 = gpu_machine(name).platform.name == "xe_hpc"
    assert allowed.compute_dtype == ("tf32" if has_tf32 else "f32") and (allowed.cycles < plain.cycles) == has_tf32


def test_epilogue_in_its_order() -> None:
    rng = np.random.default_rng(1)
    a, b = drawn("u8", (20, 64), rng), drawn("s8", (64, 50), rng)
    bias = rng.standard_normal(50).astype(np.float32) * 10
    scales = {"src": np.float32(0.02), "wei": rng.random(50).astype(np.float32), "dst": np.float32(2)}
    sums = (a.astype(int) @ b.astype(int)).astype(np.float32) * scales["src"] * scales["wei"] + bias
    expected = np.clip(np.rint(np.maximum(sums, 0) * np.float32(0.5) + 3), 0, 255)
    attr = Attr(scales=scales, zero_points={"dst": 3}, post_ops=["relu"])
    for engine in ("compiled", "reference"):
        assert (simdnn.matmul(a, b, bias, machine="a770", dst="u8", attr=attr, engine=engine).output == expected).all()
    for dst, dtype in (("bf16", ml_dtypes.bfloat16), ("f16", np.float16), ("f32", np.float32)):
        plain = Attr(scales={"src": 0.02, "wei": scales["wei"]})
        met = simdnn.matmul(a, b, bias, machine="b580", dst=dst, attr=plain).output
        assert met.dtype == dtype and (met == sums.astype(dtype)).all()


@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_s32_after_a_bias_is_rounded_and_saturated(engine: str) -> None:
    rng = np.random.default_rng(1)
    a, b = drawn("u8", (5, 64), rng), drawn("s8", (64, 9), rng)
    bias = np.array([0.5, 1.5, -0.5, 3e9, -3e9, np.nan, 0, 1, 2], np.float32)
    sums = (a.astype(int) @ b.astype(int)).astype(np.float32) + bias
    expected = np.clip(np.nan_to_num(np.rint(sums.astype(np.float64))), -(2**31), 2**31 - 1)
    assert (simdnn.matmul(a, b, bias, machine="b580", dst="s32", engine=engine).output == expected).all()


@pytest.mark.parametrize("machine,tag", [("a770", "ba"), ("b580", "ba"), ("b580", "ab"), ("max1550", "ab")])
def test_plain_weights(machine: str, tag: str) -> None:
    """The platform's messages bring them to the registers as the matrix instructions want them."""
    rng = np.random.default_rng(7)
    a, b = drawn("s8", (4, 32), rng), drawn("s8", (32, 20), rng)
    r = simdnn.matmul(a, b, machine=machine, wei_tag=tag, engine="reference")
    assert (r.output == a.astype(int) @ b.astype(int)).all() and r.weights_desc.tag == tag


def test_a_large_problem_has_values_and_a_cost() -> None:
    rng = np.random.default_rng(2)
    a, b = drawn("s8", (512, 512), rng), drawn("s8", (512, 512), rng)
    result = simdnn.matmul(a, b, machine="a770")
    assert (result.output == a.astype(int) @ b.astype(int)).all()
    assert result.implementation == "gemm:xe_hpg_dpas" and result.compute_dtype == "s8" and result.float_model is None
    table = result.instructions.set_index("instruction")
    assert table.loc["dpas.s8.s8.8.8.x8.s32", "count"] == 512**3 // (8 * 8 * 32)
    assert result.traffic.level.tolist() == ["L1", "L2", "DRAM"] and (result.traffic.share_of_peak <= 1).all()
    assert result.cycles == simdnn.estimate("matmul", m=512, n=512, k=512, dt="s8:s8:s32", machine="a770").cycles
    assert "a770" in repr(result) and result.dispatch.chosen.sum() == 1
    assert '"float_model": ""' in result.to_json() and "<table>" in result._repr_html_()


def test_dp4a_does_a_quarter_of_the_products_an_instruction() -> None:
    result = simdnn.estimate("matmul", m=64, n=64, k=64, dt="s8:u8:s32", machine="dg1")
    assert result.implementation == "gemm:xe_lp_dp4a"
    count = result.instructions.set_index("instruction").loc["dp4a.u8.s8.8.8.x16.s32", "count"]
    assert count == 64**3 // (4 * 16)


@pytest.mark.parametrize("name", INTEL)
@pytest.mark.parametrize("size", [(1, 4096, 4096), (7, 100, 64), (512, 512, 512), (4096, 64, 256)])
def test_tiles_fit_the_registers_and_the_threads(name: str, size: tuple[int, int, int]) -> None:
    gpu = gpu_machine(name)
    m, n, k = size
    gemm = GpuGemm(GpuMatmulProblem(m, n, k, "s8", "s8", Epilogue("s32")), gpu)
    assert gemm.program.signature  # verified: registers of a thread among it
    tile = gemm.tile
    assert tile.threads[0] * tile.threads[1] <= gpu.engines_per_core * gpu.threads
    assert gemm.groups[0] * tile.m >= m and gemm.groups[1] * tile.n >= n


def test_a_machine_itself_or_its_name() -> None:
    a = np.ones((4, 32), np.int8)
    assert (
        simdnn.matmul(a, a.T.copy(), machine=machine("a770")).cycles
        == simdnn.matmul(a, a.T.copy(), machine="a770").cycles
    )


@pytest.mark.parametrize("dt,side", [("f16:f16:f32", 2944), ("s8:s8:s32", 4160), ("s8:s4:s32", 4224)])
def test_plain_matrices_are_copied_into_blocks_where_no_message_does_it(dt: str, side: int) -> None:
    def found(m: int, tag: str, machine: str = "a770") -> simdnn.Estimate:
        return simdnn.estimate("matmul", m=m, n=side, k=1024, dt=dt, machine=machine, wei_tag=tag)

    once, each = found(side, "any"), found(side, "ab")
    assert once.conversion is not None and each.conversion is None
    assert once.cycles < each.cycles
    moved = once.conversion.read_bytes + once.conversion.written_bytes
    assert once.conversion.read_bytes >= side * 1024 * {"f": 2, "s": 1}[dt[0]] / (2 if "s4" in dt else 1)
    assert moved / once.conversion.seconds <= max(64 * 32 * 2.1, 560) * 1e9  # L2's, where it stays there
    below = found(side - 256, "ab")
    assert below.conversion is None and below.cycles == found(side - 256, "any").cycles
    assert found(side, "any", "b580").cycles == found(side, "ab", "b580").cycles


@pytest.mark.parametrize(
    "dtype,tag,sizes,copied",
    [
        ("f16", "ab", (4096, 2048, 512), False),  # eight times 2^20 results
        ("f16", "ab", (4096, 2080, 512), True),
        ("f16", "ab", (4096, 4100, 512), False),  # rows of weights that do not begin on a line
        ("f16", "ba", (4096, 4096, 512), False),  # weights by columns: sixteen
        ("f16", "ba", (4096, 4097, 512), True),
        ("f16", "ba", (4096, 4097, 2049), True),
        ("f16", "ba", (4096, 4097, 1001), False),
        ("s8", "ab", (4096, 4096, 512), False),
        ("s8", "ab", (4096, 4160, 512), True),
        ("s8", "ba", (4096, 3072, 512), False),
        ("s8", "ba", (4096, 3136, 512), True),
        ("s8", "ba", (4096, 6144, 500), False),
        ("s8", "ba", (4096, 6208, 500), True),
        ("s8", "ba", (4096, 6208, 513), False),
        ("f16", "ab", (1024, 1 << 20, 512), False),  # few rows
        ("f32", "ab", (8192, 8192, 512), False),
    ],
)
def test_which_matrices_are_copied(dtype: str, tag: str, sizes: tuple[int, int, int], copied: bool) -> None:
    """As oneDNN has it for Xe-HPG (jit_xe_hp_systolic.cpp, use_nocopy_xehpg); a Xe2 reads blocks of plain matrices."""
    problem = GpuMatmulProblem(*sizes, dtype, dtype, Epilogue("s32" if dtype == "s8" else "f32"), wei_tag=tag)
    assert is_copied(gpu_machine("a770"), problem) == copied and not is_copied(gpu_machine("b580"), problem)


def test_values_do_not_depend_on_where_blocks_are_made() -> None:
    src, weights = (np.ones(shape, np.float16) for shape in ((2944, 32), (32, 2944)))
    outputs = [simdnn.matmul(src, weights, machine="a770", wei_tag=tag).output for tag in ("any", "ab")]
    assert (outputs[0] == 32).all() and (outputs[0] == outputs[1]).all()
