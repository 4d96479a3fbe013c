"""Products with an activation behind them in one node, as onnxruntime's optimizer writes them: FusedConv, FusedGemm."""

from __future__ import annotations

from isa_models import Unimplemented
from isa_models.readings.arrays import Array
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.linear import convolve, gemm
from simdnn.networks.ops.qlinear import MICROSOFT
from simdnn.networks.ops.registry import OPERATORS, need, operator

#: the numbers of each activation, in the order of `activation_params`
_NUMBERS = {
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Clip": ("min", "max"),
}


def _activated(k: Kernels, node: Node, x: Array, numbers: list[float]) -> Array:
    name = node.text("activation")
    need(name in _NUMBERS, f"activation={name!r}; allowed: {', '.join(_NUMBERS)}")
    values = dict(zip(_NUMBERS[name], numbers, strict=False))
    version = 6 if name == "Clip" else 13  # whose bounds were attributes before opset 11
    found: Array = OPERATORS["", name](k, Node(node.name, name, "", version, (), (), values), x)
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
    found = convolve(k, node, x, w, bias)
    found = found if onto is None else k.map(lambda v, s: v + s, found, onto, name="add")
    return _activated(k, node, found, [float(v) for v in node.get("activation_params", [])])


@operator("FusedGemm", domain=MICROSOFT)
def fused_gemm(k: Kernels, node: Node, a: Array, b: Array, c: Array | None = None) -> Array:
    """Gemm and the activation behind it."""
    numbers = [node.get(name) for name in ("activation_alpha", "activation_beta")]
    return _activated(k, node, gemm(k, node, a, b, c), [float(v) for v in numbers if v is not None])
