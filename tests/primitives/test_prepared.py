"""A call of a kind that was met before takes a short way, and answers as the long one does."""

from collections.abc import Callable

import numpy as np
import pytest

import simdnn
from isa_models.readings.arrays import Array
from simdnn.primitives import prepared
from tests.work import at_most

RNG = np.random.default_rng(0)
SRC, WEIGHTS = RNG.standard_normal((16, 64), dtype=np.float32), RNG.standard_normal((64, 48), dtype=np.float32)
INTEGERS = RNG.integers(0, 256, (9, 64), np.uint8), RNG.integers(-128, 128, (64, 48)).astype(np.int8)


def product(src: Array = SRC, weights: Array = WEIGHTS, **named: object) -> simdnn.Result:
    return simdnn.matmul(src, weights, **{"machine": "zen4", "engine": "compiled", **named})  # type: ignore[arg-type]


def test_a_call_that_was_met_before_is_short() -> None:
    bias, image = np.ones(48, np.float32), RNG.standard_normal((1, 16, 6, 6), dtype=np.float32)
    taps, attr = RNG.standard_normal((32, 16, 3, 3), dtype=np.float32), simdnn.Attr(post_ops=["relu"])
    calls: list[Callable[[], object]] = [
        product,
        lambda: product(bias=bias, attr=attr),
        lambda: simdnn.convolution(image, taps, padding=1, machine="zen4", engine="compiled"),
    ]
    for call in calls:
        for _ in range(4):
            call()
        with at_most(205):  # 860 to 1000 where everything is decided again
            call()


def test_what_a_call_goes_by_makes_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    def compute() -> str:
        return product().compute_dtype

    assert [compute(), compute()] == ["f32", "f32"]
    with simdnn.fpmath_mode("bf16"):
        assert compute() == "bf16"
    monkeypatch.setenv("ONEDNN_DEFAULT_FPMATH_MODE", "bf16")
    assert compute() == "bf16"
    simdnn.set_default_fpmath_mode("strict")
    try:
        assert compute() == "f32"
    finally:
        simdnn.set_default_fpmath_mode(None)
    monkeypatch.setenv("ONEDNN_DEFAULT_FPMATH_MODE", "bf17")
    with pytest.raises(simdnn.SimdnnError, match="bf17"):
        compute()
    assert product(*INTEGERS).compute_dtype == "s8"  # which asks for no math mode
    for threads in (True, 1.0, "1"):
        with pytest.raises(simdnn.SimdnnError, match="threads"):
            product(*INTEGERS, threads=threads)


def test_an_attribute_counts_by_its_content() -> None:
    def linear(beta: float) -> Array:
        attr = simdnn.Attr(post_ops=[("linear", -1.0, beta)])
        return product(np.zeros((1, 64), np.float32), np.zeros((64, 48), np.float32), attr=attr).output

    assert [bool(np.signbit(linear(beta)).all()) for beta in (-0.0, 0.0, -0.0)] == [True, False, True]
    scaled = [simdnn.Attr(scales={"src": s}) for s in (0.5, 2.0, 0.5)]
    first, second, third = (product(*INTEGERS, attr=attr).output for attr in scaled)
    np.testing.assert_array_equal(first, third)
    np.testing.assert_array_equal(4 * first, second)


def test_a_bias_is_the_one_of_the_call_and_the_result_keeps_it() -> None:
    for _ in range(3):
        for number in (1.0, 2.0):
            bias = np.full(48, number, np.float32)
            r = product(bias=bias)
            np.testing.assert_array_equal(r.output, product(bias=np.full(48, number, np.float32)).output)
            bias[:] = 100.0
            assert "100" not in str(r.explain(0, 0)).splitlines()[-2]
            assert abs(r.explain(0, 0).value - r.output[0, 0]) == 0


def test_refusals_are_told_again() -> None:
    for _ in range(2):
        for named in ({"machine": "zen5x"}, {"dst": "s9"}, {"wei_tag": ["ab"]}, {"attr": "relu"}, {"into": SRC}):
            with pytest.raises(simdnn.SimdnnError):
                product(**named)
        with pytest.raises(simdnn.SimdnnError, match="MaskedArray"):
            product(np.ma.masked_array(SRC, SRC > 1))
        product(SRC, WEIGHTS[:, :16])
        with pytest.raises(simdnn.SimdnnError, match="NoneType"):  # its other arrays are those of the product before
            product(None, SRC, bias=WEIGHTS[:, :16])  # type: ignore[arg-type]


def test_plans_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "_MOST", 3)
    monkeypatch.setattr(prepared, "_known", {})
    for n in range(1, 7):
        product(WEIGHTS[:, :n].T.copy(), SRC.T.copy(), engine="reference")
    assert len(prepared._known) == 3


def test_weights_that_leave_taps_out_are_called_again_and_again() -> None:
    """Infinite weights whose taps lie beside the image: no call of machine code is bound to them."""
    rng = np.random.default_rng(0)
    src, weights = (rng.random(shape, np.float32) for shape in ((1, 16, 6, 6), (32, 16, 3, 3)))
    weights[3, 2, 0, 0] = np.inf
    weights.flags.writeable = False
    runs = [simdnn.convolution(src, weights, padding=1, machine="zen4", dispatch="onednn").output for _ in range(5)]
    assert np.isinf(runs[0]).any() and not np.isnan(runs[0]).any()
    assert all(one.tobytes() == runs[0].tobytes() for one in runs)
