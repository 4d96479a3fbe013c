"""Where the memory operands of a stage's instructions lie: LLVM text of their addresses."""

from __future__ import annotations

from isa_models.readings.llvm import Emitter
from simdnn.program.records import Memory, Program


class OperandAddresses:
    """The tensors of a program by the pointers that a stage is given, `%pointers`."""

    def __init__(self, emitter: Emitter, program: Program) -> None:
        self.emitter, self.program = emitter, program
        self.pointers: dict[str, str] = {}
        for i, tensor in enumerate(program.tensors):
            slot = emitter.value(f"getelementptr ptr, ptr %pointers, i64 {i}")
            self.pointers[tensor.name] = emitter.name("p")
            emitter.line(f"{self.pointers[tensor.name]} = load ptr, ptr {slot}")

    def stride(self, memory: Memory) -> int:
        """Bytes from one row of a tile's memory operand to the next."""
        return memory.stride * self.program.tensor[memory.tensor].element_bytes

    def base(self, memory: Memory, variables: dict[str, str]) -> tuple[str, int]:
        """A pointer for the part of an address that varies, and the bytes of the constant part."""
        emit, size = self.emitter, self.program.tensor[memory.tensor].element_bytes
        base = self.pointers[memory.tensor]
        for name, coefficient in memory.index.terms:
            offset = emit.value(f"mul nsw i64 {variables[name]}, {coefficient * size}")
            base = emit.value(f"getelementptr inbounds i8, ptr {base}, i64 {offset}")
        return base, memory.index.const * size

    def address(self, memory: Memory, variables: dict[str, str]) -> str:
        base, offset = self.base(memory, variables)
        return self.emitter.value(f"getelementptr inbounds i8, ptr {base}, i64 {offset}")
