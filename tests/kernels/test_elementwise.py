"""Formulas, reductions, pooling and copies as programs: both engines' bits, NumPy's values, and the errors stated."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from isa_models import Unimplemented, machine
from isa_models.formats import fmt, name_of
from simdnn import numerics
from simdnn.kernels.common import functions
from simdnn.kernels.common.copy import CopyProblem
from simdnn.kernels.common.elementwise import MapProblem, collapse, elementwise
from simdnn.kernels.common.expression import Element, trace
from simdnn.kernels.x86.code import unit_of
from simdnn.kernels.x86.copy import copying
from simdnn.kernels.x86.vocabulary import X86Vocabulary
from simdnn.timing.estimate import estimate_program
from tests.effort import one_in

UNITS = ("avx2", "avx512_core", "avx512_core_bf16")
FLOATS = ("f32", "f16", "bf16")
Arrays = list[np.ndarray[Any, Any]]


def run(formula: Callable[..., Element], arrays: Arrays, dst: str, isa: str, engine: str = "reference") -> Any:
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    strides = [tuple(s // a.itemsize for s in np.broadcast_to(a, shape).strides) for a in arrays]
    dims, collapsed = collapse(shape, strides)
    expression = trace(formula, [name_of(a.dtype) for a in arrays])
    program = elementwise(MapProblem(expression, dims, tuple(collapsed), dst), X86Vocabulary(unit_of(isa))).program
    outputs = numerics.run(program, {f"src{i}": a for i, a in enumerate(arrays)}, engine=engine)
    return outputs["dst"].reshape(shape)


def exact(name: str, x: Any) -> Any:
    """The function in f64."""
    scipy = pytest.importorskip("scipy.special")
    known = {"exp": np.exp, "expm1": np.expm1, "tanh": np.tanh, "sigmoid": scipy.expit, "log": np.log, "erf": scipy.erf}
    return known[name](x.astype(np.float64))


@one_in(2)
@pytest.mark.parametrize(
    ("name", "low", "high", "ulp"),
    [
        ("exp", -87, 88.7, 1),
        ("expm1", -30, 87.9, 2.2),
        ("tanh", -12, 12, 4),
        ("sigmoid", -87, 80, 3),
        ("log", 1e-30, 1e30, 1),
        ("erf", -5, 5, 5),
    ],
)
@pytest.mark.parametrize("isa", UNITS[:2])
def test_functions_keep_their_stated_error(name: str, low: float, high: float, ulp: float, isa: str) -> None:
    rng = np.random.default_rng(1)
    small = rng.normal(size=20_000) * 10.0 ** rng.integers(-6, 1, 20_000)
    x = np.concatenate([np.linspace(low, high, 60_000), small]).astype(np.float32)
    x = x[(x >= low) & (x <= high)]
    got, want = run(getattr(functions, name), [x], "f32", isa, "compiled"), exact(name, x)
    error = np.abs(got - want) / np.spacing(np.abs(want.astype(np.float32))).astype(np.float64)
    assert error.max() <= ulp


def test_functions_at_the_ends() -> None:
    x = np.array([0, np.inf, -np.inf, np.nan, 200, -200], np.float32)
    with np.errstate(all="ignore"):
        for name, want in (
            ("exp", [1, np.inf, 0, np.nan, np.inf, 0]),
            ("tanh", [0, 1, -1, np.nan, 1, -1]),
            ("sigmoid", [0.5, 1, 0, np.nan, 1, 0]),
        ):
            np.testing.assert_array_equal(run(getattr(functions, name), [x], "f32", "avx512_core"), np.float32(want))
        logarithm = run(functions.log, [x], "f32", "avx2")
    np.testing.assert_array_equal(logarithm[:4], np.float32([-np.inf, np.inf, np.nan, np.nan]))
    assert np.isnan(logarithm[5])


@pytest.mark.parametrize(("isa", "dtype"), list(product(UNITS, FLOATS)))
def test_engines_agree_and_broadcasting_is_numpys(isa: str, dtype: str) -> None:
    rng, kind = np.random.default_rng(2), fmt(dtype).dtype
    for shapes in (
        ((3, 5, 21), (5, 1), (21,)),
        ((1,), (7,), (1,)),
        ((4, 16), (4, 1), (1, 16)),
        ((2, 1, 3), (1, 5, 1), (3,)),
    ):
        a, b, c = (rng.normal(size=s).astype(kind) for s in shapes)
        got = [
            run(lambda x, y, z: (x * y + z).maximum(0.0), [a, b, c], dtype, isa, e) for e in ("reference", "compiled")
        ]
        wide = [v.astype(np.float32) for v in (a, b, c)]
        want = np.maximum(wide[0] * wide[1] + wide[2], 0).astype(kind)
        assert got[0].tobytes() == got[1].tobytes() == want.tobytes()


@pytest.mark.parametrize("isa", UNITS)
def test_integers_convert_and_saturate(isa: str) -> None:
    rng = np.random.default_rng(3)
    x, step = (rng.normal(size=(3, 37)) * 99).astype(np.float32), np.full(1, 0.5, np.float32)
    got = run(lambda v, s: (v / s).nearest() + 3, [x, step], "s8", isa)
    np.testing.assert_array_equal(got, np.clip(np.rint(x / step) + 3, -128, 127))
    q, scale = rng.integers(0, 256, (3, 37)).astype(np.uint8), rng.normal(size=(3, 1)).astype(np.float32)
    got = run(lambda v, z, s: (v - z).to_float() * s, [q, np.full(1, 7, np.uint8), scale], "f32", isa)
    np.testing.assert_array_equal(got, (q.astype(np.float32) - 7) * scale)
    with pytest.raises(Unimplemented, match="operand of f64"):
        run(lambda v: v, [np.zeros(3)], "f32", isa)


@pytest.mark.parametrize(("isa", "size"), list(product(UNITS[:2], (1, 2, 4, 8))))
def test_copies(isa: str, size: int) -> None:
    for shape, order in (((3, 37), (0, 1)), ((3, 37), (1, 0)), ((2, 3, 41), (1, 0, 2)), ((101,), (0,))):
        x = np.random.default_rng(6).integers(0, 99, shape).astype(f"u{size}")
        moved = x.transpose(order)
        problem = CopyProblem(moved.shape, tuple(s // size for s in moved.strides), size)
        program = copying(problem, unit_of(isa))
        got = numerics.run(program, {"src": x.view(np.uint8)}, engine="reference")["dst"].view(x.dtype)
        np.testing.assert_array_equal(got.reshape(moved.shape), moved)
        assert estimate_program(program, machine("zen4")).cycles >= x.nbytes / 64
