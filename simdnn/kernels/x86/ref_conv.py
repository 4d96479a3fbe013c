"""oneDNN's reference convolution of floats (`ref:any`): one chain; padding is skipped.

source and weights to f32, the source with zeros around it
for each image, group, vector of channels, plane, line, column:     parallel
    for each input channel, kernel plane, kernel row, kernel column: sum += src * weights (two roundings)
    bias, relu (epilogue.py)

Channels come last where the source has them side by side, as it has where the library chooses its layout, and a group
has more of them than the kernel has columns. Sources of f8 were recorded in nchw, where channels always come first.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from isa_models.readings.arrays import Array
from isa_models.readings.transposed_copy import in_order
from simdnn.kernels.common.code import Code, along, loop, nest, op, pieces
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.kernel import Kernel
from simdnn.kernels.common.narrow_floats import is_narrow
from simdnn.kernels.common.pack import filled, inputs_of
from simdnn.kernels.common.problems import ConvProblem, Depth
from simdnn.kernels.x86.code import Unit, broadcast32, load32, store32, zero
from simdnn.kernels.x86.constants import Constants
from simdnn.kernels.x86.epilogue import Plan, TileSums, finish_tile
from simdnn.kernels.x86.narrow import load
from simdnn.program.check import verify
from simdnn.program.records import SOURCE, WEIGHTS, Affine, Program, Tensor


class RefConv:
    """The generator for one problem whose destination is no narrow float."""

    def __init__(self, name: str, problem: ConvProblem, unit: Unit) -> None:
        self.name, self.problem, self.unit = name, problem, unit
        p = problem
        self.words = Constants(unit)
        self.plan = Plan(p.epilogue, integer=False, reference=True)
        self.ic, self.oc = p.ic // p.groups, p.oc // p.groups
        self.columns = -(-self.oc // unit.lanes) * unit.lanes  # of a group, filled up to whole vectors
        top, left, bottom, right = p.padding
        self.height, self.width = p.ih + top + bottom, p.iw + left + right
        self.deep = p.depth or Depth(1, 1)
        self.image = (self.deep.i + self.deep.front + self.deep.back) * self.height * self.width  # pixels, padded

    @cached_property
    def program(self) -> Program:
        p = self.problem
        code = [*self.stage("src", "wide", p.src, self.size), *self.stage("wei", "wide_wei", p.wei, self.taps)]
        for count, first, live in pieces("j", self.oc, self.unit.lanes):
            code += self.nest(loop("j", count, self.vector(first, live), parallel=True))
        return verify(Program(f"{self.name} {p}", self.unit.isa, tuple(self.tensors()), tuple(code)))

    @property
    def size(self) -> int:
        """Elements of the padded source."""
        return self.problem.mb * self.problem.ic * self.image

    @property
    def taps(self) -> int:
        """Weights, filled up to whole vectors of channels."""
        p = self.problem
        return p.groups * self.ic * p.tap_rows * p.kw * self.columns

    @property
    def outputs(self) -> int:
        p = self.problem
        return p.mb * p.od * p.oh * p.ow * p.oc

    def tensors(self) -> list[Tensor]:
        p = self.problem
        inside = self.padded(np.full((*([p.depth.i] if p.depth else []), p.ih, p.iw), 0xFFFFFFFF, np.uint32))
        return [
            Tensor("src", _stored(p.src), self.size, role=SOURCE),
            Tensor("wei", _stored(p.wei), self.taps, role=WEIGHTS),
            Tensor("wide", "f32", self.size, "scratch"),
            Tensor("wide_wei", "f32", self.taps, "scratch"),
            *([Tensor.constant("inside", "u32", inside.tobytes())] if p.padded else []),
            *self.words.tensors(),
            *self.plan.tensors(self.unit, p.groups * self.columns, 1, self.outputs),
            Tensor("dst", p.epilogue.dst, self.outputs, "output"),
        ]

    def stage(self, name: str, to: str, dtype: str, size: int) -> Code:
        """Stored elements as f32."""
        unit = self.unit

        def step(at: Affine, lanes: int) -> Code:
            value = unit.reg("x", "f32")
            return [*load(self.words, "x", name, dtype, at, lanes), store32(unit, to, at, value, lanes)]

        return along(size, unit.lanes, step, parallel=True, tail="tail")

    def nest(self, body: Code) -> Code:
        """All outputs of a vector of channels."""
        p = self.problem
        planes = [("d", p.od)] if p.depth else []
        return nest([("n", p.mb), ("g", p.groups), *planes, ("y", p.oh), ("x", p.ow)], body, parallel=True)

    def vector(self, first: Affine, live: int) -> Code:
        """One pixel's outputs in one vector of channels."""
        p, unit, deep = self.problem, self.unit, self.deep
        n, g, y, x, c, i, k = (Affine.var(v) for v in ("n", "g", "y", "x", "c", "i", "k"))
        d, z = (Affine.var("d"), Affine.var("z")) if p.depth else (Affine(), Affine())
        pixel = (y * p.strides[0] + i * p.dilation[0]) * self.width + x * p.strides[1] + k * p.dilation[1]
        pixel = pixel + (d * deep.stride + z * deep.dilation) * (self.height * self.width)
        source = (n * p.ic + g * self.ic + c) * self.image + pixel
        tap = ((((g * self.ic + c) * deep.k + z) * p.kh + i) * p.kw + k) * self.columns + first
        total, a, w = (unit.reg(name, "f32") for name in ("total", "a", "w"))
        body: Code = [broadcast32(a, "wide", source), load32(unit, w, "wide_wei", tap, unit.lanes)]
        body.append(op("vmulps", w, a, w))
        if p.padded:  # infinite weights times the zeros around the image are nothing
            inside, product = unit.reg("m"), w.as_("u32")
            body += [broadcast32(inside, "inside", pixel), op("vpand", product, product, inside)]
        body.append(op("vaddps", total, total, w))
        kernel = [*([("z", deep.k)] if p.depth else []), ("i", p.kh), ("k", p.kw)]
        channels = [("c", self.ic)]
        at = p.layouts  # the channels of a pixel lie beside each other, and so do the columns of weights
        beside = at.src in ("any", "last", "brought") and at.wei in ("any", "rows")
        last = self.ic > p.kw and beside and not is_narrow(p.src)
        sums = nest([*kernel, *channels] if last else [*channels, *kernel], body)
        row = (((n * p.od + d) * p.oh + y) * p.ow + x) * p.oc + g * self.oc + first
        tile = TileSums(unit, [[total]], [live], [row], g * self.columns + first, [row])
        return [zero(total), *sums, *finish_tile(self.plan, tile)]

    # -- arrays ---------------------------------------------------------------------------------------------------
    def kernel(self) -> Kernel:
        """Products in f32."""
        return Kernel(self.name, self.program, self.prepare, self.finish, "f32")

    def prepare(self, src: Array, weights: Array, p: Parameters) -> dict[str, Array]:
        """The program's inputs: the source with its padding, weights with output channels innermost."""
        problem = self.problem

        def by_channel(values: Array) -> Array:
            return filled(values.reshape(problem.groups, self.oc), self.columns).reshape(-1)

        codes = _codes(weights).reshape(problem.groups, self.oc, self.ic, problem.tap_rows, problem.kw)
        wide = filled(codes.transpose(0, 2, 3, 4, 1), self.columns)
        inputs: dict[str, Array] = {
            "src": self.padded(_codes(src)).reshape(-1),
            "wei": wide.reshape(-1),
            **self.plan.inputs(p, by_channel),
        }
        return inputs_of(self.program, inputs)

    def padded(self, pixels: Array) -> Array:
        """Images, their spatial dimensions last, with zeros around them."""
        p, deep = self.problem, self.deep
        top, left, bottom, right = p.padding
        around = [(deep.front, deep.back), (top, bottom), (left, right)]
        around = around if p.depth else around[1:]
        return np.pad(pixels, [(0, 0)] * (pixels.ndim - len(around)) + around)

    def finish(self, outputs: Mapping[str, Array]) -> Array:
        """Channels last, as nchw."""
        p = self.problem
        planes = (p.od,) if p.depth else ()
        return in_order(np.moveaxis(outputs["dst"].reshape(p.mb, *planes, p.oh, p.ow, p.oc), -1, 1))


def _stored(dtype: str) -> str:
    """The type of a tensor of elements; floats of a byte are codes."""
    return "u8" if is_narrow(dtype) else dtype


def _codes(values: Array) -> Array:
    """An array as its tensor has it."""
    return values.view(np.uint8) if values.itemsize == 1 else values
