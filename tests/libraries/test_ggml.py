"""Whose bits: ggml's dot products with weights in its blocks, recorded from builds for AVX2, AVX-VNNI and AVX-512."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simdnn
from isa_models.block_formats import BLOCK_FORMATS, block_format
from simdnn import InvalidArgument, Unimplemented
from simdnn.cli import main
from simdnn.kernels.x86.rows_blocks import MULTIPLIED
from tests.effort import one_in

VECTORS = Path(__file__).parents[1] / "vectors" / "ggml"
ONE = np.load(VECTORS / "dots_avx2.npz")  # one row by one column, several lengths
SEVERAL = np.load(VECTORS / "dots.npz")  # three rows by five columns, every type
REPACKED = np.load(VECTORS / "repacked.npz")  # six rows by 16 columns
SIXTEEN = np.load(VECTORS / "nvfp4.npz")  # up to three rows by five columns
LLAMA = np.load(VECTORS / "llama.npz")  # ten rows by eight columns, as llama.cpp multiplies them
CASES = sorted({name.rsplit(".", 1)[0] for name in ONE})
WHERE = [("hsw", None, "avx2"), ("adl-p", "avx2_vnni", "avx2_vnni"), ("icx", None, "avx512_core_vnni")]


def multiplied(x: Any, stored: Any, name: str, machine: str, isa: str | None, **more: Any) -> simdnn.Result:
    return simdnn.matmul(x, simdnn.ggml_blocks(stored, name), machine=machine, isa=isa, dispatch="ggml", **more)


@pytest.mark.parametrize("case", CASES)
def test_recorded_dot_products(case: str) -> None:
    """Of floats: the source is quantized as ggml does it, and the sum has its bits."""
    name, of, _ = case.split(".")
    x, stored = ONE[f"{case}.x"][None], ONE[f"{case}.w"][None]
    r = multiplied(x, stored, name, "hsw", None, engine="reference")
    assert r.output.tobytes() == ONE[f"{case}.dot"].tobytes()
    assert r.library == f"ggml_vec_dot_{name}_{of}" and block_format(name).activations == of


@one_in(3, "name")
@pytest.mark.parametrize("name", [name for name in MULTIPLIED if f"{name}.x" in SEVERAL])
@pytest.mark.parametrize(("machine", "isa", "cap"), WHERE)
def test_recorded_products_under_every_cap(name: str, machine: str, isa: str | None, cap: str) -> None:
    """The bits do not depend on the cap; "fastest" has them too, whichever row it takes."""
    x, stored, wanted = (SEVERAL[f"{name}.{part}"] for part in ("x", "w", "dot"))
    r = multiplied(x, stored, name, machine, isa)
    assert r.implementation == f"vec_dot:{cap}" and np.array_equal(r.output.view(np.uint32), wanted.view(np.uint32))
    fastest = simdnn.matmul(x, simdnn.ggml_blocks(stored, name), machine=machine)
    assert fastest.implementation.startswith("vec_dot:") and np.array_equal(fastest.output, wanted, equal_nan=True)


@pytest.mark.parametrize(("machine", "isa", "cap"), WHERE)
@pytest.mark.parametrize("engine", ["compiled", "reference"])
def test_recorded_products_of_a_scale_for_sixteen(machine: str, isa: str | None, cap: str, engine: str) -> None:
    """NVFP4, whose scales have no sign; the greatest code stands for 0."""
    for case in range(3):
        x, stored, wanted = (SIXTEEN[f"{case}.{part}"] for part in ("x", "w", "dot"))
        r = multiplied(x, stored, "nvfp4", machine, isa, engine=engine)
        assert r.implementation == f"vec_dot:{cap}" and r.output.tobytes() == wanted.tobytes()
        source = simdnn.quantize_ggml(x, "q8_0", axis=1).dequantize().astype(np.float64)
        near = source @ simdnn.ggml_blocks(stored, "nvfp4").dequantize().astype(np.float64)
        assert np.abs(r.output - near).max() < 1e-3 * np.abs(near).max()


@one_in(3, "name")
@pytest.mark.parametrize("name", ["q4_0", "q4_K"])
@pytest.mark.parametrize(("machine", "isa", "cap"), WHERE)
def test_recorded_products_of_interleaved_rows(name: str, machine: str, isa: str | None, cap: str) -> None:
    """llama.cpp by default: four rows of the source together, and those left over by another kernel."""
    x, stored, wanted = (REPACKED[f"{name}.{part}"] for part in ("x", "w", "dot"))
    options: dict[str, Any] = {"machine": machine, "isa": isa, "dispatch": "ggml-repack"}
    weights = simdnn.ggml_blocks(stored, name)
    r = simdnn.matmul(x, weights, **options)
    assert (
        r.implementation == f"repacked:{cap}" and r.library == f"ggml_gemm_{name}_8x8_{block_format(name).activations}"
    )
    assert np.array_equal(r.output.view(np.uint32), wanted.view(np.uint32))
    alone = simdnn.matmul(x[4:], weights, **options, engine="reference")
    assert "_gemv_" in alone.library and np.array_equal(alone.output, wanted[4:])
    plain = simdnn.matmul(x, weights, machine=machine, isa=isa)
    assert plain.implementation.startswith("vec_dot:") and not np.array_equal(plain.output, wanted)


@one_in(3, "name")
@pytest.mark.parametrize("name", [name.split(".")[0] for name in LLAMA if name.endswith(".one")])
@pytest.mark.parametrize(("machine", "isa", "cap"), WHERE)
def test_products_as_llama_cpp_forms_them(name: str, machine: str, isa: str | None, cap: str) -> None:
    """One token, a few, a prompt, and interleaved rows: three orders of sums."""
    stored = LLAMA[f"{name}.w"]
    x = LLAMA[f"x{stored.shape[1] // block_format(name).bytes * block_format(name).elements}"]
    for rows, part in ((1, "one"), (3, "several")):
        r = multiplied(x[:rows], stored, name, machine, isa)
        assert r.implementation == f"vec_dot:{cap}" and r.output.tobytes() == LLAMA[f"{name}.{part}"].tobytes()
    prompt, wanted = multiplied(x, stored, name, machine, isa), LLAMA[f"{name}.prompt"]
    assert prompt.implementation == ("tiled:avx2" if block_format(name).elements == 256 else f"vec_dot:{cap}")
    assert prompt.output.tobytes() == wanted.tobytes()
    if f"{name}.repacked" in LLAMA:
        weights = simdnn.ggml_blocks(stored, name)
        own = simdnn.matmul(x, weights, machine=machine, isa=isa, dispatch="ggml-repack")
        assert own.implementation == f"repacked:{cap}" and own.output.tobytes() == LLAMA[f"{name}.repacked"].tobytes()


def test_what_is_not_interleaved_is_ggmls_dot_product() -> None:
    """Other types, and columns that are no multiple of eight; refusals are ggml's."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 64)).astype(np.float32), rng.normal(size=(64, 16)).astype(np.float32)
    for name, columns in (("q8_0", 16), ("q4_0", 12)):
        q = simdnn.quantize_ggml(w[:, :columns], name, axis=0)
        one, other = (simdnn.matmul(x, q, machine="hsw", dispatch=rule) for rule in ("ggml-repack", "ggml"))
        assert one.implementation == "vec_dot:avx2" and one.output.tobytes() == other.output.tobytes()
    with pytest.raises(Unimplemented, match="multiple"):
        simdnn.matmul(x, q, machine="hsw", dispatch="repacked:avx2")
    with pytest.raises(Unimplemented, match="f32:f32:f32"):
        simdnn.matmul(x, w, machine="hsw", dispatch="ggml-repack")
    rows = simdnn.ggml_blocks(LLAMA["q2_K.w"], "q2_K")
    with pytest.raises(Unimplemented, match="interleaves q2_K under avx512_core_vnni.*works: avx2, --no-repack"):
        simdnn.matmul(LLAMA["x512"], rows, machine="icx", dispatch="ggml-repack")


def test_interleaved_rows_take_fewer_cycles() -> None:
    """Each lane has a column's sums: no sums across lanes, and four rows share the unpacked weights."""
    for m in (1, 8):
        sizes: dict[str, Any] = {"m": m, "n": 64, "k": 1024, "dt": "f32:q4_0:f32", "machine": "hsw"}
        repacked, plain = (simdnn.estimate("matmul", **sizes, dispatch=rule).cycles for rule in ("ggml-repack", "ggml"))
        assert repacked < 0.8 * plain


def test_a_prompt_in_tiles_unpacks_weights_once() -> None:
    """Eight rows share them, so that a row takes fewer cycles than alone; "fastest" keeps the order of dot products."""
    sizes: dict[str, Any] = {"n": 64, "k": 1024, "dt": "f32:q6_K:f32", "machine": "hsw"}
    one, many = (simdnn.estimate("matmul", m=m, **sizes, dispatch="ggml") for m in (1, 64))
    assert many.implementation == "tiled:avx2" and many.cycles < 0.8 * 64 * one.cycles
    assert simdnn.estimate("matmul", m=64, **sizes).implementation.startswith("vec_dot:")
    x, stored = LLAMA["x512"][:9], LLAMA["iq4_xs.w"][:3]
    engines = [
        multiplied(x, stored, "iq4_xs", "hsw", None, engine=engine).output for engine in ("reference", "compiled")
    ]
    assert engines[0].tobytes() == engines[1].tobytes() == LLAMA["iq4_xs.prompt"][:9, :3].tobytes()


def test_engines_and_tiles_agree() -> None:
    """More than 16 rows and columns, and no multiple of it; rows in front are rows."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 9, 64)).astype(np.float32), rng.normal(size=(64, 19)).astype(np.float32)
    q = simdnn.quantize_ggml(w, "q5_1", axis=0)
    one, other = (simdnn.matmul(x, q, machine="hsw", engine=engine) for engine in ("reference", "compiled"))
    assert one.output.shape == (2, 9, 19) and one.output.tobytes() == other.output.tobytes()
    rows = [simdnn.matmul(row[None], q, machine="hsw").output[0] for row in x.reshape(18, 64)]
    assert np.array_equal(one.output.reshape(18, 19), rows)
    np.testing.assert_allclose(one.output, x @ w, atol=1.5)
    assert "<- rounds" in str(one.explain(1, 2, 3))


def test_a_result_is_kept_logged_and_not_bounded(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It pickles by the names of its records; its line of the log has the type of block, which bench reads again."""
    monkeypatch.setenv("SIMDNN_VERBOSE", "1")
    q = simdnn.quantize_ggml(np.ones((32, 4), np.float32), "q8_0", axis=0)
    r = simdnn.matmul(np.ones((1, 32), np.float32), q, machine="hsw", dispatch="ggml")
    line = capfd.readouterr().out
    assert " wei:q8_0:a:any:any::f0 " in line and "attr-fpmath" not in line
    assert pickle.loads(pickle.dumps(r)).output.tobytes() == r.output.tobytes()
    assert np.array_equal(pickle.loads(pickle.dumps(q)).dequantize(), copy.deepcopy(q).dequantize())
    with pytest.raises(Unimplemented, match="by blocks of q8_0, whose integers"):
        _ = r.error_bound


def test_cost_reads_blocks_whole() -> None:
    """Bytes of weights are those of blocks, scales included; a VNNI machine takes fewer instructions."""
    sizes: dict[str, Any] = {"m": 1, "n": 512, "k": 1024, "dispatch": "ggml"}
    with simdnn.cold_weights():
        cold = simdnn.estimate("matmul", **sizes, dt="f32:q4_0:f32", machine="hsw")
    read = cold.traffic.set_index("level").read_bytes
    stored = 512 * 1024 // 32 * BLOCK_FORMATS["q4_0"].bytes
    assert stored <= read["DRAM"] < 1.05 * stored + 4 * 1024
    plain, vnni = (
        simdnn.estimate("matmul", **sizes, dt="f32:q4_0:f32", machine="adl-p", isa=isa) for isa in ("avx2", "avx2_vnni")
    )
    assert vnni.cycles < plain.cycles
    assert {"vpmaddubsw", "vpmaddwd"} <= set(plain.instructions.instruction)
    assert "vpdpbusd" in set(vnni.instructions.instruction)


def test_refusals() -> None:
    w = simdnn.quantize_ggml(np.zeros((32, 2), np.float32), "q4_0", axis=0)
    x, floats = np.zeros((1, 32), np.float32), np.zeros((32, 2), np.float32)
    image, kernel = x.reshape(1, 2, 4, 4), np.zeros((2, 2, 1, 1), np.float32)
    cases: list[tuple[Any, Any, dict[str, Any], str]] = [
        (x, w, {"machine": "a770"}, "no kernel here for GPUs"),
        (x, w, {"bias": np.zeros(2, np.float32)}, "a bias .* afterwards"),
        (x, w, {"dst": "bf16"}, "f32:q4_0:bf16"),
        (x.astype(np.float16), w, {}, "f16:q4_0:f32"),
        (x, w, {"dispatch": "onednn"}, "blocks of q4_0"),
        (x, w, {"dispatch": "gemm:avx2"}, "takes no weights in blocks of q4_0"),
        (x, w, {"isa": "sse41", "dispatch": "ggml"}, "avx2"),
        (x, w.output, {"dispatch": "ggml"}, "ambiguous"),
        (x, floats, {"dispatch": "ggml"}, "f32:f32:f32.*works: f32 times"),
    ]
    for src, weights, options, text in cases:
        with pytest.raises(Unimplemented, match=text):
            simdnn.matmul(src, weights, **{"machine": "hsw", **options})
    with pytest.raises(Unimplemented, match="a convolution"):
        simdnn.convolution(image, kernel, machine="hsw", dispatch="ggml")
    with pytest.raises(InvalidArgument, match="axis=0"):
        simdnn.matmul(x, simdnn.quantize_ggml(np.zeros((32, 32), np.float32), "q4_0"), machine="hsw")
    with pytest.raises(InvalidArgument, match=r"attr=weights.attr\('wei'\)"):
        simdnn.matmul(x, simdnn.quantize_mx(np.zeros((32, 2), np.float32), "f4_e2m1", axis=0), machine="hsw")
    with pytest.raises(InvalidArgument, match="K=48 is no multiple of the 32"):
        simdnn.estimate("matmul", m=1, n=8, k=48, dt="f32:q4_0:f32", machine="hsw")


def test_a_block_of_zeros_and_one_whose_extremes_tie() -> None:
    """Blocks of 256 take the sign of the first of the greatest magnitudes in ggml; products do not show it."""
    x = np.zeros((3, 256), np.float32)
    x[0, [3, 200]], x[1, [3, 200]] = (2, -2), (-2, 2)
    r = multiplied(x, SEVERAL["q6_K.w"][1:2, :210], "q6_K", "hsw", None)
    assert r.output[2, 0] == 0 != r.output[0, 0] == -r.output[1, 0]


def test_bench_takes_blocks_by_cost(capsys: pytest.CaptureFixture[str]) -> None:
    """Weights of a matmul alone; values are not checked, and the line says so."""
    problem = ["--matmul", "--dt=f32:q4_0:f32", "--machine=hsw", "1x64:64x8"]
    assert main(["bench", "--dispatch=ggml", *problem]) == 0
    assert "vec_dot:avx2" in (said := capsys.readouterr().out) and "values not checked: blocks of q4_0" in said
    assert main(["bench", "--matmul", "--dt=q4_0:f32:f32", "--machine=hsw", "1x64:64x8"]) == 2
    assert "unknown type in --dt 'q4_0'" in capsys.readouterr().err
