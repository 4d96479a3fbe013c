"""A convolution as the GEMM of its output pixels (implicit GEMM): a row of A is a pixel, its columns taps and channels.

`prepare` writes that view of the source out; a GPU's kernel computes its addresses instead, so its memory holds each
element once (`view_copies` says how often the view does). Each group of a grouped convolution is a product of its own,
all of them in one kernel: the `batch` of its problem.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import prod

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from isa_models.readings.transposed_copy import in_order
from simdnn.kernels.common.batch import Batch, joined
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.kernel import Finish, Kernel
from simdnn.kernels.common.postops import PostOp
from simdnn.kernels.common.problems import ConvProblem
from simdnn.program.records import Program


def view_copies(p: ConvProblem, program: Program) -> dict[str, float]:
    """How many bytes of the view there are for each of the source."""
    form, size = program.tensor["src"], p.mb * p.ic * prod(axis.i for axis in p.axes)
    return {"src": max(1.0, form.nbytes * 8 / (size * fmt(p.src).bits))}


def as_convolution(kernel: Kernel, p: ConvProblem) -> Kernel:
    """The kernel of the product, taking nchw sources and oihw weights. Pixels beyond the edge hold the zero point."""
    name = kernel.name.replace("gemm:", "conv:")
    program = kernel.program.renamed(f"{name} {p}")
    prepare, finish = partial(_prepared, kernel, p), partial(_finished, kernel.finish, p)
    return replace(kernel, name=name, program=program, prepare=prepare, finish=finish, timed=None)


def _prepared(kernel: Kernel, p: ConvProblem, src: Array, weights: Array, given: Parameters) -> dict[str, Array]:
    """Inputs of the products of all groups."""
    g, n = p.groups, p.oc // p.groups
    points = given.src_zero_points
    fill = 0 if points is None else int(points.reshape(-1)[0])
    taps = weights.reshape(g, n, p.ic // g, -1).transpose(0, 3, 2, 1).reshape(g, -1, n)
    parts = [
        kernel.prepare(rows, taps[group], _of_group(given, p, slice(group * n, group * n + n)))
        for group, rows in enumerate(pixels(p, src, fill))
    ]
    return joined(parts, Batch.groups(g), kernel.program)


def _finished(finish: Finish, p: ConvProblem, outputs: Mapping[str, Array]) -> Array:
    """nchw, or ncdhw, of the products of all groups."""
    matrices = [finish({"dst": part}) for part in outputs["dst"].reshape(p.groups, -1)]
    matrix = np.concatenate(matrices, axis=1)
    image = tuple(axis.o for axis in p.axes)
    return in_order(np.moveaxis(matrix.reshape(p.mb, *image, p.oc), -1, 1))


def _of_group(given: Parameters, p: ConvProblem, columns: slice) -> Parameters:
    """The parameters of some output channels, which their last axis runs over."""

    def part(values: Array | None) -> Array | None:
        return values if values is None or values.size == 1 else values[..., columns]

    def outputs(values: Array) -> Array:
        return np.ascontiguousarray(values.reshape(-1, p.oc)[:, columns])

    def operand(post_op: PostOp, values: Array) -> Array:
        return outputs(values) if post_op.per_output else values[columns] if post_op.per_channel else values

    table = given.wei_zero_points
    points = table if table is None or table.shape[1] == 1 else table[:, columns]
    return replace(
        given,
        bias=part(given.bias),
        wei_scale=part(given.wei_scale),
        wei_zero_points=points,
        operands=tuple(operand(*pair) for pair in zip(p.epilogue.post_ops, given.operands, strict=False)),
        previous=None if given.previous is None else outputs(given.previous),
    )


def pixels(p: ConvProblem, src: Array, fill: int = 0) -> Array:
    """nchw, or ncdhw, as (groups, output pixels, taps and channels): kd, kh, kw, ic from the outside in."""
    axes = p.axes
    edges = ((0, 0), *((axis.before, axis.behind) for axis in axes), (0, 0))
    last = np.pad(np.moveaxis(src, 1, -1), edges, constant_values=src.dtype.type(fill))
    stored = last.view(f"u{last.itemsize}")  # NumPy knows no views of f8_e5m2 by strides
    windows = sliding_window_view(stored, [axis.reach for axis in axes], tuple(range(1, len(axes) + 1)))
    steps = (slice(None), *(slice(None, None, axis.stride) for axis in axes), slice(None))
    taps = windows[(*steps, *(slice(None, None, axis.dilation) for axis in axes))]
    grouped = np.moveaxis(taps.reshape(-1, p.groups, p.ic // p.groups, p.tap_rows * p.kw).view(src.dtype), 1, 0)
    return grouped.swapaxes(2, 3).reshape(p.groups, p.mb * p.od * p.oh * p.ow, -1)
