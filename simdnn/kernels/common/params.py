"""Scales and zero points in one form: which elements of an argument share a value, and in which type it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Param:
    """A scale or zero point of `argument` (src, wei, dst): how many elements of each dimension share one of its values.

    `rows` and `columns` are those of a source (M, K), of weights (K, N); 0 stands for all of them. A group of K rows is
    another thing than a value per channel, whose rows are 0: kernels scale before the sum there, and here after it.
    `dtype` is the stored type: of scales f32, bf16 or f16, of zero points s32, s8, u8, s4 or u4.

    >>> common, per_oc, grouped = (Param("wei", *shared, "f32") for shared in ((0, 0), (0, 1), (32, 1)))
    >>> common.granularity, per_oc.granularity, grouped.granularity, Param("src", 1, 0, "f32").granularity
    ('common', 'per_oc', 'grouped', 'per_token')
    >>> [(p.group, p.by_channel) for p in (common, per_oc, grouped, Param("wei", 32, 0, "s8"))]
    [(0, False), (0, True), (32, True), (32, False)]
    """

    argument: str
    rows: int
    columns: int
    dtype: str

    @property
    def group(self) -> int:
        """How many k share a value; 0 where all of them do."""
        return self.columns if self.argument == "src" else self.rows

    def length(self, k: int) -> int:
        """How many of `k` share a value: all of them where no group is named."""
        return self.group or k

    def in_groups(self, length: int) -> Param:
        """The parameter with a value for every `length` k."""
        return replace(self, columns=length) if self.argument == "src" else replace(self, rows=length)

    def of_groups(self, k: int) -> Param:
        """The parameter of sums of groups, where one group of all `k` is none: its values apply to the same sums."""
        return self.in_groups(0) if self.group == k else self

    def whole(self, k: int, n: int) -> Param:
        """The parameter of one group of all `k`, of weights with `n` channels, as one that knows no groups."""
        shared = self.argument == "wei" and self.columns == n > 1
        return replace(self.of_groups(k), columns=0) if shared else self.of_groups(k)

    @property
    def along_k(self) -> bool:
        """Whether it changes along K or from row to row."""
        return bool(self.group) or self.per_token

    @property
    def by_channel(self) -> bool:
        """Whether each channel of the weights has values of its own."""
        return self.argument == "wei" and self.columns == 1

    @property
    def common(self) -> bool:
        """Whether there is one value."""
        return not self.rows and not self.columns

    @property
    def per_token(self) -> bool:
        """Whether each row of a source has a value, and no group along K has one of its own."""
        return self.argument == "src" and self.rows == 1 and not self.columns

    @property
    def granularity(self) -> str:
        """common | per_oc | per_token | grouped, as messages name it."""
        if self.common:
            return "common"
        return "grouped" if self.group else "per_token" if self.per_token else "per_oc"

    def __str__(self) -> str:
        shared = " shared" if self.group and self.argument == "wei" and not self.by_channel else ""
        return f"{self.granularity} {self.group or ''} {self.dtype}".replace("  ", " ") + shared


@dataclass(frozen=True)
class Params:
    """Parameters of an integer matmul by argument (src, wei, dst), and whether the user gives sums of the source."""

    scales: Mapping[str, Param] = field(default_factory=dict)
    zero_points: Mapping[str, Param] = field(default_factory=dict)
    reductions: bool = False

    @property
    def along_k(self) -> Mapping[str, Param]:
        """The source's and weights' scales where one of them changes along K or from row to row; else none."""
        found = {name: p for name, p in self.scales.items() if name != "dst"}
        return found if any(p.along_k for p in found.values()) else {}
