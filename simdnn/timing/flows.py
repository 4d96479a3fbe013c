"""Lines that caches fetch along the parts of a program, and the phases that a run falls into, as machine code.

Part by part: the share of its lines that a cache keeps until its next iteration (`keep`), and what is fetched again as
it does not (`look_at`); then, with the core's time for each part, pieces of a run in which core and levels work beside
each other (`iteration`, `loop`). `memory` and `phases` say what that means.

Lines of tensors are told in the order in which they are met, and added up in it. The class is written in the part of
Python that `translate` compiles.
"""

from __future__ import annotations

import math

from simdnn.timing.cpu.translate import Floats, Ints

NOTHING = -1  # a part that a cache fetches nothing for again


class Flows:
    """Parts by number, each before those within, the program first; a part's loops are parts. Tensors by number."""

    tensors: int
    parts: int
    line_bytes: int
    # By part.
    extent: Ints
    first_inner: Ints  # of the loops within, and behind them that of the next part
    own: Ints  # the query of the accesses directly in it; those of one iteration, and of all
    one: Ints
    all: Ints
    core: Floats  # cycles of an iteration
    instructions: Ints
    inner: Ints  # parts, those of one part behind another's
    # By query: tensors that are touched, those of one query behind another's.
    first_met: Ints
    # By tensor met.
    met: Ints
    touched: Ints
    written: Ints
    first_run: Ints  # of lines in a row
    more: Ints  # lines whose place is not known
    # By run.
    low: Ints
    high: Ints
    # Caches.
    caches: int
    queries: int
    places: Floats  # for lines
    sets: Ints  # 0 where they do not matter
    of_set: Floats  # places
    passing: Ints  # by cache and tensor: whether its lines pass the cache by
    cold: Ints  # by tensor: whether it starts in memory
    before: Floats  # by cache and tensor: the share that is there from the run before, if it stays
    first_row: Ints  # by cache, of its table, and behind it that of the next one
    crowds: Floats
    shares: Floats
    # What they keep: by cache and query; by cache and part, of its tensors.
    known: Ints
    kept: Floats
    stays: Floats
    in_set: Floats  # lines in each set
    weighed: Floats
    # What they fetch: by cache and part, whether anything again; of an iteration the lines, as they are met.
    again: Ints
    count: Ints
    tensor: Ints
    fetched: Floats
    returned: Floats
    # By cache, of a run: lines fetched once, as many as the program has tensors; and all.
    once: Floats
    once_written: Floats
    missed: Floats
    missed_written: Floats
    # What is asked of levels: lines of tensors, as they are met; levels with a demand each and a part fetched again.
    demands: int
    demand_count: Ints
    demand_tensor: Ints
    demand: Floats
    demand_written: Floats
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
    load_rate: Floats
    store_rate: Floats
    exposed: Floats
    exposed_asked: Floats
    exposed_fetched: Floats
    asked: Ints  # by tensor
    aheads: int
    ahead: Ints
    ahead_share: Floats
    # Phases.
    phases: int
    most_phases: int
    times: Floats
    core_cycles: Floats
    busy: Floats  # by phase and level
    shown: Floats

    # -- what a cache keeps ---------------------------------------------------------------------------------------

    def fetch(self) -> int:
        """Lines that each cache fetches for a run, one cache after another."""
        for cache in range(self.caches):
            query, root = self.one[0], cache * self.parts * self.tensors
            self.keep(cache, query)
            self.missed[cache] = 0.0
            self.missed_written[cache] = 0.0
            for met in range(self.first_met[query], self.first_met[query + 1]):
                tensor = self.met[met]
                share = self.kept[(cache * self.queries + query) * self.tensors + tensor]
                self.stays[root + tensor] = share
                if self.cold[tensor] == 0:
                    share -= min(share, self.before[cache * self.tensors + tensor])
                place = cache * self.tensors + met - self.first_met[query]
                self.once[place] = self.touched[met] * share
                self.once_written[place] = self.written[met] * share
                self.missed[cache] += self.once[place]
                self.missed_written[cache] += self.once_written[place]
            self.look_at(cache, 0)
            for place in range(root, root + self.count[cache * self.parts]):
                self.missed[cache] += self.fetched[place]
                self.missed_written[cache] += self.returned[place]
        return 0

    def keep(self, cache: int, query: int) -> None:
        """The share of each tensor's lines that stays: parts that touch the same lines are looked at once."""
        at = cache * self.queries + query
        if self.known[at] == 1:
            return
        self.known[at] = 1
        every = 0
        for met in range(self.first_met[query], self.first_met[query + 1]):
            if self.passing[cache * self.tensors + self.met[met]] == 0:
                every += self.touched[met]
        evenly = self.kept_of(cache, every / self.places[cache])
        for met in range(self.first_met[query], self.first_met[query + 1]):
            tensor = self.met[met]
            share = evenly
            if self.passing[cache * self.tensors + tensor] == 1:
                share = 0.0
            elif self.sets[cache] > 0 and self.first_run[met + 1] - self.first_run[met] > 1:
                share = self.kept_in_sets(cache, met, every, evenly)
            self.kept[at * self.tensors + tensor] = share

    def kept_in_sets(self, cache: int, met: int, every: int, evenly: float) -> float:
        """The share of a tensor's lines that stays where they may meet in few of the sets; all others lie evenly."""
        sets = self.sets[cache]
        beside = (every - self.touched[met]) / float(sets)
        others = float(math.floor(beside))  # in each set, and in a share of them one more
        share = beside - others
        if not self.touched[met] + others + (1 if share > 0.0 else 0) > self.of_set[cache]:
            return evenly
        self.spread(met, sets)
        found = self.kept_beside(cache, others)
        if share > 0.0:
            found = found * (1.0 - share) + self.kept_beside(cache, others + 1.0) * share
        return found

    def spread(self, met: int, sets: int) -> None:
        """Lines of a tensor in each of a cache's sets, which lines go to in turn."""
        whole = 0
        for place in range(sets + 1):
            self.in_set[place] = 0.0
        for run in range(self.first_run[met], self.first_run[met + 1]):
            count = self.high[run] - self.low[run]
            whole += count // sets
            first, last = self.low[run] % sets, self.low[run] % sets + count % sets
            self.in_set[first] += 1.0
            if last > sets:
                self.in_set[0] += 1.0
                last -= sets
            self.in_set[last] -= 1.0
        lines = 0.0
        for place in range(sets):
            lines += self.in_set[place]
            self.in_set[place] = lines + whole + self.more[met] / float(sets)

    def kept_beside(self, cache: int, others: float) -> float:
        """The share that stays of the lines that `spread` found, beside others in each set."""
        sets, places = self.sets[cache], self.places[cache]
        for place in range(sets):
            lines = self.in_set[place]
            self.weighed[place] = self.kept_of(cache, (lines + others) * sets / places) * lines
        kept = self.sum_of(0, sets)
        for place in range(sets):
            self.weighed[place] = self.in_set[place]
        return kept / self.sum_of(0, sets)

    def sum_of(self, first: int, count: int) -> float:
        """The sum of `weighed` numbers in NumPy's order: eight beside each other, halves of more than 128."""
        if count > 128:
            half = count // 2 - count // 2 % 8
            return self.sum_of(first, half) + self.sum_of(first + half, count - half)
        total, done = 0.0, 0
        if count >= 8:
            done = count - count % 8
            for place in range(first + 8, first + done):
                self.weighed[first + (place - first) % 8] += self.weighed[place]
            w = first
            total = (self.weighed[w] + self.weighed[w + 1]) + (self.weighed[w + 2] + self.weighed[w + 3])
            total += (self.weighed[w + 4] + self.weighed[w + 5]) + (self.weighed[w + 6] + self.weighed[w + 7])
        for place in range(first + done, first + count):
            total += self.weighed[place]
        return total

    def kept_of(self, cache: int, crowding: float) -> float:
        """The share that stays of lines that are gone through again and again, by how many there are for a place."""
        first, last = self.first_row[cache], self.first_row[cache + 1] - 1
        if crowding <= self.crowds[first]:
            return self.shares[first]
        for row in range(first, last):
            if crowding < self.crowds[row + 1]:
                slope = (self.shares[row + 1] - self.shares[row]) / (self.crowds[row + 1] - self.crowds[row])
                return slope * (crowding - self.crowds[row]) + self.shares[row]
        return self.shares[last] if crowding == self.crowds[last] else 0.0

    def look_at(self, cache: int, part: int) -> None:
        """Lines that an iteration of a part fetches again, less those that stay from the one before."""
        at = cache * self.parts + part
        here = at * self.tensors
        self.again[at] = 0
        self.count[at] = 0
        query = self.one[part]
        for met in range(self.first_met[query], self.first_met[query + 1]):
            if self.stays[here + self.met[met]] != 1.0:
                self.again[at] = 1
        if self.again[at] == 0:
            return
        query = self.own[part]
        for met in range(self.first_met[query], self.first_met[query + 1]):
            gone = 1.0 - self.stays[here + self.met[met]]
            self.add_fetched(at, self.met[met], self.touched[met] * gone, self.written[met] * gone)
        for place in range(self.first_inner[part], self.first_inner[part + 1]):
            loop = self.inner[place]
            within = (cache * self.parts + loop) * self.tensors
            query = self.one[loop]
            self.keep(cache, query)
            for met in range(self.first_met[query], self.first_met[query + 1]):
                tensor = self.met[met]
                share = self.kept[(cache * self.queries + query) * self.tensors + tensor]
                self.stays[within + tensor] = max(share, self.stays[here + tensor])
            self.look_at(cache, loop)
            query = self.all[loop]
            for met in range(self.first_met[query], self.first_met[query + 1]):
                tensor = self.met[met]
                share = self.stays[within + tensor] - self.stays[here + tensor]
                touched, written = self.touched[met] * share, self.written[met] * share
                for more in range(within, within + self.count[cache * self.parts + loop]):
                    if self.tensor[more] == tensor:
                        touched += self.fetched[more] * self.extent[loop]
                        written += self.returned[more] * self.extent[loop]
                self.add_fetched(at, tensor, touched, written)

    def add_fetched(self, at: int, tensor: int, touched: float, written: float) -> None:
        """Lines of a tensor to those of an iteration."""
        first, last = at * self.tensors, at * self.tensors + self.count[at]
        for place in range(first, last):
            if self.tensor[place] == tensor:
                self.fetched[place] += touched
                self.returned[place] += written
                return
        self.tensor[last] = tensor
        self.fetched[last] = touched
        self.returned[last] = written
        self.count[at] += 1

    # -- phases ---------------------------------------------------------------------------------------------------

    def cut(self) -> int:
        """The number of phases of a run; the first `most_phases` are told."""
        self.phases = 0
        self.demands = 0
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
        are touched first. What stands around long loops is a phase of its own, however short: the stores at a tile's
        end.
        """
        flows, demands = self.flows, self.demands
        self.with_work(first, last)
        first, last = flows, self.flows
        core, near = self.core[part], self.demands
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
                self.loop(loop, below, self.flows, times)
            else:
                for flow in range(below, self.flows):
                    self.join(near + flow - below, self.run(flow, loop), 1)
            self.flows = below
            self.demands = asked
        some = 0
        for flow in range(first, last):
            some += self.demand_count[near + flow - first]
        if some > 0:
            self.phase(times, max(0.0, core), first, last, near)
        self.flows = flows
        self.demands = demands

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
            self.phase(times, self.core[loop] * self.extent[loop], first, last, near)
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
        for place in range(base, base + self.demand_count[demand]):
            tensor = self.demand_tensor[place]
            one, every = self.met_in(self.one[loop], tensor), self.met_in(self.all[loop], tensor)
            touched = self.touched[one] / float(self.touched[every])
            written = touched
            if self.written[every] != 0:
                written = self.written[one] / float(self.written[every])
            self.add(found, tensor, self.demand[place] * touched, self.demand_written[place] * written)
        return found

    def others(self, demand: int, begun: int, loop: int) -> None:
        """Make of the demand of a loop's first iteration that of each other one."""
        share = 1.0 / (self.extent[loop] - 1)
        for place in range(self.demand_count[demand]):
            here, there = begun * self.tensors + place, demand * self.tensors + place
            self.demand[here] = (self.demand[there] - self.demand[here]) * share
            self.demand_written[here] = (self.demand_written[there] - self.demand_written[here]) * share

    def met_in(self, query: int, tensor: int) -> int:
        """Where a query met a tensor."""
        met = self.first_met[query]
        while self.met[met] != tensor:
            met += 1
        return met

    def run(self, flow: int, loop: int) -> int:
        """Lines of a whole run of a loop, as a demand."""
        demand = self.new_demand()
        self.join(demand, self.demanded[flow], 0)
        if self.again_of[flow] != NOTHING:
            at = self.level[flow] * self.parts + loop
            for place in range(at * self.tensors, at * self.tensors + self.count[at]):
                extent = self.extent[loop]
                self.add(demand, self.tensor[place], self.fetched[place] * extent, self.returned[place] * extent)
        self.without_none(demand)
        return demand

    def phase(self, times: float, core: float, first: int, last: int, near: int) -> None:
        """Add a phase with the demands of flows' levels, which stand in a row from `near` on."""
        at = self.phases
        self.phases += 1
        if at >= self.most_phases:
            return
        self.times[at] = times
        self.core_cycles[at] = core
        self.shown[at] = 0.0
        for level in range(self.caches):
            self.busy[at * self.caches + level] = 0.0
        for flow in range(first, last):
            level, demand = self.level[flow], near + flow - first
            if self.demand_count[demand] == 0:
                continue
            every = self.cycles(level, demand)
            self.busy[at * self.caches + level] = every
            asked, ahead = self.new_demand(), self.new_demand()
            base = demand * self.tensors
            for place in range(base, base + self.demand_count[demand]):
                if self.asked[self.demand_tensor[place]] == 1:
                    self.add(asked, self.demand_tensor[place], self.demand[place], self.demand_written[place])
            for number in range(self.aheads):
                for place in range(base, base + self.demand_count[demand]):
                    if self.demand_tensor[place] == self.ahead[number] and self.asked[self.ahead[number]] == 0:
                        share = self.ahead_share[number]
                        touched, written = self.demand[place] * share, self.demand_written[place] * share
                        self.add(ahead, self.ahead[number], touched, written)
            of_asked, of_ahead = self.cycles(level, asked), self.cycles(level, ahead)
            shown = self.exposed[level] * (every - (of_asked + of_ahead)) + self.exposed_asked[level] * of_asked
            self.shown[at] += shown + self.exposed_fetched[level] * of_ahead

    def cycles(self, level: int, demand: int) -> float:
        """The time that a level takes for the lines of a demand."""
        touched, written = 0.0, 0.0
        base = demand * self.tensors
        for place in range(base, base + self.demand_count[demand]):
            touched += self.demand[place]
            written += self.demand_written[place]
        read, returned = touched * self.line_bytes, written * self.line_bytes
        return (read - returned) / self.load_rate[level] + returned / self.store_rate[level]

    # -- demands --------------------------------------------------------------------------------------------------

    def new_demand(self) -> int:
        """An empty one."""
        self.demand_count[self.demands] = 0
        self.demands += 1
        return self.demands - 1

    def add(self, demand: int, tensor: int, touched: float, written: float) -> None:
        """Lines of a tensor to a demand."""
        first, last = demand * self.tensors, demand * self.tensors + self.demand_count[demand]
        for place in range(first, last):
            if self.demand_tensor[place] == tensor:
                self.demand[place] += touched
                self.demand_written[place] += written
                return
        self.demand_tensor[last] = tensor
        self.demand[last] = touched
        self.demand_written[last] = written
        self.demand_count[demand] += 1

    def join(self, demand: int, other: int, whole: int) -> None:
        """Another's lines to a demand; where that is the `whole` sum, tensors without lines go."""
        base = other * self.tensors
        for place in range(base, base + self.demand_count[other]):
            self.add(demand, self.demand_tensor[place], self.demand[place], self.demand_written[place])
        if whole == 1:
            self.without_none(demand)

    def without_none(self, demand: int) -> None:
        """Leave out tensors without lines."""
        base = demand * self.tensors
        last = base
        for place in range(base, base + self.demand_count[demand]):
            if self.demand[place] != 0.0 or self.demand_written[place] != 0.0:
                self.demand_tensor[last] = self.demand_tensor[place]
                self.demand[last] = self.demand[place]
                self.demand_written[last] = self.demand_written[place]
                last += 1
        self.demand_count[demand] = last - base

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
            some = self.demand_count[self.demanded[flow]]
            if again != NOTHING:
                some += self.count[level * self.parts + again]
            if some > 0:
                self.new_flow(level, self.demanded[flow], again)

    def begin_left(self, flow: int) -> None:
        """All of a flow's demand is left to fetch."""
        base, demand = flow * self.tensors, self.demanded[flow]
        for tensor in range(self.tensors):
            self.left_has[base + tensor] = 0
        for place in range(demand * self.tensors, demand * self.tensors + self.demand_count[demand]):
            tensor = self.demand_tensor[place]
            self.left_has[base + tensor] = 1
            self.left[base + tensor] = self.demand[place]
            self.left_written[base + tensor] = self.demand_written[place]

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
