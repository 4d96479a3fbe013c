"""Weights decompressed and f32 data rounded on GPUs: the bits of the products of what they mean, on both engines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import simdnn
from isa_models.formats import fmt
from isa_models.machines.loader import gpu_machine
from simdnn import Attr, Quant
from tests.effort import examples, one_in

Array = np.ndarray[Any, np.dtype[Any]]
GPUS = ("b580", "a770", "max1550", "dg1", "v100")
STORED = ("s8", "u8", "s4", "u4")
STEP = 16  # k of the longest step of floats: groups that are multiples of it are cut nowhere else than a plain product


def integers(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    form = fmt(dtype)
    return rng.integers(form.low, form.high + 1, shape).astype(np.int8 if form.low else np.uint8).astype(form.dtype)


def drawn(kind: str, k: int, n: int, group: int, make: Any) -> Any:
    """A parameter that is common, per channel, by group, or by group for all channels; None where there is none."""
    shapes = {"common": (1,), "per_oc": (n,), "grouped": (k // group, n), "shared": (k // group, 1)}
    if kind == "":
        return None
    return (
        Quant(make(shapes[kind]), groups=(group, n))
        if kind == "shared"
        else Quant(make(shapes[kind]), groups=(group, 1) if kind == "grouped" else None)
    )


def spread(values: Array, k: int, n: int) -> Array:
    rows = values if values.ndim == 2 else values.reshape(1, -1)
    return np.broadcast_to(np.repeat(rows, k // len(rows), axis=0), (k, n))


KINDS = ("", "common", "per_oc", "grouped", "shared")


@given(
    st.sampled_from(GPUS),
    st.sampled_from(["f32", "bf16", "f16"]),
    st.sampled_from(STORED),
    st.sampled_from(["strict", "bf16", "f16", "any"]),
    st.sampled_from(KINDS),
    st.sampled_from(KINDS),
    st.sampled_from(["f32", "f16", "bf16"]),
    st.tuples(st.integers(1, 20), st.integers(1, 40)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.sampled_from(["reference", "reference", "compiled"]),
)
@examples(25)
def test_decompressed_products_have_the_bits_of_the_floats_that_they_mean(
    name: str,
    src: str,
    wei: str,
    mode: str,
    scaled: str,
    shifted: str,
    stored: str,
    size: tuple[int, int],
    groups: tuple[int, int],
    engine: str,
) -> None:
    src = "f32" if (name, src) == ("v100", "bf16") else src  # bf16 it has not
    if {src, mode} == {"bf16", "f16"}:  # a conversion between types of one size is refused
        mode = "any"
    (m, n), group, k = size, STEP * groups[0], STEP * groups[0] * groups[1]
    rng = np.random.default_rng([m, n, k])
    x = rng.standard_normal((m, k)).astype(fmt(src).dtype)
    w = integers(wei, (k, n), rng)
    bias = rng.standard_normal(n).astype(np.float32)
    floats = fmt(stored).dtype
    scale = drawn(scaled, k, n, group, lambda s: rng.uniform(0.01, 0.1, s).astype(floats))
    point = drawn(shifted, k, n, group, lambda s: rng.integers(-20, 300, s).astype(np.int32))
    attr = Attr(
        fpmath=mode,
        apply_to_int=True,
        post_ops=["relu"],
        scales={} if scale is None else {"wei": scale},
        zero_points={} if point is None else {"wei": point},
    )
    found = simdnn.matmul(x, w, bias, machine=name, attr=attr, engine=engine)
    compute = found.compute_dtype
    real = w.astype(np.int32) - (0 if point is None else spread(point.values, k, n))
    wide, after = real.astype(np.float32), np.float32(1)
    if scaled in ("grouped", "shared"):
        wide = wide * spread(scale.values.astype(np.float32), k, n)
    elif scaled:
        after = scale.values.astype(np.float32)
    as_floats = [values.astype(np.float32).astype(fmt(compute).dtype) for values in (x, wide)]
    sums = simdnn.matmul(*as_floats, machine=name, engine="reference").output
    assert np.array_equal(found.output, np.maximum(sums * after + bias, 0))


@given(
    st.sampled_from(GPUS),
    st.sampled_from(STORED),
    st.integers(1, 9),
    st.integers(1, 20),
    st.integers(1, 7),
    st.integers(1, 40),
    st.sampled_from([0, 9, 300, -1700]),
)
@examples(12)
def test_groups_of_any_length_are_filled_up_with_nothing(
    name: str, wei: str, m: int, n: int, parts: int, group: int, point: int
) -> None:
    """Integers below 2**11 and their sums are exact in every type, so any order gives them."""
    k = parts * group
    rng = np.random.default_rng([m, n, k])
    x, w = rng.integers(0, 2, (m, k)).astype(np.float16), integers(wei, (k, n), rng)
    scales = 2.0 ** rng.integers(-2, 2, (parts, n))
    attr = Attr(
        fpmath="f16",
        apply_to_int=True,
        scales={"wei": Quant(scales.astype(np.float16), groups=(group, 1))},
        zero_points={"wei": point},
    )
    assume(name != "v100" or abs(point) < 900)
    exact = x.astype(float) @ ((w.astype(int) - point) * np.repeat(scales, group, axis=0))
    assert (simdnn.matmul(x, w, machine=name, attr=attr, engine="reference").output == exact).all()


@one_in(2)
@pytest.mark.parametrize(
    ("name", "mode", "tag"),
    [
        ("b580", "bf16", "any"),
        ("a770", "f16", "ab"),
        ("lnl", "bf16", "ab"),
        ("v100", "f16", "any"),
        ("v100", "f16", "ab"),
    ],
)
def test_f32_data_is_rounded_where_a_mode_allows_it(name: str, mode: str, tag: str) -> None:
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((9, 70)).astype("f4"), rng.standard_normal((70, 37)).astype("f4")
    attr = Attr(fpmath=mode)
    found = [simdnn.matmul(x, w, machine=name, attr=attr, wei_tag=tag, engine=e) for e in ("compiled", "reference")]
    narrow = [values.astype(fmt(mode).dtype) for values in (x, w)]
    right = simdnn.matmul(*narrow, machine=name).output
    assert all((r.output == right).all() and r.compute_dtype == mode for r in found)
    assert (found[0].conversion is None) == (tag == "ab")
    if found[0].conversion:
        assert found[0].conversion.read_bytes >= w.nbytes and found[0].conversion.cycles > 0
    image, taps = rng.standard_normal((1, 4, 9, 9)).astype("f4"), rng.standard_normal((6, 4, 3, 3)).astype("f4")
    conv = simdnn.convolution(image, taps, machine=name, attr=attr)
    halves = [values.astype(fmt(mode).dtype) for values in (image, taps)]
    assert conv.compute_dtype == mode and (conv.output == simdnn.convolution(*halves, machine=name).output).all()


@pytest.mark.parametrize("name", ["b580", "dg1", "v100"])
@pytest.mark.parametrize(("wei", "groups"), [("s8", 4), ("u8", 1), ("s4", 2), ("u4", 4)])
def test_convolutions_with_stored_weights(name: str, wei: str, groups: int) -> None:
    rng = np.random.default_rng(groups)
    image = rng.standard_normal((1, 4, 7, 6)).astype("f4")
    taps = integers(wei, (8 if groups < 4 else 4, 4 // groups, 3, 2), rng)
    scale, point = rng.random(len(taps)).astype("f4"), 3
    mode = "f16" if name == "v100" else "bf16"
    attr = Attr(fpmath=mode, apply_to_int=True, scales={"wei": scale}, zero_points={"wei": point})
    given: dict[str, Any] = {"groups": groups, "padding": 1, "machine": name}
    found = simdnn.convolution(image, taps, attr=attr, engine="reference" if groups > 1 else "compiled", **given)
    floats = fmt(found.compute_dtype).dtype
    real = (taps.astype(np.int32) - point).astype(floats)
    sums = simdnn.convolution(image.astype(floats), real, engine="reference", **given).output
    if groups == 4:  # floats have a kernel of their own there, which adds up in another order
        np.testing.assert_allclose(found.output, sums * scale[:, None, None], rtol=1e-5, atol=1e-3)
    else:
        assert np.array_equal(found.output, sums * scale[:, None, None])


@pytest.mark.parametrize("name", ["b580", "a770", "lnl"])
def test_stored_weights_pay_where_a_row_is_read(name: str) -> None:
    """One token is bound by the bytes of its weights."""

    def cycles(dt: str, group: int = 0) -> float:
        scales = {"wei": Quant(None, groups=(group, 1))} if group else {}
        attr = Attr(fpmath="f16", apply_to_int=bool(group), scales=scales)
        with simdnn.cold_weights():
            found = simdnn.estimate("matmul", m=1, n=4096, k=4096, dt=dt, machine=name, attr=attr)
        assert found.traffic.level.tolist() == ["L1", "L2", "DRAM"]
        read = found.traffic.set_index("level").loc["DRAM", "read_bytes"]
        assert read >= 4096 * 4096 * fmt(dt.split(":")[1]).bytes
        assert found.seconds >= read / (gpu_machine(name).dram_gb_s * gpu_machine(name).stacks * 1e9)
        return found.cycles

    half, bytes_, nibbles = cycles("f16:f16:f16"), cycles("f16:s8:f16", 128), cycles("f16:s4:f16", 128)
    assert nibbles < bytes_ < half


@pytest.mark.parametrize("wei", ["f4_e2m1", "f8_e4m3"])
def test_a_tile_counts_what_conversions_take(wei: str) -> None:
    """Threads below one another take the same weights apart, each for itself: few of them cost less."""
    attr = Attr(fpmath="f16", apply_to_int=True, scales={"wei": Quant(None, mask=2)})
    few, many = (
        simdnn.estimate("matmul", m=m, n=1024, k=1454, dt=f"f16:{wei}:f16", machine="max1550_stack", attr=attr)
        for m in (1858, 3716)
    )
    assert few.seconds < 0.9 * many.seconds and few.gops > 0.5 * many.gops
