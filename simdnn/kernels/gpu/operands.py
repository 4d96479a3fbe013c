"""Operands of products that have zero points or scales by groups of K."""

from __future__ import annotations

from abc import ABC, abstractmethod

from simdnn.kernels.common.code import Code
from simdnn.program.records import Affine, Tensor


class ByGroup(ABC):
    """An operand that has zero points, or scales, for each group of K."""

    @abstractmethod
    def opening(self, g: Affine) -> Code:
        """Loads what group `g` needs in registers before its steps."""

    @abstractmethod
    def tables(self) -> list[Tensor]:
        """The parameters by group, read beside the operand's own tensor."""
