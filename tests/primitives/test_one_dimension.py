"""Convolutions of one spatial dimension: rows of an image of one row, whoever computes them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import simdnn
from tests.effort import one_in

RNG = np.random.default_rng(7)
TYPES: dict[str, tuple[Any, Any]] = {"f32": (np.float32, np.float32), "u8:s8:s32": (np.uint8, np.int8)}
OPTIONS: dict[str, Any] = {"strides": 2, "padding": (1, 0), "dilation": (2,)}


def drawn(dt: str, groups: int) -> tuple[Any, Any]:
    src, wei = TYPES[dt]
    return RNG.integers(0, 9, (2, 8, 13)).astype(src), RNG.integers(-4, 5, (6, 8 // groups, 3)).astype(wei)


@one_in(3)
@pytest.mark.parametrize(("machine", "engine"), [("zen4", "reference"), ("hsw", "compiled"), ("b580", "auto")])
@pytest.mark.parametrize("dt", TYPES)
@pytest.mark.parametrize("groups", [1, 2])
def test_it_is_a_row_of_an_image(machine: str, engine: str, dt: str, groups: int) -> None:
    x, w = drawn(dt, groups)
    where: dict[str, Any] = {"groups": groups, "machine": machine}
    given = w.reshape(groups, 6 // groups, *w.shape[1:]) if groups > 1 else w
    r = simdnn.convolution(x, given, **OPTIONS, **where, engine=engine)
    image = {"strides": (1, 2), "padding": (0, 1, 0, 0), "dilation": (1, 2)}
    wide = simdnn.convolution(x[:, :, None], w[:, :, None], **image, **where)
    np.testing.assert_array_equal(r.output, wide.output[:, :, 0])
    sizes = {"ic": 8, "iw": 13, "oc": 6, "kw": 3, "mb": 2, "dt": dt}
    assert simdnn.estimate("convolution", **sizes, **OPTIONS, **where).cycles == r.cycles == wide.cycles
    assert r.saturation is None or r.saturation.shape == r.output.shape


def test_what_comes_with_the_output_has_its_shape() -> None:
    x, w = drawn("u8:s8:s32", 1)
    held = RNG.integers(-9, 9, (2, 6, 11)).astype(np.int32)
    attr = simdnn.Attr(post_ops=[("sum", 1.0)])
    r = simdnn.convolution(x, w, machine="icx", attr=attr, into=held)
    plain = simdnn.convolution(x, w, machine="icx")
    np.testing.assert_array_equal(r.output, plain.output + held)
    assert plain.error_bound.worst.shape == (2, 6, 11) and "dst[1,2,3]" in str(plain.explain(1, 2, 3)).replace(" ", "")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(r)).output, r.output)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strides": (1, 2)}, "one integer is needed for one dimension"),
        ({"padding": (1, 2, 3)}, "one integer is needed"),
        ({"groups": 2}, "channels"),
    ],
)
def test_what_does_not_fit_is_named(options: dict[str, Any], message: str) -> None:
    x, w = drawn("f32", 1)
    with pytest.raises(simdnn.SimdnnError, match=message):
        simdnn.convolution(x, w, machine="zen4", **options)


def test_an_image_without_a_batch_is_no_row() -> None:
    x, w = np.zeros((3, 8, 8), np.float32), np.zeros((4, 3, 3, 3), np.float32)
    with pytest.raises(simdnn.InvalidArgument, match=r"src\[None\]"):
        simdnn.convolution(x, w, machine="zen4")
