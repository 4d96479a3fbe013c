"""Products with an activation behind them in one node, as onnxruntime's optimizer writes them: FusedConv, FusedGemm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from isa_models import Unimplemented
from isa_models.readings.arrays import Array
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.linear import convolve, gemm
from simdnn.networks.ops.registry import MICROSOFT, OPERATORS, need, operator

#: the numbers of each activation, in the order of FusedConv's `activation_params`
_NUMBERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("Relu", "Sigmoid", "Tanh", "Softplus", "Softsign"), ()),
    **dict.fromkeys(("LeakyRelu", "Elu", "ThresholdedRelu"), ("alpha",)),
    "HardSigmoid": ("alpha", "beta"),
    "Selu": ("alpha", "gamma"),
    "Clip": ("min", "max"),
}


def _activated(k: Kernels, node: Node, x: Array, numbers: Mapping[str, float]) -> Array:
    name = node.text("activation")
    need(name in _NUMBERS, f"activation={name!r}; allowed: {', '.join(_NUMBERS)}")
    version = 6 if name == "Clip" else 13  # whose bounds were attributes before opset 11
    found: Array = OPERATORS["", name](k, Node(node.name, name, "", version, (), (), numbers), x)
    return found


@operator("FusedConv", domain=MICROSOFT)
def fused_conv(
    k: Kernels, node: Node, x: Array, w: Array, bias: Array | None = None, onto: Array | None = None
) -> Array:
    """A convolution, what is added to it, and the activation behind both."""
    if onto is not None and k.runs_models:
        raise Unimplemented(
            "FusedConv onto a value in onnxruntime's order, which is not known; dispatch='fastest' works"
        )
    found = convolve(replace(k, followed=""), node, x, w, bias)
    found = found if onto is None else k.map(lambda v, s: v + s, found, onto, name="add")
    numbers = [float(v) for v in node.get("activation_params", [])]
    return _activated(k, node, found, dict(zip(_NUMBERS.get(node.text("activation"), ()), numbers, strict=False)))


@operator("FusedGemm", domain=MICROSOFT)
def fused_gemm(k: Kernels, node: Node, a: Array, b: Array, c: Array | None = None) -> Array:
    """Gemm and the activation behind it."""
    given = {name: node.get(f"activation_{name}") for name in ("alpha", "beta", "gamma")}
    numbers = {name: float(value) for name, value in given.items() if value is not None}
    return _activated(k, node, gemm(replace(k, followed=""), node, a, b, c), numbers)
