"""Tile instructions in LLVM: the host's own where it has them all, and functions over tiles in memory elsewhere.

Rows do not know each other, so an instruction's function is applied to two rows at a time, which share what they load
of `b`. The first ones are emitted by themselves and the others as a loop: what depends on `b` alone is then computed
once, before the loop.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from isa_models import Instruction, instruction
from isa_models.formats import fmt
from isa_models.host.machine_code import LinkedFunction
from isa_models.instruction import TILE_ROW_BITS, TILE_ROWS
from isa_models.readings.llvm import Carried, Condition, Emitter, LlvmValue, vector_type
from simdnn.numerics.operand_addresses import OperandAddresses
from simdnn.program.records import Memory, Op, Program, Register, Statement, walk

BITS = TILE_ROWS * TILE_ROW_BITS  # of a whole tile
_ROW_BYTES = TILE_ROW_BITS // 8
_ROWS = {1: "row", 2: "two", 3: "odd", 4: "even"}
COPY = f"""define internal void @tile.copy(ptr %to, i64 %to.stride, ptr %from, i64 %from.stride, i64 %rows) nounwind {{
entry:
  br label %row
row:
  %i = phi i64 [ 0, %entry ], [ %next, %row ]
  %at = mul i64 %i, %from.stride
  %source = getelementptr i8, ptr %from, i64 %at
  %bits = load <{_ROW_BYTES} x i8>, ptr %source, align 1
  %to.at = mul i64 %i, %to.stride
  %target = getelementptr i8, ptr %to, i64 %to.at
  store <{_ROW_BYTES} x i8> %bits, ptr %target, align 1
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %rows
  br i1 %more, label %row, label %done
done:
  ret void
}}"""


@functools.cache
def dot_function(
    mnemonic: str, choices: tuple[tuple[str, str], ...], rows: int, optimistic: bool, checked: tuple[str, ...] = ()
) -> tuple[LinkedFunction, tuple[Condition, ...]]:
    """`i1 @name(ptr acc, ptr a, ptr b, i64 rows)`, true for an alarm: a dot product with its choices, for one row (1),
    two (2), or for more that are odd (3) or even (4) in number. With it what it leaves to others to look at: of the
    operands `checked`, all elements.
    """
    how = "optimistic" if optimistic else "careful"
    name = ".".join([mnemonic, *(value for _, value in choices), _ROWS[rows], how, *checked])
    definition, emit = instruction(mnemonic), Emitter(optimistic)
    emit.places = []  # units that load have time to spread lanes, those that shuffle have not
    acc, a, b = definition.operands
    emit.sources = {operand.name: fmt(operand.dtype).bits for operand in (a, b) if operand.name in checked}
    second = _load(emit, "%b", b.dtype, b.count)
    second.source = b.name

    def some(number: str, count: int) -> Carried:
        offset = emit.value(f"mul i64 {number}, {_ROW_BYTES}")
        places = [emit.value(f"getelementptr i8, ptr %{p}, i64 {offset}") for p in ("acc", "a")]
        first = [
            _load(emit, place, operand.dtype, count * Instruction.row_lanes(operand.dtype))
            for place, operand in zip(places, (acc, a), strict=True)
        ]
        first[1].source = a.name
        result = definition.apply(*first, second, lanes=first[0].lanes, **dict(choices))
        emit.line(f"store {result.type} {result.name}, ptr {places[0]}, align 64")
        return []

    def two(number: str) -> Carried:
        return some(emit.value(f"add i64 {emit.value(f'mul i64 {number}, 2')}, {ahead}"), 2)

    ahead = 2 - rows % 2
    some("0", ahead)
    if rows > 2:
        emit.loop("0", emit.value(f"lshr i64 {emit.value(f'sub i64 %rows, {ahead}')}, 1"), two)
    emit.line(f"ret i1 {emit.alarms.finish() if emit.alarms else 'false'}")
    parameters = ("ptr noalias %acc", "ptr noalias %a", "ptr noalias %b", "i64 %rows")
    function = LinkedFunction(name, "i1", parameters, (*emit.places, *emit.lines), tuple(emit.declarations))
    return function, tuple(emit.asked)


def portable(
    emit: Emitter,
    op: Op,
    places: OperandAddresses,
    variables: dict[str, str],
    functions: dict[str, LinkedFunction],
    optimistic: bool,
    sources: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """An instruction over tiles that are in memory on the stack, by their names, their rows one behind the other; what
    it calls goes to `functions`. The name of its alarm, or none. `sources`: the tensor that a tile's elements are from.
    """
    if op.is_zero_idiom:
        assert isinstance(op.dst, Register)
        emit.declarations["declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"] = None
        size = op.rows * _ROW_BYTES
        emit.line(f"call void @llvm.memset.p0.i64(ptr align 64 %{op.dst.name}, i8 0, i64 {size}, i1 false)")
        return ""
    if op.definition.moves:
        ends = []
        for place in (op.dst, op.srcs[0]):
            if isinstance(place, Register):
                ends.append(f"ptr %{place.name}, i64 {_ROW_BYTES}")
            else:
                ends.append(f"ptr {places.address(place, variables)}, i64 {places.stride(place)}")
        emit.line(f"call void @tile.copy({', '.join(ends)}, i64 {op.rows})")
        return ""
    rows = op.rows if op.rows <= 2 else 4 - op.rows % 2
    _, *factors = [place.name for place in op.srcs if isinstance(place, Register)]
    own = {name: sources.get(tile, "") for name, tile in zip("ab", factors, strict=True)}
    checked = tuple(name for name, tensor in own.items() if tensor in emit.sources)
    dot, conditions = dot_function(op.instruction, op.choices, rows, optimistic, checked)
    emit.asked |= {condition._replace(source=own[condition.source]): None for condition in conditions}
    functions[dot.name] = dot
    pointers = ", ".join(f"ptr %{place.name}" for place in op.srcs if isinstance(place, Register))
    alarm = emit.name()
    emit.line(f"{alarm} = call i1 @{dot.name}({pointers}, i64 {op.rows})")
    return alarm


def is_native(body: Sequence[Statement], caps: frozenset[str]) -> bool:
    """Whether there are tile instructions, and the host has all of them and does what their choices say: the first of
    each is the hardware's.
    """
    ops = [op for op, _ in walk(body) if op.definition.tile]
    return bool(ops) and all(
        any(caps.intersection(names) for names in op.definition.caps.values())
        and all(value == op.definition.choices[name][0] for name, value in op.choices)
        for op in ops
    )


def shapes(program: Program, before: Statement) -> str:
    """The constant from which the tiles of a top-level statement are configured: that of the last `ldtilecfg`."""
    found = ""
    for statement in program.body:
        if statement is before:
            break
        if isinstance(statement, Op) and statement.definition.configures and isinstance(statement.srcs[0], Memory):
            found = statement.srcs[0].tensor
    return found


def configure(shapes: str) -> str:
    """The host's tiles set up from 64 bytes at the pointer `shapes`, for the thread that runs the code."""
    return f'call void asm sideeffect "ldtilecfg ($0)", "r,~{{memory}}"(ptr {shapes})'


RELEASE = 'call void asm sideeffect "tilerelease", ""()'


def native(op: Op, address: str = "", offset: int = 0, stride: int = 0) -> str:
    """The host's own instruction. LLVM leaves tile registers alone, so each of the program's is the host's.

    A memory operand's rows stand `stride` bytes apart, the first one `offset` bytes behind the pointer `address`.
    """
    places = dict.fromkeys([op.dst] if op.is_zero_idiom else [op.dst, *op.srcs])  # an accumulator once
    names = [f"%{p.name}" if isinstance(p, Register) else f"{offset}($0,$1)" for p in places]
    text = f"{op.instruction} {', '.join(reversed(names))}"  # AT&T order
    if op.memory is None:
        return f'call void asm sideeffect "{text}", ""()'
    return f'call void asm sideeffect "{text}", "r,r,~{{memory}}"(ptr {address}, i64 {stride})'


def _load(emit: Emitter, place: str, dtype: str, lanes: int) -> LlvmValue:
    name = emit.name()
    emit.line(f"{name} = load {vector_type(dtype, lanes)}, ptr {place}, align 64")
    return LlvmValue(emit, name, dtype, lanes)
