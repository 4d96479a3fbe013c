"""The small products that views run: sizes, types, and operands that are drawn or extreme."""

from __future__ import annotations

from typing import Any

import numpy as np

from isa_models import InvalidArgument
from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.kernels.table import kernels
from simdnn.libraries import LIBRARIES
from simdnn.primitives import Attr
from simdnn.primitives.mathmode import FPMATH_MODES
from simdnn.teach.forms import Field, FieldGroup, Query

TYPES = (
    "u8:s8:s32",
    "s8:s8:s32",
    "u8:s8:f32",
    "f32:f32:f32",
    "bf16:bf16:f32",
    "f16:f16:f32",
    "bf16:bf16:bf16",
    "f16:f16:f16",
)
DATA = ("random", "largest", "small")
MOST = 512  # of each size
MOST_MACS = 1 << 19


def problem_group(query: Query) -> FieldGroup:
    """The fields of a problem."""
    sizes = [Field(name, name, query.text(name, default), note=note) for name, default, note in _SIZES]
    more = (
        Field("dt", "src:weights:dst", query.text("dt", TYPES[0]), TYPES),
        Field("data", "numbers", query.text("data", "random"), DATA, note="random: of the whole range"),
    )
    return FieldGroup("Problem: (m, k) by (k, n)", (*sizes, *more))


_SIZES = (("m", "4", "rows"), ("k", "64", "length of a sum"), ("n", "32", "columns"))


def mode_field(query: Query, name: str = "mode") -> Field:
    """The field of a math mode."""
    return Field(name, "math mode", query.text(name, "strict"), FPMATH_MODES)


def dispatch_field(query: Query, name: str = "dispatch") -> Field:
    """The field of a rule of dispatch, or a kernel."""
    known = ["fastest", *LIBRARIES, *(kind.name for kind in kernels() if kind.operation is MatmulProblem)]
    return Field(name, "kernel", query.text(name, "fastest"), known, free=True, note="a rule, or a kernel's name")


def attr_of(query: Query, name: str = "mode") -> Attr:
    """The attribute that the math mode makes."""
    return Attr(fpmath=query.one_of(name, FPMATH_MODES, "strict"))


def operands(query: Query) -> tuple[Array, Array, str]:
    """Source, weights and the destination's type. Raises `InvalidArgument` for sizes beyond what a page should run."""
    m, k, n = (query.whole(name, int(default), 1, MOST) for name, default, _ in _SIZES)
    if m * k * n > MOST_MACS:
        raise InvalidArgument(f"{m} x {k} x {n} are {m * k * n} products; the page runs at most {MOST_MACS}")
    src, wei, dst = query.one_of("dt", TYPES, TYPES[0]).split(":")
    data = query.one_of("data", DATA, "random")
    rng = np.random.default_rng(0)
    return _filled(rng, (m, k), src, data), _filled(rng, (k, n), wei, data), dst


def _filled(rng: np.random.Generator, shape: tuple[int, int], dtype: str, data: str) -> Array:
    form = fmt(dtype)
    low, high = (-3, 4) if form.is_float else (max(form.low, -4), 4)
    values: Any
    if data == "largest":
        values = np.full(shape, 1e4 if form.is_float else form.high)
    elif data == "small":
        values = rng.integers(low, high, shape)
    else:
        whole = rng.integers(form.low, form.high, shape, endpoint=True) if not form.is_float else None
        values = rng.standard_normal(shape) if whole is None else whole
    return np.asarray(values).astype(np.float32 if form.is_float else np.int64).astype(form.dtype)
