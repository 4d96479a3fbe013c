"""How sums of products become results: the steps behind them, parameters that change along K, run-time arguments."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from isa_models.readings.arrays import Array
from simdnn.kernels.common.params import Param
from simdnn.kernels.common.postops import RELU, PostOp


@dataclass(frozen=True)
class Epilogue:
    """The steps of an accumulator on its way to the destination, in this order."""

    dst: str = "s32"  # s32 f32 bf16 f16 s8 u8
    zp_src: bool = False  # a source zero point, s32
    zp_wei: bool = False  # a common weights zero point, s32
    src_scale: bool = False  # a common f32 scale
    wei_scale: Param | None = None  # a common one, or one per output channel
    bias: bool = False  # f32, one per output channel
    post_ops: tuple[PostOp, ...] = ()
    dst_scale: bool = False  # a common f32 scale: the result is divided by it
    dst_zero_point: bool = False  # an s32 zero point, added last
    by_channel: tuple[str, ...] = ()  # arguments of a convolution whose zero points are one a channel: src, dst
    bias_stored: str = field(default="f32", repr=False)  # its type before it became f32, which a library may go by
    bias_in_sums: bool = False  # it is s32, and added before anything is scaled
    bias_fused: bool = False  # it is added to scaled sums with one rounding
    rounds_first: bool = False  # the destination's zero point is added to rounded integers, not to what is rounded

    flushes: bool = False  # denormals become zeros on their way to bf16, where integer arithmetic rounds to it, too
    #: an s32 sum is rounded to f32 even towards s32 ("sums"), where terms of zero points are added to it ("terms"), or
    #: they and the shift of s8 sources ("all")
    lifted: str = ""

    @property
    def in_float(self) -> bool:
        """Whether an s32 accumulator goes through f32 at all."""
        return self.dst != "s32" or bool(
            any([post_op != RELU for post_op in self.post_ops])
            or self.src_scale
            or self.wei_scale is not None
            or self.bias
            or self.dst_scale
            or self.dst_zero_point
            or self.lifted
        )

    @property
    def late_terms(self) -> bool:
        """Whether terms of zero points are added to sums in f32."""
        return self.lifted in ("terms", "all")


@dataclass(frozen=True)
class GroupScales:
    """Scales of an integer matmul that change along K, of the source and of the weights, as far as sums of groups are
    scaled by them.

    Each group's s32 sum is scaled in f32 by itself; the groups are added up in order.
    """

    src: Param | None = None  # Parameters.src_group_scale is (M, K / its length)
    wei: Param | None = None  # Parameters.wei_scale is (K / its length, N)
    weights_first: bool = True  # (sum * weights scale) * source scale, as oneDNN's brgemm; else the other way round
    reference: bool = False  # what oneDNN leaves to its reference implementation, which is exact
    merged: bool = False  # the weights' scales come multiplied by the source's common one, as oneDNN has them on tiles

    def lengths(self, k: int) -> list[int]:
        """How many of `k` share a scale of the source, and of the weights, where sums of groups are scaled by it."""
        return [param.length(k) for param in (self.src, self.wei) if param]

    def __str__(self) -> str:
        given = [param for param in (self.src, self.wei) if param]
        return " ".join(f"{p.argument} {f'by {p.group}' if p.group else p.granularity}" for p in given)


@dataclass(frozen=True)
class Decompression:
    """Integer weights that are brought to floating point before the products: (w - zero point) * scale."""

    computes: tuple[str, ...]  # the types that products may be formed in, f32 or bf16; a kernel has one of its own
    scale: Param | None = None
    zero_point: Param | None = None
    reference: bool = False  # as oneDNN's reference does it: multiply, then add, scale always in the weights
    merged: bool = False  # a scale of the sums comes multiplied by the source's, as oneDNN has it for f8 on tiles
    by: str = ""  # how narrow floats become wider ones where there are two ways: "table" | "arithmetic"; "": as usual


#: why sums of the source that are read cannot be had
NO_REDUCTIONS = "precomputed_reductions={'src': R} are missing; 'in_kernel' finds them itself"


@dataclass(frozen=True)
class ZeroPoints:
    """Zero points of an integer matmul that change along K or by column, and how their part of the sum is found."""

    group: int  # how many k have all their zero points (and scales) in common, and one reduction of the source
    wei: Param | None = None  # Parameters.wei_zero_points is (K / any multiple, N)
    src: Param | None = None  # Parameters.src_zero_points is (M, K / any multiple)
    reductions: bool = False  # Parameters.reductions, (M, K / group), are the user's
    strategy: str = ""  # direct | in_kernel | precomputed | bias | upconvert
    wei_range: tuple[int, int] = (0, 0)  # the least and the largest of the weights', where a kernel asks for it
    src_range: tuple[int, int] = (0, 0)
    reference: bool = True  # what follows the sums is as oneDNN's reference has it

    def splits(self, k: int) -> int:
        """How many k oneDNN's reference adds up before it scales a sum: groups of single k do not split it."""
        lengths = [param.length(k) for param in (self.wei, self.src) if param]
        return min([n for n in (*lengths, self.group if self.reductions else k) if n > 1], default=k)

    def __str__(self) -> str:
        given = " reductions given" if self.reductions else ""
        sides = "".join(f"{param.argument} " for param in (self.src, self.wei) if param)
        return f"{sides}by {self.group}{given} {self.strategy}".strip()


@dataclass(frozen=True)
class Parameters:
    """The run-time arguments that an `Epilogue` announces. Scales are f32, zero points s32.

    With a `Decompression`, `wei_scale` is (1,), (N,), (K / group, N) or (K / group, 1), and so is
    `wei_zero_points`.
    """

    bias: npt.NDArray[np.float32 | np.int32] | None = None  # (N,), s32 where it is in the sums
    src_scale: float = 1.0
    wei_scale: npt.NDArray[np.float32] | None = None  # (1,) or (N,)
    dst_scale: float = 1.0
    zp_src: int | Array = 0  # or one an input channel
    zp_wei: int = 0
    dst_zero_point: int | Array = 0  # or one an output channel
    wei_zero_points: Array | None = None  # of compressed weights, s32
    operands: tuple[Array, ...] = ()  # f32, one for each post-operation: sum's scale, what add adds; else empty
    previous: Array | None = None  # what the destination held before, which sum reads
    src_group_scale: Array | None = None  # f32 (M, K / group)
    src_zero_points: Array | None = None  # with `ZeroPoints`, s32 (M, groups)
    reductions: Array | None = None  # s32 (M, groups)
