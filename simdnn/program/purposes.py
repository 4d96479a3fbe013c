"""The purpose of each instruction of a program, read off its data flow.

A kernel is a flow from the tensors of the source and of the weights to products, and from these to the destination.
What brings the two sides together is a dot product; what is done to one side before is conversion, or decompression
where only the weights are stored as integers and floats are multiplied; what comes behind is the epilogue. Tensors
that hold zero points, their sums and compensations mark what they touch. Generators of kernels say what their tensors
hold (`Tensor.role`) and note nothing else of this: it is a reading of the program that they have written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from isa_models.formats import fmt
from simdnn.program.records import (
    SCALES,
    SOURCE,
    WEIGHTS,
    ZEROS,
    Loop,
    Memory,
    Op,
    Place,
    Program,
    Register,
    Statement,
    Tensor,
)

DOT = "dot products"
LOADS = "operand loads"
DECOMPRESSION = "decompression"
CONVERSION = "conversion"
ZERO_POINTS = "zero points"
EPILOGUE = "epilogue"
PACKING = "packing and copying"
ELEMENTWISE = "element by element"
CONTROL = "set-up and loop control"
PURPOSES = (DOT, LOADS, DECOMPRESSION, CONVERSION, ZERO_POINTS, EPILOGUE, PACKING, ELEMENTWISE, CONTROL)

#: what a value is made of
_PRODUCT, _OTHER = "product", "other"
_SIDES = frozenset({SOURCE, WEIGHTS})
_WORDS = "u32"  # in which GPU kernels hold narrower elements
Tags = frozenset[str]
_NOTHING: Tags = frozenset()


def purposes(program: Program) -> Iterator[tuple[Op, int, str]]:
    """Every instruction of the text, how often it is executed, and which of `PURPOSES` it serves.

    >>> import simdnn
    >>> one = simdnn.estimate("matmul", m=4, n=16, k=8, dt="u8:s8:s32", machine="icx")
    >>> sorted({purpose for _, _, purpose in purposes(one.kernel.program)})
    ['dot products', 'epilogue', 'operand loads']
    """
    flow = _Flow(program)
    for _ in range(2):  # what a loop hands to its next iteration, and a stage to the one behind
        flow.run(program.body)
    walked = _Purposes(flow)
    yield from walked.of(program.body, 1)


@dataclass
class _Flow:
    """The origin of each place's values, at each instruction; after two runs, loops are at rest."""

    program: Program
    registers: dict[str, Tags] = field(default_factory=dict)
    tensors: dict[str, Tags] = field(default_factory=dict)
    reads: dict[int, tuple[Tags, ...]] = field(default_factory=dict)  # of an op, by identity
    products: bool = False
    in_float: bool = False  # what is multiplied
    halves: bool = False  # words of weights hold floats of 16 bits

    def __post_init__(self) -> None:
        self.tensors = {t.name: _tags_of(t) for t in self.program.tensors if t.kind == "input"}
        self.stored = {
            side: {t.dtype for t in self.program.tensors if t.kind == "input" and t.role == side} for side in _SIDES
        }

    @property
    def compressed(self) -> bool:
        """Whether weights are stored as integers, and the source is not; words may hold anything."""
        source, weights = self.stored[SOURCE], self.stored[WEIGHTS]
        integers = any(_is_narrow(name) or name == _WORDS and not self.halves for name in weights)
        return self.in_float and integers and not any(map(_is_narrow, source))

    @cached_property
    def scales_weights(self) -> bool:
        """Whether scales are multiplied into the weights before the products."""
        return any({SCALES} in reads and any(WEIGHTS in tags for tags in reads) for reads in self.reads.values())

    @cached_property
    def computes(self) -> bool:
        """Whether anything is done but to move elements."""
        return any(not op.definition.moves and not op.is_zero_idiom for op, _ in self.program.ops())

    def run(self, body: Sequence[Statement]) -> None:
        for statement in body:
            if isinstance(statement, Loop):
                self.run(statement.body)
            else:
                self.step(statement)

    def step(self, op: Op) -> None:
        reads = tuple(_NOTHING if op.is_zero_idiom else self.of(place) for place in op.srcs)
        self.reads[id(op)] = reads
        made = frozenset().union(*reads)
        operands = [fmt(operand.dtype) for operand in op.definition.operands]
        self.halves |= made == {WEIGHTS} and any(form.is_float and form.bits < 32 for form in operands)
        if _meets(reads, op):
            made = frozenset({_PRODUCT})
            self.products = True
            self.in_float |= fmt(op.definition.result).is_float
        if _PRODUCT in made:
            made = frozenset({_PRODUCT})
        if isinstance(op.dst, Register):
            self.registers[op.dst.name] = made
        elif self.program.tensor[op.dst.tensor].role != ZEROS:
            self.tensors[op.dst.tensor] = self.tensors.get(op.dst.tensor, _NOTHING) | made

    def of(self, place: Place) -> Tags:
        if isinstance(place, Memory):
            tensor = self.program.tensor[place.tensor]
            return _tags_of(tensor) if tensor.role == ZEROS else self.tensors.get(tensor.name, _NOTHING)
        return self.registers.get(place.name, _NOTHING)


def _is_narrow(dtype: str) -> bool:
    form = fmt(dtype)
    return not form.is_float and form.bits <= 8


def _tags_of(tensor: Tensor) -> Tags:
    return frozenset({tensor.role or _OTHER})


def _meets(reads: Sequence[Tags], op: Op) -> bool:
    """Whether the two sides come together: one operand of the source alone, one of the weights alone."""
    sides = [tags & _SIDES for tags in reads if _PRODUCT not in tags]
    return {SOURCE} in sides and {WEIGHTS} in sides and not op.definition.moves


def _adds_zero(reads: Sequence[Tags]) -> bool:
    """Whether an operand is a zero point, or the sum that one is multiplied with."""
    return any(ZEROS in tags and not tags & _SIDES for tags in reads)


def _rearranges(op: Op, reads: Sequence[Tags]) -> bool:
    """Whether elements of one side change their places alone: no type is changed, and nothing else has a part in it."""
    types = {op.definition.result, *(operand.dtype for operand in op.definition.operands)}
    return len(types) == 1 and all(tags & _SIDES for tags in reads) and not op.definition.accumulates


@dataclass
class _Purposes:
    flow: _Flow

    def of(self, body: Sequence[Statement], times: int) -> Iterator[tuple[Op, int, str]]:
        straight = [s for s in body if isinstance(s, Op)]
        region = _Region(self.flow, straight)
        for statement in body:
            if isinstance(statement, Loop):
                yield from self.of(statement.body, times * statement.extent)
            else:
                yield statement, times, region.purpose(statement)


class _Region:
    """The instructions straight in one loop: a move serves what its neighbours do."""

    def __init__(self, flow: _Flow, ops: Sequence[Op]) -> None:
        self.flow = flow
        self.stores = set[str]()  # tensors kept for later, by side
        self.work = dict[str, str]()  # by side, what is done to it here
        for op in ops:
            made = frozenset().union(*flow.reads[id(op)])
            kept = isinstance(op.dst, Memory) and flow.program.tensor[op.dst.tensor].kind != "output"
            if _PRODUCT not in made:
                self.stores |= made & _SIDES if kept else set()
                still = op.definition.moves or _rearranges(op, flow.reads[id(op)])
                purpose = "" if still else self.arithmetic(op, made)
                for side in made & _SIDES:
                    if purpose in (DECOMPRESSION, CONVERSION):
                        self.work[side] = purpose

    def purpose(self, op: Op) -> str:
        flow, reads = self.flow, self.flow.reads[id(op)]
        made = frozenset().union(*reads)
        if not flow.products:
            return self.alone(op)
        if op.is_zero_idiom and isinstance(op.dst, Register) and flow.registers.get(op.dst.name, _NOTHING) & {_PRODUCT}:
            return DOT
        if isinstance(op.dst, Memory) and flow.program.tensor[op.dst.tensor].role == ZEROS:
            return ZERO_POINTS
        if _PRODUCT in made or _meets(reads, op):
            return self.behind(op, reads)
        if _adds_zero(reads):
            return ZERO_POINTS
        if made & _SIDES:
            return self.moved(made) if op.definition.moves or _rearranges(op, reads) else self.arithmetic(op, made)
        if made & {SCALES, _OTHER}:
            return DECOMPRESSION if SCALES in made and flow.scales_weights else EPILOGUE
        if isinstance(op.dst, Memory):
            return PACKING  # zeros around what is copied
        return CONTROL

    def alone(self, op: Op) -> str:
        """Purposes in a program without products: moves copy, all else is work on elements."""
        return PACKING if op.definition.moves and not self.flow.computes else ELEMENTWISE

    def behind(self, op: Op, reads: Sequence[Tags]) -> str:
        """Where products are among the operands, or are made."""
        if _meets(reads, op):
            return DOT
        if _adds_zero(reads):
            return ZERO_POINTS
        definition = op.definition
        if isinstance(op.dst, Memory):
            return EPILOGUE if self.flow.program.tensor[op.dst.tensor].kind == "output" else DOT
        if definition.moves:
            return DOT
        types = {definition.result, *(operand.dtype for operand in definition.operands)}
        floats = {fmt(name).is_float for name in types}
        plain = all(tags <= {_PRODUCT} for tags in reads) and not definition.chooses
        adds_up = plain and len(floats) == 1 and (floats == {False} or all(reads))
        return DOT if adds_up and (len(reads) > 1 or len(types) == 1) else EPILOGUE

    def moved(self, made: Tags) -> str:
        """A load, store or shuffle of one side."""
        side = min(made & _SIDES)
        if side in self.stores:
            return self.work.get(side, PACKING)
        return LOADS

    def arithmetic(self, op: Op, made: Tags) -> str:
        """Work on one side before the products."""
        if op.definition.accumulates and self.flow.products:
            return ZERO_POINTS  # sums of one side alone are wanted for nothing else
        return DECOMPRESSION if WEIGHTS in made and self.flow.compressed else CONVERSION
