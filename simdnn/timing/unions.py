"""Lines of memory that runs of bytes touch, when they are repeated along loops: the union of all, as machine code.

Runs of a tensor that move alike are repeated along one loop after the other, those of the smallest steps first; where
gaps close, runs become one: a gap without a whole line's length holds no line that the runs leave out, wherever they
move. Then they are cut to lines, and brought together with those that move in another way.

The class is written in the part of Python that `translate` compiles.
"""

from __future__ import annotations

from simdnn.timing.translate import Ints

ROOM = 1 << 15  # runs that there is room for; more are taken by arrays
MOST_RUNS = 1 << 16  # of one tensor that are kept apart; beyond, dimensions multiply (`footprint.united`)
TOO_MANY = -1


class Unions:
    """Bundles of runs, which move alike, by number; queries' answers by the order in which tensors are met."""

    line_bytes: int
    deepest: int  # loops around any bundle
    # By bundle.
    tensor: Ints
    stores: Ints
    first_run: Ints  # of its runs, and behind them that of the next one
    deep: Ints  # loops around
    steps: Ints  # by bundle and loop, from the outermost: what a turn adds
    turns: Ints
    # By run.
    begin: Ints
    end: Ints
    # Workspace of a query: by bundle, then by run.
    gathered: Ints
    met: Ints
    shift: Ints
    dims: Ints
    dim_step: Ints
    dim_turns: Ints
    low: Ints
    high: Ints
    count: int
    other_low: Ints
    other_high: Ints
    line_low: Ints
    line_high: Ints
    lines: int
    # Queries: their first bundle, the one behind their last, the loops that stand still.
    asked: Ints
    # Answers: by query how many tensors it met, or `TOO_MANY`; then by tensor, those of one query behind another's.
    met_by: Ints
    answered: int
    kept: int  # runs
    found_tensor: Ints
    touched: Ints
    written: Ints
    runs: Ints
    kept_low: Ints
    kept_high: Ints

    def answer(self, queries: int) -> int:
        """Answer a number of queries; how many tensors they met."""
        self.answered = 0
        self.kept = 0
        for query in range(queries):
            answered, kept = self.answered, self.kept
            if self.query(self.asked[3 * query], self.asked[3 * query + 1], self.asked[3 * query + 2]) == 0:
                self.met_by[query] = self.answered - answered
            else:
                self.met_by[query] = TOO_MANY
                self.answered = answered
                self.kept = kept
        return self.answered

    def query(self, first: int, last: int, outside: int) -> int:
        """Answer for tensors that bundles touch while the `outside` outermost loops stand still: `TOO_MANY`, or 0."""
        for bundle in range(first, last):
            self.met[bundle] = 0
            self.lay_out(bundle, outside)
        for bundle in range(first, last):
            if self.met[bundle] == 0 and self.look_at(bundle, last) < 0:
                return TOO_MANY
        return 0

    def lay_out(self, bundle: int, outside: int) -> None:
        """The loops that move a bundle, the smallest steps first, and how far those with negative steps move it."""
        at = self.deepest * bundle
        shift, dims = 0, 0
        for loop in range(at + outside, at + self.deep[bundle]):
            step, turns = self.steps[loop], self.turns[loop]
            if step == 0 or turns == 1:
                continue
            if step < 0:
                shift += step * (turns - 1)
                step = -step
            place = at + dims
            while place > at and (
                self.dim_step[place - 1] > step
                or self.dim_step[place - 1] == step
                and self.dim_turns[place - 1] > turns
            ):
                self.dim_step[place] = self.dim_step[place - 1]
                self.dim_turns[place] = self.dim_turns[place - 1]
                place -= 1
            self.dim_step[place] = step
            self.dim_turns[place] = turns
            dims += 1
        self.shift[bundle] = shift
        self.dims[bundle] = dims

    def look_at(self, first: int, last: int) -> int:
        """Answer for the tensor of the first bundle: `TOO_MANY`, or 0."""
        loads, stores = 0, 0
        for bundle in range(first, last):
            if self.tensor[bundle] == self.tensor[first]:
                self.met[bundle] = 1
                if self.stores[bundle] == 0:
                    loads = 1
                else:
                    stores = 1
        if self.unite(first, last, 0) < 0 or self.kept + self.lines > ROOM:
            return TOO_MANY
        place, touched = self.answered, 0
        for run in range(self.lines):
            touched += self.line_high[run] - self.line_low[run]
            self.kept_low[self.kept + run] = self.line_low[run]
            self.kept_high[self.kept + run] = self.line_high[run]
        self.kept += self.lines
        self.answered += 1
        self.found_tensor[place] = self.tensor[first]
        self.runs[place] = self.lines
        self.touched[place] = touched
        self.written[place] = touched if loads == 0 else 0
        if loads == 1 and stores == 1:
            if self.unite(first, last, 1) < 0:
                return TOO_MANY
            for run in range(self.lines):
                self.written[place] += self.line_high[run] - self.line_low[run]
        return 0

    def unite(self, first: int, last: int, stores: int) -> int:
        """Unite the lines of one tensor's bundles; with `stores`, of the storing ones alone. `TOO_MANY`, or 0."""
        self.lines = 0
        for bundle in range(first, last):
            self.gathered[bundle] = 0
        for bundle in range(first, last):
            if self.gathered[bundle] != 0 or self.tensor[bundle] != self.tensor[first] or self.stores[bundle] < stores:
                continue
            self.count = 0
            for other in range(bundle, last):
                if (
                    self.tensor[other] == self.tensor[first]
                    and self.stores[other] >= stores
                    and self.moves_alike(bundle, other) == 1
                ):
                    self.gathered[other] = 1
                    if self.gather(other) < 0:
                        return TOO_MANY
            self.merge(self.line_bytes - 1)
            if self.repeat(bundle) < 0 or self.lines + self.count > ROOM:
                return TOO_MANY
            for run in range(self.count):
                self.line_low[self.lines] = self.low[run] // self.line_bytes
                self.line_high[self.lines] = -(-self.high[run] // self.line_bytes)
                self.lines += 1
        self.count = self.lines
        for run in range(self.lines):
            self.low[run] = self.line_low[run]
            self.high[run] = self.line_high[run]
        self.merge(0)
        self.lines = self.count
        for run in range(self.lines):
            self.line_low[run] = self.low[run]
            self.line_high[run] = self.high[run]
        return 0

    def moves_alike(self, bundle: int, other: int) -> int:
        """Whether (1, 0) the same steps, as often, repeat two bundles."""
        if self.dims[bundle] != self.dims[other]:
            return 0
        for dim in range(self.dims[bundle]):
            if self.dim_step[self.deepest * bundle + dim] != self.dim_step[self.deepest * other + dim]:
                return 0
            if self.dim_turns[self.deepest * bundle + dim] != self.dim_turns[self.deepest * other + dim]:
                return 0
        return 1

    def gather(self, bundle: int) -> int:
        """Add a bundle's runs to those at work."""
        if self.count + self.first_run[bundle + 1] - self.first_run[bundle] > ROOM:
            return TOO_MANY
        for run in range(self.first_run[bundle], self.first_run[bundle + 1]):
            self.low[self.count] = self.begin[run] + self.shift[bundle]
            self.high[self.count] = self.end[run] + self.shift[bundle]
            self.count += 1
        return 0

    def repeat(self, bundle: int) -> int:
        """Repeat the runs at work along the loops that move a bundle."""
        for dim in range(self.deepest * bundle, self.deepest * bundle + self.dims[bundle]):
            step, turns = self.dim_step[dim], self.dim_turns[dim]
            reach = step * (turns - 1)
            shortest = self.high[0] - self.low[0]
            for run in range(self.count):
                shortest = min(shortest, self.high[run] - self.low[run])
            if shortest + self.line_bytes > step and (self.count == 1 or self.count * turns <= MOST_RUNS):
                for run in range(self.count):
                    self.high[run] += reach
            elif self.count * turns > ROOM:
                return TOO_MANY
            else:
                self.copy(step, turns)
            self.merge(self.line_bytes - 1)
        return 0

    def copy(self, step: int, turns: int) -> None:
        """The runs at work and their copies, a turn's behind those of the one before."""
        for turn in range(1, turns):
            for run in range(self.count):
                self.low[turn * self.count + run] = self.low[run] + turn * step
                self.high[turn * self.count + run] = self.high[run] + turn * step
        self.count *= turns

    def merge(self, gap: int) -> None:
        """Sort the runs at work, and make one of those that lie no farther apart than a gap."""
        self.sort()
        last = 0
        for run in range(1, self.count):
            if self.low[run] <= self.high[last] + gap:
                self.high[last] = max(self.high[last], self.high[run])
            else:
                last += 1
                self.low[last] = self.low[run]
                self.high[last] = self.high[run]
        self.count = last + 1

    def sort(self) -> None:
        """Sort the runs at work by where they begin: rows that rise are woven in pairs until there is one."""
        while self.end_of_rise(0) < self.count:
            first = 0
            while first < self.count:
                middle = self.end_of_rise(first)
                last = self.end_of_rise(middle)
                self.weave(first, middle, last)
                first = last
            for run in range(self.count):
                self.low[run] = self.other_low[run]
                self.high[run] = self.other_high[run]

    def end_of_rise(self, first: int) -> int:
        """The run behind those that begin one behind the other from a first one on."""
        last = min(first + 1, self.count)
        while last < self.count and self.low[last - 1] <= self.low[last]:
            last += 1
        return last

    def weave(self, first: int, middle: int, last: int) -> None:
        """Two neighbouring rows of runs, each in order, as one beside them."""
        one, other = first, middle
        for place in range(first, last):
            if other == last or one < middle and self.low[one] <= self.low[other]:
                self.other_low[place] = self.low[one]
                self.other_high[place] = self.high[one]
                one += 1
            else:
                self.other_low[place] = self.low[other]
                self.other_high[place] = self.high[other]
                other += 1
