"""The rows of a machine file's instructions, and the least time that a row's uops take."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from isa_models.machines.rows import operands, single, source_of
from isa_models.machines.toml_text import inline

Override = tuple[str, str, dict[str, Any]]  # patterns of mnemonics and forms, and the figures that replace a row's
VECTOR = re.compile(r"\b[xyz]?mm\b|\bk\b")
ZEN_ALUS = ("ALU0", "ALU1", "ALU2", "ALU3")  # of Zen 3 and 4
ZEN_JUMPS = ("ALU0", "ALU3")  # those that take an operation and a jump fused
ZEN_STORES = ("FP4", "FP5")  # ports by which values of vectors go to memory and to general registers


@dataclass(frozen=True)
class Row:
    """The cost of one form of an instruction, as a machine file says it."""

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

    @property
    def figures(self) -> str:
        """All but the form and its source, as an inline table has it."""
        said: dict[str, Any] = {"latency": self.latency, "slots": self.slots, "uops": list(map(list, self.uops))}
        said |= {"occupancy": self.occupancy} if self.occupancy != 1 else {}
        said |= {"interval": self.interval} if self.interval else {}
        said |= {"eliminated": True} if self.eliminated else {}
        said |= {"accumulator_latency": self.accumulator_latency} if self.accumulator_latency is not None else {}
        said |= {"source": self.pattern, "confidence": self.confidence}
        return ", ".join(f"{key} = {_number(value)}" for key, value in said.items())

    @property
    def pattern(self) -> str:
        """The source with marks for the form, where `source_of` gives the source back."""
        key = self.mnemonic, self.form
        marked = self.source.replace(f"({operands(self.form)})", "({OPERANDS})", 1)
        marked = re.sub(rf"\b{re.escape(self.mnemonic.upper())}(?= \()", "{MNEMONIC}", marked, count=1)
        return marked if source_of(marked, key) == self.source else self.source


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else inline(value)


def table(rows: Iterable[Row]) -> str:
    """The instructions of a machine file: forms with equal figures and alike sources in one row, by the alphabet.

    A machine without rows of its own has no such table.
    """
    forms: dict[tuple[str, str], list[str]] = {}  # of figures and a mnemonic
    for row in rows:
        forms.setdefault((row.figures, row.mnemonic), []).append(row.form)
    mnemonics: dict[tuple[str, tuple[str, ...]], list[str]] = {}  # of figures and forms
    for (figures, mnemonic), own in forms.items():
        mnemonics.setdefault((figures, tuple(sorted(own))), []).append(mnemonic)
    lines = sorted((sorted(names), own, figures) for (figures, own), names in mnemonics.items())
    said = [f"  {{mnemonic = {_one(names)}, form = {_one(own)}, {figures}}},\n" for names, own, figures in lines]
    return "[instructions]\nrows = [\n" + "".join(said) + "]\n" if said else ""


def _one(names: Iterable[str]) -> str:
    first, *others = names
    return inline([first, *others] if others else first)


def read(rows: Iterable[Mapping[str, Any]]) -> list[Row]:
    """The rows of a machine file's content, one for each form."""
    found = dict(one for row in rows for one in single(row))
    return [
        Row(**{**row, "uops": tuple(map(tuple, row["uops"]))}) for _, row in sorted(found.items(), key=lambda i: i[0])
    ]


def port_bound(uops: Iterable[tuple[str, ...]], cycles: float) -> float:
    """Least cycles in which the uops fit on their ports (the busiest set of ports)."""
    uops = list(uops)
    unions = {frozenset(p for u in some for p in u) for n in (1, 2, 3) for some in itertools.combinations(set(uops), n)}
    return max((cycles * sum(set(u) <= union for u in uops) / len(union) for union in unions), default=0.0)
