"""simdnn.spellings: what the proposal's spellings of one wish come to."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import simdnn
from simdnn.exactness.spellings import SOURCES, WEIGHTS
from tests.effort import one_in


def outcomes(dt: str, machine: str) -> dict[str, str]:
    frame = simdnn.spellings(m=8, n=32, k=64, dt=dt, machine=machine)
    return {row["spelling"]: row["computes"] or row["refused"].split(":")[0] for row in frame.to_dict("records")}


def test_they_differ_where_the_proposal_says() -> None:
    """Hints fall back where a machine has no bf16, requirements fail; modes for integers alone leave f32 data alone."""
    mixed, old, floats = outcomes("f32:s8", "zen4"), outcomes("f32:s8", "clx"), outcomes("f32:f32", "zen4")
    found = {name: [mixed[name], old[name], floats[name]] for name in mixed}
    for hint in ("force_fpmath, fpmath_mode=bf16", "math_mode=bf16", "fpmath=bf16, apply_to_int"):
        assert found[hint] == ["bf16", "f32", "bf16"]
    assert found["compute_type=bf16"] == ["bf16", "clx has no bf16", "no integral input"]
    assert found["intmath_mode=bf16"] == ["bf16", "clx has no bf16", "f32"]
    assert found["math_mode=strict"] == found["nothing said"] == ["Unimplemented"] * 2 + ["f32"]
    assert outcomes("u8:s8", "zen4")["math_mode=bf16"] == "Unimplemented"


def test_bits_are_numbered_by_what_comes_out() -> None:
    frame = simdnn.spellings(m=8, n=32, k=64, machine="zen4", want="bf16").set_index("spelling")
    ran = frame[frame["refused"] == ""]
    assert ran["bits"].nunique() == ran["computes"].nunique() == 2
    assert (
        ran[ran["computes"] == "bf16"]["relative_error"].min() > ran[ran["computes"] == "f32"]["relative_error"].max()
    )
    assert (frame[frame["refused"] != ""]["bits"] == 0).all() and frame["cycles"].isna().equals(frame["refused"] != "")


@one_in(4, "machine")
@pytest.mark.parametrize("src", SOURCES)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("machine", ["spr", "b580", "v100"])
def test_every_pair_of_types_is_computed_or_refused(src: str, weights: str, machine: str) -> None:
    frame = simdnn.spellings(m=4, n=32, k=32, dt=f"{src}:{weights}", machine=machine, want="f16")
    assert len(frame) == 11
    ran = frame["refused"] == ""
    assert (frame["computes"] != "").equals(ran) and np.isfinite(frame.loc[ran, "cycles"]).all()
    assert (frame.loc[ran, "relative_error"] < 0.01).all()


def test_what_is_asked_for_is_checked() -> None:
    for wrong in ({"dt": "f64:s8"}, {"dt": "f32:s2"}, {"dt": "f32"}, {"want": "s8"}, {"m": 0}, {"machine": "zen"}):
        with pytest.raises(simdnn.SimdnnError):
            simdnn.spellings(**{"m": 4, "n": 16, "k": 16, "machine": "zen4", **wrong})
    assert isinstance(simdnn.spellings(m=1, n=1, k=1, machine="zen4"), pd.DataFrame)
