"""For the lines that parts of a program touch: how many a cache keeps, and how many it fetches; as machine code.

Part by part: the share of its lines that a cache keeps until its next iteration (`keep`), and what is fetched again as
it does not (`look_at`); `memory` says what that means. Lines of tensors are told in the order in which they are met,
and added up in it.

The class is written in the part of Python that `translate` compiles.
"""

from __future__ import annotations

import math

from simdnn.timing.translate import Floats, Ints


class Keeping:
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
    # What they fetch: by cache and part, whether anything again.
    again: Ints
    # Lists of lines that are fetched and written back, of tensors as they are met, as many as the program has tensors:
    # of an iteration of each cache and part, and behind them `flows.Flows` has more.
    count: Ints
    tensor: Ints
    fetched: Floats
    returned: Floats
    # By cache, of a run: lines fetched once, as many as the program has tensors; and all.
    once: Floats
    once_written: Floats
    missed: Floats
    missed_written: Floats

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
            self.add(at, self.met[met], self.touched[met] * gone, self.written[met] * gone)
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
                self.add(at, tensor, touched, written)

    def add(self, at: int, tensor: int, touched: float, written: float) -> None:
        """Lines of a tensor to a list."""
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
