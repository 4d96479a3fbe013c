"""The state that all parts of the core model share: the core, the stream that it runs, what is in flight.

A node is a value in the making: the operation of an op, its load, or the commit of its store (`NODES` numbers for each
op, in this order, from the op's age on).

The class is written in the part of Python that `translate` compiles.
"""

from __future__ import annotations

from simdnn.timing.cpu.banks import Banks
from simdnn.timing.translate import Floats, Ints

UNKNOWN = -1.0
NOWHERE = -1  # no node, register, edge or place
UNPLACED = -(1 << 62)  # an address that is the same as no other
NODES = 3
OPERATION, LOAD, COMMIT = 0, 1, 2  # of an op's nodes; the last one is a result too, of what merges late


class CoreState(Banks):
    """A core's figures, the stream of `turns` times `size` ops, and what is in flight.

    Rows are the different ops, everything by number: registers, tensors, mnemonics. Lists of a row
    (uops, registers read) are a first place and a count in an array for all rows.
    """

    # The core.
    retire_slots: int
    line_bytes: int
    pipes: int  # load ports
    units: int  # that form addresses, to which memory operations are bound in turn; 0: each pipe has its own
    of_a_place: int  # loads a cycle that read one byte of their lines
    replay: int  # cycles until one more comes again, and loads are bound to pipes in turn; 0: it waits for any
    places_matter: int  # whether more loads than that may be looked at in a cycle
    load_port: Ints  # by pipe
    is_load_port: Ints  # by port
    bypass: int  # cycles that an operation takes longer whose operand comes from another kind of unit
    bypass_back: int  # from the second to the first unit for 512 bits
    bypass_by_operand: int  # whether that operand alone comes later
    is_bypassed: Ints  # by port: whether that is so of operations of one cycle there
    is_result_port: Ints  # by port: whether it yields one result a cycle
    store_queue: int
    retire_delay: int  # cycles from a result to its retirement at least
    microcode: int  # slots from which an op has groups for itself, and below which it is in one; 0: neither
    addend_is_free: int  # whether what a unit yields in a cycle is added to then without that way
    fresh_is_free: int  # whether what a unit yields in a cycle is stored then without that way
    ways_are_shared: int  # whether third operands and what is stored come by one way in a bank
    stalled_after: int
    # The stream, and the rows of its ops.
    size: int
    total: int  # ops in all turns
    buffered: int  # ops that the loop buffer holds, 0 where the stream doesn't come from there
    row_of: Ints  # by place in a turn
    load_at: Ints  # by place: the address in the first turn, or UNPLACED
    load_step: Ints  # by place: what a turn adds to it
    store_at: Ints
    store_step: Ints
    meets: Ints  # by age: what its load and its store meet, which is all that is asked of addresses (`CoreMeetings`)
    slots: Ints  # from here on by row
    split: Ints
    occupancy: Ints
    latency: Floats
    gain: Floats  # cycles by which the accumulator may come later than the other operands
    interval: Floats
    from_other_unit: Floats  # cycles that an operand takes longer from the first to the second unit for wide operations
    on_other_unit: Floats  # cycles that it takes longer on the second one, below 0: on the first
    late_result: Floats  # cycles that a result comes later to operations without such results
    late_stored: Floats  # and to stores
    flags: Ints  # that it reads, the last of the registers read
    late_flags: Ints  # whether those that it sets are read late in its dispatch group
    shares_result: Ints  # whether its port yields its result in a cycle without another
    yields: Ints  # kinds of its result, as bits
    hindered: Ints  # kinds of operands behind which it takes longer, as bits
    bypass_wide: Ints  # whether that goes by the units for 512 bits
    mnemonic: Ints
    first_uop: Ints
    uops: Ints
    first_wanted: Ints
    wanted: Ints
    first_read: Ints
    reads: Ints
    first_write: Ints
    writes: Ints
    first_pointer: Ints  # registers that form the address of its load
    pointers: Ints
    accumulator: Ints
    moves: Ints  # the register of an eliminated move
    is_move: Ints
    is_tile: Ints
    only_loads: Ints
    load_tensor: Ints  # NOWHERE: it does not load
    load_bytes: Ints
    load_pipes: Floats
    store_addresses: Ints  # units that the address of its store takes
    store_entries: Ints  # of the store queue
    way: Ints  # what it reads by the way of its bank (`steps`)
    load_share: Floats
    load_latency: Floats
    crossing_pipes: Floats
    crossing_latency: Floats
    forward_latency: Floats
    blocked_latency: Floats
    masks: Ints  # mask registers that it takes until it retires
    vectors: Ints  # and those of vectors
    store_tensor: Ints
    store_bytes: Ints
    commit_cycles: Floats
    other_line_cycles: Floats
    crossing_cycles: Floats
    registers: Ints  # lists of the rows
    # Windows.
    ages: int  # ops dispatched
    retired: int  # ops
    partial: int  # slots of the next op that are already dispatched (an op wider than what a group had left)
    until_end: int
    retire_left: int  # slots of the oldest op still to retire
    rob_room: int
    mask_room: int  # mask registers for results, where they may run out
    vector_room: int  # and those of vectors
    load_room: int
    store_room: int
    last_retirement: int
    acted: int  # whether anything happened in this cycle
    acted_in: int  # the last cycle in which anything happened
    row_at: Ints  # by age, of those dispatched
    retired_at: Ints  # by age
    dispatched_at: Ints
    # Ports, and the last writer of each register.
    free_at: Ints
    third_until: Ints  # by pool: the cycle from which none of its third operands is read
    store_port_of: Ints  # by pool
    passed: Ints  # uops of a port that others passed in this cycle
    busy: Floats  # cycles of work done
    results: Ints  # by port: a bit for each cycle from `results_from` on that has its result
    results_from: Ints
    next_of: Floats  # by mnemonic, of those with an interval: the cycle from which the next may issue
    value_of: Ints  # register to its last writer

    def row(self, node: int) -> int:
        """The row of a node's op."""
        return self.row_at[node // NODES]

    def oldest(self) -> int:
        """The node of the oldest op in flight."""
        return NODES * self.retired + self.only_loads[self.row_at[self.retired]]
