"""Batches of products on every target: each product's bits, what is shared read once, one kernel for all of them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import isa_models
import simdnn
from isa_models import InvalidArgument, SimdnnError, Unimplemented
from isa_models.formats import fmt
from isa_models.machines.loader import gpu_machine
from simdnn import Attr, Quant
from simdnn.kernels.common.batch import Batch
from simdnn.kernels.common.batched import as_batched
from simdnn.kernels.common.kernel import KernelKind
from simdnn.primitives.costs import built
from simdnn.primitives.run import values
from simdnn.program.check import is_proved
from tests.draws import drawn
from tests.effort import examples, one_in
from tests.kernels.test_engines import MATMUL, data, matmul_problem, parameters

Array = np.ndarray[Any, np.dtype[Any]]


SIZES = st.lists(st.sampled_from([(1, 1), (2, 2), (3, 3), (1, 3), (2, 1)]), max_size=3)
GPUS = [("b580", "f16"), ("a770", "s8"), ("max1550", "f32"), ("dg1", "bf16"), ("v100", "f16"), ("v100", "f32")]
CPUS = [
    ("hsw", "f32"),
    ("hsw", "u8:s8"),
    ("skx", "s8"),
    ("skx", "bf16"),
    ("zen4", "u8:s4"),
    ("zen4", "f16"),
    ("spr", "bf16"),
    ("spr", "s8:u8"),
    ("gnr", "f16"),
    ("adl-p", "s8"),
]
CASES = [*GPUS, *CPUS]
TAGS = ["any", "ab", "ba"]
EDGE = st.integers(1, 40)


@given(SIZES, st.integers(0, 2), st.sampled_from(CASES), st.integers(1, 20), EDGE, EDGE, st.sampled_from(TAGS))
@examples(24)
def test_products_have_the_bits_that_they_have_alone(
    sizes: list[tuple[int, int]], short: int, case: tuple[str, str], m: int, n: int, k: int, tag: str
) -> None:
    machine, (src_type, wei_type) = case[0], (case[1].split(":") * 2)[:2]
    rng = np.random.default_rng([m, n, k])
    src = drawn(src_type, (*(a for a, _ in sizes[short:]), m, k), rng)
    wei = drawn(wei_type, (*(b for _, b in sizes), k, n), rng)
    bias = drawn("f32", (n,), rng) if fmt(src_type).is_float else None
    tag = "any" if machine == "v100" or wei_type != src_type else tag
    given: dict[str, Any] = {"machine": machine, "attr": Attr(post_ops=["relu"]), "wei_tag": tag}
    for engine in ("compiled", "reference"):
        found = simdnn.matmul(src, wei, bias, engine=engine, **given)
        outer = np.broadcast_shapes(src.shape[:-2], wei.shape[:-2])
        assert found.output.shape == (*outer, m, n) and found.problem.macs == found.output.size * k
        whole = np.broadcast_to(src, (*outer, m, k)), np.broadcast_to(wei, (*outer, k, n))
        assert found.saturation is None or found.saturation.shape == found.output.shape
        for place in [tuple(0 for _ in outer), tuple(size - 1 for size in outer)]:
            one = given | {"engine": engine, "dispatch": found.implementation}
            alone = simdnn.matmul(whole[0][place], whole[1][place], bias, **one)
            assert found.output[place].tobytes() == alone.output.tobytes()
            if found.saturation is not None and alone.saturation is not None:
                assert (found.saturation[place] == alone.saturation).all()


@examples(24)
@given(kind=st.sampled_from(MATMUL), seed=st.integers(0, 2**32 - 1))
def test_any_row_of_a_cpu_takes_batches(kind: KernelKind, seed: int) -> None:
    """With destinations and parameters of all kinds, on sizes that leave a rest."""
    rng = np.random.default_rng(seed)
    one = matmul_problem(kind, rng)
    batch, e = Batch.of((2, 1), (2, 3)), one.epilogue
    given = parameters(rng, e, one.n)
    src, wei = data(rng, (2, 1, one.m, one.k), one.src), data(rng, (2, 3, one.k, one.n), one.wei)
    whole = built(kind, replace(one, batch=batch), isa_models.machine("gnr"))
    fed = as_batched(whole, batch, e.post_ops, (2, 3, one.m, one.n))
    alone = kind.build(one, isa_models.machine("gnr"))
    with np.errstate(all="ignore"):
        found = values(fed, src, wei, given, "compiled")
        for i, j in itertools.product(range(2), range(3)):
            assert found[i, j].tobytes() == values(alone, src[i, 0], wei[i, j], given, "compiled").tobytes()


@one_in(3)
@pytest.mark.parametrize(
    ("machine", "types"),
    [("hsw", "f32:s8"), ("skx", "bf16:u4"), ("skx", "f16:s4"), ("spr", "bf16:s8"), ("spr", "f16:u4")],
)
def test_decompressed_weights_of_a_batch(machine: str, types: str) -> None:
    """Every row that takes them, packed and plain; parameters by group are shared by all products."""
    rng = np.random.default_rng(8)
    src, wei = (drawn(t, s, rng) for t, s in zip(types.split(":"), ((2, 1, 3, 64), (2, 3, 64, 21)), strict=True))
    scales = {"wei": rng.random((4, 21)).astype("f4")}
    mode = {"f32": None, "bf16": "bf16", "f16": "f16"}[types.split(":")[0]]
    attr = Attr(apply_to_int=True, fpmath=mode, scales=scales, zero_points={"wei": 3})
    table = simdnn.matmul(src[0, 0], wei[0, 0], machine=machine, attr=attr).dispatch
    for name, tag in itertools.product(table.dropna(subset="cycles")["implementation"], ("any", "ab")):
        given: dict[str, Any] = {
            "machine": machine,
            "attr": attr,
            "dispatch": name,
            "wei_tag": tag,
        }
        try:
            alone = simdnn.matmul(src[1, 0], wei[1, 2], **given)
        except SimdnnError:  # not of plain weights
            assert tag == "ab"
            continue
        assert simdnn.matmul(src, wei, **given).output[1, 2].tobytes() == alone.output.tobytes()


@one_in(3)
@pytest.mark.parametrize("machine", ["hsw", "skx", "zen4", "spr"])
@pytest.mark.parametrize("dispatch", ["fastest", "onednn"])
def test_integers_with_parameters_along_k(machine: str, dispatch: str) -> None:
    rng = np.random.default_rng(9)
    src, wei = drawn("u8", (2, 3, 64), rng), drawn("s8", (2, 64, 21), rng)
    points = {"src": Quant(rng.integers(0, 4, (3, 2)), groups=(1, 32)), "wei": rng.integers(-4, 4, (2, 21))}
    scales = {"src": rng.random((3, 1)).astype("f4"), "wei": rng.random((4, 21)).astype("f4")}
    for attr in (
        Attr(zero_points=points),
        Attr(scales=scales, exact_int8=True),
        Attr(zero_points=points, scales=scales),
    ):
        given: dict[str, Any] = {"machine": machine, "dispatch": dispatch, "dst": "f32", "attr": attr}
        alone = simdnn.matmul(src[1], wei[1], **given)
        found = simdnn.matmul(src, wei, **given | {"dispatch": alone.implementation} if dispatch != "onednn" else given)
        assert found.implementation == alone.implementation and found.output[1].tobytes() == alone.output.tobytes()


@one_in(2)
@pytest.mark.parametrize("machine", ["hsw", "skx", "zen4", "spr"])
def test_what_onednn_picks_for_a_batch_has_the_bits_of_its_products(machine: str) -> None:
    """As recorded: 3D and 4D, broadcast, every type (docs/numerics.md)."""
    rng = np.random.default_rng(4)
    for types, m in itertools.product((("f32", "f32"), ("u8", "s8"), ("bf16", "bf16")), (1, 6)):
        src, wei = drawn(types[0], (2, 2, m, 70), rng), drawn(types[1], (2, 1, 70, 19), rng)
        try:
            alone = simdnn.matmul(src[1, 1], wei[1, 0], machine=machine, dispatch="onednn")
        except SimdnnError:  # no bf16 below AVX-512
            continue
        found = simdnn.matmul(src, wei, machine=machine, dispatch="onednn")
        small = (machine, types[0]) == ("spr", "u8")  # which leaves tiles with two dimensions alone
        assert found.implementation == ("gemm:avx512_core_amx_int8" if small else alone.implementation)
        assert found.output[1, 1].tobytes() == alone.output.tobytes()


@pytest.mark.parametrize("machine", ["hsw", "zen4", "spr", "b580"])
def test_an_element_of_a_batch_is_explained(machine: str) -> None:
    rng = np.random.default_rng(5)
    src, wei = drawn("u8", (2, 3, 4, 33), rng), drawn("s8", (1, 3, 33, 18), rng)
    found = simdnn.matmul(src, wei, machine=machine)
    shown = found.explain(1, 2, 3, 17)
    assert shown.value == found.output[1, 2, 3, 17] and str(shown).splitlines()[0].startswith("dst[1,2,3,17]")
    assert "src[1,2,3," in str(shown) and "weights[0,2," in str(shown)


def test_what_broadcasts_is_brought_into_the_kernels_layout_once() -> None:
    sizes: dict[str, Any] = {
        "m": 8,
        "n": 64,
        "k": 64,
        "dt": "u8:s8:s32",
        "machine": "zen4",
        "wei_tag": "ab",
        "src_batch": (4, 6),
    }
    own = simdnn.estimate("matmul", wei_batch=(4, 6), **sizes)
    shared = simdnn.estimate("matmul", wei_batch=(4, 1), **sizes)
    assert shared.cycles < 0.9 * own.cycles
    sized = {e: {t.name: t.size for t in e.kernel.program.tensors} for e in (own, shared)}
    assert sized[own]["wei"] == 6 * sized[shared]["wei"] and sized[own]["plain"] == 24 * 64 * 64
    assert own.to_frame()["cycles"].item() == own.cycles and own.weights_desc.tag == "abc"


def test_products_of_a_batch_are_shared_out_to_threads() -> None:
    sizes: dict[str, Any] = {"m": 20, "n": 96, "k": 64, "dt": "u8:s8:s32", "machine": "icx", "wei_batch": 24}
    cycles = [simdnn.estimate("matmul", src_batch=24, threads=n, **sizes).cycles for n in (1, 2, 8)]
    assert cycles[0] > 1.6 * cycles[1] > 1.6 * 2 * cycles[2]
    rng = np.random.default_rng(6)
    src, wei = drawn("u8", (4, 20, 64), rng), drawn("s8", (4, 64, 96), rng)
    one, four = (simdnn.matmul(src, wei, machine="icx", threads=n) for n in (1, 4))
    assert (one.output == src.astype(np.int64) @ wei).all() and (one.output == four.output).all()


@pytest.mark.parametrize("strategy", ["direct", "in_kernel", "bias", "upconvert"])
def test_integers_with_zero_points_and_scales_by_token(strategy: str) -> None:
    rng = np.random.default_rng(1)
    a, b = drawn("u8", (2, 1, 5, 40), rng), drawn("s8", (1, 3, 40, 9), rng)
    points = {"src": rng.integers(0, 9, (5, 1)), "wei": rng.integers(-4, 4, 9)}
    scales = {"src": rng.random((5, 1)).astype("f4"), "wei": rng.random(9).astype("f4")}
    attr = Attr(zero_points=points, scales=scales, zero_point_strategy=strategy)
    found = simdnn.matmul(a, b, machine="b580", attr=attr).output
    sums = (a.astype(int) - points["src"]) @ (b.astype(int) - points["wei"])
    assert np.array_equal(found, sums.astype("f4") * scales["src"] * scales["wei"])


@pytest.mark.parametrize("machine", ["a770", "hsw", "icx"])
def test_what_is_as_large_as_the_output_is_each_products_own(machine: str) -> None:
    rng = np.random.default_rng(2)
    a, b = drawn("s8", (3, 5, 32), rng) // 4, drawn("s8", (3, 32, 9), rng) // 4  # no pair saturates
    before, full = rng.integers(-99, 99, (2, 3, 5, 9)).astype("f4")
    attr = Attr(post_ops=[("sum", 0.5), ("add", full)])
    found = simdnn.matmul(a, b, machine=machine, dst="f32", attr=attr, into=before)
    assert (found.output == (a.astype(int) @ b.astype(int)).astype("f4") + before / 2 + full).all()
    assert found.explain(2, 4, 8).value == found.output[2, 4, 8]


def test_one_matrix_of_weights_makes_rows_of_a_single_product() -> None:
    a, b = np.ones((2, 3, 5, 16), np.float16), np.ones((1, 16, 8), np.float16)
    found = simdnn.matmul(a, b, machine="b580")
    assert found.output.shape == (2, 3, 5, 8) and (found.problem.m, found.problem.batch.count) == (30, 1)
    one = simdnn.estimate("matmul", m=30, n=8, k=16, dt="f16:f16:f32", machine="b580")
    assert found.cycles == one.cycles
    asked = simdnn.estimate("matmul", m=5, n=8, k=16, src_batch=(2, 3), dt="f16:f16:f32", machine="b580")
    assert asked.cycles == one.cycles


def test_a_batch_on_one_core_costs_its_products_and_cold_weights_come_from_memory() -> None:
    sizes: dict[str, Any] = {"m": 48, "n": 64, "k": 64, "dt": "f32", "machine": "zen4", "dispatch": "gemm:avx512_core"}
    alone, own = simdnn.estimate("matmul", **sizes), simdnn.estimate("matmul", src_batch=8, wei_batch=8, **sizes)
    assert 7 * alone.cycles < own.cycles < 9.5 * alone.cycles
    counts = [e.instructions.set_index("instruction")["count"]["vfmadd231ps"].sum() for e in (alone, own)]
    assert counts[1] == 8 * counts[0] and own.problem.macs == 8 * alone.problem.macs
    with simdnn.cold_weights():
        shared = simdnn.estimate("matmul", src_batch=(2, 4), wei_batch=(2, 1), **sizes)
        apart = simdnn.estimate("matmul", src_batch=8, wei_batch=8, **sizes)
    read = [e.traffic.set_index("level").loc["DRAM", "read_bytes"] for e in (shared, apart)]
    assert read[0] == 2 * 64 * 64 * 4 and read[1] == 8 * 64 * 64 * 4


@pytest.mark.parametrize("machine", ["b580", "a770", "v100"])
def test_a_batch_on_a_gpu_costs_less_than_its_products_and_no_less_than_its_bytes(machine: str) -> None:
    sizes: dict[str, Any] = {"m": 128, "n": 128, "k": 64, "dt": "f16", "machine": machine}
    own = simdnn.estimate("matmul", src_batch=48, wei_batch=48, **sizes)
    alone = simdnn.estimate("matmul", **sizes)
    assert alone.cycles < own.cycles < 0.5 * 48 * alone.cycles
    with simdnn.cold_weights():
        shared = simdnn.estimate("matmul", src_batch=(4, 12), wei_batch=(4, 1), **sizes)
        apart = simdnn.estimate("matmul", src_batch=48, wei_batch=48, **sizes)
    read = [found.traffic.set_index("level").loc["DRAM", "read_bytes"] for found in (shared, apart)]
    assert read[1] >= 2 * 48 * 128 * 64 * 2 and read[0] <= read[1] - 44 * 128 * 64 * 2 * 0.9
    assert 2 * shared.problem.macs / shared.seconds <= gpu_machine(machine).peak_ops("f16")


@pytest.mark.parametrize(
    ("error", "message", "src", "wei", "options"),
    [
        (InvalidArgument, "does not broadcast", (2, 4, 8), (3, 8, 6), {}),
        (InvalidArgument, "K 8 != 7", (2, 4, 8), (2, 7, 6), {}),
        (InvalidArgument, "is empty", (0, 4, 8), (1, 8, 6), {}),
        (InvalidArgument, "2 to 12 dimensions", (1,) * 11 + (4, 8), (2, 8, 6), {}),
        (InvalidArgument, "2 to 12 dimensions", (8,), (2, 8, 6), {}),
        (
            Unimplemented,
            "of a batch",
            (2, 4, 8),
            (2, 8, 6),
            {"attr": Attr(zero_points={"wei": 1}, precomputed_reductions={"src": np.zeros((4, 1), np.int32)})},
        ),
        (
            Unimplemented,
            "of a batch",
            (2, 4, 8),
            (2, 8, 6),
            {
                "machine": "icx",
                "attr": Attr(zero_points={"wei": 1}, precomputed_reductions={"src": np.zeros((4, 1), np.int32)}),
            },
        ),
        (
            InvalidArgument,
            r"needed: \(2, 4, 6\)",
            (2, 4, 8),
            (2, 8, 6),
            {"machine": "icx", "attr": Attr(post_ops=["sum"]), "into": np.zeros((4, 6), np.int32)},
        ),
        (
            InvalidArgument,
            r"needed: \(2, 4, 6\)",
            (2, 4, 8),
            (2, 8, 6),
            {"attr": Attr(post_ops=["sum"]), "into": np.zeros((4, 6), np.int32)},
        ),
    ],
)
def test_refusals(
    error: type[SimdnnError], message: str, src: tuple[int, ...], wei: tuple[int, ...], options: dict[str, Any]
) -> None:
    with pytest.raises(error, match=message) as caught:
        simdnn.matmul(np.ones(src, np.int8), np.ones(wei, np.int8), **{"machine": "a770", **options})
    assert "\n" not in str(caught.value)


@one_in(3)
@pytest.mark.parametrize("machine", ["skx", "zen4", "b580"])
@pytest.mark.parametrize("shape", [(2, 3, 8), (2, 1, 3, 8), (1, 4, 8)])
def test_products_with_one_matrix_of_weights_are_rows_of_one(machine: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    src, wei = rng.integers(0, 256, shape).astype(np.uint8), rng.integers(-128, 128, (8, 5)).astype(np.int8)
    flat = src.reshape(-1, 8)
    scales = {"src": rng.random((len(flat), 1)).astype(np.float32)}
    more = rng.random((*shape[:-1], 5)).astype(np.float32)
    for attr in (Attr(), Attr(scales=scales), Attr(post_ops=[("add", more)])):
        plain = Attr(post_ops=[("add", more.reshape(-1, 5))]) if attr.post_ops else attr
        found, one = (simdnn.matmul(a, wei, machine=machine, attr=x) for a, x in ((src, attr), (flat, plain)))
        assert found.output.shape == (*shape[:-1], 5) and (found.output.reshape(-1, 5) == one.output).all()
        assert found.cycles == one.cycles and found.implementation == one.implementation
        if found.saturation is not None:
            assert found.saturation.shape == found.output.shape and found.saturation.sum() == one.saturation.sum()
    first, named = (0,) * len(shape), ",".join("0" * len(shape))
    assert str(found.explain(*first)).replace(f"dst[{named}]", "dst[0,0]") == str(one.explain(0, 0))
    sizes: dict[str, Any] = {"m": shape[-2], "n": 5, "k": 8, "dt": "u8:s8:s32", "src_batch": shape[:-2]}
    assert simdnn.estimate("matmul", machine=machine, **sizes).problem.m == len(flat)


def test_estimates_take_sizes_in_front_and_refuse_what_is_none() -> None:
    for bad in (0, "2", (2, -1), 1.5):
        with pytest.raises(InvalidArgument, match="src_batch"):
            simdnn.estimate("matmul", m=2, n=2, k=2, src_batch=bad, dt="f16", machine="b580")  # type: ignore[arg-type]


def test_programs_that_are_made_of_others_are_proved_as_a_whole() -> None:
    """A batch, and stages around the rows of a matmul and of a convolution: their parts are drafts."""
    float8 = fmt("f8_e4m3").dtype
    a, w = np.ones((3, 4, 8), np.float32), np.ones((3, 8, 5), np.float32)
    image, taps = np.ones((1, 8, 5, 5), np.float32), np.ones((4, 8, 3, 3), np.float32)
    made = [
        simdnn.matmul(a, w, machine="zen4"),
        simdnn.matmul(a.astype(float8), w.astype(float8), machine="zen4"),
        simdnn.matmul(a[0].astype(float8), w[0].astype(float8), machine="zen4", dst="f8_e5m2"),
        simdnn.convolution(image.astype(float8), taps.astype(float8), machine="zen4"),
        simdnn.convolution(image, taps.astype(np.int8), machine="zen4", attr=Attr(fpmath="any", apply_to_int=True)),
    ]
    assert all(is_proved(result.kernel.program) for result in made)
