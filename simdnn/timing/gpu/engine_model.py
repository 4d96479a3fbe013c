"""An in-order engine that issues instructions of its threads, each the oldest that can go first.

The class is written in the part of Python that `translate` compiles; `engine` prepares the arrays and calls it.
"""

from __future__ import annotations

import math

from simdnn.timing.translate import Floats, Ints

SYSTOLIC, VECTOR, SEND, BARRIER, SPECIAL, ALU, SCHEDULER = range(7)  # pipes, and what feeds them
NOTHING = -1  # no register, and no thread
NEVER = math.inf  # the cycle in which a barrier lets anybody pass by itself


class EngineModel:
    """Threads of one engine, each with a stream of instructions, which are rows of a few different ones."""

    threads: int
    registers: int
    co_issue: int  # whether the systolic and the vector pipe work at once
    noted: int  # whether it is noted what is issued when
    # Streams: of each thread the place of its next instruction, and the one behind its last.
    at: Ints
    last: Ints
    row_of: Ints  # by place
    # Rows.
    pipe: Ints
    occupancy: Floats
    slots: Floats  # cycles of the scheduler; 0 of what does not wait for it
    latency: Floats
    first_name: Ints  # of the registers that must be there, its own among them; one more row behind the last
    names: Ints
    writes: Ints
    # By thread: from when it could issue, when it has the operands of its next instruction, and that one's pipe.
    earliest: Floats
    due: Floats
    waits_for: Ints
    ready: Floats  # by thread and register
    # By pipe.
    busy: Floats
    free: Floats
    end: Floats  # one number: the cycle in which all is done
    # What was issued, if it is noted: the thread, its place, and cycles.
    issued: int
    issued_thread: Ints
    issued_at: Ints
    issued_ready: Floats
    issued_start: Floats

    def run(self) -> int:
        """Cycles until every thread's stream is done are the `end`; how many instructions were issued."""
        self.issued = 0
        left = 0
        for thread in range(self.threads):
            if self.at[thread] < self.last[thread]:
                self.look_at_next(thread)
                left += 1
        while left > 0:
            best, start = NOTHING, NEVER
            for thread in range(self.threads):
                if self.at[thread] < self.last[thread]:
                    when = max(self.due[thread], self.free[self.waits_for[thread]])
                    if self.slots[self.row_of[self.at[thread]]] > 0.0:
                        when = max(when, self.free[SCHEDULER])
                    if when < start:  # the oldest of those that can go first
                        best, start = thread, when
            if best == NOTHING:
                left = self.meet()
            else:
                left -= self.issue(best, start)
        return self.issued

    def look_at_next(self, thread: int) -> None:
        """When a thread has what its next instruction wants."""
        row, when = self.row_of[self.at[thread]], self.earliest[thread]
        for name in range(self.first_name[row], self.first_name[row + 1]):
            when = max(when, self.ready[thread * self.registers + self.names[name]])
        self.due[thread] = when
        self.waits_for[thread] = self.pipe[row]

    def meet(self) -> int:
        """All have arrived at a barrier, and what they stored is there: how many threads go on behind it."""
        met, oldest = self.free[SEND], NOTHING
        for thread in range(self.threads):
            if self.at[thread] < self.last[thread]:
                met = max(met, self.earliest[thread])
                if oldest == NOTHING:
                    oldest = thread
        met += self.latency[self.row_of[self.at[oldest]]]
        left = 0
        for thread in range(self.threads):
            if self.at[thread] < self.last[thread]:
                self.at[thread] += 1
                self.earliest[thread] = met
                if self.at[thread] < self.last[thread]:
                    self.look_at_next(thread)
                    left += 1
        self.end[0] = max(self.end[0], met)
        return left

    def issue(self, thread: int, start: float) -> int:
        """Issue a thread's next instruction: 1 where that is its last."""
        row = self.row_of[self.at[thread]]
        pipe, end = self.pipe[row], start + self.occupancy[row]
        self.busy[pipe] += self.occupancy[row]
        self.free[pipe] = end
        if self.slots[row] > 0.0:
            self.free[SCHEDULER] = start + self.slots[row]
        if self.co_issue == 0 and pipe != SEND:
            self.free[SYSTOLIC] = end
            self.free[VECTOR] = end
        if self.noted != 0:
            self.issued_thread[self.issued] = thread
            self.issued_at[self.issued] = self.at[thread]
            self.issued_ready[self.issued] = self.earliest[thread]
            self.issued_start[self.issued] = start
        self.issued += 1
        self.earliest[thread] = start + 1.0
        self.end[0] = max(self.end[0], end)
        if self.writes[row] != NOTHING:
            register = thread * self.registers + self.writes[row]
            self.ready[register] = start + max(self.latency[row], self.occupancy[row])
            self.end[0] = max(self.end[0], start + self.latency[row])
        self.at[thread] += 1
        if self.at[thread] == self.last[thread]:
            return 1
        self.look_at_next(thread)
        return 0
