"""ONNX operators over a machine's kernels. Importing this package registers them all."""

from simdnn.networks.ops import (  # noqa: F401  # each registers its own
    activation,
    attention,
    by_heads,
    by_reference,
    classical,
    control,
    distances,
    dynamic,
    elementwise,
    ensembles,
    few_bit_products,
    fused_activations,
    indexing,
    linear,
    nbits,
    onednn_deconvolutions,
    onednn_eltwise,
    onednn_shifts,
    onednn_squares,
    onednn_sums,
    pool,
    qdq_products,
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
)
from simdnn.networks.ops.registry import OPERATORS as OPERATORS
from simdnn.networks.ops.registry import VIEWS as VIEWS
from simdnn.networks.ops.registry import find as find
from simdnn.networks.ops.registry import supported as supported
