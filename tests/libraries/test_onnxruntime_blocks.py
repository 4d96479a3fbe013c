"""onnxruntime's bits of weights in blocks, and of products of a vector: recorded at four ISA caps, and by rule."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from simdnn import Unimplemented
from tests.effort import examples, one_in

onnx = pytest.importorskip("onnx")
VECTORS = Path(__file__).parents[1] / "vectors" / "onnxruntime"
STORED = np.load(VECTORS / "blocks.npz")
NAMES = sorted({key.split("/")[0] for key in STORED})
PLACES = {"avx2": "hsw", "avx512_core": "skx", "avx2_vnni": "adl-p", "avx512_core_vnni": "icx"}


@cache
def network(name: str) -> simdnn.Network:
    return simdnn.load(onnx.load_from_string(STORED[f"{name}/model"].tobytes()))


def found(name: str, isa: str) -> Any:
    feeds = {key.split("/")[2]: STORED[key] for key in STORED if key.startswith(f"{name}/feeds/")}
    return network(name).run(feeds, machine=PLACES[isa], isa=isa, dispatch="onnxruntime")


@one_in(2)
@pytest.mark.parametrize("isa", PLACES)
def test_recorded_models_have_its_bits(isa: str) -> None:
    """A quarter of the models at each cap, so that all run."""
    mine = NAMES[list(PLACES).index(isa) :: len(PLACES)]
    wrong = [name for name in mine if found(name, isa).outputs["y"].tobytes() != STORED[f"{name}/{isa}"].tobytes()]
    assert not wrong


@pytest.mark.sweep
@pytest.mark.parametrize("isa", PLACES)
def test_all_recorded_models(isa: str) -> None:
    for name in NAMES:
        assert found(name, isa).outputs["y"].tobytes() == STORED[f"{name}/{isa}"].tobytes(), name


def test_steps_of_several_blocks_and_one_that_is_left() -> None:
    """Registers of 512 bits hold up to eight blocks, whose sums lie side by side."""
    many = np.load(VECTORS / "many_blocks.npz")
    names = sorted({key.split("/")[0] for key in many})
    assert len(names) == 12
    for name in names:
        model = simdnn.load(onnx.load_from_string(many[f"{name}/model"].tobytes()))
        y = model.run({"a": many[f"{name}/feeds/a"]}, machine="icx", dispatch="onnxruntime").outputs["y"]
        assert y.tobytes() == many[f"{name}/avx512_core_vnni"].tobytes(), name


def test_caps_differ_where_kernels_do() -> None:
    """Else the comparison would hold for any kernel: integers by blocks, and a row of floats by them."""
    differ = {name for name in NAMES if len({STORED[f"{name}/{isa}"].tobytes() for isa in PLACES}) > 1}
    assert {name.split("_")[0] for name in differ} == {"MatMulNBits"}
    assert not [name for name in differ if name.split("_")[3] == "0" and name.split("_")[1] == "8"]


def test_a_product_by_blocks_is_a_kernel_with_a_cost() -> None:
    name = next(name for name in NAMES if name.startswith("MatMulNBits_8_64_4_3"))
    with_vnni, without = (found(name, isa) for isa in ("avx512_core_vnni", "avx512_core"))
    assert "nbits:avx512_core_vnni" in str(with_vnni.to_frame().implementation.tolist())
    assert 0 < with_vnni.cycles < without.cycles


# -- products of a vector by weights that are no constants -------------------------------------------------------------
def one_by_one(src: Any, weights: Any, bias: Any) -> Any:
    """Four rows of weights from their first product on, then what was there; two rows, and one."""
    (k, n), total = weights.shape, bias
    total, first = np.zeros(n, np.float32) if total is None else total, 0
    for rows in (*[4] * (k // 4), 2, 1):
        if rows < 4 and not (k % 4) & rows:
            continue
        part = src[first] * weights[first]
        for i in range(first + 1, first + rows):
            part = part + src[i] * weights[i]
        total, first = part + total, first + rows
    return total


@examples(12)
@given(st.integers(1, 70), st.integers(1, 40), st.booleans(), st.sampled_from(["reference", "compiled"]))
def test_one_row_by_plain_weights(k: int, n: int, with_bias: bool, engine: str) -> None:
    rng = np.random.default_rng(k * 100 + n)
    src, weights, bias = (rng.standard_normal(size).astype(np.float32) for size in ((1, k), (k, n), n))
    given_bias = bias if with_bias else None
    r = simdnn.matmul(src, weights, given_bias, machine="icx", wei_tag="ab", dispatch="onnxruntime", engine=engine)
    assert r.implementation == "gemv:avx2_unfused_plain"
    assert r.output[0].tobytes() == one_by_one(src[0], weights, given_bias).tobytes()


@examples(12)
@given(st.integers(1, 70), st.integers(2, 13), st.sampled_from(["reference", "compiled"]))
def test_one_column_is_a_row_by_columns(k: int, m: int, engine: str) -> None:
    """Each output is a dot product in eight lanes, whichever operand is the vector."""
    rng = np.random.default_rng(k * 100 + m)
    matrix, vector = (rng.standard_normal(size).astype(np.float32) for size in ((m, k), (k, 1)))
    where: dict[str, Any] = {"machine": "hsw", "dispatch": "onnxruntime", "engine": engine}
    column = simdnn.matmul(matrix, vector, wei_tag="ab", **where)
    row = simdnn.matmul(vector.T.copy(), matrix.T.copy(), wei_tag="ba", **where)
    assert column.implementation == row.implementation == "gemv:avx2_unfused"
    assert column.output.tobytes() == row.output.tobytes()
    lanes = np.zeros((m, 8), np.float32)
    for first in range(0, k, 8):
        part = matrix[:, first : first + 8] * vector[first : first + 8, 0]
        lanes[:, : part.shape[1]] += part
    four = lanes[: m - m % 4].reshape(-1, 2, 4)
    sums = ((four[..., 0] + four[..., 1]) + four[..., 2]) + four[..., 3]
    assert column.output[: len(four), 0].tobytes() == (sums[:, 0] + sums[:, 1] + np.float32(0)).tobytes()


def test_such_a_product_has_a_bias_at_most() -> None:
    src, weights = np.ones((1, 8), np.float32), np.ones((8, 4), np.float32)
    with pytest.raises(Unimplemented, match="no post-operation 'relu'"):
        simdnn.matmul(
            src, weights, machine="hsw", wei_tag="ab", dispatch="onnxruntime", attr=simdnn.Attr(post_ops=["relu"])
        )
