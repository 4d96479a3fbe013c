"""Modes, layer studies and their totals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import simdnn
import workloads
from isa_models import InvalidArgument, Machine, UnknownName, machine, machine_names
from isa_models.isa import caps
from simdnn import study
from simdnn.exactness import measures
from simdnn.kernels.table import kernels
from simdnn.networks import precision as modes
from simdnn.networks import runner
from simdnn.networks.tables import run_layer
from simdnn.timing.cpu.peak import peak_macs_per_cycle
from workloads import ConvLayer, MatmulLayer, Workload, data

CONV = ConvLayer("conv", ic=16, ih=6, iw=6, oc=32, oh=6, ow=6, kh=3, kw=3, pad=1)
SMALL = Workload(
    "small",
    "three layers, two of one shape",
    "this test",
    (
        CONV,
        MatmulLayer("fc", 5, 24, 64, count=2),
        MatmulLayer("fc again", 5, 24, 64),
        MatmulLayer("qk", 8, 8, 32, batch=3),
    ),
)
INT8 = [mode for mode in modes.MODES.values() if mode.is_integer]


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return study.run_layers(SMALL, "zen4")


def test_rows(frame: pd.DataFrame) -> None:
    assert list(frame["layer"].unique()) == ["conv", "fc", "qk"]
    assert list(frame["mode"].unique()) == [name for name, mode in modes.MODES.items() if mode.default]
    assert dict(zip(frame["layer"], frame["count"], strict=True)) == {"conv": 1, "fc": 3, "qk": 1}
    assert {*measures.COST_COLUMNS, *measures.VALUE_COLUMNS, "layer", "count", "mode", "refused"} == {*frame.columns}
    assert (frame["refused"] == "").all()
    assert (frame["share_of_peak"] > 0).all() and (frame["share_of_peak"] <= 1).all()
    assert frame["gops"].to_numpy() == pytest.approx(2e-3 * (frame["macs"] / frame["time_us"]).to_numpy())
    assert frame["confidence"].isin(["measured", "documented", "estimated"]).all()


def test_a_row_says_what_the_primitive_says(frame: pd.DataFrame) -> None:
    tensors = data.conv_tensors(CONV, "u8:s8")
    attr = simdnn.Attr(scales={"src": tensors.src_scale, "wei": tensors.wei_scale}, exact_int8=True)
    result = simdnn.convolution(
        tensors.src, tensors.weights, padding=1, machine="zen4", isa="avx512_core_vnni", attr=attr, dst="f32"
    )
    exact = data.conv_tensors(CONV, "f32")
    f32 = simdnn.convolution(exact.src, exact.weights, padding=1, machine="zen4")
    row = frame[(frame["layer"] == "conv") & (frame["mode"] == "int8-vnni")].iloc[0]
    assert row["implementation"] == result.implementation == "conv:avx512_core_vnni"
    assert row["cycles"] == result.cycles
    assert row["max_abs_error"] == pytest.approx(np.abs(result.output - f32.output).max(), rel=1e-6)
    assert row["outputs"] == result.output.size


def test_a_batch_is_one_kernel(frame: pd.DataFrame) -> None:
    sizes: dict[str, Any] = {"m": 8, "n": 8, "k": 32, "machine": "zen4", "isa": "avx512_core"}
    whole = simdnn.estimate("matmul", **sizes, src_batch=(3,), wei_batch=(3,))
    row = frame[(frame["layer"] == "qk") & (frame["mode"] == "f32")].iloc[0]
    assert row["cycles"] == whole.cycles > 2 * simdnn.estimate("matmul", **sizes).cycles
    assert row["macs"] == 3 * 8 * 8 * 32 and row["outputs"] == 3 * 64


def test_errors_by_mode(frame: pd.DataFrame) -> None:
    by_mode = frame.set_index(["layer", "mode"])
    for layer in ("conv", "fc", "qk"):
        assert by_mode.loc[(layer, "f32"), "max_abs_error"] == 0
        assert np.isposinf(by_mode.loc[(layer, "f32"), "sqnr_db"])
        assert 45 < by_mode.loc[(layer, "bf16"), "sqnr_db"] < 60  # 8 significant bits a factor
        assert 30 < by_mode.loc[(layer, "int8-exact"), "sqnr_db"] < 50
        exact, vnni = by_mode.loc[(layer, "int8-exact")], by_mode.loc[(layer, "int8-vnni")]
        assert exact["relative_l2"] == pytest.approx(vnni["relative_l2"], rel=1e-5)  # scales may round in another order
        assert exact["saturated_outputs"] == vnni["saturated_outputs"] == 0
        assert exact["sqnr_db"] == pytest.approx(-20 * np.log10(exact["relative_l2"]))


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("mode", ["f32", "int8-fast"])
def test_one_layer_has_the_row_of_a_frame_of_one(mode: str, values: bool) -> None:
    """With values, a base stands beside a mode."""
    layer = MatmulLayer("qk", 8, 8, 32)
    found = run_layer(layer, "zen4", mode, values=values)
    (row,) = study.run_layers(Workload("one", "", "", (layer,)), "zen4", [mode], values=values).to_dict("records")
    assert list(found) == list(row)
    assert all(found[key] == told or found[key] is None or found[key] != found[key] for key, told in row.items())


def test_totals(frame: pd.DataFrame) -> None:
    totals = study.totals(frame).set_index("mode")
    for mode, part in frame.groupby("mode"):
        row = totals.loc[mode]
        assert row["cycles"] == pytest.approx((part["cycles"] * part["count"]).sum())
        assert row["macs"] == SMALL.macs and row["count"] == 5
        assert row["gops"] == pytest.approx(2e-3 * SMALL.macs / row["time_us"])
        assert row["worst_layer_sqnr_db"] == part["sqnr_db"].min() and "sqnr_db" not in row
        assert row["worst_layer_max_abs_error"] == part["max_abs_error"].max() and "max_abs_error" not in row
        alone = study.totals(part[part["layer"] == part["layer"].iloc[0]]).iloc[0]
        assert alone["sqnr_db"] == alone["worst_layer_sqnr_db"] == part["sqnr_db"].iloc[0]
        assert part["share_of_peak"].min() <= row["share_of_peak"] <= part["share_of_peak"].max()
        assert row["bound"] in set(part["bound"])
    assert totals.loc["f32", "speed_up"] == 1
    assert totals.loc["int8-vnni", "speed_up"] == pytest.approx(
        totals.loc["f32", "time_us"] / totals.loc["int8-vnni", "time_us"]
    )


def test_totals_without_f32_have_no_speed_up(frame: pd.DataFrame) -> None:
    assert study.totals(frame[frame["mode"] != "f32"])["speed_up"].isna().all()


def test_saturation_is_seen() -> None:
    """Data made to saturate: vpmaddubsw's pairs clip, the exact paths don't."""
    src, weights = np.full((4, 64), 255, np.uint8), np.full((64, 16), 127, np.int8)
    found = {}
    for mode in INT8:
        isa = mode.isa(machine("zen4"))
        attr = simdnn.Attr(exact_int8=mode.exact_int8)
        result = simdnn.matmul(src, weights, machine="zen4", isa=isa, attr=attr)
        exact = np.full((4, 16), 64 * 255 * 127)
        found[mode.name] = measures.values(result, result.output, exact)
    assert found["int8-fast"]["saturated_share"] == 1 and found["int8-fast"]["sqnr_db"] < 10
    assert found["int8-exact"]["saturated_outputs"] == found["int8-vnni"]["saturated_outputs"] == 0
    assert found["int8-exact"]["max_abs_error"] == 0


def test_cost_alone_and_workers_give_the_same(frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "WORTH_WORKERS", 2)
    alone = study.run_layers(SMALL, "zen4", ["f32", "int8-fast"], values=False)
    workers = study.run_layers(SMALL, "zen4", ["f32", "int8-fast"], jobs=2)
    wanted = frame[frame["mode"].isin(["f32", "int8-fast"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(workers, wanted)
    pd.testing.assert_frame_equal(alone, wanted[alone.columns])


def test_one_seed_gives_one_frame() -> None:
    fc = Workload("fc", "", "", SMALL.layers[1:2])
    one, again, other = (study.run_layers(fc, "zen4", ["bf16"], seed=seed) for seed in (1, 1, 2))
    pd.testing.assert_frame_equal(one, again)
    assert one["max_abs_error"].iloc[0] != other["max_abs_error"].iloc[0]


def test_progress_counts_layers() -> None:
    seen: list[tuple[int, int, str]] = []
    study.run_layers(SMALL, "zen4", ["f32"], values=False, progress=lambda *step: seen.append(step))
    assert seen == [(1, 3, "conv"), (2, 3, "fc"), (3, 3, "qk")]


def test_what_cannot_be_run_at_all_is_an_error() -> None:
    with pytest.raises(InvalidArgument, match="matches none of small; they are conv, fc, fc again, qk"):
        study.select(SMALL, "no*")


@pytest.mark.parametrize("name", machine_names())
def test_peak_is_what_the_ports_allow(name: str) -> None:
    """A 512-bit register holds 16 lanes; two such units at most. Haswell has one for both products of fast int8."""
    model: Machine = machine(name)
    run, _ = modes.choose(model)
    for mode, isa in run.items():
        compute = {"int8-exact": "s16"}.get(mode.name, "s8" if mode.is_integer else mode.src)
        if "amx" not in isa:
            macs = {"f32": 1, "bf16": 2, "s16": 2, "s8": 4}[compute]
            assert 4 * macs <= peak_macs_per_cycle(model, compute, isa) <= 32 * macs
    with pytest.raises(InvalidArgument, match="no unit under avx2 forms products in bf16"):
        peak_macs_per_cycle(model, "bf16", "avx2")


def test_every_row_has_a_peak_under_its_cap() -> None:
    """On a machine with that cap, as a share of it stands in every table."""
    cpus = [model for model in map(machine, machine_names())]
    rows = {(row.isa, row.compute_dtype) for row in kernels() if row.isa in caps()}
    assert {"s32", "tf32", "s16"} <= {compute for _, compute in rows}
    for isa, compute in rows:
        able = [model for model in cpus if model.supports(isa)]
        assert not able or peak_macs_per_cycle(able[0], compute, isa) > 0


def test_modes_that_leave_the_type_to_the_machine() -> None:
    """Math modes and compressed weights: the same f32 data, and a hint."""
    frame = study.run_layers(SMALL, "zen4", ["f32", "fpmath-tf32", "fpmath-bf16", "s8-weights", "s4-weights"])
    fc = frame[frame["layer"] == "fc"].set_index("mode")
    assert list(fc["compute_dtype"]) == ["f32", "f32", "bf16", "bf16", "bf16"]
    assert fc.loc["fpmath-tf32", "max_abs_error"] == 0
    assert (fc["sqnr_db"].drop(["f32", "fpmath-tf32"]) > 10).all()
    assert fc.loc["s4-weights", "sqnr_db"] < fc.loc["s8-weights", "sqnr_db"] < fc.loc["fpmath-bf16", "sqnr_db"]
    assert fc.loc["s4-weights", "bytes"] < fc.loc["s8-weights", "bytes"] < fc.loc["f32", "bytes"]
    conv = frame[frame["layer"] == "conv"].set_index("mode")
    assert not conv["refused"].any() and list(conv["compute_dtype"]) == ["f32", "f32", "bf16", "bf16", "bf16"]
    quality = [conv.loc[mode, "sqnr_db"] for mode in ("s4-weights", "s8-weights", "fpmath-bf16")]
    assert 10 < quality[0] < quality[1] < quality[2]
    assert conv.loc["s4-weights", "bytes"] < conv.loc["s8-weights", "bytes"] < conv.loc["f32", "bytes"]
    costs = study.run_layers(SMALL, "zen4", ["f32", "s4-weights"], values=False).set_index(["layer", "mode"])
    for layer, rows in (("fc", fc), ("conv", conv)):
        assert costs.loc[(layer, "s4-weights"), "cycles"] == rows.loc["s4-weights", "cycles"]


def test_choice_of_modes() -> None:
    zen4, skx = machine("zen4"), machine("skx")
    run, lacking = modes.choose(zen4, isa="avx2")
    assert {mode.name: isa for mode, isa in run.items()} == dict.fromkeys(("f32", "int8-fast", "int8-exact"), "avx2")
    assert all("isa='avx2' does not include" in reason for reason in lacking.values())
    assert [m.name for m in modes.choose(zen4, ["bf16", "f32", "bf16"])[0]] == ["bf16", "f32"]
    with pytest.raises(InvalidArgument, match="machine 'skx' does not have; modes that run: f32, int8-fast"):
        modes.choose(skx, ["f32", "int8-vnni"])
    with pytest.raises(UnknownName, match="did you mean 'int8-fast'"):
        modes.choose(skx, ["int8_fast"])
    with pytest.raises(InvalidArgument, match="no mode given"):
        modes.choose(skx, [])


def test_every_shipped_workload_has_unique_layers() -> None:
    """`select` merges by shape, so nothing is run twice and no count is lost."""
    for name in workloads.names():
        workload = workloads.load(name)
        merged = study.select(workload)
        assert sum(layer.macs * layer.count for layer in merged) == workload.macs
        assert len({layer.name for layer in merged}) == len(merged)
