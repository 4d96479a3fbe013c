"""Every instruction is documented and shown; the int8 and float dots are held to independent formulas."""

from __future__ import annotations

import doctest
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from isa_models import REGISTRY, InvalidArgument, UnknownName, instruction
from isa_models.formats import fmt
from isa_models.instruction import define, make
from isa_models.isa import caps

Array = npt.NDArray[Any]


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_doc_manual_example_and_lanes(name: str) -> None:
    definition = instruction(name)
    assert definition.manual and definition.doc
    assert definition.caps and all(set(c) <= set(caps()) for c in definition.caps.values())
    test = doctest.DocTestParser().get_doctest(definition.doc, {}, name, None, 0)
    assert any(name in example.source for example in test.examples)
    assert doctest.DocTestRunner().run(test).failed == 0
    for width in definition.caps:  # lanes fill the widest register
        lanes = definition.lanes(width)
        bits = [fmt(o.dtype).bits * definition.operand_lanes(o, lanes) for o in definition.operands]
        assert max(*bits, lanes * fmt(definition.result).bits) == width


def pairs() -> tuple[Array, Array]:
    """All u8 by s8 combinations."""
    u, s = np.meshgrid(np.arange(256), np.arange(-128, 128), indexing="ij")
    return u.ravel().astype(np.uint8), s.ravel().astype(np.int8)


def test_vpmaddubsw_every_product_and_every_pair_of_extremes() -> None:
    u, s = pairs()
    for first, second in ((0, 0), (255, 127), (255, -128), (128, -128), (1, 1)):
        a = np.stack([u, np.full_like(u, first)], axis=1).reshape(-1)
        b = np.stack([s, np.full_like(s, second)], axis=1).reshape(-1)
        expected = np.clip(u.astype(int) * s + first * second, -32768, 32767)
        assert (instruction("vpmaddubsw")(a, b) == expected).all()
        swapped = instruction("vpmaddubsw")(
            a.reshape(-1, 2)[:, ::-1].reshape(-1), b.reshape(-1, 2)[:, ::-1].reshape(-1)
        )
        assert (swapped == expected).all()


DOTS = [n for n in REGISTRY if n.startswith(("vpdpb", "vpdpw"))]


@pytest.mark.parametrize("name", DOTS)
def test_integer_dots_against_wide_integers(name: str) -> None:
    definition = instruction(name)
    rng = np.random.default_rng(11)
    acc_type, a_type, b_type = (fmt(o.dtype) for o in definition.operands)
    count, vectors = int(definition.operands[1].per), 1 << 16

    def draw(form: Any, size: int) -> Array:
        edges = np.array([form.low, form.high, 0, 1, form.high - 1, form.low + 1])
        wide = rng.integers(form.low, form.high, size, np.int64, endpoint=True)
        return np.where(rng.random(size) < 0.3, rng.choice(edges, size), wide).astype(form.dtype)

    acc, a, b = draw(acc_type, vectors), draw(a_type, vectors * count), draw(b_type, vectors * count)
    total = acc.astype(np.int64) + (a.astype(np.int64) * b.astype(np.int64)).reshape(-1, count).sum(axis=1)
    if name.endswith("s"):
        expected = np.clip(total, acc_type.low, acc_type.high)
        assert ((total > acc_type.high) | (total < acc_type.low)).any()
    else:
        expected = total.astype(np.int32).astype(np.int64)
    assert (definition(acc, a, b).astype(np.int64) == expected).all()


def f32_of(exact: Fraction, flush: bool) -> float:
    """An exact number rounded to f32 by the definition; tiny after rounding (unbounded exponent) may become zero."""
    if not exact:
        return 0.0
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent += (size >= Fraction(2) ** (exponent + 1)) - (size < Fraction(2) ** exponent)
    unbounded = round(size / Fraction(2) ** (exponent - 23)) * Fraction(2) ** (exponent - 23)
    if flush and unbounded < Fraction(2) ** -126:
        return 0.0 if exact > 0 else -0.0
    unit = Fraction(2) ** (max(exponent, -126) - 23)
    value = round(size / unit) * unit
    result = float("inf") if value >= Fraction(2) ** 128 else float(value)
    return result if exact > 0 else -result


def test_vdpbf16ps_against_fractions() -> None:
    """Odd element first, each step fused, denormals in and out counted as zero."""
    rng = np.random.default_rng(13)
    n = 3000
    a, b = (rng.integers(0, 1 << 16, 2 * n, np.uint16) for _ in "ab")
    acc = rng.integers(0, 1 << 32, n, np.uint64).astype(np.uint32)
    low = np.arange(2 * n) % 4 < 2  # exponents that make products near the least normal number
    for x in (a, b):
        x[low] = (x[low] & 0x807F) | (rng.integers(60, 68, int(low.sum()), np.uint16) << 7)
    acc[::2] = (acc[::2] & 0x807FFFFF) | (rng.integers(0, 5, (n + 1) // 2).astype(np.uint32) << 23)
    edge = np.arange(2 * n) % 8 < 2  # products that end within a unit of 2**-126
    a[edge] = 0x3F7F
    b[edge] = 0x0080 | (rng.integers(0, 2, int(edge.sum()), np.uint16) << 15)
    acc[::4] = rng.integers(0, 3, len(acc[::4])).astype(np.uint32) | 0x80000000
    fa, fb = ((x.astype(np.uint32) << 16).view(np.float32) for x in (a, b))
    floats = acc.view(np.float32)
    bf16 = fmt("bf16").dtype
    met = instruction("vdpbf16ps")(floats, a.view(bf16), b.view(bf16))

    def daz(x: Any) -> Fraction:
        return Fraction(0) if abs(float(x)) < 2.0**-126 else Fraction(float(x))

    checked = 0
    for i in range(n):
        if not np.isfinite([floats[i], *fa[2 * i : 2 * i + 2], *fb[2 * i : 2 * i + 2]]).all():
            continue
        odd = f32_of(daz(fa[2 * i + 1]) * daz(fb[2 * i + 1]) + daz(floats[i]), True)
        if np.isinf(odd):
            continue
        assert float(met[i]) == f32_of(daz(fa[2 * i]) * daz(fb[2 * i]) + Fraction(odd), True), i
        checked += 1
    assert checked > n // 2


def test_fma_against_fractions() -> None:
    rng = np.random.default_rng(17)
    bits = rng.integers(0, 1 << 32, (3, 4000), np.uint64).astype(np.uint32)
    bits[:, ::2] = (bits[:, ::2] & 0x807FFFFF) | (rng.integers(100, 150, (3, 2000)).astype(np.uint32) << 23)
    bits[1:, ::3] &= 0xFFFFF000
    acc, a, b = bits.view(np.float32)
    met = instruction("vfmadd231ps")(acc, a, b)
    for i in range(bits.shape[1]):
        if np.isfinite([acc[i], a[i], b[i]]).all():
            exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(acc[i]))
            assert float(met[i]) == f32_of(exact, False), i


@pytest.mark.parametrize("exponent", [-149, -126, -30, 0, 100])
def test_fma_beside_the_middle_of_two_floats(exponent: int) -> None:
    """A product of half a unit but for its 46th digit: rounded to f64 first, the sum would be halfway."""
    rng, fma = np.random.default_rng(3), instruction("vfmadd231ps")
    a, b = 2.0 ** ((exponent - 1) // 2) * (1 + 2.0**-23), 2.0 ** (exponent // 2) * (1 - 2.0**-23)
    for units in (1, 3, *(int(n) * 2 + 1 for n in rng.integers(1 << 22, 1 << 23, 20)), 999):
        for sign, side in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
            acc = sign * units * 2.0**exponent
            (met,) = fma(*(np.array([x], np.float32) for x in (acc, side * a, b)))  # alone: lanes go together
            assert float(met) == f32_of(Fraction(acc) + side * Fraction(a) * Fraction(b), False), (units, sign, side)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: instruction("vpmadubsw"), "did you mean 'vpmaddubsw'"),
        (lambda: instruction("vpmaddubsw")([1, 2]), "takes 2 operands"),
        (lambda: instruction("vpmaddubsw")([1, 256], [1, 1]), "0 .. 255"),
        (lambda: instruction("vpmaddubsw")(np.ones(2, "i1"), np.ones(2, "i1")), "is u8"),
        (lambda: instruction("vpmaddubsw")([1, 2, 3], [1, 2, 3]), "3 lanes"),
        (lambda: instruction("vpmaddubsw")([1, 2], [1, 2, 3, 4]), "make 1 lane$"),
        (lambda: instruction("vpslld")([1, 2]), "missing: \\['imm'\\]"),
        (lambda: instruction("vpslld")([1, 2], imm=256), "0 to 255"),
        (lambda: instruction("vpslld")([1, 2], imm=1, count=1), "not known: \\['count'\\]"),
        (lambda: instruction("vpunpcklbw")([1, 2], [1, 2]), "whole registers"),
        (lambda: make("mine", "s32 s32", {}, "", lambda a: a), "mine: signature 's32 s32' of a function of \\(a\\)"),
        (lambda: make("mine", "s32 <- s32*x", {}, "", lambda a: a), "signature"),
        (lambda: make("mine", "s32 <- s32", {}, "", lambda a, b: a), "of a function of \\(a, b\\)"),
        (lambda: make("mine", "s32 <- f33", {}, "", lambda a: a), "did you mean 'f32'"),
        (lambda: define("mine", "s32 <- s32", {512: ("avx512_vnn",)}, "")(lambda a: a), "did you mean 'avx2_vnni'"),
        (lambda: make("mine", "s32 <- f32", {512: ()}, "", lambda a: a)([1.0]), "gives f32, its signature s32"),
    ],
)
def test_wrong_use_says_what_is_allowed(call: Any, message: str) -> None:
    with pytest.raises((InvalidArgument, UnknownName), match=message):
        call()


def test_vpalignr_by_every_immediate() -> None:
    """Sixteen bytes from the immediate on of the two blocks side by side, zeros behind them."""
    rng = np.random.default_rng(5)
    a, b = (rng.integers(1, 256, 64).astype(np.uint8) for _ in range(2))
    beside = np.concatenate([b.reshape(4, 16), a.reshape(4, 16), np.zeros((4, 256), np.uint8)], axis=1)
    for imm in range(256):
        found = instruction("vpalignr")(a, b, imm=imm)
        assert (found.reshape(4, 16) == beside[:, imm : imm + 16]).all(), imm


def test_leading_axes_and_byte_order() -> None:
    a = np.arange(2 * 3 * 8, dtype=np.uint8).reshape(2, 3, 8)
    b = np.ones((2, 3, 8), np.int8)
    met = instruction("vpmaddubsw")(a, b)
    assert met.shape == (2, 3, 4) and (met == a.reshape(2, 3, 4, 2).sum(axis=3)).all()
    swapped = np.array([1, -2], ">i4")
    assert instruction("vpaddd")(swapped, swapped).tolist() == [2, -4]
