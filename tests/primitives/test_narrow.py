"""Products of narrow floats by this package's own kernels, and what is refused where oneDNN's bits are asked for."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import simdnn
from isa_models.formats import decode, fmt
from tests.effort import one_in

Array = npt.NDArray[Any]
NARROW = ("f8_e4m3", "f8_e5m2", "f6_e2m3", "f6_e3m2", "f4_e2m1")
M, K, N = 5, 64, 19


def normal(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) * 2).astype(np.float32).astype(fmt(dtype).dtype)


def e8m0(shape: tuple[int, int], low: int = -3, high: int = 3) -> Array:
    return np.exp2(np.random.default_rng(1).integers(low, high, shape)).astype(ml_dtypes.float8_e8m0fnu)


@one_in(3, "kernel")
@pytest.mark.parametrize("wei", NARROW)
@pytest.mark.parametrize(
    ("src", "kernel"),
    [
        ("bf16", "avx512_core_bf16"),
        ("bf16", "avx512_core_amx"),
        ("f32", "avx512_core"),
        ("f32", "avx2"),
        ("f16", "avx512_core_amx_fp16"),
        ("f8_e4m3", "avx512_core_amx"),
        ("f8_e5m2", "avx512_core_amx_fp16"),
        ("f8_e4m3", "avx512_core_bf16"),
        ("f8_e5m2", "avx2"),
    ],
)
def test_bits_are_those_of_a_product_of_decoded_weights(src: str, kernel: str, wei: str) -> None:
    a, w, scales = normal((M, K), src), normal((K, N), wei, 1), e8m0((2, N))
    attr = simdnn.Attr(scales={"wei": simdnn.Quant(scales, mask=3, groups=(32, 1), dtype="e8m0"), "src": 0.75})
    found = simdnn.matmul(a, w, machine="gnr", attr=attr, dispatch=f"wdec:{kernel}")
    floats = fmt(found.compute_dtype).dtype
    ready = (w.astype(np.float32) * np.repeat(scales.astype(np.float32), 32, 0)).astype(floats)
    plain = simdnn.Attr(scales={"src": 0.75})
    same = simdnn.matmul(a.astype(floats), ready, machine="gnr", attr=plain, dispatch=f"gemm:{kernel}")
    assert found.output.tobytes() == same.output.tobytes() and found.cycles > 0


@pytest.mark.parametrize("unit", ["avx512_core", "avx512_core_bf16", "avx512_core_amx"])
def test_a_table_and_arithmetic_yield_the_same(unit: str) -> None:
    """Both are candidates, and the clock decides; all sixteen codes are there."""
    a, w = normal((M, K), "f8_e4m3"), np.arange(K * N, dtype=np.uint8).reshape(K, N) % 16
    attr = simdnn.Attr(scales={"wei": simdnn.Quant(e8m0((2, N)), mask=3, groups=(32, 1), dtype="e8m0")})
    table, arithmetic = (
        simdnn.matmul(a, w.view(fmt("f4_e2m1").dtype), machine="spr", attr=attr, dispatch=f"wdec:{unit}{end}")
        for end in ("", "_arith")
    )
    assert table.output.tobytes() == arithmetic.output.tobytes() and table.cycles != arithmetic.cycles
    assert "vpermps" in set(table.instructions.instruction) - set(arithmetic.instructions.instruction)


@one_in(2)
@pytest.mark.parametrize("unit", ["avx512_core", "avx512_core_bf16", "avx512_core_amx"])
@pytest.mark.parametrize("wei", ["f6_e2m3", "f6_e3m2"])
def test_six_bits_by_a_table_and_by_arithmetic(unit: str, wei: str) -> None:
    a, w = normal((M, K), "f8_e4m3"), np.arange(K * N, dtype=np.uint8).reshape(K, N) % 64
    attr = simdnn.Attr(scales={"wei": simdnn.Quant(e8m0((2, N)), mask=3, groups=(32, 1), dtype="e8m0")})
    arithmetic, table = (
        simdnn.matmul(a, w.view(fmt(wei).dtype), machine="spr", attr=attr, dispatch=f"wdec:{unit}{end}")
        for end in ("", "_table")
    )
    assert table.output.tobytes() == arithmetic.output.tobytes() and table.cycles != arithmetic.cycles
    assert "vpermi2w" in set(table.instructions.instruction) - set(arithmetic.instructions.instruction)


@one_in(2)
@pytest.mark.parametrize("isa", ["avx2", "avx512_core"])
@pytest.mark.parametrize("wei", NARROW)
def test_every_code_is_its_value(isa: str, wei: str) -> None:
    """A product with 1 shows each weight itself, NaN and infinity among them: by every kernel, by both engines."""
    every = np.arange(1 << fmt(wei).bits, dtype=np.uint8).reshape(1, -1)
    one, wanted = np.ones((1, 1), np.float32), decode(every, wei)
    first = simdnn.matmul(one, every.view(fmt(wei).dtype), machine="spr", isa=isa, engine="reference")
    kernels = first.dispatch.dropna(subset=["cycles"]).implementation
    for kernel in kernels[:2] if isa == "avx2" else kernels:
        found = simdnn.matmul(one, every.view(fmt(wei).dtype), machine="spr", isa=isa, dispatch=kernel).output
        assert np.array_equal(found, wanted, equal_nan=True), kernel
    assert np.array_equal(first.output, wanted, equal_nan=True)


def test_few_rows_pay_for_narrow_weights() -> None:
    """Fewer bytes are no gain where decoding takes longer than they do: of f6 and f4 it does not."""
    sizes = {"m": 1, "n": 2048, "k": 2048, "machine": "zen4"}
    attr = simdnn.Attr(scales={"wei": simdnn.Quant(None, mask=3, groups=(32, 1), dtype="e8m0")})
    f32 = simdnn.estimate("matmul", dt="f32", **sizes).cycles
    found = {wei: simdnn.estimate("matmul", dt=f"f32:{wei}:f32", attr=attr, **sizes) for wei in NARROW}
    assert all(found[wei].cycles < f32 for wei in NARROW[1:]) and found["f8_e4m3"].cycles < 1.2 * f32
    assert found["f6_e2m3"].implementation == "wdec_fused:avx512_core_table"


def test_scales_of_every_stored_type() -> None:
    """A source in blocks by weights in blocks, with scales of each type; sums are exact here."""
    a, w = normal((M, K), "f4_e2m1"), normal((K, N), "f4_e2m1", 1)
    for dtype in ("f32", "bf16", "f16", "f8_e4m3", "e8m0"):
        one, two = e8m0((M, 2)).astype(np.float32), e8m0((4, N)).astype(np.float32)
        attr = simdnn.Attr(
            scales={
                "src": simdnn.Quant(one.astype(fmt(dtype).dtype), mask=3, groups=(1, 32), dtype=dtype),
                "wei": simdnn.Quant(two.astype(fmt(dtype).dtype), mask=3, groups=(16, 1), dtype=dtype),
            }
        )
        r = simdnn.matmul(a, w, machine="spr", attr=attr)
        wide = a.astype(np.float64) * np.repeat(one, 32, 1), w.astype(np.float64) * np.repeat(two, 16, 0)
        assert (r.output == wide[0] @ wide[1]).all() and r.implementation.startswith("wdec"), dtype


def test_blocks_multiply_as_they_dequantize() -> None:
    x, w = normal((M, K), "f32"), normal((K, N), "f32", 1)
    for quantized in (
        simdnn.quantize_mx(w, "f8_e4m3", axis=0),
        simdnn.quantize_mx(w, "f4_e2m1", axis=0, rule="ceil"),
        simdnn.quantize_nvfp4(w, axis=0),
    ):
        r = simdnn.matmul(x, quantized.output, machine="zen4", attr=quantized.attr("wei"))
        np.testing.assert_allclose(r.output, x @ quantized.dequantize(), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("dst", ["f8_e4m3", "f8_e5m2", "f4_e2m1"])
def test_destinations_saturate_and_round_once(dst: str) -> None:
    """The library rounds by way of f16 and does not saturate; own kernels do neither."""
    form = fmt(dst)
    x = np.array([[1.0625 + 2.0**-13, 460, 1e6, -1e9, 0.3, np.nan, 3.1, -0.0]], np.float32)
    r = simdnn.matmul(np.ones((1, 1), np.float32), x, machine="spr", dst=dst)
    wanted = np.clip(x, -form.greatest, form.greatest).astype(form.dtype)
    kept = np.isfinite(x)
    assert r.output.dtype == form.dtype and (r.output[kept] == wanted[kept]).all()
    assert np.isnan(r.output.astype(np.float32)[~kept]).all() == form.nan


@pytest.mark.parametrize(("mode", "columns", "dst"), [("dynamic_mx", 32, "f8_e4m3"), ("dynamic_fp", 16, "f4_e2m1")])
def test_scales_that_are_found(mode: str, columns: int, dst: str) -> None:
    a, w = normal((M, K), "bf16"), normal((K, 64), "bf16", 1)
    attr = simdnn.Attr(scales={"dst": simdnn.Quant(mode=mode)})
    r = simdnn.matmul(a, w, machine="spr", dst=dst, attr=attr)
    plain = simdnn.matmul(a, w, machine="spr", dst="f32").output
    assert r.dst_scales is not None and r.dst_scales.shape == (M, 64 // columns)
    back = r.output.astype(np.float32) * np.repeat(r.dst_scales.astype(np.float32), columns, 1)
    assert np.abs(back - plain).max() < np.abs(plain).max() * (0.13 if dst == "f8_e4m3" else 0.26)
    if mode == "dynamic_mx":
        q = simdnn.quantize_mx(plain, dst)
        assert (q.output.view(np.uint8) == r.output.view(np.uint8)).all() and (q.scales == r.dst_scales).all()


def test_the_librarys_overflows_are_shown_and_not_copied() -> None:
    """Under dynamic_mx the floor of 460 is 256, and 460 / 1 has no code in f8_e4m3."""
    a, w = np.ones((1, 1), np.float32), np.full((1, 32), 470, np.float32)
    attr = simdnn.Attr(scales={"dst": simdnn.Quant(mask=3, groups=(1, 32), dtype="e8m0", mode="dynamic_mx")})
    found = {
        rule: simdnn.matmul(a, w, machine="spr", dst="f8_e4m3", attr=attr, dispatch=rule).output.astype(np.float32)[
            0, 0
        ]
        for rule in ("onednn", "fastest")
    }
    assert np.isnan(found["onednn"]) and found["fastest"] == 448


@one_in(3, "src")
@pytest.mark.parametrize("machine", ["spr", "zen4", "hsw"])
@pytest.mark.parametrize(
    ("src", "wei", "dst", "front"),
    [
        ("f8_e4m3", "f8_e4m3", "f32", ((2,), (2,))),
        ("f8_e4m3", "f4_e2m1", "f8_e4m3", ((2, 1), (2, 2))),
        ("f32", "f8_e5m2", "f32", ((2,), (2,))),
        ("f32", "f6_e2m3", "f4_e2m1", ((1,), (3,))),
        ("f32", "f32", "f8_e4m3", ((2,), (2,))),
    ],
)
def test_batches_are_each_product_alone(
    machine: str, src: str, wei: str, dst: str, front: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    """With scales by group on both sides, static and found scales of the destination, dimensions that broadcast."""
    rng = np.random.default_rng(5)
    a, w = ((rng.standard_normal((*f, *s))).astype(np.float32) for f, s in zip(front, ((3, 32), (32, 32)), strict=True))
    a, w = a.astype(fmt(src).dtype), w.astype(fmt(wei).dtype)
    scales: dict[str, Any] = {"wei": simdnn.Quant(e8m0((2, 32)), groups=(16, 1), dtype="e8m0")} if wei != "f32" else {}
    if src != "f32":
        scales["src"] = simdnn.Quant(e8m0((3, 1)), mask=3, groups=(1, 32), dtype="e8m0")
    if dst == "f8_e4m3":
        scales["dst"] = simdnn.Quant(mode="dynamic_mx")
    elif dst == "f4_e2m1":
        scales["dst"] = 0.5
    attr = simdnn.Attr(scales=scales)
    r = simdnn.matmul(a, w, machine=machine, dst=dst, attr=attr)
    outer = np.broadcast_shapes(*front)
    ones = [np.broadcast_to(x, (*outer, *x.shape[-2:])).reshape(-1, *x.shape[-2:]) for x in (a, w)]
    alone = [
        simdnn.matmul(x, y, machine=machine, dst=dst, attr=attr, dispatch=r.implementation)
        for x, y in zip(*ones, strict=True)
    ]
    assert r.output.shape == (*outer, 3, 32) and r.cycles > alone[0].cycles
    assert r.output.tobytes() == b"".join(one.output.tobytes() for one in alone)
    assert (r.dst_scales is None) == (dst != "f8_e4m3")
    if r.dst_scales is not None:
        assert r.dst_scales.shape == (*outer, 3, 1)
        assert r.dst_scales.tobytes() == b"".join(one.dst_scales.tobytes() for one in alone)  # type: ignore[union-attr]


def scaled(argument: str, values: Array, **fields: Any) -> simdnn.Attr:
    return simdnn.Attr(scales={argument: simdnn.Quant(values, **fields)})


ONES = np.ones(1, np.float32)


@pytest.mark.parametrize(
    ("types", "call", "told"),
    [
        (("f8_e4m3", "f8_e5m2"), {}, "f8 sources go with weights of their own type, bf16, f16 and integers"),
        (("f32", "f8_e4m3"), {}, "f8 weights go with sources of f8 and bf16, not f32"),
        (("f16", "f8_e4m3"), {}, "f8 weights go with sources of f8 and bf16, not f16"),
        (("f4_e2m1", "f4_e2m1"), {}, "no floats of fewer than 8 bits"),
        (("bf16", "f4_e2m1"), {}, "no floats of fewer than 8 bits"),
        (("bf16", "f8_e4m3"), {"wei_tag": "ab"}, "weights in its own layout"),
        (("bf16", "f8_e4m3"), {"isa": "avx512_core_fp16"}, "needs avx512_core_amx"),
        (("bf16", "f8_e4m3"), {"dst": "f8_e4m3"}, "destinations of f32, bf16 and f16"),
        (("bf16", "f8_e4m3"), {"attr": scaled("wei", e8m0((2, N)), groups=(32, 1))}, "common scales of f32"),
        (("f8_e4m3", "f8_e4m3"), {"isa": "avx512_core"}, "need avx512_core_fp16"),
        (("f16", "f16"), {"dst": "f8_e4m3"}, "f16 sources have no destination of fewer bits"),
        (("f8_e4m3", "f8_e4m3"), {"attr": scaled("src", np.ones((M, 1), np.float32), mask=1)}, "by row without groups"),
        (("f8_e4m3", "f8_e4m3"), {"attr": scaled("wei", np.ones((8, N), np.float32), groups=(8, 1))}, "of 16"),
        (("f8_e4m3", "f8_e4m3"), {"attr": scaled("wei", ONES, dtype="e8m0")}, "a common one of e8m0"),
        (
            ("f8_e4m3", "f8_e4m3"),
            {"attr": scaled("dst", np.ones(N, np.float32), mask=2)},
            "takes the first one for all columns",
        ),
        (("f8_e4m3", "f8_e4m3"), {"attr": simdnn.Attr(zero_points={"wei": 1})}, "an error of its"),
    ],
)
def test_what_the_library_refuses_or_gets_wrong(types: tuple[str, str], call: dict[str, Any], told: str) -> None:
    a, w = normal((M, K), types[0]), normal((K, N), types[1], 1)
    with pytest.raises(simdnn.SimdnnError) as error:
        simdnn.matmul(a, w, machine="spr", dispatch="onednn", **call)
    assert told in str(error.value)


def test_every_pair_of_narrow_floats_has_a_kernel_of_its_own() -> None:
    for src in NARROW:
        for wei in NARROW:
            r = simdnn.matmul(normal((2, 32), src), normal((32, 3), wei, 1), machine="spr")
            wide = [normal(shape, t, s).astype(np.float64) for shape, t, s in (((2, 32), src, 0), ((32, 3), wei, 1))]
            np.testing.assert_allclose(r.output, wide[0] @ wide[1], rtol=1e-5, atol=1e-5)


def test_reorders_that_the_library_leaves_unwritten() -> None:
    desc = simdnn.MemoryDesc((2, 32), "f4_e2m1", "ab")
    with pytest.raises(simdnn.Unimplemented, match="leaves the destination unwritten"):
        simdnn.reorder(normal((2, 32), "bf16"), desc, machine="spr")


def test_results_tell_what_they_are() -> None:
    """The line of the log, the chain of an element, JSON: of a destination whose scales are found, too."""
    from simdnn.primitives.attribute_text import _FOUND

    attr = simdnn.Attr(scales={"dst": simdnn.Quant(mode="dynamic_mx")})
    a, w = normal((2, 32), "f8_e4m3"), normal((32, 32), "f8_e4m3", 1)
    r = simdnn.matmul(a, w, machine="spr", dst="f8_e4m3", attr=attr)
    assert "vcvtph2ps" in str(r.explain(1, 2)) and '"dst": "f8_e4m3"' in r.to_json()
    assert _FOUND["dynamic_mx"] == "mx" and r.departures.attrs["departing"] == 0
    assert simdnn.estimate("matmul", m=2, n=32, k=32, dt="f8_e4m3", machine="spr", attr=attr).cycles == r.cycles


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda a, w: simdnn.matmul(a, w, machine="b580"), "f8_e4m3 source with f8_e4m3 weights on 'b580'"),
        (lambda a, w: simdnn.matmul(a.astype(np.float32).view(np.uint32).astype(np.uint8), w, machine="spr"), "u8"),
    ],
)
def test_what_nobody_computes_is_refused(call: Any, told: str) -> None:
    with pytest.raises(simdnn.SimdnnError) as error:
        call(normal((2, 32), "f8_e4m3"), normal((32, 3), "f8_e4m3", 1))
    assert told in str(error.value)


@pytest.mark.parametrize("dt", ["f8_e4m3:f8_e4m3:f32", "f32:f32:f8_e4m3", "bf16:bf16:f8_e5m2"])
def test_every_candidate_of_what_a_reference_computes_has_a_reason(dt: str) -> None:
    """Under the library's choice, too, whoever asks for the others gets a frame."""
    found = simdnn.estimate("matmul", m=9, n=40, k=64, dt=dt, machine="spr", dispatch="onednn")
    frame = found.dispatch.set_index("implementation")
    assert found.implementation.startswith("ref_float") and frame.loc[found.implementation, "chosen"]
    assert (
        "library's reference" in frame.loc["gemm:avx512_core", "reason"]
        or "computes" in frame.loc["gemm:avx512_core", "reason"]
    )


@one_in(2)
@pytest.mark.parametrize("dst", ["f8_e4m3", "f8_e5m2", "f4_e2m1"])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_a_sum_reads_codes(dst: str, batch: tuple[int, ...]) -> None:
    """The old content of the destination acts as a second operand of its values; a batch is its products one by one."""
    a, w, held = normal((*batch, M, K), "bf16"), normal((*batch, K, N), "f8_e4m3", 1), normal((*batch, M, N), dst, 2)
    asked = {"machine": "zen4", "dst": dst}
    summed = simdnn.matmul(a, w, attr=simdnn.Attr(post_ops=[("sum", 1.0)]), into=held, **asked)
    added = simdnn.matmul(a, w, attr=simdnn.Attr(post_ops=[("add", held.astype(np.float32))]), **asked)
    assert summed.output.tobytes() == added.output.tobytes() and summed.output.any()


def test_a_batch_for_the_reference_is_its_products() -> None:
    a, w = normal((2, M, K), "f8_e5m2"), normal((2, K, N), "f8_e5m2", 1)
    asked = {"machine": "spr", "dispatch": "onednn", "dst": "f8_e5m2"}
    found = simdnn.matmul(a, w, **asked).output
    assert all(
        one.tobytes() == simdnn.matmul(*pair, **asked).output.tobytes() for one, *pair in zip(found, a, w, strict=True)
    )
