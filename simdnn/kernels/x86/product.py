"""A matmul or a convolution as one unit's dot product computes it: its sizes, its source, and the way of arrays.

A matmul is a convolution with one tap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from isa_models.readings.transposed_copy import in_order
from simdnn.kernels.common import pack
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.kernel import Apart
from simdnn.kernels.common.problems import ConvProblem, MatmulProblem, Problem
from simdnn.kernels.common.sums import Options
from simdnn.kernels.x86.blocking import SECOND_LEVEL
from simdnn.kernels.x86.code import Unit
from simdnn.kernels.x86.dots import REFERENCES, Dot
from simdnn.kernels.x86.rounding import ahead
from simdnn.kernels.x86.source_steps import SourceSteps, source_steps
from simdnn.program.records import SCALES, Affine, Program, Tensor

#: what a part of a kernel makes of the user's weights and parameters: some of the program's inputs
Makes = Callable[[Array, Parameters], dict[str, Array]]


class Product:
    """The facts that parts of a kernel share: the problem as a convolution, the unit, the dot product, the source."""

    side_by_side: tuple[int, int] | None = None  # whole tiles of rows and of columns in a library's block, but the last

    def __init__(self, name: str, problem: Problem, unit: Unit, dot: Dot, options: Options) -> None:
        self.name = name
        self.problem = problem
        self.unit = unit
        #: the reference multiplies each product by the source's scale
        e = problem.epilogue
        apart = dot in REFERENCES and (e.src_scale or e.wei_scale)
        self.dot = dot.scaling(e.src_scale, bool(e.wei_scale)) if apart else dot
        self.options = options
        self.conv = as_convolution(problem, options.split_k)
        self.shifted = dot.unsigned and problem.src == "s8"

    @cached_property
    def is_matmul(self) -> bool:
        return isinstance(self.problem, MatmulProblem)

    @cached_property
    def flat(self) -> bool:
        """Whether all pixels of the batch are one run of rows."""
        c = self.conv
        alone = c.depth is None or c.depth.pointwise
        return self.is_matmul or alone and (c.kh, c.kw, c.strides, c.padding) == (1, 1, (1, 1), (0, 0, 0, 0))

    @property
    def k(self) -> int:
        """K of a matmul."""
        assert isinstance(self.problem, MatmulProblem)
        return self.problem.k

    @cached_property
    def ic(self) -> int:
        return self.conv.ic // self.conv.groups

    @cached_property
    def oc(self) -> int:
        return self.conv.oc // self.conv.groups

    @cached_property
    def rows(self) -> int:
        """Rows that tiles are cut from: all pixels, or one line of them."""
        c = self.conv
        return c.mb * c.od * c.oh * c.ow if self.flat else c.ow

    def panel_bytes(self, width: int) -> int:
        """Bytes of the weights of `width` columns as they are multiplied."""
        return self.source_steps.weights * width * fmt(self.dot.wei).bits // 8

    def stored_rows(self, rows: int) -> int:
        """How many of a block's rows are outputs: a library may leave others out."""
        return rows

    @property
    def outputs(self) -> int:
        """Elements of the destination."""
        return self.conv.mb * self.conv.od * self.conv.oh * self.conv.ow * self.conv.oc

    @cached_property
    def source_steps(self) -> SourceSteps:
        return source_steps(self.conv, self.unit, self.dot, self.options.order, bool(self.options.split_k))

    def tensors(self) -> list[Tensor]:
        """Tensors that the dot product reads beside its operands."""
        found = [Tensor("src_scale", "f32", 1, role=SCALES)] if self.dot.scaled else []
        if self.dot.ones:
            found.append(Tensor.constant("ones", "s16", np.ones(2, np.int16).tobytes()))
        if self.shifted:
            found.append(Tensor.constant("shift", "u8", bytes([128] * 4)))
        return found

    # -- between the user's arrays and the program's tensors --------------------------------------------------------
    def inputs(self, program: Program, *parts: Makes, panels_alone: bool = False) -> Apart:
        """The way to the program's inputs: the source, and what the parts make of weights and parameters."""
        return Apart(self.flat_source, partial(_beside, program, parts), panels_alone)

    def flat_source(self, src: Array) -> dict[str, Array]:
        """The source's tensor."""
        return {"src": in_order(self.source(src)).reshape(-1)}

    def source(self, src: Array) -> Array:
        """The source as rows of channels."""
        if self.options.split_k:
            return split_rows(src, self.ic)
        return src if self.is_matmul else src.transpose(0, *range(2, src.ndim), 1)

    def multiplied(self, weights: Array) -> Array:
        """The weights that the dots multiply, as goihw: halved or rounded where they are."""
        c = self.conv
        if self.options.split_k:
            rows = split_rows(weights.T, self.ic)
            weights = rows.reshape(1, c.oc, c.kw, self.ic).transpose(0, 1, 3, 2)[:, :, :, None, :]
        elif self.is_matmul:
            weights = weights.T.reshape(1, c.oc, c.ic, 1, 1)
        else:
            weights = weights.reshape(c.groups, self.oc, self.ic, c.tap_rows, c.kw)
        if self.options.halve:
            weights = pack.halved(weights)
        if weights.dtype == np.float32:  # as the program would; a reorder may have done it
            weights = ahead(weights, self.dot.wei, self.dot.rounds)
        return weights

    def finish(self, outputs: Mapping[str, Array]) -> Array:
        """dst in the user's layout."""
        c = self.conv
        if self.is_matmul:
            return outputs["dst"].reshape(self.rows, c.oc)
        planes = (c.od,) if c.depth else ()
        channels_last = outputs["dst"].reshape(c.mb, *planes, c.oh, c.ow, c.oc)
        return in_order(channels_last.transpose(0, -1, *range(1, channels_last.ndim - 1)))


def _beside(program: Program, parts: Iterable[Makes], weights: Array, parameters: Parameters) -> dict[str, Array]:
    """All inputs of a program but the source."""
    found: dict[str, Array] = {}
    for makes in parts:
        found |= makes(weights, parameters)
    return pack.inputs_of(program, found)


@dataclass(frozen=True)
class PanelBlocks:
    """How the destination is cut into tiles: blocks of rows, and panels of columns, which `layout` tells."""

    rows: list[tuple[int, int, int]]  # (first row, or line where a block has several, height, how many)
    layout: pack.Layout
    second_level: int = SECOND_LEVEL  # bytes of source kept beside the weights
    lines: int = 1  # of outputs in a block
    panel_first: bool = False  # whether a panel meets the blocks of all heights before the next panel does
    near: int = 0  # bytes of weights that a block of rows meets before the next block does; 0: a panel meets all rows
    streamed: bool = False  # whether tiles of weights pass the first cache by

    @cached_property
    def highest(self) -> int:
        """Rows of the highest tile."""
        return max(height for _, height, _ in self.rows)


def panels_of(product: Product, vectors: int) -> pack.Layout:
    """Panels of `vectors` registers, and a narrower last one where that is enough."""
    lanes = product.unit.lanes
    width = vectors * lanes
    tail = -(-(product.oc % width) // lanes) * lanes
    return pack.Layout(product.conv.groups, product.oc, width, tail, product.dot.depth, product.source_steps.ic)


@dataclass(frozen=True)
class Run:
    """Panels of one width: the whole ones, or the narrower last one."""

    count: int
    tensor: str
    number: Affine  # of a panel among them
    first: Affine  # its first column
    width: int
    lanes: tuple[int, ...]  # live lanes of each vector: only the last panel can be part empty


def runs(layout: pack.Layout, lanes: int, var: str) -> list[Run]:
    """The panels of a layout; `var` is the loop over the whole ones."""
    found = []
    for tensor, count, start, width, number in (
        ("wei", layout.full, 0, layout.width, Affine.var(var)),
        ("wei_tail", 1, layout.full * layout.width, layout.tail, Affine()),
    ):
        live = tuple(min(lanes, layout.oc - start - at) for at in range(0, width, lanes))
        if count and width:
            found.append(Run(count, tensor, number, number * width + start, width, live))
    return found


def as_convolution(problem: Problem, split_k: int) -> ConvProblem:
    """A matmul as rows of pixels with one tap; with `split_k`, each tap is a part of K."""
    if isinstance(problem, ConvProblem):
        return problem
    p = problem
    if split_k:
        parts = -(-p.k // split_k)
        return ConvProblem(1, split_k, 1, parts * p.m, p.n, 1, parts, p.src, p.wei, p.epilogue, strides=(1, parts))
    return ConvProblem(1, p.k, 1, p.m, p.n, 1, 1, p.src, p.wei, p.epilogue)


def split_rows(rows: Array, length: int) -> Array:
    """(R, K) padded with zeros to whole parts of K; itself where it has these."""
    missing = -rows.shape[1] % length
    return pack.filled(rows, rows.shape[1] + missing) if missing else rows
