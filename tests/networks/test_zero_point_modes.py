"""Modes of integer products whose weights have zero points by group along K, and their axis of a study."""

from __future__ import annotations

import numpy as np
import pytest

from isa_models import InvalidArgument
from simdnn import study
from simdnn.networks.classifier import run_network
from simdnn.networks.precision import MODES
from simdnn.networks.tables import run_table
from tests.effort import one_in
from workloads import ConvLayer, MatmulLayer, Workload, digits

STRATEGIES = ("direct", "in-kernel", "precomputed", "bias")
LAYERS = (
    MatmulLayer("proj", m=8, n=48, k=256),
    MatmulLayer("odd", m=3, n=17, k=96),
    MatmulLayer("attention", m=8, n=16, k=64, batch=2),
)


@one_in(3)
@pytest.mark.parametrize("machine", ["b580", "dg1", "spr"])
def test_strategies_have_equal_bits_and_their_own_cost(machine: str) -> None:
    modes = [f"int8-zp-{strategy}" for strategy in STRATEGIES]
    frame = run_table(Workload("three", "", "", LAYERS), machine, ["f32", "int8-group", *modes]).layers
    assert (frame["refused"] == "").all()
    for layer in ("proj", "odd"):
        rows = frame[(frame["layer"] == layer) & frame["mode"].isin(modes)]
        assert rows["max_abs_error"].nunique() == 1 and rows["sqnr_db"].min() > 30
        assert rows["cycles"].nunique() > 1
        assert rows["implementation"].nunique() == (
            1 if machine == "spr" else len(STRATEGIES)
        )  # a CPU has its reference
    stored = frame[(frame["layer"] == "attention") & (frame["mode"] != "f32")]
    assert stored["cycles"].nunique() == 1  # products of two activations have no stored weights
    alone = run_table(Workload("three", "", "", LAYERS), machine, modes, values=False).layers
    given = frame[frame["mode"].isin(modes)].set_index(["layer", "mode"])["cycles"]
    assert alone.set_index(["layer", "mode"])["cycles"].to_dict() == given.to_dict()


def test_what_has_no_zero_points_says_so() -> None:
    conv = ConvLayer("conv", ic=16, ih=8, iw=8, oc=16, kh=3, kw=3, oh=6, ow=6, stride=1, pad=0)
    for values in (True, False):
        frame = run_table(Workload("one", "", "", (conv,)), "b580", ["f32", "int8-zp-direct"], values=values).layers
        assert "no convolution here has them" in frame.set_index("mode").loc["int8-zp-direct", "refused"]
    frame = run_network(digits(), "b580", ["f32", "int8-zp-direct"])
    assert "of layer tables" in frame.set_index("mode").loc["int8-zp-direct", "refused"].iloc[0]
    assert not any(mode.default for name, mode in MODES.items() if "zp" in name)


def test_an_axis_of_a_study() -> None:
    fixed = {"machine": "b580", "src": "s8", "weights": "u4", "m": 32, "n": 64, "k": 128}
    space = {
        "study": {"kind": "matmul", "values": True},
        "fixed": fixed,
        "axes": {"zero_points": ["direct", "in_kernel", "precomputed"], "group": [32, 128]},
    }
    frame = study.explore(space, jobs=1)
    assert (frame["refused"] == "").all() and frame["cycles"].nunique() == 6
    assert (frame.groupby("group")["max_abs_error"].nunique() == 1).all()
    assert np.diff(frame.groupby("group")["sqnr_db"].first()) < 0  # smaller groups keep more
    for wrong in ({"weights": "s8"}, {"src": "f32"}):
        refused = study.explore({**space, "fixed": {**fixed, **wrong}}, jobs=1)["refused"]
        assert refused.str.contains("strategies are of u8 and u4 weights").all()
    with pytest.raises(InvalidArgument, match="did you mean 'precomputed'"):
        study.explore({**space, "axes": {"zero_points": ["precompute"]}})


def test_products_of_a_batch_are_shared_out_to_a_cpus_threads() -> None:
    heads = Workload("heads", "", "", (MatmulLayer("scores", m=64, n=64, k=32, batch=8),))
    one, four = (run_table(heads, "zen4", ["f32"], values=False, threads=count).layers for count in (1, 4))
    assert four["cycles"][0] < one["cycles"][0] / 3 and one["macs"][0] == four["macs"][0] == 8 * 64 * 64 * 32
