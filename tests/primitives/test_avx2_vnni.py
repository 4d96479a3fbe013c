"""The ISA cap avx2_vnni: exact int8 on 256-bit vpdpbusd, on the machines that have it, with oneDNN's names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import isa_models
import simdnn
from simdnn import Attr, InvalidArgument, UnknownTiming, libraries
from simdnn.kernels import ConvProblem, Epilogue, MatmulProblem, Problem

CAP = "avx2_vnni"
SRC = np.array([[255, 1], [255, 254]], np.uint8)
WEIGHTS = np.array([[127], [126]], np.int8)  # the second sum leaves 16 bits
CPUS = [name for name in isa_models.machine_names() if isinstance(isa_models.machine(name), isa_models.Machine)]
supports = {name: isa_models.cpu_machine(name).supports(CAP) for name in CPUS}


def test_which_machines_have_it() -> None:
    assert {name for name in CPUS if supports[name]} >= {"adl-p", "gnr", "spr", "zen5"}


@pytest.mark.parametrize("name", CPUS)
def test_exact_wherever_it_runs(name: str) -> None:
    if not supports[name]:
        with pytest.raises(InvalidArgument, match="lacks avx2_vnni; it has sse41, avx2"):
            simdnn.matmul(SRC, WEIGHTS, machine=name, isa=CAP)
        return
    for dispatch, engine in (("fastest", "compiled"), ("onednn", "reference")):
        r = simdnn.matmul(SRC, WEIGHTS, machine=name, isa=CAP, dispatch=dispatch, engine=engine)
        assert (r.implementation, r.isa, r.output.tolist()) == ("gemm:avx2_vnni", CAP, [[32511], [64389]])
        assert r.saturation is None and r.cycles > 0
    used = set(r.instructions["instruction"])
    assert "vpdpbusd" in used and "vpmaddubsw" not in used


def test_extremes_at_every_shape() -> None:
    rng = np.random.default_rng(0)
    for source, low, high in ((np.uint8, 0, 255), (np.int8, -128, 127)):
        for m, n, k in ((1, 1, 1), (3, 7, 5), (7, 33, 130), (16, 8, 700)):
            a, b = rng.choice([low, high], (m, k)).astype(source), rng.choice([-128, 127], (k, n)).astype(np.int8)
            for weights in (b, b.view(np.uint8)):
                r = simdnn.matmul(a, weights, machine="zen5", isa=CAP, attr=Attr(zero_points={"src": 3, "wei": -7}))
                wanted = (a.astype(np.int64) - 3) @ (weights.astype(np.int64) + 7)
                assert np.array_equal(r.output, wanted) and r.implementation == "gemm:avx2_vnni"
        for ic, oc, groups in ((6, 5, 1), (8, 16, 2), (9, 9, 9)):
            a = rng.choice([low, high], (1, ic, 6, 5)).astype(source)
            b = rng.choice([-128, 127], (oc, ic // groups, 3, 3)).astype(np.int8)
            r = simdnn.convolution(a, b, groups=groups, dilation=(2, 1), machine="zen5", isa=CAP)
            exact = Attr(exact_int8=True)
            by_words = simdnn.convolution(a, b, groups=groups, dilation=(2, 1), machine="zen5", isa="avx2", attr=exact)
            assert np.array_equal(r.output, by_words.output) and "avx2_vnni" in r.implementation


def conv(ic: int, oc: int, k: int = 3, groups: int = 1, **rest: Any) -> ConvProblem:
    return ConvProblem(1, ic, 9, 9, oc, k, k, "u8", "s8", rest.pop("e", Epilogue()), groups=groups, **rest)


@pytest.mark.parametrize(
    "problem, expected",
    [
        (MatmulProblem(5, 6, 7, "s8", "s8", Epilogue()), ("gemm:avx2_vnni", "brg_matmul:avx2_vnni")),
        (MatmulProblem(1, 6, 7, "u8", "s8", Epilogue("u8")), ("gemm:avx2_vnni", "brg_matmul:avx2_vnni")),
        (conv(16, 8), ("conv:avx2_vnni", "brg_conv_fwd:avx2_vnni")),
        (conv(16, 8, 1, padding=(1, 1, 1, 1)), ("conv:avx2_vnni", "brg_conv_fwd:avx2_vnni")),
        (conv(16, 8, 1, strides=(2, 2), padding=(0, 0, 1, 1)), ("conv:avx2_vnni", "brgconv_1x1:avx2_vnni")),
        (conv(16, 8, 1, strides=(2, 2)), ("conv:avx2_vnni", "brgconv_1x1:avx2_vnni")),
        (conv(32, 16, groups=2), ("conv:avx2_vnni", "brg_conv_fwd:avx2_vnni")),
        (conv(16, 8, groups=2), ("conv:avx2_vnni", "jit_uni_int8:avx2_vnni")),
        (conv(16, 6, groups=2), ("conv:avx2_vnni", "brg_conv_fwd:avx2_vnni")),
        (conv(8, 8, groups=8), ("dw:avx2_vnni_int8", "brdgmm_dw:avx2_vnni")),
        (conv(8, 8, groups=8, dilation=(2, 1)), ("dw:avx2_vnni_int8", "jit_uni_int8:avx2_vnni")),
        (conv(8, 8, e=Epilogue("bf16")), ("conv:avx2_int8_exact", "ref:any")),
        (MatmulProblem(5, 6, 7, "f32", "f32", Epilogue("f32")), ("gemm:avx2", "brg_matmul:avx2")),
    ],
)
def test_the_librarys_names(problem: Problem, expected: tuple[str, str]) -> None:
    assert libraries.choose("onednn", problem, CAP) == expected


def test_nothing_can_saturate() -> None:
    weights = np.full((8, 4), 127, np.int8)
    frame = simdnn.ranges("matmul", weights=weights, machine="spr", isa=CAP)
    assert frame["safe"].all() and not simdnn.ranges("matmul", weights=weights, machine="spr", isa="avx2")["safe"].any()


def test_a_machine_without_the_row() -> None:
    zen5 = isa_models.cpu_machine("zen5")
    rows = {key: row for key, row in zen5.instructions.items() if row.mnemonic != "vpdpbusd"}
    bare = replace(zen5, instructions=rows)
    r = simdnn.matmul(SRC, WEIGHTS, machine=bare, isa=CAP, dispatch="gemm:avx2_vnni")
    assert r.output[1, 0] == 64389
    with pytest.raises(UnknownTiming, match="vpdpbusd"):
        print(r.cycles)
