"""Runs of the core model: its arrays prepared, its machine code called, and what it found.

A turn of a loop, or a block, names a row (`CoreRows`) for each of its places, and where the bytes lie that it loads and
stores.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from isa_models.errors import SimdnnError
from isa_models.host.memory import address
from isa_models.machines.cpu_record import Machine
from simdnn.timing.cpu import core_model
from simdnn.timing.cpu.banks import ENDS
from simdnn.timing.cpu.core_model import CoreModel
from simdnn.timing.cpu.core_rows import FIELDS, SLOT, CoreRows, Ints, places_of
from simdnn.timing.cpu.core_state import LOAD, NODES, NOWHERE, OPERATION, UNPLACED
from simdnn.timing.cpu.dealing import CYCLES
from simdnn.timing.cpu.schedulers import RING, SLID
from simdnn.timing.cpu.steps import CoreOp, MemRef
from simdnn.timing.translated import Translated

_INTEGER, _REAL = ctypes.c_int64, ctypes.c_double
_CORE = Translated(CoreModel, {"meet": [], "run": [_INTEGER], "settle": [_INTEGER] * 4, "fill_store_queue": [_REAL]})

SPACES = (  # arrays to write on, and what they have a number of their own for: first those that begin with zeros
    *((name, "scheduler") for name in ("queue_first", "queue_last", "filled_at")),
    *((name, "port") for name in ("pending", "last_bound", "counted", "free_at", "busy", "results", "results_from")),
    *((name, "port") for name in ("chosen", "kept", "apart", "alone", "further", "passed_last", "passes")),
    ("waited_before", "port_before"),
    *(("rooms_at", "bank_cycle"), ("waited_at", "bank_port_cycle"), ("uneven_at", "end_of_cycle"), ("held", "bank")),
    *((name, "port_cycle") for name in ("bound_in", "issued_in")),
    *(("heaped", "heap"), ("next_of", "mnemonic"), ("stores", "tensor"), ("third_until", "pool")),
    *(("value_of", "register"), ("room", "pool")),  # these begin with other numbers, and all behind them with any
    *((name, "queue") for name in ("queued_node", "queued_uop", "queued_place")),
    *(("commit_at", "commit"), ("heap", "heaps")),
    *((name, "op") for name in ("row_at", "retired_at", "dispatched_at", "line_cycles", "remembered", "meets")),
    *((name, "node") for name in ("waits", "ready", "done", "first_issue", "unissued", "first_user", "longer")),
    *(
        (name, "node")
        for name in (
            "first_bound",
            "next_work",
            "unit",
            "sent_to",
            "place",
            "pipes_of",
            "late",
            "unit_of",
            "parts",
            "source",
        )
    ),
    *((name, "edge") for name in ("edge_next", "edge_user", "edge_gain")),
    *((name, "uop") for name in ("bound_next", "bound_port")),
    *((name, "stored") for name in ("stored_from", "stored_to", "stored_age")),
    *(
        ("passed", "passed"),
        ("places", "load"),
        ("place_ends", "load"),
        ("sent", "widest"),
        ("unit_does", "unit"),
        ("lanes", "lane"),
    ),
    *(("end_at", "end"), ("ahead_at", "end"), ("busy_at", "end_port")),
)
APART = 8  # numbers between two arrays, a line: else those of one node lie in few sets of the first cache
_PLACE = {name: place for place, (name, _) in enumerate(SPACES)}
_ZEROED = _PLACE["value_of"]
_TOLD = ("row_of", "load_at", "load_step", "store_at", "store_step")  # of each place in a turn
_SCALARS = (
    *("size", "total", "buffered", "until_end", "ring", "heap_size", "stalled_after", "mask_room"),
    "places_matter",
)
_EACH_TOLD = np.arange(len(_TOLD))
_SPACE_SLOTS, _TOLD_SLOTS, _SCALAR_SLOTS = (
    np.array([SLOT[name] for name in names]) for names in (_PLACE, _TOLD, _SCALARS)
)


@dataclass(frozen=True, eq=False)
class Turn:
    """A turn of ops. `told` has for each its row, the address of its load and what a turn adds to it, and the same of
    its store.
    """

    rows: CoreRows
    told: Ints

    @property
    def order(self) -> Ints:
        """The row of each op."""
        found: Ints = self.told[0]
        return found

    @property
    def machine(self) -> Machine:
        return self.rows.machine

    @property
    def arrays(self) -> dict[str, Ints]:
        """Arrays for the core model, by the names that they have there."""
        return dict(zip(_TOLD, self.told, strict=True))

    @cached_property
    def ops(self) -> list[CoreOp]:
        return [self.rows.ops[number] for number in self.order.tolist()]

    @cached_property
    def counted(self) -> tuple[list[CoreOp], list[int]]:
        """The ops, those that bounds can't tell apart once, and how often each stands there."""
        return self.rows.counted(self.order)

    @cached_property
    def free_masks(self) -> int:
        """Mask registers for results in flight: all of the core's that hold no value of the turn."""
        return self.rows.free_masks(self.order)

    @classmethod
    def of(cls, machine: Machine, ops: Sequence[CoreOp]) -> Turn:
        """The turn of ops that know their addresses."""
        number: dict[int, int] = {}
        order = [number.setdefault(id(op), len(number)) for op in ops]
        rows = {id(op): op for op in ops}

        def places(refs: Sequence[MemRef | None]) -> tuple[list[int], list[int]]:
            at = [UNPLACED if ref is None or ref.address is None else ref.address for ref in refs]
            return at, [ref.step if ref else 0 for ref in refs]

        loads, stores = places([op.load for op in ops]), places([op.store for op in ops])
        return cls(CoreRows(machine, list(rows.values())), np.array([order, *loads, *stores], np.int64))


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


class _Layout(NamedTuple):
    """Where the arrays of `SPACES` begin in a workspace, in the workspace's numbers and behind its address."""

    starts: list[int]
    offsets: Ints
    ring: int  # places in the queue of a scheduler
    heap: int  # and of a heap


def _layout_for(rows: CoreRows, total: int, ends: int) -> _Layout:
    """Room for runs of `total` ops and `ends` ends of turns; counts are rounded up, so that few layouts are made."""
    counts = total, ends, len(rows.registers), len(rows.tensors), len(rows.mnemonics)
    return _layout(rows.machine, rows.most_uops, rows.most_waits, *[_rounded(count) for count in counts])


def _rounded(count: int) -> int:
    """A power of two with room for a count."""
    return max(64, 1 << (count - 1).bit_length())


@lru_cache(maxsize=1024)
def _layout(
    machine: Machine, uops: int, waits: int, total: int, ends: int, registers: int, tensors: int, mnemonics: int
) -> _Layout:
    """`uops` and `waits` (registers that it waits for): the most of one op."""
    core, places = machine.core, places_of(machine)
    ways, ports, widest = len(core.schedulers), len(core.ports), max(1, uops)
    flight = (core.reorder_buffer + 8) * widest + 64
    most_entries = max(store.entries for store in core.stores)
    ring, heaps = 1 << (flight - 1).bit_length(), ports + 3 + max(core.address_units, len(core.load_ports))
    counts = {
        "scheduler": ways,
        "port": ports,
        "port_cycle": ports * RING,
        "port_before": ports * CYCLES,
        "end_of_cycle": ENDS,
        "bank": 2,
        "bank_cycle": 2 * ENDS,
        "bank_port_cycle": ports * ENDS,
        "lane": core.dispatch_slots + SLID,
        "pool": len(places.room),
        "heap": heaps,
        "unit": max(len(core.load_ports), core.address_units),
        "mnemonic": mnemonics,
        "tensor": tensors,
        "register": registers,
        "queue": ways * ring,
        "commit": most_entries * total + core.store_queue,
        "heaps": heaps * flight,
        "op": total,
        "node": NODES * total,
        "edge": (waits + 5) * total,  # what ops may wait for, at most
        "uop": widest * total,
        "stored": tensors * core.store_queue,
        "load": core.load_queue + 64,
        "widest": widest,
        "passed": flight,
        "end": ends,
        "end_port": ends * ports,
    }
    starts = np.cumsum([0, *[counts[number] + APART for _, number in SPACES]])
    return _Layout(starts.tolist(), 8 * starts[:-1], ring, flight)


class CoreRun:
    """One run of the core over some turns of a loop, or one of a block."""

    def __init__(self, turn: Turn, turns: int, buffered: int = 0, most_ends: int = 0) -> None:
        """`buffered`: ops that the loop buffer holds. `most_ends`: turns whose ends are noted."""
        self.turn, self.rows = turn, turn.rows
        self.size, self.turns = turn.told.shape[1], turns
        total = self.size * turns
        self.starts, offsets, ring, heap = _layout_for(self.rows, total, most_ends + 64)
        limits = core_model.STALLED, turn.free_masks, self.rows.places_matter
        scalars = self.size, total, buffered, buffered, ring, heap, *limits
        self.scalars = dict(zip(_SCALARS, scalars, strict=True))
        self.space = _CORE.room(self.starts[-1])
        self.space[: self.starts[_ZEROED]] = 0
        self.array("value_of")[:] = NOWHERE
        self.array("room")[:] = places_of(self.rows.machine).room
        self.told = np.ascontiguousarray(turn.told)
        self.state, self.given = self.rows.given()
        self.state[_SPACE_SLOTS] = offsets + address(self.space)
        self.state[_TOLD_SLOTS] = address(self.told) + 8 * self.size * _EACH_TOLD
        self.state[_SCALAR_SLOTS] = scalars
        self.pointer = address(self.state)
        self.placed = _CORE["meet"](self.pointer) != 0  # whether any of its ops has an address

    @property
    def meetings(self) -> bytes:
        """A digest of what loads and stores meet in memory: runs of the same ops where it is equal are equal."""
        return blake2b(self.array("meets")[: self.size * self.turns]).digest()

    def array(self, name: str) -> Any:
        """An array of the state, as it is."""
        place = _PLACE[name]
        found = self.space[self.starts[place] : self.starts[place + 1] - APART]
        return found.view(np.float64) if FIELDS[name] == "double*" else found

    def fill_store_queue(self, commit_cycles: float) -> None:
        _CORE["fill_store_queue"](self.pointer, commit_cycles)

    def finish(self) -> CoreRun:
        """Go on to the last retirement."""
        return self._checked(_CORE["run"](self.pointer, self.size * self.turns) - 1)

    def settle(self, warm: int, most: int, repeats: int, longest: int) -> int:
        """Go on until the time between the ends of turns repeats: its period, 0 where it does not in `most` turns."""
        period = int(_CORE["settle"](self.pointer, warm, most, repeats, longest))
        self._checked(period)
        return period

    def _checked(self, answer: int) -> CoreRun:
        if answer < 0:
            raise self._stalled()
        return self

    def _stalled(self) -> SimdnnError:
        """The error for an op that never ends: a fault of the model or of the machine's file."""
        age = int(self.state[SLOT["retired"]])
        row = self.rows.ops[int(self.turn.order[age % self.size])].row
        what = f"'{row.mnemonic} {row.form}'"
        return SimdnnError(f"no retirement in {core_model.STALLED} simulated cycles; the oldest instruction is {what}")

    @property
    def cycle(self) -> int:
        """The cycle behind the last one."""
        return int(self.state[SLOT["cycle"]])

    @property
    def retired(self) -> Ints:
        """For each op the cycle of its retirement, less the core's delay of all: when its results are there."""
        return self.array("retired_at")[: int(self.state[SLOT["retired"]])].copy()  # type: ignore[no-any-return]

    def retired_each(self, every: int) -> tuple[int, ...]:
        """The retirements of each `every`-th op."""
        return tuple(self.retired[every - 1 :: every].tolist())

    @property
    def busy(self) -> list[float]:
        """Cycles of work on each port."""
        return self.array("busy").tolist()  # type: ignore[no-any-return]

    @property
    def ends(self) -> Ints:
        """The cycles in which turns ended."""
        return self.array("end_at")[: int(self.state[SLOT["ends"]])].copy()  # type: ignore[no-any-return]

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
