"""How a DPAS stage might round: three candidate models. Intel publishes none; integers wrap in all.

The systolic array has eight stages. Each adds the products of one or two elements of K to a 32-bit accumulator
(DPAS.md); how often it rounds on the way is not said.
"""

from __future__ import annotations

from collections.abc import Callable

from isa_models.algebra import Value
from isa_models.rounding import round_to
from isa_models.roundoff import roundoff

Products = list[tuple[Value, Value]]


def sequential(acc: Value, products: Products) -> Value:
    """Each product and each sum rounded to f32, k ascending: what Intel's CM emulator does."""
    for a, b in products:
        acc = acc + a * b
    return acc


def pair_first(acc: Value, products: Products) -> Value:
    """The products of a stage summed exactly and rounded to f32, then added to the accumulator, rounded again."""
    if len(products) == 1:
        return sequential(acc, products)
    (a0, b0), (a1, b1) = products
    return acc + _round_odd_sum(_exact(a0, b0), _exact(a1, b1)).to("f32")


def stage_fused(acc: Value, products: Products) -> Value:
    """The accumulator and the products of a stage summed exactly, rounded to f32 once."""
    if len(products) == 1:
        return products[0][0].fma(products[0][1], acc)
    (a0, b0), (a1, b1) = products
    return _sum_of_three(acc.to("f64"), _exact(a0, b0), _exact(a1, b1)).to("f32")


#: name -> one stage: accumulator, products (f32 operands of at most 11 digits)
FLOAT_MODELS: dict[str, Callable[[Value, Products], Value]] = {
    "sequential": sequential,
    "stage_fused": stage_fused,
    "pair_first": pair_first,
}


def narrow(total: Value, dtype: str, model: str) -> Value:
    """The f32 sum in the result's type, rounded once to nearest even.

    The emulator, whose model `sequential` is, cuts a subnormal sum off on its way to bf16 instead.
    """
    if dtype == "f32":
        return total
    rounded = round_to(total, dtype)
    if model != "sequential" or dtype != "bf16":
        return rounded
    bits = total.view("u32")
    cut = (bits >> 16).to("u16")
    found = (bits & 0x7F800000).eq(0).where(cut, rounded.view("u16")).view("bf16")
    return found.step("round to bf16 (subnormals cut off)", lambda: [total], [roundoff("bf16")])


def _exact(a: Value, b: Value) -> Value:
    """The product, which f64 holds exactly."""
    return a.to("f64") * b.to("f64")


def _two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    """a + b rounded, and what the rounding left out (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _round_odd_sum(a: Value, b: Value) -> Value:
    """a + b of f64 rounded to odd, so that a later rounding to f32 is the only one that shows.

    Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", IEEE TC 57(4), 2008.
    """
    total, error = _two_sum(a, b)
    bits = total.view("u64")
    outward = (error > 0.0).where(bits.literal(1), bits.literal(0)).eq((total > 0.0).where(bits.literal(1), bits & 0))
    finite = (bits & 0x7FF0000000000000).ne(0x7FF0000000000000)
    inexact = error.ne(0.0) & finite & (bits & 1).eq(0)
    odd = inexact.where(outward.where(bits + 1, bits - 1), bits).view("f64")
    return odd.step("add, rounded to odd", lambda: [a, b], [roundoff("f64", directed=True)])


def _sum_of_three(acc: Value, p: Value, q: Value) -> Value:
    """acc + p + q of f64, rounded to odd: the algorithm `Add3` of the same paper with a last step in f64 as well."""
    high, low = _two_sum(p, q)
    total, rest = _two_sum(acc, high)
    careful = _round_odd_sum(total, _round_odd_sum(rest, low))
    plain = acc + high
    finite = (plain.view("u64") & 0x7FF0000000000000).ne(0x7FF0000000000000)
    total = finite.where(careful, plain)
    return total.step("add, rounded to odd", lambda: [acc, p, q], [roundoff("f64", directed=True)])
