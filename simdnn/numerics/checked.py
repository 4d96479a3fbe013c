"""Conditions of optimistic code on the elements of a tensor, asked once ahead of the stages that read it.

An element that goes into many products would be looked at in each, as all lanes of a register where it is broadcast.
So where a program fills several times as many lanes from a tensor as that has elements, conditions (`Value.meets`)
become a stage of their own, over all elements. One that no product reads may then sound the alarm in vain: the careful
code gives the same bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from isa_models.formats import fmt
from isa_models.readings.llvm import Carried, Condition, Emitter, LlvmValue, vector_type
from simdnn.numerics.statements import writers
from simdnn.program.records import Memory, Program, Statement, walk

_OFTEN = 2  # lanes that a program fills from an element for it to be looked at ahead, more than
_BITS = 512  # that are looked at together


def read_often(program: Program) -> dict[str, int]:
    """The tensors that a program fills several times as many lanes from, and the bits of an element of each; not those
    that a stage stores to which reads them, or comes behind one that does.
    """
    read: Counter[str] = Counter()
    known: set[str] = set()  # read by then
    late: set[str] = set()  # stored to later
    for statement in program.body:
        for op, times in walk((statement,)):
            for place in op.srcs:
                if isinstance(place, Memory):
                    read[place.tensor] += times * max(place.bits, op.width) // 8
        known |= read.keys()
        late |= {op.dst.tensor for op, _ in walk((statement,)) if isinstance(op.dst, Memory)} & known
    often = [tensor for tensor in program.tensors if read[tensor.name] > _OFTEN * tensor.nbytes]
    return {tensor.name: fmt(tensor.dtype).bits for tensor in often if tensor.name not in late}


def tile_sources(body: Sequence[Statement]) -> dict[str, str]:
    """The tensor that all of a tile register's rows are ever loaded from, of those that one is."""
    loaded: dict[str, set[str]] = {}
    for name, ops in writers(body).items():
        if ops[0].definition.tile and not ops[0].is_zero_idiom:
            loaded[name] = {op.srcs[0].tensor if isinstance(op.srcs[0], Memory) else "" for op in ops}
    return {name: tensors.pop() for name, tensors in loaded.items() if len(tensors) == 1}


def checks(program: Program, asked: Iterable[Condition], known: set[Condition], name: str) -> list[CheckStage]:
    """A stage for each tensor with a condition that is not `known`; `known` has them all then."""
    fresh = dict.fromkeys(condition for condition in asked if condition not in known)
    known.update(fresh)
    sources = dict.fromkeys(condition.source for condition in fresh)
    asked_of = {source: [one for one in fresh if one.source == source] for source in sources}
    return [CheckStage(program, f"{name}{i}", *item) for i, item in enumerate(asked_of.items())]


class CheckStage:
    """LLVM text that looks at all elements of an input: a stage as those of the program are."""

    def __init__(self, program: Program, name: str, source: str, conditions: Iterable[Condition]) -> None:
        self.name = name
        tensor, number = program.tensor[source], [tensor.name for tensor in program.tensors].index(source)
        bits = fmt(tensor.dtype).bits
        lanes = min(_BITS // bits, tensor.size)
        self.extent = self.count = -(-tensor.size // lanes)
        self.emitter = emit = Emitter(optimistic=True)
        assert emit.alarms
        alarms = emit.alarms
        emit.line(f"%slot = getelementptr ptr, ptr %pointers, i64 {number}")
        emit.line("%tensor = load ptr, ptr %slot")

        def inside(counter: str) -> Carried:
            first = emit.value(f"mul i64 {counter}, {lanes}")
            first = emit.call("i64", "llvm.umin.i64", ("i64", first), ("i64", str(tensor.size - lanes)))
            place = emit.value(f"getelementptr i8, ptr %tensor, i64 {emit.value(f'mul i64 {first}, {bits // 8}')}")
            for condition in conditions:
                loaded = emit.value(f"load {vector_type(condition.dtype, lanes)}, ptr {place}, align 1")
                value = LlvmValue(emit, loaded, condition.dtype, lanes)
                alarms.watch(condition.test(value, *condition.arguments))
            return []

        emit.loop("%from", "%to", inside)
        emit.line(f"ret i32 {emit.value(f'zext i1 {alarms.finish()} to i32')}")
        lines = "\n".join(emit.lines)
        self.text = f"define i32 @{name}(ptr noalias %pointers, i64 %from, i64 %to) nounwind {{\nentry:\n{lines}\n}}"
