"""Nodes that are remembered give what they gave, in other networks too, and are not run again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import simdnn
from simdnn.networks.memo import Memo
from simdnn.networks.model import Node

pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402


def two_products(last: np.ndarray) -> Any:
    """x (1, 8) times a constant, relu, times `last` (4, 2)."""
    rng = np.random.default_rng(0)
    first = rng.standard_normal((8, 4)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "a"], ["p"], "first"), helper.make_node("Relu", ["p"], ["r"], "relu")]
    nodes.append(helper.make_node("MatMul", ["r", "b"], ["y"], "second"))
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, w]) for n, w in (("x", 8), ("y", 2))]
    weights = [numpy_helper.from_array(w, n) for n, w in (("a", first), ("b", last))]
    return simdnn.load(helper.make_model(helper.make_graph(nodes, "two", ports[:1], ports[1:], weights)))


def test_what_two_networks_share_runs_once() -> None:
    x = {"x": np.arange(8, dtype=np.float32)[None]}
    one, other = (two_products(np.full((4, 2), v, np.float32)) for v in (1, 2))
    memo, plain = Memo(), [net.run(x, machine="zen4") for net in (one, other)]
    kept = [net.run(x, machine="zen4", memo=memo) for net in (one, other)]
    for a, b in zip(plain, kept, strict=True):
        assert a.cycles == b.cycles and a.outputs["y"].tobytes() == b.outputs["y"].tobytes()
        assert [run.implementation for run in a.nodes] == [run.implementation for run in b.nodes]
    assert len(memo._held) == 4  # first, relu, and two kinds of second
    again = other.run(x, machine="zen4", memo=memo)
    assert again.outputs["y"] is kept[1].outputs["y"] and len(memo._held) == 4


def test_what_nodes_do_hangs_on_where_they_run_and_what_they_read() -> None:
    net, memo = two_products(np.ones((4, 2), np.float32)), Memo()
    feeds = [{"x": np.full((1, 8), v, np.float32)} for v in (1 / 3, 1 / 7)]
    attrs = [simdnn.Attr(), simdnn.Attr(fpmath="bf16")]
    for feed in feeds:
        for attr in attrs:
            met = net.run(feed, machine="zen4", attr=attr, memo=memo)
            assert met.outputs["y"].tobytes() == net.run(feed, machine="zen4", attr=attr).outputs["y"].tobytes()


def test_random_nodes_are_not_remembered_nor_what_reads_them() -> None:
    memo = Memo()
    noise, add = Node("n", "RandomNormal", "", 22, (), ("n",)), Node("a", "Add", "", 22, ("n", "n"), ("s",))
    key = memo.key(noise, {})
    assert key is None and memo.key(add, memo.outputs(key, noise)) is None and memo.given(key) is None


def test_it_forgets_what_was_read_the_longest_time_ago() -> None:
    net, memo = two_products(np.ones((4, 2), np.float32)), Memo(most=24)  # p, r: 16 bytes; y: 8
    x = {"x": np.ones((1, 8), np.float32)}
    net.run(x, machine="zen4", memo=memo)
    assert len(memo._held) == 2 and memo._bytes == 24
