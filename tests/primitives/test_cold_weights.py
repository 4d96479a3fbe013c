"""Weights that come from DRAM cost what DRAM costs; everything else stays where it was."""

from __future__ import annotations

import simdnn


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
