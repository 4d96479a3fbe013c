"""Weights that come from DRAM cost what DRAM costs; everything else stays where it was."""

from __future__ import annotations

from typing import Any

import pytest

import simdnn
from isa_models.block_formats import BLOCK_FORMATS, block_format
from isa_models.formats import fmt


def test_a_matrix_times_a_vector_is_bound_by_dram_when_its_weights_are_cold() -> None:
    def cost() -> simdnn.Estimate:
        return simdnn.estimate("matmul", m=1, n=2048, k=2048, dt="u8:s8:s32", machine="zen4")

    warm = cost()
    with simdnn.cold_weights():
        cold = cost()
    dram = cold.traffic.set_index("level").loc["DRAM", "read_bytes"]
    assert warm.traffic.set_index("level").loc["DRAM", "read_bytes"] == 0
    assert 2048 * 2048 <= dram < 2048 * 2048 * 1.01  # the weights and nothing else, in lines
    assert cold.bound == "DRAM" and cold.cycles > warm.cycles
    assert cost().cycles == warm.cycles  # the scope is over


def by_group(dtype: str | None, **more: Any) -> Any:
    return simdnn.Quant(None, groups=(32, 1), dtype=dtype, **more)


@pytest.mark.parametrize(
    ("dt", "attr", "beside"),
    [
        ("f32:s4:f32", simdnn.Attr(fpmath="bf16", apply_to_int=True, scales={"wei": by_group("f16")}), 2),
        (
            "f32:u4:f32",
            simdnn.Attr(
                fpmath="bf16", apply_to_int=True, scales={"wei": by_group("f16")}, zero_points={"wei": by_group("u8")}
            ),
            3,
        ),
        ("f32:f4_e2m1:f32", simdnn.Attr(scales={"wei": by_group("e8m0", mask=3)}), 1),
        ("s8:s8:f32", simdnn.Attr(scales={"wei": by_group("f32"), "src": simdnn.Quant(None, mask=0)}), 4),
        ("s8:s8:s32", simdnn.Attr(zero_points={"wei": by_group("s8")}), 1),
        ("f32:q4_0:f32", None, 2),
        ("f32:q5_1:f32", None, 4),
    ],
)
def test_scales_and_zero_points_by_group_come_with_cold_weights(dt: str, attr: simdnn.Attr | None, beside: int) -> None:
    """A group of 32 has `beside` bytes of them at least; all are read from memory, as the codes are."""
    k, n = 1024, 512
    with simdnn.cold_weights():
        cold = simdnn.estimate("matmul", m=1, n=n, k=k, dt=dt, attr=attr, machine="spr")
    name = dt.split(":")[1]
    form = block_format(name) if name in BLOCK_FORMATS else None
    codes = k * n * (form.bits - 8 * beside / form.group if form else fmt(name).bits) / 8
    assert cold.traffic.set_index("level").read_bytes["DRAM"] >= codes + k // 32 * n * beside
