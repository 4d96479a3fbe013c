"""Whatever the machine, the ISA cap, the shape and the attribute: where nothing rounds or saturates, one answer."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from tests.effort import examples
from tests.primitives.problems import Case, convolutions, convolve, matmuls

DISPATCH = st.sampled_from(["onednn", "fastest"])


def check(primitive: Callable[..., simdnn.Result], case: Case, dispatch: str, exact: bool) -> None:
    """One answer; "onednn" may refuse what that library refuses."""
    options = case.options | {"attr": replace(case.options["attr"], exact_int8=exact)}
    try:
        result = primitive(case.src, case.weights, case.bias, dispatch=dispatch, **options)
    except simdnn.Unimplemented as error:
        assert dispatch == "onednn", error
        return
    assert result.output.dtype == case.expected.dtype and result.output.shape == case.expected.shape
    np.testing.assert_array_equal(result.output, case.expected, err_msg=f"{result.implementation} {options}")


@examples(40)
@given(case=matmuls(), dispatch=DISPATCH, exact=st.booleans())
def test_matmul(case: Case, dispatch: str, exact: bool) -> None:
    check(simdnn.matmul, case, dispatch, exact)


@examples(40)
@given(case=convolutions(), dispatch=DISPATCH, exact=st.booleans())
def test_convolution(case: Case, dispatch: str, exact: bool) -> None:
    check(simdnn.convolution, case, dispatch, exact)


@pytest.mark.parametrize("isa", ["avx2", "avx512_core"])
@pytest.mark.parametrize("src_type", [np.uint8, np.int8])
def test_exact_int8_is_exact_where_the_fast_kernel_is_not(isa: str, src_type: type) -> None:
    rng = np.random.default_rng(1)
    info = np.iinfo(src_type)
    src = rng.integers(info.max - 8, info.max, (6, 96)).astype(src_type)
    weights = rng.integers(115, 127, (96, 24)).astype(np.int8) | 1
    where = {"machine": "zen4", "isa": isa}
    exact = src.astype(np.int64) @ weights.astype(np.int64)
    fast = simdnn.matmul(src, weights, **where)
    assert (fast.output != exact).all() and fast.saturation is not None and (fast.saturation > 0).all()
    with simdnn.exact_int8():
        assert (simdnn.matmul(src, weights, **where).output == exact).all()
    assert (simdnn.matmul(src, weights, attr=simdnn.Attr(exact_int8=True), **where).output == exact).all()


@pytest.mark.parametrize("isa", ["avx2", "avx512_core"])
@pytest.mark.parametrize("src_type", [np.uint8, np.int8])
@pytest.mark.parametrize("groups", [1, 24])
def test_exact_int8_convolutions_are_exact(isa: str, src_type: type, groups: int) -> None:
    rng = np.random.default_rng(1)
    info = np.iinfo(src_type)
    image = rng.integers(info.max - 8, info.max, (1, 24, 2, 3)).astype(src_type)
    weights = rng.integers(115, 127, (24, 24)).astype(np.int8) | 1
    where = {"machine": "zen4", "isa": isa}
    taps = weights[: 24 // groups].T.reshape(24, 24 // groups, 1, 1)
    sums = convolve(image.astype(np.int64), taps.astype(np.int64), (1, 1), (0, 0, 0, 0), (1, 1), groups)
    result = simdnn.convolution(image, taps, groups=groups, attr=simdnn.Attr(exact_int8=True), **where)
    assert (result.output == sums).all(), result.implementation


class Labelled(np.ndarray):
    """A subclass such as pandas-like libraries hand out."""


KINDS = pytest.mark.parametrize("machine", ["zen4", "spr", "b580", "v100"])


@KINDS
def test_the_user_s_array_may_have_any_layout(machine: str) -> None:
    rng = np.random.default_rng(2)
    src, weights = rng.normal(size=(5, 7)).astype(np.float32), rng.normal(size=(7, 9)).astype(np.float32)
    wanted = simdnn.matmul(src, weights, machine=machine).output
    wide = np.repeat(np.repeat(weights, 2, axis=0), 3, axis=1)
    for a, w in (
        (src.astype(">f4"), weights),
        (np.asfortranarray(src), np.asfortranarray(weights)),
        (src[::-1][::-1], wide[::2, ::3]),
        (src.view(Labelled), weights.astype(">f4").T.copy().T),
    ):
        result = simdnn.matmul(a, w, machine=machine)
        assert (result.output == wanted).all() and type(result.output) is np.ndarray


@KINDS
def test_nan_and_infinity_are_data(machine: str) -> None:
    src = np.array([[np.nan, 1.0], [np.inf, 1.0], [-np.inf, 0.0], [3e38, 3e38]], np.float32)
    result = simdnn.matmul(src, np.ones((2, 1), np.float32), machine=machine)
    np.testing.assert_array_equal(result.output, [[np.nan], [np.inf], [-np.inf], [np.inf]])


@KINDS
def test_values_do_not_change_when_the_caller_changes_the_arrays(machine: str) -> None:
    src, weights = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32)
    result = simdnn.matmul(src, weights, machine=machine)
    src[:], weights[:] = 9, 9
    assert (result.output == 4).all() and result.saturation is None


def test_saturation_is_that_of_the_values_seen() -> None:
    src, weights = np.full((2, 8), 255, np.uint8), np.full((8, 3), 127, np.int8)
    result = simdnn.matmul(src, weights, machine="skx", isa="avx2")
    src[:] = 0
    assert result.saturation is not None and (result.saturation == 4).all()
    assert simdnn.matmul(src, weights, machine="clx").saturation is None  # VNNI


def test_calls_from_many_threads() -> None:
    """Each thread's own scope, the same kernels built, estimated and run at once."""
    rng = np.random.default_rng(3)
    src, weights = rng.integers(0, 255, (7, 50)).astype(np.uint8), rng.integers(-128, 127, (50, 21)).astype(np.int8)
    exact = src.astype(np.int64) @ weights.astype(np.int64)
    assert (simdnn.matmul(src, weights, machine="skx").output != exact).any()

    def work(index: int) -> tuple[bool, str]:
        with simdnn.exact_int8(index % 2 == 0):
            result = simdnn.matmul(src[: 1 + index % 7], weights, machine="skx")
        return bool((result.output == exact[: 1 + index % 7]).all()), result.implementation

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, range(42)))
    assert all(right and "exact" in name for right, name in found[::2])
    assert all("exact" not in name for _, name in found[1::2])


def test_plain_weights_of_an_odd_k_in_two_parts() -> None:
    """Under AVX2 K between 257 and 767 is cut in two, the longer part first."""
    rng = np.random.default_rng(0)
    src, weights = rng.integers(0, 9, (2, 257)).astype(np.uint8), rng.integers(-9, 9, (257, 3)).astype(np.int8)
    for tag in ("any", "ab", "ba"):
        result = simdnn.matmul(src, weights, machine="zen4", isa="avx2", dispatch="onednn", wei_tag=tag)
        assert (result.output == src.astype(np.int32) @ weights.astype(np.int32)).all(), tag
