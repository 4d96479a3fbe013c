"""LLVM text of moves between a register and its first lanes in memory, which a mask tells: one instruction of AVX-512.

A vector of as many lanes as a place has would be moved in parts: of 15 words eight, four, two and one, which are put
together besides. Two parts are as fast as a mask or faster.
"""

from __future__ import annotations

from isa_models.isa import host_caps
from isa_models.readings.llvm import ZERO, Emitter, LlvmValue, vector_type
from simdnn.program.records import Memory

_CAP = "avx512_core"
_PARTS = 3  # that a mask is faster than


def is_part(memory: Memory, lanes: int) -> bool:
    """Whether a place takes some parts of a register of `lanes`, and the host has masks."""
    whole = memory.bits // memory.lanes * lanes
    fits = memory.lanes < lanes and whole in (128, 256, 512) and memory.rows == 1
    return fits and memory.bits.bit_count() >= _PARTS and _CAP in host_caps()


def masked_load(emitter: Emitter, dtype: str, lanes: int, count: int, address: str) -> str:
    """An expression: `count` lanes from memory, and zeros up to `lanes`."""
    kind = vector_type(dtype, lanes)
    function = f"llvm.masked.load.{_suffix(kind)}.p0"
    emitter.declarations[f"declare {kind} @{function}(ptr, i32, <{lanes} x i1>, {kind})"] = None
    return f"call {kind} @{function}(ptr {address}, i32 1, {_mask(lanes, count)}, {kind} {ZERO})"


def masked_store(emitter: Emitter, value: LlvmValue, count: int, address: str) -> str:
    """A line: the first `count` lanes of a value to memory."""
    function = f"llvm.masked.store.{_suffix(value.type)}.p0"
    emitter.declarations[f"declare void @{function}({value.type}, ptr, i32, <{value.lanes} x i1>)"] = None
    operands = f"{value.type} {value.name}, ptr {address}, i32 1, {_mask(value.lanes, count)}"
    return f"call void @{function}({operands})"


def _suffix(kind: str) -> str:
    """A vector's type in the name of an intrinsic.

    >>> _suffix("<16 x float>"), _suffix("<32 x i16>")
    ('v16f32', 'v32i16')
    """
    lanes, _, lane = kind.strip("<>").split()
    return f"v{lanes}{ {'float': 'f32', 'double': 'f64'}.get(lane, lane) }"


def _mask(lanes: int, count: int) -> str:
    ones = ", ".join(f"i1 {'true' if lane < count else 'false'}" for lane in range(lanes))
    return f"<{lanes} x i1> <{ones}>"
