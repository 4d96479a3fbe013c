"""Operators that compute every element by itself.

Floats of the kernels' types run as a formula; other types (f64, integers, truth values) get the formula's values over
arrays, and an estimated cost. Functions without a formula get NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np

from isa_models import Unimplemented
from isa_models.readings.arrays import Array
from simdnn.kernels.common import functions as f
from simdnn.kernels.common.expression import Element
from simdnn.kernels.common.values import over_arrays
from simdnn.libraries import LineSums
from simdnn.networks.between_products import FLOATS, Formula
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.registry import need, operator
from simdnn.networks.shadows import shadow
from simdnn.networks.types import bits, element, is_float, is_signed, label

Plain = Callable[..., Any]


def has_kernel(*operands: Array) -> bool:
    """Whether formulas take these types."""
    return all(label(a.dtype) in FLOATS for a in operands)


def widened(x: Array) -> Array:
    """Narrow floats as f32, in which NumPy's functions compute them; other types as they are."""
    return x.astype(np.float32) if is_float(x.dtype) and x.dtype.itemsize < 4 else x


def computed(
    k: Kernels, name: str, formula: Formula, *operands: Array, plain: Plain | None = None, steps: int = 1
) -> Array:
    """The formula as a kernel where one takes the operands, else read over arrays, in the operands' own type.

    `plain` is for a formula that does not say to the bit what NumPy's function does, or that reads f32's bits: the
    function to compute other types by. `steps` multiply-adds an element are then its estimated cost.
    """
    if has_kernel(*operands):
        return k.map(formula, *operands, name=name)
    return by_numpy(k, plain or over_arrays(formula), *operands, steps=steps)


def by_numpy(k: Kernels, plain: Plain, *operands: Array, steps: int = 1, dst: Any = None) -> Array:
    """NumPy's values; narrow floats are computed in f32 and rounded once."""
    dtype = operands[0].dtype if dst is None else np.dtype(dst)
    shape = k.broadcast(*operands)
    k.allocate(shape, dtype, shadowed=k.shadows(*operands))
    if k.shadows(*operands):
        return k.plain(shadow(shape, dtype), *operands, steps=steps)
    with np.errstate(all="ignore"):
        result = np.asarray(plain(*map(widened, operands))).astype(dtype, copy=False)
    return k.plain(result, *operands, steps=steps)


# -- one operand ------------------------------------------------------------------------------------------------------
def _softplus(x: Element) -> Element:
    return x.maximum(0.0) + f.log(f.exp(-(x.abs())) + 1.0)


_UNARY: dict[str, Formula] = {
    "Abs": lambda x: x.abs(),
    "Neg": lambda x: -x,
    "Relu": lambda x: x.maximum(0.0),
    "Sqrt": lambda x: x.sqrt(),
    "Reciprocal": lambda x: 1.0 / x,
    "Exp": f.exp,
    "Log": f.log,
    "Sigmoid": f.sigmoid,
    "Tanh": f.tanh,
    "Erf": f.erf,
    "Softplus": _softplus,
    "Softsign": lambda x: x / (x.abs() + 1.0),
    "HardSwish": lambda x: x * x.fma(1 / 6, 0.5).maximum(0.0).minimum(1.0),
    "Mish": lambda x: x * f.tanh(_softplus(x)),
}
#: functions of those whose formula is not, to the bit, what NumPy makes of the definition in other types
_PLAIN: dict[str, Plain] = {
    "Softplus": lambda x: np.logaddexp(x, 0),
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "Mish": lambda x: x * np.tanh(np.logaddexp(x, 0)),
}


@operator(*_UNARY)
def unary(k: Kernels, node: Node, x: Array) -> Array:
    if node.op in ("Log", "Softplus") and (lines := lines_of(k, x)) is not None:
        return k.map(_UNARY[node.op], x, name=node.op.lower(), values=lambda: lines.of_elements(node.op, x))
    if node.op == "Mish" and lines_of(k, x) is not None:  # a library that has none: its parts
        plus = unary(k, replace(node, op="Softplus"), x)
        return k.map(lambda v, t: v * t, x, unary(k, replace(node, op="Tanh"), plus), name="mul")
    formula = formula_of(k, node.op) if has_kernel(x) else _UNARY[node.op]  # a library's may read the bits of f32
    return computed(k, node.op.lower(), formula, x, plain=_PLAIN.get(node.op), steps=8)


def formula_of(k: Kernels, op: str, own: Formula | None = None) -> Formula:
    """The formula of an operator; a library that runs models may have its own."""
    library, plain = k.target.library, own or _UNARY[op]
    return library.functions.get(op, plain) if library is not None and k.runs_models else plain


def lines_of(k: Kernels, x: Array) -> LineSums | None:
    """A library's own order of sums along a line of f32; the cost is that of the kernels here all the same."""
    library = k.target.library
    return library.lines if library is not None and k.runs_models and x.dtype == np.float32 else None


def powers_of(k: Kernels) -> Formula:
    """e**x as a softmax has it."""
    wide = "avx512_core" in k.target.caps
    return formula_of(k, "powers" if wide else "powers in 8 lanes", f.exp)


def sigmoid(k: Kernels, x: Array) -> Array:
    """The operator, for others that end with it."""
    return computed(k, "sigmoid", formula_of(k, "Sigmoid"), x, steps=8)


#: functions without a formula here: NumPy's values, and the multiply-adds that their polynomials take (estimated)
_BY_NUMPY: dict[str, tuple[Plain, int]] = {
    "Floor": (np.floor, 1),
    "Ceil": (np.ceil, 1),
    "Round": (np.rint, 1),
    "Sign": (np.sign, 3),
    "Sin": (np.sin, 12),
    "Cos": (np.cos, 12),
    "Tan": (np.tan, 16),
    "Asin": (np.arcsin, 14),
    "Acos": (np.arccos, 14),
    "Atan": (np.arctan, 14),
    "Sinh": (np.sinh, 16),
    "Cosh": (np.cosh, 16),
    "Asinh": (np.arcsinh, 20),
    "Acosh": (np.arccosh, 20),
    "Atanh": (np.arctanh, 20),
    "BitwiseNot": (np.bitwise_not, 1),
    "Not": (np.logical_not, 1),
}


@operator(*_BY_NUMPY)
def unary_by_numpy(k: Kernels, node: Node, x: Array) -> Array:
    plain, steps = _BY_NUMPY[node.op]
    if node.op == "Sign" and x.dtype == np.float16 and k.runs_models:
        return by_numpy(k, lambda v: np.where(np.isnan(v), 0, np.sign(v)), x, steps=steps)  # a library's, of a NaN
    if node.op in ("Sin", "Cos") and (lines := lines_of(k, x)) is not None:
        return k.plain(lines.of_elements(node.op, x) if k.values else x, x, steps=steps)
    return by_numpy(k, plain, x, steps=steps)


@operator("IsNaN")
def isnan(k: Kernels, node: Node, x: Array) -> Array:
    return by_numpy(k, np.isnan, x, dst=bool)


@operator("IsInf")
def isinf(k: Kernels, node: Node, x: Array) -> Array:
    up, down = node.integer("detect_positive", 1), node.integer("detect_negative", 1)
    return by_numpy(k, lambda v: (np.isposinf(v) & bool(up)) | (np.isneginf(v) & bool(down)), x, dst=bool)


# -- several operands -------------------------------------------------------------------------------------------------
_BINARY: dict[str, Formula] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": lambda a, b: a / b,
}


def aligned(node: Node, a: Array, b: Array) -> Array:
    """b as the first opsets broadcast it: only with `broadcast`, from dimension `axis` of a on."""
    if node.version >= 7 or not node.integer("broadcast", 0) or b.ndim == 0:
        return b
    axis = node.integer("axis", a.ndim - b.ndim) % max(1, a.ndim)
    return b.reshape(b.shape + (1,) * (a.ndim - axis - b.ndim))


@operator(*_BINARY)
def binary(k: Kernels, node: Node, a: Array, b: Array) -> Array:
    need(a.dtype == b.dtype, f"operands of {label(a.dtype)} and {label(b.dtype)}; one type is needed")
    return computed(k, node.op.lower(), _BINARY[node.op], a, aligned(node, a, b))


_MANY: dict[str, Formula] = {
    "Sum": lambda a, b: a + b,
    "Mean": lambda a, b: a + b,
    "Max": lambda a, b: a.maximum(b),
    "Min": lambda a, b: a.minimum(b),
}


@operator(*_MANY)
def many(k: Kernels, node: Node, *operands: Array) -> Array:
    need(bool(operands), "no operands")
    if len(operands) == 1:
        return operands[0]
    result = reduce(lambda a, b: computed(k, node.op.lower(), _MANY[node.op], a, b), operands)
    count = len(operands)
    if node.op != "Mean":
        return result
    if lines_of(k, result) is not None:  # a library that multiplies by 1 / count
        return k.map(lambda v: v * float(np.float32(1) / np.float32(count)), result, name="mean")
    return computed(k, "mean", lambda v: v / float(count), result)


_COMPARISONS: dict[str, Plain] = {
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
}
_BITWISE: dict[str, Plain] = {"BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor}


@operator(*_COMPARISONS)
def compared(k: Kernels, node: Node, a: Array, b: Array) -> Array:
    return by_numpy(k, _COMPARISONS[node.op], a, aligned(node, a, b), dst=bool)


@operator(*_BITWISE)
def bitwise(k: Kernels, node: Node, a: Array, b: Array) -> Array:
    return by_numpy(k, _BITWISE[node.op], a, aligned(node, a, b))


@operator("BitShift")
def bit_shift(k: Kernels, node: Node, a: Array, b: Array) -> Array:
    direction = node.text("direction")
    need(direction in ("LEFT", "RIGHT"), f"direction={direction!r}; allowed: LEFT, RIGHT")
    return by_numpy(k, np.left_shift if direction == "LEFT" else np.right_shift, a, b)


_FLOORED = 28  # the operator set since which floats have a remainder of the divisor's sign


@operator("Mod")
def mod(k: Kernels, node: Node, a: Array, b: Array) -> Array:
    if node.integer("fmod", 0):
        return by_numpy(k, np.fmod, a, b, steps=4)
    need(node.version >= _FLOORED or not is_float(a.dtype), "a remainder of floats; fmod=1 is needed")
    need(is_float(a.dtype) or not (b == 0).any(), "an integer divided by zero")
    return by_numpy(k, np.mod, a, b, steps=4)


_POWERS: dict[float, Formula] = {
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
    0.5: lambda x: x.sqrt(),
    -1.0: lambda x: 1.0 / x,
    1.0: lambda x: x * 1.0,
    -0.5: lambda x: 1.0 / x.sqrt(),
    4.0: lambda x: (x * x) * (x * x),
}


@operator("Pow")
def power(k: Kernels, node: Node, x: Array, exponent: Array) -> Array:
    """Common exponents are products and roots; others are e**(y log x), whose values here are NumPy's."""
    return raised(k, x, aligned(node, x, exponent))


def raised(k: Kernels, x: Array, exponent: Array) -> Array:
    """x**exponent."""
    single = float(exponent.reshape(-1)[0]) if exponent.size == 1 and exponent.ndim <= x.ndim else 0.0
    lines = lines_of(k, x) if exponent.dtype == x.dtype else None
    if lines is not None and single not in (2.0, 3.0):
        shape = k.broadcast(x, exponent)
        return k.plain(lines.power(x, exponent) if k.values else shadow(shape, x.dtype), x, exponent, steps=30)
    if has_kernel(x) and single in _POWERS:
        return k.map(_POWERS[single], x, name="pow")

    def plain(v: Array, y: Array) -> Array:
        if not is_float(v.dtype) and is_float(y.dtype):
            return np.power(v.astype(np.float64), y)
        if not is_float(v.dtype) and (y < 0).any():
            return np.power(v.astype(np.float64), y)
        return np.power(v, y)

    return by_numpy(k, plain, x, exponent, steps=30)


@operator("Where")
def where(k: Kernels, node: Node, condition: Array, yes: Array, no: Array) -> Array:
    need(yes.dtype == no.dtype, f"operands of {label(yes.dtype)} and {label(no.dtype)}; one type is needed")
    if lines_of(k, yes) is not None and k.values:
        yes = yes + np.float32(0)  # a library takes what is no 0 of the first, else the second: -0 becomes 0
    return by_numpy(k, lambda y, n, c: np.where(c, y, n), yes, no, condition, steps=2)


# -- conversions ------------------------------------------------------------------------------------------------------
@operator("BitCast")
def bit_cast(k: Kernels, node: Node, x: Array) -> Array:
    """The bits of `x` as another type of the same size; nothing moves."""
    dtype = element(node.integer("to"))
    need(
        dtype.kind != "O" and dtype.itemsize == x.dtype.itemsize, f"{label(x.dtype)} and {label(dtype)} differ in size"
    )
    return x.view(dtype)


@operator("Cast")
def cast(k: Kernels, node: Node, x: Array) -> Array:
    return _cast(k, node, x, element(node.integer("to")))


@operator("CastLike")
def cast_like(k: Kernels, node: Node, x: Array, like: Array) -> Array:
    return _cast(k, node, x, like.dtype)


def _cast(k: Kernels, node: Node, x: Array, dtype: np.dtype[Any]) -> Array:
    saturate = bool(node.integer("saturate", 1))
    if dtype == ml_dtypes.float8_e8m0fnu:
        return k.plain(powers_of_two(x.astype(np.float32), saturate, node.text("round_mode", "up")), x, steps=3)
    return cast_to(k, x, dtype, saturate)


_CONVERTED = {(a, b) for a in FLOATS for b in FLOATS if a != b} | {(a, "f32") for a in ("s8", "u8", "s32")}


def cast_to(k: Kernels, x: Array, dtype: np.dtype[Any], saturate: bool = True) -> Array:
    """Between f32, f16 and bf16 by the kernels' conversions (nearest even); the rest as ONNX states it, by NumPy."""
    if x.dtype == dtype:
        return x
    kind = label(x.dtype), label(dtype)
    if kind in _CONVERTED and kind[0] in FLOATS:
        kept = dtype == ml_dtypes.bfloat16 and lines_of(k, x) is not None  # a library's, which keeps denormals
        return k.map(lambda v: v, x, dst=dtype, name="convert", values=(lambda: x.astype(dtype)) if kept else None)
    if kind in _CONVERTED:
        return k.map(lambda v: v.to_float(), x, dst=dtype, name="convert")
    if k.shadows(x) and dtype.kind != "O":
        return k.plain(shadow(x.shape, dtype), x)
    with np.errstate(all="ignore"):
        return k.plain((_as_library if k.runs_models else _as)(x, dtype, saturate), x)


#: magnitudes whose codes by a Cast of onnxruntime that does not saturate are no codes of the format (float8.h)
_ASTRAY = {"f8_e4m3": (480, 496), "f8_e5m2": (61440, 65536)}


def _as_library(x: Array, dtype: np.dtype[Any], saturate: bool) -> Array:
    """Values of another type as onnxruntime casts them: to 2 and 4 bits rounded, halves away from zero, f64 to f16 and
    floats of 16 bits to integers by way of f32. A zero of 8 bits with a sign is true.
    """
    if not is_float(x.dtype) and not is_float(dtype) or x.dtype.kind == "O":
        return _as(x, dtype, saturate)
    if dtype.kind == "b" and bits(x.dtype) == 8:
        return np.asarray(x.view(np.uint8) != 0)
    wide = x.astype(np.float32)
    low, end = _ASTRAY.get(label(dtype), (0, 0))
    if not saturate and ((np.abs(wide) >= low) & (np.abs(wide) < end)).any():
        raise Unimplemented(f"onnxruntime casts {low} to {end} to a wrong {label(dtype)}; what works: saturate=1")
    if not is_float(dtype) and bits(dtype) < 8:
        return _as(np.trunc(x.astype(np.float64) + np.copysign(0.5, wide)), dtype, saturate)
    by_f32 = label(dtype) == "f16" or x.dtype.itemsize == 2 and dtype.kind in "iu"
    return _as(wide if by_f32 and is_float(x.dtype) else x, dtype, saturate)


def _as(x: Array, dtype: np.dtype[Any], saturate: bool) -> Array:
    if dtype.kind == "O":
        return np.array([_text(v) for v in x.reshape(-1)], object).reshape(x.shape)
    if x.dtype.kind == "O":
        return np.array([float(v) for v in x.reshape(-1)], np.float64).reshape(x.shape).astype(dtype)
    if dtype.kind == "b":
        return np.asarray(x.astype(np.float32) != 0 if x.dtype.kind == "V" else x != 0)
    width = bits(dtype)
    if is_float(dtype) and width <= 8:
        return narrowed(x, dtype, saturate)
    if width < 8:
        wide = x.astype(np.float32) if is_float(x.dtype) else x
        low, mask = (-(1 << (width - 1)) if is_signed(dtype) else 0), (1 << width) - 1
        whole = np.trunc(wide).astype(np.int64)
        return np.asarray((((whole - low) & mask) + low).astype(np.int8).astype(dtype))
    return widened(x).astype(dtype)


def _text(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return "NaN" if np.isnan(value) else ("-INF" if value < 0 else "INF") if np.isinf(value) else f"{value:.9g}"
    return str(value)


def powers_of_two(x: Array, saturate: bool, mode: str) -> Array:
    """To the 8-bit exponents of block scales, rounded up, down or to the nearest (a tie goes up)."""
    need(mode in ("up", "down", "nearest"), f"round_mode={mode!r}; allowed: up, down, nearest")
    wide = np.clip(x, 2.0**-127, 2.0**127) if saturate else x
    share, exponent = np.frexp(wide.astype(np.float64))  # share from 1/2 up to 1
    above = share > 0.5 if mode == "up" else share >= 0.75 if mode == "nearest" else np.zeros(share.shape, bool)
    rounded = np.ldexp(1.0, exponent - 1 + above)
    return np.where(np.isfinite(wide), rounded, wide).astype(np.float32).astype(ml_dtypes.float8_e8m0fnu)


def narrowed(x: Array, dtype: np.dtype[Any], saturate: bool) -> Array:
    """To an 8-bit or 4-bit float, nearest even; with `saturate` what is too large becomes the largest."""
    wide = x.astype(np.float32)
    most = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
    if not saturate and bits(dtype) == 8:  # 4 bits hold neither NaN nor infinity
        return wide.astype(dtype)
    kept = np.isnan(wide)
    return np.where(kept, wide, np.clip(wide, -most, most)).astype(np.float32).astype(dtype)
