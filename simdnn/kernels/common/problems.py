"""The problems that a kernel is asked to compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.batch import Batch
from simdnn.kernels.common.epilogue import Decompression, Epilogue, GroupScales, ZeroPoints
from simdnn.kernels.common.layouts import ANY_LAYOUTS, Layouts
from simdnn.kernels.common.narrow_floats import Narrow
from simdnn.kernels.common.windows import window_count

#: marks a field of a problem that kernels and libraries know, and that no user gave
INNER: Mapping[str, bool] = {"inner": True}


@dataclass(frozen=True)
class MatmulProblem:
    """dst (m, n) = src (m, k) x weights (k, n), or a `batch` of such products; types by oneDNN's names."""

    m: int
    n: int
    k: int
    src: str
    wei: str
    epilogue: Epilogue
    wei_tag: str = "any"  # any | ab (plain) | ba (k contiguous)
    decompression: Decompression | None = None
    group_scales: GroupScales | None = None
    # integers that oneDNN leaves to its reference implementation, which is exact
    reference: bool = field(default=False, metadata=INNER)
    zero_points: ZeroPoints | None = None
    batch: Batch = Batch()
    # common zero points are numbers of s8 and not all 0, with which a library may go another way
    moves_in_s8: bool = field(default=False, metadata=INNER)
    narrow: Narrow | None = field(default=None, kw_only=True)  # of products with floats of at most a byte
    # products after which a partial sum joins one in f32; 0: the row's
    promote: int = field(default=0, kw_only=True, metadata=INNER)
    # the library that tiles of registers are cut as; "": as here
    tiles: str = field(default="", kw_only=True, metadata=INNER)
    blocks: str = field(default="", kw_only=True)  # weights are stored in blocks: a name of `isa_models.block_formats`
    # dimensions of the problem that a library is asked
    dims: int = field(default=2, kw_only=True, repr=False, metadata=INNER)
    # who of a library takes second operands and sizes of run time
    left_to: str = field(default="", kw_only=True, repr=False, metadata=INNER)
    # which a library's choice goes by
    layouts: Layouts = field(default=ANY_LAYOUTS, kw_only=True, repr=False, metadata=INNER)

    @property
    def macs(self) -> int:
        return self.m * self.n * self.k * self.batch.count

    def matrix(self, outputs: Mapping[str, Array]) -> Array:
        """dst (m, n), as a program leaves it in rows."""
        return outputs["dst"].reshape(self.m, self.n)

    @property
    def form(self) -> MatmulProblem:
        """The problem of size one with the same types, layouts and parameters."""
        return replace(self, m=1, n=1, k=1, batch=Batch())

    @property
    def scale_period(self) -> int:
        """How many k have all their scales in common."""
        return min(self.group_scales.lengths(self.k)) if self.group_scales else self.k


@dataclass(frozen=True)
class Depth:
    """The third spatial dimension of a convolution: planes of the image, and of the kernel."""

    i: int
    k: int
    stride: int = 1
    dilation: int = 1  # 1: dense taps
    front: int = 0  # padding ahead of the first plane, and behind the last
    back: int = 0

    @property
    def o(self) -> int:
        return window_count(self.i, self.k, self.stride, self.dilation, self.front + self.back)

    @property
    def pointwise(self) -> bool:
        """Whether each plane is a convolution of its own."""
        return (self.k, self.stride, self.front, self.back) == (1, 1, 0, 0)


class SpatialAxis(NamedTuple):
    """One spatial dimension of a convolution: pixels of the image, taps of the kernel, output pixels, padding."""

    i: int
    k: int
    o: int
    stride: int
    dilation: int
    before: int
    behind: int

    @property
    def reach(self) -> int:
        """Pixels from the first tap to the last."""
        return (self.k - 1) * self.dilation + 1


@dataclass(frozen=True)
class ConvProblem:
    """Forward convolution: src (mb, ic, ih, iw), weights (oc, ic / groups, kh, kw), dst (mb, oc, oh, ow).

    With a `depth`, which stands in front of the height: src (mb, ic, id, ih, iw) and so on.
    """

    mb: int
    ic: int
    ih: int
    iw: int
    oc: int
    kh: int
    kw: int
    src: str
    wei: str
    epilogue: Epilogue
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)  # top, left, bottom, right
    dilation: tuple[int, int] = (1, 1)  # 1: dense taps (oneDNN writes 0)
    groups: int = 1
    wei_tag: str = "any"  # any | oihw (plain; goihw with groups)
    # products after which a partial sum joins one in f32; 0: the row's
    promote: int = field(default=0, kw_only=True, metadata=INNER)
    depth: Depth | None = field(default=None, kw_only=True)
    # the library as whose kernel the clock sees it; "": as here
    tiles: str = field(default="", kw_only=True, metadata=INNER)
    # bytes a core of the machine's first two caches, where that library's blocks go by them
    caches: tuple[int, int] = field(default=(0, 0), kw_only=True, metadata=INNER)
    # the type of weights that this library's kernel makes f32 of as it loads them; "": that of `wei`
    read: str = field(default="", kw_only=True, metadata=INNER)
    line: bool = field(default=False, kw_only=True)  # of one spatial dimension, written as an image of one row
    layouts: Layouts = field(default=ANY_LAYOUTS, kw_only=True, metadata=INNER)  # which a library's choice goes by
    # of a transposed convolution, whose turned taps a library may not make channels of
    turned: bool = field(default=False, kw_only=True, metadata=INNER)

    @property
    def od(self) -> int:
        """Planes of an output image; 1 without a depth."""
        return self.depth.o if self.depth else 1

    @property
    def padded(self) -> bool:
        """Whether any tap falls beside the image."""
        return any(self.padding) or self.depth is not None and (self.depth.front, self.depth.back) != (0, 0)

    @property
    def axes(self) -> tuple[SpatialAxis, ...]:
        """The two or three spatial dimensions, planes ahead of rows and columns."""
        d, (top, left, bottom, right), (s, t), (e, f) = self.depth, self.padding, self.strides, self.dilation
        planes = (SpatialAxis(d.i, d.k, d.o, d.stride, d.dilation, d.front, d.back),) if d else ()
        rows = SpatialAxis(self.ih, self.kh, self.oh, s, e, top, bottom)
        return (*planes, rows, SpatialAxis(self.iw, self.kw, self.ow, t, f, left, right))

    @property
    def tap_rows(self) -> int:
        """Rows of the kernel, those of all its planes."""
        return self.kh * (self.depth.k if self.depth else 1)

    @property
    def oh(self) -> int:
        top, _, bottom, _ = self.padding
        return window_count(self.ih, self.kh, self.strides[0], self.dilation[0], top + bottom)

    @property
    def ow(self) -> int:
        _, left, _, right = self.padding
        return window_count(self.iw, self.kw, self.strides[1], self.dilation[1], left + right)

    @property
    def form(self) -> ConvProblem:
        """The problem of one channel with the same types, layouts and parameters."""
        return replace(self, mb=1, ic=1, ih=1, iw=1, oc=1, kh=1, kw=1, padding=(0, 0, 0, 0), groups=1)

    @property
    def depthwise(self) -> bool:
        """Whether every channel is a group of its own."""
        return 1 < self.groups == self.ic == self.oc

    @property
    def macs(self) -> int:
        outputs = self.mb * self.oc * self.od * self.oh * self.ow
        return outputs * (self.ic // self.groups) * self.tap_rows * self.kw


Problem = MatmulProblem | ConvProblem


def of_integers(problem: Problem) -> bool:
    """Whether source and weights are integers."""
    return not (fmt(problem.src).is_float or fmt(problem.wei).is_float)
