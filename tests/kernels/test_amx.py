"""Kernels on AMX tiles: sums as the manual's loops give them, tails, orders, and cycles near the unit's peak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import simdnn
from isa_models import instruction
from isa_models.formats import fmt
from isa_models.host import machine_code
from isa_models.readings.arrays import Array
from simdnn import libraries, numerics
from simdnn.kernels import KERNELS, ConvProblem, Epilogue, Kernel, MatmulProblem, Parameters, Problem
from simdnn.kernels.common.epilogue import Decompression, GroupScales
from simdnn.kernels.common.params import Param
from simdnn.kernels.common.postops import RELU
from simdnn.kernels.x86 import amx, decompress
from simdnn.numerics.compiled import compile_program
from simdnn.numerics.tiles import dot_function
from simdnn.program.records import Loop, Memory, Op, Program, Statement
from simdnn.timing.estimate import estimate_program
from tests.effort import one_in
from tests.isa_models.test_amx import manual
from tests.kernels.test_engines import data, parameters, run_all
from tests.params import BY_CHANNEL, along_k
from tests.primitives.problems import exact_sums
from tests.timing.tiles import tiled

KINDS = {kind.name: kind for kind in KERNELS}
INT8 = "gemm:avx512_core_amx_int8"


def loops(program: Program) -> list[Loop]:
    """All loops."""

    def within(body: Sequence[Statement]) -> list[Loop]:
        return [one for loop in body if isinstance(loop, Loop) for one in (loop, *within(loop.body))]

    return within(program.body)


def build(name: str, problem: Problem, accumulation: str = "even_odd") -> Kernel:
    assert KINDS[name].accepts(problem) == ""
    return KINDS[name].build(problem, tiled(accumulation))


# one row; a tile; two tiles; blocks that overlap; one column; K below, at and above a tile
SHAPES = [(1, 1, 1), (1, 100, 64), (16, 16, 64), (17, 33, 65), (33, 20, 130), (70, 20, 3)]


@one_in(3, "tag")
@pytest.mark.parametrize("tag", ["any", "ab", "ba"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_int8_matmul_is_exact(shape: tuple[int, int, int], tag: str) -> None:
    m, n, k = shape
    rng = np.random.default_rng(m)
    for src in ("u8", "s8") if tag == "any" else ("u8" if m % 2 else "s8",):
        a, b = data(rng, (m, k), src), data(rng, (k, n), "s8")
        points = src == "s8"
        e = Epilogue("s32", zp_src=points, zp_wei=points)
        p = Parameters(zp_src=3, zp_wei=-2)
        kernel = build(INT8, MatmulProblem(m, n, k, src, "s8", e, tag))
        exact = (a.astype(np.int64) - 3 * points) @ (b.astype(np.int64) + 2 * points)
        assert (run_all(kernel, a, b, p, portable=src == "u8" and tag == "any") == exact).all()


def test_int8_sums_wrap() -> None:
    k = 1 << 17
    a, b = np.full((1, k), 255, np.uint8), np.full((k, 1), 127, np.int8)
    kernel = build(INT8, MatmulProblem(1, 1, k, "u8", "s8", Epilogue("s32")))
    out = kernel.finish(numerics.run(kernel.program, kernel.prepare(a, b, Parameters())))
    assert int(out[0, 0]) == (255 * 127 * k + 2**31) % 2**32 - 2**31 != 255 * 127 * k


@one_in(2)
@pytest.mark.parametrize("dst", ["s32", "f32", "s8", "u8", "bf16", "f16"])
def test_every_destination(dst: str) -> None:
    m, n, k = 19, 37, 70
    rng = np.random.default_rng(5)
    a, b = data(rng, (m, k), "u8"), data(rng, (k, n), "s8")
    e = Epilogue(dst, zp_src=True, src_scale=True, wei_scale=BY_CHANNEL, bias=True, post_ops=(RELU,), dst_scale=True)
    p = replace(parameters(rng, e, n), src_scale=0.25, wei_scale=2.0 ** rng.integers(-8, -4, n).astype(np.float32))
    tiles, vnni = (
        KINDS[name].build(MatmulProblem(m, n, k, "u8", "s8", e), tiled()) for name in (INT8, "gemm:avx512_core_vnni")
    )
    outputs = [run_all(kernel, a, b, p, portable=dst == "u8") for kernel in (tiles, vnni)]
    assert outputs[0].tobytes() == outputs[1].tobytes()


@pytest.mark.parametrize("accumulation", ["even_odd", "sequential"])
@pytest.mark.parametrize(("name", "dtype"), [("gemm:avx512_core_amx", "bf16"), ("gemm:avx512_core_amx_fp16", "f16")])
def test_float_sums_in_the_manuals_order(name: str, dtype: str, accumulation: str) -> None:
    """K is cut into rows of a tile; within one, the order named."""
    m, n, k = 3, 5, 75
    rng = np.random.default_rng(7)
    a, b = (rng.standard_normal(s).astype(fmt(dtype).dtype) for s in ((m, k), (k, n)))
    kernel = build(name, MatmulProblem(m, n, k, dtype, dtype, Epilogue("f32")), accumulation)
    assert kernel.accumulation == accumulation
    out = run_all(kernel, a, b, Parameters())
    wide_a, wide_b = (np.zeros(s) for s in ((m, 96), (96, n)))
    wide_a[:, :k], wide_b[:k] = a.astype(np.float64), b.astype(np.float64)
    for i in range(m):
        for j in range(n):
            total = 0.0
            for at in range(0, 96, 32):
                total = manual(total, wide_a[i, at : at + 32].tolist(), wide_b[at : at + 32, j].tolist(), accumulation)
            assert out[i, j] == np.float32(total)


@pytest.mark.parametrize(("channels", "along"), [(64, True), (128, True), (512, False)])
def test_panels_that_the_first_cache_keeps_meet_a_line_in_turn(channels: int, along: bool) -> None:
    """So that a line of outputs is written as a whole; of more weights each panel meets all lines."""
    problem = ConvProblem(1, 3, 90, 90, channels, 7, 7, "u8", "s8", Epilogue("s32"), padding=(3, 3, 3, 3))
    program = build(INT8.replace("gemm", "conv"), problem).program
    around = [loop.var for loop in loops(replace(program, body=program.body[-1:]))]
    assert (around.index("y") < around.index("j")) == along


@one_in(2, "name")
@pytest.mark.parametrize("rows", [70, 33])
@pytest.mark.parametrize("name", ["gemm:avx512_core_amx", "wdec:avx512_core_amx"])
def test_values_do_not_depend_on_the_panels_that_rows_meet_in_turn(
    monkeypatch: pytest.MonkeyPatch, name: str, rows: int
) -> None:
    """A buffer of decompressed weights has one panel, all, or some, the last of which have fewer; a narrower one."""
    n, k, rng = 13 * 32 + 5, 64, np.random.default_rng(2)
    compressed = name.startswith("wdec")
    a = rng.standard_normal((rows, k)).astype(fmt("bf16").dtype)
    b = data(rng, (k, n), "s4") if compressed else rng.standard_normal((k, n)).astype(fmt("bf16").dtype)
    d = Decompression(("bf16",), Param("wei", 32, 1, "f32")) if compressed else None
    problem = MatmulProblem(rows, n, k, "bf16", "s4" if compressed else "bf16", Epilogue("f32"), decompression=d)
    p = Parameters(wei_scale=rng.uniform(0.01, 0.1, (k // 32, n)).astype(np.float32)) if compressed else Parameters()
    monkeypatch.setattr(decompress, "_LEAST_TURNS", 1)
    outputs, extents = set(), set()
    for panels in (1, 3, 4, 100):  # of which one is run by all engines
        monkeypatch.setattr(amx, "_SECOND_LEVEL", panels * 32 * k * 2 * 4)
        monkeypatch.setattr(decompress, "_MOST_AT_ONCE", panels)
        kernel = build(name, problem)
        extents.add(tuple(loop.extent for loop in loops(kernel.program) if loop.var == "j"))
        if panels == 3:
            outputs.add(run_all(kernel, a, b, p, portable=False).tobytes())
        else:
            outputs.add(kernel.finish(numerics.run(kernel.program, kernel.prepare(a, b, p))).tobytes())
    assert len(outputs) == 1 and len(extents) > 2


def test_the_machine_says_the_order_and_the_result_tells_it() -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(s).astype(fmt("bf16").dtype) for s in ((8, 64), (64, 16)))
    first, second = (
        simdnn.matmul(a, b, machine=tiled(order), dst="f32", dispatch="onednn") for order in ("even_odd", "sequential")
    )
    assert (first.accumulation, second.accumulation) == ("even_odd", "sequential")
    assert first.implementation == "gemm:avx512_core_amx" and (first.output != second.output).any()
    assert simdnn.matmul(a, b, machine=tiled(), isa="avx512_core_bf16", dst="f32").accumulation == ""


@one_in(2)
@pytest.mark.parametrize("suffix", ["_down", "_fp16_down"])
def test_f32_data_rounded_on_the_way(suffix: str) -> None:
    """The same as products of data that was rounded before."""
    m, n, k = 20, 40, 50
    narrow = fmt("f16" if "fp16" in suffix else "bf16").dtype
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
    given = a.astype(narrow), b.astype(narrow)
    dtype = "f16" if "fp16" in suffix else "bf16"
    already = build(f"gemm:avx512_core_amx{suffix[:-5]}", MatmulProblem(m, n, k, dtype, dtype, Epilogue("f32")))
    expected = run_all(already, *given, Parameters())
    for tag in ("any", "ab"):
        kernel = build(f"gemm:avx512_core_amx{suffix}", MatmulProblem(m, n, k, "f32", "f32", Epilogue("f32"), tag))
        assert (run_all(kernel, a, b, Parameters()) == expected).all()


@one_in(3)
@pytest.mark.parametrize(
    "problem",
    [
        ConvProblem(2, 3, 9, 20, 5, 3, 3, "u8", "s8", Epilogue("s32"), (2, 2), (1, 1, 1, 1)),
        ConvProblem(1, 70, 4, 37, 40, 3, 1, "s8", "s8", Epilogue("s32", zp_src=True), (1, 1), (1, 2, 0, 1), (1, 2)),
        ConvProblem(1, 64, 5, 7, 16, 1, 1, "u8", "s8", Epilogue("s32")),
        ConvProblem(1, 6, 5, 35, 40, 2, 2, "s8", "s8", Epilogue("s32"), groups=2),
        ConvProblem(2, 3, 9, 32, 5, 3, 7, "u8", "s8", Epilogue("s32", zp_src=True), (2, 2), (1, 3, 1, 3)),
        ConvProblem(1, 6, 4, 16, 20, 3, 7, "s8", "s8", Epilogue("s32", zp_src=True), (1, 1), (2, 3, 0, 3), groups=2),
        ConvProblem(1, 17, 3, 9, 8, 2, 5, "u8", "s8", Epilogue("s32"), (1, 2), (0, 2, 1, 3), (2, 1)),
    ],
    ids=["stride", "padding", "flat", "groups", "window", "window by groups", "row"],
)
def test_convolutions_are_exact(problem: ConvProblem) -> None:
    """Of few channels, kernel columns or whole kernels are made channels of."""
    c, rng = problem, np.random.default_rng(9)
    src, wei = data(rng, (c.mb, c.ic, c.ih, c.iw), c.src), data(rng, (c.oc, c.ic // c.groups, c.kh, c.kw), "s8")
    p = Parameters(zp_src=7)
    out = run_all(build("conv:avx512_core_amx_int8", c), src, wei, p)
    assert (out == exact_sums(c, src, wei, 7 if c.epilogue.zp_src else 0)).all()


def few(ic: int, ih: int, iw: int, oc: int, kh: int, kw: int, **more: Any) -> ConvProblem:
    return ConvProblem(1, ic, ih, iw, oc, kh, kw, "bf16", "bf16", Epilogue("f32"), **more)


FEW = {  # what becomes channels
    "columns together": few(8, 4, 12, 5, 2, 4, strides=(1, 2), padding=(0, 0, 0, 0)),
    "narrow row": few(6, 3, 16, 10, 3, 5, strides=(2, 1), padding=(1, 1, 0, 1), groups=2),
    "wide row": few(11, 3, 9, 5, 2, 3, strides=(1, 1), padding=(1, 1, 0, 1), dilation=(2, 1)),
    "narrow window": few(6, 3, 16, 10, 3, 3, strides=(2, 1), padding=(1, 1, 0, 1), groups=2),
    "wide window": few(5, 3, 16, 5, 3, 3, strides=(1, 1), padding=(1, 1, 1, 1)),
}


def few_arrays(c: ConvProblem, rng: np.random.Generator) -> list[Array]:
    shapes = (1, c.ic, c.ih, c.iw), (c.oc, c.ic // c.groups, c.kh, c.kw)
    return [rng.standard_normal(shape).astype(fmt("bf16").dtype) for shape in shapes]


@pytest.mark.parametrize("name", FEW)
def test_the_order_of_few_channels(name: str) -> None:
    """Each run of taps that become channels is cut after every 32 elements by itself."""
    c = FEW[name]
    src, wei = few_arrays(c, np.random.default_rng(9))
    out = run_all(build("conv:avx512_core_amx", c), src, wei, Parameters(), portable=False)
    top, left, bottom, right = c.padding
    image = np.pad(src[0].astype(np.float64), ((0, 0), (top, bottom), (left, right)))
    ic, oc, kernel = c.ic // c.groups, c.oc // c.groups, wei.astype(np.float64)
    runs = {
        "together": [[(u, w), (u, w + 1)] for u in range(c.kh) for w in range(0, c.kw, 2)],
        "window": [[(u, w) for w in range(c.kw) for u in range(c.kh)]],
        "row": [[(u, w) for w in range(c.kw)] for u in range(c.kh)],
    }[name.split()[1]]
    for o, y, x in ((0, 0, 0), (c.oc - 1, c.oh - 1, c.ow - 1), (c.oc // 2, c.oh // 2, c.ow // 3)):
        first, total = o // oc * ic, 0.0
        for run in runs:
            at = [(y * c.strides[0] + u * c.dilation[0], x * c.strides[1] + w) for u, w in run]
            a = [image[first + i, v, h] for v, h in at for i in range(ic)]
            b = [kernel[o, i, u, w] for u, w in run for i in range(ic)]
            zeros = [0.0] * (-len(a) % 32)
            for start in range(0, len(a), 32):
                total = manual(total, [*a, *zeros][start : start + 32], [*b, *zeros][start : start + 32], "even_odd")
        assert out[0, o, y, x] == np.float32(total)


@one_in(2)
@pytest.mark.parametrize("name", ["narrow row", "narrow window"])
def test_what_lies_beside_few_channels_has_no_part_in_their_sums(name: str) -> None:
    """Zero times an infinity is no number, so that lines of a copy end in zeros."""
    c = FEW[name]
    src, wei = few_arrays(c, np.random.default_rng(9))
    src[..., 12] = np.inf
    with np.errstate(invalid="ignore"):
        out = run_all(build("conv:avx512_core_amx", c), src, wei, Parameters(), portable=False)
    first = 12 + c.padding[1] - c.kw + 1  # the first output whose window has the infinity
    assert np.isfinite(out[..., :first]).all() and not np.isfinite(out[..., first : first + c.kw]).any()


def test_channels_that_fill_tiles_are_read_in_place() -> None:
    plain = ConvProblem(1, 64, 6, 20, 32, 3, 3, "u8", "s8", Epilogue("s32"))
    edges, tail = replace(plain, padding=(1, 1, 1, 1)), replace(plain, ic=63)
    copies = ["padded" in build("conv:avx512_core_amx_int8", c).program.tensor for c in (plain, edges, tail)]
    assert copies == [False, True, True]


@one_in(2)
@pytest.mark.parametrize("wei", ["s8", "u4"])
@pytest.mark.parametrize("shape", [(1, 20, 6), (40, 70, 96)], ids=str)
def test_compressed_weights(shape: tuple[int, int, int], wei: str) -> None:
    m, n, k = shape
    rng = np.random.default_rng(11)
    form = fmt(wei)
    q = rng.integers(form.low, form.high, (k, n), endpoint=True).astype(form.dtype)
    scale = 2.0 ** rng.integers(-4, 0, (k // 6, n)).astype(np.float32)
    a = rng.integers(-8, 9, (m, k)).astype(fmt("bf16").dtype)
    d = Decompression(("bf16",), Param("wei", 6, 1, "f32"))
    kernel = build("wdec:avx512_core_amx", MatmulProblem(m, n, k, "bf16", wei, Epilogue("f32"), decompression=d))
    out = run_all(kernel, a, q, Parameters(wei_scale=scale))
    real = q.astype(np.float64) * np.repeat(scale, 6, axis=0)
    assert (out == a.astype(np.float64) @ real).all()  # few digits: exact in every order


def test_threads_keep_their_own_buffers() -> None:
    m, n, k = 130, 100, 70
    rng = np.random.default_rng(13)
    a, b = data(rng, (m, k), "s8"), data(rng, (k, n), "s8")
    kernel = build(INT8, MatmulProblem(m, n, k, "s8", "s8", Epilogue("f32", bias=True)))
    inputs = kernel.prepare(a, b, Parameters(bias=np.ones(n, np.float32)))
    one, four = (numerics.run(kernel.program, inputs, threads=threads)["dst"] for threads in (1, 4))
    assert (one == four).all()
    assert (one.reshape(m, n) == (a.astype(np.int64) @ b.astype(np.int64)).astype(np.float32) + 1).all()


def test_a_tile_instruction_is_compiled_once() -> None:
    """Programs share its machine code, which is most of theirs where the CPU has no tiles."""
    compiled = []
    for n in (40, 41):
        kernel = build(INT8, MatmulProblem(20, n, 64, "u8", "s8", Epilogue("s32")))
        compile_program(kernel.program, native=False)
        compiled.append(len(machine_code._SHARED))
    assert compiled[0] == compiled[1] > 0


def test_tile_instructions_that_do_otherwise_have_other_code() -> None:
    """By the order of sums, the number of rows, and whether shortcuts are taken."""
    orders, both = instruction("tdpbf16ps").choices, (True, False)
    ((name, values),) = orders.items()
    rows = 1, 2, 3, 4
    ways = [(((name, value),), some, optimistic) for value in values for some in rows for optimistic in both]
    functions = [dot_function("tdpbf16ps", *way)[0] for way in ways]
    assert len({f.name for f in functions}) == len({f.lines for f in functions}) == len(ways) == 16


def test_tiles_have_their_rows() -> None:
    """One configuration for all of a program; of 33 rows, two blocks of 17 that share one."""
    program = build(INT8, MatmulProblem(33, 40, 64, "u8", "s8", Epilogue("s32"))).program
    assert [op.instruction for op, _ in program.ops()].count("ldtilecfg") == 1
    rows = {op.rows for op, _ in program.ops() if op.instruction == "tdpbusd"}
    assert rows == {16, 1}
    loads = [op.memory for op, _ in program.ops() if op.instruction.startswith("tileload")]
    assert {m.rows for m in loads if isinstance(m, Memory)} == {16, 1}


@one_in(3)
@pytest.mark.parametrize(
    ("batch", "lines", "width", "stride"),
    [
        *[(1, 7, 7, 1), (1, 2, 16, 1), (2, 3, 5, 2), (1, 1, 7, 1), (2, 4, 17, 1), (1, 3, 28, 1), (1, 2, 32, 1)],
        *[(1, 2, 37, 1), (2, 1, 48, 2)],
    ],
)
def test_two_lines_of_a_tile_or_two_read_weights_once(batch: int, lines: int, width: int, stride: int) -> None:
    """Those of half a tile by four, and one of three; what is left is alone. The sums are exact, whatever is behind."""
    h, w = ((size - 1) * stride + 1 for size in (lines, width))
    e = Epilogue("f32", zp_src=True, src_scale=True, bias=True, post_ops=(RELU,))
    problem = ConvProblem(batch, 70, h, w, 40, 3, 3, "u8", "s8", e, (stride, stride), (1, 1, 1, 1))
    kernel = build(INT8.replace("gemm", "conv"), problem)
    products, loads = (
        sum(times for op, times in kernel.program.ops() if op.instruction == name and _of_weights(op, name))
        for name in ("tdpbusd", "tileloadd")
    )
    tiles, steps = 3, 2 * 9  # of columns, and of 64 bytes of channels
    assert products == batch * lines * -(-width // 16) * tiles * steps
    together = 4 if width <= 8 else 2 if width <= 32 else 1
    assert loads == batch * -(-lines // together) * tiles * steps
    rng = np.random.default_rng(lines)
    src, weights = data(rng, (batch, 70, h, w), "u8"), data(rng, (40, 70, 3, 3), "s8")
    given = Parameters(zp_src=3, src_scale=0.5, bias=np.arange(-20, 20, dtype=np.float32) * 1000)
    found = run_all(kernel, src, weights, given, portable=False)
    padded = np.pad(src.astype(np.int64) - 3, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::stride, ::stride]
    sums = np.einsum("nchwij,ocij->nohw", windows, weights.astype(np.int64))
    exact = sums * 0.5 + given.bias[:, None, None]  # type: ignore[index]
    np.testing.assert_array_equal(found, np.maximum(exact, 0).astype(np.float32))


def _of_weights(op: Op, name: str) -> bool:
    return name == "tdpbusd" or isinstance(op.memory, Memory) and op.memory.tensor.startswith("wei")


def test_a_library_has_two_lines_of_a_tile_at_a_time_too() -> None:
    """Its sums all go through a buffer. Tiles are whole, with what lies between lines; a longer one is a block."""
    image: dict[str, Any] = {"mb": 1, "ic": 64, "ih": 14, "oc": 64, "kh": 3, "kw": 3, "strides": 2, "padding": 1}
    how: dict[str, Any] = {"dt": "u8:s8:s32", "machine": "gnr", "dispatch": "onednn"}
    for wide, loads in ((14, 4 * 4 * 9), (38, 7 * 4 * 9)):
        kernel = simdnn.estimate("convolution", **image, iw=wide, **how).kernel
        assert kernel and kernel.timed
        stored = [op.memory for op, _ in kernel.timed.ops() if op.instruction == "tilestored" and op.memory]
        assert {memory.rows for memory in stored} == {16} and {memory.tensor for memory in stored} == {"sums"}
        ops = [(op, times) for op, times in kernel.timed.ops() if op.instruction.startswith("tileload")]
        assert sum(times for op, times in ops if _of_weights(op, "")) == loads


def test_a_library_copies_the_pixels_that_one_tap_steps_to() -> None:
    """Two registers of each, once; tiles have rows of them as if they were an image."""
    image: dict[str, Any] = {"mb": 1, "ic": 128, "ih": 15, "iw": 15, "oc": 64, "kh": 1, "kw": 1, "strides": 2}
    kernel = simdnn.estimate("convolution", **image, dt="u8:s8:s32", machine="gnr", dispatch="onednn").kernel
    assert kernel and kernel.timed
    ops = [(op, op.memory, times) for op, times in kernel.timed.ops() if op.memory]
    assert sum(times for op, memory, times in ops if op.dst is memory and memory.tensor == "lines") == 8 * 8 * 2
    tiles = [memory for op, memory, _ in ops if op.instruction.startswith("tileload") and not _of_weights(op, "")]
    assert {(memory.tensor, memory.rows) for memory in tiles} == {("lines", 16)}
    for channels in (100, 32):  # a rest of them, and a part of a row: line by line
        line_by_line = simdnn.estimate(
            "convolution", **image | {"ic": channels}, dt="u8:s8:s32", machine="gnr", dispatch="onednn"
        ).kernel
        assert line_by_line and line_by_line.timed


@pytest.mark.parametrize(
    ("m", "n", "k", "apart"),
    [(64, 64, 320, set()), (64, 64, 896, {"wei"}), (33, 80, 896, {"wei", "wei_tail"})],
)
def test_weights_pass_the_first_cache_by_where_it_does_not_hold_them(m: int, n: int, k: int, apart: set[str]) -> None:
    program = build(INT8, MatmulProblem(m, n, k, "u8", "s8", Epilogue("s32"))).program
    assert {op.memory.tensor for op, _ in program.ops() if op.instruction == "tileloaddt1" and op.memory} == apart


@pytest.mark.parametrize("dst", ["s32", "bf16"])
@pytest.mark.parametrize(("m", "n", "k"), [(40, 40, 64), (64, 32, 64 * 64), (50, 70, 512)])
def test_each_line_of_a_block_is_asked_for_once_before_it_is_stored(m: int, n: int, k: int, dst: str) -> None:
    program = build(INT8, MatmulProblem(m, n, k, "u8", "s8", Epilogue(dst))).program
    widths = [32] * (n // 32) + [n % 32] * (n % 32 > 0)  # of panels
    asked = sum(times for op, times in program.ops() if op.instruction == "prefetchw")
    assert asked == m * sum(-(-width * fmt(dst).bits // 512) for width in widths)


def test_the_library_takes_tiles_where_it_has_them() -> None:
    e = Epilogue("f32")
    bf16, f32, u8 = (MatmulProblem(40, 8, 17, s, w, e) for s, w in (("bf16", "bf16"), ("f32", "f32"), ("u8", "s8")))
    named = "avx10_1_512_amx"
    amx, fp16 = "avx512_core_amx", "avx512_core_amx_fp16"
    for isa in (amx, fp16):
        assert libraries.choose("onednn", bf16, isa) == ("gemm:avx512_core_amx", f"brg_matmul:{named}")
        of_bytes = f"brg_matmul:{named}{'_fp16' * (isa == fp16)}"
        assert libraries.choose("onednn", u8, isa) == ("gemm:avx512_core_amx_int8", of_bytes)
        assert libraries.choose("onednn", f32, isa, "bf16") == ("gemm:avx512_core_amx_down", f"brg_matmul:{named}")
        names = {libraries.choose("onednn", f32, isa, mode).name for mode in ("strict", "tf32")}
        assert names == {"brg_matmul:avx512_core"}
    assert libraries.choose("onednn", f32, "avx512_core_bf16", "bf16")[1] == "brg_matmul:avx512_core"
    half = MatmulProblem(40, 8, 17, "f16", "f16", e)
    assert libraries.choose("onednn", half, fp16) == ("gemm:avx512_core_amx_fp16", f"brg_matmul:{named}_fp16")
    scaled = replace(u8, group_scales=GroupScales(wei=along_k("wei", 8)))
    assert libraries.choose("onednn", scaled, amx) == ("gemm:avx512_core_vnni", f"brg_matmul:{named}")
    conv = ConvProblem(1, 32, 6, 6, 32, 3, 3, "u8", "s8", e)
    assert libraries.choose("onednn", conv, amx) == ("conv:avx512_core_amx_int8", f"brg_conv_fwd:{named}")
    assert libraries.choose("onednn", replace(conv, kh=1, kw=1), amx)[1] == f"brgconv_1x1:{named}"
    assert libraries.choose("onednn", replace(conv, groups=32), amx)[0].startswith("dw:")


@pytest.mark.parametrize(
    ("name", "src", "wei", "peak"), [("gemm:avx512_core_amx", "bf16", "bf16", 512), (INT8, "u8", "s8", 1024)]
)
def test_a_large_product_keeps_the_unit_busy(name: str, src: str, wei: str, peak: int) -> None:
    """Multiply-adds a cycle, all data in the first cache: the tile unit's, less what the epilogue takes."""
    dst = "f32" if src == "bf16" else "s32"
    problem = MatmulProblem(256, 256, 2048, src, wei, Epilogue(dst))
    cost = estimate_program(build(name, problem).program, tiled())
    assert 0.95 * peak < problem.macs / cost.core_cycles <= peak
    few = replace(problem, m=4)
    assert few.macs / estimate_program(build(name, few).program, tiled()).core_cycles <= peak / 4
