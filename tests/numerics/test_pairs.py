"""Dot products of bytes, compiled from their functions alone: multiply-adds of words, two products at a time."""

import re

import llvmlite.binding as llvm
import pytest

from isa_models import instruction
from isa_models.host import machine_code
from isa_models.isa import host_caps
from isa_models.readings.llvm import Emitter, LlvmValue


@pytest.mark.parametrize("name", ["vpdpbusd", "vpdpbssd", "vpdpbuud", "vpdpbsud"])
def test_pairs_of_products_are_one_instruction(name: str) -> None:
    if "avx2" not in host_caps():
        pytest.skip("this CPU has no vpmaddwd of 256 bits")
    emit = Emitter()
    definition = instruction(name)
    values = []
    for number, operand in enumerate(definition.operands):
        lanes = definition.operand_lanes(operand, 8)
        kind = LlvmValue(emit, "", operand.dtype, lanes).type
        emit.line(f"%o{number} = load {kind}, ptr %p{number}")
        values.append(LlvmValue(emit, f"%o{number}", operand.dtype, lanes))
    result = definition.apply(*values, lanes=8)
    emit.line(f"store {result.type} {result.name}, ptr %p0")
    emit.line("ret void")
    function = machine_code.LinkedFunction("f", "void", ("ptr %p0", "ptr %p1", "ptr %p2"), tuple(emit.lines), ())
    module = llvm.parse_assembly(function.definition, llvm.create_context())
    text = machine_code._machine(False).emit_assembly(module)
    assert len(re.findall(r"\bv(?:pmaddwd|pdpwssd)\b", text)) == 2
    assert not re.findall(r"\bvpmulld\b", text)
