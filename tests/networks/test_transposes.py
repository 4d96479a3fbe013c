"""Where onnxruntime lays values out anew, on this host: blocks of channels, and Transposes that it moves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import helper  # noqa: E402

from tests.effort import one_in  # noqa: E402
from tests.networks.peer import Arrays, differs, model  # noqa: E402


@one_in(2)
@pytest.mark.parametrize("channels", [16, 6])
@pytest.mark.parametrize("other", ["x", "z", "zz"])
def test_a_sum_of_what_lies_in_no_blocks_stays_behind_a_convolution(channels: int, other: str) -> None:
    """A graph's input, the convolution's own among them, and what is made of one."""
    rng = np.random.default_rng(channels)
    shape = (1, channels, 5, 6)
    feeds: Arrays = {name: rng.standard_normal(shape).astype(np.float32) for name in "xz"}
    held: Arrays = {"w": rng.standard_normal((channels, channels, 3, 3)).astype(np.float32)}
    nodes = [
        helper.make_node("Softplus", ["z"], ["zz"]),
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
        helper.make_node("Add", [other, "c"], ["t"]),
        helper.make_node("Relu", ["t"], ["y"]),
    ]
    assert not differs(model(nodes, feeds, held), feeds)


#: nodes behind a convolution `a` and its means `g` by the channel: what leaves blocks of channels, what keeps them
LEAVING = {
    "a gate by the channel, and a sum": ["Sigmoid g s", "Mul a s m", "Conv x k b", "Add m b y"],
    "a sum by the channel": ["Add a g m", "Conv m p b", "Conv m p2 c", "Add b c y"],
    "means behind a constant": ["Add a one m", "GlobalAveragePool m y"],
    "means behind a gate": ["Mul a g m", "GlobalAveragePool m y"],
    "convolutions of different reshaped values": [
        "Reshape a to r",
        "Conv r p b",
        "Reshape g to1 s",
        "Conv s p c",
        "Add b c y",
    ],
    "one convolution twice": ["Conv a p b", "Add b b y"],
}


@one_in(2)
@pytest.mark.parametrize("what", LEAVING)
def test_what_leaves_blocks_of_channels(what: str) -> None:
    rng = np.random.default_rng(len(what))
    constants = {
        name: (rng.standard_normal((16, 16, size, size)) / 12).astype(np.float32)
        for name, size in {"k": 3, "p": 1, "p2": 1}.items()
    }
    constants |= {
        "one": np.full((1, 1, 1, 1), 0.3, np.float32),
        "to": np.array([-1, 16, 7, 7]),
        "to1": np.array([-1, 16, 1, 1]),
    }
    lines = ["Conv x k a", "GlobalAveragePool a g", *LEAVING[what]]
    nodes = []
    for op, *names in map(str.split, lines):
        padded = {"pads": [1] * 4} if op == "Conv" and names[1] == "k" else {}
        nodes.append(helper.make_node(op, names[:-1], names[-1:], **padded))
    feeds = {"x": rng.standard_normal((1, 16, 7, 7)).astype(np.float32)}
    assert not differs(model(nodes, feeds, constants, opset=17, open_sizes=True), feeds)


#: nodes on `t`, which is `x` with its channels last, and on `x`: where onnxruntime computes them ahead of the Transpose
BEHIND_TRANSPOSES = {
    "means without their dimensions": ["ReduceMean t over y keepdims=0"],
    "means behind a function that stays": ["Relu t r", "ReduceMean r over y"],
    "a Transpose that cancels": ["Mul t s u", "ReduceMean u over m", "Transpose m y perm=0,3,1,2"],
    "one that two read": [
        "Concat t t c axis=3",
        "ReduceMean c over m keepdims=0",
        "ReduceMean t over n keepdims=0",
        "Concat m n y axis=1",
    ],
    "sums of two": ["Transpose z w perm=0,2,3,1", "Add t w u", "Mul u s v", "ReduceMean v over y keepdims=0"],
}


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("what", BEHIND_TRANSPOSES)
def test_what_is_computed_ahead_of_a_transpose(what: str, kind: Any) -> None:
    rng = np.random.default_rng(3)
    nodes = []
    for line in ["Transpose x t perm=0,2,3,1", *BEHIND_TRANSPOSES[what]]:
        op, *names = line.split()
        options = dict(name.split("=") for name in names if "=" in name)
        values = {name: [int(n) for n in text.split(",")] for name, text in options.items()}
        names = [name for name in names if "=" not in name]
        numbers = {name: value if name == "perm" else value[0] for name, value in values.items()}
        nodes.append(helper.make_node(op, names[:-1], names[-1:], **numbers))
    feeds = {name: rng.standard_normal((1, 6, 5, 7)).astype(kind) for name in "xz"}
    constants = {"over": np.array([1, 2]), "s": rng.standard_normal((5, 7, 6)).astype(kind)}
    read = {name for node in nodes for name in node.input}
    feeds = {name: values for name, values in feeds.items() if name in read}
    constants = {name: values for name, values in constants.items() if name in read}
    assert not differs(model(nodes, feeds, constants, opset=18), feeds)
