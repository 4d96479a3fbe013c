"""ONNX operators over a machine's kernels. Importing this package registers them all."""

from simdnn.networks.ops import (  # noqa: F401  # each registers its own
    activated,
    activation,
    attention,
    blocks,
    by_heads,
    by_reference,
    classical,
    control,
    distances,
    dynamic,
    elementwise,
    eltwise,
    ensembles,
    fused,
    indexing,
    linear,
    nbits,
    ordered,
    pool,
    qlinear,
    quantized,
    recurrent,
    reduction,
    resize,
    sequence,
    shape,
    support_vectors,
    text,
    transformer,
    transposed,
)
from simdnn.networks.ops.registry import OPERATORS as OPERATORS
from simdnn.networks.ops.registry import VIEWS as VIEWS
from simdnn.networks.ops.registry import find as find
from simdnn.networks.ops.registry import supported as supported
