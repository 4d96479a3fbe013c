"""Loops cut so that the sums of each part fit into the host's registers.

A program's loop keeps as many sums as the modelled core has registers for. On a host that has fewer or narrower ones, a
compiler leaves most of them in memory, and each step loads and stores them. Sums that do not know each other may as
well be formed one group after the other: the loop becomes several, each with the instructions that its sums need.
Every sum takes the same steps in the same order, so no bit depends on it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import or_

from isa_models.isa import host_caps
from simdnn.numerics.native import own_width
from simdnn.program.records import Loop, Memory, Op, Register, Statement

_FILES = (("avx512_core", 32, 512), ("avx2", 16, 256))
_LEAST = 16, 128
_ROOM = 4  # registers for operands that are taken apart
_ALL = -1
Needs = dict[str, int]  # registers that are read later on, each with the sums that need it: a bit each
Path = tuple[int, ...]  # where a statement stands: its number in its body, behind that of the loop around, and so on


@dataclass(frozen=True)
class RegisterFile:
    """Vector registers of a host, and the bits of each."""

    count: int
    bits: int

    def pieces(self, op: Op) -> int:
        """How many of them an instruction's result takes; all are one where it is an element of memory in all lanes."""
        spread = op.memory is not None and op.memory is not op.dst and op.memory.lanes == 1
        return 1 if spread else self.wide(op.dst.bits)

    def wide(self, bits: int) -> int:
        """How many of them hold some bits."""
        return -(-bits // self.bits)


def host_registers() -> RegisterFile:
    """The vector registers that code of this host has."""
    found = ((count, bits) for cap, count, bits in _FILES if cap in host_caps())
    return RegisterFile(*next(found, _LEAST))


def fitted(body: Sequence[Statement], file: RegisterFile | None = None) -> tuple[Statement, ...]:
    """The statements of a stage, each loop cut that stores nothing and has more sums than registers hold (None: this
    host's).
    """
    return _fitted(body, {}, file or host_registers())


def _fitted(body: Sequence[Statement], live: Needs, file: RegisterFile) -> tuple[Statement, ...]:
    """`live`: the registers that are read behind `body`."""
    made: list[Statement] = []
    for statement in reversed(body):
        before = _needs((statement,), live, {}, {})
        if not isinstance(statement, Loop):
            made.append(statement)
        elif any(_stays(op) for _, op in _ops(statement.body)):
            made.append(replace(statement, body=_fitted(statement.body, live | before, file)))
        else:
            made.extend(_cut(statement, live, file))
        live = before
    return tuple(reversed(made))


def _ops(body: Sequence[Statement], at: Path = ()) -> Iterator[tuple[Path, Op]]:
    for number, statement in enumerate(body):
        if isinstance(statement, Loop):
            yield from _ops(statement.body, (*at, number))
        else:
            assert isinstance(statement, Op)
            yield (*at, number), statement


def _stays(op: Op) -> bool:
    """Whether an instruction keeps the loops around it whole: it stores, or has its operands in memory anyway."""
    return isinstance(op.dst, Memory) or op.definition.tile or op.definition.pieces() is not None


def _takes_apart(op: Op) -> bool:
    """Whether an instruction sums up several products a lane, which this host has no instruction for."""
    several = op.definition.accumulates and any(operand.per > 1 for operand in op.definition.operands)
    return several and not own_width(op.definition, op.width, host_caps())


def _needs(
    body: Sequence[Statement], live: Needs, kept: dict[Path, int], heads: dict[Path, Needs], at: Path = ()
) -> Needs:
    """The registers read from `body` on, where `live` are read behind. `kept` gets the sums that need each statement,
    `heads` the registers read from each loop's begin on.
    """
    live = dict(live)
    for number in range(len(body) - 1, -1, -1):
        statement, path = body[number], (*at, number)
        if isinstance(statement, Loop):
            heads[path] = {}
            while (found := _needs(statement.body, _joined(live, heads[path]), kept, heads, path)) != heads[path]:
                heads[path] = found
            live = dict(found)
            continue
        assert isinstance(statement, Op)
        reads, written, _ = statement.registers
        wanted = _ALL if written is None else live.pop(written, 0)
        kept[path] = kept.get(path, 0) | wanted
        for name, _ in reads:
            live[name] = live.get(name, 0) | wanted
    return {name: sums for name, sums in live.items() if sums}


def _joined(some: Needs, others: Needs) -> Needs:
    return some | {name: some.get(name, 0) | sums for name, sums in others.items()}


def _cut(loop: Loop, live: Needs, file: RegisterFile) -> list[Loop]:
    """A loop that stores nothing as one or several, last first; `live` is read behind it."""
    written = dict.fromkeys(op.dst.name for _, op in _ops(loop.body) if isinstance(op.dst, Register))
    sums = {name: 1 << number for number, name in enumerate(name for name in written if name in live)}
    if len(sums) < 2:
        return [loop]
    cut = _Cut(loop, sums, file)
    whole = (1 << len(sums)) - 1
    return [loop] if cut.pressure(whole) <= file.count else [cut.part(group) for group in reversed(cut.groups())]


class _Cut:
    """How a loop can be cut: the bits of a number say which of its sums are meant."""

    def __init__(self, loop: Loop, sums: Mapping[str, int], file: RegisterFile) -> None:
        self.loop, self.sums, self.file = loop, sums, file
        self.kept: dict[Path, int] = {}
        self.heads: dict[Path, Needs] = {}
        _needs((loop,), dict(sums), self.kept, self.heads)
        self.sizes: dict[str, int] = {}  # registers of the host, of each of the program's
        for _, op in _ops((loop,)):
            for name, bits in op.registers[0]:
                self.sizes.setdefault(name, file.wide(bits))
            if isinstance(op.dst, Register):
                self.sizes[op.dst.name] = file.pieces(op)
        self.room = _ROOM if any(_takes_apart(op) for _, op in _ops((loop,))) else 0
        #: what several sums need, and how much work it is
        self.common = [
            (wanted, file.pieces(op)) for path, op in _ops((loop,)) if (wanted := self.kept[path]).bit_count() > 1
        ]

    def groups(self) -> list[int]:
        """The sums in groups that fit: those that share most of their work, then such groups, and so on."""
        groups, before = self._together(), list[int]()
        while groups != before:
            groups, before = self._grown(groups), groups
        return groups

    def _grown(self, left: list[int]) -> list[int]:
        """Each group with those that share most with it, as many as fit, and as evenly as they can be."""
        left, made = [*left], list[int]()
        while left:
            group = left.pop(0)
            most = max((self.shared(group, some) for some in left), default=(0, 0))
            near = [some for some in left if most[0] and self.shared(group, some) == most]
            together = [functools.reduce(or_, near[:count], group) for count in range(len(near) + 1)]
            fit = next(
                (n for n, one in enumerate(together[1:], 1) if self.pressure(one) > self.file.count), len(together)
            )
            even = -(-len(together) // -(-len(together) // fit))
            left = [some for some in left if some not in near[: even - 1]]
            made.append(together[even - 1])
        return made

    def _together(self) -> list[int]:
        """Groups of sums that one loop has to form together: one changes a register that another needs as it was, or
        they need a value under the name of one sum.
        """
        found = [*self.sums.values()]
        for name in dict.fromkeys((*self.heads[0,], *self.sums)):
            writers = [self.kept[path] for path, op in _ops((self.loop,)) if op.registers[1] == name]
            if writers:
                both = functools.reduce(or_, writers, self.heads[0,].get(name, 0))
                bound = [some for some in found if some & both]
                found = [functools.reduce(or_, bound), *(some for some in found if not some & both)]
        return sorted(found, key=lambda some: some & -some)

    def shared(self, some: int, others: int) -> tuple[int, int]:
        """The work that is done once for both, and, of equals, for fewer instructions."""
        found = [work for wanted, work in self.common if wanted & some and wanted & others]
        return sum(found), -len(found)

    def part(self, group: int) -> Loop:
        """The loop with the instructions that a group needs."""
        return _kept(self.loop, self.kept, group, (0,))

    def pressure(self, group: int) -> int:
        """The registers of the host that a group's values take at most at a time."""
        live = {name for name, bit in self.sums.items() if bit & group}
        return self.room + self._pressure((self.loop,), live, group, ())

    def _pressure(self, body: Sequence[Statement], live: set[str], group: int, at: Path) -> int:
        most = 0
        for number in range(len(body) - 1, -1, -1):
            statement, path = body[number], (*at, number)
            if isinstance(statement, Loop):
                entered = {name for name, wanted in self.heads[path].items() if wanted & group}
                most = max(most, self._pressure(statement.body, live | entered, group, path))
                live = entered
            elif self.kept[path] & group:
                assert isinstance(statement, Op)
                reads, written, _ = statement.registers
                most = max(most, sum(self.sizes[name] for name in {*live, written} if name))
                live = live.difference((written,)).union([name for name, _ in reads])
        return most


def _kept(loop: Loop, kept: Mapping[Path, int], group: int, at: Path) -> Loop:
    """A loop with the statements that some sums need."""
    body: list[Statement] = []
    for number, statement in enumerate(loop.body):
        path = (*at, number)
        if not isinstance(statement, Loop):
            body += [statement] if kept[path] & group else []
        elif (inner := _kept(statement, kept, group, path)).body:
            body.append(inner)
    return replace(loop, body=tuple(body))
