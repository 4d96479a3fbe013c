"""The standing of a figure: where it comes from, and how far to trust it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

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
