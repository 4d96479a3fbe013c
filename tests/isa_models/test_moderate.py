"""A tensor core's sum in 32 bits: the bits of `fused_sum` wherever it does not say that it may be wrong."""

from __future__ import annotations

import numpy as np
import pytest

from isa_models.formats import fmt
from isa_models.nvidia.fused_sum import fused_sum, parts
from isa_models.nvidia.mma import units_of
from isa_models.nvidia.moderate import MatrixProduct, fits, moderate, moderate_sum
from isa_models.readings.arrays import ArrayValue
from tests.effort import one_in

M = N = 8
CASES = [
    ("mma", "volta", "f16", "f16"),
    ("mma", "ampere", "f16", "f32"),
    ("mma", "hopper", "bf16", "f32"),
    ("mma", "hopper", "f16", "f16"),
    ("mma", "hopper", "tf32", "f32"),
    ("mma", "ada", "f8_e4m3", "f16"),
    ("mma", "hopper", "f8_e4m3", "f32"),
    ("wgmma", "hopper", "f8_e5m2", "f32"),
]


@one_in(2)
@pytest.mark.parametrize(("instruction", "arch", "dtype", "result"), CASES)
def test_sums_of_moderate_numbers(instruction: str, arch: str, dtype: str, result: str) -> None:
    unit, form = units_of(instruction, arch)[dtype], fmt(dtype)
    rng = np.random.default_rng(1)
    k, agreed = unit.ks[-1], 0
    elements = unit.passes(k)[-1]
    assert fits(len(elements), unit.fraction_bits)
    rows, columns = ([r for r in range(M) for _ in range(N)], list(range(N)) * M)

    def numbers(count: int, reach: int) -> np.ndarray:
        found = rng.standard_normal(count) * 2.0 ** rng.integers(-reach, reach + 1, count)
        return np.where(rng.random(count) < 0.1, 0.0, found)

    for turn in range(20):
        reach = int(rng.integers(1, 110 if form.exponent_bits == 8 else 14))
        with np.errstate(over="ignore"):
            values = [numbers(count, reach).astype(fmt(form.lanes).dtype) for count in (M * k, k * N)]
        if turn % 5 == 0:  # all products as large as can be
            values = [np.full_like(v, 2 - 2.0**-form.mantissa_bits) for v in values]
            acc = ArrayValue((numbers(M * N, reach) * (turn % 3 > 0)).astype(fmt(result).dtype), result)
        a, b = (ArrayValue(v, form.lanes) for v in values)
        x, y = moderate(a, dtype), moderate(b, dtype)
        places = [([r * k + i for r in rows], [i * N + c for c in columns]) for i in elements]
        with np.errstate(all="ignore"):
            product = MatrixProduct(x, y, M, N, k)
            found, beyond = moderate_sum(acc, product, elements, unit.fraction_bits, unit.kept_bits)
            apart = [(parts(a.permute(p), dtype), parts(b.permute(q), dtype)) for p, q in places]
            expected = fused_sum(acc, apart, unit.fraction_bits, unit.kept_bits)
        far = [x.beyond.permute(p).array | y.beyond.permute(q).array for p, q in places]
        sure = ~np.logical_or.reduce([beyond.array, *far])
        assert (found.array.view(f"u{acc.array.itemsize}") == expected.array.view(f"u{acc.array.itemsize}"))[sure].all()
        agreed += int(sure.sum())
    assert agreed > 400
