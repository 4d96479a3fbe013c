"""Which instructions share ports, as far as pairs of them reveal it.

A class that keeps `n` ports busy runs `n` instructions a cycle. Two classes run together, as many of each as take the
same time alone, so that neither waits for the other unless they share ports: what they then take above it is the
shared ports' part of all of theirs. Names are of no port in particular (A, B, ...): pairs can't tell which is which.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Mapping
from dataclasses import dataclass

from simdnn.calibration import timer

CYCLES = 6  # that each class of a pair takes alone
REGISTERS = 12  # different destinations in a loop
NEAR = 0.12  # of a whole number of ports, beyond which a count isn't believed
MOST_PORTS = 5
#: one instruction of each class that competes for ports; vectors of the host's full width ({h}: of half of it)
CLASSES = {
    "multiply-add": "vfmadd231ps {w}{d}, {w}14, {w}15",
    "add": "vaddps {w}{d}, {w}14, {w}15",
    "integer multiply": "vpmaddwd {w}{d}, {w}14, {w}15",
    "integer add": "vpaddd {w}{d}, {w}14, {w}15",
    "shift": "vpslld {w}{d}, {w}14, 3",
    "shuffle": "vpshufb {w}{d}, {w}14, {w}15",
    "convert": "vcvtdq2ps {w}{d}, {w}14",
    "widen": "vpmovsxbw {w}{d}, {h}14",
}


@dataclass(frozen=True)
class Ports:
    """Findings of pairs. `counts` are ports a class has, `shared` those that two classes have in common; fractions as
    they were measured. A class or pair without a figure was never seen undisturbed.
    """

    counts: Mapping[str, float]
    shared: Mapping[tuple[str, str], float]

    def groups(self) -> dict[str, str] | None:
        """For each class the letters of its ports; None where no set of ports explains all that was seen.

        >>> Ports({"add": 2, "shift": 1}, {("add", "shift"): 1}).groups()
        {'add': 'AB', 'shift': 'A'}
        """
        counts = {name: whole for name, count in self.counts.items() if (whole := _whole(count))}
        shared = {pair: round(count) for pair, count in self.shared.items() if set(pair) <= set(counts)}
        for pool in range(max(counts.values(), default=0), MOST_PORTS + 1):
            if (found := _assigned(counts, shared, pool)) is not None:
                return {name: "".join(string.ascii_uppercase[i] for i in sorted(ports)) for name, ports in found}
        return None


def _whole(count: float) -> int:
    """The whole number that a count of ports is near to, else 0."""
    return round(count) if abs(count / max(1, round(count)) - 1) <= NEAR else 0


_Assigned = list[tuple[str, frozenset[int]]]


def _assigned(counts: Mapping[str, int], shared: Mapping[tuple[str, str], int], pool: int) -> _Assigned | None:
    """Ports 0 to `pool` - 1 for each class, so that all counts hold; class after class, going back where none fits."""
    names = list(counts)
    found: _Assigned = []

    def fits(name: str, ports: frozenset[int]) -> bool:
        pairs = ((shared.get((other, name), shared.get((name, other))), theirs) for other, theirs in found)
        return all(count is None or len(ports & theirs) == count for count, theirs in pairs)

    def place(index: int) -> bool:
        if index == len(names):
            return True
        for ports in map(frozenset, itertools.combinations(range(pool), counts[names[index]])):
            if fits(names[index], ports):
                found.append((names[index], ports))
                if place(index + 1):
                    return True
                found.pop()
        return False

    return found if place(0) else None


def measure(wide: bool) -> Ports:
    """Pairs of `CLASSES` on this host, at 512 bits or at 256."""
    widths = {"w": "zmm", "h": "ymm"} if wide else {"w": "ymm", "h": "xmm"}

    def lines(name: str, count: int, first: int = 0) -> list[str]:
        return [CLASSES[name].format(d=(first + i) % REGISTERS, **widths) for i in range(count)]

    counts = {}
    for name in CLASSES:
        if found := timer.measure(lines(name, REGISTERS)):
            counts[name] = REGISTERS / found.cycles
    shared = {}
    for one, other in itertools.combinations(counts, 2):
        a, b = _whole(counts[one]), _whole(counts[other])
        found = timer.measure(_mixed(lines(one, CYCLES * a), lines(other, CYCLES * b, REGISTERS // 2)))
        if a and b and found:
            excess = max(0.0, found.cycles / CYCLES - 1)
            shared[one, other] = min(a, b, excess * (a + b) / (1 + excess))
    return Ports(counts, shared)


def _mixed(one: list[str], other: list[str]) -> list[str]:
    """Lines of both in turn, as evenly as their numbers allow."""
    places = [(i / len(lines), line) for lines in (one, other) for i, line in enumerate(lines)]
    return [line for _, line in sorted(places, key=lambda pair: pair[0])]
