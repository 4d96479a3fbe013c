"""How independent pieces are spread over a GPU's workgroups and their threads, whose lanes share a vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from isa_models import GpuMachine
from simdnn.kernels.common.code import Code, along, loop
from simdnn.kernels.common.vocabulary import Body
from simdnn.program.records import Affine

LANES = 32  # of a vector: SIMD32, or a warp
_VECTORS = 8  # of a line that a thread takes at most


@dataclass(frozen=True)
class Grid:
    """`extents` pieces along each axis; `threads` of a workgroup along each. Axes are filled up to whole workgroups."""

    extents: tuple[int, ...]
    threads: tuple[int, ...]

    @property
    def groups(self) -> tuple[int, ...]:
        return tuple(-(-n // t) for n, t in zip(self.extents, self.threads, strict=True))

    @property
    def full(self) -> tuple[int, ...]:
        """Pieces along each axis, those beyond the end among them."""
        return tuple(n * t for n, t in zip(self.groups, self.threads, strict=True))

    def index(self, axis: int) -> Affine:
        """A thread's piece along an axis."""
        group = Affine.var(f"group_{axis}") if self.groups[axis] > 1 or axis == 0 else Affine()
        thread = Affine.var(f"thread_{axis}") if self.threads[axis] > 1 else Affine()
        return group * self.threads[axis] + thread

    def nest(self, body: Code) -> Code:
        """`body` for every piece."""
        for kind, extents in (("thread", self.threads), ("group", self.groups)):
            for axis, extent in reversed(list(enumerate(extents))):
                if extent > 1 or (kind, axis) == ("group", 0):
                    body = loop(f"{kind}_{axis}", extent, body, parallel=True, threads=kind == "thread")
        return body


def spread(extents: tuple[int, ...], machine: GpuMachine) -> Grid:
    """Workgroups as large as leave one for each core, their threads along the innermost axes."""
    cores = machine.xe_cores * machine.stacks
    left = max(1, min(machine.engines_per_core * machine.threads, -(-prod(extents) // cores)))
    threads = []
    for extent in reversed(extents):
        threads.append(min(extent, left))
        left = max(1, left // threads[-1])
    return Grid(extents, tuple(reversed(threads)))


def lanes_for(line: int) -> int:
    """Lanes of a vector along a line: all, or the power of two that holds a short one.

    >>> lanes_for(49), lanes_for(3)
    (32, 4)
    """
    return min(LANES, 1 << (line - 1).bit_length()) if line > 0 else 1


@dataclass(frozen=True)
class GpuLines:
    """Lines cut into pieces of `length`, a thread each; a `single` vector of a line, or a loop over several."""

    grid: Grid  # the last axis is a line's pieces
    length: int
    single: bool

    @property
    def full(self) -> tuple[int, ...]:
        return (*self.grid.full[:-1], self.grid.full[-1] * self.length)

    def index(self, axis: int) -> Affine:
        return self.grid.index(axis)

    def nest(self, start: Code, body: Body, types: Sequence[str]) -> Code:
        first = self.grid.index(len(self.grid.extents) - 1) * self.length
        if self.single:
            return self.grid.nest([*start, *body(first, self.length, False)])
        vectors = along(self.length, LANES, lambda at, live: body(at, live, False), first)
        return self.grid.nest([*start, *vectors])


def lines_of(outer: tuple[int, ...], line: int, machine: GpuMachine, single: bool) -> GpuLines:
    """Long lines are cut where there are too few for all threads."""
    length = lanes_for(line) if single else _cut(line, prod(outer), machine)
    return GpuLines(spread((*outer, -(-line // length)), machine), length, single)


def _cut(line: int, lines: int, machine: GpuMachine) -> int:
    """Elements of each piece of a line."""
    vectors = -(-line // LANES)
    wanted = max(1, min(_VECTORS, vectors * lines // (machine.engines * machine.threads)))
    return line if vectors <= wanted else wanted * LANES
