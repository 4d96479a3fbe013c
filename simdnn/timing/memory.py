"""Bytes that a Program moves between the levels of the memory hierarchy, and the cycles that this takes.

A layered-footprint analysis in closed form, after the layer conditions of stencil models (Stengel et al.,
"Quantifying performance bottlenecks of stencil computations using the execution-cache-memory model", 2015): a cache
of C bytes under LRU keeps a line from one iteration of a loop to the next exactly where one iteration touches no more
than C bytes. Where it does, the loop fetches each of its lines once; where it doesn't, every iteration fetches its own.

Assumed, and not seen in any figure: full associativity, lines of all tensors beginning on a line boundary, write
allocation (a line that is stored to is fetched first), write back, and prefetching that hides latency, so that a
transfer costs bandwidth alone. A footprint just above C counts as none fitting; a real cache keeps some of it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from isa_models.machine import Confidence, Machine
from simdnn.program import Memory, Program
from simdnn.timing.footprint import Lines, Part, parts


@dataclass(frozen=True)
class LevelTraffic:
    """What one level hands towards the core (`read_bytes`) and takes back (`written_bytes`), and the cycles of it.

    The first level's are the bytes of the instructions' own loads and stores; every other level's are whole lines,
    `read_bytes` including those fetched because they are stored to.
    """

    level: str
    read_bytes: int
    written_bytes: int
    load_bytes_per_cycle: float
    store_bytes_per_cycle: float
    cycles: float
    confidence: Confidence
    exposed: float = 0.0  # share of the cycles that add to the core's own

    @property
    def bytes(self) -> int:
        return self.read_bytes + self.written_bytes

    def __mul__(self, times: float) -> LevelTraffic:
        read, written = round(self.read_bytes * times), round(self.written_bytes * times)
        return replace(self, read_bytes=read, written_bytes=written, cycles=self.cycles * times)


def traffic(
    program: Program, machine: Machine, *, cold: Collection[str] = (), within: Program | None = None
) -> tuple[LevelTraffic, ...]:
    """The traffic of every level from L1 to DRAM, in this order, of one run on one core.

    Caches are warm: the program has just been run on the same tensors, as in a benchmark, so a level that holds all
    of them asks nothing of the level behind it. Tensors named in `cold` start in DRAM all the same. Where the program
    is a part of what a core runs, `within` is all of that, which a level must hold.
    """
    found = [_first_level(program, machine)]
    tree = parts(program, machine.caches[0].line_bytes)
    whole = parts(within, tree.line_bytes) if within else tree
    for inner, outer in zip(machine.caches, machine.caches[1:], strict=False):
        missed = misses(tree, inner.size_bytes, cold, whole)
        keys = f"caches.{inner.name}.size_bytes", f"caches.{outer.name}.load_bytes_per_cycle"
        rates = outer.load_bytes_per_cycle, outer.store_bytes_per_cycle
        level = _level(outer.name, missed, inner.line_bytes, rates, machine.confidence_of(*keys))
        found.append(replace(level, exposed=outer.exposed))
    last = machine.caches[-1]
    per_cycle = machine.dram.gb_s_core / machine.frequency.ghz(widest(program))
    confidence = machine.confidence_of(f"caches.{last.name}.size_bytes", "dram.gb_s_core")
    missed = misses(tree, last.size_bytes, cold, whole)
    level = _level("DRAM", missed, last.line_bytes, (per_cycle, per_cycle), confidence)
    found.append(replace(level, exposed=machine.dram.exposed))
    return tuple(found)


def widest(program: Program) -> int:
    """Bits of the widest registers, which decide the clock."""
    return max((op.width for op, _ in program.ops()), default=128)


def misses(
    tree: Part, capacity_bytes: int, cold: Collection[str] | None = None, whole: Part | None = None
) -> Lines:
    """Lines that a cache of `capacity_bytes` fetches for one run, and lines that it writes back.

    The run before left behind what fits, except for the tensors named in `cold` (None: all of them): that of the
    `whole` of which the tree is a part.
    """
    if cold is not None and fits(whole or tree, capacity_bytes):
        return sum((lines for tensor, lines in tree.iteration.items() if tensor in cold), Lines())
    return _misses(tree, capacity_bytes)


def fits(part: Part, capacity_bytes: int) -> bool:
    """Whether one iteration's lines fit."""
    return sum(lines.touched for lines in part.iteration.values()) * part.line_bytes <= capacity_bytes


def _misses(part: Part, capacity: int) -> Lines:
    """Misses of one iteration, nothing of it cached before."""
    if fits(part, capacity):
        return sum(part.iteration.values(), Lines())
    total = sum(part.straight.values(), Lines())
    for loop in part.loops:
        total += sum(loop.whole.values(), Lines()) if fits(loop, capacity) else _misses(loop, capacity) * loop.extent
    return total


def _first_level(program: Program, machine: Machine) -> LevelTraffic:
    """Loads and stores of the instructions; these have ports of their own, so the slower of the two sets the time."""
    read = written = 0
    for op, times in program.ops():
        if op.memory is not None and op.memory is op.dst:
            written += times * op.memory.bits // 8
        elif isinstance(op.memory, Memory):
            read += times * op.memory.bits // 8
    level = machine.caches[0]
    cycles = max(read / level.load_bytes_per_cycle, written / level.store_bytes_per_cycle)
    confidence = machine.confidence_of(*(f"caches.{level.name}.{way}_bytes_per_cycle" for way in ("load", "store")))
    return LevelTraffic(
        level.name, read, written, level.load_bytes_per_cycle, level.store_bytes_per_cycle, cycles, confidence
    )


def _level(name: str, missed: Lines, line: int, rates: tuple[float, float], confidence: Confidence) -> LevelTraffic:
    """Time of whole lines over one shared path, one way at a time.

    Store rates are measured on streams of stores, so they already hold the fetch of the line that is stored to.
    """
    load, store = rates
    read, written = missed.touched * line, missed.written * line
    return LevelTraffic(name, read, written, load, store, (read - written) / load + written / store, confidence)
