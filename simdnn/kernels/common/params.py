"""Scales and zero points of an integer matmul, as whoever judges a problem reads them: how finely, in which types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

ALONG_K = ("grouped", "per_token")


class Param(NamedTuple):
    """One scale or zero point; `length`: how many k share a value."""

    granularity: str  # common | per_oc | per_token | grouped
    dtype: str
    length: int


@dataclass(frozen=True)
class Params:
    """Parameters by argument (src, wei, dst), and whether the user gives sums of the source."""

    scales: Mapping[str, Param] = field(default_factory=dict)
    zero_points: Mapping[str, Param] = field(default_factory=dict)
    reductions: bool = False

    @property
    def along_k(self) -> Mapping[str, Param]:
        """The source's and weights' scales where one of them changes along K or from row to row; else none."""
        found = {name: p for name, p in self.scales.items() if name != "dst"}
        return found if any(p.granularity in ALONG_K for p in found.values()) else {}
