"""Every kernel of the table: the three engines give the same bits, and integers are right."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models.formats import fmt
from isa_models.machines.loader import cpu_machine as machine
from isa_models.readings.arrays import Array
from simdnn import numerics
from simdnn.kernels import ConvProblem, Epilogue, Kernel, KernelKind, MatmulProblem, Parameters, Problem
from simdnn.kernels.common.postops import RELU
from simdnn.kernels.x86.rows import KERNELS
from tests.effort import examples, one_in
from tests.haste import code_of_long_runs
from tests.params import BY_CHANNEL, COMMON
from tests.primitives.problems import exact_sums

KINDS = {kind.name: kind for kind in KERNELS}
MATMUL = [k for k in KERNELS if k.name.startswith(("gemm", "gemv"))]
CONV = [k for k in KERNELS if k.name.startswith(("conv", "dw"))]


def types(kind: KernelKind, rng: np.random.Generator) -> tuple[str, str]:
    if "int8" in kind.name or "vnni" in kind.name:
        return str(rng.choice(kind.sources)), "s8"
    if "_by_" in kind.name:
        return str(rng.choice(kind.sources)), kind.weights[0]
    if any(word in kind.name for word in ("down", "tf32")):
        return "f32", "f32"
    bf16 = "bf16" in kind.name or kind.name.endswith("amx")
    return ("bf16",) * 2 if bf16 else ("f16",) * 2 if re.search("fp?16", kind.name) else ("f32",) * 2


def data(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Values that reach the ends of the type; floats with some specials among them."""
    form = fmt(dtype)
    if not form.is_float:
        values = rng.integers(form.low, form.high + 1, shape)
        return np.where(rng.random(shape) < 0.3, rng.choice([form.low, form.high], shape), values).astype(form.dtype)
    low, high = (-30, 20) if rng.random() < 0.3 else (-3, 3)  # products and sums that are tiny, or nearly so
    values = (rng.standard_normal(shape) * 10.0 ** rng.integers(low, high, shape)).astype(np.float32)
    specials = np.array([0.0, -0.0, 1e-39, -1e-39, 3e38, np.inf, -np.inf, np.nan], np.float32)
    rare = rng.random(shape) < (0.02 if rng.random() < 0.3 else 0.0)
    with np.errstate(over="ignore"):  # f16 has its infinities from there
        return np.where(rare, rng.choice(specials, shape), values).astype(np.float32).astype(form.dtype)


def epilogue(rng: np.random.Generator, integer: bool, matmul: bool) -> Epilogue:
    if rng.random() < 0.4:
        return Epilogue("s32" if integer else "f32", zp_src=integer and rng.random() < 0.5)
    pick = lambda *options: options[int(rng.integers(len(options)))]  # noqa: E731
    dst = pick("f32", "s8", "u8", "bf16", "f16")
    return Epilogue(
        dst,
        zp_src=integer and pick(False, True),
        zp_wei=integer and matmul and pick(False, True),
        src_scale=pick(False, True),
        wei_scale=pick(None, COMMON, BY_CHANNEL),
        bias=pick(False, True),
        post_ops=(RELU,) if pick(False, True) else (),
        dst_scale=pick(False, True),
        dst_zero_point=pick(False, True),
    )


def parameters(rng: np.random.Generator, e: Epilogue, n: int) -> Parameters:
    scale = rng.uniform(0.001, 0.02, n if e.wei_scale == BY_CHANNEL else 1).astype(np.float32)
    return Parameters(
        bias=rng.standard_normal(n).astype(np.float32) if e.bias else None,
        src_scale=0.37,
        wei_scale=scale,
        dst_scale=1.7,
        zp_src=int(rng.integers(-9, 200)),
        zp_wei=int(rng.integers(-9, 9)),
        dst_zero_point=int(rng.integers(-5, 6)),
    )


def bits(array: Array) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def run_all(kernel: Kernel, src: Array, wei: Array, p: Parameters, portable: bool = True) -> Array:
    """The result, after the three engines have agreed on it, in haste and not; in one of the two for `portable` code,
    which may be left out.
    """
    inputs = kernel.prepare(src, wei, p)
    wanted = kernel.finish(numerics.run(kernel.program, inputs, engine="reference"))
    kinds: tuple[Callable[[], AbstractContextManager[None]], ...] = nullcontext, code_of_long_runs
    for native in (True, False) if portable else (True,):
        for haste in kinds if native else kinds[zlib.crc32(kernel.name.encode()) % 2 :][:1]:
            with haste():
                met = kernel.finish(numerics.run(kernel.program, inputs, engine="compiled", native=native))
            how = f"{'native' if native else 'portable'}, {haste.__name__}"
            assert bits(met) == bits(wanted), f"reference and compiled-{how} differ"
    return wanted


def matmul_problem(kind: KernelKind, rng: np.random.Generator) -> MatmulProblem:
    m, n, k = (int(rng.integers(1, high)) for high in (20, 70, 90 if "amx" in kind.name else 40))
    if kind.name.startswith("gemv"):
        m, n = (1, n) if "plain" in kind.name or rng.random() < 0.5 else (m, 1)
    src, wei = types(kind, rng)
    e = epilogue(rng, src in ("u8", "s8"), True)
    e = replace(e, wei_scale=None) if kind.library else e  # it is refused there
    both = "gemv" not in kind.name and "down" not in kind.name
    some = ["any", "ba"] if "gemv" in kind.name else ["any", "ab"]
    tags = ["ab"] if "plain" in kind.name else ["any", "ab", "ba"] if both else some
    tag = str(rng.choice([tag for tag in tags if tag in kind.tags] or kind.tags))
    problem = MatmulProblem(m, n, k, src, wei, e, tag)
    if kind.accepts(problem):
        problem = MatmulProblem(1, max(n, 2), k, src, wei, e, tag)
    if kind.accepts(problem):
        problem = replace(problem, epilogue=Epilogue("f32", bias=e.bias))
    assert kind.accepts(problem) == ""
    return problem


def own_seed(kind: KernelKind, seed: int) -> int:
    """Each kind is tried on another problem, on the first example, too, whose seed is 0."""
    return seed ^ zlib.crc32(kind.name.encode())


@one_in(2)
@pytest.mark.parametrize("kind", MATMUL, ids=lambda k: k.name)
@examples(8, least=1)
@given(seed=st.integers(0, 2**32 - 1))
def test_matmul_engines_agree(kind: KernelKind, seed: int) -> None:
    rng = np.random.default_rng(seed := own_seed(kind, seed))
    problem = matmul_problem(kind, rng)
    (m, n, k), e = (problem.m, problem.n, problem.k), problem.epilogue
    kernel = kind.build(problem, machine("zen4"))
    a, b, p = data(rng, (m, k), problem.src), data(rng, (k, n), problem.wei), parameters(rng, e, n)
    out = run_all(kernel, a, b, p, portable=seed % 2 == 0)
    assert out.shape == (m, n)
    if e.dst == "s32" and kind.exact:
        expected = (a.astype(np.int64) - (p.zp_src if e.zp_src else 0)) @ b.astype(np.int64)
        assert (out == expected).all()


def conv_problem(kind: KernelKind, rng: np.random.Generator) -> ConvProblem:
    src, wei = types(kind, rng)
    e = epilogue(rng, src in ("u8", "s8"), False)
    pick = lambda low, high: int(rng.integers(low, high))  # noqa: E731
    groups = pick(2, 40) if kind.name.startswith("dw") else int(rng.choice([1, 1, 2, 3]))
    ic, oc = (1, 1) if kind.name.startswith("dw") else (pick(1, 12), pick(1, 40))
    kh, kw = pick(1, 4), pick(1, 4)
    dilation = (pick(1, 3), pick(1, 3))
    widest = 8 if "amx" in kind.name else 20  # the reference takes a tile's products one by one
    ih, iw = pick(1, 6) + (kh - 1) * dilation[0], pick(1, widest) + (kw - 1) * dilation[1]
    padding = tuple(pick(0, 3) for _ in range(4)) if rng.random() < 0.6 else (0, 0, 0, 0)
    if kind.name.endswith("_pixel"):
        ih, iw, padding = (kh - 1) * dilation[0] + 1, (kw - 1) * dilation[1] + 1, (0, 0, 0, 0)
    if groups == ic * groups == oc * groups and not kind.name.startswith("dw"):
        oc = 2
    strides = (pick(1, 3), pick(1, 3))
    return ConvProblem(
        pick(1, 3), ic * groups, ih, iw, oc * groups, kh, kw, src, wei, e, strides, padding, dilation, groups
    )  # type: ignore[arg-type]


@one_in(2)
@pytest.mark.parametrize("kind", CONV, ids=lambda k: k.name)
@examples(8, least=1)
@given(seed=st.integers(0, 2**32 - 1))
def test_convolution_engines_agree(kind: KernelKind, seed: int) -> None:
    rng = np.random.default_rng(seed := own_seed(kind, seed))
    c = conv_problem(kind, rng)
    assert kind.accepts(c) == ""
    kernel = kind.build(c, machine("zen4"))
    src, wei = data(rng, (c.mb, c.ic, c.ih, c.iw), c.src), data(rng, (c.oc, c.ic // c.groups, c.kh, c.kw), c.wei)
    p = parameters(rng, c.epilogue, c.oc)
    # Portable code differs in instructions alone: products, and test_readings.py, try those in every run.
    out = run_all(kernel, src, wei, p, portable=seed % 4 == 3)
    assert out.shape == (c.mb, c.oc, c.oh, c.ow)
    if c.epilogue.dst == "s32" and (kind.exact or (kind.name.startswith("dw") and c.src == "u8")):
        zero_point = p.zp_src if c.epilogue.zp_src else 0
        assert (out == exact_sums(c, src, wei, zero_point)).all()


@examples(15)
@given(seed=st.integers(0, 2**32 - 1))
def test_saturated_pairs_are_counted(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n, k = (int(rng.integers(1, high)) for high in (9, 40, 60))
    src = str(rng.choice(["u8", "s8"]))
    a, b = data(rng, (m, k), src), data(rng, (k, n), "s8")
    problem: Problem = MatmulProblem(m, n, k, src, "s8", Epilogue("s32"))
    kernel = KINDS["gemm:avx512_core_int8"].build(problem, machine("zen4"))
    (pairs_of,) = kernel.saturating
    counts = run_all(pairs_of.counting(), a, b, Parameters())
    shifted = np.pad(a.astype(np.int64) + (128 if src == "s8" else 0), ((0, 0), (0, k % 2)))
    products = shifted[:, :, None] * np.pad(b.astype(np.int64), ((0, k % 2), (0, 0)))[None]
    pairs = products.reshape(m, -1, 2, n).sum(axis=2)
    assert (counts == ((pairs > 32767) | (pairs < -32768)).sum(axis=1)).all()
    wrapped = np.clip(pairs, -32768, 32767).sum(axis=1)
    fast = run_all(kernel, a, b, Parameters())
    expected = wrapped - (128 * b.astype(np.int64).sum(axis=0) if src == "s8" else 0)
    assert (fast == expected).all()


def test_all_types_are_covered() -> None:
    assert {str(fmt(t).dtype) for k in KERNELS for t in types(k, np.random.default_rng(0))} >= {
        "float32",
        "int8",
        str(np.dtype(ml_dtypes.bfloat16)),
    }


def test_a_register_that_a_loop_writes_wider_than_it_was() -> None:
    """Rows that are left over are stored as bf16 in half a register, which the loop over columns then fills."""
    rng = np.random.default_rng(6)
    src, weights = (rng.integers(-3, 4, shape).astype(ml_dtypes.bfloat16) for shape in ((33, 17), (17, 17)))
    found = simdnn.matmul(src, weights, machine="zen4", dispatch="onednn", dst="bf16").output
    assert np.array_equal(found.astype(np.float32), src.astype(np.float32) @ weights.astype(np.float32))
