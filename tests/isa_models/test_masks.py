"""Mask registers: lanes of one bit against Python's integers, this CPU's own instructions, in all readings."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import simdnn
from isa_models import REGISTRY, instruction
from isa_models.formats import fmt, name_of
from isa_models.readings.arrays import Array, ArrayValue
from isa_models.readings.bounds import BoundedValue
from isa_models.readings.intervals import IntervalValue, Watch
from isa_models.readings.llvm import Emitter, LlvmValue
from isa_models.x86.masks import SIZES
from simdnn.calibration.hostcheck import adversarial
from simdnn.numerics.native import native_call
from tests.effort import one_in

MASKS = sorted(n for n, d in REGISTRY.items() if "b1" in (d.result, *(o.dtype for o in d.operands)))
LOGIC: dict[str, Callable[[int, int], int]] = {
    "kand": lambda a, b: a & b,
    "kandn": lambda a, b: ~a & b,
    "kor": lambda a, b: a | b,
    "kxor": lambda a, b: a ^ b,
    "kxnor": lambda a, b: ~(a ^ b),
    "kadd": lambda a, b: a + b,
}


def bits(number: int, lanes: int) -> Array:
    return np.array([number >> i & 1 for i in range(lanes)], bool)


@pytest.mark.parametrize("name", LOGIC)
def test_every_pair_of_masks_of_eight(name: str) -> None:
    masks = np.stack([bits(i, 8) for i in range(256)])
    met = instruction(f"{name}b")(np.repeat(masks, 256, 0), np.tile(masks, (256, 1)))
    wanted = [LOGIC[name](a, b) & 255 for a in range(256) for b in range(256)]
    assert (np.packbits(met, axis=-1, bitorder="little")[:, 0] == wanted).all()


@one_in(2)
@pytest.mark.parametrize(("end", "lanes"), SIZES.items())
def test_masks_of_all_sizes_as_integers(end: str, lanes: int) -> None:
    rng = np.random.default_rng(lanes)
    top = (1 << lanes) - 1
    numbers = [0, top, 1, 1 << (lanes - 1), *(int.from_bytes(rng.bytes(lanes // 8), "little") for _ in range(12))]
    for a in numbers:
        x = bits(a, lanes)
        for shift in (0, 1, lanes - 1, lanes, 255):
            up, down = (a << shift) & top, a >> shift
            assert (instruction(f"kshiftl{end}")(x, imm=shift) == bits(up, lanes)).all()
            assert (instruction(f"kshiftr{end}")(x, imm=shift) == bits(down, lanes)).all()
        assert (instruction(f"knot{end}")(x) == bits(~a & top, lanes)).all()
        assert (instruction(f"kmov{end}")(x) == x).all()
        for b in numbers:
            y = bits(b, lanes)
            for name, wanted in LOGIC.items():
                assert (instruction(f"{name}{end}")(x, y) == bits(wanted(a, b) & top, lanes)).all()
            assert instruction(f"kortest{end}")(x, y).tolist() == [not a | b, a | b == top]
            assert instruction(f"ktest{end}")(x, y).tolist() == [not a & b, not ~a & b & top]


@pytest.mark.parametrize(("name", "half"), [("kunpckbw", 8), ("kunpckwd", 16), ("kunpckdq", 32)])
def test_the_second_mask_is_below(name: str, half: int) -> None:
    a, b = bits(0b1011, half), bits(0b1, half)
    assert instruction(name)(a, b).tolist() == [*b.tolist(), *a.tolist()]


@pytest.mark.parametrize("end", SIZES)
def test_a_mask_becomes_lanes_and_lanes_their_signs(end: str) -> None:
    mask = np.array([True, False, False, True, True, False, True, True])
    lanes = instruction(f"vpmovm2{end}")(mask)
    assert set(lanes.tolist()) == {0, int(fmt(f"u{SIZES[end]}").high)}
    assert (instruction(f"vpmov{end}2m")(lanes.view(f"i{SIZES[end] // 8}")) == mask).all()


def test_this_cpu_s_own_instruction_is_what_is_compared() -> None:
    for name in MASKS:
        definition, emitter = instruction(name), Emitter()
        lanes = definition.lanes(max(definition.caps))
        values = [
            LlvmValue(emitter, f"%{o.name}", o.dtype, definition.operand_lanes(o, lanes)) for o in definition.operands
        ]
        given = dict.fromkeys(definition.immediates, 1)
        found = native_call(emitter, definition, max(definition.caps), lanes, values, given)
        assert (
            found is not None
            and found.lanes == lanes
            and f'asm "{definition.mnemonic(512)} ' in "\n".join(emitter.lines)
        )


@pytest.mark.parametrize("name", MASKS)
def test_ranges_and_bounds_hold_every_value(name: str) -> None:
    definition, rng = instruction(name), np.random.default_rng(3)
    lanes = definition.lanes(min(definition.caps))
    given = dict.fromkeys(definition.immediates, 1)
    counts = [definition.operand_lanes(o, lanes) for o in definition.operands]
    operands = [adversarial(o.dtype, (50, n), rng) for o, n in zip(definition.operands, counts, strict=True)]
    operands = [np.nan_to_num(a) if fmt(name_of(a.dtype)).is_float else a for a in operands]  # ranges have no NaN
    exact = definition(*operands, **given)
    ends = [(a.astype(object).min(0), a.astype(object).max(0)) for a in operands]
    watch = Watch()
    spans = [IntervalValue.between(o.dtype, *end, watch) for o, end in zip(definition.operands, ends, strict=True)]
    found = definition.apply(*spans, **given)
    low, high = (np.asarray(end).astype(object) for end in (found.low, found.high))
    assert (low <= exact.astype(object)).all() and (exact.astype(object) <= high).all()
    bounded = definition.apply(
        *(BoundedValue(a, o.dtype) for a, o in zip(operands, definition.operands, strict=True)), **given
    )
    assert (bounded.array == exact).all()
    assert all(isinstance(v, ArrayValue) for v in definition.values([a[0] for a in operands], given))


def test_they_are_explained_by_lane() -> None:
    text = str(simdnn.explain("vpmovm2b", mask=[1, 0]))
    assert "mask[0] * 255 = 1 * 255 = 255" in text
    assert simdnn.explain("kandw", a=[1, 1], b=[1]).steps.value.tolist()[:2] == [1, 0]


def test_a_loop_s_masks_have_values() -> None:
    loop = "vpmovb2m k1, zmm0\nkandq k2, k1, k3\nkortestq k2, k3\nvpmovm2b zmm3, k2\nvpaddb zmm4{k1}{z}, zmm3, zmm3\n"
    loop += "kmovq rax, k2\nkmovw k6, eax\nkunpckbw k4, k6, k2\nvpmovq2m k7, ymm3\nvpandq zmm5{k4}{z}, zmm3, zmm3\n"
    src = np.arange(-32, 32, dtype=np.int8)
    values = simdnn.analyze(loop, machine="zen5").values({"zmm0": src, "k3": 0xFF})
    by = {one.instruction.split()[0]: one.lanes for one in values.written}
    assert (by["vpmovb2m"] == (src < 0)).all() and by["kandq"].tolist() == [True] * 8 + [False] * 56
    assert by["kortestq"].tolist() == [False, False] and by["vpmovm2b"].tolist() == [255] * 8 + [0] * 56
    assert by["vpaddb"].astype(np.int8).tolist() == [-2] * 8 + [0] * 56
    assert by["kmovw"].tolist() == [True] * 8 + [False] * 8 and by["kunpckbw"].all()
    assert by["vpmovq2m"].tolist() == [True, False, False, False]
    assert by["vpandq"].view(np.uint64).tolist() == [2**64 - 1] + [0] * 7
    record = values.written[1].record()
    assert record["lanes"][:9] == [1] * 8 + [0] and "k2 b1: 1 1 1 1 1 1 1 1 0" in str(values)
    with pytest.raises(simdnn.InvalidArgument, match=r"k1 takes a whole number from 0 to 2\*\*64 - 1"):
        simdnn.analyze(loop, machine="zen5").values({"k1": -1})
