"""The traced reading: the NumPy reading's bits for every instruction, and what a trace remembers."""

from __future__ import annotations

import zlib
from fractions import Fraction

import numpy as np
import pytest

from isa_models import REGISTRY, instruction
from isa_models.formats import fmt
from isa_models.instruction import GPU_REGISTRY, Family
from isa_models.readings.arrays import ArrayValue
from isa_models.readings.traced import Exact, TracedValue, copied, history, operand, origins, read_as

FORMS = [name for name, found in GPU_REGISTRY.items() if not isinstance(found, Family)]
FORMS += [
    "dpas.s8.u4.8.8.x16.s32",
    "dpas.u2.s8.8.1.x8.s32",
    "dpas.bf16.bf16.8.2.x16.f32.sequential",
    "dpas.f16.f16.8.2.x8.f16.f32.stage_fused",
    "dpas.tf32.tf32.8.1.x16.f32.pair_first",
]
TWO_ROWS = 32  # lanes of a tile, whose rows do not know each other


@pytest.mark.parametrize("name", [*sorted(REGISTRY), *FORMS])
def test_every_instruction_at_every_width(name: str) -> None:
    definition = instruction(name)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    for width in definition.caps:
        lanes = definition.lanes(width) if not definition.tile else TWO_ROWS
        for turn in range(2):
            arrays = []
            for o in definition.operands:
                count = definition.operand_lanes(o, lanes)
                size = count if fmt(o.dtype).is_truth else count * fmt(o.dtype).bits // 8
                high = 256 if turn else 2  # sparse bits first: denormals, small integers
                high = 2 if fmt(o.dtype).is_truth else high
                arrays.append(rng.integers(0, high, size, np.uint8).view(fmt(o.dtype).dtype))
            imm = {i: int(rng.integers(0, 8)) for i in definition.immediates}
            pairs = list(zip(arrays, definition.operands, strict=True))
            wanted = definition.apply(*[ArrayValue(a, o.dtype) for a, o in pairs], lanes=lanes, **imm)
            met = definition.apply(*[operand(a, o.dtype, o.name) for a, o in pairs], lanes=lanes, **imm)
            assert (met.dtype, met.inner.array.tobytes()) == (wanted.dtype, wanted.array.tobytes())
            lanes_seen = history([(met, lane) for lane in range(met.lanes)])
            Exact().follow(lanes_seen)
            assert all(value.op not in ("view", "permute", "concat", "load") for value, _ in lanes_seen)


def traced(name: str, **operands: list[float]) -> TracedValue:
    definition = instruction(name)
    values = [operand(np.array(operands[o.name]), o.dtype, o.name) for o in definition.operands]
    result: TracedValue = definition.apply(*values)
    return result


def test_the_steps_of_a_saturating_pair() -> None:
    result = traced("vpmaddubsw", a=[255, 255, 1, 2], b=[127, 127, 3, 4])
    steps = history([(result, 0)])
    assert [value.op for value, _ in steps if value.op not in ("operand", "to")] == ["mul", "mul", "add", "saturate"]
    exact = Exact()
    exact.follow(steps)
    assert (result.number(0), exact.of(result, 0)) == (32767, 64770)
    assert result.number(1) == 11


def test_exact_numbers_pass_through_moves_of_other_types() -> None:
    total = traced("vaddps", a=[2.0**24], b=[1.0])
    moved = total.view("u32").concat(total.view("u32")).permute([1, 0]).view("f32")
    exact = Exact()
    exact.follow(history([(moved, 0)]))
    assert (moved.number(0), exact.of(moved, 0)) == (2**24, 2**24 + 1)
    assert copied(moved, 0) == (total, 0)
    bits = moved.view("u32")
    assert exact.of(bits, 0) == bits.number(0)  # read as an integer the bits mean another number


def test_origins_are_found_byte_by_byte() -> None:
    a, b = operand(np.arange(4), "u8", "a"), operand(np.arange(4, 8), "u8", "b")
    words = a.concat(b).view("u32").permute([1])
    assert origins(words, 0) == [(b, 0), (b, 1), (b, 2), (b, 3)]
    assert copied(words, 0) is None
    assert copied(words.view("u8"), 2) == (b, 2)


def test_a_reader_of_another_type_is_told() -> None:
    shifted = traced("vpaddb", a=[-5], b=[-128])
    read = shifted.view("u8").to("s32")
    lanes = history([(read, 0)])
    assert read_as(lanes, (read, 0))[shifted.order, 0] == {"u8"}
    assert read.number(0) == 123


def test_named_steps_stand_for_their_parts() -> None:
    result = traced("vcvtneps2bf16", a=[1.00390625])
    assert [value.op for value, _ in history([(result, 0)])] == ["operand", "step", "step"]
    exact = Exact()
    exact.follow(history([(result, 0)]))
    assert (result.number(0), exact.of(result, 0)) == (1, Fraction(257, 256))


def test_shortcuts_are_taken_where_they_hold() -> None:
    usual = traced("vdpbf16ps", acc=[1.0], a=[2.0, 3.0], b=[4.0, 5.0])
    assert [value.op for value, _ in history([(usual, 0)])].count("fma") == 2
    careful = traced("vdpbf16ps", acc=[1.0], a=[2.0, 1e-40], b=[4.0, 5.0])
    assert any(value.text == "denormal to zero" for value, _ in history([(careful, 0)]))
