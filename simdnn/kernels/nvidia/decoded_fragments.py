"""Weights stored as floats of at most a byte, decoded on CUDA cores by arithmetic (`kernels.common.narrow_floats`).

A word holds four or eight codes, each at the top of its field. Shifted left by whole fields it has one at the top of
each half, or of the word; a shift to the right by the bits that the wider exponent has more brings the magnitude to its
place, and two logical operations put it below the sign. f16 are two in a register, as everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from isa_models.formats import fmt
from isa_models.readings.arrays import Array
from simdnn.kernels.common.code import Code
from simdnn.kernels.common.epilogue import Parameters
from simdnn.kernels.common.narrow_floats import Fields
from simdnn.kernels.gpu.stored_codes import integers
from simdnn.kernels.nvidia.stored import StoredFragments
from simdnn.program.records import Register


@dataclass(frozen=True)
class DecodedFragments(StoredFragments):
    """Weights kept as words of codes of narrow floats: their values, times their scale."""

    def floats(self, words: Register, wide: Register, number: int) -> Code:
        f, each = Fields(fmt(self.stored), fmt(wide.dtype)), self.side.each
        x = wide.as_("u32")
        magnitude, nan = (Register(name, "u32", x.lanes) for name in ("magnitude", "nan"))
        code: Code = [each(f"shl.b32.x{x.lanes // words.lanes}", x, words, imm=self.bits)]
        if not f.spare:
            return [*code, each("and.b32.imm", x, x, imm=in_word(f, f.sign | f.magnitude))]
        code += [
            each("ptx_shr.u32", magnitude, x, imm=f.spare),
            each("and.b32.imm", magnitude, magnitude, imm=in_word(f, f.magnitude)),
        ]
        if f.special and wide.dtype == "f32":
            code.append(each("set.gt.u32.f32.imm", nan, magnitude.as_("f32"), imm=f.greatest))
        code.append(each("lop3.b32.join", x, x, magnitude, imm=in_word(f, f.sign)))
        if f.special and wide.dtype == "f16":  # a step more than the greatest sets the bit above the exponent
            code.append(each("ptx_add.u32.imm", nan, x, imm=in_word(f, f.step)))
        if f.special:
            beyond = f.above if wide.dtype == "f16" else f.infinity
            code.append(each("lop3.b32.join", x, nan, x, imm=in_word(f, beyond)))
        return [*code, each(f"mul.rn.{wide.dtype}.imm", wide, wide, imm=f.factor)]

    def arrays(self, src: Array, weights: Array, parameters: Parameters) -> dict[str, Array]:
        codes = integers(weights, self.stored) << self.bits - fmt(self.stored).bits
        words = self.packed(self.side.steps.filled(codes.T), self.shifts)
        return {"wei": words} | self.scales(parameters)

    @property
    def shifts(self) -> tuple[int, ...]:
        """Where the elements of a word stand, so that they leave it in their order."""
        width, fields = fmt(self.scale_type).bits, range(fmt(self.scale_type).bits // self.bits)
        return tuple(half + width - self.bits * (turn + 1) for turn in fields for half in range(0, 32, width))


def in_word(fields: Fields, bits: int) -> int:
    """A lane's bits as a word of 32: of lanes of 16 bits both halves have them."""
    return bits if fields.wide.bits == 32 else bits << 16 | bits
