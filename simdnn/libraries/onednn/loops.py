"""Cycles of oneDNN 3.13's loops in C++ over elements or pixels, beyond those of the kernel that stands for them here.

A reference implementation asks for the place of every element anew, a division for each dimension
(`l_dims_by_l_offset`, `off_v`; ref_reduction.cpp, ref_binary.cpp, ref_pooling.cpp); normalizations in rows are a
compiler's loops (ncsp_batch_normalization.cpp). Measured from inside the library on a Zen 4, warm data:
docs/validation/primitives-cost.md.
"""

from __future__ import annotations

from math import prod

from isa_models.formats import fmt
from simdnn.libraries.model import OperatorCall, OperatorForm

OUTPUT_OF_POOLING, TAP = 76.0, 16.2  # a tap that falls on the image
OUTPUT_OF_REDUCTION, DIMENSION = 115.0, 9.85  # a dimension of an element that is added up
PAIR = 295.0  # elements of a binary primitive, whose dimensions are found four times
PIXEL, COMPARED = 46.0, 1.2  # of greatest bytes: a call for each output, and a register's tap beside its maximum
NORMALIZED = 1.8  # an element of a batch normalization in rows, which takes 2.1 in all


def cycles(call: OperatorCall, form: OperatorForm) -> float:
    """Cycles of an execution in such loops; 0 where a kernel has them, or nobody measured."""
    shape = call.shapes[0]
    image: list[int] = call.options.get("out", [])
    if call.primitive == "batch_normalization" and form.name == "ncsp":
        return NORMALIZED * prod(shape)
    if by_pixel(call, form):
        registers = shape[0] * -(-shape[1] // (64 if "avx512_core" in call.caps else 32))
        return shape[0] * PIXEL * prod(image) + COMPARED * registers * _taps(call)
    if form.name != "ref":
        return 0.0
    if call.primitive == "pooling" and not fmt(call.types[0]).is_float:  # of floats it has another
        return prod(shape[:2]) * (OUTPUT_OF_POOLING * prod(image) + TAP * _taps(call))
    if call.primitive == "reduction":
        reduced = {axis % len(shape) for axis in call.options["axes"]}
        outputs = prod(size for axis, size in enumerate(shape) if axis not in reduced)
        return OUTPUT_OF_REDUCTION * outputs + DIMENSION * len(shape) * prod(shape)
    return PAIR * prod(shape) if call.primitive == "binary" else 0.0


def by_pixel(call: OperatorCall, form: OperatorForm) -> bool:
    """Whether a kernel is called for each pixel of greatest bytes, which it compares and chooses among
    (`compute_max_step` of jit_uni_i8i8_pooling.cpp).
    """
    return form.name == "jit_int" and str(call.options["algorithm"]) == "max" and call.dst in ("u8", "s8")


def _taps(call: OperatorCall) -> int:
    """Taps of all outputs of a plane that fall on the image."""
    options, sizes = call.options, call.shapes[0][2:]
    axes = zip(sizes, options["out"], options["kernel"], options["strides"], options["dilation"], strict=True)
    return prod(
        sum(0 <= i * stride - before + tap * step < size for i in range(out) for tap in range(kernel))
        for (size, out, kernel, stride, step), before in zip(axes, options["padding"], strict=False)
    )
