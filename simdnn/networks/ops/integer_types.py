"""Types of onnxruntime's operators on integers: which operands have one type, and what its CPU kernels take.

ONNX's own operators have schemas, by which `simdnn.networks.opset.check_types` goes; these have none there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from isa_models import InvalidArgument, Unimplemented
from simdnn.networks.model import Node
from simdnn.networks.ops.registry import MICROSOFT
from simdnn.networks.types import label

_BYTES = ("s8", "u8")
#: places of operands that have one type: a tensor's and its zero point's, by operator
_ALIKE: dict[str, tuple[tuple[int, ...], ...]] = {
    **dict.fromkeys(("QGemm", "QLinearMatMul"), ((0, 2), (3, 5))),
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), ((0, 2, 3, 5, 7),)),
    **dict.fromkeys(("QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax"), ((0, 2, 4),)),
    **dict.fromkeys(("QLinearAveragePool", "QLinearGlobalAveragePool"), ((0, 2, 4),)),
    "MatMulIntegerToFloat": ((0, 4), (1, 5)),
    "DynamicQuantizeMatMul": ((1, 3),),
    "QAttention": ((0, 6), (1, 7)),
    "QLinearWhere": ((1, 3, 4, 6, 8),),
}
#: where products have their weights, and the zero point of their output, whose type is the output's
_PRODUCTS = {"QLinearConv": (3, 7), "QLinearMatMul": (3, 7), "QGemm": (3, 8), "MatMulIntegerToFloat": (1, None)}


def check(node: Node, operands: Sequence[Any], runs_models: bool) -> None:
    """Raises `InvalidArgument` for types that an operator does not join, and `Unimplemented` where the runtime whose
    bits are asked for (`runs_models`) has no kernel.
    """
    if node.domain == MICROSOFT and node.op in (*_ALIKE, "QLinearConcat"):
        places = _ALIKE.get(node.op) or (_of_parts(len(operands)),)
        for group in places:
            found = [(i, label(operands[i].dtype)) for i in group if i < len(operands) and operands[i] is not None]
            if odd := [f"input {i} of {name}" for i, name in found if name != found[0][1] or name not in _BYTES]:
                what = f"input {found[0][0]} of {found[0][1]}"
                raise InvalidArgument(f"{what} with {odd[0]}; one type, s8 or u8, is needed")
    if runs_models and node.domain in ("", MICROSOFT):
        _check_kernels(node, operands)


def _of_parts(count: int) -> tuple[int, ...]:
    """Places of a concatenation's zero points and tensors, behind the output's scale and zero point."""
    return (1, *(i for i in range(2, count) if i % 3 != 0))


def _check_kernels(node: Node, operands: Sequence[Any]) -> None:
    """Raises for pairs of types that onnxruntime's registrations lack: u8 goes with all weights and to u8, s8 with s8
    and to s8; its attention reads u8.
    """
    if node.op == "QAttention":
        has, said = label(operands[0].dtype) == "u8", f"a source of {label(operands[0].dtype)}; what works: u8"
    elif node.op in _PRODUCTS:
        weights, zero = _PRODUCTS[node.op]
        src, wei = (label(operands[i].dtype) for i in (0, weights))
        to = operands[zero] if zero is not None and zero < len(operands) else None
        dst = src if to is None else label(to.dtype)
        has = dst == src and (src == "u8" or wei == "s8")
        said = f"{src} by {wei} to {dst}; what works: u8 to u8, and s8 by s8 to s8"
    else:
        return
    if not has:
        raise Unimplemented(f"onnxruntime has no {node.op} of {said}, or another dispatch")
