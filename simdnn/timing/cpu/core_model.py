"""The out-of-order core, cycle by cycle: dispatch, binding of uops to ports, issue in age order, retirement, commit.

A node is a value in the making: a load, or the operation of an op. Once all its operands are under way a node knows
the cycle in which it becomes ready; its uops then wait at the port to which they were bound on entering the scheduler
(not on issue: measured on Zen 4, known of Intel).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from isa_models.errors import SimdnnError
from isa_models.machines.cpu_record import Machine
from simdnn.timing.cpu.schedulers import Schedulers
from simdnn.timing.cpu.steps import CoreOp, MemRef

UNKNOWN = -1.0
UNPLACED = -1
STALLED = 500_000  # cycles without a retirement, more than any row that the schema allows can take


class Pending:
    """A load or an operation in flight; `done` is the cycle of its result, UNKNOWN until it issues."""

    __slots__ = (
        "age",
        "op",
        "is_load",
        "waits",
        "ready",
        "done",
        "unissued",
        "first_issue",
        "bound",
        "users",
        "commit",
        "line_cycles",
        "place",
        "pipes",
        "late",
        "unit",
    )
    bound: tuple[int, ...]
    commit: Pending | None

    def __init__(self, age: int, op: CoreOp, is_load: bool, ready: float) -> None:
        self.age = age
        self.op = op
        self.is_load = is_load
        self.waits = 0  # operands not yet under way
        self.ready = ready
        self.done = UNKNOWN
        self.first_issue = UNKNOWN
        self.users: list[tuple[Pending, float]] = []  # with the cycles by which each needs this result later
        self.unit = UNPLACED  # the port of a wide operation to which results of other ports come later
        if is_load:
            self.place = UNPLACED  # where in its line it begins, as far as that is known
            self.pipes = op.load_pipes
            self.late = 0.0  # cycles beyond its latency
        else:
            self.unissued = len(op.uops)
            self.bound = ()  # ports of uops that wait for an operand to be under way
        if op.store is not None:
            self.line_cycles = op.commit_cycles  # what its commit takes behind the store before it
            self.commit = None  # of one that later loads may read: done when the cache has it


class Execution(NamedTuple):
    """An op as it went through the core: the cycle of its dispatch, its node, and that of its load where it has one.

    The retirement of the n-th is `CoreModel.retired[n]`.
    """

    op: CoreOp
    iteration: int
    dispatched: int
    node: Pending
    load: Pending | None


class CoreModel:
    """One run over a stream of (op, iteration) pairs; `advance` executes one cycle."""

    def __init__(self, machine: Machine, stream: Iterator[tuple[CoreOp, int]], buffered: int = 0) -> None:
        """`buffered`: ops that the loop buffer holds, 0 where the stream doesn't come from there."""
        core = machine.core
        self.core = core
        self.line_bytes = machine.caches[0].line_bytes
        self.stream = stream
        self.head = next(stream, None)  # the next op to dispatch
        self.partial = 0  # slots of it that are already dispatched (an op wider than what a group had left)
        self.buffered = self.until_end = buffered
        self.cycle = 0
        self.ages = 0
        self.retired: list[int] = []  # for each op the cycle of its retirement
        self.trace: list[Execution] | None = None  # a list where every op is to be noted
        self.last_retirement = 0
        self.acted = False  # whether anything happened in this cycle
        # Ports and schedulers, by number.
        number = {port: i for i, port in enumerate(core.ports)}
        ports = len(number)
        self.schedulers: Schedulers[Pending] = Schedulers(core)
        self.free_at = [0] * ports
        self.busy = [0.0] * ports  # cycles of work done
        self.future: dict[int, list[tuple[int, int, Pending]]] = {}  # (port, age, node) by the cycle of readiness
        self.waiting: list[list[tuple[int, Pending]]] = [[] for _ in range(ports)]  # ready, by age
        self.exec_queues = [(i, self.waiting[i]) for i, port in enumerate(core.ports) if port not in core.load_ports]
        self.load_ports = [number[port] for port in core.load_ports]
        self.of_a_place = core.loads_of_a_place or len(self.load_ports)
        self.load_future: list[tuple[float, int, Pending]] = []
        self.load_waiting: list[tuple[int, Pending]] = []
        self.load_debt = 0.0  # pipes that the last load has still to take, one of more lines than there are pipes
        self.next_of: dict[str, float] = {}  # mnemonics with an interval: the cycle from which the next may issue
        # Windows.
        self.rob: deque[Pending] = deque()
        self.retire_left = 0  # slots of the oldest op still to retire
        self.rob_room = core.reorder_buffer
        self.load_room = core.load_queue
        self.store_room = core.store_queue
        self.commits: deque[float] = deque()
        self.commit_free = 0.0
        self.values: dict[str, Pending | None] = {}  # register to its last writer
        self.tile_store: Pending | None = None  # the last store of a tile
        self.last_line: tuple[str, int] | None = None  # of a store that none has joined yet
        self.stores: dict[
            str, deque[tuple[int, int, Pending, Pending]]
        ] = {}  # tensor to (first byte, end, data, commit)

    def fill_store_queue(self, commit_cycles: float) -> None:
        """Start with a full store queue, as a long loop of stores has it (it drains where stores don't bind)."""
        while self.store_room:
            self.commit_free += commit_cycles
            self.commits.append(self.commit_free)
            self.store_room -= 1

    def advance(self) -> None:
        """One cycle, its stages from last to first; then on to the next in which anything can happen."""
        self.acted = False
        self._retire()
        self._issue()
        self._enter()
        self._dispatch()
        self.cycle = self.cycle + 1 if self.acted else self._next_event()
        if self.cycle - self.last_retirement > STALLED:
            raise self._stalled()

    def _next_event(self) -> int:
        """The cycle that ends what all wait for: an operand, a port, a unit, the oldest result or a commit."""
        times: list[float] = [min(self.future)] if self.future else []
        if self.load_future:
            times.append(self.load_future[0][0])
        for port, waiting in self.exec_queues:
            if waiting:
                node = waiting[0][1]
                unit = self.next_of.get(node.op.row.mnemonic, 0.0) if node.first_issue == UNKNOWN else 0.0
                times.append(max(self.free_at[port], unit))
        times += self.schedulers.next_room()
        if self.rob and self.rob[0].done != UNKNOWN:
            times.append(self.rob[0].done)
        if self.commits:
            times.append(self.commits[0])
        if not times or self.load_waiting:
            return self.cycle + 1
        return max(self.cycle + 1, math.ceil(min(times)))

    @property
    def idle(self) -> bool:
        """Whether everything is done."""
        return self.head is None and not self.rob

    def _stalled(self) -> SimdnnError:
        """The error for an op that never ends: a fault of this model or of the machine's file."""
        op = self.rob[0].op if self.rob else self.head[0] if self.head else None
        what = f"'{op.row.mnemonic} {op.row.form}'" if op else "the end of the stream"
        return SimdnnError(f"no retirement in {STALLED} simulated cycles; the oldest instruction is {what}")

    # -- values ------------------------------------------------------------------------------------------------------

    def _finish(self, node: Pending, done: float) -> None:
        """The time of a result is known: tell those who wait for it, and those without uops behind them."""
        node.done = done
        if not node.users:
            return
        work = [node]
        while work:
            node = work.pop()
            done = node.done
            for user, gain in node.users:
                if done - gain > user.ready:
                    user.ready = done - gain
                user.waits -= 1
                if user.waits:
                    continue
                if user.is_load:
                    heappush(self.load_future, (user.ready, user.age, user))
                elif user.op.uops:
                    for port in user.bound:
                        self._await(port, user)
                else:
                    user.done = user.ready + user.op.latency
                    work.append(user)
            node.users.clear()

    def _await(self, port: int, node: Pending) -> None:
        """Let a uop wait at its port until it is ready."""
        if node.ready <= self.cycle:
            heappush(self.waiting[port], (node.age, node))
        else:
            self.future.setdefault(math.ceil(node.ready), []).append((port, node.age, node))

    @staticmethod
    def _depend(node: Pending, producer: Pending, gain: float = 0.0) -> None:
        """Let `node` wait for `producer`, though `gain` cycles less."""
        if producer.done == UNKNOWN:
            node.waits += 1
            producer.users.append((node, gain))
        elif producer.done - gain > node.ready:
            node.ready = producer.done - gain

    @staticmethod
    def _crosses(node: Pending, producer: Pending) -> bool:
        """Whether an operand comes from the other of two units for wide operations."""
        return node.unit != producer.unit and UNPLACED not in (node.unit, producer.unit)

    # -- the stages --------------------------------------------------------------------------------------------------

    def _retire(self) -> None:
        """Retire in order, up to the core's width; stores commit in order behind it and free their place when done."""
        now, slots = self.cycle, self.core.retire_slots
        commits, rob = self.commits, self.rob
        while commits and commits[0] <= now:
            commits.popleft()
            self.store_room += 1
        while rob and slots > 0:
            node = rob[0]
            if node.done == UNKNOWN or node.done > now:
                break
            op = node.op
            self.acted = True
            left = self.retire_left or op.slots
            if left > slots:
                self.retire_left = left - slots
                break
            self.retire_left = 0
            slots -= left
            rob.popleft()
            self.rob_room += op.slots
            self.retired.append(now)
            self.last_retirement = now
            if op.load is not None:
                self.load_room += 1
            if op.store is not None:
                self.commit_free = max(self.commit_free, now) + node.line_cycles
                commits.append(self.commit_free)
                if node.commit is not None:
                    self._finish(node.commit, self.commit_free)

    def _issue(self) -> None:
        """Issue on every free port the oldest ready uop bound to it; then the loads."""
        now, free_at = self.cycle, self.free_at
        for port, age, node in self.future.pop(now, ()):
            heappush(self.waiting[port], (age, node))
        for port, waiting in self.exec_queues:
            if waiting and free_at[port] <= now:
                self._issue_on(port, waiting, now)
        if self.load_future or self.load_waiting or self.load_debt:
            self._issue_loads(now)

    def _issue_on(self, port: int, waiting: list[tuple[int, Pending]], now: int) -> None:
        """Issue the oldest uop of a port, unless its mnemonic's own unit is still at work."""
        node = waiting[0][1]
        op = node.op
        if op.interval and node.first_issue == UNKNOWN:
            free = self.next_of.get(op.row.mnemonic, 0.0)
            if free > now:
                return
            self.next_of[op.row.mnemonic] = max(free, now - 1) + op.interval
        self.acted = True
        heappop(waiting)
        occupancy = op.occupancy
        self.free_at[port] = now + occupancy
        self.busy[port] += occupancy
        self.schedulers.issued(port, now, occupancy)
        if node.first_issue == UNKNOWN:
            node.first_issue = now
        node.unissued -= 1
        if not node.unissued:
            done = now + op.latency
            if len(op.uops) > 1:  # latency counts from the first; the later ones fit in unless they were held up
                done = max(node.first_issue + op.latency, done - (len(op.uops) - 1))
            self._finish(node, done if done > now else now + 1)

    def _issue_loads(self, now: int) -> None:
        """The oldest ready loads over the pipes; one that doesn't fit lets no younger one pass."""
        future, waiting = self.load_future, self.load_waiting
        while future and future[0][0] <= now:
            _, age, node = heappop(future)
            heappush(waiting, (age, node))
        pipes = len(self.load_ports)
        used = share = min(self.load_debt, pipes)
        self.acted |= used > 0
        self._occupy_loads(0, used)
        self.load_debt -= used
        places: list[int] = []
        while waiting and used < pipes and (used + (need := waiting[0][1].pipes) <= pipes or need > pipes):
            node = waiting[0][1]
            if need <= pipes:
                share += node.op.load_share
            if share > pipes or node.place != UNPLACED and places.count(node.place) == self.of_a_place:
                break
            places.append(node.place)
            heappop(waiting)
            self.acted = True
            here = min(need, pipes - used)  # a tile's lines take this cycle and the next ones
            self._occupy_loads(used, here)
            used += here
            self.load_debt = need - here
            later = math.ceil(self.load_debt / pipes)
            node.first_issue = now
            self._finish(node, now + later + node.op.load_latency + node.late)

    def _occupy_loads(self, used: float, more: float) -> None:
        """Note work on the load pipes behind those `used` in this cycle."""
        while more:
            share = min(more, 1 - used % 1)
            self.busy[self.load_ports[int(used)]] += share
            used, more = used + share, more - share

    def _enter(self) -> None:
        """Move uops from the in-order queues into the schedulers."""
        for node, port in self.schedulers.enter(self.cycle):
            self.acted = True
            self._bound(node, port)

    def _bound(self, node: Pending, port: int) -> None:
        """Let a uop wait at its port, for its operands if it must, and in any case for the next cycle."""
        if node.waits:
            node.bound += (port,)
        else:
            ready = max(math.ceil(node.ready), self.cycle + 1)
            self.future.setdefault(ready, []).append((port, node.age, node))

    def _dispatch(self) -> None:
        """Rename and send on one group of ops, in order, as far as there is room."""
        width = slots = self.core.dispatch_slots
        if not self.schedulers.has_room_for_group():
            return
        while self.head is not None and slots > 0:
            op, iteration = self.head
            left = op.slots
            if self.partial:
                left -= self.partial
            elif slots < op.split or not self._has_room(op):
                return
            self.acted = True
            if left > slots:
                self.partial += slots
                return
            self._rename(op, iteration, (width - slots) & 1)
            self.partial = 0
            slots -= left
            self.head = next(self.stream, None)
            self.until_end -= 1
            if not self.until_end:
                self.until_end = self.buffered
                return

    def _has_room(self, op: CoreOp) -> bool:
        """Whether reorder buffer, load and store queue, and the schedulers can take an op."""
        if self.rob_room < op.slots and self.rob:
            return False
        if op.load is not None and not self.load_room or op.store is not None and not self.store_room:
            return False
        return self.schedulers.has_room(op.uops)

    def _rename(self, op: CoreOp, iteration: int, parity: int) -> None:
        """Make the nodes of an op, tie them to their producers, send its uops on, and name its results."""
        values = self.values
        load, read = self._load_node(op, op.load, iteration) if op.load is not None else (None, None)
        value: Pending | None
        if load is not None and op.only_loads:
            node, value = load, read
        else:
            node = value = Pending(self.ages, op, False, self.cycle + 1)
            bound = [self.schedulers.send(node, ports, parity, self.cycle, op.occupancy) for ports in op.uops]
            if op.from_other_unit and bound[0] is not None:
                node.unit = bound[0]
            if read is not None:
                self._depend(node, read)
            for register in op.reads:
                producer = values.get(register)
                if producer is None:
                    continue
                if node.unit != producer.unit and self._crosses(node, producer):
                    self._depend(node, producer, -op.from_other_unit)
                elif producer.done == UNKNOWN:  # as _depend, which is called for less
                    node.waits += 1
                    producer.users.append((node, 0.0))
                elif producer.done > node.ready:
                    node.ready = producer.done
            if op.accumulator is not None and (producer := values.get(op.accumulator)) is not None:
                later = op.from_other_unit if self._crosses(node, producer) else 0
                self._depend(node, producer, op.accumulator_gain - later)
            if op.row.tile:
                if op.store is not None:
                    self.tile_store = node
                elif op.uops and self.tile_store is not None:
                    self._depend(node, self.tile_store)  # measured: products do not overtake stores of tiles
            for port in bound:
                if port is not None:
                    self._bound(node, port)
            if not op.uops and not node.waits:
                node.done = node.ready + op.latency
        if op.moves is not None:
            value = values.get(op.moves)
        for register in op.writes:
            values[register] = value
        if op.store is not None:
            self.store_room -= 1
            self._remember(op.store, iteration, node)
        if self.trace is not None:
            self.trace.append(Execution(op, iteration, self.cycle, node, load))
        self.rob.append(node)
        self.rob_room -= op.slots
        self.ages += 1

    # -- memory ------------------------------------------------------------------------------------------------------

    def _load_node(self, op: CoreOp, ref: MemRef, iteration: int) -> tuple[Pending, Pending]:
        """The load part of an op, and the node of what it reads: itself, or a store in flight whose data cost nothing.

        One that reads bytes of a store in flight else waits for its data, or for the commit of a part of them.
        """
        self.load_room -= 1
        load = value = Pending(self.ages, op, True, self.cycle + 1)
        for register in ref.registers:
            if (producer := self.values.get(register)) is not None:
                self._depend(load, producer)
        first = (ref.address or 0) + iteration * ref.step
        if ref.address is not None:
            load.place = first % self.line_bytes
            if load.place + ref.bytes > self.line_bytes and not op.row.tile:
                load.pipes, load.late = max(load.pipes, op.crossing_pipes), op.crossing_latency
        if ref.address is not None and ref.tensor in self.stores:
            for start, end, data, commit in reversed(self.stores[ref.tensor]):
                if start < first + ref.bytes and first < end:
                    forward = max(op.forward_latency, data.op.forward_latency)
                    if start <= first and first + ref.bytes <= end and not forward and commit.done == UNKNOWN:
                        value = data  # a name of the same register from rename on
                    elif start <= first and first + ref.bytes <= end:
                        self._depend(load, data, op.load_latency - forward)
                    else:
                        self._depend(load, commit, op.load_latency - op.blocked_latency)
                    break
        if not load.waits:
            heappush(self.load_future, (load.ready, load.age, load))
        return load, value

    def _remember(self, ref: MemRef, iteration: int, data: Pending) -> None:
        """Note what a store writes, for later loads and for the commit of the next store."""
        if ref.address is None:
            return
        first, op = ref.address + iteration * ref.step, data.op
        line = ref.tensor, first // self.line_bytes
        if first % self.line_bytes + ref.bytes > self.line_bytes and not op.row.tile:
            data.line_cycles, self.last_line = op.crossing_cycles, None
        elif self.last_line == line:  # both commit in the time of one
            data.line_cycles, self.last_line = 2 * op.commit_cycles - op.other_line_cycles, None
        else:
            data.line_cycles, self.last_line = op.other_line_cycles, line
        if ref.tensor not in self.stores:
            self.stores[ref.tensor] = deque(maxlen=self.core.store_queue)
        data.commit = Pending(data.age, data.op, True, UNKNOWN)
        self.stores[ref.tensor].append((first, first + ref.bytes, data, data.commit))
