"""The host's own instructions as lowerings of instructions' functions, as one line of assembly each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from isa_models import Instruction
from isa_models.formats import fmt
from isa_models.llvm import Emitter, LlvmValue, vector_type


def native_call(
    emitter: Emitter,
    definition: Instruction,
    width: int,
    lanes: int,
    operands: Sequence[LlvmValue],
    immediates: Mapping[str, int],
) -> LlvmValue | None:
    """The instruction itself over the operands, or None where its registers are not xmm, ymm or zmm whole.

    Assembly, not an intrinsic: LLVM may swap the factors of an intrinsic, and then another NaN comes out.
    """
    result_bits = lanes * fmt(definition.result).bits
    if any(v.lanes * v.format.bits not in (128, 256, 512) for v in operands) or result_bits not in (128, 256, 512):
        return None
    sources = operands[1:] if definition.accumulates else operands
    first = 2 if definition.accumulates else 1  # $0 is the result, and $1 the accumulator tied to it
    names = [f"${first + i}" for i in range(len(sources))]
    literals = [f"$${immediates[name]}" for name in definition.immediates]
    text = f"{definition.mnemonic(width)} {', '.join([*reversed(literals), *reversed(names), '$0'])}"  # AT&T order
    constraints = ",".join(["=v", *(["0"] if definition.accumulates else []), *("v" for _ in sources)])
    arguments = ", ".join(f"{v.type} {v.name}" for v in operands)
    result_type = vector_type(definition.result, lanes)
    name = emitter.value(f'call {result_type} asm "{text}", "{constraints}"({arguments})')
    return LlvmValue(emitter, name, definition.result, lanes)
