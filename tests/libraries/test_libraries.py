"""Whose bits: libraries by name, what they are asked, and that dispatch by cost asks none."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import simdnn
from simdnn import Attr, InvalidArgument, Quant, Unimplemented, libraries
from simdnn.cli import main
from simdnn.kernels import Epilogue, MatmulProblem
from simdnn.kernels.common.sums import RegisterTile
from simdnn.kernels.x86.dots import FMA, MADDUBS, VNNI, Dot
from simdnn.libraries import LIBRARIES, UNKNOWN, Library, Pick, refuses
from simdnn.libraries.onednn.blocking import register_tile, tile_in_columns
from simdnn.libraries.onednn.calls import around
from simdnn.primitives import dispatch
from tests.effort import one_in

ROOT = Path(__file__).parents[2]
SIZES: dict[str, Any] = {"m": 8, "n": 32, "k": 64}
PROBLEM = MatmulProblem(8, 32, 64, "u8", "s8", Epilogue())


def refusing(*_: Any) -> Any:
    raise AssertionError("a library was asked")


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every library fails when it is asked anything."""
    for name, library in LIBRARIES.items():
        functions = {field.name: refusing for field in fields(Library) if callable(getattr(library, field.name))}
        monkeypatch.setitem(LIBRARIES, name, replace(library, **functions))


@pytest.mark.usefixtures("nobody")
@pytest.mark.parametrize("dt", ["f32", "bf16", "u8:s8:s32", "s8:u4:f32", "f32:s8:f32"])
def test_dispatch_by_cost_asks_no_library(dt: str) -> None:
    attr = simdnn.Attr(apply_to_int=dt == "f32:s8:f32", scales={"wei": simdnn.Quant(None, groups=(32, 1), dtype="f32")})
    attr = attr if dt.endswith(":f32") else simdnn.Attr()
    dispatch.choose.cache_clear()
    assert simdnn.estimate("matmul", **SIZES, dt=dt, attr=attr, machine="zen4").cycles > 0
    with pytest.raises(AssertionError, match="was asked"):
        simdnn.estimate("matmul", **SIZES, dt=dt, attr=attr, machine="zen4", dispatch="onednn")


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_library_without_a_model_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"(?s){UNKNOWN[name]}.*not known here.*onednn.*fastest"):
        simdnn.estimate("matmul", **SIZES, machine="zen4", dispatch=name)
    with pytest.raises(InvalidArgument, match="what is modelled: onednn"):
        libraries.choose(name, PROBLEM, "avx2")


def test_a_misspelt_library_is_asked_after() -> None:
    with pytest.raises(InvalidArgument, match="onednn"):
        libraries.choose("onedn", PROBLEM, "avx2")


def library(name: str, check: Callable[..., None] = lambda *_: None) -> Library:
    """One that takes the row `name` for everything, and calls it "it"."""
    pick = Pick(name, "it")
    return replace(LIBRARIES["onednn"], title="Mine", choose=lambda *_: pick, check=check)


def test_a_library_that_is_added_is_dispatched_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LIBRARIES, "mine", library("gemm:avx2_int8_exact"))
    r = simdnn.estimate("matmul", **SIZES, dt="u8:s8:s32", machine="hsw", dispatch="mine")
    assert r.implementation == "gemm:avx2_int8_exact"
    rows = r.dispatch.set_index("implementation")["reason"]
    assert rows["gemm:avx2_int8_exact"] == "Mine's choice: it" and rows["gemm:avx2_int8"] == "not Mine's choice"


def test_the_table_is_the_one_place_that_makes_a_rule(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line of it is listed, may be named on every command line, and refuses what it has none of by its own name."""
    mine = replace(library("gemm:avx2"), decompressed=refuses("Mine", "compressed weights", "weights of s8"))
    monkeypatch.setitem(LIBRARIES, "mine", replace(mine, version="7", answers="a little"))
    assert main(["list", "libraries", "--json"]) == 0
    assert {"library": "mine", "title": "Mine", "version": "7", "answers": "a little"} in json.loads(
        capsys.readouterr().out
    )
    for command in (["run", "digits", "--no-values"], ["lint", "digits", "--isa", "avx2"], ["bench", "--matmul"]):
        rule = ["--dispatch=mine"] if command[0] == "bench" else ["--dispatch", "mine"]
        problem = ["8x16:16x32"] if command[0] == "bench" else []
        main([*command[:1], *rule, *command[1:], *problem])
        assert "invalid choice" not in capsys.readouterr().err
    with pytest.raises(Unimplemented, match="Mine has no compressed weights; what works: weights of s8"):
        attr = simdnn.Attr(apply_to_int=True)
        simdnn.estimate("matmul", **SIZES, dt="f32:s8:f32", attr=attr, machine="hsw", dispatch="mine")


def test_what_a_library_refuses_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(problem: object) -> None:
        raise Unimplemented("Mine refuses all")

    monkeypatch.setitem(LIBRARIES, "careful", library("gemm:avx2", check))
    with pytest.raises(Unimplemented, match="Mine refuses all"):
        simdnn.estimate("matmul", **SIZES, machine="hsw", dispatch="careful")


def test_one_call_stands_in_front() -> None:
    """Only rows of kernels, which take their order of sums as data, reach into a library's package."""
    reach = set()
    for path in (ROOT / "simdnn").rglob("*.py"):
        if "simdnn.libraries." not in (text := path.read_text(encoding="utf-8")):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("simdnn.libraries."):
                reach.add(path.relative_to(ROOT / "simdnn").as_posix())
    assert {path for path in reach if not path.startswith("libraries/")} == {
        "kernels/x86/rows.py",
        "kernels/x86/rows_compressed.py",
    }


@one_in(3)
@pytest.mark.parametrize("first", ["simdnn.libraries", "simdnn.kernels", "simdnn.libraries.onednn.sums"])
def test_whichever_is_imported_first(first: str) -> None:
    """The package of kernels offers its table, whose rows read libraries, which read the words of kernels."""
    code = f"import {first}; from simdnn.kernels import KERNELS; from simdnn.libraries import LIBRARIES"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("isa", ["avx512_core", "avx512_core_bf16", "avx512_core_amx"])
def test_bf16_to_bytes_is_the_references(isa: str) -> None:
    """Products and sums in f32, rounded apart, k ascending, as recorded runs have them."""
    rng = np.random.default_rng(8)
    src, weights = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((5, 70), (70, 19)))
    scale, column = np.float32(0.37), rng.uniform(0.5, 2, 19).astype(np.float32)
    attr = simdnn.Attr(scales={"src": 1.5, "wei": column, "dst": scale})
    r = simdnn.matmul(src, weights, machine="spr", isa=isa, dst="s8", dispatch="onednn", attr=attr)
    total = np.zeros((5, 19), np.float32)
    for k in range(70):
        product = src[:, k : k + 1].astype(np.float32) * weights[k].astype(np.float32)
        total += product * np.float32(1.5) * column
    assert r.implementation == "gemm:avx512_core_bf16_ref" and r.compute_dtype == "f32"
    assert (r.output == np.clip(np.rint(total / scale), -128, 127).astype(np.int8)).all()


def _quantized(scale: simdnn.Quant | None = None, point: simdnn.Quant | None = None) -> simdnn.Attr:
    return simdnn.Attr(scales={"wei": scale} if scale else {}, zero_points={"wei": point} if point else {})


@pytest.mark.parametrize(
    ("weights", "k", "attr", "dst", "isa", "why"),
    [
        ("s8", 32, _quantized(simdnn.Quant(None, groups=(1, 1), dtype="bf16")), "f32", "avx2", "groups of 1"),
        ("s8", 17, _quantized(point=simdnn.Quant(None, groups=(17, 1), dtype="s4")), "s32", "avx2", "odd K=17"),
        ("s8", 64, _quantized(point=simdnn.Quant(None, groups=(32, 1), dtype="s8")), "f32", "avx512_core", "saturate"),
    ],
)
def test_groups_that_the_library_has_wrong_or_otherwise(
    weights: str, k: int, attr: simdnn.Attr, dst: str, isa: str, why: str
) -> None:
    """oneDNN's reference reads one of the scales in groups of 1; 4-bit groups need an even K; its GEMM saturates."""
    sizes: dict[str, Any] = {"m": 4, "n": 16, "k": k, "dt": f"u8:{weights}:{dst}", "machine": "spr", "isa": isa}
    with pytest.raises(Unimplemented, match=why):
        simdnn.estimate("matmul", **sizes, attr=attr, dispatch="onednn", wei_tag="ab")
    assert simdnn.estimate("matmul", **sizes, attr=attr).cycles > 0


def test_operands_by_column_in_three_dimensions() -> None:
    """oneDNN leaves them to its older GEMM there, but not where the output is a single row."""
    src, weights = np.ones((2, 3, 8), np.float32), np.ones((2, 8, 16), np.float32)
    attr = simdnn.Attr(post_ops=[("mul", np.full((1, 1, 16), 2, np.float32))])
    named = {"machine": "spr", "attr": attr, "dispatch": "onednn"}
    assert simdnn.matmul(src, weights, isa="avx2", **named).implementation == "gemm:avx2_older"
    for several in ((src, weights), (src[:1, :1], weights[:1]), (src[None], weights[None]), (src[0], weights[0])):
        found = simdnn.matmul(*several, **named)
        assert (found.output == 16).all()
        assert (found.library == "gemm:jit:f32") == (several[0] is src)


@pytest.mark.parametrize(
    ("sizes", "implementation"),
    [
        ({"dt": "f32", "runtime_dims": "m"}, "gemm:jit:f32"),
        ({"dt": "f32", "runtime_dims": "mn"}, "gemm:jit:f32"),
        ({"dt": "bf16:bf16:f32", "runtime_dims": "k"}, "gemm:jit:bf16"),
        ({"dt": "u8:s8:f32", "runtime_dims": "n"}, "gemm:jit"),
        ({"dt": "u8:s8:bf16", "runtime_dims": "n"}, "ref_int8:any"),
        ({"dt": "f32:bf16:f32", "runtime_dims": "m"}, "ref:any"),
        (
            {"dt": "f32", "runtime_dims": "m", "attr": simdnn.Attr(post_ops=[("add", np.ones((16,), np.float32))])},
            "ref:any",
        ),
        ({"dt": "f32"}, "brg_matmul:avx512_core"),
    ],
)
def test_sizes_of_run_time_are_left_to_the_older_gemm(sizes: dict[str, Any], implementation: str) -> None:
    asked = {"m": 24, "n": 16, "k": 40, "machine": "zen4", "dispatch": "onednn"} | sizes
    assert simdnn.estimate("matmul", **asked).library == implementation


def test_groups_along_a_size_of_run_time_are_powers_of_two() -> None:
    attr = simdnn.Attr(fpmath="strict", apply_to_int=True, scales={"wei": simdnn.Quant(None, groups=(48, 1))})
    asked = {"m": 4, "n": 16, "k": 96, "dt": "f32:s8:f32", "machine": "zen4", "dispatch": "onednn", "attr": attr}
    assert simdnn.estimate("matmul", **asked).library == "brg_matmul:avx512_core"
    with pytest.raises(Unimplemented, match="powers of two"):
        simdnn.estimate("matmul", runtime_dims="k", **asked)
    with pytest.raises(InvalidArgument, match="all sizes"):
        simdnn.estimate("matmul", runtime_dims="k", **asked | {"dispatch": "fastest"})


@one_in(2, "known")
@pytest.mark.parametrize(
    ("sizes", "known"),
    [
        ({"ic": 512, "ih": 7, "iw": 7, "oc": 512, "kh": 3, "kw": 3, "padding": 1}, True),
        ({"ic": 256, "ih": 56, "iw": 56, "oc": 256, "kh": 3, "kw": 3, "padding": 1}, True),
        ({"ic": 1024, "ih": 7, "iw": 7, "oc": 64, "kh": 1, "kw": 1}, True),
        ({"ic": 640, "ih": 8, "iw": 8, "oc": 64, "kh": 3, "kw": 3, "padding": 1, "strides": 2}, False),  # seen: 320
        ({"ic": 160, "ih": 14, "iw": 14, "oc": 64, "kh": 7, "kw": 7, "padding": 3}, False),  # seen: 48
        ({"ic": 768, "ih": 17, "iw": 17, "oc": 8, "kh": 3, "kw": 3, "padding": 1}, False),  # seen: 624
    ],
)
def test_sums_that_caches_cut(sizes: dict[str, Any], known: bool) -> None:
    """Blocks of channels that oneDNN was seen to add up by themselves where weights leave the second cache."""
    asked = partial(simdnn.estimate, "convolution", dt="f32", machine="zen4", **sizes)
    assert asked().cycles > 0
    assert asked(dispatch="onednn").cycles > 0  # which hardly hangs on the order
    src = np.zeros((1, sizes["ic"], sizes["ih"], sizes["iw"]), np.float32)
    weights = np.zeros((sizes["oc"], sizes["ic"], sizes["kh"], sizes["kw"]), np.float32)
    steps = {name: sizes[name] for name in ("padding", "strides") if name in sizes}
    values = partial(simdnn.convolution, src, weights, machine="zen4", dispatch="onednn", **steps)
    if known:
        assert not values().output.any()
        return
    with pytest.raises(Unimplemented, match="may cut sums"):
        values()


@pytest.mark.parametrize(
    ("m", "n", "expected"),
    [
        (1, 64, RegisterTile(1, 4, True, 1)),
        (4, 100, RegisterTile(2, 4, True, 4)),  # two of four rows, though there is room for three
        (16, 768, RegisterTile(3, 4, True, 16)),
        (6, 24, RegisterTile(3, 3, False, 6, fetches=True)),
        (5, 4, RegisterTile(5, 1, False, 5, fetches=True)),
    ],
)
def test_tiles_of_sixteen_registers_are_the_librarys(m: int, n: int, expected: RegisterTile) -> None:
    assert register_tile(MatmulProblem(m, n, 64, "f32", "f32", Epilogue("f32")), FMA, wide=False) == expected


@pytest.mark.parametrize(
    ("m", "n", "src", "dot", "expected"),
    [
        (16, 768, "f32", FMA, (6, 4)),
        (13, 64, "f32", FMA, (5, 4)),  # 5, 5 and 3 rows waste less than 6, 6 and 1
        (512, 40, "f32", FMA, (14, 2)),  # of a block of 512 rows
        (16, 768, "s8", VNNI, (6, 4)),
        (16, 768, "s8", MADDUBS, (6, 4)),
    ],
)
def test_tiles_of_thirty_two_registers_are_the_librarys(
    m: int, n: int, src: str, dot: Dot, expected: tuple[int, int]
) -> None:
    """Read in the code that it makes for 16 x 768 x 768, and in its source."""
    wei = "f32" if src == "f32" else "s8"
    tile = register_tile(MatmulProblem(m, n, 64, src, wei, Epilogue(dot.acc)), dot, wide=True)
    assert (tile.rows, tile.vectors) == expected and tile.fetches and tile.block == m


@pytest.mark.parametrize(
    ("sizes", "sums", "together", "last"),
    [((100, 77, 300), (6, 4), 0, (25, 1)), ((345, 42, 1787), (13, 2), 3, None), ((803, 2560, 256), (6, 4), 0, None)],
)
def test_a_block_of_columns_has_the_tiles_of_the_librarys_code(
    sizes: tuple[int, int, int], sums: tuple[int, int], together: int, last: tuple[int, int] | None
) -> None:
    """Its code keeps 24 sums and, for 13 columns, 25; 26 with a rest of ten columns; one kernel for all rows of 803."""
    m, n, k = sizes
    tile = tile_in_columns(MatmulProblem(m, n, k, "f32", "f32", Epilogue("f32")), FMA, wide=True)
    assert (tile.rows, tile.vectors, tile.together) == (*sums, together) and m % tile.block == 0
    assert (tile.last and (tile.last.rows, tile.last.vectors)) == last


@pytest.mark.parametrize("isa", ["avx2", "avx512_core"])
@pytest.mark.parametrize("dt", ["f32", "u8:s8:s32", "s8:s8:s32"])
@pytest.mark.parametrize("sizes", [(33, 65, 129), (100, 77, 300), (9, 42, 70), (7, 20, 1100), (300, 100, 40)])
def test_what_is_timed_of_any_columns_multiplies(dt: str, isa: str, sizes: tuple[int, int, int]) -> None:
    """All products, and no more than whole vectors of columns hold: registers suffice in tiles of any width."""
    m, n, k = sizes
    isa = isa if dt == "f32" else {"avx2": "avx2_vnni", "avx512_core": "avx512_core_vnni"}[isa]
    found = simdnn.estimate("matmul", m=m, n=n, k=k, dt=dt, isa=isa, machine="gnr", dispatch="onednn").kernel
    program, lanes = found.timed or found.program, 8 if "avx2" in isa else 16
    products = [(op, times) for op, times in program.ops() if op.definition.accumulates]
    assert sum(times for _, times in products) == m * -(-n // lanes) * -(-k // (1 if dt == "f32" else 4))


@pytest.mark.parametrize(
    ("primitive", "sizes", "dt", "isa", "post_ops"),
    [
        (
            "matmul",
            {"m": 438, "n": 52, "k": 402},
            "bf16",
            "avx512_core_amx",
            [],
        ),  # two low tiles by one, of wider panels
        ("matmul", {"m": 307, "n": 39, "k": 9}, "s8:s8:f32", "avx2", ["gelu_tanh"]),  # packs its panels between sums
        ("convolution", {"ic": 44, "oc": 97, "ih": 35, "iw": 35, "strides": 2}, "u8:s8:s32", "avx2_vnni", []),
        ("convolution", {"ic": 63, "oc": 52, "ih": 37, "iw": 37, "strides": 2}, "f32", "avx2", []),
    ],
)
def test_tiles_of_the_last_columns_have_room_in_registers(
    primitive: str, sizes: dict[str, int], dt: str, isa: str, post_ops: list[str]
) -> None:
    """A panel's own tile says how it loads, and which registers formulas and packing take."""
    taps = {"kh": 1, "kw": 1} if primitive == "convolution" else {}
    where = {"machine": "gnr", "isa": isa, "dispatch": "onednn"}
    assert simdnn.estimate(primitive, **sizes, **taps, dt=dt, attr=Attr(post_ops=post_ops), **where).cycles > 0


def test_tiles_of_all_heights_take_a_part_of_the_sums_before_the_next() -> None:
    """16.8 MB of weights come once for 20 rows, in tiles of six and of two."""
    found = simdnn.estimate("matmul", m=20, n=1024, k=4096, dt="f32", machine="gnr", dispatch="onednn")
    assert found.cost.levels[2].read_bytes < 1.2 * 4 * 1024 * 4096


def test_a_tile_of_pixels_meets_all_columns_of_a_block() -> None:
    """Weights of 2.5 MB a block of 48 columns, more than the second cache has, come anew for each line of outputs."""
    image: dict[str, Any] = {"ic": 512, "ih": 10, "iw": 10, "oc": 96, "kh": 5, "kw": 5, "padding": 2}
    found = simdnn.estimate("convolution", **image, dt="f32", isa="avx512_core", machine="gnr", dispatch="onednn")
    assert found.cost.levels[2].read_bytes > 4 * 4 * 512 * 96 * 25


def test_decompressed_weights_come_anew_for_each_block_of_rows() -> None:
    """Twice for 512 rows, which are two blocks."""
    attr = Attr(fpmath="strict", apply_to_int=True, scales={"wei": Quant(None, groups=(128, 1), dtype="f32")})
    how: dict[str, Any] = {"dt": "f32:s8:f32", "isa": "avx512_core", "machine": "gnr", "dispatch": "onednn"}
    few, many = (simdnn.estimate("matmul", m=m, n=128, k=128, attr=attr, **how).kernel.timed for m in (256, 512))
    assert few and many
    made = [sum(times for op, times in p.ops() if op.memory and op.memory.tensor == "stored") for p in (few, many)]
    assert made[1] == 2 * made[0]


def test_a_panel_of_weights_meets_all_rows_of_a_block_before_the_next() -> None:
    """Weights of 2.4 MB, which the second cache does not hold, are fetched once for 16 rows, not once for each tile."""
    found = simdnn.estimate("matmul", m=16, n=768, k=768, dt="f32", machine="spr", dispatch="onednn")
    assert found.kernel.program.executed > 0 and found.cost.levels[2].read_bytes < 1.2 * 4 * 768 * 768


@one_in(3)
@pytest.mark.parametrize(("m", "n", "k"), [(300, 70, 600), (17, 64, 40)])
@pytest.mark.parametrize(
    ("isa", "src", "dst"),
    [("avx512_core", "f32", "f32"), ("avx512_core", "s8", "f32"), ("avx512_core_vnni", "u8", "s32")],
)
def test_blocks_and_cuts_of_the_library_move_no_bit(m: int, n: int, k: int, isa: str, src: str, dst: str) -> None:
    """Blocks of 256 rows, parts of K of integers: the same sums as one tile after the other."""
    rng = np.random.default_rng(n)
    a, b = rng.integers(0, 100, (m, k)).astype(np.int8), rng.integers(-100, 100, (k, n)).astype(np.int8)
    given = (
        (a.astype(np.float32) / 7, b.astype(np.float32) / 9)
        if src == "f32"
        else (a.astype(np.uint8 if src == "u8" else np.int8), b)
    )
    run = partial(simdnn.matmul, *given, machine="spr", isa=isa, dst=dst)
    theirs = run(dispatch="onednn")
    assert (theirs.output == run(dispatch=theirs.implementation).output).all()


@pytest.mark.parametrize("n", [1, 40, 100])
@pytest.mark.parametrize(("m", "k"), [(1, 900), (9, 64), (3, 511)])
def test_the_older_gemm_packs_its_weights_in_every_run(m: int, n: int, k: int) -> None:
    """The time of a run grows by the weights' packing, and its bits are those of packed ones."""
    rng = np.random.default_rng(m)
    a, b = rng.integers(0, 256, (m, k)).astype(np.uint8), rng.integers(-128, 128, (k, n)).astype(np.int8)
    theirs, ours = (
        simdnn.matmul(a, b, machine="hsw", isa="avx2", dispatch=dispatch) for dispatch in ("onednn", "gemm:avx2_int8")
    )
    assert theirs.cycles > ours.cycles and (theirs.output == ours.output).all()
    names = [set(one.instructions["instruction"]) for one in (theirs, ours)]
    assert "vpunpcklbw" in names[0] - names[1]


def test_an_execution_of_the_library_costs_more_than_its_kernels() -> None:
    one = simdnn.estimate("matmul", m=2, n=2, k=2, dt="f32", machine="spr", dispatch="onednn")
    alone = simdnn.estimate("matmul", m=2, n=2, k=2, dt="f32", machine="spr", dispatch=one.implementation)
    assert one.cycles - alone.cycles > 1000
    causes = one.cost.causes.set_index("cause")["cycles"]
    assert (
        causes["launch"] == around(one.problem, one.implementation, one.machine) and abs(causes.sum() - one.cycles) < 1
    )


@pytest.mark.parametrize(("m", "n", "k"), [(4, 64, 64), (7, 100, 33), (3, 40, 1100), (2, 20, 5)])
def test_the_librarys_tiles_have_the_bits_of_others(m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(m)
    a, b, bias = (rng.standard_normal(shape, np.float32) for shape in ((m, k), (k, n), (n,)))
    attr = simdnn.Attr(post_ops=["relu"])
    theirs, ours = (
        simdnn.matmul(a, b, bias, machine="hsw", isa="avx2", attr=attr, dispatch=dispatch)
        for dispatch in ("onednn", "gemm:avx2")
    )
    assert theirs.implementation == ours.implementation == "gemm:avx2"
    assert (theirs.output == ours.output).all() and theirs.kernel.program != ours.kernel.program


def test_matrices_of_nibbles_begin_at_a_byte() -> None:
    """oneDNN has no batch of 4-bit matrices with half a byte more; one matrix for all products it takes."""
    odd = partial(simdnn.estimate, "matmul", m=3, k=31, n=1, dt="u8:u4:s32", machine="spr", src_batch=4)
    with pytest.raises(Unimplemented, match="odd number of elements"):
        odd(wei_batch=4, dispatch="onednn")
    assert odd(wei_batch=1, dispatch="onednn").cycles > 0 and odd(wei_batch=4).cycles > 0


def test_a_cap_of_the_librarys_own_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = np.full((2, 8), 255, np.uint8), np.full((8, 3), 127, np.int8)
    where: dict[str, Any] = {"machine": "spr", "dispatch": "onednn"}
    free, fastest = simdnn.matmul(a, b, **where), simdnn.matmul(a, b, machine="spr")
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    capped = simdnn.matmul(a, b, **where)
    assert (free.library, capped.library) == ("brg_matmul:avx10_1_512", "gemm:jit")
    assert capped.output[0, 0] < free.output[0, 0]  # pairs saturate
    assert simdnn.estimate("matmul", m=2, n=3, k=8, dt="u8:s8:s32", **where).library == "gemm:jit"
    assert simdnn.matmul(a, b, isa="avx512_core_vnni", **where).library == "brg_matmul:avx512_core_vnni"
    assert simdnn.matmul(a, b, machine="spr").implementation == fastest.implementation
    assert simdnn.eltwise(np.ones(3, np.float32), "gelu_erf", **where).implementation == "gelu_erf:avx2"
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "avx10_1_512")
    assert simdnn.matmul(a, b, **where).library == "brg_matmul:avx10_1_512"
    for word, error in (("AVX", Unimplemented), ("AVX9", InvalidArgument)):
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", word)
        with pytest.raises(error, match="AVX2, AVX2_VNNI"):
            simdnn.matmul(a, b, **where)
