"""Lower bounds on the cycles of a loop body, each true of any schedule: ports, dispatch, memory, and chains."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence

from isa_models.machine import Machine

from .steps import Op


def port_load(ops: Sequence[Op]) -> float:
    """Cycles that the busiest set of ports needs for the uops that can run nowhere else (loads: `load_pipes`).

    The bound is exact for the best assignment (max-flow, min-cut), over the unions of the port lists that occur.
    """
    work: dict[frozenset[int], float] = defaultdict(float)
    own: dict[str, float] = defaultdict(float)
    for op in ops:
        for uop in op.uops:
            work[frozenset(uop)] += op.occupancy
        if op.interval:
            own[op.row.mnemonic] += op.interval
    unions = _unions(list(work))
    ports = max((sum(w for s, w in work.items() if s <= u) / len(u) for u in unions), default=0.0)
    return max(ports, max(own.values(), default=0.0))


def _unions(sets: list[frozenset[int]]) -> set[frozenset[int]]:
    """All unions of some of the sets (there are few different port lists)."""
    found: set[frozenset[int]] = set()
    for one in sets:
        found |= {one | other for other in found} | {one}
    return found


def load_pipes(machine: Machine, ops: Sequence[Op]) -> float:
    """Cycles that the load pipes need."""
    return sum(op.load_pipes for op in ops if op.load is not None) / len(machine.core.load_ports)


def store_commit(ops: Sequence[Op]) -> float:
    """Cycles that the stores need at commit, less what wide loads may take from them."""
    return sum(op.commit_cycles for op in ops if op.store is not None)


def dispatch(machine: Machine, ops: Sequence[Op]) -> float:
    """Cycles to dispatch and to retire the slots."""
    return sum(op.slots for op in ops) / min(machine.core.dispatch_slots, machine.core.retire_slots)


def chain(ops: Sequence[Op]) -> float:
    """Cycles an iteration of the slowest loop-carried chain through registers.

    The longest mean cycle of the dependence graph: from each register that is carried, follow the body `n` times for
    `n` carried registers, and take the most that a register gains an iteration.
    """
    carried = _carried(ops)
    best = 0.0
    for start in carried:
        times = {start: 0.0}
        for turn in range(1, len(carried) + 1):
            after = _once(ops, times)
            times = {register: time for register, time in after.items() if register in carried}
            if start in times:
                best = max(best, times[start] / turn)
            if times.keys() <= {start}:  # it feeds nothing else: later turns repeat this one
                break
    return best


def _carried(ops: Sequence[Op]) -> set[str]:
    """Registers read before they are written, and written."""
    written: set[str] = set()
    early: set[str] = set()
    for op in ops:
        for register in _sources(op):
            if register not in written:
                early.add(register)
        written.update(op.writes)
    return early & written


def _sources(op: Op) -> itertools.chain[str]:
    moved = (op.moves,) if op.moves is not None else ()
    late = (op.accumulator,) if op.accumulator is not None else ()
    address = op.load.registers if op.load is not None else ()
    return itertools.chain(op.reads, moved, late, address)


def _once(ops: Sequence[Op], times: dict[str, float]) -> dict[str, float]:
    """Follow known register times through the body once; registers that don't depend on them drop out."""
    now = dict(times)
    for op in ops:
        starts: list[float] = []
        if op.moves is not None:
            starts = [now[op.moves]] if op.moves in now else []
        else:
            starts += [now[r] + op.latency for r in op.reads if r in now]
            if op.accumulator is not None and op.accumulator in now:
                starts.append(now[op.accumulator] + op.latency - op.accumulator_gain)
            if op.load is not None:
                starts += [now[r] + op.load_latency + op.latency for r in op.load.registers if r in now]
        for register in op.writes:
            if starts:
                now[register] = max(starts)
            else:
                now.pop(register, None)
    return now
