"""The limit of a loop on a machine as a sentence of its analysis, and the kind of change that helps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from simdnn.timing.cpu import bounds
from simdnn.timing.cpu.steps import CoreOp, MemRef

if TYPE_CHECKING:
    from simdnn.assembly.analysis import Analysis

_TURNS = 9  # iterations over which a value is looked for in memory
#: by bound, as docs/glossary.md has them
REMEDIES = {
    "compute": "an instruction that does more a uop (VNNI for `vpmaddubsw`), a wider register",
    "load": "wider accesses, values kept in registers",
    "store": "wider accesses, values kept in registers",
    "crowding": "fewer of them in one place",
    "front-end": "fewer instructions: loads folded into arithmetic, unrolling",
    "latency": "more accumulators, so that chains run beside each other",
    "memory": "keeping it in a register",
    "window": "another order of instructions",
}


def handed_over(loop: Analysis) -> tuple[str, str] | None:
    """A store and the load that reads it, earlier in the iteration or in a few iterations before; None without."""
    texts = [one.text for one, count in zip(loop.body, loop.parts, strict=True) for _ in range(count)]
    steps = list(zip(loop.steps, texts, strict=True))
    written = {place: text for turns in range(1, _TURNS) for step, text in steps for place in _bytes(step.store, turns)}
    for step, text in steps:
        if found := next((written[place] for place in _bytes(step.load) if place in written), None):
            return found, text
        written |= dict.fromkeys(_bytes(step.store), text)
    return None


def on_busiest_ports(loop: Analysis) -> list[CoreOp]:
    """The ops of uops that run on the busiest ports alone, one for each such uop."""
    _, busiest = bounds.busiest_ports(loop.ops)
    return [op for op in loop.ops for uop in op.uops if set(uop) <= busiest]


def _say_compute(loop: Analysis) -> str:
    cycles, busiest = bounds.busiest_ports(loop.ops)
    limit = loop.timing.limits["compute"]
    if limit > cycles + 1e-9:
        slow = Counter[str]()
        for op in loop.ops:
            slow[op.unit] += round(1000 * op.interval)
        unit = slow.most_common(1)[0][0]
        sharing = list(dict.fromkeys(op.row.mnemonic for op in loop.ops if op.interval and op.unit == unit))
        used = f"a unit that {unit} alone uses" if sharing == [unit] else f"the {unit} ({_listed(sharing)})"
        return f"{used} is at work for {_of_all(limit, loop)}"
    names = [loop.machine.core.ports[index] for index in sorted(busiest)]
    users = Counter(op.row.mnemonic for op in on_busiest_ports(loop))
    most = " and ".join(name for name, _ in users.most_common(2))
    ports = f"port {names[0]} is" if len(names) == 1 else f"ports {_listed(names)} are"
    count = sum(users.values())
    uops = (
        f"1 uop ({most}) that runs nowhere else takes"
        if count == 1
        else (f"{count} uops ({most}) that run nowhere else take")
    )
    return f"{ports} full: {uops} {_of_all(cycles, loop)}"


def _say_load(loop: Analysis) -> str:
    count = sum(op.load is not None for op in loop.ops)
    loads = "1 load takes" if count == 1 else f"{count} loads take"
    return f"the load pipes are full: {loads} {_of_all(loop.timing.limits['load'], loop)}"


def _say_store(loop: Analysis) -> str:
    count = sum(op.store is not None for op in loop.ops)
    stores = "1 takes" if count == 1 else f"{count} take"
    return f"stores reach the cache no faster: {stores} {_of_all(loop.timing.limits['store'], loop)}"


def _say_crowding(loop: Analysis) -> str:
    return (
        "wide loads, stores and operations crowd each other: together they take "
        f"{_of_all(loop.timing.limits['crowding'], loop)}, though no port is full"
    )


def _say_front_end(loop: Analysis) -> str:
    slots, width = sum(op.slots for op in loop.ops), loop.machine.core.dispatch_slots
    copies = bounds.loop_copies(loop.machine, loop.ops)
    buffered = f" ({copies} iterations from the loop buffer in whole cycles)" if copies else ""
    limit = loop.timing.limits["front-end"]
    took = f"{slots} {'slot takes' if slots == 1 else 'slots take'} {_of_all(limit, loop)}"
    if not copies and limit > bounds.dispatch(loop.machine, loop.ops) + 1e-9:
        return f"a loop leaves the uop cache in whole lines, one a cycle: {took}"
    return f"dispatch is full at {width} slots a cycle: {took}{buffered}"


def _say_latency(loop: Analysis) -> str:
    if loop.timing.limits["latency"] > loop.timing.chain_cycles + 1e-9:
        return (
            "chains through the addend leave their ports no slack, and so reach only a part of them: "
            f"{loop.timing.cycles:.2f} cycles"
        )
    links = " -> ".join(f"'{text}'" for text in loop.chain[:3]) + (" -> ..." if len(loop.chain) > 3 else "")
    return f"each iteration waits for the one before: the chain {links} takes {_of_all(loop.timing.chain_cycles, loop)}"


def _say_memory(loop: Analysis) -> str:
    store, load = handed_over(loop) or ("", "")
    return (
        f"values go from iteration to iteration through memory: '{load}' waits for what '{store}' stores, "
        f"{loop.timing.cycles:.2f} cycles in all"
    )


def _say_window(loop: Analysis) -> str:
    name = loop.timing.bound
    return (
        f"no unit is full ({name} alone would allow {loop.timing.limits[name]:.2f} cycles): ports chosen unevenly "
        f"and the scheduler's window cost the rest of {loop.timing.cycles:.2f} cycles"
    )


#: the sentence by bound
LIMITED_BY: Mapping[str, Callable[[Analysis], str]] = {
    "compute": _say_compute,
    "load": _say_load,
    "store": _say_store,
    "crowding": _say_crowding,
    "front-end": _say_front_end,
    "latency": _say_latency,
    "memory": _say_memory,
    "window": _say_window,
}


def _bytes(reference: MemRef | None, turns: int = 0) -> Iterator[tuple[str, int]]:
    """The bytes that an operand had a number of iterations before, as array and offset."""
    if reference is not None and reference.address is not None:
        first = reference.address - turns * reference.step
        for byte in range(first, first + reference.bytes):
            yield reference.tensor, byte


def _of_all(cycles: float, loop: Analysis) -> str:
    return f"{cycles:.2f} of {loop.timing.cycles:.2f} cycles"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
