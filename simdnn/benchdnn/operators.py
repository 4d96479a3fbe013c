"""The options and descriptors of benchdnn's drivers of one operator: --softmax, --eltwise, --reorder and others."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from isa_models import InvalidArgument
from isa_models.errors import counted, unknown_name
from simdnn.benchdnn import attributes
from simdnn.benchdnn.descriptors import (
    NormDims,
    ResponseDims,
    WindowDims,
    norm_dims,
    pool_dims,
    resampling_dims,
    response_dims,
)
from simdnn.benchdnn.subset import DIRECTIONS, OPERATORS, OPTIONS, Option, anything, data_types, integer, one_of, tags
from simdnn.operators.graph_builder import BINARY, ELTWISE
from simdnn.operators.graphs import NORMS, REDUCTIONS

SOFTMAX = {"softmax": False, "softmax_accurate": False, "logsoftmax": True, "softmax_log": True}
POOLING = {"max": "max", "avg_np": "avg_exclude_padding", "avg_p": "avg_include_padding"}
POOLING |= {f"pooling_{name}": name for name in ("max", "avg_exclude_padding", "avg_include_padding")}
RESPONSES = {"across": "across_channels", "within": "within_channel"}
RESPONSES |= {f"lrn_{name}": name for name in RESPONSES.values()}
RESAMPLING = {f"{prefix}{name}": name for prefix in ("", "resampling_") for name in ("nearest", "linear")}
_MOST_SOURCES = 256
_SIZES = re.compile(r"\d{1,12}(x\d{1,12}){0,11}")


@dataclass(frozen=True)
class Tensors:
    """The shapes of an operator's sources, as written."""

    shapes: tuple[tuple[int, ...], ...]
    name: str = ""


OperatorDims = Tensors | WindowDims | NormDims | ResponseDims


def tensors(text: str, least: int, most: int) -> Tensors:
    """The shapes of `least` to `most` sources, AxBxC[:DxExF][n"name"].

    >>> tensors('8x64:1x64n"bias"', 2, 2)
    Tensors(shapes=((8, 64), (1, 64)), name='bias')
    """
    sizes, _, name = text.partition("n")
    parts = sizes.removesuffix("_").split(":")
    if not least <= len(parts) <= most or not all(map(_SIZES.fullmatch, parts)):
        example = ":".join(["8x64", "1x64", "1x64"][:least])
        raise InvalidArgument(f"problem {text[:60]!r}; {counted(least, 'shape')} needed, as in {example}")
    shapes = tuple(tuple(map(int, part.split("x"))) for part in parts)
    if any(0 in shape for shape in shapes) and not (most > 2 and len(set(map(len, shapes))) == 1 < len(shapes)):
        raise InvalidArgument(f"problem {text[:60]!r}: a dimension of 0; at least 1 is needed")
    return Tensors(shapes, name.strip('"'))


def _several(least: int, most: int) -> Callable[[str], Tensors]:
    return lambda text: tensors(text, least, most)


DIMS: Mapping[str, Callable[[str], OperatorDims]] = {
    **dict.fromkeys(("softmax", "eltwise", "lnorm", "shuffle", "reorder", "sum"), _several(1, 1)),
    **dict.fromkeys(("prelu", "reduction"), _several(2, 2)),
    "binary": _several(2, 3),
    "concat": _several(1, _MOST_SOURCES),
    "pool": pool_dims,
    "resampling": resampling_dims,
    "bnorm": norm_dims,
    "gnorm": norm_dims,
    "lrn": response_dims,
}


def _finite(option: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise InvalidArgument(f"{option}={text[:40]!r}; a finite number is needed")
    return found


def _number(option: str) -> Callable[[str], object]:
    return functools.partial(_finite, option)


def _numbers(text: str) -> object:
    return [_finite("--scales", part) for part in text.split(":")] if text else []


def _algorithm(text: str) -> object:
    every = (*SOFTMAX, *POOLING, *ELTWISE, *BINARY, "select", *REDUCTIONS, *NORMS, *RESAMPLING, *RESPONSES)
    if text and plain(text) not in every:
        raise unknown_name("--alg", text[:40], every)
    return text


def plain(text: str) -> str:
    """An algorithm without its primitive's name in front, and without `_dst` behind: how a gradient is found.

    >>> plain("eltwise_tanh_dst"), plain("elu_use_dst_for_bwd"), plain("reduction_sum"), plain("RELU")
    ('tanh', 'elu', 'sum', 'relu')
    """
    name = re.sub("^(eltwise|binary|reduction)_", "", text.lower())
    return name.removesuffix("_dst").removesuffix("_use_dst_for_bwd")


def _flags(text: str) -> object:
    if set(text.upper()) - set("GCHMRA"):
        raise InvalidArgument(f"--flags={text[:20]!r}; letters of G, C, H, M, R and A are needed")
    return text


_SCALED = tuple(driver for driver in OPERATORS if driver not in ("sum", "shuffle", "prelu", "lrn"))
_ONE_TYPE = ("eltwise", "lnorm", "bnorm", "gnorm", "pool", "shuffle", "lrn")
_TWO_TYPES = ("softmax", "reduction", "resampling", "reorder", "concat")
_FORWARD = tuple(driver for driver in OPERATORS if driver not in ("binary", "concat", "sum", "reorder", "reduction"))
_SEVERAL = Option("sdt", "f32", data_types("--sdt", range(1, _MOST_SOURCES)), ("sum",))
#: in the order in which the cross product runs: the last one fastest
OPERATOR_OPTIONS: Mapping[str, Option] = {
    option.name: option
    for option in (
        *(Option(o.name, o.default, o.check, OPERATORS, o.kept) for o in OPTIONS.values() if o.kept),
        Option("dir", "FWD_D", one_of("--dir", DIRECTIONS, str.upper), _FORWARD),
        Option("dt", "f32", data_types("--dt", (1, 2)), _ONE_TYPE),
        Option("sdt", "f32", data_types("--sdt", (1, 2)), (*_TWO_TYPES, "binary", "prelu", "sum")),
        Option("ddt", "f32", data_types("--ddt", (1,)), (*_TWO_TYPES, "binary", "sum")),
        Option("ss_dt", "f32", data_types("--ss_dt", (1,)), ("lnorm", "gnorm")),
        *(Option(name, "any", tags, OPERATORS) for name in ("tag", "stag", "dtag", "stat_tag")),
        Option("strides", "", anything, OPERATORS),
        Option("alg", "", _algorithm, ("softmax", "eltwise", "binary", "pool", "reduction", "resampling", "lrn")),
        Option("axis", "1", integer("--axis"), ("softmax", "concat", "shuffle")),
        Option("group", "1", integer("--group"), ("shuffle",)),
        Option("alpha", "0", _number("--alpha"), ("eltwise",)),
        Option("beta", "0", _number("--beta"), ("eltwise",)),
        Option("p", "1", _number("--p"), ("reduction",)),
        Option("eps", "0", _number("--eps"), ("reduction",)),
        Option("scales", "", _numbers, ("sum",)),
        Option("flags", "", _flags, ("lnorm", "bnorm", "gnorm")),
        Option("oflag", "", anything, ("reorder",)),
        Option("cross-engine", "none", anything, ("reorder",)),
        Option("runtime-dim-mask", "0", anything, ("reorder",)),
        Option("mb", "0", integer("--mb"), ("softmax", "eltwise", "pool", "bnorm", "gnorm", "resampling", "lrn")),
        Option("attr-scales", "", lambda text: attributes.parameters("attr-scales", text), _SCALED),
        Option("attr-zero-points", "", lambda text: attributes.parameters("attr-zero-points", text), ("reorder",)),
        Option("attr-post-ops", "", attributes.post_ops, OPERATORS),
        *(
            Option(n, "", anything, OPERATORS)
            for n in OPTIONS
            if n.startswith("attr-") and n not in ("attr-scales", "attr-zero-points", "attr-post-ops")
        ),
    )
}


def operator_options(driver: str) -> Mapping[str, Option]:
    """The options of a driver of one operator; sum names a type for each of its sources."""
    return {**OPERATOR_OPTIONS, "sdt": _SEVERAL} if driver == "sum" else OPERATOR_OPTIONS
