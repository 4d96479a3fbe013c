"""Attr(acc_mode=…): the type that products are added up in, with its values, its price and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

import simdnn
from simdnn import Attr, InvalidArgument, Unimplemented
from simdnn.cli import main

SIZES = {"m": 64, "n": 64, "k": 256, "dt": "f16:f16:f32"}


def implementation(mode: str | None, **given: object) -> str:
    return simdnn.estimate("matmul", **{**SIZES, "machine": "spr", "attr": Attr(acc_mode=mode)} | given).implementation  # type: ignore[arg-type]


def test_sums_in_f16_are_had_where_they_are_asked_for() -> None:
    wide, narrow = implementation(None), implementation("f16")
    assert (wide, narrow) == ("gemm:avx512_core_f16", "gemm:avx512_core_fp16")
    for mode in ("strict", "relaxed", "f32"):
        assert implementation(mode) == wide
        assert implementation(mode, attr=Attr(acc_mode=mode, fpmath="f16")) == wide
    assert implementation("any") == narrow
    assert implementation("any", dt="f32:f32:f32") == implementation(None, dt="f32:f32:f32")


def test_their_error_and_their_price_stand_beside_each_other() -> None:
    rng = np.random.default_rng(0)
    src, weights = rng.normal(size=(2, 64)).astype(np.float16), rng.normal(size=(64, 32)).astype(np.float16)
    names = {"f32": "gemm:avx512_core_f16", "f16": "gemm:avx512_core_fp16"}
    runs = {
        mode: simdnn.matmul(src, weights, machine="spr", dst="f32", attr=Attr(acc_mode=mode), dispatch=name)
        for mode, name in names.items()
    }
    bounds = {mode: r.error_bound for mode, r in runs.items()}
    for bound in bounds.values():
        assert (bound.error <= bound.worst).all() and np.isfinite(bound.worst).all()
    assert bounds["f16"].error.max() > 100 * bounds["f32"].error.max()
    assert int(bounds["f16"].rounded[bounds["f16"].kinds.index("f16, tf32")].max()) == 32  # of each of two sums
    costs = [simdnn.estimate("matmul", machine="spr", attr=Attr(acc_mode=mode), **SIZES).cycles for mode in names]  # type: ignore[arg-type]
    assert costs[1] < costs[0]


def test_integers_are_added_up_in_s32() -> None:
    for mode in ("strict", "any", "s32"):
        assert implementation(mode, dt="u8:s8:s32") == implementation(None, dt="u8:s8:s32")
    with pytest.raises(Unimplemented, match=r"adds up in s32: acc_mode='f32' is asked for.*what works: acc_mode="):
        implementation("f32", dt="u8:s8:s32", machine="clx")


def test_what_no_kernel_has_is_refused_with_what_is_nearest() -> None:
    with pytest.raises(Unimplemented, match="needs avx512_core_fp16"):
        implementation("f16", machine="clx")
    with pytest.raises(Unimplemented, match="acc_mode='f16' is asked for"):
        implementation("f16", dispatch="onednn", dt="bf16:bf16:f32")
    with pytest.raises(Unimplemented, match="acc_mode='strict' does not allow"):
        implementation("strict", dispatch="gemm:avx512_core_fp16")
    with pytest.raises(InvalidArgument, match="Allowed|allowed"):
        Attr(acc_mode="bf16")


def test_benchdnn_has_its_word(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--machine=spr", "--dt=f16:f16:f32", "64x256:256x64"]
    assert main(["bench", "--matmul", "--attr-acc-mode=f16", *words]) == 0
    assert "avx512_core_fp16" in capsys.readouterr().out
    assert main(["bench", "--matmul", "--attr-acc-mode=strict", *words]) == 0
    assert "avx512_core_fp16" not in capsys.readouterr().out
