"""ONNX operators over a machine's kernels. Importing this package registers them all."""

from simdnn.networks.ops import (
    activation,
    by_reference,
    classical,
    control,
    elementwise,
    fused,
    indexing,
    linear,
    pool,
    qlinear,
    quantized,
    recurrent,
    reduction,
    resize,
    sequence,
    shape,
)
from simdnn.networks.ops.registry import OPERATORS, VIEWS, find, supported

__all__ = [
    "OPERATORS",
    "VIEWS",
    "activation",
    "by_reference",
    "classical",
    "control",
    "elementwise",
    "find",
    "fused",
    "indexing",
    "linear",
    "pool",
    "qlinear",
    "quantized",
    "recurrent",
    "reduction",
    "resize",
    "sequence",
    "shape",
    "supported",
]
