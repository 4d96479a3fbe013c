"""Integers of the whole range of their types: products and convolutions are exact on every target, in both engines."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models.machines.loader import gpu_machine
from isa_models.machines.shipped import gpu_machine_names, machine_names
from simdnn import Attr
from simdnn.kernels.common.epilogue import Epilogue
from simdnn.kernels.common.problems import ConvProblem
from tests.draws import whole
from tests.effort import examples
from tests.primitives.problems import exact_sums

GPUS = [name for name in gpu_machine_names() if not gpu_machine(name).nvidia]
TARGETS = st.sampled_from([*GPUS, *machine_names()])
ENGINES = st.sampled_from(["compiled", "reference"])
TYPES = st.sampled_from(["s8", "u8", "s4", "u4"])
EXACT = Attr(exact_int8=True)  # on a CPU without VNNI the fast kernel saturates


@given(TARGETS, TYPES, TYPES, st.integers(1, 70), st.integers(1, 90), st.integers(1, 150), ENGINES)
@examples(60)
def test_products(name: str, src: str, wei: str, m: int, n: int, k: int, engine: str) -> None:
    if name == "dg1" or name not in GPUS:  # four bits are for DPAS
        src, wei = src[0] + "8", wei[0] + "8"
    rng = np.random.default_rng([m, n, k])
    a, b = whole(src, (m, k), rng), whole(wei, (k, n), rng)
    result = simdnn.matmul(a, b, machine=name, engine=engine, attr=EXACT)
    assert result.output.dtype == np.int32 and (result.output == a.astype(int) @ b.astype(int)).all()


@st.composite
def problems(draw: st.DrawFn) -> ConvProblem:
    """Convolutions with groups, strides, padding and dilation."""
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    kh, kw, dilation = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.tuples(*[st.integers(1, 2)] * 2))
    sizes = [(k - 1) * d + 1 + draw(st.integers(0, 6)) for k, d in zip((kh, kw), dilation, strict=True)]
    ic, oc = groups * draw(st.integers(1, 9)), groups * draw(st.integers(1, 20))
    taps = draw(st.tuples(*[st.integers(1, 3)] * 2)), draw(st.tuples(*[st.integers(0, 2)] * 4)), dilation
    src = draw(st.sampled_from(["s8", "u8"]))
    return ConvProblem(draw(st.integers(1, 2)), ic, *sizes, oc, kh, kw, src, "s8", Epilogue(), *taps, groups)


@given(TARGETS, problems(), st.integers(-9, 9), st.integers(-3, 3), ENGINES)
@examples(40)
def test_convolutions(name: str, p: ConvProblem, zs: int, zw: int, engine: str) -> None:
    """Padding counts as the source's zero point; weights have one on GPUs alone."""
    zs, zw = abs(zs) if p.src == "u8" else zs, zw if name in GPUS else 0
    rng = np.random.default_rng(zs + 100)
    x = whole(p.src, (p.mb, p.ic, p.ih, p.iw), rng)
    w = whole("s8", (p.oc, p.ic // p.groups, p.kh, p.kw), rng)
    attr = Attr(zero_points={n: v for n, v in (("src", zs), ("wei", zw)) if v}, exact_int8=True)
    taps = {"strides": p.strides, "padding": p.padding, "dilation": p.dilation, "groups": p.groups}
    found = simdnn.convolution(x, w, machine=name, engine=engine, attr=attr, **taps)
    assert found.output.dtype == np.int32 and (found.output == exact_sums(p, x, w, zs, zw)).all()
