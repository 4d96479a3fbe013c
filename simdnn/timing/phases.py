"""How a core's work and the transfers of the memory levels lie beside each other in time.

Transfers overlap with work that is near: an out-of-order window and prefetch reach a few hundred instructions ahead.
Memory rests while a stage widens weights that are there already, and where a matrix comes from DRAM with the first of
the tiles that use it, that tile waits and the others run from the cache. So a run is cut into phases, each as long as
the slowest of what it asks for, and their times add up:

- loops side by side are phases of their own where they are long (`LONG` reorder buffers of instructions),
- so are a loop's first iteration, which fetches what stays for the others, and those others,
- and so is what stands around long loops. What it stores waits in the store queue, if that holds it, while all else of
  the iteration goes on: the stores at the end of a tile come all at once, and the next tile does not wait for them.

What a level leaves exposed (`exposed` in the machine's file) adds to the core's own time in every phase. Where that is
the shorter, and the core is known for it (`core.exposes_work`), it is a share of the core's time and adds to the
level's: what waits for loads fills the scheduler, and the next loads begin later. Lines that are loaded in order
(`prefetched.streamed`) have a share of their own, and none of the work beside them shows: prefetchers ask for the next
ones. Tiles are loaded one after the other, beside products: there it adds to the time of the loads, and shows where
that is the longer. What is stored shows beside them, whether its lines were asked for ahead or not: of stores of tiles
the second cache's time as far as that has loads to hand up, which wait behind them. Where the second cache is the
longer, a share of the time of those loads shows, less what goes on while stored lines wait for each other; where it is
another level, what tiles are stored to alone.
Stores of tiles, and products, that lie far apart in time each take longer (`core.tile_rests`). Beside tiles the second
cache takes lines that were asked for while it hands others up, so the longer of the two decides. Lines that vectors
bring on from a buffer of tiles, and that nobody asked for in time, wait in one queue with stores of tiles: the longest
time of a level for them adds to that of products, and passes beside copies alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from isa_models.machines.cpu_record import Machine
from simdnn.program.records import Loop, Straight
from simdnn.timing.cpu.walk import CoreTime, Iteration
from simdnn.timing.fetched import Phase
from simdnn.timing.flows import BROUGHT
from simdnn.timing.memory import LONG, Transfers
from simdnn.timing.tile_rests import Gap, rested


@dataclass(frozen=True)
class Overlap:
    """Cycles of a run, what bounds most of them, and the gaps between two runs in which no unit for tiles sleeps."""

    cycles: float
    bound: str
    gaps: tuple[Gap, ...] = ()


def overlap(machine: Machine, core: CoreTime, moved: Transfers, share: float = 1.0) -> Overlap:
    """The time of a program whose core takes `core` and whose levels move `moved`.

    `share`: how often that is run, of the core's own time and of every phase.
    """
    first, others = moved.levels[0], moved.levels[1:]
    cycles = max(core.cycles, first.cycles)
    slower = cycles / max(1, core.cycles)  # where the first cache bounds
    idle = max(0.0, 1 - moved.loading / max(1, core.cycles)) if moved.loading else 0.0
    own = core.bound if core.cycles >= first.cycles else first.level
    votes, brought, aside, passed = defaultdict(float, {own: cycles}), 0.0, 0.0, 0.0
    for phase in phases(machine, core.span, moved, own == "front-end"):
        working, slowest = slower * phase.core, max(phase.levels)
        shown = max(0.0, phase.shown - idle * working) + phase.stored + phase.brought + phase.tiled
        longer = max(working + shown + phase.streamed, slowest)
        if machine.core.exposes_work and slowest > working:
            near = slowest == phase.levels[0]
            left = max(0.0, (1 - idle) * working - phase.waiting)
            of_work = (shown if near or not moved.loading else phase.tiled) * left / slowest
            longer = max(longer, slowest + of_work) if moved.loading or phase.streamed else slowest + of_work
        cycles += phase.times * (longer - working)
        brought += phase.times * phase.brought
        if phase.core:
            aside += phase.times * phase.aside
            passed += phase.times * longer * phase.aside / phase.core
        if slowest > working:
            votes[own] -= phase.times * working
            votes[others[phase.levels.index(slowest)].level] += phase.times * slowest
    cycles = max(cycles, *(level.cycles for level in others))  # whose bytes are rounded
    cycles += sum([walk.translating(machine.core) for walk in moved.walked.values()])
    gaps: tuple[Gap, ...] = ()
    if moved.tiled and machine.core.tile_rests.store:
        stage = LONG * machine.core.reorder_buffer
        stretched = (cycles - brought) / core.cycles, passed / aside if aside else 1.0
        more, gaps = rested(moved.tiled, core.span, machine.core.tile_rests, stretched, stage)
        cycles += more
    return Overlap(cycles * share, max(votes, key=lambda name: votes[name]), gaps)


def phases(machine: Machine, span: Iteration, moved: Transfers, far: bool = False) -> list[Phase]:
    """The phases of a run in which any level but the first has something to do; `far`: dispatch bounds the core."""
    least, queue = LONG * machine.core.reorder_buffer, machine.core.store_queue
    near, *behind, last = moved.levels[1:]
    levels = [near, *(replace(level, exposed=0.0, exposed_streamed=0.0) if far else level for level in behind), last]
    shares = {name: walk.of_scheduler(machine.core) for name, walk in moved.walked.items()}
    brought = {name for name, kind in moved.kinds.items() if kind == BROUGHT}
    _, vectors = _vectors(moved.tiled.parts, span, brought) if moved.tiled else (True, [])
    return moved.fetched.phases(span, least, levels, moved.kinds, moved.ahead, shares, queue, vectors)


def _vectors(parts: Sequence[Straight | Loop], span: Iteration, brought: Collection[str]) -> tuple[bool, list[float]]:
    """Whether parts work on tiles, or bring lines, and the cycles of an iteration of theirs, and of each part in them,
    in loops that do neither.
    """
    works, own, below, loops = False, 0.0, list[float](), iter(span.loops)
    for part in parts:
        if not isinstance(part, Loop):
            works |= any(op.definition.tile or memory.tensor in brought for memory, _, op, *_ in part.alike)
            continue
        within = next(loops)
        inside, found = _vectors(part.parts, within, brought)
        if not inside:
            found[0] = within.cycles
        works, own, below = works or inside, own + found[0] * part.extent, below + found
    return works, [own, *below]
