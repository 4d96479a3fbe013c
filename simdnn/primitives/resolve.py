"""Attributes meet a problem: shapes are checked, and what comes out is what kernels read.

Two steps. `Resolved.of` finds, once for each scale and zero point, where it changes (its `Param`; `placed` says it), or
refuses its shape; `groups`, `zero_points` and `decompress` read that. `resolve` turns what kernels here have into
`Epilogue` and `Parameters`, and refuses the rest by name. Parameters of compressed weights are no part of the epilogue:
`decompress` says where they belong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from isa_models import InvalidArgument, Unimplemented
from isa_models.errors import shortly, what_is_allowed
from isa_models.formats import fmt, name_of
from isa_models.readings.arrays import Array
from simdnn.kernels.common.epilogue import Epilogue, Parameters
from simdnn.kernels.common.params import Param
from simdnn.kernels.common.postops import PostOp
from simdnn.primitives import postops
from simdnn.primitives.attr import Attr, Quant
from simdnn.primitives.mathmode import EXACT_INT8, FPMATH
from simdnn.primitives.placed import Shape, Valued, placed
from simdnn.primitives.postops import AppliedPostOp

DESTINATIONS = ("s32", "f32", "bf16", "f16", "s8", "u8")


@dataclass(frozen=True, eq=False)
class Resolved:
    """An attribute on a problem's shape, modes of the scope and all: who stands below asks this, and no `Attr`."""

    shape: Shape
    scales: Mapping[str, Valued]
    zero_points: Mapping[str, Valued]
    reductions: Valued | None  # sums of the source over groups along K that the user gives, s32
    post_ops: tuple[AppliedPostOp, ...]
    fpmath: str  # the math mode in force; "strict" for integers
    forced: bool  # whether `apply_to_int` goes with a mode, beside operands that are all floats
    exact_int8: bool | None  # True, False, or None where nobody says it or the source is no integer
    strategy: str  # of zero points
    acc_mode: str  # the type of sums that is asked for; "" where the math mode decides
    float_model: str
    check: bool  # whether `reductions` are held against the source

    @staticmethod
    def of(attr: Attr, shape: Shape) -> Resolved:
        """Raises `InvalidArgument` for a parameter whose mask, groups or shape do not fit the problem, and modes that
        say nothing about its types; `Unimplemented` for what no kernel does.
        """
        scales, points = (
            {argument: placed(name, argument, quant, shape) for argument, quant in getattr(attr, name).items()}
            for name in ("scales", "zero_points")
        )
        _refuse_math(attr, shape)
        is_float = fmt(shape.src).is_float
        return Resolved(
            shape,
            scales,
            points,
            _reductions(attr, shape),
            postops.resolved(attr.post_ops, shape.n, 1 if shape.primitive == "convolution" else -1, shape.dims),
            fpmath=FPMATH.effective(attr.fpmath) if is_float else "strict",
            forced=attr.apply_to_int and is_float and fmt(shape.wei).is_float,
            exact_int8=None if is_float else EXACT_INT8.asked_for(attr.exact_int8),
            strategy=attr.zero_point_strategy,
            acc_mode=attr.acc_mode or "",
            float_model=attr.float_model,
            check=attr.check,
        )

    @property
    def operations(self) -> tuple[PostOp, ...]:
        """The post-operations as far as they shape a program."""
        return tuple(post_op.op for post_op in self.post_ops)

    @property
    def integer_scales(self) -> dict[str, Valued]:
        """The source's and weights' scales of an integer matmul; none of other problems."""
        if self.shape.primitive != "matmul" or not self.shape.integer:
            return {}
        return {name: self.scales[name] for name in ("src", "wei") if name in self.scales}

    @property
    def along_k(self) -> dict[str, Valued]:
        """The source's and weights' scales where one of them changes along K or from row to row; else none."""
        scales = self.integer_scales
        return scales if any(scale.param.along_k for scale in scales.values()) else {}

    @property
    def without_single_groups(self) -> Resolved:
        """The parameters where scales of an integer matmul in one group of all K are none by group: they apply to the
        same sums.
        """
        single = {n: one for n, one in self.integer_scales.items() if one.param.group == self.shape.k}
        if not single:
            return self
        apart = {name: replace(one, param=one.param.whole(self.shape.k, self.shape.n)) for name, one in single.items()}
        return replace(self, scales={**self.scales, **apart})

    @property
    def folded(self) -> Resolved:
        """The parameters with one level of scales."""
        return replace(self, scales={name: scale.folded for name, scale in self.scales.items()})

    def without_scale(self, argument: str) -> Resolved:
        """The parameters less an argument's scale."""
        return replace(self, scales={name: scale for name, scale in self.scales.items() if name != argument})

    def without_zero_points(self) -> Resolved:
        """The parameters less what `ZeroPoints` holds."""
        return replace(self, zero_points={name: point for name, point in self.zero_points.items() if name == "dst"})


def default_dst(given: Resolved) -> str:
    """s32 where integers stay integers, else f32."""
    return "s32" if given.shape.integer and not given.scales and "dst" not in given.zero_points else "f32"


def _destination(given: Resolved, dst: str | None, stored: Sequence[str]) -> str:
    """The destination's type: what is asked for, where it is one of `stored` that sums of this source can be."""
    if dst is None:
        return default_dst(given)
    allowed = [one for one in stored if given.shape.integer or one != "s32"]
    if dst in allowed:
        return dst
    error = Unimplemented if dst in DESTINATIONS and dst not in stored else InvalidArgument
    raise error(f"dst {shortly(dst)} with a source of {given.shape.src}{what_is_allowed(dst, allowed)}")


def resolve(
    given: Resolved, dst: str | None, bias: Array | bool | None, stored: Sequence[str] = DESTINATIONS
) -> tuple[Epilogue, Parameters]:
    """A kernel's work after its sums, and the numbers of it; `bias=True`: there is one, its values don't matter.
    `stored`: the types that a destination has there.

    Raises `InvalidArgument` for shapes and values that don't fit, `Unimplemented` for what no kernel here can do.
    """
    shape, scales, points = given.shape, given.scales, given.zero_points
    dst = _destination(given, dst, stored)
    _refuse_unbuilt(scales, points, shape)
    has_bias = bias is not None and bias is not False
    if given.along_k:  # `groups` takes these two; the epilogue knows nothing of them
        scales = {name: found for name, found in scales.items() if name == "dst"}
    wei_scale, wei_point = scales.get("wei"), points.get("wei")
    inside = shape.compressed and shape.primitive == "matmul"  # the kernel applies the weights' parameters to them
    epilogue = Epilogue(
        dst=dst,
        zp_src="src" in points,
        zp_wei=wei_point is not None and not inside,
        src_scale="src" in scales,
        wei_scale=wei_scale.param if wei_scale and not inside else None,
        bias=has_bias,
        post_ops=given.operations,
        dst_scale="dst" in scales,
        dst_zero_point="dst" in points,
        by_channel=tuple(name for name in ("src", "dst") if name in points and not points[name].param.common),
        bias_stored=stored_type(bias),
    )
    parameters = Parameters(
        bias=bias_values(bias, shape) if isinstance(bias, np.ndarray) else None,
        src_scale=float(floats(scales.get("src"))[0]),
        wei_scale=floats(wei_scale) if wei_scale else None,
        dst_scale=float(floats(scales.get("dst"))[0]),
        zp_src=_point(points.get("src")),
        zp_wei=0 if inside else _integer(wei_point),
        wei_zero_points=_integers(wei_point) if wei_point and inside else None,
        dst_zero_point=_point(points.get("dst")),
    )
    return epilogue, parameters


def moves_in_s8(given: Resolved) -> bool:
    """Whether the common zero points of source and weights are numbers of s8, and not all 0 (which an estimate without
    values takes for granted).
    """
    kind = fmt("s8")
    points = [given.zero_points[name] for name in ("src", "wei") if name in given.zero_points]
    points = [point for point in points if point.param.common]
    told = [_integer(point) for point in points if point.values is not None]
    return all(kind.low <= point <= kind.high for point in told) and (any(told) or len(told) < len(points))


def _refuse_math(attr: Attr, shape: Shape) -> None:
    if not shape.integer:
        return
    if attr.apply_to_int:
        raise Unimplemented(
            f"apply_to_int for {shape.src} x {shape.wei}: no kernel here computes integers in floating point; "
            "without it they are computed as integers"
        )
    if attr.fpmath not in (None, "strict"):
        raise InvalidArgument(
            f"fpmath={attr.fpmath!r} for {shape.src} x {shape.wei}; a math mode says how f32 data is computed; "
            "allowed for integers: None, 'strict'"
        )


def _reductions(attr: Attr, shape: Shape) -> Valued | None:
    """The sums of the source that the user gives; None where there are none.

    The rules are oneDNN's (`dnnl_primitive_attr_set_precomputed_reductions`, since 3.10): of the source alone, s32, for
    the whole (M, K/G) matrix of an integer matmul, with weights zero points.
    """
    if not attr.precomputed_reductions:
        return None
    if set(attr.precomputed_reductions) != {"src"}:
        raise InvalidArgument(f"precomputed_reductions of {', '.join(attr.precomputed_reductions)}; allowed: src")
    if "wei" not in attr.zero_points:
        raise InvalidArgument("precomputed_reductions['src'] serve weights zero points; zero_points['wei'] is missing")
    if shape.primitive != "matmul" or not shape.integer:
        raise InvalidArgument(
            f"precomputed_reductions of a {shape.primitive} {shape.src} x {shape.wei}; an integer matmul has them"
        )
    quant: Quant = attr.precomputed_reductions["src"]
    if quant.mask not in (None, 3):
        raise InvalidArgument(f"precomputed_reductions['src']: mask {quant.mask!r}; 3, the whole (M, K/G), is needed")
    if quant.groups is not None:
        rows, length = quant.groups
        if rows != 1 or shape.k % length:
            raise InvalidArgument(
                f"precomputed_reductions['src']: groups={quant.groups}; (1, G) with G dividing K={shape.k} is needed"
            )
    elif quant.values is None:
        raise InvalidArgument("precomputed_reductions['src'] without values; say how long a group is: groups=(1, 128)")
    else:
        parts = quant.values.shape[-1] if quant.values.ndim == 2 else 0
        length = shape.k // parts if parts and shape.k % parts == 0 else 0
    size = (shape.m, shape.k // length) if length else None
    if quant.values is not None and quant.values.shape != size:
        wanted = f"{size}" if quant.groups is not None else f"(M, K/G), M={shape.m}, G dividing K={shape.k},"
        raise InvalidArgument(f"precomputed_reductions['src'] of shape {quant.values.shape}; {wanted} is needed")
    return Valued(Param("src", 1, length, "s32"), quant.values)


def _refuse_unbuilt(scales: Mapping[str, Valued], points: Mapping[str, Valued], shape: Shape) -> None:
    for argument, dtype in (("src", shape.src), ("wei", shape.wei)):
        if argument in points and fmt(dtype).is_float:
            raise InvalidArgument(f"zero_points[{argument!r}] for {shape.src} x {shape.wei}; integers alone have them")
    held = fmt(shape.wei)
    if shape.compressed and shape.primitive != "matmul" and not held.low <= _integer(points.get("wei")) <= held.high:
        raise Unimplemented(
            f"zero_points['wei'] of {_integer(points['wei'])} for stored {shape.wei} weights of a "
            f"convolution; what works: {held.low} to {held.high}, which they hold"
        )
    fine, inside = ("common", "per_oc", "grouped"), shape.compressed and shape.primitive == "matmul"
    for name, found, works in (("scales", scales, fine[:2]), ("zero_points", points, fine[:1])):
        for argument, granularity in ((argument, one.param.granularity) for argument, one in found.items()):
            allowed: tuple[str, ...] = (fine if inside else works) if argument == "wei" else fine[:1]
            if name == "scales" and shape.integer and shape.primitive == "matmul" and argument != "dst":
                allowed = ("common", "per_oc", "grouped", "per_token")
            by_channel = name == "zero_points" and argument != "wei" and shape.primitive == "convolution"
            if granularity not in allowed and not by_channel:
                raise Unimplemented(
                    f"{granularity} {name}[{argument!r}]: no kernel here has them; what works: {', '.join(allowed)}"
                )


def stored_type(bias: Array | bool | None) -> str:
    """The type in which a bias is stored; f32 where there is none, or where it is to become that."""
    return name_of(bias.dtype) if isinstance(bias, np.ndarray) and bias.dtype != np.float64 else "f32"


def bias_values(bias: Array, shape: Shape, in_sums: bool = False) -> npt.NDArray[np.float32 | np.int32]:
    """The bias in f32, or `in_sums` the s32 that it is; `InvalidArgument` unless it has one value an output channel."""
    if bias.shape != (shape.n,):
        raise InvalidArgument(f"bias of shape {bias.shape}; one value per output channel is needed: ({shape.n},)")
    return bias if in_sums else bias.astype(np.float32, copy=False)


def floats(scale: Valued | None) -> npt.NDArray[np.float32]:
    """Scales as kernels take them: f32; ones where there are none or only the cost is asked for."""
    if scale is None or scale.values is None:
        return np.ones(1, np.float32)
    return _laid_out(scale.values.astype(np.float32), scale.param)


def _integers(zero_point: Valued) -> Array:
    """Zero points of compressed weights as kernels take them: s32; zeros where only the cost is asked for."""
    values = zero_point.values
    return np.zeros(1, np.int32) if values is None else _laid_out(values.astype(np.int32), zero_point.param)


def _laid_out(values: Array, param: Param) -> Array:
    """(K/G, N) where grouped along K, else flat."""
    return values if param.group else values.reshape(-1)


def _integer(zero_point: Valued | None) -> int:
    return 0 if zero_point is None or zero_point.values is None else int(zero_point.values.reshape(-1)[0])


def _point(zero_point: Valued | None) -> int | Array:
    """A zero point of source or destination: one, or one a channel where values are there."""
    each = zero_point is not None and not zero_point.param.common and zero_point.values is not None
    return zero_point.values.astype(np.int32) if each else _integer(zero_point)  # type: ignore[union-attr]


def need_values(given: Resolved) -> None:
    """`InvalidArgument` where a parameter has no values: those serve cost estimates only."""
    reductions = {"src": given.reductions} if given.reductions else {}
    kinds = {"scales": given.scales, "zero_points": given.zero_points, "precomputed_reductions": reductions}
    for name, found in kinds.items():
        for argument, one in found.items():
            if one.values is None and one.mode == "static":
                raise InvalidArgument(f"{name}[{argument!r}] has no values; only simdnn.estimate works without them")
