"""The one table of kernels, whatever the target: each target's rows, in the order in which they are shown."""

from __future__ import annotations

import copyreg
from typing import Any

from simdnn.kernels.common.spec import KernelKind
from simdnn.kernels.x86 import rows as x86

KERNELS: tuple[KernelKind, ...] = x86.KERNELS


def kind_of(name: str) -> KernelKind | None:
    """The row of a name, or None."""
    return next((kind for kind in KERNELS if kind.name == name), None)


def _reduced(kind: KernelKind) -> str | tuple[Any, ...]:
    """A row of the table pickles and copies by its name."""
    return (kind_of, (kind.name,)) if kind_of(kind.name) is kind else kind.__reduce_ex__(2)


copyreg.pickle(KernelKind, _reduced)
