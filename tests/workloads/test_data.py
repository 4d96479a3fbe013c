"""Seeded tensors: shapes, types, the same numbers behind every type, statistics, bounds."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from isa_models.errors import InvalidArgument, UnknownName
from workloads import ConvLayer, MatmulLayer, data

CONV = ConvLayer("c", ic=16, ih=9, iw=7, oc=24, oh=5, ow=4, kh=3, kw=3, stride=2, pad=1)
GROUPED = ConvLayer("g", ic=16, ih=8, iw=8, oc=24, oh=8, ow=8, kh=3, kw=3, pad=1, groups=4)
MATMUL = MatmulLayer("m", m=33, n=17, k=130, batch=5)
LAYERS = [CONV, GROUPED, MATMUL]


def real_values(found: data.LayerData, layer: Any) -> tuple[np.ndarray, np.ndarray]:
    """Source and weights as f32, the weights as (outputs, fan-in)."""
    weights = found.weights.astype(np.float32)
    by_output = weights.T if isinstance(layer, MatmulLayer) else weights.reshape(layer.oc, -1)
    return found.src.astype(np.float32) * found.src_scale, by_output * found.wei_scale[:, None]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
@pytest.mark.parametrize(
    ("dt", "src_type", "wei_type"),
    [
        ("f32", np.float32, np.float32),
        ("bf16:bf16:f32", ml_dtypes.bfloat16, ml_dtypes.bfloat16),
        ("f16", np.float16, np.float16),
        ("u8:s8:s32", np.uint8, np.int8),
        ("s8:s8", np.int8, np.int8),
        ("bf16:s8:bf16", ml_dtypes.bfloat16, np.int8),
    ],
)
def test_shapes_and_types(layer: Any, dt: str, src_type: type, wei_type: type) -> None:
    found = data.tensors(layer, dt, seed=1)
    assert found.src.dtype == src_type and found.src.shape == layer.src_shape
    assert found.weights.dtype == wei_type and found.weights.shape == layer.weights_shape
    assert found.src.flags.c_contiguous and found.weights.flags.c_contiguous
    assert found.wei_scale.dtype == np.float32 and found.src_scale.dtype == np.float32


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
@pytest.mark.parametrize("dt", ["u8:s8", "s8:s8", "bf16", "f16"])
def test_every_type_holds_the_same_numbers(layer: Any, dt: str) -> None:
    exact, found = data.tensors(layer, "f32", 7), data.tensors(layer, dt, 7)
    for (real, true), scale in zip(
        zip(real_values(found, layer), real_values(exact, layer), strict=True),
        (found.src_scale, found.wei_scale[:, None]),
        strict=True,
    ):
        step = 2**-8 * np.abs(true) if dt in ("bf16", "f16") else scale / 2
        assert (np.abs(real - true) <= step * 1.001).all()


def test_integers_use_their_range() -> None:
    found = data.conv_tensors(CONV, "u8:s8", 0)
    assert found.src.min() == 0 and found.src.max() == 255
    assert data.conv_tensors(CONV, "s8:s8", 0).src.min() == 0
    assert (np.abs(found.weights.astype(int)).reshape(CONV.oc, -1).max(axis=1) == 127).all()


def test_statistics() -> None:
    found = data.matmul_tensors(MatmulLayer("big", m=512, n=512, k=512), "f32", 3)
    positive = found.src[found.src > 0]
    assert abs(positive.size / found.src.size - 0.5) < 0.01
    assert abs(positive.std() - (1 - 2 / np.pi) ** 0.5) < 0.01  # half-normal
    assert abs(found.weights.std() - (2 / 512) ** 0.5) < 1e-3
    assert abs((found.src @ found.weights).std() - 1) < 0.02  # as large as what went into the relu


def test_seed_and_name_choose_the_numbers() -> None:
    renamed = MatmulLayer("other", m=33, n=17, k=130)
    base = data.matmul_tensors(MATMUL, "f32", 0)
    assert (base.weights == data.matmul_tensors(MATMUL, "f32", 0).weights).all()
    assert (base.weights != data.matmul_tensors(MATMUL, "f32", 1).weights).any()
    assert (base.weights != data.matmul_tensors(renamed, "f32", 0).weights).any()


def test_the_stream_is_pinned() -> None:
    """The numbers of today: a change of generator or order would silently change every recorded result."""
    found = data.matmul_tensors(MATMUL, "u8:s8", 0)
    assert found.src[0, :8].tolist() == [30, 0, 103, 0, 98, 16, 0, 128]
    assert found.weights[:8, 0].tolist() == [15, -24, 44, 67, -24, -73, 67, 17]


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = data.conv_tensors(CONV, "u8:s8", 5)
    monkeypatch.setattr(data, "_CHUNK", 300)
    assert (data.conv_tensors(CONV, "u8:s8", 5).weights == whole.weights).all()


def test_an_all_zero_source_has_a_scale() -> None:
    """A source of one element is zero in half of the seeds."""
    layer = MatmulLayer("one", m=1, n=1, k=1)
    found = [data.matmul_tensors(layer, "u8:s8", seed) for seed in range(20)]
    assert {int(one.src[0, 0]) for one in found} == {0, 255}
    assert all(one.src_scale > 0 for one in found)


def test_bad_requests() -> None:
    huge = MatmulLayer("huge", m=1, n=10**6, k=10**6)
    with pytest.raises(InvalidArgument, match="'huge' needs 1000004000000 bytes"):
        data.matmul_tensors(huge, "u8:s8")
    with pytest.raises(UnknownName, match="unknown weights type 'u8'"):
        data.matmul_tensors(MATMUL, "u8:u8")
    with pytest.raises(UnknownName, match="unknown source type 'fp32': did you mean 'f32'"):
        data.matmul_tensors(MATMUL, "fp32")
    with pytest.raises(InvalidArgument, match="a triplet"):
        data.matmul_tensors(MATMUL, "u8:s8:s32:f32")
    with pytest.raises(InvalidArgument, match="seed=-1"):
        data.matmul_tensors(MATMUL, "f32", -1)


def test_numbers_that_are_kept_are_the_layers_own() -> None:
    """Of a layer asked for again, behind another one and after its arrays were written to."""
    first = data.conv_tensors(CONV, "f32", 5)
    before = first.src.copy(), first.weights.copy()
    first.src[:], first.weights[:] = 7, 7
    data.matmul_tensors(MATMUL, "f32", 5)
    for _ in range(2):
        again = data.conv_tensors(CONV, "f32", 5)
        assert (again.src == before[0]).all() and (again.weights == before[1]).all()
