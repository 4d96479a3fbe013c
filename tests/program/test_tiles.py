"""The proof of programs with tiles: what configures them, and that they are no vector registers."""

from __future__ import annotations

from dataclasses import replace

from simdnn.program.check import verify
from simdnn.program.records import Affine, Loop, Memory, Op, Program, Register, Tensor
from simdnn.program.tiles import configuration
from tests.program.programs import sums, tiles


def test_tiles_are_no_vector_registers() -> None:
    """All 32 vectors beside a tile."""
    configure, body = tiles(5).body
    assert isinstance(body, Loop)
    vectors = sums(32, "avx512_core", 512)
    wide = tuple(replace(t, size=512) if t.name == "o" else t for t in tiles(5).tensors)
    verify(Program("p", "avx512_core_amx", wide, (configure, Loop("t", 1, (*body.body, *vectors.body)))))


def test_tiles_are_configured_anew_by_each_constant() -> None:
    """One that configures them as they are is no reason to pass over the next, of another constant."""
    source = (Memory("t", Affine(), "u8", 64),)
    again = Op("ldtilecfg", Register("cfg", "u8", 64), source)
    other = Op("ldtilecfg", Register("cfg", "u8", 64), (replace(source[0], tensor="u"),))
    made, four = tiles(5), tiles(4).body[1]
    verify(replace(made, body=(made.body[0], again, made.body[1])))
    tensors = (*made.tensors, Tensor.constant("u", "u8", configuration([4])))
    verify(replace(made, tensors=tensors, body=(*made.body, other, four)))
