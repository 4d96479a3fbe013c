"""Functions that follow a product: oneDNN's bits, recorded; both engines, the definitions, every order of comparison.

tests/vectors/onednn_activations.npz: what matmuls of oneDNN 3.13.2 with one post-operation gave on a Zen 5, under the
caps AVX2 (where it differs) and AVX512_CORE, for [1, -1] times `x`. Made by running the library; no code of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simdnn
from simdnn import Attr
from simdnn.benchdnn.definitions import BINARY, ELTWISE
from simdnn.kernels.common.activations import formula_of, is_formula
from simdnn.kernels.common.postops import ELTWISE as NUMBERS
from simdnn.kernels.common.postops import PostOp
from tests.effort import one_in

RECORDED = np.load(Path(__file__).parents[1] / "vectors" / "onednn_activations.npz")
X = RECORDED["x"].reshape(1, -1)
ROWS = np.array([[1], [-1]], np.float32)


def post_op(text: str) -> tuple[Any, ...]:
    name, *numbers = text.split(":")
    return (name, *map(float, numbers[: len(NUMBERS[name])]))


@one_in(3)
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


@one_in(3, "isa")
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


#: what oneDNN 3.13.2's reference made of `x`, in a process whose C library is glibc 2.36
OF_C = np.load(Path(__file__).parents[1] / "vectors" / "onednn_c_functions.npz")


@one_in(4, "isa")
@pytest.mark.parametrize("isa", ["avx2", "avx512_core"])
@pytest.mark.parametrize("case", [name for name in OF_C.files if name != "x"])
def test_what_the_reference_calls_of_c(case: str, isa: str) -> None:
    one, x = np.ones((1, 1, 1, 1), np.float32), OF_C["x"]
    known = ~((x == 0) & np.signbit(x))  # a convolution's sum of -0 is 0
    where: dict[str, Any] = {"machine": "spr", "dispatch": f"ref_conv:{isa}", "attr": Attr(post_ops=[post_op(case)])}
    for engine, count in (("compiled", x.size), ("reference", 10)):
        wanted = OF_C[case][:count]
        found = simdnn.convolution(x[:count].reshape(1, 1, 2, -1), one, engine=engine, **where).output.reshape(-1)
        normal = known[:count].copy()
        if case.startswith("pow") and not float(case.split(":")[2]).is_integer():
            normal &= x[:count] != -np.inf  # of which powf knows more
        assert np.array_equal(np.isnan(found[normal]), np.isnan(wanted[normal]))
        kept = normal & ~np.isnan(wanted)
        assert np.array_equal(
            (found[kept] + np.float32(0)).view(np.uint32), (wanted[kept] + np.float32(0)).view(np.uint32)
        )


def test_every_name_has_a_formula_or_instructions() -> None:
    exact = {"relu", "abs", "square", "sqrt", "linear", "clip", "clip_v2", "hardsigmoid", "hardswish"}
    for name in NUMBERS.keys() - exact - {"pow"}:
        post_op = PostOp(name, len(NUMBERS[name]))
        assert is_formula(post_op) and formula_of(post_op, 8).steps
    assert not any(is_formula(PostOp(name, len(NUMBERS[name]))) for name in exact)


def test_powers_behind_tiles_of_all_heights() -> None:
    """The longest formula takes registers of higher tiles behind a lower one: the library has four vectors a row."""
    rng = np.random.default_rng(4)
    src, weights = rng.integers(0, 9, (5, 24), np.uint8), rng.integers(-9, 9, (24, 61), np.int8)
    wanted = np.sqrt(np.maximum(src.astype(np.float64) @ weights, 0)).astype(np.float32)
    where = {"machine": "gnr", "isa": "avx2_vnni", "dispatch": "onednn", "dst": "bf16"}
    for engine in ("compiled", "reference"):
        r = simdnn.matmul(src, weights, attr=Attr(post_ops=["relu", ("pow", 1.0, 0.5)]), engine=engine, **where)
        assert np.allclose(r.output.astype(np.float32), wanted, rtol=2**-8)
