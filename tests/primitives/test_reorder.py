"""Memory descriptors: what a query answers, weights brought there ahead of time, and what that costs."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simdnn
from isa_models import InvalidArgument, Unimplemented, UnknownName, instruction
from simdnn import Attr, MemoryDesc
from simdnn.kernels.common.batched import as_batched
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.problems import ConvProblem
from simdnn.kernels.x86.rounding import ahead
from simdnn.kernels.x86.rows import KERNELS
from simdnn.primitives import mathmode_types
from tests.effort import examples, one_in

CONV = {"ic": 32, "ih": 14, "iw": 14, "oc": 64, "kh": 3, "kw": 3, "padding": 1}
PLAIN_TAGS = {"matmul": ("ab", "ab", "ab"), "convolution": ("nhwc", "oihw", "nhwc")}
TYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "u8": np.uint8, "s8": np.int8}


def weights_of(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    values = rng.integers(0 if dtype == "u8" else -100, 100, shape)
    if dtype not in ("u8", "s8"):
        values = rng.normal(size=shape) * 10.0 ** rng.integers(-3, 4)
    return values.astype(TYPES[dtype])


def bits(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


# -- what a query may answer ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("primitive", ["matmul", "convolution"])
@pytest.mark.parametrize("mode", ["strict", "tf32", "bf16", "f16", "any"])
def test_the_proposals_table_of_queries(primitive: str, mode: str) -> None:
    """oneDNN's rfcs/20210301-computation-datatype: src, weights, dst x any, plain x conversion disabled, enabled.

    A plain layout comes back as it is, in f32; "any" may come back in another layout, and in a type that the mode
    allows. Disabled, all stays f32.
    """
    sizes: dict[str, Any] = CONV if primitive == "convolution" else {"m": 64, "n": 96, "k": 128}
    allowed = mathmode_types.computes(mode)
    for machine, *plain in itertools.product(("zen4",), (False, True), (False, True), (False, True)):
        tags = [name if given else "any" for name, given in zip(PLAIN_TAGS[primitive], plain, strict=True)]
        named = dict(zip(("src_tag", "wei_tag", "dst_tag"), tags, strict=True))
        e = simdnn.estimate(primitive, machine=machine, attr=Attr(fpmath=mode), **sizes, **named)
        for tag, desc in zip(tags, (e.src_desc, e.weights_desc, e.dst_desc), strict=True):
            if tag != "any":
                assert (desc.tag, desc.dtype) == (tag, "f32")
            assert desc.dtype in allowed
        assert e.dst_desc.dtype == "f32"  # outputs are never narrowed


def test_weights_are_wanted_in_the_type_computed_in() -> None:
    e = simdnn.estimate("matmul", m=64, n=96, k=128, machine="zen4", attr=Attr(fpmath="bf16"))
    assert e.compute_dtype == e.weights_desc.dtype == "bf16" and e.weights_desc.tag.startswith("BA")
    assert e.weights_desc.nbytes == 2 * 96 * 128


def test_tags_that_kernels_do_not_read() -> None:
    for tags in ({"dst_tag": "nhwc"}, {"wei_tag": "oihw"}):
        with pytest.raises(InvalidArgument, match="Allowed: any, ab"):
            simdnn.estimate("matmul", m=4, n=4, k=4, machine="zen4", **tags)
    with pytest.raises(Unimplemented, match="what works: 'any' and 'ab', and 'ba' with dispatch='onednn'"):
        simdnn.estimate("matmul", m=4, n=4, k=4, machine="zen4", src_tag="ba")
    assert simdnn.estimate("matmul", m=4, n=4, k=4, machine="zen4", src_tag="ab", dst_tag="ab").cycles > 0
    with pytest.raises(InvalidArgument, match="wei_tag 'hwio': did you mean 'oihw'"):
        simdnn.estimate("convolution", **CONV, machine="zen4", wei_tag="hwio")


# -- weights brought there ------------------------------------------------------------------------------------------
MATMULS = st.tuples(st.integers(1, 20), st.integers(1, 70), st.integers(1, 90))
TARGETS = st.sampled_from([("zen4", None), ("zen4", "avx512_core"), ("zen4", "avx2"), ("clx", None)])


def same_tensors(result: simdnn.Result, packed: simdnn.Reordered, src: np.ndarray, weights: np.ndarray) -> None:
    """The program on the machine and the NumPy that feeds kernels make the same bytes."""
    inputs = result.kernel.prepare(src, weights, Parameters())
    for name, values in packed.tensors.items():
        assert name not in inputs or bits(values) == bits(inputs[name])


@examples(10)
@given(MATMULS, TARGETS, st.sampled_from(["f32", "f32 bf16", "u8", "s8"]), st.integers(0, 99))
def test_reordered_matmul(sizes: tuple[int, int, int], target: tuple[str, str | None], kind: str, seed: int) -> None:
    (m, k, n), (machine, isa), rng = sizes, target, np.random.default_rng(seed)
    src_type, *mode = kind.split()
    wei_type = "f32" if src_type == "f32" else "s8"
    src, weights = weights_of(rng, (m, k), src_type), weights_of(rng, (k, n), wei_type)
    where: dict[str, Any] = {"machine": machine, "isa": isa}
    attr = Attr(fpmath=mode[0] if mode else None)
    r = simdnn.matmul(src, weights, attr=attr, **where)
    packed = simdnn.reorder(weights, r.weights_desc, **where)
    same_tensors(r, packed, src, weights)
    again = simdnn.matmul(src, packed, attr=attr, **where)
    assert bits(again.output) == bits(r.output)
    assert packed.plain().shape == weights.shape and packed.desc == r.weights_desc
    if r.conversion:
        assert r.conversion.cycles == packed.cycles > 0


BATCHES = [
    ("hsw", "f32", ""),
    ("hsw", "u8", ""),
    ("skx", "s8", ""),
    ("clx", "u8", ""),
    ("zen4", "f32", "bf16"),
    ("zen4", "bf16", ""),
    ("zen4", "f16", ""),
    ("spr", "f32", "tf32"),
    ("spr", "u8", ""),
    ("spr", "bf16", ""),
    ("gnr", "f16", "f16"),  # whose sums are cut along K
]
FRONT = st.sampled_from([((2, 3), (2, 3)), ((2, 3), (1, 3)), ((4,), (2, 1)), ((), (3,)), ((2, 2), (1, 1))])


@examples(16)
@given(MATMULS, FRONT, st.sampled_from(BATCHES), st.integers(0, 99))
def test_weights_of_a_batch_are_brought_there_once(
    sizes: tuple[int, int, int],
    front: tuple[tuple[int, ...], tuple[int, ...]],
    target: tuple[str, str, str],
    seed: int,
) -> None:
    """All matrices in one reorder, those that products share a single time: the bits and the cost of that program."""
    (m, k, n), (machine, src_type, mode), rng = sizes, target, np.random.default_rng(seed)
    k *= 1 + (mode == "f16")
    src = weights_of(rng, (*front[0], m, k), src_type)
    weights = weights_of(rng, (*front[1], k, n), "s8" if src_type in ("u8", "s8") else src_type)
    attr = Attr(fpmath=mode or None, exact_int8=True)
    r = simdnn.matmul(src, weights, attr=attr, machine=machine)
    packed = simdnn.reorder(weights, r.weights_desc, machine=machine)
    if r.problem.batch.count > 1:
        kernel = as_batched(r.kernel, r.problem.batch, (), r.output.shape)
        inputs = kernel.prepare(src, weights, Parameters())
        assert all(bits(values) == bits(inputs[name]) for name, values in packed.tensors.items() if name in inputs)
    again = simdnn.matmul(src, packed, attr=attr, machine=machine)
    assert again.output.shape == r.output.shape and bits(again.output) == bits(r.output)
    if packed.desc.dtype == packed.source.dtype:
        assert bits(packed.plain()) == bits(weights)
    if r.conversion:
        assert r.conversion.cycles == packed.cycles > 0
        assert r.conversion.read_bytes == weights.nbytes and r.conversion.written_bytes == packed.desc.nbytes
        assert r.amortised_cycles(1) == r.cycles + packed.cycles
    else:
        assert r.weights_desc.tag in ("ab", "abc")


def test_layouts_of_a_batch() -> None:
    sizes: dict[str, Any] = {"m": 8, "n": 64, "k": 64, "dt": "u8:s8:s32", "machine": "zen4", "src_batch": (4, 6)}
    own, shared, one = (simdnn.estimate("matmul", wei_batch=b, **sizes) for b in ((4, 6), (4, 1), 1))
    assert [str(e.weights_desc) for e in (own, shared)] == ["s8 aCB64c4b 24x64x64", "s8 aCB64c4b 4x64x64"]
    assert own.conversion.read_bytes == 6 * shared.conversion.read_bytes == 24 * one.conversion.read_bytes
    plain = simdnn.estimate("matmul", wei_batch=(4, 6), wei_tag="ab", **sizes)
    assert plain.conversion is None and plain.cycles > own.cycles
    columns = simdnn.reorder(
        np.arange(24).reshape(2, 3, 4).astype("f4"), MemoryDesc((2, 3, 4), "f32", "acb"), machine="skx"
    )
    assert columns.output.tolist() == np.arange(24).reshape(2, 3, 4).swapaxes(1, 2).ravel().tolist()
    packed = simdnn.reorder(np.ones((4, 6, 64, 64), np.int8), own.weights_desc, machine="zen4")
    with pytest.raises(InvalidArgument, match="reordered to s8 aCB64c4b 24x64x64 for zen4; .* wants s8 abc 24x64x64"):
        simdnn.matmul(np.ones((4, 6, 8, 64), np.uint8), packed, machine="zen4", wei_tag="ab")


CONVS = st.tuples(
    st.sampled_from([1, 2, 3]), st.integers(1, 9), st.integers(1, 20), st.integers(1, 3), st.integers(1, 3)
)


@examples(6)
@given(CONVS, TARGETS, st.sampled_from(["f32", "f32 bf16", "u8", "s8"]), st.booleans(), st.integers(0, 99))
def test_reordered_convolution(
    sizes: tuple[int, ...], target: tuple[str, str | None], kind: str, depthwise: bool, seed: int
) -> None:
    (groups, ic, oc, kh, kw), (machine, isa), rng = sizes, target, np.random.default_rng(seed)
    groups, ic, oc = (max(ic, 2), 1, 1) if depthwise else (groups, ic, oc)
    depthwise = groups > 1 and ic == oc == 1
    src_type, *mode = kind.split()
    src = weights_of(rng, (1, groups * ic, 5, 6), src_type)
    weights = weights_of(rng, (groups * oc, ic, kh, kw), "f32" if src_type == "f32" else "s8")
    where: dict[str, Any] = {"machine": machine, "isa": isa, "groups": groups, "padding": 1}
    attr = Attr(fpmath=mode[0] if mode else None)
    r = simdnn.convolution(src, weights, attr=attr, **where)
    if r.weights_desc.tag == "any":  # halved weights
        with pytest.raises(Unimplemented, match="no reorder makes it"):
            _ = r.conversion
        with pytest.raises(InvalidArgument, match="'any' is no layout"):
            simdnn.reorder(weights, r.weights_desc, machine=machine, isa=isa)
        return
    packed = simdnn.reorder(weights, r.weights_desc, machine=machine, isa=isa)
    same_tensors(r, packed, src, weights)
    assert bits(simdnn.convolution(src, packed, attr=attr, **where).output) == bits(r.output)
    if not depthwise:
        plain = simdnn.convolution(src, weights, attr=attr, wei_tag="oihw", **where)
        assert plain.conversion is None and plain.weights_desc.tag == "oihw"
        if plain.implementation == r.implementation:
            assert bits(plain.output) == bits(r.output) and plain.cycles >= r.cycles


FOLDED: dict[str, tuple[str, int, int, int, dict[str, int]]] = {
    "AcdB32a2b*7x7": ("bf16", 3, 64, 7, {"ih": 112, "iw": 112, "strides": 2, "padding": 3}),
    "AcdB32a2b+16*1x5": ("bf16", 3, 48, 5, {"ih": 20, "iw": 20, "strides": 2, "padding": 2}),
    "AcdB16a2b*1x5": ("bf16", 3, 48, 5, {"ih": 14, "iw": 14, "strides": 2, "padding": 2}),
    "AcdB32a4b*1x3": ("u8", 3, 20, 3, {"ih": 12, "iw": 12, "padding": 1}),
    "aBdeC16b2c*1x3": ("bf16", 2, 12, 3, {"ih": 40, "iw": 40, "groups": 2}),
}


@pytest.mark.parametrize("tag", FOLDED)
def test_taps_that_are_channels(tag: str) -> None:
    """On tiles, of images with few channels: what the program packs is what NumPy does, and comes back."""
    src_type, ic, oc, taps, sizes = FOLDED[tag]
    kernel, types = ("conv:avx512_core_amx", "bf16:bf16:f32")
    if src_type == "u8":
        kernel, types = "conv:avx512_core_amx_int8", "u8:s8:s32"
    groups = sizes.get("groups", 1)
    channels = {"ic": groups * ic, "oc": groups * oc, "kh": taps, "kw": taps}
    e = simdnn.estimate("convolution", machine="spr", dt=types, dispatch=kernel, **channels, **sizes)
    weights = weights_of(np.random.default_rng(0), (groups * oc, ic, taps, taps), types.split(":")[1])
    packed = simdnn.reorder(weights, e.weights_desc, machine="spr")
    assert packed.desc.tag == tag and e.conversion.cycles == packed.cycles > 0
    inputs = e.kernel.prepare(np.zeros(e.src_desc.shape, TYPES[src_type]), weights, Parameters())
    assert all(bits(values) == bits(inputs[name]) for name, values in packed.tensors.items())
    assert bits(packed.plain()) == bits(weights)


def test_goihw_weights_are_taken_as_they_are() -> None:
    rng = np.random.default_rng(0)
    src, weights = weights_of(rng, (1, 8, 5, 5), "f32"), weights_of(rng, (2, 6, 4, 3, 3), "f32")
    r = simdnn.convolution(src, weights, machine="zen4", groups=2)
    packed = simdnn.reorder(weights, r.weights_desc, machine="zen4")
    assert bits(simdnn.convolution(src, packed, machine="zen4", groups=2).output) == bits(r.output)
    with pytest.raises(InvalidArgument, match="the shapes must be the same"):
        simdnn.reorder(weights[:, :3], r.weights_desc, machine="zen4")


KINDS = {
    "f32": ("f32", Attr(fpmath="any")),
    "bf16": ("bf16", None),
    "f16": ("f16", Attr(fpmath="any")),
    "f32 by bf16": ("bf16", None),
    "f32 by f16": ("f16", None),
    "u8": ("s8", Attr(exact_int8=True)),
    "s8": ("s8", Attr(exact_int8=True)),
    "u8 fast": ("s8", Attr(exact_int8=False)),
}
GEOMETRIES = {"dense": (1, 5, 20), "groups": (2, 4, 6), "depthwise": (8, 1, 1)}


@one_in(3)
@pytest.mark.parametrize("name", [kind.name for kind in KERNELS])
def test_every_kernels_own_layout(name: str) -> None:
    """Each kernel by its name, on each type that it takes, dense, in groups and depthwise."""
    kind, rng, seen = next(kind for kind in KERNELS if kind.name == name), np.random.default_rng(0), 0
    shapes: list[Any] = [((1 if name.startswith("gemv") else 9, 37), (37, 50), {})]
    if kind.operation is ConvProblem:
        image = (3, 3) if name.endswith("_pixel") else (5, 6)
        shapes = [((1, g * ic, *image), (g * oc, ic, 3, 3), {"groups": g}) for g, ic, oc in GEOMETRIES.values()]
    call = simdnn.convolution if kind.operation is ConvProblem else simdnn.matmul
    for (src_type, (wei_type, attr)), (src_shape, wei_shape, options) in itertools.product(KINDS.items(), shapes):
        src, weights = weights_of(rng, src_shape, src_type.split()[0]), weights_of(rng, wei_shape, wei_type)
        where: dict[str, Any] = {"machine": "spr", "dispatch": name, "attr": attr, **options}
        try:
            r = call(src, weights, **where)
        except (Unimplemented, simdnn.UnknownTiming):
            continue
        seen += 1
        if r.weights_desc.tag == "any":
            continue
        packed = simdnn.reorder(weights, r.weights_desc, machine="spr")
        same_tensors(r, packed, src, weights)
        assert bits(call(src, packed, **where).output) == bits(r.output)
    assert (
        seen
        or name.startswith(("wdec", "gemv", "ref_", "vec_dot", "repacked", "tiled"))
        or kind.isa not in simdnn.machine("spr").isa
    )


@pytest.mark.parametrize("machine", ["hsw", "skx"])  # without masks words are stored one by one
@pytest.mark.parametrize("k", [1, 7, 37, 64])
def test_weights_of_words_column_by_column(machine: str, k: int) -> None:
    weights = weights_of(np.random.default_rng(k), (k, 19), "f16")
    name = {"hsw": "gemv:avx2_f16", "skx": "gemv:avx512_core_f16"}[machine]
    wanted = simdnn.estimate("matmul", m=1, n=19, k=k, dt="f16", machine=machine, dispatch=name).weights_desc
    assert wanted.tag == "ba"
    found = simdnn.reorder(weights, wanted, machine=machine, engine="reference").output
    assert bits(found) == bits(np.ascontiguousarray(weights.T).reshape(-1))


# -- plain layouts --------------------------------------------------------------------------------------------------
SPECIAL = np.array(
    [
        0.0,
        -0.0,
        1.0,
        -1.5,
        1e-40,
        -1e-40,
        1e-44,
        3.4e38,
        np.inf,
        -np.inf,
        np.nan,
        65504,
        65520,
        1e-7,
        1.00390625,
        1.01171875,
        5.9604645e-08,
        2.9802322e-08,
    ],
    np.float32,
)


@pytest.mark.parametrize("engine", ["reference", "compiled"])
@pytest.mark.parametrize("tag", ["ab", "ba"])
def test_conversions_round_as_the_instruction_does(engine: str, tag: str) -> None:
    values = np.resize(np.concatenate([SPECIAL, np.linspace(-9, 9, 53, dtype=np.float32)]), (7, 11))
    whole = simdnn.reorder(values, MemoryDesc((7, 11), "tf32", tag), machine="zen4", engine=engine)
    assert whole.desc.dtype == "tf32" and bits(whole.plain()) == bits(ahead(values, "f32", "tf32"))
    for dtype, name, immediate in (("bf16", "vcvtneps2bf16", {}), ("f16", "vcvtps2ph", {"imm": 0})):
        done = simdnn.reorder(values, MemoryDesc((7, 11), dtype, tag), machine="zen4", engine=engine)
        wanted = instruction(name)(values.reshape(1, -1), **immediate).reshape(7, 11)
        assert bits(done.plain()) == bits(wanted)
        assert bits(done.output) == bits(wanted if tag == "ab" else wanted.T)
        back = simdnn.reorder(done.plain(), MemoryDesc((7, 11), "f32", tag), machine="zen4", engine=engine)
        assert np.array_equal(back.plain(), wanted.astype(np.float32), equal_nan=True)


def test_what_cannot_be_reordered() -> None:
    rows = np.ones((4, 6), np.float32)
    with pytest.raises(Unimplemented, match="f32 to bf16, which needs avx512_core_bf16: on clx work f32 to f16"):
        simdnn.reorder(rows, MemoryDesc((4, 6), "bf16", "ab"), machine="clx")
    with pytest.raises(Unimplemented, match="reorder of f32 to s8: on zen4 work"):
        simdnn.reorder(rows, MemoryDesc((4, 6), "s8", "ab"), machine="zen4")
    with pytest.raises(InvalidArgument, match="the shapes must be the same"):
        simdnn.reorder(rows, MemoryDesc((6, 4), "f32", "ab"), machine="zen4")
    with pytest.raises(InvalidArgument, match="a simdnn.MemoryDesc is needed"):
        simdnn.reorder(rows, "ab", machine="zen4")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="tag 'BA48b'.*comes from a query"):
        MemoryDesc((4, 6), "f32", "BA48b")
    with pytest.raises(UnknownName, match="bf17"):
        MemoryDesc((4, 6), "bf17", "ab")
    with pytest.raises(InvalidArgument, match="an integer of at least 1"):
        MemoryDesc((4, 0), "f32", "ab")
    wanted = simdnn.estimate("matmul", m=4, n=64, k=64, machine="zen4", attr=Attr(fpmath="bf16")).weights_desc
    with pytest.raises(Unimplemented, match="clx"):
        simdnn.reorder(np.ones((64, 64), np.float32), wanted, machine="clx")


def test_weights_made_for_another_problem_are_refused() -> None:
    rng = np.random.default_rng(0)
    src, weights = weights_of(rng, (64, 96), "f32"), weights_of(rng, (96, 100), "f32")
    bf16 = Attr(fpmath="bf16")
    packed = simdnn.reorder(
        weights, simdnn.matmul(src, weights, machine="zen4", attr=bf16).weights_desc, machine="zen4"
    )
    assert packed.desc.dtype == "bf16"
    with pytest.raises(
        InvalidArgument,
        match=r"reordered to bf16 BA\S+ 96x100 for zen4; gemm:\S+ on zen4 "
        r"wants f32 BA\S+ 96x100",
    ):
        simdnn.matmul(src, packed, machine="zen4")  # strict
    with pytest.raises(InvalidArgument, match="for zen4; .* on clx wants"):
        simdnn.matmul(src, packed, machine="clx", attr=bf16)
    with pytest.raises(InvalidArgument, match="wants f32 ab 96x100"):
        simdnn.matmul(src, packed, machine="zen4", attr=bf16, wei_tag="ab")
    with simdnn.fpmath_mode("bf16"):
        assert simdnn.matmul(src, packed, machine="zen4").compute_dtype == "bf16"


# -- what it costs --------------------------------------------------------------------------------------------------
def test_in_the_kernel_ahead_of_time_or_shared_out() -> None:
    sizes = {"m": 128, "n": 256, "k": 256, "machine": "zen4", "attr": Attr(fpmath="bf16")}
    ahead, inside = simdnn.estimate("matmul", **sizes), simdnn.estimate("matmul", wei_tag="ab", **sizes)
    once = ahead.conversion
    assert once is not None and inside.conversion is None
    assert (once.read_bytes, once.written_bytes) == (4 * 256 * 256, 2 * 256 * 256)
    assert once.seconds > 0 and once.confidence in ("measured", "documented", "estimated")
    assert ahead.amortised_cycles(1) == ahead.cycles + once.cycles
    assert ahead.amortised_cycles(10**9) == pytest.approx(ahead.cycles)
    assert inside.amortised_cycles(3) == inside.cycles > ahead.cycles
    for runs in (0, -1, 1.5, True):
        with pytest.raises(InvalidArgument, match="runs="):
            ahead.amortised_cycles(runs)  # type: ignore[arg-type]


def test_cold_weights_are_converted_from_memory() -> None:
    sizes = {"m": 16, "n": 512, "k": 512, "machine": "zen4", "attr": Attr(fpmath="bf16")}
    warm = simdnn.estimate("matmul", **sizes).conversion
    with simdnn.cold_weights():
        cold = simdnn.estimate("matmul", **sizes).conversion
    assert warm and cold and cold.cycles >= warm.cycles
