"""The rules of the proof, each at its boundary: a program just inside runs alike in both engines, one just outside is
refused.

A row: the rule; the program inside; the one outside, which differs by the one number that the rule is about; a part of
the message.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa_models import ProgramError
from isa_models.formats import fmt
from isa_models.gpu.platforms import MOST_GRFS, RESERVED_GRFS
from simdnn import numerics
from simdnn.program import apart, check
from simdnn.program.check import verify
from simdnn.program.records import Affine, Loop, Memory, Op, Program, Register, Tensor
from simdnn.program.tiles import configuration
from tests.effort import examples
from tests.program.programs import (
    HUGE,
    carried,
    changed_bits,
    chosen,
    configured_by,
    copies,
    dot,
    gpu,
    i,
    j,
    k,
    load,
    masked,
    multiplied,
    nested,
    once,
    p,
    packed,
    parallel,
    private,
    program,
    reg,
    shuffled,
    side_by_side,
    store,
    sums,
    tile_dot,
    tiles,
    with_constant,
)


def threads(lanes: int) -> Program:
    """Numbers of each thread of a warp, two of which are beside one of them."""
    x, each = Register("x", "f32", lanes), Register("y", "f32", lanes // 2)
    loads = [Op("ld.global.f32", one, (Memory("a", Affine(), "f32", one.lanes),)) for one in (x, each)]
    scaled = Op("mul.rn.f32.thread", x, (x, each))
    return program(once(*loads, scaled, Op("st.global.f32", Memory("o", Affine(), "f32", lanes), (x,))), isa="volta")


V, W = reg("v"), reg("w")
RULES: dict[str, tuple[Program, Program, str]] = {
    # -- addresses
    "the last address of a load": (
        copies(16, 4),
        program(Loop("i", 4, (load(i * 16 + 1), store(i * 16)))),
        "addresses 1 .. 64 of a",
    ),
    "the first address of a load": (
        copies(-16, 4, 48),
        program(Loop("i", 4, (load(i * -16 + 47), store(i * 16)))),
        "addresses -1 .. 62",
    ),
    "the last address of a store": (
        copies(16, 3, 16),
        program(Loop("i", 3, (load(), store(i * 16 + 17)))),
        "addresses 17 .. 64 of o",
    ),
    "the last address of a masked store": (
        program(once(load(), store(57, lanes=7))),
        program(once(load(), store(57, lanes=8))),
        "addresses 57 .. 64",
    ),
    "the last iteration": (copies(16, 4), copies(16, 5), "addresses 0 .. 79"),
    "one element": (
        program(once(load(lanes=1), store(lanes=1)), a=1, o=1),
        program(once(load(lanes=2), store(lanes=1)), a=1, o=1),
        "addresses 0 .. 1",
    ),
    "two variables": (
        program(Loop("i", 2, (Loop("j", 3, (load(i * 32 + j * 8), store())),))),
        program(Loop("i", 2, (Loop("j", 3, (load(i * 33 + j * 8), store())),))),
        "addresses 0 .. 64",
    ),
    "a step that no address has": (
        program(Loop("i", 1, (load(i * HUGE), store()))),
        program(Loop("i", 1, (load(i * (HUGE + 1)), store()))),
        "steps of more than",
    ),
    "a step back that no address has": (
        program(Loop("i", 1, (load(i * -HUGE), store()))),
        program(Loop("i", 1, (load(i * (-HUGE - 1)), store()))),
        "steps of more than",
    ),
    "whole elements": (
        program(once(Op("vpbroadcastd", reg("v", 512, "u32"), (Memory("a", Affine(), "u32", 1),)), store())),
        program(once(Op("vpbroadcastb", reg("v", 512, "u8"), (Memory("a", Affine(), "u8", 1),)), store())),
        "no whole number of f32",
    ),
    "a known variable": (copies(16, 4), program(Loop("i", 4, (load(j * 16), store()))), "index variables ['j']"),
    "a known tensor": (copies(16, 4), program(once(load(tensor="b"), store())), "no tensor 'b'"),
    "outputs alone are stored to": (
        program(once(load(), store())),
        program(once(load(), store(tensor="a"))),
        "a is read only",
    ),
    "constants are not stored to": (
        with_constant(16, 16),
        replace(with_constant(16, 16), body=(once(load(), store(tensor="c")),)),
        "c is read only",
    ),
    # -- tensors
    "a constant's size": (with_constant(16, 16), with_constant(17, 16), "holds 64 of 68 bytes"),
    "a constant's data": (with_constant(16, 16), with_constant(16, 17), "holds 68 of 64 bytes"),
    "data of a constant alone": (with_constant(16, 16), with_constant(16, 16, "input"), "input c holds data"),
    "a tensor is not empty": (
        program(once(load(), store()), more=(Tensor("b", "f32", 1),)),
        program(once(load(), store()), more=(Tensor("b", "f32", 0),)),
        "has 0 elements",
    ),
    "a name once": (
        program(once(load(), store()), more=(Tensor("b", "f32", 1),)),
        program(once(load(), store()), more=(Tensor("a", "f32", 1),)),
        "two tensors of one name",
    ),
    "a kind": (
        program(once(load(), store()), more=(Tensor("b", "f32", 1, "scratch"),)),
        program(once(load(), store()), more=(Tensor("b", "f32", 1, "other"),)),
        "has kind 'other'",
    ),
    "a role": (
        program(once(load(), store()), more=(Tensor("b", "f32", 1, "scratch", role="zeros"),)),
        program(once(load(), store()), more=(Tensor("b", "f32", 1, "scratch", role="other"),)),
        "has role 'other'",
    ),
    "whole bytes": (
        program(once(load(), store()), more=(Tensor("b", "u8", 1),)),
        program(once(load(), store()), more=(Tensor("b", "u4", 2),)),
        "store nibbles as u8",
    ),
    # -- loops
    "a loop runs": (copies(16, 1), copies(16, 0), "a loop runs at least once"),
    "a body": (program(once(load(), store())), program(once(load(), store()), Loop("i", 2, ())), "an empty body"),
    "a variable once": (nested(2), program(Loop("s", 2, (once(load(), store()),))), "is a loop around it already"),
    "a variable's name": (copies(16, 4), program(Loop("row of a tile", 1, (load(), store()))), "variable name"),
    # -- registers
    "as wide as written": (changed_bits(256, 256), changed_bits(256, 512), "holds 256 bits, not 512"),
    "as wide as written, and the low part": (changed_bits(512, 256), changed_bits(128, 256), "holds 128 bits, not 256"),
    "written before it is read": (
        program(once(load(), store())),
        program(once(store(), load())),
        "read before it is written",
    ),
    "a zero idiom of one register": (
        program(once(Op("vpxor", V.as_("u32"), (W.as_("u32"), W.as_("u32"))), store())),
        program(once(load(), Op("vpxor", V.as_("u32"), (V.as_("u32"), W.as_("u32"))), store())),
        "w is read before",
    ),
    "not of another statement": (
        program(once(load(), store())),
        program(once(load(), store()), once(store(16))),
        "read before it is written",
    ),
    "not of a loop that is over": (
        program(once(load(), Loop("i", 2, (load(i * 16),)), store())),
        program(once(Loop("i", 2, (load(i * 16),)), store())),
        "read before it is written",
    ),
    "32 registers of AVX-512": (sums(32, "avx512_core", 512), sums(33, "avx512_core", 512), "more than the 32"),
    "16 registers of AVX2": (sums(16, "avx2", 256), sums(17, "avx2", 256), "more than the 16"),
    "a register's name": (
        program(once(load(name="v1"), store(name="v1"))),
        program(once(load(name="1v"), store(name="1v"))),
        "register name '1v'",
    ),
    "tiles are no vectors": (
        program(once(load(name="tmm8"), store(name="tmm8"))),
        program(once(load(name="tmm7"), store(name="tmm7"))),
        "are tiles",
    ),
    "carried with no less": (carried(512), carried(128), "is carried with 256 bits and comes back with 128"),
    "nothing is carried in parallel": (
        carried(256, True, False),
        carried(256, True, True),
        "cannot carry registers ['c']",
    ),
    # -- instructions
    "the number of operands": (
        program(once(load(), Op("vaddps", V, (V, V)), store())),
        program(once(load(), Op("vaddps", V, (V,)), store())),
        "takes 2 operands",
    ),
    "one memory operand": (
        program(once(load(), Op("vaddps", V, (V, Memory("a", Affine(), "f32", 16))), store())),
        program(once(Op("vaddps", V, (Memory("a", Affine(), "f32", 16),) * 2), store())),
        "at most one memory operand",
    ),
    "a width of the ISA": (
        program(once(load(bits=256), store(bits=256)), isa="avx2"),
        program(once(load(bits=512), store(bits=512)), isa="avx2"),
        "not in avx2 at 512 bits",
    ),
    "an instruction of the ISA": (dot("u8", "s8"), dot("u8", "s8", isa="avx512_core"), "not in avx512_core at 512"),
    "whole registers": (packed(128, 8), packed(128, 4), "works on whole registers"),
    "types": (dot("u8", "s8"), dot("s8", "s8"), "should be u8"),
    "the accumulator is the destination": (
        dot("u8", "s8"),
        program(once(load(), load(0, "w"), Op("vfmadd231ps", W, (V, V, W)), store())),
        "the destination is the accumulator",
    ),
    "as many lanes": (
        program(once(load(), Op("vaddps", V, (V, V)), store())),
        program(once(load(), Op("vaddps", V, (V, reg("v", 256))), store())),
        "should have 16 lanes",
    ),
    "a whole number of lanes": (threads(18), threads(17), "17 lanes of its result take no whole number of factor's"),
    "some lanes": (
        program(once(load(lanes=1), store())),
        program(once(Op("vmovups", V, (Memory("a", Affine(), "f32", 0),)), store())),
        "should have 1 to 16 lanes",
    ),
    "no more lanes than the register": (
        program(once(load(lanes=16), store())),
        program(once(load(lanes=17), store())),
        "should have 1 to 16 lanes",
    ),
    "only tiles have rows": (
        program(once(load(), store())),
        program(once(Op("vmovups", V, (Memory("a", Affine(), "f32", 16, 2, 8),)), store())),
        "only tiles have rows",
    ),
    "masks of AVX-512": (masked("avx512_core", 7), masked("avx2", 7), "avx2 has no masks"),
    "masks of AVX2": (masked("avx2", 7, "vmaskmovps"), masked("avx2", 7), "avx2 has no masks"),
    "masks where there are some": (masked("avx2", 8), masked("avx2", 7), "avx2 has no masks"),
    "masks of a store": (
        program(once(load(bits=256), store(bits=256)), isa="avx2"),
        program(once(load(bits=256), store(bits=256, lanes=7)), isa="avx2"),
        "avx2 has no masks",
    ),
    "masks of a factor": (multiplied(32), multiplied(28), "avx2_vnni has no masks"),
    "an immediate's range": (shuffled(255), shuffled(256), "an immediate is a byte"),
    "an immediate's sign": (shuffled(0), shuffled(-1), "an immediate is a byte"),
    "an immediate's name": (shuffled(1), shuffled(1, "count"), "takes the immediates"),
    "an immediate once": (shuffled(1), shuffled(1, of=2), "takes the immediates"),
    # -- races
    "a stride of a vector": (parallel(load(), store(p * 16)), parallel(load(), store(p * 15)), "keep apart in o"),
    "two stores of an iteration": (
        parallel(load(), store(p * 20), store(p * 20 + 4)),
        parallel(load(), store(p * 19), store(p * 19 + 4)),
        "keep apart in o",
    ),
    "a load of what another stores": (
        parallel(load(p * 16, tensor="o"), store(p * 16)),
        parallel(load(p * 16 + 1, tensor="o"), store(p * 16), o=80),
        "keep apart in o",
    ),
    "iterations that interleave": (  # 0 .. 15 and 32 .. 47 of one, 16 .. 31 and 48 .. 63 of the other
        parallel(load(), Loop("i", 2, (store(p * 16 + i * 32),)), extent=2),
        parallel(load(), Loop("i", 2, (store(p * 16 + i * 31),)), extent=2),
        "keep apart in o",
    ),
    "an iteration that never comes": (  # the third would meet the first one's second store
        parallel(load(), Loop("i", 2, (store(p * 16 + i * 32),)), extent=2),
        parallel(load(), Loop("i", 2, (store(p * 16 + i * 32),)), extent=3, o=80),
        "keep apart in o",
    ),
    "another stride": (
        parallel(load(p * 16, tensor="o"), store(p * 16)),
        parallel(load(p * 8, tensor="o"), store(p * 16)),
        "keep apart in o",
    ),
    "a step to where another was": (  # spans of 32 and a stride of 64, but for the load, which strides by 32
        parallel(load(p * 64, tensor="o"), store(p * 64 + 16), extent=2, o=128),
        parallel(load(p * 32, tensor="o"), store(p * 64 + 16), extent=2, o=128),
        "keep apart in o",
    ),
    "a place that another loop moves": (
        program(Loop("i", 3, (Loop("p", 2, (load(i * 32 + p * 16, tensor="o"), store(i * 32 + p * 16)), True),)), o=96),
        program(Loop("i", 3, (Loop("p", 2, (load(i * 32 + p * 16, tensor="o"), store(p * 16)), True),)), o=96),
        "keep apart in o",
    ),
    "element after element": (
        parallel(load(), Loop("i", 2, (store(p + i * 3, lanes=1),))),
        parallel(load(), Loop("i", 2, (store(p + i * 2, lanes=1),))),
        "keep apart in o",
    ),
    "what iterations only read": (  # 48 .. 63 of one is 64 .. 79 of the one before
        parallel(load(p * 16 + 48, tensor="o"), load(p * 16 + 64, "w", tensor="o"), store(p * 16), o=112),
        parallel(load(p * 16 + 48, tensor="o"), load(p * 16 + 64, "w", tensor="o"), store(p * 16 + 16), o=112),
        "keep apart in o",
    ),
    "one iteration": (parallel(load(), store(), extent=1), parallel(load(), store(), extent=2), "keep apart in o"),
    "one place for all around": (
        program(Loop("i", 2, (Loop("p", 2, (load(), store(i * 32 + p * 16)), True),))),
        program(Loop("i", 2, (Loop("p", 2, (load(i * 16, tensor="o"), store(i * 32 + p * 16)), True),))),
        "keep apart in o",
    ),
    "reads alone meet": (parallel(load(), store(p * 16)), parallel(load(tensor="o"), store(p * 16)), "keep apart in o"),
    # -- private tensors
    "stored before it is read": (
        private(load(p * 16), store(0, tensor="own"), load(tensor="own"), store(p * 16)),
        private(load(p * 16), store(1, tensor="own"), load(tensor="own"), store(p * 16)),
        "stored before",
    ),
    "as much as was stored there": (
        private(load(p * 16), store(tensor="own", lanes=9), load(tensor="own", lanes=9), store(p * 16)),
        private(load(p * 16), store(tensor="own", lanes=9), load(tensor="own", lanes=10), store(p * 16)),
        "stored before",
    ),
    "all of it stored": (
        private(load(), Loop("k", 2, (store(k * 16, tensor="own"),)), load(16, tensor="own"), store(p * 16)),
        private(load(), Loop("k", 2, (store(k * 16, tensor="own"),)), load(17, tensor="own"), store(p * 16)),
        "stored before",
    ),
    "stored in each iteration around": (
        private(load(), Loop("k", 2, (store(k * 16, tensor="own"), load(k * 16, tensor="own"))), store(p * 16)),
        private(load(), Loop("k", 2, (store(k * 8, tensor="own"), load(k * 16, tensor="own"))), store(p * 16)),
        "stored before",
    ),
    "stored ahead of a loop": (
        private(load(), store(0, tensor="own"), Loop("k", 2, (load(0, tensor="own"),)), store(p * 16)),
        private(load(), store(0, tensor="own"), Loop("k", 2, (load(k * 16, tensor="own"),)), store(p * 16)),
        "stored before",
    ),
    # -- tiles
    "rows as configured": (tiles(5), tiles(4), "should have the 5 rows"),
    "a tile's last row": (tiles(5), tiles(5, at=1), "addresses 1 .. 80"),
    "a tile's stride": (tiles(5), tiles(5, stride=17), "addresses 0 .. 83"),
    "a tile's stride back": (tiles(5), tiles(5, stride=-1), "addresses -4"),
    "configured first": (tiles(5), tiles(5, first=False), "no ldtilecfg before it"),
    "16 rows": (tiles(5), tiles(5, config=configuration([17])), "no tiles of palette 1"),
    "64 bytes": (tiles(5), tiles(5, config=configuration([5])[:40]), "no tiles of palette 1|addresses"),
    "palette 1": (tiles(5), tiles(5, config=b"\2" + configuration([5])[1:]), "no tiles of palette 1"),
    "16 rows of the second factor": (tile_dot(16), tile_dot(15), "should have 256 lanes|should have 1024 lanes"),
    "rows of a tile and of its neighbour's": (  # 3 rows of 16 each: one below the other, or row by row in turn
        side_by_side(16),
        side_by_side(15),
        "keep apart in o",
    ),
    "two rows of a tile and of its neighbour's": (side_by_side(16, 2), side_by_side(32, 2), "keep apart in o"),
    "three tiles": (tile_dot(16), tile_dot(16, ("tmm0", "tmm1", "tmm1")), "should have|a tile twice"),
    "no tile twice": (tile_dot(16), tile_dot(16, ("tmm0", "tmm0", "tmm2")), "a tile twice"),
    "a tile's memory has its rows": (tiles(5), tiles(5, loaded=(64, 4)), "should have 5 rows of 64 bytes"),
    "a tile's memory has whole rows": (tiles(5), tiles(5, loaded=(75, 5)), "should have 5 rows of 64 bytes"),
    "tiles from a constant": (tiles(5), tiles(5, kind="input"), "outside all loops, from a constant"),
    "tiles outside all loops": (tiles(5), tiles(5, inside=True), "outside all loops, from a constant"),
    "tiles by their names": (tiles(5), tiles(5, name="tmm8"), "tmm8 is none of tmm0"),
    "an order of sums once": (chosen(1), chosen(2), "takes the choices"),
    "tiles from memory": (
        configured_by(Memory("t", Affine(), "u8", 64)),
        configured_by(Register("r", "u8", 64)),
        "outside all loops, from a constant",
    ),
    "all of the configuration": (
        configured_by(Memory("t", Affine(), "u8", 64)),
        configured_by(Memory("t", Affine(1), "u8", 64)),
        "addresses 1 .. 64 of t",
    ),
    # -- GPUs
    "registers of a GPU's thread": (gpu(MOST_GRFS - RESERVED_GRFS), gpu(MOST_GRFS - RESERVED_GRFS + 1), "a thread has"),
}


def bits(outputs: dict[str, Any]) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in outputs.items()}


@pytest.mark.parametrize("rule", RULES)
def test_just_inside(rule: str) -> None:
    inside = verify(RULES[rule][0])
    rng = np.random.default_rng(0)
    inputs = {
        t.name: rng.integers(0, 99, t.size).astype(fmt(t.dtype).dtype) for t in inside.tensors if t.kind == "input"
    }
    expected = numerics.run(inside, inputs, engine="reference")
    for native in (False, True):
        for threads in (1, 2):
            found = numerics.run(inside, inputs, engine="compiled", threads=threads, native=native)
            assert bits(found) == bits(expected)


@pytest.mark.parametrize("rule", RULES)
def test_just_outside(rule: str) -> None:
    _, outside, message = RULES[rule]
    parts = "|".join(re.escape(part) for part in message.split("|"))
    with pytest.raises(ProgramError, match=parts):
        verify(outside)
    with pytest.raises(ProgramError, match=parts):
        numerics.run(outside, {"a": np.zeros(64, np.float32)})


def test_too_many_elements_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both programs are sound. Where more elements than the limit would have to be looked at, the answer is no; where
    iterations keep to columns of their own, none has to be.
    """
    inside, _, message = RULES["all of it stored"]
    monkeypatch.setattr("simdnn.program.apart._MAX_ENUMERATED", 32)
    verify(replace(inside, name="at the limit"))
    monkeypatch.setattr("simdnn.program.apart._MAX_ENUMERATED", 31)
    with pytest.raises(ProgramError, match=message):
        verify(replace(inside, name="beyond"))
    verify(replace(RULES["iterations that interleave"][0], name="interleaved"))


@pytest.mark.parametrize(("size", "fits"), [(HUGE, True), (HUGE + 1, False)])
def test_the_largest_tensor(size: int, fits: bool) -> None:
    made = program(once(load(), store()), more=(Tensor("b", "u8", size, "scratch"),))
    if fits:
        verify(made)
    else:
        with pytest.raises(ProgramError, match=f"as it is padded has {size} elements; 1 to {HUGE} bytes"):
            verify(made)


@pytest.mark.parametrize("far", [0, 10_000])
def test_what_is_stored_anywhere_is_stored(far: int) -> None:
    """Elements near each other are marked, those far apart are sorted; a load beside a store changes neither."""
    stores, loads = np.array([7 + far, 5, 5]), np.array([5, 6])
    for accesses in ([(stores, True), (loads, False)], [(loads, False), (stores, True)]):
        touched, stored = apart._touched(accesses)
        assert (touched.tolist(), stored.tolist()) == ([5, 6, 7 + far], [True, False, True])


@st.composite
def any_code(draw: st.DrawFn) -> Program:
    """Loads, sums and stores of three registers in any order and at any place, some of them in a loop."""

    def op() -> Op:
        name, bits = draw(st.sampled_from("uvw")), draw(st.sampled_from((128, 256, 512)))
        at = draw(st.integers(0, 50)) + draw(st.sampled_from((Affine(), 3 * i)))
        if kind := draw(st.integers(0, 3)):
            return load(at, name, bits) if kind == 1 else store(at, name, bits, draw(st.sampled_from("aooo")))
        other = draw(st.sampled_from((bits, bits, bits, 256)))  # which the instruction may not take beside the others
        return Op("vaddps", reg(name, bits), (reg(draw(st.sampled_from("uvw")), other), reg(name, bits)))

    before = [load(0, name, draw(st.sampled_from((256, 512)))) for name in "uvw"]
    straight = [op() for _ in range(draw(st.integers(1, 4)))]
    return program(Loop("i", 2, (*before, *straight, Loop("j", 2, tuple(straight)))), isa="avx512_core")


@examples(150)
@given(any_code())
def test_what_others_have_shown_changes_no_answer(made: Program) -> None:
    """Straight code that was looked at before, at other addresses, is refused or taken in the same words; so is code
    whose instructions were looked at in other code, and code that is walked over one instruction after the other.
    """

    def said(one: Program) -> str:
        try:
            return str(verify(one) and "")
        except ProgramError as error:
            return str(error)

    with patch.dict(check._USES, clear=True), patch.dict(check._SOUND, clear=True):
        alone = said(made)
    with patch.dict(check._USES, clear=True), patch.dict(check._SOUND, clear=True):
        with patch.object(check._Checker, "use_of", lambda checker, ops: None):
            assert said(replace(made)) == alone
    said(replace(made, tensors=tuple(replace(t, size=1 << 20) for t in made.tensors)))  # where more of it is sound
    assert said(replace(made)) == alone
    with patch.dict(check._USES, clear=True):
        assert said(replace(made)) == alone


def test_a_draft_passes_and_is_no_proved_program() -> None:
    """Whoever is given one proves it first: what is wrong with it is told then."""
    wrong = program(store())  # of a register that nothing wrote
    with check.drafts():
        with check.drafts():
            assert verify(wrong) is wrong
        assert verify(wrong) is wrong
    assert not check.is_proved(wrong)
    with pytest.raises(ProgramError, match="read before it is written"):
        numerics.run(wrong, {"a": np.zeros(64, np.float32)})
