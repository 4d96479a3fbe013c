"""The rows of a machine's instruction table: read and checked with its file, but made one by one for who asks for them.

A file has thousands of forms. An estimate needs some dozen of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from isa_models.machines.instruction_row import InstructionTiming
from isa_models.machines.provenance import Confidence, Provenance
from isa_models.machines.rows import Key, source_of

Figures = tuple[float, int, tuple[tuple[str, ...], ...], int, float, float, bool]


class WrittenRow(NamedTuple):
    """Figures of a file's row, as `InstructionTiming` has them, and where they are from: all its forms have them."""

    figures: Figures
    source: str  # a pattern (`rows.source_of`)
    confidence: Confidence

    def of(self, key: Key) -> InstructionTiming:
        """The cost of one form."""
        mnemonic, form = key
        return InstructionTiming(
            mnemonic, form, *self.figures, Provenance(source_of(self.source, key), self.confidence)
        )


Given = Mapping[Key, InstructionTiming | WrittenRow]


class InstructionRows(Mapping[Key, InstructionTiming]):
    """Rows by mnemonic and form; nothing changes them."""

    def __init__(self, rows: Given) -> None:
        self._given = dict(rows)
        self._made: dict[Key, InstructionTiming] = {}

    def __getitem__(self, key: Key) -> InstructionTiming:
        found = self._made.get(key)
        if found is None:
            row = self._given[key]
            found = self._made.setdefault(key, row.of(key) if isinstance(row, WrittenRow) else row)  # one, whoever asks
        return found

    def __contains__(self, key: object) -> bool:
        return key in self._given

    def __iter__(self) -> Iterator[Key]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def __eq__(self, other: object) -> bool:
        return self._given == given(other) if isinstance(other, InstructionRows) else super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]  # as of any mapping

    def __reduce__(self) -> tuple[type[InstructionRows], tuple[Given]]:
        return InstructionRows, (self._given,)


def given(rows: Mapping[Key, InstructionTiming]) -> dict[Key, InstructionTiming | WrittenRow]:
    """Rows as they were given: those that nobody has asked for are not made."""
    return dict(rows._given if isinstance(rows, InstructionRows) else rows)
