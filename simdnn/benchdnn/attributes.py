"""benchdnn's attribute strings, such as `src:common:0.5+wei:per_oc:f16`, read into plain records."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass

from isa_models import InvalidArgument, Unimplemented
from isa_models.errors import unknown_name
from simdnn.kernels.common.postops import BINARY, ELTWISE
from simdnn.primitives.mathmode import FPMATH_MODES

#: oneDNN's types; what simdnn doesn't model of them is refused when a problem asks for it
TYPES = (
    "f32",
    "bf16",
    "f16",
    "f64",
    "tf32",
    "s32",
    "s8",
    "u8",
    "s4",
    "u4",
    "f8_e5m2",
    "f8_e4m3",
    "f4_e2m1",
    "f4_e3m0",
    "e8m0",
    "boolean",
    "s64",
    "undef",
)
MASKS = (
    "common",
    "host_scalar",
    "per_dim_0",
    "per_dim_1",
    "per_dim_01",
    "per_dim_2",
    "per_dim_3",
    "per_dim_12",
    "per_dim_023",
    "per_dim_123",
    "per_oc",
    "per_ocic",
    "per_tensor",
    "mx",
    "dynamic_mx",
    "dynamic_fp",
)
#: masks of a destination whose scales the primitive finds, and the modes that they stand for
FOUND: dict[int | str, str] = {"mx": "dynamic_mx", "dynamic_mx": "dynamic_mx", "dynamic_fp": "dynamic_fp"}
_PLAIN_MASKS = {"common": 0, "host_scalar": 0} | {
    mask: sum(1 << int(digit) for digit in mask[8:]) for mask in MASKS if mask.startswith("per_dim_")
}
_ARGUMENT = re.compile(r"src[01]?|wei|dst|msrc\d{1,3}|attr_post_op_dw_(src|wei|dst)|attr_post_op_\d{1,3}_wei")
_POST_OPS = frozenset(
    "sum dw prelu relu relu_dst elu elu_dst soft_relu swish mish abs exp exp_dst gelu_erf gelu_tanh log logistic "
    "logistic_dst round sqrt sqrt_dst square tanh tanh_dst clip clip_v2 clip_v2_dst hardsigmoid hardswish linear pow "
    "add div eq ge gt le lt max min mul ne sub select".split()
)
#: types of second operands, which are converted to f32
_SECOND = ("f32", "bf16", "f16", "s32", "s8", "u8", "f8_e5m2", "f8_e4m3")
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_PREFIX = re.compile("^(eltwise|binary)_")


@dataclass(frozen=True)
class Parameter:
    """Scales, zero points or reductions of one argument; `value` where the text gives it, `mask` a number or a word.

    `precomp`: no zero points, but the argument's sums by group, which the user computes (the PRECOMP field).
    """

    argument: str
    mask: int | str
    value: float | None = None
    dtype: str | None = None
    groups: tuple[int, ...] | None = None
    precomp: bool = False


@functools.lru_cache(maxsize=256)
def parameters(option: str, text: str) -> tuple[Parameter, ...]:
    """The parameters of --attr-scales, --attr-zero-points or --attr-precomputed-reductions.

    Zero points take a last field PRECOMP, as proposed for oneDNN (rfcs/20250416-gemm-external-zp-precompute): where it
    is true, the buffer (DNNL_ARG_ATTR_USER_PRECOMP | DNNL_ARG_ATTR_ZERO_POINTS at execution) holds the argument's sums,
    and the entry means what --attr-precomputed-reductions says of it.

    >>> parameters("attr-scales", "src0:common:0.5+wei:per_oc:f16:32x1")[1]
    Parameter(argument='wei', mask='per_oc', value=None, dtype='f16', groups=(32, 1), precomp=False)
    >>> parameters("attr-zero-points", "src:per_tensor:s32:1x32:true")[0].precomp
    True
    """
    return tuple(_parameter(option, part) for part in text.split("+")) if text else ()


def _parameter(option: str, text: str) -> Parameter:
    where = f"--{option}: {text!r}"
    argument, *rest = text.split(":")
    precomp = _precomp(where, rest.pop()) if option == "attr-zero-points" and len(rest) == 4 else False
    if not _ARGUMENT.fullmatch(argument) or not rest or len(rest) > 3:
        more = "[:PRECOMP]" if option == "attr-zero-points" else ""
        raise InvalidArgument(f"{where}; ARG:MASK[:VALUE[:TYPE]] or ARG:MASK[:TYPE[:GROUPS{more}]] is needed")
    mask: int | str = rest[0]
    if rest[0].isascii() and rest[0].isdigit() and len(rest[0]) < 4:
        mask = int(rest[0])
    elif rest[0] not in MASKS:
        raise unknown_name(f"mask in --{option}", rest[0], MASKS)
    value, dtype, groups = _number(rest[1]) if len(rest) > 1 else None, None, None
    if value is not None:
        if mask not in (0, "common", "host_scalar"):
            raise InvalidArgument(f"{where}: one value, yet mask {mask}; a value goes with mask common")
        dtype = data_type(where, rest[2]) if len(rest) > 2 else None
    elif len(rest) > 1:
        dtype = data_type(where, rest[1]) if rest[1] else None
        groups = _groups(where, rest[2]) if len(rest) > 2 else None
    return Parameter("src" if argument == "src0" else argument, mask, value, dtype, groups, precomp)


def _precomp(where: str, text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise InvalidArgument(f"{where}: PRECOMP {text[:20]!r}; true or false is needed")
    return _BOOLEANS[text.lower()]


def _number(text: str) -> float | None:
    try:
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _groups(where: str, text: str) -> tuple[int, ...]:
    sizes = text.split("x")
    if not all(size.isascii() and size.isdigit() and len(size) < 10 for size in sizes):
        raise InvalidArgument(f"{where}: groups {text!r}; sizes are needed, as in 32x1")
    return tuple(map(int, sizes))


def data_type(where: str, text: str) -> str:
    """A type that oneDNN has, or `UnknownName` with the nearest one."""
    if text not in TYPES:
        raise unknown_name(f"type in {where}", text[:40], TYPES)
    return text


def mask_bits(parameter: Parameter, primitive: str, ndims: int, has_groups: bool) -> int:
    """Which dimensions a parameter runs along (bit i: dimension i), as benchdnn's words mean it.

    >>> mask_bits(Parameter("wei", "per_oc"), "matmul", 3, False)
    4
    """
    mask = parameter.mask
    if isinstance(mask, int):
        return mask
    if mask in FOUND:
        raise Unimplemented(
            f"{mask} scales of {parameter.argument}, which the primitive finds itself: what works: scales of dst"
        )
    matmul, weights = primitive == "matmul", parameter.argument == "wei"
    if mask == "per_tensor":
        return (1 << (ndims + has_groups * weights)) - 1
    if mask == "per_oc" or (matmul and mask == "per_dim_1"):
        return 1 << (ndims - 1) if matmul else (3 if has_groups else 1) if weights else 2
    if mask == "per_ocic":
        return 3 << (ndims - 2) if matmul else 6 if has_groups else 3
    return _PLAIN_MASKS[mask]


@functools.lru_cache(maxsize=64)
def math_mode(text: str) -> tuple[str | None, bool]:
    """(mode or None where nothing is said, whether it applies to integers) of --attr-fpmath.

    >>> math_mode("bf16:true"), math_mode("")
    (('bf16', True), (None, False))
    """
    mode, colon, integers = text.partition(":")
    if mode and mode not in FPMATH_MODES:
        raise unknown_name("mode in --attr-fpmath", mode[:40], FPMATH_MODES)
    if integers.lower() not in ("", *_BOOLEANS) or (colon and not (integers and mode)):
        raise InvalidArgument(f"--attr-fpmath={text!r}; MODE or MODE:true or MODE:false is needed")
    return mode or None, _BOOLEANS.get(integers.lower(), False)


def truth(text: str) -> bool | None:
    """The value of --attr-exact-int8; None where nothing is said.

    >>> truth("true"), truth("")
    (True, None)
    """
    if text and text.lower() not in _BOOLEANS:
        raise InvalidArgument(f"--attr-exact-int8={text[:40]!r}; true or false is needed")
    return _BOOLEANS[text.lower()] if text else None


@functools.lru_cache(maxsize=256)
def post_ops(text: str) -> tuple[str, ...]:
    """The post-operations of --attr-post-ops, each with its own arguments behind its name.

    Names may carry the prefix that oneDNN's verbose log gives them.

    >>> post_ops("sum:0.5+eltwise_relu")
    ('sum:0.5', 'relu')
    """
    found = tuple(_PREFIX.sub("", entry) for entry in text.split("+")) if text else ()
    for entry in found:
        kind = entry.split(":")[0]
        if kind not in _POST_OPS:
            raise unknown_name("post-operation in --attr-post-ops", kind[:40], _POST_OPS)
    return found


def _mask(text: str) -> int | str:
    """A mask: its number, or a word."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else text


@dataclass(frozen=True)
class AskedPostOp:
    """One that kernels here have, with its numbers, or with the mask of its f32 values."""

    kind: str
    numbers: tuple[float, ...] = ()
    mask: int | str = "common"
    dtype: str = ""  # of what sum reads, where it is another than the destination's
    condition: int | str = ""  # select's: the mask of its third operand


def modelled_post_ops(text: str) -> tuple[AskedPostOp, ...]:
    """The post-operations, or `Unimplemented`, naming the first that kernels here lack.

    >>> [(op.kind, op.numbers, op.mask) for op in modelled_post_ops("sum:0.5+mul:f32:per_oc+relu:0.25")]
    [('sum', (0.5,), 'common'), ('mul', (), 'per_oc'), ('relu', (0.25,), 'common')]
    """
    return tuple(op for entry in post_ops(text) for op in _post_op(entry))


def _post_op(entry: str) -> tuple[AskedPostOp, ...]:
    """A post-operation; one of a single operand with a scale behind its numbers is two."""
    kind, *rest = entry.split(":")
    kind = kind.removesuffix("_dst")  # which say how the gradient is found: forward they are one
    numbers = [_number(part) for part in rest]
    if kind in ELTWISE and len(rest) <= 3 and None not in numbers:
        given = (*(n or 0.0 for n in numbers), 0.0, 0.0)
        one = AskedPostOp(kind, given[: len(ELTWISE[kind])] if any(numbers[:2]) or kind != "relu" else ())
        return (one, AskedPostOp("linear", (numbers[2] or 0.0, 0.0))) if len(rest) == 3 else (one,)
    if kind == "sum" and None not in numbers[:2] and len(rest) <= 3 and not (numbers[1:] and (numbers[1] or 0) % 1):
        scale, point = (*(n or 0.0 for n in numbers[:2]), *(1.0, 0.0)[len(numbers[:2]) :])
        return (
            AskedPostOp(kind, (scale, point) if point or rest[2:] else (scale,), dtype=rest[2] if rest[2:] else ""),
        )
    if kind == "prelu" and len(rest) <= 1 or kind in BINARY and 1 <= len(rest) <= 4 and rest[0] in _SECOND:
        masks = rest if kind == "prelu" else rest[1:]
        mask = _mask(masks[0] if masks and masks[0] else "common")
        if isinstance(mask, int) or mask in MASKS:
            return (AskedPostOp(kind, mask=mask),)
    if kind == "select" and 1 <= len(rest) <= 2 and rest[0].split(".")[0] in _SECOND:
        second, third = (part.split(".") for part in (*rest, "per_tensor")[:2])
        mask, condition = _mask((*second, "common")[1]), _mask(third[0] or "per_tensor")
        if all(isinstance(one, int) or one in MASKS for one in (mask, condition)):
            return (AskedPostOp(kind, mask=mask, condition=condition),)
    raise Unimplemented(
        f"post-operation {entry!r}: no kernel here has it; what works: {', '.join(ELTWISE)} with their numbers, "
        f"sum[:SCALE[:ZERO_POINT[:TYPE]]], prelu[:MASK], {'|'.join(BINARY[:-1])}:TYPE[:MASK]"
    )
