"""Convolutions on random problems against the plain statement of the library's order of summation."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import simdnn
from isa_models import Unimplemented
from isa_models.machines.loader import cpu_machine as machine
from isa_models.readings.arrays import Array
from simdnn import libraries, numerics
from simdnn.kernels import KERNELS, ConvProblem, Epilogue, Parameters
from tests.kernels import reference_rules as rules

KINDS = {kind.name: kind for kind in KERNELS}
FORMATS = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "u8": np.uint8, "s8": np.int8}
ISAS = {"f32": ("avx2", "avx512_core"), "bf16": ("avx512_core_bf16",)}
INT8_ISAS = ("avx2", "avx512_core", "avx512_core_vnni")


@st.composite
def problems(draw: st.DrawFn, src: str) -> ConvProblem:
    """Small convolutions, with padding up to beyond the kernel; not depthwise."""
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    ic, oc = draw(st.sampled_from([1, 1, 2, 3, 5, 8])), draw(st.sampled_from([2, 5, 17]))
    kernel, strides = [draw(st.tuples(st.integers(1, 5), st.integers(1, 5))) for _ in range(2)]
    strides = (min(strides[0], 3), min(strides[1], 3))
    dilation = draw(st.sampled_from([(1, 1), (1, 1), (2, 2), (1, 3), (3, 1)]))
    padding = draw(st.one_of(st.just((0, 0, 0, 0)), st.tuples(*[st.integers(0, 4)] * 4)))
    image = [
        max(draw(st.integers(1, 9)), (k - 1) * d + 1 - padding[axis] - padding[axis + 2])
        for axis, (k, d) in enumerate(zip(kernel, dilation, strict=True))
    ]
    wei = src if src in ("f32", "bf16") else "s8"
    epilogue = Epilogue("f32" if wei != "s8" else "s32")
    mb = draw(st.sampled_from([1, 1, 2]))
    return ConvProblem(
        mb, ic * groups, *image, oc * groups, *kernel, src, wei, epilogue, strides, padding, dilation, groups
    )


def operands(p: ConvProblem, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    shapes = (p.mb, p.ic, p.ih, p.iw), (p.oc, p.ic // p.groups, p.kh, p.kw)
    if p.wei != "s8":
        kinds = (rng.standard_normal(s) * 2.0 ** rng.integers(-6, 7, s) for s in shapes)
        src, wei = (values.astype(np.float32).astype(FORMATS[p.src]) for values in kinds)
        return src, wei
    bounds = np.iinfo(FORMATS[p.src]), np.iinfo(np.int8)
    src, wei = (
        np.where(rng.random(s) < 0.5, rng.integers(b.min, b.max + 1, s), b.max).astype(b.dtype)
        for s, b in zip(shapes, bounds, strict=True)
    )
    return src, wei


def computed(p: ConvProblem, isa: str, src: Array, wei: Array) -> tuple[Array, str]:
    try:
        name, library = libraries.choose("onednn", p, isa)
    except Unimplemented:
        assume(False)
    kernel = KINDS[name].build(p, machine("zen4"))
    return kernel.finish(numerics.run(kernel.program, kernel.prepare(src, wei, Parameters()))), library


@pytest.mark.parametrize("src", ["f32", "bf16"])
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_floating_point_sums(src: str, data: st.DataObject, seed: int) -> None:
    p, isa = data.draw(problems(src)), data.draw(st.sampled_from(ISAS[src]))
    src_values, wei = operands(p, seed)
    got, library = computed(p, isa, src_values, wei)
    order = rules.chains(p, library)
    np.testing.assert_array_equal(got.view(np.uint32), rules.sum_floats(src_values, wei, p, order).view(np.uint32))


def test_small_convolutions_that_the_older_kernel_refuses() -> None:
    """A single channel, so small that the older kernel takes it, but for padding that holds the whole kernel: then the
    AVX2 kernel does, which sums columns of the kernel apart from each other.
    """
    p = ConvProblem(1, 1, 1, 2, 2, 1, 3, "f32", "f32", Epilogue("f32"), padding=(0, 0, 0, 3))
    src, wei = operands(p, 0)
    got, library = computed(p, "avx512_core", src, wei)
    assert library == "brg_conv_fwd:avx2"
    assert computed(replace(p, padding=(0, 0, 0, 2)), "avx512_core", src, wei)[1] == "jit:avx512_core"
    librarys = [1033793136, 3118664675, 0, 1059447454, 3174065707, 0]  # oneDNN 3.13.2 on a Granite Rapids
    assert got.view(np.uint32).ravel().tolist() == librarys
    one_chain = rules.sum_floats(src, wei, p, [[(0, 0, 0), (0, 1, 0)]])
    assert one_chain.view(np.uint32)[0, 0, 0, 0] == librarys[0] + 1


@pytest.mark.parametrize("src", ["u8", "s8"])
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_integer_sums(src: str, data: st.DataObject, seed: int) -> None:
    p, isa = data.draw(problems(src)), data.draw(st.sampled_from(INT8_ISAS))
    src_values, wei = operands(p, seed)
    got, library = computed(p, isa, src_values, wei)
    if "vnni" in library or library == "ref:any":
        expected = rules.sum_exact(src_values, wei, p)
    elif src == "u8":
        expected = rules.sum_saturating(src_values, wei, p, rules.chains(p, library))
    else:
        halves = np.rint(wei.astype(np.float32) / 2).astype(np.int8)
        expected = 2 * rules.sum_exact(src_values, halves, p)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("shape", "isa", "chains"),
    [
        ((1, 1, 8, 8, 4, 3, 3, "f32", (1, 1), (1, 1, 1, 1), (1, 1)), "avx512_core", 1),
        ((1, 9, 11, 11, 4, 3, 3, "f32", (1, 1), (3, 3, 3, 3), (3, 3)), "avx2", 3),
        ((1, 4, 5, 5, 4, 2, 1, "bf16", (1, 1), (1, 1, 1, 1), (1, 1)), "avx512_core_bf16", 2),
        ((1, 1400, 1, 2, 4, 1, 1, "f32", (1, 1), (0, 0, 0, 0), (1, 1)), "avx512_core", 2),
        ((1, 2056, 1, 2, 4, 1, 1, "f32", (1, 1), (0, 0, 0, 0), (1, 1)), "avx2", 7),
    ],
)
def test_orders_by_name(shape: tuple[object, ...], isa: str, chains: int) -> None:
    """The documented cases, each with data on which a sum in another order differs."""
    *sizes, src, strides, padding, dilation = shape
    p = ConvProblem(*sizes, src, src, Epilogue("f32"), strides, padding, dilation)  # type: ignore[arg-type]
    src_values, wei = operands(p, 5)
    got, library = computed(p, isa, src_values, wei)
    order = rules.chains(p, library)
    assert len(order) == chains
    np.testing.assert_array_equal(got.view(np.uint32), rules.sum_floats(src_values, wei, p, order).view(np.uint32))
    plain = [[tap for i in range(p.kh) for j in range(p.kw) for tap in [(i, j, c) for c in range(p.ic)]]]
    if src == "f32":
        assert (got != rules.sum_floats(src_values, wei, p, plain)).any()  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["conv:avx512_core_bf16_pixel", "conv:avx512_core_bf16_emulated_pixel"])
@pytest.mark.parametrize(("images", "groups"), [(8, 1), (1, 8)])
def test_threads_share_images_and_groups_of_a_product_to_a_pixel(name: str, images: int, groups: int) -> None:
    def cycles(threads: int) -> float:
        sizes = {"mb": images, "ic": 32 * groups, "oc": 16 * groups, "groups": groups}
        sizes |= {"ih": 3, "iw": 3, "kh": 3, "kw": 3}
        where = {"dt": "bf16", "machine": "spr", "dispatch": name, "threads": threads}
        return simdnn.estimate("convolution", **sizes, **where).cycles  # type: ignore[arg-type]

    assert cycles(4) < 0.7 * cycles(1)
