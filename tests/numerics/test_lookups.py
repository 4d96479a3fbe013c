"""Lanes at places that vary, in LLVM: one call, whose function is there once, however many lanes there are."""

from __future__ import annotations

import pytest

from isa_models import instruction
from isa_models.readings.llvm import Emitter, LlvmValue


@pytest.mark.parametrize("name", ["vpermt2ps", "vpermw", "vpermb"])
def test_a_table_is_looked_up_by_one_call(name: str) -> None:
    emit, definition = Emitter(), instruction(name)
    lanes = definition.lanes(512)
    for turn in range(2):
        counts = [(o, definition.operand_lanes(o, lanes)) for o in definition.operands]
        definition.apply(*(LlvmValue(emit, f"%{o.name}{turn}", o.dtype, n) for o, n in counts), lanes=lanes)
    assert sum("call" in line for line in emit.lines) == 2 and not any("element" in line for line in emit.lines)
    assert len(emit.declarations) == 1
