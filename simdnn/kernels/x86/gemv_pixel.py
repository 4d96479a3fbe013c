"""A convolution with one output pixel an image, as oneDNN's GEMM has it: a vector of the window's elements by the
matrix of a group's weights (docs/numerics.md, rule 12).

    for each image, plane and group:  windows are copied to lines, channels outside of planes, rows and columns
    for each line:                    dot products along K with the weights of each output channel, as `Gemv` forms them
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from isa_models.readings.arrays import Array
from isa_models.readings.transposed_copy import in_order
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.kernel import Apart, Kernel
from simdnn.kernels.common.pack import filled, inputs_of
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem
from simdnn.kernels.x86.code import Unit
from simdnn.kernels.x86.columns import Columns
from simdnn.kernels.x86.epilogue import Plan
from simdnn.kernels.x86.gemv import SUMS, Gemv, VectorLines
from simdnn.kernels.x86.source import Source
from simdnn.program.check import verify
from simdnn.program.records import WEIGHTS, Program, Tensor


class PixelGemv:
    """The generator for one convolution of floats whose planes have a single output pixel, in a `form` of `Gemv`; what
    follows sums of f32 is as in a reference implementation.
    """

    def __init__(self, name: str, problem: ConvProblem, unit: Unit, form: str) -> None:
        p, images = problem, problem.mb * problem.od
        self.name, self.problem, self.unit = name, problem, unit
        self.k = p.ic // p.groups * p.tap_rows * p.kw
        product = MatmulProblem(images * p.groups, p.oc // p.groups, self.k, p.src, p.wei, p.epilogue)
        held = p.epilogue.dst == "f32" and Plan(p.epilogue, integer=False).sums_first
        lines = VectorLines(images, p.groups, "columns", ("sum",) * held, reference=p.src == "f32")
        self.dots = Gemv(name, product, unit, plain=False, form=form, lines=lines)

    @cached_property
    def windows(self) -> Columns:
        """The copy of the windows, each a line."""
        p, ic = self.problem, self.problem.ic // self.problem.groups
        source = Source(p.src, p.src, p.mb, p.ih, p.iw, p.groups, ic, ic, p.padding, depth=p.depth)
        return Columns.of(source, p, part=0, depth=1)

    @cached_property
    def program(self) -> Program:
        p, windows, dots = self.problem, self.windows, self.dots
        outputs = p.mb * p.od * p.oc
        tensors = [
            *windows.source.tensors(),
            windows.tensor(),
            Tensor("matrix", p.wei, p.oc * self.k, role=WEIGHTS),
            Tensor(SUMS, "f32", outputs, "scratch"),
            *dots.plan.tensors(self.unit, p.groups * dots.channels, 1, outputs),
            Tensor("dst", p.epilogue.dst, outputs, "output"),
        ]
        code = windows.source.stage(self.unit) + windows.stage(self.unit) + dots.along_k() + dots.epilogue()
        return verify(Program(f"{self.name} {p}", self.unit.isa, tuple(tensors), tuple(code)))

    # -- arrays ---------------------------------------------------------------------------------------------------
    def kernel(self) -> Kernel:
        ways = Apart(self.source, self.beside), self.finish
        return Kernel(self.name, self.program, *ways, self.problem.src, ("matrix",))

    def source(self, src: Array) -> dict[str, Array]:
        """The source's tensor: rows of channels."""
        return {"src": in_order(np.moveaxis(src, 1, -1)).reshape(-1)}

    def beside(self, weights: Array, p: Parameters) -> dict[str, Array]:
        """The program's other inputs; goihw weights lie along K as they are."""
        matrix = np.ascontiguousarray(weights).reshape(-1)
        return inputs_of(self.program, {"matrix": matrix, **self.dots.plan.inputs(p, self.by_channel)})

    def by_channel(self, values: Array) -> Array:
        """A parameter by channel, each group's in whole registers."""
        return filled(values.reshape(self.problem.groups, -1), self.dots.channels).reshape(-1)

    def finish(self, outputs: Mapping[str, Array]) -> Array:
        """dst in nchw, planes ahead of rows."""
        p = self.problem
        planes = (p.od,) if p.depth else ()
        dst = outputs["dst"].reshape(p.mb, *planes, 1, 1, p.oc)
        return in_order(np.moveaxis(dst, -1, 1))
