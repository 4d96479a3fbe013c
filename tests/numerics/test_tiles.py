"""Programs over tiles: engines agree, the values are right, and what verification refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from isa_models import ProgramError
from isa_models.formats import fmt
from simdnn import numerics
from simdnn.program.check import verify
from simdnn.program.records import Affine, Loop, Memory, Op, Program, Register, Statement, Tensor
from simdnn.program.tiles import configuration
from simdnn.timing.estimate import estimate_program
from simdnn.timing.memory import transfers
from tests.effort import one_in
from tests.timing.tiles import tiled

ROWS, BLOCKS, COLUMNS = 5, 3, 2  # rows of a tile; tiles of rows (parallel); tiles of columns


def tile(number: int, dtype: str, rows: int) -> Register:
    return Register(f"tmm{number}", dtype, rows * 512 // fmt(dtype).bits)


def product(name: str, src: str, wei: str, choices: tuple[tuple[str, str], ...] = ()) -> Program:
    """(15, 2 steps of K) x (…, 32): a, b as the tiles want it, c from zero, all tiles strided."""
    lanes, acc = 512 // fmt(src).bits, "s32" if src[1:] == "8" else "f32"
    step, i = Affine.var("k"), Affine.var("i")
    at = i * (ROWS * 2 * lanes) + step * lanes
    load: list[Statement] = [
        Op("tileloadd", tile(4, "u32", ROWS), (Memory("a", at, "u32", ROWS * 16, ROWS, 2 * lanes),))
    ]
    clear, store = [], []
    for j in range(COLUMNS):
        at = step * (16 * COLUMNS * lanes) + j * lanes
        c = tile(j, acc, ROWS)
        clear.append(Op("tilezero", c.as_("u32"), (c.as_("u32"),)))
        load.append(Op("tileloadd", tile(5 + j, "u32", 16), (Memory("b", at, "u32", 256, 16, COLUMNS * lanes),)))
        load.append(Op(name, c, (c, tile(4, src, ROWS), tile(5 + j, wei, 16)), (), choices))
        out = Memory("c", i * (ROWS * 16 * COLUMNS) + j * 16, "u32", ROWS * 16, ROWS, 16 * COLUMNS)
        store.append(Op("tilestored", out, (c.as_("u32"),)))
    tensors = (
        Tensor.constant("tiles", "u8", configuration([ROWS, ROWS, 0, 0, ROWS, 16, 16])),
        Tensor("a", src, BLOCKS * ROWS * 2 * lanes),
        Tensor("b", wei, 2 * 16 * COLUMNS * lanes),
        Tensor("c", acc, BLOCKS * ROWS * 16 * COLUMNS, "output"),
    )
    configure = Op("ldtilecfg", Register("tilecfg", "u8", 64), (Memory("tiles", Affine(), "u8", 64),))
    nest = Loop("i", BLOCKS, (*clear, Loop("k", 2, tuple(load)), *store), True)
    return Program(name, "avx512_core_amx_fp16", tensors, (configure, nest))


def inputs(program: Program, seed: int, special: bool = False) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    found = {}
    for tensor in program.tensors:
        form = fmt(tensor.dtype)
        if tensor.kind == "input" and form.is_float:
            values = rng.integers(-9, 10, tensor.size).astype(np.float32)
            if special:
                values[rng.integers(0, tensor.size, 3)] = [np.nan, np.inf, 1e-39]
            found[tensor.name] = values.astype(form.dtype)
        elif tensor.kind == "input":
            found[tensor.name] = rng.integers(form.low, form.high, tensor.size, endpoint=True).astype(form.dtype)
    return found


CASES = [
    ("tdpbf16ps", "bf16", "bf16"),
    ("tdpfp16ps", "f16", "f16"),
    ("tdpbssd", "s8", "s8"),
    ("tdpbusd", "u8", "s8"),
    ("tdpbsud", "s8", "u8"),
    ("tdpbuud", "u8", "u8"),
]


@pytest.mark.parametrize(("name", "src", "wei"), CASES)
def test_a_product_of_tiles(name: str, src: str, wei: str) -> None:
    program = verify(product(name, src, wei))
    data = inputs(program, 1)
    reference = numerics.run(program, data, engine="reference")["c"]
    assert (reference == numerics.run(program, data, engine="compiled")["c"]).all()
    assert (reference == numerics.run(program, data, engine="compiled", threads=3)["c"]).all()
    depth = 32 // fmt(src).bits
    wide = np.float64 if fmt(src).is_float else np.int64
    a = data["a"].astype(wide).reshape(BLOCKS * ROWS, -1)
    b = data["b"].astype(wide).reshape(-1, 16 * COLUMNS, depth).transpose(0, 2, 1).reshape(-1, 16 * COLUMNS)
    assert (reference.reshape(BLOCKS * ROWS, -1) == a @ b).all()


@one_in(2)
@pytest.mark.parametrize("order", ["even_odd", "sequential"])
@pytest.mark.parametrize(("name", "src", "wei"), CASES[:2])
def test_engines_agree_on_specials(name: str, src: str, wei: str, order: str) -> None:
    program = verify(product(name, src, wei, (("accumulation", order),)))
    for seed in range(4):
        data = inputs(program, seed, special=True)
        reference = numerics.run(program, data, engine="reference")["c"]
        assert reference.tobytes() == numerics.run(program, data, engine="compiled")["c"].tobytes()
        assert np.isnan(reference).any()


def test_what_it_counts_and_costs() -> None:
    program = verify(product("tdpbf16ps", "bf16", "bf16"))
    cost = estimate_program(program, tiled())
    assert cost.executed == {"ldtilecfg": 1, "tilezero": 6, "tileloadd": 18, "tdpbf16ps": 12, "tilestored": 6}
    assert set(cost.instructions.form) >= {"m512", "tmm", "tmm,m8192", "tmm,tmm,tmm", "m8192,tmm"}
    assert cost.instructions.cycles_share.sum() == pytest.approx(1)
    assert cost.cycles >= 12 * ROWS
    first = transfers(program, tiled()).levels[0]
    assert first.read_bytes == 64 + BLOCKS * 2 * 64 * (ROWS + 16 * COLUMNS)
    assert first.written_bytes == BLOCKS * ROWS * COLUMNS * 64
    small = replace(tiled(), caches=tuple(replace(c, size_bytes=128) for c in tiled().caches))
    lines = transfers(program, small).levels[1]
    assert lines.written_bytes == BLOCKS * ROWS * COLUMNS * 64


def test_the_listing_shows_rows() -> None:
    program = product("tdpbf16ps", "bf16", "bf16", (("accumulation", "sequential"),))
    from simdnn.program.records import listing

    text = listing(program.body)
    assert "tileloadd tmm4:u32x80, a[320*i + 32*k]:u32x80 in 5 rows 64 apart" in text
    assert "tmm5:bf16x512, sequential" in text


def changed(program: Program, wanted: str, change: Callable[[Op], Op]) -> Program:
    """The program with every op called `wanted` changed."""

    def visit(statement: Statement) -> Statement:
        if isinstance(statement, Loop):
            return replace(statement, body=tuple(visit(s) for s in statement.body))
        return change(statement) if statement.instruction == wanted else statement

    return replace(program, body=tuple(visit(s) for s in program.body))


def memory(op: Op, **changes: Any) -> Op:
    source = op.srcs[0]
    assert isinstance(source, Memory)
    return replace(op, srcs=(replace(source, **changes),))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: replace(p, body=p.body[1:]), "no ldtilecfg before it"),
        (lambda p: replace(p, body=(Loop("o", 1, p.body),)), "outside all loops"),
        (lambda p: replace(p, tensors=(replace(p.tensors[0], data=bytes(64)), *p.tensors[1:])), "no tiles of palette"),
        (lambda p: replace(p, isa="avx512_core_fp16"), "not in avx512_core_fp16"),
        (lambda p: changed(p, "tileloadd", lambda o: memory(o, rows=1, stride=0)), "should have 5 rows of 64 bytes"),
        (lambda p: changed(p, "tileloadd", lambda o: memory(o, stride=-64)), "addresses -256"),
        (lambda p: changed(p, "tileloadd", lambda o: memory(o, stride=400)), "addresses 0 .. "),
        (lambda p: changed(p, "tileloadd", lambda o: replace(o, dst=replace(o.dst, name="zmm1"))), "zmm1 is none of"),
        (
            lambda p: changed(
                p, "tilezero", lambda o: Op("vpxor", Register("tmm0", "u32", 16), (Register("tmm0", "u32", 16),) * 2)
            ),
            "are tiles",
        ),
        (
            lambda p: changed(p, "tdpbf16ps", lambda o: replace(o, srcs=(o.srcs[0], o.srcs[1], o.srcs[1]))),
            "should be|should have|a tile twice",
        ),
        (lambda p: changed(p, "tdpbf16ps", lambda o: replace(o, choices=(("accumulation", "any"),))), "the choices"),
        (
            lambda p: changed(p, "tilestored", lambda o: replace(o, dst=replace(o.dst, index=96 * Affine.var("i")))),
            "keep apart in c",
        ),
    ],
)
def test_what_is_refused(change: Callable[[Program], Program], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        verify(change(product("tdpbf16ps", "bf16", "bf16")))


def test_rows_other_than_configured_are_refused() -> None:
    program = product("tdpbf16ps", "bf16", "bf16")
    wrong = Tensor.constant("tiles", "u8", configuration([ROWS + 1, ROWS, 0, 0, ROWS, 16, 16]))
    with pytest.raises(ProgramError, match="6 rows of 64 bytes"):
        verify(replace(program, tensors=(wrong, *program.tensors[1:])))
