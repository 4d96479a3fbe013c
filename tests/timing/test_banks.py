"""How uops leave a queue for two banks: what was read on a Zen 4, on banks alone."""

from __future__ import annotations

import pytest

from simdnn.timing.cpu.banks import BY_CYCLE, BY_PLACE, ENDS, IN_TURN, QUIET, STRICTLY, Banks

PORTS = 6  # FP0 to FP5: of banks {0, 2, 4} and {1, 3, 5}, where the last ones take stores
PRODUCT, SUM, PERMUTATION, ANY = (0, 1), (2, 3), (1, 2), (0, 1, 2, 3)


def banks(room: int, waiting: tuple[int, ...] = (0,) * PORTS) -> Banks:
    """Two banks of 32 entries that have stood so for long."""
    model = Banks()
    model.by_halves = 0
    model.cycle, model.noted, model.uneven_in, model.gone_in = 1000, 990, 0, -1
    model.ports, model.dispatch_slots, model.halved, model.first_pool = PORTS, 6, 0, 1
    model.in_banks, model.bank_ports = [0, 2, 4, 1, 3, 5], PORTS
    model.compared, model.compared_ports = [0, 2], 2
    model.twin_of, model.pool_of = [1, 0, 3, 2, 5, 4], [1, 2] * 3
    model.parity_of, model.size_of, model.room = [0, 0, 1], [32], [64, room, room]
    model.pending, model.last_bound = list(waiting), [0] * PORTS
    model.rooms_at, model.waited_at, model.uneven_at = [0] * (2 * ENDS), [0] * (ENDS * PORTS), [0] * ENDS
    model.next_bank = model.first_bank = 0
    model.note()
    return model


def asked(model: Banks, ports: tuple[int, ...], bank: int) -> int:
    """The port of a uop that can go to some, when it is a bank's turn."""
    model.port_lists, model.uop_first, model.uop_ports = list(ports), [0], [len(ports)]
    return model.port_in(bank, 0)


def test_one_free_entry_each_lets_one_uop_go_and_the_other_two_cycles_later() -> None:
    model, left = banks(1), []
    model.uneven_at = [1] * ENDS  # so that they do not leave in threes
    for _ in range(3):
        count = model.may_leave()
        left.append(count)
        if count:
            model.room[1] -= 1
        model.have_left(count)
        model.cycle += 1
    assert left == [1, 0, 0]  # the entry that is left in the other bank is no room for a uop that may want the first
    model.room[1] += 1  # issued
    model.cycle += 1
    model.note()
    model.cycle += 1
    assert model.may_leave() == 1


@pytest.mark.parametrize(("room", "threes"), [(1, 0), (2, 0), (3, 3), (5, 3), (6, 6), (16, 6)])
def test_they_leave_in_threes_when_nothing_was_uneven(room: int, threes: int) -> None:
    model = banks(room)
    assert (model.may_leave(), model.mode) == (threes, STRICTLY)
    model.uneven_in = model.cycle - QUIET + 1
    assert (model.may_leave(), model.mode) == (min(room, 6), IN_TURN)


@pytest.mark.parametrize(("room", "waiting", "zen4", "zen3"), [(20, 9, BY_CYCLE, BY_PLACE), (16, 0, STRICTLY, IN_TURN)])
def test_nothing_but_half_of_the_entries_changes_a_zen_3s_mode(room: int, waiting: int, zen4: int, zen3: int) -> None:
    for model, mode in ((banks(room, (waiting, 0, 0, 0, 0, 0)), zen4), (banks(room, (waiting, 0, 0, 0, 0, 0)), zen3)):
        model.by_halves = int(mode == zen3)
        model.may_leave()
        assert model.mode == mode


def test_modes_by_what_waits() -> None:
    few = banks(20)
    assert few.may_leave() == 6
    assert few.mode == BY_PLACE
    uneven = banks(20, (10, 1, 0, 0, 0, 0))
    assert uneven.may_leave() == 6
    assert uneven.mode == BY_CYCLE
    stores = banks(20, (0, 0, 0, 0, 10, 1))
    stores.may_leave()
    assert stores.mode == BY_PLACE


def test_turns() -> None:
    """The last of a cycle's uops has the bank that is next, which changes behind an odd number."""
    model, found = banks(6), ""
    model.uneven_at = [1] * ENDS
    for count in (1, 1, 2, 2, 3, 2):
        model.may_leave()
        assert model.mode == IN_TURN
        found += "".join("AB"[model.first_of(count) ^ (index & 1)] for index in range(count)) + " "
        model.have_left(count)
    assert found == "A B BA BA ABA AB "


@pytest.mark.parametrize(
    ("ports", "waiting", "turns"),
    [
        (PRODUCT, (9, 1, 0, 0, 0, 0), "01"),  # eight more are not far more
        (PRODUCT, (10, 1, 0, 0, 0, 0), "11"),
        (SUM, (0, 0, 1, 10, 0, 0), "22"),
        (PERMUTATION, (0, 10, 1, 0, 0, 0), "22"),  # FP1 is compared with FP2
        (PERMUTATION, (0, 0, 9, 0, 0, 0), "11"),  # FP2 with FP3
        (PERMUTATION, (0, 9, 18, 0, 0, 0), "21"),  # unless FP1 has far more than FP0
        (ANY, (6, 0, 0, 0, 0, 0), "21"),  # five more beside
    ],
)
def test_far_more_at_a_port(ports: tuple[int, ...], waiting: tuple[int, ...], turns: str) -> None:
    """The ports of a uop when it is the first bank's turn, and the second's."""
    model = banks(6, waiting)
    model.may_leave()
    model.mode = IN_TURN
    assert "".join(str(asked(model, ports, bank)) for bank in range(2)) == turns
