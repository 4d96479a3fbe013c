"""The phases that a run of a program falls into, from what caches fetch along its parts, as machine code.

With the core's time for each part, these are pieces of a run in which core and levels work beside each other
(`iteration`, `loop`); `phases` says what that means.

The class is written in the part of Python that `translate` compiles.
"""

from __future__ import annotations

from simdnn.timing.keeping import Keeping
from simdnn.timing.translate import Floats, Ints

NOTHING = -1  # a part that a cache fetches nothing for again
# Tensors that `memory.Transfers` tells apart: those whose lines are asked for ahead of stores, those read a few bytes a
# row, those stored to beside tiles, those that tiles are stored to, those loaded past the first cache, which are as if
# they were asked for where the second cache has them, those that tiles are stored to and that are asked for, those
# that are loaded in order, and those to which vectors bring what tiles stored.
OTHER, ASKED, WALKED, STORED, TILED, APART, TILED_ASKED, STREAMED, BROUGHT = 0, 1, 2, 3, 4, 5, 6, 7, 8
ANY = -1
WAITING = 1.25  # times as long as others that stored lines take, which then let no loads pass


class Flows(Keeping):
    """Levels' demands along the parts of a program, and the phases that they make."""

    # By part.
    core: Floats  # cycles of an iteration
    vectors: Floats  # those in loops that neither work on tiles nor bring lines from their buffers
    instructions: Ints
    # What is asked of levels: demands, which are lists of lines; levels with a demand each and a part fetched again.
    demands: int  # lists, those of parts ahead of them
    flows: int
    level: Ints
    demanded: Ints
    again_of: Ints
    left_has: Ints  # by flow and tensor: lines that are left to fetch
    left: Floats
    left_written: Floats
    last_inner: Ints  # by part and tensor: the last of its loops that touches it, or NOTHING
    # Levels.
    least: int  # instructions of a phase
    store_queue: int  # stores that wait beside other work
    load_rate: Floats
    store_rate: Floats
    store_slower: Floats  # by level and tensor: how many times as long its stored lines take
    load_slower: Floats  # and those that are loaded
    both_ways: int  # levels whose lines come and go at once
    exposed: Floats
    exposed_asked: Floats
    exposed_fetched: Floats
    exposed_walked: Floats
    exposed_streamed: Floats
    exposed_stored: Floats
    awaited: Floats  # by level: cycles to a line that nothing fetches ahead, of WALKED tensors
    of_scheduler: Floats  # by tensor: of WALKED ones, the share of a scheduler that waits for a line
    kinds: Ints  # by tensor
    aheads: int
    ahead: Ints
    ahead_share: Floats
    # Phases.
    phases: int
    most_phases: int
    times: Floats
    core_cycles: Floats
    aside: Floats  # those of them that are of `vectors`
    busy: Floats  # by phase and level
    shown: Floats
    streamed: Floats  # the same of tensors that are STREAMED
    stored: Floats  # the same of tensors that are STORED, and WALKED
    brought: Floats  # the same of tensors that are BROUGHT
    tiled: Floats  # the same of tensors that are TILED
    waiting: Floats  # cycles in which lines that tiles are stored to wait for each other

    def cut(self) -> int:
        """The number of phases of a run; the first `most_phases` are told."""
        self.phases = 0
        self.demands = self.caches * self.parts
        self.flows = 0
        for place in range(self.parts * self.tensors):
            self.last_inner[place] = NOTHING
        for part in range(self.parts):
            for place in range(self.first_inner[part], self.first_inner[part + 1]):
                query = self.all[self.inner[place]]
                for met in range(self.first_met[query], self.first_met[query + 1]):
                    self.last_inner[part * self.tensors + self.met[met]] = self.inner[place]
        query = self.one[0]
        for level in range(self.caches):
            demand = self.new_demand()
            for met in range(self.first_met[query], self.first_met[query + 1]):
                place = level * self.tensors + met - self.first_met[query]
                self.add(demand, self.met[met], self.once[place], self.once_written[place])
            self.without_none(demand)
            self.new_flow(level, demand, 0 if self.again[level * self.parts] == 1 else NOTHING)
        self.iteration(0, 0, self.caches, 1.0)
        return self.phases

    def iteration(self, part: int, first: int, last: int, times: float) -> None:
        """Add one iteration of a part, which also fetches what stays before its next: each tensor's lines where they
        are touched first. What stands around long loops is a phase of its own, however short. What it stores is
        another one, beside all work of the iteration: stores wait in their buffer while that goes on.
        """
        flows, demands = self.flows, self.demands
        self.with_work(first, last)
        first, last = flows, self.flows
        core, aside, near = self.core[part], self.vectors[part], self.demands
        for flow in range(first, last):
            self.begin_left(flow)
            demand = self.new_demand()
            if self.again_of[flow] != NOTHING:
                query, here = self.own[part], (self.level[flow] * self.parts + part) * self.tensors
                for met in range(self.first_met[query], self.first_met[query + 1]):
                    gone = 1.0 - self.stays[here + self.met[met]]
                    self.add(demand, self.met[met], self.touched[met] * gone, self.written[met] * gone)
            self.take(flow, part, self.own[part], NOTHING, demand)
        for place in range(self.first_inner[part], self.first_inner[part + 1] if first < last else 0):
            loop, below, asked = self.inner[place], self.flows, self.demands
            for flow in range(first, last):
                self.flow_below(flow, part, loop)
            if self.instructions[loop] * self.extent[loop] >= self.least:
                core -= self.core[loop] * self.extent[loop]
                aside -= self.vectors[loop] * self.extent[loop]
                self.loop(loop, below, self.flows, times)
            else:
                for flow in range(below, self.flows):
                    self.join(near + flow - below, self.run(flow, loop), 1)
                    self.without_none(near + flow - below)
            self.flows = below
            self.demands = asked
        behind = self.demands
        for flow in range(first, last):
            self.to_queue(near + flow - first, self.new_demand())
        if self.some(near, last - first) > 0:
            self.phase(times, max(0.0, core), max(0.0, aside), first, last, near)
        if self.some(behind, last - first) > 0:
            self.phase(times, self.core[part], self.vectors[part], first, last, behind)
        self.flows = flows
        self.demands = demands

    def some(self, first: int, many: int) -> int:
        """How many tensors demands ask for that stand in a row."""
        tensors = 0
        for demand in range(first, first + many):
            tensors += self.count[demand]
        return tensors

    def flow_below(self, flow: int, part: int, loop: int) -> None:
        """A flow of what another fetches in one of a part's loops."""
        level, demand = self.level[flow], self.new_demand()
        query, again = self.all[loop], NOTHING
        if self.again_of[flow] != NOTHING:
            here, within = (level * self.parts + part) * self.tensors, (level * self.parts + loop) * self.tensors
            for met in range(self.first_met[query], self.first_met[query + 1]):
                tensor = self.met[met]
                share = self.stays[within + tensor] - self.stays[here + tensor]
                self.add(demand, tensor, self.touched[met] * share, self.written[met] * share)
            if self.again[level * self.parts + loop] == 1:
                again = loop
        self.take(flow, part, query, loop, demand)
        self.new_flow(level, demand, again)

    def loop(self, loop: int, first: int, last: int, times: float) -> None:
        """Add a run of a loop that fetches `once` what stays until its end."""
        flows, demands = self.flows, self.demands
        self.with_work(first, last)
        first, last = flows, self.flows
        if first == last:
            return
        if self.instructions[loop] < self.least:
            near = self.demands
            for flow in range(first, last):
                self.run(flow, loop)
            core, aside = self.core[loop] * self.extent[loop], self.vectors[loop] * self.extent[loop]
            self.phase(times, core, aside, first, last, near)
        elif self.extent[loop] == 1:
            self.iteration(loop, first, last, times)
        else:
            for flow in range(first, last):
                self.new_flow(self.level[flow], self.begun(self.demanded[flow], loop), self.again_of[flow])
            self.iteration(loop, last, self.flows, times)
            self.flows = last
            self.demands = demands
            for flow in range(first, last):
                rest = self.begun(self.demanded[flow], loop)
                self.others(self.demanded[flow], rest, loop)
                self.new_flow(self.level[flow], rest, self.again_of[flow])
            self.iteration(loop, last, self.flows, times * (self.extent[loop] - 1))
        self.flows = flows
        self.demands = demands

    def begun(self, demand: int, loop: int) -> int:
        """A demand of a loop's first iteration, among lines that are fetched once in its run."""
        found, base = self.new_demand(), demand * self.tensors
        for place in range(base, base + self.count[demand]):
            tensor = self.tensor[place]
            one, every = self.met_in(self.one[loop], tensor), self.met_in(self.all[loop], tensor)
            touched = self.touched[one] / float(self.touched[every])
            written = touched
            if self.written[every] != 0:
                written = self.written[one] / float(self.written[every])
            self.add(found, tensor, self.fetched[place] * touched, self.returned[place] * written)
        return found

    def others(self, demand: int, begun: int, loop: int) -> None:
        """Turn the demand of a loop's first iteration into the demand of each other one."""
        share = 1.0 / (self.extent[loop] - 1)
        for place in range(self.count[demand]):
            here, there = begun * self.tensors + place, demand * self.tensors + place
            self.fetched[here] = (self.fetched[there] - self.fetched[here]) * share
            self.returned[here] = (self.returned[there] - self.returned[here]) * share

    def met_in(self, query: int, tensor: int) -> int:
        """Where a query met a tensor."""
        met = self.first_met[query]
        while self.met[met] != tensor:
            met += 1
        return met

    def run(self, flow: int, loop: int) -> int:
        """Lines of a whole run of a loop, as a demand."""
        demand = self.new_demand()
        self.join(demand, self.demanded[flow], 1)
        if self.again_of[flow] != NOTHING:
            self.join(demand, self.level[flow] * self.parts + loop, self.extent[loop])
        self.without_none(demand)
        return demand

    def phase(self, times: float, core: float, aside: float, first: int, last: int, near: int) -> None:
        """Add a phase with the demands of flows' levels, which stand in a row from `near` on."""
        at = self.phases
        self.phases += 1
        if at >= self.most_phases:
            return
        self.times[at] = times
        self.core_cycles[at] = core
        self.aside[at] = aside
        self.shown[at] = 0.0
        self.streamed[at] = 0.0
        self.stored[at] = 0.0
        self.tiled[at] = 0.0
        self.waiting[at] = 0.0
        for level in range(self.caches):
            self.busy[at * self.caches + level] = 0.0
        brought = 0.0  # lines come all the way at once, and the longest shows
        for flow in range(first, last):
            level, demand = self.level[flow], near + flow - first
            if self.count[demand] == 0:
                continue
            every = self.cycles(level, demand)
            self.busy[at * self.caches + level] = self.working(level, demand)
            if level < self.both_ways:
                self.waiting[at] += self.waited(level, demand)
            ahead, base = self.new_demand(), demand * self.tensors
            for number in range(self.aheads):
                for place in range(base, base + self.count[demand]):
                    if self.tensor[place] == self.ahead[number] and self.kinds[self.ahead[number]] == OTHER:
                        share = self.ahead_share[number]
                        touched, written = self.fetched[place] * share, self.returned[place] * share
                        self.add(ahead, self.ahead[number], touched, written)
            of_asked, of_walked = self.of_kind(level, demand, ASKED), self.of_kind(level, demand, WALKED)
            if level == 0:
                of_asked += self.of_kind(level, demand, APART)
            of_stored = self.of_kind(level, demand, STORED)
            of_tiles = self.of_kind(level, demand, TILED) + self.of_kind(level, demand, TILED_ASKED)
            of_brought = self.of_kind(level, demand, BROUGHT)
            brought = max(brought, of_brought)
            of_ahead = self.cycles(level, ahead)
            of_streamed = 0.0
            if self.exposed_streamed[level] != self.exposed[level]:
                of_streamed = self.of_kind(level, demand, STREAMED)
            rest = every - (of_asked + of_walked + of_stored + of_tiles + of_brought + of_ahead + of_streamed)
            shown = self.exposed[level] * rest + self.exposed_asked[level] * of_asked
            shown += self.exposed_fetched[level] * of_ahead
            self.shown[at] += shown
            self.streamed[at] += self.exposed_streamed[level] * of_streamed
            behind = of_tiles if level > 0 else min(of_tiles, every - of_tiles)  # loads wait behind stores
            walks = max(of_walked, self.awaiting(level, demand, core, near))
            self.stored[at] += self.exposed[level] * of_stored + self.exposed_walked[level] * walks
            wait = self.exposed_stored[level] * behind
            if self.of_kind(level, demand, TILED_ASKED) > 0.0:  # as what is brought
                self.tiled[at] = max(self.tiled[at], wait)
            else:
                self.tiled[at] += wait
        self.brought[at] = max(0.0, brought - aside)

    def awaiting(self, level: int, demand: int, core: float, near: int) -> float:
        """The time that WALKED lines of a level are waited for beside the core's work on all lines of their tensors,
        which the second cache hands up: those of a list `near`.
        """
        waits, base, all_ = 0.0, demand * self.tensors, near * self.tensors
        for place in range(base, base + self.count[demand]):
            tensor = self.tensor[place]
            if self.kinds[tensor] == WALKED:
                lines = self.fetched[place]
                waits += lines * self.awaited[level] * self.of_scheduler[tensor]
                for other in range(all_, all_ + self.count[near]):
                    if self.tensor[other] == tensor:
                        waits -= core * lines / self.fetched[other]
        return waits

    def cycles(self, level: int, demand: int) -> float:
        """The time that a level takes for the lines of a demand at its rates."""
        return self.of_kind(level, demand, ANY)

    def of_kind(self, level: int, demand: int, kind: int) -> float:
        """The time that a level takes for a demand's lines of one kind of tensors."""
        touched, written = 0.0, 0.0
        base = demand * self.tensors
        for place in range(base, base + self.count[demand]):
            if kind == ANY or self.kinds[self.tensor[place]] == kind:
                touched += self.fetched[place]
                written += self.returned[place]
        read, returned = touched * self.line_bytes, written * self.line_bytes
        return (read - returned) / self.load_rate[level] + returned / self.store_rate[level]

    def working(self, level: int, demand: int) -> float:
        """The time that a level takes for a demand, where lines of some tensors wait for each other. Some levels take
        lines that were asked for while they send others, and the longer of the two times counts; others come in turn.
        """
        loaded, stored = 0.0, 0.0
        base, slower = demand * self.tensors, level * self.tensors
        for place in range(base, base + self.count[demand]):
            loaded += (self.fetched[place] - self.returned[place]) * self.load_slower[slower + self.tensor[place]]
            stored += self.returned[place] * self.store_slower[slower + self.tensor[place]]
        loaded = loaded * self.line_bytes / self.load_rate[level]
        stored = stored * self.line_bytes / self.store_rate[level]
        if level < self.both_ways:
            in_turn = self.in_turn(level, demand)
            return max(loaded + in_turn, stored - in_turn)
        return loaded + stored

    def in_turn(self, level: int, demand: int) -> float:
        """The time that it takes for stored lines that nobody asked for ahead, or that wait for each other."""
        lines = 0.0
        base, slower = demand * self.tensors, level * self.tensors
        for place in range(base, base + self.count[demand]):
            times, kind = self.store_slower[slower + self.tensor[place]], self.kinds[self.tensor[place]]
            if kind == ASKED or (kind == TILED_ASKED and times <= WAITING):
                continue
            lines += self.returned[place] * times
        return lines * self.line_bytes / self.store_rate[level]

    def waited(self, level: int, demand: int) -> float:
        """The time that it takes for lines that tiles are stored to and that wait for each other."""
        lines = 0.0
        base, slower = demand * self.tensors, level * self.tensors
        for place in range(base, base + self.count[demand]):
            times, kind = self.store_slower[slower + self.tensor[place]], self.kinds[self.tensor[place]]
            if times > WAITING and (kind == TILED or kind == TILED_ASKED):
                lines += self.returned[place] * times
        return lines * self.line_bytes / self.store_rate[level]

    # -- demands --------------------------------------------------------------------------------------------------

    def new_demand(self) -> int:
        """An empty one."""
        self.count[self.demands] = 0
        self.demands += 1
        return self.demands - 1

    def join(self, demand: int, other: int, times: int) -> None:
        """Another list's lines to a demand, so often."""
        base = other * self.tensors
        for place in range(base, base + self.count[other]):
            self.add(demand, self.tensor[place], self.fetched[place] * times, self.returned[place] * times)

    def without_none(self, demand: int) -> None:
        """Leave out tensors without lines."""
        base = demand * self.tensors
        last = base
        for place in range(base, base + self.count[demand]):
            if self.fetched[place] != 0.0 or self.returned[place] != 0.0:
                self.tensor[last] = self.tensor[place]
                self.fetched[last] = self.fetched[place]
                self.returned[last] = self.returned[place]
                last += 1
        self.count[demand] = last - base

    def to_queue(self, demand: int, other: int) -> None:
        """Move lines of what is written from a demand to another one, if the store queue holds them: of tensors that
        are not told apart.
        """
        base = demand * self.tensors
        lines = 0.0
        for place in range(base, base + self.count[demand]):
            if self.kinds[self.tensor[place]] == OTHER:
                lines += self.returned[place]
        if lines == 0.0 or lines > self.store_queue:
            return
        for place in range(base, base + self.count[demand]):
            if self.returned[place] != 0.0 and self.kinds[self.tensor[place]] == OTHER:
                self.add(other, self.tensor[place], self.fetched[place], self.returned[place])
                self.fetched[place] = 0.0
                self.returned[place] = 0.0
        self.without_none(demand)

    def new_flow(self, level: int, demand: int, again: int) -> None:
        """A level that fetches a demand once, and a part's lines again."""
        self.level[self.flows] = level
        self.demanded[self.flows] = demand
        self.again_of[self.flows] = again
        self.flows += 1

    def with_work(self, first: int, last: int) -> None:
        """Flows that fetch anything, behind those that are there."""
        for flow in range(first, last):
            level, again = self.level[flow], self.again_of[flow]
            some = self.count[self.demanded[flow]]
            if again != NOTHING:
                some += self.count[level * self.parts + again]
            if some > 0:
                self.new_flow(level, self.demanded[flow], again)

    def begin_left(self, flow: int) -> None:
        """All of a flow's demand is left to fetch."""
        base, demand = flow * self.tensors, self.demanded[flow]
        for tensor in range(self.tensors):
            self.left_has[base + tensor] = 0
        for place in range(demand * self.tensors, demand * self.tensors + self.count[demand]):
            tensor = self.tensor[place]
            self.left_has[base + tensor] = 1
            self.left[base + tensor] = self.fetched[place]
            self.left_written[base + tensor] = self.returned[place]

    def take(self, flow: int, part: int, query: int, loop: int, demand: int) -> None:
        """Take from the lines that are left of a flow those that a query met, to a demand.

        Of tensors that nothing behind a part's loop touches, or none of its loops, all are taken: lines may be counted
        in part (`bundles._united`).
        """
        for met in range(self.first_met[query], self.first_met[query + 1]):
            tensor = self.met[met]
            left = flow * self.tensors + tensor
            if self.left_has[left] == 0:
                continue
            touched, written = self.left[left], self.left_written[left]
            if self.last_inner[part * self.tensors + tensor] == loop:
                self.left_has[left] = 0
            else:
                touched, written = min(touched, self.touched[met]), min(written, self.written[met])
                self.left[left] -= touched
                self.left_written[left] -= written
            self.add(demand, tensor, touched, written)
        self.without_none(demand)
