"""Values of an attribute on a problem's shape: which rows and columns share one, or why they fit nowhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from isa_models import InvalidArgument, Unimplemented
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.narrow_floats import is_narrow
from simdnn.kernels.common.params import Param
from simdnn.primitives.attr import Quant

#: rows and columns that share a value; 0: all
_UNGROUPED = {"common": (0, 0), "per_oc": (0, 1), "per_token": (1, 0), "by_channel": (0, 1)}
#: oneDNN's masks, and the names for them; bit i stands for dimension i of the argument
_MASKS: dict[tuple[str, str], dict[int | str, str]] = {
    ("matmul", "src"): {0: "common", 1: "per_token", 2: "grouped", 3: "grouped"},
    ("matmul", "wei"): {0: "common", 2: "per_oc", 1: "grouped", 3: "grouped"},
    ("matmul", "dst"): {0: "common"},
    ("convolution", "src"): {0: "common", 2: "by_channel"},
    ("convolution", "wei"): {0: "common", 1: "per_oc"},
    ("convolution", "dst"): {0: "common", 2: "by_channel"},
}


@dataclass(frozen=True)
class Shape:
    """Sizes and types that attributes depend on: `m` rows of a matmul's source, `k` terms of a sum, `n` channels."""

    primitive: str  # matmul | convolution
    m: int
    k: int
    n: int
    src: str
    wei: str
    groups: int = 1
    dims: int = 2  # of the output, as a caller has it

    @property
    def integer(self) -> bool:
        return not fmt(self.src).is_float and not fmt(self.wei).is_float

    @property
    def compressed(self) -> bool:
        """Whether weights are stored as what a floating source multiplies once floats, or wider ones, are made of them:
        integers, or floats of at most a byte.
        """
        is_float = fmt(self.src).is_float
        return is_float and (not fmt(self.wei).is_float or is_narrow(self.wei) and not is_narrow(self.src))


@dataclass(frozen=True, eq=False)
class Valued:
    """A parameter, and its values; None where only the cost is asked for."""

    param: Param
    values: Array | None
    mask: int | str | None = None  # as the caller wrote it
    mode: str = "static"  # of scales that a product finds for its destination, how
    tensor_scale: float | None = None  # an f32 that multiplies all values

    @property
    def folded(self) -> Valued:
        """The parameter with its tensor's scale in each value, which becomes an f32."""
        if self.tensor_scale is None:
            return self
        with np.errstate(all="ignore"):
            values = None if self.values is None else self.values.astype(np.float32) * np.float32(self.tensor_scale)
        return replace(self, param=replace(self.param, dtype="f32"), values=values, tensor_scale=None)


def placed(attribute: str, argument: str, quant: Quant, shape: Shape) -> Valued:
    """A parameter of an attribute in normal form, as its mask, groups or shape say.

    Raises `InvalidArgument` for what does not fit, with the shapes allowed, and where nothing says how long a group is;
    `Unimplemented` for groups of several columns.
    """
    if quant.mode != "static":
        return _dynamic(argument, quant, shape)
    if argument == "dst" and shape.primitive == "matmul" and quant.mask == 2:
        raise Unimplemented(
            f"{attribute}['dst']: mask 2 of a matmul, by column; allowed: 0 (common), as oneDNN 3.13 takes the "
            "first one for all columns, which is an error of its"
        )
    where = f"{attribute}[{argument!r}]"
    if (length := _channel_groups(where, attribute, argument, quant, shape)) is not None:
        return Valued(Param(argument, length, 1, str(quant.dtype)), quant.values, quant.mask)
    granularity = _granularity(attribute, argument, quant, shape)
    shared = _grouped(where, argument, quant, shape) if granularity == "grouped" else _UNGROUPED[granularity]
    param = Param(argument, *shared, str(quant.dtype))
    return Valued(param, quant.values, quant.mask, tensor_scale=quant.tensor_scale)


def _dynamic(argument: str, quant: Quant, shape: Shape) -> Valued:
    """Scales that a product finds for its destination."""
    assert quant.groups is not None
    if shape.primitive != "matmul":
        raise Unimplemented(
            f"mode={quant.mode!r} of a {shape.primitive}: a matmul alone finds its destination's scales, in oneDNN "
            "3.13 as here; what works: a static scale, Quant(1.0)"
        )
    return Valued(Param(argument, *quant.groups, str(quant.dtype)), None, quant.mask, quant.mode)


def _granularity(attribute: str, argument: str, quant: Quant, shape: Shape) -> str:
    """Which elements share a value, as a parameter's groups, its mask or, without these, its shape say; checked."""
    where = f"{attribute}[{argument!r}]"
    masks = _MASKS[shape.primitive, argument] | ({3: "per_oc"} if _goihw(shape) and argument == "wei" else {})
    if attribute == "scales":
        masks = {mask: granularity for mask, granularity in masks.items() if granularity != "by_channel"}
    named: dict[int | str, str] = masks | {g: g for g in ("common", "per_oc") if g in masks.values()}
    if quant.mask is not None and quant.mask not in named:
        allowed = ", ".join(f"{mask} ({granularity})" for mask, granularity in sorted(masks.items(), key=str))
        raise InvalidArgument(f"{where}: mask {quant.mask!r} of a {shape.primitive}; allowed: {allowed}")
    fits = _fits(argument, quant, shape)
    if "by_channel" in masks.values():
        fits["by_channel"] = [(shape.n,)] if argument == "dst" else [quant.values.shape] if _is_row(quant) else []
    if quant.groups is not None:
        _check_groups(where, argument, quant, shape)
        granularity = "grouped"
    elif quant.mask is not None:
        granularity = named[quant.mask]
    elif quant.values is None or quant.values.size == 1:
        granularity = "common"
    else:
        granularity = next((g for g, shapes in fits.items() if quant.values.shape in shapes), "")
    if quant.values is None or quant.values.shape in fits.get(granularity, ()):
        return granularity
    if granularity == "common" and quant.values.size == 1:
        return granularity
    if granularity:
        fits = {granularity: fits.get(granularity, [])}
    allowed = "; ".join(f"{_shapes(shapes)} {g}" for g, shapes in fits.items() if shapes)
    raise InvalidArgument(f"{where} of shape {quant.values.shape}; allowed: {allowed or 'other groups'}")


def _channel_groups(where: str, attribute: str, argument: str, quant: Quant, shape: Shape) -> int | None:
    """How many input channels share a scale of a convolution's weights, where it has an axis for them or says groups;
    else None. The values have the weights' axes, that of input channels divided by the group.
    """
    if (shape.primitive, attribute, argument) != ("convolution", "scales", "wei"):
        return None
    if quant.values is None:
        if quant.groups is None or quant.groups[0] != 1 or shape.k % quant.groups[1]:
            return None
        return quant.groups[1]
    values = quant.values
    if values.ndim < 3:
        return None
    parts = values.size // shape.n
    if not parts or values.size % shape.n or shape.k % parts:
        raise InvalidArgument(
            f"{where} of shape {values.shape}; those by group have the weights' axes, input channels divided by a "
            f"group: {shape.n} output channels, and a divisor of {shape.k} = IC/G x taps beside"
        )
    return shape.k // int(parts)


def _is_row(quant: Quant) -> bool:
    """Whether values lie along one dimension; how many channels a source has is seen where its problem is made."""
    return quant.values is not None and quant.values.ndim == 1


def _grouped(where: str, argument: str, quant: Quant, shape: Shape) -> tuple[int, int]:
    """How many rows and columns share a value of a parameter that is grouped along K; 0 stands for all."""
    weights = argument == "wei"
    whole = shape.n if weights else shape.m
    if quant.groups:
        pair = _group_of(argument, quant, shape)
        length, across = pair if weights else pair[::-1]
    elif quant.values is None:
        raise InvalidArgument(f"{where}: mask {quant.mask!r} has groups; say which: groups=(32, 1)")
    else:
        length = shape.k // int(quant.values.shape[0 if weights else 1])
        across = whole if quant.mask == (1 if weights else 2) else 1
    if across not in (1, whole):
        along = "N" if weights else "M"
        works = ("({0}, 1)", f"({{0}}, {whole})") if weights else ("(1, {0})", f"({whole}, {{0}})")
        raise Unimplemented(
            f"{where}: groups={quant.groups}; groups along {along} hold 1 or all {whole} here; what "
            f"works: groups={' or '.join(works).format(length)}"
        )
    across = 1 if across == 1 else 0
    return (length, across) if weights else (across, length)


def _goihw(shape: Shape) -> bool:
    return shape.primitive == "convolution" and shape.groups > 1


def _fits(argument: str, quant: Quant, shape: Shape) -> dict[str, list[tuple[int, ...]]]:
    """For each granularity the array shapes that have it."""
    fits: dict[str, list[tuple[int, ...]]] = {"common": [(1,)]}
    if argument == "wei":
        fits["per_oc"] = [(shape.n,)]
        if _goihw(shape):
            fits["per_oc"].append((shape.groups, shape.n // shape.groups))
    if shape.primitive == "matmul" and argument != "dst":
        if argument == "src":
            fits["per_token"] = [(shape.m,), (shape.m, 1)] if quant.mask is not None else [(shape.m, 1)]
        fits["grouped"] = _grouped_shapes(argument, quant, shape)
    return fits


def _grouped_shapes(argument: str, quant: Quant, shape: Shape) -> list[tuple[int, ...]]:
    if quant.groups is None:  # the array's own shape says the group, if it divides K
        found = quant.values.shape if quant.values is not None else ()
        parts = found[0 if argument == "wei" else -1] if len(found) == 2 else 1
        parts = parts if shape.k % parts == 0 else 1
        if argument == "wei":
            return [(parts, 1 if quant.mask == 1 else shape.n)]
        return [(1 if quant.mask == 2 else shape.m, parts)]
    first, second = _group_of(argument, quant, shape)
    rows, columns = (shape.k, shape.n) if argument == "wei" else (shape.m, shape.k)
    return [(rows // first, columns // second)]


def _group_of(argument: str, quant: Quant, shape: Shape) -> tuple[int, int]:
    """The elements of each dimension that share a value; all of them along one that the mask leaves out."""
    assert quant.groups is not None
    first, second = quant.groups
    if argument == "wei":
        return first, shape.n if quant.mask == 1 else second
    return shape.m if quant.mask == 2 else first, second


def _check_groups(where: str, argument: str, quant: Quant, shape: Shape) -> None:
    assert quant.groups is not None
    if shape.primitive != "matmul" or argument == "dst":
        raise InvalidArgument(f"{where}: groups={quant.groups}; only a matmul's src and wei have groups")
    names, sizes = (("K", "N"), (shape.k, shape.n)) if argument == "wei" else (("M", "K"), (shape.m, shape.k))
    for name, size, group in zip(names, sizes, quant.groups, strict=True):
        if size % group:
            raise InvalidArgument(f"{where}: groups={quant.groups}; {group} does not divide {name}={size}")


def _shapes(shapes: list[tuple[int, ...]]) -> str:
    return " or ".join(str(s) for s in shapes if prod(s) > 0)
