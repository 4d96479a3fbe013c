"""The interval reading: sound for every instruction, tight for the pairs whose saturation it proves."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa_models import REGISTRY, instruction
from isa_models.formats import fmt
from isa_models.instruction import GPU_REGISTRY, Family
from isa_models.readings.arrays import Array, ArrayValue
from isa_models.readings.intervals import IntervalValue, Watch
from tests.effort import one_in

FORMS = [name for name, found in GPU_REGISTRY.items() if not isinstance(found, Family)]


def drawn(rng: np.random.Generator, dtype: str, count: int) -> tuple[Array, Array]:
    """Ranges of a type: points, narrow ones, wide ones."""
    form = fmt(dtype)
    if form.is_float:
        ends = np.sort(rng.standard_normal((2, count)) * 10.0 ** rng.integers(-3, 4, (1, count)), axis=0)
        ends = ends.astype(np.float32).astype(form.dtype).astype(np.float64)
    else:
        ends = np.sort(rng.integers(form.low, min(form.high, 2**63 - 1), (2, count), endpoint=True), axis=0)
    ends[1] = np.where(rng.random(count) < 0.4, ends[0], ends[1])
    return ends[0], ends[1]


def inside(rng: np.random.Generator, dtype: str, low: Array, high: Array) -> Array:
    """One value within each range, its ends often."""
    form = fmt(dtype)
    if form.is_float:
        value = (low + (high - low) * rng.random(len(low))).astype(np.float32).astype(form.dtype)
        value = np.clip(value.astype(np.float64), low, high).astype(form.dtype)
    else:
        value = np.array([rng.integers(a, b, endpoint=True) for a, b in zip(low, high, strict=True)])
    which = rng.integers(0, 3, len(low))
    return np.where(which == 0, low, np.where(which == 1, high, value)).astype(form.dtype)


@one_in(3)
@pytest.mark.parametrize("name", [*sorted(n for n in REGISTRY if not REGISTRY[n].configures), *FORMS])
def test_no_value_leaves_its_range(name: str) -> None:
    definition = instruction(name)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    lanes = 16 if definition.tile else definition.lanes(min(definition.caps))
    for _ in range(3):
        ranges = [drawn(rng, o.dtype, definition.operand_lanes(o, lanes)) for o in definition.operands]
        imm = {i: int(rng.integers(0, 40)) for i in definition.immediates}
        watch = Watch()
        values = [IntervalValue.between(o.dtype, *r, watch) for o, r in zip(definition.operands, ranges, strict=True)]
        found = definition.apply(*values, lanes=lanes, **imm)
        assert isinstance(found, IntervalValue) and found.lanes == lanes
        for _ in range(6):
            arrays = [
                ArrayValue(inside(rng, o.dtype, *r), o.dtype) for o, r in zip(definition.operands, ranges, strict=True)
            ]
            with np.errstate(all="ignore"):
                met = definition.apply(*arrays, lanes=lanes, **imm).array
            wide = met.astype(np.float64) if fmt(definition.result).is_float else met.astype(object)
            held = (wide >= found.low) & (wide <= found.high)
            if fmt(definition.result).is_float:
                held |= np.isnan(wide) & found.nan
            assert held.all(), (wide, found.low, found.high)


@given(st.lists(st.tuples(st.integers(0, 255), st.integers(0, 255), st.integers(-128, 127)), min_size=2, max_size=2))
def test_pairs_are_tight(pairs: list[tuple[int, int, int]]) -> None:
    """The watch says of a pair of vpmaddubsw what trying the ends of all ranges finds."""
    low, high = (np.array([f(p[:2]) for p in pairs]) for f in (min, max))
    weights = np.array([p[2] for p in pairs])
    watch = Watch()
    a = IntervalValue.between("u8", low, high, watch)
    result = instruction("vpmaddubsw").apply(a, IntervalValue.between("s8", weights, weights, watch))
    sums = [x * weights[0] + y * weights[1] for x in (low[0], high[0]) for y in (low[1], high[1])]
    (clip,) = watch.clips
    assert (clip.low[0], clip.high[0]) == (min(sums), max(sums))
    assert clip.possible[0] == (min(sums) < -32768 or max(sums) > 32767)
    assert (result.low[0], result.high[0]) == tuple(np.clip([min(sums), max(sums)], -32768, 32767))


def test_wrapping_is_told() -> None:
    watch = Watch()
    a = IntervalValue.between("s32", [0], [2**31 - 1], watch)
    result = instruction("vpaddd").apply(a, IntervalValue.between("s32", [1], [1], watch))
    assert (int(result.low[0]), int(result.high[0])) == (-(2**31), 2**31 - 1)
    assert [op for op, lanes in watch.wraps if lanes.any()] == ["add"]
