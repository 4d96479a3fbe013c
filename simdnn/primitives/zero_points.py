"""Zero points of integer matmuls that change along K or by column, and reductions of the source that the user gives.

The rules for reductions are oneDNN's (`dnnl_primitive_attr_set_precomputed_reductions`, since 3.10): of the source
alone, s32, for the whole (M, K/G) matrix, with weights zero points, and groups no longer than any other group along K.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from isa_models import InvalidArgument, Unimplemented
from isa_models.readings.arrays import Array
from simdnn.kernels.common.spec import Parameters, ZeroPoints
from simdnn.primitives.attr import Attr, Quant
from simdnn.primitives.groups import along_k, length_of
from simdnn.primitives.resolve import Placed, Shape, placed, refuse_reductions

MISSING = "precomputed_reductions={'src': R} are missing; 'in_kernel' finds them itself"
ADDED = "its kernels add the zero point's part to the sums"
_LIBRARY = ("auto", "direct", "precomputed")  # what oneDNN's reference does
_ALLOWED = {"src": ("common", "per_token", "grouped"), "wei": ("common", "per_oc", "grouped")}


def zero_points(attr: Attr, shape: Shape, every: bool = False) -> ZeroPoints | None:
    """The zero points of an integer matmul where they are more than common ones, or (`every`) any at all.

    Raises `InvalidArgument` for shapes, types and groups that don't fit, `Unimplemented` for what nothing here has.
    """
    if shape.primitive != "matmul" or not shape.integer:
        return None
    found = {n: placed("zero_points", n, attr.zero_points[n], shape) for n in ("src", "wei") if n in attr.zero_points}
    given = _reductions(attr, shape)
    if not given and not (every and found) and all(p.granularity == "common" for p in found.values()):
        return None
    for name, (_, granularity) in found.items():
        if granularity not in _ALLOWED[name]:
            works = ", ".join(_ALLOWED[name])
            raise Unimplemented(f"{granularity} zero_points[{name!r}]: no kernel here has them; what works: {works}")
    lengths = {f"zero_points[{name!r}]": _length(name, p, shape) for name, p in found.items()}
    lengths |= {f"scales[{name!r}]": length_of(name, p, shape) for name, p in along_k(attr, shape).items()}
    group = given or min(lengths.values())
    for what, length in lengths.items():
        if given and (length < given or length % given):
            raise InvalidArgument(
                f"precomputed_reductions['src'] in groups of {given} along K beside {what} in groups of {length}; "
                "groups no longer than every other one, which they divide, are needed"
            )
        if length % group:
            raise InvalidArgument(f"{what} in groups of {length} along K beside groups of {group}; they must nest")
    src_group = lengths.get("zero_points['src']", 0)
    return ZeroPoints(group, "wei" in found, "src" in found, bool(given), src_group=src_group)


def on_cpu(attr: Attr, shape: Shape, dispatch: str) -> ZeroPoints | None:
    """The zero points of an integer matmul on a CPU, by the strategy asked for; None where every kernel takes them.

    "auto" is what oneDNN's reference does, direct or by the reductions given. Common zero points belong to every
    kernel, unless a strategy is asked for or scales change along K.
    """
    if not shape.integer:
        refuse_strategy(attr, f"{shape.src} x {shape.wei}", "weights less their zero point are multiplied")
    asked, by_row = attr.zero_point_strategy, "src" in attr.zero_points and attr.zero_points["src"].mask == 1
    zeros = zero_points(attr, shape, every=asked != "auto" or bool(along_k(attr, shape)))
    if dispatch == "onednn" and zeros and (asked not in _LIBRARY or by_row and not attr.zero_points["src"].groups):
        what = f"zero_point_strategy={asked!r}" if asked not in _LIBRARY else "zero_points['src'] with mask 1"
        raise Unimplemented(
            f"dispatch='onednn' with {what}: oneDNN has none; what works: dispatch='fastest', "
            f"strategies {', '.join(_LIBRARY)}, and groups=(1, K) for a zero point a row"
        )
    if zeros is None or asked == "auto":
        return zeros
    if asked == "precomputed" and zeros.wei and not zeros.reductions:
        raise Unimplemented(f"zero_point_strategy={asked!r}: {MISSING}")
    return replace(zeros, strategy=asked)


def refuse_strategy(attr: Attr, what: str, instead: str) -> None:
    """`Unimplemented` for a strategy where kernels have one way of their own."""
    if (asked := attr.zero_point_strategy) != "auto":
        raise Unimplemented(f"zero_point_strategy={asked!r} of {what}: {instead}; what works: 'auto'")


def without_zero_points(attr: Attr) -> Attr:
    """The attribute less what `ZeroPoints` holds."""
    rest = {name: quant for name, quant in attr.zero_points.items() if name == "dst"}
    return replace(attr, zero_points=rest, precomputed_reductions={}, zero_point_strategy="auto")


def with_tables(parameters: Parameters, attr: Attr, shape: Shape, zeros: ZeroPoints) -> Parameters:
    """Zero points (K/G, N) of the weights and (M, K/G) of the source, s32; zeros where only the cost is asked for."""
    return replace(
        parameters,
        wei_zero_points=_table(attr, "wei", shape) if zeros.wei else None,
        src_zero_points=_table(attr, "src", shape) if zeros.src else None,
        reductions=attr.precomputed_reductions["src"].values if zeros.reductions else None,
    )


def check_reductions(attr: Attr, src: Array) -> None:
    """`InvalidArgument` naming the first entry of the given reductions that is no sum of the source."""
    if "src" not in attr.precomputed_reductions or not attr.check:
        return
    given = attr.precomputed_reductions["src"].values
    right = src.astype(np.int64).reshape(*given.shape, -1).sum(axis=-1)
    wrong = np.argwhere(given != right)
    if len(wrong):
        row, group = (int(i) for i in wrong[0])
        raise InvalidArgument(
            f"precomputed_reductions['src'][{row}, {group}] is {given[row, group]}; the source's sum there is "
            f"{right[row, group]} ({len(wrong)} of {given.size} entries are wrong)"
        )


def _table(attr: Attr, name: str, shape: Shape) -> Array:
    quant = attr.zero_points[name]
    values = np.zeros(1, np.int32) if quant.values is None else np.asarray(quant.values).astype(np.int32)
    if values.ndim == 2:
        size = (values.shape[0], shape.n) if name == "wei" else (shape.m, values.shape[1])
    else:
        size = (1, shape.n) if name == "wei" else (shape.m, 1)
        values = values.reshape((1, -1) if name == "wei" else (-1, 1))
    return np.broadcast_to(values, size)


def _length(name: str, found: Placed, shape: Shape) -> int:
    return length_of(name, found, shape) if found.granularity == "grouped" else shape.k


def _reductions(attr: Attr, shape: Shape) -> int:
    """How many k each of the given reductions sums; 0 where none are given."""
    if not attr.precomputed_reductions:
        return 0
    refuse_reductions(attr)
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
    return length
