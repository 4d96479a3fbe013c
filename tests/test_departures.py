"""Departures against plain 64-bit integers: what differs has a name, and where nothing can depart that is said."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import simdnn
from simdnn import Attr, Quant
from simdnn.departures import KINDS

Array = NDArray[Any]
_DTYPES = {"u8": np.uint8, "s8": np.int8}
_SCALE = 2.0**-6  # exact in f32, as all scales here


def integers(rng: np.random.Generator, dtype: str, shape: tuple[int, ...], spread: float) -> Array:
    """Bytes; with a small `spread` they are small and often zero."""
    limits = np.iinfo(_DTYPES[dtype])
    found = rng.integers(limits.min, limits.max, shape, endpoint=True) * spread
    return found.astype(_DTYPES[dtype])


def convolved(src: Array, weights: Array, stride: int, pad: int, groups: int) -> Array:
    """In 64-bit integers, output by output."""
    n, ic, ih, iw = src.shape
    oc, icg, kh, kw = weights.shape
    padded = np.zeros((n, ic, ih + 2 * pad, iw + 2 * pad), np.int64)
    padded[:, :, pad : pad + ih, pad : pad + iw] = src
    oh, ow = (ih + 2 * pad - kh) // stride + 1, (iw + 2 * pad - kw) // stride + 1
    out = np.zeros((n, oc, oh, ow), np.int64)
    for c in range(oc):
        first = c // (oc // groups) * icg
        for y in range(oh):
            for x in range(ow):
                window = padded[:, first : first + icg, y * stride : y * stride + kh, x * stride : x * stride + kw]
                out[:, c, y, x] = (window * weights[c].astype(np.int64)).sum(axis=(1, 2, 3))
    return out


def check(r: simdnn.Result, exact: Array, scale: float = 1.0) -> None:
    """Every output that is not the exact number has met a kind; counts, frame, map and text agree."""
    maps = {kind: r.departure_map(kind) for kind in KINDS}
    met = sum(maps.values()) > 0
    wanted = exact * scale
    if r.output.dtype.kind in "iu":
        wanted = np.rint(wanted)
    elif r.output.dtype == np.float16:  # which the destination rounds, as asked
        with np.errstate(over="ignore"):
            wanted = np.where(np.abs(wanted) < 65520, wanted.astype(np.float16).astype(np.float64), wanted)
    differs = r.output.astype(np.float64) != wanted
    assert not (differs & ~met).any()
    frame = r.departures
    assert list(frame["kind"]) == [kind for kind in KINDS if maps[kind].any()]
    for row in frame.itertuples():
        count = maps[row.kind]
        assert (row.outputs, row.events) == ((count > 0).sum(), count.sum()) and row.changed <= row.outputs
        assert row.share == pytest.approx((count > 0).mean()) and (row.max_error > 0) == (row.changed > 0)
    assert frame.attrs["departing"] == met.sum() and frame.attrs["exact"] == (not met.any()) == frame.empty
    assert not frame.attrs["proven"] or frame.empty
    if len(frame) == 1 and r.output.dtype == np.int32 and scale == 1:
        assert frame["changed"].iloc[0] == differs.sum()
        assert frame["max_error"].iloc[0] == np.abs(r.output - wanted).max()
    assert (r.saturation is None and not maps["saturated pair"].any()) or (r.saturation == maps["saturated pair"]).all()


def place(rng: np.random.Generator) -> dict[str, Any]:
    """A machine and a cap: with and without VNNI, AVX2, tiles, both GPUs with and without DPAS."""
    places = (("skx", None), ("skx", "avx2"), ("icx", None), ("spr", None), ("b580", None), ("lnl", None))
    machine, isa = places[rng.integers(len(places))]
    return {"machine": machine, "isa": isa}


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from(["u8", "s8"]), st.sampled_from([None, "s8", "u8", "f32", "f16"]),
       st.sampled_from([1.0, 0.5, 0.05]))  # fmt: skip
def test_matmul(seed: int, src: str, dst: str | None, spread: float) -> None:
    rng = np.random.default_rng(seed)
    m, k, n = int(rng.integers(1, 9)), int(rng.choice([3, 16, 70, 300])), int(rng.integers(1, 40))
    a, w = integers(rng, src, (m, k), spread), integers(rng, "s8", (k, n), 1.0)
    points = {name: np.array([v], np.int32) for name, v in (("src", 7), ("wei", -3)) if rng.random() < 0.4}
    where = place(rng)
    scales = {} if dst is None else {"src": np.float32(_SCALE)}
    r = simdnn.matmul(a, w, dst=dst, attr=Attr(scales=scales, zero_points=points), engine="reference", **where)
    exact = (a.astype(np.int64) - (7 if "src" in points else 0)) @ (w.astype(np.int64) + (3 if "wei" in points else 0))
    check(r, exact, 1.0 if dst is None else _SCALE)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from(["u8", "s8"]), st.sampled_from([None, "s8", "u8", "f32"]),
       st.sampled_from(["dense", "grouped", "depthwise"]))  # fmt: skip
def test_convolution(seed: int, src: str, dst: str | None, form: str) -> None:
    rng = np.random.default_rng(seed)
    taps, stride, pad = int(rng.choice([1, 3])), int(rng.integers(1, 3)), int(rng.integers(0, 2))
    channels = {"dense": (5, 6, 1), "grouped": (8, 16, 2), "depthwise": (9, 9, 9)}[form]
    ic, oc, groups = channels
    a = integers(rng, src, (2, ic, 6, 5), float(rng.choice([1.0, 0.1])))
    w = integers(rng, "s8", (oc, ic // groups, taps, taps), float(rng.choice([1.0, 0.02])))
    points = {"src": np.array([5], np.int32)} if rng.random() < 0.4 else {}
    scales = {} if dst is None else {"src": np.float32(_SCALE)}
    r = simdnn.convolution(a, w, strides=stride, padding=pad, groups=groups, dst=dst, engine="reference",
                           attr=Attr(scales=scales, zero_points=points), **place(rng))  # fmt: skip
    exact = convolved(a.astype(np.int64) - (5 if points else 0), w, stride, pad, groups)
    check(r, exact, 1.0 if dst is None else _SCALE)
