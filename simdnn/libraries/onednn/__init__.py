"""oneDNN 3.13 on x86 CPUs, as observed (docs/numerics.md): its choice, its orders and cuts of sums, what it refuses."""

from simdnn.libraries.model import Library
from simdnn.libraries.onednn import (
    blocking,
    calls,
    choice,
    decompress,
    deconvolution,
    environment,
    inner_product,
    int8,
    layouts,
    operators,
    refusals,
    sharing,
    sums,
)

LIBRARY = Library(
    "oneDNN",
    "3.13",
    "matmul and convolution of floats and integers, decompression, scales by group",
    choice.choose,
    int8.form,
    decompress.form,
    refusals.check_post_ops,
    refusals.check_zero_points,
    refusals.check_dimensions,
    left_to=sharing.left_to,
    matrices=layouts.matrices,
    order_unknown=refusals.order_unknown,
    plain_from=4,  # `pick_blocked_B_layout` in its brgemm_matmul_utils.cpp
    vectors_apart=True,
    tiles=blocking.knows_tile,
    flushes=sums.flushes,
    lifts=sums.lifts,
    around=calls.around,
    references=refusals.REFERENCES,
    asked=layouts.asked,
    operator=operators.form,
    around_operator=calls.around_operator,
    deconvolution=deconvolution.way,
    name_deconvolution=deconvolution.name,
    inner_product=inner_product.layout,
    name_inner_product=inner_product.name,
    variables=environment.VARIABLES,
    most_isa=environment.most_isa,
)
