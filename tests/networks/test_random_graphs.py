"""Random graphs beside onnxruntime: shapes, types and attributes drawn from a seed, values within f32's rounding."""

from __future__ import annotations

import pytest

import simdnn

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from tests.effort import one_in
from tests.networks.random_graphs import Builder, draw  # noqa: E402


@one_in(2)
@pytest.mark.parametrize("seed", range(40))
def test_random_graphs(seed: int) -> None:
    drawn, machine = draw(Builder(seed)), ("zen4", "skx", "icx")[seed % 3]
    net = simdnn.load(drawn.model)
    result = net.run(drawn.feeds, machine=machine, dispatch="onednn")
    drawn.check(result.outputs)
    if seed % 8 == 0:
        assert net.estimate(machine=machine, dispatch="onednn").cycles == result.cycles > 0
