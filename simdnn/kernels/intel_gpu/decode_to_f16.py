"""Codes of floats of at most a byte in 16-bit lanes, made f16 by arithmetic (`simdnn.kernels.common.narrow_floats`)."""

from __future__ import annotations

from isa_models.formats import fmt
from simdnn.kernels.common.code import Code, op
from simdnn.kernels.common.narrow_floats import Fields
from simdnn.program.records import Register


def to_f16(codes: Register, dtype: str) -> Code:
    """Codes in the lowest bits of words, as f16 in their place; scratch: nan.

    A code goes to the top of its lane, and back by its sign as many bits as f16 has more in its exponent.
    """
    f, x = Fields(fmt(dtype), fmt("f16")), codes.as_("u16")
    code: Code = [op("shl.u16", x, x, imm=16 - f.form.bits)]
    if f.spare:
        back = op("asr.s16", x.as_("s16"), x.as_("s16"), imm=f.spare)
        code += [back, op("and.u16.imm", x, x, imm=f.sign | f.magnitude)]
    if f.special:  # NaN is the one code behind the greatest: a step more sets the bit above the exponent
        nan = Register("nan", "u16", x.lanes)
        code += [
            op("add.u16.imm", nan, x, imm=f.step),
            op("and.u16.imm", nan, nan, imm=f.above),
            op("or.u16", x, x, nan),
        ]
    return [*code, *([op("mul.f16.imm", x.as_("f16"), x.as_("f16"), imm=f.factor)] if f.factor else [])]
