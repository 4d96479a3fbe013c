"""Sums of products of words that stand in pairs, in LLVM's text: one multiply-add of x86 each (PMADDWD).

Of four neighbouring bytes the first and the third lie in the lower halves of words, the others in the upper halves. So
words hold them as neighbours after a shift, a product of two of them is one of words, and two such products are added
to each other before the rest of the sum. LLVM's own way to every fourth byte is some instructions for each, and whether
it finds the pairs depends on what else it knows of the words, as that all are alike.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from isa_models.isa import host_caps

if TYPE_CHECKING:
    from isa_models.readings.llvm import LlvmValue

_LOW_BYTES = 0x00FF00FF
_MULTIPLY_ADDS = (
    ("avx512_core", 512, "llvm.x86.avx512.pmaddw.d.512"),
    ("avx2", 256, "llvm.x86.avx2.pmadd.wd"),
    ("sse41", 128, "llvm.x86.sse2.pmadd.wd"),
)


@dataclass(frozen=True)
class WordHalf:
    """One of two neighbouring words, or the product of two: the words' names, and which of each two."""

    words: tuple[str, ...]
    odd: bool
    values: tuple[LlvmValue, ...] = field(compare=False)  # of these names

    @property
    def partner(self) -> WordHalf:
        """The other one of the two."""
        return replace(self, odd=not self.odd)

    def times(self, other: WordHalf | None) -> WordHalf | None:
        """The product's, where the other factor stands at the same place."""
        if not other or other.odd != self.odd:
            return None
        return WordHalf((*self.words, *other.words), self.odd, (*self.values, *other.values))


def halves(words: LlvmValue) -> list[LlvmValue]:
    """The first and the second of each two words (s16)."""
    found = []
    for odd in (False, True):
        part = words.permute(range(odd, words.lanes, 2), here=True)
        part.half = WordHalf((words.name,), odd, (words,))
        found.append(part)
    return found


def quarters(value: LlvmValue) -> list[LlvmValue]:
    """Bytes 0, 1, 2 and 3 of each four, as s16."""
    if value.format.signed:
        words = value.view("s16")
        low, high = (words << 8) >> 8, words >> 8
    else:
        low, high = ((value.view("u32") >> by & _LOW_BYTES).view("s16") for by in (0, 8))
    return [part for both in zip(halves(low), halves(high), strict=True) for part in both]


def added(total: LlvmValue, product: LlvmValue) -> LlvmValue:
    """A sum with one more product, to which its partner is added first where the sum has that already."""
    assert product.half
    if total.half == product.half.partner:
        return _both(total, product)
    rest, alone = total.addends or (total, {})
    partner = alone.get(product.half.partner)
    if partner:
        rest = rest.plus(_both(partner, product))
        alone = {half: other for half, other in alone.items() if other is not partner}
    else:
        alone = {**alone, product.half: product}
    result = rest
    for other in alone.values():
        result = result.plus(other)
    result.addends = rest, alone
    return result


def _both(one: LlvmValue, other: LlvmValue) -> LlvmValue:
    """The sum of the products of the first and of the second of each two words."""
    assert other.half
    bits = 32 * other.lanes
    width, name = next(((w, n) for w, n in _multiply_adds() if w <= bits), (0, ""))
    if not width or bits.bit_count() > 1 or other.format.bits != 32 or len(other.half.values) != 2:
        return one.plus(other)
    parts, emit = bits // width, other.emitter
    kind, words = f"<{width // 32} x i32>", f"<{width // 16} x i16>"
    made = []
    for number in range(parts):
        factors = [(words, value.view("s16").part(number, parts).name) for value in other.half.values]
        made.append(other.like(emit.call(kind, name, *factors), width // 32))
    while len(made) > 1:
        made = [low.concat(high) for low, high in zip(made[::2], made[1::2], strict=True)]
    return made[0]


@functools.cache
def _multiply_adds() -> list[tuple[int, str]]:
    """The widths at which this host has the instruction, the greatest first, and what LLVM calls it."""
    return [(width, name) for cap, width, name in _MULTIPLY_ADDS if cap in host_caps()]
