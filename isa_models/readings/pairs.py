"""Sums of products of bytes as sums of pairs, in LLVM's text: what it makes one multiply-add of words of (PMADDWD).

Of four neighbouring bytes the first and the third lie in the lower halves of words, the others in the upper halves. So
words hold them as neighbours after a shift, a product of two of them is one of words, and two such products are added
to each other before the rest of the sum. LLVM's own way to every fourth byte is some instructions for each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isa_models.readings.llvm import LlvmValue

_LOW_BYTES = 0x00FF00FF


@dataclass(frozen=True)
class WordHalf:
    """One of two neighbouring words, or the product of two: the words' names, and which of each two."""

    words: tuple[str, ...]
    odd: bool

    @property
    def partner(self) -> WordHalf:
        """The other one of the two."""
        return replace(self, odd=not self.odd)

    def times(self, other: WordHalf | None) -> WordHalf | None:
        """The product's, where the other factor stands at the same place."""
        return WordHalf((*self.words, *other.words), self.odd) if other and other.odd == self.odd else None


def quarters(value: LlvmValue) -> list[LlvmValue]:
    """Bytes 0, 1, 2 and 3 of each four, as s16."""
    if value.format.signed:
        words = value.view("s16")
        low, high = (words << 8) >> 8, words >> 8
    else:
        low, high = ((value.view("u32") >> by & _LOW_BYTES).view("s16") for by in (0, 8))
    found = []
    for odd in (False, True):
        for words in (low, high):
            part = words.permute(range(odd, words.lanes, 2), here=True)
            part.half = WordHalf((words.name,), odd)
            found.append(part)
    return found


def added(total: LlvmValue, product: LlvmValue) -> LlvmValue:
    """A sum with one more product, to which its partner is added first where the sum has that already."""
    assert product.half
    rest, alone = total.addends or (total, {})
    partner = alone.get(product.half.partner)
    if partner:
        rest = rest.plus(partner.plus(product))
        alone = {half: other for half, other in alone.items() if other is not partner}
    else:
        alone = {**alone, product.half: product}
    result = rest
    for other in alone.values():
        result = result.plus(other)
    result.addends = rest, alone
    return result
