"""Runs of the core model: its arrays prepared, its machine code called, and what it found.

`CoreRows` are the different ops of some code, by number; a turn of a loop, or a block, names one for each of its
places, and where the bytes lie that it loads and stores.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from isa_models.errors import SimdnnError
from isa_models.forks import ForkLock
from isa_models.machines.cpu_record import Core, Machine
from simdnn.timing.cpu import core_model
from simdnn.timing.cpu.core_model import CoreModel
from simdnn.timing.cpu.core_state import LOAD, NODES, NOWHERE, OPERATION, UNPLACED
from simdnn.timing.cpu.steps import CoreOp, MemRef
from simdnn.timing.cpu.translate import compiled, fields_of

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
MOST_KEPT = 1 << 23  # numbers of workspace that a thread keeps for its next run

_FIELDS = fields_of(CoreModel)
_SLOT = {name: i for i, name in enumerate(_FIELDS)}
_INTS = (
    *("slots", "split", "occupancy", "uops", "wanted", "reads", "writes", "pointers", "is_move", "is_tile"),
    *("only_loads", "load_bytes", "store_bytes"),
)
_NAMED = (  # numbers that are given when the rows stand beside each other
    *("mnemonic", "accumulator", "moves", "load_tensor", "store_tensor"),
    *("first_uop", "first_wanted", "first_read", "first_write", "first_pointer"),
)
_FLOATS = (
    *("latency", "gain", "interval", "load_pipes", "load_share", "load_latency", "crossing_pipes"),
    *("crossing_latency", "forward_latency", "blocked_latency"),
    *("commit_cycles", "other_line_cycles", "crossing_cycles", "from_other_unit", "late_result"),
)


class _Row(NamedTuple):
    """An op's facts wherever it stands, in the order of `_INTS` and `_FLOATS`, and where it wants room."""

    ints: tuple[int, ...]
    floats: tuple[float, ...]
    wanted: tuple[tuple[int, int], ...]


@functools.lru_cache(maxsize=1 << 16)
def _row(machine: Machine, op: CoreOp) -> _Row:
    load, store = op.load, op.store
    wanted = _places(machine).wanted(op.uops)
    ints = (
        *(op.slots, op.split, op.occupancy, len(op.uops), len(wanted), len(op.reads), len(op.writes)),
        *(len(load.registers) if load else 0, op.moves is not None, op.row.tile, op.only_loads),
        *(load.bytes if load else 0, store.bytes if store else 0),
    )
    floats = (
        *(op.latency, op.accumulator_gain, op.interval, op.load_pipes, op.load_share, op.load_latency),
        *(op.crossing_pipes, op.crossing_latency, op.forward_latency, op.blocked_latency),
        *(op.commit_cycles, op.other_line_cycles, op.crossing_cycles, op.from_other_unit, op.late_result),
    )
    return _Row(tuple(map(int, ints)), tuple(map(float, floats)), wanted)


class _Places:
    """Ports, schedulers and pools of a core by number."""

    def __init__(self, core: Core) -> None:
        number = {port: i for i, port in enumerate(core.ports)}
        count = len(number)
        self.core = core
        self.scheduler_of, self.pool_of, self.banked = [0] * count, [0] * count, [0] * count
        self.room = [scheduler.queue for scheduler in core.schedulers]
        self.parity_of = [0] * len(core.schedulers)
        for index, scheduler in enumerate(core.schedulers):
            for bank, ports in enumerate(scheduler.banks or (scheduler.ports,)):
                for port in ports:
                    self.scheduler_of[number[port]], self.pool_of[number[port]] = index, len(self.room)
                    self.banked[number[port]] = int(bool(scheduler.banks))
                self.room.append(scheduler.size)
                self.parity_of.append(bank)
        self.load_port = [number[port] for port in core.load_ports]
        self.is_load_port = [int(port in core.load_ports) for port in core.ports]

    def wanted(self, uops: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, int], ...]:
        """Where the uops of an op want room, a place among `room`, and how much; each place once."""
        found: dict[int, int] = {}
        for ports in uops:
            index, pool = self.scheduler_of[ports[0]], self.pool_of[ports[0]]
            scheduler = self.core.schedulers[index]
            place = index if scheduler.queue else pool
            found[place] = min(len(uops), scheduler.queue or scheduler.size)
        return tuple(found.items())


@functools.lru_cache(maxsize=64)
def _places(machine: Machine) -> _Places:
    return _Places(machine.core)


class CoreRows:
    """Ops by number, as the arrays of `CoreModel` tell of them."""

    def __init__(self, machine: Machine, ops: Sequence[CoreOp]) -> None:
        self.machine, self.ops = machine, tuple(ops)
        registers: dict[str, int] = {}
        tensors: dict[str, int] = {}
        mnemonics: dict[str, int] = {}
        named, ports = list[tuple[int, ...]](), list[int]()
        lists, uops, wanted = list[int](), list[tuple[int, int]](), list[tuple[int, int]]()
        rows = [_row(machine, op) for op in self.ops]
        for op, row in zip(self.ops, rows, strict=True):
            first = len(lists)
            pointers = op.load.registers if op.load else ()
            lists += [registers.setdefault(name, len(registers)) for name in (*op.reads, *op.writes, *pointers)]
            named.append(
                (
                    mnemonics.setdefault(op.row.mnemonic, len(mnemonics)),
                    NOWHERE if op.accumulator is None else registers.setdefault(op.accumulator, len(registers)),
                    NOWHERE if op.moves is None else registers.setdefault(op.moves, len(registers)),
                    tensors.setdefault(op.load.tensor, len(tensors)) if op.load else NOWHERE,
                    tensors.setdefault(op.store.tensor, len(tensors)) if op.store else NOWHERE,
                    *(len(uops), len(wanted), first, first + len(op.reads), first + len(op.reads) + len(op.writes)),
                )
            )
            for choices in op.uops:
                uops.append((len(ports), len(choices)))
                ports += choices
            wanted += row.wanted
        self.registers, self.tensors, self.mnemonics = max(1, len(registers)), max(1, len(tensors)), len(mnemonics)
        table = [(*row.ints, *numbers) for row, numbers in zip(rows, named, strict=True)]
        ints = np.array(table, np.int64).reshape(-1, len(_INTS) + len(_NAMED)).T.copy()
        floats = np.array([row.floats for row in rows], np.float64).reshape(-1, len(_FLOATS)).T.copy()
        self.arrays: dict[str, Any] = dict(zip((*_INTS, *_NAMED), ints, strict=True))
        self.arrays |= dict(zip(_FLOATS, floats, strict=True))
        self.arrays["registers"] = np.array(lists or [0], np.int64)
        self.arrays["port_lists"] = np.array(ports or [0], np.int64)
        pairs = np.array(uops or [(0, 0)], np.int64).T.copy(), np.array(wanted or [(0, 0)], np.int64).T.copy()
        self.arrays["uop_first"], self.arrays["uop_ports"] = pairs[0]
        self.arrays["wanted_places"], self.arrays["wanted_rooms"] = pairs[1]
        core = machine.core
        places = _places(machine)
        for name in ("scheduler_of", "pool_of", "banked", "parity_of", "load_port", "is_load_port"):
            self.arrays[name] = np.array(getattr(places, name), np.int64)
        for name, values in (
            ("queue_of", [scheduler.queue for scheduler in core.schedulers]),
            ("size_of", [scheduler.size for scheduler in core.schedulers]),
            ("held_of", [scheduler.held_cycles for scheduler in core.schedulers]),
        ):
            self.arrays[name] = np.array(values, np.int64)
        self.steps = np.array([op.steps for op in self.ops], np.int64)
        self.edges = ints[_INTS.index("reads")] + ints[_INTS.index("pointers")] + 5  # what an op may wait for, at most
        self.widest = int(ints[_INTS.index("uops")].max(initial=1))

    @cached_property
    def constants(self) -> dict[str, int]:
        """The scalars of the core."""
        core = self.machine.core
        return {
            "ports": len(core.ports),
            "schedulers": len(core.schedulers),
            "dispatch_slots": core.dispatch_slots,
            "pairs": int(core.binding == "pairs"),
            "retire_slots": core.retire_slots,
            "line_bytes": self.machine.caches[0].line_bytes,
            "pipes": len(core.load_ports),
            "of_a_place": core.loads_of_a_place or len(core.load_ports),
            "store_queue": core.store_queue,
            "rob_room": core.reorder_buffer,
            "load_room": core.load_queue,
            "store_room": core.store_queue,
            "counted_at": -1,
            "tile_store": NOWHERE,
            "last_tensor": NOWHERE,
        }


@dataclass(frozen=True, eq=False)
class Turn:
    """A turn of ops by their rows, with the address of each load and store and what a turn adds to it."""

    rows: CoreRows
    order: Ints
    load_at: Ints
    load_step: Ints
    store_at: Ints
    store_step: Ints

    @property
    def machine(self) -> Machine:
        return self.rows.machine

    @cached_property
    def ops(self) -> list[CoreOp]:
        return [self.rows.ops[number] for number in self.order.tolist()]

    @cached_property
    def key(self) -> tuple[object, ...]:
        """A key that equal turns have equal, whichever rows theirs are among."""
        numbers, first, inverse = np.unique(self.order, return_index=True, return_inverse=True)
        place = np.argsort(np.argsort(first))
        parts = place[inverse], self.load_at, self.load_step, self.store_at, self.store_step
        digest = hashlib.blake2b(b"".join(np.ascontiguousarray(part).data for part in parts)).digest()
        return self.machine, tuple(self.rows.ops[i] for i in numbers[np.argsort(first)].tolist()), digest

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Turn) and self.key == other.key

    @classmethod
    def of(cls, machine: Machine, ops: Sequence[CoreOp]) -> Turn:
        """The turn of ops that know their addresses."""
        number: dict[int, int] = {}
        order = [number.setdefault(id(op), len(number)) for op in ops]
        rows = {id(op): op for op in ops}

        def places(refs: Sequence[MemRef | None]) -> tuple[Ints, Ints]:
            at = [UNPLACED if ref is None or ref.address is None else ref.address for ref in refs]
            return np.array(at, np.int64), np.array([ref.step if ref else 0 for ref in refs], np.int64)

        loads, stores = places([op.load for op in ops]), places([op.store for op in ops])
        return cls(CoreRows(machine, list(rows.values())), np.array(order, np.int64), *loads, *stores)


class Execution(NamedTuple):
    """An op as it went through the core, in cycles; None for what it does not do."""

    op: CoreOp
    iteration: int
    dispatched: int
    load_issued: float | None
    loaded: float | None
    issued: float | None
    done: float
    retired: int


class CoreRun:
    """One run of the core over some turns of a loop, or one of a block."""

    def __init__(self, turn: Turn, turns: int, buffered: int = 0, most_ends: int = 0) -> None:
        """`buffered`: ops that the loop buffer holds. `most_ends`: turns whose ends are noted."""
        self.turn, self.rows = turn, turn.rows
        self.most_ends = most_ends
        size = len(turn.order)
        total = size * turns
        core, places = self.rows.machine.core, _places(self.rows.machine)
        ports, flight = len(core.ports), (core.reorder_buffer + 8) * self.rows.widest + 64
        self.scalars: dict[str, int | float] = {
            **self.rows.constants,
            **{"size": size, "total": total, "buffered": buffered, "until_end": buffered},
            **{"ring": flight, "heap_size": flight, "stalled_after": core_model.STALLED},
        }
        self.given: dict[str, Any] = {
            **self.rows.arrays,
            **{"row_of": turn.order, "load_at": turn.load_at, "load_step": turn.load_step},
            **{"store_at": turn.store_at, "store_step": turn.store_step},
        }
        ways, pools, nodes = len(core.schedulers), len(places.room), NODES * total
        edges = int(self.rows.edges[turn.order].sum()) * turns
        uops = int(self.rows.arrays["uops"][turn.order].sum()) * turns
        tensors = self.rows.tensors * core.store_queue
        self.spaces: dict[str, tuple[int, int | None]] = {  # how many numbers, and what they begin with if that matters
            **dict.fromkeys(("queue_first", "queue_last", "leaving_first", "leaving_last"), (ways, 0)),
            **dict.fromkeys(("pending", "last_bound", "counted", "free_at", "busy"), (ports, 0)),
            **{
                "waiting": (pools, 0),
                "room": (pools, None),
                "heaped": (ports + 3, 0),
                "next_of": (self.rows.mnemonics, 0),
            },
            **{"value_of": (self.rows.registers, NOWHERE), "stores": (self.rows.tensors, 0)},
            **dict.fromkeys(("queued_node", "queued_uop", "queued_parity", "queued_entries"), (ways * flight, None)),
            **dict.fromkeys(("leaving_cycle", "leaving_pool", "leaving_entries"), (ways * flight, None)),
            **{"commit_at": (total + core.store_queue, None), "heap": ((ports + 3) * flight, None)},
            **dict.fromkeys(("retired_at", "dispatched_at", "line_cycles", "remembered"), (total, None)),
            **dict.fromkeys(("waits", "ready", "done", "first_issue", "unissued", "first_user"), (nodes, None)),
            **dict.fromkeys(("first_bound", "next_work", "unit", "place", "pipes_of", "late"), (nodes, None)),
            **dict.fromkeys(("edge_next", "edge_user", "edge_gain"), (edges, None)),
            **dict.fromkeys(("bound_next", "bound_port"), (uops, None)),
            **dict.fromkeys(("stored_from", "stored_to", "stored_age"), (tensors, None)),
            **{
                "places": (core.load_queue + 64, None),
                "sent": (self.rows.widest, None),
                "end_at": (most_ends + 64, None),
            },
            "busy_at": ((most_ends + 64) * ports, None),
        }
        self.size, self.turns = size, turns
        self._lay_out(places)

    def _lay_out(self, places: _Places) -> None:
        """The record of the state, and the workspace that it points into."""
        slots, sizes = [_SLOT[name] for name in self.spaces], [count for count, _ in self.spaces.values()]
        starts = np.cumsum([0, *sizes])
        self.space = _workspace(int(starts[-1]))
        self.state = np.zeros(len(_FIELDS), np.int64)
        self.state[slots] = self.space.ctypes.data + 8 * starts[:-1]
        self.at = dict(zip(self.spaces, zip(starts.tolist(), sizes, strict=False), strict=True))
        for name, (_, first) in self.spaces.items():
            if first is not None:
                self.array(name)[:] = first
        self.array("room")[:] = places.room
        for name, array in self.given.items():
            self.state[_SLOT[name]] = array.ctypes.data
        for name, value in self.scalars.items():
            self.state[_SLOT[name]] = value
        self.pointer = self.state.ctypes.data

    def array(self, name: str) -> Any:
        """An array of the state, as it is."""
        start, count = self.at[name]
        found = self.space[start : start + count]
        return found.view(np.float64) if _FIELDS[name] == "double*" else found

    def fill_store_queue(self, commit_cycles: float) -> None:
        _code()["fill_store_queue"](self.pointer, commit_cycles)

    def finish(self) -> CoreRun:
        """Go on to the last retirement."""
        return self._checked(_code()["run"](self.pointer, self.size * self.turns) - 1)

    def settle(self, warm: int, most: int, repeats: int, longest: int) -> int:
        """Go on until the time between the ends of turns repeats: its period, 0 where it does not in `most` turns."""
        period = int(_code()["settle"](self.pointer, warm, most, repeats, longest))
        self._checked(period)
        return period

    def _checked(self, answer: int) -> CoreRun:
        if answer < 0:
            raise self._stalled()
        return self

    def _stalled(self) -> SimdnnError:
        """The error for an op that never ends: a fault of the model or of the machine's file."""
        age = int(self.state[_SLOT["retired"]])
        row = self.rows.ops[int(self.turn.order[age % self.size])].row
        what = f"'{row.mnemonic} {row.form}'"
        return SimdnnError(f"no retirement in {core_model.STALLED} simulated cycles; the oldest instruction is {what}")

    @property
    def cycle(self) -> int:
        """The cycle behind the last one."""
        return int(self.state[_SLOT["cycle"]])

    @property
    def retired(self) -> Ints:
        """For each op the cycle of its retirement."""
        return self.array("retired_at")[: int(self.state[_SLOT["retired"]])].copy()  # type: ignore[no-any-return]

    @property
    def busy(self) -> list[float]:
        """Cycles of work on each port."""
        return self.array("busy").tolist()  # type: ignore[no-any-return]

    @property
    def ends(self) -> Ints:
        """The cycles in which turns ended."""
        return self.array("end_at")[: int(self.state[_SLOT["ends"]])].copy()  # type: ignore[no-any-return]

    def busy_at(self, end: int) -> list[float]:
        """Cycles of work on each port by the end of a turn."""
        ports = len(self.rows.machine.core.ports)
        return self.array("busy_at")[end * ports : (end + 1) * ports].tolist()  # type: ignore[no-any-return]

    @property
    def trace(self) -> list[Execution]:
        """Every op as it went through the core."""
        done, issued = self.array("done").tolist(), self.array("first_issue").tolist()
        retired, dispatched = self.array("retired_at").tolist(), self.array("dispatched_at").tolist()
        found = []
        for age, number in enumerate(np.tile(self.turn.order, self.turns).tolist()):
            op, node = self.rows.ops[number], NODES * age
            own = node + (LOAD if op.only_loads else OPERATION)
            load = node + LOAD if op.load is not None else None
            found.append(
                Execution(
                    op,
                    age // self.size,
                    dispatched[age],
                    load_issued=None if load is None else issued[load],
                    loaded=None if load is None else done[load],
                    issued=None if op.only_loads or not op.uops else issued[own],
                    done=done[own],
                    retired=retired[age],
                )
            )
        return found


_KEPT = threading.local()


def _workspace(count: int) -> Ints:
    """Numbers to write on, those of this thread's last run where they are enough."""
    found: Ints | None = getattr(_KEPT, "space", None)
    if found is None or len(found) < count:
        found = np.empty(count, np.int64)
        if count <= MOST_KEPT:
            _KEPT.space = found
    return found


_LOCK = ForkLock()


def _code() -> Any:
    """The machine code of the core model."""
    with _LOCK:
        return _made()


@functools.cache
def _made() -> Any:
    number, real = ctypes.c_int64, ctypes.c_double
    return compiled(CoreModel, {"run": [number], "settle": [number] * 4, "fill_store_queue": [real]})
