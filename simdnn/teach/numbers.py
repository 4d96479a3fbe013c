"""Numbers with their bits, as the page shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.explanations.steps import text_of


@dataclass(frozen=True)
class Number:
    """A lane: its text, its type, and its bits from the highest in parts: sign, exponent, mantissa, or integer."""

    text: str
    dtype: str
    bits: tuple[tuple[str, str], ...]

    @property
    def digits(self) -> str:
        """All bits without a gap."""
        return "".join(digits for _, digits in self.bits)


def number(value: Any, dtype: str) -> Number:
    """The lane that `value`, a number of type `dtype`, is.

    >>> number(-3, "s8").bits
    (('sign', '1'), ('integer', '1111101'))
    >>> number(1.5, "bf16").bits
    (('sign', '0'), ('exponent', '01111111'), ('mantissa', '1000000'))
    """
    form = fmt(dtype)
    if not form.is_float:
        whole = int(value)
        digits = f"{whole & (1 << form.bits) - 1:0{form.bits}b}"
        signed = form.signed and form.bits > 1
        whole_bits = (("sign", digits[:1]), ("integer", digits[1:])) if signed else (("integer", digits),)
        return Number(str(whole), dtype, whole_bits)
    held = np.asarray(value).astype(form.dtype)
    digits = f"{int(held.view(f'u{held.itemsize}')):0{8 * held.itemsize}b}"
    exponent = 1 + form.exponent_bits
    parts = (("sign", digits[:1]), ("exponent", digits[1:exponent]), ("mantissa", digits[exponent:]))
    return Number(text_of(float(held), dtype), dtype, parts)


def numbers(lanes: Array, dtype: str) -> tuple[Number, ...]:
    """Each lane of an array."""
    return tuple(number(lane, dtype) for lane in lanes)


def short(lanes: Array, dtype: str, most: int) -> str:
    """The first lanes as text, with a mark where there are more."""
    form = fmt(dtype)
    texts = [text_of(float(x), dtype) if form.is_float else str(int(x)) for x in lanes[:most]]
    return " ".join(texts) + (" …" if len(lanes) > most else "")
