"""The standing of a figure: where it comes from, and how far to trust it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol

from isa_models.errors import unknown_name

Confidence = Literal["measured", "documented", "estimated"]
CONFIDENCES: tuple[Confidence, ...] = ("measured", "documented", "estimated")  # strongest first


def weakest(confidences: Iterable[Confidence]) -> Confidence:
    """The least trustworthy of several standings; "measured" for none.

    >>> weakest(["measured", "estimated", "documented"])
    'estimated'
    """
    return max(confidences, key=CONFIDENCES.index, default="measured")


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a figure comes from and how far to trust it."""

    source: str
    confidence: Confidence


class _Machine(Protocol):
    name: str

    @property
    def provenance(self) -> Mapping[str, Provenance]: ...


@lru_cache(maxsize=1 << 13)
def weakest_below(machine: _Machine, key: str) -> Confidence:
    """The weakest standing of a figure and of those below it; `UnknownName` where there is none."""
    below = [figure.confidence for k, figure in machine.provenance.items() if k == key or k.startswith(key + ".")]
    if not below:
        raise unknown_name(f"figure of {machine.name}", key, machine.provenance, f"simdnn machines show {machine.name}")
    return weakest(below)
