"""Operators whose values come from ONNX's own reference implementation. What they cost here is not known."""

from __future__ import annotations

from typing import Any

import numpy as np

from isa_models import InvalidArgument, UnknownTiming
from isa_models.readings.arrays import Array
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.elementwise import lines_of
from simdnn.networks.ops.grids import sampled
from simdnn.networks.ops.registry import need, operator
from simdnn.networks.types import number

NAMES = ("GridSample", "NonMaxSuppression", "RoiAlign", "DFT", "STFT", "Col2Im", "Det", "DeformConv", "MelWeightMatrix")

_LATER = {b"bilinear": b"linear", b"bicubic": b"cubic"}  # GridSample's modes before opset 20, which the reference lacks
_MOST = 1 << 12  # of an integer attribute: the reference loops over them in Python


@operator(*NAMES)
def by_reference(k: Kernels, node: Node, *operands: Array | None) -> tuple[Any, ...]:
    """The node alone through `onnx.reference`; GridSample as a library that runs models has it."""
    if node.op == "GridSample" and lines_of(k, np.asarray(operands[0])) is not None:
        x, grid = operands[:2]
        need(x is not None and grid is not None and grid.dtype == x.dtype, "an image and a grid of its type")
        return (sampled(k, node, np.asarray(x), np.asarray(grid)),)
    import onnx
    import onnx.reference

    huge = [
        n
        for n, v in node.attributes.items()
        if any(isinstance(i, int) and abs(i) > _MOST for i in np.ravel(v).tolist())
    ]
    need(not huge, f"attribute {huge[:1]} above {_MOST}")
    k.unknown(f"{node.op} has no kernel here: its values are ONNX's reference's, its cost is not known")
    if not k.values:
        raise UnknownTiming(f"the cost of {node.op} is not known; run it for its values")
    given = {name: a for name, a in zip(node.inputs, operands, strict=True) if a is not None}
    if node.op == "NonMaxSuppression":  # whose numbers may be scalars, where the reference takes lines of one
        given = {name: np.atleast_1d(a) for name, a in given.items()}
    inputs = [onnx.helper.make_tensor_value_info(n, number(a.dtype), a.shape) for n, a in given.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.outputs if name]
    graph = onnx.helper.make_graph([node.proto], node.op, inputs, outputs)
    for attribute in graph.node[0].attribute:
        if attribute.s in _LATER:
            attribute.s = _LATER[attribute.s]
    imports = [onnx.helper.make_opsetid("", node.version)]
    model = onnx.helper.make_model(graph, opset_imports=imports)
    try:
        with np.errstate(all="ignore"):
            found = onnx.reference.ReferenceEvaluator(model).run(None, given)
    except Exception as error:  # whatever NumPy or the reference says of operands that do not fit
        raise InvalidArgument(" ".join(str(error).split())[:160] or type(error).__name__) from None
    made = iter(found)
    return tuple(next(made) if name else None for name in node.outputs)
