"""Departures against plain 64-bit integers: what differs has a name, and where nothing can depart that is said."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import simdnn
from simdnn import Attr, Quant, study
from simdnn.cli import main
from simdnn.explanations.departures import KINDS
from tests.effort import examples, one_in
from workloads import ConvLayer, MatmulLayer, Workload

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


@examples(8)
@given(
    st.integers(0, 1 << 32),
    st.sampled_from(["u8", "s8"]),
    st.sampled_from([None, "s8", "u8", "f32", "f16"]),
    st.sampled_from([1.0, 0.5, 0.05]),
)
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


@examples(8)
@given(
    st.integers(0, 1 << 32),
    st.sampled_from(["u8", "s8"]),
    st.sampled_from([None, "s8", "u8", "f32"]),
    st.sampled_from(["dense", "grouped", "depthwise"]),
)
def test_convolution(seed: int, src: str, dst: str | None, form: str) -> None:
    rng = np.random.default_rng(seed)
    taps, stride, pad = int(rng.choice([1, 3])), int(rng.integers(1, 3)), int(rng.integers(0, 2))
    channels = {"dense": (5, 6, 1), "grouped": (8, 16, 2), "depthwise": (9, 9, 9)}[form]
    ic, oc, groups = channels
    a = integers(rng, src, (2, ic, 6, 5), float(rng.choice([1.0, 0.1])))
    w = integers(rng, "s8", (oc, ic // groups, taps, taps), float(rng.choice([1.0, 0.02])))
    points = {"src": np.array([5], np.int32)} if rng.random() < 0.4 else {}
    scales = {} if dst is None else {"src": np.float32(_SCALE)}
    r = simdnn.convolution(
        a,
        w,
        strides=stride,
        padding=pad,
        groups=groups,
        dst=dst,
        engine="reference",
        attr=Attr(scales=scales, zero_points=points),
        **place(rng),
    )
    exact = convolved(a.astype(np.int64) - (5 if points else 0), w, stride, pad, groups)
    check(r, exact, 1.0 if dst is None else _SCALE)


@one_in(3, "engine")
@pytest.mark.parametrize("engine", ["compiled", "reference"])
@pytest.mark.parametrize(
    ("isa", "shape", "groups"),
    [
        ("avx512_core", (16, 16, 3, 3), 1),
        ("avx2", (16, 16, 3, 3), 1),
        ("avx512_core", (16, 16, 1, 1), 1),
        ("avx512_core", (16, 1, 3, 3), 16),
        ("avx2", (16, 1, 3, 3), 16),
    ],
)
def test_halved_weights_are_told(isa: str, shape: tuple[int, ...], groups: int, engine: str) -> None:
    """Nothing saturates, and nearly all outputs differ from the exact ones: each product of an odd weight is off."""
    rng = np.random.default_rng(7)
    src, weights = integers(rng, "s8", (1, 16, 6, 6), 1.0), integers(rng, "s8", shape, 1.0)
    where = {"groups": groups, "padding": shape[-1] // 2}
    fast = {"machine": "skx", "isa": isa, "engine": engine, "attr": Attr(exact_int8=False), **where}
    r = simdnn.convolution(src, weights, **fast)
    exact = simdnn.convolution(src, weights, machine="icx", **where)
    assert r.saturation is None
    (row,) = r.departures.to_dict("records")
    assert row["kind"] == "halved weights" and row["outputs"] > 0.95 * r.output.size
    assert row["changed"] == (r.output != exact.output).sum()
    assert row["max_error"] == np.abs(r.output - exact.output).max()
    ones = convolved((src != 0).astype(np.int8), (weights % 2 != 0).astype(np.int8), 1, where["padding"], groups)
    assert (r.departure_map("halved weights") == ones).all()
    assert exact.departures.empty and exact.departures.attrs["proven"]
    even = simdnn.convolution(src, weights & ~1, **fast)
    assert even.departures.empty and not even.departures.attrs["proven"]


@pytest.mark.parametrize(
    ("machine", "strategy"),
    [("icx", "auto"), ("icx", "upconvert"), ("b580", "in_kernel"), ("b580", "direct"), ("b580", "upconvert")],
)
def test_sums_that_round_and_zero_points_by_column(machine: str, strategy: str) -> None:
    """To f32 beyond 2**24, where the exact number is odd."""
    rng = np.random.default_rng(5)
    a, w = rng.integers(250, 256, (2, 1024)).astype(np.uint8), rng.integers(120, 128, (1024, 8)).astype(np.int8)
    points = rng.integers(-3, 4, 8).astype(np.int8)
    attr = Attr(zero_points={"wei": Quant(points, mask="per_oc")}, zero_point_strategy=strategy)
    r = simdnn.matmul(a, w, machine=machine, dst="f32", attr=attr)
    check(r, a.astype(np.int64) @ (w.astype(np.int64) - points))
    assert set(r.departures["kind"]) == {"rounded sum"} and r.departures["changed"].iloc[0] > 0


@pytest.mark.parametrize("machine", ["skx", "icx", "b580"])
def test_groups_of_scales_round_one_by_one(machine: str) -> None:
    a, w = np.full((2, 2048), 255, np.uint8), np.full((2048, 8), 64, np.int8)
    a[0, 0], w[0] = 254, 63  # the first group's sum of the first row: odd, and 2**24 - 1 does not hold it
    scales = np.full((2, 8), 0.5, np.float32)
    w[1:1024] = 65 if machine != "skx" else 64
    r = simdnn.matmul(a, w, machine=machine, attr=Attr(scales={"wei": Quant(scales, groups=(1024, 1))}))
    sums = np.array([a[:, part].astype(np.int64) @ w[part] for part in (slice(0, 1024), slice(1024, 2048))])
    wanted = (sums.astype(np.float32) != sums).sum(axis=0)
    assert (r.departure_map("rounded sum") == wanted).all()


@pytest.mark.parametrize("machine", ["icx", "b580"])
def test_sums_that_wrap(machine: str) -> None:
    a, w = np.full((2, 70000), 255, np.uint8), np.full((70000, 1), 127, np.int8)
    a[1, :10000] = 0
    r = simdnn.matmul(a, w, machine=machine)
    check(r, a.astype(np.int64) @ w)
    assert r.departure_map("wrapped sum").tolist() == [[1], [0]]
    assert r.departures["max_error"].tolist() == [2.0**32]


def test_a_saturated_sum_that_would_else_have_wrapped() -> None:
    a, w = np.full((1, 70000), 255, np.uint8), np.full((70000, 1), 127, np.int8)
    r = simdnn.matmul(a, w, machine="skx")
    assert r.output[0, 0] == 35000 * 32767
    (row,) = r.departures.to_dict("records")
    assert row["kind"] == "saturated pair" and row["max_error"] == 70000 * 255 * 127 - 35000 * 32767


def test_largest_zero_points() -> None:
    """Whose product times K is beyond 64 bits."""
    a, w = np.full((2, 8), 3, np.uint8), np.full((8, 4), 5, np.int8)
    points = {"src": np.array([2**31 - 1], np.int32), "wei": np.array([-(2**31)], np.int32)}
    r = simdnn.matmul(a, w, machine="icx", attr=Attr(zero_points=points))
    exact = 8 * (3 - (2**31 - 1)) * (5 + 2**31)
    assert (r.output == (exact + 2**31) % 2**32 - 2**31).all() and (r.departure_map("wrapped sum") == 1).all()


@pytest.mark.parametrize("machine", ["icx", "b580"])
def test_reductions_that_are_wrong(machine: str) -> None:
    a, w = np.full((2, 64), 9, np.uint8), np.full((64, 8), 5, np.int8)
    given = np.array([[64 * 9], [0]], np.int32)
    attr = Attr(
        check=False,
        zero_points={"wei": Quant(np.array([0, *[3] * 7], np.int8), mask="per_oc")},
        precomputed_reductions={"src": Quant(given, groups=(1, 64))},
    )
    r = simdnn.matmul(a, w, machine=machine, attr=attr)
    check(r, a.astype(np.int64) @ (w.astype(np.int64) - [0, *[3] * 7]))
    assert r.departure_map("wrong reductions").tolist() == [[0] * 8, [0, *[1] * 7]]


def test_clipped_destinations_of_batches_and_floats() -> None:
    rng = np.random.default_rng(2)
    a, w = integers(rng, "u8", (3, 4, 32), 1.0), integers(rng, "s8", (3, 32, 16), 1.0)
    r = simdnn.matmul(a, w, machine="b580", dst="u8")
    check(r, a.astype(np.int64) @ w)
    x = rng.normal(size=(4, 16)).astype(np.float32) * 20
    r = simdnn.matmul(x, x.T.copy(), machine="icx", dst="s8")
    far = np.abs(x.astype(np.float64) @ x.T.astype(np.float64)) > 129
    assert (r.departure_map("clipped destination")[far] == 1).all() and len(r.departures) == 1
    assert simdnn.matmul(x, x.T.copy(), machine="icx").departures.empty


def test_what_is_shown() -> None:
    src, weights = np.full((1, 16, 3, 3), 3, np.int8), np.full((16, 16, 3, 3), 5, np.int8)
    r = simdnn.convolution(src, weights, machine="skx")
    assert r.to_frame()["departures"].tolist() == ["halved weights 100 %"] and "halved weights 100 %" in r._repr_html_()
    found = json.loads(r.to_json())
    assert found["departures"][0]["events"] == 16 * 144 and found["exact"] is False
    good = simdnn.convolution(src, weights, machine="icx")
    assert good.to_frame()["departures"].tolist() == ["none (proven for any source)"]
    assert json.loads(good.to_json())["departures"] == [] and json.loads(good.to_json())["proven"] is True
    with pytest.raises(simdnn.InvalidArgument, match="'halved weights'"):
        r.departure_map("halved")


def test_layers_and_totals_count_by_kind(capsys: pytest.CaptureFixture[str]) -> None:
    """s8 convolutions halve their weights, s8 matmuls saturate; both stand in the table, the file and the totals."""
    conv = ConvLayer("conv", ic=16, ih=6, iw=6, oc=16, oh=6, ow=6, kh=3, kw=3, stride=1, pad=1)
    small = Workload("small", "Small", "this test", (conv, MatmulLayer("fc", 5, 24, 64)))
    frame = study.run_layers(small, "skx", ["int8-s8-fast", "int8-s8-exact"])
    at = frame.set_index(["layer", "mode"])
    assert at.loc[("conv", "int8-s8-fast"), "halved_share"] > 0.9
    assert at.loc[("conv", "int8-s8-fast"), "saturated_outputs"] == 0
    assert at.loc[("fc", "int8-s8-fast"), "halved_outputs"] == 0
    totals = study.totals(frame).set_index("mode")
    assert totals.loc["int8-s8-fast", "halved_outputs"] == at.loc[("conv", "int8-s8-fast"), "halved_outputs"]
    assert totals.loc["int8-s8-exact", "departed_outputs"] == 0 < totals.loc["int8-s8-fast", "departed_share"] < 1
    assert main(["run", "digits", "--machine", "skx", "--modes", "int8-s8-fast,int8-s8-exact"]) == 0
    layers, total = capsys.readouterr().out.split("Total of")
    assert "halved" in layers and "halved" in total and "wrapped" not in total


@pytest.mark.parametrize("machine", ["skx", "icx"])
def test_networks_tell_each_node(machine: str) -> None:
    onnx = pytest.importorskip("onnx")
    rng = np.random.default_rng(3)
    helper, f32 = onnx.helper, onnx.TensorProto.FLOAT
    w = (rng.normal(size=(8, 3, 3, 3)) * 0.2).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], "one")],
        "g",
        [helper.make_tensor_value_info("x", f32, [2, 3, 8, 8])],
        [helper.make_tensor_value_info("y", f32, None)],
        [onnx.numpy_helper.from_array(w, "w")],
    )
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    feeds = {"x": rng.normal(size=(2, 3, 8, 8)).astype(np.float32)}
    run = simdnn.load(simdnn.quantize_onnx(source, [feeds], sources="s8")).run(feeds, machine=machine)
    frame, departures = run.to_frame().set_index("node"), run.departures
    if machine == "icx":
        assert departures.empty and departures.attrs["summary"] == "none" and not frame["departed_outputs"].any()
        return
    (row,) = departures.to_dict("records")
    assert row["node"] == "one" and row["kind"] == "halved weights" and row["share"] > 0.9
    assert departures.attrs["halved_outputs"] == row["outputs"] == frame.loc["one", "departed_outputs"]
    assert frame.loc["one", "departures"].startswith("halved weights")
    assert json.loads(run.to_json())["nodes"][-1]["departed_outputs"] == row["outputs"]
