"""Where the dot products of a convolution find their source: distances in a tensor, after the taps are folded.

Few input channels leave most of a dot product empty. Taps that lie side by side fill it: the columns of a kernel row
are neighbours in the image as it is ("row"); all taps are neighbours in a copy that stores, for each line of outputs,
the rows of the kernel side by side ("window").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code, loop, nest, op
from simdnn.kernels.common.problems import ConvProblem, Depth
from simdnn.kernels.common.sums import Order
from simdnn.kernels.x86.code import Unit
from simdnn.kernels.x86.columns import Columns, WindowCopy
from simdnn.kernels.x86.dots import Dot
from simdnn.kernels.x86.lines import EdgedSource, TapLines, WindowLines
from simdnn.kernels.x86.runs import RunLines
from simdnn.kernels.x86.source import Source, padded_channels
from simdnn.program.records import Affine, Memory, Tensor


@dataclass(frozen=True)
class Planes:
    """A copy of one group after the other: planes of lines, with `taps` rows of the image side by side in a line.

    Element (n, g, line, x, i, c) is channel c of pixel x of row `line * step + i`.
    """

    source: Source
    lines: int
    step: int
    taps: int
    slack: int  # elements behind the end that the last dot product still loads (against weights of zero)

    @property
    def pixel(self) -> int:
        """Elements from one pixel of a line to the next."""
        return self.taps * self.source.icp

    @property
    def row(self) -> int:
        return self.source.row // self.source.pixel * self.pixel

    @property
    def plane(self) -> int:
        return self.lines * self.row

    @property
    def image(self) -> int:
        return self.source.groups * self.plane

    def tensor(self) -> Tensor:
        return Tensor("planes", self.source.read, self.source.mb * self.image + self.slack, "scratch")

    def stage(self, unit: Unit) -> Code:
        """The channels of one pixel of a group at a time, masked."""
        s, n, g, y, x = self.source, *(Affine.var(v) for v in "ngyx")
        kind = f"u{fmt(s.read).bits}"
        value = unit.reg("m", kind)
        body: Code = []
        for i in range(self.taps):
            stored = n * s.image + (y * self.step + i) * s.row + x * s.pixel + g * s.icp
            copy = n * self.image + g * self.plane + y * self.row + x * self.pixel + i * s.icp
            for c in range(0, s.icp, value.lanes):
                some = min(s.icp - c, value.lanes)
                body.append(op(f"vmovdq{kind}", value, Memory(s.tensor, stored + c, kind, some)))
                body.append(op(f"vmovdq{kind}", Memory("planes", copy + c, kind, some), value))
        body = loop("x", self.row // self.pixel, body)
        return nest([("n", s.mb), ("g", s.groups), ("y", self.lines)], body, parallel=True)


class Copy(Protocol):
    """A copy between the source and the tiles, where taps are folded."""

    def tensor(self) -> Tensor: ...
    def stage(self, unit: Unit) -> Code: ...


@dataclass(frozen=True)
class SourceSteps:
    """The source as the tiles walk over it; distances are in elements of `tensor`."""

    source: Source
    tensor: str
    image: int
    line: int  # from one line of outputs to the next
    column: int  # from one output of a line to the next
    group: int
    down: int  # from one row of the kernel to the next
    across: int
    kh: int  # taps that are left as such
    kw: int
    ic: int  # channels of a tap, padded to whole dot products
    origin: int = 0  # the first tap of the first output
    planes: Copy | None = None
    plane: int = 0  # from one plane of outputs to the next
    behind: int = 0  # from one plane of the kernel to the next
    kd: int = 1

    @property
    def weights(self) -> int:
        """Weights of one output channel, padded."""
        return self.kd * self.kh * self.kw * self.ic

    def tensors(self) -> list[Tensor]:
        return [*self.source.tensors(), *([self.planes.tensor()] if self.planes else [])]

    def stage(self, unit: Unit) -> Code:
        return self.source.stage(unit) + (self.planes.stage(unit) if self.planes else [])


def source_steps(c: ConvProblem, unit: Unit, dot: Dot, order: Order, split: bool) -> SourceSteps:
    """`split`: a matmul as two taps that are parts of K, each padded by itself."""
    read = c.src if dot.unsigned else dot.src
    rounds = dot.rounds if c.src == "f32" else ""
    if order.fold in ("", "filled"):
        return _of_taps(c, unit, dot, order, split, read, rounds)
    ic = c.ic // c.groups
    if order.fold == "line":
        edged = EdgedSource(c.src, read, c.mb, c.ih, c.iw, c.groups, ic, ic, c.padding)
        return _of_windows(edged, "lines", WindowLines(edged, c, dot.depth))
    s = Source(c.src, read, c.mb, c.ih, c.iw, c.groups, ic, ic, c.padding, rounds, c.depth)
    if order.fold == "gemm":
        return _of_windows(s, "columns", Columns.of(s, c, order.block, dot.whole or dot.depth))
    if order.fold == "steps":
        return _of_windows(s, "lines", RunLines(s, c, order.together, order.blocks, dot.whole))
    return _of_neighbours(s, c, unit, order, dot.whole or dot.depth, bool(dot.whole))


def _of_taps(c: ConvProblem, unit: Unit, dot: Dot, order: Order, split: bool, read: str, rounds: str) -> SourceSteps:
    """Taps as such: a dot product takes channels of one tap."""
    ic = c.ic // c.groups
    blocks, ic = (ic // order.block, order.block) if order.fold else (1, ic)
    icp = padded_channels(unit, dot, c.src, ic)
    icp = -(-icp // order.block) * order.block if order.block and not order.fold else icp
    groups = 1 if split else c.groups * blocks
    s = Source(c.src, read, c.mb, c.ih, c.iw, groups, ic, icp, c.padding, rounds, c.depth)
    depth = c.depth or Depth(1, 1)
    return SourceSteps(
        s,
        s.tensor,
        s.image,
        c.strides[0] * s.row,
        c.strides[1] * s.pixel,
        icp * blocks,
        c.dilation[0] * s.row,
        s.pixel if split else c.dilation[1] * s.pixel,
        c.kh,
        c.kw,
        icp * blocks,
        plane=depth.stride * s.plane,
        behind=depth.dilation * s.plane,
        kd=depth.k,
    )


def _of_windows(s: Source, tensor: str, w: WindowCopy) -> SourceSteps:
    """A line for each window and group, in a copy: a dot product takes any of a window's elements."""
    return SourceSteps(s, tensor, w.image, w.row, w.pixel, w.line, 0, 0, 1, 1, w.line, planes=w, plane=w.plane)


def _of_neighbours(s: Source, c: ConvProblem, unit: Unit, order: Order, step: int, whole: bool) -> SourceSteps:
    """Columns of a kernel row ("row"), or all taps ("window"), side by side: a dot product takes `step` elements of
    them, `whole` ones where none may be left out.
    """
    in_row = order.fold == "row"
    columns = order.together or c.kw
    k = s.ic * (columns if in_row else c.kw * c.kh)
    padded = -(-k // step) * step
    if c.depth or whole and k < step and fmt(s.read).is_float:  # what lies beside, times zero, may be NaN
        return _in_lines(s, c, columns if in_row else 0, step)
    if in_row and c.groups == 1:
        return _row_in_place(c, unit, s.read, columns, padded, s.rounds)
    if in_row:
        p = Planes(s, c.ih + c.padding[0] + c.padding[2], 1, 1, padded - k)
        line, down, kh = c.strides[0] * p.row, c.dilation[0] * p.row, c.kh
    else:
        p = Planes(s, c.oh, c.strides[0], c.kh, padded - k)
        line, down, kh = p.row, 0, 1
    return SourceSteps(s, "planes", p.image, line, c.strides[1] * p.pixel, p.plane, down, 0, kh, 1, padded, planes=p)


def _in_lines(s: Source, c: ConvProblem, columns: int, step: int) -> SourceSteps:
    """Lines of `columns` of a kernel row, 0: of all taps of a plane, copied and filled up."""
    lines = TapLines(s, c, columns, step)
    kd, kh, kw = ((c.depth.k if c.depth else 1), c.kh, c.kw // columns) if columns else (1, 1, 1)
    down = kw * lines.part
    return SourceSteps(
        s,
        "lines",
        lines.image,
        lines.row,
        lines.pixel,
        lines.line,
        down,
        lines.part,
        kh,
        kw,
        lines.part,
        planes=lines,
        plane=lines.plane,
        behind=kh * down,
        kd=kd,
    )


def _row_in_place(c: ConvProblem, unit: Unit, read: str, columns: int, padded: int, rounds: str) -> SourceSteps:
    """Rows wide enough that the last dot product stays inside; without masks, edges at whole moves of four elements."""
    top, left, bottom, right = c.padding
    step = 1 if unit.masks else 4
    edge = -(-left // step) * step
    last = (c.ow - 1) * c.strides[1] + c.kw - columns  # the column that the last dot product begins at
    needed = max(left + c.iw + right, last + -(-padded // c.ic)) - left
    wide = edge + needed
    behind = -(-wide // step) * step - edge - c.iw
    s = Source(c.src, read, c.mb, c.ih, c.iw, 1, c.ic, c.ic, (top, edge, bottom, behind), rounds)
    return SourceSteps(
        s,
        s.tensor,
        s.image,
        c.strides[0] * s.row,
        c.strides[1] * c.ic,
        1,
        c.dilation[0] * s.row,
        columns * c.ic,
        c.kh,
        c.kw // columns,
        padded,
        origin=(edge - left) * c.ic,
    )


def taps_as_channels(order: Order, c: ConvProblem) -> tuple[int, int]:
    """Rows and columns of taps that a fold makes channels of, side by side."""
    return {"row": (1, order.together or c.kw), "window": (c.tap_rows, c.kw)}.get(order.fold, (1, 1))


def fold_weights(weights: Array, order: Order, copy: Copy | None, step: int = 1) -> Array:
    """goihw, or goidhw, weights with the folded taps as channels; `step`: channels of a whole step."""
    if not order.fold:
        return weights
    if isinstance(copy, Columns | RunLines | WindowLines):
        return copy.weights(weights)
    groups, oc, ic, *rows, kw = weights.shape
    if order.fold == "filled":
        apart = weights.reshape(groups, oc, -1, order.block, *rows, kw)
        filled = np.zeros((groups, oc, ic // order.block, -(-order.block // step) * step, *rows, kw), weights.dtype)
        filled[:, :, :, : order.block] = apart
        return filled.reshape(groups, oc, -1, *rows, kw)
    if order.fold == "row":
        columns = order.together or kw
        apart = weights.reshape(*weights.shape[:-1], kw // columns, columns)
        return np.moveaxis(apart, -1, 2).reshape(groups, oc, -1, *rows, kw // columns)
    return weights.transpose(0, 1, 4, 3, 2).reshape(groups, oc, -1, 1, 1)
