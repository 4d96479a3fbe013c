"""Weights that oneDNN widens or decompresses, for the clock: what its kernels execute, by parameters of any kind."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
import pytest

import simdnn
from simdnn import Attr, Quant, numerics
from simdnn.kernels import Epilogue, MatmulProblem, Parameters
from simdnn.kernels.common.epilogue import Decompression
from simdnn.kernels.common.sums import Options, RegisterTile
from simdnn.kernels.x86.code import unit_of
from simdnn.kernels.x86.dots import FMA
from simdnn.kernels.x86.gemm import compressed_gemm
from simdnn.timing.walked import walked
from tests.libraries.test_onednn_kernels import executed


@pytest.mark.parametrize(("m", "k", "n"), [(3, 64, 64), (40, 1300, 80), (300, 70, 33)])
def test_weights_of_f16_become_f32_once_for_all_rows(m: int, k: int, n: int) -> None:
    kernel = simdnn.estimate("matmul", m=m, k=k, n=n, dt="f16:f16:f32", machine="spr", dispatch="onednn").kernel
    source = m * k / 16
    assert kernel.timed and k * ceil(n / 16) <= executed(kernel.timed)["vcvtph2ps"] <= k * ceil(n / 16) + source + m


@pytest.mark.parametrize("wei", ["s8", "s4"])
@pytest.mark.parametrize(("k", "group"), [(128, 32), (1152, 96)])
def test_compressed_weights_go_through_the_librarys_instructions(wei: str, k: int, group: int) -> None:
    """Groups that a part of K ends within, too."""
    scales = Quant(None, groups=(group, 1), dtype="f32")
    attr = Attr(fpmath="bf16", apply_to_int=True, scales={"wei": scales})
    how: dict[str, Any] = {"machine": "spr", "isa": "avx512_core_bf16", "attr": attr, "dispatch": "onednn"}
    kernel = simdnn.estimate("matmul", m=4, k=k, n=96, dt=f"bf16:{wei}:f32", **how).kernel
    found = executed(kernel.timed)
    vectors = k * 96 // 16
    assert found["vcvtneps2bf16"] == (vectors if wei == "s4" else 0)
    assert found["vcvtdq2ps"] == vectors and found["vpermd"] == (2.5 if wei == "s4" else 2.5) * vectors


@pytest.mark.parametrize("isa", ["avx512_core", "avx2"])
@pytest.mark.parametrize("wei", ["s8", "s4"])
def test_compressed_weights_become_f32_row_by_row(isa: str, wei: str) -> None:
    """Each vector of a row loads its scales, is converted, scaled and stored, once for all rows of the source."""
    attr = Attr(apply_to_int=True, scales={"wei": Quant(None, groups=(32, 1), dtype="f32")})
    how: dict[str, Any] = {"machine": "zen4", "isa": isa, "attr": attr, "dispatch": "onednn"}
    kernel = simdnn.estimate("matmul", m=40, k=128, n=96, dt=f"f32:{wei}:f32", **how).kernel
    vectors = 128 * 96 // unit_of(isa).lanes
    found = executed(kernel.timed)
    assert found["vcvtdq2ps"] == found["vmulps"] == vectors and found["vpmovsxbd"] == vectors
    assert found["vpermd"] == (2 * vectors if wei == "s4" else 0)


def test_parts_of_k_follow_each_other_in_one_buffer() -> None:
    """The library's program, where no instruction stands for another, has the bits of this package's."""
    problem = MatmulProblem(2, 24, 2100, "f32", "s8", Epilogue(), decompression=Decompression(("f32",)))
    rng = np.random.default_rng(2100)
    src, wei = rng.standard_normal((2, 2100), np.float32), rng.integers(-99, 99, (2100, 24)).astype(np.int8)
    found = []
    for tile in (None, RegisterTile(2, 2)):
        made = compressed_gemm("parts", problem, unit_of("avx2"), FMA, Options(cut=1024, tile=tile))
        inputs = made.product.inputs(made.program, made.weights.arrays)
        found.append(numerics.run(made.program, inputs(src, wei, Parameters()))["dst"])
    assert (found[0] == found[1]).all() and found[0].any()
    assert {tensor.name: tensor.size for tensor in made.program.tensors}["wei"] == 1024 * 16


def test_a_column_is_walked_down_in_all_parts_of_k() -> None:
    attr = Attr(fpmath="bf16", apply_to_int=True, scales={"wei": Quant(None, groups=(128, 1), dtype="f32")})
    how: dict[str, Any] = {"machine": "spr", "isa": "avx512_core_bf16", "attr": attr, "dispatch": "onednn"}
    timed = simdnn.estimate("matmul", m=2, k=3072, n=4096, dt="bf16:s4:f32", **how).kernel.timed
    assert timed and walked(timed)["stored"].pages == 3072 * 2048 // 4096


@pytest.mark.parametrize("wei", ["s8", "u8", "s4", "u4"])
@pytest.mark.parametrize("scale", [None, {"groups": (32, 1)}, {"mask": 2}, {}])
@pytest.mark.parametrize("point", [None, {"groups": (32, 1)}, {"mask": 2}, {}])
def test_compressed_weights_that_become_f32_have_any_parameters(
    wei: str, scale: dict[str, Any] | None, point: dict[str, Any] | None
) -> None:
    """Zero points are subtracted from each vector of weights; those of a column are loaded for each row."""
    scales = {"wei": Quant(None, dtype="f32", **scale)} if scale is not None else {}
    points = {"wei": Quant(None, dtype="s8", **point)} if point is not None else {}
    attr = Attr(apply_to_int=True, scales=scales, zero_points=points)
    how: dict[str, Any] = {"machine": "zen4", "isa": "avx512_core", "attr": attr, "dispatch": "onednn"}
    found = executed(simdnn.estimate("matmul", m=5, k=128, n=80, dt=f"f32:{wei}:f32", **how).kernel.timed)
    assert found["vsubps"] == (128 * 80 // 16 if points else 0)


@pytest.mark.parametrize("wei", ["f16", "bf16"])
def test_weights_of_16_bits_beside_f32_are_converted_in_each_of_the_librarys_tiles(wei: str) -> None:
    kernel = simdnn.estimate("matmul", m=18, k=96, n=128, dt=f"f32:{wei}:f32", machine="zen4", dispatch="onednn").kernel
    name = "vcvtph2ps" if wei == "f16" else "vpmovzxwd"
    assert executed(kernel.timed or kernel.program)[name] == 3 * 96 * 128 // 16  # tiles of six rows


@pytest.mark.parametrize(
    ("dt", "sizes", "scale"),
    [
        ("bf16:u8:bf16", (57, 66, 16), Quant(None, mask=3, groups=(16, 1), dtype="bf16")),
        ("f32:s4:f32", (1, 1, 32), Quant(None, mask=3, groups=(32, 1))),
        ("f32:s4:f32", (5, 6, 32), Quant(None, mask=3, groups=(16, 1))),
    ],
)
def test_copies_of_compressed_weights_read_what_there_is(dt: str, sizes: tuple[int, int, int], scale: Quant) -> None:
    m, n, k = sizes
    attr = Attr(fpmath="bf16" if dt.startswith("bf16") else "strict", apply_to_int=True, scales={"wei": scale})
    found = simdnn.estimate("matmul", m=m, n=n, k=k, dt=dt, attr=attr, machine="zen4", dispatch="onednn")
    assert found.library.startswith("brg_matmul") and found.cycles > 0
