"""Dot products of bytes, compiled from their functions alone: multiply-adds of words, two products at a time."""

import re

import llvmlite.binding as llvm
import numpy as np
import pytest

from isa_models import instruction
from isa_models.host import machine_code
from isa_models.isa import host_caps
from isa_models.readings.llvm import Emitter, LlvmValue
from simdnn import numerics
from simdnn.program import Loop, Memory, Op, Program, Register, Tensor
from simdnn.program.records import Affine


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


def test_pairs_fill_no_whole_number_of_halves() -> None:
    """Of 48 lanes: three of the widest registers."""
    words, place = Register("r", "s32", 48), Memory("x", Affine(), "s32", 48)
    dot = Op("dp4a.s8.u8.s32", words, (words, words.as_("s8"), words.as_("u8")))
    code = Op("load.s32", words, (place,)), dot, Op("store.s32", Memory("y", Affine(), "s32", 48), (words,))
    tensors = Tensor("x", "s32", 48), Tensor("y", "s32", 48, "output")
    program = Program("pairs", "xe_lp", tensors, (Loop("i", 1, code),))
    given = {"x": np.arange(48, dtype=np.int32) * 0x01FD8103}
    wanted, met = (numerics.run(program, given, engine=engine)["y"] for engine in ("reference", "compiled"))
    assert met.any() and met.tobytes() == wanted.tobytes()
