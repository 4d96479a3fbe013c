"""Operators by name. Each is a function `(kernels, node, *inputs)` that returns an output or a tuple of them.

Optional inputs that a node leaves out are None. What an operator computes is stated by ONNX (docs/Operators.md); how
its versions differ is read from `node.version`, the opset that the model imports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from isa_models import InvalidArgument, Unimplemented
from isa_models.errors import counted, what_is_known
from isa_models.plugins import Registry, with_failures
from simdnn.networks.model import Node
from simdnn.networks.ops.function import schema_of

#: operators that exporters write and that have no kernel here, and why
REFUSED = dict.fromkeys(
    ("DictVectorizer", "CastMap"),
    "dictionaries are no tensors; what works: a model whose input is the table that they are made into",
)

_BEFORE = (
    "onnxruntime's tools write it in place of products, a Softmax and what is around them; what works: the model as it "
    "was exported, ahead of onnxruntime.transformers.optimizer, and as quantize_dynamic or quantize_static makes it"
)
#: operators that onnxruntime's tools make of several nodes of a transformer, and what works
FUSED = dict.fromkeys(
    (
        *("PackedAttention", "PackedMultiHeadAttention", "DecoderAttention", "DecoderMaskedMultiHeadAttention"),
        *("SparseAttention", "LongformerAttention", "DecoderMaskedSelfAttention", "QOrderedAttention"),
        *("BeamSearch", "GreedySearch", "Sampling"),
    ),
    _BEFORE,
) | dict.fromkeys(
    ("MoE", "QMoE"),
    "it has all experts of a layer in one node; what works: each as products (MatMul, MatMulNBits) of the rows that "
    "TopK and Gather find",
)

Operator = Callable[..., Any]
F = TypeVar("F", bound=Operator)
OPERATORS: Registry[tuple[str, str], Operator] = Registry("operator")
MICROSOFT, ML = "com.microsoft", "ai.onnx.ml"  # domains of onnxruntime's operators, and of scikit-learn's
OWN = "simdnn"  # the domain of what graphs are rewritten to; no model has it
#: products of operands that come with a scale and a zero point behind each
#: operators of a model by what quantization rewrites them to
REWRITTEN = {"QConv": "Conv", "QMatMul": "MatMul"}
QUANTIZED = ("QLinearMatMul", "QLinearConv", "QGemm", "QMatMul", "QConv")
VIEWS = ("Constant", "Dropout", "Flatten", "Identity", "Reshape", "Shape", "Size", "Squeeze", "Unsqueeze")


def operator(*names: str, domain: str = "") -> Callable[[F], F]:
    """Register the decorated function for these operator names."""

    def register(function: F) -> F:
        for name in names:
            OPERATORS[domain, name] = function
        return function

    return register


def find(node: Node) -> Operator | None:
    """The node's operator; None where ONNX's own body is to run in its place.

    Raises `Unimplemented` naming the node and the nearest operator.
    """
    if (found := _registered(node)) is not None:
        return found
    if schema_of(node) is not None:
        return None
    names = [_whole(*known) for known in OPERATORS if known[0] != OWN]
    wanted = _whole(node.domain, node.op)[:60]
    why = REFUSED.get(node.op) if node.domain == ML else None
    why = FUSED.get(node.op) if node.domain == MICROSOFT else why
    told = f". {why[0].upper()}{why[1:]}" if why else what_is_known(wanted, names)
    raise with_failures(Unimplemented(f"{node}: no operator {wanted!r} here{told}"))


def _registered(node: Node) -> Operator | None:
    try:
        return OPERATORS[node.domain, node.op]
    except KeyError:
        return None


def _whole(domain: str, name: str) -> str:
    """An operator's name with its domain; ONNX's own has none.

    >>> _whole("", "Relu"), _whole("ai.onnx.ml", "Scaler")
    ('Relu', 'ai.onnx.ml::Scaler')
    """
    return f"{domain}::{name}" if domain else name


def supported(node: Node) -> bool:
    """Whether a node's operator is known, here or as ONNX's function of known ones."""
    return _registered(node) is not None or schema_of(node) is not None


def need(condition: bool, message: str) -> None:
    """`InvalidArgument` where a node's operands do not fit; the caller adds the node."""
    if not condition:
        raise InvalidArgument(message)


def axis_of(axis: int, rank: int, extra: int = 0) -> int:
    """A non-negative axis of an array of `rank` dimensions."""
    need(-rank - extra <= axis < rank + extra, f"axis {axis} of an array with {counted(rank, 'dimension')}")
    return axis % (rank + extra) if rank + extra else 0


def op_of_model(node: Node) -> str:
    """The operator that a node stands for in the model as its user has it: "Conv" of a quantized "QConv"."""
    if node.domain != OWN or node.op not in REWRITTEN:
        return node.op
    return REWRITTEN[node.op] if node.op == "QConv" or node.get("added") else node.text("of", REWRITTEN[node.op])
