"""Narrow floats (f8, f6, f4): what a problem of products tells of them beside its types, and how codes are decoded.

A code whose magnitude stands where a wider type has its lowest exponent bits and its highest mantissa bits is the value
but for the exponent's bias: one multiplication by a power of two makes up for that, and gives subnormals theirs, too.
All values are numbers of f16, and of f32.
"""

from __future__ import annotations

from dataclasses import dataclass

from isa_models.formats import Format, fmt
from simdnn.kernels.common.params import Param

#: floats of at most a byte that elements of a product may be
NARROW = ("f8_e4m3", "f8_e5m2", "f6_e2m3", "f6_e3m2", "f4_e2m1")
#: how scales of a destination are found: a power of two for 32 columns, or a float for 16
DYNAMIC = ("dynamic_mx", "dynamic_fp")


def is_narrow(dtype: str) -> bool:
    """Whether elements of a type are floats of at most a byte: those of `NARROW` and of formats that a user registers.

    >>> is_narrow("f6_e2m3"), is_narrow("s4"), is_narrow("bf16")
    (True, False, False)
    """
    return fmt(dtype).is_float and fmt(dtype).bits <= 8


@dataclass(frozen=True)
class Narrow:
    """Scales of a product in which the source, the weights or the destination are floats of at most a byte.

    Parameters.src_group_scale is (M or 1, parts of K), Parameters.wei_scale (parts of K, N or 1). `dynamic` finds
    scales of the destination, one for each row and `columns`; they come out beside it.
    """

    src: Param | None = None
    wei: Param | None = None
    dynamic: str = ""
    columns: int = 0
    reference: bool = False  # as oneDNN's reference does: through f16, scales of each product, no saturation

    def __str__(self) -> str:
        given = [str(param) for param in (self.src, self.wei) if param]
        return ", ".join([*given, *([f"{self.dynamic} {self.columns}"] if self.dynamic else [])])


@dataclass(frozen=True)
class Fields:
    """A narrow float's fields in those of a wider one.

    >>> from isa_models.formats import fmt
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
    def to_above(self) -> int:
        """The number that, added to the magnitude of a code of infinity or NaN, sets the bit above the exponent."""
        ones = (1 << self.form.exponent_bits + self.form.mantissa_bits) - 1
        return (ones - self.form.greatest_code) * self.step

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
