"""Zero points of a convolution's source and destination, one a channel: what they mean, on every kernel of a cap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import simdnn
from simdnn import Attr, Quant
from tests.effort import one_in

RNG = np.random.default_rng(3)
#: groups, channels in and out, kernel, padding
SHAPES = [(1, 12, 17, 3, 1), (2, 8, 6, 3, 0), (9, 9, 9, 3, 1), (1, 7, 20, 1, 0)]


def drawn(shape: tuple[int, ...], dtype: str) -> Any:
    low, high = (0, 8) if dtype == "u8" else (-4, 5)
    return RNG.integers(low, high, shape).astype(np.uint8 if dtype == "u8" else np.int8)


def sums(src: Any, weights: Any, groups: int, padding: int) -> Any:
    """A convolution of integers, tap by tap."""
    padded = np.pad(src, [(0, 0), (0, 0), (padding,) * 2, (padding,) * 2])
    k = weights.shape[2]
    size = padded.shape[2] - k + 1
    parts = padded.reshape(len(src), groups, -1, *padded.shape[2:])
    split = weights.astype(np.int64).reshape(groups, -1, *weights.shape[1:])
    total = np.zeros((len(src), groups, split.shape[1], size, size), np.int64)
    for y, x in np.ndindex(k, k):
        total += np.einsum("ngihw,goi->ngohw", parts[..., y : y + size, x : x + size], split[..., y, x])
    return total.reshape(len(src), -1, size, size)


@one_in(4)
@pytest.mark.parametrize("machine", ["zen4", "hsw", "spr"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_each_channel_has_its_own(shape: tuple[int, ...], machine: str) -> None:
    groups, ic, oc, k, padding = shape
    for src_type, engine in (("u8", "reference"), ("s8", "compiled")):
        src, weights = (
            drawn((2, ic, 5, 5), src_type),
            2 * drawn((oc, ic // groups, k, k), "s8"),
        )  # halved where VNNI lacks
        before, behind = RNG.integers(-3, 4, ic), RNG.integers(-9, 9, oc)
        wanted = sums(src.astype(np.int64) - before.reshape(-1, 1, 1), weights, groups, padding)
        given: dict[str, Any] = {"padding": padding, "groups": groups, "machine": machine, "engine": engine}
        attr = Attr(zero_points={"src": Quant(before, 2)})
        np.testing.assert_array_equal(simdnn.convolution(src, weights, attr=attr, **given).output, wanted)
        attr = Attr(zero_points={"src": before, "dst": behind}, scales={"dst": 4.0})
        r = simdnn.convolution(src, weights, attr=attr, dst="u8", **given)
        quantized = np.clip(np.rint(wanted / 4 + behind.reshape(-1, 1, 1)), 0, 255)
        np.testing.assert_array_equal(r.output, quantized)
        blank = Attr(zero_points={"src": Quant(None, 2), "dst": Quant(None, 2)}, scales={"dst": Quant(None)})
        sizes = {"mb": 2, "ic": ic, "ih": 5, "iw": 5, "oc": oc, "kh": k, "kw": k, "padding": padding, "groups": groups}
        told = simdnn.estimate("convolution", dt=f"{src_type}:s8:u8", attr=blank, machine=machine, **sizes)
        assert told.cycles == r.cycles


WRONG: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"src": np.arange(5)}, {}, "5 values; allowed: 1, or 12"),
    ({"dst": np.arange(5)}, {}, "zero_points.'dst'. of shape"),
    ({"src": np.arange(12)}, {"machine": "b580"}, "by channel on 'b580'"),
]


@pytest.mark.parametrize(("points", "options", "message"), WRONG, ids=[message for *_, message in WRONG])
def test_what_does_not_fit_is_named(points: dict[str, Any], options: dict[str, Any], message: str) -> None:
    src, weights = drawn((1, 12, 5, 5), "u8"), drawn((17, 12, 3, 3), "s8")
    with pytest.raises(simdnn.SimdnnError, match=message):
        simdnn.convolution(src, weights, attr=Attr(zero_points=points), **({"machine": "zen4"} | options))


def test_scales_of_a_source_are_common() -> None:
    src, weights = drawn((1, 12, 5, 5), "u8"), drawn((17, 12, 3, 3), "s8")
    with pytest.raises(simdnn.SimdnnError, match="scales.'src'."):
        simdnn.convolution(src, weights, attr=Attr(scales={"src": Quant(np.ones(12), 2)}), machine="zen4")
