"""Lower bounds on the cycles of a loop body, each true of any schedule: ports, dispatch, memory, and chains."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence

from isa_models.machine import Machine

from .steps import Op

MOST_UNIONS = 4096
MICROCODED = 4  # slots beyond which an instruction is not decoded, but read from the microcode


def port_load(ops: Sequence[Op]) -> float:
    """Cycles that the busiest set of ports needs for the uops that can run nowhere else (loads: `load_pipes`).

    The bound is exact for the best assignment (max-flow, min-cut), over the unions of the port lists that occur.
    """
    own: dict[str, float] = defaultdict(float)
    for op in ops:
        if op.interval:
            own[op.row.mnemonic] += op.interval
    return max(busiest_ports(ops)[0], max(own.values(), default=0.0))


def busiest_ports(ops: Sequence[Op]) -> tuple[float, frozenset[int]]:
    """The cycles of `port_load` less intervals, and the set of ports."""
    work: dict[frozenset[int], float] = defaultdict(float)
    for op in ops:
        for uop in op.uops:
            work[frozenset(uop)] += op.occupancy
    loads = [(sum(w for s, w in work.items() if s <= u) / len(u), u) for u in _unions(list(work))]
    return max(loads, key=lambda found: (found[0], len(found[1])), default=(0.0, frozenset()))


def _unions(sets: list[frozenset[int]]) -> set[frozenset[int]]:
    """All unions of some of the sets (there are few different port lists)."""
    found: set[frozenset[int]] = set()
    for one in sets:
        if len(found) > MOST_UNIONS:  # no core's; fewer sets bound as truly, if less tightly
            break
        found |= {one | other for other in found} | {one}
    return found


def load_pipes(machine: Machine, ops: Sequence[Op]) -> float:
    """Cycles that the load pipes need: all loads, those that fewer of them take, and stores whose address they form.

    A store's address at two registers is formed on the load ports where those are among the ports for addresses of
    stores (the other one forms simple addresses alone); else loads and stores together have all of these ports.
    """
    core = machine.core
    pipes = len(core.load_ports)
    loads = [op for op in ops if op.load is not None]
    wide = sum(op.load_share for op in loads if op.load_pipes <= pipes)
    every = sum(op.load_pipes for op in loads)
    if not set(core.load_ports) < set(core.store_address_ports):
        return max(every, wide) / pipes
    stores = [op.store for op in ops if op.store is not None]
    indexed = sum(store.indexed for store in stores)
    return max(max(every + indexed, wide) / pipes, (every + len(stores)) / len(core.store_address_ports))


def store_commit(ops: Sequence[Op]) -> float:
    """Cycles that the stores need at commit, less what wide loads may take from them."""
    return sum(op.commit_cycles for op in ops if op.store is not None)


def dispatch(machine: Machine, ops: Sequence[Op]) -> float:
    """Cycles to dispatch and to retire the slots."""
    return sum(op.slots for op in ops) / min(machine.core.dispatch_slots, machine.core.retire_slots)


def loop_dispatch(machine: Machine, ops: Sequence[Op]) -> float:
    """`dispatch` of a loop's body: whole cycles for the copies that the loop buffer holds, or for its lines of uops."""
    core, copies, least = machine.core, loop_copies(machine, ops), dispatch(machine, ops)
    slots = sum(op.slots for op in ops)
    if copies:
        return max(least, math.ceil(copies * slots / core.dispatch_slots) / copies)
    fused = slots - sum(bool(op.split) for op in ops)
    return max(least, float(math.ceil(fused / core.uop_cache_line))) if core.uop_cache_line else least


def loop_copies(machine: Machine, ops: Sequence[Op]) -> int:
    """How often the loop buffer holds these ops, 0 where it doesn't: then groups go on across the loop's end."""
    if any(op.row.slots > MICROCODED for op in ops):
        return 0
    return machine.core.loop_copies(sum(op.slots - bool(op.split) for op in ops))


def chain(ops: Sequence[Op]) -> float:
    """Cycles an iteration of the slowest loop-carried chain through registers.

    The longest mean cycle of the dependence graph: from each register that is carried, follow the body `n` times for
    `n` carried registers, and take the most that a register gains an iteration.
    """
    return slowest_chain(ops)[0]


def slowest_chain(ops: Sequence[Op]) -> tuple[float, tuple[int, ...]]:
    """The cycles of `chain`, and which ops it runs through, in their order, until it is back where it began."""
    carried = _carried(ops)
    best, path = 0.0, None
    for start in carried:
        times: _Times = {start: (0.0, None)}
        for turn in range(1, len(carried) + 1):
            after = _once(ops, times)
            times = {register: time for register, time in after.items() if register in carried}
            if start in times and times[start][0] / turn > best:
                best, path = times[start][0] / turn, times[start][1]
            if times.keys() <= {start}:  # it feeds nothing else: later turns repeat this one
                break
    found = []
    while path is not None:
        index, path = path
        found.append(index)
    return best, tuple(reversed(found))


def _carried(ops: Sequence[Op]) -> list[str]:
    """Registers read before they are written, and written; in the order of their first reading."""
    written: set[str] = set()
    early: dict[str, None] = {}
    for op in ops:
        for register in _sources(op):
            if register not in written:
                early[register] = None
        written.update(op.writes)
    return [register for register in early if register in written]


def _sources(op: Op) -> itertools.chain[str]:
    moved = (op.moves,) if op.moves is not None else ()
    late = (op.accumulator,) if op.accumulator is not None else ()
    address = op.load.registers if op.load is not None else ()
    return itertools.chain(op.reads, moved, late, address)


_Link = tuple[int, "_Link | None"]  # an op's index, and what came before it
_Times = dict[str, tuple[float, "_Link | None"]]


def _once(ops: Sequence[Op], times: _Times) -> _Times:
    """Follow known register times through the body once; registers that don't depend on them drop out."""
    now = dict(times)
    for index, op in enumerate(ops):
        latest: tuple[float, _Link | None] | None = None
        if op.moves is not None:
            latest = now.get(op.moves)
        else:
            for register, latency in _waits(op):
                if register in now and (latest is None or now[register][0] + latency > latest[0]):
                    latest = now[register][0] + latency, now[register][1]
        for register in op.writes:
            if latest is not None:
                now[register] = latest[0], (index, latest[1])
            else:
                now.pop(register, None)
    return now


def _waits(op: Op) -> list[tuple[str, float]]:
    """Registers that an op reads, with the cycles from each to its result."""
    found = [(register, op.latency) for register in op.reads]
    if op.accumulator is not None:
        found.append((op.accumulator, op.latency - op.accumulator_gain))
    if op.load is not None:
        found += [(register, op.load_latency + op.latency) for register in op.load.registers]
    return found
