"""Images of another size, channels last: one kernel, with the bits of copies and blends axis by axis."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simdnn
from simdnn.kernels.common.resample import places_of
from simdnn.networks.ops import onednn_eltwise

RNG = np.random.default_rng(4)


@settings(max_examples=25)
@given(
    size=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    ratio=st.tuples(
        st.sampled_from([(2, 1), (1, 2), (3, 2), (1, 1), (4, 1), (2, 3)]), st.sampled_from([(2, 1), (3, 1)])
    ),
    channels=st.sampled_from([1, 5, 16, 33]),
    algorithm=st.sampled_from(["nearest", "linear"]),
    machine=st.sampled_from(["zen4", "hsw"]),
)
def test_bits(
    size: tuple[int, int], ratio: tuple[tuple[int, int], tuple[int, int]], channels: int, algorithm: str, machine: str
) -> None:
    size = (size[0] * ratio[0][1], size[1] * ratio[1][1])
    out = [n * up // down for n, (up, down) in zip(size, ratio, strict=True)]
    image = RNG.standard_normal((2, *size, channels), np.float32).transpose(0, 3, 1, 2)
    how = {"machine": machine, "dispatch": "onednn"}
    one = simdnn.resampling(image, out, algorithm, **how)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onednn_eltwise, "MOST_PIXELS", 0)
        several = simdnn.resampling(image, out, algorithm, **how)
    np.testing.assert_array_equal(one.output.view(np.uint32), several.output.view(np.uint32))


def test_more_shares_than_registers() -> None:
    """Four rows by two columns take twelve shares, which 16 registers do not hold beside the corners."""
    image = RNG.standard_normal((1, 1, 3, 8), np.float32).transpose(0, 3, 1, 2)
    few, many = (
        simdnn.resampling(image, [4, 6], "linear", machine=machine, dispatch="onednn") for machine in ("hsw", "zen4")
    )
    np.testing.assert_array_equal(few.output.view(np.uint32), many.output.view(np.uint32))


def test_a_size_twice_as_large_reads_beyond_its_edges() -> None:
    low, high = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 1, 1, 2, 2, 2])
    assert places_of(3, 6, (low, high)) == ((-1, 0), (0, 1))


def test_places_that_do_not_come_again() -> None:
    assert places_of(6, 6, (np.array([0, 1, 2, 2, 4, 5]),)) is None


def test_one_kernel() -> None:
    image = RNG.standard_normal((1, 8, 8, 16), np.float32).transpose(0, 3, 1, 2)
    r = simdnn.resampling(image, 16, "linear", machine="zen4", dispatch="onednn")
    asked = {
        "src": image.shape,
        "dt": "f32",
        "size": 16,
        "algorithm": "linear",
        "machine": "zen4",
        "dispatch": "onednn",
    }
    assert r.implementation == "resize:avx512_core_bf16"
    assert simdnn.estimate("resampling", **asked).implementation != r.implementation  # whose sources lie in rows
