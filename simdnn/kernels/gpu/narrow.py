"""Codes of floats of at most a byte in the fields of a wider float: what both vendors' kernels decode by.

A code whose magnitude stands where the wider type has its lowest exponent bits and its highest mantissa bits is the
value but for the exponent's bias: one multiplication by a power of two makes up for that, and gives subnormals theirs,
too. All values are numbers of f16, and of f32.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isa_models.formats import Format, fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.narrow import NARROW


@dataclass(frozen=True)
class Fields:
    """A narrow float's fields in those of a wider one.

    >>> f = Fields(fmt("f8_e4m3"), fmt("f16"))
    >>> f.spare, hex(f.sign), hex(f.magnitude), hex(f.step), hex(f.above), hex(f.factor)
    (1, '0x8000', '0x3f80', '0x80', '0x4000', '0x5c00')
    """

    form: Format
    wide: Format

    @property
    def spare(self) -> int:
        """Bits that the wider exponent has more."""
        return self.wide.exponent_bits - self.form.exponent_bits

    @property
    def sign(self) -> int:
        return 1 << (self.wide.bits - 1)

    @property
    def magnitude(self) -> int:
        """All bits of exponent and mantissa."""
        return ((1 << self.form.exponent_bits + self.form.mantissa_bits) - 1) * self.step

    @property
    def step(self) -> int:
        """The last bit of the mantissa."""
        return 1 << (self.wide.mantissa_bits - self.form.mantissa_bits)

    @property
    def above(self) -> int:
        """The bit above the exponent."""
        return 1 << (self.wide.mantissa_bits + self.form.exponent_bits)

    @property
    def greatest(self) -> int:
        """The greatest finite magnitude; NaN and infinity lie beyond."""
        return self.form.greatest_code * self.step

    @property
    def special(self) -> bool:
        """Whether the wider type would read a number where this one has NaN, or infinity."""
        return self.form.nan and bool(self.spare)

    @property
    def infinity(self) -> int:
        """The wider type's, which makes NaN of a code of NaN when its bits are set."""
        return ((1 << self.wide.exponent_bits) - 1) << self.wide.mantissa_bits

    @property
    def factor(self) -> int:
        """The bits of the power of two that makes up for the bias; 0 where there is nothing to make up for."""
        rebias = self.wide.bias - self.form.bias
        return (rebias + self.wide.bias) << self.wide.mantissa_bits if rebias else 0


def codes_type(dtype: str) -> str:
    """The integers that stored elements lie in memory as: codes of floats one a byte, or two.

    >>> codes_type("f6_e3m2"), codes_type("f4_e2m1"), codes_type("s8")
    ('u8', 'u4', 's8')
    """
    if dtype not in NARROW:
        return dtype
    return "u4" if fmt(dtype).bits == 4 else "u8"


def integers(elements: Array, dtype: str) -> Array:
    """Stored elements as words: integers by their values, narrow floats by their codes."""
    return (elements.view(np.uint8) if dtype in NARROW else elements).astype(np.int16)
