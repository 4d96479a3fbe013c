"""simdnn.explain, Result.explain and the command: the last value is the output, the exact one is exact arithmetic's."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models.formats import fmt
from simdnn.cli import main
from tests.effort import examples, one_in
from tests.primitives.problems import Array, Case, convolutions, convolve, matmuls


def full_range(rng: np.random.Generator, array: Array) -> Array:
    """Numbers of the whole range of the array's type in its shape."""
    if array.dtype.kind in "iu":
        info = np.iinfo(array.dtype)
        return rng.integers(info.min, info.max, array.shape, endpoint=True).astype(array.dtype)
    return rng.standard_normal(array.shape).astype(array.dtype)


def some(rng: np.random.Generator, output: Array, count: int) -> list[tuple[int, ...]]:
    return [tuple(int(rng.integers(size)) for size in output.shape) for _ in range(count)]


@given(matmuls(), st.integers(0, 2**32 - 1))
@examples(8)
def test_elements_of_matmul(case: Case, seed: int) -> None:
    rng = np.random.default_rng(seed)
    src, weights = full_range(rng, case.src), full_range(rng, case.weights)
    result = simdnn.matmul(src, weights, case.bias, **case.options)
    for at in some(rng, result.output, 3):
        found = result.explain(*at)
        assert np.asarray(found.value).tobytes() == result.output[at].tobytes()
        assert str(found).startswith(f"dst[{at[0]},{at[1]}] of {result.implementation}")


@given(convolutions(), st.integers(0, 2**32 - 1))
@examples(8)
def test_elements_of_convolution(case: Case, seed: int) -> None:
    rng = np.random.default_rng(seed)
    src, weights = full_range(rng, case.src), full_range(rng, case.weights)
    result = simdnn.convolution(src, weights, case.bias, **case.options)
    for at in some(rng, result.output, 3):
        assert np.asarray(result.explain(*at).value).tobytes() == result.output[at].tobytes()


@one_in(2, "isa")
@pytest.mark.parametrize("src_type", ["u8", "s8"])
@pytest.mark.parametrize("isa", ["avx2", "avx512_core", "avx512_core_vnni"])
def test_exact_values_of_integers(isa: str, src_type: str) -> None:
    """Saturated, halved or neither: `exact` is the sum in wide integers, and what is lost is said to be."""
    rng = np.random.default_rng(3)
    src = full_range(rng, np.zeros((3, 101), fmt(src_type).dtype))
    weights = full_range(rng, np.zeros((101, 9), np.int8))
    result = simdnn.matmul(src, weights, machine="zen4", isa=isa)
    sums = src.astype(np.int64) @ weights.astype(np.int64)
    image = full_range(rng, np.zeros((1, 6, 7, 7), fmt(src_type).dtype))
    kernel = full_range(rng, np.zeros((5, 6, 3, 3), np.int8))
    other = simdnn.convolution(image, kernel, padding=1, machine="zen4", isa=isa)
    planes = convolve(image.astype(np.int64), kernel.astype(np.int64), (1, 1), (1, 1, 1, 1), (1, 1), 1)
    lossy = 0
    for wanted, met in ((sums, result), (planes, other)):
        for at in some(rng, met.output, 4):
            found = met.explain(*at)
            assert (int(found.value), found.exact) == (int(met.output[at]), int(wanted[at]))
            saturated = sum(row.note == "saturates" for row in found.rows)
            if met.saturation is not None:
                assert saturated == met.saturation[at]
            assert (found.left_exact is None) == (not any(row.note for row in found.rows))
            lossy += found.value != found.exact
            if found.value != found.exact:
                assert found.left_exact is not None
    assert bool(lossy) == (isa != "avx512_core_vnni")


def test_long_sums_and_depth() -> None:
    """Thousands of products, sums stored between their parts, weights packed by the program: all by one walk."""
    rng = np.random.default_rng(4)
    f32 = rng.standard_normal((2, 2100)).astype(np.float32), rng.standard_normal((2100, 3)).astype(np.float32)
    bf16 = f32[0][:, :1100].astype(ml_dtypes.bfloat16), f32[1][:1100].astype(ml_dtypes.bfloat16)
    u8 = rng.integers(0, 256, (2, 320)).astype(np.uint8), rng.integers(-128, 128, (320, 8)).astype(np.int8)
    scales = {"src": rng.random((2, 40)).astype(np.float32), "wei": rng.random((40, 8)).astype(np.float32)}
    for result in (
        simdnn.matmul(*f32, machine="zen4"),
        simdnn.matmul(*bf16, machine="zen4"),
        simdnn.matmul(*u8, machine="skx", wei_tag="ba"),
        simdnn.matmul(*u8, machine="zen4", attr=simdnn.Attr(scales=scales)),
    ):
        found = result.explain(1, 2)
        assert np.asarray(found.value).tobytes() == result.output[1, 2].tobytes()
        assert len(found.steps) > 200 and len(str(found).splitlines()) < 130


def test_compressed_weights_and_vectors() -> None:
    rng = np.random.default_rng(5)
    src = rng.standard_normal((2, 64)).astype(np.float32)
    for dtype, low, high in ((np.int8, -128, 128), (ml_dtypes.int4, -8, 8), (ml_dtypes.uint4, 0, 16)):
        weights = rng.integers(low, high, (64, 24)).astype(dtype)
        attr = simdnn.Attr(fpmath="strict", apply_to_int=True, scales={"wei": rng.random((2, 24)).astype(np.float32)})
        for machine in ("zen4", "skx"):
            result = simdnn.matmul(src, weights, machine=machine, attr=attr)
            assert np.asarray(result.explain(1, 5).value).tobytes() == result.output[1, 5].tobytes()
    vector = simdnn.matmul(src[:1], src.T.copy(), machine="zen4", wei_tag="ba")
    assert np.asarray(vector.explain(0, 1).value).tobytes() == vector.output[0, 1].tobytes()


def test_the_result_keeps_what_it_was_computed_from() -> None:
    src, weights = np.full((1, 4), 200, np.uint8), np.full((4, 1), 100, np.int8)
    result = simdnn.matmul(src, weights, machine="skx")
    src[:] = 0
    found = result.explain(0, 0)
    assert int(found.value) == int(result.output[0, 0]) == 65534
    assert found.left_exact is not None and found.left_exact.note == "saturates"
    assert "src[0,0] * weights[0,0] + src[0,1] * weights[1,0] = 200 * 100 + 200 * 100 = 40000 -> 32767" in str(found)


def test_steps_are_a_frame() -> None:
    result = simdnn.matmul(np.ones((2, 5), np.uint8), np.ones((5, 3), np.int8), machine="skx")
    frame = result.explain(1, -1).steps
    assert isinstance(frame, pd.DataFrame)
    assert list(frame) == ["at", "instruction", "text", "value", "exact", "note"]
    assert frame["value"].iloc[-1] == 5 and frame["instruction"].iloc[-1] == "vpmaskmovd"


@pytest.mark.parametrize("index", [(0,), (0, 0, 0), (5, 0), (0, -9), (0.5, 0), (True, 0), ("a", 0)])
def test_elements_that_are_not_there(index: Any) -> None:
    result = simdnn.matmul(np.ones((2, 5), np.uint8), np.ones((5, 3), np.int8), machine="skx")
    with pytest.raises(simdnn.InvalidArgument, match="element"):
        result.explain(*index)


BF16 = ml_dtypes.bfloat16


def test_a_chain_in_the_order_of_the_hardware() -> None:
    """vdpbf16ps takes the odd element first (docs/numerics.md, rule 1); where a step rounds, it has a row."""
    src, weights = np.array([[1, 2, 3, 4]], BF16), np.array([[5], [6], [7], [8]], BF16)
    text = str(simdnn.matmul(src, weights, machine="zen4").explain(0, 0))
    assert "0 + src[0,1] * weights[1,0] + src[0,0] * weights[0,0] = 0 + 2 * 6 + 1 * 5 = 17" in text
    src, weights = np.array([[2.0**-13, 2.0**13]], BF16), np.array([[2.0**-13], [2.0**13]], BF16)
    rows = simdnn.matmul(src, weights, machine="zen4").explain(0, 0).rows
    assert [(row.value, row.note) for row in rows if row.instruction == "vdpbf16ps"] == [(2.0**26, "rounds")]


HALVES = [
    ("zen4", BF16),
    ("spr", BF16),
    ("a770", BF16),
    ("a770", np.float16),
    ("v100", np.float16),
    ("v100", np.float32),
    ("b580", BF16),
]


@pytest.mark.parametrize(("machine", "dtype"), HALVES)
def test_cancellation_shows_where_it_rounds(machine: str, dtype: Any) -> None:
    """A sum that cancels to zero although a small product was lost: the row that lost it is another than the last."""
    src = np.array([[2.0**-7, 2.0**7, 1, -(2.0**7)]], dtype)
    weights = np.array([[2.0**-7], [2.0**13], [0], [2.0**13]], dtype)
    result = simdnn.matmul(src, weights, machine=machine)
    found = result.explain(0, 0)
    assert np.asarray(found.value).tobytes() == result.output[0, 0].tobytes()
    assert found.exact == 2.0**-14 and found.left_exact is not None
    text = str(found)
    assert "<<" not in text and "padding" not in text
    assert all(f"src[0,{k}] * weights[{k},0]" in text for k in (0, 1, 3))
    if machine != "v100" or dtype == np.float32:  # V100's sum of four is rounded once
        assert "rounds" in found.left_exact.note and found.left_exact.value != 0


PACKED = [
    ("a770", ("s8", "s8")),
    ("a770", ("u8", "s8")),
    ("a770", ("f16", "f16")),
    ("a770", ("bf16", "bf16")),
    ("v100", ("f16", "f16")),
]


@pytest.mark.parametrize(("machine", "types"), PACKED)
def test_short_sums_name_their_elements_alone(machine: str, types: tuple[str, str]) -> None:
    rng = np.random.default_rng(2)
    shapes = zip([(3, 6), (6, 5)], types, strict=True)
    src, weights = (full_range(rng, np.zeros(shape, fmt(dtype).dtype)) for shape, dtype in shapes)
    result = simdnn.matmul(src, weights, machine=machine)
    found = result.explain(2, 4)
    assert np.asarray(found.value).tobytes() == result.output[2, 4].tobytes()
    whole = " ".join(row.text for row in found.rows)
    assert all(f"src[2,{k}] * weights[{k},4]" in whole for k in range(6))
    assert whole.count("* weights[") == 6 and "0 * 0" not in whole and "padding" not in whole


@one_in(2, "strategy")
@pytest.mark.parametrize("groups", [32, 1])
@pytest.mark.parametrize(("machine", "strategy"), [("lnl", "in_kernel"), ("max1550", "bias"), ("a770", "bias")])
def test_nibbles_beside_bytes_name_their_elements(machine: str, strategy: str, groups: int) -> None:
    """DPAS takes weights of 4 bits beside a source of 8, in groups that zeros fill up."""
    rng = np.random.default_rng(3)
    src, weights = rng.integers(0, 256, (2, 32)).astype(np.uint8), rng.integers(0, 16, (32, 3)).astype(fmt("u4").dtype)
    zeros = rng.integers(1, 6, (32 // groups, 3)).astype(np.int32)
    attr = simdnn.Attr(zero_points={"wei": zeros}, zero_point_strategy=strategy)
    result = simdnn.matmul(src, weights, machine=machine, attr=attr)
    text = " ".join(row.text for row in result.explain(1, 2).rows)
    for k in range(32):
        assert f"src[1,{k}] * weights[{k},2]" in text and f"{src[1, k]} * {weights[k, 2]}" in text
    assert "padding" not in text and text.count("* weights[") == 32


def test_command_takes_zero_points_and_scales(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    src, weights = rng.integers(0, 256, (2, 9)).astype(np.uint8), rng.integers(-128, 128, (9, 3)).astype(np.int8)
    np.save(tmp_path / "a.npy", src)
    np.save(tmp_path / "w.npy", weights)
    files = ["--src", str(tmp_path / "a.npy"), "--weights", str(tmp_path / "w.npy"), "--dt", "u8:s8:f32"]
    for machine in ("zen4", "a770"):
        words = [*files, "--machine", machine, "--attr-zero-points=src:common:3", "--attr-scales", "wei:common:0.5"]
        assert main(["explain", "matmul", *words, "--at", "1,1", "--json"]) == 0
        met = json.loads(capsys.readouterr().out)["value"]
        assert met == ((src.astype(int) - 3) @ weights)[1, 1] / 2
    words = ["2x9:9x3", "--at", "1,1", "--attr-zero-points", "src:common:3+wei:per_oc"]
    assert main(["explain", "matmul", *words]) == 0 and "src_zeros[1]" in capsys.readouterr().out
    assert main(["explain", "conv", "ic4ih5oc3kh3ph1", "--at", "0,0,1,1", "--attr-zero-points", "src:common:2"]) == 0
    capsys.readouterr()
    assert main(["explain", "matmul", "2x9:9x3", "--at", "1,1", "--attr-zero-points", "src:comon:3"]) == 2
    assert "did you mean 'common'" in capsys.readouterr().err


# -- the command -------------------------------------------------------------------------------------------------------
def test_command_shows_an_element(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    words = ["explain", "matmul", "3x20:20x4", "--at", "1,2", "--machine", "skx", "--isa=avx2", "-o"]
    assert main([*words, str(tmp_path / "steps.csv"), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["title"] == "dst[1,2] of gemm:avx2_int8 on skx"
    assert pd.read_csv(tmp_path / "steps.csv")["value"].iloc[-1] == record["value"]
    assert main(["explain", "conv", "mb1ic3ih6oc4kh3ph1", "--at", "0,1,2,3", "--exact", "--machine", "icx"]) == 0
    assert "no step rounded" in capsys.readouterr().out


def test_command_reads_arrays(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    rng = np.random.default_rng(1)
    src, weights = rng.integers(0, 256, (2, 9)).astype(np.uint8), rng.integers(-128, 128, (9, 3)).astype(np.int8)
    np.save(tmp_path / "a.npy", src)
    np.save(tmp_path / "w.npy", weights)
    files = ["--src", str(tmp_path / "a.npy"), "--weights", str(tmp_path / "w.npy")]
    assert main(["explain", "matmul", *files, "--at", "1,1", "--machine", "clx", "--json"]) == 0
    met = json.loads(capsys.readouterr().out)["value"]
    assert met == (src.astype(int) @ weights)[1, 1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "unknown instruction"),
        (["softmax", "3x4"], "primitives: matmul, conv, convolution, dot"),
        (["vpmaddubsw", "--a", "1,x", "--b", "1,1"], "integers of u8"),
        (["vpmaddubsw", "--a", "1,1", "--q", "1,1"], "no operand 'q'"),
        (["vpmaddubsw", "--a"], "without a value"),
        (["vpmaddubsw", "--a", "1,1", "--a", "1,1"], "given twice"),
        (["vpmaddubsw", "1,1"], "operands are named"),
        (["matmul", "3x4:4x5"], "which element"),
        (["matmul", "3x4:4x5", "--at", "3,0"], "the output's shape"),
        (["matmul", "3x4:4x5", "--at", "1,0", "--machin", "skx"], "did you mean '--machine'"),
        (["matmul", "--at", "1,0"], "a problem is needed"),
        (["matmul", "3x4", "--at", "1,0"], "src:weights"),
        (["matmul", "3x4:4x5", "--at", "1,0", "--dt", "u9:s8:s32"], "unknown data type"),
    ],
)
def test_wrong_usage(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize("machine", ["spr", "a770", "dg1"])
def test_tiles_and_gpus(machine: str) -> None:
    rng = np.random.default_rng(6)
    src, weights = rng.integers(0, 256, (20, 70)).astype(np.uint8), rng.integers(-128, 128, (70, 20)).astype(np.int8)
    forced = {"dispatch": "gemm:avx512_core_amx_int8"} if machine == "spr" else {}  # at this size VNNI is as fast
    result = simdnn.matmul(src, weights, machine=machine, **forced)
    for at in some(rng, result.output, 2):
        found = result.explain(*at)
        assert (int(found.value), found.exact) == (int(result.output[at]), int((src.astype(int) @ weights)[at]))
        assert found.left_exact is None and any(
            row.instruction.startswith(("tdpb", "dpas", "dp4a")) for row in found.rows
        )


def test_f32_on_a_gpu_names_its_elements() -> None:
    rng = np.random.default_rng(0)
    src, weights = rng.standard_normal((3, 9), np.float32), rng.standard_normal((9, 5), np.float32)
    for machine in ("a770", "v100"):
        text = str(simdnn.matmul(src, weights, machine=machine).explain(2, 1))
        assert all(f"src[2,{k}] * weights[{k},1]" in text for k in range(8))


def test_taps_beside_the_image_that_a_library_leaves_out() -> None:
    """No product with padding is told, and the value is the output's where such a weight is infinite."""
    image, weights = np.ones((1, 1, 2, 3), np.float32), np.ones((1, 1, 3, 3), np.float32)
    weights[0, 0, 0, 0] = np.inf
    r = simdnn.convolution(image, weights, padding=1, machine="zen4", dispatch="onednn")
    corner = r.explain(0, 0, 0, 0)
    assert float(corner.value) == r.output[0, 0, 0, 0] == 4
    assert sum(corner.steps["instruction"].str.startswith("vfmadd")) == 4
    own = simdnn.convolution(image, np.where(np.isinf(weights), 1, weights), padding=1, machine="zen4")
    assert sum(own.explain(0, 0, 0, 0).steps["instruction"].str.startswith("vfmadd")) == 9
    with pytest.raises(simdnn.InvalidArgument, match="dimensions"):
        r.explain(0, 0, 0)
