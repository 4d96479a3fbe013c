"""Programs of primitives that move elements or change their type: conversion, concat, shuffle, sums of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from isa_models import InvalidArgument
from isa_models.errors import shortly
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.libraries import ReorderPart
from simdnn.networks.types import is_float, label
from simdnn.operators.graph_builder import (
    STORED,
    TYPES,
    Ending,
    GraphBuilder,
    OperatorGraph,
    axis_of,
    checked,
    numeric,
    scale_of,
)
from simdnn.primitives.checks import integer, one_of

_SIDES = ("src", "dst")
_ROUNDED = ("bf16", "f16", "f8_e4m3", "f8_e5m2")
_NIBBLES = ("s4", "u4", "f4_e2m1")


def conversion(src: Array, end: Ending) -> OperatorGraph:
    builder, own = GraphBuilder(checked({"src": src}, STORED), form=end.form), label(src.dtype)
    dst = own if end.dst is None else end.dst
    scales = {name: _values("scales", end.scales, name, src) for name in _SIDES}
    points = {name: _values("zero_points", end.zero_points, name, src) for name in _SIDES}
    asked = bool(end.post_ops) or any(value is not None for value in (*scales.values(), *points.values()))
    through = end.exactly and own in _ROUNDED  # a library's copy rounds what it has widened, too
    if own == dst and not asked and not through:
        return builder.finished("src", own)
    if end.exactly and own == dst == "s32" and not end.post_ops and not end.scales:
        return builder.finished(_moved_whole(builder, points), "s32")
    if end.by_reference and is_float(fmt(dst).dtype) and not {own, dst} & {*_NIBBLES}:
        points["dst"] = 0.0  # loops over elements add one that is 0: -0 becomes 0
    x = builder.floats("src")
    x = x if points["src"] is None else builder.add("Sub", x, builder.number(points["src"]))
    x = x if scales["src"] is None else builder.add("Mul", x, builder.number(scales["src"]))
    ending = Ending(end.dst, None, end.post_ops, end.into, {"dst": points["dst"]}, end.form, end.caps)
    if scales["dst"] is None:
        return builder.ended(x, ending, own, None, STORED)
    if end.by_reference:
        return builder.ended(x, ending, own, np.asarray(scales["dst"], np.float32), STORED)
    inverse = np.float32(1) / np.asarray(scales["dst"], np.float32)  # as oneDNN: found once, then multiplied
    return builder.ended(x, ending, own, inverse, STORED, multiplied=True)


def _moved_whole(builder: GraphBuilder, points: Mapping[str, Any]) -> str:
    """A source of s32 moved by zero points as an integer."""
    x = "src"
    for name, step in (("src", "Sub"), ("dst", "Add")):
        if points[name] is not None:
            x = builder.add(step, x, builder.constant(np.asarray(points[name]).astype(np.int32)))
    return x


def _values(what: str, given: Mapping[str, Any] | None, name: str, src: Array) -> Any:
    """A number, or an array that broadcasts over the source; None where there is none."""
    for other in given or {}:
        one_of(f"{what} of", other, _SIDES)
    if given is None or name not in given:
        return None
    value = given[name]
    found: Any
    if not isinstance(value, np.ndarray):
        found = numeric(f"{what}[{name!r}]", value)
    else:
        try:
            fits = np.broadcast_shapes(value.shape, src.shape) == src.shape
        except ValueError:
            fits = False
        if not fits:
            raise InvalidArgument(
                f"{what}[{name!r}] of shape {value.shape}; what broadcasts over {src.shape} is needed"
            )
        found = value.astype(np.float32)
    if what == "scales" and not np.all(np.isfinite(found) & (np.asarray(found) != 0)):
        raise InvalidArgument(f"{what}[{name!r}] with 0 or infinity; finite numbers other than 0 are needed")
    return found


def _listed(sources: object) -> dict[str, Array]:
    """Sources by their names, "src0" and on."""
    if not isinstance(sources, (list, tuple)) or not sources:
        raise InvalidArgument(f"sources={shortly(sources)}; a list of arrays is needed")
    return checked({f"src{i}": array for i, array in enumerate(sources)})


def concat(sources: Sequence[Array], end: Ending, *, axis: int = 1) -> OperatorGraph:
    builder = GraphBuilder(_listed(sources))
    names = list(builder.sources)
    place, first = axis_of(axis, sources[0].ndim), sources[0]
    for array in sources:
        if array.ndim != first.ndim or any(
            a != b for i, (a, b) in enumerate(zip(array.shape, first.shape, strict=False)) if i != place
        ):
            raise InvalidArgument(f"sources of {first.shape} and {array.shape}; all but axis {place} must be the same")
    dst = label(first.dtype) if end.dst is None else one_of("dst", end.dst, TYPES)
    plain = not end.scales and not end.post_ops and end.into is None
    if plain and not (end.form is not None and end.form.parts) and all(label(array.dtype) == dst for array in sources):
        return builder.finished(builder.add("Concat", *names, axis=place), dst)
    wide = [builder.floats(name, scale_of(end.scales, name, (*names, "dst"))) for name in names]
    if end.form is not None and end.form.parts:
        own = label(first.dtype)
        kept = {name for name in names if name not in (end.scales or {}) and own == dst}
        every = zip(names, wide, end.form.parts, strict=True)
        stored = [
            name if name in kept and (how.by == "kernel" or own not in _ROUNDED) else _stored(builder, x, dst, how)
            for name, x, how in every
        ]
        return builder.finished(builder.add("Concat", *stored, axis=place), dst)
    return builder.ended(
        builder.add("Concat", *wide, axis=place), end, dst, scale_of(end.scales, "dst", (*names, "dst"))
    )


def _stored(builder: GraphBuilder, x: str, dst: str, how: ReorderPart) -> str:
    """f32 in the destination's type, by a library's reorder."""
    if how.by == "loops" and is_float(fmt(dst).dtype):
        x = builder.add("Add", x, builder.number(0.0))
    return builder.stored(x, dst, how.integers, how.flushes)


def weighted_sum(sources: Sequence[Array], end: Ending, *, factors: Sequence[float] = ()) -> OperatorGraph:
    builder = GraphBuilder(_listed(sources))
    names = list(builder.sources)
    if end.scales:
        raise InvalidArgument(f"scales={shortly(end.scales)}; a sum has none: its factors scale the sources")
    if not isinstance(factors, (list, tuple)) and not (isinstance(factors, np.ndarray) and factors.ndim == 1):
        raise InvalidArgument(f"factors={shortly(factors)}; a list of numbers is needed, one a source, or none")
    if len(factors) not in (0, len(names)):
        raise InvalidArgument(f"{len(names)} sources, {len(factors)} factors; one a source is needed, or none")
    if any(array.shape != sources[0].shape for array in sources):
        raise InvalidArgument(f"sources of {' and '.join(str(a.shape) for a in sources)}; one shape is needed")
    numbers = [numeric("factor", factor) for factor in (factors if len(factors) else [1.0] * len(names))]
    dst = label(sources[0].dtype) if end.dst is None else one_of("dst", end.dst, TYPES)
    builder.form, form = end.form, end.form
    if form is not None and form.order:
        x = _in_pairs(builder, [*zip(names, numbers, strict=True)], form.order == "flushed pairs")
        return builder.ended(x, end, dst, None)
    parts = form.parts if form is not None else ()
    x = ""
    for i, (name, number) in enumerate(zip(names, numbers, strict=True)):
        wide = builder.floats(name)
        part = wide if number == 1 else builder.add("Mul", wide, builder.number(number))
        x = builder.add("Add", x, part) if x else part
        if parts and parts[i].by == "loops":
            x = builder.add("Add", x, builder.number(0.0))
    if parts and dst != "f32":
        return builder.finished(_stored(builder, x, dst, parts[-1]), dst)
    return builder.ended(x, end, dst, None)


def _in_pairs(builder: GraphBuilder, given: Sequence[tuple[str, float]], flushed: bool) -> str:
    """Sources times their factors onto 0, the second of each pair first, products not rounded: a library's dot products
    of bf16; `flushed`: without denormals.
    """

    def clean(x: str) -> str:
        return builder.own("WithoutDenormals", x) if flushed else x

    total = builder.number(0.0)
    for first in range(0, len(given), 2):
        for name, factor in reversed(given[first : first + 2]):
            total = clean(builder.own("MultiplyAdd", clean(builder.floats(name)), builder.number(factor), total))
    return total


def shuffle(src: Array, end: Ending | None = None, *, group: int, axis: int = 1) -> OperatorGraph:
    builder, place = GraphBuilder(checked({"src": src})), axis_of(axis, src.ndim)
    size = src.shape[place]
    if size % integer("group", group):
        raise InvalidArgument(f"group={group} of {size} along axis {place}; it must divide them")
    before, after = src.shape[:place], src.shape[place + 1 :]
    split = builder.add("Reshape", "src", builder.constant(np.array([*before, size // group, group, *after])))
    order = [*range(place), place + 1, place, *range(place + 2, src.ndim + 1)]
    turned = builder.add("Transpose", split, perm=order)
    whole = builder.add("Reshape", turned, builder.constant(np.array(src.shape)))
    return builder.finished(whole, label(src.dtype))
