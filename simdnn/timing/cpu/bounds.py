"""Lower bounds on the cycles of a loop body, each true of any schedule: ports, dispatch, memory, and chains.

`times`, where it is given, says how often each op stands there; else it is once.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import repeat

from isa_models.machines.cpu_record import Machine
from simdnn.timing.cpu.steps import CoreOp

MOST_UNIONS = 4096
MICROCODED = 4  # slots beyond which an instruction is not decoded, but read from the microcode


Times = Sequence[int] | None


def _each(ops: Sequence[CoreOp], times: Times) -> Iterable[tuple[CoreOp, int]]:
    return zip(ops, repeat(1) if times is None else times, strict=False)


def alike(op: CoreOp) -> tuple[object, ...]:
    """All that bounds, and the standing of a time, ask of an op: equal where registers and places alone differ."""
    loads = op.load is not None, op.load_pipes, op.load_share
    stores = op.store is not None, op.commit_cycles, op.store_addresses, op.store is not None and op.store.indexed
    return id(op.row), op.slots, op.split, op.uops, op.occupancy, op.interval, op.evex, loads, stores


def port_load(ops: Sequence[CoreOp], times: Times = None) -> float:
    """Cycles that the busiest set of ports needs for the uops that can run nowhere else (loads: `load_pipes`).

    The bound is exact for the best assignment (max-flow, min-cut), over the unions of the port lists that occur.
    """
    own: dict[str, float] = defaultdict(float)
    for op, count in _each(ops, times):
        if op.interval:
            own[op.unit] += op.interval * count
    return max(busiest_ports(ops, times)[0], max(own.values(), default=0.0))


def busiest_ports(ops: Sequence[CoreOp], times: Times = None) -> tuple[float, frozenset[int]]:
    """The cycles of `port_load` less intervals, and the set of ports."""
    work: dict[tuple[int, ...], int] = {}
    for op, count in _each(ops, times):
        for uop in op.uops:
            work[uop] = work.get(uop, 0) + op.occupancy * count
    loads = [(sum([work[uop] for uop in inside]) / len(u), u) for u, inside in _unions(tuple(work))]
    return max(loads, key=lambda found: (found[0], len(found[1])), default=(0.0, frozenset()))


@lru_cache(maxsize=1024)
def _unions(lists: tuple[tuple[int, ...], ...]) -> tuple[tuple[frozenset[int], tuple[tuple[int, ...], ...]], ...]:
    """All unions of some of the port lists (there are few different ones), each with the lists that lie within."""
    sets = list(dict.fromkeys(map(frozenset, lists)))
    unions: set[frozenset[int]] = set()
    for one in sets:
        if len(unions) > MOST_UNIONS:  # no core's; fewer sets bound as truly, if less tightly
            break
        unions |= {one | other for other in unions} | {one}
    return tuple([(union, tuple([uop for uop in lists if union.issuperset(uop)])) for union in unions])


def load_pipes(machine: Machine, ops: Sequence[CoreOp], times: Times = None) -> float:
    """Cycles that the load pipes need: for loads, for loads that fewer pipes take, for stores and their addresses.

    A store's address at two registers is formed on the load ports where those are among the ports for addresses of
    stores (the other one forms simple addresses alone); else loads and stores together have all of these ports.
    """
    core = machine.core
    pipes = len(core.load_ports)
    loads = [(op, count) for op, count in _each(ops, times) if op.load is not None]
    stores = [(op, op.store, count) for op, count in _each(ops, times) if op.store is not None]
    lanes = sum(core.lanes_of(op.row) * count for op, count in loads)
    beside = sum(count for op, count in loads if not core.lanes_of(op.row))
    met = (lanes + beside) / (core.loads_of_a_place or pipes) if lanes else 0.0  # what is read beside lanes waits too
    taken = sum(core.store(op.row.store_bits, not op.row.vector_bits).load_pipes * count for op, _, count in stores)
    wide = sum(op.load_share * count for op, count in loads if op.load_pipes <= pipes) + taken
    every = sum(op.load_pipes * count for op, count in loads) + taken
    if core.address_units:  # an update has one address
        addresses = sum(max(1, op.load_pipes) * count for op, count in loads)
        addresses += sum(op.store_addresses * count for op, _, count in stores if op.load is None)
        wide = max(wide, pipes * addresses / core.address_units)
    if not set(core.load_ports) < set(core.store_address_ports):
        return max(met, every / pipes, wide / pipes)
    indexed = sum(store.indexed * count for _, store, count in stores)
    written = sum(count for *_, count in stores)
    return max(met, max(every + indexed, wide) / pipes, (every + written) / len(core.store_address_ports))


def store_commit(ops: Sequence[CoreOp], times: Times = None) -> float:
    """Cycles that the stores need at commit."""
    return sum(op.commit_cycles * count for op, count in _each(ops, times) if op.store is not None)


def crowding(machine: Machine, ops: Sequence[CoreOp], times: Times = None) -> float:
    """Cycles that wide loads, stores and operations need all together (`Core.crowding`); tiles have their own paths."""
    total = 0.0
    for row in machine.core.crowding:
        kinds = Counter[str]()
        for op, count in _each(ops, times):
            if not op.row.tile:
                kinds["load"] += count * (op.load is not None and row.counts(op.row.load_bits))
                kinds["store"] += count * (op.store is not None and row.counts(op.row.store_bits))
                for at, uop in enumerate(op.uops if row.counts(op.row.vector_bits) else ()):
                    kinds[row.kind(op.row, len(uop) == 1, at == 0)] += count
        total += sum(getattr(row, kind) * count for kind, count in kinds.items())
        total -= row.beside * min(kinds["simple"], kinds["multiply"])
    return total


def dispatch(machine: Machine, ops: Sequence[CoreOp], times: Times = None) -> float:
    """Cycles to dispatch and to retire the slots."""
    slots = sum(op.slots * count for op, count in _each(ops, times))
    return slots / min(machine.core.dispatch_slots, machine.core.retire_slots)


def loop_dispatch(machine: Machine, ops: Sequence[CoreOp], times: Times = None) -> float:
    """`dispatch` of a loop's body: whole cycles for the copies that the loop buffer holds, or for its lines of uops."""
    core, copies, least = machine.core, loop_copies(machine, ops, times), dispatch(machine, ops, times)
    slots = sum(op.slots * count for op, count in _each(ops, times))
    if copies:
        return max(least, math.ceil(copies * slots / core.dispatch_slots) / copies)
    if not core.uop_cache_line:
        return least
    fused = slots - sum(bool(op.split) * count for op, count in _each(ops, times))
    lines = math.ceil(fused / core.uop_cache_line)
    if (
        per := core.uop_cache_evex
    ):  # the least lines with room for all, each `per` EVEX but a line's first taking one more
        evex = sum(count for op, count in _each(ops, times) if op.evex)
        lines = max(lines, math.ceil((per * fused + evex) / (per * core.uop_cache_line + 1)))
    return max(least, float(lines))


def loop_copies(machine: Machine, ops: Sequence[CoreOp], times: Times = None) -> int:
    """How often the loop buffer holds these ops, 0 where it doesn't: then groups go on across the loop's end."""
    if any(op.row.slots > MICROCODED for op in ops):
        return 0
    return machine.core.loop_copies(sum((op.slots - bool(op.split)) * count for op, count in _each(ops, times)))
