"""Which values of a model onnxruntime keeps in blocks of channels, its layout NCHWc, and adds up otherwise than others.

Convolutions of images make them, and so do pools of whole blocks; others keep them or leave them. Seen in models that
it has optimized.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from isa_models.readings.arrays import Array
from simdnn.networks.model import Node

ADDING = ("Add", "Sum")
_POOLING = ("MaxPool", "AveragePool")
_WHOLE = ("GlobalAveragePool", "GlobalMaxPool")  # pools that stay as they are behind a node that is in no blocks
#: functions of elements that keep the layout, and those that do where they alone read a convolution, which has them
_KEEPING = ("Relu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Gelu", "QuickGelu", "Identity", "Dropout")
_TAKEN_IN = ("LeakyRelu", "Clip")
LAID = "in blocks"  # the attribute of a node whose arithmetic is another there


@dataclass(frozen=True)
class ImageBlocks:
    """`shapes` as the model says them; `block`: its channels; `uses`: how many nodes, and outputs, read a value."""

    makers: Mapping[str, Node]
    constants: Mapping[str, Array]
    shapes: Mapping[str, tuple[int | str, ...]]
    uses: Callable[[str], int]
    block: int

    def of(self, name: str) -> bool | None:
        """Whether a value lies in blocks; None where that is not known."""
        node = self.makers.get(name)
        if node is None:
            return False
        first = node.inputs[0] if node.inputs else ""
        if node.op in ("Conv", "ConvOnto"):
            return self.makes(node)
        if node.op in _TAKEN_IN:
            before, bounds = self.makers.get(first), [each for each in node.inputs[1:] if each]
            alone = before is not None and before.op == "Conv" and self.uses(first) == 1
            return self.of(first) if alone and all(each in self.constants for each in bounds) else False
        if node.op == "BatchNormalization":
            return self.of(first) if all(name in self.constants for name in node.inputs[1:]) else False
        if node.op in _KEEPING:
            return self.of(first)
        if node.op in _POOLING or node.op in _WHOLE and first not in self.makers:
            return self.whole(first)
        if node.op in _WHOLE:
            return self.whole(first) if self.of(first) else self.of(first)
        if gated := self.gated(node):
            return self.of(gated)
        if node.op in ("Resize", "Upsample"):
            return self.of(first) if self.resized(node) else False
        found = [self.of(each) for each in node.inputs]
        if node.op in ADDING or node.op == "Mul":
            return False if False in found else None if None in found else self.alike(node) or self.broadcast(node)
        if node.op == "Concat":
            whole = [self.whole(each) for each in node.inputs]
            apart = node.get("axis") != 1 or False in found or False in whole
            return False if apart else None if None in (*found, *whole) else True
        return None if node.op in ("Transpose", "FusedConv") and any(found) else False

    def makes(self, conv: Node) -> bool:
        """Whether a convolution makes blocks."""
        weights = self.constants.get(conv.inputs[1])
        bias = conv.inputs[2] if len(conv.inputs) > 2 else ""
        if weights is None or weights.ndim != 4 or bias and bias not in self.constants:
            return False
        groups, (filters, channels) = conv.integer("group", 1), weights.shape[:2]
        if groups == 1:
            return bool(channels < self.block or channels % 4 == 0)
        if channels == 1 and filters == groups:
            return groups % 4 == 0
        return bool(channels % self.block == filters // groups % self.block == 0)

    def whole(self, name: str) -> bool | None:
        """Whether the channels of a value are whole blocks, and the model says how many there are."""
        sizes = self.shapes.get(name)
        if sizes is None:
            return None
        return len(sizes) == 4 and isinstance(sizes[1], int) and sizes[1] % self.block == 0

    def alike(self, node: Node) -> bool:
        """Whether the summands or factors of a node have the same sizes; of a sum also where the model says none. Sizes
        without a name are the same where all come from one value that was laid in blocks.
        """
        sizes = [self.shapes.get(name) for name in node.inputs]
        if None in sizes:
            return node.op in ADDING
        named = all("" not in each for each in sizes if each is not None)
        return len(set(sizes)) == 1 and (named or len({self.laid_from(name) for name in node.inputs}) == 1)

    def broadcast(self, node: Node) -> bool | None:
        """Whether a node whose operands in blocks are not of the same sizes keeps these: a sum by the channel."""
        sizes = [self.shapes.get(name) for name in node.inputs]
        channels = [each[1] if each is not None and len(each) == 4 else None for each in sizes]
        if node.op == "Sum" or not all(isinstance(number, int) for number in channels):
            return None
        return node.op == "Add" and len(set(channels)) == 1

    def laid_from(self, name: str) -> str:
        """The value in no blocks that a value in blocks comes from."""
        while self.of(name):
            node = self.makers[name]
            name = self.gated(node) or node.inputs[0]
        return name

    def gated(self, node: Node) -> str:
        """The x of x * sigmoid(x) and x * hard sigmoid(x); "" of other nodes."""
        for name in node.inputs if node.op == "Mul" else ():
            gate = self.makers.get(name)
            if gate is not None and gate.op in ("Sigmoid", "HardSigmoid") and gate.inputs[0] in node.inputs:
                return gate.inputs[0]
        return ""

    def resized(self, node: Node) -> bool:
        """Whether images in blocks are made larger as they lie: by whole numbers, in some ways."""
        new, target = node.op == "Resize" and node.version >= 11, self.shapes.get(node.outputs[0])
        names = [*node.inputs, *[""] * 4]
        scales, sizes = self.constants.get(names[2 if new else 1]), self.shapes.get(node.inputs[0])
        if new and names[3] and sizes and target and all(isinstance(size, int) for size in (*sizes, *target)):
            scales = np.array(target, np.float64) / np.array(sizes, np.float64)
        whole = (
            scales is not None and scales.size == 4 and bool(np.all(scales == np.rint(scales)) and scales.min() >= 1)
        )
        if not whole or node.get("axes"):
            return False
        mode = node.get("mode", "nearest")
        corners = node.get("coordinate_transformation_mode", "half_pixel") if new else "asymmetric"
        if mode == "nearest":
            rounding = node.get("nearest_mode", "round_prefer_floor") if new else "floor"
            return (corners, rounding) == ("asymmetric", "floor")
        return mode == "linear" and corners in ("asymmetric", "half_pixel", "align_corners")
