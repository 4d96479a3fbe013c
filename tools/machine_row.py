"""One row of a machine file's instructions, and the least time that its uops take."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass

VECTOR = re.compile(r"\b[xyz]?mm\b|\bk\b")


@dataclass(frozen=True)
class Row:
    """One line of a machine file, less its formatting."""

    mnemonic: str
    form: str
    latency: float
    slots: int
    uops: tuple[tuple[str, ...], ...]
    source: str
    confidence: str
    occupancy: int = 1
    interval: float = 0.0
    eliminated: bool = False
    accumulator_latency: float | None = None  # None: as the latency

    def toml(self) -> str:
        """The row as an inline table."""
        uops = ", ".join("[" + ", ".join(f'"{p}"' for p in uop) + "]" for uop in self.uops)
        parts = [f'mnemonic = "{self.mnemonic}"', f'form = "{self.form}"', f"latency = {self.latency:g}"]
        parts += [f"slots = {self.slots}", f"uops = [{uops}]"]
        parts += [f"occupancy = {self.occupancy}"] if self.occupancy != 1 else []
        parts += [f"interval = {self.interval:g}"] if self.interval else []
        parts += ["eliminated = true"] if self.eliminated else []
        own = self.accumulator_latency
        parts += [f"accumulator_latency = {own:g}"] if own is not None else []
        parts += [f'source = "{self.source}"', f'confidence = "{self.confidence}"']
        return "  {" + ", ".join(parts) + "},\n"


def port_bound(uops: Iterable[tuple[str, ...]], cycles: float) -> float:
    """Least cycles in which the uops fit on their ports (the busiest set of ports)."""
    uops = list(uops)
    unions = {frozenset(p for u in some for p in u) for n in (1, 2, 3) for some in itertools.combinations(set(uops), n)}
    return max((cycles * sum(set(u) <= union for u in uops) / len(union) for union in unions), default=0.0)
