"""Functions that follow a product: oneDNN's bits, recorded; both engines, the definitions, every order of comparison.

tests/vectors/onednn_activations.npz: what matmuls of oneDNN 3.13.2 with one post-operation gave on a Zen 5, under the
caps AVX2 (where it differs) and AVX512_CORE, for [1, -1] times `x`. Made by running the library; no code of it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simdnn
from isa_models.readings.arrays import Array
from simdnn import Attr
from simdnn.benchdnn.definitions import BINARY, ELTWISE
from simdnn.kernels.common.activations import formula_of, is_formula
from simdnn.kernels.common.postops import ELTWISE as NUMBERS
from simdnn.kernels.common.postops import PostOp

RECORDED = np.load(Path(__file__).parents[1] / "vectors" / "onednn_activations.npz")
X = RECORDED["x"].reshape(1, -1)
ROWS = np.array([[1], [-1]], np.float32)


def post_op(text: str) -> tuple[Any, ...]:
    name, *numbers = text.split(":")
    return (name, *map(float, numbers[: len(NUMBERS[name])]))


@pytest.mark.parametrize("case", [name for name in RECORDED.files if name != "x"])
def test_the_librarys_bits(case: str) -> None:
    text, isa = case.split("@")
    where = {"machine": "zen4", "isa": isa, "dispatch": "onednn", "wei_tag": "ab"}
    for engine in ("compiled", "reference"):
        r = simdnn.matmul(ROWS, X, attr=Attr(post_ops=[post_op(text)]), engine=engine, **where)
        assert r.output.tobytes() == RECORDED[case].tobytes()
    name, *numbers = post_op(text)
    if name != "log":  # whose primitive is nearer to the definition
        alone = simdnn.eltwise(ROWS @ X, name, *numbers, machine="zen4", isa=isa)
        assert alone.output.tobytes() == RECORDED[case].tobytes()


@pytest.mark.parametrize("op", [("tanh",), ("gelu_erf",), ("soft_relu", 0.5), ("pow", 2.0, 3.0), ("pow", 0.5, -1.5)])
@pytest.mark.parametrize("isa", ["avx2", "avx512_core"])
def test_near_the_definition(op: tuple[Any, ...], isa: str) -> None:
    """Of convolutions, whose kernels have other registers: plain ones and depthwise."""
    rng = np.random.default_rng(3)
    src = rng.standard_normal((1, 7, 3, 9)).astype(np.float32)
    for groups, shape in ((1, (5, 7, 1, 1)), (7, (7, 1, 1, 3))):
        weights = rng.standard_normal(shape).astype(np.float32)
        plain, r = (
            simdnn.convolution(src, weights, groups=groups, machine="zen4", isa=isa, attr=Attr(post_ops=ops))
            for ops in ([], [op])
        )
        alpha, beta = (*op[1:], 0.0, 0.0)[:2]
        with np.errstate(invalid="ignore"):
            wanted = ELTWISE[op[0]](plain.output.astype(np.float64), alpha, beta)
        assert np.array_equal(np.isnan(wanted), np.isnan(r.output))
        assert np.nanmax(abs(r.output - wanted) / (1 + abs(wanted))) < 4e-6 and r.cycles > plain.cycles


@pytest.mark.parametrize("kind", ["ge", "gt", "le", "lt", "eq", "ne"])
def test_comparisons(kind: str) -> None:
    rng = np.random.default_rng(4)
    src, weights = rng.integers(-3, 4, (5, 4)).astype(np.float32), rng.integers(-2, 3, (4, 19)).astype(np.float32)
    second = rng.integers(-6, 7, 19).astype(np.float32)
    second[:3] = np.inf, -np.inf, -0.0
    for isa in ("avx2", "avx512_core"):
        r = simdnn.matmul(src, weights, machine="zen4", isa=isa, attr=Attr(post_ops=[(kind, second)]))
        assert (r.output == BINARY[kind](src @ weights, second)).all()


def _rounded(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A function of f32 rounded right, by way of f64."""
    return lambda x: function(x.astype(np.float64)).astype(np.float32)


F32, EXP, LOG1P, TANH = np.float32, _rounded(np.exp), _rounded(np.log1p), _rounded(np.tanh)
BOUND = F32(88.72283172607421875)


def _logistic(x: Array) -> Array:
    return np.where(-x < BOUND, F32(1) / (F32(1) + EXP(-x)), F32(0))


def _soft_plus(x: Array) -> Array:
    return np.where(x < BOUND, LOG1P(EXP(x)), x)


def _gelu_tanh(x: Array) -> Array:
    inner = (F32(0.79788458347320556640625) * x) * (F32(1) + (F32(0.044715) * x) * x)
    return np.asarray((0.5 * x.astype(np.float64) * (1.0 + TANH(inner).astype(np.float64))).astype(np.float32))


#: post-operations as the library's reference computes them, where C's functions round right
OF_C: dict[tuple[Any, ...], Callable[[Array], Array]] = {
    ("elu", 0.75): lambda x: np.where(x > 0, x, F32(0.75) * _rounded(np.expm1)(x)),
    ("exp",): EXP,
    ("gelu_tanh",): _gelu_tanh,
    ("log",): _rounded(np.log),
    ("logistic",): _logistic,
    ("mish",): lambda x: x * TANH(_soft_plus(x)),
    ("soft_relu", 1.5): lambda x: _soft_plus(x * F32(1.5)) / F32(1.5),
    ("swish", 1.5): lambda x: x * _logistic(F32(1.5) * x),
    ("tanh",): TANH,
    ("pow", 2.0, 0.5): lambda x: F32(2) * np.sqrt(x + F32(0)),
    ("pow", 0.5, -1.0): lambda x: F32(0.5) * (F32(1) / x),
}


@pytest.mark.parametrize("isa", ["avx2", "avx512_core"])
@pytest.mark.parametrize("op", OF_C, ids=lambda op: op[0])
def test_what_the_reference_calls_is_rounded_right(op: tuple[Any, ...], isa: str) -> None:
    rng = np.random.default_rng(5)
    some = [rng.uniform(-86, 90, 500), rng.standard_normal(500) * 3, rng.standard_normal(150) * 1e-3, [0.0, 1.0]]
    values = np.concatenate([[np.inf, -np.inf, np.nan, -1e-30, 1e-30, 1e30], *some]).astype(np.float32)
    one = np.ones((1, 1, 1, 1), np.float32)
    where: dict[str, Any] = {"machine": "spr", "dispatch": f"ref_conv:{isa}", "attr": Attr(post_ops=[op])}
    for engine, count in (("compiled", len(values)), ("reference", 10)):
        x = values[:count].reshape(1, 1, 2, -1)
        with np.errstate(all="ignore"):
            wanted = OF_C[op](x)
        found = simdnn.convolution(x, one, engine=engine, **where).output
        kept = np.isfinite(wanted) & (abs(wanted) > 2e-38) | (wanted == 0)
        assert np.array_equal(np.isnan(found), np.isnan(wanted))
        assert np.array_equal(found[kept].view(np.uint32), wanted[kept].astype(np.float32).view(np.uint32))


def test_what_the_library_leaves_to_c_is_refused() -> None:
    src, weights = np.ones((2, 4), np.float32), np.ones((4, 8), np.float32)
    where: dict[str, Any] = {"machine": "zen4", "dispatch": "onednn"}
    with pytest.raises(simdnn.Unimplemented, match="powf"):
        simdnn.matmul(src, weights, attr=Attr(post_ops=[("pow", 1.0, 3.0)]), **where)
    large = np.ones((1, 8, 3, 4), np.float32)
    attr = Attr(post_ops=[("add", large), "tanh"])
    with pytest.raises(simdnn.Unimplemented, match="ref:any.*C's library for 'tanh'.*16 bits or fewer works"):
        simdnn.convolution(large, np.ones((8, 8, 1, 1), np.float32), attr=attr, **where)
    assert simdnn.matmul(src, weights, dst="bf16", attr=Attr(post_ops=["tanh"]), **where).implementation
    with pytest.raises(simdnn.Unimplemented, match="C's library for 'gelu_erf'"):
        simdnn.matmul(src, weights, dst="bf16", attr=Attr(post_ops=["gelu_erf"]), **where)


def test_every_name_has_a_formula_or_instructions() -> None:
    exact = {"relu", "abs", "square", "sqrt", "linear", "clip", "clip_v2", "hardsigmoid", "hardswish"}
    for name in NUMBERS.keys() - exact - {"pow"}:
        post_op = PostOp(name, len(NUMBERS[name]))
        assert is_formula(post_op) and formula_of(post_op, 8).steps
    assert not any(is_formula(PostOp(name, len(NUMBERS[name]))) for name in exact)
