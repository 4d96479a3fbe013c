"""How places of a dispatch group get ports, as measured on a Redwood Cove (docs/validation/intel-core.md).

Uops that wait for one load lie at the ports, so many at each; one more is dispatched, whose delay tells its port: at
one of the ports those before it are ready with it, at the other they are not.
"""

from __future__ import annotations

from typing import Any

import pytest

from simdnn.timing.cpu.core_model import CoreModel
from simdnn.timing.cpu.schedulers import FAR_LANES, RING, SLID
from tests.loops import cycles_of

# The port that a uop of ports 0 and 1 gets at each place, by which places before it have such uops: all sets of them,
# the first place as the lowest bit. 5 wait at port 0 and 8 at port 1, so 0 is the port with the fewest.
PORTS = ("0", "01", "0110", "11000011", "0000111111110000", "11111111000000000000000011111111")

# The ports of the ranks 0, 1, 2, 3 where so many uops wait at ports 0, 1 and 5.
IN_ORDER = {
    (17, 18, 19): "0150", (17, 19, 18): "0510", (18, 17, 19): "1051", (18, 19, 17): "5015", (19, 17, 18): "1501",
    (19, 18, 17): "5105", (17, 17, 17): "5105", (17, 17, 19): "1051", (19, 17, 17): "5105", (17, 19, 17): "5015",
    (19, 19, 17): "5105", (17, 19, 19): "0510", (17, 18, 21): "0150", (17, 18, 22): "0101", (17, 21, 21): "0510",
    (17, 22, 22): "0000",
}  # fmt: skip


def core(ports: int = 2) -> Any:
    """A core that deals out its ports to the places of groups of six, with nothing in it."""
    model: Any = CoreModel()
    model.dispatch_slots, model.ports, model.by_lanes = 6, ports, 1
    model.lanes, model.port_lists = [0] * (6 + SLID), list(range(ports))
    model.counted = [0] * ports
    model.bound_in, model.issued_in = [0] * (RING * ports), [0] * (RING * ports)
    model.cycle, model.counted_at = 0, -1
    return model


@pytest.mark.parametrize("place", range(6))
def test_places_take_ports_in_turn(place: int) -> None:
    model, found = core(), ""
    for before in range(1 << place):
        model.begin_group()
        for other in range(place):
            if before >> other & 1:
                model.rank_in_group(3, other)
            else:
                model.rank_in_group(7, other)  # a uop of other ports
        found += str(model.rank_in_group(3, place) % 2)
    assert found == PORTS[place]


@pytest.mark.parametrize("counts", IN_ORDER)
def test_ports_are_dealt_out_by_what_waits_there(counts: tuple[int, int, int]) -> None:
    model, found = core(3), ""
    model.counted, model.counted_at = list(counts), model.cycle
    for rank in range(4):
        found += "015"[model.in_order(0, 3, rank, FAR_LANES)]
    assert found == IN_ORDER[counts]


def test_what_waits_is_counted_late() -> None:
    """A uop of the group in cycle 0 that issues in cycle 1 counts for groups in cycles 2 to 7, measured."""
    model, counted = core(), []
    model.pending, model.room, model.pool_of, model.banked = [0, 0], [9], [0, 0], [0, 0]
    model.last_bound, model.uop_ports, model.bindings = [0, 0], [2], 0
    for model.cycle in range(12):
        if model.cycle == 0:
            model.bind(1, 0)
        if model.cycle == 1:
            model.issued(1)
        model.count()
        counted.append(model.counted[1])
    assert counted == [0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("lines", "measured"),
    [
        (["vpslld ymm0, ymm0, 1"], 1.147),
        (["vpslld ymm0, ymm0, 1", "nop"], 1.009),
        (["vpslld ymm0, ymm0, 1", *["nop"] * 2], 1.161),
        (["vpslld ymm0, ymm0, 1", *["nop"] * 3], 1.014),
        (["vpslld ymm0, ymm0, 1", *["nop"] * 4], 1.230),
        (["vpshufb ymm0, ymm0, ymm1", *["nop"] * 4], 0.998),
        ([*["nop"] * 3, "shl rax, 1", "nop"], 0.994),
        ([*["nop"] * 4, "shl rax, 1"], 1.771),
        (["add rax, r8", "add rbx, r8", "add rdx, r8", "add rsi, r8", "add rdi, r8"], 1.378),
        ([f"vfmadd231ps ymm{i}, ymm14, ymm15" for i in range(8)], 4.0),
        ([*[f"vfmadd231ps ymm{i}, ymm14, ymm15" for i in range(8)], *["nop"] * 7], 4.48),
    ],
)
def test_chains_that_meet_at_a_port(lines: list[str], measured: float) -> None:
    assert cycles_of("gnr", lines) == pytest.approx(measured, rel=0.05)
