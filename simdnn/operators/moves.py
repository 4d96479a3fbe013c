"""Programs of primitives that move elements or change their type: conversion, concat, shuffle, sums of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from isa_models import InvalidArgument
from isa_models.errors import shortly
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.networks.types import label
from simdnn.operators.draft import STORED, TYPES, Draft, Ending, OperatorGraph, axis_of, checked, numeric, scale_of
from simdnn.primitives.checks import integer, one_of

_SIDES = ("src", "dst")


def conversion(src: Array, end: Ending) -> OperatorGraph:
    draft, own = Draft(checked({"src": src}, STORED)), label(src.dtype)
    scales = {name: _values("scales", end.scales, name, src) for name in _SIDES}
    points = {name: _values("zero_points", end.zero_points, name, src) for name in _SIDES}
    given = [*scales.values(), *points.values()]
    unsigned = _loses_signs(end, own)
    if end.dst in (None, own) and not end.post_ops and all(value is None for value in given) and not unsigned:
        return draft.finished("src", own)
    x = draft.floats("src")
    x = draft.add("Add", x, draft.number(0.0)) if unsigned else x
    x = x if points["src"] is None else draft.add("Sub", x, draft.number(points["src"]))
    x = x if scales["src"] is None else draft.add("Mul", x, draft.number(scales["src"]))
    ending = Ending(end.dst, None, end.post_ops, end.into, {"dst": points["dst"]}, end.form, end.caps)
    if scales["dst"] is None:
        return draft.ended(x, ending, own, None, STORED)
    if end.by_reference:
        return draft.ended(x, ending, own, np.asarray(scales["dst"], np.float32), STORED)
    inverse = np.float32(1) / np.asarray(scales["dst"], np.float32)  # as oneDNN: found once, then multiplied
    return draft.ended(x, ending, own, inverse, STORED, multiplied=True)


def _loses_signs(end: Ending, src: str) -> bool:
    """Whether a library's loops over elements add 0 to what they read, so that -0 becomes 0."""
    if not end.by_reference or "avx512_core_fp16" in end.caps:
        return False
    return fmt(src).is_float and not {src, end.dst} & {"s4", "u4", "f4_e2m1"}


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
    draft = Draft(_listed(sources))
    names = list(draft.sources)
    place, first = axis_of(axis, sources[0].ndim), sources[0]
    for array in sources:
        if array.ndim != first.ndim or any(
            a != b for i, (a, b) in enumerate(zip(array.shape, first.shape, strict=False)) if i != place
        ):
            raise InvalidArgument(f"sources of {first.shape} and {array.shape}; all but axis {place} must be the same")
    dst = label(first.dtype) if end.dst is None else one_of("dst", end.dst, TYPES)
    plain = not end.scales and not end.post_ops and end.into is None
    if plain and all(label(array.dtype) == dst for array in sources):
        return draft.finished(draft.add("Concat", *names, axis=place), dst)
    wide = [draft.floats(name, scale_of(end.scales, name, (*names, "dst"))) for name in names]
    return draft.ended(draft.add("Concat", *wide, axis=place), end, dst, scale_of(end.scales, "dst", (*names, "dst")))


def weighted_sum(sources: Sequence[Array], end: Ending, *, factors: Sequence[float] = ()) -> OperatorGraph:
    draft = Draft(_listed(sources))
    names = list(draft.sources)
    if end.scales:
        raise InvalidArgument(f"scales={shortly(end.scales)}; a sum has none: its factors scale the sources")
    if not isinstance(factors, (list, tuple)) and not (isinstance(factors, np.ndarray) and factors.ndim == 1):
        raise InvalidArgument(f"factors={shortly(factors)}; a list of numbers is needed, one a source, or none")
    if len(factors) not in (0, len(names)):
        raise InvalidArgument(f"{len(names)} sources, {len(factors)} factors; one a source is needed, or none")
    if any(array.shape != sources[0].shape for array in sources):
        raise InvalidArgument(f"sources of {' and '.join(str(a.shape) for a in sources)}; one shape is needed")
    x = ""
    for name, factor in zip(names, factors if len(factors) else [1.0] * len(names), strict=True):
        wide = draft.floats(name)
        number = numeric("factor", factor)
        part = wide if number == 1 else draft.add("Mul", wide, draft.number(number))
        x = draft.add("Add", x, part) if x else part
    return draft.ended(x, end, label(sources[0].dtype), None)


def shuffle(src: Array, end: Ending | None = None, *, group: int, axis: int = 1) -> OperatorGraph:
    draft, place = Draft(checked({"src": src})), axis_of(axis, src.ndim)
    size = src.shape[place]
    if size % integer("group", group):
        raise InvalidArgument(f"group={group} of {size} along axis {place}; it must divide them")
    before, after = src.shape[:place], src.shape[place + 1 :]
    split = draft.add("Reshape", "src", draft.constant(np.array([*before, size // group, group, *after])))
    order = [*range(place), place + 1, place, *range(place + 2, src.ndim + 1)]
    turned = draft.add("Transpose", split, perm=order)
    whole = draft.add("Reshape", turned, draft.constant(np.array(src.shape)))
    return draft.finished(whole, label(src.dtype))
