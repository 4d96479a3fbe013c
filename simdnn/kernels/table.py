"""The one table of kernels, whatever the target: each target's rows, in the order in which they are shown."""

from __future__ import annotations

from simdnn.kernels.common.spec import KernelKind
from simdnn.kernels.x86 import rows as x86

KERNELS: tuple[KernelKind, ...] = x86.KERNELS


def kind_of(name: str) -> KernelKind | None:
    """The row of a name, or None."""
    return next((kind for kind in KERNELS if kind.name == name), None)
