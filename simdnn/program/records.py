"""The one description of a kernel: loops over instructions, with registers and affine memory operands.

A `Program` is data. Engines run it (`simdnn.numerics`), the clock times it (`simdnn.timing`), `check` proves it
sound before either looks at it. Its records, and those of `operands`, hold plain data only
(`isa_models.records.plain`), so that what was proved stays so.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from isa_models import Instruction, ProgramError, instruction
from isa_models.errors import counted
from isa_models.formats import fmt
from isa_models.instruction import TILE_ROW_BITS, TILE_ROWS
from isa_models.records.frozen import Frozen
from isa_models.records.plain import Derived, Record
from simdnn.program.operands import ROLES as ROLES
from simdnn.program.operands import SCALES as SCALES
from simdnn.program.operands import SOURCE as SOURCE
from simdnn.program.operands import WEIGHTS as WEIGHTS
from simdnn.program.operands import ZEROS as ZEROS
from simdnn.program.operands import Affine as Affine
from simdnn.program.operands import Memory as Memory
from simdnn.program.operands import Place as Place
from simdnn.program.operands import Register as Register
from simdnn.program.operands import Steps as Steps
from simdnn.program.operands import Tensor as Tensor

MOST_LOOPS = 32  # one in another: what walks a program does so by recursion
_new = object.__new__


@dataclass(frozen=True)
class Op(Record):
    """One instruction. A memory operand with fewer lanes than the instruction takes is a masked access."""

    instruction: str
    dst: Place
    srcs: tuple[Place, ...]
    immediates: tuple[tuple[str, int], ...] = ()
    choices: tuple[tuple[str, str], ...] = ()  # of what the manual leaves open

    @Derived
    def definition(self) -> Instruction:
        return instruction(self.instruction)

    @Derived
    def form(self) -> Op:
        """The op that stands for all that differ from it in addresses alone: what is found of it holds for each."""
        places = [p if type(p) is Register else (p.dtype, p.lanes, p.rows) for p in (self.dst, *self.srcs)]  # type: ignore[union-attr]
        key = self.instruction, id(self.definition), tuple(places), self.immediates, self.choices
        form = _FORMS.get(key)
        if form is None:
            form = Op(self.instruction, _nowhere(self.dst), tuple(map(_nowhere, self.srcs)), *key[3:])
            object.__setattr__(form, "form", form)
            object.__setattr__(form, "definition", self.definition)
            if len(_FORMS) >= _MOST_FORMS:
                _FORMS.clear()
            _FORMS[key] = form
        return form

    @Derived
    def number(self) -> int:
        """A number that no other form has."""
        return next(_NUMBERS)

    @Derived
    def lanes(self) -> int:
        """Lanes of the result, masked ones included (from a register operand, or what the memory operand names)."""
        definition = self.definition
        if isinstance(self.dst, Register):
            return self.dst.lanes
        for operand, place in zip(definition.operands, self.srcs, strict=True):
            if isinstance(place, Register) and operand.per:
                return int(place.lanes / operand.per)
        return self.dst.lanes

    @property
    def width(self) -> int:
        """Bits of the widest register operand; of a tile instruction those of a whole tile."""
        return self.form._width

    @Derived
    def _width(self) -> int:
        if self.definition.tile:
            return TILE_ROWS * TILE_ROW_BITS
        registers = [place for place in (self.dst, *self.srcs) if type(place) is Register]
        vectors = not registers or any(not fmt(register.dtype).is_truth for register in registers)
        return max([128 * vectors, *[register.bits for register in registers]])

    @Derived
    def kind(self) -> tuple[bool, int, bool]:
        """Whether it works on tiles, the bits of its widest register, whether it adds to what its result held."""
        return self.definition.tile, self.width, self.definition.accumulates

    @Derived
    def registers(self) -> tuple[tuple[tuple[str, int], ...], str | None, int]:
        """The registers whose values it reads, by name, with their bits; the one that it writes, and its bits."""
        read = () if self.is_zero_idiom else self.srcs
        reads = tuple([(place.name, place.bits) for place in read if type(place) is Register])
        return (reads, self.dst.name, self.dst.bits) if type(self.dst) is Register else (reads, None, 0)

    @property
    def rows(self) -> int:
        """Rows of the tile that goes through a tile instruction; 0 for others."""
        return self.lanes * fmt(self.definition.result).bits // TILE_ROW_BITS if self.definition.tile else 0

    @property
    def parameters(self) -> dict[str, int | str]:
        """Immediates and choices, as the instruction's function takes them."""
        return {**dict(self.immediates), **dict(self.choices)}

    @Derived
    def memory(self) -> Memory | None:
        if type(self.dst) is Memory:
            return self.dst
        for place in self.srcs:
            if type(place) is Memory:
                return place
        return None

    def at(self, index: Affine) -> Op:
        """This instruction with its memory operand at another index: all else that is known of the two stays."""
        old, form = self.memory, self.form
        if old is None or type(index) is not Affine:
            raise ProgramError(f"`{self}` at {index!r:.60}; an op with a memory operand, and an Affine, are needed")
        _ = old.bits  # which is known of the other then
        memory, made = _new(Memory), _new(Op)
        memory.__dict__.update(old.__dict__)
        memory.__dict__["index"] = index
        known = made.__dict__
        known.update(self.__dict__)
        known["form"], known["memory"] = form, memory
        if old is self.dst:
            known["dst"] = memory
        else:
            known["srcs"] = tuple([memory if place is old else place for place in self.srcs])
        return made

    @property
    def is_zero_idiom(self) -> bool:
        """x ^ x: zero whatever x holds, so x need not be defined."""
        return self.definition.clears and self.srcs[0] == self.srcs[-1]

    @property
    def masked(self) -> bool:
        return self.memory is not None and self.memory.bits < self.reach

    @property
    def reach(self) -> int:
        """Bits of its memory operand, those that a mask leaves out among them."""
        return self.form._reach

    @Derived
    def _reach(self) -> int:
        memory = self.memory
        if memory is None or self.definition.partial or self.definition.tile:
            return memory.bits if memory is not None else 0
        lanes, definition = self.lanes, self.definition
        if memory is not self.dst:
            lanes = definition.operand_lanes(definition.operands[self.srcs.index(memory)], lanes)
        return max(memory.bits, lanes * fmt(memory.dtype).bits)

    def __str__(self) -> str:
        immediates = "".join(f", {v}" for _, v in (*self.immediates, *self.choices))
        return f"{self.instruction} {self.dst}, {', '.join(map(str, self.srcs))}{immediates}"


class AlikeAccesses(NamedTuple):
    """Memory operands of one instruction, as many bytes of one tensor each, that loops move alike: the first of them,
    whether it is stored to, its op; and the constants of all their indices, with the places of their ops in a row.
    """

    memory: Memory
    stores: bool
    op: Op
    constants: list[int]
    places: list[int]


class Straight(tuple[Op, ...]):
    """Ops in a row, with no loop between them: what is asked of them again and again is found once."""

    def __repr__(self) -> str:
        return f"Straight({counted(len(self), 'instruction')}; str() lists them)"

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    @Derived
    def forms(self) -> tuple[int, ...]:
        """The numbers of the ops' forms: equal for straight code that differs in addresses alone."""
        return tuple([op.form.number for op in self])

    @Derived
    def accesses(self) -> tuple[tuple[Memory, bool, Op], ...]:
        """The memory operands, each with whether it is stored to, and its op."""
        return tuple([(memory, memory is op.dst, op) for op in self if (memory := op.memory) is not None])

    @Derived
    def alike(self) -> tuple[AlikeAccesses, ...]:
        """The memory operands, those together that differ in a constant of their index alone."""
        groups: dict[tuple[object, ...], AlikeAccesses] = {}
        for place, op in enumerate(self):
            memory = op.memory
            if memory is None:
                continue
            index, stores = memory.index, memory is op.dst
            kind = memory.dtype, memory.lanes, memory.rows, memory.stride
            key = memory.tensor, index.terms, kind, stores, op.instruction
            met = groups.get(key)
            if met is None:
                groups[key] = AlikeAccesses(memory, stores, op, [index.const], [place])
            else:
                met[3].append(index.const)
                met[4].append(place)
        return tuple(groups.values())


@dataclass(frozen=True)
class Loop(Record):
    """`body` for `var` in 0 .. extent-1; the iterations of a parallel loop are independent.

    Parallel loops are spread over cores: over those of a CPU; on a GPU an iteration is a workgroup, or one of its
    `threads`, which loops inside of those are spread over. That is no part of a program's signature.

    `staged`: iterations of a loop of a GPU's workgroup that go together. Between two barriers, the workgroup brings
    what they load into shared memory. `resident`: the workgroups that a core has registers and
    shared memory for at once. `apart`: threads wait for what is brought into shared memory, and not for each other.
    `late`: workgroups stand for others of unequal length, whose last ones work alone so long, in the time of one.
    `live`: the share of rows that are not zeros that fill up a tile, which take time and next to no energy.
    `bare`: bytes that a workgroup loads before its first product and stores behind its last one, when it has nothing
    else to do; a number for each time that it begins anew. All six say nothing about values, only when things happen.
    """

    var: str
    extent: int
    body: tuple[Statement, ...]
    parallel: bool = False
    staged: int = 0
    threads: bool = field(default=False, repr=False)
    resident: int = field(default=1, repr=False)
    apart: bool = field(default=False, repr=False)
    late: float = field(default=0.0, repr=False)
    live: float = field(default=1.0, repr=False)
    bare: tuple[int, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threads and not self.parallel:
            raise ProgramError(
                f"for {self.var} < {self.extent}: threads=True; threads are a parallel loop's iterations"
            )
        if self.depth > MOST_LOOPS:
            raise ProgramError(f"for {self.var} < {self.extent}: {self.depth} loops in one another; up to {MOST_LOOPS}")

    @Derived
    def depth(self) -> int:
        """Loops one in another, this one included."""
        return 1 + max([part.depth for part in self.parts if type(part) is Loop], default=0)

    @Derived
    def parts(self) -> tuple[Straight | Loop, ...]:
        """The loops of the body, and the ops in a row between them."""
        return parts(self.body)


Statement = Op | Loop


def parts(body: Sequence[Statement]) -> tuple[Straight | Loop, ...]:
    """The loops of a body, and the ops in a row between them."""
    parts = list[Straight | Loop]()
    for kind, statements in itertools.groupby(body, type):
        if kind is Loop:
            parts += statements  # type: ignore[arg-type]  # loops
        else:
            parts.append(Straight(statements))  # type: ignore[arg-type]  # ops
    return tuple(parts)


_FORMS: dict[tuple[object, ...], Op] = {}  # programs of many shapes have the same ops, but for addresses
_MOST_FORMS = 1 << 16
_NUMBERS = itertools.count()


def _nowhere(place: Place) -> Place:
    """A register; memory without an address."""
    return place if type(place) is Register else Memory("", Affine(), place.dtype, place.lanes, place.rows)  # type: ignore[union-attr]


@dataclass(frozen=True)
class Program(Record):
    """A kernel for one problem: its tensors and its statements, for CPUs with the ISA cap `isa`."""

    name: str
    isa: str
    tensors: tuple[Tensor, ...]
    body: tuple[Statement, ...]

    def __repr__(self) -> str:
        count, kind = sum(1 for _ in self.ops()), self.name.partition(" ")[0]
        tensors, instructions = counted(len(self.tensors), "tensor"), counted(count, "instruction")
        return f"Program({kind!r}, {tensors}, {instructions}; str() lists them)"

    def __str__(self) -> str:
        return f"{self.name}\n{listing(self.body)}"

    @Derived
    def tensor(self) -> Mapping[str, Tensor]:
        """The tensors by their names."""
        return Frozen({t.name: t for t in self.tensors})

    @Derived
    def parts(self) -> tuple[Straight | Loop, ...]:
        """The loops of the body, and the ops in a row between them."""
        return parts(self.body)

    @Derived
    def straight(self) -> tuple[tuple[Straight, int], ...]:
        """All ops in a row, in the order of the text, with how often they are executed."""
        return tuple(_straight(self.parts))

    @Derived
    def signature(self) -> str:
        """A digest of everything that an engine or the clock can see: the key of their caches."""
        return hashlib.sha256(repr((self.isa, self.tensors, self.body)).encode()).hexdigest()

    def ops(self) -> Iterator[tuple[Op, int]]:
        """Every instruction of the text, with how often it is executed."""
        yield from self._executions

    @Derived
    def _executions(self) -> tuple[tuple[Op, int], ...]:
        return tuple(_ops(self.straight))

    @Derived
    def executed(self) -> int:
        """How many instructions a run executes."""
        return sum(times for _, times in self._executions)

    @Derived
    def forms(self) -> tuple[Op, ...]:
        """The form of each op, once each."""
        forms: dict[int, Op] = {}
        for ops, _ in self.straight:
            forms |= zip(ops.forms, ops, strict=True)  # one of each number, in the order in which these are met
        return tuple([op.form for op in forms.values()])

    def itself(self) -> Program:
        """This program, for who finds it where it is needed."""
        return self

    def renamed(self, name: str) -> Program:
        return replace(self, name=name)


def walk(body: Sequence[Statement]) -> list[tuple[Op, int]]:
    """The instructions below `body`, each with its number of executions."""
    return _ops(_straight(parts(body)))


def _ops(straight: Iterable[tuple[Straight, int]]) -> list[tuple[Op, int]]:
    return [(op, times) for ops, times in straight for op in ops]


def _straight(parts: Sequence[Straight | Loop], times: int = 1) -> Iterator[tuple[Straight, int]]:
    for part in parts:
        if type(part) is Loop:
            yield from _straight(part.parts, times * part.extent)
        else:
            yield part, times  # type: ignore[misc]  # ops


def listing(body: Sequence[Statement], depth: int = 0) -> str:
    """The program's text, for people."""
    lines = []
    for statement in body:
        if isinstance(statement, Loop):
            kind = "parallel for" if statement.parallel else "for"
            lines.append("  " * depth + f"{kind} {statement.var} < {statement.extent}:")
            lines.append(listing(statement.body, depth + 1))
        else:
            lines.append("  " * depth + str(statement))
    return "\n".join(lines)
