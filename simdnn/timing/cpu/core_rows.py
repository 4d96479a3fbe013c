"""Ops as rows of numbers, which the core model reads; a row is added where an op is met first.

Programs of many shapes have the same ops, so a machine's rows are kept, and what each of them is costs once.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from isa_models.host.memory import address
from isa_models.machines.cpu_record import Machine
from simdnn.timing.cpu import bounds
from simdnn.timing.cpu.core_model import CoreModel
from simdnn.timing.cpu.core_state import NOWHERE
from simdnn.timing.cpu.schedulers import NO_PORT
from simdnn.timing.cpu.steps import CoreOp
from simdnn.timing.translate import fields_of

Ints = npt.NDArray[np.int64]

FIELDS = fields_of(CoreModel)
SLOT = {name: i for i, name in enumerate(FIELDS)}
_INTS = (
    *("slots", "split", "occupancy", "uops", "wanted", "reads", "writes", "pointers", "is_move", "is_tile"),
    *("only_loads", "load_bytes", "store_bytes", "store_addresses", "store_entries", "way", "masks", "vectors"),
    *("flags", "late_flags", "shares_result", "yields", "hindered", "bypass_wide"),
)
_NAMED = (  # numbers that are given when the rows stand beside each other
    *("mnemonic", "accumulator", "moves", "load_tensor", "store_tensor"),
    *("first_uop", "first_wanted", "first_read", "first_write", "first_pointer"),
)
_FLOATS = (
    *("latency", "gain", "interval", "load_pipes", "load_share", "load_latency", "crossing_pipes"),
    *("crossing_latency", "forward_latency", "blocked_latency"),
    *("commit_cycles", "other_line_cycles", "crossing_cycles", "from_other_unit", "on_other_unit"),
    *("late_result", "late_stored"),
)


ANY = 1 << 40  # registers, more than ever are in flight
_INT_PLACE = {name: place for place, name in enumerate((*_INTS, *_NAMED))}


class Numbers:
    """Numbers of numbers by name, to which rows are added: room for as many again is made where there is none left, and
    who has the arrays of before keeps them as they were.
    """

    def __init__(self, *names: str, dtype: Any = np.int64) -> None:
        self.names, self.count = names, 0
        self.values = np.zeros((len(names), 64), dtype)

    def add(self, rows: Sequence[Sequence[float]]) -> None:
        end = self.count + len(rows)
        if end > self.values.shape[1]:
            values = np.zeros((len(self.names), 2 * end), self.values.dtype)
            values[:, : self.count] = self.values[:, : self.count]
            self.values = values
        if rows:
            self.values[:, self.count : end] = np.array(rows, self.values.dtype).T
        self.count = end

    @property
    def columns(self) -> dict[str, Any]:
        return dict(zip(self.names, self.values, strict=True))

    @property
    def addresses(self) -> dict[str, int]:
        """Where in memory each of the columns begins."""
        first, step = address(self.values), self.values.strides[0]
        return {name: first + step * place for place, name in enumerate(self.names)}


class _Row(NamedTuple):
    """An op's facts wherever it stands, in the order of `_INTS` and `_FLOATS`, and where it wants room."""

    ints: tuple[int, ...]
    floats: tuple[float, ...]
    wanted: tuple[tuple[int, int], ...]


def _row(machine: Machine, op: CoreOp) -> _Row:
    load, store = op.load, op.store
    wanted = places_of(machine).wanted(op.uops)
    ints = (
        *(op.slots, op.split, op.occupancy, len(op.uops), len(wanted), len(op.reads), len(op.writes)),
        *(len(load.registers) if load else 0, op.moves is not None, op.row.tile, op.only_loads),
        *(
            load.bytes if load else 0,
            store.bytes if store else 0,
            op.store_addresses,
            op.store_entries,
            op.way,
            op.masks,
            op.vectors,
            *(op.flags, op.late_flags, op.shares_result, op.yields, op.hindered, op.bypass_wide),
        ),
    )
    floats = (
        *(op.latency, op.accumulator_gain, op.interval, op.load_pipes, op.load_share, op.load_latency),
        *(op.crossing_pipes, op.crossing_latency, op.forward_latency, op.blocked_latency),
        *(op.commit_cycles, op.other_line_cycles, op.crossing_cycles, op.from_other_unit, op.on_other_unit),
        *(op.late_result, op.late_stored),
    )
    return _Row(tuple(map(int, ints)), tuple(map(float, floats)), wanted)


class Places:
    """Ports, schedulers and pools of a core by number, and what the core model is told of a core."""

    def __init__(self, machine: Machine) -> None:
        core = self.core = machine.core
        number = {port: i for i, port in enumerate(core.ports)}
        self.scheduler_of, self.pool_of = [0] * len(number), [0] * len(number)
        pools = self._pools(number)
        split = next((index for index, found in enumerate(core.schedulers) if found.is_split), NOWHERE)
        banks = [[number[port] for port in bank] for bank in core.schedulers[split].banks] if split != NOWHERE else []
        lists = pools | _banked(banks, len(number), pools["store_port_of"])
        lists |= {
            "load_port": [number[port] for port in core.load_ports],
            "is_load_port": [int(port in core.load_ports) for port in core.ports],
            "is_result_port": [int(port in core.result_ports) for port in core.ports],
            "is_dealt": [int(core.schedulers[index].dealt) for index in self.scheduler_of],
            "is_beside": [int(any(port in found.beside for found in core.schedulers)) for port in core.ports],
            "is_bypassed": [int(port in core.bypass.ports) for port in core.ports],
            "queue_of": [scheduler.queue for scheduler in core.schedulers],
            "size_of": [scheduler.size for scheduler in core.schedulers],
        }
        self.arrays = {name: np.array(values, np.int64) for name, values in lists.items()}
        self.addresses = {name: address(array) for name, array in self.arrays.items()}
        self.scalars = _scalars(machine) | {
            "halved": split,
            "first_pool": self.pool_of[banks[0][0]] if banks else 0,
            "bank_ports": len(lists["in_banks"]),
            "compared_ports": len(lists["compared"]),
        }

    def _pools(self, number: Mapping[str, int]) -> dict[str, list[int]]:
        """The schedulers' queues and behind them their pools, a bank each, with the ports that take from either."""
        schedulers = self.core.schedulers
        self.room = [scheduler.queue for scheduler in schedulers]
        banked = [0] * len(number)
        parity_of, store_port_of = [0] * len(schedulers), [NO_PORT] * len(schedulers)
        for index, scheduler in enumerate(schedulers):
            parts = [(port,) for port in scheduler.ports] if scheduler.dealt else scheduler.banks or (scheduler.ports,)
            for bank, ports in enumerate(parts):
                for port in ports:
                    self.scheduler_of[number[port]], self.pool_of[number[port]] = index, len(self.room)
                    banked[number[port]] = int(scheduler.is_split)
                self.room.append(scheduler.size)
                parity_of.append(bank)
                stores = (number[port] for port in ports if port in self.core.store_data_ports)
                store_port_of.append(next(stores, NO_PORT))
        return {
            **{"scheduler_of": self.scheduler_of, "pool_of": self.pool_of, "banked": banked},
            **{"parity_of": parity_of, "store_port_of": store_port_of},
        }

    def wanted(self, uops: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, int], ...]:
        """Where the uops of an op want room, a place among `room`, and how much; each place once."""
        found: dict[int, int] = {}
        for ports in uops:
            index, pool = self.scheduler_of[ports[0]], self.pool_of[ports[0]]
            scheduler = self.core.schedulers[index]
            if scheduler.dealt:  # a group finds room as ports are dealt out
                continue
            place = index if scheduler.queue else pool
            found[place] = min(len(uops), scheduler.queue or scheduler.size)
        return tuple(found.items())


def _banked(banks: Sequence[Sequence[int]], ports: int, store_port_of: Sequence[int]) -> dict[str, list[int]]:
    """The ports in the two banks of a split scheduler, for each its twin in the other, and those to choose between."""
    twin_of = [NO_PORT] * ports
    for one, other in zip(*banks, strict=True) if banks else ():
        twin_of[one], twin_of[other] = other, one
    compared = [port for port in banks[0] if port not in store_port_of] if banks else []
    return {"twin_of": twin_of, "in_banks": [port for bank in banks for port in bank], "compared": compared}


def _scalars(machine: Machine) -> dict[str, int]:
    """A core's figures under the names that the core model has for them, and how its state begins."""
    core = machine.core
    return {
        "ports": len(core.ports),
        "schedulers": len(core.schedulers),
        "dispatch_slots": core.dispatch_slots,
        "gone_in": NOWHERE,
        "dealt_ports": sum(len(scheduler.ports) for scheduler in core.schedulers if scheduler.dealt),
        "in_turn": int(core.binding in ("pairs", "order")),
        "by_lanes": int(core.binding == "order"),
        "by_halves": int(core.binding == "halves"),
        "retire_slots": core.retire_slots,
        "commit_bytes": core.commit_bytes or machine.caches[0].line_bytes,
        "line_bytes": machine.caches[0].line_bytes,
        "pipes": len(core.load_ports),
        "units": core.address_units,
        "of_a_place": core.loads_of_a_place or len(core.load_ports),
        "replay": core.load_replay,
        "store_queue": core.store_queue,
        "rob_room": core.reorder_buffer,
        "microcode": core.microcode_slots,
        "ways_are_shared": int(bool(core.third_operands.of)),
        "addend_is_free": int(core.third_operands.addend_is_free),
        "fresh_is_free": int(core.third_operands.fresh_is_free),
        "bypass": core.bypass.cycles,
        "bypass_back": core.bypass.back_cycles,
        "bypass_by_operand": int(core.bypass.by_operand),
        "vector_room": core.vector_registers or ANY,
        "retire_delay": core.retire_delay,
        "load_room": core.load_queue,
        "store_room": core.store_queue,
        "counted_at": -1,
        "last_tensor": NOWHERE,
    }


@functools.lru_cache(maxsize=64)
def places_of(machine: Machine) -> Places:
    return Places(machine)


class CoreRows:
    """Ops by number, as the arrays of `CoreModel` tell of them. Not for two threads that add at once."""

    def __init__(self, machine: Machine, ops: Sequence[CoreOp] = ()) -> None:
        self.machine, self.ops = machine, list[CoreOp]()
        self.registers, self.tensors, self.mnemonics = dict[str, int](), dict[str, int](), dict[str, int]()
        self._ints, self._floats = Numbers(*_INTS, *_NAMED), Numbers(*_FLOATS, dtype=np.float64)
        self._classes = dict[tuple[int, ...], int]()  # of ports
        self._lists, self._ports = Numbers("registers"), Numbers("port_lists")
        self._uops = Numbers("uop_first", "uop_ports", "uop_class")
        self._wanted = Numbers("wanted_places", "wanted_rooms")
        self._tables = self._ints, self._floats, self._lists, self._ports, self._uops, self._wanted
        self._given: tuple[list[Ints], Ints, Mapping[str, Any]] | None = None  # behind what it was found from
        self.most_uops = self.most_waits = 0  # of one op: uops, and registers that it waits for
        self.places_matter = int(0 < machine.core.loads_of_a_place < len(machine.core.load_ports))
        self._alike, self._kinds = dict[object, int](), Numbers("first")  # of ops, and for each the first of its kind
        self.add(ops)

    def add(self, ops: Sequence[CoreOp]) -> None:
        """Further ops, behind those that are there."""
        ints, floats = list[tuple[int, ...]](), list[tuple[float, ...]]()
        lists, ports, uops, wanted = list[int](), list[int](), list[tuple[int, int, int]](), list[tuple[int, int]]()
        for op in ops:
            row = _row(self.machine, op)
            pointers = op.load.registers if op.load else ()
            first = self._lists.count + len(lists)
            lists += [_numbered(self.registers, name) for name in (*op.reads, *op.writes, *pointers)]
            named = (
                _numbered(self.mnemonics, op.unit),
                NOWHERE if op.accumulator is None else _numbered(self.registers, op.accumulator),
                NOWHERE if op.moves is None else _numbered(self.registers, op.moves),
                _numbered(self.tensors, op.load.tensor) if op.load else NOWHERE,
                _numbered(self.tensors, op.store.tensor) if op.store else NOWHERE,
                *(self._uops.count + len(uops), self._wanted.count + len(wanted)),
                *(first, first + len(op.reads), first + len(op.reads) + len(op.writes)),
            )
            for choices in op.uops:
                kind = self._classes.setdefault(choices, len(self._classes))
                uops.append((self._ports.count + len(ports), len(choices), kind))
                ports += choices
            wanted += row.wanted
            if op.load and op.load_pipes < 1 and self.machine.core.loads_of_a_place:
                self.places_matter = 1  # as more loads than pipes may be looked at in a cycle
            self.most_uops = max(self.most_uops, len(op.uops))
            self.most_waits = max(self.most_waits, len(op.reads) + len(pointers))
            ints.append((*row.ints, *named))
            floats.append(row.floats)
        self._ints.add(ints)
        self._floats.add(floats)
        self._lists.add([(number,) for number in lists])
        self._ports.add([(port,) for port in ports])
        self._uops.add(uops)
        self._wanted.add(wanted)
        self._kinds.add([(self._alike.setdefault(bounds.alike(op), i),) for i, op in enumerate(ops, len(self.ops))])
        self.ops += ops

    def given(self) -> tuple[Ints, Mapping[str, Any]]:
        """The record of the core model's state, as far as the rows and the core are told there, and the arrays that it
        points to, which are to be kept as long.
        """
        where = [table.values for table in self._tables]
        if self._given is None or any([had is not has for had, has in zip(self._given[0], where, strict=True)]):
            places, state = places_of(self.machine), np.zeros(len(FIELDS), np.int64)
            arrays: dict[str, Any] = places.arrays | {
                name: array for table in self._tables for name, array in table.columns.items()
            }
            for addresses in (places.addresses, *[table.addresses for table in self._tables]):
                for name, address in addresses.items():
                    state[SLOT[name]] = address
            for name, value in places.scalars.items():
                state[SLOT[name]] = value
            self._given = where, state, arrays
        return self._given[1].copy(), self._given[2]

    def counted(self, order: Ints) -> tuple[list[CoreOp], list[int]]:
        """The different ops among some by number, but for registers and places, and how often each stands there.

        In the order of their first places, so that sums of fractions by them are the same whatever was met before.
        """
        met = Counter(self._kinds.values[0][order].tolist())
        return [self.ops[number] for number in met], list(met.values())

    def free_masks(self, order: Ints) -> int:
        """Mask registers of the core less those that some ops, by number, write; `ANY` where they are never too few."""
        registers = self.machine.core.mask_registers
        if not registers:
            return ANY
        used = np.flatnonzero(np.bincount(order))
        used = used[self.column("masks")[used] > 0]
        return registers - len(set(self._lists.values[0][self.column("first_write")[used]].tolist()))

    def column(self, name: str) -> Ints:
        """A column of the ops' integers."""
        found: Ints = self._ints.values[_INT_PLACE[name]]
        return found


def _numbered(numbers: dict[str, int], name: str) -> int:
    return numbers.setdefault(name, len(numbers))
