"""onnxruntime's CPU provider (its kernels are MLAS) on x86, as observed (docs/numerics_onnxruntime.md)."""

from simdnn.libraries.model import Library, refuses
from simdnn.libraries.onnxruntime import choice, lines
from simdnn.libraries.onnxruntime.functions import FUNCTIONS, GATES, PLAIN_GATES
from simdnn.libraries.onnxruntime.nbits import block_as_formed, way_of_blocks, zeros_ahead
from simdnn.libraries.onnxruntime.sums import block_of, part_of_k

_TITLE = "onnxruntime"
LIBRARY = Library(
    _TITLE,
    "1.32",
    "the sums of MatMulInteger, QLinearMatMul, QLinearConv and QGemm; MatMul and Gemm of f32; quantized networks",
    choice.choose,
    choice.form,
    refuses(_TITLE, "kernel here for compressed weights", "integers, whose sums a network scales"),
    choice.check,
    refuses(_TITLE, "zero points by group, and no strategy of them", "common ones"),
    runs_models=True,
    one_factor=True,
    row_for=choice.row_for,
    functions=FUNCTIONS,
    gates=GATES,
    plain_gates=PLAIN_GATES,
    lines=lines,
    fuses_functions=False,
    part_of_k=part_of_k,
    block_of=block_of,
    by_vectors=choice.by_vectors,
    way_of_blocks=way_of_blocks,
    block_as_formed=block_as_formed,
    zeros_ahead=zeros_ahead,
    tier_of=choice.tier_of,
)
