"""Attributes of a primitive, as values: math mode, scales, zero points, precomputed reductions, post-operations.

What can be checked without a problem is checked when an `Attr` is made; shapes are checked by `resolve`.
"""

from __future__ import annotations

import functools
import hashlib
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from isa_models import InvalidArgument, Unimplemented, UnknownName
from isa_models.formats import fmt, name_of
from isa_models.intel_gpu import FLOAT_MODELS
from isa_models.keywords import keywords_of_class
from isa_models.readings.arrays import Array, held
from isa_models.records.display import InNotebooks
from simdnn.kernels.common.narrow_floats import DYNAMIC
from simdnn.kernels.common.postops import BINARY, ELTWISE
from simdnn.libraries import MOST_POST_OPS
from simdnn.primitives.accumulation import check_acc_mode
from simdnn.primitives.checks import flag, integer, one_of
from simdnn.primitives.mathmode import check_exact, check_fpmath

ARGUMENTS = ("src", "wei", "dst")
#: types of sums that are asked for, as oneDNN names them
STRATEGIES = ("auto", "direct", "in_kernel", "precomputed", "bias", "upconvert")
POST_OPS = (*ELTWISE, "sum", *BINARY, "select")
_FEW = 4  # values that a repr shows
MASK_NAMES = ("common", "per_oc")
_OPERAND_TYPES = ("f32", "bf16", "f16")  # of second operands, that are told; integers become f32
_SCALE_TYPES = ("f32", "bf16", "f16", "f8_e4m3", "e8m0")
_SUM_TYPES = ("f32", "s32", "bf16", "f16", "s8", "u8")
_ZERO_POINT_TYPES = ("s32", "s8", "u8", "s4", "u4")
_OTHER_POST_OPS = ("dw",)
_LEAST_DIVISOR = 2.0**-128  # and below it: no reciprocal in f32
#: what libraries fuse, or people expect there, and is something else here
_BESIDE = {
    "softmax": "a primitive of its own: simdnn.softmax(r.output, machine=…)",
    "layernorm": "a primitive of its own: simdnn.layer_normalization(r.output, …, machine=…)",
    "layer_normalization": "a primitive of its own: simdnn.layer_normalization(r.output, …, machine=…)",
    "quantize": "the destination's scale and type: Attr(scales={'dst': …}), dst='u8'",
    "dequantize": "scales of source and weights: Attr(scales={'src': …, 'wei': …})",
    "dropout": "nothing in inference: leave it out",
}


@keywords_of_class
@dataclass(frozen=True, eq=False)
class Quant(InNotebooks):
    """Scales, zero points or reductions of one argument.

    `values`: a number or an array, or None where only the cost is asked for. `mask`: which dimensions they run along,
    as in oneDNN (bit i: dimension i of the argument; 0: one for all), or "common" or "per_oc". None: the shape says
    it. `groups`: how many
    elements of each dimension share one value, (along K, along N) for weights, (along M, along K) for sources.
    `dtype`: storage type: f32 (default), bf16, f16, f8_e4m3, e8m0 for scales; s32 (default), s8, u8, s4, u4 for zero
    points. `mode`: "static", or for scales of a destination that the product finds, with groups (1, columns) and no
    values: "dynamic_mx" (e8m0 for 32 columns) or "dynamic_fp" (f8_e4m3 for 16).
    """

    values: Any = None
    mask: int | str | None = None
    groups: tuple[int, int] | None = None
    dtype: str | None = None
    mode: str = "static"

    def __post_init__(self) -> None:
        one_of("mode", self.mode, ("static", *DYNAMIC))
        if self.mode != "static" and self.values is not None:
            raise InvalidArgument(f"mode={self.mode!r} with values; the product finds them: Quant(None, …)")
        if isinstance(self.mask, str):
            one_of("mask", self.mask, MASK_NAMES)
        elif self.mask is not None:
            object.__setattr__(self, "mask", integer("mask", self.mask, 0))
        if self.groups is not None:
            if not isinstance(self.groups, (tuple, list)) or len(self.groups) != 2:
                raise InvalidArgument(f"groups={self.groups!r}; two integers, one for each dimension, e.g. (32, 1)")
            object.__setattr__(self, "groups", tuple(integer("groups", g) for g in self.groups))
        if self.dtype is not None:
            one_of("dtype", self.dtype, (*_SCALE_TYPES, *_ZERO_POINT_TYPES))
        if self.values is not None:
            object.__setattr__(self, "values", _read_only(self.values))

    @property
    def tensor_scale(self) -> float | None:
        """One f32 that multiplies all values; None where there is none."""
        return None

    def _content(self) -> tuple[object, ...]:
        values = None if self.values is None else (self.values.shape, self.values.dtype, self.values.tobytes())
        return self.mask, self.groups, self.dtype, self.mode, self.tensor_scale, values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quant) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def __repr__(self) -> str:
        """The parameter with its values where they are few, else with their shape and type."""
        values = self.values
        if isinstance(values, np.ndarray):
            values = values.tolist() if values.size <= _FEW else f"{'x'.join(map(str, values.shape))} {values.dtype}"
        kept = (f.name for f in fields(self)[1:] if getattr(self, f.name) not in (None, "static"))
        told = (f"{name}={getattr(self, name)!r}" for name in kept)
        return f"Quant({', '.join([str(values), *told])})"


@dataclass(frozen=True, eq=False, repr=False)
class TwoLevelQuant(Quant):
    """Scales of a source or of weights that one f32, `tensor`, multiplies besides: NVFP4's of both sides of a product,
    as `Blocks.attr` makes them. Raises `InvalidArgument` for a factor that is no finite f32 from 0 on.
    """

    tensor: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "tensor", _factor(self.tensor))

    @staticmethod
    def of(quant: Quant, tensor: float) -> TwoLevelQuant:
        """A parameter, whatever multiplied it, with a tensor's scale."""
        return TwoLevelQuant(quant.values, quant.mask, quant.groups, quant.dtype, quant.mode, tensor)

    @property
    def tensor_scale(self) -> float | None:
        return self.tensor


PostOpEntry = str | tuple[Any, ...]  # ("sum", scale), ("sum", scale, zero point, type), ("clip", 0, 6), ("mul", Quant)


@keywords_of_class
@dataclass(frozen=True)
class Attr(InNotebooks):
    """How a primitive computes. See `Quant` for what `scales`, `zero_points` and `precomputed_reductions` hold.

    `fpmath`, `exact_int8`: None leaves them to the scope, the thread, the environment. At last `fpmath` is "strict",
    and int8 on a CPU without VNNI takes the library's fast path, whose pairs of products may saturate, unless an exact
    kernel costs no more by the estimate: then that one runs (`r.dispatch` says so). `exact_int8=True` has exact kernels
    alone, at whatever cost; False the library's fast path, even where an exact kernel would cost less.
    A bare array as a value says its own mask: size 1 common; (N,) one per output channel; (K/G, N) weights grouped
    along K; (M, K/G) sources. `post_ops`, in order: "relu", ("relu", slope), "abs", "square", "sqrt", ("linear", alpha,
    beta), ("clip", low, high), "hardsigmoid", "hardswish"; "sum" or ("sum", scale, zero_point, dtype), which adds what
    the destination held before; ("add", values), and so "sub", "mul", "div", "max", "min" and "prelu": values of f32,
    one, (N,), or what broadcasts to the output's shape; ("select", values, condition), which keeps an output where the
    condition is not 0 and takes the value else (of a NaN not promised). `float_model`: how DPAS rounds on a GPU, a
    candidate (`isa_models.intel_gpu.sums`). `precomputed_reductions={"src": R}`: sums of the source over groups along
    K, s32 (M, K/G); they are trusted, unless `check=True` has them verified. `zero_point_strategy`: how the
    zero points' part of an integer matmul's sums is found (`simdnn.kernels.intel_gpu.zero`, `upconvert`, `ref_int8`):
    "direct", "in_kernel", "precomputed" and "bias" have the same bits, "upconvert" converts both operands and adds up
    in f32. "auto" on a GPU is the cheapest of "direct", "in_kernel" and "precomputed" that can be had: "upconvert" has
    other bits, the matrix of "bias" is work of somebody else's. On a CPU it is what oneDNN's kernels do.
    `acc_mode`: the type that products are added up in, as oneDNN's accumulation mode: "f32", "s32", "f16", "bf16" or
    "s16" that one; "strict" (and "relaxed", as no kernel here keeps partial sums in memory in a narrower type) f32 of
    floats and s32 of integers; "any" sums in f16, too, where source or destination is f16. None: in f16 where `fpmath`
    is f16 or any and a CPU adds up so. "f16:64" (and so "bf16:64", "f32:64", "s16:64") brings each partial sum to a
    wider one after 64 products. Without a number a CPU's kernels that add up in f16 do so after 128, a GPU's after all
    of K. "s16" is for int8 products without VNNI: vpmaddubsw adds up pairs, vpaddsw adds those to one of two sums, both
    saturate (`r.saturation`), and the two sums join one in s32 after 256 products, or as many as are named.

    >>> Attr(scales={"src": 0.5}).scales["src"].values
    array(0.5, dtype=float32)

    Raises `InvalidArgument` for unknown keys and values outside their type, `Unimplemented` for post-operations that
    no kernel here has.
    """

    fpmath: str | None = None
    apply_to_int: bool = False
    scales: Mapping[str, Any] = field(default_factory=dict)
    zero_points: Mapping[str, Any] = field(default_factory=dict)
    precomputed_reductions: Mapping[str, Any] = field(default_factory=dict)
    exact_int8: bool | None = None
    post_ops: Sequence[Any] = ()
    float_model: str = "sequential"
    check: bool = False
    zero_point_strategy: str = "auto"
    acc_mode: str | None = None

    def __repr__(self) -> str:
        """The fields that differ from the defaults."""
        told = ((f, getattr(self, f.name)) for f in fields(self))
        kept = (f"{f.name}={value!r}" for f, value in told if (value or value is False) and value != f.default)
        return f"Attr({', '.join(kept)})"

    def __post_init__(self) -> None:
        if self.fpmath is not None:
            check_fpmath(self.fpmath)
        flag("apply_to_int", self.apply_to_int)
        flag("check", self.check)
        if self.exact_int8 is not None:
            check_exact(self.exact_int8)
        one_of("zero_point_strategy", self.zero_point_strategy, STRATEGIES)
        one_of("float_model", self.float_model, FLOAT_MODELS)
        if self.acc_mode is not None:
            check_acc_mode(self.acc_mode)
        object.__setattr__(self, "post_ops", _post_ops(self.post_ops))
        for name, check in (("scales", _scale), ("zero_points", _zero_point), ("precomputed_reductions", _sums)):
            given = getattr(self, name)
            if not isinstance(given, Mapping):
                raise InvalidArgument(f"{name}={given!r}; a dict by {', '.join(ARGUMENTS)} is needed")
            quants = {one_of(f"key of {name}", key, ARGUMENTS): check(f"{name}[{key!r}]", given[key]) for key in given}
            object.__setattr__(self, name, quants)
        behind = self.scales.get("dst")
        if behind and behind.values is not None and (abs(behind.values.astype(np.float32)) <= _LEAST_DIVISOR).any():
            raise InvalidArgument("scales['dst'] holds 0, or what has no reciprocal in f32; results are divided by it")
        if self.zero_point_strategy != "auto" and not {"src", "wei"} & set(self.zero_points):
            given = f"zero_point_strategy={self.zero_point_strategy!r}"
            raise InvalidArgument(f"{given} without zero_points of src or wei: leave it at 'auto'")

    @functools.cached_property
    def content(self) -> bytes:
        """A digest of all that is said, signs of zeros and types of numbers included."""
        return hashlib.sha256(pickle.dumps({f.name: getattr(self, f.name) for f in fields(self)})).digest()

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def __hash__(self) -> int:
        quants = (self.scales, self.zero_points, self.precomputed_reductions)
        plain = (self.fpmath, self.apply_to_int, self.exact_int8, self.post_ops)
        gpu = (self.float_model, self.check, self.zero_point_strategy, self.acc_mode)
        return hash((*plain, *gpu, *(frozenset(q.items()) for q in quants)))


def _post_ops(given: Any) -> tuple[PostOpEntry, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidArgument(f"post_ops={given!r}; a list is needed, e.g. ['relu', ('sum', 0.5)]")
    if len(given) > MOST_POST_OPS:
        raise InvalidArgument(f"{len(given)} post_ops; at most {MOST_POST_OPS} are taken, as in oneDNN")
    ops = tuple(op for entry in given for op in _entries(entry))
    types = {(*entry, 0, None)[3] for entry in ops if entry[0] == "sum"}
    if len(types) > 1:
        raise Unimplemented(f"post_ops={list(given)}: sums of several types; one type for all sums works")
    return ops


def _entries(entry: Any) -> tuple[PostOpEntry, ...]:
    """The post-operations of an entry; a choice is two bounds, which are one value where it is not the sum."""
    name, *arrays = entry if isinstance(entry, (tuple, list)) and entry else (entry,)
    if not isinstance(name, str) or name != "select":
        return (_post_op(entry),)
    if len(arrays) != 2:
        works = f"{', '.join(POST_OPS[:-1])}, ('select', values, condition)"
        raise Unimplemented(f"post-operation {entry!r:.60}: a choice has two arrays; what works: {works}")
    other, condition = (_second("select", value) for value in arrays)
    return tuple((name, _bound(other, condition, free), "select") for name, free in (("max", -np.inf), ("min", np.inf)))


def _bound(other: Quant, condition: Quant, free: float) -> Quant:
    """Second operands that leave an output as it is where the condition is not 0, and else are the other values."""
    values, chosen = other.values, condition.values
    if values is None or chosen is None:
        coarse = ("common", 0)
        return replace(condition if other.mask in coarse else other, values=None)
    if values.size > 1 and chosen.size > 1 and values.ndim != chosen.ndim:
        said = f"values of shape {values.shape} and a condition of shape {chosen.shape}"
        raise InvalidArgument(f"post-operation 'select' with {said}; as many dimensions, or one value, are needed")
    try:
        bound = np.where(chosen != 0, np.float32(free), values)
    except ValueError:
        said = f"values of shape {values.shape} and a condition of shape {chosen.shape}"
        raise InvalidArgument(f"post-operation 'select' with {said}, which do not broadcast") from None
    return replace(other, values=_read_only(bound))


def _post_op(entry: Any) -> PostOpEntry:
    name, *rest = (entry,) if isinstance(entry, str) or not isinstance(entry, Sequence) or not entry else entry
    if isinstance(name, str) and name in _OTHER_POST_OPS:
        raise Unimplemented(f"post-operation {name!r}: no kernel here has it; what works: {', '.join(POST_OPS)}")
    if isinstance(name, str) and (beside := _BESIDE.get(name.lower())):
        raise Unimplemented(f"post-operation {name!r}: it is {beside}; what works: {', '.join(POST_OPS)}")
    name = one_of("post-operation", name, POST_OPS, _OTHER_POST_OPS)
    if name == "sum":
        return _sum(entry, rest)
    if name in BINARY:
        if len(rest) != 1:
            raise InvalidArgument(
                f"post-operation {entry!r:.60}; one array of second operands is needed: ({name!r}, v)"
            )
        return name, _second(name, rest[0])
    defaults = ELTWISE[name]
    if len(rest) > len(defaults) or None in defaults[len(rest) :]:
        raise InvalidArgument(f"post-operation {entry!r:.60}; {name} takes {len(defaults)} numbers")
    numbers = [_number(name, value) for value in (*rest, *defaults[len(rest) :])]
    return name if name == "relu" and not any(numbers) or not numbers else (name, *numbers)


def _sum(entry: Any, rest: Sequence[Any]) -> PostOpEntry:
    """("sum", scale), or with the zero point and the type of what the destination held."""
    if len(rest) > 3:
        raise InvalidArgument(f"post-operation {entry!r:.60}; allowed: 'sum', ('sum', scale, zero_point, dtype)")
    defaults: tuple[Any, ...] = (1.0, 0, None)
    scale, point, dtype = (*rest, *defaults[len(rest) :])
    scale = _number("sum", scale)
    if dtype is not None:
        one_of("dtype of post-operation 'sum'", dtype, _SUM_TYPES)
    if isinstance(point, bool) or not isinstance(point, (int, np.integer)) or abs(int(point)) > fmt("s32").high:
        raise InvalidArgument(f"post-operation ('sum', …, {point!r:.40}); the zero point is an integer of s32")
    return ("sum", scale, int(point), dtype) if point or dtype else ("sum", scale)


def _second(name: str, value: Any) -> Quant:
    """Second operands as f32, zeros and all, as kernels convert those of other types, which `dtype` tells."""
    quant = _as_quant(value)
    if quant.dtype not in (None, *_OPERAND_TYPES) or quant.groups is not None:
        raise Unimplemented(
            f"post-operation {name} of {quant.dtype}, groups={quant.groups}; what works: {', '.join(_OPERAND_TYPES)}, "
            "without groups"
        )
    if quant.values is None:
        return replace(quant, dtype=quant.dtype or "f32")
    given = _type_of(f"post-operation {name}", quant.values, "numbers")
    dtype = quant.dtype or (given if given in _OPERAND_TYPES else "f32")
    with np.errstate(all="ignore"):
        values = quant.values.astype(fmt(dtype).dtype).astype(np.float32)
    return replace(quant, values=_read_only(values), dtype=dtype)


def _number(name: str, value: Any) -> float:
    """A finite f32."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InvalidArgument(f"post-operation ({name!r}, {value!r:.40}); a number is needed, e.g. ('sum', 0.5)")
    if not abs(float(value)) <= float(np.finfo(np.float32).max):
        raise InvalidArgument(f"post-operation ({name!r}, {value}); a finite f32 is needed")
    return float(np.float32(value))


def _read_only(values: Any) -> Array:
    try:
        array = np.array(held("array of values", values))
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidArgument(f"values {values!r:.60} are no array of numbers: {error}") from None
    array = array.astype(array.dtype.newbyteorder("="))
    array.setflags(write=False)
    return array


def _factor(value: Any) -> float:
    """A tensor's scale, as an f32 holds it."""
    try:
        with np.errstate(over="ignore"):
            factor = np.float32(value)
    except (TypeError, ValueError, OverflowError):
        factor = np.float32("nan")
    if isinstance(value, bool) or not (np.ndim(factor) == 0 and 0 <= factor < np.inf):
        raise InvalidArgument(f"tensor={value!r:.40}; a finite f32 from 0 on is needed")
    return float(factor)


def _type_of(what: str, array: Array, needed: str) -> str:
    try:
        return name_of(array.dtype)
    except UnknownName:
        raise InvalidArgument(f"{what} of {array.dtype}; {needed} are needed") from None


def _as_quant(value: Any) -> Quant:
    if value is None:
        raise InvalidArgument("None is no scale or zero point; leave the key out, or Quant(None, …) for the cost alone")
    quant = value if isinstance(value, Quant) else Quant(value)
    if quant.values is not None and not quant.values.size:
        raise InvalidArgument(f"an array of shape {quant.values.shape} holds no scale or zero point")
    return quant


def _scale(what: str, value: Any) -> Quant:
    """A Quant of finite floats in their storage type (float64 is rounded to f32)."""
    quant = _as_quant(value)
    if quant.tensor_scale is not None and "dst" in what:
        raise InvalidArgument(f"{what}={quant}; a tensor's scale is of a source or of weights")
    if quant.mode != "static":
        return _dynamic(what, quant)
    dtype = quant.dtype and one_of(f"dtype of {what}", quant.dtype, _SCALE_TYPES)
    if quant.values is None:
        return replace(quant, dtype=dtype or "f32")
    found = _type_of(what, quant.values, "floats")
    if found not in (*_SCALE_TYPES, "f64"):
        raise InvalidArgument(f"{what} of {found}; scales are floats: {', '.join(_SCALE_TYPES)}")
    dtype = dtype or ("f32" if found == "f64" else found)
    with np.errstate(over="ignore", under="ignore"):
        values = quant.values.astype(np.float32).astype(fmt(dtype).dtype)
    if fmt(dtype).bits > 8 and not np.isfinite(values.astype(np.float32)).all():  # a block's scale may be NaN
        raise InvalidArgument(f"{what} has NaN, Inf or a value beyond {dtype}; finite scales are needed")
    if ((values == 0) & (quant.values != 0)).any():
        raise InvalidArgument(f"{what} has a value so small that {dtype} holds it as 0")
    return replace(quant, values=_read_only(values), dtype=dtype)


def _dynamic(what: str, quant: Quant) -> Quant:
    """Scales that a product finds for its destination, whose type and groups follow from the mode."""
    dtype, columns = {"dynamic_mx": ("e8m0", 32), "dynamic_fp": ("f8_e4m3", 16)}[quant.mode]
    wanted = replace(quant, mask=3, groups=(1, columns), dtype=dtype)
    met = quant.mask in (None, 3), quant.groups in (None, wanted.groups), quant.dtype in (None, dtype)
    if "dst" not in what or not all(met):
        raise InvalidArgument(f"{what}={quant}; scales['dst'] alone are found, as {wanted}")
    return wanted


def _sums(what: str, value: Any) -> Quant:
    """A Quant of s32, no other type."""
    quant = _as_quant(value)
    if quant.dtype not in (None, "s32"):
        raise InvalidArgument(f"dtype={quant.dtype!r} of {what}; s32 is needed")
    if quant.values is not None:
        dtype = _type_of(what, quant.values, f"integers from {fmt('s32').low} to {fmt('s32').high}")
        if not fmt(dtype).is_integer:
            raise InvalidArgument(f"{what} of {dtype}; integers are needed: s32 (np.int32)")
        if dtype != "s32" and quant.values.ndim:
            raise InvalidArgument(f"{what} of {dtype}; s32 (np.int32) is needed")
    return replace(quant, dtype="s32")


def _zero_point(what: str, value: Any) -> Quant:
    """A Quant of integers within their storage type."""
    quant = _as_quant(value)
    dtype = quant.dtype and one_of(f"dtype of {what}", quant.dtype, _ZERO_POINT_TYPES)
    if quant.values is None:
        return replace(quant, dtype=dtype or "s32")
    found = _type_of(what, quant.values, f"integers from {fmt('s32').low} to {fmt('s32').high}")
    if not fmt(found).is_integer:
        raise InvalidArgument(f"{what} of {found}; integers are needed: {', '.join(_ZERO_POINT_TYPES)}")
    dtype = dtype or (found if found in _ZERO_POINT_TYPES else "s32")
    kind = fmt(dtype)
    wide = quant.values if quant.values.dtype.kind in "iu" else quant.values.astype(np.int64)
    for number in (int(wide.min()), int(wide.max())):
        if not kind.low <= number <= kind.high:
            raise InvalidArgument(f"{what} has {number}; {dtype} holds {kind.low} to {kind.high}")
    return replace(quant, values=_read_only(quant.values.astype(kind.dtype)), dtype=dtype)
